//! An environment made anew from backups and log: to the end, to a time, or to an LSN.
//!
//! ```text
//!  backup proved ─► data file from its pages ─► log from its log, and from an archive ─► cut at the moment
//!     ─► control file, last: only now the directory is an environment; its first open recovers
//! ```
//! R1. The target is empty before, and without a control file until everything else in it is durable.
//! R2. Nothing of the log behind the moment is in the target, and the incarnation that begins there was never given out to
//!     the life that was left: no record of that life can be read as one of the new (`seal.rs` in the log).
//! R3. No moment before the end of the full backup can be restored: its pages may hold later changes.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_disk::{Disk, FileDisk, Open};
use ledgerstone_log::{ControlFile, ControlState, LOG_DIR, LogScan, RecordKind, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_recovery::backup::{BackupDisk, BackupView, verify};
use ledgerstone_region::sync;
use serde::Serialize;

use crate::{Backup, Error, LogDirectory};

/// The moment to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTo {
    /// The newest commit that there is.
    End,
    /// The commits up to this LSN: those whose record begins at it or before.
    Lsn(Lsn),
    /// The commits up to this time, in nanoseconds since 1970: all before the first that is later. The times are those of
    /// the machine that committed.
    TimeNs(u64),
}

/// What a restore made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// Time of the last of them, in nanoseconds since 1970; 0: none has one.
    pub last_commit_ns: u64,
}

/// Bytes copied at once.
const PIECE_BYTES: u64 = 1 << 20;

impl Backup {
    /// Makes an environment in directory `target`, which must be missing or empty. `logs`: where the log goes on behind the
    /// end of the backup (an archive, the directory of the environment that was lost, or both). Verifies the backup first. The
    /// first open of the new environment recovers, as after a crash at that moment.
    ///
    /// # Errors
    /// [`Error::TargetNotEmpty`], [`Error::MomentNotInBackup`]; [`Error::LogGone`]: `logs` begin behind the end of the backup; what verification finds; the disk's.
    pub fn restore(
        &self,
        target: impl AsRef<Path>,
        to: RestoreTo,
        logs: &[LogDirectory],
    ) -> Result<RestoreReport, Error> {
        self.restore_on(Arc::new(FileDisk::new(target.as_ref())), to, logs)
    }

    /// The same on any [`Disk`], which must be empty.
    ///
    /// # Errors
    /// As [`Backup::restore`].
    pub fn restore_on(
        &self,
        target: Arc<dyn Disk>,
        to: RestoreTo,
        logs: &[LogDirectory],
    ) -> Result<RestoreReport, Error> {
        target.create_dir("")?;
        if !target.list("")?.is_empty() {
            return Err(Error::TargetNotEmpty { path: target.describe() });
        }
        let chain = self.restore_choose(to)?;
        verify(&chain, &mut |_, _| ())?;
        let state = restore_state(&chain, logs)?;
        target.create_dir(LOG_DIR)?;
        target.sync_dir("")?;
        restore_data(&chain, &target)?;
        let log_end = restore_log(&chain, &*target, &state, logs)?;
        let report = restore_cut(&chain, &target, &state, log_end, to)?;
        target.sync_dir(LOG_DIR)?;
        target.sync_dir("")?;
        ControlFile::create(&*target, state)?;
        Ok(report)
    }

    /// The newest chain whose full backup ended before the moment.
    fn restore_choose(&self, to: RestoreTo) -> Result<Arc<BackupDisk>, Error> {
        let chains = self.chains()?;
        let is_before = |chain: &&Arc<BackupDisk>| match to {
            RestoreTo::End => true,
            RestoreTo::Lsn(lsn) => chain.full_end() <= Lsn(lsn.0.saturating_add(1)),
            RestoreTo::TimeNs(ns) => chain.chain()[0].end.ended_ns <= ns,
        };
        let oldest = chains.first().cloned().ok_or(Error::NotABackup { path: String::new() })?;
        // A time before all of them may still lie behind the last commit of the oldest: the log will say.
        Ok(chains.iter().rev().find(is_before).cloned().unwrap_or(oldest))
    }
}

/// The control file of the new environment (R2).
fn restore_state(chain: &BackupDisk, logs: &[LogDirectory]) -> Result<ControlState, Error> {
    // How often the life that is left could be opened again before its incarnations meet ours, and a little chance on top,
    // for two restores from one backup.
    let distance = 64 + sync::random_u64() % 192;
    let mut state = chain.state();
    let mut incarnation_max = state.incarnation_max;
    for log in logs {
        if log.files().environment != state.environment {
            let what = format!("{} is the log of another environment", log.files().disk.describe());
            return Err(Error::Corrupt { what });
        }
        incarnation_max = incarnation_max.max(log.files().incarnation_max);
    }
    state.incarnation_max = incarnation_max + distance;
    state.life = sync::random_u64();
    Ok(state)
}

fn restore_data(chain: &Arc<BackupDisk>, target: &Arc<dyn Disk>) -> Result<(), Error> {
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
    }
    Ok(to.sync()?)
}

/// Copies the log of the backup, and behind its end that of `more`. Returns where that may end.
fn restore_log(
    chain: &Arc<BackupDisk>,
    target: &dyn Disk,
    state: &ControlState,
    more: &[LogDirectory],
) -> Result<Lsn, Error> {
    let view = BackupView(Arc::clone(chain));
    let segment_bytes = state.segment_bytes;
    let end = chain.log_end().0;
    if !more.is_empty() {
        let mut oldest = Lsn(u64::MAX);
        for log in more {
            oldest = oldest.min(log.reader(Lsn(u64::MAX))?.oldest()?);
        }
        if oldest.0 > end {
            return Err(Error::LogGone { lsn: Lsn(end), oldest });
        }
    }
    let mut start = state.scan_lsn.0 - state.scan_lsn.0 % segment_bytes;
    loop {
        let path = format!("{LOG_DIR}/{}", segment_name(start));
        let mut bytes = vec![0; segment_bytes as usize];
        let mut is_there = start < end;
        if is_there {
            view.open(&path, Open::READ)?.read_at(0, &mut bytes)?;
        }
        if start + segment_bytes > end {
            // The longest copy: the newest segment of an archive may end early.
            let mut longest = end.saturating_sub(start) as usize;
            for log in more {
                if !log.files().disk.exists(&path)? {
                    continue;
                }
                is_there = true;
                let file = log.files().disk.open(&path, Open::READ)?;
                let there = file.len()?.min(segment_bytes) as usize;
                if there > longest {
                    let mut piece = vec![0; there];
                    file.read_at(0, &mut piece)?;
                    bytes[longest..there].copy_from_slice(&piece[longest..]);
                    longest = there;
                }
            }
        }
        if !is_there {
            break;
        }
        let file = target.open(&path, Open::CREATE_NEW)?;
        file.write_at(0, &bytes)?;
        file.sync()?;
        start += segment_bytes;
    }
    Ok(if more.is_empty() { chain.log_end() } else { Lsn(u64::MAX) })
}

/// Finds the moment in the target's log, and takes away what is behind it.
fn restore_cut(
    chain: &BackupDisk,
    target: &Arc<dyn Disk>,
    state: &ControlState,
    log_end: Lsn,
    to: RestoreTo,
) -> Result<RestoreReport, Error> {
    let earliest = chain.full_end();
    let disk = Arc::clone(target);
    let mut scan = LogScan::new(disk, state.environment, state.segment_bytes, state.scan_lsn, state.scan_incarnation)?
        .with_incarnation_max(state.incarnation_max);
    if log_end.0 != u64::MAX {
        scan.set_limit(log_end);
    }
    let mut report = RestoreReport {
        backup: chain.chain()[0].name().to_string(),
        page_count: chain.chain()[0].end.stored_count,
        end_lsn: 0,
        commit_count: 0,
        last_commit_ns: 0,
    };
    let too_early = || Error::MomentNotInBackup {
        what: format!("it lies before the end of the full backup {}, LSN {earliest}", chain.chain()[0].name()),
    };
    if let RestoreTo::TimeNs(ns) = to
        && ns < chain.chain()[0].header.begun_ns
    {
        return Err(too_early()); // The times of commits before its log are not known.
    }
    let mut cut = None;
    while cut.is_none()
        && let Some(record) = scan.next_view()?
    {
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
