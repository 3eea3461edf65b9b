//! A value that only the thread in one slot reaches: no lock, no atomic instruction.
//!
//! O1. Who takes or puts has the cell's slot. That is looked up in the thread itself ([`SlotTable::at_hand`]), and one
//!     thread has a slot at a time. The next one to get the slot acquires what the one before has released with it, and
//!     so sees what that one put.
//! O2. A value is taken out and put in, and never lent. So no reference to it is there while another call replaces it.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;

use crate::{SlotNo, SlotTable};

/// Keeps a value for whichever thread has a slot. For what one thread uses again and again, and what may as well be
/// made anew.
#[repr(align(64))] // Its thread writes it at every turn: it has a line of its own.
pub struct OwnCell<T> {
    slots: Arc<SlotTable>,
    slot: SlotNo,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the thread in the slot reaches the value, and what one puts the next may take: it goes from thread to
// thread, and is not shared (O1).
unsafe impl<T: Send> Sync for OwnCell<T> {}

impl<T> OwnCell<T> {
    /// Empty, for the threads in `slot`.
    #[must_use]
    pub const fn new(slots: Arc<SlotTable>, slot: SlotNo) -> OwnCell<T> {
        OwnCell { slots, slot, value: UnsafeCell::new(None) }
    }

    #[inline]
    fn is_own(&self) -> bool {
        self.slots.at_hand() == Some(self.slot)
    }

    /// Takes the value out. `None` if there is none, or if this thread is not in the slot.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if !self.is_own() {
            return None;
        }
        // SAFETY: no other thread comes here (O1), and no call of this thread is inside (O2).
        unsafe { (*self.value.get()).take() }
    }

    /// Puts a value in, and gives back what is not kept: the one before, or this one if the thread is not in the slot.
    #[inline]
    pub fn put(&self, value: T) -> Option<T> {
        if !self.is_own() {
            return Some(value);
        }
        // SAFETY: as in `take`. What is replaced is dropped by the caller, outside of here.
        unsafe { (*self.value.get()).replace(value) }
    }
}

impl<T> fmt::Debug for OwnCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnCell({})", self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn only_threads_in_the_slot_reach_the_value_one_after_the_other() {
        let region = Region::anonymous(1 << 16).expect("a small region");
        let slots = Arc::new(SlotTable::create(&region, 2).expect("it fits"));
        let first = OwnCell::new(Arc::clone(&slots), slots.current());
        assert_eq!((first.put(1), first.put(2), first.take(), first.take()), (None, Some(1), Some(2), None));
        assert_eq!(first.put(3), None);
        let second = std::thread::scope(|scope| {
            let in_second = || {
                let slot = slots.current();
                assert_eq!((first.take(), first.put(4)), (None, Some(4)), "it is another's");
                let second = OwnCell::new(Arc::clone(&slots), slot);
                assert_eq!(second.put("of a thread that has ended"), None);
                second
            };
            scope.spawn(in_second).join().expect("no panic")
        });
        assert_eq!(second.take(), None);
        std::thread::scope(|scope| {
            let in_second_again = || {
                assert_eq!(second.take(), None, "no slot asked for yet");
                slots.current();
                second.take()
            };
            let found = scope.spawn(in_second_again).join().expect("no panic");
            assert_eq!(found, Some("of a thread that has ended"));
        });
        assert_eq!(first.take(), Some(3));
    }
}
