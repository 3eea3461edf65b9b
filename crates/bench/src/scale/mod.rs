//! Scale: one environment far larger than its cache, taken through everything that is done to an environment. What is
//! quadratic, or takes memory by the record, shows here and nowhere smaller.
//!
//! Each step is a process of its own, so that its memory at its highest is its own. Most are also killed in the middle
//! of their work, before they are done in whole, and the process behind each of those opens what it left.

mod steps;
mod told;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::process::Signal;

use crate::made;
use crate::{Machine, Place, Report, Workdir};
use told::{Said, Told};

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
    /// Kill it when so many hundredths of the step's work are done.
    #[arg(long, hide = true, requires = "step", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub die_at: Option<u64>,
    /// The step that was killed before it.
    #[arg(long, hide = true, requires = "step", value_enum)]
    pub after: Option<Step>,
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
    /// Three quarters of the large table go at once, in a transaction that is killed.
    DeleteRange,
    /// They go, and their pages are freed, which is killed.
    FreeRange,
    /// The space is given back to the file system.
    Compact,
    /// The large value is written, replaced in part, and read.
    LargeValue,
    /// A transaction with many changes is rolled back.
    Rollback,
    /// A transaction with many changes is killed.
    Kill,
    /// The environment is opened after a kill, and looked at.
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

impl Step {
    /// In how many hundredths of its work a step is killed, each time in a process of its own.
    fn killed_at(self) -> &'static [u64] {
        match self {
            Step::Load | Step::Index | Step::DeleteRange | Step::Compact => &[50, 90],
            Step::LargeValue | Step::TablesInOne | Step::DropTables => &[50, 90],
            Step::Restore => &[50],
            Step::FreeRange => &[90],
            Step::Kill => &[100],
            Step::Verify | Step::Backup | Step::Dump | Step::Rollback | Step::Open => &[],
            Step::TablesSingly | Step::VerifyTables => &[],
        }
    }

    /// Whether it is done in whole, too, after it was killed.
    fn is_completed(self) -> bool {
        !matches!(self, Step::DeleteRange | Step::FreeRange | Step::Kill | Step::Open)
    }
}

/// A process: what it does, where it is killed, and what was killed before it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    step: Step,
    die_at: Option<u64>,
    after: Option<Step>,
}

impl Turn {
    /// All of them, in order.
    fn all() -> Vec<Turn> {
        use clap::ValueEnum;
        let mut turns = Vec::new();
        for &step in Step::value_variants() {
            for &die_at in step.killed_at() {
                turns.push(Turn { step, die_at: Some(die_at), after: None });
                let open = Turn { step: Step::Open, die_at: None, after: Some(step) };
                if step == Step::Kill {
                    // An opening can be killed, too.
                    turns.push(Turn { die_at: Some(50), ..open });
                }
                turns.push(open);
            }
            if step.is_completed() {
                turns.push(Turn { step, die_at: None, after: None });
            }
        }
        turns
    }

    /// For people.
    fn name(self) -> String {
        let after = self.after.map_or_else(String::new, |after| format!(" after {}", name_of(after)));
        let killed = self.die_at.map_or_else(String::new, |at| format!(", killed at {at} %"));
        format!("{}{after}{killed}", name_of(self.step))
    }
}

/// As it is typed.
fn name_of(step: Step) -> String {
    use clap::ValueEnum;
    step.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Does one step after the other, or is the process of one.
///
/// # Errors
/// A step's, with its name.
pub fn run(args: &ScaleArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let cache_bytes = args.place.cache.unwrap_or(64 << 20);
    let mut report = Report::new("scale", Machine::here(dir.path()));
    if let Some(step) = args.step {
        let told = Told::new(args.die_at);
        steps::take(step, args, dir.path(), cache_bytes, &told)?;
        told.tell()?;
        return Ok(report);
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    report.add("cache limit (MiB)", mib(cache_bytes));
    let mut highest = 0;
    let turns = Turn::all();
    for (done, &turn) in turns.iter().enumerate() {
        let named = turn.name();
        progress(&named, done as u64, turns.len() as u64);
        let began = Instant::now();
        let said = in_a_process(args, turn, dir.path(), cache_bytes).with_context(|| format!("step {named}"))?;
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

/// Starts the process of a step, waits for its line, and for its end: its own, or the kill.
fn in_a_process(args: &ScaleArgs, turn: Turn, dir: &Path, cache_bytes: u64) -> anyhow::Result<Said> {
    let mut child = Command::new(std::env::current_exe().context("cannot find the program itself")?)
        .args(["bench", "scale", "--step", &name_of(turn.step), "--keep"])
        .arg(dir)
        .args(["--records", &args.records.to_string(), "--changes", &args.changes.to_string()])
        .args(["--tables", &args.tables.to_string(), "--value", &args.value.to_string()])
        .arg(format!("--cache={cache_bytes}"))
        .args(turn.die_at.map(|at| format!("--die-at={at}")))
        .args(turn.after.map(|after| format!("--after={}", name_of(after))))
        .stdout(Stdio::piped())
        .spawn()?;
    let note = made::process(&child);
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    drop(note);
    let status = child.wait()?;
    let is_as_wanted = match turn.die_at {
        Some(_) => status.signal() == Some(Signal::KILL.as_raw()),
        None => status.success(),
    };
    ensure!(is_as_wanted, "its process ended with {status}");
    serde_json::from_str(&line).context("its process ended without a word")
}
