//! Secondary indexes: other ways to find a table's records, kept in the transaction that changes them.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! use ledgerstone::{IndexDef, IndexKeys};
//!
//! let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! env.transact(|txn| {
//!     txn.create_table("people")?;
//!     txn.create_index("people", &IndexDef::new("by_city", IndexKeys::Json("city".into())))?;
//!     let people = txn.bytes("people")?;
//!     people.put(b"1", br#"{"name":"Ada","city":"London"}"#)?;
//!     people.put(b"2", br#"{"name":"Max","city":"Bern"}"#)?;
//!     let in_bern = people.index("by_city")?.lookup(b"Bern")?.collect::<Result<Vec<_>, _>>()?;
//!     assert_eq!(in_bern, [(b"Bern".to_vec(), b"2".to_vec())]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! An index is a tree of its own, named in the catalog entry of its table (`catalog/definition.rs`); its entries hold
//! index key and primary key (`catalog/index/entry.rs`).
//!
//! X1. A table and its indexes change together. Each change of a record is one step of its transaction, with a
//!     savepoint before it. It is taken back whole when any part of it is refused or panics. From there on logging,
//!     rollback, restart and snapshots need know nothing of indexes: an index is a tree like any other.
//! X2. What a record's entries are follows from its key and value alone. So the entries to remove are computed from the
//!     value that is replaced, which is locked for update before it is read.
//! X3. Nobody changes records with an old list of indexes. To create or drop an index, the table is locked exclusively.
//!     A writer has locked the table, and then compares what it knows with the catalog (G2, I4).
//! X4. A reader of an index locks its entries and the gaps between them, as of any tree: a record cannot come to
//!     match, or cease to, what was looked up. The index has a table id of its own for that. A transaction that
//!     locks the table exclusively locks its indexes, too.
//! X5. The function of an index may not be registered in this process, or for JSON values, not be built in. Such an
//!     index is read, dropped, moved and freed like any other. A change of a record, which would need the function, is
//!     refused. So is one whose function is registered for other types than the catalog names: its keys would not be
//!     those that are there.
//! X6. A range delete goes through each index in the index's own order, since in the table's order each record would
//!     cost a page of each index. The entries are locked as their records go, so that a transaction that looks
//!     meanwhile waits at the entry; they are deleted once they are sorted (`range_delete.rs`).

mod build;
mod check;
mod keep;
mod range_delete;
mod read;
mod typed;

pub(crate) use build::Builders;
pub use read::{Index, IndexRange, IndexedRecord, IndexedRecords};
pub use typed::{TypedIndex, TypedIndexRange};
