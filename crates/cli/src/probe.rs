//! `probe`: the experiments of the probe crate, with a progress bar, Ctrl-C heeded, and the report where it is wanted.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ledgerstone::config::{CONFIG_FILE, Config};
use ledgerstone_probe::advice::fragment;
use ledgerstone_probe::{Plan, Progress, Report, Stop, show};
use serde_json::json;

use crate::outcome::Outcome;
use crate::output::Output;
use crate::target::Target;

/// `probe`
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProbeArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub what: Option<ProbeCommand>,
    /// Run only these experiments.
    #[arg(value_parser = known_experiments(), value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Measure the file system of this directory. Nothing is left in it.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Finish in under half a minute, with wider intervals.
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// Take a quarter of an hour, with narrower intervals and all sizes.
    #[arg(long)]
    pub thorough: bool,
    /// Use at most this much disk.
    #[arg(long, value_name = "BYTES", value_parser = ledgerstone_bench::parse_bytes, default_value = "1G")]
    pub disk: u64,
    /// Write the results to this file, as JSON. A file that exists is kept: --force replaces it.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the report to this file, as one page with plots. A file that exists is kept, too.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Replace the files of --out and --html if they exist.
    #[arg(long)]
    pub force: bool,
    /// Write the recommended settings into the directory of this environment. It is made if it is missing.
    #[arg(long, value_name = "DIR")]
    pub write_config: Option<PathBuf>,
}

/// What to do instead of measuring.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ProbeCommand {
    /// Show two results side by side: two machines, or two file systems.
    Compare {
        /// Results of one run.
        a: PathBuf,
        /// Results of another.
        b: PathBuf,
    },
}

fn known_experiments() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        ledgerstone_probe::experiments::ALL.iter().map(|e| clap::builder::PossibleValue::new(e.id()).help(e.title())),
    )
}

pub(crate) fn run(args: &ProbeArgs, output: &Output) -> anyhow::Result<Outcome> {
    match &args.what {
        None => measure(args, output),
        Some(ProbeCommand::Compare { a, b }) => {
            let (a, b) = (read_report(a)?, read_report(b)?);
            if output.is_json {
                output.json(&json!({ "a": a, "b": b }))?;
            } else {
                output.bytes(show::compare(&a, &b).as_bytes())?;
            }
            output.flush()?;
            Ok(Outcome::Done)
        }
    }
}

/// Larger files are not reports.
const REPORT_BYTES_MAX: u64 = 64 << 20;

fn read_report(path: &Path) -> anyhow::Result<Report> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("open {name}"))?;
    let mut bytes = Vec::new();
    file.take(REPORT_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
    anyhow::ensure!(bytes.len() as u64 <= REPORT_BYTES_MAX, "{name}: too large for the report of a probe");
    Ok(Report::read(&name, &bytes)?)
}

fn measure(args: &ProbeArgs, output: &Output) -> anyhow::Result<Outcome> {
    for file in args.out.iter().chain(&args.html) {
        Target::check_new(file, args.force, "--force replaces it")?; // Not only when everything has been measured.
    }
    let mut plan = Plan::new(&args.dir).disk_bytes_max(args.disk)?;
    if args.quick {
        plan = plan.quick();
    }
    if args.thorough {
        plan = plan.thorough();
    }
    if !args.experiments.is_empty() {
        plan = plan.only(&args.experiments)?;
    }
    let bar = Bar::new(output);
    let report = ledgerstone_probe::run(&plan, &Stop::on_signals(), &mut |progress| bar.show(progress))?;
    drop(bar);
    hand_out(args, output, &report)?;
    Ok(if report.stopped.is_none() { Outcome::Done } else { Outcome::Not })
}

fn hand_out(args: &ProbeArgs, output: &Output, report: &Report) -> anyhow::Result<()> {
    if let Some(path) = &args.out {
        let mut text = serde_json::to_string_pretty(report)?;
        text.push('\n');
        Target::write(path, text.as_bytes())?;
    }
    if let Some(path) = &args.html {
        Target::write(path, show::html(report).as_bytes())?;
    }
    if let Some(dir) = &args.write_config {
        write_config(dir, report, output)?;
    }
    if output.is_json {
        output.json(report)?;
    } else {
        output.bytes(show::terminal(report).as_bytes())?;
    }
    output.flush()?;
    Ok(())
}

/// Writes the settings where an environment reads them; beside them, where somebody has made settings already.
fn write_config(dir: &Path, report: &Report, output: &Output) -> anyhow::Result<()> {
    let text = fragment(report, &report.advice);
    if let Err(problems) = Config::parse(&text) {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        anyhow::bail!("the recommended settings are none that an environment takes: {}", problems.join("; "));
    }
    std::fs::create_dir_all(dir).with_context(|| format!("create directory {}", dir.display()))?;
    let path = dir.join(CONFIG_FILE);
    match File::options().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))?;
            output.note(format!("settings written to {}", path.display()));
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let beside = dir.join("ledgerstone.probe.toml");
            Target::write(&beside, text.as_bytes())?;
            let (path, beside) = (path.display(), beside.display());
            output.note(format!(
                "{path} exists and was left alone; the settings are in {beside}: take over what you want"
            ));
        }
        Err(error) => return Err(error).with_context(|| format!("write {}", path.display())),
    }
    Ok(())
}

/// The run's bar: how much of its time is over, and what is measured.
struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(output: &Output) -> Bar {
        let is_shown = !output.is_quiet && std::io::stderr().is_terminal();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::new(1000);
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
            let style = ProgressStyle::with_template("{wide_bar} at most {prefix} s left: {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Bar { bar }
    }

    fn show(&self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        bar.set_position((progress.part * 1000.0) as u64);
        bar.set_prefix(progress.left_max.as_secs().to_string());
        bar.set_message(format!("{}, {}", progress.experiment, progress.what));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
