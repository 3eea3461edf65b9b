//! A page comes in, and another goes for it.
//!
//! ```text
//! entry latched exclusively, no frame
//!   -> a frame: free, or evicted from a clean page (no waiting)
//!        none: unlatch, wait for a frame (write pages back, or sleep for the bell), latch, look again
//!   -> private aligned buffer: read, checksum and page id verified
//!   -> copied as words into the frame, frame number into the entry
//! ```
//!
//! M1. A thread that reads a page in holds its entry exclusively; others that miss it wait for the latch and find it.
//! M2. After any error, and after a panic of a program's disk, the entry is empty and unlatched, and the frame is back
//!     on the free list.
//! M3. No thread sleeps for a frame while it holds the entry of the page it wants. It may hold other pages. It waits
//!     for a write in flight, which needs no latch, or for a holder that goes away or gives up after the same deadline.
//! M4. Bytes from the disk are in the region only after they were verified.
//! M5. A page on the disk is older than the log's durable end (W1). One that is not has a log that lost its end:
//!     records that are appended there now would be taken for applied.
//!
//! M6. A page that comes back is the one that was evicted (C4 in `entry.rs`), or else its write was lost.
//! M7. A device that has stalled is waited for: a thread that has the frame or the latch that is wanted may be waiting
//!     for it, too. So such a wait ends with an error only if the device has nothing to do, or gets things done.
//!
//! This file does not know which frame is best (`replace/`), nor how a page is written (`write_back.rs`).

use crate::cache::Cache;
use crate::entry::{PageEntry, fence_before_fill};
use crate::error::BufferError;
use crate::frame_no::FrameNo;
use crate::guard::ExclusivePage;
use crate::pending::{NeedsOld, PendingPage};
use crate::read_ahead::Wanted;
use ledgerstone_disk::{AlignedBuf, DiskError, DiskErrorKind};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Corrupt, PageId, checksum, header};
use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::{LatchTimeout, SlotNo, Words, WordsMut, sync};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

/// What a page is made of that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Its bytes on disk.
    Read,
    /// Zeros; the disk is not asked.
    Zeros,
    /// Its bytes on disk, or zeros if it was never written.
    ReadOrZeros,
}

/// What became of an attempt to take a frame from its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Eviction {
    Evicted,
    Dirty,
    Busy,
}

/// Frames that are tried without waiting while the wanted page's entry is latched.
const QUICK_TRIES_MAX: u32 = 64;
/// How long one sleep for the bell lasts at most: what a writer forgets to ring for is found then.
const BELL_WAIT_NS: u64 = 2_000_000;

thread_local! {
    /// This thread's buffer for reads. Taken out while in use, so that nothing is borrowed across a wait.
    static READ_BUFFER: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
}

/// Somebody waits for a read or a write of the data file (M7).
pub(crate) struct WaitingForDevice<'c>(&'c AtomicU64);

impl Drop for WaitingForDevice<'_> {
    fn drop(&mut self) {
        // This thread's own. After its death, what it unwinds may find another count.
        self.0.store(self.0.load(Relaxed).wrapping_sub(1), Relaxed);
    }
}

impl Cache {
    /// A page's bytes from the data file, past the cache: for checks of the file. Verified.
    ///
    /// # Errors
    /// `NeverWritten`, `Damaged`, `Disk`.
    pub fn read_page_direct(&self, id: PageId) -> Result<Vec<u8>, BufferError> {
        self.read_verified(id, |bytes| bytes.to_vec())
    }

    /// Reads a page in if it is absent, and returns it latched exclusively.
    pub(crate) fn load<'a>(&'a self, id: PageId, entry: &'a PageEntry) -> Result<ExclusivePage<'a>, BufferError> {
        self.latch_exclusive(id, entry)?;
        match entry.frame() {
            Some(frame) => Ok(ExclusivePage::new(&self.pool, entry, id, frame, false)),
            None => self.load_latched(id, entry, Content::Read),
        }
    }

    /// The entry is latched exclusively and has no frame. Gives it one, and the page with it.
    #[cold]
    pub(crate) fn load_latched<'a>(
        &'a self,
        id: PageId,
        entry: &'a PageEntry,
        content: Content,
    ) -> Result<ExclusivePage<'a>, BufferError> {
        let control = self.pool.frames.control();
        control.misses.fetch_add(1, Relaxed);
        let mut spare = None;
        loop {
            if self.pool.frames.is_failed() {
                entry.latch.unlatch_exclusive_unchanged();
                spare.inspect(|&frame| self.pool.frames.give_back(frame));
                return Err(BufferError::Failed);
            }
            if let Some(frame) = spare.take().or_else(|| self.quick_frame(QUICK_TRIES_MAX)) {
                return self.load_into(id, entry, frame, content);
            }
            entry.latch.unlatch_exclusive_unchanged();
            let frame = self.wait_frame()?;
            if let Err(error) = self.latch_exclusive(id, entry) {
                self.pool.frames.give_back(frame);
                return Err(error);
            }
            if let Some(found) = entry.frame() {
                self.pool.frames.give_back(frame);
                return Ok(ExclusivePage::new(&self.pool, entry, id, found, false));
            }
            spare = Some(frame);
        }
    }

    /// Fills the frame, which is the caller's, and gives it to the entry (M1, M2).
    fn load_into<'a>(
        &'a self,
        id: PageId,
        entry: &'a PageEntry,
        frame: FrameNo,
        content: Content,
    ) -> Result<ExclusivePage<'a>, BufferError> {
        let wanted = Wanted { cache: self, entry, id, frame }; // An error drops it, and a panic does (M2).
        let pending = self.pending.of(id);
        let needs = pending.as_ref().map(PendingPage::needs);
        let content = match needs {
            None => content,
            Some(NeedsOld::No) => Content::Zeros,
            Some(NeedsOld::Yes | NeedsOld::UnlessDamaged) => Content::ReadOrZeros,
        };
        fence_before_fill();
        let mut words = WordsMut::new(self.pool.frames.words(frame));
        let mut is_void = content == Content::Zeros;
        let is_new = is_void || {
            match self.read_again(id, entry, &mut words) {
                Ok(()) => false,
                Err(BufferError::NeverWritten { .. }) if content == Content::ReadOrZeros => true,
                Err(BufferError::Damaged { .. }) if needs == Some(NeedsOld::UnlessDamaged) => {
                    is_void = true;
                    true
                }
                Err(error) => return Err(error),
            }
        };
        if is_new {
            words.fill(0, self.page_bytes, 0);
        }
        let page = wanted.come_in(is_new);
        match pending {
            None => Ok(page),
            Some(pending) => pending.redo(page, is_void),
        }
    }

    /// Reads a page into this thread's buffer, verifies it, and hands the bytes to `take`.
    pub(crate) fn read_verified<T>(&self, id: PageId, take: impl FnOnce(&[u8]) -> T) -> Result<T, BufferError> {
        let mut buffer = match READ_BUFFER.take() {
            Some(buffer) if buffer.len() == self.page_bytes => buffer,
            _ => AlignedBuf::new(self.page_bytes),
        };
        let result = self.read_verified_into(id, &mut buffer).map(|()| take(&buffer));
        READ_BUFFER.set(Some(buffer));
        result
    }

    fn read_verified_into(&self, id: PageId, buffer: &mut [u8]) -> Result<(), BufferError> {
        let Some(offset) = id.0.checked_mul(self.page_bytes as u64) else {
            return Err(BufferError::NeverWritten { page: id });
        };
        let read = self.read_data(offset, buffer);
        self.pool.frames.control().reads.fetch_add(1, Relaxed);
        match read {
            Ok(()) => {}
            Err(error) if error.kind == DiskErrorKind::ShortRead => return Err(BufferError::NeverWritten { page: id }),
            Err(error) => return Err(error.into()),
        }
        match self.verify(id, buffer) {
            Ok(()) => Ok(()),
            Err(corrupt) if corrupt.is_never_written() => Err(BufferError::NeverWritten { page: id }),
            Err(corrupt) => Err(self.damaged(id, corrupt)),
        }
    }

    fn damaged(&self, id: PageId, corrupt: Corrupt) -> BufferError {
        let (file, at) = self.place_of(id);
        BufferError::Damaged { page: id, file: file.to_owned(), at, corrupt }
    }

    /// The data file, and where a page begins there.
    pub fn place_of(&self, id: PageId) -> (&str, u64) {
        (self.data.name(), id.0.saturating_mul(self.page_bytes as u64))
    }

    /// Reads from the data file, and says so meanwhile (M7).
    pub(crate) fn read_data(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        let _waiting = self.waiting_for_device();
        self.data.read_at(offset, bytes)
    }

    /// Says until it is dropped that somebody waits for the device (M7).
    pub(crate) fn waiting_for_device(&self) -> WaitingForDevice<'_> {
        let count = self.pool.frames.device_wait(self.pool.slot());
        count.store(count.load(Relaxed) + 1, Relaxed); // This thread's own.
        WaitingForDevice(count)
    }

    /// True while the device has something to do for somebody (M7).
    fn device_is_at_work(&self) -> bool {
        self.pool.frames.has_device_wait()
    }

    /// Latches a page that could not be latched at once, by `latch`, which waits for a while only. If the device is at
    /// work after that, it waits once more, and again for as long as the device gets nothing done. The holder of the
    /// latch may be waiting for the device (M7).
    #[cold]
    pub(crate) fn outwait<T>(&self, id: PageId, latch: impl Fn() -> Result<T, LatchTimeout>) -> Result<T, BufferError> {
        let mut done_before = None;
        loop {
            let timeout = match latch() {
                Ok(latched) => return Ok(latched),
                Err(timeout) => timeout,
            };
            let control = self.pool.frames.control();
            let done = (control.reads.load(Relaxed), control.write_batches.load(Relaxed));
            let has_stalled = done_before.is_none_or(|before| before == done);
            if !self.device_is_at_work() || !has_stalled || self.is_failed() {
                return Err(BufferError::LatchTimeout { page: id, timeout });
            }
            done_before = Some(done);
        }
    }

    fn verify(&self, id: PageId, bytes: &[u8]) -> Result<(), Corrupt> {
        let whole = if planted::is_on(Bug::ChecksumUnread) { Ok(()) } else { checksum::verify(bytes, id) };
        whole.and_then(|()| self.check_not_ahead(id, bytes))
    }

    /// Whether these bytes are the page (M4, M5).
    pub(crate) fn is_whole(&self, id: PageId, bytes: &[u8]) -> bool {
        self.verify(id, bytes).is_ok()
    }

    /// Whether these bytes are the page, and the one that left (M4 to M6).
    pub(crate) fn may_come_in(&self, id: PageId, entry: &PageEntry, bytes: &[u8]) -> bool {
        self.verify(id, bytes).is_ok() && entry.may_have_evicted(page_lsn(bytes))
    }

    /// Reads a page into the frame's words, if it is the one that left (M6).
    fn read_again(&self, id: PageId, entry: &PageEntry, words: &mut WordsMut<'_>) -> Result<(), BufferError> {
        let lost = |page_lsn| {
            let what = "page LSN: not the page that was written last; that write was lost or went elsewhere";
            let corrupt = Corrupt::new(what, header::PAGE_LSN as u64, 0, page_lsn).on(id);
            Err(self.damaged(id, corrupt))
        };
        let read = self.read_verified(id, |bytes| {
            let page_lsn = page_lsn(bytes);
            if entry.may_have_evicted(page_lsn) {
                words.put(0, bytes);
                Ok(())
            } else {
                lost(page_lsn)
            }
        });
        match read {
            Ok(done) => done,
            Err(BufferError::NeverWritten { .. }) if !entry.may_have_evicted(0) => lost(0),
            Err(error) => Err(error),
        }
    }

    /// M5.
    fn check_not_ahead(&self, id: PageId, bytes: &[u8]) -> Result<(), Corrupt> {
        let page_lsn = page_lsn(bytes);
        let durable = self.pool.log.durable_lsn().0;
        if page_lsn < durable || page_lsn == 0 || planted::is_on(Bug::WriteAheadOff) {
            return Ok(());
        }
        Err(Corrupt::new("page LSN: the log ends before it", header::PAGE_LSN as u64, durable, page_lsn).on(id))
    }

    /// A frame without waiting: a free one, or a clean page's. Tries `tries_max` pages at most.
    pub(crate) fn quick_frame(&self, tries_max: u32) -> Option<FrameNo> {
        let slot = self.pool.slot();
        if let Some(frame) = self.pool.frames.take_free(slot) {
            self.frame_is_taken(frame);
            return Some(frame);
        }
        for _ in 0..tries_max {
            let frame = self.policy().next(self)?;
            match self.evict(frame, slot) {
                Eviction::Evicted => return Some(frame),
                Eviction::Dirty => self.call_writer(),
                Eviction::Busy => {}
            }
        }
        None
    }

    /// A frame, whatever it takes: writes pages back if none is clean, sleeps if all are in use (M3).
    pub(crate) fn wait_frame(&self) -> Result<FrameNo, BufferError> {
        let began_ns = sync::now_ns();
        let (mut round_ns, mut idle_ns) = (began_ns, 0);
        loop {
            let was_at_work = self.device_is_at_work();
            if self.pool.frames.is_failed() {
                return Err(BufferError::Failed);
            }
            let seen = self.pool.frames.progress();
            if let Some(frame) = self.quick_frame(2 * self.pool.frames.count()) {
                return Ok(frame);
            }
            if self.write_back_for_frame()? > 0 {
                round_ns = sync::now_ns();
                continue;
            }
            if idle_ns > self.tuning.full_wait_ns_max {
                return Err(self.full(sync::now_ns() - began_ns));
            }
            self.pool.frames.control().frame_waits.fetch_add(1, Relaxed);
            self.pool.frames.wait_progress(seen, BELL_WAIT_NS);
            let now_ns = sync::now_ns();
            if !was_at_work && !self.device_is_at_work() {
                idle_ns += now_ns - round_ns;
            }
            round_ns = now_ns;
        }
    }

    /// Takes the frame from its page if the page is clean and nobody holds it. The frame is then the caller's.
    fn evict(&self, frame: FrameNo, slot: SlotNo) -> Eviction {
        let descriptor = self.pool.frames.descriptor(frame);
        let Some(entry) = descriptor.page().and_then(|id| self.entry_there(id)) else {
            return Eviction::Busy;
        };
        if descriptor.is_dirty() {
            return Eviction::Dirty;
        }
        if !entry.latch.try_exclusive(slot) {
            return Eviction::Busy;
        }
        // Everything is looked at again: until we had the latch, the page could go, come, or change.
        let eviction = match entry.frame() {
            Some(found) if found == frame => {
                if descriptor.is_dirty() {
                    Eviction::Dirty
                } else if descriptor.writer().is_some() {
                    Eviction::Busy // It has written the page, and takes its name away just now.
                } else {
                    Eviction::Evicted
                }
            }
            _ => Eviction::Busy,
        };
        if eviction == Eviction::Evicted {
            let page_lsn = header::page_lsn(Words::new(self.pool.frames.words(frame)));
            entry.set_evicted(page_lsn.0);
            self.pool.part(entry, frame);
            self.pool.frames.control().evictions.fetch_add(1, Relaxed);
        } else {
            entry.latch.unlatch_exclusive_unchanged();
        }
        eviction
    }
}

fn page_lsn(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[header::PAGE_LSN + i]))
}
