//! TPC-B with sync under a settings file, beside the built-in defaults.
//!
//! Two environments, one with the file as its `ledgerstone.toml`, run in turn in one process. They take turns in
//! beginning a round. So whatever else happens to the machine happens to both, and the ratio within each round counts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use ledgerstone::Environment;
use ledgerstone::config::CONFIG_FILE;
use serde::Serialize;

use crate::report::{median, number};
use crate::tpcb::{self, CheckReport, KeyKind, Scale};
use crate::{Machine, Place, Workdir};

/// `bench settings`.
#[derive(Clone, Debug, clap::Args)]
pub struct SettingsArgs {
    /// The settings file, as `probe --write-config` writes it.
    pub file: PathBuf,
    /// Number of accounts in each bank.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub accounts: u64,
    /// Number of clients. Each is a thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub threads: u64,
    /// Number of rounds. Each measures the defaults and the file.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(3..=1000))]
    pub rounds: u64,
    /// Seconds that all rounds take together.
    #[arg(long, default_value_t = 20.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct SettingsReport {
    /// The machine.
    pub machine: Machine,
    /// The settings file.
    pub file: PathBuf,
    /// The settings that are not the defaults in force: name, default, and what the file makes it.
    pub differences: Vec<(String, String, String)>,
    /// Rounds.
    pub round_count: u64,
    /// Transactions a second with the defaults, median of the rounds.
    pub defaults_per_second: f64,
    /// Transactions a second with the file, median of the rounds.
    pub file_per_second: f64,
    /// The second as a part of the first within a round: lowest, median, highest.
    pub ratio: [f64; 3],
    /// The 95 % confidence interval of the median ratio, from order statistics.
    pub ratio_interval: [f64; 2],
    /// The books of both banks afterwards.
    pub checks: [CheckReport; 2],
}

impl SettingsReport {
    /// True if the books agree.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.checks.iter().all(CheckReport::is_good)
    }
}

impl std::fmt::Display for SettingsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "bench settings on {}", self.machine)?;
        for (name, default, value) in &self.differences {
            writeln!(f, "  {name} is {value} instead of {default}")?;
        }
        if self.differences.is_empty() {
            writeln!(f, "  {} sets what is the default here", self.file.display())?;
        }
        writeln!(f, "  TPC-B with sync, medians of {} rounds by turns", self.round_count)?;
        writeln!(f, "  built-in defaults  {} transactions/s", number(self.defaults_per_second.round()))?;
        writeln!(f, "  with the file      {} transactions/s", number(self.file_per_second.round()))?;
        let [low, median, high] = self.ratio.map(|ratio| ratio * 100.0);
        let [from, to] = self.ratio_interval.map(|ratio| ratio * 100.0);
        writeln!(
            f,
            "  of the defaults    {median:.1} % (95 %: {from:.1} to {to:.1}; rounds from {low:.1} to {high:.1})"
        )?;
        for (which, check) in ["defaults", "file"].iter().zip(&self.checks) {
            writeln!(f, "  check, {which:8}  {check}")?;
        }
        Ok(())
    }
}

/// Measures. `progress` hears what is under way, how much of it is done, and of how much.
///
/// # Errors
/// The file cannot be read or is not a settings file, and those of the environment.
pub fn run(args: &SettingsArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<SettingsReport> {
    let dir = Workdir::new(&args.place)?;
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let dirs = ["defaults", "file"].map(|name| dir.path().join(name));
    for dir in &dirs {
        ensure!(!dir.exists(), "{} exists: --keep wants a directory of its own", dir.display());
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    std::fs::write(dirs[1].join(CONFIG_FILE), text)?;
    let scale = Scale::of(args.accounts, KeyKind::U64);
    let [defaults, file] = [open(&dirs[0], args, &scale, progress)?, open(&dirs[1], args, &scale, progress)?];
    let each = Duration::from_secs_f64(args.seconds.max(0.0) / args.rounds as f64 / 2.0);
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=args.rounds {
        let turn = |which: usize| -> anyhow::Result<f64> {
            let env = if which == 0 { &defaults } else { &file };
            tpcb::rate(env, scale, 0, args.threads, each, round)
        };
        let first = (round % 2) as usize;
        let (one, other) = (turn(first)?, turn(1 - first)?);
        // The first round warms up.
        if round > 0 {
            rates[first].push(one);
            rates[1 - first].push(other);
        }
        progress("measure", round, args.rounds);
    }
    let mut ratios: Vec<f64> = rates[1].iter().zip(&rates[0]).map(|(file, defaults)| file / defaults).collect();
    ratios.sort_by(f64::total_cmp);
    let [defaults_per_second, file_per_second] = rates.map(median);
    let differences = defaults.effective().settings().into_iter().zip(file.effective().settings());
    let differences = differences
        .filter(|(default, here)| default.value != here.value)
        .map(|(default, here)| {
            let show = |value| default.setting.show(value);
            (default.setting.name.to_owned(), show(&default.value), show(&here.value))
        })
        .collect();
    let report = SettingsReport {
        machine: Machine::here(dir.path()),
        file: args.file.clone(),
        differences,
        round_count: args.rounds,
        defaults_per_second,
        file_per_second,
        ratio: [ratios[0], median(ratios.clone()), ratios[ratios.len() - 1]],
        ratio_interval: interval(&ratios),
        checks: [tpcb::check(&defaults, &scale)?, tpcb::check(&file, &scale)?],
    };
    defaults.close()?;
    file.close()?;
    Ok(report)
}

/// The 95 % confidence interval of the median of sorted rounds, from order statistics. Of few rounds, the extremes.
fn interval(sorted: &[f64]) -> [f64; 2] {
    let count = sorted.len() as f64;
    let below = (count / 2.0 - 0.98 * count.sqrt()).floor().max(0.0) as usize;
    [sorted[below], sorted[sorted.len() - 1 - below]]
}

fn open(
    dir: &Path,
    args: &SettingsArgs,
    scale: &Scale,
    progress: &mut dyn FnMut(&str, u64, u64),
) -> anyhow::Result<Environment> {
    let mut options = Environment::options();
    if let Some(bytes) = args.place.cache {
        options = options.cache_bytes(bytes);
    }
    let env = options.open(dir).with_context(|| format!("opening {}", dir.display()))?;
    tpcb::load(&env, scale, &mut |done, all| progress("load", done, all)).context("loading the bank")?;
    Ok(env)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SettingsArgs,
    }

    #[test]
    fn the_interval_of_the_median_leaves_out_the_outer_rounds() {
        let rounds = |count: u32| (0..count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&rounds(3)), [0.0, 2.0]);
        assert_eq!(interval(&rounds(20)), [5.0, 14.0]);
        assert_eq!(interval(&rounds(100)), [40.0, 59.0]);
    }

    #[test]
    fn both_banks_serve_what_differs_is_named_and_the_books_agree() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("given.toml");
        let run = |text: &str, place: &str| {
            std::fs::write(&file, text).unwrap();
            let line = format!("settings {} --accounts 1000 --rounds 3 --seconds 0.2 --cache 16M", file.display());
            let line = format!("{line} --keep {}", dir.path().join(place).display());
            super::run(&Line::try_parse_from(line.split(' ')).unwrap().args, &mut |_, _, _| {})
        };
        let report = run("page_bytes = 8192\nlog_buffer_bytes = \"2M\"\n", "a").unwrap();
        assert!(report.is_good() && report.defaults_per_second > 0.0 && report.file_per_second > 0.0, "{report}");
        let names: Vec<_> = report.differences.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["page_bytes", "log_buffer_bytes"], "{report}");
        assert!(report.to_string().contains("page_bytes is 8 KiB instead of 4 KiB"), "{report}");
        let refused = run("page_byte = 8192\n", "b").unwrap_err();
        assert!(format!("{refused:#}").contains("page_byte"), "{refused:#}");
    }
}
