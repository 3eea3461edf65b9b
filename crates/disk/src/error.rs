//! What can go wrong with a disk: one error, made of facts.

use std::fmt;

use crate::quoted;
use crate::sys::Errno;

/// A call on a disk or a file that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct DiskError {
    /// The file or directory, as the caller named it. On a [`crate::FileDisk`] its directory comes first.
    pub path: String,
    /// What was attempted: `open`, `read`, `write`, `sync`, ...
    pub operation: &'static str,
    /// What went wrong.
    pub kind: DiskErrorKind,
    /// Where in the file, for reads and writes.
    pub offset: Option<u64>,
}

/// Why a call on a disk failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskErrorKind {
    /// The device or the quota is full.
    NoSpace,
    /// The operating system's error number, where no other kind says it better.
    Io(i32),
    /// The file ends before the bytes asked for.
    ShortRead,
    /// There is no such file or directory.
    NotFound,
    /// A file of this name exists already.
    Exists,
    /// Not allowed: rights of the file, or a write through a handle opened for reading.
    Permission,
    /// The lock is held, in this process or another.
    Locked,
    /// The simulated machine has lost its power.
    Crashed,
    /// The file system is mounted read-only.
    ReadOnlyFs,
    /// The name belongs to a directory, a pipe or a device, not to a file.
    NotRegular,
    /// The path or the range is outside of what the disk can hold.
    OutOfRange,
    /// Refused by a [`crate::Fence`]: the environment that asks has failed or was closed.
    Closed,
    /// The disk is the program's own, and has panicked.
    Panicked,
    /// The device is mounted.
    InUse,
    /// The device holds something that is not a raw store: a file system, a partition table, or bytes that nobody
    /// knows.
    NotOurs,
    /// The device has not been formatted, or formatting was cut short.
    NotFormatted,
    /// The superblock or the table of a raw store is damaged, or the device is smaller than it was.
    Damaged,
    /// The raw store was made by a later version.
    NewerFormat,
}

impl DiskError {
    /// An error of `kind` in `operation` on `path`.
    pub fn new(path: impl Into<String>, operation: &'static str, kind: DiskErrorKind) -> DiskError {
        DiskError { path: path.into(), operation, kind, offset: None }
    }

    /// The same with the place in the file.
    pub fn at(mut self, offset: u64) -> DiskError {
        self.offset = Some(offset);
        self
    }

    /// The file system does not know such calls at all, or has no server for them.
    pub fn is_unsupported(&self) -> bool {
        let unknown = [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP];
        matches!(self.kind, DiskErrorKind::Io(number) if unknown.contains(&number))
    }

    /// The device is full: nothing is damaged, and the call may be made again when there is space.
    pub fn is_no_space(&self) -> bool {
        self.kind == DiskErrorKind::NoSpace
    }

    /// The simulated power is off.
    pub fn is_crashed(&self) -> bool {
        self.kind == DiskErrorKind::Crashed
    }

    /// True if the lock is held elsewhere.
    pub fn is_locked(&self) -> bool {
        self.kind == DiskErrorKind::Locked
    }

    /// There is no such file.
    pub fn is_not_found(&self) -> bool {
        self.kind == DiskErrorKind::NotFound
    }

    pub(crate) fn os(path: &str, operation: &'static str, errno: Errno) -> DiskError {
        let kind = match errno {
            libc::ENOSPC | libc::EDQUOT => DiskErrorKind::NoSpace,
            libc::ENOENT | libc::ENOTDIR => DiskErrorKind::NotFound,
            libc::EEXIST => DiskErrorKind::Exists,
            libc::EACCES | libc::EPERM => DiskErrorKind::Permission,
            libc::EROFS => DiskErrorKind::ReadOnlyFs,
            libc::EISDIR | libc::ENXIO => DiskErrorKind::NotRegular,
            other => DiskErrorKind::Io(other),
        };
        DiskError::new(path, operation, kind)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, quoted(&self.path))?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl DiskErrorKind {
    /// The same in the words of the standard library.
    pub fn io_kind(self) -> std::io::ErrorKind {
        use std::io::ErrorKind;
        match self {
            DiskErrorKind::NoSpace => ErrorKind::StorageFull,
            DiskErrorKind::Io(errno) => std::io::Error::from_raw_os_error(errno).kind(),
            DiskErrorKind::ShortRead => ErrorKind::UnexpectedEof,
            DiskErrorKind::NotFound => ErrorKind::NotFound,
            DiskErrorKind::Exists => ErrorKind::AlreadyExists,
            DiskErrorKind::Permission => ErrorKind::PermissionDenied,
            DiskErrorKind::Locked | DiskErrorKind::InUse => ErrorKind::ResourceBusy,
            DiskErrorKind::ReadOnlyFs => ErrorKind::ReadOnlyFilesystem,
            DiskErrorKind::NotRegular | DiskErrorKind::OutOfRange => ErrorKind::InvalidInput,
            DiskErrorKind::NotOurs | DiskErrorKind::NotFormatted | DiskErrorKind::Damaged => ErrorKind::InvalidData,
            DiskErrorKind::NewerFormat => ErrorKind::Unsupported,
            DiskErrorKind::Crashed | DiskErrorKind::Closed | DiskErrorKind::Panicked => ErrorKind::Other,
        }
    }
}

impl fmt::Display for DiskErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskErrorKind::NoSpace => f.write_str("no space left on the device"),
            DiskErrorKind::Io(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
            DiskErrorKind::ShortRead => f.write_str("the file ends before the bytes asked for"),
            DiskErrorKind::NotFound => f.write_str("no such file or directory"),
            DiskErrorKind::Exists => f.write_str("it exists already"),
            DiskErrorKind::Permission => f.write_str("permission denied"),
            DiskErrorKind::Locked => f.write_str("locked by another process or another opening"),
            DiskErrorKind::Crashed => f.write_str("the simulated power is off"),
            DiskErrorKind::ReadOnlyFs => f.write_str("the file system is read-only"),
            DiskErrorKind::NotRegular => f.write_str("it is not a regular file, but a directory, a pipe or a device"),
            DiskErrorKind::OutOfRange => f.write_str("outside of what the disk can hold"),
            DiskErrorKind::Closed => f.write_str("the environment has failed or was closed"),
            DiskErrorKind::Panicked => f.write_str("the program's own disk panicked in this call"),
            DiskErrorKind::InUse => f.write_str("the device is mounted; unmount it first"),
            DiskErrorKind::NotOurs => f.write_str(
                "the device is not empty and holds no raw store; if nothing on it is needed, overwrite it by ledgerstone \
                 init --overwrite",
            ),
            DiskErrorKind::NotFormatted => {
                f.write_str("the device has no raw store; ledgerstone init DEVICE makes one there")
            }
            DiskErrorKind::Damaged => f.write_str(
                "the raw store's superblock or table is damaged, or the device is smaller than it was; restore a backup",
            ),
            DiskErrorKind::NewerFormat => f.write_str("the raw store was made by a later version; open it with that"),
        }
    }
}
