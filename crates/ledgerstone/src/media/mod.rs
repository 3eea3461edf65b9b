//! Copies of an environment and what is made of them: backups, restores, the archive of the log, repair of pages.

mod archive;
mod backup;
mod log_union;
mod repair;
mod restore;

pub use backup::{Backup, BackupInfo, BackupOptions, BackupProgress, BackupReport, LeftOut};
pub use repair::{RepairPages, RepairReport};
pub use restore::{RestoreReport, RestoreTo};
