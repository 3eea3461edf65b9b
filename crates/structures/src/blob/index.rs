//! Layout 6: which pages a blob has.
//!
//! ```text
//! offset  size  field
//!      0    40  page header; owner = the blob's first index page
//!     40     8  next          next index page of the blob, 0 = none
//!     48     4  extent_count
//!     52     4  zero
//!     56   8*n  extents       { first page u48, page count u16 }, in the order of the content
//! ```
//! I1. 56 + 8 * extent_count <= page size; an extent has at least one page and does not begin at page 0.
//! I2. The content is the extents' pages in order, each full but the last.

use ledgerstone_page::{Corrupt, Layout, LayoutId, PageId, header};
use ledgerstone_region::Words;

pub(super) const NEXT_AT: usize = ledgerstone_page::HEADER_BYTES;
pub(super) const COUNT_AT: usize = NEXT_AT + 8;
pub(super) const EXTENTS_AT: usize = COUNT_AT + 8;
pub(super) const EXTENT_BYTES: usize = 8;

/// Pages in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first.
    pub first: PageId,
    /// How many.
    pub count: u16,
}

impl Extent {
    pub(super) fn word(self) -> u64 {
        self.first.0 | u64::from(self.count) << 48
    }

    fn from_word(word: u64) -> Extent {
        Extent { first: PageId(word & PageId::MAX.0), count: (word >> 48) as u16 }
    }
}

/// Extents that fit into one index page.
pub(super) fn extent_count_max(page_bytes: usize) -> usize {
    (page_bytes - EXTENTS_AT) / EXTENT_BYTES
}

/// How many extents there are, cut to the page.
pub(super) fn extent_count(words: Words<'_>) -> usize {
    (words.u32(COUNT_AT) as usize).min(extent_count_max(words.len_bytes().max(EXTENTS_AT)))
}

/// One of them.
pub(super) fn extent(words: Words<'_>, no: usize) -> Extent {
    Extent::from_word(words.u64(EXTENTS_AT + no * EXTENT_BYTES))
}

/// The next index page, or none.
pub(super) fn next(words: Words<'_>) -> PageId {
    PageId(words.u64(NEXT_AT) & PageId::MAX.0)
}

/// The layout of index pages.
pub struct BlobIndexLayout;

impl Layout for BlobIndexLayout {
    fn id(&self) -> LayoutId {
        LayoutId::BLOB_INDEX
    }

    fn name(&self) -> &'static str {
        "blob index"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LayoutId::BLOB_INDEX)?;
        let wrong = |what, offset: usize, expected: u64, found: u64| {
            Err(Corrupt::new(what, offset as _, expected, found).on(header::page_id(page)))
        };
        let max = extent_count_max(page.len_bytes());
        let count = page.u32(COUNT_AT) as usize;
        if count > max {
            return wrong("count of extents", COUNT_AT, max as u64, count as u64);
        }
        if page.u64(NEXT_AT) > PageId::MAX.0 {
            return wrong("next index page", NEXT_AT, PageId::MAX.0, page.u64(NEXT_AT));
        }
        for no in 0..count {
            let found = extent(page, no);
            if found.count == 0 || found.first.is_none() {
                return wrong("extent", EXTENTS_AT + no * EXTENT_BYTES, 1, found.word());
            }
        }
        Ok(())
    }

    fn print(&self, page: Words<'_>) -> String {
        let extents: Vec<String> =
            (0..extent_count(page)).map(|no| extent(page, no)).map(|e| format!("{}+{}", e.first.0, e.count)).collect();
        format!("{} next {} extents {}", header::print(page), next(page).0, extents.join(" "))
    }
}
