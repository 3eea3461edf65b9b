//! Claims and appends: space is found first, where waiting is allowed; then a record goes in without any wait.
//!
//! ```text
//!  tail  ≤  claim_head  ≤  zeroed_limit                 room in the buffer
//!           claim_head + reserved for undo = committed  ≤ prepared_end - margin   room in segments
//! ```
//! C1. A claim raises `claim_head`; an append within it raises `tail` by as much as it lowers the claim. So an append
//!     never passes `zeroed_limit`, and needs to look at neither limit.
//! C2. An ordinary claim and a reservation for undo keep `committed` within the segments that are ready, less a margin;
//!     a claim for undo only needs `claim_head` there. So what is reserved is there when a rollback asks for it, and the
//!     margin is left for the checkpoint that frees space.
//! C3. Claimers who find no room stand in line, so that a large claim is not starved by small ones; claims for undo do
//!     not stand in line, since those in line may wait for what a rollback gives back.
//! C4. Who holds a claim must not wait for anybody who may be waiting for one: claims are given back before a lock wait.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use ledgerstone_page::Lsn;
use ledgerstone_region::sync;

use crate::error::LogError;
use crate::gate;
use crate::group_commit::FlushState;
use crate::log::Log;
use crate::record::{Encoded, NewRecord};
use crate::ring;

/// Room in the log that belongs to its holder until it is appended to or given back with [`Log::give_back`].
#[derive(Debug)]
#[must_use = "a claim that is not given back is lost"]
pub struct Claim {
    left: u64,
}

impl Claim {
    /// Bytes that are left.
    #[inline]
    pub fn left(&self) -> u64 {
        self.left
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Ordinary,
    Undo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The buffer is full until something is flushed or given back.
    Buffer,
    /// The segments are full.
    Segments,
}

/// A hole that nobody fills for so long is looked at again.
const HOLE_LOOK_NS: u64 = 1_000_000;

impl Log {
    /// Claims room in the buffer and in the segments for records of `bytes` in sum, see [`NewRecord::len_bytes`]. Claim
    /// freely and give the rest back. May wait for the device and for other claims: hold no latch, and no other claim.
    ///
    /// # Errors
    /// [`LogError::ClaimTooLarge`], [`LogError::NoSpace`] (nothing has changed), [`LogError::Failed`].
    #[inline]
    pub fn claim(&self, bytes: usize) -> Result<Claim, LogError> {
        let bytes = self.claim_check(bytes)?;
        // Nobody in line (C3).
        if self.state.space_sleepers.load(Relaxed) == 0 && self.try_claim(bytes, Purpose::Ordinary).is_ok() {
            return Ok(Claim { left: bytes });
        }
        self.claim_slow(bytes, Purpose::Ordinary)
    }

    /// As [`Log::claim`] for a rollback, or for a checkpoint: is refused only if even the space reserved for rollbacks
    /// would not do, which cannot happen to who has reserved `bytes` by [`Log::reserve_undo`] and not yet released them.
    ///
    /// # Errors
    /// As [`Log::claim`].
    pub fn claim_undo(&self, bytes: usize) -> Result<Claim, LogError> {
        let bytes = self.claim_check(bytes)?;
        if self.try_claim(bytes, Purpose::Undo).is_ok() {
            return Ok(Claim { left: bytes });
        }
        self.claim_slow(bytes, Purpose::Undo)
    }

    /// Gives back what is left of a claim.
    #[inline]
    pub fn give_back(&self, claim: Claim) {
        if claim.left > 0 {
            let head = self.state.claim_head.fetch_sub(claim.left, SeqCst);
            let committed = self.state.committed.fetch_sub(claim.left, SeqCst);
            debug_assert!(committed >= claim.left && head >= claim.left, "{} given back of {head}", claim.left);
        }
        // After the above in the one order: either we see the sleeper, or it saw what we gave back.
        if self.state.space_sleepers.load(SeqCst) != 0 {
            self.signal_space();
        }
    }

    /// Reserves room in the segments for undoing what is about to be done. Nothing of the buffer is taken. May wait for
    /// the device.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] (nothing has changed), [`LogError::Failed`].
    pub fn reserve_undo(&self, bytes: u64) -> Result<(), LogError> {
        self.check_failed()?;
        while !self.try_commit(bytes) {
            self.prepare_for(bytes, Purpose::Ordinary)?;
        }
        Ok(())
    }

    /// Releases what [`Log::reserve_undo`] reserved.
    pub fn release_undo(&self, bytes: u64) {
        let committed = self.state.committed.fetch_sub(bytes, SeqCst);
        assert!(committed >= bytes, "{bytes} bytes of undo released of {committed}");
    }

    /// Appends a record within `claim` and returns its LSN. Never waits, makes no system call, allocates nothing.
    ///
    /// # Panics
    /// If the claim has less left than [`NewRecord::len_bytes`], or the record is malformed: bugs of the caller.
    #[inline]
    pub fn append(&self, claim: &mut Claim, record: &NewRecord<'_>) -> Lsn {
        let encoded = Encoded::new(record);
        let bytes = encoded.bytes as u64;
        assert!(claim.left >= bytes, "a record of {bytes} bytes in a claim with {} left", claim.left);
        claim.left -= bytes;
        let lsn = self.state.tail.fetch_add(bytes, SeqCst);
        sync::yield_point("log: reserved");
        ring::copy_in(&self.ring, lsn, &encoded, record.body);
        sync::yield_point("log: copied");
        ring::publish(&self.ring, lsn, &encoded, &self.seal);
        Lsn(lsn)
    }

    #[inline]
    fn claim_check(&self, bytes: usize) -> Result<u64, LogError> {
        let bytes = (bytes as u64).next_multiple_of(8);
        if bytes > self.claim_bytes_max {
            return Err(LogError::ClaimTooLarge { bytes, bytes_max: self.claim_bytes_max });
        }
        self.check_failed()?;
        Ok(bytes)
    }

    #[inline]
    fn try_claim(&self, bytes: u64, purpose: Purpose) -> Result<(), Refused> {
        let state = &*self.state;
        if purpose == Purpose::Ordinary && !self.try_commit(bytes) {
            return Err(Refused::Segments);
        }
        // Acquire: the buffer up to the limit is zero (B1).
        let limit = state.zeroed_limit.load(Acquire);
        let mut head = state.claim_head.load(Relaxed);
        let refused = loop {
            if head + bytes > limit {
                break Refused::Buffer;
            }
            if purpose == Purpose::Undo && head + bytes > state.prepared_end.load(Acquire) {
                break Refused::Segments;
            }
            match state.claim_head.compare_exchange_weak(head, head + bytes, SeqCst, Relaxed) {
                Ok(_) => {
                    if purpose == Purpose::Undo {
                        state.committed.fetch_add(bytes, SeqCst);
                    }
                    if limit - (head + bytes) < self.ring.len() as u64 * 3 {
                        self.flush_ahead();
                    }
                    return Ok(());
                }
                Err(now) => head = now,
            }
        };
        if purpose == Purpose::Ordinary {
            state.committed.fetch_sub(bytes, SeqCst);
        }
        Err(refused)
    }

    /// A quarter of what may be appended has been: has the flusher make it durable, unless it was asked already, so that
    /// commits that ask for nothing (Volatile) do not come to stand before a full buffer and wait for all of it at once.
    fn flush_ahead(&self) {
        let state = &*self.state;
        let durable = state.durable.load(Relaxed);
        let tail = state.tail.load(Relaxed);
        if tail > durable && state.wanted_now.load(Relaxed) <= durable {
            self.request_flush(Lsn(tail - 1));
        }
    }

    /// Takes room in the segments that are ready (C2).
    #[inline]
    fn try_commit(&self, bytes: u64) -> bool {
        let state = &*self.state;
        let limit = state.prepared_end.load(Acquire) - self.margin_bytes();
        let mut committed = state.committed.load(Relaxed);
        loop {
            if committed + bytes > limit {
                return false;
            }
            match state.committed.compare_exchange_weak(committed, committed + bytes, SeqCst, Relaxed) {
                Ok(_) => {
                    if committed + self.segments.segment_bytes() / 2 > limit {
                        self.wake_flusher_to_prepare();
                    }
                    return true;
                }
                Err(now) => committed = now,
            }
        }
    }

    /// What ordinary claims leave for a checkpoint.
    #[inline]
    fn margin_bytes(&self) -> u64 {
        (self.segments.segment_bytes() / 8).min(64 << 10)
    }

    #[cold]
    fn claim_slow(&self, bytes: u64, purpose: Purpose) -> Result<Claim, LogError> {
        let state = &*self.state;
        state.space_sleepers.fetch_add(1, SeqCst);
        let turn = (purpose == Purpose::Ordinary).then(|| state.turn_next.fetch_add(1, SeqCst));
        let result = self.claim_in_line(bytes, purpose, turn);
        if turn.is_some() {
            state.turn.fetch_add(1, SeqCst);
        }
        state.space_sleepers.fetch_sub(1, SeqCst);
        self.signal_space();
        result
    }

    fn claim_in_line(&self, bytes: u64, purpose: Purpose, turn: Option<u32>) -> Result<Claim, LogError> {
        let state = &*self.state;
        let mut has_waited = false;
        loop {
            let seen = state.space_word.load(SeqCst);
            let mut timeout_ns = None;
            // Nobody's turn comes any more once the log has failed, but nobody needs it then.
            self.check_failed()?;
            if turn.is_none_or(|turn| state.turn.load(SeqCst) == turn) {
                match self.try_claim(bytes, purpose) {
                    Ok(()) => return Ok(Claim { left: bytes }),
                    Err(Refused::Segments) => {
                        self.prepare_for(bytes, purpose)?;
                        continue;
                    }
                    Err(Refused::Buffer) => {
                        if self.flush_for_space()? {
                            continue;
                        }
                        // All is durable or a flush is under way, whose end will signal. Or a record is reserved and not
                        // published, which nobody signals.
                        let is_idle = !FlushState(state.flush.load(SeqCst)).is_leading();
                        if is_idle && state.tail.load(SeqCst) > state.durable.load(SeqCst) {
                            timeout_ns = Some(HOLE_LOOK_NS);
                        }
                    }
                }
            }
            if !has_waited {
                state.claim_wait_count.fetch_add(1, Relaxed);
                has_waited = true;
            }
            sync::futex_wait(&state.space_word, seen, timeout_ns);
        }
    }

    /// Makes segments until `bytes` more fit. One thread at a time; waits for the device.
    fn prepare_for(&self, bytes: u64, purpose: Purpose) -> Result<(), LogError> {
        let state = &*self.state;
        let _inside = gate::enter(&state.segments_gate);
        loop {
            self.check_failed()?;
            let prepared_end = state.prepared_end.load(SeqCst);
            let needed = match purpose {
                Purpose::Ordinary => state.committed.load(SeqCst) + bytes + self.margin_bytes(),
                Purpose::Undo => state.claim_head.load(SeqCst) + bytes,
            };
            if needed <= prepared_end {
                return Ok(());
            }
            self.prepare_one(prepared_end, needed - prepared_end)?;
        }
    }

    /// Makes a segment ahead of need, if what is ready runs low. For the flusher thread.
    pub(crate) fn prepare_ahead(&self) -> Result<(), LogError> {
        if !self.wants_segment() {
            return Ok(());
        }
        let _inside = gate::enter(&self.state.segments_gate);
        if self.wants_segment() { self.prepare_one(self.state.prepared_end.load(SeqCst), 0) } else { Ok(()) }
    }

    /// Whether less than half a segment is left.
    pub(crate) fn wants_segment(&self) -> bool {
        let limit = self.state.prepared_end.load(SeqCst) - self.margin_bytes();
        self.state.committed.load(SeqCst) + self.segments.segment_bytes() / 2 > limit
    }

    fn prepare_one(&self, prepared_end: u64, needed: u64) -> Result<(), LogError> {
        match self.segments.create(prepared_end) {
            Ok(()) => {
                self.state.prepared_end.store(prepared_end + self.segments.segment_bytes(), SeqCst);
                Ok(())
            }
            Err(error) if error.is_no_space() => Err(LogError::NoSpace { needed, prepared_end: Lsn(prepared_end) }),
            Err(error) => Err(LogError::Disk(error)),
        }
    }

    /// Wakes those in line: something was flushed, given back or prepared, or it is somebody else's turn.
    pub(crate) fn signal_space(&self) {
        if self.state.space_sleepers.load(SeqCst) > 0 {
            self.state.space_word.fetch_add(1, SeqCst);
            sync::futex_wake(&self.state.space_word, u32::MAX);
        }
    }
}
