//! What is put off for the pages of a cache, and whether there is anything: a word for those that only look.
//!
//! O1. The word and the place change together, under the lock of the place.
//! O2. Relaxed does for a look by a thread that brings a page in, and has it latched. If something is pending for the
//!     page, nobody has said yet that there is nothing. If something was, whoever repeated it has latched the page
//!     before.
//! O3. A thread that waits until there is nothing acquires what was done before that was said.
//!
//! Modelled under loom (`loom_put_off.rs`). This file does not know what is put off.

use std::sync::Arc;

#[cfg(not(loom))]
use ledgerstone_region::RwLock;
use ledgerstone_region::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use ledgerstone_region::sync;
#[cfg(loom)]
use modelled::RwLock;

/// See the file's beginning.
pub(crate) struct PutOff<R: ?Sized> {
    /// 1 while there is something.
    is_there: AtomicU32,
    place: RwLock<Option<Arc<R>>>,
}

impl<R: ?Sized> PutOff<R> {
    pub(crate) fn nothing() -> PutOff<R> {
        PutOff { is_there: AtomicU32::new(0), place: RwLock::new(None) }
    }

    /// What there is, for a thread that has latched the page it asks for (O2).
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<R>> {
        if self.is_there.load(Relaxed) == 0 {
            return None;
        }
        self.look()
    }

    #[cold]
    fn look(&self) -> Option<Arc<R>> {
        self.place.read().clone()
    }

    pub(crate) fn set(&self, what: Arc<R>) {
        let mut place = self.place.write();
        *place = Some(what);
        self.is_there.store(1, SeqCst);
    }

    /// There is nothing any more.
    pub(crate) fn clear(&self) {
        let mut place = self.place.write();
        *place = None;
        self.is_there.store(0, SeqCst);
        drop(place);
        if !cfg!(feature = "planted-redone-unwoken") {
            sync::futex_wake(&self.is_there, u32::MAX);
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(SeqCst) != 0
    }

    /// Waits for that long at most, or until there is nothing (O3).
    pub(crate) fn wait_within(&self, ns: u64) {
        if self.is_there() {
            sync::futex_wait(&self.is_there, 1, Some(ns));
        }
    }
}

/// A lock that loom knows.
#[cfg(loom)]
mod modelled {
    use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

    pub(super) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(super) fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }

        pub(super) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap()
        }

        pub(super) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap()
        }
    }
}
