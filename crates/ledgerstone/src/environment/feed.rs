//! Change feeds and readers of the log, which stand on the environment (crate `ledgerstone-feed`).

use std::path::Path;
use std::sync::Arc;

use ledgerstone_core::directory::disk_in;
use ledgerstone_disk::Disk;
use ledgerstone_page::Lsn;

use crate::{ChangeFeed, Environment, Error, LogReader};

impl Environment {
    /// The changes of the commits behind `from`, which is the [`ChangeFeed::position`] of an earlier feed, or the LSN
    /// of any record. `Lsn(0)` means from the oldest transaction whose records are all there. `Lsn(u64::MAX)` means
    /// from now on.
    ///
    /// While the feed lives, the log is kept from its position on, up to `feed_log_bytes_max` bytes. Structures of a
    /// program's own ([`extend`](crate::extend)) are not shown: only their author knows what their records mean.
    /// [`Environment::log_reader`] shows those.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAPosition`] if no record begins at `from`, or it is damaged. [`Error::LogGone`],
    /// [`Error::TooManySnapshots`], [`Error::SnapshotTooOld`], or a failure of the disk.
    pub fn changes(&self, from: Lsn) -> Result<ChangeFeed, Error> {
        ledgerstone_feed::changes(&self.inner().base, from)
    }

    /// The feed of this name, behind the position that it acknowledged last ([`ChangeFeed::acknowledge`]). A new name
    /// begins now. Until the name is forgotten, the log is kept from there on, up to `feed_log_bytes_max` bytes,
    /// whether the feed is open or not. `stat` says how far each feed has come.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::changes`]. [`Error::Corrupt`] if the log lacks its position. [`Error::TooManyFeeds`]. A
    /// failure of the disk.
    pub fn named_changes(&self, name: &str) -> Result<ChangeFeed, Error> {
        ledgerstone_feed::named_changes(&self.inner().base, name)
    }

    /// Forgets a named feed, which then keeps no log. Returns false if there is none of that name.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn forget_changes(&self, name: &str) -> Result<bool, Error> {
        ledgerstone_feed::forget_changes(&self.inner().base, name)
    }

    /// Forgets all named feeds of the environment in directory `path`, which must not be open. For one that cannot be
    /// opened because the file of their positions is missing or damaged. A feed of any name begins anew then, at the
    /// end of the log.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAnEnvironment`], [`Error::AlreadyOpen`], a control file that cannot be read, or a failure of the
    /// disk.
    pub fn forget_all_changes(path: impl AsRef<Path>) -> Result<(), Error> {
        Environment::forget_all_changes_on(disk_in(path)?)
    }

    /// The same on any [`Disk`].
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::forget_all_changes`].
    pub fn forget_all_changes_on(disk: Arc<dyn Disk>) -> Result<(), Error> {
        ledgerstone_feed::forget_all_changes(&disk)
    }

    /// A reader before the first record that begins at `from` or later. `Lsn(0)` means before the oldest record that is
    /// kept. `Lsn(u64::MAX)` means behind the newest durable one.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LogGone`], or a failure of the disk.
    pub fn log_reader(&self, from: Lsn) -> Result<LogReader, Error> {
        ledgerstone_feed::log_reader(&self.inner().base, from)
    }
}
