//! An environment that is there (O2, O4 to O8).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_buffer::{BufferError, Cache, make_double_write};
use ledgerstone_core::directory::{DATA, DOUBLE_WRITE, RESTORE, check_control, control_error};
use ledgerstone_disk::{Disk, DiskFile, Fence, Open};
use ledgerstone_log::{ControlFile, ControlState, LogError, LogScan};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_recovery::{Adopted, Gathered, Pending, RecoveryReport};
use ledgerstone_region::{NumberSet, sync};
use ledgerstone_space::Space;

use super::check::{check_data, check_length, refuse_other_locks, refuse_unknown_structures};
use super::parts::{Begins, Home, Parts, trees};
use super::put_off::{put_off, too_large};
use super::{FILE, Opening, allow_readers};
use crate::Error;
use crate::config::{Options, RecoveryPhase};
use crate::inner::{Inner, Rollbacks, Undecided};
use crate::keeper::{Owner, check_positions};

/// With the log of so many checkpoints that were due, an opening takes its own (O9). There is hardly so much if those
/// before it came to theirs.
const OWED_MAX: u64 = 4;

/// Opens what is there; without `may_write` only if nothing needs to be done (O5).
pub(super) fn recover(
    options: &Options,
    disk: Arc<dyn Disk>,
    fence: Arc<Fence>,
    may_write: bool,
    home: Home,
) -> Result<Inner, Error> {
    let control = if may_write { ControlFile::open(&*disk) } else { ControlFile::open_read_only(&*disk) };
    let control = Arc::new(control.map_err(|error| control_error(&disk, error))?);
    recover_with(options, disk, fence, &control, may_write, home).map_err(|error| {
        match (error, control.damaged_slot()) {
            (Error::Corrupt { what }, Some(slot)) => Error::Corrupt {
                what: format!("{what}; slot {slot} of control is damaged too, and may have known better"),
            },
            (error, _) => error,
        }
    })
}

fn recover_with(
    options: &Options,
    disk: Arc<dyn Disk>,
    fence: Arc<Fence>,
    control: &Arc<ControlFile>,
    may_write: bool,
    home: Home,
) -> Result<Inner, Error> {
    let state = control.state();
    check_control(&*disk, &state)?;
    let effective = options.effective(Some((state.page_bytes, state.segment_bytes)))?;
    let mut report = RecoveryReport { scan_lsn: state.scan_lsn, ..RecoveryReport::default() };
    report.damaged_control_slot = control.damaged_slot();
    report.damaged_table_slot = disk.damaged_slot();

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
    let whole = scan(state.scan_lsn, state.scan_incarnation)?.settled()?.with_reader(); // O6
    let worker_count = u64::from(effective.redo_worker_count);
    let mut gathered = Gathered::beside(effective.cache_bytes, worker_count);
    let tree_of = &ledgerstone_structures::tree_of_update;
    let analysis = ledgerstone_recovery::analyse(whole, state.redo_from(), tree_of, &mut gathered)?;
    let analysis = Arc::new(analysis);
    if analysis.end <= state.checkpoint_lsn || analysis.end < state.durable_lsn {
        let (end, known) = (analysis.end, state.durable_lsn.max(state.checkpoint_lsn));
        let what =
            format!("the log ends at LSN {end}, and was durable beyond {known}: its end is damaged or an older one");
        return Err(Error::Corrupt { what });
    }
    let owner = Owner { environment: state.environment, life: state.life };
    check_positions(&*disk, owner, state.has_feeds, analysis.end)?;
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
        // It was closed, and somebody has taken the lock away and come in: one of us sees the other's, now that it is
        // open.
        if fence.with_lock(|lock| lock.is_in_place()).transpose()? == Some(false) {
            return Err(Error::AlreadyOpen { path: disk.describe() });
        }
        Some(incarnation)
    } else if report.was_clean && analysis.in_doubt.is_empty() {
        None
    } else {
        return Err(Error::read_only("the environment has to be recovered"));
    };
    report.incarnation = next_incarnation.unwrap_or(analysis.incarnation);

    // What is left for later is one process's (A1 in `inner/among.rs`).
    let may_leave = options.has_background_threads && matches!(home, Home::Alone);
    let too_large = match may_leave {
        true => too_large(&analysis.losers, effective.restart_undo_bytes),
        false => NumberSet::new(),
    };
    // O10
    let (last, due_bytes) = (state.checkpoint_lsn, effective.checkpoint_log_bytes);
    let is_long = move |tail: Lsn| tail.0.saturating_sub(last.0) / OWED_MAX >= due_bytes;
    let is_asked_whole = effective.restart_undo_bytes == u64::MAX;
    let may_put_off = may_leave && may_write && !is_asked_whole && !gathered.is_empty();
    let is_sure = !state.is_unlocked && !disk.exists(RESTORE)? && analysis.truncations.is_empty();
    let puts_off = may_put_off && is_sure && gathered.is_whole() && !is_long(analysis.end);
    let redo_threads = if puts_off { effective.redo_worker_count } else { 0 };
    let begins = Begins { found: &analysis, too_large: &too_large, redo_threads, next_incarnation };
    let parts = Parts::build(options, &effective, (&disk, &fence), control, begins, &home)?;
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
    if options.has_background_threads {
        allow_readers(&engine.cache, &effective);
    }
    progress.enter(RecoveryPhase::Redo, analysis.redo_from.0, analysis.end);
    let put_off_redo = if puts_off { Pending::put_off(&engine, gathered) } else { Err(gathered) };
    let pending = match put_off_redo {
        Ok(pending) => {
            report.redo_put_off_count = pending.change_count();
            Some(pending)
        }
        Err(gathered) => {
            let rest = |from, incarnation| Ok(scan(from, incarnation)?);
            let redone = ledgerstone_recovery::redo(&engine, &analysis, gathered, &progress.watch(), rest)?;
            report.redo_applied_count = redone.applied_count;
            report.redo_skipped_count = redone.skipped_count;
            None
        }
    };
    report.redo_ns = timer.lap();

    progress.enter(RecoveryPhase::Undo, Lsn(0), Lsn(0));
    let space = Space::open(&engine, Arc::clone(&parts.data), state.environment)?;
    let (catalog, to_free) = trees(&engine, &space, &options.extensions);
    let in_doubt = Undecided::after_restart(ledgerstone_recovery::keep_prepared(&engine, &analysis.in_doubt)?)?;
    let losers = ledgerstone_recovery::adopt(&engine, &analysis.losers)?;
    // Two that have changed one record are undone together (P5 in `put_off.rs`).
    let is_apart = engine.locks.isolates() && !state.is_unlocked;
    let (large, small): (Vec<_>, Vec<_>) =
        losers.into_iter().partition(|one| is_apart && too_large.contains(one.xid()));
    let undo = |losers: Vec<Adopted>| {
        progress.enter(RecoveryPhase::Undo, Lsn(0), Lsn(ledgerstone_recovery::bytes_to_undo(&losers)));
        ledgerstone_recovery::undo(&engine, losers, &disk, &progress.watch())
    };
    report.undone_count = undo(small)?;
    let (put_off, large) = put_off(&engine, &catalog, large)?;
    report.undone_count += undo(large)?;
    let rollbacks = Rollbacks::of(put_off);
    report.put_off_count = rollbacks.put_off_count();
    report.undo_ns = timer.lap();
    refuse_unknown_structures(&engine, &catalog, &options.extensions)?;

    let mut inner = parts.into_inner(
        options,
        effective,
        disk,
        fence,
        space,
        catalog,
        to_free,
        Arc::clone(control),
        report,
        (in_doubt, rollbacks),
    )?;
    inner.make_keepers_unless_shared()?;
    *inner.pending.lock() = pending;
    options.recovery_progress.watch().check()?;
    if !inner.is_read_only {
        let ends_unlocked = engine.locks.isolates() && control.state().is_unlocked;
        let has_to_end = ends_unlocked || inner.checkpoints.is_restored.load(Relaxed);
        // O9
        if options.has_background_threads && !has_to_end && !is_long(engine.log.tail()) {
            inner.checkpoints.owe(last);
        } else {
            inner.repeat_pending(); // What was undone has made it long.
            options.recovery_progress.enter(RecoveryPhase::Checkpoint, Lsn(0), Lsn(0));
            match inner.checkpoint() {
                // It can be used, and comes to a checkpoint when there is space again. Nothing that was recovered is
                // lost by that.
                Err(Error::ReadOnly { .. }) => {}
                Ok(_) if ends_unlocked => {
                    control.change(|state| state.is_unlocked = false)?; // Whoever was open is undone, durably.
                }
                done => drop(done?),
            }
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
