//! A cell of a thread slot under loom, with what a transaction leaves in it for the next one: the only reference to a
//! value in common (S2 in `ledgerstone/src/transaction/seat.rs`). loom notices two threads in the cell at a time.
//!
//! The slot is a copy in small of those in `slot.rs`, which are in a region: taken by an exchange that acquires, given
//! back by a store that releases.

use std::cell::Cell;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::common::Common;
use super::own_cell::OwnCell;
use crate::SlotNo;
use crate::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A table of one slot.
pub(crate) struct SlotTable {
    is_taken: AtomicU32,
}

loom::thread_local! {
    /// Whether this thread has it.
    static HAS_SLOT: Cell<bool> = Cell::new(false);
}

const SLOT: SlotNo = SlotNo(0);

impl SlotTable {
    pub(crate) fn at_hand(&self) -> Option<SlotNo> {
        HAS_SLOT.with(|has_slot| has_slot.get().then_some(SLOT))
    }

    fn try_take(&self) -> bool {
        let is_ours = self.is_taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        HAS_SLOT.with(|has_slot| has_slot.set(is_ours));
        is_ours
    }

    fn give_back(&self) {
        HAS_SLOT.with(|has_slot| has_slot.set(false));
        self.is_taken.store(0, Release);
    }
}

/// What a transaction and its handles have in common.
struct Shared(UnsafeCell<u32>);

// SAFETY: the models do not share what is inside but as they check.
unsafe impl Sync for Shared {}

impl Shared {
    fn read(&self) -> u32 {
        // SAFETY: loom panics if another thread changes it meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn change(&mut self) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

struct Seat {
    slots: std::sync::Arc<SlotTable>,
    spare: OwnCell<Common<Shared>>,
}

impl Seat {
    fn new() -> Arc<Seat> {
        let slots = std::sync::Arc::new(SlotTable { is_taken: AtomicU32::new(0) });
        let spare = OwnCell::new(std::sync::Arc::clone(&slots), SLOT);
        Arc::new(Seat { slots, spare })
    }

    /// As the end of a transaction: its memory stays if no handle is left. Says whether it was kept.
    fn end(&self, mut shared: Common<Shared>) -> bool {
        let Some(value) = shared.get_mut() else { return false };
        value.change();
        self.spare.put(shared).is_none()
    }

    /// As the beginning of one: says whether it found the memory of another.
    fn begin(&self) -> bool {
        let Some(mut shared) = self.spare.take() else { return false };
        shared.get_mut().expect("what is kept is the only reference").change();
        true
    }
}

/// A handle of a transaction goes in one thread while the transaction ends in another, which then gives its slot back.
/// A third thread begins one: in that slot, or without it.
#[test]
fn loom_what_a_transaction_leaves_is_for_the_next_in_its_slot_alone() {
    loom::model(|| {
        let seat = Seat::new();
        let shared = Common::new(Shared(UnsafeCell::new(1)));
        let handle = shared.clone();
        let handles = thread::spawn(move || assert_eq!(handle.read(), 1));
        let ends = Arc::clone(&seat);
        let ending = thread::spawn(move || {
            // Perhaps the other has the slot: then nothing is kept.
            let has_slot = ends.slots.try_take();
            let is_kept = ends.end(shared);
            assert!(has_slot || !is_kept, "kept by a thread that is not in the slot");
            if has_slot {
                ends.slots.give_back();
            }
            is_kept
        });
        let has_slot = seat.slots.try_take();
        let is_found = seat.begin();
        assert!(has_slot || !is_found, "taken by a thread that is not in the slot");
        if has_slot {
            seat.slots.give_back();
        }
        handles.join().unwrap();
        let is_kept = ending.join().unwrap();
        assert!(is_kept || !is_found);
        assert!(seat.slots.try_take());
        assert_eq!(seat.begin(), is_kept && !is_found, "what was kept is there once");
    });
}
