//! The checksum of a page on its way to and from the disk.
//!
//! CRC32C (Castagnoli, the polynomial that processors have an instruction for) of everything behind the checksum
//! itself. In memory the four bytes mean nothing: they are written into the private copy that goes out ([`seal`]) and
//! checked in the private copy that came in ([`verify`]).

use crate::header::{CHECKSUM, LAYOUT, PAGE_ID};
use crate::{Corrupt, HEADER_BYTES, PageId};

/// The checksum that a page with these bytes must carry.
///
/// # Panics
/// If the page has fewer than four bytes.
#[inline]
pub fn of(page: &[u8]) -> u32 {
    crc32c::crc32c(&page[LAYOUT..])
}

/// Writes the checksum into the page.
///
/// # Panics
/// The page is shorter than a header. The caller is expected to know the size of its pages.
pub fn seal(page: &mut [u8]) {
    assert!(page.len() >= HEADER_BYTES, "a page of {} bytes cannot be sealed", page.len());
    let sum = of(page);
    page[CHECKSUM..LAYOUT].copy_from_slice(&sum.to_le_bytes());
}

/// Checks that the page is whole and has this id. What its layout says of the bytes is checked elsewhere.
///
/// # Errors
/// `checksum`: the page is torn or damaged. `page id`: the page is whole, but has another id, because a write or a read
/// went astray. `never written`: all bytes are zero ([`Corrupt::is_never_written`]). `page size`: it is shorter than a
/// header.
pub fn verify(page: &[u8], id: PageId) -> Result<(), Corrupt> {
    if page.len() < HEADER_BYTES {
        return Err(Corrupt::new("page size", 0, HEADER_BYTES as u64, page.len() as u64).on(id));
    }
    let stored = u32::from_le_bytes([page[0], page[1], page[2], page[3]]);
    let sum = of(page);
    if stored != sum {
        if page.iter().all(|&byte| byte == 0) {
            return Err(Corrupt::new(Corrupt::NEVER_WRITTEN, 0, sum as u64, 0).on(id));
        }
        return Err(Corrupt::new("checksum", CHECKSUM as u64, sum as u64, stored as u64).on(id));
    }
    let mut own = [0; 8];
    own.copy_from_slice(&page[PAGE_ID..PAGE_ID + 8]);
    let own = u64::from_le_bytes(own);
    if own != id.0 {
        return Err(Corrupt::new("page id", PAGE_ID as u64, id.0, own).on(id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LayoutId, header};
    use ledgerstone_region::PageBuf;

    fn sealed(id: PageId) -> Vec<u8> {
        let mut buf = PageBuf::new(4096);
        header::format(&mut buf.words_mut(), id, LayoutId::RAW, 0, PageId::NONE);
        let mut bytes = buf.to_bytes();
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn the_polynomial_is_castagnolis() {
        let mut page = vec![0; 4];
        page.extend_from_slice(b"123456789");
        assert_eq!(of(&page), 0xe306_9283); // the check value of CRC-32/ISCSI
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let bytes = sealed(PageId(7));
        assert_eq!(verify(&bytes, PageId(7)), Ok(()));
        for bit in (0..bytes.len() * 8).step_by(61) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&bad, PageId(7)).unwrap_err().what, "checksum", "bit {bit}");
        }
    }

    #[test]
    fn a_page_in_the_wrong_place_is_found() {
        let wrong = verify(&sealed(PageId(7)), PageId(8)).unwrap_err();
        assert_eq!((wrong.what, wrong.page, wrong.expected, wrong.found), ("page id", Some(PageId(8)), 8, 7));
    }

    #[test]
    fn zeroes_are_never_written_and_short_pages_are_refused() {
        assert!(verify(&[0; 4096], PageId(1)).unwrap_err().is_never_written());
        for len in 0..HEADER_BYTES {
            assert_eq!(verify(&vec![0; len], PageId(1)).unwrap_err().what, "page size");
        }
    }
}
