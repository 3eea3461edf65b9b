//! Backups of a running environment: full ones, and incremental ones that hold the log since.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let (here, there, again) = (dir.path().join("env"), dir.path().join("backup"), dir.path().join("again"));
//! use ledgerstone::{Backup, BackupOptions, Environment, RestoreTo};
//!
//! let env = Environment::options().cache_bytes(16 << 20).open(&here)?;
//! env.transact(|txn| txn.bytes_or_create("fruit")?.put(b"apple", b"red"))?;
//! env.backup(&there, BackupOptions::default())?;
//! env.transact(|txn| txn.bytes("fruit")?.put(b"apple", b"green"))?;
//! env.backup(&there, BackupOptions::default().incremental(true))?;
//!
//! let backup = Backup::open(&there)?;
//! backup.verify()?;
//! backup.restore(&again, RestoreTo::End, &[])?;
//! let env = Environment::options().cache_bytes(16 << 20).open(&again)?;
//! assert_eq!(env.transact(|txn| txn.bytes("fruit")?.get(b"apple"))?.as_deref(), Some(&b"green"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! A directory of backups holds files `NNNNNN-full.backup` and `NNNNNN-log.backup`, numbered in the order in which they
//! were made; each `log` goes on from the file before it. A file is written as `….backup.part` and gets its name when
//! it is whole and durable. The file `lock` is locked while one is written: there is one at a time.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ledgerstone_core::Error;
use ledgerstone_core::base::Base;
use ledgerstone_core::directory::new_id;
use ledgerstone_core::flow::{Flow, MediaProgress, Tell, telling};
use ledgerstone_disk::{Disk, DiskError, DiskErrorKind, DiskFile, FileDisk, Open};
use ledgerstone_log::CONTROL_PATH;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Hex, Lsn};
use ledgerstone_recovery::backup::{BackupDisk, BackupError, BackupFile, Take, Taken, Verified};

use crate::archive::Archive;

pub use ledgerstone_recovery::backup::BackupProgress;

const LOCK: &str = "lock";

/// How to take a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupOptions {
    is_incremental: bool,
    bytes_per_s: u64,
}

impl BackupOptions {
    /// Only the log since the newest backup in the directory. Default false.
    #[must_use]
    pub fn incremental(mut self, is_incremental: bool) -> Self {
        self.is_incremental = is_incremental;
        self
    }

    /// The most bytes that are copied in a second. The default 0 means no limit.
    #[must_use]
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_s = bytes;
        self
    }
}

/// One backup file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its name.
    pub file: String,
    /// True for a backup with the pages. False for one of the log since the backup before.
    pub is_full: bool,
    /// The environment's id, as hexadecimal digits.
    pub environment: String,
    /// Pages in it.
    pub page_count: u64,
    /// Where its log begins.
    pub log_from_lsn: u64,
    /// Where its log ends: what can be restored of it reaches up to here, and of a full one begins here.
    pub log_end_lsn: u64,
    /// When it was begun, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// When it was complete.
    pub ended_ns: u64,
    /// Bytes of pages and log.
    pub payload_bytes: u64,
}

/// The result of a verification that found the backups whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupReport {
    /// Chains of a full backup and those that go on from it.
    pub chain_count: u64,
    /// Pages checked.
    pub page_count: u64,
    /// Records of the log checked.
    pub record_count: u64,
    /// Commits among them.
    pub commit_count: u64,
}

/// What a backup is taken from.
#[derive(Clone, Copy)]
pub struct Source<'s> {
    /// The environment.
    pub env: &'s Base,
    /// Takes a checkpoint of it.
    pub checkpoint: &'s dyn Fn() -> Result<Lsn, Error>,
}

/// Takes a backup into the root directory of a disk: `Environment::backup_on` of the library. `checkpoint` takes one.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// Those of `Environment::backup_with`.
pub fn backup_on(
    from: Source<'_>,
    disk: &Arc<dyn Disk>,
    options: BackupOptions,
    progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<BackupInfo, Error> {
    disk.create_dir("")?;
    if disk.exists(CONTROL_PATH)? {
        return Err(Error::TargetNotEmpty { path: disk.describe() });
    }
    // Another one would take the same number, and write to the same file.
    let _alone = match disk.lock(LOCK) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind == DiskErrorKind::Locked => {
            return Err(Error::BackupUnderWay { path: disk.describe() });
        }
        // Some file systems for backups have no locks.
        Err(error) if error.is_unsupported() => None,
        Err(error) => return Err(error.into()),
    };
    let names = backup_names(&**disk)?;
    let number = names.last().map_or(1, |(number, _)| number + 1);
    let name = format!("{number:06}-{}.backup", if options.is_incremental { "log" } else { "full" });
    let part = format!("{name}.part");
    if disk.exists(&part)? {
        disk.remove(&part)?;
    }
    let before = match names.last() {
        _ if !options.is_incremental => None,
        Some((_, newest)) => Some(BackupFile::open(disk.open(newest, Open::READ)?)?),
        None => {
            let what = "there is none to go on from: take a full backup first".to_string();
            return Err(BackupError::Chain { what }.into());
        }
    };
    let mut to = Appender { file: disk.open(&part, Open::CREATE_NEW)?, at: 0, buffer: Vec::new() };
    let taken = take(from, &mut to, before.as_ref(), options, progress).and_then(|taken| {
        to.flush().map_err(BackupError::from)?;
        to.file.sync()?;
        disk.rename(&part, &name)?;
        disk.sync_dir("")?;
        Ok(taken)
    });
    if taken.is_err() {
        let _ = disk.remove(&part); // What cannot be removed is still no backup.
    }
    taken?;
    Ok(info_of(&BackupFile::open(disk.open(&name, Open::READ)?)?))
}

/// Takes a full backup as one stream of bytes: `Environment::backup_to` of the library. Says how many there were.
///
/// Waits for the disk, and for whoever takes the bytes: see [what blocks](crate#what-blocks).
///
/// # Errors
/// Those of `Environment::backup_with`.
pub fn backup_to(
    from: Source<'_>,
    to: &mut dyn Write,
    options: BackupOptions,
    progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<u64, Error> {
    Ok(take(from, to, None, options, progress)?.bytes)
}

fn take(
    from: Source<'_>,
    to: &mut dyn Write,
    before: Option<&BackupFile>,
    options: BackupOptions,
    progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<Taken, Error> {
    let env = from.env;
    env.engine.check()?;
    if !env.is_read_only && before.is_none() {
        (from.checkpoint)()?;
    }
    let (control, pin) = env.pin_log_of_control("backup")?;
    let take = Take { engine: &env.engine, to, bytes_per_s: options.bytes_per_s, progress };
    let Some(before) = before else { return Ok(take.full(control, new_id(), &pin)?) };
    if before.header.control.environment != control.environment {
        let what = format!("{} is of another environment", before.name());
        return Err(BackupError::Chain { what }.into());
    }
    let is_behind = before.end.log_end > env.engine.log.durable_lsn();
    let is_another = before.header.control.life != control.life || is_behind;
    if is_another && !planted::is_on(Bug::BackupOfAnotherLife) {
        let what = format!(
            "{} is of another life of the environment, one of the two was restored: take a full backup first",
            before.name()
        );
        return Err(BackupError::Chain { what }.into());
    }
    // Keeps what is there still; what is gone already may be in the archive.
    let _kept =
        env.engine.log.pin("incremental backup", before.end.log_end.max(env.engine.log.oldest_lsn()), u64::MAX)?;
    let archive = env.keepers.find::<Archive>();
    let older = |lsn: Lsn, buffer: &mut [u8]| match &archive {
        Some(archive) => archive.read_bytes(lsn, buffer),
        None => Ok(0),
    };
    Ok(take.incremental(control, new_id(), (&before.header, &before.end), &older)?)
}

/// Checks all of a chain, and tells how far it is.
pub(crate) fn check_chain(chain: &Arc<BackupDisk>, tell: Tell<'_>) -> Result<Verified, BackupError> {
    ledgerstone_recovery::backup::verify(chain, &mut |done, all| match tell("verify the backup", done, all) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    })
}

/// Backups that can be restored: a directory of them, or one file.
pub struct Backup {
    /// Never empty.
    files: Vec<Found>,
}

/// A file that has the name of a whole backup.
#[allow(clippy::large_enum_variant)] // A few, for as long as a directory is looked at.
enum Found {
    Whole(Box<BackupFile>),
    /// It is damaged where that shows at once.
    Damaged(Arc<dyn DiskFile>),
}

/// A file that is there and is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LeftOut {
    /// A backup file, or a log.
    pub what: String,
    /// Why.
    pub why: String,
}

impl LeftOut {
    pub(crate) fn new(what: &str, why: impl ToString) -> LeftOut {
        LeftOut { what: what.to_string(), why: why.to_string() }
    }
}

/// A full backup and those that go on from it, without a gap; and what is there behind the gap.
pub(crate) struct Chain {
    pub(crate) files: Vec<BackupFile>,
    pub(crate) left_out: Vec<LeftOut>,
}

impl Found {
    fn open(file: Arc<dyn DiskFile>) -> Result<Found, Error> {
        match BackupFile::open(Arc::clone(&file)) {
            Ok(whole) => Ok(Found::Whole(Box::new(whole))),
            Err(error @ BackupError::NewerFormat { .. }) => Err(error.into()),
            Err(_) => Ok(Found::Damaged(file)),
        }
    }

    fn name(&self) -> &str {
        match self {
            Found::Whole(file) => file.name(),
            Found::Damaged(file) => file.name(),
        }
    }

    fn whole(&self) -> Option<&BackupFile> {
        match self {
            Found::Whole(file) => Some(file),
            Found::Damaged(_) => None,
        }
    }

    /// Again, for the error.
    fn check(&self) -> Result<(), BackupError> {
        match self {
            Found::Whole(_) => Ok(()),
            Found::Damaged(file) => BackupFile::open(Arc::clone(file)).map(drop),
        }
    }
}

impl Backup {
    /// Opens a directory of backups, or one file.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotABackup`] if there is none, [`Error::Corrupt`] if no file is whole, [`Error::NewerFormat`]. If some
    /// files are damaged and others are not, [`Backup::left_out`] names the damaged ones.
    pub fn open(path: impl AsRef<Path>) -> Result<Backup, Error> {
        let path = path.as_ref();
        if path.is_dir() {
            return Backup::open_on(&FileDisk::new(path));
        }
        let not_found = || Error::NotABackup { path: path.display().to_string() };
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(not_found)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = FileDisk::new(parent).open(name, Open::READ)?;
        Ok(Backup { files: vec![Found::Whole(Box::new(BackupFile::open(file)?))] })
    }

    /// Reads a backup that comes as one stream (`Environment::backup_to`), from a pipe for instance. A restore reads
    /// the backup twice, because it checks it first. So the stream is kept in a file of `directory` as long as this
    /// value lives. The file has no name, and leaves nothing behind however the process ends.
    ///
    /// Waits for the stream and for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::open`]. [`Error::Disk`] if the stream cannot be read, or the file cannot be written.
    pub fn open_stream(from: &mut dyn Read, directory: impl AsRef<Path>) -> Result<Backup, Error> {
        let disk = FileDisk::new(directory.as_ref());
        let name = format!("stream-{}.backup.part", Hex(&new_id()));
        let file = disk.open(&name, Open::CREATE_NEW)?;
        disk.remove(&name)?;
        let mut to = Appender { file, at: 0, buffer: Vec::new() };
        let copied = io::copy(from, &mut to).and_then(|_| to.flush());
        copied.map_err(|error| Error::of_io("read", Path::new("the stream of a backup"), &error))?;
        Ok(Backup { files: vec![Found::Whole(Box::new(BackupFile::open(to.file)?))] })
    }

    /// The same as [`Backup::open`] in the root directory of any [`Disk`].
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::open`].
    pub fn open_on(disk: &dyn Disk) -> Result<Backup, Error> {
        let mut files = Vec::new();
        for (_, name) in backup_names(disk)? {
            files.push(Found::open(disk.open(&name, Open::READ)?)?);
        }
        let first = files.first().ok_or_else(|| Error::NotABackup { path: disk.describe() })?;
        if files.iter().all(|file| file.whole().is_none()) {
            first.check()?;
        }
        Ok(Backup { files })
    }

    /// The files that can be read, oldest first.
    #[must_use]
    pub fn files(&self) -> Vec<BackupInfo> {
        self.files.iter().filter_map(Found::whole).map(info_of).collect()
    }

    /// The files that belong to no chain, because they or files before them are damaged or missing. Nothing is restored
    /// from them. Only the heads of the files are read. [`Backup::verify`] finds the rest.
    #[must_use]
    pub fn left_out(&self) -> Vec<LeftOut> {
        let (chains, mut left_out) = self.chains();
        left_out.extend(chains.into_iter().flat_map(|chain| chain.left_out));
        left_out
    }

    /// Checks everything: the checksum of each frame and each page, each record of the log, and that nothing is
    /// missing.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// The first problem that is found.
    pub fn verify(&self) -> Result<BackupReport, Error> {
        self.verify_with(|_| ())
    }

    /// The same. `progress` is called repeatedly, with the bytes of the chain that is being checked, and may end the
    /// verification ([`Flow`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::verify`], and [`Error::Cancelled`].
    pub fn verify_with<F: Flow>(&self, progress: impl FnMut(MediaProgress) -> F) -> Result<BackupReport, Error> {
        let mut tell = telling(progress);
        let mut report = BackupReport::default();
        self.files.iter().try_for_each(Found::check)?;
        let (chains, left_out) = self.chains();
        if let Some(left) = left_out.iter().chain(chains.iter().flat_map(|chain| &chain.left_out)).next() {
            return Err(BackupError::Chain { what: left.why.clone() }.into());
        }
        for chain in chains {
            let chain = BackupDisk::new(chain.files)?;
            let Verified { page_count, record_count, commit_count, .. } = check_chain(&chain, &mut tell)?;
            report.chain_count += 1;
            report.page_count += page_count;
            report.record_count += record_count;
            report.commit_count += commit_count;
        }
        Ok(report)
    }

    /// The log before which an archive is not needed any more to restore from the newest full backup.
    #[must_use]
    pub fn needs_log_from(&self) -> Option<Lsn> {
        let mut whole = self.files.iter().rev().filter_map(Found::whole);
        whole.find(|file| file.header.is_full).map(|file| file.header.log_from)
    }

    /// Each full backup with those that go on from it, oldest first; and what comes before the first.
    pub(crate) fn chains(&self) -> (Vec<Chain>, Vec<LeftOut>) {
        let mut chains: Vec<Chain> = Vec::new();
        let mut before = Vec::new();
        for found in &self.files {
            let why = match (found, chains.last_mut()) {
                (Found::Whole(file), _) if file.header.is_full => {
                    chains.push(Chain { files: vec![BackupFile::clone(file)], left_out: Vec::new() });
                    continue;
                }
                (Found::Whole(file), Some(chain)) => match file.check_follows(&chain.files[chain.files.len() - 1]) {
                    Ok(()) => {
                        chain.files.push(BackupFile::clone(file));
                        continue;
                    }
                    Err(why) => why,
                },
                (Found::Whole(file), None) => format!("{}: there is no full backup before it", file.name()),
                (Found::Damaged(_), _) => found.check().err().map_or(String::new(), |error| error.to_string()),
            };
            let left_out = chains.last_mut().map_or(&mut before, |chain| &mut chain.left_out);
            left_out.push(LeftOut::new(found.name(), why));
        }
        (chains, before)
    }
}

/// Names of complete backups in a directory, by number.
fn backup_names(disk: &dyn Disk) -> Result<Vec<(u64, String)>, Error> {
    let mut names: Vec<(u64, String)> = Vec::new();
    for name in disk.list("")? {
        let number = name.strip_suffix("-full.backup").or(name.strip_suffix("-log.backup"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            names.push((number, name));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn info_of(file: &BackupFile) -> BackupInfo {
    let (header, end) = (&file.header, &file.end);
    BackupInfo {
        file: file.name().to_string(),
        is_full: header.is_full,
        environment: Hex(&header.control.environment).to_string(),
        page_count: end.stored_count,
        log_from_lsn: header.log_from.0,
        log_end_lsn: end.log_end.0,
        begun_ns: header.begun_ns,
        ended_ns: end.ended_ns,
        payload_bytes: file.payload_bytes(),
    }
}

/// Writes a file front to back, in large pieces.
struct Appender {
    file: Arc<dyn DiskFile>,
    at: u64,
    buffer: Vec<u8>,
}

/// Written at once.
const PIECE_BYTES: usize = 1 << 20;

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(self.at, &self.buffer).map_err(io_error)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn io_error(error: DiskError) -> io::Error {
    let kind = if error.is_no_space() { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}
