//! Promises of the lock table, one rule each; the random and the concurrent ones are in the files beside.

mod crowd;
#[cfg(all(feature = "deaths", not(miri)))]
mod deaths;
mod escalating;
mod single;
mod stress;
mod waiting;

use std::sync::Arc;

use ledgerstone_page::{TableId, Xid};
use ledgerstone_region::{Region, SlotTable, sync};

use crate::{LockConfig, LockManager, LockName, LockTable, OwnerNo, Wait};

/// Five minutes, in a test, is for ever: a hang becomes a failed test.
fn patient() -> Wait {
    Wait::Until(sync::now_ns() + 300_000_000_000)
}

fn key(n: u64) -> LockName {
    LockName::key(TableId(7), n)
}

fn table_name(n: u64) -> LockName {
    LockName::table(TableId(n))
}

/// A table in a region of its own, with owners 0.. begun as transactions 100...
fn make(config: LockConfig) -> Arc<LockTable> {
    let region = Region::anonymous(config.region_bytes() + (1 << 16)).expect("address space");
    let slots = Arc::new(SlotTable::place(&region, 64).expect("address space"));
    let table = LockTable::place(&region, &slots, config).expect("region_bytes is enough");
    for owner in 0..config.owners {
        table.begin(OwnerNo(owner), Xid(100 + u64::from(owner)));
        table.avoid_deadlocks(OwnerNo(owner));
    }
    Arc::new(table)
}

fn small() -> Arc<LockTable> {
    make(LockConfig { owners: 8, locks_max: 64, buckets: 16, fast_intentions: true, ..LockConfig::default() })
}

/// Runs `f` in a thread and returns when its request waits.
fn in_the_background<T: Send + 'static>(
    table: &Arc<LockTable>,
    f: impl FnOnce(&LockTable) -> T + Send + 'static,
) -> sync::JoinHandle<T> {
    let waits = table.stats().waits;
    let there = Arc::clone(table);
    let thread = sync::spawn("waiter", move || f(&there));
    while table.stats().waits == waits && !thread.is_finished() {
        sync::sleep_ns(20_000);
    }
    thread
}
