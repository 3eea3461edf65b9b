//! The first 40 bytes of every page.
//!
//! ```text
//! offset  size  field
//!      0     4  checksum   CRC32C of bytes 4..page size; only right on disk, see `checksum.rs`
//!      4     2  layout     LayoutId; 0 for a page that was never formatted
//!      6     1  format     version of the layout, 1 so far
//!      7     1  kind       for the layout to use (b-tree: level; 0 = leaf)
//!      8     8  page_id
//!     16     8  page_lsn   start of the last record applied; 0 none
//!     24     8  owner      root page of the structure the page belongs to; 0 none
//!     32     8  version    commit LSN of the newest version; 0, kept for snapshots
//! ```
//! H1. A page says which one it is, so that a write that went elsewhere is found.
//! H2. page_lsn grows with every change; redo of a record that it covers does nothing.
//!
//! The accessors never panic, not even on a page that is too short: what lies past the end reads as 0.

use crate::{Corrupt, LayoutId, Lsn, PageId};
use ledgerstone_region::{Words, WordsMut};

/// The smallest page.
pub const PAGE_BYTES_MIN: usize = 4096;
/// The largest page: offsets in a page fit into 16 bits, its end included.
pub const PAGE_BYTES_MAX: usize = 32768;

/// Offset of the checksum.
pub const CHECKSUM: usize = 0;
/// Offset of the layout's id.
pub const LAYOUT: usize = CHECKSUM + 4;
/// Offset of the layout's version.
pub const FORMAT: usize = LAYOUT + 2;
/// Offset of the byte that the layout gives a meaning.
pub const KIND: usize = FORMAT + 1;
/// Offset of the page's own id.
pub const PAGE_ID: usize = KIND + 1;
/// Offset of the LSN of the last change.
pub const PAGE_LSN: usize = PAGE_ID + 8;
/// Offset of the owner.
pub const OWNER: usize = PAGE_LSN + 8;
/// Offset of the version.
pub const VERSION: usize = OWNER + 8;
/// Size of the header. The bytes of the layout begin here.
pub const HEADER_BYTES: usize = VERSION + 8;

const _: () = assert!(HEADER_BYTES == 40 && HEADER_BYTES.is_multiple_of(8));

/// The version that [`format()`] writes.
pub const FORMAT_NOW: u8 = 1;

/// Whether pages may have this size.
pub const fn is_page_bytes(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= PAGE_BYTES_MIN && bytes <= PAGE_BYTES_MAX
}

/// The layout of the page.
#[inline]
#[must_use]
pub fn layout(page: Words<'_>) -> LayoutId {
    LayoutId(page.u16(LAYOUT))
}

/// The version of the layout.
#[inline]
#[must_use]
pub fn format_version(page: Words<'_>) -> u8 {
    page.u8(FORMAT)
}

/// The layout's byte.
#[inline]
#[must_use]
pub fn kind(page: Words<'_>) -> u8 {
    page.u8(KIND)
}

/// The page's own id.
#[inline]
#[must_use]
pub fn page_id(page: Words<'_>) -> PageId {
    PageId(page.u64(PAGE_ID))
}

/// The LSN of the last change.
#[inline]
#[must_use]
pub fn page_lsn(page: Words<'_>) -> Lsn {
    Lsn(page.u64(PAGE_LSN))
}

/// The root page of the structure that the page belongs to.
#[inline]
#[must_use]
pub fn owner(page: Words<'_>) -> PageId {
    PageId(page.u64(OWNER))
}

/// The commit LSN of the newest version.
#[inline]
#[must_use]
pub fn version(page: Words<'_>) -> Lsn {
    Lsn(page.u64(VERSION))
}

/// Sets the LSN of the last change. Only code that applies log records does this.
#[inline]
pub fn set_page_lsn(page: &mut WordsMut<'_>, lsn: Lsn) {
    page.put_u64(PAGE_LSN, lsn.0);
}

/// Sets the layout's byte.
#[inline]
pub fn set_kind(page: &mut WordsMut<'_>, kind: u8) {
    page.put_u8(KIND, kind);
}

/// Sets the root page of the structure that the page belongs to.
#[inline]
pub fn set_owner(page: &mut WordsMut<'_>, owner: PageId) {
    page.put_u64(OWNER, owner.0);
}

/// Sets the commit LSN of the newest version.
#[inline]
pub fn set_version(page: &mut WordsMut<'_>, version: Lsn) {
    page.put_u64(VERSION, version.0);
}

/// Zeroes the page and writes a header: page_lsn 0, format 1. What was there before does not matter.
pub fn format(page: &mut WordsMut<'_>, id: PageId, layout: LayoutId, kind: u8, owner: PageId) {
    page.fill(0, page.len_bytes(), 0);
    page.put_u16(LAYOUT, layout.0);
    page.put_u8(FORMAT, FORMAT_NOW);
    page.put_u8(KIND, kind);
    page.put_u64(PAGE_ID, id.0);
    page.put_u64(OWNER, owner.0);
}

/// Checks what every layout's check begins with: a size that pages can have, this layout, a version that we read, ids
/// of 48 bits.
///
/// # Errors
/// The first thing found wrong.
pub fn check(page: Words<'_>, layout: LayoutId) -> Result<(), Corrupt> {
    let id = page_id(page);
    let wrong =
        |what, offset: usize, expected: u64, found: u64| Err(Corrupt::new(what, offset as u64, expected, found).on(id));
    if !is_page_bytes(page.len_bytes()) {
        return wrong("page size", 0, PAGE_BYTES_MIN as u64, page.len_bytes() as u64);
    }
    if self::layout(page) != layout {
        return wrong("layout", LAYOUT, layout.0 as u64, self::layout(page).0 as u64);
    }
    if format_version(page) != FORMAT_NOW {
        return wrong("layout version", FORMAT, FORMAT_NOW as u64, format_version(page) as u64);
    }
    for (what, offset, found) in [
        ("page id", PAGE_ID, id.0),
        ("page lsn", PAGE_LSN, page_lsn(page).0),
        ("owner", OWNER, owner(page).0),
        ("version", VERSION, version(page).0),
    ] {
        if found > PageId::MAX.0 {
            return wrong(what, offset, PageId::MAX.0, found);
        }
    }
    Ok(())
}

/// The header as one line.
pub fn print(page: Words<'_>) -> String {
    format!(
        "page {} {} version {} kind {} lsn {} owner {}",
        page_id(page),
        layout(page),
        format_version(page),
        kind(page),
        page_lsn(page),
        owner(page)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_region::PageBuf;

    #[test]
    fn the_header_has_the_bytes_of_its_table() {
        let mut buf = PageBuf::from_bytes(&[0xee; PAGE_BYTES_MIN]);
        let mut page = buf.words_mut();
        format(&mut page, PageId(0x0a0b_0c0d_0e0f), LayoutId(0x0102), 7, PageId(0x11));
        set_page_lsn(&mut page, Lsn(0x2122_2324_2526));
        set_version(&mut page, Lsn(0x31));
        let bytes = buf.to_bytes();
        let golden = [
            0, 0, 0, 0, 0x02, 0x01, 1, 7, // checksum, layout, format, kind
            0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0, 0, // page_id
            0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0, 0, // page_lsn
            0x11, 0, 0, 0, 0, 0, 0, 0, // owner
            0x31, 0, 0, 0, 0, 0, 0, 0, // version
        ];
        assert_eq!(bytes[..HEADER_BYTES], golden);
        assert!(bytes[HEADER_BYTES..].iter().all(|&b| b == 0));
        assert_eq!(check(buf.words(), LayoutId(0x0102)), Ok(()));
        assert_eq!(check(buf.words(), LayoutId(3)).unwrap_err().what, "layout");
    }

    #[test]
    fn a_page_that_is_too_short_reads_as_zero() {
        let buf = PageBuf::new(8);
        assert_eq!(page_lsn(buf.words()), Lsn::NONE);
        assert_eq!(check(buf.words(), LayoutId(0)).unwrap_err().what, "page size");
    }
}
