//! What the system allows: asked by trying.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::ProbeError;
use crate::sys::child::Child;

/// What a performance counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Cycles of the processor, by its own counters.
    Cycles,
    /// Page faults, by the kernel.
    PageFaults,
}

/// Opens a counter of this thread in user mode and reads it.
pub(crate) fn counter(counter: Counter) -> Result<u64, ProbeError> {
    // `perf_event_attr`, its first version: type u32, size u32, config u64, 4 words, and flags; 64 bytes.
    let (kind, config): (u32, u64) = match counter {
        Counter::Cycles => (0, 0),
        Counter::PageFaults => (1, 2),
    };
    let mut attributes = [0_u64; 8];
    attributes[0] = u64::from_ne_bytes(if cfg!(target_endian = "little") {
        (u64::from(kind) | 64 << 32).to_ne_bytes()
    } else {
        (u64::from(kind) << 32 | 64).to_ne_bytes()
    });
    attributes[1] = config;
    attributes[5] = if cfg!(target_endian = "little") { 0b110_0000 } else { 0b110 << 56 }; // exclude_kernel, exclude_hv
    // SAFETY: the kernel reads 64 bytes of attributes; this thread, any processor, no group.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 8_u64) };
    if fd < 0 {
        return Err(ProbeError::system("perf_event_open", std::io::Error::last_os_error()));
    }
    // SAFETY: a fresh descriptor that nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut count = [0_u8; 8];
    rustix::io::read(&fd, &mut count).map_err(|e| ProbeError::system("read a counter", e))?;
    Ok(u64::from_ne_bytes(count))
}

/// Whether a process may make a user namespace of its own. Tried in a child, which ends in it.
pub(crate) fn user_namespace() -> Result<bool, ProbeError> {
    // SAFETY: changes the child only, which has one thread.
    Child::ask(|| unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0)
}

/// Whether files of this directory are encrypted by the file system, or could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    On,
    Possible,
    Unknown,
}

/// Asks the file system of an open directory.
pub(crate) fn encryption(dir: &File) -> Encryption {
    const FS_IOC_GET_ENCRYPTION_POLICY_EX: libc::c_ulong = 0xC009_6616;
    // The size of a policy in front of room for one.
    let mut argument = [0_u8; 64];
    argument[..8].copy_from_slice(&32_u64.to_ne_bytes());
    // SAFETY: the kernel writes at most the size that stands in front, which is there.
    let result = unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_GET_ENCRYPTION_POLICY_EX as _, argument.as_mut_ptr()) };
    match (result, std::io::Error::last_os_error().raw_os_error()) {
        (0, _) => Encryption::On,
        (_, Some(libc::ENODATA)) => Encryption::Possible,
        _ => Encryption::Unknown,
    }
}
