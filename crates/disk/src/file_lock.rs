//! Locks on files, as `flock` gives them: one belongs to what `open` returned, not to the process.
//!
//! A record lock (`fcntl`) would be lost as soon as the program closes any other descriptor of that file, which a
//! program that copies its own directory does. Two locks of one process keep each other out here as those of two
//! processes do.
//!
//! The lock is its taker's: the children of a fork have no part in it (`held.rs`), and the parent gives it back
//! whatever copies there are.

use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::disk::DiskLock;
use crate::error::{DiskError, DiskErrorKind};
use crate::file::check_regular;
use crate::held::at_work;
use crate::sys::errno;

/// Whom a lock keeps out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everybody.
    Exclusive,
    /// Those who want it exclusively. The file is only read, and must be there.
    Shared,
}

/// A held lock.
struct FileLock {
    name: String,
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    /// Who took it.
    process: u32,
    /// Its descriptor, among those held.
    number: u64,
}

pub(crate) fn lock(path: &Path, name: &str, kind: Kind) -> Result<Box<dyn DiskLock>, DiskError> {
    let is_exclusive = kind == Kind::Exclusive;
    let failed = |error: std::io::Error| DiskError::os(name, "lock", errno(&error));
    let work = at_work();
    // Opening a pipe does not wait; regular files do not know it.
    let mut options = OpenOptions::new();
    options.read(true).write(is_exclusive).create(is_exclusive).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(failed)?;
    check_regular(&file, name, "lock")?;
    let there = file.metadata().map_err(failed)?;
    // These are `flock`, which `every_disk.rs` tests against one of another program.
    match if is_exclusive { file.try_lock() } else { file.try_lock_shared() } {
        Ok(()) => {}
        Err(refused) => return Err(why_refused(name, refused)),
    }
    let (id, process, number) = ((there.dev(), there.ino()), std::process::id(), work.keep(file));
    Ok(Box::new(FileLock { name: name.to_owned(), path: path.to_owned(), id, process, number }))
}

/// Why a lock was refused. Some network file systems answer `EACCES` if somebody else holds it. It does not mean that
/// the user may not lock the file, because the file could be opened.
fn why_refused(name: &str, refused: TryLockError) -> DiskError {
    match refused {
        TryLockError::Error(error) if errno(&error) != libc::EACCES => DiskError::os(name, "lock", errno(&error)),
        _ => DiskError::new(name, "lock", DiskErrorKind::Locked),
    }
}

impl DiskLock for FileLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_in_place(&self) -> Result<bool, DiskError> {
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == self.id),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(DiskError::os(&self.name, "look up", errno(&error))),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let work = at_work(); // Until the file is closed, below.
        let Some(file) = work.take(self.number) else { return };
        // A child that has a copy after all only closes it. Closing alone would not do for the parent, whose children
        // may have copies.
        if self.process == std::process::id() {
            let _ = file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_open_the_file_and_not_lock_it_is_told_that_it_is_locked() {
        let kind = |number| why_refused("lock", TryLockError::Error(std::io::Error::from_raw_os_error(number))).kind;
        assert_eq!(kind(libc::EACCES), DiskErrorKind::Locked);
        assert_eq!(why_refused("lock", TryLockError::WouldBlock).kind, DiskErrorKind::Locked);
        assert!(!matches!(kind(libc::ENOLCK), DiskErrorKind::Locked));
    }
}
