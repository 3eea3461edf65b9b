//! What is wrong with a backup, and why one could not be made.

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::DiskError;
use ledgerstone_log::LogError;
use ledgerstone_page::{Corrupt, Lsn};
use thiserror::Error;

/// Why a backup could not be written, read or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file is something else.
    #[error("{file} is not a backup")]
    NotABackup {
        /// The file.
        file: String,
    },
    /// The file has no end frame: making it was cut short.
    #[error("{file} is not complete: the backup that wrote it did not finish")]
    Incomplete {
        /// The file.
        file: String,
    },
    /// Some of its bytes are not what was written.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A page of it is damaged, although its frame is as it was written.
    #[error("{file} holds a damaged page: {corrupt}")]
    Page {
        /// The file.
        file: String,
        /// What is wrong.
        corrupt: Corrupt,
    },
    /// Written by a later version.
    #[error("{file} has format {found}, this version knows formats up to {supported}")]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
        /// The newest that this version reads.
        supported: u32,
    },
    /// The files do not belong together.
    #[error("these backups are not a chain: {what}")]
    Chain {
        /// Why.
        what: String,
    },
    /// The log in it does not reach the end that it promises.
    #[error("the log of {file} ends at LSN {found} instead of {expected}")]
    LogEnds {
        /// The file.
        file: String,
        /// Where its records end.
        found: Lsn,
        /// Where they should.
        expected: Lsn,
    },
    /// The caller's progress callback has cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The target could not be written.
    #[error("write the backup: {0}")]
    Write(#[from] std::io::Error),
    /// A page could not be copied.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A file could not be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
