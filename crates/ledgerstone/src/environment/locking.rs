//! Which lock manager an environment runs with: one of ours by the settings, or the program's own (Lemon 4.1).

use std::fmt;
use std::sync::Arc;

use ledgerstone_lock::{Apart, LockConfig, LockManager, LockTable, NoLocks};
use ledgerstone_region::Region;

use crate::Error;
use crate::config::Effective;
use crate::environment::open::TO_FREE_TABLE;

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Locking {
    /// Keys and the gaps between them, with intentions on their tables and escalation to them.
    #[default]
    Hierarchical,
    /// Leaves of trees instead of keys and gaps: fewer locks, less concurrency.
    Pages,
    /// Nothing of the program's: for one transaction at a time, or for programs that keep their transactions apart by design. Two that
    /// change one record at the same time may fail the environment when one of them is rolled back.
    None,
}

/// Makes the lock manager when the environment is opened.
type Make = dyn Fn(&Region, LockConfig) -> Result<Arc<dyn LockManager>, Error> + Send + Sync;

/// A program's own lock manager.
#[derive(Clone)]
pub(crate) struct OwnLocking(pub Arc<Make>);

impl fmt::Debug for OwnLocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("own lock manager")
    }
}

/// What the settings say about locks, for so many transactions and locks.
pub(crate) fn config(effective: &Effective, owner_count: u32, lock_count_max: u32) -> LockConfig {
    LockConfig {
        owners: owner_count,
        locks_max: lock_count_max,
        buckets: lock_count_max / 4,
        conflict: effective.lock_conflict,
        victim: effective.deadlock_victim,
        searches_when_blocked: effective.deadlock_period_ms == 0,
        ..LockConfig::default()
    }
}

/// Makes the lock manager that the settings or the program ask for.
pub(crate) fn make(
    region: &Region,
    locking: Locking,
    config: LockConfig,
    own: Option<&OwnLocking>,
) -> Result<Arc<dyn LockManager>, Error> {
    let locks = match (own, locking) {
        (Some(own), _) => (own.0)(region, config)?,
        (None, Locking::Hierarchical | Locking::Pages) => Arc::new(LockTable::create(region, config)?),
        (None, Locking::None) => Arc::new(NoLocks::create(region, config.owners)?),
    };
    if locks.isolates() {
        return Ok(locks);
    }
    // The housekeeper beside a program's transactions is not the program's to keep apart.
    Ok(Arc::new(Apart::new(TO_FREE_TABLE, LockTable::create(region, config)?, locks)))
}
