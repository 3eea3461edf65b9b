//! What the bytes of a page mean: ids, the header that every page has, its checksum, and layouts.
//!
//! A page has 4096 to 32768 bytes, a power of two. Its first 40 bytes are the [`header`], which the engine owns. The
//! rest belongs to a [`Layout`], and users can bring their own. [`raw`], [`fixed`], [`slotted`] and [`versioned`]
//! (Lemon 4.2) are in this crate because they are of general use. A structure keeps its own layout in its own crate.
//!
//! Page bytes that other threads may be changing are accessed only through `Words` and `WordsMut` of the region. Bytes
//! on their way from or to a disk are plain slices, and private ([`checksum`]).
//!
//! This crate does not know latches, the log, the cache or transactions.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checksum;
mod error;
pub mod fixed;
pub mod header;
mod hex;
mod ids;
mod layout;
mod page_set;
pub mod planted;
pub mod raw;
pub mod slotted;
pub mod versioned;

pub use error::{Corrupt, Fact, FixedError, LayoutTaken, SlottedError};
pub use header::{HEADER_BYTES, PAGE_BYTES_MAX, PAGE_BYTES_MIN, is_page_bytes};
pub use hex::Hex;
pub use ids::{LayoutId, Lsn, OpId, PageId, TableId, Xid};
pub use layout::{Layout, Layouts};
pub use page_set::PageSet;
