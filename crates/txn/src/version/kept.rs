//! Images of commits, kept for snapshots that do not see them: in the order in which they came, in memory that is used
//! round and round.
//!
//! A commit copies its images out of its chunks, and its slot's next writer gets the first chunk. The commit takes
//! care of nothing else. No image is ever taken out of its chain, nothing is given back, and no line of memory that a
//! reader has asked for changes hands. An image goes when others are written over it.
//!
//! ```text
//!       tail                      position of a snapshot                 head
//! ───────┼──────────────────────────────────┼─────────────────────────────┼───────►  positions, in words, from 1 on; they only grow
//!  gone  │ nobody's any more, or of snapshots that are older │ its own    │
//! ```
//! K1. All of it changes under one latch. Within a chain positions fall, so a reader that has met one below its own
//!     bound has met all that are above.
//! K2. Before an image is written over, the floor rises above its commit if a snapshot may need it (V4), and then the
//!     tail above it: so readers find out (`tail.rs`).
//!     The head rises when an image there is whole, and then its chain is told. So what stands between tail and head is
//!     whole at every moment, and a death under the latch leaves nothing to be mended but the latch.
//! K3. A snapshot takes its position, the head, before its LSN: the commits of what is kept below were in the log by
//!     then, and are seen.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use ledgerstone_page::Lsn;
use ledgerstone_region::{Handle, Region, RegionError};

use super::VersionStore;
use super::chunk::Chunks;
use super::entry::{Entry, Memory};
use super::tail;
use super::writer::Writer;

/// The memory: a power of two of words.
pub(super) struct Kept {
    words: Handle<[AtomicU64]>,
}

/// Of so much of the memory at once the tail passes by, so that it seldom moves.
const TAIL_SHARE: u64 = 64;

impl Kept {
    /// Takes at most so many bytes.
    pub(super) fn place(region: &Region, bytes_max: u64) -> Result<Kept, RegionError> {
        let words = (bytes_max / 8).max(64);
        Ok(Kept { words: region.place("versions.kept", 1 << words.ilog2(), 64)? })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.len() * 8
    }

    fn len(&self) -> u64 {
        self.words.len() as u64
    }

    #[inline]
    fn at(&self, position: u64) -> &AtomicU64 {
        &self.words[position as usize & (self.words.len() - 1)]
    }

    /// Asks the processor to fetch what comes behind the first cache line of an image of common size.
    #[inline]
    pub(super) fn prefetch_rest(&self, position: u64) {
        ledgerstone_region::prefetch(self.at(position.wrapping_add(8)));
        ledgerstone_region::prefetch(self.at(position.wrapping_add(16)));
    }

    /// Writes an image of a commit at a position with room for it.
    fn write(&self, position: u64, older: u64, lsn: Lsn, image: &Entry<'_, Chunks>) {
        let [record, lens] = image.identity();
        let words = [older, lsn.0, record, lens].into_iter().chain(image.body());
        for (to, word) in (position..).zip(words) {
            self.at(to).store(word, Relaxed); // Published by the bucket.
        }
    }
}

impl Memory for Kept {
    type At = u64;
    #[inline]
    fn word(&self, position: u64) -> u64 {
        self.at(position).load(Relaxed) // Counts after a look at the tail (K2).
    }
    #[inline]
    fn beside(&self, position: u64, words: u32) -> u64 {
        position.wrapping_add(u64::from(words))
    }
    #[inline]
    fn after(&self, position: u64) -> u64 {
        position.wrapping_add(1)
    }
}

impl VersionStore {
    /// Whether what was read at a position was the image that was put there (K2).
    #[inline]
    pub(super) fn is_kept(&self, position: u64) -> bool {
        tail::is_there(&self.state.tail, position)
    }

    /// Where the next image will be kept (K3).
    pub(super) fn kept_head(&self) -> u64 {
        self.state.head.load(SeqCst)
    }

    /// Keeps the images of a writer that has committed, and gives it its chunks back.
    pub(super) fn keep(&self, writer: &Writer, lsn: Lsn) {
        let state = &*self.state;
        while state.kept_latch.exclusive(self.threads.current()).is_err() {}
        self.unlink_all(writer.name(), Some(lsn));
        state.kept_latch.unlatch_exclusive();
        self.leave(writer);
    }

    /// Room for an image of a commit, under the latch; none if all of the memory is too small for it: then the commit's
    /// older snapshots are gone.
    pub(super) fn make_place(&self, image: &Entry<'_, Chunks>, lsn: Lsn) -> Option<u64> {
        let (state, len) = (&*self.state, self.kept.len());
        let words = u64::from(image.words());
        if words > len / 2 {
            self.raise_floor(lsn);
            return None;
        }
        let position = state.head.load(Relaxed); // The latch orders it, as all below.
        let mut tail_now = state.tail.load(Relaxed);
        if position + words - tail_now > len {
            let low = (position + words + len / TAIL_SHARE).saturating_sub(len).min(position);
            let mut newest = 0;
            while tail_now < low {
                let gone = Entry::read(&self.kept, tail_now);
                newest = newest.max(gone.owner());
                tail_now += u64::from(gone.words());
            }
            self.let_go(Lsn(newest));
            tail::pass(&state.tail, tail_now);
        }
        tail::fence_before_writing(); // K2
        Some(position)
    }

    /// Writes an image of a commit where it has its place, which nobody else gets from then on.
    pub(super) fn write_kept(&self, position: u64, older: u64, lsn: Lsn, image: &Entry<'_, Chunks>) {
        self.kept.write(position, older, lsn, image);
        self.state.head.store(position + u64::from(image.words()), SeqCst);
    }

    /// Images of commits up to this one will go: the floor rises above it if a snapshot may ask for them.
    fn let_go(&self, commit: Lsn) {
        let known = &self.state.known_oldest;
        if commit.0 < known.load(Relaxed) {
            return;
        }
        let oldest = self.oldest_snapshot();
        known.store(oldest.0, Relaxed);
        if commit >= oldest {
            self.raise_floor(commit);
        }
    }

    /// Bytes that are kept from `position` on.
    pub(super) fn kept_bytes_from(&self, position: u64) -> u64 {
        self.kept_head().saturating_sub(position.max(self.state.tail.load(SeqCst))) * 8
    }

    /// Asserts that images stand one behind the other from the tail to the head.
    #[cfg(all(feature = "deaths", not(miri)))]
    pub(super) fn check_kept(&self) {
        let (mut at, head) = (self.state.tail.load(SeqCst), self.kept_head());
        while at < head {
            at += u64::from(Entry::read(&self.kept, at).words());
        }
        assert_eq!(at, head, "images of commits");
    }
}
