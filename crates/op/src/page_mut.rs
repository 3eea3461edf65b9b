//! The page as an operation sees it while it is applied.

use ledgerstone_page::{LayoutId, PageId, header};
use ledgerstone_region::{Words, WordsMut};

/// A latched page that may be changed. Everything goes by [`WordsMut`]; nobody ever holds its bytes as a slice.
pub struct PageMut<'a> {
    id: PageId,
    words: WordsMut<'a>,
}

impl<'a> PageMut<'a> {
    /// A page from its words.
    #[inline]
    #[must_use]
    pub fn new(id: PageId, words: WordsMut<'a>) -> PageMut<'a> {
        PageMut { id, words }
    }

    /// Its id.
    #[inline]
    #[must_use]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its size in bytes.
    #[inline]
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.words.as_words().len_bytes()
    }

    /// Its bytes, to read.
    #[inline]
    #[must_use]
    pub fn words(&self) -> Words<'_> {
        self.words.as_words()
    }

    /// Writes bytes.
    #[inline]
    pub fn put(&mut self, off: usize, bytes: &[u8]) {
        self.words.put(off, bytes);
    }

    /// Writes one byte.
    #[inline]
    pub fn put_u8(&mut self, off: usize, value: u8) {
        self.words.put_u8(off, value);
    }

    /// Writes two bytes.
    #[inline]
    pub fn put_u16(&mut self, off: usize, value: u16) {
        self.words.put_u16(off, value);
    }

    /// Writes four bytes.
    #[inline]
    pub fn put_u32(&mut self, off: usize, value: u32) {
        self.words.put_u32(off, value);
    }

    /// Writes eight bytes.
    #[inline]
    pub fn put_u64(&mut self, off: usize, value: u64) {
        self.words.put_u64(off, value);
    }

    /// Moves `len` bytes; the places may overlap.
    #[inline]
    pub fn shift(&mut self, from: usize, to: usize, len: usize) {
        self.words.shift(from, to, len);
    }

    /// Fills `len` bytes with one value.
    #[inline]
    pub fn fill(&mut self, off: usize, len: usize, byte: u8) {
        self.words.fill(off, len, byte);
    }

    /// Zeroes the page and writes a header with layout, kind and owner.
    pub fn format(&mut self, layout: LayoutId, kind: u8, owner: PageId) {
        header::format(&mut self.words, self.id, layout, kind, owner);
    }
}
