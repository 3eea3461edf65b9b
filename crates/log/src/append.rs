//! Claims and appends: space is found first, where waiting is allowed; then a record goes in without any wait.
//!
//! ```text
//!  tail  ≤  claim_head  ≤  zeroed_limit           room in the buffer
//!           claim_head + reserved for undo  ≤ prepared_end - margin       room in segments
//!                                           ≤ prepared_end - margin/4 for upkeep
//! ```
//! C1. A claim raises `claim_head`; an append within it raises `tail` by as much as it lowers the claim. So an append
//!     never passes `zeroed_limit`, and needs to look at neither limit.
//! C2. An ordinary claim and a reservation for undo keep both sums within the segments that are ready, less a margin; a
//!     claim for undo only needs `claim_head` there. So what is reserved is there when a rollback asks for it. The
//!     margin is left for the checkpoint that frees space, and a claim for upkeep may use three quarters of it. The
//!     last quarter is left for restarts. Such a claim never uses what is reserved: however many checkpoints come to
//!     nothing, a rollback finds its room.
//! C3. Claimers that find no room stand in line (`line.rs`). A claim that comes later passes them only where it leaves
//!     room for the head of the line. So a large claim is not starved by small ones, and nobody waits for a line that
//!     is only about to wake up. Claims for undo and upkeep do not stand in line: those in line may wait for what they
//!     free.
//! C4. A transaction that holds a claim must not wait for one that may be waiting for a claim: claims are given back
//!     before a lock wait.
//! C5. Between its calls a transaction may keep a claim of [`Log::kept_claim_bytes`], so that it need not claim for
//!     each small record. As many transactions as there may be keep at most a sixteenth of the buffer, and the
//!     largest claim is for that much less. So no claim waits for what is kept, however long its holder does nothing
//!     (R3 in `room.rs`).
//! C6. A few may keep more, also between transactions: [`Log::long_kept_bytes`] of the buffer, and
//!     [`LONG_KEPT_UNDO_BYTES`] of what is reserved for rollbacks. All of these together are a thirty-second of the
//!     buffer and an eighth of a segment, and the largest claim is for that much less again. So a thread that commits
//!     one small transaction after the other seldom writes the words of the claims, and nobody waits for what it keeps.

use ledgerstone_page::Lsn;
use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::{SlotNo, sync};

pub use crate::config::LONG_KEPT_UNDO_BYTES;
use crate::error::LogError;
use crate::group_commit::FlushState;
use crate::line::{Line, Look, Places};
use crate::log::Log;
use crate::own::Own;
use crate::record::{Encoded, LSN_END, LSN_LIMIT, NewRecord};
use crate::ring;
use crate::room::{Mine, Purpose, Refused, Room};
use crate::segment::NoSegment;

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

impl Log {
    /// Claims room in the buffer and in the segments for records of `bytes` in sum, see [`NewRecord::len_bytes`]. Claim
    /// freely and give the rest back. May wait for the device and for other claims: hold no latch, and no other claim.
    ///
    /// # Errors
    /// [`LogError::ClaimTooLarge`], [`LogError::NoSpace`] (nothing has changed), [`LogError::Failed`],
    /// [`LogError::Region`] if all thread slots are taken.
    #[inline]
    pub fn claim(&self, bytes: usize) -> Result<Claim, LogError> {
        let (me, bytes) = self.claim_check(bytes)?;
        let beside = self.state.line_wanted.load(Relaxed); // C3
        if self.try_claim(me, bytes, 0, beside, Purpose::Ordinary).is_ok() {
            return Ok(Claim { left: bytes });
        }
        self.claim_in_line(me, bytes)
    }

    /// [`Log::claim`] and [`Log::reserve_undo`] in one step: what a transaction needs that begins to write.
    ///
    /// # Errors
    /// As both. Nothing is claimed then, and nothing reserved.
    #[inline]
    pub fn claim_and_reserve_undo(&self, bytes: usize, undo_bytes: u64) -> Result<Claim, LogError> {
        let (me, claimed) = self.claim_check(bytes)?;
        let beside = self.state.line_wanted.load(Relaxed); // C3
        if self.try_claim(me, claimed, undo_bytes, beside, Purpose::Ordinary).is_ok() {
            return Ok(Claim { left: claimed });
        }
        self.reserve_undo(undo_bytes)?;
        self.claim(bytes).inspect_err(|_| self.release_undo(undo_bytes))
    }

    /// Bytes of a claim that a transaction may keep between its calls (C5). 0: nothing.
    #[inline]
    pub fn kept_claim_bytes(&self) -> u64 {
        self.kept_claim_bytes
    }

    /// Bytes of a claim that may be kept by who was allowed to keep more (C6).
    #[inline]
    pub fn long_kept_bytes(&self) -> u64 {
        self.long_kept_bytes
    }

    /// Asks whether the caller may keep more (C6). If so, it says [`Log::end_keeping_more`] when it keeps nothing any
    /// more.
    #[must_use = "who may keep more has to say when it ends"]
    pub fn may_keep_more(&self) -> bool {
        self.me().is_ok_and(|me| self.room().may_keep_more(self.mine(me), self.long_keeper_count))
    }

    /// See [`Log::may_keep_more`].
    pub fn end_keeping_more(&self) {
        if !self.fork.is_inherited() {
            self.room().end_keeping_more(self.mine(self.me_or_another()));
        }
    }

    /// As [`Log::claim`], for a rollback. It is refused only if even the space reserved for rollbacks would not do.
    /// That cannot happen to a caller that has reserved `bytes` by [`Log::reserve_undo`] and not yet released them.
    ///
    /// # Errors
    /// As [`Log::claim`].
    pub fn claim_undo(&self, bytes: usize) -> Result<Claim, LogError> {
        self.claim_past_line(bytes, Purpose::Undo)
    }

    /// As [`Log::claim`] for what keeps the environment going, a checkpoint before all: may use the last room that
    /// ordinary claims leave, but nothing that is reserved for rollbacks.
    ///
    /// # Errors
    /// As [`Log::claim`].
    pub fn claim_upkeep(&self, bytes: usize) -> Result<Claim, LogError> {
        self.claim_past_line(bytes, Purpose::Upkeep)
    }

    fn claim_past_line(&self, bytes: usize, purpose: Purpose) -> Result<Claim, LogError> {
        let (me, bytes) = self.claim_check(bytes)?;
        if self.try_claim(me, bytes, 0, 0, purpose).is_ok() {
            return Ok(Claim { left: bytes });
        }
        self.claim_beside_line(me, bytes, purpose)
    }

    /// Gives back what is left of a claim.
    #[inline]
    pub fn give_back(&self, claim: Claim) {
        self.give_back_all(claim, 0);
    }

    /// Gives back what is left of a claim, and what [`Log::reserve_undo`] reserved.
    #[inline]
    pub fn give_back_all(&self, claim: Claim, undo_bytes: u64) {
        // In a child it is the parent's, whose thread may hold the latch for ever here.
        if !self.fork.is_inherited() && self.room().give_back(self.mine(self.me_or_another()), claim.left, undo_bytes) {
            self.signal_given_back();
        }
    }

    /// Reserves room in the segments for undoing what is about to be done. Nothing of the buffer is taken. May wait for
    /// the device.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] (nothing has changed), [`LogError::Failed`], [`LogError::Region`] as there.
    pub fn reserve_undo(&self, bytes: u64) -> Result<(), LogError> {
        self.check_failed()?;
        let me = self.me()?;
        while !self.room().try_reserve(self.mine(me), bytes, || self.wake_flusher_to_prepare()) {
            self.prepare_for(me, bytes, Purpose::Ordinary)?;
        }
        Ok(())
    }

    /// Reserves once more, at a restart, what [`Log::reserve_undo`] had reserved before it: the room is there, and
    /// nothing is refused.
    pub fn reserve_undo_again(&self, bytes: u64) {
        self.room().reserve(self.mine(self.me_or_another()), bytes);
    }

    /// Releases what [`Log::reserve_undo`] reserved.
    #[inline]
    pub fn release_undo(&self, bytes: u64) {
        if bytes > 0 && !self.fork.is_inherited() && self.room().give_back(self.mine(self.me_or_another()), 0, bytes) {
            self.signal_given_back();
        }
    }

    /// The thread's slot.
    #[inline]
    pub(crate) fn me(&self) -> Result<SlotNo, LogError> {
        let me = self.slots.try_current()?;
        if self.a_slot.get().is_none() {
            let _ = self.a_slot.set(me); // Another was quicker, and will do.
        }
        Ok(me)
    }

    /// The thread's slot, or another of this process: a thread without one may end what others have begun (O3 in
    /// `own.rs`). Whoever has begun it had a slot.
    #[inline]
    fn me_or_another(&self) -> SlotNo {
        self.me().unwrap_or_else(|_| self.a_slot.get().copied().unwrap_or(SlotNo(0)))
    }

    /// Appends a record within `claim` and returns its LSN. Never waits, makes no system call, allocates nothing. The
    /// thread has a slot: it has claimed, or waited for a flush.
    ///
    /// # Panics
    /// If the claim has less left than [`NewRecord::len_bytes`], or the record is malformed: bugs of the caller. If the
    /// thread has no slot, and all are taken.
    #[inline]
    pub fn append(&self, claim: &mut Claim, record: &NewRecord<'_>) -> Lsn {
        let encoded = Encoded::new(record);
        let crc = encoded.crc();
        let bytes = encoded.bytes as u64;
        assert!(claim.left >= bytes, "a record of {bytes} bytes in a claim with {} left", claim.left);
        claim.left -= bytes;
        let hand = self.own(self.slots.current()).in_hand();
        let lsn = hand.reserve(&self.state.tail, bytes);
        sync::yield_point("log: reserved");
        let crc = ring::copy_in(&self.ring, lsn, &encoded, crc);
        sync::yield_point("log: copied");
        ring::publish(&self.ring, lsn, &encoded, &self.seal, crc);
        hand.end();
        Lsn(lsn)
    }

    #[inline]
    fn claim_check(&self, bytes: usize) -> Result<(SlotNo, u64), LogError> {
        let bytes = (bytes as u64).next_multiple_of(8);
        if bytes > self.claim_bytes_max {
            return Err(LogError::ClaimTooLarge { bytes, bytes_max: self.claim_bytes_max });
        }
        self.check_failed()?;
        Ok((self.me()?, bytes))
    }

    /// Claims, if `beside` bytes are free as well; an ordinary claim reserves `undo_bytes` with it.
    #[inline]
    fn try_claim(&self, me: SlotNo, bytes: u64, undo_bytes: u64, beside: u64, purpose: Purpose) -> Result<(), Refused> {
        let runs_low = || self.wake_flusher_to_prepare();
        let left = self.room().try_claim(self.mine(me), bytes, undo_bytes, beside, purpose, runs_low)?;
        if left < self.ring.len() as u64 * 3 {
            self.flush_ahead();
        }
        Ok(())
    }

    /// Called when a quarter of what may be appended has been appended. It has the flusher make that durable, unless
    /// the flusher was asked already. So commits that ask for nothing (Volatile) do not meet a full buffer and wait for
    /// all of it at once.
    fn flush_ahead(&self) {
        let state = &*self.state;
        let durable = state.durable.load(Relaxed);
        let tail = state.tail.load(Relaxed);
        if tail > durable && state.wanted_now.load(Relaxed) <= durable {
            self.request_flush(Lsn(tail - 1));
        }
    }

    /// Stands in line for an ordinary claim.
    #[cold]
    fn claim_in_line(&self, me: SlotNo, bytes: u64) -> Result<Claim, LogError> {
        self.state.claim_wait_count.fetch_add(1, Relaxed);
        let try_claim = || self.try_claim_slow(me, bytes, Purpose::Ordinary);
        self.line().stand(me, bytes, || self.check_failed(), try_claim, || self.look_for_room(bytes))?;
        Ok(Claim { left: bytes })
    }

    /// Waits for a claim that passes the line.
    #[cold]
    fn claim_beside_line(&self, me: SlotNo, bytes: u64, purpose: Purpose) -> Result<Claim, LogError> {
        self.state.claim_wait_count.fetch_add(1, Relaxed);
        let try_claim = || self.try_claim_slow(me, bytes, purpose);
        self.room().wait_beside(self.mine(me), try_claim, || self.look_for_room(bytes))?;
        Ok(Claim { left: bytes })
    }

    /// Claims, and makes the room for it where it can: segments, and a flush. `false`: only others can make room now.
    fn try_claim_slow(&self, me: SlotNo, bytes: u64, purpose: Purpose) -> Result<bool, LogError> {
        loop {
            self.check_failed()?;
            match self.try_claim(me, bytes, 0, 0, purpose) {
                Ok(()) => return Ok(true),
                Err(Refused::Segments) => self.prepare_for(me, bytes, purpose)?,
                Err(Refused::Buffer) => {
                    if !self.flush_for_space(me)? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Whether a thread that wants `bytes` of the buffer may sleep now ([`Room::look`]).
    fn look_for_room(&self, bytes: u64) -> Look {
        if self.is_failed() {
            return Look::Again;
        }
        let is_flushing = FlushState(self.state.flush.load(SeqCst)).is_leading();
        self.room().look(bytes, self.has_to_flush(), is_flushing)
    }

    #[inline]
    pub(crate) fn room(&self) -> Room<'_> {
        let state = &*self.state;
        Room {
            latch: &state.room_latch,
            claim_head: &state.claim_head,
            reserved: &state.reserved,
            durable: &state.durable,
            zeroed_limit: &state.zeroed_limit,
            prepared_end: &state.prepared_end,
            head_wants: &state.head_wants,
            undo_sleepers: &state.undo_sleepers,
            undo_word: &state.undo_word,
            long_keepers: &state.long_keepers,
            segment_bytes: self.segments.segment_bytes(),
        }
    }

    /// What a slot has of the log.
    #[inline]
    pub(crate) fn own(&self, slot: SlotNo) -> &Own {
        &self.own[usize::from(slot.0)]
    }

    #[inline]
    fn mine(&self, slot: SlotNo) -> Mine<'_> {
        let own = self.own(slot);
        let (claimed, reserved) = (&own.claimed, &own.reserved);
        Mine { slot, claimed, reserved, beside: &own.beside, keeps_more: &own.keeps_more }
    }

    pub(crate) fn line(&self) -> Line<'_> {
        let state = &*self.state;
        Line {
            head: &state.line_head,
            tickets: &state.line_tickets,
            slots_used: &state.line_slots_used,
            wanted: &state.line_wanted,
            head_wants: &state.head_wants,
            beds: &state.line_beds,
            places: self,
        }
    }

    /// Makes segments until `bytes` more fit. One thread at a time; waits for the device.
    fn prepare_for(&self, me: SlotNo, bytes: u64, purpose: Purpose) -> Result<(), LogError> {
        let state = &*self.state;
        let _inside = self.latch_segments(me)?;
        loop {
            self.check_failed()?;
            let prepared_end = state.prepared_end.load(SeqCst);
            let needed = match purpose {
                Purpose::Ordinary => self.room().committed() + bytes + self.room().margin_bytes(),
                Purpose::Undo => state.claim_head.load(SeqCst) + bytes,
                Purpose::Upkeep => self.room().committed() + bytes + self.room().restart_bytes(),
            };
            if needed <= prepared_end {
                return Ok(());
            }
            let limit = if purpose == Purpose::Ordinary { LSN_LIMIT } else { LSN_END };
            if prepared_end + self.segments.segment_bytes() > limit.0 {
                return Err(LogError::LsnsUsedUp { at: Lsn(prepared_end) });
            }
            self.prepare_one(prepared_end, needed - prepared_end)?;
        }
    }

    /// Makes a segment ahead of need, if what is ready runs low. For the flusher thread.
    pub(crate) fn prepare_ahead(&self, me: SlotNo) -> Result<(), LogError> {
        if !self.wants_segment() {
            return Ok(());
        }
        let _inside = self.latch_segments(me)?;
        if self.wants_segment() { self.prepare_one(self.state.prepared_end.load(SeqCst), 0) } else { Ok(()) }
    }

    /// Whether less than half a segment is left.
    pub(crate) fn wants_segment(&self) -> bool {
        let prepared_end = self.state.prepared_end.load(SeqCst);
        let segment_bytes = self.segments.segment_bytes();
        self.room().committed() + segment_bytes / 2 > prepared_end - self.room().margin_bytes()
            && prepared_end + segment_bytes <= LSN_LIMIT.0
    }

    fn prepare_one(&self, prepared_end: u64, needed: u64) -> Result<(), LogError> {
        match self.segments.create(prepared_end) {
            Ok(()) => {
                let prepared_end = prepared_end + self.segments.segment_bytes();
                self.name_segments_below(prepared_end)?;
                self.state.prepared_end.store(prepared_end, SeqCst);
                Ok(())
            }
            Err(NoSegment::Refused(error)) if error.is_no_space() => {
                self.state.lacked_space.store(1, Relaxed);
                Err(LogError::NoSpace { needed, prepared_end: Lsn(prepared_end) })
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    /// After a flush: wakes the head of the line, which leads the next flush if it has no room yet, and rollbacks.
    pub(crate) fn signal_flushed(&self) {
        self.line().wake_head(|_| true);
        self.room().wake_beside();
    }

    /// After a claim was given back. The head of the line sleeps on unless it can do something now.
    #[cold]
    fn signal_given_back(&self) {
        self.line().wake_head(|bytes| self.room().has_room(bytes) || self.has_to_flush());
        self.room().wake_beside();
    }

    /// After a failure.
    pub(crate) fn wake_claimers(&self) {
        self.line().wake_all();
        self.room().wake_beside();
    }
}

impl Places for Log {
    fn place(&self, slot: SlotNo) -> &AtomicU64 {
        &self.own(slot).place
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use ledgerstone_disk::SimDisk;
    use ledgerstone_region::{Region, SlotTable};

    use super::*;
    use crate::config::LogConfig;

    /// Nobody would ever give it back.
    #[test]
    fn a_claim_that_the_buffer_refuses_takes_no_room_in_the_segments() {
        let region = Region::anonymous(16 << 20).unwrap();
        let small = LogConfig::new(Arc::new(SimDisk::new()), region, *b"test environment");
        let log = Log::open(LogConfig { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, ..small }).unwrap();
        let (me, committed) = (log.slots.current(), || log.room().committed());
        let before = committed();
        let mut claims = Vec::new();
        while log.try_claim(me, 1000, 0, 0, Purpose::Ordinary).is_ok() {
            claims.push(Claim { left: 1000 });
        }
        let taken = committed();
        assert_eq!(taken, before + 1000 * claims.len() as u64);
        for purpose in [Purpose::Ordinary, Purpose::Upkeep, Purpose::Undo] {
            assert_eq!(log.try_claim(me, 1000, 0, 0, purpose), Err(Refused::Buffer), "{purpose:?}");
            assert_eq!(committed(), taken, "{purpose:?}");
        }
        assert_eq!(log.try_claim(me, 1000, 500, 0, Purpose::Ordinary), Err(Refused::Buffer));
        assert_eq!(committed(), taken, "with room to undo");
        claims.into_iter().for_each(|claim| log.give_back(claim));
        assert_eq!((committed(), log.state.claim_head.load(SeqCst)), (before, before));
    }

    #[test]
    fn a_claim_and_its_room_to_undo_come_and_go_together() {
        let sim = SimDisk::new();
        let region = Region::anonymous(16 << 20).unwrap();
        let small = LogConfig::new(Arc::new(sim.clone()), region, *b"test environment");
        let log = Log::open(LogConfig { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, ..small }).unwrap();
        let words = || (log.state.claim_head.load(SeqCst), log.room().committed());
        let before = words();
        let claim = log.claim_and_reserve_undo(100, 2048).unwrap();
        assert_eq!(claim.left(), 104);
        assert_eq!(words(), (before.0 + 104, before.1 + 104 + 2048));
        log.give_back_all(claim, 2048);
        assert_eq!(words(), before);
        // More than is ready: segments are made.
        let claim = log.claim_and_reserve_undo(100, 1 << 20).unwrap();
        assert_eq!(words(), (before.0 + 104, before.1 + 104 + (1 << 20)));
        log.give_back_all(claim, 1 << 20);
        sim.no_space_after(sim.used_bytes());
        let too_much = 1 << 30;
        assert!(matches!(log.claim_and_reserve_undo(100, too_much), Err(LogError::NoSpace { .. })));
        let too_long = log.claim_bytes_max() as usize + 1;
        assert!(matches!(log.claim_and_reserve_undo(too_long, 8), Err(LogError::ClaimTooLarge { .. })));
        assert_eq!(words(), before, "what is refused leaves nothing behind");
    }

    /// C5.
    #[test]
    fn the_largest_claim_has_room_beside_all_that_is_kept() {
        for (buffer_bytes, count) in
            [(16 << 10, 1), (16 << 10, 40), (128 << 10, 77), (8 << 20, 1055), (1 << 30, 16_031)]
        {
            let region = Region::anonymous(16 << 20).unwrap();
            let config = LogConfig::new(Arc::new(SimDisk::new()), region, *b"test environment");
            let config = LogConfig { buffer_bytes, kept_claim_count: count, ..config };
            let (kept, largest) = (config.kept_claim_bytes(), config.claim_bytes_max());
            assert!(kept.is_multiple_of(8) && kept > 0, "{buffer_bytes}, {count}");
            assert!(kept * u64::from(count) <= buffer_bytes / 16, "{buffer_bytes}, {count}");
            let long = config.long_kept_bytes() * u64::from(config.long_keeper_count());
            assert!(config.long_kept_bytes().is_multiple_of(8) && long <= buffer_bytes / 32, "{buffer_bytes}, {count}");
            assert_eq!(kept * u64::from(count) + long + largest, buffer_bytes / 2, "{buffer_bytes}, {count}");
        }
    }

    /// C6.
    #[test]
    fn only_a_few_may_keep_more_and_their_rollbacks_keep_an_eighth_of_a_segment() {
        let region = || Region::anonymous(16 << 20).unwrap();
        let config = LogConfig::new(Arc::new(SimDisk::new()), region(), *b"test environment");
        assert_eq!(config.long_keeper_count(), 0, "nobody keeps anything");
        for (segment_bytes, buffer_bytes, count) in
            [(16 << 20, 8 << 20, 64), (64 << 10, 128 << 10, 2), (1 << 20, 8 << 20, 32), (16 << 10, 16 << 10, 0)]
        {
            let disk = Arc::new(SimDisk::new());
            let config = LogConfig::new(disk, region(), *b"test environment");
            let config = LogConfig { segment_bytes, buffer_bytes, kept_claim_count: 40, ..config };
            assert_eq!(config.long_keeper_count(), count, "{segment_bytes}, {buffer_bytes}");
            assert!(u64::from(count) * LONG_KEPT_UNDO_BYTES <= segment_bytes / 8);
            let log = Log::open(config).unwrap();
            assert!((0..count).all(|_| log.may_keep_more()));
            assert!(!log.may_keep_more());
            if count > 0 {
                log.end_keeping_more();
                assert!(log.may_keep_more() && !log.may_keep_more());
            }
        }
    }

    /// Whoever has begun it had a slot.
    #[test]
    fn a_thread_without_a_slot_ends_what_another_began() {
        let region = Region::anonymous(16 << 20).unwrap();
        let slots = Arc::new(SlotTable::place(&region, 1).unwrap());
        let config = LogConfig::new(Arc::new(SimDisk::new()), region, *b"test environment");
        let log = Log::open(LogConfig { kept_claim_count: 4, slots: Some(slots), ..config }).unwrap();
        let before = log.room().committed();
        assert!(log.may_keep_more());
        let claim = log.claim_and_reserve_undo(200, 400).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(log.claim(8), Err(LogError::Region(_))));
                log.give_back(claim);
                log.release_undo(400);
                log.end_keeping_more();
            });
        });
        assert_eq!((log.room().committed(), log.state.long_keepers.load(SeqCst)), (before, 0));
    }
}
