//! Backups: a fuzzy copy of the pages and the log that makes it whole; and the log since, again and again.
//!
//! - `format` says what the bytes of a backup file are, `writer` writes them front to back.
//! - `take` copies pages and log of a running environment.
//! - `disk` shows a chain of backup files as a disk, so that all that reads environments reads backups.
//! - `verify` proves a chain.
//!
//! Where backup files lie, what they are called and which of them make a chain is the facade's business.

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
