//! A process closes its environment while one of its threads ends what a dead one has left. Others go on.

use ledgerstone_region::sync::deaths::{kill_at_step, steps};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_testkit::deaths::{Which, died, lived};

use crate::work::Work;
use crate::world::Process;

const VICTIM: u32 = 1;
const REPAIRER: u32 = 4;

fn die(step: u64) -> u64 {
    let ran = Scheduler::run_within(step, 10_000_000, || {
        let root = Process::create_for(VICTIM, Work::Update);
        kill_at_step(VICTIM, step);
        died(root.start(VICTIM, "works", |own| own.work(VICTIM, Work::Update)));
        let repairs = root.start(REPAIRER, "repairs", |own| {
            let ending = own.repair();
            sync::yield_point("before it closes");
            own.env.clone().close().unwrap();
            ending.into_iter().for_each(lived);
        });
        lived(repairs);
        root.end();
        steps(VICTIM)
    });
    ran.unwrap_or_else(|stuck| panic!("step {step}: {stuck}"))
}

#[test]
fn a_close_waits_for_what_is_ended_after_deaths() {
    let step_count = die(0);
    let deaths = Which::About(100).of(step_count, 0).map(die).count();
    println!("{deaths} deaths in {step_count} steps");
}
