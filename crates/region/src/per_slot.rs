//! A value for each thread slot, made when it is first asked for.

use std::fmt;
use std::sync::OnceLock;

use crate::SlotNo;

/// Slots whose values lie together: of those that no thread has come to, nothing is there.
const PIECE_SLOTS: usize = 64;

/// A value for each thread slot. A slot's value stays when its thread ends, for the thread that gets the slot next.
///
/// Where the values lie is written once for each, and only read from then on. What is in them and written often should
/// lie in lines of its own.
pub struct PerSlot<T>(Box<[OnceLock<Piece<T>>]>);

type Piece<T> = Box<[OnceLock<T>]>;

impl<T> PerSlot<T> {
    /// No values yet, for so many slots.
    #[must_use]
    pub fn new(slot_count: u32) -> PerSlot<T> {
        PerSlot((0..slot_count.div_ceil(PIECE_SLOTS as u32)).map(|_| OnceLock::new()).collect())
    }

    /// The value of a slot, which `make` makes if there is none.
    ///
    /// # Panics
    /// There is no such slot.
    #[inline]
    pub fn get_or_make(&self, slot: SlotNo, make: impl FnOnce() -> T) -> &T {
        let no = usize::from(slot.0);
        let piece = self.0[no / PIECE_SLOTS].get_or_init(|| (0..PIECE_SLOTS).map(|_| OnceLock::new()).collect());
        piece[no % PIECE_SLOTS].get_or_init(make)
    }

    /// The value of a slot, if it was ever asked for.
    pub fn get(&self, slot: SlotNo) -> Option<&T> {
        let no = usize::from(slot.0);
        self.0.get(no / PIECE_SLOTS)?.get()?[no % PIECE_SLOTS].get()
    }

    /// All values that there are.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).flat_map(|piece| piece.iter().filter_map(OnceLock::get))
    }
}

impl<T> fmt::Debug for PerSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerSlot({} values)", self.iter().count())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_one_value_from_the_first_call_on() {
        let values = PerSlot::new(200);
        for no in [0, 63, 64, 199, 5] {
            assert_eq!(values.get(SlotNo(no)), None);
            assert_eq!(*values.get_or_make(SlotNo(no), || no * 2), no * 2);
            assert_eq!(*values.get_or_make(SlotNo(no), || 7), no * 2, "it is there");
            assert_eq!(values.get(SlotNo(no)), Some(&(no * 2)));
        }
        assert_eq!(values.iter().copied().collect::<Vec<u16>>(), [0, 10, 126, 128, 398]);
        assert_eq!(values.get(SlotNo(u16::MAX)), None);
    }
}
