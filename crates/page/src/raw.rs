//! Raw page: bytes to use as one likes, behind the header.
//!
//! ```text
//! offset  size  field
//!      0    40  page header, see `header.rs`
//!     40     :  whatever the owner puts there
//! ```
//! There is nothing to check but the header.

use crate::{Corrupt, HEADER_BYTES, Layout, LayoutId, PageId, header};
use ledgerstone_region::{Words, WordsMut};

/// Where the owner's bytes begin.
pub const DATA_START: usize = HEADER_BYTES;

/// How many bytes the owner has in a page of this size.
pub const fn data_bytes(page_bytes: usize) -> usize {
    page_bytes.saturating_sub(DATA_START)
}

/// Makes the page a raw one, with zeroes behind the header.
pub fn format(page: &mut WordsMut<'_>, id: PageId, kind: u8, owner: PageId) {
    header::format(page, id, LayoutId::RAW, kind, owner);
}

/// The layout.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Layout for Raw {
    fn id(&self) -> LayoutId {
        LayoutId::RAW
    }

    fn name(&self) -> &'static str {
        "raw"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LayoutId::RAW)
    }

    fn print(&self, page: Words<'_>) -> String {
        print(page)
    }
}

/// The header, and the bytes that are not all zero, 16 a line.
pub fn print(page: Words<'_>) -> String {
    let mut text = header::print(page);
    for at in (DATA_START..page.len_bytes()).step_by(16) {
        let line = page.to_vec(at, 16);
        if line.iter().any(|&byte| byte != 0) {
            text.push_str(&format!("\n{at:5} "));
            for byte in line {
                text.push_str(&format!(" {byte:02x}"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_region::PageBuf;

    #[test]
    fn only_lines_with_something_in_them_are_printed() {
        let mut buf = PageBuf::new(4096);
        format(&mut buf.words_mut(), PageId(3), 0, PageId::NONE);
        buf.words_mut().put(56, &[1, 2, 0xab]);
        assert_eq!(Raw.check(buf.words()), Ok(()));
        let text = Raw.print(buf.words());
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("   56  01 02 ab 00"), "{text}");
    }
}
