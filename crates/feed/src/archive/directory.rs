//! An archive, looked at without an environment.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_disk::{Disk, FileDisk};
use ledgerstone_log::LOG_DIR;
use ledgerstone_page::Lsn;

use crate::LogDirectory;

use super::files::{files_of, path, problem_of, read_sum, starts, sums};
use super::format::Sum;
use ledgerstone_core::Error;
use ledgerstone_core::flow::{Flow, MediaProgress, telling};

/// A segment in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ArchivedSegment {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub start_lsn: u64,
    /// Where its log ends.
    pub end_lsn: u64,
    /// What is wrong with it. `None` if it is whole, or was not examined closely.
    pub problem: Option<String>,
}

/// An archive directory, looked at without an environment.
pub struct ArchiveDirectory {
    disk: Arc<dyn Disk>,
}

impl ArchiveDirectory {
    /// Opens the archive in a directory.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoArchive`] if the directory has none.
    pub fn open(path: impl AsRef<Path>) -> Result<ArchiveDirectory, Error> {
        ArchiveDirectory::open_on(Arc::new(FileDisk::new(path.as_ref())))
    }

    /// The same on any [`Disk`].
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`ArchiveDirectory::open`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<ArchiveDirectory, Error> {
        if !disk.exists(LOG_DIR)? {
            return Err(Error::NoArchive);
        }
        Ok(ArchiveDirectory { disk })
    }

    /// The segments, oldest first. A segment whose sum is damaged has a problem. The contents are not looked at
    /// ([`ArchiveDirectory::verify`]).
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::OlderFormat`], [`Error::NewerFormat`], the disk's.
    pub fn segments(&self) -> Result<Vec<ArchivedSegment>, Error> {
        self.found(|_, _, _| Ok(None))
    }

    /// The same, and compares the contents of each segment with its sum. A gap in the log is a problem of the segment
    /// behind it.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`ArchiveDirectory::segments`].
    pub fn verify(&self) -> Result<Vec<ArchivedSegment>, Error> {
        self.verify_with(|_| ())
    }

    /// The same. `progress` is called repeatedly, and may end the verification ([`Flow`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`ArchiveDirectory::verify`], and [`Error::Cancelled`].
    pub fn verify_with<F: Flow>(
        &self,
        progress: impl FnMut(MediaProgress) -> F,
    ) -> Result<Vec<ArchivedSegment>, Error> {
        let total_bytes = sums(&*self.disk)?.iter().map(|sum| sum.end - sum.start).sum();
        let mut tell = telling(progress);
        let mut done = 0;
        self.found(|sum, before, disk| {
            let problem =
                problem(disk, sum, before, &mut |bytes| tell("verify", (done + bytes).min(total_bytes), total_bytes))?;
            done += sum.end - sum.start;
            Ok(problem)
        })
    }

    /// The segments; `problem` says what is wrong with one, which comes behind another.
    fn found(
        &self,
        mut problem: impl FnMut(&Sum, Option<&Sum>, &dyn Disk) -> Result<Option<String>, Error>,
    ) -> Result<Vec<ArchivedSegment>, Error> {
        let mut found = Vec::new();
        let mut before: Option<Sum> = None;
        for start in starts(&*self.disk)? {
            let Some(sum) = read_sum(&*self.disk, start)? else {
                let problem = Some("its sum is damaged".to_string());
                found.push(ArchivedSegment { file: path(start, "seg"), start_lsn: start, end_lsn: start, problem });
                continue;
            };
            let problem = problem(&sum, before.as_ref(), &*self.disk)?;
            before = Some(sum);
            found.push(ArchivedSegment {
                file: path(sum.start, "seg"),
                start_lsn: sum.start,
                end_lsn: sum.end,
                problem,
            });
        }
        Ok(found)
    }

    /// Its log, for readers and for restores.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoArchive`] if it is empty, and as [`ArchiveDirectory::segments`].
    pub fn log(&self) -> Result<LogDirectory, Error> {
        LogDirectory::of_files(files_of(&self.disk)?.ok_or(Error::NoArchive)?)
    }

    /// Removes the segments that end at or before `lsn`: those that no backup that you keep needs
    /// (`Backup::needs_log_from`). Returns how many.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk. What was removed until then stays removed.
    pub fn remove_before(&self, lsn: Lsn) -> Result<u64, Error> {
        let mut count = 0;
        for sum in sums(&*self.disk)? {
            if sum.end <= lsn.0 {
                // The sum first: what has none is not a part of the archive.
                self.disk.remove(&path(sum.start, "sum"))?;
                if self.disk.exists(&path(sum.start, "seg"))? {
                    self.disk.remove(&path(sum.start, "seg"))?;
                }
                count += 1;
            }
        }
        if count > 0 {
            self.disk.sync_dir(LOG_DIR)?;
        }
        Ok(count)
    }
}

/// What is wrong with a segment behind another one. `tell` hears how many of its bytes are done.
fn problem(
    disk: &dyn Disk,
    sum: &Sum,
    before: Option<&Sum>,
    tell: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<Option<String>, Error> {
    if let Some(before) = before {
        if before.owner != sum.owner {
            return Ok(Some("it is of another environment, or another life, than the one before".into()));
        }
        if before.end != sum.start {
            return Ok(Some(format!("the log from LSN {} to {} is missing before it", before.end, sum.start)));
        }
    }
    problem_of(disk, sum, tell)
}
