//! Opening after a kill in the middle of a large transaction. A process changes many records in one transaction, all
//! over a table that is larger than the cache, and is killed before the commit. The experiment measures the next open,
//! and proves that nothing of the transaction is left.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use ledgerstone::{Durability, Environment};

use crate::machine::{memory_bytes, moved_bytes};
use crate::made;
use crate::rollback::{change, ensure_untouched, fill};
use crate::{Machine, PHASES, Place, Recovery, Report, Workdir};

/// What the child says when its log is durable and it may be killed.
const READY: &str = "ready to be killed";

/// `bench loser`.
#[derive(Clone, Debug, clap::Args)]
pub struct LoserArgs {
    /// Number of records in the table. The transaction changes each of them once.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub changes: u64,
    /// Be the process that is killed (`bench loser` starts itself so).
    #[arg(long, hide = true)]
    pub victim: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures, or is the victim.
///
/// # Errors
/// The environment's; a child that does not get ready.
pub fn run(args: &LoserArgs) -> anyhow::Result<Report> {
    if args.victim {
        return be_killed(args);
    }
    let dir = Workdir::new(&args.place)?;
    let mut child = Command::new(std::env::current_exe().context("cannot find the program itself")?)
        .args(["bench", "loser", "--victim", "--keep"])
        .arg(dir.path())
        .args(["--changes", &args.changes.to_string()])
        .args(args.place.cache.map(|bytes| format!("--cache={bytes}")))
        .stdout(Stdio::piped())
        .spawn()?;
    let note = made::process(&child);
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    child.kill()?; // SIGKILL.
    drop(note);
    child.wait()?;
    let numbers = said.trim().strip_prefix(READY).context("the process that was to be killed ended by itself")?;
    let numbers: Vec<f64> = numbers.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>()?;

    let mut report = Report::new("loser", Machine::here(dir.path()));
    for (name, value) in ["log of the changes (bytes)", "changes made (ms)"].iter().zip(numbers) {
        report.add(*name, value);
    }
    let before = moved_bytes();
    let began = Instant::now();
    let env = options(args).open(dir.path())?;
    report.add("open, all of it (ms)", began.elapsed().as_secs_f64() * 1e3);
    let after = moved_bytes();
    let found = env.recovery_report();
    let stat = env.stat()?;
    report.add("log records", found.record_count as f64);
    report.add("updates repeated", found.redo_applied_count as f64);
    report.add("updates found repeated", found.redo_skipped_count as f64);
    report.add("records visited by undo", found.undone_count as f64);
    for (name, ms) in PHASES.iter().zip(Recovery::from(found).phases_ms) {
        report.add(format!("{name} (ms)"), ms);
    }
    report.add("pages read", stat.page_read_count as f64);
    report.add("pages written", stat.page_write_count as f64);
    report.add("read from the device (bytes)", (after.0 - before.0) as f64);
    report.add("written to the device (bytes)", (after.1 - before.1) as f64);
    let over = memory_bytes("VmHWM").saturating_sub(cache_bytes(args));
    report.add("resident above the cache (MiB)", over as f64 / f64::from(1 << 20));
    ensure_untouched(&env, args.changes)?;
    env.close()?;
    Ok(report)
}

fn cache_bytes(args: &LoserArgs) -> u64 {
    args.place.cache.unwrap_or(64 << 20)
}

fn options(args: &LoserArgs) -> ledgerstone::Options {
    let options = Environment::options().cache_bytes(cache_bytes(args)).lock_count_max(1 << 20);
    // All of the undo belongs to the opening that is measured.
    options.durability(Durability::Volatile).restart_undo_bytes(u64::MAX)
}

/// Makes the changes, makes their log durable with another transaction's commit, says so, and waits for its end.
fn be_killed(args: &LoserArgs) -> anyhow::Result<Report> {
    // In memory, since it is not the changes that are measured.
    let env = options(args).cache_bytes(1 << 30).open(args.place.keep.as_deref().context("--victim needs --keep")?)?;
    fill(&env, args.changes)?;
    env.checkpoint()?;
    let txn = env.begin()?;
    let log_from = env.stat()?.log_tail_lsn;
    let began = Instant::now();
    change(&txn, args.changes)?;
    let (ms, bytes) = (began.elapsed().as_secs_f64() * 1e3, env.stat()?.log_tail_lsn - log_from);
    let other = env.begin()?;
    other.bytes_or_create("mark")?.put(b"durable", b"up to here")?;
    let _ = other.commit_with(Durability::Sync)?;
    println!("{READY} {bytes} {ms}");
    loop {
        std::thread::park();
    }
}
