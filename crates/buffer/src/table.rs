//! The page table: an array of entries, indexed by page id, that grows while it is used.
//!
//! ```text
//! page id  0 .............. first | first ..................................................... max_pages
//!          the first piece        | the rest: pieces (`pieces.rs`), or reserved (`reserved.rs`)
//! ```
//! The first piece lies in the region and has room for what the data file holds at the open, and for as much again. A
//! hit in it costs one comparison, as in an array that does not grow. Entries never move and never go while the table
//! lives. So an entry that was found stays where it is, and readers do not notice growth.
//!
//! The rest is made when a page in it is first asked for. In a region that one process has for itself, it is made of
//! pieces. So an environment takes address space by what it holds, and not by what it may ever hold: containers and
//! `ulimit -v` count that. In a region that others can have, too, all of them must find one entry for a page. There
//! it is reserved in the region, and memory comes as it is needed.
//!
//! Pages of one small table, and small tables made one after the other, have ids in a row. Were their entries in a row
//! as well, a writer of one page would take the cache line of its neighbours' entries from their readers. So an entry's
//! place is its id with the lowest 8 bits turned ([`spread`]): ids that share a line are 64 apart.

mod pieces;
mod reserved;

use ledgerstone_page::PageId;
use ledgerstone_region::{Handle, Region};

use crate::entry::PageEntry;
use crate::error::BufferError;
use pieces::Pieces;
use reserved::Reserved;

/// The first piece is at least so long, where that many pages are allowed: 16 MiB of address space, for 4 GiB of data.
pub(crate) const FIRST_ENTRIES_MIN: u64 = 1 << 20;
/// Entries among which places are exchanged: a page of memory has so many. So no more of it is touched than in order.
const SPREAD_ENTRIES: u64 = 256;
/// Cache lines of so many entries: `log2` of the entries in one.
const LINE_BITS: u32 = 2;
/// The first piece's name in the region.
const FIRST: &str = "cache.pages";

/// Ids are smaller: a frame's state has 48 bits for one, and two of these numbers mean something else (F9 in
/// `frame.rs`).
const MAX_PAGES: u64 = (1 << 48) - 2;

pub(crate) struct PageTable {
    first: Handle<[PageEntry]>,
    /// Ids that it is for; it may have places for a few more.
    first_count: u64,
    rest: Rest,
    max_pages: u64,
}

/// Entries for ids from the first piece's end on, which is a multiple of [`SPREAD_ENTRIES`] if there are such ids.
#[expect(clippy::large_enum_variant, reason = "a process has one, and a box would cost each look a load")]
enum Rest {
    Pieces(Pieces),
    Reserved(Reserved),
}

impl PageTable {
    /// Entries of the first piece.
    fn first_entries(data_pages: u64, max_pages: u64, entries_min: u64) -> u64 {
        let entries_min = entries_min.max(SPREAD_ENTRIES);
        let wanted = data_pages.saturating_mul(2).max(entries_min).checked_next_power_of_two();
        wanted.unwrap_or(max_pages).min(max_pages)
    }

    /// Pages that there may be at most.
    pub fn max_pages(&self) -> u64 {
        self.max_pages
    }

    /// Bytes that a first piece takes of a region: whole groups of places.
    pub fn first_bytes(data_pages: u64, max_pages: u64) -> u64 {
        let count = PageTable::first_entries(data_pages, max_pages, FIRST_ENTRIES_MIN);
        count.next_multiple_of(SPREAD_ENTRIES) * size_of::<PageEntry>() as u64
    }

    /// Bytes that the rest takes of a region that others can have, too.
    pub fn reserved_bytes(data_pages: u64, max_pages: u64) -> u64 {
        let max_pages = max_pages.min(MAX_PAGES);
        Reserved::bytes(max_pages - PageTable::first_entries(data_pages, max_pages, FIRST_ENTRIES_MIN))
    }

    pub fn new(
        region: &Region,
        data_pages: u64,
        max_pages: u64,
        first_entries_min: u64,
    ) -> Result<PageTable, BufferError> {
        let max_pages = max_pages.min(MAX_PAGES);
        // The data file has grown, perhaps, since the region was made.
        let first_count = match region.placed_count(FIRST) {
            Some(places) => places.min(max_pages),
            None => PageTable::first_entries(data_pages, max_pages, first_entries_min),
        };
        let first = region.place(FIRST, first_count.next_multiple_of(SPREAD_ENTRIES), 64)?;
        let rest = match region.is_shared() {
            true => Rest::Reserved(Reserved::new(region, max_pages - first_count)?),
            false => Rest::Pieces(Pieces::new(first_count, max_pages)),
        };
        Ok(PageTable { first, first_count, rest, max_pages })
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
        match &self.rest {
            Rest::Pieces(pieces) => pieces.get(id),
            Rest::Reserved(reserved) => reserved.get(id - self.first_count),
        }
    }

    /// The entry of a page, which is made if it is missing.
    ///
    /// # Errors
    /// The id is not allowed; the address space or the memory is refused.
    #[cold]
    pub fn get_or_grow(&self, page: PageId) -> Result<&PageEntry, BufferError> {
        let out_of_range = BufferError::PageOutOfRange { page, max_pages: self.max_pages };
        if page.0 >= self.max_pages {
            return Err(out_of_range);
        }
        if page.0 >= self.first_count {
            match &self.rest {
                Rest::Pieces(pieces) => pieces.grow(page.0)?,
                Rest::Reserved(reserved) => reserved.grow(page.0 - self.first_count)?,
            }
        }
        self.get(page.0).ok_or(out_of_range)
    }

    /// All entries there are of pages from `from` up to `below`. Makes none.
    pub fn entries(&self, from: u64, below: u64) -> impl Iterator<Item = (PageId, &PageEntry)> {
        let mut next = from;
        std::iter::from_fn(move || {
            while next < below.min(self.max_pages) {
                let id = next;
                if let Some(entry) = self.get(id) {
                    next += 1;
                    return Some((PageId(id), entry));
                }
                next = self.next_there(id);
            }
            None
        })
    }

    /// An id behind this one, which has no entry. None of those in between has one.
    fn next_there(&self, id: u64) -> u64 {
        match &self.rest {
            Rest::Pieces(pieces) => pieces.next_piece(id),
            Rest::Reserved(reserved) => self.first_count + reserved.next_there(id - self.first_count),
        }
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
    #[cfg(not(miri))]
    use ledgerstone_region::SlotNo;
    #[cfg(not(miri))]
    use ledgerstone_testkit::other::dir_in_memory;
    #[cfg(not(miri))]
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A region that one process has for itself, and one that others can have.
    fn each_region(bytes: u64, check: impl Fn(&Region)) {
        check(&Region::anonymous(bytes).unwrap());
        #[cfg(not(miri))]
        {
            let dir = dir_in_memory();
            check(&Region::create_at(&dir.path().join("region"), bytes).unwrap());
        }
    }

    #[test]
    fn every_page_keeps_its_one_entry_while_the_table_grows() {
        let first = PageTable::first_entries(0, u64::MAX, FIRST_ENTRIES_MIN);
        let max_pages = first * 6 + 5;
        each_region(first * 16 * 8, |region| {
            let table = PageTable::new(region, 0, max_pages, FIRST_ENTRIES_MIN).unwrap();
            keeps_its_entries(&table, first, max_pages);
        });
    }

    fn keeps_its_entries(table: &PageTable, first: u64, max_pages: u64) {
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
    fn all_entries_that_are_there_are_found_and_none_is_made() {
        let (first, max_pages) = (SPREAD_ENTRIES, 1 << 22);
        each_region(max_pages * 16 + (1 << 20), |region| {
            let table = PageTable::new(region, 0, max_pages, first).unwrap();
            let grown = [first, 700, 20_000, 1 << 21, max_pages - 1];
            for id in grown {
                table.get_or_grow(PageId(id)).unwrap();
            }
            let by_get: Vec<u64> = (100..max_pages).filter(|id| table.get(*id).is_some()).collect();
            let by_entries: Vec<u64> = table.entries(100, u64::MAX).map(|(id, _)| id.0).collect();
            assert!(by_get == by_entries && grown.iter().all(|id| by_get.contains(id)));
            assert_eq!(table.entries(0, 110).count(), 110);
        });
    }

    /// Two mappings of one region, and the tables in them.
    #[cfg(not(miri))]
    fn two_tables(max_pages: u64) -> (PageTable, PageTable) {
        let dir = dir_in_memory();
        let path = dir.path().join("region");
        let bytes = PageTable::first_bytes(0, max_pages) + PageTable::reserved_bytes(0, max_pages) + (1 << 16);
        let made = Region::create_at(&path, bytes).unwrap();
        let table = |region: &Region| PageTable::new(region, 0, max_pages, SPREAD_ENTRIES).unwrap();
        let first = table(&made);
        (first, table(&Region::join_at(&path).unwrap()))
    }

    #[test]
    #[cfg(not(miri))]
    fn who_joins_a_region_finds_the_entries_that_another_has_made() {
        let max_pages = 3 << 20;
        let (one, other) = two_tables(max_pages);
        let ids = [0, SPREAD_ENTRIES, SPREAD_ENTRIES + 1, 1 << 20, max_pages - 1];
        for (no, id) in ids.into_iter().enumerate() {
            // Made by either, found by both.
            let (made, found) = if no % 2 == 0 { (&one, &other) } else { (&other, &one) };
            assert!(made.get_or_grow(PageId(id)).unwrap().latch.try_exclusive(SlotNo(no as u16)));
            let entry = found.get(id).expect("it was made");
            assert_eq!(entry.latch.owner(), Some(SlotNo(no as u16)), "page {id}");
            assert!(!found.get_or_grow(PageId(id)).unwrap().latch.try_exclusive(SlotNo(99)));
        }
        let held = |table: &PageTable| table.entries(0, max_pages).filter(|(_, e)| e.latch.owner().is_some()).count();
        assert_eq!((held(&one), held(&other)), (ids.len(), ids.len()));
    }

    #[test]
    #[cfg(not(miri))]
    fn a_table_grows_while_another_process_looks_for_pages_that_are_none() {
        let max_pages = 1 << 20;
        let (one, other) = two_tables(max_pages);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = ledgerstone_region::Random::new(1);
                while !is_over.load(SeqCst) {
                    if let Some(entry) = other.get(random.below(2 * max_pages)) {
                        assert!(entry.frame().is_none_or(|frame| frame.0 == 7));
                    }
                }
            });
            let is_found = (0..max_pages).step_by(1000).all(|id| {
                one.get_or_grow(PageId(id)).unwrap().set_frame(Some(crate::FrameNo(7)));
                other.get(id).and_then(PageEntry::frame) == Some(crate::FrameNo(7))
            });
            is_over.store(true, SeqCst);
            assert!(is_found);
        });
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
        assert_eq!(PageTable::first_entries(0, 100, FIRST_ENTRIES_MIN), 100);
        assert_eq!(PageTable::first_entries(0, 1 << 31, FIRST_ENTRIES_MIN), FIRST_ENTRIES_MIN);
        assert_eq!(
            PageTable::first_entries(3 << 20, 1 << 31, FIRST_ENTRIES_MIN),
            8 << 20,
            "a data file that is there, and as much again"
        );
        assert_eq!(PageTable::first_entries(1 << 30, 1 << 31, FIRST_ENTRIES_MIN), 1 << 31);
        let region = Region::anonymous(1 << 20).unwrap();
        let table = PageTable::new(&region, 0, 100, FIRST_ENTRIES_MIN).unwrap();
        assert!(table.get(99).is_some() && table.get(100).is_none());
        assert!(table.get_or_grow(PageId(100)).is_err());
    }
}
