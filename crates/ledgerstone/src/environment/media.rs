//! Backups, repairs and the archive, which stand on the environment (crate `ledgerstone-media`).

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ledgerstone_core::directory::{check_is_outside, disk_in};
use ledgerstone_core::flow::telling;
use ledgerstone_disk::{Disk, FileDisk};
use ledgerstone_media::Source;
use ledgerstone_page::{Lsn, PageId};

use crate::inner::Inner;
use crate::{
    Backup, BackupInfo, BackupOptions, BackupProgress, Environment, Error, Flow, MediaProgress, RepairPages,
    RepairReport,
};

impl Environment {
    /// Takes a backup into a directory of backups, which is made if it is missing. Everything else goes on meanwhile.
    /// [`Backup::restore`] makes an environment of it.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (saved, again) = (dir.path().join("saved"), dir.path().join("again"));
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path().join("shop"))?;
    /// use ledgerstone::{Backup, BackupOptions, RestoreTo};
    ///
    /// env.backup(&saved, BackupOptions::default())?;
    /// env.backup(&saved, BackupOptions::default().incremental(true))?;
    /// let report = Backup::open(&saved)?.restore(&again, RestoreTo::End, &[])?;
    /// assert!(report.left_out.is_empty());
    /// # env.close()
    /// # }
    /// ```
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LogGone`] for an incremental backup that comes too late: take a full one, take them more often, or keep
    /// an archive. [`Error::BackupUnderWay`], where the file system has locks. [`Error::InsideEnvironment`],
    /// [`Error::TargetNotEmpty`] if the directory is that of another environment. [`Error::Corrupt`] if a page is
    /// damaged. A failure of the disk. A backup that failed does not look like a backup.
    pub fn backup(&self, directory: impl AsRef<Path>, options: BackupOptions) -> Result<BackupInfo, Error> {
        self.backup_with(directory, options, |_| ())
    }

    /// The same. `progress` is called after each piece, and may give the backup up ([`Flow`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::backup`], and [`Error::Cancelled`].
    pub fn backup_with<F: Flow>(
        &self,
        directory: impl AsRef<Path>,
        options: BackupOptions,
        progress: impl FnMut(BackupProgress) -> F,
    ) -> Result<BackupInfo, Error> {
        let directory = directory.as_ref();
        self.check_is_outside(directory)?;
        self.backup_on(Arc::new(FileDisk::new(directory)), options, progress)
    }

    /// Refuses a place in the environment's own directory: what is there is lost with the environment. The calls that
    /// take a directory for a backup or an archive ask this themselves. It is for programs that open a file for
    /// [`Environment::backup_to`].
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::InsideEnvironment`]. A failure of the system.
    pub fn check_is_outside(&self, place: impl AsRef<Path>) -> Result<(), Error> {
        self.inner().directory.as_ref().map_or(Ok(()), |own| check_is_outside(place.as_ref(), own))
    }

    /// The same, into the root directory of any [`Disk`].
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::backup_with`].
    pub fn backup_on<F: Flow>(
        &self,
        disk: Arc<dyn Disk>,
        options: BackupOptions,
        mut progress: impl FnMut(BackupProgress) -> F,
    ) -> Result<BackupInfo, Error> {
        self.inner().engine.in_a_call_with_users(|| {
            ledgerstone_media::backup_on(self.source(&|| self.checkpoint_alone()), &disk, options, &mut |at| {
                progress(at).flow()
            })
        })
    }

    /// Takes a full backup as one stream of bytes, into a file or a pipe of the caller's. The stream is a backup only
    /// when this has returned.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::backup_with`].
    pub fn backup_to<F: Flow>(
        &self,
        to: &mut dyn Write,
        options: BackupOptions,
        mut progress: impl FnMut(BackupProgress) -> F,
    ) -> Result<u64, Error> {
        self.inner().engine.in_a_call_with_users(|| {
            ledgerstone_media::backup_to(self.source(&|| self.checkpoint_alone()), to, options, &mut |at| {
                progress(at).flow()
            })
        })
    }

    /// A checkpoint, without asking the keepers to work first.
    fn checkpoint_alone(&self) -> Result<Lsn, Error> {
        let env = self.inner();
        env.engine.in_a_call(|| env.checkpoint())
    }

    /// What a backup is taken from.
    fn source<'s>(&'s self, checkpoint: &'s dyn Fn() -> Result<Lsn, Error>) -> Source<'s> {
        Source { env: self.inner(), checkpoint }
    }

    /// Finds the pages of the data file that cannot be read. Reads all of the file, page by page. Everything else goes
    /// on meanwhile.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk. Damage is the result, not an error.
    pub fn damaged_pages(&self) -> Result<Vec<PageId>, Error> {
        let env = self.inner();
        env.engine.in_a_call(|| ledgerstone_media::damaged_pages(env))
    }

    /// The same in the directory of an environment that is not open, and that may be too damaged to be opened. Changes
    /// nothing. After a crash it also finds pages that the loss of power has torn. Opening repairs those by itself.
    /// `progress` is called repeatedly, and may end the search ([`Flow`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAnEnvironment`], [`Error::AlreadyOpen`], a control file that cannot be read, [`Error::Cancelled`],
    /// or a failure of the disk.
    pub fn damaged_pages_in<F: Flow>(
        directory: impl AsRef<Path>,
        progress: impl FnMut(MediaProgress) -> F,
    ) -> Result<Vec<PageId>, Error> {
        let disk = disk_in(directory)?;
        ledgerstone_media::damaged_pages_on(&disk, &mut telling(progress))
    }

    /// Repairs damaged pages from the newest full backup and the log since, while everything else runs. Pages that can
    /// be read are left alone.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LogGone`]: the log since the backup is not whole, neither here nor in the archive. [`Error::Corrupt`]:
    /// the backup is damaged, or does not lead to the page.
    pub fn repair(&self, backup: &Backup, pages: &RepairPages) -> Result<RepairReport, Error> {
        let env = self.inner();
        env.engine.in_a_call(|| ledgerstone_media::repair(env, backup, pages))
    }

    /// Copies the log into the archive now, up to what is durable. Without this call, segments are copied when they are
    /// full. Returns how many segments were examined.
    ///
    /// Of processes that share, only the one that leads has the archive, soon after it has taken the lead.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoArchive`], [`Error::ArchiveOfAnother`]. [`Error::Corrupt`] if the log is damaged where it was to be
    /// copied. A failure of the disk.
    pub fn archive_now(&self) -> Result<u64, Error> {
        let env = self.inner();
        env.engine.check_process()?;
        env.engine.in_a_call(|| {
            let tail = env.engine.log.tail();
            env.engine.log.flush_to(Lsn(tail.0.saturating_sub(8)))?;
            let latched = env.latch(&env.workers.latch[0])?;
            ledgerstone_media::archive_now(env, &latched)
        })
    }
}

/// Why the last copy to the archive failed.
pub(super) fn archive_trouble(env: &Inner) -> Option<String> {
    ledgerstone_media::archive_trouble(env)
}
