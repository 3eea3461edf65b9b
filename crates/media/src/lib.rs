//! Copies of an environment and their use: backups, restores, the archive of the log, and repair of pages. Programs use
//! it as a part of the crate `ledgerstone` (feature `media`), which shows it under its own name. What this crate shows
//! beside that may change in any version.
//!
//! | module | its idea |
//! | --- | --- |
//! | `backup` | backups of a running environment, and directories of them |
//! | `restore` | an environment made anew from backups and log |
//! | `repair` | single pages made whole again |
//! | `archive` | the keeper that copies the log before it is given up |
//! | `log_union` | a log whose segments lie in several places |
//!
//! It stands on what an open environment shares (`ledgerstone_core::base`), and reads logs with `ledgerstone-feed`. It
//! knows neither tables nor transactions of programs. Begin reading at `backup.rs`.
//!
//! # What blocks
//!
//! All calls are synchronous. Backups, restores and repairs take as long as their work, and [`archive_now`] as long as
//! the log takes that is not copied yet. The others that wait for the disk say so. Nothing here waits for locks of
//! tables. Programs call this crate through the library, whose page says
//! [what the calls of `ledgerstone` wait for](../ledgerstone/index.html#what-blocks).
#![forbid(unsafe_code)]

mod archive;
mod backup;
mod log_union;
mod repair;
mod restore;

pub use archive::{archive, archive_now, archive_trouble};
pub use backup::{
    Backup, BackupInfo, BackupOptions, BackupProgress, BackupReport, LeftOut, Source, backup_on, backup_to,
};
pub use repair::{RepairPages, RepairReport, damaged_pages, damaged_pages_on, repair};
pub use restore::{RestoreReport, RestoreTo};
