//! What an operation costs, counted: instructions, atomic instructions, allocations, bytes of code.
//!
//! Times on a shared machine differ by a quarter from run to run, and instructions do not. This program runs itself
//! under callgrind, which counts what is executed in one function of it (`work.rs`), and disassembles itself to know
//! which of those instructions are atomic. Other stores are counted in the same way on request, by a program that has
//! them (`beside.rs`).

mod beside;
mod callgrind;
mod common;
mod page;
mod sources;
mod topics;
mod work;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use beside::Beside;
use callgrind::{Files, Part, Run};
use sources::Sources;

use crate::report::{Report, number};
use crate::{Machine, Place, Workdir};

/// `bench counts`.
#[derive(Clone, Debug, clap::Args)]
pub struct CountsArgs {
    /// Number of records in the table and of accounts in the bank.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub records: u64,
    /// Write the page of counts to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Say what has grown by more than 3 % since this page was written.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// The counts of other stores, for the page.
    #[arg(long, value_name = "FILE")]
    pub beside: Option<PathBuf>,
    /// Count the other stores with this program, and write the file for `--beside` first.
    #[arg(long, value_name = "PROGRAM", requires = "beside", hide = true)]
    pub driver: Option<PathBuf>,
    /// Run the operations in these environments, to be counted from outside.
    #[arg(long, value_name = "DIR", hide = true)]
    pub inside: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// What one operation costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// The operation.
    pub name: String,
    /// Instructions of its thread.
    pub instructions: f64,
    /// Those of them that change memory in one step, as other processors see it.
    pub atomics: f64,
    /// Calls of the allocator that give memory.
    pub allocations: f64,
    /// Bytes of code that all operations of the row together touched, in lines of 64 bytes.
    pub code_bytes: u64,
}

/// Where an operation's instructions are, for the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The operation.
    pub name: String,
    /// Instructions by what they are for, in the order of `topics.rs`.
    topics: [f64; topics::TOPICS.len()],
    /// Instructions of the program that is counted, and of the standard library out of line.
    rest: f64,
    /// Atomic instructions by the line that they write, in the order of the lines of `common.rs`.
    lines: [f64; common::LINES.len()],
    /// Atomic instructions of no line that is known.
    others: f64,
}

/// All counts.
#[derive(Clone, Debug)]
pub struct CountsReport {
    /// The machine, which hardly matters.
    pub machine: Machine,
    /// Records in the table, accounts in the bank.
    pub record_count: u64,
    /// The operations.
    pub counts: Vec<Count>,
    /// Where they are, if a page was asked for.
    pub profiles: Vec<Profile>,
    /// What has grown since the page that it was compared with.
    pub grown: Vec<String>,
    /// What other stores take, if that is known.
    pub beside: Option<Beside>,
}

impl CountsReport {
    /// The same as figures.
    #[must_use]
    pub fn figures(&self) -> Report {
        let mut report = Report::new("counts", self.machine.clone());
        for Count { name, instructions, atomics, allocations, code_bytes } in &self.counts {
            report.add(format!("{name}: instructions"), *instructions);
            report.add(format!("{name}: atomics"), *atomics);
            report.add(format!("{name}: allocations"), *allocations);
            report.add(format!("{name}: code (bytes)"), *code_bytes as f64);
        }
        report
    }
}

impl std::fmt::Display for CountsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "bench counts, {} records; each operation:", number(self.record_count as f64))?;
        let width = self.counts.iter().map(|count| count.name.len()).max().unwrap_or(0);
        writeln!(f, "  {:width$}  instructions  atomics  allocations  code (KiB)", "")?;
        for Count { name, instructions, atomics, allocations, code_bytes } in &self.counts {
            let kib = *code_bytes as f64 / 1024.0;
            let instructions = number(instructions.round());
            writeln!(f, "  {name:width$}  {instructions:>12}  {atomics:>7.1}  {allocations:>11.1}  {kib:>10.1}")?;
        }
        self.grown.iter().try_for_each(|line| writeln!(f, "grown: {line}"))
    }
}

/// Counts.
///
/// # Errors
/// valgrind or objdump is missing or fails; the environment's.
pub fn run(args: &CountsArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Option<CountsReport>> {
    if let Some(dir) = &args.inside {
        work::run(dir, args.records)?;
        return Ok(None);
    }
    let before = args.against.as_deref().map(page::read).transpose()?;
    let dir = Workdir::new(&args.place)?;
    for name in work::ENVIRONMENTS {
        let path = dir.path().join(name);
        ensure!(!path.exists(), "{} exists: --keep wants a directory of its own", path.display());
    }
    work::prepare(dir.path(), args.records, progress)?;
    progress("count", 0, 1);
    let (counts, profiles) = counted(args, dir.path())?;
    let grown = before.map(|before| page::grown(&before, &counts)).unwrap_or_default();
    let beside = other_stores(args, dir.path(), progress)?;
    let machine = Machine::here(dir.path());
    let report = CountsReport { machine, record_count: args.records, counts, profiles, grown, beside };
    if let Some(out) = &args.out {
        std::fs::write(out, page::text(&report)).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(Some(report))
}

/// What other stores take: as the file says, or counted now and written there.
fn other_stores(
    args: &CountsArgs,
    dir: &Path,
    progress: &mut dyn FnMut(&str, u64, u64),
) -> anyhow::Result<Option<Beside>> {
    let Some(file) = &args.beside else { return Ok(None) };
    let Some(driver) = &args.driver else { return Beside::read(file).map(Some) };
    let beside = Beside::counted(driver, dir, args.records, progress)?;
    beside.write(file)?;
    Ok(Some(beside))
}

/// Runs this program under callgrind, and reads what it has counted.
fn counted(args: &CountsArgs, dir: &Path) -> anyhow::Result<(Vec<Count>, Vec<Profile>)> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let records = args.records.to_string();
    let words = ["bench", "counts", "--records", &records, "--inside"].map(OsStr::new);
    let words = [&words[..], &[dir.as_os_str()]].concat();
    let run = Run::of(&program, &words, dir.join("callgrind"))?;
    let mut files = Files::default();
    let (mut counts, mut parts) = (Vec::new(), Vec::new());
    for (no, row) in work::ROWS.iter().enumerate() {
        let part = run.row(no)?;
        let each = |sum: u64| sum as f64 / row.count as f64;
        counts.push(Count {
            name: row.name.to_owned(),
            instructions: each(part.instructions),
            atomics: each(part.atomics(&mut files)?),
            allocations: each(part.allocations),
            code_bytes: part.code_bytes(),
        });
        parts.push((row, part));
    }
    let profiles = if args.out.is_some() { profiles(&parts, &program, &mut files)? } else { Vec::new() };
    Ok((counts, profiles))
}

fn profiles(parts: &[(&work::Row, Part)], program: &Path, files: &mut Files) -> anyhow::Result<Vec<Profile>> {
    let name = program.display().to_string();
    let addresses = parts.iter().filter_map(|(_, part)| part.executed(&name).0).flat_map(|executed| executed.keys());
    let sources = Sources::of(program, &addresses.copied().collect::<BTreeSet<_>>())?;
    let atomics = files.atomics(&name)?;
    let mut profiles = Vec::new();
    for (row, part) in parts {
        let (executed, others) = part.executed(&name);
        let mut profile = Profile {
            name: row.name.to_owned(),
            topics: Default::default(),
            rest: 0.0,
            lines: Default::default(),
            others: 0.0,
        };
        for (address, count) in executed.into_iter().flatten() {
            let each = *count as f64 / row.count as f64;
            let around = sources.get(*address);
            match topics::topic_of(around) {
                Some(topic) => profile.topics[topic] += each,
                None => profile.rest += each,
            }
            if atomics.contains(address) {
                match around.first().and_then(common::line_of) {
                    Some(line) => profile.lines[line] += each,
                    None => profile.others += each,
                }
            }
        }
        for (file, count) in others {
            let each = count as f64 / row.count as f64;
            match file.contains("/libc.so") {
                true => profile.topics[topics::C_LIBRARY] += each,
                false => profile.rest += each,
            }
        }
        profiles.push(profile);
    }
    Ok(profiles)
}
