//! Memory for direct I/O: aligned to a page.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use crate::random::Random;

const ALIGN_BYTES: usize = 4096;

/// Zeroed bytes that begin at a page.
pub(crate) struct Aligned {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: the bytes are owned, as a `Vec`'s are.
unsafe impl Send for Aligned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Aligned {}

impl Aligned {
    pub(crate) fn new(bytes: usize) -> Aligned {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN_BYTES).expect("sizes here are far below isize::MAX");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Aligned { start, layout }
    }

    /// Filled with bytes that do not compress and are not zero.
    pub(crate) fn noise(bytes: usize) -> Aligned {
        let mut memory = Aligned::new(bytes);
        let mut random = Random::default();
        for chunk in memory.chunks_mut(8) {
            chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
        }
        memory
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` has `size` initialised bytes while `self` lives.
        unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody holds it any more.
        unsafe { dealloc(self.start, self.layout) };
    }
}
