//! What outlives a disk: backup, restore, repair, archive.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ledgerstone::{
    ArchiveDirectory, Backup, BackupInfo, BackupOptions, BackupProgress, BackupReport, Environment, Error,
    LogDirectory, Lsn, PageId, RepairPages, RestoreTo,
};
use ledgerstone_bench as bench;
use serde_json::{Value, json};

use crate::interrupt;
use crate::opening::{DirArgs, open, open_with};
use crate::outcome::Outcome;
use crate::output::{Output, bytes_readable, counted};
use crate::progress::{Progress, Unit, Watched};
use crate::target::Target;
use crate::time::{parse_time, time_text};

/// `backup`
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BackupArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub what: Option<BackupCommand>,
    /// Directory of the environment.
    #[arg(required = true)]
    pub dir: Option<PathBuf>,
    /// Directory of backups, which is made if it is missing. With --file, the file. `-` writes one stream to standard
    /// output.
    #[arg(required = true)]
    pub target: Option<String>,
    /// Copy only the log since the newest backup in the directory.
    #[arg(long)]
    pub incremental: bool,
    /// The target is one file.
    #[arg(long, conflicts_with = "incremental")]
    pub file: bool,
    /// Copy at most this many bytes a second.
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_bytes)]
    pub rate: Option<u64>,
}

/// What to do with backups that are there.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BackupCommand {
    /// Check each page and each record of the log, and that nothing is missing.
    Verify(BackupPlace),
    /// List the backups in a directory.
    List(BackupPlace),
}

/// Where backups are.
#[derive(Clone, Debug, clap::Args)]
pub struct BackupPlace {
    /// Directory of backups, or one file.
    pub backup: PathBuf,
}

/// `restore`
#[derive(Clone, Debug, clap::Args)]
pub struct RestoreArgs {
    /// Directory of backups, or one file. `-` reads a backup from standard input, and keeps it beside the new directory
    /// meanwhile.
    pub backup: PathBuf,
    /// Directory of the new environment. It must be missing or empty.
    pub dir: PathBuf,
    /// Restore only the commits up to this LSN.
    #[arg(long, value_name = "LSN", conflicts_with = "to_time")]
    pub to_lsn: Option<u64>,
    /// Restore only the commits up to this time: 2026-11-21T12:00:00Z, or seconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to_time: Option<u64>,
    /// Take later log from here: an archive, or the directory of the lost environment. You can give several.
    #[arg(long, value_name = "DIR")]
    pub log: Vec<PathBuf>,
}

/// `repair`
#[derive(Clone, Debug, clap::Args)]
pub struct RepairArgs {
    /// Directory of the environment. No program may have it open.
    pub dir: PathBuf,
    /// Directory of backups, or one file.
    #[arg(long, value_name = "BACKUP")]
    pub from: PathBuf,
    /// Repair only this page, if it is damaged. You can give several.
    #[arg(long, value_name = "NUMBER", conflicts_with = "all")]
    pub page: Vec<u64>,
    /// Repair all damaged pages. This is the default.
    #[arg(long)]
    pub all: bool,
    /// An archive with the log that the environment no longer has.
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
}

/// `archive`
#[derive(Clone, Debug, clap::Args)]
pub struct ArchiveArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// The archive. Without this, the settings name it.
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
    /// Copy the log up to its end first.
    #[arg(long)]
    pub now: bool,
    /// Compare the contents with their checksums. Exit code 1: something is wrong.
    #[arg(long)]
    pub verify: bool,
    /// Remove what a restore from the newest full backup in BACKUP does not need.
    #[arg(long, value_name = "BACKUP")]
    pub remove_before: Option<PathBuf>,
}

pub(crate) fn backup(args: &BackupArgs, output: &Output) -> anyhow::Result<Outcome> {
    match (&args.what, &args.dir, &args.target) {
        (Some(BackupCommand::Verify(place)), ..) => backup_verify(place, output),
        (Some(BackupCommand::List(place)), ..) => {
            let set = open_backup(&place.backup)?;
            set.files().iter().try_for_each(|info| show(info, output))?;
            for left in set.left_out() {
                output.note(format_args!("{}: not used by a restore: {}", left.what, left.why));
            }
            output.flush()?;
            Ok(Outcome::Done)
        }
        (None, Some(dir), Some(target)) => backup_take(args, dir, target, output),
        _ => Ok(Outcome::Not), // clap asks for both.
    }
}

/// A path that does not exist is told as that.
fn check_is_there(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(path.exists(), "{}: no such file or directory", path.display());
    Ok(())
}

fn open_backup(path: &Path) -> anyhow::Result<Backup> {
    check_is_there(path)?;
    Ok(Backup::open(path)?)
}

fn open_log(dir: &Path) -> anyhow::Result<LogDirectory> {
    check_is_there(dir)?;
    LogDirectory::open(dir).with_context(|| format!("cannot read the log in {}", dir.display()))
}

fn backup_take(args: &BackupArgs, dir: &Path, target: &str, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&DirArgs { dir: dir.to_path_buf(), cache: None }, output)?;
    if target != "-" {
        env.check_is_outside(target)?;
    }
    let options = BackupOptions::default().incremental(args.incremental).bytes_per_second(args.rate.unwrap_or(0));
    let mut bar = Progress::new(output);
    let mut done = (0, 0);
    let _heeding = interrupt::heed();
    let mut progress = |at: BackupProgress| {
        done = (at.done_bytes, at.total_bytes);
        bar.show("backup", at.done_bytes, at.total_bytes, Unit::Bytes);
        interrupt::flow()
    };
    let how_far = |(done, all): (u64, u64)| {
        format!("after {} of {}: nothing of this backup was kept", bytes_readable(done), bytes_readable(all))
    };
    let is_file = Path::new(target).is_file();
    anyhow::ensure!(
        args.file || !is_file,
        "{target} is a file: name a directory, or say --file to back up into one file"
    );
    if target == "-" || args.file {
        let mut to =
            Target::open_new(target, false, "a backup does not replace a file: name another, or remove it", output)?;
        let written = env.backup_to(to.writer(), options, &mut progress);
        let bytes = written.map_err(|error| interrupt::told(error, || how_far(done)))?;
        to.finish()?;
        if output.is_json && target != "-" {
            output.json(&json!({ "file": target, "payload_bytes": bytes }))?;
        }
    } else {
        let info = env.backup_with(target, options, &mut progress);
        show(&info.map_err(|error| interrupt::told(error, || how_far(done)))?, output)?;
    }
    env.close()?;
    output.flush()?;
    Ok(Outcome::Done)
}

fn show(info: &BackupInfo, output: &Output) -> std::io::Result<()> {
    if output.is_json {
        return output.json(info);
    }
    let kind = if info.is_full { "full" } else { "log" };
    output.line(format_args!(
        "{}: {kind}, {}, log {} to {}, {}, complete at {}",
        info.file,
        counted(info.page_count, "page"),
        info.log_from_lsn,
        info.log_end_lsn,
        bytes_readable(info.payload_bytes),
        time_text(info.ended_ns)
    ))
}

fn backup_verify(place: &BackupPlace, output: &Output) -> anyhow::Result<Outcome> {
    let mut bar = Progress::new(output);
    let (mut done, mut all) = (0, 0);
    let _heeding = interrupt::heed();
    check_is_there(&place.backup)?;
    let found = Backup::open(&place.backup).and_then(|backup| {
        backup.verify_with(|at| {
            (done, all) = (at.done_bytes, at.total_bytes);
            bar.show("verify", done, all, Unit::Bytes);
            interrupt::flow()
        })
    });
    drop(bar);
    let report = match found {
        Ok(report) => report,
        Err(error @ (Error::Corrupt { .. } | Error::NotABackup { .. })) => {
            if output.is_json {
                let mut told = serde_json::to_value(BackupReport::default())?;
                told["problem"] = error.to_string().into();
                output.json(&told)?;
            } else {
                output.line(error)?;
            }
            output.flush()?;
            return Ok(Outcome::Not);
        }
        Err(error) => {
            let how_far =
                || format!("after {} of {}: no problem found so far", bytes_readable(done), bytes_readable(all));
            return Err(interrupt::told(error, how_far));
        }
    };
    if output.is_json {
        let mut told = serde_json::to_value(report)?;
        told["problem"] = Value::Null;
        output.json(&told)?;
    } else {
        output.line(format_args!(
            "{}, {}, {} of the log, {}: no problems found",
            counted(report.chain_count, "chain"),
            counted(report.page_count, "page"),
            counted(report.record_count, "record"),
            counted(report.commit_count, "commit")
        ))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn restore(args: &RestoreArgs, output: &Output) -> anyhow::Result<Outcome> {
    let to = match (args.to_lsn, args.to_time) {
        (Some(lsn), _) => RestoreTo::Lsn(Lsn(lsn)),
        (_, Some(ns)) => RestoreTo::TimeNs(ns),
        _ => RestoreTo::End,
    };
    let logs = args.log.iter().map(|dir| open_log(dir)).collect::<Result<Vec<_>, _>>()?;
    let backup = if args.backup.as_os_str() == "-" {
        let beside = std::path::absolute(&args.dir).with_context(|| format!("{}", args.dir.display()))?;
        let beside = beside.parent().map_or(PathBuf::from("/"), Path::to_path_buf);
        Backup::open_stream(&mut std::io::stdin().lock(), beside)?
    } else {
        open_backup(&args.backup)?
    };
    let mut progress = Watched::new(output);
    let report = backup.restore_with(&args.dir, to, &logs, |at| progress.show(at));
    let leaves = || format!("nothing was restored, and {} is as empty as before", args.dir.display());
    let report = report.map_err(|error| progress.told(error, &leaves()))?;
    drop((progress, backup));
    // The first open recovers: done here, so that what is said to be restored can be used.
    let env = open(&DirArgs { dir: args.dir.clone(), cache: None }, output)?;
    let undone = env.recovery_report().loser_count;
    env.close()?;
    if output.is_json {
        output.json(&json!({ "restored": report, "open_transactions_undone": undone }))?;
    } else {
        output.line(format_args!(
            "{} pages of {}, log to LSN {}, last commit {}; {undone} open transactions were undone",
            report.page_count,
            report.backup,
            report.end_lsn,
            if report.last_commit_ns == 0 { "unknown".into() } else { time_text(report.last_commit_ns) }
        ))?;
    }
    output.flush()?;
    for left in &report.left_out {
        output.note(format_args!("not restored, there may be commits in it: {}: {}", left.what, left.why));
    }
    Ok(if report.left_out.is_empty() { Outcome::Done } else { Outcome::Not })
}

pub(crate) fn repair(args: &RepairArgs, output: &Output) -> anyhow::Result<Outcome> {
    let pages = match args.page.is_empty() {
        true => RepairPages::AllDamaged,
        false => RepairPages::Only(args.page.iter().map(|page| PageId(*page)).collect()),
    };
    let backup = open_backup(&args.from)?;
    check_is_there(&args.dir)?;
    let mut progress = Watched::new(output);
    let leaves = "nothing was repaired or changed";
    let checked = backup.verify_with(|at| progress.show(at));
    checked.map_err(|error| progress.told(error, leaves))?;
    let log = args.log.as_deref().map(open_log).transpose()?;
    let report = backup.repair_with(&args.dir, &pages, log.as_ref(), |at| progress.show(at));
    let report = report.map_err(|error| progress.told(error, leaves))?;
    drop(progress);
    if output.is_json {
        output.json(&report)?;
    } else {
        for page in &report.sound {
            output.note(format_args!("page {page} is not damaged"));
        }
        let pages: Vec<String> = report.repaired.iter().map(u64::to_string).collect();
        match pages.len() {
            0 => output.line("no damaged pages")?,
            count => output.line(format_args!(
                "{} repaired with {} of the log: {}",
                counted(count as u64, "page"),
                counted(report.applied_count, "record"),
                pages.join(", ")
            ))?,
        }
    }
    output.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn archive(args: &ArchiveArgs, output: &Output) -> anyhow::Result<Outcome> {
    let place = match &args.archive {
        Some(place) => place.clone(),
        None => {
            let named = Environment::options().settings_in(&args.at.dir)?.archive_dir;
            anyhow::ensure!(!named.is_empty(), Error::NoArchive);
            args.at.dir.join(named)
        }
    };
    if args.now {
        // Seen from the environment's directory.
        let absolute = std::path::absolute(&place).with_context(|| format!("{}", place.display()))?;
        let env = open_with(Environment::options().create(false).archive_dir(absolute), &args.at.dir, output)?;
        env.archive_now()?;
        env.close()?;
    }
    check_is_there(&place)?;
    let directory = ArchiveDirectory::open(&place)?;
    if let Some(backup) = &args.remove_before {
        let needed = open_backup(backup)?.needs_log_from().unwrap_or(Lsn(0));
        let count = directory.remove_before(needed)?;
        output.note(format_args!("{count} segments before LSN {needed} removed"));
    }
    let segments = if args.verify {
        let mut progress = Watched::new(output);
        let verified = directory.verify_with(|at| progress.show(at));
        verified.map_err(|error| progress.told(error, "no segment is listed"))?
    } else {
        directory.segments()?
    };
    let is_good = segments.iter().all(|segment| segment.problem.is_none());
    for segment in &segments {
        if output.is_json {
            output.json(segment)?;
        } else {
            let problem = segment.problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
            output.line(format_args!("{} LSN {} to {}{problem}", segment.file, segment.start_lsn, segment.end_lsn))?;
        }
    }
    output.flush()?;
    Ok(if is_good { Outcome::Done } else { Outcome::Not })
}
