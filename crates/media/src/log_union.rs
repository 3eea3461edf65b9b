//! The segments of a log that lie in several places, as one directory to read: what the environment has, and the
//! archive.
//!
//! A record may begin in a segment that only the archive has, and end in one that only the environment has. So they are
//! put together as files, below the readers of records.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Open};
use ledgerstone_log::LOG_DIR;

/// Each file from the first disk that has it.
#[derive(Clone)]
pub(crate) struct LogUnion(pub Vec<Arc<dyn Disk>>);

impl LogUnion {
    fn refuse<T>(path: &str, operation: &'static str) -> Result<T, DiskError> {
        Err(DiskError::new(path, operation, DiskErrorKind::ReadOnlyFs))
    }
}

impl Disk for LogUnion {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        if !how.read_only {
            return LogUnion::refuse(path, "write");
        }
        for disk in &self.0 {
            match disk.open(path, how) {
                Err(error) if error.is_not_found() => {}
                other => return other,
            }
        }
        Err(DiskError::new(path, "open", DiskErrorKind::NotFound))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        for disk in &self.0 {
            if disk.exists(path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let mut names = Vec::new();
        for disk in &self.0 {
            if dir == LOG_DIR && disk.exists(dir)? {
                names.extend(disk.list(dir)?);
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        LogUnion::refuse(path, "remove")
    }

    fn rename(&self, from: &str, _to: &str) -> Result<(), DiskError> {
        LogUnion::refuse(from, "rename")
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        LogUnion::refuse(dir, "create")
    }

    fn sync_dir(&self, _dir: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        LogUnion::refuse(path, "lock")
    }

    fn describe(&self) -> String {
        self.0.iter().map(|disk| disk.describe()).collect::<Vec<_>>().join(" and ")
    }
}
