//! Space maps: one bit for each page, set if it is in use.
//!
//! ```text
//! offset  size  field
//!      0    40  page header, layout 3; owner 0
//!     40     8  first_page    the page that bit 0 stands for
//!     48    16  zero
//!     64     .  bits          to the page's end; bit i is bit i % 8 of byte 64 + i / 8
//! ```
//! M1. A map page covers `bits = (page_bytes - 64) * 8` pages, those from `first_page = k * bits` on.
//! M2. It lies among them: at `k * bits`, but for the first, which is page 1, because page 0 is the file header.
//! M3. The bits of page 0 and of the maps themselves are set.

use ledgerstone_page::{Corrupt, HEADER_BYTES, Layout, LayoutId, PageId, header};
use ledgerstone_region::Words;

/// Layout of space maps.
pub const LAYOUT_SPACE_MAP: LayoutId = LayoutId(3);
pub(crate) const FIRST_PAGE_AT: usize = HEADER_BYTES;
pub(crate) const BITS_AT: usize = 64;

/// How many pages one map covers.
#[must_use]
pub fn bits_of(page_bytes: usize) -> u64 {
    (page_bytes as u64).saturating_sub(BITS_AT as u64) * 8
}

/// The map that covers `page`.
#[must_use]
pub fn map_of(page: PageId, page_bytes: usize) -> PageId {
    let bits = bits_of(page_bytes);
    let first = page.0 / bits * bits;
    PageId(if first == 0 { 1 } else { first })
}

/// The bit that stands for `page` in its map.
#[must_use]
pub fn bit_of(page: PageId, page_bytes: usize) -> u32 {
    (page.0 % bits_of(page_bytes)) as u32
}

/// True if the bit is set.
#[inline]
pub(crate) fn is_set(map: Words<'_>, bit: u32) -> bool {
    map.u8(BITS_AT + bit as usize / 8) & (1 << (bit % 8)) != 0
}

/// How many bits are set below `limit`.
pub(crate) fn count_set(map: Words<'_>, limit: u64) -> u64 {
    let whole = limit / 64;
    let mut count: u64 = (0..whole).map(|i| u64::from(map.u64(BITS_AT + i as usize * 8).count_ones())).sum();
    if !limit.is_multiple_of(64) {
        let mask = (1u64 << (limit % 64)) - 1;
        count += u64::from((map.u64(BITS_AT + whole as usize * 8) & mask).count_ones());
    }
    count
}

/// The last set bit below `limit`.
pub(crate) fn last_set(map: Words<'_>, limit: u64) -> Option<u64> {
    (0..limit.div_ceil(64)).rev().find_map(|word| {
        let left = limit - word * 64;
        let mask = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        let bits = map.u64(BITS_AT + word as usize * 8) & mask;
        (bits != 0).then(|| word * 64 + 63 - u64::from(bits.leading_zeros()))
    })
}

/// The first of `count` clear bits in a row in `from..limit`.
pub(crate) fn find_clear(map: Words<'_>, from: u32, limit: u32, count: u32) -> Option<u32> {
    let mut bit = from;
    let mut run = 0;
    // A whole word's worth of equal bits a step, since this runs under the map's exclusive latch.
    while bit < limit {
        let left = 64 - bit % 64;
        let bits = map.u64(BITS_AT + bit as usize / 64 * 8) >> (bit % 64);
        let is_set = bits & 1 != 0;
        let equal = if is_set { bits.trailing_ones() } else { bits.trailing_zeros() }.min(left).min(limit - bit);
        run = if is_set { 0 } else { run + equal };
        bit += equal;
        if run >= count {
            return Some(bit - run);
        }
    }
    None
}

/// Checks space maps.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceMapLayout;

impl Layout for SpaceMapLayout {
    fn id(&self) -> LayoutId {
        LAYOUT_SPACE_MAP
    }

    fn name(&self) -> &'static str {
        "space map"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LAYOUT_SPACE_MAP)?;
        let id = header::page_id(page);
        let bits = bits_of(page.len_bytes());
        let first = page.u64(FIRST_PAGE_AT);
        if !first.is_multiple_of(bits) || map_of(PageId(first), page.len_bytes()) != id {
            return Err(Corrupt::new("space map: first page", FIRST_PAGE_AT as u64, id.0 / bits * bits, first));
        }
        let own = bit_of(id, page.len_bytes());
        if !is_set(page, own) || (first == 0 && !is_set(page, 0)) {
            return Err(Corrupt::new("space map: its own bit", BITS_AT as u64 + u64::from(own) / 8, 1, 0));
        }
        Ok(())
    }

    fn print(&self, page: Words<'_>) -> String {
        let bits = bits_of(page.len_bytes());
        format!("pages {} on: {} of {bits} in use", page.u64(FIRST_PAGE_AT), count_set(page, bits))
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
