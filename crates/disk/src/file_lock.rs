//! Locks on files, as `flock` gives them: one belongs to what `open` returned, not to the process.
//!
//! A record lock (`fcntl`) would be lost as soon as the program closes any other descriptor of that file, which a
//! program that copies its own directory does. Two locks of one process keep each other out here as those of two
//! processes do.
//!
//! The lock is its taker's: the children of a fork have no part in it (`held.rs`), and the parent gives it back
//! whatever copies there are.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::DiskLock;
use crate::error::{DiskError, DiskErrorKind};
use crate::file::check_regular;
use crate::held::at_work;

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
    let (access, operation) = match kind {
        Kind::Exclusive => (OFlags::RDWR | OFlags::CREATE, FlockOperation::NonBlockingLockExclusive),
        Kind::Shared => (OFlags::RDONLY, FlockOperation::NonBlockingLockShared),
    };
    // Opening a pipe does not wait; regular files do not know it.
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let work = at_work();
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)).map_err(|e| DiskError::os(name, "lock", e))?;
    let file = File::from(fd);
    check_regular(&file, name, "lock")?;
    let there = file.metadata().map_err(|e| {
        DiskError::new(name, "lock", DiskErrorKind::Io(e.raw_os_error().unwrap_or(Errno::IO.raw_os_error())))
    })?;
    match rustix::fs::flock(&file, operation) {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS) => return Err(DiskError::new(name, "lock", DiskErrorKind::Locked)),
        Err(other) => return Err(DiskError::os(name, "lock", other)),
    }
    let (id, process, number) = ((there.dev(), there.ino()), std::process::id(), work.keep(file));
    Ok(Box::new(FileLock { name: name.to_owned(), path: path.to_owned(), id, process, number }))
}

impl DiskLock for FileLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_in_place(&self) -> Result<bool, DiskError> {
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == self.id),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(DiskError::os(&self.name, "look up", Errno::from_io_error(&error).unwrap_or(Errno::IO))),
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
            let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingUnlock);
        }
    }
}
