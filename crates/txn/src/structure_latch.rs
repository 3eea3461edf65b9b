//! Latches of users' structures: step 1 of Lemon's recipe, the mutex around each operation (paper 001, 4.3).
//!
//! ```text
//! root page ─ its hash ─► one of a fixed number of latches in the region, each in a cache line of its own
//! thread slot ──────────► the number of the latch that its thread holds or waits for
//! ```
//! S1. Root pages share latches. So a thread that has one is refused another, which might be the same.
//! S2. A thread's slot says which latch it has, from before it is taken until after it was given back.
//! S3. Such a latch may be held over claims and nested top actions, which wait for the device. So nobody gives up
//!     waiting for it while the environment works.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ledgerstone_page::PageId;
use ledgerstone_region::{Handle, Latch, LatchTimeout, Region, RegionError, SlotNo, shared};

use crate::{Engine, TxnError};

/// How many there are. Two structures that share one wait for each other, and nothing else comes of it.
const COUNT: u64 = 256;
/// How often a thread that waits looks whether the environment has failed.
const LOOK_NS: u64 = 50_000_000;

shared! {
    /// One latch, alone in its line.
    struct Line {
        latch: Latch,
        zeroes: [AtomicU64; 7],
    } size 64
}

/// The latches of an environment's structures.
pub struct StructureLatches(Handle<[Line]>);

impl StructureLatches {
    /// Makes them, free.
    ///
    /// # Errors
    /// There is no room in the region.
    pub fn create(region: &Region) -> Result<StructureLatches, RegionError> {
        Ok(StructureLatches(region.handle_slice(region.alloc::<Line>(COUNT, 64)?)?))
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

    fn take(self, is_exclusive: bool) -> Result<StructureGuard<'e>, TxnError> {
        let thread = self.engine.thread()?;
        let slot = self.engine.slots.slot(thread);
        if slot.long_latch().is_some() {
            return Err(TxnError::StructureLatchHeld); // S1
        }
        slot.set_long_latch(Some(self.no));
        // Clears the slot, whatever comes; and gives the latch back, once it is taken.
        let mut guard = StructureGuard { latch: self, thread, mode: Mode::Waiting, not_send: PhantomData };
        let latch = guard.latch.word();
        loop {
            guard.latch.engine.check()?;
            let taken: Result<(), LatchTimeout> = match is_exclusive {
                true => latch.exclusive_within(thread, LOOK_NS),
                false => latch.shared_within(LOOK_NS),
            };
            if taken.is_ok() {
                guard.mode = if is_exclusive { Mode::Exclusive } else { Mode::Shared };
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
enum Mode {
    Waiting,
    Shared,
    Exclusive,
}

/// The latch of a structure's instance, held until this is dropped, by the thread that took it.
#[must_use = "the latch is given back when this is dropped"]
pub struct StructureGuard<'e> {
    latch: StructureLatch<'e>,
    thread: SlotNo,
    mode: Mode,
    not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for StructureGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StructureGuard").field("latch", &self.latch).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Drop for StructureGuard<'_> {
    fn drop(&mut self) {
        match self.mode {
            Mode::Waiting => {}
            Mode::Shared => self.latch.word().unlatch_shared(),
            Mode::Exclusive => self.latch.word().unlatch_exclusive(),
        }
        self.latch.engine.slots.slot(self.thread).set_long_latch(None); // S2
    }
}
