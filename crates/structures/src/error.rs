//! What can go wrong in a structure.

use ledgerstone_buffer::BufferError;
use ledgerstone_page::Corrupt;
use ledgerstone_space::SpaceError;
use ledgerstone_txn::TxnError;
use thiserror::Error;

/// Why a call on a tree or blob was refused or failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The key is longer than a page of this environment allows. Nothing has changed.
    #[error("key of {len} bytes is too large; at most {max} bytes fit")]
    KeyTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The value is too long. Nothing has changed.
    #[error("value of {len} bytes is too large; at most {max} bytes fit")]
    ValueTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A page is not what the page that names it says, or breaks an invariant of its layout.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The transaction was refused or failed: locks, log.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// The page cache was refused or failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The caller's progress callback has stopped it.
    #[error("stopped")]
    Stopped,
    /// There is no space, or a space map is damaged.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

impl From<TreeError> for TxnError {
    fn from(error: TreeError) -> TxnError {
        match error {
            TreeError::Txn(error) => error,
            TreeError::Buffer(error) => error.into(),
            TreeError::Corrupt(error) => error.into(),
            TreeError::Space(error) => error.into(),
            other => TxnError::Structure { structure: "b-tree", what: other.to_string() },
        }
    }
}
