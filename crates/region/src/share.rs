//! Counting who uses something without a line of memory that all threads write.
//!
//! The count of an [`Arc`] lies in one place. Threads that clone and drop the `Arc` all the time take this place from
//! each other's processors, even if they only read what it points at. A [`Share`] has a place of its own for the count
//! of its clones. All of them together are one reference where the value itself is counted.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A reference to something that many threads share. Its clones are counted in a cache line of their own.
///
/// Make one for each thread, or for each number that threads have ([`crate::SlotNo`]), and let the thread clone that.
/// The value lives as long as any share of it, or any [`Arc`].
pub struct Share<T>(Arc<Place<T>>);

/// In cache lines where nothing else lies, and so is the count before it.
#[repr(align(64))]
struct Place<T>(Arc<T>);

impl<T> Share<T> {
    /// A new share of `value`, which nobody else clones yet.
    #[must_use]
    pub fn new(value: Arc<T>) -> Share<T> {
        Share(Arc::new(Place(value)))
    }

    /// The reference that all clones of this share have together.
    #[inline]
    #[must_use]
    pub fn arc(&self) -> &Arc<T> {
        &self.0.0
    }

    /// How many clones of this share there are, this one included. Other shares of the same value do not count.
    #[must_use]
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl<T> Clone for Share<T> {
    #[inline]
    fn clone(&self) -> Share<T> {
        Share(Arc::clone(&self.0))
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_share_are_counted_apart_from_the_value() {
        let value = Arc::new(7);
        let (one, other) = (Share::new(Arc::clone(&value)), Share::new(Arc::clone(&value)));
        let clones = [one.clone(), one.clone(), other.clone()];
        assert_eq!((one.count(), other.count(), Arc::strong_count(&value)), (3, 2, 3));
        assert!(clones.iter().all(|clone| **clone == 7 && Arc::ptr_eq(clone.arc(), &value)));
        drop((one, other));
        assert_eq!(Arc::strong_count(&value), 3, "the clones keep it");
        drop(clones);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_shares_have_no_cache_line_in_common() {
        let value = Arc::new(7);
        let shares: Vec<Share<i32>> = (0..64).map(|_| Share::new(Arc::clone(&value))).collect();
        // The count lies before the place, in the line that ends where the place begins.
        let mut lines: Vec<usize> = shares.iter().map(|share| Arc::as_ptr(&share.0).addr()).collect();
        assert!(lines.iter().all(|at| at % 64 == 0));
        lines.sort_unstable();
        assert!(lines.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{lines:?}");
    }
}
