//! Locks of the file system: by process (fcntl), by open file (OFD), by open file and whole (flock).

use std::fs::File;
use std::os::fd::AsRawFd;

/// Which family of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Fcntl,
    Ofd,
    Flock,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Read,
    Write,
    Unlock,
}

/// Waits for the lock of the first byte, or gives it back. Whether the call succeeded; for children of a fork too.
pub(crate) fn set(file: &File, family: Family, want: Want) -> bool {
    let fd = file.as_raw_fd();
    if family == Family::Flock {
        let operation = match want {
            Want::Read => libc::LOCK_SH,
            Want::Write => libc::LOCK_EX,
            Want::Unlock => libc::LOCK_UN,
        };
        // SAFETY: no memory is involved.
        return unsafe { libc::flock(fd, operation) } == 0;
    }
    let kind = match want {
        Want::Read => libc::F_RDLCK,
        Want::Write => libc::F_WRLCK,
        Want::Unlock => libc::F_UNLCK,
    };
    // SAFETY: all bits zero is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_len = 1;
    let command = if family == Family::Ofd { libc::F_OFD_SETLKW } else { libc::F_SETLKW };
    // SAFETY: the kernel reads `lock`.
    unsafe { libc::fcntl(fd, command, &lock) == 0 }
}
