//! Durability: a thread that waits for an LSN leads a flush or sleeps until one has covered it (states in
//! `group_commit.rs`).

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::task::Waker;

use ledgerstone_disk::{AlignedBuf, DiskError};
use ledgerstone_page::Lsn;
use ledgerstone_region::{SlotNo, sync};

use crate::error::{LogError, Malformed};
use crate::group_commit::{Crowd, FlushState, Lead};
use crate::log::Log;
use crate::meeting::Meeting;
use crate::record::RECORD_BYTES_MAX;
use crate::ring;
use crate::segment::{AHEAD_BYTES_MAX, BLOCK_BYTES};
use crate::wakers::WakerNo;

/// A flush takes no further record once it has so many bytes.
const FLUSH_BYTES_MAX: u64 = 1 << 20;
/// How long a leader sleeps before it looks again at a record that is reserved and not published.
const HOLE_LOOK_NS: u64 = 20_000;

/// A flush's bytes at most, the last record and the block at each end included, and zeros behind (F9 in `segment.rs`).
pub(crate) fn write_buffer_bytes(buffer_bytes: u64) -> usize {
    ((FLUSH_BYTES_MAX + RECORD_BYTES_MAX as u64).min(buffer_bytes / 2) + 2 * BLOCK_BYTES + AHEAD_BYTES_MAX) as usize
}

impl Log {
    /// Waits until the record at `lsn` is durable, with all records before it. The caller leads a flush, or sleeps
    /// while another thread leads. Hold no latch.
    ///
    /// # Errors
    /// [`LogError::Failed`]: it is not known whether the record is durable. [`LogError::Invalid`] if no record was ever
    /// reserved at `lsn`. [`LogError::Region`] if the thread has no slot and none is free.
    pub fn flush_to(&self, lsn: Lsn) -> Result<(), LogError> {
        if self.durable_lsn() > lsn {
            return Ok(());
        }
        if self.tail() <= lsn {
            return Err(LogError::Invalid { lsn, why: Malformed::Empty });
        }
        // Whoever leads has a slot. The log's failure is the better news.
        self.check_failed()?;
        let me = self.me()?;
        self.meeting().wait(lsn.0, |seen| self.try_lead(seen, me, Some(lsn.0)), || self.check_failed().err())
    }

    /// As [`Log::flush_to`].
    ///
    /// # Errors
    /// As [`Log::flush_to`].
    pub fn wait_durable(&self, lsn: Lsn) -> Result<(), LogError> {
        self.flush_to(lsn)
    }

    /// Makes durable all that was appended before the call.
    ///
    /// # Errors
    /// As [`Log::flush_to`].
    pub fn flush(&self) -> Result<(), LogError> {
        let tail = self.tail();
        if tail > self.durable_lsn() { self.flush_to(Lsn(tail.0 - 8)) } else { self.check_failed() }
    }

    /// Wakes `waker` once the record at `lsn` is durable, or the log has failed. If that is so already, wakes it at
    /// once. Does not ask for a flush.
    ///
    /// A caller that asks again with the same `place` is woken once, by the newest waker. Give the place up with
    /// [`Log::forget_waker`] when it is no longer needed.
    ///
    /// The waker runs in the thread that flushed, or in a thread of this process if another one has flushed. It holds
    /// no latch or mutex. Or it runs in a thread that repairs after a death, with the latch of repairs. That thread may
    /// be in the middle of anything else, so a waker must not wait for the log, as claims and flushes do. A panic of a
    /// waker ends there.
    pub fn on_durable(&self, lsn: Lsn, place: &mut Option<WakerNo>, waker: &Waker) {
        // What a waker does when it is cloned and dropped is its own affair: not under the mutex.
        let waker = waker.clone();
        let before = self.waiting.change(lsn.0, |wakers| wakers.put(lsn.0, place, waker));
        drop(before);
        // After the registration in the one order: either we see the flush, or its end sees us.
        self.waiting.wake_ready(self.is_failed());
    }

    /// Drops the waker that [`Log::on_durable`] has kept in `place` for `lsn`, if it was not woken yet.
    pub fn forget_waker(&self, lsn: Lsn, place: &mut Option<WakerNo>) {
        if let Some(no) = place.take()
            && !self.fork.is_inherited()
        {
            let forgotten = self.waiting.change(u64::MAX, |wakers| wakers.remove(lsn.0, no));
            drop(forgotten); // The mutex is free by now.
        }
    }

    /// Leads a flush if there is something to flush and nobody does. For claimers that need room.
    pub(crate) fn flush_for_space(&self, me: SlotNo) -> Result<bool, LogError> {
        let seen = FlushState(self.state.flush.load(SeqCst));
        if seen.is_leading() || !self.has_to_flush() {
            return Ok(false);
        }
        self.try_lead(seen, me, None).unwrap_or(Ok(())).map(|()| true)
    }

    /// Whether there is something to flush and nobody does.
    pub(crate) fn has_to_flush(&self) -> bool {
        let state = &*self.state;
        let durable = state.durable.load(SeqCst);
        !FlushState(state.flush.load(SeqCst)).is_leading()
            && state.tail.load(SeqCst) != durable
            && ring::first_word(&self.ring, durable) != 0
    }

    /// Leads the flush after `seen`, unless somebody else was quicker. `must`: the record that the leader waits for.
    fn try_lead(&self, seen: FlushState, me: SlotNo, must: Option<u64>) -> Option<Result<(), LogError>> {
        let state = &*self.state;
        let leading = self.meeting().begin(seen, me)?;
        let result = self.lead(leading, must);
        let ended = self.meeting().end(leading);
        let group = u64::from(ended.slept_count) + 1;
        state.grouped_count.fetch_add(group, Relaxed);
        state.group_count_max.fetch_max(group, Relaxed);
        state.active_count.store(group + u64::from(ended.next_count), Relaxed);
        self.signal_flushed();
        self.waiting.wake_ready(self.is_failed());
        self.waiting.ring_others();
        Some(result)
    }

    pub(crate) fn meeting(&self) -> Meeting<'_> {
        let state = &*self.state;
        Meeting {
            flush: &state.flush,
            flushing_to: &state.flushing_to,
            durable: &state.durable,
            sleepers: &state.sleepers,
            beds: &state.beds,
        }
    }

    /// Writes what is published, as the only leader (G1).
    fn lead(&self, leading: FlushState, must: Option<u64>) -> Result<(), LogError> {
        let state = &*self.state;
        if must.is_some() {
            self.lead_wait_for_company(leading);
        }
        let durable = state.durable.load(SeqCst);
        let mut end = durable;
        let mut count = 0;
        let mut round = 0;
        loop {
            let limit = state.tail.load(SeqCst);
            let (to, records) = ring::walk(&self.ring, end, limit, FLUSH_BYTES_MAX.saturating_sub(end - durable));
            (end, count) = (to, count + records);
            self.check_failed()?;
            if must.is_none_or(|lsn| end > lsn) || end - durable >= FLUSH_BYTES_MAX {
                break;
            }
            // Somebody has reserved below our record and not published yet: it is copying, or has lost its processor.
            if !sync::spin(round) {
                sync::sleep_ns(HOLE_LOOK_NS);
            }
            round += 1;
        }
        state.flushing_to.store(end, SeqCst);
        if end == durable {
            return Ok(());
        }
        let begun_ns = sync::now_ns();
        match self.write(durable, end) {
            Ok(bytes) => state.written_bytes.fetch_add(bytes, Relaxed),
            Err(error) => return Err(self.fail_with(Some(error))),
        };
        // If all is lost, or another's, by now, nothing is acknowledged by what was written last.
        self.check_failed()?;
        let write_ns = sync::now_ns().saturating_sub(begun_ns);
        state.write_ns.fetch_add(write_ns, Relaxed);
        state.flush_ns.store((state.flush_ns.load(Relaxed) * 7 + write_ns) / 8, Relaxed);
        state.record_count.fetch_add(count, Relaxed);
        state.flush_count.fetch_add(1, Relaxed);
        state.durable.store(end, SeqCst);
        self.give_out_room();
        Ok(())
    }

    /// Zeroes and gives out the room behind what is durable. For the leader, or who has taken over from it.
    pub(crate) fn give_out_room(&self) {
        let state = &*self.state;
        let (from, to) = (state.zeroed_limit.load(Relaxed), state.durable.load(Relaxed) + self.ring.len() as u64 * 4);
        state.zero_begun.store(to, SeqCst); // B4
        ring::zero(&self.ring, from, to);
        state.zeroed_limit.store(to, SeqCst); // Pairs with the load in `try_claim`.
    }

    /// Writes the records of `durable..end` in whole blocks: the first one with its durable bytes unchanged (B3), the
    /// last one with zeros behind the end (W2). Returns how many bytes that were.
    fn write(&self, durable: u64, end: u64) -> Result<u64, DiskError> {
        let block = durable & !(BLOCK_BYTES - 1);
        let used = (end - block) as usize;
        let bytes = used.next_multiple_of(BLOCK_BYTES as usize);
        // Taken out, so that no mutex is held over the write (W5). Only a leader comes here.
        let taken = self.write_buffer.lock().take();
        let mut buffer = taken.filter(|b| b.len() >= bytes).unwrap_or_else(|| AlignedBuf::new(bytes));
        ring::copy_out(&self.ring, block, &mut buffer[..used]);
        buffer[used..bytes].fill(0);
        let written = self.segments.write_durable(block, &mut buffer, bytes);
        *self.write_buffer.lock() = Some(buffer);
        written
    }

    fn lead_wait_for_company(&self, leading: FlushState) {
        let state = &*self.state;
        // A thread that commits alone does not even look at the clock.
        if state.active_count.load(Relaxed) < u64::from(self.group.group_count_min) {
            return;
        }
        let begun_ns = sync::now_ns();
        let mut round = 0;
        loop {
            let crowd = Crowd {
                waiting_count: self.meeting().sleeper_count(leading.number()) + 1,
                active_count: state.active_count.load(Relaxed) as u32,
                undurable_bytes: state.tail.load(Relaxed) - state.durable.load(Relaxed),
                waited_ns: sync::now_ns().saturating_sub(begun_ns),
                flush_ns: state.flush_ns.load(Relaxed),
            };
            match self.group.lead(crowd) {
                Lead::Flush => return,
                // Company comes to the bed by itself, and nobody has to wake a leader: it gives its processor to those
                // it waits for, and looks again. To sleep would take longer than they do.
                Lead::Wait { .. } => round = if sync::spin(round) { round + 1 } else { 0 },
            }
        }
    }

    /// After a failure.
    pub(crate) fn wake_everybody(&self) {
        self.meeting().wake_all();
        self.wake_claimers();
        self.wake_flusher();
        self.waiting.wake_ready(self.is_failed());
        self.waiting.ring_others();
    }

    /// Asks the flusher thread to make the record at `lsn` durable now. Never waits. Without a flusher thread, nothing
    /// happens until another caller flushes.
    #[inline]
    pub fn request_flush(&self, lsn: Lsn) {
        if self.state.durable.load(Acquire) <= lsn.0 {
            self.state.wanted_now.fetch_max(lsn.0 + 1, SeqCst);
            self.wake_flusher();
        }
    }

    /// Asks the flusher thread to make the record at `lsn` durable within `async_delay_ns`. Never waits.
    #[inline]
    pub fn request_flush_soon(&self, lsn: Lsn) {
        if self.state.wanted_soon.fetch_max(lsn.0 + 1, SeqCst) <= lsn.0 {
            self.wake_flusher_if_asleep();
        }
    }
}
