//! Head of some keys' chains: a latch of a few instructions, with a version by which readers need not take it.
//!
//! ```text
//! offset  size  field
//!      0     8  latch   bits 13..0: the holder's slot + 1, 0 none; bits 63..14: version, raised by every holder that
//!                       changed something
//!      8     8  open    the newest entry of an open writer; 0 none
//!     16     8  kept    position of the newest entry of a commit; 0 none
//!     24     8  room to half a cache line
//! ```
//! B1. The protocol is that of `region::Latch` (L3 there). The holder passes a release fence after taking it, and ends
//!     with a release store of the next version. A reader passes an acquire fence before it looks at the version again.
//! B2. No thread waits, latches or calls anything while it holds one, so that a thread that finds it held need not be
//!     woken: it looks again. This saves a read-modify-write each time.
//! B3. What the holder changes is a list that begins here, by one store for each change. So the list is whole whenever
//!     the holder dies. A repair takes the latch over and gives it back with a new version.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

use ledgerstone_region::{AnotherDied, Dead, SlotNo, shared, sync};

shared! {
    /// See the file's beginning.
    pub(crate) struct Bucket {
        latch: AtomicU64,
        pub(super) open: AtomicU64,
        pub(super) kept: AtomicU64,
        spare: AtomicU64,
    } size 32
}

const HOLDER: u64 = (1 << 14) - 1;
const VERSION: u64 = 1 << 14;

/// A word that is held. To be given back by one of its two ends.
#[must_use]
pub(super) struct Latched<'b> {
    latch: &'b AtomicU64,
    version: u64,
}

impl Bucket {
    /// The version to read under; none while it is held.
    #[inline]
    pub(super) fn optimistic(&self) -> Option<u64> {
        let word = self.latch.load(Acquire); // Pairs with the Release in `unlatch`.
        (word & HOLDER == 0).then_some(word)
    }

    /// Whether what was read since is whole and true.
    #[inline]
    pub(super) fn is_still(&self, version: u64) -> bool {
        fence(Acquire); // Pairs with the fence(Release) in `latch`.
        self.latch.load(Relaxed) == version
    }

    /// Whether it certainly holds nothing of an open writer, nor of commits from a position on.
    #[inline]
    pub(super) fn is_empty_from(&self, low: u64) -> bool {
        self.optimistic().is_some_and(|version| {
            self.open.load(Relaxed) == 0 && self.kept.load(Relaxed) < low.max(1) && self.is_still(version)
        })
    }

    #[inline]
    pub(super) fn latch(&self, me: SlotNo) -> Latched<'_> {
        latch(&self.latch, me)
    }

    /// The thread that holds it.
    pub(super) fn holder(&self) -> Option<SlotNo> {
        holder(&self.latch)
    }

    /// For a repair.
    pub(super) fn latch_beside(&self, dead: &Dead<'_>, me: SlotNo) -> Result<Latched<'_>, AnotherDied> {
        latch_beside(&self.latch, dead, me)
    }

    /// Takes it over, if one of the dead holds it.
    pub(super) fn take_over(&self, dead: &Dead<'_>, me: SlotNo) -> Option<Latched<'_>> {
        take_over(&self.latch, dead, me)
    }
}

/// Takes the latch in a word.
#[inline]
pub(super) fn latch(word: &AtomicU64, me: SlotNo) -> Latched<'_> {
    try_latch(word, me).unwrap_or_else(|| latch_contended(word, me))
}

#[inline]
fn try_latch(word: &AtomicU64, me: SlotNo) -> Option<Latched<'_>> {
    let version = word.load(Relaxed);
    take(word, version & !HOLDER, me)
}

#[inline]
fn take(word: &AtomicU64, seen: u64, me: SlotNo) -> Option<Latched<'_>> {
    let version = seen & !HOLDER;
    // Acquire pairs with the Release in `unlatch`.
    let taken = word.compare_exchange(seen, version | name_of(me), Acquire, Relaxed);
    taken.is_ok().then(|| {
        fence(Release); // B1
        Latched { latch: word, version }
    })
}

#[cold]
fn latch_contended(word: &AtomicU64, me: SlotNo) -> Latched<'_> {
    let mut round = 0;
    loop {
        if word.load(Relaxed) & HOLDER == 0
            && let Some(latched) = try_latch(word, me)
        {
            return latched;
        }
        pause(&mut round);
    }
}

/// Waits for a thread that waits for nobody. If it has lost the processor, or has died, that may take long: each sleep
/// is twice as long as the last, up to a millisecond.
#[cold]
pub(super) fn pause(round: &mut u32) {
    if !sync::spin(*round) {
        sync::sleep_ns(1_000 << (*round).min(10));
    }
    *round += 1;
}

#[inline]
pub(super) fn name_of(slot: SlotNo) -> u64 {
    u64::from(slot.0) + 1
}

/// The slot that a name stands for.
#[inline]
pub(super) fn named(name: u64) -> Option<SlotNo> {
    (name & HOLDER).checked_sub(1).map(|no| SlotNo(no as u16))
}

/// The thread that holds the latch in a word.
pub(super) fn holder(word: &AtomicU64) -> Option<SlotNo> {
    named(word.load(Relaxed)) // The exchange of whoever acts on it looks again.
}

/// Takes the latch in a word over, if one of the dead holds it (B3).
fn take_over<'w>(word: &'w AtomicU64, dead: &Dead<'_>, me: SlotNo) -> Option<Latched<'w>> {
    let seen = word.load(Relaxed);
    let is_theirs = named(seen).is_some_and(|slot| dead.has(slot));
    // Nobody but the repairer changes the word while one of the dead holds it.
    if is_theirs { take(word, seen, me) } else { None }
}

/// Takes the latch in a word, from the dead or from nobody. A living holder is waited for.
pub(super) fn latch_beside<'w>(word: &'w AtomicU64, dead: &Dead<'_>, me: SlotNo) -> Result<Latched<'w>, AnotherDied> {
    loop {
        if let Some(latched) = take_over(word, dead, me).or_else(|| try_latch(word, me)) {
            return Ok(latched);
        }
        dead.await_living(|| holder(word).is_none_or(|slot| dead.has(slot)))?;
    }
}

impl Latched<'_> {
    /// Something has changed.
    #[inline]
    pub(super) fn unlatch(self) {
        self.latch.store(self.version + VERSION, Release); // Pairs with the Acquire of the next holder or reader.
    }

    /// Nothing has.
    #[inline]
    pub(super) fn unlatch_unchanged(self) {
        self.latch.store(self.version, Release);
    }
}
