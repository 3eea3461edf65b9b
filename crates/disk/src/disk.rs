//! The two traits: names, and bytes. What they promise is at the top of the crate (D1 to D5).

use std::sync::Arc;

use crate::error::DiskError;

/// Files under names. All threads share one, and it can be a trait object.
pub trait Disk: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound` without `create`, `Exists` with `create_new`, `Permission`, `ReadOnlyFs`, `NotRegular`.
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &str) -> Result<bool, DiskError>;

    /// Takes the name of a file, or of an empty directory, away. Handles that are open go on working.
    fn remove(&self, path: &str) -> Result<(), DiskError>;

    /// Renames a file. A file that had the new name loses it in the same instant.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// The names in a directory, without the directory in front, sorted. Directories are among them.
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError>;

    /// Makes a directory and those above it. It is not an error if the directory is there. `""` makes the disk's own
    /// directory. The directories that it makes above that are durable on return.
    fn create_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Waits until the names in this directory are durable (D3).
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Locks a file, which is made if it is missing, until the result is dropped or the process ends.
    ///
    /// # Errors
    /// `Locked` at once when anybody has it, this process included. Never waits.
    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError>;

    /// Locks an existing file against [`Disk::lock`], but not against other calls of `lock_shared`. A disk that cannot
    /// do that locks it exclusively.
    ///
    /// # Errors
    /// As [`Disk::lock`].
    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.lock(path)
    }

    /// Where the disk is, for messages.
    fn describe(&self) -> String;

    /// Of a disk that keeps its names in two slots: the one that was not whole when the disk was opened. `None` for all
    /// others.
    fn damaged_slot(&self) -> Option<u64> {
        None
    }
}

/// Bytes at offsets. Reads and writes of several threads may run at the same time.
pub trait DiskFile: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `ShortRead` if the file ends before. The content of `buf` is then not defined.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes`. They are durable after the next [`DiskFile::sync`]. A write past the end makes the file
    /// longer.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes`. On return they survive the loss of power. Earlier writes elsewhere need not.
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Waits until all that was written, and the length, is durable.
    fn sync(&self) -> Result<(), DiskError>;

    /// Makes durable all bytes that reads find from now on (D6). For files that another process may have written and
    /// not synced, because its bytes in the system's cache look as if they were on the device. Also for files that are
    /// only read.
    ///
    /// # Errors
    /// As [`DiskFile::sync`]. Earlier writes may be lost then.
    fn settle(&self) -> Result<(), DiskError> {
        self.sync()
    }

    /// How many bytes the file has.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Allocates space for a range, so that writing there is not refused for lack of space. Extends the file to the end
    /// of the range.
    ///
    /// # Errors
    /// `NoSpace`. Nothing has changed that could be read.
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError>;

    /// Cuts the file off, or extends it by zeros without taking space for them.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// The name it was opened by, for messages.
    fn name(&self) -> &str;
}

/// A lock that is held until this is dropped.
pub trait DiskLock: Send + Sync {
    /// The file that is locked, for messages.
    fn name(&self) -> &str;

    /// True if its name still leads to the locked file. If another program has removed or replaced the file, the name
    /// does not keep others out.
    ///
    /// # Errors
    /// A failure of the disk.
    fn is_in_place(&self) -> Result<bool, DiskError>;
}

/// How to open a file. The default opens an existing one for reading and writing through the system's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Make the file if it is missing.
    pub create: bool,
    /// Create the file, and refuse if it exists.
    pub create_new: bool,
    /// Only for reading.
    pub read_only: bool,
    /// Bypass the operating system's cache where the file system can do that. Otherwise the cache is used, silently.
    pub direct: bool,
}

impl Open {
    /// An existing file, for reading.
    pub const READ: Open = Open { create: false, create_new: false, read_only: true, direct: false };
    /// An existing file, for reading and writing.
    pub const EXISTING: Open = Open { create: false, create_new: false, read_only: false, direct: false };
    /// A file that is made if it is missing.
    pub const CREATE: Open = Open { create: true, create_new: false, read_only: false, direct: false };
    /// A file that must not be there yet.
    pub const CREATE_NEW: Open = Open { create: false, create_new: true, read_only: false, direct: false };

    /// The same, past the system's cache.
    pub const fn direct(mut self) -> Open {
        self.direct = true;
        self
    }
}
