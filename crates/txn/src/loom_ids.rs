//! Ids of transactions under loom: two threads with one slot, a third with another, and a checkpoint.
//!
//! Slots are taken and given back as the table does, and ids as well. Blocks are taken from the first transaction on.

use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use loom::sync::Arc;
use loom::thread;

use super::ids::{BLOCK_IDS, OwnIds, UNHINDERED_MIN};
use super::used::{give_back, take};

const RUNNING: u32 = 1;

struct Slot {
    state: AtomicU32,
    next: AtomicU64,
    end: AtomicU64,
    unhindered: AtomicU64,
}

impl Slot {
    fn new() -> Slot {
        let number = AtomicU64::new;
        Slot { state: AtomicU32::new(0), next: number(0), end: number(0), unhindered: number(UNHINDERED_MIN) }
    }

    fn ids(&self) -> OwnIds<'_> {
        OwnIds { next: &self.next, end: &self.end, unhindered: &self.unhindered }
    }
}

struct World {
    slots: [Slot; 2],
    counter: AtomicU64,
    tail: AtomicU64,
    /// The id in each record, by its place in the log.
    records: [AtomicU64; 4],
}

impl World {
    fn new() -> Arc<World> {
        let number = AtomicU64::new;
        let records = [number(0), number(0), number(0), number(0)];
        Arc::new(World { slots: [Slot::new(), Slot::new()], counter: number(1), tail: number(0), records })
    }

    /// A transaction in slot `no`, with one record. None if another has the slot.
    fn run(&self, no: usize) -> Option<u64> {
        let slot = &self.slots[no];
        if !take(&slot.state, RUNNING) {
            return None;
        }
        let id = slot.ids().take(&self.counter);
        let lsn = self.tail.fetch_add(1, SeqCst);
        self.records[lsn as usize].store(id, Relaxed);
        give_back(&slot.state);
        Some(id)
    }

    /// As a checkpoint does: first the tail, then the counter.
    fn checkpoint(&self) -> (u64, u64) {
        (self.tail.load(SeqCst), self.counter.load(Relaxed))
    }

    /// Each id was used once, and a restart from the checkpoint takes none of them: those of later records it reads.
    fn check(&self, ids: &mut [u64], checkpoint: (u64, u64)) {
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id is used twice: {ids:?}");
        let (tail, floor) = checkpoint;
        let before = self.records[..tail as usize].iter().map(|id| id.load(Relaxed));
        before.for_each(|id| assert!(id < floor, "{id} is in the log, and the checkpoint says {floor}"));
    }
}

#[test]
fn loom_no_id_is_used_twice_and_a_checkpoint_is_above_those_in_the_log() {
    loom::model(|| {
        let world = World::new();
        let [first, other] = [&world, &world].map(Arc::clone);
        let first = thread::spawn(move || [first.run(0), first.run(0)]);
        let other = thread::spawn(move || other.run(1));
        // A second thread with the first slot: it goes on in the block that the other has taken.
        let mine = world.run(0);
        let checkpoint = world.checkpoint();
        let [one, two] = first.join().unwrap();
        let other = other.join().unwrap();
        world.check(&mut [one, two, mine, other].into_iter().flatten().collect::<Vec<_>>(), checkpoint);
        assert_eq!(world.counter.load(Relaxed), 1 + 2 * BLOCK_IDS, "one block for each slot");
    });
}

/// A transaction that has waited for a lock leaves the block: what is left of it is nobody's.
#[test]
fn loom_what_is_left_of_a_block_is_not_used_by_the_next_in_the_slot() {
    loom::model(|| {
        let world = World::new();
        let waits = Arc::clone(&world);
        let waiting = thread::spawn(move || {
            let slot = &waits.slots[0];
            take(&slot.state, RUNNING).then(|| {
                let id = slot.ids().take(&waits.counter);
                slot.ids().leave_block();
                give_back(&slot.state);
                id
            })
        });
        let ids = [world.run(0), world.run(1), world.run(0)];
        let ids = ids.into_iter().chain([waiting.join().unwrap()]);
        let checkpoint = world.checkpoint();
        world.check(&mut ids.flatten().collect::<Vec<_>>(), checkpoint);
    });
}
