//! A counted reference whose only holder may change the value, at the price of one load.
//!
//! [`Arc::get_mut`](std::sync::Arc::get_mut) takes an exchange, because of weak references. Here there are none.
//!
//! C1. The count is the number of references. A reference is only made from one that is there. So who has the only one
//!     and lends it out exclusively keeps it the only one for so long.
//! C2. A reference is given up with release. Who finds the count at 1, or brings it to 0, acquires that: all that was
//!     done through the others is over by then.
//!
//! Modelled under loom (`loom_common.rs`).

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// So many references are a loop that forgets them.
const COUNT_MAX: u64 = u64::MAX / 2;

/// A reference that is counted, to a value in common. Who has the only one may change the value.
pub struct Common<T> {
    at: NonNull<Counted<T>>,
    /// It may drop the value.
    _value: PhantomData<Counted<T>>,
}

struct Counted<T> {
    count: AtomicU64,
    value: T,
}

// SAFETY: it gives shared references to the value in any thread, and the last one drops it there, as an `Arc` does.
unsafe impl<T: Send + Sync> Send for Common<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Common<T> {}

impl<T> Common<T> {
    /// The first reference to `value`.
    #[must_use]
    pub fn new(value: T) -> Common<T> {
        let counted = Box::leak(Box::new(Counted { count: AtomicU64::new(1), value }));
        Common { at: NonNull::from(counted), _value: PhantomData }
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: it is there while a reference is (C1), and exclusive only in `get_mut`, which borrows the only one.
        unsafe { self.at.as_ref() }
    }

    /// The value to change, if this is the only reference.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        let order = if cfg!(feature = "planted-count-unacquired") { Relaxed } else { Acquire };
        if self.counted().count.load(order) != 1 {
            return None; // C2
        }
        // SAFETY: no other reference is there, nobody makes one while this one is borrowed (C1), and what was done
        // through others is over (C2).
        Some(unsafe { &mut self.at.as_mut().value })
    }
}

impl<T> Clone for Common<T> {
    #[inline]
    fn clone(&self) -> Common<T> {
        // Relaxed: who clones has a reference, so nobody waits for the count to say so.
        if self.counted().count.fetch_add(1, Relaxed) > COUNT_MAX {
            std::process::abort();
        }
        Common { at: self.at, _value: PhantomData }
    }
}

impl<T> Deref for Common<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Drop for Common<T> {
    #[inline]
    fn drop(&mut self) {
        if self.counted().count.fetch_sub(1, Release) == 1 {
            fence(Acquire); // C2
            // SAFETY: made by `Box::leak` in `new`, and this was the last reference.
            drop(unsafe { Box::from_raw(self.at.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Common<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    struct Counts<'a>(&'a AtomicU32, u64);

    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn only_the_holder_of_the_only_reference_changes_the_value() {
        let dropped = AtomicU32::new(0);
        let mut first = Common::new(Counts(&dropped, 1));
        first.get_mut().expect("the only one").1 = 2;
        let mut second = first.clone();
        assert!(first.get_mut().is_none() && second.get_mut().is_none());
        assert_eq!((first.1, second.1), (2, 2));
        drop(first);
        second.get_mut().expect("the only one again").1 = 3;
        assert_eq!((second.1, dropped.load(Relaxed)), (3, 0));
        drop(second);
        assert_eq!(dropped.load(Relaxed), 1, "dropped once");
    }

    #[test]
    fn references_go_in_many_threads_and_the_value_with_the_last() {
        let dropped = AtomicU32::new(0);
        for _ in 0..100 {
            let value = Common::new(Counts(&dropped, 7));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let value = value.clone();
                    scope.spawn(move || assert_eq!(value.clone().1, 7));
                }
                drop(value);
            });
        }
        assert_eq!(dropped.load(Relaxed), 100);
    }
}
