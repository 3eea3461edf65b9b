//! The three ways to hold a page.
//!
//! | guard | keeps the page in its frame | others may | on drop |
//! | --- | --- | --- | --- |
//! | [`OptimisticPage`] | no: what was read counts after [`OptimisticPage::check`] | anything | nothing |
//! | [`SharedPage`] | yes | read | gives the latch back |
//! | [`ExclusivePage`] | yes | wait | gives the latch back, raising the version if the page was changed |
//!
//! G1. A page changes between `begin_change` and `finish_change` only. `begin_change` marks the frame dirty *before*
//!     the record of the change is reserved in the log (F2), so that a checkpoint misses neither (see
//!     `Cache::dirty_low`).
//! G2. A guard of a page that came in as zeros and was not changed takes the page out again: nobody sees a page that
//!     nobody made.
//! G3. A panic between the two fails the cache and takes the half-changed page out, so that it is neither read nor
//!     written.

use crate::dirt;
use crate::entry::PageEntry;
use crate::frame_no::FrameNo;
use crate::pool::Pool;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, header};
use ledgerstone_region::{HeldShared, Version, Words, WordsMut, sync};
use std::fmt;
use std::sync::atomic::Ordering::SeqCst;

/// An optimistic read was overtaken by a writer: forget what was read and begin again. This is not an error. It stays
/// in the engine, and every loop over it is bounded and ends with a latch.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart;

/// A page that is read without a latch. What was read counts only if [`OptimisticPage::check`] says so afterwards.
#[derive(Clone, Copy)]
pub struct OptimisticPage<'a> {
    pool: &'a Pool,
    entry: &'a PageEntry,
    id: PageId,
    version: Version,
    frame: FrameNo,
    /// The frame's: every look at the page asks for them.
    words: Words<'a>,
}

impl<'a> OptimisticPage<'a> {
    #[inline]
    pub(crate) fn new(pool: &'a Pool, entry: &'a PageEntry, id: PageId, version: Version, frame: FrameNo) -> Self {
        OptimisticPage { pool, entry, id, version, frame, words: Words::new(pool.frames.words(frame)) }
    }

    /// The page asked for.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its bytes, which may be changing, or be another page's by now.
    #[inline]
    pub fn words(&self) -> Words<'a> {
        self.words
    }

    /// The version that was read under.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Checks that all that was read up to now is the page as it was at one moment.
    ///
    /// # Errors
    /// [`Restart`] if the page was changed or evicted meanwhile, or is about to be.
    #[inline]
    pub fn check(&self) -> Result<(), Restart> {
        sync::yield_point("optimistic page check");
        if self.entry.latch.is_still(self.version) { Ok(()) } else { Err(Restart) }
    }

    /// The note of what has changed on the page ([`ExclusivePage::set_touched`]).
    #[inline]
    pub fn touched(&self) -> u64 {
        self.pool.frames.descriptor(self.frame).touched()
    }

    /// Latches the page exclusively if it is still as it was read. Never waits.
    ///
    /// # Errors
    /// [`Restart`] if the page was changed or is latched.
    #[inline]
    pub fn try_upgrade(self) -> Result<ExclusivePage<'a>, Restart> {
        if self.entry.latch.try_upgrade(self.version, self.pool.slot()) {
            Ok(ExclusivePage::new(self.pool, self.entry, self.id, self.frame, false))
        } else {
            Err(Restart)
        }
    }
}

impl fmt::Debug for OptimisticPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OptimisticPage({}, {:?}, {})", self.id, self.version, self.frame)
    }
}

/// A page that does not change while this lives.
pub struct SharedPage<'a> {
    pool: &'a Pool,
    entry: &'a PageEntry,
    id: PageId,
    frame: FrameNo,
    held: HeldShared<'a>,
}

impl<'a> SharedPage<'a> {
    /// The entry is latched shared, and the page is in `frame`.
    pub(crate) fn new(pool: &'a Pool, entry: &'a PageEntry, id: PageId, frame: FrameNo, held: HeldShared<'a>) -> Self {
        SharedPage { pool, entry, id, frame, held }
    }

    /// The page.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its bytes.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        Words::new(self.pool.frames.words(self.frame))
    }

    /// The LSN of its last change.
    pub fn page_lsn(&self) -> Lsn {
        header::page_lsn(self.words())
    }

    /// Gives the latch back and keeps the page as it is now, to be checked or upgraded later.
    pub fn unlatch(self) -> OptimisticPage<'a> {
        let version = self.entry.latch.version(); // It stands still until the latch goes with `self`.
        OptimisticPage::new(self.pool, self.entry, self.id, version, self.frame)
    }
}

impl Drop for SharedPage<'_> {
    fn drop(&mut self) {
        self.held.unlatch(&self.entry.latch);
    }
}

impl fmt::Debug for SharedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPage({}, {})", self.id, self.frame)
    }
}

/// A page that is this thread's alone.
pub struct ExclusivePage<'a> {
    pool: &'a Pool,
    entry: &'a PageEntry,
    id: PageId,
    frame: FrameNo,
    /// Came in as zeros, and nothing was written to it yet.
    is_new: bool,
    is_changed: bool,
    /// Between `begin_change` and `finish_change`.
    is_changing: bool,
}

impl<'a> ExclusivePage<'a> {
    /// The entry is latched exclusively, and the page is in `frame`.
    #[inline]
    pub(crate) fn new(pool: &'a Pool, entry: &'a PageEntry, id: PageId, frame: FrameNo, is_new: bool) -> Self {
        ExclusivePage { pool, entry, id, frame, is_new, is_changed: false, is_changing: false }
    }

    /// The page.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its bytes.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        Words::new(self.pool.frames.words(self.frame))
    }

    /// The LSN of its last change.
    #[inline]
    pub fn page_lsn(&self) -> Lsn {
        header::page_lsn(self.words())
    }

    /// Whether the page came in as zeros and was not changed since.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// For transactions and recovery: announces a change, before its log record is reserved. `tail` is the log's tail,
    /// read just now. In redo, it is the LSN of the record.
    pub fn begin_change(&mut self, tail: Lsn) {
        self.begin_change_with(tail, false);
    }

    /// The same. `formats`: redo of the change begins with a format, and needs none of the page's bytes as they are.
    #[inline]
    pub fn begin_change_with(&mut self, tail: Lsn, formats: bool) {
        assert!(tail.0 != 0, "a change of {} has no place in the log", self.id);
        self.is_changing = true;
        if planted::is_on(Bug::RecLsnLate) {
            return;
        }
        self.mark_dirty(tail, formats);
    }

    /// The bytes, to change them. For operations, by way of transactions and recovery.
    pub fn page_mut(&mut self) -> WordsMut<'_> {
        assert!(self.is_changing, "{} is changed without `begin_change`", self.id);
        self.is_changed = true;
        self.is_new = false;
        WordsMut::new(self.pool.frames.words(self.frame))
    }

    /// The change is in the bytes, and its record starts at `lsn`.
    pub fn finish_change(&mut self, lsn: Lsn) {
        header::set_page_lsn(&mut self.page_mut(), lsn);
        if planted::is_on(Bug::RecLsnLate) {
            self.mark_dirty(self.pool.log.tail(), false);
        }
        self.is_changing = false;
    }

    /// The note of what has changed on the page while it was in memory. All ones mean that perhaps all of it has
    /// changed.
    #[inline]
    pub fn touched(&self) -> u64 {
        self.pool.frames.descriptor(self.frame).touched()
    }

    /// Notes what has changed on the page, in bits whose meaning its structure chooses. Each change sets the note to
    /// all ones, and this replaces them. The note is kept beside the page, not in it: it is neither logged nor written.
    #[inline]
    pub fn set_touched(&mut self, touched: u64) {
        self.pool.frames.descriptor(self.frame).set_touched(touched);
    }

    /// Only exclusive holders take `rec_lsn` from 0, so a load and a store are enough; SeqCst is for F3 and the
    /// checkpoint. The file header is looked at before redo, so it has to be whole by then (F7).
    #[inline]
    fn mark_dirty(&self, lsn: Lsn, formats: bool) {
        let descriptor = self.pool.frames.descriptor(self.frame);
        descriptor.set_touched(u64::MAX); // F6
        if descriptor.rec_lsn.load(SeqCst) == 0 {
            let is_in_log = formats && self.id.0 != 0 || planted::is_on(Bug::ShelterForgotten);
            descriptor.rec_lsn.store(dirt::of_change(lsn, is_in_log), SeqCst);
        }
    }

    /// For a repair: these bytes in the place of all, or zeros. The frame stays dirty since when it was.
    pub(crate) fn refill(&mut self, bytes: Option<&[u8]>) {
        self.is_changed = true;
        self.set_touched(u64::MAX); // F6
        let words = self.pool.frames.words(self.frame);
        match bytes {
            Some(bytes) => WordsMut::new(words).put(0, bytes),
            None => WordsMut::new(words).fill(0, words.len() * 8, 0),
        }
    }

    /// Takes a half-changed page out, so that it is neither read nor written (G3). The frame is lost on purpose: its
    /// descriptor stays dirty, and nothing will write it.
    pub(crate) fn give_up(self) {
        self.entry.set_frame(None);
        self.entry.latch.unlatch_exclusive();
        std::mem::forget(self);
    }

    /// Gives the page up as if it had not come in. Whoever wants it next brings it in anew.
    pub(crate) fn take_out(mut self) {
        self.is_new = true; // G2
    }

    /// Tries to get the page out of the way unused, for the two cases of `drop` that must.
    #[cold]
    fn drop_take_out(&self) {
        if self.is_changing && std::thread::panicking() {
            // The frame is lost on purpose: its descriptor stays dirty, and nothing will write it.
            self.pool.frames.fail();
            self.pool.log.fail();
            self.entry.set_frame(None);
            self.entry.latch.unlatch_exclusive();
            return;
        }
        let descriptor = self.pool.frames.descriptor(self.frame);
        descriptor.rec_lsn.store(0, SeqCst); // A change may have been announced and not made.
        self.pool.take_out(self.entry, self.frame);
        self.pool.frames.give_back(self.frame);
    }
}

impl Drop for ExclusivePage<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_new || self.is_changing && std::thread::panicking() {
            self.drop_take_out();
        } else if self.is_changed {
            self.entry.latch.unlatch_exclusive();
        } else {
            self.entry.latch.unlatch_exclusive_unchanged();
        }
    }
}

impl fmt::Debug for ExclusivePage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExclusivePage({}, {}, changed: {})", self.id, self.frame, self.is_changed)
    }
}
