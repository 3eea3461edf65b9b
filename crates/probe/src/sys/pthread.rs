//! The C library's locks, in memory that processes share.

use crate::error::ProbeError;
use crate::sys::map::Map;

/// A mutex and a reader-writer lock in a shared mapping.
///
/// P1. `map` holds both from `new` to `drop`, initialised, at offsets 0 and 256; nobody else touches these bytes.
#[derive(Debug)]
pub(crate) struct Locks {
    map: Map,
}

impl Locks {
    pub(crate) fn new() -> Result<Locks, ProbeError> {
        let map = Map::anonymous(4096)?;
        const { assert!(size_of::<libc::pthread_mutex_t>() <= 256) };
        // SAFETY: fresh zeroed memory, large and aligned enough (page and 256); attributes are initialised before use
        // and destroyed after.
        let failed = unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            let mut failed = libc::pthread_mutexattr_init(&mut attributes);
            failed |= libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
            failed |= libc::pthread_mutex_init(map.address(0).cast(), &attributes);
            libc::pthread_mutexattr_destroy(&mut attributes);
            let mut attributes: libc::pthread_rwlockattr_t = std::mem::zeroed();
            failed |= libc::pthread_rwlockattr_init(&mut attributes);
            failed |= libc::pthread_rwlockattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
            failed |= libc::pthread_rwlock_init(map.address(256).cast(), &attributes);
            libc::pthread_rwlockattr_destroy(&mut attributes);
            failed
        };
        if failed == 0 {
            Ok(Locks { map })
        } else {
            Err(ProbeError::system("pthread_rwlock_init", std::io::Error::from_raw_os_error(failed)))
        }
    }

    /// Runs `body` holding the mutex.
    #[inline]
    pub(crate) fn with_mutex(&self, body: impl FnOnce()) {
        // SAFETY: P1; locked and unlocked by one thread.
        unsafe { libc::pthread_mutex_lock(self.map.address(0).cast()) };
        body();
        // SAFETY: P1; this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.map.address(0).cast()) };
    }

    /// Runs `body` holding the reader-writer lock shared.
    #[inline]
    pub(crate) fn with_read(&self, body: impl FnOnce()) {
        // SAFETY: P1.
        unsafe { libc::pthread_rwlock_rdlock(self.map.address(256).cast()) };
        body();
        // SAFETY: P1; this thread holds it.
        unsafe { libc::pthread_rwlock_unlock(self.map.address(256).cast()) };
    }

    /// Runs `body` holding the reader-writer lock exclusively.
    #[inline]
    pub(crate) fn with_write(&self, body: impl FnOnce()) {
        // SAFETY: P1.
        unsafe { libc::pthread_rwlock_wrlock(self.map.address(256).cast()) };
        body();
        // SAFETY: P1; this thread holds it.
        unsafe { libc::pthread_rwlock_unlock(self.map.address(256).cast()) };
    }
}
