//! A file system in memory that is soon full: only root can mount one.

use std::path::Path;
use std::process::Command;

/// A directory of its own file system in memory, until it is dropped.
pub struct SmallMemory(tempfile::TempDir);

impl SmallMemory {
    /// One of so many bytes. `None` where none can be made: then it says so, and the test proves nothing.
    ///
    /// # Panics
    /// There is no directory for it.
    #[must_use]
    pub fn new(bytes: u64) -> Option<SmallMemory> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let size = format!("size={bytes}");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(dir.path()).output();
        match made {
            Ok(made) if made.status.success() => Some(SmallMemory(dir)),
            refused => {
                eprintln!("no file system can be mounted: nothing is proved ({refused:?})");
                None
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        // It may be in use until the test's process ends.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
