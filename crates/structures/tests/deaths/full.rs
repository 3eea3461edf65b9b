//! Deaths beside a full device: transactions that have filled the log are rolled back, in the room that was reserved
//! for that. So it is when whoever rolls back dies as well.

use std::sync::Arc;

use ledgerstone_disk::SimDisk;
use ledgerstone_log::LogError;
use ledgerstone_region::sync::Scheduler;
use ledgerstone_structures::TreeError;
use ledgerstone_testkit::deaths::*;
use ledgerstone_txn::TxnError;

use crate::model::key;
use crate::work::Work;
use crate::world::Process;

/// What is left on the device: some segments.
const LEFT_BYTES: u64 = 400 << 10;

impl Process {
    /// Changes records until there is no space for more, and takes all of that back.
    fn fill_the_log(&self) {
        let mut txn = self.begin();
        for no in 0.. {
            match self.tree.put(&mut txn, &key(self.no, no % 4), &[no as u8; 220]) {
                Ok(_) => {}
                Err(TreeError::Txn(TxnError::Log(LogError::NoSpace { .. }))) => break,
                Err(error) => panic!("process {}: {error}", self.no),
            }
        }
        txn.abort().unwrap();
    }
}

/// The steps of the victim and of the repairer, if it does not die.
fn die(victim_dies_at: u64, repairer_dies_at: u64) -> (u64, u64) {
    let ran = Scheduler::run_within(victim_dies_at * 7 + repairer_dies_at, 20_000_000, || {
        let sim = SimDisk::new();
        let root = Process::with_short_log(sim.clone());
        (VICTIM..=WORKERS[0]).for_each(|no| root.prepare_for(no, Work::Put));
        sim.no_space_after(sim.used_bytes() + LEFT_BYTES);
        let deaths = Deaths::at(victim_dies_at, repairer_dies_at);
        let mut cast = Cast::begin(deaths, |no| Arc::new(root.view(no)), Process::repair);
        for no in [VICTIM, WORKERS[0]] {
            cast.start(no, "fills", root.view(no), Process::fill_the_log);
        }
        let outcome = cast.end();
        root.repair().into_iter().for_each(lived);
        sim.space_for_all();
        root.check_all();
        root.shared.engine.assert_nothing_left();
        (outcome.victim_steps, outcome.repair_steps)
    });
    ran.unwrap_or_else(|stuck| panic!("{victim_dies_at}, {repairer_dies_at}: {stuck}"))
}

#[test]
fn deaths_beside_a_full_device_are_repaired() {
    let (step_count, _) = die(0, 0);
    let mut deaths = 0;
    for step in Which::About(60).of(step_count, 0) {
        let (_, repair_steps) = die(step, 0);
        deaths += 1;
        for step_of_repairer in Which::About(6).of(repair_steps, 0) {
            die(step, step_of_repairer);
            deaths += 1;
        }
    }
    println!("{deaths} deaths in {step_count} steps");
    assert!(deaths > 200, "{deaths}");
}
