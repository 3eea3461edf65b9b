//! `probe`: the experiments of the probe crate, with a progress bar, Ctrl-C heeded, and the report where it is wanted.

use std::path::PathBuf;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ledgerstone_probe::{Plan, Progress, Report, Stop, show};
use std::io::IsTerminal;

use crate::outcome::Outcome;
use crate::output::Output;

/// `probe`
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    /// Only these experiments; all of them otherwise.
    #[arg(value_parser = known_experiments(), value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// The directory whose file system is measured. Nothing is left in it.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Under half a minute, with wider intervals.
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// A quarter of an hour, with narrower intervals and all sizes.
    #[arg(long)]
    pub thorough: bool,
    /// Disk that may be used at any moment.
    #[arg(long, value_name = "BYTES", value_parser = ledgerstone_bench::parse_bytes, default_value = "1G")]
    pub disk: u64,
    /// Write the results there, as JSON.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

fn known_experiments() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        ledgerstone_probe::experiments::ALL.iter().map(|e| clap::builder::PossibleValue::new(e.id()).help(e.title())),
    )
}

pub(crate) fn run(args: &ProbeArgs, output: &Output) -> anyhow::Result<Outcome> {
    measure(args, output)
}

fn measure(args: &ProbeArgs, output: &Output) -> anyhow::Result<Outcome> {
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
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    if output.is_json {
        output.json(report)?;
    } else {
        output.bytes(show::terminal(report).as_bytes())?;
    }
    output.flush()?;
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
