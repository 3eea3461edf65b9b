//! Which lock manager an environment runs with: one of ours by the settings, or the program's own (Lemon 4.1).

use std::sync::Arc;

use ledgerstone_lock::{Apart, LockConfig, LockManager, LockTable, NoLocks};
use ledgerstone_region::{Region, SlotTable};

use crate::Error;
use crate::catalog::TO_FREE_TABLE;
use crate::choice::Locking;
use crate::config::{Effective, OwnLocking};

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
    slots: &Arc<SlotTable>,
    locking: Locking,
    config: LockConfig,
    own: Option<&OwnLocking>,
) -> Result<Arc<dyn LockManager>, Error> {
    let locks = match (own, locking) {
        (Some(own), _) => (own.0)(&region.of("own."), slots, config)?,
        (None, Locking::Hierarchical | Locking::Pages) => Arc::new(LockTable::place(region, slots, config)?),
        (None, Locking::None) => Arc::new(NoLocks::place(region, config.owners)?),
    };
    if locks.isolates() {
        return Ok(locks);
    }
    // The housekeeper beside a program's transactions is not the program's to keep apart.
    Ok(Arc::new(Apart::new(TO_FREE_TABLE, LockTable::place(region, slots, config)?, locks)))
}
