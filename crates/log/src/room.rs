//! Room for records: what of the buffer and of the segments is taken, and who sleeps until there is more (C1, C2, C5
//! and C6 in `append.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's (`loom_room.rs`). Knows
//! neither records nor the device.
//!
//! R1. The sums are changed by the holder of the room's latch, for some instructions: `claim_head`, `reserved`, who
//!     waits beside the line, who keeps more. So room in the buffer and room in the segments are taken together, or
//!     neither is.
//! R2. A thread that gives room back looks afterwards who sleeps for room. A thread that sleeps has said so before it
//!     looked for room. So one of them sees the other.
//! R3. A thread that keeps the rest of a claim signals nothing, although it has appended a record that can be flushed.
//!     So nobody sleeps for long while something is claimed, except during a flush, whose end signals.
//! R4. The holder changes its slot's share (`own.rs`), and the sum. If it dies, whoever takes over its latch adds the
//!     shares up. So a claim was made, and is what the dead has left, or it was not. The claims of all slots, and what
//!     repairs have filled, add up to `claim_head` from where the log began.

use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::{Latch, SlotNo, sync};

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

/// A thread that sleeps looks again after so long: whoever was going to wake it may have died.
pub(crate) const LOOK_NS: u64 = 50_000_000;

/// The words of the room; see `state.rs`.
pub(crate) struct Room<'r> {
    pub latch: &'r Latch,
    pub claim_head: &'r AtomicU64,
    pub reserved: &'r AtomicU64,
    pub durable: &'r AtomicU64,
    pub zeroed_limit: &'r AtomicU64,
    pub prepared_end: &'r AtomicU64,
    pub head_wants: &'r AtomicU64,
    pub undo_sleepers: &'r AtomicU32,
    pub undo_word: &'r AtomicU32,
    pub long_keepers: &'r AtomicU32,
    pub segment_bytes: u64,
}

/// A thread's slot, and its shares in the sums.
#[derive(Clone, Copy)]
pub(crate) struct Mine<'r> {
    pub slot: SlotNo,
    pub claimed: &'r AtomicU64,
    pub reserved: &'r AtomicU64,
    pub beside: &'r AtomicU32,
    pub keeps_more: &'r AtomicU32,
}

/// The sums, as whoever repairs has added them up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sums {
    pub claim_head: u64,
    pub reserved: u64,
    pub beside: u32,
    pub keep_more: u32,
}

/// Changes one of a slot's shares, and the sum (R4). The room's latch is held, so nobody else stores either.
macro_rules! change {
    ($share:expr, $sum:expr, $change:expr) => {{
        let change = $change;
        $share.store(change($share.load(Relaxed)), Relaxed);
        $sum.store(change($sum.load(Relaxed)), Relaxed); // Given out by the latch; others only look.
    }};
}

impl Room<'_> {
    /// Claims, if `beside` bytes are free as well; an ordinary claim reserves `undo_bytes` with it. Returns what is
    /// left of the buffer. Calls `runs_low` if the segments that are ready will soon be full.
    #[inline]
    pub fn try_claim(
        &self,
        me: Mine<'_>,
        bytes: u64,
        undo_bytes: u64,
        beside: u64,
        purpose: Purpose,
        runs_low: impl FnOnce(),
    ) -> Result<u64, Refused> {
        self.latch(me.slot);
        // Acquire: the buffer up to the limit is zero (B1).
        let (head, limit) = (self.claim_head.load(Relaxed), self.zeroed_limit.load(Acquire));
        let (reserved, prepared_end) = (self.reserved.load(Relaxed), self.prepared_end.load(Acquire));
        let (taken, segments_end) = match purpose {
            Purpose::Ordinary => (head + reserved + undo_bytes + beside, prepared_end - self.margin_bytes()),
            Purpose::Upkeep => (head + reserved + beside, prepared_end - self.restart_bytes()),
            Purpose::Undo => (head, prepared_end), // Reserved.
        };
        let refused = if taken + bytes > segments_end {
            Some(Refused::Segments)
        } else {
            (head + bytes + beside > limit).then_some(Refused::Buffer)
        };
        if refused.is_none() {
            change!(me.claimed, self.claim_head, |sum: u64| sum.wrapping_add(bytes));
            if undo_bytes > 0 {
                change!(me.reserved, self.reserved, |sum: u64| sum.wrapping_add(undo_bytes));
            }
        }
        self.latch.unlatch_exclusive_unchanged();
        if let Some(refused) = refused {
            return Err(refused);
        }
        if purpose != Purpose::Undo && taken + bytes + self.segment_bytes / 2 > segments_end {
            runs_low();
        }
        Ok(limit - (head + bytes))
    }

    /// Reserves room in the segments that are ready (C2), if the margin is free there as well.
    pub fn try_reserve(&self, me: Mine<'_>, bytes: u64, runs_low: impl FnOnce()) -> bool {
        self.latch(me.slot);
        let limit = self.prepared_end.load(Acquire) - self.margin_bytes();
        let taken = self.claim_head.load(Relaxed) + self.reserved.load(Relaxed) + bytes;
        if taken <= limit {
            change!(me.reserved, self.reserved, |sum: u64| sum.wrapping_add(bytes));
        }
        self.latch.unlatch_exclusive_unchanged();
        if taken + self.segment_bytes / 2 > limit {
            runs_low();
        }
        taken <= limit
    }

    /// Reserves without a look.
    pub fn reserve(&self, me: Mine<'_>, bytes: u64) {
        self.latch(me.slot);
        change!(me.reserved, self.reserved, |sum: u64| sum.wrapping_add(bytes));
        self.latch.unlatch_exclusive_unchanged();
    }

    /// Gives back what is left of a claim, and `undo_bytes` that were reserved. True if somebody may sleep for room:
    /// then the caller wakes whom it helps (R2).
    #[inline]
    pub fn give_back(&self, me: Mine<'_>, left: u64, undo_bytes: u64) -> bool {
        let is_wanted = || self.head_wants.load(SeqCst) != 0 || self.undo_sleepers.load(SeqCst) != 0;
        let was_wanted = cfg!(feature = "planted-looked-too-soon") && is_wanted();
        if left + undo_bytes > 0 {
            self.latch(me.slot);
            if left > 0 {
                change!(me.claimed, self.claim_head, |sum: u64| sum.wrapping_sub(left));
            }
            if undo_bytes > 0 {
                change!(me.reserved, self.reserved, |sum: u64| sum.wrapping_sub(undo_bytes));
            }
            self.latch.unlatch_exclusive_unchanged();
        }
        if cfg!(feature = "planted-looked-too-soon") {
            return was_wanted;
        }
        fence(SeqCst); // Pairs with the one of whoever says that it sleeps (R2).
        is_wanted()
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

    /// `claim_head` and what is reserved for rollbacks. Without the latch: something like it.
    pub fn committed(&self) -> u64 {
        self.claim_head.load(SeqCst) + self.reserved.load(SeqCst)
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
    pub fn wait_beside<E>(
        &self,
        me: Mine<'_>,
        try_claim: impl Fn() -> Result<bool, E>,
        look: impl Fn() -> Look,
    ) -> Result<(), E> {
        self.latch(me.slot);
        change!(me.beside, self.undo_sleepers, |sum: u32| sum.wrapping_add(1));
        self.latch.unlatch_exclusive_unchanged();
        fence(SeqCst); // Pairs with the one in `give_back`.
        let result = loop {
            let seen = self.undo_word.load(SeqCst);
            match try_claim() {
                Ok(true) => break Ok(()),
                Ok(false) => {
                    if let Look::Sleep(timeout_ns) = look() {
                        sync::futex_wait(self.undo_word, seen, Some(timeout_ns.unwrap_or(LOOK_NS)));
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.latch(me.slot);
        change!(me.beside, self.undo_sleepers, |sum: u32| sum.wrapping_sub(1));
        self.latch.unlatch_exclusive_unchanged();
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
    pub fn may_keep_more(&self, me: Mine<'_>, count_max: u32) -> bool {
        if self.long_keepers.load(Relaxed) >= count_max {
            return false; // Asked once a transaction by those who may not.
        }
        self.latch(me.slot);
        let may = self.long_keepers.load(Relaxed) < count_max || cfg!(feature = "planted-keepers-uncounted");
        if may {
            change!(me.keeps_more, self.long_keepers, |sum: u32| sum.wrapping_add(1));
        }
        self.latch.unlatch_exclusive_unchanged();
        may
    }

    /// One keeps no more than others from now on.
    pub fn end_keeping_more(&self, me: Mine<'_>) {
        self.latch(me.slot);
        change!(me.keeps_more, self.long_keepers, |sum: u32| sum.wrapping_sub(1));
        self.latch.unlatch_exclusive_unchanged();
    }

    /// For the repairer who holds the latch: the sums are these.
    pub fn set_sums(&self, sums: Sums) {
        self.claim_head.store(sums.claim_head, Relaxed);
        self.reserved.store(sums.reserved, Relaxed);
        self.undo_sleepers.store(sums.beside, Relaxed);
        self.long_keepers.store(sums.keep_more, Relaxed);
    }

    /// Takes the latch, whose holder keeps it for some instructions. If the holder has died, a repair gives it back.
    #[inline]
    pub fn latch(&self, me: SlotNo) {
        if !self.latch.try_exclusive(me) {
            self.latch_slowly(me);
        }
    }

    #[cold]
    fn latch_slowly(&self, me: SlotNo) {
        while self.latch.exclusive_within(me, LOOK_NS).is_err() {}
    }
}
