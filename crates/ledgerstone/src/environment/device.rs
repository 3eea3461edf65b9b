//! A block device that is to be an environment's.

use std::path::Path;

use crate::{Environment, Error};

impl Environment {
    /// Formats the block device `path`, so that an environment can be made on it. Everything that is on it is lost: a
    /// file system, or an environment. A device that is empty need not be formatted: opening does that.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] if a process has it open. [`Error::Disk`] if it is mounted, or not a block device.
    /// [`Error::NotAnEnvironment`] if it is too small. Otherwise a failure of the disk.
    pub fn overwrite_device(path: impl AsRef<Path>) -> Result<(), Error> {
        ledgerstone_core::directory::overwrite_device(path)
    }
}
