//! What the rooms above have of an open environment beside what everything shares ([`Base`]). These are the parts that
//! only tables, transactions and housekeeping need, and the steps that more than one of them takes.

mod among;
mod bell;
mod checkpoint;
mod handles;
mod keeping;
mod rolling_back;
mod shares;
mod tables;
mod undecided;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ledgerstone_core::base::Base;
use ledgerstone_disk::Fence;
use ledgerstone_page::{Layouts, Lsn};
use ledgerstone_recovery::{Pending, RecoveryReport};
use ledgerstone_region::{Handle, Latch, Mutex};
use ledgerstone_space::Space;
use ledgerstone_structures::{ToFree, Tree};
use ledgerstone_txn::{Durability, Engine};

use crate::Error;
use crate::catalog::index::Extractors;
use crate::catalog::{Extensions, Known, News};
use crate::config::{Effective, Maker};
use crate::keeper::LogKeeper;

pub(crate) use among::{Among, Place, join_those_there};
pub(crate) use bell::{Bell, PERIOD_NS};
pub(crate) use handles::Handles;
pub(crate) use rolling_back::{PutOff, Rollbacks};
pub use rolling_back::{RollbackProgress, RollingBack};
pub(crate) use shares::Shares;
pub use undecided::InDoubt;
pub(crate) use undecided::{Undecided, Waiting, number_of, printable};

/// Why nothing is done any more.
pub(crate) const CLOSED: &str = "the environment was closed";

/// Everything behind a handle.
pub(crate) struct Inner {
    pub(crate) base: Arc<Base>,
    /// Around the disk. It has the lock from open to close.
    pub(crate) fence: Arc<Fence>,
    pub(crate) space: Arc<Space>,
    pub(crate) to_free: Arc<ToFree>,
    pub(crate) known: Known,
    /// Of other processes, and for them.
    pub(crate) news: News,
    pub(crate) in_doubt: Undecided,
    pub(crate) rollbacks: Rollbacks,
    /// What a restart has left to be repeated, for the threads that do so.
    pub(crate) pending: Mutex<Option<Arc<Pending>>>,
    pub(crate) program: Program,
    pub(crate) effective: Effective,
    pub(crate) durability: Durability,
    pub(crate) report: RecoveryReport,
    /// Held for the length of a compaction: taken before all other latches.
    pub(crate) compact_latch: Handle<[Latch]>,
    pub(crate) workers: Workers,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) bell: Arc<Bell>,
    pub(crate) is_closed: AtomicBool,
    /// With those that share the environment.
    pub(crate) sharing: Option<Shares>,
}

/// What the program has registered.
pub(crate) struct Program {
    pub(crate) extensions: Extensions,
    pub(crate) extractors: Extractors,
    /// Of its pages.
    pub(crate) layouts: Layouts,
}

/// The keepers of the program, the archive first.
pub(crate) struct Workers {
    /// Of processes that share the environment, the one that leads makes them.
    pub(crate) all: OnceLock<Vec<Arc<dyn LogKeeper>>>,
    pub(crate) makers: Vec<Maker>,
    /// Held while a keeper works, one for each; and while a copy to the archive, which is the first, is made.
    pub(crate) latch: Handle<[Latch]>,
}

impl Workers {
    /// Those that are made.
    pub(crate) fn all(&self) -> &[Arc<dyn LogKeeper>] {
        self.all.get().map_or(&[], |all| all.as_slice())
    }
}

/// The checkpoints of this open.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// Where the last one is.
    pub(crate) last: AtomicU64,
    pub(crate) count: AtomicU64,
    /// A restore has made the environment, and it has not taken a checkpoint since (R1 in `restore.rs` of the crate
    /// `ledgerstone-media`).
    pub(crate) is_restored: AtomicBool,
    /// The opening has left its checkpoint to the housekeeper.
    pub(crate) is_owed: AtomicBool,
}

impl Deref for Inner {
    type Target = Base;

    #[inline]
    fn deref(&self) -> &Base {
        &self.base
    }
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

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    pub(crate) fn nudge_reclaim(&self) {
        self.bell.reclaim();
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

    /// Repeats what the opening has left, before it goes on.
    pub(crate) fn repeat_pending(&self) {
        let pending = self.pending.lock().take();
        if let Some(pending) = pending {
            (0..pending.worker_count()).for_each(|no| pending.work(no));
        }
    }

    /// Space that was refused where it was promised, under a page that has its place, has failed the environment: it is
    /// no reason to go on.
    pub(crate) fn say_failed(&self, error: Error) -> Error {
        match error {
            Error::ReadOnly { .. } | Error::Failed { .. } if self.engine.is_failed() => {
                Error::Failed { why: self.engine.why_failed() }
            }
            other => other,
        }
    }
}
