//! What the cache needs from a log: how far it is durable, and to make it so.

use ledgerstone_log::{Log, LogError};
use ledgerstone_page::Lsn;

/// The part of the log that the write-ahead rule needs. [`Log`] has it, and tests bring their own.
pub trait WriteAhead: Send + Sync {
    /// Where the next record will start (`SeqCst`).
    fn tail(&self) -> Lsn;

    /// Records that start below are durable.
    fn durable_lsn(&self) -> Lsn;

    /// Waits until the record that starts at `lsn` is durable.
    ///
    /// # Errors
    /// The log's failure. The page that needed the record stays in memory.
    fn flush_to(&self, lsn: Lsn) -> Result<(), LogError>;

    /// True once nothing may be acknowledged any more. No page is written then: the data file may be another's.
    fn is_failed(&self) -> bool {
        false
    }

    /// The cache could not write a page: nothing may be acknowledged any more.
    fn fail(&self) {}
}

impl WriteAhead for Log {
    fn tail(&self) -> Lsn {
        Log::tail(self)
    }

    fn durable_lsn(&self) -> Lsn {
        Log::durable_lsn(self)
    }

    fn flush_to(&self, lsn: Lsn) -> Result<(), LogError> {
        Log::flush_to(self, lsn)
    }

    fn is_failed(&self) -> bool {
        Log::is_failed(self)
    }

    fn fail(&self) {
        Log::fail(self);
    }
}
