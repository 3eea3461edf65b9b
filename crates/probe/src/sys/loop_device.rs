//! A loop device over a file: a block device without one. Wants root; taken down when it is closed.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags};

use crate::error::{On, ProbeError};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const READ_ONLY: u32 = 1;
const AUTO_CLEAR: u32 = 4;
const DIRECT: u32 = 16;

/// `struct loop_config`, of which only descriptor and flags matter; 304 bytes.
///
/// ```text
/// offset  size  field
///      0     4  fd
///      4     4  block_size   0: the kernel's choice
///      8   232  info         its flags at 8 + 52
///    240    64  zero
/// ```
const CONFIG_BYTES: usize = 304;
const FLAGS_AT: usize = 8 + 52;

/// A read-only loop device over `file`, opened for direct reads.
pub(crate) fn over(file: &File) -> Result<File, ProbeError> {
    let control = open("/dev/loop-control", OFlags::RDWR)?;
    // Another program may take the free device before us.
    for _ in 0..8 {
        // SAFETY: no memory is involved.
        let no = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        if no < 0 {
            return Err(ProbeError::system("LOOP_CTL_GET_FREE", std::io::Error::last_os_error()));
        }
        let path = format!("/dev/loop{no}");
        let device = open(&path, OFlags::RDONLY)?;
        let mut config = [0_u8; CONFIG_BYTES];
        config[..4].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        config[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&(READ_ONLY | AUTO_CLEAR | DIRECT).to_ne_bytes());
        // SAFETY: the kernel reads 304 bytes.
        if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, config.as_ptr()) } == 0 {
            // The second descriptor keeps the device when the first one goes.
            return open(&path, OFlags::RDONLY | OFlags::DIRECT);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(ProbeError::system("LOOP_CONFIGURE", error));
        }
    }
    Err(ProbeError::Missing("every free loop device was taken by somebody else".into()))
}

fn open(path: &str, flags: OFlags) -> Result<File, ProbeError> {
    let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from);
    opened.on(&format!("open {path} (a loop device wants root)"))
}
