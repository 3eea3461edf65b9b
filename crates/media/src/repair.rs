//! Single pages made whole again from a backup and the log, while everything else runs; or in a directory that cannot
//! even be opened.
//!
//! ```text
//!  image from the backup ─► its records of the backup's log ─► of the archive ─► of the environment's own log ─► put back
//! ```
//! P1. The records are read without a gap from where the backup's log begins to the end of the log as it was when the
//!     repair began. A page that cannot be read cannot have been changed since, only made anew: then it is left alone.
//! P2. The backup is of this life of the environment: that of another one may hold what never happened here, and its
//!     log does not go on in ours.
//! P3. Nothing is put back that is not proved complete (`page_repair.rs` in recovery, G1).

use std::path::Path;
use std::sync::Arc;

use ledgerstone_core::Error;
use ledgerstone_core::base::Base;
use ledgerstone_core::catalog::Extensions;
use ledgerstone_core::directory::{check_control, disk_in, operations, state_of, take_lock};
use ledgerstone_core::flow::{Flow, MediaProgress, Tell, telling};
use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, Open};
use ledgerstone_feed::LogDirectory;
use ledgerstone_feed::directory::{files, reader};
use ledgerstone_log::{ControlFile, ControlState, Log, LogFiles, LogPin, LogReader};
use ledgerstone_op::Registry;
use ledgerstone_page::{Lsn, PageId, checksum};
use ledgerstone_recovery::backup::{BackupDisk, BackupView, log_reader};
use ledgerstone_recovery::{PageRepair, Repaired};

use crate::Backup;
use crate::archive::Archive;
use crate::log_union::LogUnion;

/// Bytes of the data file that are looked at in one go: a whole number of pages of any size.
const PIECE_BYTES: usize = 1 << 20;

/// Records read between two calls of the progress callback.
const RECORDS_BETWEEN: u64 = 1024;

/// Which pages to repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairPages {
    /// These, if they are damaged.
    Only(Vec<PageId>),
    /// All damaged pages. The whole data file is read to find them.
    AllDamaged,
}

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RepairReport {
    /// Pages that were damaged and are whole again.
    pub repaired: Vec<u64>,
    /// Pages that were asked for and are not damaged.
    pub sound: Vec<u64>,
    /// Records of the log that were applied.
    pub applied_count: u64,
}

/// Finds the pages of the data file that cannot be read: `Environment::damaged_pages` of the library.
///
/// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk. Damage is the result, not an error.
pub fn damaged_pages(env: &Base) -> Result<Vec<PageId>, Error> {
    env.engine.check_process()?;
    let cache = &env.engine.cache;
    let mut page = vec![0; cache.page_bytes()];
    let mut damaged = Vec::new();
    for id in (0..cache.page_count()?).map(PageId) {
        match cache.copy_page(id, &mut page) {
            Ok(_) => {}
            Err(ledgerstone_buffer::BufferError::Damaged { .. }) => damaged.push(id),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(damaged)
}

/// The same in a directory that nobody has open: `Environment::damaged_pages_in` of the library.
///
/// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::NotAnEnvironment`], [`Error::AlreadyOpen`], a control file that cannot be read, [`Error::Cancelled`], or a
/// failure of the disk.
pub fn damaged_pages_on(disk: &Arc<dyn Disk>, tell: Tell<'_>) -> Result<Vec<PageId>, Error> {
    let state = ControlFile::open_read_only(&**disk)?.state();
    check_control(&**disk, &state)?;
    let _lock = take_lock(disk)?;
    let data = disk.open("data", Open::READ)?;
    damaged_in(&*data, state.page_bytes as usize, tell)
}

/// Repairs damaged pages while everything else runs: `Environment::repair` of the library.
///
/// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::LogGone`]: the log since the backup is not whole, neither here nor in the archive. [`Error::Corrupt`]: the
/// backup is damaged, or does not lead to the page.
pub fn repair(env: &Base, backup: &Backup, pages: &RepairPages) -> Result<RepairReport, Error> {
    env.check_writable()?;
    env.engine.check()?;
    let mut report = RepairReport::default();
    let damaged = match pages {
        RepairPages::AllDamaged => damaged_pages(env)?,
        RepairPages::Only(pages) => {
            let mut damaged = Vec::new();
            let mut bytes = vec![0; env.engine.cache.page_bytes()];
            for page in pages {
                match env.engine.cache.copy_page(*page, &mut bytes) {
                    Ok(Some(_)) => report.sound.push(page.0),
                    Ok(None) | Err(ledgerstone_buffer::BufferError::Damaged { .. }) => damaged.push(*page),
                    Err(error) => return Err(error.into()),
                }
            }
            damaged
        }
    };
    if damaged.is_empty() {
        return Ok(report);
    }
    let chain = newest_chain(backup)?;
    check_same(&chain, &env.control.state())?;
    let log = &env.engine.log;
    let tail = log.tail();
    log.flush_to(Lsn(tail.0.saturating_sub(8)))?;
    let mut repair = begin(&env.engine.ops, &chain, &damaged)?;
    let tell: Tell<'_> = &mut |_, _, _| Ok(());
    let at = apply_backup(&mut repair, &chain, tail, tell)?;
    let oldest = log.oldest_lsn();
    let _kept: LogPin = log.pin("repair", at.max(oldest), u64::MAX)?;
    let mut reader = match env.keepers.find::<Archive>() {
        Some(archive) if at < oldest => archive.reader_with(&env.disk, log, at)?,
        _ => LogReader::new(log, at)?,
    };
    check_joined(reader.position(), at)?;
    let end = apply_until(&mut repair, &mut reader, tail, tell)?;
    check_reached(end, tail)?;
    for Repaired { page, bytes, applied_count, .. } in repair.finish()? {
        if env.engine.cache.put_back(page, &bytes)? {
            report.repaired.push(page.0);
            report.applied_count += applied_count;
        } else {
            report.sound.push(page.0);
        }
    }
    Ok(report)
}

impl Backup {
    /// Repairs pages in the directory of an environment that is not open, for damage that keeps it from being opened.
    /// `archive` is the place of the log that the directory no longer has.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As `Environment::repair`, and [`Error::AlreadyOpen`].
    pub fn repair(
        &self,
        directory: impl AsRef<Path>,
        pages: &RepairPages,
        archive: Option<&LogDirectory>,
    ) -> Result<RepairReport, Error> {
        self.repair_with(directory, pages, archive, |_| ())
    }

    /// The same. `progress` is called repeatedly, and may end the repair ([`Flow`]). Nothing has changed then.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::repair`], and [`Error::Cancelled`].
    pub fn repair_with<F: Flow>(
        &self,
        directory: impl AsRef<Path>,
        pages: &RepairPages,
        archive: Option<&LogDirectory>,
        progress: impl FnMut(MediaProgress) -> F,
    ) -> Result<RepairReport, Error> {
        self.repair_on(disk_in(directory)?, pages, archive, progress)
    }

    /// The same on any [`Disk`].
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::repair_with`].
    pub fn repair_on<F: Flow>(
        &self,
        disk: Arc<dyn Disk>,
        pages: &RepairPages,
        archive: Option<&LogDirectory>,
        progress: impl FnMut(MediaProgress) -> F,
    ) -> Result<RepairReport, Error> {
        self.repair_telling(disk, pages, archive, &mut telling(progress))
    }

    fn repair_telling(
        &self,
        disk: Arc<dyn Disk>,
        pages: &RepairPages,
        archive: Option<&LogDirectory>,
        tell: Tell<'_>,
    ) -> Result<RepairReport, Error> {
        let directory = LogDirectory::open_on(Arc::clone(&disk))?;
        let _lock = take_lock(&disk)?;
        let chain = newest_chain(self)?;
        check_same(&chain, &state_of(&disk)?)?;
        let page_bytes = chain.state().page_bytes as usize;
        let data = disk.open("data", Open::EXISTING)?;
        let mut report = RepairReport::default();
        let mut damaged = Vec::new();
        match pages {
            RepairPages::AllDamaged => damaged = damaged_in(&*data, page_bytes, tell)?,
            RepairPages::Only(pages) => {
                let mut bytes = vec![0; page_bytes];
                for page in pages {
                    let is_sound = match data.read_at(page.0.saturating_mul(page_bytes as u64), &mut bytes) {
                        Err(error) if error.kind == DiskErrorKind::ShortRead => false,
                        read => read.map(|()| is_sound(&bytes, *page) == Some(true))?,
                    };
                    if is_sound { report.sound.push(page.0) } else { damaged.push(*page) }
                }
            }
        }
        if damaged.is_empty() {
            return Ok(report);
        }
        let ops = operations(&Extensions::default())?;
        let mut repair = begin(&ops, &chain, &damaged)?;
        let mut own = reader(&directory, Lsn(u64::MAX))?;
        let end = own.end();
        let at = apply_backup(&mut repair, &chain, end, tell)?;
        if at < own.oldest()?
            && let Some(archive) = archive
        {
            let disks = vec![Arc::clone(&disk), Arc::clone(&files(archive).disk)];
            let union = LogFiles { disk: Arc::new(LogUnion(disks)), end: Some(end), ..files(&directory).clone() };
            own = LogReader::of_files(union, at)?;
        } else {
            own.seek(at)?;
        }
        check_joined(own.position(), at)?;
        check_reached(apply_until(&mut repair, &mut own, end, tell)?, end)?;
        let end = data.len()?;
        for Repaired { page, bytes, lsn, applied_count } in repair.finish()? {
            let at = page.0.saturating_mul(page_bytes as u64);
            if lsn == Lsn(0) && at >= end {
                report.sound.push(page.0); // Neither file nor backup nor log knows it: there is no such page.
                continue;
            }
            data.write_at(at, &bytes)?;
            report.repaired.push(page.0);
            report.applied_count += applied_count;
        }
        data.sync()?;
        Ok(report)
    }
}

fn damaged_in(data: &dyn DiskFile, page_bytes: usize, tell: Tell<'_>) -> Result<Vec<PageId>, Error> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut damaged = Vec::new();
    let end = data.len()? / page_bytes as u64 * page_bytes as u64;
    for at in (0..end).step_by(PIECE_BYTES) {
        tell("look for damaged pages", at, end)?;
        let piece = &mut buffer[..PIECE_BYTES.min((end - at) as usize)];
        data.read_at(at, piece)?;
        let pages = piece.chunks(page_bytes).zip((at / page_bytes as u64..).map(PageId));
        damaged.extend(pages.filter(|(bytes, page)| is_sound(bytes, *page) == Some(false)).map(|(_, page)| page));
    }
    Ok(damaged)
}

/// `None`: the page was never written.
fn is_sound(bytes: &[u8], page: PageId) -> Option<bool> {
    match checksum::verify(bytes, page) {
        Err(corrupt) if corrupt.is_never_written() => None,
        verified => Some(verified.is_ok()),
    }
}

fn newest_chain(backup: &Backup) -> Result<Arc<BackupDisk>, Error> {
    let newest = backup.chains().0.pop().ok_or(Error::NotABackup { path: String::new() })?;
    Ok(BackupDisk::new(newest.files)?)
}

/// P2.
fn check_same(chain: &BackupDisk, own: &ControlState) -> Result<(), Error> {
    let (of, name) = (chain.state(), chain.chain()[0].name());
    if of.environment != own.environment {
        return Err(Error::Corrupt { what: format!("{name} is a backup of another environment") });
    }
    if of.life != own.life {
        let what = format!(
            "{name} is a backup of another life of the environment, one of the two was restored: nothing is repaired from it; \
             restore a backup with --log and the directory of this environment, and take full backups after a restore"
        );
        return Err(Error::Corrupt { what });
    }
    Ok(())
}

/// The images that the backup has of these pages.
fn begin<'r>(ops: &'r Registry, chain: &Arc<BackupDisk>, pages: &[PageId]) -> Result<PageRepair<'r>, Error> {
    let page_bytes = chain.state().page_bytes as usize;
    let data = BackupView(Arc::clone(chain)).open("data", Open::READ)?;
    let mut repair = PageRepair::new(ops, page_bytes);
    let mut image = vec![0; page_bytes];
    for page in pages {
        let is_there = page.0 < chain.page_count();
        if is_there {
            data.read_at(page.0 * page_bytes as u64, &mut image)?;
        }
        let is_there = is_there && image.iter().any(|&byte| byte != 0);
        repair.begin(*page, is_there.then_some(&image[..]))?;
    }
    Ok(repair)
}

/// The log since the backup must go on where that of the backup ends: what is missing between them may have changed the
/// pages.
fn check_joined(position: Lsn, at: Lsn) -> Result<(), Error> {
    if position != at {
        return Err(Error::Corrupt {
            what: format!("the log has no record at LSN {at}, where that of the backup ends"),
        });
    }
    Ok(())
}

/// Applies the log of the backup; returns where it ends.
fn apply_backup(repair: &mut PageRepair<'_>, chain: &Arc<BackupDisk>, end: Lsn, tell: Tell<'_>) -> Result<Lsn, Error> {
    apply_until(repair, &mut log_reader(chain, chain.state().scan_lsn)?, end, tell)
}

/// Applies what the reader has below `end`; returns where it stopped.
fn apply_until(repair: &mut PageRepair<'_>, reader: &mut LogReader, end: Lsn, tell: Tell<'_>) -> Result<Lsn, Error> {
    let (begin, mut count) = (reader.position().0, 0_u64);
    while reader.position() < end
        && let Some(record) = reader.next()?
    {
        repair.apply(record.view())?;
        count += 1;
        if count.is_multiple_of(RECORDS_BETWEEN) {
            tell("read log", record.lsn().0.saturating_sub(begin), end.0.saturating_sub(begin))?;
        }
    }
    Ok(reader.position())
}

/// P1.
fn check_reached(reached: Lsn, end: Lsn) -> Result<(), Error> {
    if reached >= end {
        return Ok(());
    }
    Err(Error::Corrupt { what: format!("the log can be read to LSN {reached} only, but it ends at {end}") })
}

/// Used by [`repair`] when there is an archive.
impl Archive {
    /// The log that is durable now, from `from` on: of the environment's own segments, and of the archive before them.
    fn reader_with(&self, own: &Arc<dyn Disk>, log: &Arc<Log>, from: Lsn) -> Result<LogReader, Error> {
        let Some(files) = self.files()? else {
            return Ok(LogReader::new(log, from)?); // Nothing has come here yet: the log says where it begins.
        };
        let disk = Arc::new(LogUnion(vec![Arc::clone(own), self.disk()]));
        let (end, incarnation_max) = (Some(log.durable_lsn()), log.incarnation());
        let files = LogFiles { disk, end, incarnation_max, ..files };
        Ok(LogReader::of_files(files, from)?)
    }
}
