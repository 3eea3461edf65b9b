//! Begin, commit and abort, and updates that are logged and applied in one step.
//!
//! A [`Txn`] is the only way to change a page (X1 in `txn.rs`). It chains its records in the log, takes locks through
//! the [`Engine`]'s lock manager, and can always be rolled back: by its program, by a deadlock, by a restart.
//!
//! This crate does not know what an operation does, which structures exist, or what a table is called. Structures bring
//! operations (`ledgerstone-op`). Where a page alone is not enough to undo a change, they also bring a [`LogicalUndo`].
//!
//! Begin reading at [`Txn::update`], then `commit.rs` and `rollback.rs`.
//!
//! Under loom, only what is modelled is compiled: the registry of snapshots, and images that are written over. Of
//! transactions, it is how many slots are in use, their ids, and whether they may begin.
#![forbid(unsafe_code)]

#[cfg(any(not(loom), test))]
mod begins;
#[cfg(not(loom))]
mod chain;
#[cfg(not(loom))]
mod commit;
#[cfg(all(feature = "deaths", not(loom), not(miri)))]
mod deaths;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod error;
#[cfg(any(not(loom), test))]
mod ids;
#[cfg(not(loom))]
mod later;
#[cfg(not(loom))]
mod locks;
#[cfg(all(loom, test))]
mod loom_begins;
#[cfg(all(loom, test))]
mod loom_ids;
#[cfg(all(loom, test))]
mod loom_used;
#[cfg(not(loom))]
mod orphans;
#[cfg(not(loom))]
mod panicked;
#[cfg(not(loom))]
mod planted_repair;
#[cfg(not(loom))]
mod prepare;
#[cfg(not(loom))]
mod reason;
#[cfg(not(loom))]
mod rollback;
#[cfg(not(loom))]
mod savepoint;
#[cfg(any(not(loom), test))]
pub mod state;
#[cfg(not(loom))]
mod structure_latch;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod txn;
#[cfg(not(loom))]
mod undo;
#[cfg(any(not(loom), test))]
mod used;
#[cfg(not(loom))]
mod users_code;
#[cfg(not(loom))]
pub mod version;
mod waited;
#[cfg(all(loom, test))]
mod version {
    mod loom_registry;
    mod loom_tail;
    mod registry;
    mod tail;
}

#[cfg(not(loom))]
pub use chain::{FLAG_OUT_OF_ORDER, FLAG_UPKEEP};
#[cfg(not(loom))]
pub use commit::{Committed, Durability};
#[cfg(all(feature = "deaths", not(loom), not(miri)))]
pub use deaths::OwnParts;
#[cfg(not(loom))]
pub use engine::{Engine, EngineParts, EngineSettings};
#[cfg(not(loom))]
pub use error::TxnError;
#[cfg(not(loom))]
pub use locks::{KeyLock, key_hash, key_name, table_name};
#[cfg(not(loom))]
pub use orphans::OrphanInDoubt;
#[cfg(not(loom))]
pub use panicked::{KeptPanic, PANICKED};
#[cfg(all(feature = "deaths", not(loom)))]
pub use planted_repair::RepairPart;
#[cfg(not(loom))]
pub use prepare::{GLOBAL_ID_BYTES_MAX, Locked, PREPARED_LOCKS_MAX, PrepareRecord};
#[cfg(not(loom))]
pub use reason::Reason;
#[cfg(not(loom))]
pub use rollback::Step;
#[cfg(not(loom))]
pub use savepoint::Savepoint;
#[cfg(not(loom))]
pub use structure_latch::{StructureGuard, StructureLatch, StructureLatches};
#[cfg(not(loom))]
pub use table::{OWN_SLOT_COUNT, TxnSlot, TxnTable};
#[cfg(not(loom))]
pub use txn::{Part, RECORD_OVERHEAD_BYTES, Txn};
#[cfg(not(loom))]
pub use undo::{LogicalUndo, UndoPlace};
#[cfg(not(loom))]
pub use users_code::{PATIENCE_NS, Patience, Runs, UsersCode, WaitForCall, run_users_code};
#[cfg(not(loom))]
pub use version::{At, Before, Horizon, Image, Look, SnapshotPin, Unseen, VersionStat, VersionStore, View};
