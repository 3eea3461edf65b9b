//! Record locks of the system: they belong to a process, a byte each.

use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory_file::{check_ours, errno_of};
use crate::{ForkMark, RegionError};

/// A lock file, as this process has it: opened once, and never closed (M4).
pub(super) struct LockFile {
    file: File,
    shown: String,
    /// The bytes that this process has locked, by number.
    own: Mutex<Vec<u32>>,
    fork: ForkMark,
    device: u64,
    inode: u64,
}

/// All that were ever opened.
static ALL: Mutex<Vec<Arc<LockFile>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // No code can fail inside.
}

impl LockFile {
    pub fn open(path: &Path) -> Result<Arc<LockFile>, RegionError> {
        let shown = path.display().to_string();
        let refused = |doing| {
            let path = shown.clone();
            move |error: std::io::Error| RegionError::File { path, doing, errno: errno_of(&error) }
        };
        let mut all = lock(&ALL);
        let known = |all: &[Arc<LockFile>], is: &Metadata| {
            let is_it = |known: &&Arc<LockFile>| (known.device, known.inode) == (is.dev(), is.ino());
            all.iter().filter(is_it).find(|known| !known.is_inherited()).map(Arc::clone)
        };
        // Not opened to find out which it is: to close it would give up all locks.
        if let Ok(metadata) = std::fs::metadata(path)
            && let Some(known) = known(&all, &metadata)
        {
            return Ok(known);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path).map_err(refused("open"))?;
        let metadata = file.metadata().map_err(refused("look at"))?;
        if let Some(known) = known(&all, &metadata) {
            std::mem::forget(file); // The name has come to mean it in between.
            return Ok(known);
        }
        check_ours(path, &metadata)?;
        let (own, fork) = (Mutex::new(Vec::new()), ForkMark::new()?);
        let opened = Arc::new(LockFile { file, shown, own, fork, device: metadata.dev(), inode: metadata.ino() });
        all.push(Arc::clone(&opened));
        Ok(opened)
    }

    pub fn device(&self) -> u64 {
        self.device
    }

    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// True in a child of the process that opened it.
    pub fn is_inherited(&self) -> bool {
        self.fork.is_inherited()
    }

    /// Locks a byte, if nobody has locked it.
    pub fn take(&self, no: u32) -> Result<bool, RegionError> {
        let mut own = lock(&self.own);
        if own.contains(&no) {
            return Ok(false);
        }
        let mut asked = of_byte(libc::F_WRLCK, no);
        match self.control(libc::F_SETLK, &mut asked) {
            Ok(()) => own.push(no),
            Err(libc::EACCES | libc::EAGAIN) => return Ok(false),
            Err(errno) => return Err(RegionError::File { path: self.shown.clone(), doing: "lock", errno }),
        }
        Ok(true)
    }

    pub fn give_back(&self, no: u32) {
        let mut own = lock(&self.own);
        own.retain(|own| *own != no);
        let _ = self.control(libc::F_SETLK, &mut of_byte(libc::F_UNLCK, no)); // Cannot fail for a lock of ours.
    }

    /// Whether anybody has locked a byte, this process included. Yes, if the system does not say.
    pub fn is_held(&self, no: u32) -> bool {
        if lock(&self.own).contains(&no) {
            return true;
        }
        let mut asked = of_byte(libc::F_WRLCK, no);
        self.control(libc::F_GETLK, &mut asked).is_err() || i32::from(asked.l_type) != libc::F_UNLCK
    }

    fn control(&self, command: libc::c_int, asked: &mut libc::flock) -> Result<(), libc::c_int> {
        // SAFETY: our own descriptor, and a structure that the kernel reads, and writes for F_GETLK.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), command, asked) } {
            -1 => Err(crate::memory::last_errno()),
            _ => Ok(()),
        }
    }
}

fn of_byte(kind: libc::c_int, no: u32) -> libc::flock {
    // SAFETY: all bits zero is a valid `flock`.
    let mut asked: libc::flock = unsafe { std::mem::zeroed() };
    asked.l_type = kind as libc::c_short;
    asked.l_whence = libc::SEEK_SET as libc::c_short;
    asked.l_start = libc::off_t::from(no);
    asked.l_len = 1;
    asked
}
