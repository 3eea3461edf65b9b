//! What can go wrong on the way from a crash to a running system.

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::DiskError;
use ledgerstone_log::{ControlError, LogError, Malformed};
use ledgerstone_op::{OpError, UnknownOperation};
use ledgerstone_page::{Corrupt, Lsn, PageId};
use ledgerstone_sort::SortError;
use ledgerstone_space::SpaceError;
use ledgerstone_txn::TxnError;
use thiserror::Error;

/// Why a recovery or a checkpoint failed. Nothing committed is lost: remove the cause and open again.
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
    /// Page 0 cannot be marked.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// A file failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The temporary file in which a large loser's changes were sorted cannot be read back.
    #[error(transparent)]
    Sort(#[from] SortError),
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
    /// A page at home is older than what the log goes on from: an older version of it, or of the whole file.
    #[error(
        "page {page} of the data file has LSN {has}, but the record at LSN {lsn} continues {wants}: it is an older version of the page"
    )]
    OldPage {
        /// The page.
        page: PageId,
        /// Its LSN.
        has: Lsn,
        /// The record that comes next.
        lsn: Lsn,
        /// What that record continues.
        wants: Lsn,
    },
    /// A record's bytes do not hold what its kind promises.
    #[error("record at LSN {lsn} is damaged: {source}")]
    Record {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        source: Malformed,
    },
    /// The image that a repair was to begin with is not the page.
    #[error("the image to repair from is damaged: {0}")]
    Image(Corrupt),
    /// A page that is to be repaired lacks a record between its image and this one.
    #[error("page {page} cannot be repaired: the record at LSN {lsn} continues {wants}, but the image has {has}")]
    RepairGap {
        /// The page.
        page: PageId,
        /// The LSN of its image.
        has: Lsn,
        /// The record that comes next.
        lsn: Lsn,
        /// What that record continues.
        wants: Lsn,
    },
    /// A page that is to be repaired is in no backup, and the first record that changes it does not make it.
    #[error("page {page} cannot be repaired: the backup does not hold it, and the log changes it without making it")]
    NoImage {
        /// The page.
        page: PageId,
    },
    /// A Prepare record cannot be read: its transaction can neither be kept nor rolled back.
    #[error("prepare record at LSN {lsn} is damaged: {what}")]
    Prepare {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        what: &'static str,
    },
    /// A thread of recovery ended by a panic: a bug in an operation, or in this library.
    #[error("a {0} panicked")]
    WorkerPanicked(&'static str),
}

impl RecoveryError {
    /// Space was refused before anything was changed.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            RecoveryError::Log(error)
            | RecoveryError::Txn(TxnError::Log(error))
            | RecoveryError::Space(SpaceError::Txn(TxnError::Log(error))) => error.is_no_space(),
            _ => false,
        }
    }
}
