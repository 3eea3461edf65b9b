//! The rest of the page table in a region that one process has for itself.
//!
//! ```text
//! page id  first ... 2*first | 2*first ... 4*first | 4*first ... 8*first | ...   max_pages
//!          piece 0           | piece 1             | piece 2             |
//! ```
//! Every piece is as large as all before it, in a region of its own. Memory comes when an entry is touched.

use std::sync::OnceLock;

use ledgerstone_region::{Handle, Mutex, Region};

use super::{SPREAD_ENTRIES, spread};
use crate::entry::PageEntry;
use crate::error::BufferError;

const PIECE_COUNT: usize = 40;
/// For the region's own head and for alignment.
const REGION_HEAD_BYTES: u64 = 64 << 10;

pub(super) struct Pieces {
    /// Piece `k` is for ids from `first << k` on.
    pieces: [OnceLock<Handle<[PageEntry]>>; PIECE_COUNT],
    /// Held while a piece is made: nothing is waited for.
    growing: Mutex<()>,
    /// `log2` of the first piece's length, if there can be others.
    first_bits: u32,
    max_pages: u64,
}

impl Pieces {
    pub fn new(first_count: u64, max_pages: u64) -> Pieces {
        let pieces = std::array::from_fn(|_| OnceLock::new());
        Pieces { pieces, growing: Mutex::new(()), first_bits: first_count.max(1).ilog2(), max_pages }
    }

    pub fn get(&self, id: u64) -> Option<&PageEntry> {
        let (piece, base) = self.piece_of(id);
        self.pieces.get(piece)?.get()?.get(spread(id - base))
    }

    /// The piece for an id behind the first piece, and where it begins. The first one is a power of two long, or all
    /// there can be.
    fn piece_of(&self, id: u64) -> (usize, u64) {
        let bits = id.max(1).ilog2();
        (bits.saturating_sub(self.first_bits) as usize, 1 << bits)
    }

    /// Makes the piece of an id. Reserves address space at most.
    pub fn grow(&self, id: u64) -> Result<(), BufferError> {
        let _growing = self.growing.lock();
        let (piece, base) = self.piece_of(id);
        if let Some(place) = self.pieces.get(piece)
            && place.get().is_none()
        {
            let count = base.min(self.max_pages - base).next_multiple_of(SPREAD_ENTRIES);
            let bytes = count * size_of::<PageEntry>() as u64 + REGION_HEAD_BYTES;
            let region = Region::anonymous(bytes)?;
            let _ = place.set(region.place("cache.more_pages", count, 64)?);
        }
        Ok(())
    }

    /// Where the piece behind that of an id begins.
    pub fn next_piece(&self, id: u64) -> u64 {
        self.piece_of(id).1.saturating_mul(2)
    }
}
