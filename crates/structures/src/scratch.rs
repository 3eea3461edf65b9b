//! Buffers that a thread uses again and again. A change needs two or three for its arguments and for what was there. To
//! allocate and free a buffer costs more than to fill it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Bytes of the largest that a thread keeps.
const KEPT_BYTES_MAX: usize = 4096;

thread_local! {
    /// The two that a thread keeps.
    static KEPT: [Cell<Vec<u8>>; 2] = const { [Cell::new(Vec::new()), Cell::new(Vec::new())] };
    /// The pages that a thread keeps.
    static KEPT_PAGES: [Cell<Vec<u8>>; 3] = const { [const { Cell::new(Vec::new()) }; 3] };
}

/// A vector that is empty at first, and whose memory the thread uses again when this is dropped.
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    #[inline]
    pub(crate) fn new() -> Scratch {
        let kept = KEPT.try_with(|[first, second]| {
            let buffer = first.take();
            if buffer.capacity() > 0 { buffer } else { second.take() }
        });
        Scratch(kept.unwrap_or_default()) // A thread whose locals are gone already allocates.
    }

    /// With room for so many bytes.
    #[inline]
    pub(crate) fn with_capacity(bytes: usize) -> Scratch {
        let mut scratch = Scratch::new();
        scratch.0.reserve(bytes);
        scratch
    }

    /// For a thread that keeps it.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if !(1..=KEPT_BYTES_MAX).contains(&self.0.capacity()) {
            return;
        }
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        let _ = KEPT.try_with(|[first, second]| {
            let pushed_out = first.replace(buffer);
            if pushed_out.capacity() > 0 {
                second.set(pushed_out);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// The bytes of a page, to be written before they are read: they are what the thread had in them before.
pub(crate) struct PageScratch(Vec<u8>);

impl PageScratch {
    pub(crate) fn new(page_bytes: usize) -> PageScratch {
        let kept =
            KEPT_PAGES.try_with(|kept| kept.iter().map(Cell::take).find(|page| !page.is_empty()).unwrap_or_default());
        match kept {
            Ok(page) if page.len() == page_bytes => PageScratch(page),
            _ => PageScratch(vec![0; page_bytes]),
        }
    }
}

impl Drop for PageScratch {
    fn drop(&mut self) {
        let page = std::mem::take(&mut self.0);
        let _ = KEPT_PAGES.try_with(|kept| {
            // Into the first place that has none.
            kept.iter().try_fold(page, |page, place| {
                let there = place.replace(page);
                (!there.is_empty()).then(|| place.replace(there))
            })
        });
    }
}

impl Deref for PageScratch {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for PageScratch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_and_one_of_another_size_is_made() {
        let at = PageScratch::new(4096).as_ptr();
        let (again, other) = (PageScratch::new(4096), PageScratch::new(8192));
        assert_eq!((again.as_ptr(), again.len(), other.len()), (at, 4096, 8192));
        drop((again, other));
        assert_eq!(PageScratch::new(4096).len(), 4096);
        // One taken and given back does not push the others out.
        drop([4096; 3].map(PageScratch::new));
        (0..4).for_each(|_| drop(PageScratch::new(4096)));
        let kept = KEPT_PAGES.with(|kept| kept.each_ref().map(|page| page.take().len()));
        assert_eq!(kept, [4096; 3]);
    }

    #[test]
    fn a_buffer_comes_back_empty_and_only_a_few_small_ones_are_kept() {
        let at = {
            let mut first = Scratch::with_capacity(100);
            first.extend_from_slice(b"what was there");
            first.as_ptr()
        };
        let again = Scratch::new();
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        drop(again);
        drop(Scratch::with_capacity(KEPT_BYTES_MAX + 1));
        drop([0; 5].map(|_| Scratch::with_capacity(10)));
        let kept = KEPT.with(|kept| kept.each_ref().map(|buffer| buffer.take().capacity()));
        assert!(kept.iter().all(|bytes| (1..=KEPT_BYTES_MAX).contains(bytes)), "{kept:?}");
    }
}
