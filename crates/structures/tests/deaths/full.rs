//! Deaths beside a full device: transactions that have filled the log are rolled back, in the room that was reserved
//! for that. So it is when whoever rolls back dies as well.

use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_disk::SimDisk;
use ledgerstone_log::LogError;
use ledgerstone_region::sync::deaths::{kill_at_step, steps};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_structures::TreeError;
use ledgerstone_txn::TxnError;

use crate::model::key;
use crate::run::join;
use crate::some_of;
use crate::work::Work;
use crate::world::Process;

const VICTIM: u32 = 1;
const WORKER: u32 = 2;
const REPAIRERS: [u32; 2] = [4, 5];

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
        (VICTIM..=WORKER).for_each(|no| root.prepare_for(no, Work::Put));
        sim.no_space_after(sim.used_bytes() + LEFT_BYTES);
        kill_at_step(VICTIM, victim_dies_at);
        kill_at_step(REPAIRERS[0], repairer_dies_at);
        let repairers = [(REPAIRERS[0], 700_000), (REPAIRERS[1], 40_000_000)]
            .map(|(no, every_ns)| (no, root.start(no, "repairs", move |own| own.go_on_repairing(every_ns))));
        let fillers = [VICTIM, WORKER].map(|no| root.start(no, "fills", |own| own.fill_the_log()));
        for (no, filler) in [VICTIM, 0].into_iter().zip(fillers) {
            join(filler, no);
        }
        sync::sleep_ns(100_000_000); // Somebody repairs.
        root.is_over.store(true, SeqCst);
        for (no, repairer) in repairers {
            join(repairer, if no == REPAIRERS[0] { no } else { 0 });
        }
        if let Some(ending) = root.repair() {
            join(ending, 0);
        }
        sim.space_for_all();
        root.check_all();
        root.shared.engine.assert_nothing_left();
        (steps(VICTIM), steps(REPAIRERS[0]))
    });
    ran.unwrap_or_else(|stuck| panic!("{victim_dies_at}, {repairer_dies_at}: {stuck}"))
}

#[test]
fn deaths_beside_a_full_device_are_repaired() {
    let (step_count, _) = die(0, 0);
    let mut deaths = 0;
    for step in some_of(step_count, 60) {
        let (_, repair_steps) = die(step, 0);
        deaths += 1;
        for step_of_repairer in some_of(repair_steps, 6) {
            die(step, step_of_repairer);
            deaths += 1;
        }
    }
    println!("{deaths} deaths in {step_count} steps");
    assert!(deaths > 200, "{deaths}");
}
