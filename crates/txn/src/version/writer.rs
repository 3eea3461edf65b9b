//! One transaction's images, and what became of it.
//!
//! ```text
//!            begin_commit             stamp(L)              images kept, if a snapshot is open
//!   OPEN ──────────────► COMMITTING ─────────► COMMITTED, L ──────────────────────────────────► chunks given back
//!     └──── rolled back, pages put right ─────────────────────────────────────────────────────►
//! status word: bits 1..0 state (1 OPEN, 2 COMMITTING, 3 COMMITTED), bits 63..2 the LSN of a COMMITTED one
//! ```
//! K1. The word lies in the writer's first chunk; every entry names that chunk, so that one store stamps them all.
//! K2. A transaction that finds no memory for an image, or has taken half of the chunks for itself, is spilled
//!     (`spilled.rs`). It notes nothing any more, and its notes go when it holds no latch. So is one that a restart has
//!     found prepared.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

use ledgerstone_page::{Lsn, PageId, Xid};

use super::VersionStore;
use super::bucket;
use super::chunk::{CHUNK_BYTES, CHUNK_WORDS};
use super::entry::{Before, ENTRY_WORDS, Name, entry_words};
use super::spilled::ALL_TREES;

pub(super) const OPEN: u64 = 1;
pub(super) const COMMITTING: u64 = 2;
pub(super) const COMMITTED: u64 = 3;
pub(super) const STATE_BITS: u64 = 3;

/// A transaction's place in the store. Empty until it notes something.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// First chunk; 0 none. Its name in the entries.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Last word in use.
    pub(super) end: u32,
    pub(super) count: u64,
    /// The transaction's number in the transaction table.
    pub(super) slot: u32,
    /// Its images are in no chain, unless somebody has put them there (`staged.rs`).
    pub(super) is_staged: bool,
    /// Chunks in use.
    pub(super) chunk_count: u32,
    /// K2: its name among the spilled ones; 0: it is none.
    pub(super) spilled: u32,
}

/// Whose image is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    /// Number in the transaction table.
    pub slot: u32,
    /// The transaction.
    pub xid: Xid,
    /// At or below its first record; 0: it has none yet.
    pub first_lsn: Lsn,
}

/// Whether a transaction may have noted a record before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// It may have.
    Any,
    /// It has not. Or it has, and the image that it notes now is of no use to anybody: readers take the oldest.
    First,
}

impl Writer {
    /// Its name in entries; 0: it has none.
    #[inline]
    pub(crate) fn name(&self) -> u32 {
        self.first
    }

    /// True if it has nothing in the store.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.spilled == 0
    }
}

impl VersionStore {
    /// Notes what `key` of `space` was, if `writer` has not done so before. The caller holds the record's page
    /// exclusively.
    #[inline]
    pub(crate) fn note(
        &self,
        writer: &mut Writer,
        who: Who,
        space: PageId,
        key: &[u8],
        before: Before<'_>,
        times: Times,
    ) {
        if writer.spilled != 0 {
            return;
        }
        let name = Name::new(space, key);
        if writer.first == 0 && self.begin(writer, who.slot).is_none() {
            return self.begin_spilled(writer, who);
        }
        if writer.is_staged {
            if self.stage(writer, name, before) {
                return;
            }
            self.link_staged(writer); // Z4
        }
        let words = entry_words(key, before);
        let Some(at) = self.make_room(writer, words) else {
            return self.begin_spilled(writer, who);
        };
        if self.push(name, before, at, writer.first, times) {
            writer.count += 1;
            self.chunks.set_entry_count(writer.first, writer.count);
            writer.end = self.chunks.end_of(at, words);
        }
    }

    /// K2. Before the page changes, so that a reader that sees the change sees this.
    #[cold]
    pub(crate) fn begin_spilled(&self, writer: &mut Writer, who: Who) {
        self.begin_spilled_in(writer, who, ALL_TREES);
    }

    /// The same for one that is known to change these trees only (L5 in `spilled.rs`).
    #[cold]
    pub(crate) fn begin_spilled_in(&self, writer: &mut Writer, who: Who, trees: u64) {
        // No record of its own: its first one will be reserved at the tail or above.
        let first_lsn = if who.first_lsn == Lsn(0) { self.log.tail() } else { who.first_lsn };
        writer.spilled = self.spill(who.xid, first_lsn, trees);
    }

    /// Drops what a spilled writer had noted before (L1). Takes a while: hold no latch.
    #[inline]
    pub(crate) fn drop_spilled_images(&self, writer: &mut Writer) {
        if writer.spilled != 0 && writer.first != 0 {
            let spilled = std::mem::take(writer);
            self.drop_images(&spilled);
            writer.spilled = spilled.spilled;
        }
    }

    /// Its first chunk; none if there is no memory.
    #[inline]
    fn begin(&self, writer: &mut Writer, slot: u32) -> Option<()> {
        let own = self.writers.get(slot as usize)?;
        let me = self.threads.current();
        if own.thread.load(Relaxed) != bucket::name_of(me) {
            self.claim_slot(own, me);
        }
        let first = self
            .chunks
            .take_first(own, slot, me)
            .or_else(|| self.chunks.take_from(&self.writers, slot, &own.first, me))?;
        let end = self.chunks.first_word(first) - 1;
        *writer = Writer { first, last: first, end, slot, chunk_count: 1, ..Writer::default() };
        self.begin_staging(writer);
        Some(())
    }

    /// Chunks for an entry of so many words, and where it begins; none if there is no memory.
    #[inline]
    fn make_room(&self, writer: &mut Writer, words: u32) -> Option<u32> {
        // As if each chunk lost what is too short for an entry's head.
        let mut room = self.room_from(writer.end);
        while room < words {
            if writer.chunk_count > self.chunk_count_max() {
                return None; // K2
            }
            let (link, me) = (self.chunks.next_word(writer.last), self.threads.current());
            let chunk = self
                .chunks
                .take(writer.slot, link, me)
                .or_else(|| self.chunks.take_from(&self.writers, writer.slot, link, me))?;
            writer.last = chunk;
            writer.chunk_count += 1;
            room = self.room_from(writer.end);
        }
        Some(self.entry_place(self.chunks.after(writer.end)))
    }

    /// Chunks that one writer may have: what is in them has room twice among the images of commits, so that its own
    /// commit makes nobody too old.
    fn chunk_count_max(&self) -> u32 {
        let kept = (self.kept.bytes() / CHUNK_BYTES / 2) as u32; // Less than there are chunks.
        kept.min(self.chunks.count() / 2)
    }

    /// Words for an entry that begins behind `end`.
    #[inline]
    fn room_from(&self, end: u32) -> u32 {
        let here = CHUNK_WORDS - 1 - end % CHUNK_WORDS;
        let mut room = if here >= ENTRY_WORDS { here } else { 0 };
        let mut chunk = self.chunks.next(end / CHUNK_WORDS);
        while chunk != 0 {
            room += CHUNK_WORDS - super::chunk::FIRST_WORD;
            chunk = self.chunks.next(chunk);
        }
        room
    }

    /// The commit record is about to be reserved (V2). Release is enough: a reader that finds the record below the
    /// tail has acquired its reservation, which comes after.
    #[inline]
    pub(crate) fn begin_commit(&self, writer: &Writer) {
        for status in self.status_of(writer) {
            status.store(COMMITTING, Release);
        }
    }

    /// The commit record could not be appended: the writer goes on.
    pub(crate) fn take_back_commit(&self, writer: &Writer) {
        for status in self.status_of(writer) {
            status.store(OPEN, Release);
        }
    }

    /// The commit record has its place. Before locks are released. The images go at once if nobody needs them.
    #[inline]
    pub(crate) fn end_commit(&self, writer: &mut Writer, lsn: Lsn) {
        let mut writer = std::mem::take(writer);
        if let Some(status) = self.images_status_of(&writer) {
            status.store(lsn.0 << 2 | COMMITTED, Release); // A reader that still sees COMMITTING looks again.
        }
        if writer.spilled != 0 {
            self.commit_spilled(writer.spilled, lsn);
            if writer.first != 0 {
                self.drop_images(&writer);
            }
            return;
        }
        if writer.first == 0 {
            return;
        }
        if self.is_none_open() {
            self.drop_images(&writer);
        } else {
            if writer.is_staged {
                self.link_staged(&mut writer);
            }
            self.keep(&writer, lsn);
            if self.has_spilled() {
                self.reclaim_spilled(self.oldest_snapshot().0);
            }
        }
    }

    /// The transaction was rolled back: its pages are what they were.
    pub(crate) fn end_abort(&self, writer: &mut Writer) {
        let writer = std::mem::take(writer);
        if writer.spilled != 0 {
            self.abort_spilled(writer.spilled);
        }
        if writer.first != 0 {
            self.drop_images(&writer);
        }
    }

    /// Nobody needs its images.
    #[inline]
    fn drop_images(&self, writer: &Writer) {
        let is_unlinked = writer.is_staged && self.end_staging(writer);
        if !is_unlinked {
            self.unlink_all(writer.first, None);
        }
        self.leave(writer);
    }

    /// Leaves a writer's chunks, of which no chain knows.
    #[inline]
    pub(super) fn leave(&self, writer: &Writer) {
        let Some(own) = self.writers.get(writer.slot as usize) else { return };
        if !self.chunks.leave(own, writer.first) {
            self.chunks.give_back(writer.first, self.threads.current());
        }
    }

    /// The words that say what became of it: of its images, and of itself as a spilled one.
    #[inline]
    fn status_of(&self, writer: &Writer) -> impl Iterator<Item = &AtomicU64> {
        let spilled = (writer.spilled != 0).then(|| self.spilled_status(writer.spilled));
        self.images_status_of(writer).into_iter().chain(spilled)
    }

    #[inline]
    fn images_status_of(&self, writer: &Writer) -> Option<&AtomicU64> {
        if writer.first == 0 { None } else { self.chunks.status(writer.first) }
    }

    /// Takes a writer's entries out of the chains of the open ones; with the LSN of its commit they are kept.
    #[inline]
    pub(super) fn unlink_all(&self, first: u32, keep: Option<Lsn>) {
        let (mut at, me) = (self.chunks.first_word(first), self.threads.current());
        for _ in 0..self.chunks.entry_count(first) {
            at = self.unlink(at, keep, me);
        }
    }
}
