//! What the control file says, in a region: for the processes that share an environment.
//!
//! K1. Whoever changes the file holds the latch, also while the device works. A repair gives back the latch of the
//!     dead. Nothing is taken over from a process that is only stopped: its write may be under way.
//! K2. There are two copies of what the file says. A change fills the one that does not count, and then one store makes
//!     it count. So a look waits for nobody and finds a whole state, and a death between two stores harms neither.
//! K3. A change says that it has begun before it writes, and takes that back when the copy counts. Whoever has the
//!     latch and finds a change begun comes after one that has died. It reads both slots of the file again and goes on
//!     from the newest whole one, which its own change writes once more (T4 in `control.rs`).

use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, Release};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::{AnotherDied, Dead, Handle, Latch, Region, RegionError, SlotNo, SlotTable, shared};
use std::sync::Arc;

use crate::control::{ControlState, FIELDS_END, FIELDS_FROM};
use crate::room::LOOK_NS;

const WORDS: usize = (FIELDS_END - FIELDS_FROM) / 8;

shared! {
    /// See the file's beginning.
    pub(crate) struct ControlWords {
        /// K1.
        latch: Latch,
        /// How often a copy was made the one that counts: it is copy `published % 2` (K2).
        published: AtomicU64,
        /// K3.
        has_begun: AtomicU32,
        /// A write has failed (T3 in `control.rs`).
        has_failed: AtomicU32,
        /// The newest slot may not be durable (T4 there).
        is_unsettled: AtomicU32,
        zero: AtomicU32,
        pad: [AtomicU64; 4],
        /// The fields of a slot, as they are in the file.
        copies: [[AtomicU64; WORDS]; 2],
    } size 320
}

/// What is known of the file.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub state: ControlState,
    pub generation: u64,
    pub has_failed: bool,
    /// The slot of this generation is written again before another one (T4 in `control.rs`).
    pub is_unsettled: bool,
}

/// The words, and the slots whose threads take the latch.
pub(crate) struct SharedControl {
    words: Handle<ControlWords>,
    slots: Arc<SlotTable>,
}

/// The latch, held. Given back when dropped.
pub(crate) struct Inside<'c> {
    words: &'c ControlWords,
    me: SlotNo,
}

impl SharedControl {
    /// The words of a region. Whoever makes it says what the file says.
    pub fn place(region: &Region, slots: &Arc<SlotTable>) -> Result<SharedControl, RegionError> {
        Ok(SharedControl { words: region.place_one("log.control", 64)?, slots: Arc::clone(slots) })
    }

    /// For whoever has made the region, before others join it.
    pub fn fill(&self, held: Held) {
        self.words.has_failed.store(u32::from(held.has_failed), Relaxed);
        self.words.put(held);
    }

    /// What is known now (K2).
    pub fn look(&self) -> Held {
        let words = &*self.words;
        loop {
            let published = words.published.load(Acquire); // Pairs with the store in `put`.
            let mut bytes = [0; FIELDS_END - FIELDS_FROM];
            for (to, word) in bytes.chunks_exact_mut(8).zip(&words.copies[(published % 2) as usize]) {
                to.copy_from_slice(&word.load(Relaxed).to_le_bytes()); // Judged below.
            }
            let (has_failed, is_unsettled) = (words.has_failed.load(Relaxed), words.is_unsettled.load(Relaxed));
            fence(Acquire); // Pairs with the one in `put`: whoever has seen a word of a later change sees its number.
            if words.published.load(Relaxed) == published {
                let (generation, state) = ControlState::from_fields(&bytes);
                return Held { state, generation, has_failed: has_failed != 0, is_unsettled: is_unsettled != 0 };
            }
        }
    }

    /// Waits until nobody else changes the file.
    pub fn enter(&self) -> Result<Inside<'_>, RegionError> {
        let me = self.slots.try_current()?;
        while self.words.latch.exclusive_within(me, LOOK_NS).is_err() {}
        Ok(Inside { words: &self.words, me })
    }

    /// K1.
    pub fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let latch = &self.words.latch;
        if let Some(owner) = latch.owner().filter(|owner| dead.has(*owner))
            && latch.take_over(owner, self.slots.current())
        {
            latch.unlatch_exclusive();
        }
        Ok(())
    }
}

impl ControlWords {
    /// By the holder of the latch: this is what the file says.
    fn put(&self, held: Held) {
        let published = self.published.load(Relaxed) + 1; // Changed under the latch.
        fence(Release); // Pairs with the one in `look`: the number before is seen by whoever sees one of these words.
        let bytes = held.state.encode(held.generation);
        let fields = bytes[FIELDS_FROM..FIELDS_END].chunks_exact(8);
        for (word, field) in self.copies[(published % 2) as usize].iter().zip(fields) {
            word.store(u64::from_le_bytes(std::array::from_fn(|at| field[at])), Relaxed);
        }
        self.is_unsettled.store(u32::from(held.is_unsettled), Relaxed);
        self.published.store(published, Release);
    }
}

impl Inside<'_> {
    /// Whether somebody has died in a change (K3).
    pub fn has_begun(&self) -> bool {
        self.words.has_begun.load(Relaxed) != 0 // Changed under the latch.
    }

    /// A write of the file is next.
    pub fn begin(&self) {
        self.words.has_begun.store(1, Relaxed);
    }

    /// The file says this, and no change is under way.
    pub fn end(&self, held: Held) {
        self.words.put(held);
        self.words.has_begun.store(0, Relaxed);
    }

    pub fn fail(&self) {
        self.words.has_failed.store(1, Relaxed);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.words.latch.unlatch_exclusive_unless_lost(self.me);
    }
}
