//! [`FileDisk`]: the disk of a directory.
//!
//! In builds with debug assertions and the feature `simulated`, the variable `LEDGERSTONE_FAULT` puts a [`FaultDisk`]
//! before every directory of the process. So a command can be run as its users run it, on a device that does harm. The
//! text of the variable is that of [`Fault::from_str`], and calls are counted over all directories. The file named by
//! `LEDGERSTONE_FAULT_MET` is made when the fault is met.
//!
//! [`Fault::from_str`]: std::str::FromStr::from_str

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::DiskError;
use crate::file::{Directory, SyncMethod};

/// A directory of the operating system, as a [`Disk`].
#[derive(Clone)]
pub struct FileDisk {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
}

impl std::fmt::Debug for FileDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileDisk").field(&self.dir).finish()
    }
}

impl FileDisk {
    /// The disk in `dir`. Nothing is touched yet. [`Disk::create_dir`] of `""` makes the directory.
    pub fn new(dir: impl Into<PathBuf>) -> FileDisk {
        FileDisk::synced_by(dir, SyncMethod::default())
    }

    /// The same, with another way to make durable writes durable.
    pub fn synced_by(dir: impl Into<PathBuf>, method: SyncMethod) -> FileDisk {
        let dir = dir.into();
        let disk = with_faults(Arc::new(Directory(dir.clone(), method)));
        FileDisk { dir, disk }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[cfg(not(all(debug_assertions, any(test, feature = "simulated"))))]
fn with_faults(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    disk
}

#[cfg(all(debug_assertions, any(test, feature = "simulated")))]
fn with_faults(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    use std::sync::OnceLock;

    use crate::fault::{Fault, FaultDisk};

    static FAULTS: OnceLock<Option<FaultDisk>> = OnceLock::new();
    let faults = FAULTS.get_or_init(|| {
        let text = std::env::var("LEDGERSTONE_FAULT").ok()?;
        // A person who misspells a fault wants to know, and nobody else has set the variable.
        let fault: Fault = text.parse().unwrap_or_else(|what| panic!("LEDGERSTONE_FAULT={text}: {what}"));
        let faults = FaultDisk::new(Arc::new(Directory(PathBuf::new(), SyncMethod::default()))).telling(|| {
            if let Some(path) = std::env::var_os("LEDGERSTONE_FAULT_MET") {
                let _ = std::fs::write(path, b"");
            }
        });
        faults.add(fault);
        Some(faults)
    });
    match faults {
        Some(faults) => Arc::new(faults.before(disk)),
        None => disk,
    }
}

impl Disk for FileDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.disk.open(path, how)
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.disk.exists(path)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.disk.lock(path)
    }

    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.disk.lock_shared(path)
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }
}
