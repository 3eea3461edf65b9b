//! The two traits: names, and bytes. What they promise is at the top of the crate (D1 to D5).

use std::sync::Arc;

use crate::error::DiskError;

/// Files under names. Object safe; shared by all threads.
pub trait Disk: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound` without `create`, `Exists` with `create_new`, `Permission`, `ReadOnlyFs`, `NotRegular`.
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &str) -> Result<bool, DiskError>;

    /// Takes the name away. Handles that are open go on working.
    fn remove(&self, path: &str) -> Result<(), DiskError>;

    /// Gives a file another name; a file that had that name loses it in the same instant.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// The names in a directory, without the directory in front, sorted. Directories are among them.
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError>;

    /// Makes a directory and those above it; it is no error if it is there. `""` makes the disk's own directory, and what it makes above that is durable on return.
    fn create_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Waits until the names in this directory are durable (D3).
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Locks a file, which is made if it is missing, until the result is dropped or the process ends.
    ///
    /// # Errors
    /// `Locked` at once when anybody has it, this process included. Never waits.
    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError>;

    /// Locks a file that is there against [`Disk::lock`], but not against others who lock it so. A disk that cannot do that
    /// locks it alone.
    ///
    /// # Errors
    /// As [`Disk::lock`].
    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.lock(path)
    }

    /// Where the disk is, for messages.
    fn describe(&self) -> String;
}

/// Bytes at offsets. Reads and writes of several threads may run at the same time.
pub trait DiskFile: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `ShortRead` when the file ends before: then what `buf` holds is not defined.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes`; they are durable after the next [`DiskFile::sync`]. A write past the end makes the file
    /// longer.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes`; on return they survive the loss of power. Says nothing of earlier writes elsewhere.
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Waits until all that was written, and the length, is durable.
    fn sync(&self) -> Result<(), DiskError>;

    /// Makes durable all that reads find from now on (D6). For files that another process may have written and not
    /// synced: what it left in the system's cache looks as if it were on the device. Also for files that are only read.
    ///
    /// # Errors
    /// As [`DiskFile::sync`]. What was written before may be lost then.
    fn settle(&self) -> Result<(), DiskError> {
        self.sync()
    }

    /// How many bytes the file has.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Takes space for a range, so that writing there is not refused for want of it; extends the length to its end.
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed that could be read.
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

    /// Whether its name still leads to the file that is locked: if somebody has removed or replaced it, the name keeps nobody out.
    ///
    /// # Errors
    /// What the disk says.
    fn is_in_place(&self) -> Result<bool, DiskError>;
}

/// How to open a file. The default opens an existing one for reading and writing through the system's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Make the file if it is missing.
    pub create: bool,
    /// Make the file; refuse if it is there.
    pub create_new: bool,
    /// Only for reading.
    pub read_only: bool,
    /// Past the operating system's cache, where the file system can do that; otherwise silently through it.
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
