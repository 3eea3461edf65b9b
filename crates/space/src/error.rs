//! Why space was refused.

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::DiskError;
use ledgerstone_page::{Corrupt, PageId};
use ledgerstone_txn::TxnError;
use thiserror::Error;

/// Why pages could not be allocated, freed or examined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The data file cannot grow. Nothing has changed. The same call works once there is space.
    #[error("no space for {count} more pages of data: {source}")]
    NoSpace {
        /// Pages that were asked for.
        count: u32,
        /// What the file system said.
        source: DiskError,
    },
    /// More contiguous pages than one space map covers were asked for, or none.
    #[error("{count} contiguous pages are not between 1 and {max}")]
    BadCount {
        /// Pages that were asked for.
        count: u32,
        /// The most there can be.
        max: u32,
    },
    /// The file header does not fit the environment.
    #[error("file header: {0}")]
    Header(Corrupt),
    /// The data file was written by an older version.
    #[error("{file} has format {found}; this version reads {supported}")]
    OlderFormat {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
        /// The oldest that is known.
        supported: u32,
    },
    /// The data file was written by a newer version.
    #[error("{file} has format {found}; this version reads up to {supported}")]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
        /// The newest that is known.
        supported: u32,
    },
    /// A page that must be a space map is none, or a damaged one.
    #[error("space map: {0}")]
    Map(Corrupt),
    /// A page that is to be freed lies outside the file.
    #[error("page {0} lies outside the data file")]
    Outside(PageId),
    /// The data file failed.
    #[error(transparent)]
    Disk(DiskError),
    /// A space map could not be read or latched.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A record could not be written.
    #[error(transparent)]
    Txn(#[from] TxnError),
}
