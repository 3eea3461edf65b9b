//! A block device for tests: a loop device, which only root can make.

use std::path::PathBuf;
use std::process::Command;

/// A loop device over a file, until it is dropped.
pub struct LoopDevice {
    /// Of the device.
    pub path: PathBuf,
    /// A directory for what a test needs beside it. It has the file, `image`.
    pub dir: tempfile::TempDir,
}

impl LoopDevice {
    /// An empty device of so many bytes. `None` where none can be made: then it says so, and the test proves nothing.
    #[must_use]
    pub fn new(bytes: u64) -> Option<LoopDevice> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = dir.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("a file of the device's size");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        match made {
            Ok(made) if made.status.success() => {
                Some(LoopDevice { path: String::from_utf8_lossy(&made.stdout).trim().into(), dir })
            }
            refused => {
                eprintln!("no loop device can be made: nothing is proved ({refused:?})");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}
