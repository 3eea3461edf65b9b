//! `bench`: the experiments of the bench crate, with a progress bar and an exit code.

use std::fmt::Display;

use ledgerstone_bench as bench;
use parking_lot::Mutex;
use serde::Serialize;

use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::{Progress, Unit};

/// `bench`
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub what: Bench,
}

/// What to measure.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Bench {
    /// Run TPC-B as LIBTP did: throughput, latency, aborts, log and syncs of a transaction.
    Tpcb(bench::tpcb::TpcbArgs),
    /// Read records at random from a table in the cache.
    Points(bench::points::PointsArgs),
    /// Scan a whole table in the cache.
    Scan(bench::scan::ScanArgs),
    /// Scan whole tables that are not in the cache, beside what the device gives.
    Cold(bench::cold::ColdArgs),
    /// Run snapshot readers and writers together, and measure what each costs the other.
    Snapshots(bench::snapshots::SnapshotsArgs),
    /// Compare many threads with a few, in short transactions.
    Crowd(bench::crowd::CrowdArgs),
    /// Compare processes that share an environment with threads of one that has it alone, by TPC-B.
    Processes(bench::processes::ProcessesArgs),
    /// One of these processes.
    #[command(hide = true)]
    ProcessesOne(bench::processes::OneArgs),
    /// Compare a settings file with the defaults, by TPC-B with durable commits.
    Settings(bench::settings::SettingsArgs),
    /// Count what operations cost: instructions, atomics, allocations, code. Needs valgrind and objdump.
    Counts(bench::counts::CountsArgs),
    /// Measure the device alone: durable overwrites and random reads.
    Device(bench::device::DeviceArgs),
    /// Kill a process that runs TPC-B, and measure the restart.
    Recovery(bench::recovery::RecoveryArgs),
    /// Kill a process in the middle of a large transaction, and measure the restart.
    Loser(bench::loser::LoserArgs),
    /// Compare rolling back a large transaction with making its changes.
    Rollback(bench::rollback::RollbackArgs),
    /// Take an environment far larger than its cache through every command.
    Scale(bench::scale::ScaleArgs),
    /// Compare resident memory with the limit, on a table ten times the cache.
    Memory(bench::memory::MemoryArgs),
    /// Run all of these, and compare the results with their targets.
    Gates(bench::gates::GatesArgs),
}

pub(crate) fn run(args: &BenchArgs, output: &Output) -> anyhow::Result<Outcome> {
    let _heeding = interrupt::end_with(abandon);
    let done = measure(args, output);
    interrupt::leave_to_last(); // What was taken away under its hands made it fail.
    done
}

fn measure(args: &BenchArgs, output: &Output) -> anyhow::Result<Outcome> {
    let mut progress = Progress::new(output);
    let mut show = |what: &str, done: u64, all: u64| {
        *AT.lock() = (what.to_owned(), done, all);
        progress.show(what, done, all, Unit::Count(""));
    };
    match &args.what {
        Bench::Tpcb(args) => {
            let report = bench::tpcb::run(args, &mut show)?;
            drop(progress);
            print(output, &report)?;
            return Ok(if report.is_good() { Outcome::Done } else { Outcome::Not });
        }
        Bench::Gates(args) => {
            let report = bench::gates::run(args, &mut |line| output.note(line))?;
            print(output, &report)?;
            return Ok(if report.failures.is_empty() { Outcome::Done } else { Outcome::Not });
        }
        Bench::Points(args) => print(output, &bench::points::run(args, &mut show)?)?,
        Bench::Scan(args) => print(output, &bench::scan::run(args, &mut show)?)?,
        Bench::Cold(args) => print(output, &bench::cold::run(args, &mut show)?)?,
        Bench::Crowd(args) => print(output, &bench::crowd::run(args, &mut show)?)?,
        Bench::Snapshots(args) => print(output, &bench::snapshots::run(args, &mut show)?)?,
        Bench::Processes(args) => print(output, &bench::processes::run(args, &mut show)?)?,
        Bench::ProcessesOne(args) => bench::processes::work(args)?,
        Bench::Settings(args) => {
            let report = bench::settings::run(args, &mut show)?;
            drop(progress);
            print(output, &report)?;
            return Ok(if report.is_good() { Outcome::Done } else { Outcome::Not });
        }
        Bench::Counts(args) => {
            if let Some(report) = bench::counts::run(args, &mut show)? {
                drop(progress);
                if output.is_json { print(output, &report.figures())? } else { print_text(output, &report)? }
            }
        }
        Bench::Device(args) => print(output, &bench::device::run(args)?)?,
        Bench::Recovery(args) => print(output, &bench::recovery::run(args)?)?,
        Bench::Loser(args) => print(output, &bench::loser::run(args)?)?,
        Bench::Rollback(args) => print(output, &bench::rollback::run(args)?)?,
        Bench::Scale(args) => print(output, &bench::scale::run(args, &mut show)?)?,
        Bench::Memory(args) => print(output, &bench::memory::run(args, &mut show)?)?,
    }
    Ok(Outcome::Done)
}

/// What is under way, how much of it is done, and of how much.
static AT: Mutex<(String, u64, u64)> = Mutex::new((String::new(), 0, 0));

/// Takes away what was made, and says how far it came.
fn abandon() -> String {
    let (what, done, all) = AT.lock().clone();
    let how_far = match (what.as_str(), all) {
        ("", _) => String::new(),
        (what, 0) => format!(" in \"{what}\""),
        (what, all) => format!(" in \"{what}\" after {done} of {all}"),
    };
    let left = bench::abandon();
    let left: Vec<String> = left.iter().map(|path| path.display().to_string()).collect();
    match left.is_empty() {
        true => format!("before the end{how_far}: there is no report, and temporary directories were removed"),
        false => format!("before the end{how_far}: there is no report; remove {}", left.join(", ")),
    }
}

fn print(output: &Output, report: &(impl Display + Serialize)) -> std::io::Result<()> {
    if !output.is_json {
        return print_text(output, report);
    }
    output.json(report)?;
    output.flush()
}

fn print_text(output: &Output, report: &impl Display) -> std::io::Result<()> {
    output.bytes(report.to_string().as_bytes())?;
    output.flush()
}
