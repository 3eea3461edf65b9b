//! Deaths that are found out late: others write much meanwhile, and checkpoints give log up. So it is again between the
//! repair and the end of the transactions of the dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::deaths::{kill_at_step, steps};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_testkit::deaths::{Which, died, lived};
use ledgerstone_txn::{Durability, state};

use crate::model::key;
use crate::work::Work;
use crate::world::Process;

const VICTIM: u32 = 1;
const WRITERS: [u32; 2] = [2, 3];

/// What a writer writes: more than the log keeps, where nothing holds it.
const WRITTEN_COUNT: u32 = 30;
const WRITTEN_BYTES: usize = 20_000;

/// A writer that waits for the dead is not waited for longer than this.
const LOOKS: u32 = 60;
const LOOK_NS: u64 = 5_000_000;

/// What came of a death.
#[derive(Debug, Default, Clone, Copy)]
struct Late {
    has_died: bool,
    steps: u64,
    /// It had ended its transaction, and had its slot still.
    had_ended: bool,
    /// How often log was given up.
    given_up: u32,
}

impl Process {
    /// Leaves nothing but log.
    fn write_much(&self) {
        for no in 0..WRITTEN_COUNT {
            let (mut txn, key) = (self.begin(), key(self.no, 80));
            self.tree.put(&mut txn, &key, &vec![no as u8; WRITTEN_BYTES]).unwrap();
            self.tree.delete(&mut txn, &key).unwrap();
            txn.commit(Durability::Volatile).unwrap();
        }
        ledgerstone_recovery::checkpoint(self.engine(), &self.control, false).unwrap();
        ledgerstone_recovery::checkpoint(self.engine(), &self.control, false).unwrap();
    }

    /// Whether some transaction has ended, and has its slot still.
    fn has_ended_in_a_slot(&self) -> bool {
        let table = &self.engine().table;
        let has_ended = |no| {
            let slot = table.slot(no);
            let [xid, first, last] = [&slot.xid, &slot.first_lsn, &slot.last_lsn].map(|word| word.load(SeqCst));
            state::of(slot.state.load(SeqCst)) != state::FREE && xid != 0 && first == 0 && last != 0
        };
        (0..table.slot_count()).any(has_ended)
    }
}

/// Starts a writer, and waits until it has written, or waits for the dead.
fn write(root: &Arc<Process>, no: u32) -> sync::JoinHandle<()> {
    let is_done = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_done);
    let writer = root.start(no, "writes", move |own| {
        own.write_much();
        tells.store(true, SeqCst);
    });
    for _ in 0..LOOKS {
        if is_done.load(SeqCst) {
            break;
        }
        sync::sleep_ns(LOOK_NS);
    }
    writer
}

fn die(work: Work, step: u64, looks_only: bool) -> Late {
    let ran = Scheduler::run_within(step, 10_000_000, || {
        let root = Process::with_short_log(SimDisk::new());
        root.prepare_for(VICTIM, work);
        // So no writer's key is a neighbour of what the victim locks.
        (WRITERS[0]..=WRITERS[1] + 1).for_each(|no| root.prepare_for(no, Work::Put));
        kill_at_step(VICTIM, step);
        let has_died = died(root.start(VICTIM, "victim", move |own| own.work(work)));
        let had_ended = root.has_ended_in_a_slot();
        let mut late = Late { has_died, steps: steps(VICTIM), had_ended, given_up: 0 };
        if looks_only && !had_ended {
            return late;
        }
        let oldest = || root.engine().log.oldest_lsn();
        let before = oldest();
        let first = write(&root, WRITERS[0]);
        let between = oldest();
        ledgerstone_recovery::repair(root.engine(), |dead| root.repair_own(dead)).unwrap();
        let second = write(&root, WRITERS[1]);
        late.given_up = u32::from(between > before) + u32::from(oldest() > between);
        let ender = Arc::clone(&root);
        lived(sync::spawn("ends", move || ender.end_orphans()));
        [first, second].into_iter().for_each(lived);
        root.check_all();
        root.shared.engine.assert_nothing_left();
        late
    });
    ran.unwrap_or_else(|stuck| panic!("{work:?}, step {step}: {stuck}"))
}

/// Its last record may be gone: its mark went before its id.
#[test]
fn deaths_in_slots_of_transactions_that_have_ended_are_repaired_late() {
    for work in [Work::Put, Work::DeleteAndAbort, Work::Prepare] {
        let step_count = die(work, 0, true).steps;
        let all: Vec<Late> = (1..=step_count).rev().take(120).map(|step| die(work, step, true)).collect();
        let ended: Vec<&Late> = all.iter().filter(|late| late.had_ended).collect();
        println!("{work:?}: {} of {step_count} steps, {ended:?}", ended.len());
        assert!(!ended.is_empty() && ended.iter().all(|late| late.given_up > 0), "{work:?}: {ended:?}");
    }
}

#[test]
fn deaths_are_repaired_late() {
    let (mut deaths, mut given_up) = (0, 0);
    for work in [Work::Put, Work::Split, Work::DeleteAndAbort, Work::Savepoint, Work::Prepare, Work::Deep] {
        let step_count = die(work, 0, true).steps;
        for step in Which::About(12).of(step_count, 0) {
            let late = die(work, step, false);
            deaths += u32::from(late.has_died);
            given_up += late.given_up;
        }
    }
    println!("{deaths} deaths, log was given up {given_up} times");
    assert!(deaths > 60 && given_up > 10, "{deaths} deaths, {given_up}"); // Mostly their transactions hold it.
}
