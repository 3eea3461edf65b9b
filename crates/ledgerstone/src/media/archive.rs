//! The archive of an open environment, and an archive as a log.

use ledgerstone_page::Lsn;

use crate::keeper::{Archive, ArchiveDirectory, files_of};
use crate::{Environment, Error, LogDirectory};

impl Environment {
    /// Copies the log into the archive now, up to what is durable. Without this call, segments are copied when they are
    /// full. Returns how many segments were examined.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoArchive`], [`Error::ArchiveOfAnother`]. [`Error::Corrupt`] if the log is damaged where it was to be
    /// copied. A failure of the disk.
    pub fn archive_now(&self) -> Result<u64, Error> {
        let env = self.inner();
        env.engine.check_process()?;
        let archive = env.keepers.find::<Archive>().ok_or(Error::NoArchive)?;
        let tail = env.engine.log.tail();
        env.engine.log.flush_to(Lsn(tail.0.saturating_sub(8)))?;
        let _latched = env.latch(&env.work_latch[0])?;
        archive.copy(true)
    }
}

impl ArchiveDirectory {
    /// Its log, for readers and for restores.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoArchive`] if it is empty, and as [`ArchiveDirectory::segments`].
    pub fn log(&self) -> Result<LogDirectory, Error> {
        LogDirectory::of_files(files_of(self.disk())?.ok_or(Error::NoArchive)?)
    }
}
