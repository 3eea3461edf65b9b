//! Locks on files: a POSIX record lock between processes, a table within one.
//!
//! A record lock belongs to the process, so a second opening in the same process would get it again; and the kernel
//! drops it when *any* descriptor of that file is closed. The table is therefore asked first, by device and inode,
//! before the file is opened at all.
//!
//! A child of a fork inherits the table and none of the locks. A thread that was just using the table does not come along and
//! never unlocks it, so the child takes another one.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::DiskLock;
use crate::error::{DiskError, DiskErrorKind};
use crate::file::check_regular;

type FileId = (u64, u64);

/// Whom a lock keeps out. Within the process it keeps everybody out, since its two locks would be one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everybody.
    Exclusive,
    /// Those who want it exclusively. The file is only read, and must be there.
    Shared,
}

/// A process uses one of them; its children use the next one, and so on in a circle.
static HELD: [Mutex<Held>; 16] = [const { Mutex::new(Held { process: 0, files: BTreeSet::new() }) }; 16];
/// The process, and which table it uses: 32 bits each.
static USED: AtomicU64 = AtomicU64::new(0);

/// The locks of one process.
struct Held {
    process: u32,
    files: BTreeSet<FileId>,
}

fn held() -> MutexGuard<'static, Held> {
    let process = std::process::id();
    let is_ours = |used: u64| (used >> 32) as u32 == process;
    let next = |used: u64| (u64::from(process) << 32) | ((used + 1) % HELD.len() as u64);
    // Relaxed: it says only which mutex to lock.
    let used = USED.load(Relaxed);
    let used = match is_ours(used) {
        true => used,
        false => USED.compare_exchange(used, next(used), Relaxed, Relaxed).map_or_else(|other| other, next),
    };
    let table = (used & u64::from(u32::MAX)) as usize % HELD.len();
    let mut held = HELD[table].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if held.process != process {
        held.process = process;
        held.files.clear();
    }
    held
}

/// A held lock. The descriptor is closed, and with it the lock given back, when this is dropped.
struct FileLock {
    name: String,
    path: PathBuf,
    id: FileId,
    /// Who holds it. Its children have the descriptor, and not the lock.
    process: u32,
    file: Option<File>,
}

pub(crate) fn lock(path: &Path, name: &str, kind: Kind) -> Result<Box<dyn DiskLock>, DiskError> {
    let refused = || DiskError::new(name, "lock", DiskErrorKind::Locked);
    let mut held = held();
    if let Ok(there) = std::fs::metadata(path)
        && held.files.contains(&(there.dev(), there.ino()))
    {
        return Err(refused());
    }
    let (access, operation) = match kind {
        Kind::Exclusive => (OFlags::RDWR | OFlags::CREATE, FlockOperation::NonBlockingLockExclusive),
        Kind::Shared => (OFlags::RDONLY, FlockOperation::NonBlockingLockShared),
    };
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK; // Opening a pipe does not wait; regular files do not know it.
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)).map_err(|e| DiskError::os(name, "lock", e))?;
    let file = File::from(fd);
    check_regular(&file, name, "lock")?;
    let there = file.metadata().map_err(|e| {
        DiskError::new(name, "lock", DiskErrorKind::Io(e.raw_os_error().unwrap_or(Errno::IO.raw_os_error())))
    })?;
    let id = (there.dev(), there.ino());
    if held.files.contains(&id) {
        // The name was moved onto a locked file since we looked. Closing would give that lock back: leak instead.
        std::mem::forget(file);
        return Err(refused());
    }
    match rustix::fs::fcntl_lock(&file, operation) {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS) => return Err(refused()),
        Err(other) => return Err(DiskError::os(name, "lock", other)),
    }
    held.files.insert(id);
    let (name, path) = (name.to_owned(), path.to_owned());
    Ok(Box::new(FileLock { name, path, id, process: held.process, file: Some(file) }))
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
        if self.process != std::process::id() {
            // To close it would give back the lock that this process may have taken since on the same file.
            std::mem::forget(self.file.take());
            return;
        }
        let mut held = held();
        self.file = None;
        held.files.remove(&self.id);
    }
}
