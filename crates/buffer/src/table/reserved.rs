//! The rest of the page table in a region that other processes can have, too: one array of the region, reserved for all
//! pages that there may be.
//!
//! ```text
//! page id - first  0 ... 4096 | 4096 ... 8192 | 8192 ... 12288 | ...   max_pages - first
//! cache.more_pages chunk 0    | chunk 1       | chunk 2        |
//! cache.chunks     bit 0        bit 1           bit 2                   1: the chunk's memory was taken
//! ```
//! E1. The memory of a chunk is taken from the system before its bit is set, and the bit is set before an entry of the
//!     chunk is looked at. Bits are never taken back. So nobody looks at memory that may be missing, which would be the
//!     end of the process. Who follows an id that is none finds no bit.
//! E2. To take a chunk again changes nothing. So whoever finds no bit takes the chunk and sets it, whatever others do
//!     at the same moment. Who dies in between leaves memory that the next one uses.
//! E3. A chunk that is refused fails the call that wanted it, and nothing else.
//!
//! A bit for each chunk, rather than a mark up to where memory was taken: then an id far behind costs one chunk, and
//! not all memory up to there.

use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::atomic::Ordering::{Acquire, Release};
use ledgerstone_region::{Handle, Region};

use super::{SPREAD_ENTRIES, spread};
use crate::entry::PageEntry;
use crate::error::BufferError;

/// Entries whose memory is taken at once: 64 KiB, for 16 MiB of data.
const CHUNK_ENTRIES: u64 = 16 * SPREAD_ENTRIES;
/// Chunks begin where a page of memory does.
const ALIGN_BYTES: u64 = 4096;

pub(super) struct Reserved {
    entries: Handle<[PageEntry]>,
    chunks: Handle<[AtomicU64]>,
}

fn chunk_words(count: u64) -> u64 {
    count.div_ceil(CHUNK_ENTRIES).div_ceil(64)
}

impl Reserved {
    /// What it takes of a region.
    pub fn bytes(count: u64) -> u64 {
        let entries = count.saturating_add(SPREAD_ENTRIES).saturating_mul(size_of::<PageEntry>() as u64);
        entries.saturating_add(chunk_words(count) * 8).saturating_add(2 * ALIGN_BYTES)
    }

    /// For so many pages.
    pub fn new(region: &Region, count: u64) -> Result<Reserved, BufferError> {
        let chunks = region.place("cache.chunks", chunk_words(count), 64)?;
        let places = count.next_multiple_of(SPREAD_ENTRIES);
        let entries = region.place_reserved("cache.more_pages", places, ALIGN_BYTES)?;
        Ok(Reserved { entries, chunks })
    }

    /// The entry of a page, by its number among these.
    pub fn get(&self, no: u64) -> Option<&PageEntry> {
        if self.is_there(no / CHUNK_ENTRIES) { self.entries.get(spread(no)) } else { None }
    }

    fn is_there(&self, chunk: u64) -> bool {
        // Pairs with the store in `grow` (E1).
        self.chunks.get((chunk / 64) as usize).is_some_and(|word| word.load(Acquire) >> (chunk % 64) & 1 == 1)
    }

    /// Takes the memory of an entry's chunk, if there is such an entry.
    pub fn grow(&self, no: u64) -> Result<(), BufferError> {
        let chunk = no / CHUNK_ENTRIES;
        if let Some(word) = self.chunks.get((chunk / 64) as usize)
            && !self.is_there(chunk)
        {
            let from = chunk * CHUNK_ENTRIES;
            let to = (from + CHUNK_ENTRIES).min(self.entries.len() as u64);
            self.entries.take(from as usize..to as usize)?;
            word.fetch_or(1 << (chunk % 64), Release); // Pairs with the load in `is_there` (E1).
        }
        Ok(())
    }

    /// Behind an entry that is not there: the next number whose entry may be.
    pub fn next_there(&self, no: u64) -> u64 {
        let chunk = no / CHUNK_ENTRIES;
        let is_empty = self.chunks.get((chunk / 64) as usize).is_some_and(|word| word.load(Acquire) == 0);
        let next = if is_empty { (chunk / 64 + 1) * 64 } else { chunk + 1 };
        next * CHUNK_ENTRIES
    }
}
