//! What committed transactions have changed, and the log record by record. Programs use it as a part of the crate
//! `ledgerstone` (feature `feed`), which shows it under its own name. What this crate shows beside that may change in
//! any version.
//!
//! | module | its idea |
//! | --- | --- |
//! | `changes` | the change feed, and named feeds |
//! | `deliver`, `gather`, `names`, `needs` | what a feed knows of a transaction, of tables, and of the log that it needs |
//! | `items` | what a feed hands out |
//! | `log_reader`, `log_record` | the log of an environment, or of a directory, for readers |
//! | `archive` | an archive of the log, to read |
//!
//! It stands on what an open environment shares (`ledgerstone_core::base`), and knows neither tables nor
//! transactions of programs. Begin reading at `changes.rs`.
//!
//! # What blocks
//!
//! All calls are synchronous. Feeds and readers wait for the disk when they open, and when they read log that is not in
//! memory. [`ChangeFeed::acknowledge`] waits until the position is durable. [`ChangeFeed::follow`],
//! [`LogReader::follow`] and [`LogReader::wait`] wait for new records, up to a time-out. Programs call this crate
//! through the library, whose page says
//! [what the calls of `ledgerstone` wait for](../ledgerstone/index.html#what-blocks).
#![forbid(unsafe_code)]

pub mod archive;
mod changes;
mod deliver;
mod gather;
mod items;
mod log_reader;
mod log_record;
mod names;
mod needs;

pub use archive::{ArchiveDirectory, ArchivedSegment};
pub use changes::{ChangeFeed, changes, forget_all_changes, forget_changes, named_changes};
pub use items::{Change, ChangeValue, CommittedChanges, FeedItem, TableChange, TableEvent};
pub use log_reader::{LogDirectory, LogReader, log_reader};
pub use log_record::{LogChange, LogFilter, LogRecord};

/// The log of a directory, for what restores and repairs.
pub mod directory {
    pub use crate::log_reader::{durable, files, reader};
}
