//! A private page on the heap, read and written by the same means as one in the region.

use crate::atomic::AtomicU64;
use crate::{Words, WordsMut};

/// A page that belongs to one owner.
pub struct PageBuf {
    words: Box<[AtomicU64]>,
}

impl PageBuf {
    /// A page of zeroes.
    ///
    /// # Panics
    /// If `bytes` is not a multiple of 8.
    pub fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(8), "a page of {bytes} bytes is not whole words");
        PageBuf { words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect() }
    }

    /// A page with these bytes. The last word is filled with zeroes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut page = PageBuf::new(bytes.len().next_multiple_of(8));
        page.words_mut().put(0, bytes);
        page
    }

    /// How many bytes there are.
    pub fn len_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// For reading.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        Words::new(&self.words)
    }

    /// For changing.
    #[inline]
    pub fn words_mut(&mut self) -> WordsMut<'_> {
        WordsMut::new(&self.words)
    }

    /// A copy of the bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words().to_vec(0, self.len_bytes())
    }

    /// Copies the bytes into `out`. If `out` is longer, the rest becomes 0.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) {
        self.words().copy_to(0, out);
    }

    #[inline]
    pub(crate) fn as_atomics(&self) -> &[AtomicU64] {
        &self.words
    }
}

impl Clone for PageBuf {
    fn clone(&self) -> Self {
        let copy = PageBuf::new(self.len_bytes());
        self.words().copy_words_to(&copy);
        copy
    }
}

impl std::fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuf({} bytes)", self.len_bytes())
    }
}
