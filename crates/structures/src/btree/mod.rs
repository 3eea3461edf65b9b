//! B-link tree (Lehman & Yao): keys and values of any bytes, in order, with serializable locking.
//!
//! | file | its idea |
//! | --- | --- |
//! | `node.rs`, `bytes.rs` | layout 5, read, wherever its bytes lie |
//! | `edit.rs`, `entry.rs` | layout 5, changed, and whether it will fit; a record on its way |
//! | `node_check.rs` | its invariants, proved |
//! | `args.rs`, `ops.rs` | operations 32 to 46 |
//! | `tree.rs` | what a tree is; create; point read |
//! | `search.rs` | the way down |
//! | `write.rs` | insert, put, modify, delete |
//! | `split.rs`, `post.rs` | a node becomes two; the parent learns of it |
//! | `ghost.rs`, `merge.rs` | ghosts are purged; empty and sparse pages leave |
//! | `pack.rs`, `relocate.rs` | neighbours become full ones; pages move to lower places |
//! | `edges.rs` | ends of the tree that hold ghosts only are not passed one by one |
//! | `page_locks.rs` | leaves locked instead of keys |
//! | `snapshot.rs`, `history.rs`, `gathered.rs` | records as they were: by images, by the log |
//! | `bulk.rs`, `range_delete.rs` | many records at once: full leaves, emptied leaves |
//! | `long_value.rs` | parts of large values |
//! | `change.rs` | what a log record says about a record, for readers of the log |
//! | `undo.rs` | rollback by key |
//! | `scan.rs`, `last_key.rs` | ranges, both ways; the key that was given last |
//! | `ahead.rs` | leaves that a scan will come to are read meanwhile |
//! | `estimate.rs` | about how many records there are |
//! | `check.rs` | a whole tree, proved |
//!
//! Latches go map pages first, then tree pages, downwards and to the right. While one is held, no lock is waited for,
//! and nothing is read into the cache on purpose.

mod ahead;
pub(crate) mod args;
pub(crate) mod bulk;
pub mod bytes;
mod change;
mod check;
mod edges;
pub mod edit;
pub mod entry;
mod estimate;
mod fetch;
mod first;
mod gathered;
mod ghost;
mod history;
mod last_key;
mod long_value;
mod merge;
pub mod node;
pub mod node_check;
pub mod ops;
mod pack;
mod page_locks;
mod post;
mod range_delete;
mod relocate;
mod scan;
pub(crate) mod search;
mod snapshot;
pub(crate) mod split;
pub(crate) mod tree;
mod undo;
mod write;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod level_tests;
#[cfg(test)]
mod node_tests;

pub use bulk::Loader;
pub use change::{LoadedLeaf, RecordChange, Side, loaded_leaf, record_change};
pub use check::TreeReport;
pub(crate) use edges::Edges;
pub use ghost::Purged;
pub use long_value::FoundValue;
pub use pack::Packed;
pub use relocate::Moved;
pub use scan::{Direction, Record, Scan};
pub use tree::{Read, Tree};
pub(crate) use undo::register_undos;
pub use undo::tree_of_update;
