//! A page as an operation gets it.

use ledgerstone_page::{HEADER_BYTES, LayoutId, Lsn, PageId, header};
use ledgerstone_region::{Words, WordsMut};

/// A page that is latched exclusively, for an operation to change.
///
/// An operation changes the bytes behind the header freely. In the header it sets only the fields of the layout: kind,
/// owner and version. The checksum, the id and the page LSN belong to the engine. A `put` there is a bug and panics.
pub struct PageMut<'a> {
    id: PageId,
    words: WordsMut<'a>,
}

impl<'a> PageMut<'a> {
    /// The caller applies a log record: in normal work, in a rollback, or in redo. Nothing else changes pages.
    #[inline]
    #[must_use]
    pub const fn new(id: PageId, words: WordsMut<'a>) -> Self {
        PageMut { id, words }
    }

    /// The page's id. A page that is about to be formatted does not yet contain it.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> PageId {
        self.id
    }

    /// For reading.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> Words<'_> {
        self.words.as_words()
    }

    /// Size of the page in bytes.
    #[inline]
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.words.len_bytes()
    }

    /// The words themselves, for functions of a layout such as those of `slotted`. They must not change the header.
    #[inline]
    pub const fn words_mut(&mut self) -> &mut WordsMut<'a> {
        &mut self.words
    }

    /// Fails if a change would begin in the header.
    #[inline(always)]
    fn assert_behind_header(&self, off: usize) {
        assert!(off >= HEADER_BYTES, "an operation changes byte {off} of the header of page {}", self.id);
    }

    /// Puts `bytes` at `off`.
    ///
    /// # Panics
    /// If they are not behind the header and inside the page. The same holds for all functions below.
    #[inline]
    pub fn put(&mut self, off: usize, bytes: &[u8]) {
        self.assert_behind_header(off);
        self.words.put(off, bytes);
    }

    /// Puts one byte.
    #[inline]
    pub fn put_u8(&mut self, off: usize, value: u8) {
        self.assert_behind_header(off);
        self.words.put_u8(off, value);
    }

    /// Puts two bytes.
    #[inline]
    pub fn put_u16(&mut self, off: usize, value: u16) {
        self.assert_behind_header(off);
        self.words.put_u16(off, value);
    }

    /// Puts four bytes.
    #[inline]
    pub fn put_u32(&mut self, off: usize, value: u32) {
        self.assert_behind_header(off);
        self.words.put_u32(off, value);
    }

    /// Puts eight bytes.
    #[inline]
    pub fn put_u64(&mut self, off: usize, value: u64) {
        self.assert_behind_header(off);
        self.words.put_u64(off, value);
    }

    /// Puts the low `count` bytes of `value`, fewer than eight.
    #[inline]
    pub fn put_short(&mut self, off: usize, count: usize, value: u64) {
        self.assert_behind_header(off);
        self.words.put_low(off, count, value);
    }

    /// Moves the `len` bytes at `from` to `to`. The two places may overlap.
    #[inline]
    pub fn shift(&mut self, from: usize, to: usize, len: usize) {
        self.assert_behind_header(to);
        self.words.shift(from, to, len);
    }

    /// Makes `len` bytes at `off` equal to `byte`.
    #[inline]
    pub fn fill(&mut self, off: usize, len: usize, byte: u8) {
        self.assert_behind_header(off);
        self.words.fill(off, len, byte);
    }

    /// Zeroes the page and writes a header with its id. An operation that begins with this says so in
    /// [`formats`](crate::Operation::formats).
    pub fn format(&mut self, layout: LayoutId, kind: u8, owner: PageId) {
        header::format(&mut self.words, self.id, layout, kind, owner);
    }

    /// Sets the byte of the header that belongs to the layout.
    #[inline]
    pub fn set_kind(&mut self, kind: u8) {
        header::set_kind(&mut self.words, kind);
    }

    /// Sets the root page of the structure that the page belongs to.
    #[inline]
    pub fn set_owner(&mut self, owner: PageId) {
        header::set_owner(&mut self.words, owner);
    }

    /// Sets the commit LSN of the newest version.
    #[inline]
    pub fn set_version(&mut self, version: Lsn) {
        header::set_version(&mut self.words, version);
    }
}

impl std::fmt::Debug for PageMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageMut({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_region::PageBuf;

    #[test]
    #[should_panic(expected = "changes byte 16 of the header of page 5")]
    fn an_operation_cannot_forge_a_page_lsn() {
        let mut buf = PageBuf::new(4096);
        PageMut::new(PageId(5), buf.words_mut()).put_u64(header::PAGE_LSN, 1);
    }

    #[test]
    fn a_formatted_page_knows_its_id() {
        let mut buf = PageBuf::new(4096);
        let mut page = PageMut::new(PageId(5), buf.words_mut());
        page.format(LayoutId::RAW, 3, PageId(2));
        page.put(40, &[1]);
        page.set_kind(4);
        assert_eq!(header::page_id(buf.words()), PageId(5));
        assert_eq!((header::kind(buf.words()), header::owner(buf.words())), (4, PageId(2)));
    }
}
