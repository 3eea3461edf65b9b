//! How many of each there are in an environment's memory: counted by who opens it, and handed on to those who share it.

use ledgerstone_buffer::Cache;
use ledgerstone_page::Xid;
use ledgerstone_recovery::Analysis;
use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};
use ledgerstone_region::{NumberSet, Region, RegionError};
use ledgerstone_txn::{OWN_SLOT_COUNT, VersionStore};

use super::put_off::locks_needed;
use crate::config::{Effective, Options};
use crate::environment::locking;

/// The log's flusher and the page writer flush the log, and so each has a slot.
const FLUSHING_THREADS: u32 = 2;

/// Their name in the region.
const COUNTS: &str = "environment.counts";

#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// Transactions of users.
    pub users: u32,
    /// Threads.
    pub threads: u32,
    /// Locks.
    pub locks: u32,
}

impl Counts {
    pub(super) fn of(effective: &Effective, found: &Analysis, too_large: &NumberSet<Xid>, redo_threads: u32) -> Counts {
        // The losers of a crash need a slot each, however few there may be afterwards. The prepared, and those that are
        // rolled back later, keep theirs and their locks, and leave the others what was asked for. The library's own
        // transactions have theirs.
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let kept_count = count(found.in_doubt.len() + too_large.len());
        let users = effective.transaction_count_max.max(count(found.losers.len())).saturating_add(kept_count);
        let kept_locks = count(found.in_doubt.values().map(|kept| kept.record.locks.len()).sum());
        let later_locks = count(locks_needed(&found.losers, too_large));
        // Who rolls them back, and who reads pages ahead for that.
        let later_threads = if too_large.is_empty() { 0 } else { 1 + ledgerstone_recovery::UNDO_READERS };
        let own_threads = later_threads + redo_threads + FLUSHING_THREADS;
        Counts {
            users,
            threads: effective.thread_count_max.saturating_add(own_threads),
            locks: effective.lock_count_max.saturating_add(kept_locks).saturating_add(later_locks),
        }
    }

    /// Slots of transactions.
    pub(super) fn slot_count(self) -> u32 {
        self.users.saturating_add(OWN_SLOT_COUNT)
    }

    /// Each transaction may have one, and ranges that read committed one each.
    pub(super) fn snapshot_count(self) -> u32 {
        self.slot_count().saturating_mul(2)
    }

    /// Bytes of the region, for a data file of so many. One that is shared has room for all of the page table.
    pub(super) fn region_bytes(
        self,
        (options, is_shared): (&Options, bool),
        effective: &Effective,
        data_bytes: u64,
        page_bytes: u32,
    ) -> u64 {
        let lock_config = locking::config(effective, self.slot_count(), self.locks);
        let parts_bytes = [
            Cache::table_bytes(data_bytes, page_bytes, effective.page_count_max),
            if is_shared { Cache::reserved_table_bytes(data_bytes, page_bytes, effective.page_count_max) } else { 0 },
            effective.cache_bytes,
            effective.cache_bytes / 16,
            effective.log_buffer_bytes,
            lock_config.region_bytes() * (1 + u64::from(options.own_locking.is_some())),
            u64::from(self.slot_count()) * 1024,
            u64::from(self.threads) * 256, // A few lines each, of several crates.
            VersionStore::region_bytes(effective.version_store_bytes, self.snapshot_count()),
            8 << 20,
        ];
        parts_bytes.into_iter().fold(0, u64::saturating_add)
    }

    /// For those who come later.
    pub(super) fn hand_on(self, region: &Region) -> Result<(), RegionError> {
        let words = region.place::<AtomicU64>(COUNTS, 3, 8)?;
        let counts = [self.users, self.threads, self.locks];
        words.iter().zip(counts).for_each(|(word, count)| word.store(count.into(), Relaxed)); // Nobody joins yet.
        Ok(())
    }

    /// As the first has counted.
    pub(super) fn handed_on(region: &Region) -> Result<Counts, RegionError> {
        let words = region.place::<AtomicU64>(COUNTS, 3, 8)?;
        let count = |no: usize| u32::try_from(words[no].load(Relaxed)).unwrap_or(u32::MAX); // Whoever joins was let in.
        Ok(Counts { users: count(0), threads: count(1), locks: count(2) })
    }
}
