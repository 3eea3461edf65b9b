//! [`Directory`]: a directory of the operating system, as [`crate::FileDisk`] uses it.
//!
//! A file opened `direct` has a descriptor with `O_DIRECT` when the file system takes it. Such a descriptor wants
//! offset, length and memory aligned. Memory that is not aligned goes through a bounce buffer. A range that is not
//! aligned, or that the device refuses, goes through a second, ordinary descriptor of the same file. The kernel keeps
//! the two coherent.
//!
//! Durable writes are `pwritev2` with `RWF_DSYNC`, unless [`SyncMethod`] says otherwise; a kernel or file system that
//! does not know it gets a write and an `fdatasync`. Interrupted and short calls are continued until all bytes are
//! through.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::aligned::AlignedBuf;
use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::{DiskError, DiskErrorKind};
use crate::file_lock::Kind;
use crate::sys::{self, Errno, errno, retry};

/// Offset, length and memory of direct I/O are multiples of this; devices with larger blocks answer `EINVAL`, and the
/// ordinary descriptor takes over.
const DIRECT_BYTES: u64 = 512;
/// Zeros are written in pieces of this size where `fallocate` is not known.
const ZERO_BYTES: usize = 1 << 16;

/// How a durable write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMethod {
    /// One call that returns when its bytes are durable (`RWF_DSYNC`). Other dirty bytes of the file are left alone.
    #[default]
    Dsync,
    /// A write, then `fdatasync`: all dirty bytes of the file go with it. Faster on some devices and file systems.
    Fdatasync,
}

/// A directory of the operating system, and how durable writes to its files are made durable.
#[derive(Debug)]
pub(crate) struct Directory(pub PathBuf, pub SyncMethod);

impl Directory {
    fn full(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.0.clone() } else { self.0.join(path) }
    }

    fn name(&self, path: &str) -> String {
        self.full(path).display().to_string()
    }

    fn std_error(&self, path: &str, operation: &'static str, error: &std::io::Error) -> DiskError {
        DiskError::os(&self.name(path), operation, errno(error))
    }
}

impl Disk for Directory {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        let full = self.full(path);
        let name = self.name(path);
        // NONBLOCK: to open a pipe would wait for somebody at its other end. Regular files do not know it.
        let mut flags = libc::O_NONBLOCK;
        if how.create_new {
            flags |= libc::O_CREAT | libc::O_EXCL;
        } else if how.create {
            flags |= libc::O_CREAT;
        }
        let open = |flags| {
            let mut options = OpenOptions::new();
            retry(|| options.read(true).write(!how.read_only).custom_flags(flags).open(&full))
        };
        let opened = match if how.direct { open(flags | libc::O_DIRECT) } else { Err(libc::EINVAL) } {
            Ok(file) => Ok((file, true)),
            // Refused for O_DIRECT: some kernels have made the file by then, so a second try may not be exclusive.
            Err(libc::EINVAL) if how.direct && how.create_new => match open(flags) {
                Err(libc::EEXIST) => open(flags & !libc::O_EXCL).map(|file| (file, false)),
                other => other.map(|file| (file, false)),
            },
            Err(libc::EINVAL) => open(flags).map(|file| (file, false)),
            Err(other) => Err(other),
        };
        let (file, direct) = opened.map_err(|e| DiskError::os(&name, "open", e))?;
        check_regular(&file, &name, "open")?;
        let no_dsync = AtomicBool::new(self.1 == SyncMethod::Fdatasync);
        Ok(Arc::new(OsFile { name, file, read_only: how.read_only, direct, ordinary: OnceLock::new(), no_dsync }))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.full(path).try_exists().map_err(|e| self.std_error(path, "look up", &e))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let full = self.full(path);
        let removed = match std::fs::remove_file(&full) {
            Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => std::fs::remove_dir(&full),
            removed => removed,
        };
        removed.map_err(|e| self.std_error(path, "remove", &e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        std::fs::rename(self.full(from), self.full(to)).map_err(|e| self.std_error(from, "rename", &e))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let fail = |e: std::io::Error| self.std_error(dir, "list", &e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.full(dir)).map_err(fail)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        // No `sync_dir` reaches the directories above our own: their names are made durable here, each before the next
        // one is made in it. So of what a killed process has left, the deepest name alone may not be durable yet.
        let full = self.full(dir);
        let mut missing: Vec<_> =
            full.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect();
        if let Some(there) = full.ancestors().nth(missing.len()).filter(|at| !at.as_os_str().is_empty()) {
            sync_name_of(there)?;
        }
        while let Some(made) = missing.pop() {
            match std::fs::create_dir(made) {
                // Somebody else was quicker.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && made.is_dir() => {}
                created => created.map_err(|e| self.std_error(dir, "create directory", &e))?,
            }
            sync_name_of(made)?;
        }
        if !full.as_os_str().is_empty() && !full.is_dir() {
            let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(self.std_error(dir, "create directory", &error));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        sync_directory(&self.full(dir)).map_err(|e| DiskError::os(&self.name(dir), "sync directory", e))
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        crate::file_lock::lock(&self.full(path), &self.name(path), Kind::Exclusive)
    }

    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        crate::file_lock::lock(&self.full(path), &self.name(path), Kind::Shared)
    }

    fn describe(&self) -> String {
        self.0.display().to_string()
    }
}

/// Makes the name of a directory durable.
fn sync_name_of(directory: &Path) -> Result<(), DiskError> {
    let Some(above) = directory.parent() else { return Ok(()) }; // The root.
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    match sync_directory(above) {
        // A user who may use a directory there and not read it cannot sync it, and a file system that is only read has
        // nothing to sync.
        Err(libc::EACCES | libc::EROFS) => Ok(()),
        synced => synced.map_err(|e| DiskError::os(&above.display().to_string(), "sync directory", e)),
    }
}

/// An open file, or a block device.
pub(crate) struct OsFile {
    name: String,
    file: File,
    read_only: bool,
    /// `file` was opened with `O_DIRECT`.
    direct: bool,
    /// The second descriptor of a direct file, for ranges that are not aligned. Opened when first needed.
    ordinary: OnceLock<File>,
    /// The file system does not know `RWF_DSYNC`, or it is not wanted.
    no_dsync: AtomicBool,
}

/// Refuses what is open under the name of a file and is not a file. Reads and writes of a pipe or a device may wait for
/// ever, or promise what they do not keep.
pub(crate) fn check_regular(file: &File, name: &str, operation: &'static str) -> Result<(), DiskError> {
    let there = file.metadata().map_err(|e| DiskError::os(name, operation, errno(&e)))?;
    match there.is_file() {
        true => Ok(()),
        false => Err(DiskError::new(name, operation, DiskErrorKind::NotRegular)),
    }
}

fn sync_directory(path: &Path) -> Result<(), Errno> {
    let mut options = OpenOptions::new();
    let directory = retry(|| options.read(true).custom_flags(libc::O_DIRECTORY).open(path))?;
    directory.sync_all().map_err(|error| errno(&error))
}

impl OsFile {
    /// What is open for reading and writing.
    pub(crate) fn new(name: String, file: File, direct: bool, method: SyncMethod) -> OsFile {
        let no_dsync = AtomicBool::new(method == SyncMethod::Fdatasync);
        OsFile { name, file, read_only: false, direct, ordinary: OnceLock::new(), no_dsync }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn error(&self, operation: &'static str, offset: u64, errno: Errno) -> DiskError {
        DiskError::os(&self.name, operation, errno).at(offset)
    }

    /// Whether a range can go through a direct descriptor.
    fn goes_direct(&self, offset: u64, len: usize) -> bool {
        self.direct && offset.is_multiple_of(DIRECT_BYTES) && (len as u64).is_multiple_of(DIRECT_BYTES)
    }

    fn ordinary(&self) -> Result<&File, Errno> {
        if !self.direct {
            return Ok(&self.file);
        }
        if let Some(file) = self.ordinary.get() {
            return Ok(file);
        }
        // By the descriptor, not by the name: the file may have been renamed since.
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        let file = retry(|| options.read(true).write(!self.read_only).open(&path))?;
        Ok(self.ordinary.get_or_init(|| file))
    }

    fn read_all(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        let mut done = 0;
        while done < buf.len() {
            match retry(|| file.read_at(&mut buf[done..], offset + done as u64)) {
                Ok(0) => return Err(ReadFailure::Short),
                Ok(count) => done += count,
                Err(errno) => return Err(ReadFailure::Os(errno)),
            }
        }
        Ok(())
    }

    fn write_all(&self, file: &File, offset: u64, bytes: &[u8], durable: bool) -> Result<(), Errno> {
        let durable_call = durable && !self.no_dsync.load(Ordering::Relaxed);
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let at = offset + done as u64;
            let written = if durable_call {
                retry(|| sys::write_durable(file, at, rest))
            } else {
                retry(|| file.write_at(rest, at))
            };
            match written {
                Ok(0) => return Err(libc::EIO),
                Ok(count) => done += count,
                Err(libc::EOPNOTSUPP | libc::ENOSYS) if durable_call => {
                    self.no_dsync.store(true, Ordering::Relaxed);
                    return self.write_all(file, offset, bytes, durable);
                }
                Err(errno) => return Err(errno),
            }
        }
        if durable && !durable_call { retry(|| file.sync_data()) } else { Ok(()) }
    }

    fn write(&self, operation: &'static str, offset: u64, bytes: &[u8], durable: bool) -> Result<(), DiskError> {
        let fail = |errno| self.error(operation, offset, errno);
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(DiskError::new(&self.name, operation, DiskErrorKind::OutOfRange).at(offset));
        }
        if self.goes_direct(offset, bytes.len()) {
            let written = if (bytes.as_ptr() as u64).is_multiple_of(DIRECT_BYTES) {
                self.write_all(&self.file, offset, bytes, durable)
            } else {
                self.write_all(&self.file, offset, &AlignedBuf::from_slice(bytes), durable)
            };
            match written {
                Err(libc::EINVAL) => {}
                other => return other.map_err(fail),
            }
        }
        self.write_all(self.ordinary().map_err(fail)?, offset, bytes, durable).map_err(fail)
    }
}

enum ReadFailure {
    Short,
    Os(Errno),
}

impl DiskFile for OsFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let fail = |failure| match failure {
            ReadFailure::Short => DiskError::new(&self.name, "read", DiskErrorKind::ShortRead).at(offset),
            ReadFailure::Os(errno) => self.error("read", offset, errno),
        };
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(fail(ReadFailure::Short));
        }
        if self.goes_direct(offset, buf.len()) {
            let read = if (buf.as_ptr() as u64).is_multiple_of(DIRECT_BYTES) {
                self.read_all(&self.file, offset, buf)
            } else {
                let mut bounce = AlignedBuf::new(buf.len());
                self.read_all(&self.file, offset, &mut bounce).map(|()| buf.copy_from_slice(&bounce))
            };
            match read {
                // Also the answer to a continuation that began at an odd end of file: the ordinary way knows.
                Err(ReadFailure::Os(libc::EINVAL)) => {}
                other => return other.map_err(fail),
            }
        }
        let file = self.ordinary().map_err(|errno| self.error("read", offset, errno))?;
        self.read_all(file, offset, buf).map_err(fail)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write("write", offset, bytes, false)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write("write durably", offset, bytes, true)
    }

    fn sync(&self) -> Result<(), DiskError> {
        retry(|| self.file.sync_data()).map_err(|e| DiskError::os(&self.name, "sync", e))
    }

    fn settle(&self) -> Result<(), DiskError> {
        match retry(|| self.file.sync_data()) {
            // A file system that has no sync has nothing that could be written.
            Ok(()) | Err(libc::EINVAL | libc::EROFS) => {}
            Err(errno) => return Err(DiskError::os(&self.name, "sync", errno)),
        }
        // After a sync that failed in an earlier life the system may call clean what never reached the device. Direct
        // reads come from the device; others do once nothing is cached.
        if !self.direct {
            sys::drop_cached(&self.file);
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        let there = self.file.metadata().map_err(|e| DiskError::os(&self.name, "length", errno(&e)))?;
        Ok(there.len())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if len == 0 {
            return Ok(());
        }
        match retry(|| sys::allocate(&self.file, offset, len)) {
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => {
                // No such call here: bytes past the end are taken by writing them; a hole before the end stays one.
                let zeros = AlignedBuf::new(ZERO_BYTES);
                let mut at = self.len()?.max(offset);
                let end = offset + len;
                while at < end {
                    let count = (ZERO_BYTES as u64 - at % ZERO_BYTES as u64).min(end - at);
                    self.write("allocate", at, &zeros[..count as usize], false)?;
                    at += count;
                }
                Ok(())
            }
            other => other.map_err(|errno| self.error("allocate", offset, errno)),
        }
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        retry(|| self.file.set_len(len)).map_err(|errno| self.error("set length", len, errno))
    }

    fn name(&self) -> &str {
        &self.name
    }
}
