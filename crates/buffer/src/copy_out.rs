//! Pages for a backup, and a page that comes from one: past the cache's own ways in and out.
//!
//! O1. A copy is whole: of a page in memory under its shared latch, of another from the data file, read again while
//!     somebody may be writing it.
//!     Neighbours that are not in memory are read at once; one that looks torn then is read again alone.
//! O2. A copy from memory may be ahead of the log on the device. A caller that keeps it waits for the log first.
//! O3. A page is put back only where the page in the data file cannot be read and memory does not have it. Then nobody
//!     can have changed it since it was damaged.

use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_disk::AlignedBuf;
use ledgerstone_page::{Lsn, PageId, checksum, header};
use ledgerstone_region::{Words, WordsMut, sync};

use crate::cache::Cache;
use crate::entry::fence_before_fill;
use crate::error::BufferError;
use crate::guard::ExclusivePage;

/// How often a page that looks torn is looked at again.
const TRIES_MAX: u32 = 8;

impl Cache {
    /// Copies a page, sealed, into `to`, without bringing it into memory. Returns its LSN, or `None` if it was never
    /// written. Waits for the page's latch and the device.
    ///
    /// # Errors
    /// `Damaged`, `LatchTimeout`, `Disk`, `PageOutOfRange`.
    pub fn copy_page(&self, id: PageId, to: &mut [u8]) -> Result<Option<Lsn>, BufferError> {
        self.wait_redone()?;
        let mut tries = 0;
        loop {
            if let Some(lsn) = self.copy_from_memory(id, to)? {
                return Ok(Some(lsn));
            }
            match self.read_verified(id, |bytes| to.copy_from_slice(bytes)) {
                Ok(()) => return Ok(Some(lsn_of(to))),
                Err(BufferError::NeverWritten { .. }) => return Ok(None),
                // Perhaps it came in, was changed and is just being written (O1).
                Err(BufferError::Damaged { .. }) if tries < TRIES_MAX => {
                    tries += 1;
                    sync::sleep_ns(100_000 << tries);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The same for the pages from `first` on, as many as `to` has room for. The LSN of each is put into `lsns`. Pages
    /// that are not in memory are read in one go.
    ///
    /// # Errors
    /// As [`Cache::copy_page`], for the first page that fails.
    pub fn copy_pages(&self, first: PageId, to: &mut [u8], lsns: &mut Vec<Option<Lsn>>) -> Result<(), BufferError> {
        self.wait_redone()?;
        let page_bytes = self.page_bytes;
        let count = to.len() / page_bytes;
        lsns.clear();
        for (no, page) in to.chunks_exact_mut(page_bytes).enumerate() {
            lsns.push(self.copy_from_memory(PageId(first.0 + no as u64), page)?);
        }
        let mut buffer = AlignedBuf::new(0);
        let mut no = 0;
        while no < count {
            let run = lsns[no..].iter().take_while(|lsn| lsn.is_none()).count();
            let from = first.0 + no as u64;
            if run > 1 && buffer.is_empty() {
                buffer = AlignedBuf::new(count * page_bytes);
            }
            let is_read = run > 1
                && from
                    .checked_mul(page_bytes as u64)
                    .is_some_and(|offset| self.read_data(offset, &mut buffer[..run * page_bytes]).is_ok());
            if is_read {
                self.pool.frames.control().reads.fetch_add(run as u64, Relaxed);
            }
            for at in 0..run {
                let id = PageId(from + at as u64);
                let page = &mut to[(no + at) * page_bytes..][..page_bytes];
                let read = &buffer[(at * page_bytes).min(buffer.len())..((at + 1) * page_bytes).min(buffer.len())];
                lsns[no + at] = if is_read && self.is_whole(id, read) {
                    page.copy_from_slice(read);
                    Some(lsn_of(page))
                } else if is_read && read.iter().all(|&byte| byte == 0) {
                    None // Never written.
                } else {
                    self.copy_page(id, page)?
                };
            }
            no += run.max(1);
        }
        Ok(())
    }

    /// A page that is in memory, and its LSN. Waits for its latch.
    fn copy_from_memory(&self, id: PageId, to: &mut [u8]) -> Result<Option<Lsn>, BufferError> {
        let entry = self.entry_to_latch(id)?;
        let held = self.outwait(id, || self.pool.shared(id, entry))?;
        let lsn = entry.frame().map(|frame| {
            let words = Words::new(self.pool.frames.words(frame));
            words.copy_to(0, to);
            header::page_lsn(words)
        });
        held.unlatch(&entry.latch);
        if lsn.is_some() {
            checksum::seal(to);
        }
        Ok(lsn)
    }

    /// Puts `image` in the place of a damaged page of the data file, and makes it durable. An image of all zeros stands
    /// for a page that was never written. `false` means that the page can be read, and was left alone (O3). Waits for
    /// the log and the device.
    ///
    /// # Errors
    /// `LatchTimeout`, `CacheFull`, `Failed`, `Disk`. `Damaged` if the image is not this page, whole.
    pub fn put_back(&self, id: PageId, image: &[u8]) -> Result<bool, BufferError> {
        let is_unwritten = image.iter().all(|&byte| byte == 0);
        let refuse = |corrupt| BufferError::Damaged { page: id, file: "the image to put back".into(), at: 0, corrupt };
        if !is_unwritten {
            checksum::verify(image, id).map_err(refuse)?;
        }
        self.wait_redone()?;
        let entry = self.entry_to_latch(id)?;
        let frame = self.wait_frame()?;
        if let Err(error) = self.latch_exclusive(id, entry) {
            self.pool.frames.give_back(frame);
            return Err(error);
        }
        let damaged = |error| match error {
            BufferError::Damaged { .. } => true,
            BufferError::NeverWritten { .. } => !is_unwritten,
            _ => false,
        };
        if entry.frame().is_some() || !self.read_verified(id, |_| ()).is_err_and(damaged) {
            entry.latch.unlatch_exclusive_unchanged();
            self.pool.frames.give_back(frame);
            return Ok(false);
        }
        if is_unwritten {
            let offset = id.0 * self.page_bytes as u64;
            let written = self.data.write_at(offset, image).and_then(|()| self.data.sync());
            entry.latch.unlatch_exclusive_unchanged();
            self.pool.frames.give_back(frame);
            return Ok(written.map(|()| true)?);
        }
        fence_before_fill();
        WordsMut::new(self.pool.frames.words(frame)).put(0, image);
        self.pool.frames.descriptor(frame).set_page(id);
        entry.set_frame(Some(frame));
        self.policy().loaded(frame);
        let mut page = ExclusivePage::new(&self.pool, entry, id, frame, false);
        let lsn = page.page_lsn();
        // Its own changes are below the last checkpoint, or in the log behind it: nothing more needs to be kept for it.
        page.begin_change(self.pool.log.tail());
        page.finish_change(lsn);
        drop(page);
        self.write_back_one(frame, Lsn(u64::MAX))?;
        Ok(true)
    }
}

fn lsn_of(page: &[u8]) -> Lsn {
    Lsn(u64::from_le_bytes(std::array::from_fn(|i| page[header::PAGE_LSN + i])))
}
