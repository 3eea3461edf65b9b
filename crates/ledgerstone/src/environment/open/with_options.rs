//! [`Options::open`], and what it finds in a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledgerstone_core::directory::{check_is_outside, disk_in, disk_to_fill};
use ledgerstone_disk::{Device, Disk, FileDisk};
use ledgerstone_log::{CONTROL_PATH, ControlFile};

use crate::Error;
use crate::config::{Config, Effective, Maker, Options};
use crate::environment::Environment;

impl Options {
    /// Opens the environment in directory `path`, recovering it if it was not closed in order. Makes the directory and
    /// the environment if they are missing, unless [`Options::create`] is false.
    ///
    /// `path` can also be a block device, which the environment then has to itself, without a file system. A device is
    /// formatted if its first and last MiB are zero. Otherwise it is refused unless it was formatted before. A device
    /// has no settings file: this program's settings and the defaults count.
    ///
    /// # Blocking
    /// Waits for the disk. A recovery reads the log since the last checkpoint; [`Options::recovery_progress`] tells how
    /// far it has come.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`], [`Error::NotAnEnvironment`], [`Error::Permission`]. [`Error::ReadOnly`] if there is no
    /// space, or if recovery would have to write and may not. [`Error::Memory`] if the cache does not fit.
    ///
    /// For settings: [`Error::Setting`], [`Error::SettingsFile`], [`Error::WrongPageSize`]. [`Error::NotBuilt`] if
    /// there is a settings file, and the program was built without the feature `settings-file`. The same for an archive
    /// and the feature `media`.
    ///
    /// For the files: [`Error::NewerFormat`], [`Error::OlderFormat`], [`Error::Corrupt`], [`Error::ControlFile`],
    /// [`Error::LockFileMissing`]. [`Error::ArchiveOfAnother`], [`Error::InsideEnvironment`] for the archive.
    /// [`Error::UnknownOperation`] if the environment needs a
    /// structure that is not registered. [`Error::Disk`] for any other failure of the disk.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Environment, Error> {
        let path = path.as_ref();
        if Device::is_at(path) {
            return self.open_device(path);
        }
        if self.create {
            if path.ancestors().any(|at| at.exists() && !at.is_dir()) {
                return Err(Error::NotAnEnvironment { path: path.display().to_string(), why: "it is not a directory" });
            }
            FileDisk::new(path).create_dir("")?;
        } else if !path.is_dir() {
            let why = match path.try_exists() {
                Ok(true) => "it is a file, not a directory",
                _ => "no such directory; ledgerstone init DIR makes one there",
            };
            return Err(Error::NotAnEnvironment { path: path.display().to_string(), why });
        }
        let mut options = self;
        options.file = Config::read(path)?;
        options.directory = path.canonicalize().ok();
        let archive = options.effective(None).map(|effective| effective.archive_dir).unwrap_or_default();
        if options.archive.is_none() && !archive.is_empty() {
            let archive = path.join(archive);
            check_is_outside(&archive, path)?;
            options.archive = Some(archive_in(archive)?);
        }
        let sync_method = options.config.sync_method.or(options.file.sync_method).unwrap_or_default();
        options.open_on(Arc::new(FileDisk::synced_by(path, sync_method)))
    }

    /// A device has no settings file and no directory. An archive is where its path says.
    fn open_device(mut self, path: &Path) -> Result<Environment, Error> {
        let archive = self.effective(None).map(|effective| effective.archive_dir).unwrap_or_default();
        if self.archive.is_none() && !archive.is_empty() {
            self.archive = Some(archive_in(PathBuf::from(archive))?);
        }
        let disk = if self.create && !self.read_only { disk_to_fill(path) } else { disk_in(path) };
        self.open_on(disk?)
    }

    /// The settings that would be in force in directory `path`, read without opening the environment there. If there is
    /// none yet, the settings of a new one.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::SettingsFile`], [`Error::NotBuilt`], [`Error::WrongPageSize`],
    /// [`Error::InsideEnvironment`], [`Error::NewerFormat`], [`Error::Corrupt`], or a failure of the disk.
    pub fn settings_in(mut self, path: impl AsRef<Path>) -> Result<Effective, Error> {
        let path = path.as_ref();
        self.file = Config::read(path)?;
        let disk = match disk_in(path) {
            Err(Error::NotAnEnvironment { .. }) => None, // A device that is not formatted.
            disk => Some(disk?),
        };
        let fixed = if let Some(disk) = disk
            && disk.exists(CONTROL_PATH)?
        {
            let state = ControlFile::open_read_only(&*disk)?.state();
            Some((state.page_bytes, state.segment_bytes))
        } else {
            None
        };
        let effective = self.effective(fixed)?;
        if self.archive.is_none() && !effective.archive_dir.is_empty() {
            check_is_outside(&path.join(&effective.archive_dir), path)?;
        }
        Ok(effective)
    }

    /// Opens an environment on any [`Disk`]: a simulated one in tests, one of your own.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_on(self, disk: Arc<dyn Disk>) -> Result<Environment, Error> {
        Environment::open_with(&self, disk)
    }
}

#[cfg(feature = "media")]
#[allow(clippy::unnecessary_wraps)] // As without the feature.
fn archive_in(directory: PathBuf) -> Result<Maker, Error> {
    Ok(Maker::of_archive(Arc::new(FileDisk::new(directory))))
}

/// Nothing is given up that was to be archived.
#[cfg(not(feature = "media"))]
fn archive_in(directory: PathBuf) -> Result<Maker, Error> {
    Err(Error::NotBuilt { what: format!("the archive in {}", directory.display()), feature: "media" })
}
