//! The directory that experiments use: made below the one that is measured, locked while it is in use, removed at the
//! end however the run ends. What a killed run left behind is removed by the next one, which finds it unlocked.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::budget::{Budget, Taken};
use crate::error::{On, ProbeError};

const PREFIX: &str = ".ledgerstone-probe-";
/// Left free for others, beyond what the run may use.
const RESERVE_BYTES: u64 = 16 << 20;

/// A directory of our own.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
    budget: Budget,
    /// Holds the lock.
    _lock: File,
}

impl WorkDir {
    /// Makes it, if there is room for `disk_bytes`.
    pub(crate) fn make(dir: &Path, disk_bytes: u64) -> Result<WorkDir, ProbeError> {
        let dir = &dir.canonicalize().map_err(|e| ProbeError::directory(dir, e))?;
        remove_leftovers(dir);
        let mut no = 0;
        let path = loop {
            let path = dir.join(format!("{PREFIX}{}-{no}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => break path,
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && no < 1000 => no += 1,
                Err(e) => return Err(ProbeError::directory(dir, e)),
            }
        };
        let lock = File::open(&path).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        });
        let lock =
            lock.map_err(|e| ProbeError::directory(dir, e)).and_then(|lock| check_room(dir, disk_bytes).map(|()| lock));
        match lock {
            Ok(lock) => Ok(WorkDir { path, budget: Budget::new(disk_bytes), _lock: lock }),
            Err(e) => {
                let _ = std::fs::remove_dir(&path);
                Err(e)
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn left_bytes(&self) -> u64 {
        self.budget.left_bytes()
    }

    /// An empty file that may grow to `bytes`.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> Result<WorkFile, ProbeError> {
        let taken = self.budget.take(bytes)?;
        let path = self.path.join(name);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).on("open")?;
        Ok(WorkFile { path, file, _taken: taken })
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // Nobody is left to be told; the next run tries again.
    }
}

fn check_room(dir: &Path, disk_bytes: u64) -> Result<(), ProbeError> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| ProbeError::directory(dir, e))?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    let need_bytes = disk_bytes.saturating_add(RESERVE_BYTES);
    // Some file systems do not know their size, and say 0 of 0: ramfs takes what memory there is.
    if stat.f_blocks == 0 || free_bytes >= need_bytes {
        return Ok(());
    }
    Err(ProbeError::NoSpace { dir: dir.to_owned(), free_bytes, need_bytes })
}

/// A file of an experiment, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct WorkFile {
    path: PathBuf,
    pub(crate) file: File,
    _taken: Taken,
}

impl WorkFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // Goes with the directory otherwise.
    }
}

/// Removes directories of runs that were killed.
fn remove_leftovers(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let unlocked =
            File::open(entry.path()).is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        if unlocked {
            let _ = std::fs::remove_dir_all(entry.path()); // Somebody else's: then it stays.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_does_not_know_its_size_is_not_full() {
        check_room(Path::new("/proc"), 1 << 20).expect("procfs has 0 blocks, as ramfs");
        check_room(Path::new("/"), u64::MAX).expect_err("more than there is");
    }

    #[test]
    fn nothing_is_left_behind_and_leftovers_of_killed_runs_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let dead = dir.path().join(".ledgerstone-probe-1-0");
        std::fs::create_dir(&dead).expect("made");
        std::fs::write(dead.join("file"), b"x").expect("written");
        let work = WorkDir::make(dir.path(), 1 << 20).expect("made");
        assert!(!dead.exists(), "nobody holds its lock");
        let second = WorkDir::make(dir.path(), 1 << 20).expect("a second one beside it");
        assert!(work.path().exists(), "the first is in use");
        let file = work.file("a", 100).expect("room");
        std::fs::write(file.path(), b"x").expect("written");
        drop((second, work, file));
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
    }

    #[test]
    fn more_than_the_disk_has_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let refused = WorkDir::make(dir.path(), u64::MAX);
        assert!(matches!(refused, Err(ProbeError::NoSpace { .. })), "{refused:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
    }
}
