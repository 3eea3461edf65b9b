//! Where an environment lives: in a directory, or on a block device of its own.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_disk::{Device, Disk, DiskError, DiskErrorKind, FileDisk, Format, RawDisk};

use crate::Error;

/// The disk of the directory or block device `path`. Nothing is made there.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// For a device: [`Error::NotAnEnvironment`], [`Error::AlreadyOpen`], [`Error::Corrupt`], or a failure of the disk.
pub fn disk_in(path: impl AsRef<Path>) -> Result<Arc<dyn Disk>, Error> {
    let path = path.as_ref();
    if !Device::is_at(path) {
        return Ok(Arc::new(FileDisk::new(path)));
    }
    let opened = Device::open(path).and_then(|device| RawDisk::open(Box::new(device)));
    Ok(Arc::new(opened.map_err(|error| of_device(path, error))?))
}

/// The same, for an environment that may be made there: a device that is empty is formatted.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// As [`disk_in`].
pub fn disk_to_fill(path: impl AsRef<Path>) -> Result<Arc<dyn Disk>, Error> {
    let path = path.as_ref();
    if !Device::is_at(path) {
        return Ok(Arc::new(FileDisk::new(path)));
    }
    Ok(Arc::new(format(path, Format::default())?))
}

/// Formats the block device `path`, whatever is on it.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// As [`disk_in`].
pub fn overwrite_device(path: impl AsRef<Path>) -> Result<(), Error> {
    let overwriting = Format { overwrites: true, ..Format::default() };
    format(path.as_ref(), overwriting).map(drop)
}

fn format(path: &Path, format: Format) -> Result<RawDisk, Error> {
    let opened = Device::open(path).and_then(|device| RawDisk::open_or_format(Box::new(device), format));
    opened.map_err(|error| of_device(path, error))
}

fn of_device(path: &Path, error: DiskError) -> Error {
    let not_an_environment = |why| Error::NotAnEnvironment { path: path.display().to_string(), why };
    match error.kind {
        DiskErrorKind::Locked => Error::AlreadyOpen { path: path.display().to_string() },
        DiskErrorKind::NotFormatted => {
            not_an_environment("the device is not formatted; ledgerstone init DEVICE makes one there")
        }
        DiskErrorKind::NotOurs => not_an_environment(
            "the device is not empty; if nothing on it is needed, ledgerstone init --overwrite DEVICE makes one there",
        ),
        DiskErrorKind::OutOfRange => not_an_environment("the device is too small for one"),
        DiskErrorKind::Damaged => Error::Corrupt { what: error.to_string() },
        _ => error.into(),
    }
}
