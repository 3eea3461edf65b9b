//! Scale: one environment far larger than its cache, taken through everything that is done to an environment. What is
//! quadratic, or takes memory by the record, shows here and nowhere smaller.
//!
//! Each step is a process of its own, so that its memory at its highest is its own. One of them is killed in the middle
//! of a transaction, and the step behind it opens what it left.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ledgerstone::{Backup, BackupOptions, Durability, Environment, IndexDef, IndexKeys, RestoreTo};
use ledgerstone_dump::{Dump, DumpOptions};
use serde::{Deserialize, Serialize};

use crate::machine::memory_bytes;
use crate::made;
use crate::rollback::{self, change};
use crate::{Machine, Place, Report, Workdir};

const RECORDS: &str = "records";
const LARGE: &str = "large";

/// `bench scale`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScaleArgs {
    /// Number of records in the large table. Each has about 500 bytes.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    pub records: u64,
    /// Number of changes in the transaction that is rolled back, and in the one that is killed.
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub changes: u64,
    /// Make this many tables in one transaction, and as many one by one.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub tables: u64,
    /// Length of the large value.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = crate::parse_bytes)]
    pub value: u64,
    /// Be the process that does one step (`bench scale` starts itself so).
    #[arg(long, hide = true, value_enum)]
    pub step: Option<Step>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// What is done to the environment, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// The large table is loaded.
    Load,
    /// An index over it is made.
    Index,
    /// Everything is verified.
    Verify,
    /// A full backup is taken.
    Backup,
    /// The backup is restored beside it, opened and counted.
    Restore,
    /// Everything is dumped as text.
    Dump,
    /// Three quarters of the large table go at once.
    DeleteRange,
    /// The space is given back to the file system.
    Compact,
    /// The large value is written, replaced in part, and read.
    LargeValue,
    /// A transaction with many changes is rolled back.
    Rollback,
    /// A transaction with many changes is killed.
    Kill,
    /// The environment is opened after that.
    Open,
    /// Tables are made in one transaction.
    TablesInOne,
    /// Tables are made one by one.
    TablesSingly,
    /// Everything is verified with all the tables.
    VerifyTables,
    /// The tables are dropped in one transaction.
    DropTables,
}

/// What a step says to the process that started it, as a line of JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Said {
    figures: Vec<(String, f64)>,
    peak_bytes: u64,
}

/// Does one step after the other, or is the process of one.
///
/// # Errors
/// A step's, with its name.
pub fn run(args: &ScaleArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    use clap::ValueEnum;
    let dir = Workdir::new(&args.place)?;
    let cache_bytes = args.place.cache.unwrap_or(64 << 20);
    let mut report = Report::new("scale", Machine::here(dir.path()));
    if let Some(step) = args.step {
        let mut said = Said::default();
        do_step(step, args, dir.path(), cache_bytes, &mut said)?;
        said.peak_bytes = memory_bytes("VmHWM");
        println!("{}", serde_json::to_string(&said)?);
        return Ok(report);
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    report.add("cache limit (MiB)", mib(cache_bytes));
    let mut highest = 0;
    let steps = Step::value_variants();
    for (done, step) in steps.iter().enumerate() {
        let named = step.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        progress(&named, done as u64, steps.len() as u64);
        let began = Instant::now();
        let said =
            in_a_process(args, *step, &named, dir.path(), cache_bytes).with_context(|| format!("step {named}"))?;
        let seconds = began.elapsed().as_secs_f64();
        report.add(format!("{named} (s)"), seconds);
        let over = said.peak_bytes.saturating_sub(cache_bytes);
        highest = highest.max(over);
        report.add(format!("  {named}: resident above the cache limit (MiB)"), mib(over));
        for (name, value) in said.figures {
            report.add(format!("  {named}: {name}"), value);
        }
        let (data, log) = bytes_on_disk(&dir.path().join("environment"))?;
        report.add(format!("  {named}: data file afterwards (MiB)"), mib(data));
        report.add(format!("  {named}: log afterwards (MiB)"), mib(log));
    }
    report.add("resident above the cache limit, at its highest (MiB)", mib(highest));
    Ok(report)
}

/// Lengths of the data file and of all files of the log together.
fn bytes_on_disk(environment: &Path) -> anyhow::Result<(u64, u64)> {
    let mut log = 0;
    for file in std::fs::read_dir(environment.join("log"))? {
        log += file?.metadata()?.len();
    }
    Ok((std::fs::metadata(environment.join("data"))?.len(), log))
}

/// Starts the process of a step and waits for its line. The step that is to be killed is killed when it has said it.
fn in_a_process(args: &ScaleArgs, step: Step, named: &str, dir: &Path, cache_bytes: u64) -> anyhow::Result<Said> {
    let mut child = Command::new(std::env::current_exe().context("cannot find the program itself")?)
        .args(["bench", "scale", "--step", named, "--keep"])
        .arg(dir)
        .args(["--records", &args.records.to_string(), "--changes", &args.changes.to_string()])
        .args(["--tables", &args.tables.to_string(), "--value", &args.value.to_string()])
        .arg(format!("--cache={cache_bytes}"))
        .stdout(Stdio::piped())
        .spawn()?;
    let note = made::process(&child);
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if step == Step::Kill {
        child.kill()?; // SIGKILL.
    }
    drop(note);
    let status = child.wait()?;
    ensure!(step == Step::Kill || status.success(), "its process ended with {status}");
    serde_json::from_str(&line).context("its process ended without a word")
}

fn do_step(step: Step, args: &ScaleArgs, dir: &Path, cache_bytes: u64, said: &mut Said) -> anyhow::Result<()> {
    let backups = dir.join("backups");
    let mut at = dir.join("environment");
    let mut say = |name: &str, value: f64| said.figures.push((name.to_owned(), value));
    if step == Step::Restore {
        let began = Instant::now();
        at = dir.join("restored");
        Backup::open(&backups)?.restore(&at, RestoreTo::End, &[])?;
        say("restored (s)", began.elapsed().as_secs_f64());
    }
    let began = Instant::now();
    let mut options = Environment::options().cache_bytes(cache_bytes).lock_timeout(Duration::from_mins(10));
    if matches!(step, Step::VerifyTables | Step::DropTables) {
        // Each table is locked, until the end.
        options = options.lock_count_max(2 * args.tables as u32 + (64 << 10));
    }
    let env = options.open(&at)?;
    let opened = began.elapsed().as_secs_f64();
    say("open (s)", opened);
    match step {
        Step::Load => {
            env.transact(|txn| {
                let mut table = txn.bytes_or_create(RECORDS)?;
                table.load_sorted((0..args.records).map(|n| (n.to_be_bytes(), record(n)))).map(drop)
            })?;
            rollback::fill(&env, args.changes)?;
            say("data file (MiB)", env.stat()?.page_count as f64 * env.effective().page_bytes as f64 / 1048576.0);
        }
        Step::Index => env.transact(|txn| {
            txn.create_index(RECORDS, &IndexDef::new("by_hash", IndexKeys::Bytes { from: 0, to: Some(16) }))
        })?,
        Step::Verify | Step::VerifyTables => {
            let found = env.verify()?;
            ensure!(found.problems.is_empty(), "{} problems, the first: {:?}", found.problems.len(), found.problems[0]);
        }
        Step::Backup => {
            let taken = env.backup(&backups, BackupOptions::default())?;
            say("pages", taken.page_count as f64);
        }
        Step::Restore => {
            let count = env.transact(|txn| txn.bytes(RECORDS)?.count())?;
            ensure!(count == args.records, "{count} records came back of {}", args.records);
        }
        Step::Dump => {
            let mut sink = Counted(0);
            env.dump(&mut sink, &DumpOptions::default())?;
            say("text (MiB)", sink.0 as f64 / 1048576.0);
        }
        Step::DeleteRange => {
            let from = (args.records / 4).to_be_bytes();
            let count = env.transact(|txn| txn.bytes(RECORDS)?.delete_range(&from[..]..))?;
            ensure!(count == args.records - args.records / 4, "{count} records were deleted");
            say("deleted and committed (s)", began.elapsed().as_secs_f64() - opened);
            env.reclaim()?;
        }
        Step::Compact => {
            let report = env.compact()?;
            say("pages before", report.page_count_before as f64);
            say("pages afterwards", report.page_count_after as f64);
        }
        Step::LargeValue => large_value(&env, args.value, &mut say)?,
        Step::Rollback => {
            let txn = env.begin()?;
            change(&txn, args.changes)?;
            let forward = began.elapsed().as_secs_f64() - opened;
            let began = Instant::now();
            txn.abort()?;
            let back = began.elapsed().as_secs_f64();
            say("changes made (s)", forward);
            say("changes rolled back (s)", back);
            say("of the time of the changes (times)", back / forward);
            rollback::ensure_untouched(&env, args.changes)?;
        }
        Step::Kill => {
            let txn = env.begin()?;
            change(&txn, args.changes)?;
            let mark = env.begin()?;
            mark.bytes_or_create("mark")?.put(b"durable", b"up to here")?;
            let _ = mark.commit_with(Durability::Sync)?;
            said.peak_bytes = memory_bytes("VmHWM");
            println!("{}", serde_json::to_string(said)?);
            loop {
                std::thread::park();
            }
        }
        Step::Open => {
            let recovery = env.recovery_report();
            say("page updates repeated", recovery.redo_applied_count as f64);
            say("updates undone", recovery.undone_count as f64);
            say("redo (s)", recovery.redo_ns as f64 / 1e9);
            say("undo (s)", recovery.undo_ns as f64 / 1e9);
            rollback::ensure_untouched(&env, args.changes)?;
        }
        Step::TablesInOne => env.transact(|txn| {
            (0..args.tables).try_for_each(|n| txn.create_table(&format!("one {n}"))?.put(b"k", b"v"))
        })?,
        Step::TablesSingly => {
            let write = |n| env.transact(|txn| txn.create_table(&format!("single {n}"))?.put(b"k", b"v"));
            (0..args.tables).try_for_each(write)?;
        }
        Step::DropTables => env.transact(|txn| {
            (0..args.tables).try_for_each(|n| {
                txn.drop_table(&format!("one {n}"))?;
                txn.drop_table(&format!("single {n}"))
            })
        })?,
    }
    let began = Instant::now();
    env.close()?;
    said.figures.push(("close (s)".to_owned(), began.elapsed().as_secs_f64()));
    if step == Step::Restore {
        std::fs::remove_dir_all(&at)?;
        std::fs::remove_dir_all(&backups)?;
    }
    Ok(())
}

/// 16 bytes that spread, then filling.
fn record(n: u64) -> Vec<u8> {
    let mut value = vec![b'.'; 480];
    value[..16].copy_from_slice(&u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes());
    value
}

fn large_value(env: &Environment, bytes: u64, say: &mut dyn FnMut(&str, f64)) -> anyhow::Result<()> {
    let piece = vec![b'x'; 1 << 20];
    let began = Instant::now();
    env.try_transact(|txn| -> Result<(), anyhow::Error> {
        let mut to = txn.bytes_or_create(LARGE)?.value_writer(b"film")?;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(piece.len() as u64);
            to.write_all(&piece[..now as usize])?;
            left -= now;
        }
        Ok(())
    })?;
    say("written (s)", began.elapsed().as_secs_f64());
    // A snapshot from before the value is replaced reads it as it was.
    let old = env.snapshot()?;
    env.transact(|txn| txn.bytes(LARGE)?.put(b"film", b"short"))?;
    for (txn, what, expected) in [(old, "read at an older snapshot (s)", bytes), (env.begin()?, "read now (s)", 5)] {
        let began = Instant::now();
        let mut from = txn.bytes(LARGE)?.value_reader(b"film")?.context("the value is gone")?;
        let (mut buffer, mut count) = (vec![0; 1 << 20], 0);
        loop {
            match from.read(&mut buffer)? {
                0 => break,
                n => count += n as u64,
            }
        }
        ensure!(count == expected, "{count} bytes of {expected}");
        say(what, began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Counts what is written to it.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
