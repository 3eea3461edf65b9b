//! Begin, commit, abort; updates that are logged and applied in one step.
//!
//! A [`Txn`] is the only way to change a page (X1 in `txn.rs`). It chains its records in the log, takes locks through
//! the [`Engine`]'s lock manager, and can always be rolled back: by its program, by a deadlock, by a restart.
//!
//! This crate does not know what any operation does, which structures exist, or what a table is called. Structures
//! bring operations (`ledgerstone-op`) and, where a page alone cannot tell how to go back, a [`LogicalUndo`].
//!
//! Begin reading at [`Txn::update`], then `commit.rs` and `rollback.rs`.
#![forbid(unsafe_code)]

mod chain;
mod commit;
mod engine;
mod error;
mod locks;
mod rollback;
mod savepoint;
mod table;
mod txn;
mod undo;

pub use commit::{Committed, Durability};
pub use engine::{Engine, EngineParts, EngineSettings};
pub use error::TxnError;
pub use locks::{KeyLock, key_hash, key_name, table_name};
pub use savepoint::Savepoint;
pub use table::{TxnSlot, TxnTable, state};
pub use txn::{Part, RECORD_OVERHEAD_BYTES, Txn};
pub use undo::LogicalUndo;
