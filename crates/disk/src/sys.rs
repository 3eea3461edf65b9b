//! The calls to the system that the standard library does not have, and what it makes of errors.
//!
//! Y1. Each of the four unsafe calls gets an open descriptor, numbers, and at most the bytes of a slice to read. None
//!     keeps a pointer.

#![allow(unsafe_code)] // With `held.rs`, all that there is in this crate.

use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;

/// The system's number of an error.
pub(crate) type Errno = i32;

/// The number of an error of the standard library.
pub(crate) fn errno(error: &Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Calls again what a signal has interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> std::io::Result<T>) -> Result<T, Errno> {
    loop {
        match call().map_err(|error| errno(&error)) {
            Err(libc::EINTR) => {}
            other => return other,
        }
    }
}

/// Writes bytes, some of them at least, and returns when they are durable (`RWF_DSYNC`).
pub(crate) fn write_durable(file: &File, offset: u64, bytes: &[u8]) -> std::io::Result<usize> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: Y1; `part` is the one part, and it is `bytes`, which live as long as the call.
    let count = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, place(offset)?, libc::RWF_DSYNC) };
    usize::try_from(count).map_err(|_| Error::last_os_error())
}

/// Takes space on the device for these bytes; a file that ends before them is made longer.
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> std::io::Result<()> {
    // SAFETY: Y1.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, place(offset)?, place(len)?) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Has bytes of a block device read as zero.
pub(crate) fn zero_range(file: &File, offset: u64, len: u64) -> std::io::Result<()> {
    let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: Y1.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, place(offset)?, place(len)?) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Asks the system to forget what it has of the file in memory. Advice: it may be refused.
pub(crate) fn drop_cached(file: &File) {
    // SAFETY: Y1.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn place(bytes: u64) -> std::io::Result<libc::off_t> {
    bytes.try_into().map_err(|_| Error::from_raw_os_error(libc::EINVAL))
}
