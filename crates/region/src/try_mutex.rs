//! A mutex that is taken or not, and never slept on: taken by one exchange, given back by one store.
//!
//! The standard library's gives back by an exchange as well, since it must see who sleeps. Who waits for a mutex of
//! this file does so elsewhere ([`super::mutex`]), and a transaction takes one for each of its calls.
//!
//! M1. `is_held` goes from 0 to 1 by a compare-exchange (acquire), whose winner has the guard, and back by the guard's
//!     drop (release). So there is one guard at a time, and what one did its successor sees.
//! M2. The value is reached through the guard, or through an exclusive reference to the mutex.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// See the file's beginning.
pub(crate) struct TryMutex<T> {
    is_held: AtomicU32,
    value: Place<T>,
}

#[cfg(loom)]
type Place<T> = loom::cell::UnsafeCell<T>;
#[cfg(not(loom))]
type Place<T> = std::cell::UnsafeCell<T>;

// SAFETY: by M1 and M2 one thread at a time reaches the value, which goes from thread to thread this way.
unsafe impl<T: Send> Sync for TryMutex<T> {}

/// Holds a [`TryMutex`] until it is dropped.
pub(crate) struct TryGuard<'a, T> {
    mutex: &'a TryMutex<T>,
    /// loom's, which notices two at a time.
    #[cfg(loom)]
    value: Option<loom::cell::MutPtr<T>>,
    /// Of its thread: what is shared is the mutex.
    _here: PhantomData<*const T>,
}

impl<T> TryMutex<T> {
    /// A free mutex around `value`.
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> TryMutex<T> {
        TryMutex { is_held: AtomicU32::new(0), value: Place::new(value) }
    }

    /// The same; nothing of loom's is made at compile time.
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> TryMutex<T> {
        TryMutex { is_held: AtomicU32::new(0), value: Place::new(value) }
    }

    /// Holds it if nobody does.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<TryGuard<'_, T>> {
        // Acquire pairs with the Release of the guard before.
        self.is_held.compare_exchange(0, 1, Acquire, Relaxed).ok()?;
        Some(TryGuard {
            mutex: self,
            #[cfg(loom)]
            value: Some(self.value.get_mut()),
            _here: PhantomData,
        })
    }

    /// What it holds, without a lock: nobody else can reach it.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> TryGuard<'_, T> {
    #[cfg(not(loom))]
    #[inline]
    fn place(&self) -> *mut T {
        self.mutex.value.get()
    }

    #[cfg(loom)]
    fn place(&self) -> *mut T {
        // SAFETY: loom keeps the value where it is, and the reference ends here.
        self.value.as_ref().map_or(std::ptr::null_mut(), |value| std::ptr::from_mut(unsafe { value.deref() }))
    }
}

impl<T> Deref for TryGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: M1: this is the only guard, and it is borrowed.
        unsafe { &*self.place() }
    }
}

impl<T> DerefMut for TryGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: M1: this is the only guard, and it is borrowed for this alone.
        unsafe { &mut *self.place() }
    }
}

impl<T> Drop for TryGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.value.take()); // No look at the value after the store, as loom sees it.
        #[cfg(all(feature = "deaths", not(loom)))]
        crate::sync::deaths::spare_step();
        self.mutex.is_held.store(0, Release);
    }
}

impl<T: Default> Default for TryMutex<T> {
    fn default() -> TryMutex<T> {
        TryMutex::new(T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for TryMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("TryMutex").field(&*value).finish(),
            None => f.write_str("TryMutex(held)"),
        }
    }
}
