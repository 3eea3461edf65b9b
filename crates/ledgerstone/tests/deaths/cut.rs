//! A process dies while it cuts the data file. Until somebody has finished that, a checkpoint waits (G3 in
//! `space/repair.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_region::sync::deaths::{kill_at_step, steps};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_testkit::deaths::{Which, died, lived};

use crate::work::Work;
use crate::world::Process;

const VICTIM: u32 = 1;
const OTHER: u32 = 2;

/// A checkpoint that nothing keeps up has been taken by then.
const LONG_NS: u64 = 60_000_000;

/// What came of a death.
#[derive(Debug, Clone, Copy)]
struct Came {
    /// Steps that a compaction takes.
    steps: u64,
    /// A checkpoint waited after its process had died.
    has_waited: bool,
    /// Pages that the file has in the end.
    page_count: u64,
}

/// Whoever cuts the file takes long for it, so that others come in between.
fn cuts_slowly(what: &'static str) {
    match what {
        "set length" => sync::sleep_ns(LONG_NS),
        other => sync::yield_point(other),
    }
}

fn die(step: u64) -> Came {
    let ran = Scheduler::run_within(step, 10_000_000, || {
        let root = Process::create_for_with(VICTIM, Work::Cut, cuts_slowly);
        kill_at_step(VICTIM, step);
        let compacts = root.start(VICTIM, "compacts", |own| drop(own.env.compact().unwrap()));
        died(compacts);
        let steps = steps(VICTIM);
        root.env.repair_after_deaths().unwrap();
        let is_taken = Arc::new(AtomicBool::new(false));
        let tells = Arc::clone(&is_taken);
        let checkpoint = root.start(OTHER, "checkpoint", move |own| {
            own.env.checkpoint().unwrap();
            assert!(!own.env.is_half_cut(), "a checkpoint was taken before the end of the cut");
            tells.store(true, SeqCst);
        });
        sync::sleep_ns(LONG_NS);
        let has_waited = !is_taken.load(SeqCst);
        let ender = Arc::clone(&root);
        let ending = sync::spawn("ends", move || {
            sync::sleep_ns(LONG_NS);
            ender.env.end_orphans().unwrap();
        });
        root.env.checkpoint().unwrap(); // The latch has the name of whoever has repaired, which waits as well.
        [ending, checkpoint].into_iter().for_each(lived);
        Came { steps, has_waited, page_count: root.check_cut() }
    });
    ran.unwrap_or_else(|stuck| panic!("step {step}: {stuck}"))
}

impl Process {
    /// Nothing is left, and the file ends where it says; so it is if the power fails then. Returns its pages.
    fn check_cut(&self) -> u64 {
        let lost = self.lose_power();
        let [page_count, room] = self.end();
        assert_eq!(page_count, room, "the file was not cut");
        self.check_after_power_loss(lost, page_count);
        page_count
    }
}

/// A process dies that cuts the file, and then the one that finishes that, before step `again` of its own. A third
/// one finishes it. Says whether the second has died.
fn die_twice(step: u64, again: u64) -> bool {
    let ran = Scheduler::run_within(step, 10_000_000, || {
        let root = Process::create_for(VICTIM, Work::Cut);
        kill_at_step(VICTIM, step);
        assert!(died(root.start(VICTIM, "compacts", |own| drop(own.env.compact().unwrap()))));
        kill_at_step(OTHER, again);
        let has_died = died(root.start(OTHER, "finishes", |own| own.repair().into_iter().for_each(lived)));
        root.repair().into_iter().for_each(lived);
        root.check_cut();
        has_died
    });
    ran.unwrap_or_else(|stuck| panic!("step {step}, and step {again} of a repair: {stuck}"))
}

#[test]
fn deaths_while_a_cut_is_finished_are_repaired() {
    let waited = Which::About(80).of(die(0).steps, 0).filter(|step| die(*step).has_waited);
    let steps: Vec<u64> = waited.collect();
    let mut deaths = 0;
    for step in [steps[0], steps[steps.len() - 1]] {
        deaths += (1..).take_while(|again| die_twice(step, *again)).count();
    }
    println!("{deaths} deaths of whoever finished a cut");
    assert!(deaths > 100, "{deaths}");
}

#[test]
fn a_checkpoint_waits_until_a_cut_is_finished_after_deaths() {
    let Came { steps: step_count, has_waited, .. } = die(0);
    assert!(!has_waited, "nobody has died");
    let waited = Which::About(80).of(step_count, 0).filter(|step| die(*step).has_waited).count();
    println!("{waited} checkpoints have waited, of deaths in {step_count} steps");
    assert!(waited > 0);
}

/// The step from which on the number of pages is lower is searched. Who dies around it leaves a file that ends where it
/// says (G2 in `space/repair.rs`).
#[test]
fn deaths_where_a_cut_begins_are_repaired() {
    let (mut before, mut after) = (1, die(0).steps);
    let page_count = die(before).page_count;
    while after - before > 1 {
        let between = before.midpoint(after);
        if die(between).page_count < page_count {
            after = between;
        } else {
            before = between;
        }
    }
    println!("the number of pages is lower from step {after} on");
    for step in before - 10..after + 10 {
        die(step);
    }
}
