//! A value that only the thread in one slot reaches: no lock, no atomic instruction.
//!
//! O1. Who takes or puts has the cell's slot. That is looked up in the thread itself ([`SlotTable::at_hand`]), and one
//!     thread has a slot at a time. The next one to get the slot acquires what the one before has released with it, and
//!     so sees what that one put.
//! O2. A value is taken out and put in, and never lent. So no reference to it is there while another call replaces it.
//!
//! Modelled under loom (`loom_own_cell.rs`).

use std::fmt;
use std::sync::Arc;

use crate::SlotNo;
#[cfg(not(loom))]
use crate::SlotTable;
#[cfg(loom)]
use crate::loom_own_cell::SlotTable;

#[cfg(loom)]
type Place<T> = loom::cell::UnsafeCell<T>;
#[cfg(not(loom))]
type Place<T> = std::cell::UnsafeCell<T>;

/// Keeps a value for whichever thread has a slot. For what one thread uses again and again, and what may as well be
/// made anew.
#[repr(align(64))] // Its thread writes it at every turn: it has a line of its own.
pub struct OwnCell<T> {
    slots: Arc<SlotTable>,
    slot: SlotNo,
    value: Place<Option<T>>,
}

// SAFETY: only the thread in the slot reaches the value, and what one puts the next may take: it goes from thread to
// thread, and is not shared (O1).
unsafe impl<T: Send> Sync for OwnCell<T> {}

impl<T> OwnCell<T> {
    /// Empty, for the threads in `slot`.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new(slots: Arc<SlotTable>, slot: SlotNo) -> OwnCell<T> {
        OwnCell { slots, slot, value: Place::new(None) }
    }

    /// The same; nothing of loom's is made at compile time.
    #[cfg(loom)]
    pub fn new(slots: Arc<SlotTable>, slot: SlotNo) -> OwnCell<T> {
        OwnCell { slots, slot, value: Place::new(None) }
    }

    #[inline]
    fn is_own(&self) -> bool {
        self.slots.at_hand() == Some(self.slot) || cfg!(all(loom, feature = "planted-cell-for-all"))
    }

    /// # Safety
    /// This thread has the slot, and `f` calls nothing of this cell.
    #[inline]
    unsafe fn with<R>(&self, f: impl FnOnce(&mut Option<T>) -> R) -> R {
        // SAFETY: no other thread comes here (O1), and no call of this thread is inside (O2).
        #[cfg(not(loom))]
        return f(unsafe { &mut *self.value.get() });
        // SAFETY: loom panics if another thread is here.
        #[cfg(loom)]
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    /// Takes the value out. `None` if there is none, or if this thread is not in the slot.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if !self.is_own() {
            return None;
        }
        // SAFETY: it is ours, and nothing is called.
        unsafe { self.with(Option::take) }
    }

    /// Puts a value in, and gives back what is not kept: the one before, or this one if the thread is not in the slot.
    #[inline]
    pub fn put(&self, value: T) -> Option<T> {
        if !self.is_own() {
            return Some(value);
        }
        // SAFETY: as in `take`. What is replaced is dropped by the caller, outside of here.
        unsafe { self.with(|place| place.replace(value)) }
    }
}

impl<T> fmt::Debug for OwnCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnCell({})", self.slot)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn only_threads_in_the_slot_reach_the_value_one_after_the_other() {
        let region = Region::anonymous(1 << 16).expect("a small region");
        let slots = Arc::new(SlotTable::place(&region, 2).expect("it fits"));
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
