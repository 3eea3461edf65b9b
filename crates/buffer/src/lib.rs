//! Pages in memory, and when they go out.
//!
//! A page is found through the *page table*, an array in the region that is indexed by page id ([`Cache`], `cache.rs`).
//! An entry is two words: the page's latch with its version, and the number of the frame that holds the page. Reading a
//! page that is in memory touches that one cache line. It takes no hash, no system call, no allocation and no mutex.
//!
//! | file | its idea |
//! | --- | --- |
//! | `cache.rs` | page table, the hit path, how to get a page |
//! | `entry.rs` | an entry of the page table, and why a reader cannot be fooled |
//! | `dirt.rs` | what of a frame's page is not yet durable |
//! | `frame.rs` | frames, their descriptors, who has them, sleeping for progress |
//! | `free.rs` | finding a free frame |
//! | `guard.rs` | [`OptimisticPage`], [`SharedPage`], [`ExclusivePage`] |
//! | `miss.rs` | reading in, evicting, getting a frame |
//! | `read_ahead.rs` | runs of pages in one read, for threads that will want them soon |
//! | `readers.rs` | threads that read ahead of those that will want pages |
//! | `repair.rs` | what survivors do after a death |
//! | `replace/` | which frame to take next: a trait and its policies |
//! | `write_back.rs` | the only way out for a page, and the write-ahead rule |
//! | `lane.rs` | who has which lane of the double-write area |
//! | `torn.rs` | the double-write area, and the repair of torn pages at open |
//! | `writer.rs` | the thread that keeps frames clean ahead of need |
//!
//! This crate knows pages, LSNs and nothing else. It does not know what a page means, or who changes it and why.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(not(loom))]
mod behind;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod copy_out;
#[cfg(all(feature = "deaths", not(loom)))]
mod deaths;
#[cfg(any(not(loom), test))]
mod dirt;
#[cfg(not(loom))]
mod discard;
#[cfg(any(not(loom), test))]
#[cfg_attr(loom, expect(dead_code, reason = "a model has no replacement policy"))]
mod entry;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod frame;
mod frame_no;
#[cfg(any(not(loom), test))]
#[cfg_attr(loom, expect(dead_code, reason = "a model has no repair"))]
mod free;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
mod lane;
#[cfg(all(loom, test))]
mod loom_dirt;
#[cfg(all(loom, test))]
mod loom_entry;
#[cfg(all(loom, test))]
mod loom_free;
#[cfg(all(loom, test))]
mod loom_put_off;
#[cfg(not(loom))]
mod miss;
#[cfg(not(loom))]
mod pending;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod populate;
#[cfg(any(not(loom), test))]
mod put_off;
#[cfg(not(loom))]
mod read_ahead;
#[cfg(not(loom))]
mod readers;
#[cfg(not(loom))]
mod repair;
#[cfg(not(loom))]
pub mod replace;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod torn;
#[cfg(not(loom))]
mod write_ahead;
#[cfg(not(loom))]
mod write_back;
#[cfg(not(loom))]
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use frame_no::FrameNo;
#[cfg(not(loom))]
pub use {
    cache::Cache,
    config::{CacheConfig, TornPages, Tuning},
    error::BufferError,
    guard::{ExclusivePage, OptimisticPage, Restart, SharedPage},
    pending::{NeedsOld, PendingChanges, PendingRedo},
    read_ahead::ReadAhead,
    repair::{CacheRepair, Rebuild},
    replace::{Policy, Replacement},
    stats::CacheStats,
    torn::make_double_write,
    write_ahead::WriteAhead,
};
