//! `flash`: the demonstration, the campaign, the benchmark and the traces of the flash crate, with a progress bar and
//! an exit code.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;
use ledgerstone_flash::evaluate::{self, Experiment, Figure, Size};
use ledgerstone_flash::protocol::{self, Protocol};
use ledgerstone_flash::replay::Measured;
use ledgerstone_flash::tpcc::Scale;
use ledgerstone_flash::tpcc::trial::{Trial, trial};
use ledgerstone_flash::trace::Trace;
use ledgerstone_flash::{campaign, demo};
use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::target::Target;

/// `flash`
#[derive(Clone, Debug, clap::Args)]
pub struct FlashArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub what: FlashCommand,
}

/// What to do on flash.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum FlashCommand {
    /// Run a bank on a flash image under each protocol, kill its process, and check the books.
    Demo,
    /// The process that the demonstration kills.
    #[command(hide = true)]
    DemoWork {
        /// The image.
        path: PathBuf,
        /// The protocol.
        protocol: String,
    },
    /// Cut the power of a simulated device again and again, and compare with a model.
    Crash {
        /// How often the power is cut.
        #[arg(long, default_value_t = 5000)]
        cuts: u64,
        /// The first seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Replay TPC-C under every protocol, for the figures of the Flag Commit paper.
    Bench {
        /// The size of the device and the data.
        #[arg(long, value_enum, default_value_t = SizeName::Small)]
        size: SizeName,
        /// Measure only these figures.
        #[arg(long = "figure", value_enum)]
        figures: Vec<FigureName>,
        /// Replay this trace instead of TPC-C.
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Draw the figures into this directory.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Record TPC-C as a trace, or look at a trace (docs/flash.md has the format).
    Trace {
        #[command(subcommand)]
        #[allow(missing_docs)]
        what: TraceCommand,
    },
    /// Run TPC-C on a device that loses power, and check its consistency conditions.
    Tpcc {
        /// Run only this protocol.
        #[arg(long, value_parser = parse_protocol)]
        protocol: Option<Protocol>,
        /// Number of warehouses, each with a hundredth of the rows.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
        warehouses: u32,
        /// Number of transactions between two power cuts.
        #[arg(long, default_value_t = 100)]
        transactions: u32,
        /// How often the power is cut.
        #[arg(long, default_value_t = 10)]
        cuts: u32,
        /// The seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// `flash trace`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TraceCommand {
    /// Run TPC-C in memory, and write what it touches to a trace.
    Record {
        /// The trace to write.
        file: PathBuf,
        /// Replace the file if it exists.
        #[arg(long)]
        force: bool,
        /// The size of the device and the data.
        #[arg(long, value_enum, default_value_t = SizeName::Small)]
        size: SizeName,
        /// The seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Read a trace and say what is in it.
    Show {
        /// The trace to read.
        file: PathBuf,
    },
}

/// How large a benchmark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeName {
    /// 256 MB of flash, 4 small warehouses: seconds.
    Small,
    /// 4 GB, 20 warehouses: minutes.
    Medium,
    /// The paper's 32 GB, 20 warehouses.
    Full,
}

impl SizeName {
    fn size(self) -> Size {
        match self {
            Self::Small => Size::small(),
            Self::Medium => Size::medium(),
            Self::Full => Size::paper(),
        }
    }
}

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FigureName {
    /// 12, 13, 16, 17 and table 3: all protocols under the default settings.
    Comparison,
    /// 14: the share of aborted transactions.
    Aborts,
    /// The extended protocols and WAL over the share of aborted transactions.
    Rollbacks,
    /// 15: transactions in one page at the same time.
    MaxC,
    /// 18: short and long transactions.
    Sizes,
    /// 19: the size of the buffer.
    Buffers,
    /// The basic protocols with every change written at once, beside the buffer.
    WriteThrough,
}

impl FigureName {
    fn figure(self) -> Figure {
        match self {
            Self::Comparison => Figure::Comparison,
            Self::Aborts => Figure::Aborts,
            Self::Rollbacks => Figure::Rollbacks,
            Self::MaxC => Figure::MaxC,
            Self::Sizes => Figure::Sizes,
            Self::Buffers => Figure::Buffers,
            Self::WriteThrough => Figure::WriteThrough,
        }
    }
}

fn parse_protocol(name: &str) -> Result<Protocol, String> {
    protocol::parse(name).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &FlashArgs, output: &Output) -> anyhow::Result<Outcome> {
    match &args.what {
        FlashCommand::Demo => {
            let executable = std::env::current_exe()?;
            let mut child = |path: &Path, protocol: Protocol| {
                let mut command = Command::new(&executable);
                command.args(["flash", "demo-work"]).arg(path).arg(protocol.name());
                command
            };
            demo::watch(&mut child, &mut |line| output.note(line))?;
            output.done(json!({}), true)?;
        }
        FlashCommand::DemoWork { path, protocol } => {
            demo::work(path, protocol::parse(protocol)?, &mut std::io::stdout())?;
        }
        FlashCommand::Crash { cuts, seed } => {
            let mut progress = Progress::new(output);
            match campaign::run(*cuts, *seed, &mut |done| progress.show("power cuts", done, *cuts, Unit::Count("cuts")))
            {
                Ok(report) => {
                    let text = format!("{report}; nothing lost, nothing invented\n");
                    let told = json!({
                        "cut_count": report.cuts,
                        "recovery_cut_count": report.cuts_in_recovery,
                        "commit_count": report.commits,
                        "page_count": report.pages_checked,
                        "problem": null,
                    });
                    print(output, &text, &told)?;
                }
                Err(broken) => {
                    print(output, &format!("broken: {broken}\n"), &json!({ "problem": broken.to_string() }))?;
                    return Ok(Outcome::Not);
                }
            }
        }
        FlashCommand::Bench { size, figures, trace, out } => {
            bench(*size, figures, trace.as_deref(), out.as_deref(), output)?
        }
        FlashCommand::Trace { what } => run_trace(what, output)?,
        FlashCommand::Tpcc { protocol, warehouses, transactions, cuts, seed } => {
            for own in Protocol::ALL.into_iter().filter(|p| protocol.is_none_or(|wanted| wanted == *p)) {
                let scale = Scale::small(*warehouses);
                let report =
                    trial(&Trial { protocol: own, scale, transactions: *transactions, cuts: *cuts, seed: *seed })?;
                let text = format!(
                    "{}: {} committed, {} rolled back, {} power cuts, all twelve conditions checked {} times\n",
                    own.name(),
                    report.committed,
                    report.rolled_back,
                    report.cuts,
                    report.checks
                );
                let told = json!({
                    "protocol": own.name(),
                    "commit_count": report.committed,
                    "rollback_count": report.rolled_back,
                    "cut_count": report.cuts,
                    "check_count": report.checks,
                });
                print(output, &text, &told)?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn print(output: &Output, text: &str, told: &Value) -> std::io::Result<()> {
    if output.is_json {
        output.json(told)?;
    } else {
        output.bytes(text.as_bytes())?;
    }
    output.flush()
}

/// What was measured at one point of a figure.
fn measured_json(figure: FigureName, axis: &str, x: f64, protocol: Protocol, m: &Measured) -> Value {
    json!({
        "figure": figure.to_possible_value().map(|name| name.get_name().to_owned()),
        "axis": axis,
        "x": x,
        "protocol": protocol.name(),
        "commits_per_second": m.throughput(),
        "execution_ms": m.execution_ms,
        "commit_ms": m.commit_ms,
        "restart_ratio": m.restart_ratio(),
        "collection_share": m.collection_share,
        "collection_ms_per_commit": m.collection_ms_per_commit(),
        "copied_per_block": m.copied_per_block,
        "copied_per_block_late": m.copied_per_block_late,
        "page_write_count": m.pages_written,
        "page_read_count": m.pages_read,
        "flag_move_count": m.flags_moved,
        "log_page_count": m.log_pages,
        "log_bytes": m.log_bytes,
        "kept_page_count": m.kept_pages,
        "recovery_ms": m.recovery_ms,
        "table_bytes": m.table_bytes,
        "busy_share": m.busy_share,
        "chip_operation_count": m.chip_operations,
        "seconds": m.real_seconds,
    })
}

fn bench(
    size: SizeName,
    figures: &[FigureName],
    trace: Option<&Path>,
    out: Option<&Path>,
    output: &Output,
) -> anyhow::Result<()> {
    let size = size.size();
    let trace = match trace {
        Some(path) => load(path)?.0,
        None => evaluate::record(&size, 1)?,
    };
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    }
    let mut progress = Progress::new(output);
    for figure in FigureName::value_variants().iter().filter(|f| figures.is_empty() || figures.contains(f)) {
        let mut show = |what: &str, done: u64, all: u64| progress.show(what, done, all, Unit::Count(""));
        let experiment: Experiment = figure.figure().run(&size, &trace, &mut show)?;
        if output.is_json {
            for (x, protocol, measured) in &experiment.runs {
                output.json(&measured_json(*figure, experiment.axis, *x, *protocol, measured))?;
            }
            output.flush()?;
        } else {
            print(output, &format!("{}\n", experiment.table()), &Value::Null)?;
        }
        if let Some(dir) = out {
            figure.figure().draw(&experiment, dir)?;
        }
    }
    Ok(())
}

fn load(path: &Path) -> anyhow::Result<(Trace, ledgerstone_flash::trace::Imported)> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Trace::load(&mut BufReader::new(file)).with_context(|| path.display().to_string())
}

fn run_trace(what: &TraceCommand, output: &Output) -> anyhow::Result<()> {
    match what {
        TraceCommand::Record { file, force, size, seed } => {
            Target::check_new(file, *force, "--force replaces it")?;
            let trace = evaluate::record(&size.size(), *seed)?;
            let mut target = Target::file(file)?;
            trace.save(target.writer()).with_context(|| format!("write {}", file.display()))?;
            target.finish()?;
            let told = json!({ "file": file, "transaction_count": trace.len() });
            print(output, &format!("{} transactions\n", trace.len()), &told)?;
        }
        TraceCommand::Show { file } => {
            let (trace, found) = load(file)?;
            let text = format!(
                "{} transactions ({} without an end), {} operations, highest page {}\n",
                trace.len(),
                found.unended,
                found.operations,
                found.highest_page
            );
            let told = json!({
                "file": file,
                "transaction_count": trace.len(),
                "unended_count": found.unended,
                "operation_count": found.operations,
                "highest_page": found.highest_page,
            });
            print(output, &text, &told)?;
        }
    }
    Ok(())
}
