//! Files in memory that several mappings, and several processes, have in common.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::RegionError;

/// One file. Clones are the same.
#[derive(Clone)]
pub(crate) struct MemoryFile {
    file: Arc<File>,
    /// A number that no other file of this process has or had.
    no: u64,
    /// Its name; None if it has none, and then its memory is taken as it is used.
    path: Option<Arc<Path>>,
}

/// Bytes that one call takes.
const TAKEN_AT_ONCE: u64 = 16 << 20;

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

impl MemoryFile {
    fn of(file: File, path: Option<&Path>) -> MemoryFile {
        static NEXT_NO: AtomicU64 = AtomicU64::new(1);
        let no = NEXT_NO.fetch_add(1, Relaxed); // A number that differs.
        MemoryFile { file: Arc::new(file), no, path: path.map(Arc::from) }
    }

    /// A file that only this process has, and those that it starts.
    #[cfg(feature = "deaths")]
    pub fn nameless(bytes: u64) -> Result<MemoryFile, RegionError> {
        use std::os::fd::FromRawFd;
        let refused = |errno| RegionError::MapRefused { bytes, errno };
        // SAFETY: the name is a string that ends in zero; a descriptor comes back, or -1.
        let fd = unsafe { libc::memfd_create(c"ledgerstone".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused(crate::memory::last_errno()));
        }
        // SAFETY: the descriptor was made just now, and nobody else has it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes).map_err(|error| refused(errno_of(&error)))?;
        Ok(MemoryFile::of(file, None))
    }

    /// A new file of so many bytes, for this user only.
    pub fn create(path: &Path, bytes: u64) -> Result<MemoryFile, RegionError> {
        let options = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = options().map_err(|error| refused(path, "make", &error))?;
        let made = file.set_len(bytes).map_err(|error| refused(path, "make longer", &error));
        made.inspect_err(|_| drop(std::fs::remove_file(path)))?;
        Ok(MemoryFile::of(file, Some(path)))
    }

    /// The file that another process has made, and how long it is.
    pub fn open(path: &Path) -> Result<(MemoryFile, u64), RegionError> {
        let options = || OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
        let file = options().map_err(|error| refused(path, "open", &error))?;
        let metadata = file.metadata().map_err(|error| refused(path, "look at", &error))?;
        if !metadata.is_file() {
            let what = "it is not a file".to_string();
            return Err(RegionError::NotARegion { path: path.display().to_string(), what });
        }
        Ok((MemoryFile::of(file, Some(path)), metadata.len()))
    }

    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub fn no(&self) -> u64 {
        self.no
    }

    /// Takes memory for a part of a file that has a name. A part of that again, if it is taken already.
    pub fn take(&self, offset: u64, bytes: u64) -> Result<(), RegionError> {
        let Some(path) = &self.path else { return Ok(()) };
        let end = offset + bytes;
        let mut from = offset;
        while from < end {
            // A signal that comes meanwhile undoes what one call has done, so none does very much.
            let part = (end - from).min(TAKEN_AT_ONCE);
            // SAFETY: a call on our own descriptor.
            match unsafe { libc::posix_fallocate(self.fd(), from as libc::off_t, part as libc::off_t) } {
                0 => from += part,
                libc::EINTR => {}
                libc::ENOSPC | libc::ENOMEM => return Err(self.no_memory(bytes)),
                errno => return Err(refused(path, "take memory for", &io::Error::from_raw_os_error(errno))),
            }
        }
        Ok(())
    }

    /// The file system refuses so much.
    pub fn no_memory(&self, bytes: u64) -> RegionError {
        let path = self.path.as_ref().map_or_else(|| "a file without a name".into(), |path| path.display().to_string());
        RegionError::NoMemory { path, bytes }
    }
}

fn refused(path: &Path, doing: &'static str, error: &io::Error) -> RegionError {
    RegionError::File { path: path.display().to_string(), doing, errno: errno_of(error) }
}
