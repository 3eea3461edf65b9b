//! The standard library's mutex and reader-writer lock without poison: whoever panics while he holds one lets go of it.
//!
//! What a panic leaves half done is dealt with where it matters, by failing the environment; a second failure, in whoever
//! comes next to look at a list, would only hide the first.
//!
//! [`Mutex`] and [`RwLock`] are for a few instructions. Nobody waits for anything else while he holds one (Y2 in `sync`),
//! so they are not simulated.

use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A mutex that a panic does not poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Waits until nobody holds it, and holds it until the guard is dropped.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds it if nobody does.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What it holds, without a lock: nobody else can reach it.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it holds, without a lock: nobody else can reach it.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(loom))]
pub use timed::{TimedGuard, TimedMutex};

#[cfg(not(loom))]
mod timed {
    use std::ops::{Deref, DerefMut};

    use super::*;
    use crate::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
    use crate::sync::{futex_wait, futex_wake, now_ns};

    /// A mutex that can be waited for as long as one likes. Held for a call, it is waited for through `sync`.
    ///
    /// Who lets go of it wakes a waiter only if it sees one. It looks without a fence, which would cost every call; where the
    /// processor lets the look pass the unlocking, a waiter sleeps until its time is over and then finds the mutex free.
    #[derive(Debug, Default)]
    pub struct TimedMutex<T> {
        mutex: Mutex<T>,
        waiter_count: AtomicU32,
        /// Changes at each release that wakes somebody.
        turn: AtomicU32,
    }

    /// Holds a [`TimedMutex`] until it is dropped.
    #[derive(Debug)]
    pub struct TimedGuard<'a, T> {
        value: MutexGuard<'a, T>,
        // Dropped after the guard above: wakes who waits.
        _release: Release<'a, T>,
    }

    #[derive(Debug)]
    struct Release<'a, T>(&'a TimedMutex<T>);

    impl<T> TimedMutex<T> {
        /// A free mutex around `value`.
        pub const fn new(value: T) -> TimedMutex<T> {
            TimedMutex { mutex: Mutex::new(value), waiter_count: AtomicU32::new(0), turn: AtomicU32::new(0) }
        }

        /// Holds it if nobody does.
        #[inline]
        pub fn try_lock(&self) -> Option<TimedGuard<'_, T>> {
            self.mutex.try_lock().map(|value| TimedGuard { value, _release: Release(self) })
        }

        /// Waits until it can be held, but no longer than `timeout_ns`.
        pub fn try_lock_for(&self, timeout_ns: u64) -> Option<TimedGuard<'_, T>> {
            let end = now_ns().saturating_add(timeout_ns);
            self.waiter_count.fetch_add(1, SeqCst);
            let guard = loop {
                let turn = self.turn.load(SeqCst); // Before we look: a release in between changes it.
                let guard = self.try_lock();
                let left = end.saturating_sub(now_ns());
                if guard.is_some() || left == 0 {
                    break guard;
                }
                futex_wait(&self.turn, turn, Some(left));
            };
            self.waiter_count.fetch_sub(1, Relaxed);
            guard
        }
    }

    impl<T> Drop for Release<'_, T> {
        #[inline]
        fn drop(&mut self) {
            if self.0.waiter_count.load(Relaxed) > 0 {
                self.0.turn.fetch_add(1, SeqCst);
                futex_wake(&self.0.turn, 1);
            }
        }
    }

    impl<T> Deref for TimedGuard<'_, T> {
        type Target = T;

        #[inline]
        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> DerefMut for TimedGuard<'_, T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            &mut self.value
        }
    }
}

/// A lock of many readers or one writer that a panic does not poison.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    /// Waits until no writer holds it, and holds it beside other readers until the guard is dropped.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody holds it, and holds it alone until the guard is dropped.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panic_of_a_holder_leaves_the_lock_usable() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
        std::thread::scope(|scope| {
            let (mutex, lock) = (&mutex, &lock);
            let held = move || {
                let _guards = (mutex.lock(), lock.write());
                panic!("while both are held");
            };
            assert!(scope.spawn(held).join().is_err());
        });
        *mutex.lock() += 1;
        *lock.write() += 1;
        assert_eq!((*lock.read(), mutex.into_inner()), (2, 2));
    }
    #[test]
    fn a_timed_mutex_is_given_to_one_at_a_time() {
        let count = TimedMutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut held = loop {
                            if let Some(held) = count.try_lock_for(20_000_000) {
                                break held;
                            }
                        };
                        let seen = *held;
                        std::thread::yield_now();
                        *held = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*count.try_lock().unwrap(), 8000);
    }

    #[test]
    fn a_timed_mutex_is_waited_for_no_longer_than_asked() {
        let mutex = TimedMutex::new(1);
        let held = mutex.try_lock().unwrap();
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| mutex.try_lock_for(1_000_000).is_none()).join().unwrap());
            // As long as that wait may last, its end is the end of the holder.
            let ((said, heard), mutex) = (mpsc::channel(), &mutex);
            let waiter = scope.spawn(move || {
                said.send(()).unwrap();
                mutex.try_lock_for(60_000_000_000).map(|held| *held)
            });
            heard.recv().unwrap();
            drop(held);
            assert_eq!(waiter.join().unwrap(), Some(1));
        });
    }
}
