//! What all rooms share of an open environment: the engine with what belongs to it, and the steps that more than one of
//! them takes.

mod bell;
mod checkpoint;
mod files;
mod handles;
mod keeping;
mod latched;
mod outside;
mod rolling_back;
mod tables;
mod undecided;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ledgerstone_disk::{Disk, Fence};
use ledgerstone_log::ControlFile;
use ledgerstone_page::{Layouts, Lsn};
use ledgerstone_recovery::RecoveryReport;
use ledgerstone_region::{Handle, Latch};
use ledgerstone_space::Space;
use ledgerstone_structures::{ToFree, Tree};
use ledgerstone_txn::{Durability, Engine, Txn};

use crate::Error;
use crate::catalog::index::Extractors;
use crate::catalog::{Extensions, Known};
use crate::config::Effective;
use crate::keeper::{Keepers, LogKeeper, Positions};

pub(crate) use bell::{Bell, PERIOD_NS};
pub(crate) use files::{DATA, DOUBLE_WRITE, LOCK, RESTORE};
pub(crate) use handles::Handles;
pub(crate) use outside::check_is_outside;
pub(crate) use rolling_back::{PutOff, Rollbacks};
pub use rolling_back::{RollbackProgress, RollingBack};
pub use undecided::InDoubt;
pub(crate) use undecided::{Undecided, Waiting, printable};

/// Why nothing is done any more.
pub(crate) const CLOSED: &str = "the environment was closed";

/// Everything behind a handle.
pub(crate) struct Inner {
    pub(crate) disk: Arc<dyn Disk>,
    /// If it is a directory of the system.
    pub(crate) directory: Option<PathBuf>,
    /// Around `disk`. It has the lock from open to close.
    pub(crate) fence: Arc<Fence>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) space: Arc<Space>,
    pub(crate) catalog: Tree,
    pub(crate) to_free: Arc<ToFree>,
    pub(crate) known: Known,
    /// Drops of tables that are under way (I3 in `transaction/isolation.rs`).
    pub(crate) drops: AtomicU64,
    pub(crate) in_doubt: Undecided,
    pub(crate) rollbacks: Rollbacks,
    pub(crate) extensions: Extensions,
    pub(crate) extractors: Extractors,
    /// Of users' pages.
    pub(crate) layouts: Layouts,
    pub(crate) effective: Effective,
    pub(crate) durability: Durability,
    pub(crate) is_read_only: bool,
    pub(crate) report: RecoveryReport,
    /// Held while a checkpoint is taken; a latch, because it waits for the disk.
    pub(crate) checkpoint_latch: Handle<[Latch]>,
    /// Held for the length of a compaction: taken before all other latches.
    pub(crate) compact_latch: Handle<[Latch]>,
    /// Held while a keeper works, one for each of `workers`; and while a copy to the archive, which is the first, is
    /// made.
    pub(crate) work_latch: Handle<[Latch]>,
    /// Checkpoints are named there, and by the log its newest segment.
    pub(crate) control: Arc<ControlFile>,
    pub(crate) last_checkpoint: AtomicU64,
    pub(crate) checkpoint_count: AtomicU64,
    /// A restore has made it, and it has not taken a checkpoint since (R1 in `media/restore.rs`).
    pub(crate) is_restored: AtomicBool,
    pub(crate) keepers: Keepers,
    /// The keepers that were made for this open, the archive first.
    pub(crate) workers: Vec<Arc<dyn LogKeeper>>,
    pub(crate) positions: Positions,
    pub(crate) bell: Bell,
    pub(crate) is_closed: AtomicBool,
}

impl Inner {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn catalog(&self) -> &Tree {
        &self.catalog
    }

    pub(crate) fn to_free(&self) -> &ToFree {
        &self.to_free
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.is_read_only {
            return Err(Error::read_only("the environment was opened for reading only"));
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    pub(crate) fn nudge_reclaim(&self) {
        self.bell.reclaim();
    }

    pub(crate) fn begin(&self) -> Result<Txn, Error> {
        Ok(self.engine.begin()?)
    }

    /// What a reclaimer that found all of it held looks at, to see whether that may have changed. It is the oldest
    /// snapshot, or the length of the log without one, and how many transactions run.
    pub(crate) fn holders(&self) -> (Lsn, u32) {
        (self.engine.versions.oldest_snapshot(), self.engine.table.active_count())
    }

    /// Where the log begins that transactions, readers of old versions, and pins need; at the earliest where it begins
    /// now. A checkpoint can give up what lies below.
    pub(crate) fn log_is_kept_from(&self) -> Lsn {
        let Engine { log, table, versions, .. } = &*self.engine;
        let tail = log.tail(); // First, as in a checkpoint (K1 there).
        let low = [table.first_lsn_low(), versions.log_low()].into_iter().flatten().fold(tail, Lsn::min);
        log.to_give_up(low).1
    }

    /// Space that was refused where it was promised, under a page that has its place, has failed the environment: it is
    /// no reason to go on.
    pub(crate) fn say_failed(&self, error: Error) -> Error {
        match error {
            Error::ReadOnly { .. } if self.engine.is_failed() => Error::Failed { why: self.engine.why_failed() },
            other => other,
        }
    }
}
