//! A transactional storage environment that a program embeds: any number of tables, concurrent serializable
//! transactions, and recovery that holds against any crash.
//!
//! ```
//! use ledgerstone::{Environment, Error, TableDef};
//!
//! const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
//!
//! fn main() -> Result<(), Error> {
//!     # let dir = tempfile::tempdir().unwrap();
//!     # let dir = dir.path();
//!     let env = Environment::options().cache_bytes(16 << 20).open(dir)?;
//!
//!     // A transaction that is run again when it meets a deadlock.
//!     env.transact(|txn| {
//!         let accounts = txn.open(ACCOUNTS)?;
//!         accounts.put(1, 100)?;
//!         accounts.put(2, 50)
//!     })?;
//!
//!     // Explicit begin and commit; dropping the transaction would roll it back.
//!     let txn = env.begin()?;
//!     let accounts = txn.open(ACCOUNTS)?;
//!     accounts.modify(1, |balance| Some(balance - 30))?;
//!     accounts.modify(2, |balance| Some(balance + 30))?;
//!     let committed = txn.commit()?;
//!     assert!(committed.ticket.is_durable());
//!
//!     let sum: i64 = env.transact(|txn| {
//!         let mut sum = 0;
//!         for record in txn.open(ACCOUNTS)?.range(..)? {
//!             sum += record?.1;
//!         }
//!         Ok(sum)
//!     })?;
//!     assert_eq!(sum, 150);
//!     env.close()
//! }
//! ```
//!
//! - [`Environment`] is the directory. [`Environment::transact`] and [`Environment::begin`] make transactions.
//! - [`BytesTable`] stores byte strings, and [`Table`] typed keys and values ([`TableDef`]). The module [`typed`] says
//!   which types there are, how to derive them for structs, and how to store types that `serde` knows.
//! - [`TypedEnvTable`] and [`EnvTable`] are tables that are opened once for all transactions and threads. Each of their
//!   calls takes the transaction, which spares the transactions the opening. Made by [`Environment::typed_table`] and
//!   [`Environment::table`].
//! - [`Transaction::create_index`] makes an index: another way to find records, which every change keeps up to date
//!   ([`Index`]).
//! - [`Isolation`] is chosen for each transaction. [`Environment::snapshot`] reads without locks and without waiting.
//! - [`Environment::backup`] copies an environment while it runs. [`Backup`] restores and repairs.
//! - [`Environment::changes`] follows what transactions commit. The crate `ledgerstone-dump` writes and reads tables as
//!   text.
//! - [`LogReader`] reads the log forward and backward, and can wait for new records.
//! - [`Durability`] is chosen for each commit. A [`Ticket`] tells when the commit is durable, and can be awaited.
//! - There is no map size to set, and many transactions can write at once. A crash leaves nothing behind to clean up.
//!
//! # What blocks
//!
//! All calls are synchronous, and these may block their thread:
//!
//! - **Locks, pages, room in the log.** Calls of tables, indexes and structures, and the steps of their iterators, wait
//!   for locks and for pages to be read. So do calls that open, list, make, rename or drop them. A change also waits
//!   for room in the log, and so does [`Environment::reclaim`]. A call waits for a lock no longer than
//!   [`Options::lock_timeout`]. At the levels below [`Isolation::Serializable`], reads wait for no locks.
//! - **Other threads of the same transaction.** Every call of a transaction waits while another thread is in one.
//! - **Whole transactions.** [`Environment::transact`] and its variants do all of that, commit, and pause before they
//!   run a transaction again. [`Transaction::commit`] waits until the commit is durable with [`Durability::Sync`] only.
//!   With the others it may wait for room in the log. [`Transaction::prepare`] waits until the transaction is durable.
//!   The decision of a prepared transaction waits for the disk too: [`Prepared::commit`], [`Prepared::abort`],
//!   [`Environment::commit_in_doubt`] and [`Environment::abort_in_doubt`].
//! - **Rollback.** [`Transaction::abort`] and [`Transaction::rollback_to`] may read pages. So may a nested transaction
//!   that fails, and dropping a transaction that is still open.
//! - **The disk.** [`Options::open`], [`Environment::sync`], [`Environment::checkpoint`], [`Environment::close`] and
//!   [`Ticket::wait`] wait for it. So do change feeds, readers of the log, archives, and calls that look at a closed
//!   environment. [`Environment::stat`] and [`Environment::table_names`] may read pages.
//! - **Long work.** Backups, restores, repairs, compactions and verifications take as long as their work.
//! - **News.** [`ChangeFeed::follow`], [`LogReader::follow`] and [`LogReader::wait`] wait for new records, up to a
//!   time-out.
//!
//! [`Environment::begin`], [`Environment::snapshot`] and [`Ticket::is_durable`] wait neither for locks nor for the
//! disk. Awaiting a [`Ticket`] never blocks. Async code makes all other calls in threads that may block, such as those
//! of tokio's `spawn_blocking`. The example program `async_orders` shows how. Each call that may block says so on its
//! own page.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `derive` (on) | `#[derive(Key)]` and `#[derive(Value)]` |
//! | `feed` (on) | change feeds and readers of the log: [`Environment::changes`], [`Environment::log_reader`], [`LogDirectory`] |
//! | `media` (on) | backups, restores, repairs and the archive: [`Environment::backup`], [`Backup`], [`Options::archive_on`]; it turns `feed` on |
//! | `settings-file` | `ledgerstone.toml` is read. Without it, an environment that has the file is refused ([`Error::NotBuilt`]) |
//! | `json` | indexes by a member of JSON values ([`IndexKeys::Json`]) with `JsonKey`; values as JSON text, `typed::Json` |
//! | `postcard` | values in a compact form, `typed::Postcard` |
//! | `serde` | [`Stat`] and the reports implement `serde::Serialize` |
//! | `uuid` | `uuid::Uuid` as a key and a value |
//!
//! An index by JSON members that another program made can be read without `json`. Its table cannot be changed. Without
//! `feed`, the log is kept all the same for the named feeds of an environment; the command `ledgerstone changes` can
//! forget one. Without `media`, an environment whose settings name an archive is refused, for reading too
//! ([`Error::NotBuilt`]).
//!
//! This crate puts the layers below it together, and has what no layer below knows: how an environment is opened and
//! closed, tables and indexes, isolation levels. What stands on an environment is in crates of its own. Feeds and
//! readers of the log are in `ledgerstone-feed`, and backups in `ledgerstone-media`. Begin reading at
//! `environment/open/mod.rs`.
#![forbid(unsafe_code)]

mod catalog;
mod choice;
pub mod config;
mod environment;
pub mod extend;
mod inner;
mod rare;
mod table;
mod transaction;
pub mod typed;

use ledgerstone_core::{error, flow, keeper};

pub use choice::{Locking, LogValues, Replacement, Sharing};
pub use config::{Config, Effective, Options, RecoveryPhase, RecoveryProgress};
pub use environment::{
    CompactPhase, CompactProgress, CompactReport, Environment, IndexStat, LockWait, LogPinStat, Problem, ProcessStat,
    Skipped, SnapshotStat, Stat, VerifyProgress, VerifyReport,
};
pub use inner::{InDoubt, RollbackProgress, RollingBack};
pub use ledgerstone_core::catalog::{IndexDef, IndexKeys};
#[cfg(feature = "json")]
pub use ledgerstone_core::catalog::{JsonKey, JsonNumber};
pub use ledgerstone_core::choice::Isolation;
pub use ledgerstone_core::flow::{Flow, MediaProgress};
pub use ledgerstone_core::keeper::{GoingSegment, KeeperTrouble, KeptLog, LogKeeper};
pub use ledgerstone_core::{Error, TypeMismatch};
#[cfg(feature = "feed")]
pub use ledgerstone_feed::{
    ArchiveDirectory, ArchivedSegment, Change, ChangeFeed, ChangeValue, CommittedChanges, FeedItem, LogChange,
    LogDirectory, LogFilter, LogReader, LogRecord, TableChange, TableEvent,
};
#[cfg(feature = "media")]
pub use ledgerstone_media::{
    Backup, BackupInfo, BackupOptions, BackupProgress, BackupReport, LeftOut, RepairPages, RepairReport, RestoreReport,
    RestoreTo,
};
pub use table::{
    BytesTable, Entry, EnvTable, Index, IndexRange, IndexedRecord, IndexedRecords, Range, Record, SortedLoader, Table,
    TypedEntry, TypedEnvTable, TypedIndex, TypedIndexRange, TypedRange, TypedSortedLoader, ValueReader, ValueWriter,
};
pub use transaction::{Committed, Prepared, Savepoint, Ticket, Transaction, TransactionOptions};
pub use typed::{Key, TableDef, TableTypes, TypeName, Value};

#[doc(hidden)] // For the crates of this workspace.
pub use ledgerstone_disk::is_obeyed;
pub use ledgerstone_disk::{Quoted, Readable, SyncMethod, quoted};
pub use ledgerstone_lock as lock;
pub use ledgerstone_lock::{Conflict, Victim};
pub use ledgerstone_log::RecordKind;
pub use ledgerstone_page::{Lsn, OpId, PageId, TableId, Xid};
pub use ledgerstone_recovery::RecoveryReport;
pub use ledgerstone_txn::Durability;
