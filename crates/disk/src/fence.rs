//! [`Fence`]: around a disk that one instance has locked, so that none of its writes comes after the lock is given
//! back.
//!
//! ```text
//!  open ──► refuse_writes() ──► close() ──► the last call under way ends: the lock is given back
//! ```
//! N1. A call that changes anything is counted before it goes to the disk below, and until it has come back. It is
//!     counted only while the fence is open.
//! N2. The lock is given back once the fence is closed and no call is counted, and not before. So an environment that
//!     has the lock next finds all that this instance will ever write.
//! N3. A panic of the disk below is an error of the call (`panics.rs`).
//!
//! Count and flags are one word, and each change of it is one atomic operation. So either a call is counted before the
//! fence closes, or it finds the fence closed. After that the count only falls: one change alone makes it zero and
//! closed, and the thread that made that change gives the lock back.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::{DiskError, DiskErrorKind};
use crate::panics::caught;

/// Nothing is changed any more.
const WRITES_REFUSED: u32 = 1 << 31;
/// Nothing is read any more either: what is there may be another's.
const CLOSED: u32 = 1 << 30;
/// The lock has been given back.
const RELEASED: u32 = 1 << 29;
/// Calls under way that change something.
const COUNT: u32 = RELEASED - 1;

/// What stands between one instance and its disk.
#[derive(Default)]
pub struct Fence {
    word: AtomicU32,
    /// Locked for a moment, never while anything waits.
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

impl Fence {
    /// A fence around `disk`, which keeps `lock`. All that the instance does goes through the disk that this returns.
    pub fn around(disk: &Arc<dyn Disk>, lock: Box<dyn DiskLock>) -> (Arc<dyn Disk>, Arc<Fence>) {
        let fence = Arc::new(Fence { word: AtomicU32::new(0), lock: Mutex::new(Some(FencedLock::around(lock))) });
        (Arc::new(FencedDisk { below: Arc::clone(disk), fence: Arc::clone(&fence) }), fence)
    }

    /// Refuses all calls from now on that would change anything. Those that are under way go on. Reads go on, too.
    pub fn refuse_writes(&self) {
        self.word.fetch_or(WRITES_REFUSED, SeqCst);
    }

    /// Refuses all calls from now on, and gives the lock back as soon as none is under way that changes anything: at
    /// once, or when the last one ends. Does not wait for that.
    pub fn close(&self) {
        let before = self.word.fetch_or(WRITES_REFUSED | CLOSED, SeqCst);
        if before & (COUNT | CLOSED) == 0 {
            self.release();
        }
    }

    /// Whether the lock has been given back (N2).
    pub fn is_released(&self) -> bool {
        self.word.load(Acquire) & RELEASED != 0
    }

    /// How many calls are under way that change something.
    pub fn writes_in_flight(&self) -> u32 {
        self.word.load(Acquire) & COUNT
    }

    /// Calls `with` with the lock, which it may replace. The lock is not given back meanwhile. `None` if the fence
    /// refuses writes.
    pub fn with_lock<T>(&self, with: impl FnOnce(&mut Box<dyn DiskLock>) -> T) -> Option<T> {
        let _inside = self.enter()?;
        let mut lock = self.lock().take()?; // Not under the mutex: it may wait for the disk.
        let done = with(&mut lock);
        *self.lock() = Some(lock);
        Some(done)
    }

    fn enter(&self) -> Option<Inside<'_>> {
        let mut word = self.word.load(Relaxed);
        while word & WRITES_REFUSED == 0 {
            match self.word.compare_exchange_weak(word, word + 1, SeqCst, Relaxed) {
                Ok(_) => return Some(Inside(self)),
                Err(now) => word = now,
            }
        }
        None
    }

    fn changing<T>(
        &self,
        path: &str,
        operation: &'static str,
        call: impl FnOnce() -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let Some(_inside) = self.enter() else {
            return Err(DiskError::new(path, operation, DiskErrorKind::Closed));
        };
        caught(path, operation, call)
    }

    fn reading<T>(
        &self,
        path: &str,
        operation: &'static str,
        call: impl FnOnce() -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        if self.word.load(Relaxed) & CLOSED != 0 {
            return Err(DiskError::new(path, operation, DiskErrorKind::Closed));
        }
        caught(path, operation, call)
    }

    fn release(&self) {
        let lock = self.lock().take();
        let _ = caught("", "unlock", || {
            drop(lock);
            Ok(())
        });
        self.word.fetch_or(RELEASED, SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn DiskLock>>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way (N1).
struct Inside<'f>(&'f Fence);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let before = self.0.word.fetch_sub(1, SeqCst);
        if before & CLOSED != 0 && before & COUNT == 1 {
            self.0.release();
        }
    }
}

struct FencedDisk {
    below: Arc<dyn Disk>,
    fence: Arc<Fence>,
}

impl Disk for FencedDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        let open = || self.below.open(path, how);
        let below = if how.create || how.create_new {
            self.fence.changing(path, "open", open)?
        } else {
            self.fence.reading(path, "open", open)?
        };
        Ok(Arc::new(FencedFile { below, fence: Arc::clone(&self.fence) }))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.fence.reading(path, "look for", || self.below.exists(path))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.fence.changing(path, "remove", || self.below.remove(path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.fence.changing(from, "rename", || self.below.rename(from, to))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.fence.reading(dir, "list", || self.below.list(dir))
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.fence.changing(dir, "create directory", || self.below.create_dir(dir))
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.fence.changing(dir, "sync directory", || self.below.sync_dir(dir))
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.fence.changing(path, "lock", || self.below.lock(path)).map(FencedLock::around)
    }

    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.fence.changing(path, "lock", || self.below.lock_shared(path)).map(FencedLock::around)
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn damaged_slot(&self) -> Option<u64> {
        self.below.damaged_slot()
    }
}

/// N3, for a lock.
struct FencedLock(Box<dyn DiskLock>);

impl FencedLock {
    fn around(lock: Box<dyn DiskLock>) -> Box<dyn DiskLock> {
        Box::new(FencedLock(lock))
    }
}

impl DiskLock for FencedLock {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn is_in_place(&self) -> Result<bool, DiskError> {
        caught(self.0.name(), "look at the lock", || self.0.is_in_place())
    }
}

struct FencedFile {
    below: Arc<dyn DiskFile>,
    fence: Arc<Fence>,
}

impl FencedFile {
    fn changing(&self, operation: &'static str, call: impl FnOnce() -> Result<(), DiskError>) -> Result<(), DiskError> {
        self.fence.changing(self.below.name(), operation, call)
    }
}

impl DiskFile for FencedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.fence.reading(self.name(), "read", || self.below.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.changing("write", || self.below.write_at(offset, bytes))
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.changing("write", || self.below.write_durable_at(offset, bytes))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.changing("sync", || self.below.sync())
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.changing("sync", || self.below.settle())
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.fence.reading(self.name(), "length", || self.below.len())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.changing("allocate", || self.below.allocate(offset, len))
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.changing("set length", || self.below.set_len(len))
    }

    fn name(&self) -> &str {
        self.below.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    fn fenced() -> (SimDisk, Arc<dyn Disk>, Arc<Fence>) {
        let below = SimDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(below.clone());
        let lock = below.lock("lock").unwrap();
        let (disk, fence) = Fence::around(&shared, lock);
        (below, disk, fence)
    }

    fn is_locked(below: &SimDisk) -> bool {
        below.lock("lock").is_err()
    }

    #[test]
    fn after_refusal_nothing_is_written_and_after_the_close_nothing_read() {
        let (below, disk, fence) = fenced();
        let file = disk.open("file", Open::CREATE).unwrap();
        file.write_at(0, b"bytes").unwrap();
        fence.refuse_writes();
        let refused = |result: Result<(), DiskError>| assert_eq!(result.unwrap_err().kind, DiskErrorKind::Closed);
        let all_refused = || {
            refused(file.write_at(0, b"other"));
            refused(file.write_durable_at(0, b"other"));
            refused(file.sync());
            refused(file.allocate(0, 10));
            refused(file.set_len(0));
            refused(disk.remove("file"));
            refused(disk.rename("file", "other"));
            refused(disk.create_dir("dir"));
            refused(disk.sync_dir(""));
            refused(disk.open("new", Open::CREATE).map(drop));
            refused(disk.lock("other lock").map(drop));
        };
        all_refused();
        let mut bytes = [0; 5];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
        assert!(is_locked(&below) && !fence.is_released());
        fence.close();
        all_refused();
        refused(file.read_at(0, &mut bytes));
        refused(disk.open("file", Open::READ).map(drop));
        refused(disk.list("").map(drop));
        assert!(!is_locked(&below) && fence.is_released());
        assert_eq!(fence.with_lock(|_| ()), None);
    }

    #[test]
    fn the_lock_is_given_back_by_the_last_call_under_way() {
        let (below, disk, fence) = fenced();
        let file = disk.open("file", Open::CREATE).unwrap();
        let other = disk.open("other", Open::CREATE).unwrap();
        let closes_inside = Arc::clone(&fence);
        let below_at_close = below.clone();
        // The hook runs inside of the call, as other threads might.
        below.set_hook(Arc::new(move |what| {
            if what == "allocate" {
                closes_inside.close();
                assert_eq!((closes_inside.writes_in_flight(), closes_inside.is_released()), (1, false));
                assert!(is_locked(&below_at_close), "a call is under way");
                assert!(other.write_at(0, b"late").is_err());
                assert!(is_locked(&below_at_close), "one that was refused gives nothing back");
            }
        }));
        file.allocate(0, 512).unwrap();
        assert!(fence.is_released());
        assert_eq!(fence.writes_in_flight(), 0);
        assert!(!is_locked(&below));
    }

    /// A lock of the program's own.
    struct Panics;

    impl DiskLock for Panics {
        fn name(&self) -> &str {
            "lock"
        }

        fn is_in_place(&self) -> Result<bool, DiskError> {
            panic!("on purpose")
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose")
        }
    }

    #[test]
    fn a_lock_that_panics_stays_held_until_the_close() {
        let below: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (_disk, fence) = Fence::around(&below, Box::new(Panics));
        for _ in 0..2 {
            let looked = fence.with_lock(|lock| lock.is_in_place());
            assert_eq!(looked.unwrap().unwrap_err().kind, DiskErrorKind::Panicked);
        }
        fence.close();
        assert!(fence.is_released());
    }

    #[test]
    fn a_lock_is_looked_at_and_replaced_by_one_who_keeps_it_from_being_given_back() {
        let (below, _disk, fence) = fenced();
        let again = below.lock("another").unwrap();
        let looked = fence.with_lock(|lock| {
            fence.close();
            assert!(!fence.is_released());
            *lock = again;
        });
        assert_eq!(looked, Some(()));
        assert!(fence.is_released());
        assert!(!is_locked(&below) && below.lock("another").is_ok());
    }
}
