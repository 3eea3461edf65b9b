//! Checksums: sealed when a page goes out, verified when it comes in.

use crate::header::{LAYOUT_AT, PAGE_ID_AT};
use crate::{Corrupt, PageId};

/// Writes the checksum into a page that is about to go out.
///
/// # Panics
/// If `page` is shorter than a header: our own bug.
pub fn seal(page: &mut [u8]) {
    let sum = crc32c::crc32c(&page[LAYOUT_AT..]);
    page[..LAYOUT_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Checks that `page` is whole and is page `id`.
///
/// # Errors
/// Wrong checksum, another page's id, or a page that was never written ([`Corrupt::is_never_written`]).
pub fn verify(page: &[u8], id: PageId) -> Result<(), Corrupt> {
    if page.len() < crate::HEADER_BYTES {
        return Err(Corrupt::new("page is shorter than its header", 0, crate::HEADER_BYTES as u64, page.len() as u64).on(id));
    }
    let found = u32::from_le_bytes([page[0], page[1], page[2], page[3]]);
    let sum = crc32c::crc32c(&page[LAYOUT_AT..]);
    if found != sum {
        if page.iter().all(|&b| b == 0) {
            return Err(Corrupt::new(Corrupt::NEVER_WRITTEN, 0, 1, 0).on(id));
        }
        return Err(Corrupt::new("wrong checksum", 0, u64::from(sum), u64::from(found)).on(id));
    }
    let own = u64::from_le_bytes(std::array::from_fn(|i| page[PAGE_ID_AT + i]));
    if own != id.0 {
        return Err(Corrupt::new("another page's bytes", PAGE_ID_AT, id.0, own).on(id));
    }
    Ok(())
}
