//! What everything that stands on an open environment shares with it: the engine, the catalog, the control file, and
//! whoever needs the log for longer than recovery does.

mod catalog;
mod latched;
mod positions;

use std::path::PathBuf;
use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_log::{ControlFile, ControlState, LogPin};
use ledgerstone_region::{Handle, Latch};
use ledgerstone_structures::Tree;
use ledgerstone_txn::{Engine, Txn};

use crate::Error;
use crate::keeper::{Keepers, Positions};

pub use latched::Latched;

/// The settings that are read outside of the library.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of the page cache.
    pub cache_bytes: u64,
    /// Bytes of a segment of the log.
    pub log_segment_bytes: u64,
    /// The most log that is kept for a feed.
    pub feed_log_bytes_max: u64,
}

/// What an open environment shares with what stands on it.
pub struct Base {
    /// Where it is.
    pub disk: Arc<dyn Disk>,
    /// If that is a directory of the system.
    pub directory: Option<PathBuf>,
    /// Pages, log, locks and transactions.
    pub engine: Arc<Engine>,
    /// The tree of the catalog.
    pub catalog: Tree,
    /// Checkpoints are named there, and by the log its newest segment.
    pub control: Arc<ControlFile>,
    /// Held while a checkpoint is taken; a latch, because it waits for the disk.
    pub checkpoint_latch: Handle<[Latch]>,
    /// Whoever holds the log back.
    pub keepers: Keepers,
    /// Of named feeds.
    pub positions: Positions,
    /// It was opened for reading only.
    pub is_read_only: bool,
    /// Settings.
    pub sizes: Sizes,
}

impl Base {
    /// Refuses to write if it was opened for reading only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    #[inline]
    pub fn check_writable(&self) -> Result<(), Error> {
        if self.is_read_only {
            return Err(Error::read_only("the environment was opened for reading only"));
        }
        Ok(())
    }

    /// Begins a transaction of the library's own.
    ///
    /// # Errors
    /// Too many transactions, or the environment has failed.
    pub fn begin(&self) -> Result<Txn, Error> {
        Ok(self.engine.begin()?)
    }

    /// The control file as it is, and the log kept from its scan LSN on. No checkpoint is taken meanwhile.
    ///
    /// # Errors
    /// [`Error::Busy`] if the caller takes a checkpoint. Too many threads.
    pub fn pin_log_of_control(&self, name: &str) -> Result<(ControlState, LogPin), Error> {
        let _latched = self.latch(&self.checkpoint_latch[0])?;
        let state = self.control.state();
        // No checkpoint can give the log up meanwhile.
        let pin = self.engine.log.pin(name, state.scan_lsn.max(self.engine.log.oldest_lsn()), u64::MAX)?;
        Ok((state, pin))
    }
}
