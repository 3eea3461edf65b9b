//! What can go wrong on the way from a crash to a running system.

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::DiskError;
use ledgerstone_log::{ControlError, LogError, Malformed};
use ledgerstone_op::{OpError, UnknownOperation};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_txn::TxnError;
use thiserror::Error;

/// Why a recovery or a checkpoint failed. Nothing committed is lost: mend the cause and open again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The log cannot be read, is damaged below its durable end, or cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The control file cannot be written.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A page cannot be read or written.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A file failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The undo of a loser failed.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// The log names an operation that this program does not have.
    #[error("record at LSN {lsn}: {source}; open with the extension that wrote it")]
    UnknownOperation {
        /// The record.
        lsn: Lsn,
        /// Which operation.
        source: UnknownOperation,
    },
    /// An operation could not be redone: page and log contradict each other.
    #[error("redo of the record at LSN {lsn} on page {page} failed: {source}")]
    Redo {
        /// The record.
        lsn: Lsn,
        /// The page.
        page: PageId,
        /// What the operation said.
        source: OpError,
    },
    /// A record's bytes do not hold what its kind promises.
    #[error("record at LSN {lsn} is damaged: {source}")]
    Record {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        source: Malformed,
    },
    /// A redo worker ended by a panic: a bug in an operation.
    #[error("a redo worker panicked")]
    WorkerPanicked,
}
