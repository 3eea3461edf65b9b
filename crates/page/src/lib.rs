//! What the bytes of a page mean: ids, the header that every page has, its checksum, and layouts.
//!
//! A page is 4096 to 32768 bytes, a power of two. Its first 40 are the [`header`], which the engine owns; what follows
//! belongs to a [`Layout`], of which users can bring their own. [`raw`], [`fixed`], [`slotted`] and [`versioned`] (Lemon
//! 4.2) are here because everybody may want them; a structure keeps its layout in its own crate.
//!
//! All access to page bytes that others may be changing is through `Words` and `WordsMut` of the region. Bytes on their
//! way from or to a disk are plain slices, and private ([`checksum`]).
//!
//! This crate does not know latches, the log, the cache or transactions.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checksum;
mod error;
pub mod fixed;
pub mod header;
mod ids;
mod layout;
mod page_set;
pub mod planted;
pub mod raw;
pub mod slotted;
pub mod versioned;

pub use error::{Corrupt, FixedError, LayoutTaken, SlottedError};
pub use header::{HEADER_BYTES, PAGE_BYTES_MAX, PAGE_BYTES_MIN, is_page_bytes};
pub use ids::{LayoutId, Lsn, OpId, PageId, TableId, Xid};
pub use layout::{Layout, Layouts};
pub use page_set::PageSet;
