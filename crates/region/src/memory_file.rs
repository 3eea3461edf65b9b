//! Files in memory that several mappings, and several processes, have in common.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
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

/// What the system said, or would have said: a path with a zero in it, or a length beyond all limits, it never sees.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}

/// Refuses a file that others could have made, or may change.
pub(crate) fn check_ours(path: &Path, metadata: &Metadata) -> Result<(), RegionError> {
    // SAFETY: asks for a number, and cannot fail.
    let me = unsafe { libc::geteuid() };
    let what = match () {
        () if !metadata.is_file() => "is not a file",
        () if metadata.uid() != me => "belongs to another user",
        () if metadata.mode() & 0o077 != 0 => "may be opened by other users",
        () => return Ok(()),
    };
    Err(RegionError::NotOurs { path: path.display().to_string(), what })
}

/// Pieces in which memory is taken where signals interrupt the system, at least.
const PIECE_BYTES_MIN: u64 = 1 << 20;

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
        let file = MemoryFile::of(file, Some(path));
        let made = check_limit(bytes).and_then(|()| file.file.set_len(bytes));
        made.map_err(|error| refused(path, "make longer", &error)).inspect_err(|_| file.remove())?;
        Ok(file)
    }

    /// Takes the name of a new file away: it is not to be found half made.
    pub fn remove(&self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path); // Whoever finds it sees that it is not complete.
        }
    }

    /// The file that another process has made, and how long it is.
    pub fn open(path: &Path) -> Result<(MemoryFile, u64), RegionError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY; // It may be no file at all.
        let options = || OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = options().map_err(|error| refused(path, "open", &error))?;
        let metadata = file.metadata().map_err(|error| refused(path, "look at", &error))?;
        check_ours(path, &metadata)?;
        Ok((MemoryFile::of(file, Some(path)), metadata.len()))
    }

    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub fn no(&self) -> u64 {
        self.no
    }

    /// Whether all of it is zero, as far as a few bytes at its beginning tell. No memory is taken for that, as it would
    /// be by a look through a mapping: it may be missing.
    pub fn begins_with_zeroes(&self) -> Result<bool, RegionError> {
        let mut bytes = [0; 8];
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        self.file.read_exact_at(&mut bytes, 0).map_err(|error| refused(path, "read", &error))?;
        Ok(bytes == [0; 8])
    }

    /// Takes memory for a part of a file that has a name, and that nobody uses yet. All of it, or none.
    pub fn take(&self, offset: u64, bytes: u64) -> Result<(), RegionError> {
        self.take_on(offset, bytes).map_err(|(error, taken)| {
            self.give_back(offset, taken);
            error
        })
    }

    /// Takes memory for a part of a file that others may be taking, too, or use already.
    pub fn take_among(&self, offset: u64, bytes: u64) -> Result<(), RegionError> {
        self.take_on(offset, bytes).map_err(|(error, _)| error)
    }

    /// An error comes with how much was taken before.
    fn take_on(&self, offset: u64, bytes: u64) -> Result<(), (RegionError, u64)> {
        let Some(path) = &self.path else { return Ok(()) };
        let (end, mut at, mut piece_bytes) = (offset + bytes, offset, bytes);
        while at < end {
            let piece_bytes_now = piece_bytes.min(end - at);
            // SAFETY: a call on our own descriptor.
            let errno = unsafe { libc::posix_fallocate(self.fd(), at as libc::off_t, piece_bytes_now as libc::off_t) };
            let error = match errno {
                0 => {
                    at += piece_bytes_now;
                    continue;
                }
                // Older kernels give up at any signal, and have taken nothing then. A smaller piece has more hope.
                libc::EINTR => {
                    piece_bytes = (piece_bytes / 2).max(PIECE_BYTES_MIN);
                    continue;
                }
                libc::ENOSPC | libc::ENOMEM => self.no_memory(bytes),
                errno => refused(path, "take memory for", &io::Error::from_raw_os_error(errno)),
            };
            return Err((error, at - offset));
        }
        Ok(())
    }

    /// The file system refuses so much.
    pub fn no_memory(&self, bytes: u64) -> RegionError {
        let path = self.path.as_ref().map_or_else(|| "a file without a name".into(), |path| path.display().to_string());
        RegionError::NoMemory { path, bytes }
    }

    fn give_back(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a call on our own descriptor; the bytes are zero, and nobody uses them.
        unsafe { libc::fallocate(self.fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    }
}

/// Beyond the limit of the process for files, the system would end it by a signal.
fn check_limit(bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is ours to be written.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    let is_beyond = is_known && limit.rlim_cur != libc::RLIM_INFINITY && bytes > limit.rlim_cur;
    if is_beyond { Err(io::Error::from_raw_os_error(libc::EFBIG)) } else { Ok(()) }
}

fn refused(path: &Path, doing: &'static str, error: &io::Error) -> RegionError {
    RegionError::File { path: path.display().to_string(), doing, errno: errno_of(error) }
}
