//! Backups: a fuzzy copy of the pages with the log that makes it whole, and then copies of the log since the last
//! backup.
//!
//! - `format` says what the bytes of a backup file are, `writer` writes them front to back.
//! - `take` copies pages and log of a running environment.
//! - `disk` shows a chain of backup files as a disk, so that all code that reads environments can read backups.
//! - `verify` checks a chain.
//!
//! This crate does not know where backup files are, what they are called, and which of them make a chain. The facade
//! does.

mod disk;
mod error;
mod format;
mod take;
mod verify;
mod writer;

pub use disk::{BackupDisk, BackupFile, BackupView};
pub use error::BackupError;
pub use format::{BACKUP_FORMAT, End, Header};
pub use take::{BackupProgress, OlderLog, Take, Taken};
pub use verify::{Verified, log_reader, verify};
