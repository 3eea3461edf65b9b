//! The number of slots in use under loom: a transaction that takes the last slot, the housekeeper that lowers the
//! number meanwhile, and one who looks at all slots. All orders.

use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use loom::sync::Arc;
use loom::thread;

use super::used::{ByOwner, count, give_back, lower_below, take};

const RUNNING: u32 = 1;
const SLOTS: usize = 2;

struct World {
    used: AtomicU64,
    state: [AtomicU32; SLOTS],
    /// As `first_lsn`.
    mark: [AtomicU64; SLOTS],
    tail: AtomicU64,
}

impl World {
    /// All slots are counted, and none is taken.
    fn new() -> Arc<World> {
        Arc::new(World {
            used: AtomicU64::new(SLOTS as u64),
            state: [AtomicU32::new(0), AtomicU32::new(0)],
            mark: [AtomicU64::new(0), AtomicU64::new(0)],
            tail: AtomicU64::new(10),
        })
    }

    /// Takes a slot, marks it, and reserves a record: its LSN.
    fn begin(&self, no: usize) -> Option<u64> {
        // Who finds it held looks elsewhere, or again.
        if !take(&self.state[no], RUNNING) {
            return None;
        }
        count(&self.used, no as u64);
        self.mark[no].store(self.tail.load(SeqCst), SeqCst);
        Some(self.tail.fetch_add(1, SeqCst))
    }

    fn end(&self, no: usize) {
        self.mark[no].store(0, Release);
        give_back(&self.state[no]);
    }

    fn lower(&self) {
        while let Some(last) = self.used.load(SeqCst).checked_sub(1) {
            if !lower_below(&self.used, last, &ByOwner(&self.state[last as usize], SlotNo(1)), || (), || ()) {
                return;
            }
        }
    }

    /// As a checkpoint does, or who opens a snapshot: first the tail, then the marks. Says what is needed from the log.
    fn low(&self) -> u64 {
        let tail = self.tail.load(SeqCst);
        let used = self.used.load(SeqCst) as usize;
        let marks = self.mark[..used].iter().map(|mark| mark.load(SeqCst));
        marks.filter(|&mark| mark != 0).fold(tail, u64::min)
    }
}

#[test]
fn loom_a_transaction_is_seen_while_the_number_of_slots_in_use_sinks() {
    loom::model(|| {
        let world = World::new();
        let [runs, lowers] = [&world, &world].map(Arc::clone);
        let running = thread::spawn(move || runs.begin(1));
        let lowering = thread::spawn(move || lowers.lower());
        let low = world.low();
        let record = running.join().unwrap();
        lowering.join().unwrap();
        if let Some(record) = record {
            assert!(low <= record, "the log is given up below {low}, and a transaction has {record}");
            assert_eq!(world.low(), record, "it is not seen afterwards");
        }
    });
}

/// The slot is taken again by another transaction, of which nobody told the one who lowers the number.
#[test]
fn loom_the_next_transaction_in_a_slot_counts_it_again() {
    loom::model(|| {
        let world = World::new();
        let [first, lowers] = [&world, &world].map(Arc::clone);
        let first = thread::spawn(move || {
            if first.begin(0).is_some() {
                first.end(0);
            }
        });
        let lowering = thread::spawn(move || lowers.lower());
        let record = world.begin(0);
        first.join().unwrap();
        lowering.join().unwrap();
        if let Some(record) = record {
            let mark = world.mark[0].load(Relaxed);
            assert!(mark <= record);
            assert_eq!(world.low(), mark, "it is not seen");
        }
    });
}
