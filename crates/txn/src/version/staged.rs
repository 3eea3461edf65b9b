//! Small writers while no snapshot is open: images noted, but in no chain yet.
//!
//! Most transactions end before anybody asks what they have changed. Their images are copied into their own chunk and
//! no further: no bucket is latched, no line of memory is written that another thread reads.
//!
//! ```text
//! staged word of a transaction slot: 0                nothing is staged here
//!                                    chunk << 32      a writer's images stand in this chunk, in no chain
//!                                    chunk << 32 | n  the thread of slot n - 1 is putting them into the chains; then 0
//! ```
//! Z1. A thread that opens a snapshot takes S. Before it reads any page, it puts the images that it finds staged into
//!     the chains. A writer reserves the record of an update. Before it changes the page, it looks whether a snapshot
//!     is open. If so, it puts its images into the chains itself. So an image is in its chain before a reader can see
//!     the change. Either the reservation is below S: then the reader has acquired it, and finds the image. Or the
//!     writer sees the reader's bound, which was published before the reader's look at the tail.
//! Z2. The same look after the commit record is reserved tells whether anybody needs the images (Q1 in `registry.rs`).
//!     If not, they go without ever having been in a chain.
//! Z3. Staged entries stand in one chunk and name no writer. In the chains, each names its writer, as all others do. A
//!     second image of a record stays behind and names none.
//! Z4. A writer that fills its chunk goes on as others do.
//! Z5. So does one whose images a snapshot has put into the chains, even if that is closed again: the next one finds
//!     nothing staged. If the look at its slot finds it closed, the writer has acquired what it did.
//! Z6. A writer's line names its thread and its first chunk, which says the rest. So whoever mends after its death
//!     finds all that it had.

use ledgerstone_region::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_region::{shared, sync};

use super::VersionStore;
use super::bucket::{self, pause};
use super::chunk::CHUNK_WORDS;
use super::entry::{Before, Name, entry_words};
use super::writer::Writer;

shared! {
    /// What a transaction slot has in the store, in a cache line of its own.
    pub(crate) struct WriterSlot {
        /// See the file's beginning.
        pub(super) staged: AtomicU64,
        /// A chunk that the slot's last writer has left for the next one; 0 none. Left by the owner of the slot. With
        /// another writer's slot number + 1 in the upper half: that one is taking it away.
        pub(super) left: AtomicU64,
        /// The first chunk of the slot's writer; 0 none. Stored by the owner only.
        pub(super) first: AtomicU64,
        /// The thread that has the slot, or had it last: its number + 1; with a mark while it is mended (`repair.rs`).
        pub(super) thread: AtomicU64,
        /// Room to a cache line.
        spare: [AtomicU64; 4],
    } size 64
}

/// Who is putting them into the chains.
pub(super) const HOLDER: u64 = (1 << 32) - 1;

#[inline]
fn word_of(chunk: u32) -> u64 {
    u64::from(chunk) << 32
}

/// What became of staged images.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// They are the caller's, which ends with a store of 0.
    Mine,
    /// Another has put them into the chains.
    Linked,
}

impl VersionStore {
    /// Lets a writer, which has just got its first chunk, stage its images; not if a snapshot is open.
    #[inline]
    pub(super) fn begin_staging(&self, writer: &mut Writer) {
        let slot = writer.slot as usize;
        if slot >= self.writers.len() || !self.is_none_open() {
            return;
        }
        let used = &self.state.writers_used;
        if used.load(Relaxed) <= slot as u64 {
            used.fetch_max(slot as u64 + 1, SeqCst); // Before the word: a thread that opens a snapshot looks no further.
        }
        self.writers[slot].staged.store(word_of(writer.name()), Release);
        writer.is_staged = true;
    }

    /// Stages an image. False: the chunk is full.
    #[inline]
    pub(super) fn stage(&self, writer: &mut Writer, name: Name<'_>, before: Before<'_>) -> bool {
        let words = entry_words(name.key, before);
        if writer.end % CHUNK_WORDS + 1 + words > CHUNK_WORDS {
            return false;
        }
        let at = writer.end + 1;
        self.chunks.set(at, 0);
        self.write_entry(name, before, at, 0, 0); // Z3
        writer.end = at + words - 1;
        writer.count += 1;
        self.chunks.set_entry_count(writer.name(), writer.count);
        true
    }

    /// The record of an update is reserved, and its page will change (Z1).
    #[inline]
    pub(crate) fn before_change(&self, writer: &mut Writer) {
        if !writer.is_staged {
            return;
        }
        let is_none_open = self.is_none_open();
        // Z5: after that look.
        let is_staged = self.writers[writer.slot as usize].staged.load(Acquire) == word_of(writer.name());
        if !is_none_open || !is_staged {
            self.link_staged(writer);
        }
    }

    /// Puts all that a writer has staged into the chains. It stages no more.
    #[cold]
    pub(super) fn link_staged(&self, writer: &mut Writer) {
        let taken = self.take_staged(writer);
        // If a reader did so, some may have come after it looked; nobody else puts any there now.
        self.link_entries(writer.name());
        if taken == Taken::Mine {
            self.writers[writer.slot as usize].staged.store(0, Release);
        }
        writer.is_staged = false;
    }

    /// Ends a writer's staging at its end. True: nothing of it is in the chains.
    #[inline]
    pub(super) fn end_staging(&self, writer: &Writer) -> bool {
        let (staged, free) = (&self.writers[writer.slot as usize].staged, word_of(writer.name()));
        let mut round = 0;
        loop {
            // Acquire as in `take_staged`.
            match staged.compare_exchange(free, 0, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(0) => return false,
                Err(_) => pause(&mut round),
            }
        }
    }

    #[inline]
    fn take_staged(&self, writer: &Writer) -> Taken {
        let (staged, free) = (&self.writers[writer.slot as usize].staged, word_of(writer.name()));
        let mut round = 0;
        loop {
            // Acquire pairs with the Release of a reader that has put them into the chains.
            match staged.compare_exchange(free, free | bucket::name_of(self.threads.current()), Acquire, Acquire) {
                Ok(_) => return Taken::Mine,
                Err(0) => return Taken::Linked,
                Err(_) => pause(&mut round),
            }
        }
    }

    /// Puts what others have staged into the chains: for a snapshot that has its LSN and has read nothing yet (Z1).
    pub(super) fn link_all_staged(&self) {
        if planted::is_on(Bug::StagedUnlinked) {
            return;
        }
        let used = (self.state.writers_used.load(SeqCst) as usize).min(self.writers.len());
        if used == 0 {
            return;
        }
        let me = bucket::name_of(self.threads.current());
        for slot in &self.writers[..used] {
            let mut round = 0;
            loop {
                // Pairs with the Release of the thread that staged them, or put them into the chains.
                let word = slot.staged.load(Acquire);
                if word == 0 {
                    break;
                }
                if word & HOLDER == 0 && slot.staged.compare_exchange(word, word | me, Acquire, Relaxed).is_ok() {
                    sync::yield_point("snapshot: staged images taken");
                    self.link_entries((word >> 32) as u32);
                    slot.staged.store(0, Release);
                    break;
                }
                pause(&mut round);
            }
        }
    }

    fn link_entries(&self, chunk: u32) {
        let (mut at, me) = (self.chunks.first_word(chunk), self.threads.current());
        for _ in 0..self.chunks.entry_count(chunk) {
            at = self.link(at, chunk, me);
        }
    }
}
