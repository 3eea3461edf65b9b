//! One run: a plan of deaths, and what has to be when all is over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_region::sync::deaths::{is_dead, kill_at_step, steps, stop_at_step};
use ledgerstone_region::sync::{self, Scheduler, Stuck};

use ledgerstone_txn::RepairPart;

use crate::work::Work;
use crate::world::{Process, Thread};

/// The processes: one that dies, two that work, of which one may die, one that repairs and may die, one that repairs
/// after it.
const VICTIM: u32 = 1;
const WORKERS: [u32; 2] = [2, 3];
const REPAIRERS: [u32; 2] = [4, 5];

/// What is to happen: deaths before these steps, 0 none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub seed: u64,
    pub work: Work,
    pub victim_dies_at: u64,
    pub repairer_dies_at: u64,
    pub worker_dies_at: u64,
    pub worker_stops_at: u64,
    /// A planted bug.
    pub forgotten: Option<RepairPart>,
}

/// Who has died, and how far they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub victim: bool,
    pub repairer: bool,
    pub worker: bool,
    pub victim_steps: u64,
    pub repair_steps: u64,
}

/// Runs the work beside deaths, and looks at what is there afterwards.
pub fn run(plan: Plan) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| run_simulated(plan)));
    let ran = ran.inspect_err(|_| eprintln!("{plan:?}")).unwrap_or_else(|panic| resume_unwind(panic));
    ran.unwrap_or_else(|stuck| panic!("{plan:?}: {stuck}"))
}

fn run_simulated(plan: Plan) -> Result<Outcome, Stuck> {
    // What a repair leaves out may keep somebody going round for ever.
    let steps_max = if plan.forgotten.is_some() { 200_000 } else { 3_000_000 };
    Scheduler::run_within(plan.seed, steps_max, || {
        let root = Process::create(plan.forgotten);
        root.prepare_for(VICTIM, plan.work);
        kill_at_step(VICTIM, plan.victim_dies_at);
        kill_at_step(REPAIRERS[0], plan.repairer_dies_at);
        kill_at_step(WORKERS[1], plan.worker_dies_at);
        stop_at_step(WORKERS[1], plan.worker_stops_at, 30_000_000);
        let repairers = [
            root.start(REPAIRERS[0], "repairs", |own| own.go_on_repairing(700_000)),
            root.start(REPAIRERS[1], "repairs", |own| own.go_on_repairing(40_000_000)),
        ];
        let work = plan.work;
        let victim = root.start(VICTIM, "victim", move |own| own.work(work));
        let workers = [
            root.start(WORKERS[0], "works", |own| own.live(4)),
            root.start(WORKERS[1], "works", |own| own.live(4)),
            root.start(WORKERS[0] + 4, "reads", |own| own.read(3)),
        ];
        let victim = join(victim, VICTIM);
        let [first, second, reader] = workers;
        join(first, 0);
        let worker = join(second, WORKERS[1]);
        join(reader, 0);
        sync::sleep_ns(100_000_000); // Somebody repairs.
        root.is_over.store(true, SeqCst);
        let [first, last] = repairers;
        let repairer = join(first, REPAIRERS[0]);
        join(last, 0);
        if let Some(ending) = root.repair() {
            join(ending, 0);
        }
        root.check_all();
        root.shared.engine.assert_nothing_left();
        let [victim_steps, repair_steps] = [VICTIM, REPAIRERS[0]].map(steps);
        Outcome { victim, repairer, worker, victim_steps, repair_steps }
    })
}

/// Waits for a thread, and whether its process, if it may, has died; then until that is known.
pub fn join(thread: Thread, may_die: u32) -> bool {
    match thread.join() {
        Ok(()) => false,
        Err(_) if may_die != 0 => {
            while !is_dead(may_die) {
                sync::sleep_ns(1_000_000);
            }
            true
        }
        Err(panic) => panic.resume(),
    }
}
