//! Figures of a running environment, as one plain value.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_structures::Direction;
use ledgerstone_txn::{Horizon, SnapshotPin};

use crate::catalog::{Definition, Entry};
use crate::config::Effective;
use crate::keeper::KeeperTrouble;
use crate::{Environment, Error, Isolation, ProcessStat, Transaction, TransactionOptions};

/// A snapshot of counters and sizes. Counters count since the environment was opened.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stat {
    /// Tables by name.
    pub tables: Vec<String>,
    /// Their indexes.
    pub indexes: Vec<IndexStat>,
    /// Settings in force.
    pub settings: Effective,
    /// The processes that have the environment open.
    pub processes: Vec<ProcessStat>,
    /// Pages that the data file holds, used or not.
    pub page_count: u64,
    /// Pages in use.
    pub allocated_page_count: u64,
    /// Frames of the cache.
    pub frame_count: u64,
    /// Frames whose page differs from the disk.
    pub dirty_frame_count: u64,
    /// Pages read from disk because they were not in the cache.
    pub page_read_count: u64,
    /// Pages written back.
    pub page_write_count: u64,
    /// Bytes written to the double-write area: copies of pages that the log does not have whole.
    pub double_write_bytes: u64,
    /// Pages evicted.
    pub eviction_count: u64,
    /// The log's end.
    pub log_tail_lsn: u64,
    /// Everything below this is durable.
    pub log_durable_lsn: u64,
    /// How much of all LSNs the log has used, in percent. From 90 on, dump the environment and load it into a new one
    /// soon. At 99, changes are refused ([`Error::LsnsUsedUp`]).
    pub lsn_used_percent: u64,
    /// Bytes appended to the log.
    pub log_append_bytes: u64,
    /// Records appended.
    pub log_append_count: u64,
    /// Flushes of the log, each a durable write.
    pub log_flush_count: u64,
    /// Times that a thread had to wait for room in the log buffer or the log's files.
    pub log_wait_count: u64,
    /// Transactions that were prepared and wait for their decision.
    pub in_doubt_count: u64,
    /// Transactions that a crash has interrupted, and that are still being rolled back.
    pub rolling_back_count: u64,
    /// Changes that all of these had to take back when the environment was opened, those of ended ones included.
    pub rollback_change_count: u64,
    /// Changes taken back of these.
    pub rollback_undone_count: u64,
    /// Transactions running now. Those in doubt are included, and those that are being rolled back since a crash.
    pub transaction_count: u32,
    /// The oldest LSN that a running transaction may need to roll back, or 0 if none has written. The log from here on
    /// is kept.
    pub oldest_transaction_lsn: u64,
    /// Locks that had to be waited for.
    pub lock_wait_count: u64,
    /// Deadlocks ended by rolling a transaction back.
    pub deadlock_count: u64,
    /// Lock waits that timed out.
    pub lock_timeout_count: u64,
    /// What holds the log back, oldest position first: the archive, running backups, readers that asked for it, feeds.
    pub log_pins: Vec<LogPinStat>,
    /// Why the last copy to the archive failed. The log is kept meanwhile.
    pub archive_trouble: Option<String>,
    /// Keepers of the log in trouble. Some could not do their part when they were asked last, and the log is kept for
    /// them meanwhile. Others, named feeds among them, need log that is gone.
    pub keeper_troubles: Vec<KeeperTrouble>,
    /// Checkpoints taken.
    pub checkpoint_count: u64,
    /// Snapshots that are open, the oldest first: for the first one, memory and pages are kept.
    pub snapshots: Vec<SnapshotStat>,
    /// No snapshot is older than this LSN: what earlier commits left over can go.
    pub oldest_snapshot_lsn: u64,
    /// Bytes that the version store may use.
    pub version_store_bytes: u64,
    /// Bytes that it uses now, for snapshots and for transactions that have not ended.
    pub version_store_used_bytes: u64,
    /// How often it was full, and what a snapshot may have needed was dropped.
    pub version_floor_count: u64,
    /// Snapshots below this LSN are too old.
    pub version_floor_lsn: u64,
    /// Transactions whose changes snapshots undo with the log. They changed more than the version store has room for,
    /// or were in doubt after a restart, or are rolled back since.
    pub version_spilled_count: u64,
    /// The log is kept from here on for that. 0 if it need not be kept.
    pub version_log_low_lsn: u64,
    /// Dropped tables and replaced large values whose pages are kept for a snapshot.
    pub held_back_free_count: u64,
    /// True once the environment has failed.
    pub is_failed: bool,
}

/// An index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IndexStat {
    /// The table.
    pub table: String,
    /// The index's name.
    pub name: String,
    /// Where its keys come from, as [`crate::IndexKeys`] is written.
    pub keys: String,
    /// True if each index key belongs to one record only.
    pub is_unique: bool,
}

/// An open snapshot: its holder, its age, and what it holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SnapshotStat {
    /// Its LSN: images of later changes are kept for it, and pages that later commits gave up.
    pub lsn: u64,
    /// The transaction that has it.
    pub xid: u64,
    /// Number of the thread that opened it.
    pub thread: u32,
    /// For how long it has been open, in milliseconds.
    pub age_ms: u64,
    /// Bytes of the version store that are kept for it, alone or for others, too.
    pub held_bytes: u64,
}

/// Something that keeps the log from being given up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LogPinStat {
    /// Its name.
    pub name: String,
    /// The log from here on is kept.
    pub lsn: u64,
    /// The most bytes of log that it keeps. `None` means that it always keeps the log.
    pub bytes_max: Option<u64>,
}

impl From<ledgerstone_log::Pinned> for LogPinStat {
    fn from(pin: ledgerstone_log::Pinned) -> LogPinStat {
        LogPinStat { name: pin.name, lsn: pin.lsn.0, bytes_max: (pin.bytes_max != u64::MAX).then_some(pin.bytes_max) }
    }
}

impl Environment {
    /// Counters and sizes now.
    ///
    /// May wait for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// The list of tables or the space maps cannot be read.
    pub fn stat(&self) -> Result<Stat, Error> {
        // Without locks: a transaction in doubt may hold the list for days, and figures need no isolation.
        let isolation = Some(Isolation::ReadUncommitted);
        let options = TransactionOptions { isolation, read_only: true, ..TransactionOptions::default() };
        let (tables, indexes) = self.transact_with(options, tables_and_indexes)?;
        let env = self.inner();
        env.engine.in_a_call(|| self.stat_of((tables, indexes)))
    }

    fn stat_of(&self, (tables, indexes): (Vec<String>, Vec<IndexStat>)) -> Result<Stat, Error> {
        let env = self.inner();
        env.ask_keepers(); // What they need now.
        let (log, cache, locks) = (env.engine.log.stat(), env.engine.cache.stats(), env.engine.locks.stats());
        let versions = env.engine.versions.stat();
        let rollbacks = env.rollbacks.progress();
        Ok(Stat {
            tables,
            indexes,
            settings: env.effective.clone(),
            processes: self.processes(),
            page_count: env.space.page_count(),
            allocated_page_count: env.space.allocated_count()?,
            frame_count: u64::from(cache.frame_count),
            dirty_frame_count: u64::from(cache.dirty_frame_count),
            page_read_count: cache.read_count,
            page_write_count: cache.write_count,
            double_write_bytes: cache.double_write_bytes,
            eviction_count: cache.eviction_count,
            log_tail_lsn: env.engine.log.tail().0,
            log_durable_lsn: env.engine.log.durable_lsn().0,
            lsn_used_percent: env.engine.log.tail().0 / (ledgerstone_log::LSN_END.0 / 100),
            log_append_bytes: log.appended_bytes,
            log_append_count: log.record_count,
            log_flush_count: log.flush_count,
            log_wait_count: log.claim_wait_count,
            in_doubt_count: env.in_doubt.count(),
            rolling_back_count: rollbacks.transaction_count,
            rollback_change_count: rollbacks.change_count,
            rollback_undone_count: rollbacks.undone_count,
            transaction_count: env.engine.table.active_count(),
            oldest_transaction_lsn: env.engine.table.first_lsn_low().map_or(0, |l| l.0),
            lock_wait_count: locks.waits,
            deadlock_count: locks.deadlocks,
            lock_timeout_count: locks.timeouts,
            log_pins: env.engine.log.pinned().into_iter().map(LogPinStat::from).collect(),
            #[cfg(feature = "media")]
            archive_trouble: super::media::archive_trouble(env),
            #[cfg(not(feature = "media"))]
            archive_trouble: None,
            keeper_troubles: env.keepers.troubles(),
            checkpoint_count: env.checkpoints.count.load(std::sync::atomic::Ordering::Relaxed),
            snapshots: env.engine.versions.pins().iter().map(SnapshotStat::from).collect(),
            oldest_snapshot_lsn: env.engine.versions.oldest_snapshot().0,
            version_store_bytes: versions.bytes_max,
            version_store_used_bytes: versions.used_bytes,
            version_floor_count: versions.floor_count,
            version_floor_lsn: versions.floor.0,
            version_spilled_count: versions.spilled_count,
            version_log_low_lsn: versions.log_low.map_or(0, |low| low.0),
            held_back_free_count: env.to_free.held_back_count(),
            is_failed: env.engine.is_failed(),
        })
    }
}

/// As the catalog has them, without looking at each table.
fn tables_and_indexes(txn: &Transaction) -> Result<(Vec<String>, Vec<IndexStat>), Error> {
    let (shared, env) = (&txn.shared, Arc::clone(txn.shared.env.arc()));
    shared.run(|txn| {
        let (mut tables, mut indexes) = (Vec::new(), Vec::new());
        let (sight, _view) = shared.sight(txn, Horizon::None)?;
        let mut scan = sight.scan(env.catalog(), Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((name, value)) = scan.next(txn)? {
            if Entry::structure_of(value).is_some() {
                continue;
            }
            let table = String::from_utf8_lossy(name).into_owned();
            indexes.extend(Definition::decode(&table, value)?.indexes.iter().map(|index| IndexStat {
                table: table.clone(),
                name: index.def.name().to_string(),
                keys: index.def.keys().to_string(),
                is_unique: index.def.is_unique(),
            }));
            tables.push(table);
        }
        Ok((tables, indexes))
    })
}

impl From<&SnapshotPin> for SnapshotStat {
    fn from(pin: &SnapshotPin) -> SnapshotStat {
        SnapshotStat {
            lsn: pin.lsn.0,
            xid: pin.xid.0,
            thread: pin.thread,
            age_ms: pin.age_ns / 1_000_000,
            held_bytes: pin.held_bytes,
        }
    }
}
