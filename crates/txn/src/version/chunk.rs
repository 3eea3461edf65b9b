//! Memory of the version store: chunks of words, taken from and given back to a list of free ones.
//!
//! ```text
//! word of a chunk
//!    0   status       in a writer's first chunk, see `writer.rs`
//!    1   next         next chunk of the same writer, or of the list of free ones; 0 none
//!    2   room
//!    3   count        in a writer's first chunk: how many entries
//!    4   :            entries; what does not fit goes on in the next chunk's word 4
//! ```
//! M1. A chunk belongs to one writer or to the list. It changes hands through the list's head, whose upper half counts,
//!     so that a head that was taken off and put back is another (no ABA).
//! M2. Readers look without a latch: they may read a chunk that has changed hands. A writer that gets a chunk passes a
//!     release fence before its first store. The fence pairs with the acquire fence by which a reader checks the bucket
//!     that the chunk came from. That bucket's version was raised before the chunk was given back. So no reader
//!     believes what it read of another's.
//! M3. Reading never leaves the memory: an address past its end reads as zero.

use super::entry::Memory;
use super::staged::WriterSlot;
use ledgerstone_region::{Handle, Region, RegionError};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// Words of a chunk: the images of a small transaction, of some records of 100 bytes, fit into one.
pub(super) const CHUNK_WORDS: u32 = 64;
/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u64 = CHUNK_WORDS as u64 * 8;
/// First word of a chunk that holds entries.
pub(super) const FIRST_WORD: u32 = 4;

const STATUS: u32 = 0;
const NEXT: u32 = 1;
const COUNT: u32 = 3;

/// All chunks. Chunk 0 is nobody's, so that 0 is neither a chunk nor an address.
pub(super) struct Chunks {
    words: Handle<[AtomicU64]>,
    /// Head of the list: count of changes in the upper half, chunk in the lower. Then: chunks never used begin here.
    /// Then: how many are in use.
    list: Handle<[AtomicU64]>,
}

impl Memory for Chunks {
    type At = u32;
    #[inline]
    fn word(&self, at: u32) -> u64 {
        self.word(at)
    }
    #[inline]
    fn beside(&self, at: u32, words: u32) -> u32 {
        at.wrapping_add(words)
    }
    #[inline]
    fn after(&self, at: u32) -> u32 {
        self.after(at)
    }
}

impl Chunks {
    pub(super) fn create(region: &Region, bytes: u64) -> Result<Chunks, RegionError> {
        // Addresses have 32 bits.
        let count = (bytes / CHUNK_BYTES).clamp(2, u64::from(u32::MAX / CHUNK_WORDS) - 1) + 1;
        let words = region.handle_slice(region.alloc::<AtomicU64>(count * u64::from(CHUNK_WORDS), 64)?)?;
        let list: Handle<[AtomicU64]> = region.handle_slice(region.alloc::<AtomicU64>(24, 64)?)?;
        list[8].store(1, Relaxed); // Nobody else knows the store yet.
        Ok(Chunks { words, list })
    }

    /// How many chunks can be in use.
    pub(super) fn count(&self) -> u32 {
        self.words.len() as u32 / CHUNK_WORDS - 1
    }

    /// How many are, those included that were left for a slot's next writer.
    pub(super) fn used_count(&self) -> u64 {
        self.list[16].load(Relaxed) // A figure to print.
    }

    /// The chunk that the last writer of a transaction slot has left, or another.
    #[inline]
    pub(super) fn take_for(&self, slot: Option<&WriterSlot>) -> Option<u32> {
        if let Some(chunk) = slot.and_then(|slot| self.take_left(slot)) { Some(chunk) } else { self.take() }
    }

    /// Gives back a writer's chunks; a single one stays for the slot's next writer.
    #[inline]
    pub(super) fn leave(&self, slot: Option<&WriterSlot>, first: u32) {
        match slot {
            // Only the owner of the slot leaves one: it does not become another's between the two.
            Some(slot) if self.next(first) == 0 && slot.left.load(Relaxed) == 0 => {
                slot.left.store(u64::from(first), Release);
            }
            _ => self.give_back(first),
        }
    }

    /// Takes the one that was left with a slot.
    #[inline]
    pub(super) fn take_left(&self, slot: &WriterSlot) -> Option<u32> {
        if slot.left.load(Relaxed) == 0 {
            return None;
        }
        let chunk = slot.left.swap(0, Acquire) as u32; // Pairs with the Release in `leave`.
        if chunk == 0 {
            return None;
        }
        fence(Release); // M2
        self.set_next(chunk, 0);
        Some(chunk)
    }

    /// A word; 0 past the end (M3). What a reader without a latch gets counts after its check.
    #[inline]
    pub(super) fn word(&self, at: u32) -> u64 {
        self.words.get(at as usize).map_or(0, |word| word.load(Relaxed))
    }

    #[inline]
    pub(super) fn set(&self, at: u32, value: u64) {
        self.words[at as usize].store(value, Relaxed); // Published by the latch of the bucket that is pushed to.
    }

    /// The address after `at`, in the next chunk if need be.
    #[inline]
    pub(super) fn after(&self, at: u32) -> u32 {
        let next = at.wrapping_add(1);
        if !next.is_multiple_of(CHUNK_WORDS) { next } else { self.first_word(self.next(at / CHUNK_WORDS)) }
    }

    /// The last word of so many that begin at `at`.
    #[inline]
    pub(super) fn end_of(&self, at: u32, words: u32) -> u32 {
        if at % CHUNK_WORDS + words <= CHUNK_WORDS {
            return at + words - 1;
        }
        (1..words).fold(at, |end, _| self.after(end))
    }

    /// The words from `at` on, if the chunk has so many.
    #[inline]
    pub(super) fn words_in_chunk(&self, at: u32, words: u32) -> Option<&[AtomicU64]> {
        let left = CHUNK_WORDS - at % CHUNK_WORDS;
        // An address at the end of a chunk is the next chunk's first: what begins there goes on elsewhere.
        if at.is_multiple_of(CHUNK_WORDS) || words > left {
            return None;
        }
        self.words.get(at as usize..(at + words) as usize)
    }

    #[inline]
    pub(super) fn first_word(&self, chunk: u32) -> u32 {
        chunk.wrapping_mul(CHUNK_WORDS).wrapping_add(FIRST_WORD)
    }

    /// The status word of a writer, by its first chunk.
    #[inline]
    pub(super) fn status(&self, writer: u32) -> Option<&AtomicU64> {
        self.words.get(writer as usize * CHUNK_WORDS as usize + STATUS as usize)
    }

    pub(super) fn next(&self, chunk: u32) -> u32 {
        self.word(chunk.wrapping_mul(CHUNK_WORDS).wrapping_add(NEXT)) as u32
    }

    pub(super) fn set_next(&self, chunk: u32, next: u32) {
        self.set(chunk * CHUNK_WORDS + NEXT, u64::from(next));
    }

    /// A reader finds as many entries.
    pub(super) fn entry_count(&self, writer: u32) -> u64 {
        self.words[(writer * CHUNK_WORDS + COUNT) as usize].load(Acquire) // Pairs with the Release below.
    }

    #[inline]
    pub(super) fn set_entry_count(&self, writer: u32, count: u64) {
        self.words[(writer * CHUNK_WORDS + COUNT) as usize].store(count, Release);
    }

    /// Takes a free chunk, with no next one; none if all are in use.
    pub(super) fn take(&self) -> Option<u32> {
        let head = &self.list[0];
        let mut seen = head.load(Acquire);
        let chunk = loop {
            let chunk = seen as u32;
            if chunk == 0 {
                match self.take_unused() {
                    Some(chunk) => break chunk,
                    // Another may have put one back since.
                    None if head.load(Acquire) as u32 == 0 => return None,
                    None => seen = head.load(Acquire),
                }
                continue;
            }
            let next = self.next(chunk);
            let new = ((seen >> 32) + 1) << 32 | u64::from(next);
            // Acquire pairs with the Release of the thread that put the chunk there: its link is what we read (M1).
            match head.compare_exchange_weak(seen, new, AcqRel, Acquire) {
                Ok(_) => break chunk,
                Err(now) => seen = now,
            }
        };
        self.list[16].fetch_add(1, Relaxed);
        fence(Release); // M2
        self.set_next(chunk, 0);
        Some(chunk)
    }

    /// A chunk that was never used: memory is touched only as it is needed.
    fn take_unused(&self) -> Option<u32> {
        let unused = &self.list[8];
        let mut seen = unused.load(Relaxed); // A number; the chunk itself is zeros still.
        while seen <= u64::from(self.count()) {
            match unused.compare_exchange_weak(seen, seen + 1, Relaxed, Relaxed) {
                Ok(chunk) => return Some(chunk as u32),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Gives back a writer's chunks, all of them, beginning with `first`.
    pub(super) fn give_back(&self, first: u32) {
        let (mut last, mut count) = (first, 1);
        while self.next(last) != 0 {
            last = self.next(last);
            count += 1;
        }
        let head = &self.list[0];
        let mut seen = head.load(Relaxed);
        loop {
            self.set_next(last, seen as u32);
            let new = ((seen >> 32) + 1) << 32 | u64::from(first);
            match head.compare_exchange_weak(seen, new, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        self.list[16].fetch_sub(count, Relaxed);
    }
}
