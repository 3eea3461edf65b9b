//! Reading the bytes of a node, wherever they lie: in the cache (words that may change under the reader) or in a
//! private copy.
//!
//! Y1. No call panics, whatever the offset: what lies past the end reads as zero or is cut off. An optimistic reader
//!     sees offsets that never were.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};
use std::cmp::Ordering;

use ledgerstone_region::Words;

/// Bytes of a page that a node is read from.
pub trait Bytes: Copy {
    /// How many there are.
    fn len_bytes(&self) -> usize;
    /// Two bytes, little-endian.
    fn u16(&self, at: usize) -> u16;
    /// Eight bytes, little-endian.
    fn u64(&self, at: usize) -> u64;
    /// The eight bytes at `8 * no`, little-endian; zero if they do not all lie before the end. The fastest way to read
    /// what is aligned.
    fn word(&self, no: usize) -> u64;
    /// Those of these numbers, of which the last is the largest; all zero if that does not lie before the end.
    fn words<const N: usize>(&self, nos: [usize; N]) -> [u64; N];
    /// The first of `count` words, counted from word `no` on, whose low half is not below `head`, and the word. Without
    /// one, `count`; 0 if they do not all lie before the end. The low halves rise.
    fn first_from(&self, no: usize, count: usize, head: u32) -> (usize, Option<u64>);
    /// Compares `len` bytes at `at` with `other`, as strings are compared.
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering;
    /// Copies the bytes at `at` into `out`. Past the end they are zero.
    fn copy_to(&self, at: usize, out: &mut [u8]);
    /// Appends `len` bytes at `at` to `out`, or fewer if the page ends before.
    fn append_to(&self, at: usize, len: usize, out: &mut Vec<u8>);
}

#[inline]
fn load(word: &AtomicU64) -> u64 {
    u64::from_le(word.load(Relaxed))
}

impl Bytes for Words<'_> {
    #[inline]
    fn len_bytes(&self) -> usize {
        Words::len_bytes(self)
    }

    #[inline]
    fn u16(&self, at: usize) -> u16 {
        Words::u16(self, at)
    }

    #[inline]
    fn u64(&self, at: usize) -> u64 {
        Words::u64(self, at)
    }

    #[inline]
    fn word(&self, no: usize) -> u64 {
        self.as_atomics().get(no).map_or(0, load)
    }

    #[inline]
    fn words<const N: usize>(&self, nos: [usize; N]) -> [u64; N] {
        let words = self.as_atomics();
        // Looked at once, so that it need not be for each.
        match nos.last() {
            Some(&last) if last < words.len() => nos.map(|no| words.get(no).map_or(0, load)),
            _ => [0; N],
        }
    }

    #[inline]
    fn first_from(&self, no: usize, count: usize, head: u32) -> (usize, Option<u64>) {
        let words = self.as_atomics().get(no..no + count).unwrap_or(&[]);
        let at = words.partition_point(|word| (load(word) as u32) < head);
        (at, words.get(at).map(load))
    }

    #[inline]
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering {
        Words::compare(self, at, len, other)
    }

    #[inline]
    fn copy_to(&self, at: usize, out: &mut [u8]) {
        Words::copy_to(self, at, out);
    }

    #[inline]
    fn append_to(&self, at: usize, len: usize, out: &mut Vec<u8>) {
        Words::append_to(self, at, len, out);
    }
}

impl Bytes for &[u8] {
    #[inline]
    fn len_bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn u16(&self, at: usize) -> u16 {
        match self.get(at..at + 2) {
            Some(b) => u16::from_le_bytes([b[0], b[1]]),
            // The last byte, or past the end (Y1).
            None => self.get(at).copied().map_or(0, u16::from),
        }
    }

    #[inline]
    fn u64(&self, at: usize) -> u64 {
        match self.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
            Some(bytes) => u64::from_le_bytes(bytes),
            None => 0,
        }
    }

    #[inline]
    fn word(&self, no: usize) -> u64 {
        self.as_chunks::<8>().0.get(no).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn words<const N: usize>(&self, nos: [usize; N]) -> [u64; N] {
        let words = self.as_chunks::<8>().0;
        match nos.last() {
            Some(&last) if last < words.len() => {
                nos.map(|no| words.get(no).map_or(0, |bytes| u64::from_le_bytes(*bytes)))
            }
            _ => [0; N],
        }
    }

    #[inline]
    fn first_from(&self, no: usize, count: usize, head: u32) -> (usize, Option<u64>) {
        let words = self.as_chunks::<8>().0.get(no..no + count).unwrap_or(&[]);
        let at = words.partition_point(|bytes| (u64::from_le_bytes(*bytes) as u32) < head);
        (at, words.get(at).map(|bytes| u64::from_le_bytes(*bytes)))
    }

    #[inline]
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering {
        clamped(self, at, len).cmp(other)
    }

    #[inline]
    fn copy_to(&self, at: usize, out: &mut [u8]) {
        let have = clamped(self, at, out.len());
        let (out, past) = out.split_at_mut(have.len());
        out.copy_from_slice(have);
        past.fill(0);
    }

    #[inline]
    fn append_to(&self, at: usize, len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(clamped(self, at, len));
    }
}

/// `len` bytes at `at`, or as many as there are.
#[inline]
pub fn clamped(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    let at = at.min(bytes.len());
    let end = at.saturating_add(len).min(bytes.len());
    &bytes[at..end]
}
