//! What the bytes of a page mean: ids, the header all pages share, checksums, layouts.
//!
//! This crate knows bytes. It knows no latch, no log record, no cache.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checksum;
mod corrupt;
pub mod header;
mod ids;
mod layout;
pub mod planted;

pub use corrupt::Corrupt;
pub use header::HEADER_BYTES;
pub use ids::{LayoutId, Lsn, OpId, PageId, TableId, Xid};
pub use layout::{Layout, Layouts};

/// The smallest page, in bytes.
pub const PAGE_BYTES_MIN: usize = 4096;
/// The largest page, in bytes.
pub const PAGE_BYTES_MAX: usize = 32768;
