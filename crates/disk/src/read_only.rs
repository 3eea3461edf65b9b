//! [`ReadOnlyDisk`]: a disk that is only read, whatever is asked of it.

use std::sync::Arc;

use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::{DiskError, DiskErrorKind};

/// Another disk, of which nothing can be changed through this one. Files are opened for reading only. A call that would
/// change a file or a name is refused with `ReadOnlyFs`. Locks are shared with other readers.
pub struct ReadOnlyDisk(Arc<dyn Disk>);

impl ReadOnlyDisk {
    /// Reads `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> ReadOnlyDisk {
        ReadOnlyDisk(disk)
    }
}

fn refused<T>(name: &str, operation: &'static str) -> Result<T, DiskError> {
    Err(DiskError::new(name, operation, DiskErrorKind::ReadOnlyFs))
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        let file = self.0.open(path, Open { create: false, create_new: false, read_only: true, ..how })?;
        Ok(Arc::new(ReadOnlyFile(file)))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.0.exists(path)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        refused(path, "remove")
    }

    fn rename(&self, from: &str, _: &str) -> Result<(), DiskError> {
        refused(from, "rename")
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.0.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        refused(dir, "create directory")
    }

    fn sync_dir(&self, _: &str) -> Result<(), DiskError> {
        Ok(()) // Nothing has changed.
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.0.lock_shared(path)
    }

    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.0.lock_shared(path)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn damaged_slot(&self) -> Option<u64> {
        self.0.damaged_slot()
    }
}

struct ReadOnlyFile(Arc<dyn DiskFile>);

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DiskError> {
        refused(self.name(), "write")
    }

    fn write_durable_at(&self, _: u64, _: &[u8]) -> Result<(), DiskError> {
        refused(self.name(), "write")
    }

    fn sync(&self) -> Result<(), DiskError> {
        Ok(()) // Nothing has changed.
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.0.settle() // What others have changed.
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.0.len()
    }

    fn allocate(&self, _: u64, _: u64) -> Result<(), DiskError> {
        refused(self.name(), "allocate")
    }

    fn set_len(&self, _: u64) -> Result<(), DiskError> {
        refused(self.name(), "set length")
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    #[test]
    fn everything_can_be_read_and_nothing_changed() {
        let below = SimDisk::new();
        below.open("file", Open::CREATE).unwrap().write_at(0, b"bytes").unwrap();
        let disk = ReadOnlyDisk::new(Arc::new(below.clone()));
        let file = disk.open("file", Open::CREATE).unwrap();
        let mut bytes = [0; 5];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes, file.len().unwrap()), (b"bytes", 5));
        let refused = |result: Result<(), DiskError>| assert_eq!(result.unwrap_err().kind, DiskErrorKind::ReadOnlyFs);
        refused(file.write_at(0, b"other"));
        refused(file.write_durable_at(0, b"other"));
        refused(file.allocate(0, 10));
        refused(file.set_len(0));
        refused(disk.remove("file"));
        refused(disk.rename("file", "other"));
        refused(disk.create_dir("dir"));
        assert!(matches!(disk.open("missing", Open::CREATE), Err(error) if error.is_not_found()));
        assert_eq!(below.open("file", Open::READ).unwrap().len().unwrap(), 5);
    }
}
