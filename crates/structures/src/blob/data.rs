//! Layout 7: a page of a blob's content.
//!
//! ```text
//! offset  size  field
//!      0    40  page header; owner = the blob's first page
//!     40     4  length     bytes of content here
//!     44     4  more       in the first page of a blob without an index: pages that follow it, at most 7; else zero
//!     48     .  content
//! ```

use ledgerstone_page::{Corrupt, Layout, LayoutId, header};
use ledgerstone_region::Words;

pub(super) const LENGTH_AT: usize = ledgerstone_page::HEADER_BYTES;
pub(super) const MORE_AT: usize = LENGTH_AT + 4;
pub(super) const CONTENT_AT: usize = MORE_AT + 4;

/// Pages of a blob without an index: few enough for one group.
pub(super) const RUN_PAGES_MAX: usize = 8;

/// Bytes of content that a page takes.
pub(super) const fn content_bytes_max(page_bytes: usize) -> usize {
    page_bytes - CONTENT_AT
}

/// The layout of data pages.
pub struct BlobDataLayout;

impl Layout for BlobDataLayout {
    fn id(&self) -> LayoutId {
        LayoutId::BLOB_DATA
    }

    fn name(&self) -> &'static str {
        "blob data"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LayoutId::BLOB_DATA)?;
        let (max, found) = (content_bytes_max(page.len_bytes()) as u64, u64::from(page.u32(LENGTH_AT)));
        if found > max {
            return Err(Corrupt::new("length of content", LENGTH_AT as _, max, found).on(header::page_id(page)));
        }
        let (max, found) = (RUN_PAGES_MAX as u64 - 1, u64::from(page.u32(MORE_AT)));
        if found > 0 && (found > max || header::owner(page) != header::page_id(page)) {
            return Err(Corrupt::new("pages that follow", MORE_AT as _, max, found).on(header::page_id(page)));
        }
        Ok(())
    }

    fn print(&self, page: Words<'_>) -> String {
        format!("{} {} bytes more {}", header::print(page), page.u32(LENGTH_AT), page.u32(MORE_AT))
    }
}
