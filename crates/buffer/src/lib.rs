//! Pages in memory, and when they go out.
//!
//! A page is found through the *page table*, an array in the region that is indexed by page id ([`Cache`], `cache.rs`). An
//! entry is two words: the page's latch with its version, and the number of the frame that holds it. Reading a page
//! that is in memory touches that one cache line: no hash, no system call, no allocation, no mutex.
//!
//! | file | its idea |
//! | --- | --- |
//! | `cache.rs` | page table, the hit path, how to get a page |
//! | `frame.rs` | frames, their descriptors, the list of free frames, sleeping for progress |
//! | `guard.rs` | [`OptimisticPage`], [`SharedPage`], [`ExclusivePage`] |
//! | `miss.rs` | reading in, evicting, getting a frame |
//! | `replace/` | which frame to take next: a trait and its policies |
//! | `write_back.rs` | the only way out for a page, and the write-ahead rule |
//! | `torn.rs` | the double-write area, and the repair of torn pages at open |
//! | `writer.rs` | the thread that keeps frames clean ahead of need |
//!
//! This crate knows pages, LSNs and nothing else: not what a page means, nor who changes it, nor why.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cache;
mod error;
mod frame;
mod guard;
mod miss;
pub mod replace;
mod stats;
mod torn;
mod write_ahead;
mod write_back;
mod writer;

#[cfg(test)]
mod tests;

pub use cache::{Cache, CacheConfig, TornPages, Tuning};
pub use error::BufferError;
pub use frame::FrameNo;
pub use guard::{ExclusivePage, OptimisticPage, Restart, SharedPage};
pub use replace::{Policy, Replacement};
pub use stats::CacheStats;
pub use write_ahead::WriteAhead;
