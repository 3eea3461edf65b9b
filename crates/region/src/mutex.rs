//! The standard library's mutex and reader-writer lock without poison: a thread that panics while it holds one lets go
//! of it.
//!
//! What a panic leaves half done is dealt with where it matters, by failing the environment. A second failure, in the
//! next thread that looks at a list, would only hide the first.
//!
//! [`Mutex`] and [`RwLock`] are for a few instructions. No thread waits for anything else while it holds one (Y2 in
//! `sync`), so they are not simulated.

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
pub use timed::TimedGuard;
#[cfg(any(not(loom), test))]
pub use timed::{TimedMutex, Waiter};

/// A mutex that loom knows, for the models of the one below.
#[cfg(all(loom, test))]
mod modelled {
    use loom::sync::MutexGuard;

    #[derive(Debug, Default)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[cfg(any(not(loom), test))]
mod timed {
    use std::collections::VecDeque;
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;

    #[cfg(not(loom))]
    use super::Mutex;
    #[cfg(loom)]
    use super::modelled::Mutex;
    use crate::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
    use crate::sync::{futex_wait, futex_wake, now_ns, spin};
    use crate::try_mutex::{TryGuard, TryMutex};

    /// So often a newcomer may take the mutex before those that wait, between two of them. The rustdoc of
    /// [`TimedMutex`] says it, too.
    const PASSED_MAX: u32 = 8;

    /// A mutex that can be waited for as long as one likes. Held for a call, it is waited for through `sync`.
    ///
    /// A thread that comes while it is free takes it, even before those that wait and are waking up. That is the
    /// fastest way, as long as the same thread is not passed every time. So after eight times it is the turn of the
    /// thread that has waited longest.
    ///
    /// A thread that lets go of it wakes a waiter only if it sees one. It looks without a fence, which would cost every
    /// call. The processor may let the look pass the unlocking, by some nanoseconds: so a waiter looks a while before
    /// it sleeps. If it should sleep all the same, it does so until its time is over, and then finds the mutex free.
    #[derive(Debug, Default)]
    pub struct TimedMutex<T> {
        mutex: TryMutex<T>,
        /// How many are in the line.
        waiter_count: AtomicU32,
        /// How often somebody was faster since one of the line had it. Changes by the holder of the mutex only.
        passed: AtomicU32,
        /// Who waits, the first to come first. Each sleeps on a word of its own.
        line: Mutex<VecDeque<Arc<AtomicU32>>>,
    }

    /// Holds a [`TimedMutex`] until it is dropped.
    pub struct TimedGuard<'a, T> {
        value: TryGuard<'a, T>,
        // Dropped after the guard above: wakes a waiter.
        _release: Release<'a, T>,
    }

    /// A place in the line for a [`TimedMutex`], until it is dropped.
    #[derive(Debug)]
    pub struct Waiter<'a, T> {
        mutex: &'a TimedMutex<T>,
        /// Changes whenever this is the first of the line and may look again.
        turn: Arc<AtomicU32>,
    }

    /// The look that may pass the unlocking costs a waiter some time, and a model has none: there, it does not.
    #[inline]
    fn modelled_fence() {
        #[cfg(loom)]
        crate::atomic::fence(SeqCst);
    }

    #[derive(Debug)]
    struct Release<'a, T>(&'a TimedMutex<T>);

    impl<T> TimedMutex<T> {
        /// A free mutex around `value`.
        #[cfg(not(loom))]
        pub const fn new(value: T) -> TimedMutex<T> {
            TimedMutex {
                mutex: TryMutex::new(value),
                waiter_count: AtomicU32::new(0),
                passed: AtomicU32::new(0),
                line: Mutex::new(VecDeque::new()),
            }
        }

        /// The same; nothing of loom's is made at compile time.
        #[cfg(loom)]
        pub fn new(value: T) -> TimedMutex<T> {
            let (waiter_count, passed) = (AtomicU32::new(0), AtomicU32::new(0));
            TimedMutex { mutex: TryMutex::new(value), waiter_count, passed, line: Mutex::new(VecDeque::new()) }
        }

        /// What it holds, without a lock: nobody else can reach it.
        #[cfg(not(loom))]
        #[inline]
        pub fn get_mut(&mut self) -> &mut T {
            self.mutex.get_mut()
        }

        /// Holds it if nobody does, and it is not the turn of a waiter.
        #[inline]
        pub fn try_lock(&self) -> Option<TimedGuard<'_, T>> {
            // Relaxed: a thread that has just come may be passed once more.
            if self.waiter_count.load(Relaxed) > 0 {
                return self.try_pass();
            }
            self.take()
        }

        #[cold]
        #[inline(never)]
        fn try_pass(&self) -> Option<TimedGuard<'_, T>> {
            let guard = self.take()?;
            // Relaxed: read and written under the mutex.
            let passed = self.passed.load(Relaxed);
            if passed >= PASSED_MAX {
                return None; // Wakes the first of the line.
            }
            self.passed.store(passed + 1, Relaxed);
            Some(guard)
        }

        #[inline]
        fn take(&self) -> Option<TimedGuard<'_, T>> {
            self.mutex.try_lock().map(|value| TimedGuard { value, _release: Release(self) })
        }

        /// Joins the line. What is returned keeps the place, so that one can wait in steps.
        pub fn wait_in_line(&self) -> Waiter<'_, T> {
            let turn = Arc::new(AtomicU32::new(0));
            self.line.lock().push_back(Arc::clone(&turn));
            self.waiter_count.fetch_add(1, SeqCst);
            modelled_fence();
            Waiter { mutex: self, turn }
        }

        #[cold]
        #[inline(never)]
        fn wake_first(&self) {
            let first = self.line.lock().front().map(Arc::clone);
            if let Some(turn) = first {
                turn.fetch_add(1, SeqCst);
                futex_wake(&turn, 1);
            }
        }
    }

    impl<'a, T> Waiter<'a, T> {
        /// Waits until the mutex can be held, but no longer than `timeout_ns`.
        pub fn try_lock_for(&self, timeout_ns: u64) -> Option<TimedGuard<'a, T>> {
            let end = now_ns().saturating_add(timeout_ns);
            let mut round = 0;
            loop {
                let turn = self.turn.load(SeqCst); // Before we look: a release in between changes it.
                let is_first = self.mutex.line.lock().front().is_some_and(|first| Arc::ptr_eq(first, &self.turn));
                if is_first && let Some(guard) = self.mutex.take() {
                    self.mutex.passed.store(0, Relaxed);
                    return Some(guard);
                }
                let left = end.saturating_sub(now_ns());
                if left == 0 {
                    return None;
                }
                if is_first && spin(round) {
                    round += 1; // A look more: whoever has just let go may not have seen us.
                    continue;
                }
                futex_wait(&self.turn, turn, Some(left));
            }
        }
    }

    impl<T> Drop for Waiter<'_, T> {
        fn drop(&mut self) {
            #[cfg(all(feature = "deaths", not(loom)))]
            crate::sync::deaths::spare_step();
            self.mutex.waiter_count.fetch_sub(1, Relaxed);
            let mut line = self.mutex.line.lock();
            let was_first = line.front().is_some_and(|first| Arc::ptr_eq(first, &self.turn));
            line.retain(|waiter| !Arc::ptr_eq(waiter, &self.turn));
            drop(line);
            if was_first {
                // A release may have woken us in vain.
                self.mutex.wake_first();
            }
        }
    }

    impl<T> Drop for Release<'_, T> {
        #[inline]
        fn drop(&mut self) {
            modelled_fence();
            if self.0.waiter_count.load(Relaxed) > 0 {
                self.0.wake_first();
            }
        }
    }

    impl<T: std::fmt::Debug> std::fmt::Debug for TimedGuard<'_, T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_tuple("TimedGuard").field(&**self).finish()
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
                            if let Some(held) = count.wait_in_line().try_lock_for(20_000_000) {
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
            assert!(scope.spawn(|| mutex.wait_in_line().try_lock_for(1_000_000).is_none()).join().unwrap());
            // As long as that wait may last, its end is the end of the holder.
            let ((said, heard), mutex) = (mpsc::channel(), &mutex);
            let waiter = scope.spawn(move || {
                said.send(()).unwrap();
                mutex.wait_in_line().try_lock_for(60_000_000_000).map(|held| *held)
            });
            heard.recv().unwrap();
            drop(held);
            assert_eq!(waiter.join().unwrap(), Some(1));
        });
    }
    #[test]
    fn who_waits_for_a_timed_mutex_is_passed_a_bounded_number_of_times() {
        let mutex = TimedMutex::new(0);
        // A newcomer, as a thread is that takes it in a loop.
        let take_often = || (0..1000).take_while(|_| mutex.try_lock().is_some()).count();
        assert_eq!(take_often(), 1000, "nobody waits");
        let first = mutex.wait_in_line();
        assert_eq!(take_often(), 8);
        let second = mutex.wait_in_line();
        assert!(second.try_lock_for(0).is_none(), "the first is before it");
        drop(first.try_lock_for(0).expect("its turn"));
        drop(first);
        assert_eq!(take_often(), 8);
        let third = mutex.wait_in_line();
        drop(second); // Gives up.
        assert_eq!(take_often(), 0);
        drop(third.try_lock_for(0).expect("its turn"));
        drop(third);
        assert_eq!(take_often(), 1000);
    }

    /// A thread loops on the mutex and never sleeps by itself; the one that waits gets it all the same, and every time.
    #[test]
    fn a_thread_in_a_loop_does_not_keep_a_waiter_off() {
        let (mutex, is_over) = (TimedMutex::new(0u32), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let held = mutex.try_lock().or_else(|| mutex.wait_in_line().try_lock_for(60_000_000_000));
                    *held.expect("in turn") += 1;
                }
            });
            for _ in 0..1000 {
                *mutex.wait_in_line().try_lock_for(60_000_000_000).expect("in turn") += 1;
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
