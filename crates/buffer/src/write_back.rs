//! The only way out of memory for a page, and so the only place that keeps the write-ahead rule.
//!
//! ```text
//! take      shared latch: the writer's name into the frame's state, rec_lsn moves to flushing_rec_lsn, the bytes are
//!           copied; unlatch
//! flush     the log up to the largest LSN of the copies (steal: whether their transactions have ended or not)
//! seal      checksums
//! shelter   copies that the log does not have into a lane of the double-write area, with a mark of how far the log is
//!           durable; durable
//! home      each copy to its place in the data file, neighbours in one write
//! sync      of the data file, for many batches at once if they need no lane
//! done      flushing_rec_lsn := 0, the name goes, the lane is given back, the bell rings
//! ```
//!
//! W1. A page goes home only if the log is durable beyond its LSN. Asserted where it is written, in release too.
//! W2. A page goes home only if a whole copy of it is durable in the double-write area, and a lane is used again only
//!     after the data file was synced. Or else its image is in the log, and stays there until the data file was synced
//!     (D0 in `torn.rs`). So a page that a power cut tears has a whole twin.
//! W3. One write of a page is in flight at a time (F4), so that an older copy never overtakes a younger one.
//! W4. No thread waits for a latch while it has taken a write or a lane; a lane is held only across I/O. So a thread
//!     that waits for the bell waits for the device at most, whatever latches it holds.
//! W5. After an error nothing is tried again: the copies stay taken, the cache has failed, and so has the log. A second
//!     try could succeed for bytes that the device has dropped.
//! W6. Once the log has failed, for whatever reason, no page is sheltered and none goes home: the environment may have
//!     failed because another has it now. Reads go on as long as there are clean frames.
//!
//! This file does not know which pages are best written (`writer.rs`, `miss.rs` and checkpoints say), nor what is on
//! them.

use crate::cache::Cache;
use crate::entry::PageEntry;
use crate::error::BufferError;
use crate::frame::Descriptor;
use crate::frame_no::FrameNo;
use crate::torn::MARK_BYTES;
use ledgerstone_disk::AlignedBuf;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, checksum, header};
use ledgerstone_region::{Words, sync};
use std::sync::atomic::Ordering::Relaxed;

/// A page on its way out: its bytes are in the batch's buffer.
struct PageCopy {
    frame: FrameNo,
    id: PageId,
    page_lsn: Lsn,
    /// The log has the whole page (F7).
    is_in_log: bool,
}

/// Copies that go out together, in the order of their bytes in the buffer, behind room for the lane's mark.
struct Batch {
    copies: Vec<PageCopy>,
    buffer: AlignedBuf,
}

/// What came of trying to take a page along.
enum Take {
    Taken,
    /// Nothing to do any more.
    Clean,
    /// Its latch is held exclusively.
    Latched(PageId),
    /// Another thread is writing it.
    InFlight,
}

/// What a checkpoint has sent home and not synced yet: pages that need no lane.
#[derive(Default)]
struct Sent {
    frames: Vec<FrameNo>,
}

/// A sync is for so many pages at most, and for a quarter of the frames: others may be waiting for one of them.
const SENT_PAGES_MAX: usize = 1024;
/// How long one sleep for another's write lasts at most.
const BELL_WAIT_NS: u64 = 2_000_000;

impl Cache {
    /// Writes back all pages whose oldest change lies below `lsn`, in the order of their ids. Waits for pages of that
    /// kind that other threads are writing, but not for changes that begin meanwhile. Returns how many pages this call
    /// wrote.
    ///
    /// Waits for latches, the log and the device. Hold no latch.
    ///
    /// # Errors
    /// A failed flush, write or sync fails the cache and the log for good (W5).
    pub fn write_back_before(&self, lsn: Lsn) -> Result<usize, BufferError> {
        let mut due: Vec<(PageId, FrameNo)> = self
            .pool
            .frames
            .all()
            .filter(|(_, frame)| frame.oldest_change().is_some_and(|oldest| oldest < lsn))
            .filter_map(|(no, frame)| Some((frame.page()?, no)))
            .collect();
        let (mut written, busy) = self.write_back_due(&mut due, lsn)?;
        // Nothing is taken now, so it is safe to wait, one page at a time (W4).
        for frame in busy {
            written += self.write_back_one(frame, lsn)?;
        }
        Ok(written)
    }

    /// Writes these, and leaves out those that are latched or on their way.
    pub(crate) fn write_back_left(&self, mut frames: Vec<(PageId, FrameNo)>) -> Result<(), BufferError> {
        self.write_back_due(&mut frames, Lsn(u64::MAX)).map(drop)
    }

    /// Writes those of `due` that have changes below `lsn`, a sync for many batches. Returns how many it wrote, and
    /// those that are latched or on their way.
    fn write_back_due(&self, due: &mut [(PageId, FrameNo)], lsn: Lsn) -> Result<(usize, Vec<FrameNo>), BufferError> {
        self.sort_for_batches(due);
        let mut written = 0;
        let mut busy = Vec::new();
        let mut sent = Sent::default();
        let sent_max = SENT_PAGES_MAX.min(self.frame_count() as usize / 4);
        for part in due.chunks(self.double_write.batch_pages()) {
            let mut batch = self.batch_begin()?;
            for &(_, frame) in part {
                match self.batch_take(&mut batch, frame, lsn) {
                    Take::Taken | Take::Clean => {}
                    Take::Latched(_) | Take::InFlight => busy.push(frame),
                }
            }
            written += self.batch_write(batch, &mut sent)?;
            if sent.frames.len() >= sent_max {
                self.batches_sync(&mut sent)?;
            }
        }
        self.batches_sync(&mut sent)?;
        Ok((written, busy))
    }

    /// Writes back all pages that are dirty now. See [`Cache::write_back_before`].
    ///
    /// # Errors
    /// As [`Cache::write_back_before`].
    pub fn write_back_all(&self) -> Result<usize, BufferError> {
        self.write_back_before(Lsn(u64::MAX))
    }

    /// Writes back one page if it is dirty, waiting as [`Cache::write_back_before`] does. Returns how many pages it
    /// wrote.
    ///
    /// # Errors
    /// As there.
    pub fn write_back_page(&self, id: PageId) -> Result<usize, BufferError> {
        match self.entry_there(id).and_then(PageEntry::frame) {
            Some(frame) => self.write_back_one(frame, Lsn(u64::MAX)),
            None => Ok(0), // Only a clean page has left its frame.
        }
    }

    /// Writes a page that others have latched or are writing, waiting for them however long it takes.
    pub(crate) fn write_back_one(&self, frame: FrameNo, lsn: Lsn) -> Result<usize, BufferError> {
        loop {
            let seen = self.pool.frames.progress();
            let mut batch = self.batch_begin()?;
            match self.batch_take(&mut batch, frame, lsn) {
                Take::Taken | Take::Clean => return self.batch_write_alone(batch),
                Take::InFlight => {
                    self.batch_end(batch);
                    self.pool.frames.wait_progress(seen, BELL_WAIT_NS);
                }
                Take::Latched(id) => {
                    let entry = self.entry(id)?;
                    let Ok(held) = self.pool.shared(id, entry) else {
                        // Its holder may wait for a device that has stalled: that is not a failure, and waits end by
                        // one.
                        self.batch_end(batch);
                        continue;
                    };
                    let take = self.batch_take(&mut batch, frame, lsn);
                    held.unlatch(&entry.latch);
                    if let Take::Taken | Take::Clean = take {
                        return self.batch_write_alone(batch);
                    }
                    self.batch_end(batch);
                }
            }
        }
    }

    /// For a thread that wants more than one frame, time and again, and finds too few clean ones: writes a batch, as
    /// the page writer would. Returns how many pages; 0 if others write just now. Waits for the log and the device
    /// only.
    ///
    /// # Errors
    /// A failed flush, write or sync fails the cache and the log for good (W5).
    pub fn make_room(&self) -> Result<usize, BufferError> {
        self.write_back_for_frame()
    }

    /// For a thread that needs a frame and found none clean: writes a batch of those that the policy would take soon.
    /// Returns how many; 0 if there are none to write or all lanes are busy. Waits for the log and the device only, so
    /// that it may be called with latches held.
    pub(crate) fn write_back_for_frame(&self) -> Result<usize, BufferError> {
        let count_max = self.double_write.batch_pages();
        let mut frames = self.dirty_ahead(2 * count_max as u32);
        if frames.is_empty() {
            let dirty = self.pool.frames.all().filter(|(_, frame)| frame.wants_write());
            frames = dirty.filter_map(|(no, frame)| Some((frame.page()?, no))).collect();
        }
        let written = self.write_back_frames(frames)?;
        if written > 0 {
            self.pool.frames.control().foreground_batches.fetch_add(1, Relaxed);
        }
        Ok(written)
    }

    /// Dirty pages among the next `count` that the policy would offer.
    pub(crate) fn dirty_ahead(&self, count: u32) -> Vec<(PageId, FrameNo)> {
        let mut dirty = Vec::new();
        self.policy().preview(self, count, &mut |frame| {
            let descriptor = self.pool.frames.descriptor(frame);
            if descriptor.wants_write()
                && let Some(id) = descriptor.page()
            {
                dirty.push((id, frame));
            }
        });
        dirty
    }

    /// Writes one batch of these if a lane is free. Waits for no latch: pages that are latched are left out.
    pub(crate) fn write_back_frames(&self, mut frames: Vec<(PageId, FrameNo)>) -> Result<usize, BufferError> {
        frames.truncate(self.double_write.batch_pages());
        self.sort_for_batches(&mut frames);
        let Some(lane) = self.try_lane() else {
            return Ok(0);
        };
        let mut batch = match self.batch_begin() {
            Ok(batch) => batch,
            Err(error) => {
                self.give_lane_back(lane);
                return Err(error);
            }
        };
        for (_, frame) in frames {
            let _left_out_if_busy = self.batch_take(&mut batch, frame, Lsn(u64::MAX));
        }
        let mut sent = Sent::default();
        let count = self.batch_write_in(batch, lane, &mut sent)?;
        self.batches_sync(&mut sent)?;
        Ok(count)
    }

    /// Those that need a copy in a lane come first, so that a batch has few of either kind; then by their ids. What the
    /// log has may change until a page is taken, so each frame is asked once: an order that changes is none.
    pub(crate) fn sort_for_batches(&self, frames: &mut [(PageId, FrameNo)]) {
        frames.sort_by_cached_key(|&(id, frame)| (self.pool.frames.descriptor(frame).is_in_log(), id));
    }

    fn batch_begin(&self) -> Result<Batch, BufferError> {
        self.check_writes()?;
        Ok(Batch { copies: Vec::new(), buffer: self.double_write.take_buffer() })
    }

    /// W6.
    pub(crate) fn check_writes(&self) -> Result<(), BufferError> {
        if self.pool.frames.is_failed() || self.pool.log.is_failed() { Err(BufferError::Failed) } else { Ok(()) }
    }

    fn batch_end(&self, batch: Batch) {
        assert!(batch.copies.is_empty(), "{} taken writes are forgotten", batch.copies.len());
        self.double_write.give_buffer_back(batch.buffer);
    }

    /// Copies the page in `frame` into the batch if it has a change below `limit` and its latch is not held
    /// exclusively.
    fn batch_take(&self, batch: &mut Batch, frame: FrameNo, limit: Lsn) -> Take {
        let descriptor = self.pool.frames.descriptor(frame);
        let Some((id, entry)) = descriptor.page().and_then(|id| Some((id, self.entry_there(id)?))) else {
            return Take::Clean; // Only a clean page loses its frame.
        };
        let Some(held) = self.pool.try_shared(id, entry) else {
            return Take::Latched(id);
        };
        let take =
            if entry.frame() == Some(frame) { self.batch_take_latched(batch, id, frame, limit) } else { Take::Clean };
        held.unlatch(&entry.latch);
        take
    }

    fn batch_take_latched(&self, batch: &mut Batch, id: PageId, frame: FrameNo, limit: Lsn) -> Take {
        let descriptor: &Descriptor = self.pool.frames.descriptor(frame);
        if descriptor.oldest_change().is_none_or(|oldest| oldest >= limit) {
            return Take::Clean;
        }
        if descriptor.take_write(self.pool.slot()).is_none() {
            return if descriptor.is_dirty() { Take::InFlight } else { Take::Clean };
        }
        let words = Words::new(self.pool.frames.words(frame));
        let start = MARK_BYTES + batch.copies.len() * self.page_bytes;
        words.copy_to(0, &mut batch.buffer[start..start + self.page_bytes]);
        let is_in_log = descriptor.is_in_log();
        batch.copies.push(PageCopy { frame, id, page_lsn: header::page_lsn(words), is_in_log });
        Take::Taken
    }

    /// Writes the batch, waiting for a lane first, and syncs the data file.
    fn batch_write_alone(&self, batch: Batch) -> Result<usize, BufferError> {
        let mut sent = Sent::default();
        let count = self.batch_write(batch, &mut sent)?;
        self.batches_sync(&mut sent)?;
        Ok(count)
    }

    /// Writes the batch, waiting for a lane first. What needed no lane is not synced yet, and put into `sent`.
    fn batch_write(&self, batch: Batch, sent: &mut Sent) -> Result<usize, BufferError> {
        if batch.copies.is_empty() {
            self.batch_end(batch);
            return Ok(0);
        }
        loop {
            let seen = self.pool.frames.progress();
            if let Some(lane) = self.try_lane() {
                return self.batch_write_in(batch, lane, sent);
            }
            if let Err(error) = self.check_writes() {
                // The copies are never written. Threads that wait for them wait no longer.
                self.pool.frames.fail();
                return Err(error);
            }
            self.pool.frames.wait_progress(seen, BELL_WAIT_NS);
        }
    }

    fn batch_write_in(&self, mut batch: Batch, lane: u32, sent: &mut Sent) -> Result<usize, BufferError> {
        let count = batch.copies.len();
        if count > 0 {
            sync::yield_point("write back");
            let waiting = self.waiting_for_device();
            let is_synced = match self.batch_write_out(&mut batch, lane) {
                Ok(is_synced) => is_synced,
                Err(error) => return Err(self.fail_writes(error)),
            };
            drop(waiting);
            let frames = batch.copies.drain(..).map(|copy| copy.frame);
            match is_synced {
                true => frames.for_each(|frame| self.write_is_done(frame)),
                false => sent.frames.extend(frames),
            }
            let control = self.pool.frames.control();
            control.writes.fetch_add(count as u64, Relaxed);
            control.write_batches.fetch_add(1, Relaxed);
        }
        self.batch_end(batch);
        self.give_lane_back(lane);
        if count > 0 {
            // Not if nothing was written: a thread that is about to sleep for want of a frame would wake itself.
            self.pool.frames.ring();
        }
        Ok(count)
    }

    /// Syncs the data file for pages that are home.
    fn batches_sync(&self, sent: &mut Sent) -> Result<(), BufferError> {
        if sent.frames.is_empty() {
            return Ok(());
        }
        sync::yield_point("write back: about to sync");
        let waiting = self.waiting_for_device();
        if let Err(error) = self.data.sync() {
            return Err(self.fail_writes(error.into()));
        }
        drop(waiting);
        sent.frames.drain(..).for_each(|frame| self.write_is_done(frame));
        self.pool.frames.ring();
        Ok(())
    }

    fn write_is_done(&self, frame: FrameNo) {
        self.pool.frames.descriptor(frame).finish_write();
    }

    /// After a death: a cache that has failed fails its log (W5).
    pub(crate) fn fail_log(&self) {
        if self.pool.frames.is_failed() {
            self.pool.log.fail();
        }
    }

    /// W5.
    pub(crate) fn fail_writes(&self, error: BufferError) -> BufferError {
        self.pool.frames.fail();
        self.pool.log.fail();
        error
    }

    /// From the log to the sync (W1, W2). False: no page needed the lane, and the sync is left to the caller.
    fn batch_write_out(&self, batch: &mut Batch, lane: u32) -> Result<bool, BufferError> {
        let page_bytes = self.page_bytes;
        let lsn_max = batch.copies.iter().map(|copy| copy.page_lsn).max().unwrap_or_default();
        if lsn_max.0 != 0 && !planted::is_on(Bug::WriteAheadOff) {
            self.pool.log.flush_to(lsn_max)?;
        }
        let marked = &mut batch.buffer[..MARK_BYTES + batch.copies.len() * page_bytes];
        for page in marked[MARK_BYTES..].chunks_exact_mut(page_bytes) {
            checksum::seal(page);
        }
        self.check_writes()?;
        let sheltered = batch.copies.iter().rposition(|copy| !copy.is_in_log).map_or(0, |last| last + 1);
        if sheltered > 0 || !self.double_write.is_marked(lsn_max) {
            let durable = self.pool.log.durable_lsn();
            let bytes = self.double_write.shelter(lane, durable, &mut marked[..MARK_BYTES + sheltered * page_bytes])?;
            self.pool.frames.control().double_write_bytes.fetch_add(bytes, Relaxed);
        }

        let bytes = &marked[MARK_BYTES..];
        let mut at = 0;
        while at < batch.copies.len() {
            let run = batch.copies[at..].chunk_by(|a, b| a.id.0 + 1 == b.id.0).next().map_or(1, <[_]>::len);
            for copy in &batch.copies[at..at + run] {
                let durable = self.pool.log.durable_lsn();
                assert!(
                    copy.page_lsn.0 == 0 || durable > copy.page_lsn || planted::is_on(Bug::WriteAheadOff),
                    "{} with {} overtakes the log, durable to {durable}",
                    copy.id,
                    copy.page_lsn
                );
            }
            self.check_writes()?;
            let offset = batch.copies[at].id.0 * page_bytes as u64;
            let written = self.data.write_at(offset, &bytes[at * page_bytes..(at + run) * page_bytes]);
            if !planted::is_on(Bug::WriteErrorForgotten) {
                written?;
            }
            at += run;
        }
        if sheltered > 0 {
            self.data.sync()?;
        }
        Ok(sheltered > 0)
    }
}
