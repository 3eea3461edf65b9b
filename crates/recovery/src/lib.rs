//! From a crash to a running system: analysis, redo, undo (ARIES), and the checkpoints that keep them short.
//!
//! This crate calls operations without knowing them, and rolls back by the transactions' own rollback. It does not know
//! which files an environment has or how it is opened. The facade puts the phases together:
//!
//! ```text
//!  analysis ─► torn pages restored ─► incarnation raised ─► redo ─► prepared taken over ─► undo ─► open ─► checkpoint
//!                                                                                            └─ large losers ─► undo
//! ```
//! [`PageRebuild`] makes single pages again beside the living, after a death. [`backup`] copies a running environment
//! and reads such copies. [`PageRepair`] repairs single pages from a backup and the log.
#![forbid(unsafe_code)]

// The tests' smallest environment names this crate as its users do.
#[cfg(test)]
extern crate self as ledgerstone_recovery;

mod analysis;
pub mod backup;
mod checkpoint;
mod error;
mod gathered;
mod lsn_set;
mod page_repair;
mod pending;
mod rebuild;
mod redo;
mod repair;
mod report;
mod undo;
#[cfg(test)]
mod undo_tests;
mod undo_window;

pub use analysis::{Analysis, InDoubt, Loser, ToUndo, TreeOf, analyse};
pub use checkpoint::{Checkpoint, CheckpointRecord, checkpoint, checkpoint_keeping};
pub use error::RecoveryError;
pub use gathered::Gathered;
pub use page_repair::{PageRepair, Repaired};
pub use pending::Pending;
pub use rebuild::PageRebuild;
pub use redo::{Redone, redo};
pub use repair::repair;
pub use report::RecoveryReport;
pub use undo::{Adopted, adopt, bytes_to_undo, keep_prepared, undo, undo_later};
pub use undo_window::UNDO_READERS;
