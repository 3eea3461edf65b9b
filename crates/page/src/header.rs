//! The header that every page begins with.
//!
//! ```text
//! offset size field
//!   0     4   checksum   CRC32C of bytes 4..page size, set when the page goes out
//!   4     2   layout     LayoutId
//!   6     1   format     version of the layout
//!   7     1   kind       for the layout
//!   8     8   page_id
//!  16     8   page_lsn   of the last record applied
//!  24     8   owner      root page of the structure the page belongs to, 0 none
//!  32     8   version    for snapshots: commit LSN of the newest version; 0 now
//! ```

use ledgerstone_region::{Words, WordsMut};

use crate::{LayoutId, Lsn, PageId};

/// Offset of the checksum.
pub const CHECKSUM_AT: usize = 0;
/// Offset of the layout.
pub const LAYOUT_AT: usize = CHECKSUM_AT + 4;
/// Offset of the layout's version.
pub const FORMAT_AT: usize = LAYOUT_AT + 2;
/// Offset of the kind.
pub const KIND_AT: usize = FORMAT_AT + 1;
/// Offset of the page's own id.
pub const PAGE_ID_AT: usize = KIND_AT + 1;
/// Offset of the page LSN.
pub const PAGE_LSN_AT: usize = PAGE_ID_AT + 8;
/// Offset of the owner.
pub const OWNER_AT: usize = PAGE_LSN_AT + 8;
/// Offset of the version.
pub const VERSION_AT: usize = OWNER_AT + 8;
/// Bytes of the header.
pub const HEADER_BYTES: usize = VERSION_AT + 8;

const _: () = assert!(HEADER_BYTES == 40, "the header has 40 bytes");

/// The layout of a page.
#[inline]
#[must_use]
pub fn layout(page: Words<'_>) -> LayoutId {
    LayoutId(page.u16(LAYOUT_AT))
}

/// The version of the page's layout.
#[inline]
#[must_use]
pub fn format_version(page: Words<'_>) -> u8 {
    page.u8(FORMAT_AT)
}

/// The kind, whatever that means to the layout.
#[inline]
#[must_use]
pub fn kind(page: Words<'_>) -> u8 {
    page.u8(KIND_AT)
}

/// The page's own id.
#[inline]
#[must_use]
pub fn page_id(page: Words<'_>) -> PageId {
    PageId(page.u64(PAGE_ID_AT))
}

/// LSN of the last record applied to the page.
#[inline]
#[must_use]
pub fn page_lsn(page: Words<'_>) -> Lsn {
    Lsn(page.u64(PAGE_LSN_AT))
}

/// Root page of the structure that the page belongs to.
#[inline]
#[must_use]
pub fn owner(page: Words<'_>) -> PageId {
    PageId(page.u64(OWNER_AT))
}

/// Sets the LSN of the last record applied.
#[inline]
pub fn set_page_lsn(page: &mut WordsMut<'_>, lsn: Lsn) {
    page.put_u64(PAGE_LSN_AT, lsn.0);
}

/// Zeroes the page and writes its header.
pub fn format(page: &mut WordsMut<'_>, id: PageId, layout: LayoutId, kind: u8, owner: PageId) {
    let len = page.as_words().len_bytes();
    page.fill(0, len, 0);
    page.put_u16(LAYOUT_AT, layout.0);
    page.put_u8(FORMAT_AT, 1);
    page.put_u8(KIND_AT, kind);
    page.put_u64(PAGE_ID_AT, id.0);
    page.put_u64(OWNER_AT, owner.0);
}
