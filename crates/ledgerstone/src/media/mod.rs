//! Copies of an environment and their use: backups, restores, the archive of the log, and repair of pages.

mod archive;
mod backup;
mod log_union;
mod repair;
mod restore;

pub use backup::{Backup, BackupInfo, BackupOptions, BackupProgress, BackupReport, LeftOut};
pub use repair::{RepairPages, RepairReport};
pub use restore::{RestoreReport, RestoreTo};
