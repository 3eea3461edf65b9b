//! Bytes on the heap whose first one lies on a multiple of 4096, as direct I/O wants them.
//!
//! The allocation is one alignment longer than asked for and the bytes begin inside it, which costs up to 4 KiB a
//! buffer and needs no unsafe code. The vector is never resized, so that its place is fixed.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The alignment of an [`AlignedBuf`]: enough for every device with blocks of up to 4 KiB.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Heap bytes aligned to [`ALIGNMENT_BYTES`], of fixed length.
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` bytes of zero.
    pub fn new(len: usize) -> AlignedBuf {
        let bytes = vec![0; len + ALIGNMENT_BYTES];
        let start = bytes.as_ptr().align_offset(ALIGNMENT_BYTES);
        assert!(start < ALIGNMENT_BYTES, "no aligned place in {} bytes", bytes.len());
        AlignedBuf { bytes, start, len }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        AlignedBuf::from_slice(self)
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_aligned_and_zero() {
        for len in [0, 1, 511, 4096, 10_000] {
            let buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            assert!(buf.iter().all(|b| *b == 0));
        }
        let copy = AlignedBuf::from_slice(b"abc").clone();
        assert_eq!(&copy[..], b"abc");
    }
}
