//! What a transaction in doubt has whose process has died: room in the log for its rollback, and no lock that keeps
//! others from what it only read.

use ledgerstone_lock::Mode;
use ledgerstone_region::sync::Scheduler;
use ledgerstone_region::sync::deaths::{kill_at_step, steps};
use ledgerstone_structures::Read;
use ledgerstone_testkit::deaths::died;

use crate::model::key;
use crate::work::Work;
use crate::world::Process;

const VICTIM: u32 = 1;

impl Process {
    /// Reads, writes, and prepares. Nobody decides.
    fn read_and_prepare(&self) {
        let mut txn = self.begin();
        self.tree.get(&mut txn, &key(VICTIM, 0), Read::Locked).unwrap();
        self.tree.put(&mut txn, &key(VICTIM, 1), &[9; 300]).unwrap();
        txn.prepare(b"in doubt").unwrap();
    }
}

/// Dies at a step: how many there are, and whether the transaction was in doubt then.
fn die(step: u64) -> (u64, bool) {
    let ran = Scheduler::run_within(step, 3_000_000, || {
        let root = Process::create(None);
        root.prepare_for(VICTIM, Work::Put);
        kill_at_step(VICTIM, step);
        let has_died = died(root.start(VICTIM, "prepares", |own| own.read_and_prepare()));
        if !has_died {
            return (steps(VICTIM), false);
        }
        let engine = root.engine();
        ledgerstone_recovery::repair(engine, |dead| root.repair_own(dead)).unwrap();
        let mut found = Vec::new();
        engine.end_orphans(|in_doubt| found.push(in_doubt)).unwrap();
        let is_in_doubt = !found.is_empty();
        for mut found in found {
            let (room, needed) = (found.txn.reserved_for_undo(), found.record.undo_bytes);
            assert!(needed > 300 && room >= needed, "{room} bytes are reserved for {needed}");
            let mut modes = Vec::new();
            engine.locks.for_each_held(found.txn.owner(), &mut |_, mode| modes.push(mode));
            assert!(
                modes.contains(&Mode::X) && !modes.iter().any(|mode| matches!(mode, Mode::S | Mode::IS)),
                "{modes:?}"
            );
            found.txn.abort_prepared().unwrap();
        }
        root.check_all();
        engine.assert_nothing_left();
        (steps(VICTIM), is_in_doubt)
    });
    ran.unwrap_or_else(|stuck| panic!("step {step}: {stuck}"))
}

#[test]
fn what_is_in_doubt_after_deaths_keeps_room_and_no_locks_of_reads() {
    let (step_count, _) = die(0);
    let in_doubt = (1..=step_count).filter(|step| die(*step).1).count();
    println!("in doubt after {in_doubt} of {step_count} deaths");
    assert!(in_doubt > 10, "{in_doubt}");
}
