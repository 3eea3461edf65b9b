//! One transaction's images, and what became of it.
//!
//! ```text
//!            begin_commit             stamp(L)                      nobody needs L's images
//!   OPEN ──────────────► COMMITTING ─────────► COMMITTED, L in the queue ─────────────► chunks given back
//!     └──── rolled back, pages put right ─────────────────────────────────────────────►
//! status word: bits 1..0 state (1 OPEN, 2 COMMITTING, 3 COMMITTED), bits 63..2 the LSN of a COMMITTED one
//! ```
//! K1. The word lies in the writer's first chunk; every entry names that chunk, so that one store stamps them all.
//! K2. A transaction that finds no memory for an image becomes *blind*: it notes nothing any more, and no snapshot that does
//!     not see it can be read until it ends, nor, if it commits, ever (the floor rises above its commit). So is one that a restart
//!     has found prepared: its images are gone.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use ledgerstone_page::{Lsn, PageId};

use super::VersionStore;
use super::chain::{Before, Name, entry_words};
use super::chunk::CHUNK_WORDS;
use super::{reclaim, registry};

const OPEN: u64 = 1;
pub(super) const COMMITTING: u64 = 2;
pub(super) const COMMITTED: u64 = 3;
pub(super) const STATE_BITS: u64 = 3;

/// A transaction's place in the store. Empty until it notes something.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// First chunk; 0 none. Its name in the entries.
    first: u32,
    last: u32,
    /// Last word in use.
    end: u32,
    count: u64,
    /// The transaction's number in the transaction table.
    slot: u32,
    /// K2
    is_blind: bool,
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
        self.first == 0 && !self.is_blind
    }
}

impl VersionStore {
    /// Notes what `key` of `space` was, if `writer` has not done so before. The caller holds the record's page exclusively.
    /// `slot` is its number in the transaction table.
    #[inline]
    pub(crate) fn note(&self, writer: &mut Writer, slot: u32, space: PageId, key: &[u8], before: Before<'_>) {
        if writer.is_blind {
            return;
        }
        let words = entry_words(key, before);
        let Some(at) = self.make_room(writer, slot, words) else {
            // K2: said before the page changes, so that a reader who sees the change sees this.
            writer.is_blind = true;
            self.state[0].blind_count.fetch_add(1, SeqCst);
            return;
        };
        if self.push(Name::new(space, key), before, at, writer.first) {
            writer.count += 1;
            self.chunks.set_entry_count(writer.first, writer.count);
            writer.end = self.chunks.end_of(at, words);
        }
    }

    /// A writer whose first changes were made before a restart, which has taken their images: blind from the beginning (K2).
    pub(crate) fn begin_blind(&self, writer: &mut Writer) {
        if !writer.is_blind {
            writer.is_blind = true;
            self.state[0].blind_count.fetch_add(1, SeqCst);
        }
    }

    /// Chunks for an entry of so many words, and where it begins; none if there is no memory.
    #[inline]
    fn make_room(&self, writer: &mut Writer, slot: u32, words: u32) -> Option<u32> {
        if writer.first == 0 {
            let first = self.chunks.take_for(slot).or_else(|| reclaim::make_free(self))?;
            self.chunks.set_queue_next(first, 0);
            self.chunks.set_entry_count(first, 0);
            self.chunks.status(first)?.store(OPEN, Relaxed); // Published with the first entry.
            *writer = Writer { first, last: first, end: self.chunks.first_word(first) - 1, slot, ..Writer::default() };
        }
        // As if each chunk lost what is too short for an entry's head.
        let mut room = self.room_from(writer.end);
        while room < words {
            let chunk = self.chunks.take().or_else(|| reclaim::make_free(self))?;
            self.chunks.set_next(writer.last, chunk);
            writer.last = chunk;
            room = self.room_from(writer.end);
        }
        Some(self.entry_place(self.chunks.after(writer.end)))
    }

    /// Words for an entry that begins behind `end`.
    #[inline]
    fn room_from(&self, end: u32) -> u32 {
        let here = CHUNK_WORDS - 1 - end % CHUNK_WORDS;
        let mut room = if here >= super::chain::ENTRY_WORDS { here } else { 0 };
        let mut chunk = self.chunks.next(end / CHUNK_WORDS);
        while chunk != 0 {
            room += CHUNK_WORDS - super::chunk::FIRST_WORD;
            chunk = self.chunks.next(chunk);
        }
        room
    }

    /// The commit record is about to be reserved (V2). Release is enough: whoever finds the record below the tail has acquired
    /// its reservation, which comes after.
    #[inline]
    pub(crate) fn begin_commit(&self, writer: &Writer) {
        if let Some(status) = self.status_of(writer) {
            status.store(COMMITTING, Release);
        }
    }

    /// The commit record could not be appended: the writer goes on.
    pub(crate) fn take_back_commit(&self, writer: &Writer) {
        if let Some(status) = self.status_of(writer) {
            status.store(OPEN, Release);
        }
    }

    /// The commit record has its place. Before locks are released. The images go at once if nobody needs them.
    #[inline]
    pub(crate) fn end_commit(&self, writer: &mut Writer, lsn: Lsn) {
        let writer = std::mem::take(writer);
        if let Some(status) = self.status_of(&writer) {
            status.store(lsn.0 << 2 | COMMITTED, Release); // Who still reads COMMITTING looks again.
        }
        if writer.is_blind {
            self.raise_floor(lsn);
            self.state[0].blind_count.fetch_sub(1, SeqCst);
        }
        if writer.first == 0 {
            return;
        }
        if registry::is_none_open(&self.state[0].open_count) {
            self.unlink_all(writer.first);
            self.chunks.leave(writer.slot, writer.first);
        } else {
            self.queue(writer.first);
            reclaim::reclaim_some(self, 4);
        }
    }

    /// The transaction was rolled back: its pages are what they were.
    pub(crate) fn end_abort(&self, writer: &mut Writer) {
        let writer = std::mem::take(writer);
        if writer.is_blind {
            self.state[0].blind_count.fetch_sub(1, SeqCst);
        }
        if writer.first != 0 {
            self.unlink_all(writer.first);
            self.chunks.leave(writer.slot, writer.first);
        }
    }

    fn status_of(&self, writer: &Writer) -> Option<&std::sync::atomic::AtomicU64> {
        if writer.first == 0 { None } else { self.chunks.status(writer.first) }
    }

    /// Unlinks a writer's entries and gives its chunks back.
    pub(super) fn discard(&self, first: u32) {
        self.unlink_all(first);
        self.chunks.give_back(first);
    }

    #[inline]
    fn unlink_all(&self, first: u32) {
        let mut at = self.chunks.first_word(first);
        for _ in 0..self.chunks.entry_count(first) {
            at = self.unlink(at);
        }
    }
}
