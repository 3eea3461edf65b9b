//! Pages that are wanted soon come in many at a time, by one read of the file.
//!
//! ```text
//! entries that are absent: latched exclusively without waiting, a frame for each
//!   -> one read of the run, from the first such page to the last
//!   -> each page verified and copied into its frame; what is not as it must be stays absent
//! ```
//!
//! H1. A page is latched before the run is read, so that nobody brings it in, changes it and writes it back in between.
//! H2. Nothing is waited for but the one read: no latch that somebody holds, and no frame. So holding many latches
//!     cannot take part in a deadlock.
//! H3. Nothing is reported. A thread that wants a page that did not come in reads the page itself, and learns why.
//! H4. Clean pages go for those that come, dirty ones do not. No run takes more frames than an eighth of them.
//!
//! This file does not know which pages will be wanted.

use ledgerstone_disk::AlignedBuf;
use ledgerstone_page::PageId;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_region::{WordsMut, sync};
use std::sync::atomic::Ordering::Relaxed;

use crate::cache::Cache;
use crate::entry::{PageEntry, fence_before_fill};
use crate::frame_no::FrameNo;
use crate::guard::ExclusivePage;

/// Pages of one read at most.
const PAGES_MAX: u64 = 64;
/// Pages that are asked to go for one that is wanted.
const TRIES_MAX: u32 = 16;

/// Reads runs of pages into a cache. It makes its buffer with the first read, and keeps it between reads.
pub struct ReadAhead<'c> {
    cache: &'c Cache,
    buffer: AlignedBuf,
    /// Empty between runs, which use its memory again.
    wanted: Vec<Wanted<'c>>,
    pages_max: u64,
}

/// A page that is absent, latched, with the frame it will get (H1). If this is dropped, the page is unlatched and the
/// frame given back. So nothing stays latched if a program's disk panics.
pub(crate) struct Wanted<'c> {
    pub cache: &'c Cache,
    pub entry: &'c PageEntry,
    pub id: PageId,
    pub frame: FrameNo,
}

impl<'c> Wanted<'c> {
    /// Gives the page its frame, which holds the bytes by now.
    pub(crate) fn come_in(self, is_new: bool) -> ExclusivePage<'c> {
        let (cache, entry, id, frame) = (self.cache, self.entry, self.id, self.frame);
        std::mem::forget(self);
        cache.give_frame(id, entry, frame, is_new)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.entry.latch.unlatch_exclusive_unchanged();
        self.cache.pool.frames.give_back(self.frame);
    }
}

impl Cache {
    /// For a caller that will read every page of the runs, at once (H4).
    #[must_use]
    pub fn read_wanted(&self) -> ReadAhead<'_> {
        let pages_max = PAGES_MAX.min(u64::from(self.pool.frames.count()) / 8).max(1);
        ReadAhead { cache: self, buffer: AlignedBuf::new(0), wanted: Vec::new(), pages_max }
    }
}

impl<'c> ReadAhead<'c> {
    /// Pages that one run has at most.
    #[must_use]
    pub fn pages_max(&self) -> u64 {
        self.pages_max
    }

    /// Reads in the absent pages among the `count` pages from `first` on, as far as there are frames for them. Of more
    /// than [`ReadAhead::pages_max`] pages it reads the first ones. Returns how many came in. Waits for the disk once.
    pub fn run(&mut self, first: PageId, count: u64) -> u64 {
        let mut wanted = std::mem::take(&mut self.wanted);
        for no in 0..count.min(self.pages_max) {
            if !self.want(PageId(first.0 + no), &mut wanted) {
                break;
            }
        }
        let count = match (wanted.first().map(|p| p.id.0), wanted.last().map(|p| p.id.0)) {
            (Some(from), Some(to)) => self.read(from, to, &mut wanted),
            _ => 0,
        };
        self.wanted = wanted;
        count
    }

    /// Reads the pages from `from` to `to`, and brings in those that are wanted and pass the checks.
    fn read(&mut self, from: u64, to: u64, wanted: &mut Vec<Wanted<'_>>) -> u64 {
        let page_bytes = self.cache.page_bytes;
        if self.buffer.is_empty() {
            self.buffer = AlignedBuf::new(self.pages_max as usize * page_bytes);
        }
        let bytes = &mut self.buffer[..(to - from + 1) as usize * page_bytes];
        let was_read =
            from.checked_mul(page_bytes as u64).is_some_and(|offset| self.cache.read_data(offset, bytes).is_ok());
        self.cache.pool.frames.control().reads.fetch_add(to - from + 1, Relaxed);
        sync::yield_point("read ahead: has read");
        let mut count = 0;
        for wanted in wanted.drain(..) {
            let page = &self.buffer[(wanted.id.0 - from) as usize * page_bytes..][..page_bytes];
            if was_read && self.cache.may_come_in(wanted.id, wanted.entry, page) {
                fence_before_fill();
                WordsMut::new(self.cache.pool.frames.words(wanted.frame)).put(0, page);
                let id = wanted.id;
                let page = wanted.come_in(false);
                match self.cache.pending.of(id).filter(|_| !planted::is_on(Bug::RunsNotRedone)) {
                    None => drop(page),
                    Some(pending) if pending.redo(page, false).is_ok() => {}
                    Some(_) => continue, // H3
                }
                count += 1;
            }
        }
        count
    }

    /// Latches the page and finds it a frame, if it is absent and nobody has it latched. False if there is no frame.
    fn want(&self, id: PageId, wanted: &mut Vec<Wanted<'c>>) -> bool {
        let cache = self.cache;
        // Whoever cuts the file off before this page has to wait for it (`discard.rs`).
        let Ok(entry) = cache.entry_to_latch(id) else { return false };
        if cache.is_failed() || entry.frame().is_some() {
            return true;
        }
        if !entry.latch.try_exclusive(cache.pool.slot()) {
            return true;
        }
        let frame = match entry.frame() {
            Some(_) => None,
            None => cache.quick_frame(TRIES_MAX),
        };
        if let Some(frame) = frame {
            wanted.push(Wanted { cache, entry, id, frame });
            return true;
        }
        entry.latch.unlatch_exclusive_unchanged();
        entry.frame().is_some()
    }
}

impl std::fmt::Debug for ReadAhead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadAhead").finish_non_exhaustive()
    }
}

impl Cache {
    /// Gives a frame that holds its bytes to the page, which is latched exclusively.
    pub(crate) fn give_frame<'a>(
        &'a self,
        id: PageId,
        entry: &'a PageEntry,
        frame: FrameNo,
        is_new: bool,
    ) -> ExclusivePage<'a> {
        self.pool.frames.descriptor(frame).set_page(id);
        entry.set_frame(Some(frame));
        self.policy().loaded(frame);
        ExclusivePage::new(&self.pool, entry, id, frame, is_new)
    }
}
