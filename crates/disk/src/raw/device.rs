//! [`Device`]: a block device, read and written past the system's cache.
//!
//! Two descriptors: one claims the device (`O_EXCL`), and lives as long as the claim. The other is for reads and
//! writes. A durable write is a write and an `fdatasync`, which took less time than one write with `RWF_DSYNC`
//! (docs/tried.md). The system gives a claim to nobody while the device is mounted, or is a part of something that is.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flat::{Claim, Flat};
use crate::disk::DiskFile;
use crate::error::{DiskError, DiskErrorKind};
use crate::file::{OsFile, SyncMethod};
use crate::sys::{self, errno, retry};

/// Less than this is zeroed by writing zeros.
const ZERO_CALL_BYTES: u64 = 64 << 10;

/// How long a claim is tried for. A program that another thread has started has copies of all descriptors until it is
/// really run, a moment later. So a claim that was given back may be held still.
const CLAIM_TRIES_MAX: u32 = 100;
const CLAIM_PAUSE: Duration = Duration::from_millis(2);

/// A block device.
pub struct Device {
    file: OsFile,
    path: PathBuf,
    /// Device and number, as the system tells what is mounted by.
    number: u64,
    bytes: u64,
}

impl Device {
    /// Whether there is a block device at `path`.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        std::fs::metadata(path).is_ok_and(|there| there.file_type().is_block_device())
    }

    /// Opens the device at `path`. It is not claimed yet.
    ///
    /// # Errors
    /// `NotRegular` if it is not a block device. `Permission`, `NotFound`, or another refusal of the system.
    pub fn open(path: impl AsRef<Path>) -> Result<Device, DiskError> {
        let path = path.as_ref().to_owned();
        let name = path.display().to_string();
        let fail = |number| DiskError::os(&name, "open", number);
        let open = |flags| {
            let mut options = OpenOptions::new();
            retry(|| options.read(true).write(true).custom_flags(flags | libc::O_NONBLOCK).open(&path))
        };
        let (mut file, direct) = match open(libc::O_DIRECT) {
            Err(libc::EINVAL) => (open(0).map_err(fail)?, false),
            opened => (opened.map_err(fail)?, true),
        };
        let there = file.metadata().map_err(|error| fail(errno(&error)))?;
        if !there.file_type().is_block_device() {
            return Err(DiskError::new(&name, "open", DiskErrorKind::NotRegular));
        }
        let bytes = file.seek(SeekFrom::End(0)).map_err(|error| fail(errno(&error)))?;
        Ok(Device { file: OsFile::new(name, file, direct, SyncMethod::Fdatasync), path, number: there.rdev(), bytes })
    }

    /// Whether a file system on this device is mounted, as the system tells this process.
    fn is_mounted(&self) -> bool {
        let number = format!("{}:{}", libc::major(self.number), libc::minor(self.number));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(2) == Some(&number))
    }
}

impl Flat for Device {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(offset, bytes)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_durable_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync()
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.bytes)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        // The device may know how to zero a range without being sent the zeros.
        let by_call = len >= ZERO_CALL_BYTES && retry(|| sys::zero_range(self.file.file(), offset, len)).is_ok();
        if by_call { Ok(()) } else { super::flat::write_zeros(self, offset, len) }
    }

    fn claim(&self) -> Result<Option<Claim>, DiskError> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK);
        let mut claimed: Result<File, _> = retry(|| options.open(&self.path));
        for _ in 0..CLAIM_TRIES_MAX {
            if !matches!(claimed, Err(libc::EBUSY)) || self.is_mounted() {
                break;
            }
            std::thread::sleep(CLAIM_PAUSE);
            claimed = retry(|| options.open(&self.path));
        }
        match claimed {
            // Another device has got the name since this one was opened.
            Ok(file) if file.metadata().map_or(true, |there| there.rdev() != self.number) => {
                Err(DiskError::new(self.file.name(), "open", DiskErrorKind::NotFound))
            }
            Ok(file) => Ok(Some(Box::new(file))),
            Err(libc::EBUSY) => {
                let kind = if self.is_mounted() { DiskErrorKind::InUse } else { DiskErrorKind::Locked };
                Err(DiskError::new(self.file.name(), "open", kind))
            }
            Err(number) => Err(DiskError::os(self.file.name(), "open", number)),
        }
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
