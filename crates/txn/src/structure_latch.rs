//! Latches of users' structures: step 1 of Lemon's recipe, the mutex around each operation (paper 001, 4.3).
//!
//! ```text
//! root page ─ its hash ─► one of a fixed number of latches in the region, each in a cache line of its own
//! thread slot ──────────► the number of the latch that its thread holds or waits for, and its name if held shared
//! ```
//! S1. Root pages share latches. So a thread that has one is refused another, which might be the same.
//! S2. A thread's slot says which latch it has, from before it is taken until after it was given back.
//! S3. Such a latch may be held over claims and nested top actions, which wait for the device. So nobody gives up
//!     waiting for it while the environment works.
//! S4. What a dead thread held alone goes to whoever repairs, with a mark in the latch's line. It is given back when
//!     the nested top actions of the dead are taken back, and the structure is whole again (O3 in `orphans.rs`). What
//!     it held shared is counted anew: its name is among those of the dead's slots (`held.rs` of `region`).
//! S5. A guard of a thread that has panicked is dropped when others may have mended after it (P2 in `panicked.rs`). It
//!     gives back only what its thread still has.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::marker::PhantomData;
use std::sync::Arc;

use ledgerstone_page::PageId;
use ledgerstone_region::{
    AnotherDied, Dead, Handle, HeldShared, Latch, LatchTimeout, Region, RegionError, Repair, SlotNo, SlotTable, shared,
};

use crate::{Engine, TxnError};

/// How many there are. Two structures that share one wait for each other, and nothing else comes of it.
const COUNT: u64 = 256;
/// How often a thread that waits looks whether the environment has failed.
const LOOK_NS: u64 = 50_000_000;

shared! {
    /// One latch, alone in its line.
    struct Line {
        latch: Latch,
        /// The slot, + 1, of the thread that has it from a dead one (S4).
        inherited: AtomicU64,
        zeroes: [AtomicU64; 6],
    } size 64
}

/// In the name of a latch that is held shared: it is a structure's, and no page's.
const NAMED: u64 = 1 << 62;

/// The latches of an environment's structures.
pub struct StructureLatches(Handle<[Line]>);

impl StructureLatches {
    /// Those of the region.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn place(region: &Region) -> Result<StructureLatches, RegionError> {
        Ok(StructureLatches(region.place("structures.latches", COUNT, 64)?))
    }

    /// Those that threads of this process have from dead ones (S4).
    pub(crate) fn inherited(&self, slots: &SlotTable) -> Vec<u16> {
        let is_ours = |line: &Line| {
            let heir = line.inherited.load(Acquire).checked_sub(1);
            heir.is_some_and(|slot| slots.is_of_us(SlotNo(slot as u16)))
        };
        (0..).zip(self.0.iter()).filter(|(_, line)| is_ours(line)).map(|(no, _)| no).collect()
    }

    /// Gives these back, which were inherited.
    pub(crate) fn give_back(&self, inherited: &[u16]) {
        for line in inherited.iter().map(|no| &self.0[usize::from(*no)]) {
            line.inherited.store(0, Release); // First: the mark is never there without the latch.
            line.latch.unlatch_exclusive();
        }
    }
}

#[cfg(feature = "deaths")]
impl Engine {
    /// Whether none of them is held or inherited.
    #[must_use]
    pub fn are_structure_latches_free(&self) -> bool {
        let is_free = |line: &Line| line.latch.is_free() && line.inherited.load(Acquire) == 0;
        self.structure_latches.0.iter().all(is_free)
    }
}

/// S4. To be called when the transactions of the dead are marked already.
pub(crate) struct Heir<'l> {
    pub latches: &'l StructureLatches,
    pub me: SlotNo,
}

impl Repair for Heir<'_> {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        for name in dead.held_shared().into_iter().filter(|name| name & NAMED != 0) {
            if let Some(line) = self.latches.0.get((name & !NAMED) as usize) {
                dead.recount_shared(&line.latch, name)?;
            }
        }
        for line in self.latches.0.iter() {
            if let Some(owner) = line.latch.owner()
                && dead.has(owner)
                && line.latch.take_over(owner, self.me)
            {
                line.inherited.store(u64::from(self.me.0) + 1, Release);
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for StructureLatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StructureLatches").finish_non_exhaustive()
    }
}

/// The latch of one instance of a structure, not held. It is in the memory that transactions share.
///
/// Take it before any page latch, and wait for locks before you take it. Unlike page latches, it may be held over
/// [`Txn::claim`](crate::Txn::claim) and [`Txn::nested_top`](crate::Txn::nested_top). A thread holds one at a time.
pub struct StructureLatch<'e> {
    engine: &'e Arc<Engine>,
    no: u16,
}

impl<'e> StructureLatch<'e> {
    /// The latch of the instance with this root page.
    #[must_use]
    pub fn of(engine: &'e Arc<Engine>, root: PageId) -> StructureLatch<'e> {
        // A multiplicative hash (Fibonacci): the upper bits depend on all of the page's number.
        let hash = root.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        StructureLatch { engine, no: (hash >> (64 - COUNT.ilog2())) as u16 }
    }

    /// Takes it for work on single pages, beside others that do the same. Waits for who changes the structure, however
    /// long that takes.
    ///
    /// # Errors
    /// [`TxnError::StructureLatchHeld`]; the environment has failed; there is no slot for the thread.
    pub fn shared(self) -> Result<StructureGuard<'e>, TxnError> {
        self.take(false)
    }

    /// Takes it for changing the structure, alone. Waits for all that work on it.
    ///
    /// # Errors
    /// As [`StructureLatch::shared`].
    pub fn exclusive(self) -> Result<StructureGuard<'e>, TxnError> {
        self.take(true)
    }

    fn word(&self) -> &'e Latch {
        &self.engine.structure_latches.0[usize::from(self.no)].latch
    }

    /// Its name among those that a thread holds shared.
    fn name(&self) -> u64 {
        NAMED | u64::from(self.no)
    }

    fn take(self, is_exclusive: bool) -> Result<StructureGuard<'e>, TxnError> {
        let engine = self.engine;
        let thread = engine.thread()?;
        let slot = engine.slots.slot(thread);
        if slot.long_latch().is_some() {
            return Err(TxnError::StructureLatchHeld); // S1
        }
        slot.set_long_latch(Some(self.no));
        // Clears the slot, whatever comes; and gives the latch back, once it is taken.
        let mut guard = StructureGuard { latch: self, thread, mode: Mode::Waiting, not_send: PhantomData };
        let latch = guard.latch.word();
        loop {
            engine.check()?;
            let taken: Result<Mode<'e>, LatchTimeout> = match is_exclusive {
                true => latch.exclusive_within(thread, LOOK_NS).map(|()| Mode::Exclusive),
                false => {
                    let held = engine.slots.held(thread);
                    held.shared_within(latch, guard.latch.name(), thread, LOOK_NS).map(Mode::Shared)
                }
            };
            if let Ok(mode) = taken {
                guard.mode = mode;
                return Ok(guard);
            }
        }
    }
}

impl std::fmt::Debug for StructureLatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StructureLatch").field("no", &self.no).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy)]
enum Mode<'e> {
    Waiting,
    Shared(HeldShared<'e>),
    Exclusive,
}

/// The latch of a structure's instance, held until this is dropped, by the thread that took it.
#[must_use = "the latch is given back when this is dropped"]
pub struct StructureGuard<'e> {
    latch: StructureLatch<'e>,
    thread: SlotNo,
    mode: Mode<'e>,
    not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for StructureGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StructureGuard").field("latch", &self.latch).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Drop for StructureGuard<'_> {
    fn drop(&mut self) {
        if self.latch.engine.is_inherited() {
            return; // The parent's, which may go on with it.
        }
        match self.mode {
            Mode::Waiting => {}
            Mode::Shared(held) => held.unlatch_unless_lost(self.latch.word(), self.latch.name(), self.thread), // S5
            Mode::Exclusive => self.latch.word().unlatch_exclusive_unless_lost(self.thread),
        }
        self.latch.engine.slots.slot(self.thread).set_long_latch(None); // S2
    }
}
