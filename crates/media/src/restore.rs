//! An environment made anew from backups and log: to the end, to a time, or to an LSN.
//!
//! ```text
//!  backup proved ─► restore.new ─► data file from its pages ─► log from its log, and from an archive ─► cut at the moment
//!     ─► control file, last: only now the directory is an environment; its first open recovers
//! ```
//! R1. The target is empty before, and without a control file until everything else in it is durable. `restore.new`
//!     comes first, durably, and goes when the environment that was made has taken a checkpoint. Until then data and
//!     log are those of the old life, and no control file may be made anew from them.
//! R2. Nothing of the log behind the moment is in the target. The incarnation that begins there was never given out to
//!     the life that was left. So no record of that life can be read as one of the new (`seal.rs` in the log).
//! R3. No moment before the end of the full backup can be restored: its pages may hold later changes.
//! R4. What is damaged is not used, and what is whole before it is: the report says what was left out.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_buffer::make_double_write;
use ledgerstone_core::Error;
use ledgerstone_core::directory::{DATA, DOUBLE_WRITE, LOCK, RESTORE, disk_to_fill, refuse_cut_restore, take_lock};
use ledgerstone_core::flow::{Flow, MediaProgress, Tell, telling};
use ledgerstone_disk::{Disk, Open};
use ledgerstone_feed::LogDirectory;
use ledgerstone_feed::directory::{durable, files};
use ledgerstone_log::{
    Beginning, CONTROL_PATH, ControlFile, ControlState, LOG_DIR, LogError, LogScan, RecordKind, segment_name,
    segment_start,
};
use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_recovery::backup::{BackupDisk, BackupError, BackupView};
use ledgerstone_region::sync;

use crate::backup::{Chain, check_chain};
use crate::log_union::LogUnion;
use crate::{Backup, LeftOut};

/// The moment to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTo {
    /// The newest commit that there is.
    End,
    /// The commits up to this LSN: those whose record begins at it or before.
    Lsn(Lsn),
    /// The commits up to this time, in nanoseconds since 1970: all before the first one that is later. The times are
    /// those of the machine that committed.
    TimeNs(u64),
}

/// What a restore made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RestoreReport {
    /// The full backup it began with.
    pub backup: String,
    /// Pages copied.
    pub page_count: u64,
    /// Where the log of the new environment ends.
    pub end_lsn: u64,
    /// Commits that the log behind the full backup holds up to there.
    pub commit_count: u64,
    /// The time of the last of them, in nanoseconds since 1970. 0 means that none has a time.
    pub last_commit_ns: u64,
    /// Files and logs that exist and are not used, or not to their end, because they or the files before them are
    /// damaged or missing. They may contain commits that were not restored.
    pub left_out: Vec<LeftOut>,
}

/// Records read between two calls of the progress callback.
const RECORDS_BETWEEN: u64 = 1024;

/// Bytes copied at once.
const PIECE_BYTES: u64 = 1 << 20;

impl Backup {
    /// Makes an environment in directory `target`, which must be missing or empty. `logs` are the places where the log
    /// goes on behind the end of the backup: an archive, the directory of the lost environment, or both, in any order.
    /// Verifies the backup first. The first open of the new environment recovers, as after a crash at that moment.
    ///
    /// A damaged backup or log is used up to the damage, and [`RestoreReport::left_out`] names it: look at the report.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::TargetNotEmpty`], [`Error::MomentNotInBackup`]. [`Error::LogGone`] if `logs` begin behind the end of
    /// the backup. [`Error::Corrupt`] if no full backup is whole. A failure of the disk.
    pub fn restore(
        &self,
        target: impl AsRef<Path>,
        to: RestoreTo,
        logs: &[LogDirectory],
    ) -> Result<RestoreReport, Error> {
        self.restore_with(target, to, logs, |_| ())
    }

    /// The same. `progress` is called repeatedly, and may end the restore ([`Flow`]). As after every error, the target
    /// then has no files, though it may have an empty directory, and can be restored into again.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::restore`], and [`Error::Cancelled`].
    pub fn restore_with<F: Flow>(
        &self,
        target: impl AsRef<Path>,
        to: RestoreTo,
        logs: &[LogDirectory],
        progress: impl FnMut(MediaProgress) -> F,
    ) -> Result<RestoreReport, Error> {
        self.restore_on(disk_to_fill(target)?, to, logs, progress)
    }

    /// The same on any [`Disk`], which must be empty.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Backup::restore_with`].
    pub fn restore_on<F: Flow>(
        &self,
        target: Arc<dyn Disk>,
        to: RestoreTo,
        logs: &[LogDirectory],
        progress: impl FnMut(MediaProgress) -> F,
    ) -> Result<RestoreReport, Error> {
        self.restore_telling(target, to, logs, &mut telling(progress))
    }

    fn restore_telling(
        &self,
        target: Arc<dyn Disk>,
        to: RestoreTo,
        logs: &[LogDirectory],
        tell: Tell<'_>,
    ) -> Result<RestoreReport, Error> {
        target.create_dir("")?;
        if !is_empty(&*target)? {
            if !target.exists(CONTROL_PATH)? {
                refuse_cut_restore(&target)?;
            }
            return Err(Error::TargetNotEmpty { path: target.describe() });
        }
        let mut left_out = Vec::new();
        let chain = self.restore_choose(to, &mut left_out, tell)?;
        let state = restore_state(&chain, logs)?;
        // What was empty need not be so any more. From here on nobody else makes anything in it.
        let lock = take_lock(&target)?;
        if !is_empty(&*target)? {
            return Err(Error::TargetNotEmpty { path: target.describe() });
        }
        let mut made = Made { target: &*target, is_whole: false };
        let report = restore_files(&chain, &target, &state, to, logs, left_out, tell)?;
        drop(ControlFile::create(&*target, state)?);
        made.is_whole = true;
        drop(made);
        drop(lock);
        if planted::is_on(Bug::RestoreNamesLost) {
            make_double_write(target.open(DOUBLE_WRITE, Open::CREATE_NEW)?, state.page_bytes)?;
        }
        Ok(report)
    }

    /// Of the newest chain whose full backup ended before the moment, the longest part that is whole (R4).
    fn restore_choose(
        &self,
        to: RestoreTo,
        left_out: &mut Vec<LeftOut>,
        tell: Tell<'_>,
    ) -> Result<Arc<BackupDisk>, Error> {
        let (chains, before) = self.chains();
        let is_before = |chain: &Chain| match to {
            RestoreTo::End => true,
            RestoreTo::Lsn(lsn) => chain.files[0].end.log_end <= Lsn(lsn.0.saturating_add(1)),
            RestoreTo::TimeNs(ns) => chain.files[0].end.ended_ns <= ns,
        };
        left_out.extend(before);
        // A time before all of them may still lie behind the last commit of the oldest: the log will say.
        let newest = chains.iter().rposition(is_before).unwrap_or(0);
        let mut first_error = Error::NotABackup { path: String::new() };
        for (no, chain) in chains.into_iter().take(newest + 1).enumerate().rev() {
            left_out.extend(chain.left_out);
            let mut files = chain.files;
            while !files.is_empty() {
                let disk = BackupDisk::new(files.clone())?;
                match check_chain(&disk, tell) {
                    Ok(_) => return Ok(disk),
                    Err(BackupError::Cancelled) => return Err(Error::Cancelled),
                    Err(error) => {
                        // Those before the first that is damaged by itself; otherwise all but the last.
                        let damaged = files.iter().position(|file| file.check_frames(&mut |_| Ok(())).is_err());
                        for file in files.drain(damaged.unwrap_or(files.len() - 1)..) {
                            left_out.push(LeftOut::new(file.name(), &error));
                        }
                        if no == newest && files.is_empty() {
                            first_error = error.into();
                        }
                    }
                }
            }
        }
        Err(first_error)
    }
}

/// What a restore makes. It goes again if an error or a panic of the callback ends the restore before it is whole.
struct Made<'t> {
    target: &'t dyn Disk,
    is_whole: bool,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = empty(self.target); // What stays is named by the mark. The first error is the one to tell.
        }
    }
}

/// Makes everything but the control file, which comes last (R1).
fn restore_files(
    chain: &Arc<BackupDisk>,
    target: &Arc<dyn Disk>,
    state: &ControlState,
    to: RestoreTo,
    logs: &[LogDirectory],
    mut left_out: Vec<LeftOut>,
    tell: Tell<'_>,
) -> Result<RestoreReport, Error> {
    let mark = target.open(RESTORE, Open::CREATE_NEW)?;
    mark.write_at(0, b"A restore into this directory was begun. Open it, or if that is refused, empty it.\n")?;
    mark.sync()?;
    target.sync_dir("")?; // R1
    target.create_dir(LOG_DIR)?;
    target.sync_dir("")?;
    restore_data(chain, target, tell)?;
    if !planted::is_on(Bug::RestoreNamesLost) {
        make_double_write(target.open(DOUBLE_WRITE, Open::CREATE_NEW)?, state.page_bytes)?;
    }
    restore_log(chain, &**target, state, tell)?;
    let log_end = restore_more_log(chain, &**target, state, logs, &mut left_out, tell)?;
    let report = restore_cut(chain, target, state, log_end, to, left_out, tell)?;
    target.sync_dir(LOG_DIR)?;
    target.sync_dir("")?;
    Ok(report)
}

/// Whether there is no file, but for that of the lock. A restore that was ended leaves an empty directory.
fn is_empty(target: &dyn Disk) -> Result<bool, Error> {
    let mut names = target.list("")?;
    names.retain(|name| name != LOCK);
    Ok(names.is_empty() || names == [LOG_DIR] && target.list(LOG_DIR).is_ok_and(|names| names.is_empty()))
}

/// Takes back what [`restore_files`] has made. The mark goes last: until then the rest is named by it.
fn empty(target: &dyn Disk) -> Result<(), Error> {
    let remove = |path: &str| if target.exists(path)? { target.remove(path) } else { Ok(()) };
    if target.exists(LOG_DIR)? {
        target.list(LOG_DIR)?.iter().try_for_each(|name| target.remove(&format!("{LOG_DIR}/{name}")))?;
        target.remove(LOG_DIR)?;
    }
    [CONTROL_PATH, DATA, LOCK, DOUBLE_WRITE].into_iter().try_for_each(remove)?;
    target.sync_dir("")?;
    remove(RESTORE)?;
    Ok(target.sync_dir("")?)
}

/// The control file of the new environment (R2).
fn restore_state(chain: &BackupDisk, logs: &[LogDirectory]) -> Result<ControlState, Error> {
    // How often the life that is left could be opened again before its incarnations meet ours, and a little chance on
    // top, for two restores from one backup.
    let distance = 64 + sync::random_u64() % 192;
    let mut state = chain.state();
    let mut incarnation_max = state.incarnation_max;
    for log in logs {
        if files(log).environment != state.environment {
            let what = format!("{} is the log of another environment", files(log).disk.describe());
            return Err(Error::Corrupt { what });
        }
        incarnation_max = incarnation_max.max(files(log).incarnation_max);
    }
    state.incarnation_max = incarnation_max + distance;
    state.life = sync::random_u64();
    Ok(state)
}

fn restore_data(chain: &Arc<BackupDisk>, target: &Arc<dyn Disk>, tell: Tell<'_>) -> Result<(), Error> {
    let from = BackupView(Arc::clone(chain)).open("data", Open::READ)?;
    let to = target.open("data", Open::CREATE_NEW)?;
    let (bytes, mut at) = (from.len()?, 0);
    to.set_len(bytes)?;
    let mut buffer = vec![0; PIECE_BYTES as usize];
    while at < bytes {
        let piece = &mut buffer[..PIECE_BYTES.min(bytes - at) as usize];
        from.read_at(at, piece)?;
        if piece.iter().any(|&byte| byte != 0) {
            to.write_at(at, piece)?;
        }
        at += piece.len() as u64;
        tell("copy pages", at, bytes)?;
    }
    Ok(to.sync()?)
}

/// Copies the log of the backup.
fn restore_log(chain: &Arc<BackupDisk>, target: &dyn Disk, state: &ControlState, tell: Tell<'_>) -> Result<(), Error> {
    let view = BackupView(Arc::clone(chain));
    let begin = state.scan_lsn.0 - state.scan_lsn.0 % state.segment_bytes;
    let (mut at, end) = (begin, chain.log_end().0);
    while at < end {
        let stop = end.min(at + state.segment_bytes);
        copy_log(&view, target, state.segment_bytes, at, stop)?;
        at = stop;
        tell("copy log", at - begin, end - begin)?;
    }
    Ok(())
}

/// Goes on behind the end of the backup with whichever of `more` has whole records farthest, again and again: one may
/// be damaged where another is not. Returns where the log ends.
fn restore_more_log(
    chain: &BackupDisk,
    target: &dyn Disk,
    state: &ControlState,
    more: &[LogDirectory],
    left_out: &mut Vec<LeftOut>,
    tell: Tell<'_>,
) -> Result<Lsn, Error> {
    let segment_bytes = state.segment_bytes;
    let last = &chain.chain()[chain.chain().len() - 1].end;
    let mut at = Beginning { lsn: last.log_end, incarnation: last.incarnation };
    if let Some(oldest) = begins_behind(more, at.lsn, segment_bytes)? {
        return Err(Error::LogGone { lsn: at.lsn, oldest });
    }
    let mut reached = vec![Reach { end: at, why: None }; more.len()];
    loop {
        let mut farthest: Option<(usize, LogUnion)> = None;
        for no in 0..more.len() {
            // This one first, and where it has no file the others.
            let order = (no..more.len()).chain(0..no);
            let union = LogUnion(order.map(|no| Arc::clone(&files(&more[no]).disk)).collect());
            reached[no] = reach(&union, state, at, tell)?;
            let best = farthest.as_ref().map_or(at.lsn, |(best, _)| reached[*best].end.lsn);
            if reached[no].end.lsn > best {
                farthest = Some((no, union));
            }
        }
        let Some((no, union)) = farthest else { break };
        let (begin, end) = (at.lsn.0, reached[no].end.lsn.0);
        let mut from = begin;
        while from < end {
            let stop = end.min(from - from % segment_bytes + segment_bytes);
            copy_log(&union, target, segment_bytes, from, stop)?;
            from = stop;
            tell("copy log", from - begin, end - begin)?;
        }
        at = reached[no].end;
    }
    for (log, reached) in more.iter().zip(reached) {
        let files = files(log);
        // An archive knows its end, an environment a place that its log has reached.
        let promised = Some(durable(log)).filter(|lsn| *lsn > at.lsn);
        let why = reached.why.or(promised.map(|lsn| format!("its records at LSN {lsn} do not go on from there")));
        if let Some(why) = why {
            left_out.push(LeftOut::new(&files.disk.describe(), format!("not used from LSN {} on: {why}", at.lsn)));
        }
    }
    Ok(at.lsn)
}

/// Where the first of these logs begins, if all of them begin behind `end`.
fn begins_behind(logs: &[LogDirectory], end: Lsn, segment_bytes: u64) -> Result<Option<Lsn>, Error> {
    let mut oldest = None;
    for log in logs {
        let disk = &files(log).disk;
        let names = if disk.exists(LOG_DIR)? { disk.list(LOG_DIR)? } else { Vec::new() };
        let first = names.iter().filter_map(|name| segment_start(name)).min();
        if first.is_some_and(|first| first <= end.0 - end.0 % segment_bytes) {
            return Ok(None);
        }
        oldest = oldest.min(first).or(oldest).or(first);
    }
    Ok(oldest.map(Lsn))
}

/// How far records go on.
#[derive(Clone)]
struct Reach {
    end: Beginning,
    /// What is wrong there, if it is not the end of a log.
    why: Option<String>,
}

fn reach(disk: &LogUnion, state: &ControlState, from: Beginning, tell: Tell<'_>) -> Result<Reach, Error> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut scan = match LogScan::new(disk, state.environment, state.segment_bytes, from.lsn, from.incarnation) {
        Err(LogError::MissingSegment { .. }) => return Ok(Reach { end: from, why: None }),
        scan => scan?.with_incarnation_max(state.incarnation_max),
    };
    let mut count = 0_u64;
    let why = loop {
        match scan.next_view() {
            Ok(Some(record)) => {
                count += 1;
                if count.is_multiple_of(RECORDS_BETWEEN) {
                    tell("read log", record.lsn().0 - from.lsn.0, 0)?;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    Ok(Reach { end: Beginning { lsn: scan.end(), incarnation: scan.incarnation() }, why })
}

/// Copies the log's bytes from `at` to `end` into segments of the target, zeros around them, durable but for their
/// names.
fn copy_log(from: &dyn Disk, target: &dyn Disk, segment_bytes: u64, mut at: u64, end: u64) -> Result<(), Error> {
    while at < end {
        let start = at - at % segment_bytes;
        let stop = end.min(start + segment_bytes);
        let path = format!("{LOG_DIR}/{}", segment_name(start));
        let mut bytes = vec![0; (stop - at) as usize];
        from.open(&path, Open::READ)?.read_at(at - start, &mut bytes)?;
        if !target.exists(&path)? {
            target.open(&path, Open::CREATE_NEW)?.write_at(0, &vec![0; segment_bytes as usize])?;
        }
        let file = target.open(&path, Open::EXISTING)?;
        file.write_at(at - start, &bytes)?;
        file.sync()?;
        at = stop;
    }
    Ok(())
}

/// Finds the moment in the target's log, and takes away what is behind it.
fn restore_cut(
    chain: &BackupDisk,
    target: &Arc<dyn Disk>,
    state: &ControlState,
    log_end: Lsn,
    to: RestoreTo,
    left_out: Vec<LeftOut>,
    tell: Tell<'_>,
) -> Result<RestoreReport, Error> {
    let earliest = chain.full_end();
    let disk = Arc::clone(target);
    let mut scan = LogScan::new(disk, state.environment, state.segment_bytes, state.scan_lsn, state.scan_incarnation)?
        .with_incarnation_max(state.incarnation_max);
    scan.set_limit(log_end);
    let mut report = RestoreReport {
        backup: chain.chain()[0].name().to_string(),
        page_count: chain.chain()[0].end.stored_count,
        end_lsn: 0,
        commit_count: 0,
        last_commit_ns: 0,
        left_out: Vec::new(),
    };
    let too_early = || Error::MomentNotInBackup {
        what: format!("it lies before the end of the full backup {}, LSN {earliest}", chain.chain()[0].name()),
    };
    if let RestoreTo::TimeNs(ns) = to
        && ns < chain.chain()[0].header.begun_ns
    {
        return Err(too_early()); // The times of commits before its log are not known.
    }
    let (mut cut, mut count) = (None, 0_u64);
    while cut.is_none()
        && let Some(record) = scan.next_view()?
    {
        count += 1;
        if count.is_multiple_of(RECORDS_BETWEEN) {
            tell("find the moment", record.lsn().0 - state.scan_lsn.0, log_end.0 - state.scan_lsn.0)?;
        }
        let is_commit = record.kind() == RecordKind::Commit;
        let time_ns = record.commit_time_ns().unwrap_or(0);
        let is_behind = match to {
            RestoreTo::End => false,
            RestoreTo::Lsn(lsn) => record.lsn() > lsn,
            RestoreTo::TimeNs(ns) => is_commit && time_ns > ns,
        };
        if is_behind {
            if record.lsn() < earliest {
                return Err(too_early());
            }
            cut = Some(record.lsn());
        } else if is_commit {
            report.last_commit_ns = if time_ns > 0 { time_ns } else { report.last_commit_ns };
            report.commit_count += u64::from(record.lsn() >= earliest);
        }
    }
    let end = cut.unwrap_or(scan.end());
    if end < earliest || matches!(to, RestoreTo::Lsn(lsn) if Lsn(lsn.0.saturating_add(1)) < earliest) {
        return Err(too_early());
    }
    if let (RestoreTo::Lsn(lsn), None) = (to, cut)
        && lsn >= end
    {
        return Err(Error::MomentNotInBackup { what: format!("the log ends at LSN {end}, before LSN {lsn}") });
    }
    report.end_lsn = end.0;
    if cut.is_none() {
        report.left_out = left_out; // Otherwise it lies behind the moment.
    }
    cut_log(&**target, state.segment_bytes, end)?;
    Ok(report)
}

/// Zeros from `end` on, and no segment behind it (R2).
fn cut_log(target: &dyn Disk, segment_bytes: u64, end: Lsn) -> Result<(), Error> {
    let start = end.0 - end.0 % segment_bytes;
    for name in target.list(LOG_DIR)? {
        let path = format!("{LOG_DIR}/{name}");
        if name == segment_name(start) {
            let file = target.open(&path, Open::EXISTING)?;
            let skip = end.0 - start;
            file.write_at(skip, &vec![0; (segment_bytes - skip) as usize])?;
            file.sync()?;
        } else if name > segment_name(start) {
            target.remove(&path)?;
        }
    }
    Ok(())
}
