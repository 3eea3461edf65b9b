//! Which latches a thread holds shared: a latch counts its shared holders, and here is who they are.
//!
//! ```text
//! a line for each thread slot: 8 words, 0 or
//! bits 63..1   name of a latch, a number that its layer gives it
//! bit  0       1: the thread holds it; 0: it is about to take it or to give it back
//! ```
//! H1. A thread names a latch before the exchange that takes it, and says that it holds it after. It takes that back
//!     before it gives the latch back, and forgets the name after. In between it waits for nothing. So the name of a
//!     latch that is held is there, and a name without the lowest bit is about to change.
//! H2. Only the slot's thread writes its line, and whoever repairs after its death.
//! H3. The count of a latch is made again while nobody can join (L5 in `latch.rs`). It is the number of living threads
//!     that hold it. It counts only if none of them is about to change, and nobody gave the latch back meanwhile. A
//!     thread that was seen as a holder had not given it back before. One that was not seen had given it back, and its
//!     exchange came before that, or it cannot have taken it.
//! H4. The names of the dead are forgotten when their latches are counted, so a repair can be done again.
//! H5. A ninth latch is taken exclusively, whose word has room for its holder.
//!
//! Checked under loom: `loom_held.rs`. This file does not know whose latches these are.

#[cfg(any(not(loom), test))]
use crate::atomic::Ordering::Acquire;
use crate::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::latch::{LATCH_TIMEOUT_NS, SharedHolder};
use crate::{Latch, LatchTimeout, SlotNo};

/// Latches that a thread can hold shared by name.
const HELD_MAX: usize = 8;
const HOLDS: u64 = 1;

#[cfg(not(loom))]
crate::shared! {
    /// The latches that the thread in one slot holds shared.
    #[repr(align(64))]
    pub struct HeldLine {
        names: [AtomicU64; HELD_MAX],
    } size 64
}

/// The latches that the thread in one slot holds shared.
#[cfg(loom)]
pub struct HeldLine {
    names: [AtomicU64; HELD_MAX],
}

/// A latch that a thread holds shared, by its word in the thread's line. To be given back by [`HeldShared::unlatch`].
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct HeldShared<'l>(Option<&'l AtomicU64>);

impl HeldShared<'_> {
    /// H5.
    const EXCLUSIVE: HeldShared<'static> = HeldShared(None);

    /// Gives the latch back.
    #[inline]
    pub fn unlatch(self, latch: &Latch) {
        match self.0 {
            Some(word) => {
                // Our own (H2); the exchange publishes it.
                word.store(word.load(Relaxed) & !HOLDS, Relaxed);
                latch.unlatch_shared();
                word.store(0, Release); // Whoever sees it sees the latch given back.
            }
            None => latch.unlatch_exclusive_unchanged(),
        }
    }

    /// The same for a guard that a panic may drop, after a repair has counted its thread `me` as dead: then the latch
    /// is left as it is. The name is that of the latch.
    #[cfg(not(loom))]
    pub fn unlatch_unless_lost(self, latch: &Latch, name: u64, me: SlotNo) {
        let is_held = match self.0 {
            Some(word) => word.load(Acquire) == name << 1 | HOLDS, // Else a repair has forgotten it (H4).
            None => latch.owner() == Some(me),
        };
        if is_held {
            self.unlatch(latch);
        }
    }
}

/// Says by a word that its thread takes a latch of that name (H1).
struct Named<'l> {
    word: &'l AtomicU64,
    name: u64,
}

impl SharedHolder for Named<'_> {
    #[inline(always)]
    fn wants(&self) {
        self.word.store(self.name << 1, Relaxed); // The exchange of the latch publishes it.
    }

    #[inline(always)]
    fn holds(&self) {
        self.word.store(self.name << 1 | HOLDS, Release); // Whoever sees it sees the latch's count.
    }

    #[inline(always)]
    fn wants_no_more(&self) {
        self.word.store(0, Relaxed);
    }
}

impl HeldLine {
    /// No latches.
    #[cfg(all(loom, test))]
    pub(crate) fn new() -> HeldLine {
        HeldLine { names: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Takes a latch shared unless it is held exclusively. The line is that of the calling thread, whose slot is `me`;
    /// the name is that of the latch, not 0 and below 2^63.
    #[inline]
    pub fn try_shared(&self, latch: &Latch, name: u64, me: SlotNo) -> Option<HeldShared<'_>> {
        match self.vacancy() {
            Some(word) => latch.try_shared_as(Named { word, name }).then_some(HeldShared(Some(word))),
            None => self.try_as_ninth(latch, me),
        }
    }

    #[cold]
    fn try_as_ninth(&self, latch: &Latch, me: SlotNo) -> Option<HeldShared<'_>> {
        latch.try_exclusive(me).then_some(HeldShared::EXCLUSIVE)
    }

    /// The same. Spins, then sleeps.
    ///
    /// # Errors
    /// After [`LATCH_TIMEOUT_NS`], with the holder's name.
    #[track_caller]
    pub fn shared(&self, latch: &Latch, name: u64, me: SlotNo) -> Result<HeldShared<'_>, LatchTimeout> {
        self.shared_within(latch, name, me, LATCH_TIMEOUT_NS)
    }

    /// The same, with another time-out.
    ///
    /// # Errors
    /// After that time, with the holder's name.
    #[track_caller]
    pub fn shared_within(
        &self,
        latch: &Latch,
        name: u64,
        me: SlotNo,
        timeout_ns: u64,
    ) -> Result<HeldShared<'_>, LatchTimeout> {
        match self.vacancy() {
            Some(word) => latch.shared_within_as(Named { word, name }, timeout_ns).map(|()| HeldShared(Some(word))),
            None => latch.exclusive_within(me, timeout_ns).map(|()| HeldShared::EXCLUSIVE),
        }
    }

    /// A word without a name.
    #[inline]
    fn vacancy(&self) -> Option<&AtomicU64> {
        let first = &self.names[0];
        if first.load(Relaxed) == 0 { Some(first) } else { self.vacancy_behind() } // Our own (H2).
    }

    #[inline(never)]
    fn vacancy_behind(&self) -> Option<&AtomicU64> {
        self.names.iter().find(|word| word.load(Relaxed) == 0)
    }

    /// How often the thread holds a latch of that name. `None`: it is about to change.
    #[cfg(any(not(loom), test))]
    pub(crate) fn count(&self, name: u64) -> Option<u16> {
        let mut count = 0;
        for word in &self.names {
            let word = word.load(Acquire); // Pairs with the stores of H1.
            if word >> 1 == name {
                if word & HOLDS == 0 {
                    return None;
                }
                count += 1;
            }
        }
        Some(count)
    }

    /// The latches that the thread, which has died, holds or was about to take or to give back, by name.
    #[cfg(not(loom))]
    pub(crate) fn names_of_the_dead(&self) -> impl Iterator<Item = u64> {
        self.names.iter().map(|word| word.load(Acquire) >> 1).filter(|name| *name != 0)
    }

    /// Forgets the latches of that name, which are counted without the thread by now (H4).
    #[cfg(not(loom))]
    pub(crate) fn forget_of_the_dead(&self, name: u64) {
        for word in self.names.iter().filter(|word| word.load(Acquire) >> 1 == name) {
            word.store(0, Release);
        }
    }

    /// How many latches the thread names.
    #[cfg(not(loom))]
    pub fn name_count(&self) -> usize {
        self.names_of_the_dead().count()
    }

    /// Whether the thread names no latch.
    #[cfg(not(loom))]
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(|word| word.load(Acquire) == 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Region, SlotTable};

    #[test]
    fn a_ninth_latch_is_taken_exclusively() {
        let region = Region::anonymous(1 << 16).expect("a small region");
        let slots = SlotTable::place(&region, 2).expect("it fits");
        let (me, latches) = (slots.current(), [const { Latch::new() }; 9]);
        let line = slots.held(me);
        let named = latches.iter().zip(1..);
        let held: Vec<_> = named.map(|(latch, name)| line.try_shared(latch, name, me).expect("free")).collect();
        assert!(latches[..8].iter().all(|latch| latch.shared_count() == 1 && latch.owner().is_none()));
        assert_eq!(latches[8].owner(), Some(me));
        let seen = latches[8].version();
        held.iter().zip(&latches).for_each(|(held, latch)| held.unlatch(latch));
        assert!(line.is_empty());
        assert!(latches.iter().all(|latch| latch.shared_count() == 0 && latch.owner().is_none()));
        assert_eq!(latches[8].version(), seen, "nothing has changed");
    }
}
