//! Which lines of memory processors take from each other, and how far that lets them go.
//!
//! A machine with 128 processors is rare, and what they share can be known without one. This program runs itself under
//! valgrind, which tells every access to memory. Threads take turns, one operation each, as processors that work at the
//! same pace would (`work.rs`). What their caches would do is simulated (`trace.rs`), and the instructions that moved a
//! line are looked up in the source (`places.rs`).
//!
//! The model: an operation takes what it takes with one thread, and a time for each line that it takes from another
//! processor. A line is with one processor at a time. So there are at most so many operations a second as the line that
//! moves most often can move: that is the wall.

mod page;
mod places;
mod trace;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, anyhow, bail, ensure};
use places::Sources;
use trace::{Caches, Moves, Traced};

use crate::report::Report;
use crate::{Machine, Place, Workdir};

/// `bench lines`.
#[derive(Clone, Debug, clap::Args)]
pub struct LinesArgs {
    /// Simulate these numbers of processors, at most 128.
    #[arg(long, value_delimiter = ',', default_value = "2,8,32,128",
        value_parser = clap::value_parser!(u64).range(1..=work::PROCESSOR_COUNT_MAX))]
    pub processors: Vec<u64>,
    /// How many operations of each kind to trace, all processors together. Each processor has at least two.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub operations: u64,
    /// What it takes to get a line from another processor, in nanoseconds.
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 100.0)]
    pub transfer: f64,
    /// Write the tables to this page, behind its line that says where.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Run the operations in this environment, to be traced from outside.
    #[arg(long, value_name = "DIR", hide = true)]
    pub inside: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// What the traced process is asked for.
#[derive(Clone, Copy, Debug)]
struct Ask {
    processors: u64,
    /// Turns of each processor that count.
    turns: u64,
}

/// An operation with one number of processors.
#[derive(Clone, Debug, PartialEq)]
pub struct At {
    /// How many processors.
    pub processors: u64,
    /// Lines that an operation takes from another processor.
    pub transfers: f64,
    /// How often an operation takes the line that moves most.
    pub hottest: f64,
    /// What takes it most often.
    pub hottest_place: String,
    /// Operations a second, by the model.
    pub rate: f64,
    /// Operations a second that the hottest line allows.
    pub wall: f64,
}

/// A place in the source that writes lines which several processors write, or takes them from each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// File and function.
    pub place: String,
    /// How many lines, with the most processors.
    pub line_count: u64,
    /// How many of those all processors write.
    pub written_by_all: u64,
    /// Writes of an operation to those lines, with the most processors.
    pub writes: f64,
    /// Transfers of an operation, by number of processors.
    pub transfers: Vec<f64>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// What it is.
    pub name: String,
    /// What it takes with one thread, in nanoseconds.
    pub nanoseconds: f64,
    /// By number of processors.
    pub at: Vec<At>,
    /// What it shares, the most transfers first.
    pub shared: Vec<Shared>,
}

/// All operations.
#[derive(Clone, Debug)]
pub struct LinesReport {
    /// The machine.
    pub machine: Machine,
    /// The simulated numbers of processors.
    pub processors: Vec<u64>,
    /// What a transfer takes, in nanoseconds.
    pub transfer: f64,
    /// The operations.
    pub operations: Vec<Operation>,
}

impl LinesReport {
    /// The same as figures.
    #[must_use]
    pub fn figures(&self) -> Report {
        let mut report = Report::new("lines", self.machine.clone());
        for Operation { name, nanoseconds, at, .. } in &self.operations {
            report.add(format!("{name}: alone (ns)"), *nanoseconds);
            for At { processors, transfers, hottest, rate, wall, .. } in at {
                report.add(format!("{name}: lines taken from others, {processors} processors"), *transfers);
                report.add(format!("  of them the hottest, {processors} processors"), *hottest);
                report.add(format!("  by the model, {processors} processors (1/s)"), *rate);
                report.add(format!("  that the hottest line allows, {processors} processors (1/s)"), *wall);
            }
        }
        report
    }
}

impl std::fmt::Display for LinesReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&page::tables(self))
    }
}

/// Traces.
///
/// # Errors
/// valgrind or addr2line is missing or fails; the environment's.
pub fn run(args: &LinesArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Option<LinesReport>> {
    let ask = |processors: u64| Ask { processors, turns: (args.operations / processors).max(2) };
    if let Some(dir) = &args.inside {
        tell_and_wait()?;
        work::run(dir, ask(args.processors.first().copied().unwrap_or(2)))?;
        return Ok(None);
    }
    let mut processors = args.processors.clone();
    processors.sort_unstable();
    processors.dedup();
    let dir = Workdir::new(&args.place)?;
    let env = dir.path().join("env");
    work::prepare(&env, progress)?;
    let alone = work::alone(&env)?;
    let mut traces: Vec<Vec<Traced>> = Vec::new();
    for (no, &count) in processors.iter().enumerate() {
        progress("processors", no as u64, processors.len() as u64);
        traces.push(traced(&env, ask(count)).with_context(|| format!("with {count} processors"))?);
    }
    let sources = sources(&traces)?;
    let operations = work::OPERATIONS.iter().zip(alone).enumerate().map(|(no, ((name, _), nanoseconds))| {
        let traced: Vec<(u64, &Traced)> =
            processors.iter().copied().zip(traces.iter().map(|trace| &trace[no])).collect();
        let at = traced.iter().map(|(count, traced)| model(*count, traced, nanoseconds, args.transfer, &sources));
        Operation { name: (*name).to_owned(), nanoseconds, at: at.collect(), shared: shared(&traced, &sources) }
    });
    let operations = operations.collect();
    let report = LinesReport { machine: Machine::here(dir.path()), processors, transfer: args.transfer, operations };
    if let Some(out) = &args.out {
        page::write(out, &report)?;
    }
    Ok(Some(report))
}

/// Says where marks and code are, and waits until somebody listens.
fn tell_and_wait() -> anyhow::Result<()> {
    let (marks, code) = work::here();
    println!("{marks} {code}");
    std::io::stdout().flush()?;
    std::io::stdin().read_line(&mut String::new()).context("nobody says when to begin")?;
    Ok(())
}

/// Runs the operations under valgrind; instructions by their addresses in the program's file.
fn traced(env: &Path, ask: Ask) -> anyhow::Result<Vec<Traced>> {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "--quiet"])
        .arg(program()?)
        .args(["bench", "lines", "--inside"])
        .arg(env)
        .args(["--processors", &ask.processors.to_string()])
        .args(["--operations", &(ask.processors * ask.turns).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run valgrind (Debian package valgrind)")?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(trace)) = pipes else { bail!("a child without pipes") };
    let told = OnceLock::new();
    let traced = std::thread::scope(|scope| {
        let begun = scope.spawn(|| begin(stdin, stdout, &told));
        // Read from the first byte on: a process whose pipe is full comes no further.
        let mut trace = BufReader::with_capacity(1 << 20, trace);
        let mut line = Vec::new();
        while told.get().is_none() && trace.read_until(b'\n', &mut line)? > 0 {
            line.clear();
        }
        let traced = match told.get() {
            Some(&(marks, base)) => {
                let mut caches = Caches::new(marks, base, work::OPERATIONS.len());
                caches.read(trace).map(|()| caches.into_traced())
            }
            None => Err(anyhow!("it ended before it began")),
        };
        begun.join().map_err(|_| anyhow!("the thread that begins panicked"))??;
        traced
    });
    let status = child.wait()?;
    ensure!(status.success(), "under valgrind the operations failed: {status}");
    traced
}

/// Learns where the process has its marks and its program, and then lets it begin.
fn begin(mut stdin: ChildStdin, stdout: ChildStdout, told: &OnceLock<(u64, u64)>) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let numbers = line.trim().split_once(' ').and_then(|(marks, code)| Some((marks.parse().ok()?, code.parse().ok()?)));
    let (marks, code): (u64, u64) = numbers.with_context(|| format!("{line:?} does not say where the marks are"))?;
    let _ = told.set((marks, code - (work::here().1 - own_base()?)));
    Ok(stdin.write_all(b"\n")?)
}

fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// Where this process has the program's file.
fn own_base() -> anyhow::Result<u64> {
    let (maps, program) = (std::fs::read_to_string("/proc/self/maps")?, program()?);
    let first = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy()));
    let start = first.and_then(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok());
    start.context("/proc/self/maps does not have this program")
}

/// Asks for all instructions that matter at once.
fn sources(traces: &[Vec<Traced>]) -> anyhow::Result<Sources> {
    let lines = traces.iter().flatten().flat_map(|traced| traced.lines.values());
    let shared = lines.filter(|moves| moves.is_shared());
    let addresses: BTreeSet<u64> = shared.flat_map(|moves| moves.by_code.keys().copied()).collect();
    Sources::of(&program()?, addresses.into_iter())
}

fn model(processors: u64, traced: &Traced, alone: f64, transfer: f64, sources: &Sources) -> At {
    let each = |sum: u64| sum as f64 / traced.count.max(1) as f64;
    let transfers = each(traced.lines.values().map(Moves::transfers).sum());
    let hottest = traced.lines.values().max_by_key(|moves| moves.transfers());
    let by = hottest.and_then(|moves| moves.by_code.iter().max_by_key(|(_, (_, transfers))| *transfers));
    let (hottest, place) = (each(hottest.map_or(0, Moves::transfers)), by.map_or("", |(&code, _)| sources.at(code)));
    At {
        processors,
        transfers,
        hottest,
        hottest_place: if hottest > 0.0 { place.to_owned() } else { String::new() },
        rate: processors as f64 * 1e9 / (alone + transfers * transfer),
        wall: 1e9 / (hottest * transfer),
    }
}

/// By place in the source.
fn shared(traced: &[(u64, &Traced)], sources: &Sources) -> Vec<Shared> {
    let (mut places, count): (BTreeMap<&str, Shared>, usize) = (BTreeMap::new(), traced.len());
    for (no, (processors, traced)) in traced.iter().enumerate() {
        let (is_last, each) = (no + 1 == count, 1.0 / traced.count.max(1) as f64);
        for moves in traced.lines.values().filter(|moves| moves.is_shared()) {
            let mut seen = BTreeSet::new();
            for (&code, &(writes, transfers)) in &moves.by_code {
                let name = sources.at(code);
                let place = places.entry(name).or_insert_with(|| Shared {
                    place: name.to_owned(),
                    line_count: 0,
                    written_by_all: 0,
                    writes: 0.0,
                    transfers: vec![0.0; count],
                });
                place.transfers[no] += transfers as f64 * each;
                if is_last {
                    place.writes += writes as f64 * each;
                    if writes > 0 && seen.insert(name) {
                        place.line_count += 1;
                        place.written_by_all += u64::from(u64::from(moves.writers.count_ones()) == *processors);
                    }
                }
            }
        }
    }
    let mut shared: Vec<Shared> = places.into_values().collect();
    shared.sort_by(|a, b| b.transfers.last().partial_cmp(&a.transfers.last()).unwrap_or(std::cmp::Ordering::Equal));
    shared
}
