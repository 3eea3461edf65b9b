//! The page table: an array of entries, indexed by page id, that grows while it is used.
//!
//! ```text
//! page id  0 ............ first | first ... 2*first | 2*first ... 4*first | ...   max_pages
//!          the first piece      | piece 0           | piece 1             |
//! ```
//! The first piece lies in the region and has room for what the data file holds at the open, and for as much again.
//! Every further one is as large as all before it, in a region of its own, and is made when a page in it is first asked
//! for. Pieces never move and never go while the table lives. So an entry that was found stays where it is, and
//! readers do not notice growth. A hit in the first piece costs one comparison, as in an array that does not grow.
//!
//! Pages of one small table, and small tables made one after the other, have ids in a row. Were their entries in a row
//! as well, a writer of one page would take the cache line of its neighbours' entries from their readers. So an entry's
//! place is its id with the lowest 8 bits turned ([`spread`]): ids that share a line are 64 apart.
//!
//! So an environment takes address space by what it holds, which containers and `ulimit -v` count, and not by what it
//! may ever hold.

use std::sync::OnceLock;

use ledgerstone_page::PageId;
use ledgerstone_region::{Handle, Mutex, Region};

use crate::entry::PageEntry;
use crate::error::BufferError;

/// The first piece is at least so long, where that many pages are allowed: 16 MiB of address space, for 4 GiB of data.
const FIRST_ENTRIES_MIN: u64 = 1 << 20;
const PIECE_COUNT: usize = 40;
/// Entries among which places are exchanged: a page of memory has so many. So no more of it is touched than in order.
const SPREAD_ENTRIES: u64 = 256;
/// Cache lines of so many entries: `log2` of the entries in one.
const LINE_BITS: u32 = 2;
/// The first piece's name in the region.
const FIRST: &str = "cache.pages";
/// For the region's own head and for alignment.
const REGION_HEAD_BYTES: u64 = 64 << 10;

/// Ids are smaller: a frame's state has 48 bits for one, and two of these numbers mean something else (F9 in
/// `frame.rs`).
const MAX_PAGES: u64 = (1 << 48) - 2;

pub(crate) struct PageTable {
    first: Handle<[PageEntry]>,
    /// Ids that it is for; it may have places for a few more.
    first_count: u64,
    /// Piece `k` is for ids from `first << k` on.
    more: [OnceLock<Handle<[PageEntry]>>; PIECE_COUNT],
    /// Held while a piece is made: nothing is waited for.
    growing: Mutex<()>,
    /// `log2` of the first piece's length, if there can be others.
    first_bits: u32,
    max_pages: u64,
}

impl PageTable {
    /// Entries of the first piece.
    pub fn first_entries(data_pages: u64, max_pages: u64) -> u64 {
        let wanted = data_pages.saturating_mul(2).max(FIRST_ENTRIES_MIN).checked_next_power_of_two();
        wanted.unwrap_or(max_pages).min(max_pages)
    }

    /// Pages that there may be at most.
    pub fn max_pages(&self) -> u64 {
        self.max_pages
    }

    /// Entries that a first piece has memory for: whole groups of places.
    pub fn first_places(data_pages: u64, max_pages: u64) -> u64 {
        PageTable::first_entries(data_pages, max_pages).next_multiple_of(SPREAD_ENTRIES)
    }

    pub fn new(region: &Region, data_pages: u64, max_pages: u64) -> Result<PageTable, BufferError> {
        let max_pages = max_pages.min(MAX_PAGES);
        // The data file has grown, perhaps, since the region was made.
        let count = match region.placed_count(FIRST) {
            Some(places) => places.min(max_pages),
            None => PageTable::first_entries(data_pages, max_pages),
        };
        Ok(PageTable {
            first: region.place(FIRST, count.next_multiple_of(SPREAD_ENTRIES), 64)?,
            first_count: count,
            more: std::array::from_fn(|_| OnceLock::new()),
            growing: Mutex::new(()),
            first_bits: count.max(1).ilog2(),
            max_pages,
        })
    }

    /// The entry of a page; `None` if there never was one.
    #[inline]
    pub fn get(&self, id: u64) -> Option<&PageEntry> {
        if id < self.first_count {
            return self.first.get(spread(id));
        }
        self.get_behind_first(id)
    }

    #[inline(never)]
    fn get_behind_first(&self, id: u64) -> Option<&PageEntry> {
        if id >= self.max_pages {
            return None;
        }
        let (piece, base) = self.piece_of(id);
        self.more.get(piece)?.get()?.get(spread(id - base))
    }

    /// The piece for an id behind the first, and where it begins. The first is a power of two long, or all there can
    /// be.
    fn piece_of(&self, id: u64) -> (usize, u64) {
        let bits = id.max(1).ilog2();
        (bits.saturating_sub(self.first_bits) as usize, 1 << bits)
    }

    /// The entry of a page, which is made if it is missing. Reserves address space at most.
    ///
    /// # Errors
    /// The id is not allowed; the address space is refused.
    #[cold]
    pub fn get_or_grow(&self, page: PageId) -> Result<&PageEntry, BufferError> {
        let out_of_range = BufferError::PageOutOfRange { page, max_pages: self.max_pages };
        if page.0 >= self.max_pages {
            return Err(out_of_range);
        }
        let _growing = self.growing.lock();
        if let Some(entry) = self.get(page.0) {
            return Ok(entry);
        }
        let (piece, base) = self.piece_of(page.0);
        if let Some(place) = self.more.get(piece)
            && place.get().is_none()
        {
            let count = base.min(self.max_pages - base).next_multiple_of(SPREAD_ENTRIES);
            let bytes = count * size_of::<PageEntry>() as u64 + REGION_HEAD_BYTES;
            let region = Region::anonymous(bytes)?;
            let _ = place.set(region.place("cache.more_pages", count, 64)?);
        }
        self.get(page.0).ok_or(out_of_range)
    }
}

/// The place of an entry: neighbours among the ids do not share a cache line, and no group's entry leaves it.
#[inline]
fn spread(id: u64) -> usize {
    ((id & !(SPREAD_ENTRIES - 1)) | u64::from((id as u8).rotate_left(LINE_BITS))) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn every_page_keeps_its_one_entry_while_the_table_grows() {
        let first = PageTable::first_entries(0, u64::MAX);
        let max_pages = first * 6 + 5;
        let region = Region::anonymous(first * 16 + (1 << 20)).unwrap();
        let table = PageTable::new(&region, 0, max_pages).unwrap();
        let ids = [0, first - 1, first, first + 1, 2 * first - 1, 2 * first, 4 * first, max_pages - 1];
        assert!(ids.iter().all(|id| table.get(*id).is_some() == (*id < first)), "only what is needed is there");
        let asked = AtomicUsize::new(0);
        let found: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let look = || {
                asked.fetch_add(1, SeqCst);
                while asked.load(SeqCst) < 4 {
                    std::hint::spin_loop();
                }
                let address = |id: &u64| std::ptr::from_ref(table.get_or_grow(PageId(*id)).unwrap()).addr();
                ids.iter().map(address).collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|addresses| *addresses == found[0]));
        let mut different = found[0].clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ids.len());
        for (id, address) in ids.iter().zip(&found[0]) {
            assert_eq!(table.get(*id).map(|entry| std::ptr::from_ref(entry).addr()), Some(*address), "page {id}");
        }
        for id in [max_pages, max_pages + 1, u64::MAX] {
            assert!(table.get(id).is_none());
            assert!(matches!(table.get_or_grow(PageId(id)), Err(BufferError::PageOutOfRange { .. })));
        }
    }

    #[test]
    fn each_id_has_its_own_place_and_its_neighbours_another_cache_line() {
        let places: std::collections::BTreeSet<usize> = (0..1024).map(spread).collect();
        assert_eq!(places, (0..1024).collect());
        let line = |id: u64| spread(id) * size_of::<PageEntry>() / 64;
        for id in 0..1024 {
            assert!((1..64).all(|distance| line(id) != line(id + distance)), "page {id}");
        }
    }

    #[test]
    fn a_table_is_as_long_as_it_may_be_and_no_longer() {
        assert_eq!(PageTable::first_entries(0, 100), 100);
        assert_eq!(PageTable::first_entries(0, 1 << 31), FIRST_ENTRIES_MIN);
        assert_eq!(PageTable::first_entries(3 << 20, 1 << 31), 8 << 20, "a data file that is there, and as much again");
        assert_eq!(PageTable::first_entries(1 << 30, 1 << 31), 1 << 31);
        let region = Region::anonymous(1 << 20).unwrap();
        let table = PageTable::new(&region, 0, 100).unwrap();
        assert!(table.get(99).is_some() && table.get(100).is_none());
        assert!(table.get_or_grow(PageId(100)).is_err());
    }
}
