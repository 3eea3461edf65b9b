//! One run: a plan of deaths, and what has to be when all is over.

use std::sync::Arc;

use ledgerstone_testkit::deaths::*;
use ledgerstone_txn::RepairPart;

use crate::work::Work;
use crate::world::Process;

/// What is to happen.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub work: Work,
    pub deaths: Deaths,
    /// A planted bug.
    pub forgotten: Option<RepairPart>,
}

/// Runs the work beside deaths, and looks at what is there afterwards.
pub fn run(plan: Plan) -> Outcome {
    // What a repair leaves out may keep somebody going round for ever.
    let decisions_max = if plan.forgotten.is_some() { 200_000 } else { 3_000_000 };
    round(plan, plan.seed, decisions_max, || {
        let root = Process::create(plan.forgotten);
        root.prepare_for(VICTIM, plan.work);
        let mut cast = Cast::begin(plan.deaths, |no| Arc::new(root.view(no)), Process::repair);
        let [first, second] = WORKERS;
        let reader = first + 4;
        cast.start(VICTIM, "victim", root.view(VICTIM), move |own| own.work(plan.work));
        cast.start(first, "works", root.view(first), |own| own.live(4));
        cast.start(second, "works", root.view(second), |own| own.live(4));
        cast.start(reader, "reads", root.view(reader), |own| own.read(3));
        let outcome = cast.end();
        root.repair().into_iter().for_each(lived);
        root.check_all();
        root.shared.engine.assert_nothing_left();
        outcome
    })
}
