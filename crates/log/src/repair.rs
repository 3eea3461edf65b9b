//! The log's part of a repair after the death of a process.
//!
//! P1. A flush that the dead led ends: what is durable stays, the room behind it is zeroed and given out, those that
//!     wait are woken. What was being written is not durable, and the next leader writes the same bytes again. Nothing
//!     is taken over from who is only stopped: its write may be under way.
//! P2. Holes: the records that the dead had reserved and not published become void records. A record in hand that says
//!     where it is is filled there. What is reserved and named by nobody is a *gap*: its owner died before it could say
//!     where it was, and has written nothing there. First all living that were about to reserve have published. Then a
//!     gap ends where a word is not zero, a hole with a name begins, or the tail was. It may be several
//!     records'; its bytes are counted apart. Tails that were seen in between begin no record any more
//!     ([`Log::first_record_from`]).
//! P3. What the dead had claimed and not appended is given back, with their part in who waits and who keeps more. The
//!     sums are added up again from the shares of all slots (R4 in `room.rs`), since the dead may have changed one and
//!     not the other. What they had reserved for rollbacks goes to who ends their transactions ([`Log::inherit`]).
//! P4. The line and the latch of segments are given back. What was half done with a segment is found and done again by
//!     the next who makes or gives up one (F1, F8 in `segment.rs`). So is the latch of the control file, whose next
//!     change reads the file again (K3 in `control_words.rs`). A flusher that died is none.
//!     What they have pinned is held back no more: their entries are cleared, before their numbers are others'.
//! P5. Everybody is woken: a wake-up may have been the dead's to give, or to pass on.
//!
//! Each step can be done again, in part or whole: a repairer may die, and the next one begins anew. It fills first what
//! that one was filling.

use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use ledgerstone_region::atomic::fence;
use ledgerstone_region::{AnotherDied, Dead, Repair, SlotNo, sync};

use crate::LogError;
use crate::group_commit::FlushState;
use crate::log::Log;
use crate::own::{Intent, Own};
use crate::planted::Part;
use crate::record::{Encoded, HEADER_BYTES, NewRecord, RECORD_BYTES_MAX, RecordKind};
use crate::ring;
use crate::room::Sums;

impl Repair for Log {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let me = self.slots.current(); // Whoever repairs has one.
        self.end_flush_of(dead, me); // P1
        self.fill_holes(dead)?; // P2
        self.recount(dead, me)?; // P3
        self.mend_line(dead)?; // P4
        self.give_back_latches_of(dead, me); // P4
        if let Some(control) = self.control.as_ref().filter(|_| !self.forgets(Part::Control)) {
            control.repair(dead)?; // P4
        }
        if !self.forgets(Part::Pins) {
            let died = dead.processes();
            self.handles.clear_of(|process| died.contains(&process)); // P4
        }
        self.wake_after_death(); // P5
        Ok(())
    }
}

impl Log {
    /// Takes over what the dead had reserved for rollbacks, for this process, which is going to end their transactions.
    /// For a repairer, when these are marked as this process's: then [`Log::take_inherited`] finds it. The log's own
    /// part of the repair came before. So the sums are those of the shares, and stay so.
    ///
    /// A repairer that dies in here leaves too much reserved, and never too little. The next one inherits that as well,
    /// and gives up all of it in the end.
    ///
    /// # Errors
    /// [`AnotherDied`].
    pub fn inherit(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let me = self.slots.current();
        dead.latch(&self.state.room_latch, me)?;
        let (mine, shares) = (self.own(me), || dead.slots().iter().map(|slot| self.own(*slot)));
        let all = shares().fold(0u64, |all, own| all.wrapping_add(own.reserved.load(Relaxed)));
        // Threads of a process give back what others of it have reserved: such shares are below zero (O3 in `own.rs`).
        let is_below_zero = |own: &&Own| own.reserved.load(Relaxed) > i64::MAX as u64;
        shares().filter(is_below_zero).for_each(|own| own.reserved.store(0, Relaxed));
        mine.inherited.store(mine.inherited.load(Relaxed).wrapping_add(all), Relaxed);
        mine.reserved.store(mine.reserved.load(Relaxed).wrapping_add(all), Relaxed);
        for own in shares() {
            own.reserved.store(0, Relaxed);
            own.inherited.store(0, Relaxed);
        }
        self.state.room_latch.unlatch_exclusive_unchanged();
        Ok(())
    }

    /// Puts the shares of all slots of this process into that of the caller: one of them may be less than nothing, and
    /// another as much more (O3 in `own.rs`). For a process that leaves, whose slots go to different ones. None of its
    /// threads appends any more.
    ///
    /// # Errors
    /// [`LogError::Region`]: the thread has no slot, and none is free.
    pub fn even_out(&self) -> Result<(), LogError> {
        let me = self.me()?;
        self.room().latch(me);
        let (mut claimed, mut reserved) = (0_u64, 0_u64);
        for own in self.slots.iter_owned().filter(|slot| self.slots.is_of_us(*slot)).map(|slot| self.own(slot)) {
            let appended = own.appended.load(Acquire);
            claimed = claimed.wrapping_add(own.claimed.load(Relaxed).wrapping_sub(appended));
            reserved = reserved.wrapping_add(own.reserved.load(Relaxed));
            own.claimed.store(appended, Relaxed); // Published by the latch.
            own.reserved.store(0, Relaxed);
        }
        let mine = self.own(me);
        mine.claimed.store(mine.claimed.load(Relaxed).wrapping_add(claimed), Relaxed);
        mine.reserved.store(reserved, Relaxed);
        self.state.room_latch.unlatch_exclusive_unchanged();
        Ok(())
    }

    /// Bytes that threads of this process have inherited, and that nobody has taken.
    #[must_use]
    pub fn inherited(&self) -> u64 {
        let of_us = self.slots.iter_owned().filter(|slot| self.slots.is_of_us(*slot));
        of_us.fold(0, |sum, slot| sum.wrapping_add(self.own(slot).inherited.load(Relaxed)))
    }

    /// Takes what this process has inherited. The caller gives it to [`Log::release_undo`] when the transactions have
    /// ended that it is for. One thread at a time. If it dies before, the next repairer inherits it once more.
    #[must_use = "what is not released stays reserved"]
    pub fn take_inherited(&self) -> u64 {
        let (bytes, mine) = (self.inherited(), self.own(self.slots.current()));
        mine.inherited.store(mine.inherited.load(Relaxed).wrapping_sub(bytes), Relaxed);
        bytes
    }

    /// The newest record that each of the dead threads had published, where it is still in the log: transaction and
    /// LSN. A thread that died between a record and whatever it was to do about it may have told nobody. For a
    /// repairer, after the log's own part.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn newest_of(&self, dead: &Dead<'_>) -> Result<Vec<(Xid, Lsn)>, LogError> {
        let mut newest = Vec::new();
        // What lies before is the opening's own record, which is sealed as those before it.
        let of_threads = |lsn: &u64| *lsn >= self.begun;
        let placed = dead.slots().iter().filter_map(|slot| self.own(*slot).in_hand().placed());
        for lsn in placed.filter(of_threads) {
            match self.read(Lsn(lsn)) {
                Ok(record) if record.kind() == RecordKind::Void => {}
                Ok(record) => newest.push((record.xid(), Lsn(lsn))),
                Err(LogError::Recycled { .. }) => {} // Its transaction has ended long ago.
                Err(error) => return Err(error),
            }
        }
        Ok(newest)
    }

    /// Whether a thread holds anything that another would wait for: a record in hand, a latch, a flush that it leads, a
    /// place in line.
    #[must_use]
    pub fn is_held_up_by(&self, slot: SlotNo) -> bool {
        let (state, own) = (&*self.state, self.own(slot));
        let latches = [&state.room_latch, &state.segments_latch];
        own.in_hand().seen().is_some()
            || latches.iter().any(|latch| latch.owner() == Some(slot))
            || FlushState(state.flush.load(SeqCst)).leader() == Some(slot)
            || own.place.load(SeqCst) != 0
            || self.line().head() == Some(slot)
    }

    /// P3. No record of the dead is in hand any more.
    fn recount(&self, dead: &Dead<'_>, me: SlotNo) -> Result<(), AnotherDied> {
        dead.latch(&self.state.room_latch, me)?;
        for own in dead.slots().iter().map(|slot| self.own(*slot)) {
            if !self.forgets(Part::Claims) {
                own.claimed.store(own.appended.load(Acquire), Relaxed); // Published by the latch.
            }
            if !self.forgets(Part::Beside) {
                own.beside.store(0, Relaxed);
            }
            if !self.forgets(Part::Keepers) {
                own.keeps_more.store(0, Relaxed);
            }
        }
        self.count_again();
        self.state.room_latch.unlatch_exclusive_unchanged();
        Ok(())
    }

    /// Adds all shares up. Under the room's latch.
    fn count_again(&self) {
        if self.forgets(Part::Sums) {
            return;
        }
        let start = self.state.first.load(Relaxed).wrapping_add(self.state.filled.load(Relaxed));
        let sums = self.own.iter().fold(Sums { claim_head: start, ..Sums::default() }, |sums, own| Sums {
            claim_head: sums.claim_head.wrapping_add(own.claimed.load(Relaxed)),
            reserved: sums.reserved.wrapping_add(own.reserved.load(Relaxed)),
            beside: sums.beside.wrapping_add(own.beside.load(Relaxed)),
            keep_more: sums.keep_more.wrapping_add(own.keeps_more.load(Relaxed)),
        });
        self.room().set_sums(sums);
    }

    /// P1.
    fn end_flush_of(&self, dead: &Dead<'_>, me: SlotNo) {
        let seen = FlushState(self.state.flush.load(SeqCst));
        if !self.forgets(Part::Lead)
            && seen.leader().is_some_and(|leader| dead.has(leader))
            && let Some(leading) = self.meeting().take_over(seen, me)
        {
            if !self.forgets(Part::Zeroing) {
                self.give_out_room();
            }
            self.meeting().end(leading);
        }
    }

    /// P2.
    fn fill_holes(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        if !self.forgets(Part::GapBegun) {
            self.fill_gap_begun();
        }
        let hands = || dead.slots().iter().map(|slot| self.own(*slot).in_hand());
        let placed = |seen| if let Some(Intent::Placed { lsn, bytes }) = seen { Some((lsn, bytes)) } else { None };
        let mut named: Vec<(u64, u64)> = hands().filter_map(|hand| placed(hand.seen())).collect();
        named.sort_unstable();
        if hands().any(|hand| hand.seen() == Some(Intent::Announced)) {
            self.fill_gaps(dead, &named)?;
        }
        for (lsn, bytes) in named.iter().filter(|_| !self.forgets(Part::Named)) {
            self.fill(*lsn, *bytes);
        }
        for hand in hands() {
            match hand.seen() {
                Some(Intent::Placed { .. }) => hand.end(), // It is published by now.
                Some(Intent::Announced) => hand.forget(),
                None => {}
            }
        }
        Ok(())
    }

    /// One of the dead may have reserved and not said where. If nobody has said so of a place, and no living thread is
    /// going to, it is a gap.
    fn fill_gaps(&self, dead: &Dead<'_>, named: &[(u64, u64)]) -> Result<(), AnotherDied> {
        let tail = match self.forgets(Part::Living) {
            true => self.tail(),
            false => self.settle(dead)?,
        };
        self.walk_and_fill(tail.0, named);
        Ok(())
    }

    /// Waits until the living have published all that was reserved when this was called, and says up to where that is.
    /// All that the dead have reserved is below. So after the log's repair for the same dead, the log has no hole below
    /// that place, nor will it have one. For a repairer that reads what is not durable.
    ///
    /// # Errors
    /// [`AnotherDied`]: one that had reserved and not published.
    pub fn settle(&self, dead: &Dead<'_>) -> Result<Lsn, AnotherDied> {
        let tail = self.tail();
        let is_settled = |slot: SlotNo| match self.own(slot).in_hand().seen() {
            None => true,
            Some(Intent::Announced) => false,
            Some(Intent::Placed { lsn, .. }) => lsn >= tail.0,
        };
        for slot in dead.living() {
            dead.await_living(|| is_settled(slot))?;
        }
        Ok(tail)
    }

    /// Goes from record to record up to `tail`, and fills what is missing: at a place in `named`, which are sorted,
    /// with so many bytes, elsewhere a gap.
    fn walk_and_fill(&self, tail: u64, named: &[(u64, u64)]) {
        let mut at = self.state.durable.load(SeqCst);
        while at < tail {
            let (to, _) = ring::walk(&self.ring, at, tail, u64::MAX);
            fence(Acquire); // B4
            if self.state.zero_begun.load(SeqCst) > at + self.ring.len() as u64 * 8 {
                return; // All of it has become durable meanwhile, and its place was given out again: there is no hole.
            }
            at = to;
            if at < tail && ring::first_word(&self.ring, at) == 0 {
                let next = named.iter().find(|(lsn, _)| *lsn >= at);
                match next {
                    Some((lsn, bytes)) if *lsn == at => self.fill(at, *bytes),
                    _ if self.forgets(Part::Gaps) => return,
                    _ => self.fill_gap(at, ring::zeroes(&self.ring, at, next.map_or(tail, |(lsn, _)| *lsn))),
                }
            }
        }
    }

    /// Fills a gap up to `to`: its bytes count from the moment on at which they are published.
    fn fill_gap(&self, at: u64, to: u64) {
        let state = &*self.state;
        if self.forgets(Part::GapBytes) {
            return self.fill(at, to - at);
        }
        state.gap_at.store(at, Relaxed);
        state.filled_will_be.store(state.filled.load(Relaxed) + (to - at), Release);
        self.fill_gap_begun();
    }

    /// Fills the gap that somebody has begun to fill, or has filled and not counted.
    fn fill_gap_begun(&self) {
        let state = &*self.state;
        let (will_be, at) = (state.filled_will_be.load(Acquire), state.gap_at.load(Relaxed));
        let bytes = will_be - state.filled.load(Relaxed);
        if bytes > 0 {
            self.fill(at, bytes);
            state.filled.store(will_be, Release);
        }
    }

    /// Puts void records in place of `bytes` bytes, unless they are there.
    fn fill(&self, mut at: u64, mut bytes: u64) {
        static ZEROES: [u8; 4096] = [0; 4096];
        while bytes > 0 {
            let most = RECORD_BYTES_MAX as u64;
            // What is left is a record at least.
            let here = if bytes <= most { bytes } else { most.min(bytes - HEADER_BYTES as u64) };
            // In this order: a word that was published stays until it is durable.
            if ring::first_word(&self.ring, at) == 0 && at >= self.state.durable.load(SeqCst) {
                let mut body = Vec::new();
                let mut left = here as usize - HEADER_BYTES;
                while left > 0 {
                    let piece = &ZEROES[..left.min(ZEROES.len())];
                    left -= piece.len();
                    body.push(piece);
                }
                let (xid, prev_lsn, op) = (Xid(0), Lsn(0), OpId(0));
                let record = NewRecord { kind: RecordKind::Void, xid, prev_lsn, op, flags: 0, page: None, body: &body };
                let encoded = Encoded::new(&record);
                let crc = ring::copy_in(&self.ring, at, &encoded, encoded.crc());
                ring::publish(&self.ring, at, &encoded, &self.seal, crc);
            }
            (at, bytes) = (at + here, bytes - here);
        }
    }

    /// P5. The flusher may sleep though its state says that it is awake.
    fn wake_after_death(&self) {
        if self.forgets(Part::Wakes) {
            return;
        }
        self.wake_everybody();
        self.state.flusher_word.fetch_add(1, SeqCst);
        sync::futex_wake(&self.state.flusher_word, 1);
    }

    /// P4. The line: N4 there.
    fn mend_line(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        if !self.forgets(Part::Places) {
            dead.slots().iter().for_each(|slot| self.own(*slot).place.store(0, SeqCst));
        }
        if self.forgets(Part::Head) {
            return Ok(());
        }
        self.line().mend(|slot| dead.has(slot), |is_done| dead.await_living(is_done))
    }

    /// P4.
    fn give_back_latches_of(&self, dead: &Dead<'_>, me: SlotNo) {
        let state = &*self.state;
        let is_deads = |owner: &SlotNo| dead.has(*owner);
        if !self.forgets(Part::Segments)
            && let Some(owner) = state.segments_latch.owner().filter(is_deads)
            && state.segments_latch.take_over(owner, me)
        {
            state.segments_latch.unlatch_exclusive();
        }
        // Its slot may be another's afterwards.
        let owner = state.flusher_owner.load(SeqCst).checked_sub(1).map(|slot| SlotNo(slot as u16));
        if let Some(owner) = owner.filter(is_deads) {
            self.leave_flushers_place(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ledgerstone_disk::SimDisk;
    use ledgerstone_region::Region;

    use super::*;
    use crate::config::LogConfig;

    /// P2: a gap of several records' room. Whatever its length, the void records fill it and end where it does.
    #[test]
    fn a_gap_longer_than_any_record_is_filled_by_several() {
        for beyond in [8, HEADER_BYTES as u64 - 8, HEADER_BYTES as u64, 4096] {
            let region = Region::anonymous(16 << 20).expect("address space");
            let config = LogConfig {
                buffer_bytes: 8 << 20,
                segment_bytes: 8 << 20,
                ..LogConfig::new(Arc::new(SimDisk::new()), region, [1; 16])
            };
            let log = Log::open(config).expect("a new log");
            let bytes = RECORD_BYTES_MAX as u64 + beyond;
            let at = log.state.tail.fetch_add(bytes, SeqCst);
            log.fill(at, bytes);
            assert_eq!(ring::walk(&log.ring, at, at + bytes, u64::MAX), (at + bytes, 2), "{beyond} bytes beyond");
        }
    }

    /// A thread claims and reserves, and another one gives back.
    #[test]
    fn a_process_that_leaves_leaves_no_slot_with_less_than_nothing() {
        let region = Region::anonymous(64 << 20).unwrap();
        let log = Log::open(LogConfig::new(Arc::new(SimDisk::new()), region, [7; 16])).unwrap();
        let sums = || (log.state.claim_head.load(SeqCst), log.state.reserved.load(SeqCst));
        let (before, mine) = (sums(), log.slots.current());
        std::thread::scope(|scope| {
            let claim = scope.spawn(|| log.claim_and_reserve_undo(1000, 500).unwrap()).join().unwrap();
            log.give_back_all(claim, 500);
            let shares = |slot| (log.own(slot).claimed.load(SeqCst), log.own(slot).reserved.load(SeqCst));
            let slots = || log.slots.iter_owned();
            let is_uneven = |slot: SlotNo| shares(slot).1 != 0;
            assert!(slots().any(|slot| slot != mine) && slots().any(is_uneven), "that is what is evened out");
            log.even_out().unwrap();
            for slot in slots() {
                assert_eq!(shares(slot), (log.own(slot).appended.load(SeqCst), 0), "{slot}");
            }
        });
        assert_eq!(sums(), before);
    }
}
