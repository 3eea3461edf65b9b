//! Room for records: what of the buffer and of the segments is taken, and who sleeps until there is more (C1, C2, C5
//! and C6 in `append.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's (`loom_room.rs`). Knows
//! neither records nor the device.
//!
//! R1. Room in the segments is taken before room in the buffer, and given back after it. So what is claimed and what is
//!     reserved never exceed `committed` together, except by a rollback's claim, which uses what it has reserved.
//! R2. A thread that gives room back looks afterwards who sleeps for room. A thread that sleeps has said so before it
//!     looked for room. So one of them sees the other.
//! R3. A thread that keeps the rest of a claim signals nothing, although it has appended a record that can be flushed.
//!     So nobody sleeps for long while something is claimed, except during a flush, whose end signals.

use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64};
use ledgerstone_region::sync;

use crate::line::Look;

/// What a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Ordinary,
    Undo,
    Upkeep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The buffer is full until something is flushed or given back.
    Buffer,
    /// The segments are full.
    Segments,
}

/// What is claimed and not yet durable is looked at again after so long (R3).
const CLAIMED_LOOK_NS: u64 = 1_000_000;

/// The words of the room; see `state.rs`.
pub(crate) struct Room<'r> {
    pub claim_head: &'r AtomicU64,
    pub committed: &'r AtomicU64,
    pub durable: &'r AtomicU64,
    pub zeroed_limit: &'r AtomicU64,
    pub prepared_end: &'r AtomicU64,
    pub head_wants: &'r AtomicU64,
    pub undo_sleepers: &'r AtomicU32,
    pub undo_word: &'r AtomicU32,
    pub long_keepers: &'r AtomicU32,
    pub segment_bytes: u64,
}

/// Puts what is before and what is after into the one order that everybody sees. For loom, which knows no sequentially
/// consistent accesses.
#[inline(always)]
fn order() {
    #[cfg(loom)]
    ledgerstone_region::atomic::fence(SeqCst);
}

impl Room<'_> {
    /// Claims, if `beside` bytes are free as well; an ordinary claim reserves `undo_bytes` with it. Returns what is
    /// left of the buffer. Calls `runs_low` if the segments that are ready will soon be full.
    #[inline]
    pub fn try_claim(
        &self,
        bytes: u64,
        undo_bytes: u64,
        beside: u64,
        purpose: Purpose,
        runs_low: impl FnOnce(),
    ) -> Result<u64, Refused> {
        let is_committed = match purpose {
            Purpose::Ordinary => self.try_commit(bytes + undo_bytes, beside, self.margin_bytes(), runs_low),
            Purpose::Upkeep => self.try_commit(bytes, beside, self.restart_bytes(), runs_low),
            Purpose::Undo => true, // Reserved.
        };
        if !is_committed {
            return Err(Refused::Segments);
        }
        // Acquire: the buffer up to the limit is zero (B1).
        let limit = self.zeroed_limit.load(Acquire);
        let mut head = self.claim_head.load(Relaxed);
        let refused = loop {
            if head + bytes + beside > limit {
                break Refused::Buffer;
            }
            if purpose == Purpose::Undo && head + bytes > self.prepared_end.load(Acquire) {
                break Refused::Segments;
            }
            match self.claim_head.compare_exchange_weak(head, head + bytes, SeqCst, Relaxed) {
                Ok(_) => {
                    if purpose == Purpose::Undo {
                        self.committed.fetch_add(bytes, SeqCst);
                    }
                    return Ok(limit - (head + bytes));
                }
                Err(now) => head = now,
            }
        };
        if purpose != Purpose::Undo {
            self.committed.fetch_sub(bytes + undo_bytes, SeqCst);
        }
        Err(refused)
    }

    /// Takes room in the segments that are ready (C2), if `beside` bytes and the margin are free there as well.
    #[inline]
    pub fn try_commit(&self, bytes: u64, beside: u64, margin: u64, runs_low: impl FnOnce()) -> bool {
        let limit = self.prepared_end.load(Acquire) - margin;
        let mut committed = self.committed.load(Relaxed);
        loop {
            if committed + bytes + beside > limit {
                return false;
            }
            match self.committed.compare_exchange_weak(committed, committed + bytes, SeqCst, Relaxed) {
                Ok(_) => {
                    if committed + self.segment_bytes / 2 > limit {
                        runs_low();
                    }
                    return true;
                }
                Err(now) => committed = now,
            }
        }
    }

    /// What ordinary claims leave for a checkpoint.
    #[inline]
    pub fn margin_bytes(&self) -> u64 {
        (self.segment_bytes / 8).min(64 << 10)
    }

    /// What upkeep leaves for restarts, each of which begins an incarnation.
    pub fn restart_bytes(&self) -> u64 {
        self.margin_bytes() / 4
    }

    /// Gives back what is left of a claim, and `undo_bytes` that were reserved. True if somebody may sleep for room:
    /// then the caller wakes whom it helps (R2).
    #[inline]
    pub fn give_back(&self, left: u64, undo_bytes: u64) -> bool {
        let is_wanted = || self.head_wants.load(SeqCst) != 0 || self.undo_sleepers.load(SeqCst) != 0;
        if cfg!(feature = "planted-looked-too-soon") {
            let was_wanted = is_wanted();
            self.take_back(left, undo_bytes);
            return was_wanted;
        }
        self.take_back(left, undo_bytes);
        // After the above in the one order: either we see the sleeper, or it saw what we gave back.
        is_wanted()
    }

    /// The buffer first (R1).
    #[inline]
    fn take_back(&self, left: u64, undo_bytes: u64) {
        let is_planted = cfg!(feature = "planted-segments-first");
        if is_planted && left + undo_bytes > 0 {
            self.release(left + undo_bytes);
        }
        if left > 0 {
            let head = self.claim_head.fetch_sub(left, SeqCst);
            debug_assert!(head >= left, "{left} given back of {head}");
        }
        if !is_planted && left + undo_bytes > 0 {
            self.release(left + undo_bytes);
        }
        order();
    }

    /// Releases room in the segments.
    #[inline]
    pub fn release(&self, bytes: u64) {
        let committed = self.committed.fetch_sub(bytes, SeqCst);
        assert!(committed >= bytes, "{bytes} bytes of undo released of {committed}");
    }

    /// Whether the buffer has room for `bytes`.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.claim_head.load(SeqCst) + bytes <= self.zeroed_limit.load(SeqCst)
    }

    /// Whether a thread that wants `bytes` of the buffer, and has said that it sleeps, may sleep now. The end of a
    /// flush signals, and so does a thread that gives something back, after its records were published. `has_to_flush`:
    /// there is something that it could flush itself. `is_flushing`: somebody else does.
    pub fn look(&self, bytes: u64, has_to_flush: bool, is_flushing: bool) -> Look {
        if self.has_room(bytes) || has_to_flush {
            return Look::Again;
        }
        // A record that is appended within a claim, or only reserved, signals nothing, and its thread may keep the rest
        // (C5): what is claimed is looked at again (R3).
        let is_claimed = !is_flushing && self.claim_head.load(SeqCst) > self.durable.load(SeqCst);
        let is_unsignalled = is_claimed && !cfg!(feature = "planted-kept-unlooked");
        Look::Sleep(is_unsignalled.then_some(CLAIMED_LOOK_NS))
    }

    /// Waits for a claim that passes the line. `try_claim` says whether it has it by now, `look` whether it may sleep.
    #[cold]
    pub fn wait_beside<E>(&self, try_claim: impl Fn() -> Result<bool, E>, look: impl Fn() -> Look) -> Result<(), E> {
        self.undo_sleepers.fetch_add(1, SeqCst);
        order();
        let result = loop {
            let seen = self.undo_word.load(SeqCst);
            match try_claim() {
                Ok(true) => break Ok(()),
                Ok(false) => {
                    if let Look::Sleep(timeout_ns) = look() {
                        sync::futex_wait(self.undo_word, seen, timeout_ns);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.undo_sleepers.fetch_sub(1, SeqCst);
        result
    }

    /// Wakes those that wait beside the line.
    pub fn wake_beside(&self) {
        if self.undo_sleepers.load(SeqCst) > 0 {
            self.undo_word.fetch_add(1, SeqCst);
            sync::futex_wake(self.undo_word, u32::MAX);
        }
    }

    /// One more keeps more than others, if fewer than `count_max` do (C6).
    pub fn may_keep_more(&self, count_max: u32) -> bool {
        let mut count = self.long_keepers.load(Relaxed);
        while count < count_max {
            if cfg!(feature = "planted-keepers-uncounted") {
                self.long_keepers.store(count + 1, SeqCst);
                return true;
            }
            match self.long_keepers.compare_exchange_weak(count, count + 1, SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// One keeps no more than others from now on.
    pub fn end_keeping_more(&self) {
        let count = self.long_keepers.fetch_sub(1, SeqCst);
        debug_assert!(count > 0, "nobody keeps more");
    }
}
