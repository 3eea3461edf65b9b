//! Blobs: values too large for a leaf, in pages of their own.
//!
//! | file | its idea |
//! | --- | --- |
//! | `index.rs` | layout 6: which pages a long blob has |
//! | `data.rs` | layout 7: a page of content; the first of a short blob says how many follow |
//! | `ops.rs` | operations 64 to 71 |
//! | `store.rs` | create, read, free |
//! | `edit.rs` | change in place |
//!
//! ```text
//!  record in a leaf            index page (root of the blob)         index page
//!  ┌─────────────────┐         ┌────────────────────────────┐        ┌──────────
//!  │ page u64, len u64├───────►│ extents: 8 pages from 120,  │ next  │ extents …
//!  └─────────────────┘         │          3 pages from 200 … ├──────►│
//!                              └────────────────────────────┘        └──────────
//! ```
//! A value of few pages has no index. Its record names the first of its data pages, and the others lie behind it.
//!
//! A new value is a new blob. Groups make it, so that it exists whether its transaction commits or not. Until a record
//! refers to it, an entry in the tree of deferred frees does. Only a transaction that writes a value in parts changes a
//! blob in place.

mod data;
mod edit;
mod history;
mod index;
mod ops;
mod store;

use ledgerstone_page::{Corrupt, PageId};

use crate::TreeError;
use crate::btree::node::{BLOB, BLOB_REF_BYTES};

pub use data::BlobDataLayout;
pub(crate) use edit::write_at;
pub use index::BlobIndexLayout;
#[cfg(test)]
pub(crate) use ops::op_cases;
pub(crate) use ops::{OP_BLOB_FREE, register};
pub use store::read_range;
pub(crate) use store::{create, create_with_index, free_content, has_index, pages, read, read_at};

/// The largest value.
pub const BLOB_BYTES_MAX: usize = 1 << 30;

/// Header of a leaf's record that refers to a blob.
pub(crate) const REF_HEADER: u16 = BLOB | BLOB_REF_BYTES as u16;

/// Where a blob is, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRef {
    /// Its first page: that of its index, or of its content if it has no index.
    pub page: PageId,
    /// Bytes of its content.
    pub len: u64,
}

impl BlobRef {
    /// The bytes of the reference in the leaf.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOB_REF_BYTES] {
        let mut bytes = [0; BLOB_REF_BYTES];
        bytes[..8].copy_from_slice(&self.page.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads a reference from a leaf's record.
    ///
    /// # Errors
    /// The bytes are not a reference.
    pub fn decode(bytes: &[u8]) -> Result<BlobRef, TreeError> {
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()).map(u64::from_le_bytes);
        match (word(0), word(8), bytes.len()) {
            (Some(page), Some(len), BLOB_REF_BYTES) if page <= PageId::MAX.0 && len <= BLOB_BYTES_MAX as u64 => {
                Ok(BlobRef { page: PageId(page), len })
            }
            _ => Err(Corrupt::new("reference to a blob", 0, BLOB_REF_BYTES as u64, bytes.len() as u64).into()),
        }
    }
}
