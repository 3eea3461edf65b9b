//! The latch: one word that guards bytes for some instructions, and the version by which readers need not take it.
//!
//! ```text
//! bits 63..17  version   raised by every exclusive holder that changed something; never reset while the region lives
//! bit  16      recount   shared holders are being counted again: nobody takes it shared meanwhile
//! bit  15      exclusive
//! bit  14      waiters   somebody sleeps, or may: the next to release wakes one
//! bits 13..0   holders   shared: how many; exclusive: the holder's `SlotNo`
//! ```
//! L1. While the bit exclusive is set, only its owner changes the version and the holders; others only set waiters.
//! L2. A sleeper has seen the bit waiters set in the word that the kernel compared. A thread that clears the bit wakes
//!     one sleeper; a thread that has slept takes the latch with the bit set, or wakes one more when it gives up. So no
//!     wake is lost, unless the thread that it was for dies before it looks. So a sleeper looks again by itself, after
//!     [`LOOK_NS`].
//! L3. The optimistic protocol (Boehm 2012). Writer: take by compare-exchange (acquire), `fence(Release)`, relaxed
//!     stores, release store of the next version. Reader: acquire load of a version that nobody holds exclusively,
//!     relaxed loads, `fence(Acquire)`, relaxed load of the same version. If the reader saw one word of the writer's,
//!     the fences order the writer's taking before the reader's second look, which then differs.
//! L4. A shared holder changes nothing, and so does not disturb an optimistic reader.
//! L5. The bit recount is set by a thread that repairs after a death, and cleared with the count that it has made
//!     (`held.rs`). A repairer that dies leaves it set, and the next one counts again. Whoever holds the latch shared
//!     may give it back meanwhile, and whoever takes it exclusively then clears the bit by giving it back.
//!
//! A latch is not fair, and not reentrant. It does not know ranks: `docs/latch-order.md` does.

use crate::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};
use crate::{SlotNo, sync};

const HOLDERS: u64 = (1 << 14) - 1;
const WAITERS: u64 = 1 << 14;
const EXCLUSIVE: u64 = 1 << 15;
const RECOUNT: u64 = 1 << 16;
const VERSION_SHIFT: u32 = 17;

/// How long the waiting calls wait. A healthy holder keeps a latch for microseconds. A holder that keeps it this long
/// is stopped, or has died.
pub const LATCH_TIMEOUT_NS: u64 = 60_000_000_000;

/// A sleeper looks again after so long, though nobody has woken it.
const LOOK_NS: u64 = 50_000_000;

/// See the file's beginning.
#[repr(transparent)]
pub struct Latch(AtomicU64);

/// The state of the guarded bytes when they were read. Equal versions mean equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Version(u64);

impl Version {
    /// The number.
    pub const fn to_raw(self) -> u64 {
        self.0
    }
}

/// The latch was not free in time. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("latch not free after {waited_ns} ns; exclusive owner {owner:?}, {shared_count} shared holders")]
pub struct LatchTimeout {
    /// The thread that holds it exclusively, if one does.
    pub owner: Option<SlotNo>,
    /// How many hold it shared.
    pub shared_count: u16,
    /// How long was waited.
    pub waited_ns: u64,
}

impl Latch {
    /// A free latch at version 0: the same as zeroed memory.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Latch(AtomicU64::new(0))
    }

    /// A free latch at version 0.
    #[cfg(loom)]
    pub fn new() -> Self {
        Latch(AtomicU64::new(0))
    }

    /// The version to read under, or `None` while the latch is held exclusively.
    #[inline]
    pub fn optimistic(&self) -> Option<Version> {
        let word = self.0.load(Acquire); // Pairs with the Release in `unlatch_exclusive`.
        if word & EXCLUSIVE == 0 { Some(Version(word >> VERSION_SHIFT)) } else { None }
    }

    /// True if what was read since `seen` is whole and true: no holder of the exclusive latch has changed anything
    /// since, and none holds it now.
    #[inline]
    pub fn is_still(&self, seen: Version) -> bool {
        #[cfg(not(feature = "planted-no-reader-fence"))]
        fence(Acquire); // Pairs with the fence(Release) of the writer: our loads end before the check begins (L3).
        let word = self.0.load(Relaxed);
        word >> VERSION_SHIFT == seen.0 && word & EXCLUSIVE == 0
    }

    /// The version now, also while the latch is held.
    #[inline]
    pub fn version(&self) -> Version {
        Version(self.0.load(Acquire) >> VERSION_SHIFT) // Acquire: pairs with `unlatch_exclusive`.
    }

    /// The thread that holds it exclusively.
    pub fn owner(&self) -> Option<SlotNo> {
        owner_of(self.0.load(Relaxed)) // For messages and assertions: no bytes are read on the strength of it.
    }

    /// Whether nobody has it, for that moment.
    pub fn is_free(&self) -> bool {
        self.0.load(Relaxed) & (EXCLUSIVE | HOLDERS) == 0 // As above.
    }

    /// Whether somebody sleeps for it, or may.
    pub fn is_awaited(&self) -> bool {
        self.0.load(Relaxed) & WAITERS != 0 // As above.
    }

    /// How many hold it shared.
    pub fn shared_count(&self) -> u16 {
        shared_count_of(self.0.load(Relaxed)) // As above.
    }

    /// Takes the latch exclusively if it is free.
    #[inline]
    pub fn try_exclusive(&self, owner: SlotNo) -> bool {
        let mut word = self.0.load(Relaxed);
        // The exchange fails without cause of ours only when another thread sets the bit waiters, or comes and goes.
        while word & (EXCLUSIVE | HOLDERS) == 0 {
            match self.take_exclusive(word, owner, 0) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the latch exclusively if it is free and nothing has changed since `seen`.
    #[inline]
    pub fn try_upgrade(&self, seen: Version, owner: SlotNo) -> bool {
        let mut word = self.0.load(Relaxed);
        while word & (EXCLUSIVE | HOLDERS) == 0 && word >> VERSION_SHIFT == seen.0 {
            match self.take_exclusive(word, owner, 0) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the latch exclusively. Spins, then sleeps.
    ///
    /// # Errors
    /// After [`LATCH_TIMEOUT_NS`], with the holder's name.
    #[inline]
    #[track_caller]
    pub fn exclusive(&self, owner: SlotNo) -> Result<(), LatchTimeout> {
        if self.try_exclusive(owner) { Ok(()) } else { self.exclusive_within(owner, LATCH_TIMEOUT_NS) }
    }

    /// As [`Latch::exclusive`], waiting `timeout_ns` at most.
    ///
    /// # Errors
    /// After that time, with the holder's name.
    #[cold]
    #[track_caller]
    pub fn exclusive_within(&self, owner: SlotNo, timeout_ns: u64) -> Result<(), LatchTimeout> {
        let mut waiting = Waiting::new(timeout_ns);
        loop {
            let word = self.0.load(Relaxed);
            if word & (EXCLUSIVE | HOLDERS) == 0 {
                if self.take_exclusive(word, owner, waiting.bit()).is_ok() {
                    return Ok(());
                }
            } else {
                waiting.wait(&self.0, word)?;
            }
        }
    }

    /// Takes the latch shared unless it is held exclusively. If the thread dies, nobody knows that it held it: see
    /// [`HeldLine`](crate::HeldLine) for a latch that survives its holders.
    #[inline]
    pub fn try_shared(&self) -> bool {
        self.try_shared_as(Nameless)
    }

    #[inline(always)]
    pub(crate) fn try_shared_as(&self, holder: impl SharedHolder) -> bool {
        let mut word = self.0.load(Relaxed);
        while can_share(word) {
            holder.wants();
            // Acquire: pairs with the Release in `unlatch_exclusive`. Release: who sees the count sees the holder's
            // name.
            match self.0.compare_exchange_weak(word, word + 1, AcqRel, Relaxed) {
                Ok(_) => {
                    holder.holds();
                    return true;
                }
                Err(now) => {
                    holder.wants_no_more();
                    word = now;
                }
            }
        }
        false
    }

    /// Takes the latch shared. Spins, then sleeps. A death is as with [`Latch::try_shared`].
    ///
    /// # Errors
    /// After [`LATCH_TIMEOUT_NS`], with the holder's name.
    #[inline]
    #[track_caller]
    pub fn shared(&self) -> Result<(), LatchTimeout> {
        if self.try_shared() { Ok(()) } else { self.shared_within(LATCH_TIMEOUT_NS) }
    }

    /// As [`Latch::shared`], waiting `timeout_ns` at most.
    ///
    /// # Errors
    /// After that time, with the holder's name.
    #[cold]
    #[track_caller]
    pub fn shared_within(&self, timeout_ns: u64) -> Result<(), LatchTimeout> {
        self.shared_within_as(Nameless, timeout_ns)
    }

    /// The holder says that it wants the latch for the length of an exchange only, never while it sleeps.
    #[track_caller]
    pub(crate) fn shared_within_as(&self, holder: impl SharedHolder, timeout_ns: u64) -> Result<(), LatchTimeout> {
        let mut waiting = Waiting::new(timeout_ns);
        loop {
            let word = self.0.load(Relaxed);
            if can_share(word) {
                holder.wants();
                // As in `try_shared_as`.
                if self.0.compare_exchange(word, (word + 1) | waiting.bit(), AcqRel, Relaxed).is_ok() {
                    holder.holds();
                    if waiting.has_slept {
                        sync::futex_wake_low(&self.0, 1); // The next sleeper may want it shared, too.
                    }
                    return Ok(());
                }
                holder.wants_no_more();
            } else {
                waiting.wait(&self.0, word)?;
            }
        }
    }

    /// Keeps others from taking the latch shared until [`Latch::end_recount`] (L5). False: it is held exclusively, so
    /// nobody holds it shared.
    #[cfg(any(not(loom), test))]
    pub(crate) fn begin_recount(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        while word & EXCLUSIVE == 0 {
            // Acquire: who has taken it shared before has said so before. Release: hands their order on.
            match self.0.compare_exchange(word, word | RECOUNT, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// What the count is made for: an unchanged count here and in [`Latch::end_recount`] means that nobody has given
    /// the latch back in between.
    #[cfg(any(not(loom), test))]
    pub(crate) fn recounted(&self) -> u16 {
        (self.0.load(Acquire) & HOLDERS) as u16 // Pairs with the Release in `unlatch_shared`.
    }

    /// Sets the count, if it is `before` still, and lets others share the latch again. False: count again. True also if
    /// somebody has taken it exclusively: then nobody holds it shared.
    #[cfg(any(not(loom), test))]
    pub(crate) fn end_recount(&self, before: u16, count: u16) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            if word & EXCLUSIVE != 0 {
                self.0.fetch_and(!RECOUNT, Relaxed); // Or else its holder does so. Says nothing about the bytes.
                return true;
            }
            if (word & HOLDERS) as u16 != before || word & RECOUNT == 0 {
                return false; // Without the bit, an exclusive holder has come and gone, and others after it.
            }
            let counted = word & !(HOLDERS | RECOUNT) | u64::from(count);
            // AcqRel: all that others have done as shared holders comes before whoever takes the latch next.
            match self.0.compare_exchange(word, counted, AcqRel, Relaxed) {
                Ok(_) => {
                    if counted & WAITERS != 0 {
                        sync::futex_wake_low(&self.0, u32::MAX); // The bit stays: more may come.
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Gives the exclusive latch back and raises the version: something has changed.
    #[inline]
    pub fn unlatch_exclusive(&self) {
        let word = self.0.load(Relaxed); // Version and owner are ours (L1).
        debug_assert!(word & EXCLUSIVE != 0 || unwinds(), "a latch that nobody holds is given back: {word:#x}");
        self.release_exclusive(((word >> VERSION_SHIFT) + 1) << VERSION_SHIFT);
    }

    /// Gives the exclusive latch back and keeps the version: nothing was written, and readers may go on.
    #[inline]
    pub fn unlatch_exclusive_unchanged(&self) {
        let word = self.0.load(Relaxed);
        debug_assert!(word & EXCLUSIVE != 0 || unwinds(), "a latch that nobody holds is given back: {word:#x}");
        self.release_exclusive(word >> VERSION_SHIFT << VERSION_SHIFT);
    }

    /// Gives the exclusive latch back, for a guard that a panic may drop: not if a repair, which counts its thread `me`
    /// as dead, has taken the latch over.
    pub fn unlatch_exclusive_unless_lost(&self, me: SlotNo) {
        if self.owner() == Some(me) {
            self.unlatch_exclusive();
        }
    }

    /// Gives a shared latch back.
    #[inline]
    pub fn unlatch_shared(&self) {
        // Release: pairs with the Acquire of the next exclusive holder, whose stores must not reach our loads.
        let word = self.0.fetch_sub(1, Release);
        let was_shared = word & EXCLUSIVE == 0 && word & HOLDERS != 0;
        debug_assert!(was_shared || unwinds(), "a latch not held shared is given back: {word:#x}");
        if word & HOLDERS == 1 && word & WAITERS != 0 {
            self.wake_after_last_shared(word - 1);
        }
    }

    /// Takes the exclusive latch of `from`, whose process has died, for `to`, who mends what it guards and gives it
    /// back. False if `from` does not hold it.
    pub fn take_over(&self, from: SlotNo, to: SlotNo) -> bool {
        self.take_over_if(|word| owner_of(word) == Some(from), to)
    }

    /// The same where others may do so, too, and then free the slot `from` for a living thread. False also if anybody
    /// has given the latch back since `seen`, as a holder who has changed something.
    #[cfg(not(loom))]
    pub(crate) fn take_over_since(&self, seen: Version, from: SlotNo, to: SlotNo) -> bool {
        self.take_over_if(|word| owner_of(word) == Some(from) && word >> VERSION_SHIFT == seen.0, to)
    }

    fn take_over_if(&self, is_of_the_dead: impl Fn(u64) -> bool, to: SlotNo) -> bool {
        let mut word = self.0.load(Relaxed);
        while is_of_the_dead(word) {
            let taken = word & !HOLDERS | u64::from(to.0);
            // Acquire: pairs with whatever the dead has stored with Release; and as in `take_exclusive`.
            match self.0.compare_exchange(word, taken, Acquire, Relaxed) {
                Ok(_) => {
                    fence(Release);
                    return true;
                }
                Err(now) => word = now, // A waiter has set its bit.
            }
        }
        false
    }

    /// The exchange that takes the latch, and the writer's half of L3.
    #[inline(always)]
    fn take_exclusive(&self, word: u64, owner: SlotNo, waiters: u64) -> Result<(), u64> {
        debug_assert!(u64::from(owner.0) <= HOLDERS, "slot {owner:?} is too large for a latch");
        let taken = word | EXCLUSIVE | waiters | u64::from(owner.0);
        // Acquire: pairs with the Release of the holder before.
        self.0.compare_exchange(word, taken, Acquire, Relaxed)?;
        #[cfg(not(feature = "planted-no-fence"))]
        fence(Release); // Pairs with the fence(Acquire) in `is_still`: a thread that sees our stores sees the latch taken.
        Ok(())
    }

    #[inline(always)]
    fn release_exclusive(&self, free: u64) {
        // Release: pairs with the Acquire in `optimistic` and in the exchanges. Clears waiters and wakes one (L2).
        if self.0.swap(free, Release) & WAITERS != 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        sync::futex_wake_low(&self.0, 1);
    }

    /// The last shared holder has left `word` behind, with the bit waiters. Clears the bit and wakes one waiter, unless
    /// another thread has come that will do so when it leaves, or has done so.
    #[cold]
    fn wake_after_last_shared(&self, mut word: u64) {
        while word & (EXCLUSIVE | HOLDERS) == 0 && word & WAITERS != 0 {
            // Relaxed: nothing but the bit is handed on, and the kernel's lock orders the clearing before the wake.
            match self.0.compare_exchange(word, word & !WAITERS, Relaxed, Relaxed) {
                Ok(_) => return self.wake_one(),
                Err(now) => word = now,
            }
        }
    }
}

/// One thread's waiting for a latch: some rounds of spinning, then sleep, up to a deadline.
struct Waiting {
    timeout_ns: u64,
    deadline_ns: Option<u64>,
    round: u32,
    has_slept: bool,
}

impl Waiting {
    fn new(timeout_ns: u64) -> Self {
        Waiting { timeout_ns, deadline_ns: None, round: 0, has_slept: false }
    }

    /// What to set when taking the latch: there may be other sleepers (L2).
    fn bit(&self) -> u64 {
        if self.has_slept && !cfg!(feature = "planted-lost-wake") { WAITERS } else { 0 }
    }

    /// Waits once, having seen `word` held.
    #[track_caller]
    fn wait(&mut self, latch: &AtomicU64, word: u64) -> Result<(), LatchTimeout> {
        if sync::spin(self.round) {
            self.round += 1;
            return Ok(());
        }
        let asleep = word | WAITERS;
        // Relaxed: setting the bit says nothing about the guarded bytes.
        if word != asleep && latch.compare_exchange(word, asleep, Relaxed, Relaxed).is_err() {
            return Ok(());
        }
        let now_ns = sync::now_ns();
        let deadline_ns = *self.deadline_ns.get_or_insert(now_ns.saturating_add(self.timeout_ns));
        if now_ns >= deadline_ns {
            if self.has_slept {
                sync::futex_wake_low(latch, 1); // A wake that was ours goes to the next (L2).
            }
            return Err(LatchTimeout {
                owner: owner_of(word),
                shared_count: shared_count_of(word),
                waited_ns: self.timeout_ns,
            });
        }
        self.has_slept = true;
        sync::futex_wait_low(latch, asleep as u32, Some(LOOK_NS.min(deadline_ns - now_ns)));
        self.round = 0;
        Ok(())
    }
}

/// A simulated thread that has died unwinds beside what a repair has made of its latches: seen by nobody.
fn unwinds() -> bool {
    std::thread::panicking()
}

/// Whether a thread may join the shared holders.
#[inline(always)]
fn can_share(word: u64) -> bool {
    word & (EXCLUSIVE | RECOUNT) == 0 && word & HOLDERS != HOLDERS
}

/// What a thread says around the exchange by which it takes a latch shared.
pub(crate) trait SharedHolder {
    /// The exchange comes.
    fn wants(&self);
    /// It has taken the latch.
    fn holds(&self);
    /// It has not.
    fn wants_no_more(&self);
}

/// A holder that nobody has to know.
struct Nameless;

impl SharedHolder for Nameless {
    #[inline(always)]
    fn wants(&self) {}
    #[inline(always)]
    fn holds(&self) {}
    #[inline(always)]
    fn wants_no_more(&self) {}
}

fn owner_of(word: u64) -> Option<SlotNo> {
    (word & EXCLUSIVE != 0).then_some(SlotNo((word & HOLDERS) as u16))
}

fn shared_count_of(word: u64) -> u16 {
    if word & EXCLUSIVE == 0 { (word & HOLDERS) as u16 } else { 0 }
}

impl Default for Latch {
    fn default() -> Self {
        Latch::new()
    }
}

impl std::fmt::Debug for Latch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = self.0.load(Relaxed);
        f.debug_struct("Latch")
            .field("version", &(word >> VERSION_SHIFT))
            .field("owner", &owner_of(word))
            .field("shared_count", &shared_count_of(word))
            .field("waiters", &(word & WAITERS != 0))
            .finish()
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Latch>() == 8);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_anothers_by_now_is_not_taken_over() {
        let (latch, dead, heir, late) = (Latch::new(), SlotNo(1), SlotNo(2), SlotNo(3));
        assert!(latch.try_exclusive(dead));
        let seen = latch.version();
        assert!(!latch.take_over_since(seen, late, heir), "another one has it");
        assert!(latch.take_over_since(seen, dead, heir));
        assert!(!latch.take_over_since(seen, dead, late), "it is taken over");
        latch.unlatch_exclusive();
        assert!(!latch.take_over_since(seen, dead, late), "it is free");
        assert!(latch.try_exclusive(dead), "the slot is another thread's");
        assert!(!latch.take_over_since(seen, dead, late));
        assert_eq!(latch.owner(), Some(dead));
        assert!(latch.take_over_since(latch.version(), dead, late));
    }
}
