//! How an environment is created, and how it is opened.
//!
//! ```text
//!  file          what
//!  lock          held by whoever has the environment open (a POSIX record lock)
//!  control       sizes, ids, and where recovery begins; while the environment is being made its name is control.new
//!  log/          segments of the log, named by first LSN
//!  data          pages
//!  double_write  copies of pages in flight
//!  restore.new   there while a restore is made, until the first checkpoint of what it made (R1 in restore.rs)
//!  sort-N.tmp    a temporary file's name that a crash left; the next open removes it
//!  ledgerstone.toml   settings, optional, never written by us
//! ```
//! O1. A creation begins with `control.new`, durably, and ends by renaming it to `control`. A creation that was cut short is
//!     known by that name, and only then is what is there removed, to start afresh. A directory that has data or log and
//!     neither file is an environment that has lost its control file, or holds strangers' files: nothing there is touched.
//! O2. Recovery raises the incarnation durably in `control` before the log is written at all.
//! O3. Nobody else has the environment while we are here: the lock is taken first and released last. A lock file that is missing is
//!     made only where nobody can be; who has it open looks at each checkpoint whether it is there.
//! O4. A data file that is missing is not made anew: nothing but a backup could fill it.
//! O5. An environment that was closed in order is opened for reading without a byte written, beside others that read it: the
//!     disk itself refuses to change anything. One that was not is first opened for writing, recovered and closed.
//! O6. What a killed process has written and not synced is made durable before it is believed: log, pages, names, and the
//!     newest slot of `control` (F4, D6, F3, T4 of their files). No answer of ours depends on what the power can still take.
//! O7. A double-write file that is missing after a crash is not made anew: a page may be torn whose only whole copy was in it.
//!     After an orderly close nothing in it is needed.
//! O8. What a crash cannot do is damage, and refused before anything is written, so that putting a file back makes the
//!     environment whole: segments that are short or missing (F6 in the log), a log that ends before where it is known to have
//!     been durable, by the control file or by the double-write file (D8 in the buffer), a data file that is shorter than at
//!     the last checkpoint or older (K3 in recovery), or another's.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use ledgerstone_buffer::{BufferError, Cache, CacheConfig, Policy, TornPages, Tuning, make_double_write};
use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, DiskLock, Open, ReadOnlyDisk};
use ledgerstone_log::{
    Beginning, CONTROL_PATH, CONTROL_SLOT_BYTES, CREATION_PATH, ControlError, ControlFile, ControlSlot, ControlState,
    Delay, EnvironmentId, FIRST_LSN, GroupCommit, LOG_DIR, Log, LogConfig, LogError, LogScan,
};
use ledgerstone_op::Registry;
use ledgerstone_page::{Lsn, PageId, TableId, Xid};
use ledgerstone_recovery::{Analysis, InDoubt, RecoveryReport};
use ledgerstone_region::{Latch, Region, SlotTable, sync};
use ledgerstone_space::{FileHeader, Space};
use ledgerstone_structures::{Direction, ToFree, Tree};
use ledgerstone_txn::{Durability, Engine, EngineParts, EngineSettings, Locked, TxnTable, VersionStore};
use parking_lot::Mutex;

use super::locking;
use crate::catalog::{Entry, Known};
use crate::config::{self, Effective};
use crate::environment::Inner;
use crate::environment::background::Bell;
use crate::extend::{self, Extensions, StructureId};
use crate::feed::named::Feeds;
use crate::media::{Archive, Owner};
use crate::transaction::prepared::{self, Undecided};
use crate::{Environment, Error, Locking, Options, RecoveryPhase, Replacement};

pub(crate) const LOCK: &str = "lock";
const DATA: &str = "data";
pub(crate) const DOUBLE_WRITE: &str = "double_write";
/// A restore is being made, or was, and what it made has not taken a checkpoint yet.
pub(crate) const RESTORE: &str = "restore.new";

/// Log that is kept ready ahead of its end, once there was so much: overwriting is cheaper than making.
const SPARE_LOG_BYTES: u64 = 32 << 20;

/// The catalog's root page, fixed at creation.
pub(crate) const CATALOG_ROOT: PageId = PageId(2);
/// The root page of the tree of deferred frees.
pub(crate) const TO_FREE_ROOT: PageId = PageId(3);
const CATALOG_TABLE: TableId = TableId(1);
pub(crate) const TO_FREE_TABLE: TableId = TableId(2);

/// Opens the environment on `disk`, creating or recovering it as needed.
pub(crate) fn open(options: &Options, disk: Arc<dyn Disk>) -> Result<Inner, Error> {
    if !disk.exists(CONTROL_PATH)? {
        let place = look_at(&disk)?; // Before anything is made there.
        if !options.create || options.read_only {
            let why = match place {
                Place::Empty => "it is empty or missing; ledgerstone init DIR makes one there",
                Place::Free => "it has none of the files of one",
                // A creation holds the lock from before its first file on.
                Place::Unfinished if disk.exists(LOCK)? && is_locked(&disk) => {
                    return Err(Error::AlreadyOpen { path: disk.describe() });
                }
                Place::Unfinished => "the creation there was cut short; ledgerstone init DIR begins it anew",
            };
            return Err(Error::NotAnEnvironment { path: disk.describe(), why });
        }
    } else if options.read_only
        && let Some(inner) = open_to_read(options, &disk)?
    {
        return Ok(inner);
    }
    let lock = take_lock(&disk)?;
    if disk.exists(CONTROL_PATH)? { recover(options, disk, lock, true) } else { create(options, disk, lock) }
}

fn is_locked(disk: &Arc<dyn Disk>) -> bool {
    disk.lock(LOCK).is_err_and(|error| error.kind == DiskErrorKind::Locked)
}

/// O5. `None`: what is there cannot be closed in order, because a transaction is in doubt.
fn open_to_read(options: &Options, disk: &Arc<dyn Disk>) -> Result<Option<Inner>, Error> {
    let needs = match open_as_it_is(options, disk)? {
        AsItIs::Open(inner) => return Ok(Some(*inner)),
        AsItIs::Needs(needs) => needs,
    };
    let mut writing = options.clone();
    writing.read_only = false;
    let recovered = Environment::open_with(&writing, Arc::clone(disk)).map_err(|error| match (error, needs) {
        // What may not even be read is no matter of recovery.
        (Error::Permission { .. }, unreadable @ Error::Permission { .. }) => unreadable,
        (Error::Permission { what, kind }, Error::ReadOnly { why, .. }) => Error::ReadOnly {
            kind: Some(kind),
            why: format!("{why}, and recovering it needs to write ({what}); run ledgerstone recover as a user who may"),
        },
        (other, _) => other,
    })?;
    let report = recovered.recovery_report().clone();
    recovered.close()?;
    match open_as_it_is(options, disk)? {
        AsItIs::Open(inner) => Ok(Some(Inner { report, ..*inner })),
        AsItIs::Needs(_) => Ok(None),
    }
}

/// What came of opening without writing.
enum AsItIs {
    Open(Box<Inner>),
    /// Why it has to be written first.
    Needs(Error),
}

/// O5.
fn open_as_it_is(options: &Options, disk: &Arc<dyn Disk>) -> Result<AsItIs, Error> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::new(Arc::clone(disk)));
    let needs = |why: &str| Ok(AsItIs::Needs(Error::read_only(why)));
    if !disk.exists(LOCK)? {
        return needs("its lock file is missing");
    }
    let lock = take_lock(&disk)?;
    let control = ControlFile::open_read_only(&*disk).map_err(|error| control_error(&disk, error))?;
    if !control.state().is_clean {
        return needs("it was not closed in order");
    }
    match recover(options, disk, lock, false) {
        Err(error @ (Error::ReadOnly { .. } | Error::Permission { .. })) => Ok(AsItIs::Needs(error)),
        opened => opened.map(|inner| AsItIs::Open(Box::new(inner))),
    }
}

/// O3.
pub(crate) fn take_lock(disk: &Arc<dyn Disk>) -> Result<Box<dyn DiskLock>, Error> {
    // Whoever has it open may have lost the name of what it has locked. An environment that was closed was left by everybody.
    let is_clean = || match ControlFile::open_read_only(&**disk) {
        Ok(control) => Ok(control.state().is_clean),
        // What a damaged one said is not known.
        Err(ControlError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(control_error(disk, error)),
    };
    if !disk.exists(LOCK)? && disk.exists(CONTROL_PATH)? && !is_clean()? {
        return Err(Error::LockFileMissing { path: format!("{}/{LOCK}", disk.describe()) });
    }
    disk.lock(LOCK).map_err(|error| {
        if error.kind == DiskErrorKind::Locked { Error::AlreadyOpen { path: disk.describe() } } else { error.into() }
    })
}

fn create(options: &Options, disk: Arc<dyn Disk>, lock: Box<dyn DiskLock>) -> Result<Inner, Error> {
    let effective = options.effective(None)?;
    if let Place::Unfinished = look_at(&disk)? {
        clear_unfinished(&disk)?;
    }
    let state = ControlState::new(new_id(), effective.page_bytes, effective.log_segment_bytes);
    let control = Arc::new(ControlFile::begin_creation(&*disk, state)?);
    let found = Analysis::of_new(FIRST_LSN, state.incarnation_max);
    let parts = Parts::build(options, &effective, &disk, &control, &found, None)?;
    let engine = &parts.engine;
    let opening = Opening(Some(Arc::clone(engine)));

    let space = Space::format(engine, Arc::clone(&parts.data), state.environment)?;
    let mut txn = engine.begin()?;
    let (catalog, to_free) = trees(engine, &space, &options.extensions);
    Tree::format_root(&mut txn, &space, &catalog)?;
    Tree::format_root(&mut txn, &space, to_free.tree())?;
    txn.commit(Durability::Sync)?;
    // O1: what the control file will vouch for is durable before it has its name.
    engine.cache.write_back_all()?;
    disk.sync_dir("")?;
    control.end_creation(&*disk)?;
    let report = RecoveryReport::default();
    let none = Undecided::default();
    let inner = parts.into_inner(options, effective, disk, lock, space, catalog, to_free, control, report, none)?;
    opening.succeeded();
    Ok(inner)
}

/// What a directory without a control file is.
enum Place {
    /// There is nothing, or settings only.
    Empty,
    /// There are files, but none under our names.
    Free,
    /// A creation was cut short (O1).
    Unfinished,
}

/// Looks at a directory without a control file, and refuses one that holds files under our names which no creation left
/// there. Changes nothing.
fn look_at(disk: &Arc<dyn Disk>) -> Result<Place, Error> {
    let refuse = |why| Err(Error::NotAnEnvironment { path: disk.describe(), why });
    refuse_cut_restore(disk)?;
    let has_log = disk.exists(LOG_DIR)?;
    let logs = if has_log { disk.list(LOG_DIR)? } else { Vec::new() };
    if logs.iter().any(|name| !ledgerstone_log::is_log_file(name)) {
        return refuse("its directory named log holds files that are not ours; choose another directory");
    }
    let foreign_data = "it has a file named data that is not ours; choose another directory";
    if !begins_as_ours(disk, DATA, 40, b"LSTNDATA")? {
        return refuse(foreign_data);
    }
    if !begins_as_ours(disk, DOUBLE_WRITE, 0, b"LSTDWRIT")? {
        return refuse("it has a file named double_write that is not ours; choose another directory");
    }
    let (has_data, has_double_write) = (disk.exists(DATA)?, disk.exists(DOUBLE_WRITE)?);
    let holds_ours = has_data || has_double_write || !logs.is_empty();
    if disk.exists(CREATION_PATH)? {
        // The file comes first and is whole before anything else is made; another environment's vouches for nothing.
        let begun = read_unfinished(disk)?;
        let of_data = if has_data { FileHeader::read(&*disk.open(DATA, Open::READ)?)? } else { None };
        let is_its_own = of_data.is_none_or(|header| Some(header.environment) == begun);
        if !holds_ours || begun.is_some() && is_its_own {
            return Ok(Place::Unfinished);
        }
    }
    if has_data && !has_log {
        return refuse(foreign_data);
    }
    if holds_ours {
        let what = "is missing, although there is data or log".to_string();
        return Err(Error::ControlFile { path: disk.describe(), what });
    }
    let is_settings = |name: &String| name == config::CONFIG_FILE || name == LOCK || name == LOG_DIR;
    let is_empty = !disk.exists("")? || disk.list("").is_ok_and(|names| names.iter().all(is_settings));
    Ok(if is_empty { Place::Empty } else { Place::Free })
}

/// Refuses what a restore has left that did not come to its end: files of the old life, which are no environment without the
/// control file of the new one.
pub(crate) fn refuse_cut_restore(disk: &Arc<dyn Disk>) -> Result<(), Error> {
    if disk.exists(RESTORE)? {
        let why = "a restore into it was cut short; empty the directory, and restore again";
        return Err(Error::NotAnEnvironment { path: disk.describe(), why });
    }
    Ok(())
}

/// The environment that was being made.
fn read_unfinished(disk: &Arc<dyn Disk>) -> Result<Option<EnvironmentId>, Error> {
    let file = disk.open(CREATION_PATH, Open::READ)?;
    let mut slot = [0; CONTROL_SLOT_BYTES];
    if file.len()? < slot.len() as u64 {
        return Ok(None);
    }
    file.read_at(0, &mut slot)?;
    Ok(match ControlSlot::decode(&slot) {
        ControlSlot::Valid { state, .. } => Some(state.environment),
        _ => None,
    })
}

/// True if the file is missing, has its magic number, or begins with zeros because nothing was written yet.
fn begins_as_ours(disk: &Arc<dyn Disk>, name: &str, at: usize, magic: &[u8; 8]) -> Result<bool, Error> {
    if !disk.exists(name)? {
        return Ok(true);
    }
    let file = disk.open(name, Open::READ)?;
    let mut head = [0; 512];
    let there = file.len()?.min(512) as usize;
    file.read_at(0, &mut head[..there])?;
    Ok(head[at..at + 8] == *magic || head.iter().all(|&byte| byte == 0))
}

/// Removes what a creation that was cut short has left behind, and last the file that says so (O1).
fn clear_unfinished(disk: &Arc<dyn Disk>) -> Result<(), Error> {
    for file in [DATA, DOUBLE_WRITE] {
        if disk.exists(file)? {
            disk.remove(file)?;
        }
    }
    if disk.exists(LOG_DIR)? {
        for segment in disk.list(LOG_DIR)? {
            disk.remove(&format!("{LOG_DIR}/{segment}"))?;
        }
        disk.sync_dir(LOG_DIR)?;
    }
    disk.sync_dir("")?;
    disk.remove(CREATION_PATH)?;
    Ok(disk.sync_dir("")?)
}

/// Refuses a control file whose checksum is right and whose contents cannot be: nothing may be computed from them.
pub(crate) fn check_control(disk: &dyn Disk, state: &ControlState) -> Result<(), Error> {
    let lsn_max = 1 << 48;
    let checks = [
        (config::PAGE_BYTES.allow(u64::from(state.page_bytes)), "page_bytes", u64::from(state.page_bytes)),
        (config::LOG_SEGMENT_BYTES.allow(state.segment_bytes), "segment_bytes", state.segment_bytes),
        (state.scan_lsn >= FIRST_LSN && state.scan_lsn.0 < lsn_max, "scan_lsn", state.scan_lsn.0),
        (state.scan_lsn.0.is_multiple_of(8), "scan_lsn", state.scan_lsn.0),
        (state.checkpoint_lsn.0 == 0 || state.checkpoint_lsn >= state.scan_lsn, "scan_lsn", state.scan_lsn.0),
        (state.redo_lsn.0.is_multiple_of(8) && state.redo_lsn <= state.checkpoint_lsn, "redo_lsn", state.redo_lsn.0),
        (state.redo_lsn.0 == 0 || state.redo_lsn >= state.scan_lsn, "redo_lsn", state.redo_lsn.0),
        (state.checkpoint_lsn.0 < lsn_max, "checkpoint_lsn", state.checkpoint_lsn.0),
        (state.incarnation_max < 1 << 48, "incarnation_max", state.incarnation_max),
        (state.scan_incarnation <= state.incarnation_max, "scan_incarnation", state.scan_incarnation),
        (state.newest_segment.0 & (state.segment_bytes.max(1) - 1) == 0, "newest_segment", state.newest_segment.0),
        (state.newest_segment.0 < lsn_max, "newest_segment", state.newest_segment.0),
    ];
    match checks.iter().find(|(holds, ..)| !holds) {
        Some((_, field, found)) => {
            Err(Error::ControlFile { path: disk.describe(), what: format!("cannot be right: {field} is {found}") })
        }
        None => Ok(()),
    }
}

/// Refuses a data file of another environment, or one that is older than the checkpoint that the control file names (O8). One
/// whose first page cannot be read is not refused here.
fn check_data(data: &dyn DiskFile, state: &ControlState) -> Result<(), Error> {
    let Some(header) = FileHeader::read(data)? else { return Ok(()) };
    if header.environment != state.environment {
        let what = "data and control are of different environments: put back the one that is not this one's; if that is control, \
                    ledgerstone recover --rebuild-control DIR can make it anew";
        return Err(Error::Corrupt { what: what.into() });
    }
    if header.lsn < state.mark_lsn {
        let (found, mark) = (header.lsn, state.mark_lsn);
        let what = format!(
            "data is an older file than control and log: its page 0 has LSN {found}, the last checkpoint left {mark}; put the \
             newest data file back, or restore from a backup"
        );
        return Err(Error::Corrupt { what });
    }
    Ok(())
}

/// Refuses a data file that is shorter than when the last checkpoint was taken, unless the log cuts it.
fn check_length(data: &dyn DiskFile, state: &ControlState, found: &Analysis) -> Result<(), Error> {
    let expected = state.page_count.min(found.page_count_max().unwrap_or(u64::MAX)) * u64::from(state.page_bytes);
    let there = data.len()?;
    if there < expected {
        let what = format!(
            "data has {there} bytes, and had {expected} at the last checkpoint: put the whole file back, or restore from a backup"
        );
        return Err(Error::Corrupt { what });
    }
    Ok(())
}

/// Opens what is there; without `may_write` only if nothing needs to be done (O5).
fn recover(options: &Options, disk: Arc<dyn Disk>, lock: Box<dyn DiskLock>, may_write: bool) -> Result<Inner, Error> {
    let control = if may_write { ControlFile::open(&*disk) } else { ControlFile::open_read_only(&*disk) };
    let control = Arc::new(control.map_err(|error| control_error(&disk, error))?);
    recover_with(options, disk, lock, &control, may_write).map_err(|error| match (error, control.damaged_slot()) {
        (Error::Corrupt { what }, Some(slot)) => {
            Error::Corrupt { what: format!("{what}; slot {slot} of control is damaged too, and may have known better") }
        }
        (error, _) => error,
    })
}

/// A file named control with nothing of ours beside it is somebody else's.
fn control_error(disk: &Arc<dyn Disk>, error: ControlError) -> Error {
    let is_ours = || Ok::<_, Error>(disk.exists(DATA)? || disk.exists(LOG_DIR)?);
    match (error, is_ours()) {
        (ControlError::NotAnEnvironment { .. }, Ok(false)) => Error::NotAnEnvironment {
            path: disk.describe(),
            why: "it has a file named control that is not ours; choose another directory",
        },
        (error, _) => error.into(),
    }
}

fn recover_with(
    options: &Options,
    disk: Arc<dyn Disk>,
    lock: Box<dyn DiskLock>,
    control: &Arc<ControlFile>,
    may_write: bool,
) -> Result<Inner, Error> {
    let state = control.state();
    check_control(&*disk, &state)?;
    let effective = options.effective(Some((state.page_bytes, state.segment_bytes)))?;
    let mut report = RecoveryReport { scan_lsn: state.scan_lsn, ..RecoveryReport::default() };
    report.damaged_control_slot = control.damaged_slot();

    if may_write {
        ledgerstone_sort::remove_leftovers(&*disk)?;
    }
    let mut timer = Timer::start();
    let progress = &options.recovery_progress;
    // O4, O8
    if !disk.exists(DATA)? {
        let what = "the file data is missing: put it back, or restore from a backup";
        return Err(Error::Corrupt { what: what.into() });
    }
    let data = disk.open(DATA, Open { create: false, ..FILE })?;
    check_data(&*data, &state)?;
    ledgerstone_log::check_segments(&disk, &state)?;
    let scan = |from: Lsn, incarnation: u64| -> Result<LogScan, LogError> {
        LogScan::new(Arc::clone(&disk), state.environment, state.segment_bytes, from, incarnation)
            .map(|scan| scan.with_incarnation_max(state.incarnation_max).with_watch(progress.watch()))
    };
    progress.enter(RecoveryPhase::Analysis, state.scan_lsn, Lsn(0));
    let whole = scan(state.scan_lsn, state.scan_incarnation)?.settled()?; // O6
    let analysis = Arc::new(ledgerstone_recovery::analyse(whole, state.redo_from())?);
    if analysis.end <= state.checkpoint_lsn || analysis.end < state.durable_lsn {
        let (end, known) = (analysis.end, state.durable_lsn.max(state.checkpoint_lsn));
        let what =
            format!("the log ends at LSN {end}, and was durable beyond {known}: its end is damaged or an older one");
        return Err(Error::Corrupt { what });
    }
    check_length(&*data, &state, &analysis)?;
    refuse_other_locks(&effective, &analysis)?;
    report.analysis_ns = timer.lap();
    report.end_lsn = analysis.end;
    report.record_count = analysis.record_count;
    report.winner_count = analysis.winner_count;
    report.loser_count = analysis.losers.len() as u64;
    report.in_doubt_count = analysis.in_doubt.len() as u64;
    report.was_clean = state.is_clean && analysis.losers.is_empty() && analysis.ends_with_checkpoint;

    progress.enter(RecoveryPhase::TornPages, Lsn(0), Lsn(0));
    let double_write = open_double_write(&disk, &state, may_write)?;
    if may_write {
        report.torn_pages = Cache::repair_torn(&*data, &*double_write, state.page_bytes, analysis.end, state.is_clean)?;
    }
    check_data(&*data, &state)?; // Now page 0 is whole.
    report.torn_ns = timer.lap();

    // O2
    let next_incarnation = if may_write {
        // O6, O7. From here on it counts as not closed, and names and headers are needed that nobody may have synced.
        make_double_write(double_write, state.page_bytes)?;
        disk.sync_dir("")?;
        let tidied = match state.is_clean {
            true => Some(ledgerstone_log::tidy_segments(&disk, state.segment_bytes, analysis.end)?),
            false => None,
        };
        let incarnation = control.begin_incarnation(analysis.incarnation, tidied)?;
        // It was closed, and somebody has taken the lock away and come in: one of us sees the other's, now that it is open.
        if !lock.is_in_place()? {
            return Err(Error::AlreadyOpen { path: disk.describe() });
        }
        Some(incarnation)
    } else if report.was_clean && analysis.in_doubt.is_empty() {
        None
    } else {
        return Err(Error::read_only("the environment has to be recovered"));
    };
    report.incarnation = next_incarnation.unwrap_or(analysis.incarnation);

    let parts = Parts::build(options, &effective, &disk, control, &analysis, next_incarnation)?;
    let engine = Arc::clone(&parts.engine);
    let opening = Opening(Some(Arc::clone(&engine)));
    engine.table.raise_next_xid(Xid(state.xid_floor.0.max(analysis.max_xid.0 + 1)));

    if let Some(page_count) = analysis.page_count_max() {
        ledgerstone_space::finish_shrink(&*parts.data, state.page_bytes, page_count)?;
    }
    if may_write {
        // Redo and undo of what is larger than the cache change pages faster than they are read.
        engine.cache.start_writer();
    }
    let (redo_from, incarnation) = analysis.redo_from;
    progress.enter(RecoveryPhase::Redo, redo_from, analysis.end);
    let worker_count = u64::from(effective.redo_worker_count);
    let redone = ledgerstone_recovery::redo(&engine, &analysis, worker_count, || Ok(scan(redo_from, incarnation)?))?;
    report.redo_applied_count = redone.applied_count;
    report.redo_skipped_count = redone.skipped_count;
    report.redo_ns = timer.lap();

    progress.enter(RecoveryPhase::Undo, Lsn(0), Lsn(0));
    let space = Space::open(&engine, Arc::clone(&parts.data), state.environment)?;
    let (catalog, to_free) = trees(&engine, &space, &options.extensions);
    let in_doubt = Undecided::after_restart(ledgerstone_recovery::keep_prepared(&engine, &analysis.in_doubt)?)?;
    report.undone_count = ledgerstone_recovery::undo(&engine, &analysis.losers, &disk)?;
    report.undo_ns = timer.lap();
    refuse_unknown_structures(&engine, &catalog, &options.extensions)?;

    let mut inner = parts.into_inner(
        options,
        effective,
        disk,
        lock,
        space,
        catalog,
        to_free,
        Arc::clone(control),
        report,
        in_doubt,
    )?;
    options.recovery_progress.enter(RecoveryPhase::Checkpoint, Lsn(0), Lsn(0));
    if !inner.is_read_only {
        match inner.checkpoint(false) {
            // It can be used, and comes to a checkpoint when there is space again. Nothing that was recovered is lost by that.
            Err(Error::ReadOnly { .. }) => {}
            done => drop(done?),
        }
    }
    options.recovery_progress.enter(RecoveryPhase::Nothing, Lsn(0), Lsn(0));
    inner.report.checkpoint_ns = timer.lap();
    opening.succeeded();
    Ok(inner)
}

/// O7.
fn open_double_write(disk: &Arc<dyn Disk>, state: &ControlState, may_write: bool) -> Result<Arc<dyn DiskFile>, Error> {
    if disk.exists(DOUBLE_WRITE)? {
        return Ok(disk.open(DOUBLE_WRITE, Open { create: false, ..FILE })?);
    }
    if !state.is_clean {
        let file = format!("{}/{DOUBLE_WRITE}", disk.describe());
        return Err(BufferError::DoubleWriteMissing { file }.into());
    }
    if !may_write {
        return Err(Error::read_only("the environment has lost its double-write file"));
    }
    Ok(disk.open(DOUBLE_WRITE, FILE)?)
}

/// How data and double-write file are opened.
const FILE: Open = Open { create: true, create_new: false, read_only: false, direct: true };

/// An engine whose environment is not open yet. The logical undos hold the engine that holds them, and the page writer would wait
/// for ever: an opening that fails ends both.
struct Opening(Option<Arc<Engine>>);

impl Opening {
    /// Leaves them to the close of the environment.
    fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(engine) = &self.0 {
            engine.clear_undos();
            engine.cache.stop_writer();
        }
    }
}

fn trees(engine: &Arc<Engine>, space: &Arc<Space>, extensions: &Extensions) -> (Tree, Arc<ToFree>) {
    let to_free = ToFree::new(engine, space, TO_FREE_TABLE, TO_FREE_ROOT);
    let to_free = Arc::new(to_free.with_structures(Arc::new(extensions.clone())));
    let catalog = Tree::new(engine, space, &to_free, CATALOG_TABLE, CATALOG_ROOT).logging_whole_values(true);
    ledgerstone_structures::register_undos(engine, space, &to_free);
    extensions.register_undos(engine);
    (catalog, to_free)
}

/// Locks that a transaction in doubt holds on keys keep nobody out who locks pages, and the other way round; and one that was
/// prepared without locks keeps nobody out at all. Without locks nobody expects to be kept out.
fn refuse_other_locks(effective: &Effective, found: &Analysis) -> Result<(), Error> {
    let is_other = |kept: &&InDoubt| match effective.locking {
        Locking::Hierarchical => kept.record.locked != Locked::Keys,
        Locking::Pages => kept.record.locked != Locked::Pages,
        Locking::None => false,
    };
    match found.in_doubt.values().find(is_other) {
        Some(kept) => {
            let id = prepared::printable(&kept.record.global_id);
            let before = match kept.record.locked {
                Locked::Keys => "hierarchical",
                Locked::Pages => "pages",
                Locked::Nothing => "none",
            };
            let what = format!(
                "transaction {id} was prepared with \"{before}\" and is in doubt: open with that and decide it"
            );
            Err(Error::Setting { name: "locking".into(), what })
        }
        None => Ok(()),
    }
}

/// What the data holds can be verified and freed only by a program that knows it.
fn refuse_unknown_structures(engine: &Arc<Engine>, catalog: &Tree, extensions: &Extensions) -> Result<(), Error> {
    let mut txn = engine.begin()?;
    let mut scan = catalog.scan_unlocked(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((name, value)) = scan.next(&mut txn)? {
        if let Some(structure) = Entry::structure_of(value).map(StructureId)
            && extensions.get(structure).is_none()
        {
            return Err(extend::unknown(&String::from_utf8_lossy(name), structure));
        }
    }
    txn.commit(Durability::Volatile)?;
    Ok(())
}

/// LIBTP's thresholds (4.2).
fn group_commit(effective: &Effective) -> GroupCommit {
    GroupCommit {
        group_count_min: effective.commit_group_min,
        wait_percent: effective.commit_wait_percent,
        log_delay_bytes: effective.commit_log_delay_bytes,
        delay: match effective.commit_delay_us {
            0 => Delay::Adaptive,
            us => Delay::AtMost { ns: us.saturating_mul(1000) },
        },
    }
}

/// All operations of this version and of the program's structures.
pub(crate) fn operations(extensions: &Extensions) -> Result<Registry, Error> {
    let mut ops = Registry::new();
    ledgerstone_space::register(&mut ops).map_err(|e| Error::UnknownOperation { what: e.to_string() })?;
    ledgerstone_structures::register(&mut ops).map_err(|e| Error::UnknownOperation { what: e.to_string() })?;
    extensions.register_operations(&mut ops)?;
    Ok(ops)
}

/// The engine and what belongs to it, before anything is known of trees.
struct Parts {
    engine: Arc<Engine>,
    data: Arc<dyn DiskFile>,
}

impl Parts {
    fn build(
        options: &Options,
        effective: &Effective,
        disk: &Arc<dyn Disk>,
        control: &Arc<ControlFile>,
        found: &Analysis,
        next_incarnation: Option<u64>,
    ) -> Result<Parts, Error> {
        let state = control.state();
        // The losers of a crash need a slot each, however few there may be afterwards; the prepared keep theirs, and their
        // locks, and leave the others what was asked for.
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let kept_count = count(found.in_doubt.len());
        let slot_count = effective.transaction_count_max.max(count(found.losers.len())).saturating_add(kept_count);
        let kept_locks = count(found.in_doubt.values().map(|kept| kept.record.locks.len()).sum());
        let lock_count_max = effective.lock_count_max.saturating_add(kept_locks);
        let lock_config = locking::config(effective, slot_count, lock_count_max);
        // Each transaction may have one, and ranges that read committed one each.
        let snapshot_count_max = slot_count.saturating_mul(2);
        let data = disk.open(DATA, FILE)?;
        let parts_bytes = [
            Cache::table_bytes(data.len()?, state.page_bytes, effective.page_count_max),
            effective.cache_bytes,
            effective.cache_bytes / 16,
            effective.log_buffer_bytes,
            lock_config.region_bytes() * (1 + u64::from(options.own_locking.is_some())),
            u64::from(slot_count) * 1024,
            VersionStore::region_bytes(effective.version_store_bytes, snapshot_count_max),
            8 << 20,
        ];
        let region = Region::anonymous(parts_bytes.into_iter().fold(0, u64::saturating_add))?;
        let slots = Arc::new(SlotTable::create(&region, effective.thread_count_max)?);
        // Makes the names in the environment's directory durable, too (O6).
        let log = Log::open(LogConfig {
            segment_bytes: state.segment_bytes,
            buffer_bytes: effective.log_buffer_bytes,
            group: group_commit(effective),
            async_delay_ns: effective.async_delay_ms.saturating_mul(1_000_000),
            spare_segments: (SPARE_LOG_BYTES / state.segment_bytes).clamp(2, 8),
            end: found.end,
            incarnation: found.incarnation,
            incarnations: found.incarnations.clone(),
            next_incarnation,
            is_read_only: options.read_only,
            control: Some(Arc::clone(control)),
            ..LogConfig::new(Arc::clone(disk), region.clone(), state.environment)
        })?;
        // Who only reads writes no page, and makes no room for copies of one.
        let torn_pages = if options.read_only { TornPages::DeviceAtomic } else { TornPages::DoubleWrite };
        let cache = Cache::with_tuning(
            CacheConfig {
                region: region.clone(),
                slots: Arc::clone(&slots),
                data: Arc::clone(&data),
                double_write: disk.open(DOUBLE_WRITE, FILE)?,
                log: Arc::clone(&log) as _,
                page_bytes: state.page_bytes,
                cache_bytes: effective.cache_bytes,
                max_pages: effective.page_count_max,
                policy: match effective.replacement {
                    Replacement::Clock => Policy::Clock,
                    Replacement::Lru => Policy::Lru,
                },
            },
            Tuning { torn_pages, ..Tuning::default() },
        )?;
        let locks = locking::make(&region, effective.locking, lock_config, options.own_locking.as_ref())?;
        let table = TxnTable::create(&region, slot_count)?;
        let versions = VersionStore::create(&region, &log, &slots, effective.version_store_bytes, snapshot_count_max)?;
        let engine = Engine::new(EngineParts {
            region,
            slots,
            log,
            cache,
            locks,
            ops: operations(&options.extensions)?,
            table,
            versions,
            settings: EngineSettings {
                lock_timeout_ns: effective.lock_timeout_ms.saturating_mul(1_000_000),
                escalate_after: effective.escalate_after,
                locks_pages: effective.locking == Locking::Pages,
            },
        });
        Ok(Parts { engine, data })
    }

    #[allow(clippy::too_many_arguments)] // One caller each for create and recover; a struct would only rename them.
    fn into_inner(
        self,
        options: &Options,
        effective: Effective,
        disk: Arc<dyn Disk>,
        lock: Box<dyn DiskLock>,
        space: Arc<Space>,
        catalog: Tree,
        to_free: Arc<ToFree>,
        control: Arc<ControlFile>,
        report: RecoveryReport,
        in_doubt: Undecided,
    ) -> Result<Inner, Error> {
        let region = self.engine.region.clone();
        let state = control.state();
        let owner = Owner { environment: state.environment, life: state.life };
        let feeds = Feeds::open(&*disk, &self.engine.log, effective.feed_log_bytes_max, owner)?;
        let is_restored = AtomicBool::new(disk.exists(RESTORE)?);
        let archive = match &options.archive {
            Some(place) if !options.read_only => {
                let known = Beginning { lsn: state.scan_lsn, incarnation: state.scan_incarnation };
                Some(Archive::begin(Arc::clone(&place.0), owner, known, &self.engine.log)?)
            }
            _ => None,
        };
        Ok(Inner {
            disk,
            lock: Mutex::new(Some(lock)),
            checkpoint_latch: region.handle_slice(region.alloc::<Latch>(1, 8)?)?,
            archive_latch: region.handle_slice(region.alloc::<Latch>(1, 8)?)?,
            compact_latch: region.handle_slice(region.alloc::<Latch>(1, 8)?)?,
            bell: Bell::create(&region)?,
            engine: self.engine,
            space,
            catalog,
            to_free,
            known: Known::default(),
            in_doubt,
            layouts: options.extensions.layouts()?,
            extensions: options.extensions.clone(),
            extractors: options.extractors.clone(),
            durability: effective.durability,
            drops: AtomicU64::new(0),
            effective,
            archive,
            feeds,
            is_read_only: options.read_only,
            report,
            control,
            last_checkpoint: AtomicU64::new(0),
            checkpoint_count: AtomicU64::new(0),
            is_restored,
            is_closed: AtomicBool::new(false),
        })
    }
}

/// A random id.
pub(crate) fn new_id() -> EnvironmentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&sync::random_u64().to_le_bytes());
    id[8..].copy_from_slice(&sync::random_u64().to_le_bytes());
    id
}

struct Timer(u64);

impl Timer {
    fn start() -> Timer {
        Timer(sync::now_ns())
    }

    fn lap(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.0, sync::now_ns());
        self.0.saturating_sub(before)
    }
}
