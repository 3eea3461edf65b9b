//! An archive, looked at without an environment.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_disk::{Disk, FileDisk};
use ledgerstone_log::LOG_DIR;
use ledgerstone_page::Lsn;

use super::files::{path, problem_of, read_sum, starts, sums};
use super::format::Sum;
use crate::Error;

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
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Opens the archive in a directory.
    ///
    /// # Errors
    /// [`Error::NoArchive`] if the directory has none.
    pub fn open(path: impl AsRef<Path>) -> Result<ArchiveDirectory, Error> {
        ArchiveDirectory::open_on(Arc::new(FileDisk::new(path.as_ref())))
    }

    /// The same on any [`Disk`].
    ///
    /// # Errors
    /// As [`ArchiveDirectory::open`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<ArchiveDirectory, Error> {
        if !disk.exists(LOG_DIR)? {
            return Err(Error::NoArchive);
        }
        Ok(ArchiveDirectory { disk })
    }

    /// The segments, oldest first. With `verify`, the contents of each are compared with its sum, and gaps are
    /// problems. A segment whose sum is damaged has a problem in any case.
    ///
    /// # Errors
    /// [`Error::OlderFormat`], [`Error::NewerFormat`], the disk's.
    pub fn segments(&self, verify: bool) -> Result<Vec<ArchivedSegment>, Error> {
        let mut found = Vec::new();
        let mut before: Option<Sum> = None;
        for start in starts(&*self.disk)? {
            let Some(sum) = read_sum(&*self.disk, start)? else {
                let problem = Some("its sum is damaged".to_string());
                found.push(ArchivedSegment { file: path(start, "seg"), start_lsn: start, end_lsn: start, problem });
                continue;
            };
            let problem = if verify { self.problem(&sum, before.as_ref())? } else { None };
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

    fn problem(&self, sum: &Sum, before: Option<&Sum>) -> Result<Option<String>, Error> {
        if let Some(before) = before {
            if before.owner != sum.owner {
                return Ok(Some("it is of another environment, or another life, than the one before".into()));
            }
            if before.end != sum.start {
                return Ok(Some(format!("the log from LSN {} to {} is missing before it", before.end, sum.start)));
            }
        }
        problem_of(&*self.disk, sum)
    }

    /// Removes the segments that end at or before `lsn`: those that no backup that you keep needs
    /// ([`crate::Backup::needs_log_from`]). Returns how many.
    ///
    /// # Errors
    /// A failure of the disk. What was removed until then stays removed.
    pub fn remove_before(&self, lsn: Lsn) -> Result<u64, Error> {
        let mut count = 0;
        for sum in sums(&*self.disk)? {
            if sum.end <= lsn.0 {
                // The sum first: what has none is no part of the archive.
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
