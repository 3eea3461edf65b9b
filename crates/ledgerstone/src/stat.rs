//! Figures of a running environment, as one plain value.

use serde::Serialize;

use crate::config::Effective;
use crate::{Environment, Error};

/// A snapshot of counters and sizes. Counters count since the environment was opened.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Stat {
    /// Tables by name.
    pub tables: Vec<String>,
    /// Settings in force.
    pub settings: Effective,
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
    /// Pages evicted.
    pub eviction_count: u64,
    /// The log's end.
    pub log_tail_lsn: u64,
    /// What a crash cannot take any more.
    pub log_durable_lsn: u64,
    /// Bytes appended to the log.
    pub log_append_bytes: u64,
    /// Records appended.
    pub log_append_count: u64,
    /// Flushes of the log, each a durable write.
    pub log_flush_count: u64,
    /// Transactions running now.
    pub transaction_count: u32,
    /// The oldest LSN that a running transaction may need to roll back; 0 if none wrote. The log from here on is kept.
    pub oldest_transaction_lsn: u64,
    /// Locks that had to be waited for.
    pub lock_wait_count: u64,
    /// Deadlocks ended by rolling a transaction back.
    pub deadlock_count: u64,
    /// Lock waits that timed out.
    pub lock_timeout_count: u64,
    /// Checkpoints taken.
    pub checkpoint_count: u64,
    /// True once the environment has failed.
    pub is_failed: bool,
}

impl Environment {
    /// Counters and sizes now.
    ///
    /// # Errors
    /// The list of tables or the space maps cannot be read.
    pub fn stat(&self) -> Result<Stat, Error> {
        let tables = self.transact(|txn| txn.table_names())?;
        let env = self.inner();
        let (log, cache, locks) = (env.engine.log.stat(), env.engine.cache.stats(), env.engine.locks.stats());
        Ok(Stat {
            tables,
            settings: env.effective.clone(),
            page_count: env.space.page_count(),
            allocated_page_count: env.space.allocated_count()?,
            frame_count: u64::from(cache.frame_count),
            dirty_frame_count: u64::from(cache.dirty_frame_count),
            page_read_count: cache.read_count,
            page_write_count: cache.write_count,
            eviction_count: cache.eviction_count,
            log_tail_lsn: env.engine.log.tail().0,
            log_durable_lsn: env.engine.log.durable_lsn().0,
            log_append_bytes: log.appended_bytes,
            log_append_count: log.record_count,
            log_flush_count: log.flush_count,
            transaction_count: env.engine.table.active_count(),
            oldest_transaction_lsn: env.engine.table.first_lsn_low().map_or(0, |l| l.0),
            lock_wait_count: locks.waits,
            deadlock_count: locks.deadlocks,
            lock_timeout_count: locks.timeouts,
            checkpoint_count: env.checkpoint_count.load(std::sync::atomic::Ordering::Relaxed),
            is_failed: env.engine.is_failed(),
        })
    }
}
