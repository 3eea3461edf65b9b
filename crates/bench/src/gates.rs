//! Every figure that the first delivery promises, measured again by the commands that a reader can type, and written as
//! a table with its target. Each experiment is a process of its own, so that none finds the memory of another.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;

use crate::made;
use crate::report::number;
use crate::{Machine, Place};

/// `bench gates`.
#[derive(Clone, Debug, clap::Args)]
pub struct GatesArgs {
    /// Measure each experiment for this long.
    #[arg(long, default_value_t = 10.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    /// Number of accounts in the bank, and of records in the tables.
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// Write the results as a table into this Markdown file, between its two marks.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// One promise.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    /// What is promised.
    pub name: String,
    /// The command that measures it.
    pub command: String,
    /// What was measured.
    pub figure: f64,
    /// What was promised.
    pub target: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// What the figure was made of, where it is a ratio or a difference.
    pub made_of: String,
    /// True if more is better.
    pub is_floor: bool,
}

impl Gate {
    /// True if the promise is kept.
    #[must_use]
    pub fn is_met(&self) -> bool {
        if self.is_floor { self.figure >= self.target } else { self.figure <= self.target }
    }

    /// How far the figure is from the target, in percent of the target; 0 if it is met.
    fn distance(&self) -> f64 {
        if self.is_met() { 0.0 } else { (self.figure - self.target).abs() / self.target * 100.0 }
    }
}

/// All promises.
#[derive(Clone, Debug, Serialize)]
pub struct GatesReport {
    /// The machine.
    pub machine: Machine,
    /// In the order of the issue.
    pub gates: Vec<Gate>,
    /// Experiments that ended with an error, with its text.
    pub failures: Vec<String>,
    /// Latencies and other figures that have no target.
    pub also: Vec<(String, String)>,
}

const BEGIN: &str = "<!-- measured: written by `make bench`, not by hand -->";
const END: &str = "<!-- end of measured -->";

/// Runs all experiments, one after the other. One that fails is named, and the others still run.
///
/// # Errors
/// The table cannot be written.
pub fn run(args: &GatesArgs, say: &mut dyn FnMut(&str)) -> anyhow::Result<GatesReport> {
    if let Some(out) = &args.out {
        let has_place = out.parent().is_none_or(|dir| dir.as_os_str().is_empty() || dir.is_dir());
        // Before all is measured.
        anyhow::ensure!(has_place && !out.is_dir(), "cannot write {}: see --out", out.display());
    }
    let mut all = All { args, say, gates: Vec::new(), failures: Vec::new(), also: Vec::new() };
    all.tpcb();
    all.reads();
    all.snapshots();
    all.crowds();
    all.memory();
    all.recovery();
    all.rollback();
    let All { gates, failures, also, .. } = all;
    let report = GatesReport { machine: Machine::here(&args.place.tmp), gates, failures, also };
    if let Some(out) = &args.out {
        write_into(out, &report.markdown())?;
    }
    Ok(report)
}

struct All<'a> {
    args: &'a GatesArgs,
    say: &'a mut dyn FnMut(&str),
    gates: Vec<Gate>,
    failures: Vec<String>,
    also: Vec<(String, String)>,
}

impl All<'_> {
    /// Runs `ledgerstone bench ...` and reads its figures; `None` if it failed, which is noted.
    fn measure(&mut self, arguments: &str) -> Option<(String, Value)> {
        let command = format!("ledgerstone bench {arguments}");
        (self.say)(&command);
        match self.measure_in_process(arguments) {
            Ok(value) => Some((command, value)),
            Err(error) => {
                (self.say)(&format!("FAILED: {error:#}"));
                self.failures.push(format!("`{command}`: {error:#}"));
                None
            }
        }
    }

    fn measure_in_process(&self, arguments: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--json").arg("bench").args(arguments.split(' ')).arg("--tmp").arg(&self.args.place.tmp);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let note = made::process(&child);
        let output = child.wait_with_output()?;
        drop(note);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", output.status, said.trim().lines().last().unwrap_or_default());
        }
        serde_json::from_slice(&output.stdout).context("its report is not JSON")
    }

    #[allow(clippy::too_many_arguments)]
    fn gate(
        &mut self,
        name: &str,
        command: &str,
        figure: f64,
        is_floor: bool,
        target: f64,
        unit: &'static str,
        made_of: String,
    ) {
        let gate = Gate { name: name.to_owned(), command: command.to_owned(), figure, target, unit, made_of, is_floor };
        (self.say)(&gate.to_string());
        self.gates.push(gate);
    }

    fn tpcb(&mut self) {
        let (records, seconds) = (self.args.records, self.args.seconds);
        let run = |rest: &str| format!("tpcb --accounts {records} --seconds {seconds} {rest} --check");
        let rate = |report: &Value| report["run"]["per_second"].as_f64().unwrap_or(0.0);

        let volatile = self.measure(&run("--durability volatile"));
        if let Some((command, report)) = &volatile {
            let each = report["run"]["log_bytes_each"].as_f64().unwrap_or(f64::MAX);
            self.gate(
                "TPC-B without sync, 1 thread",
                command,
                rate(report),
                true,
                250_000.0,
                "transactions/s",
                String::new(),
            );
            self.gate("log of a transaction", command, each, false, 400.0, "bytes", String::new());
            self.latency("TPC-B without sync, 1 thread", report);
        }
        let single = self.measure(&run("--durability sync --device"));
        if let Some((command, report)) = &single {
            // Medians: one stall of the device would decide a difference of means.
            let us = |latency: &Value, field: &str| latency[field].as_f64().unwrap_or(f64::MAX);
            let (commit, device) = (&report["run"]["latency"], &report["device"]["overwrite"]);
            let made_of = format!(
                "commit {:.1} us, device {:.1} us, medians (means {:.1} and {:.1})",
                us(commit, "p50_us"),
                us(device, "p50_us"),
                us(commit, "mean_us"),
                us(device, "mean_us")
            );
            let above = us(commit, "p50_us") - us(device, "p50_us");
            self.gate(
                "commit with Sync above the device's flush, 1 thread",
                command,
                above,
                false,
                15.0,
                "us",
                made_of,
            );
            self.latency("TPC-B with Sync, 1 thread", report);
        }
        let many = self.measure(&run("--durability sync --threads 32"));
        if let (Some((_, single)), Some((command, report))) = (&single, &many) {
            let made_of = format!("{} / {} transactions/s", number(rate(report).round()), number(rate(single).round()));
            self.gate(
                "Sync, 32 threads, of 1 thread",
                command,
                rate(report) / rate(single),
                true,
                6.0,
                "times",
                made_of,
            );
            self.latency("TPC-B with Sync, 32 threads", report);
        }
        let pipelined = self.measure(&run("--durability pipelined"));
        if let (Some((_, volatile)), Some((command, report))) = (&volatile, &pipelined) {
            let made_of =
                format!("{} / {} transactions/s", number(rate(report).round()), number(rate(volatile).round()));
            self.gate(
                "Pipelined, of the speed without sync",
                command,
                rate(report) / rate(volatile) * 100.0,
                true,
                70.0,
                "%",
                made_of,
            );
            self.latency("TPC-B pipelined, 1 thread, until durable", report);
        }
        for (name, rest) in [
            ("TPC-B without sync, 2 threads", "--durability volatile --threads 2"),
            ("TPC-B read-only, 1 thread", "--durability volatile --read-only"),
            ("TPC-B read-only, 2 threads", "--durability volatile --read-only --threads 2"),
        ] {
            if let Some((_, report)) = self.measure(&run(rest)) {
                self.latency(name, &report);
            }
        }
        for (name, rest) in [
            ("TPC-B small, without sync, 1 thread", "--durability volatile"),
            ("TPC-B small, without sync, 2 threads", "--durability volatile --threads 2"),
        ] {
            if let Some((_, report)) = self.measure(&format!("tpcb --small --seconds {seconds} {rest} --check")) {
                self.latency(name, &report);
            }
        }
    }

    fn reads(&mut self) {
        let (records, seconds) = (self.args.records, self.args.seconds);
        if let Some((command, report)) = self.measure(&format!("points --records {records} --seconds {seconds}")) {
            let (one, two) = (figure(&report, "point reads, 1 threads"), figure(&report, "point reads, 2 threads"));
            self.gate("point reads, 1 thread", &command, one, true, 1_000_000.0, "reads/s", String::new());
            let made_of = format!("{} / {} reads/s", number(two.round()), number(one.round()));
            self.gate("point reads, 2 threads, of 1 thread", &command, two / one, true, 1.7, "times", made_of);
        }
        if let Some((command, report)) = self.measure(&format!("scan --records {records}")) {
            let rate = figure(&report, "scan, borrowed, median");
            self.gate("scan", &command, rate, true, 20_000_000.0, "records/s", "median of 10, in the cache".into());
            self.others("scan", &report, &["scan, owned, median", "scan, owned, backward, median"]);
        }
        if let Some((command, report)) = self.measure(&format!("cold --records {records}")) {
            let share = figure(&report, "  of the device in order, in order");
            let rate = number(figure(&report, "cold scan, in order").round());
            let made_of = format!("{rate} records/s; median of 5, nothing in the cache");
            self.gate("cold scan, of the device's rate in order", &command, share, true, 80.0, "%", made_of);
            self.others("cold scan", &report, &["cold scan, filled at random", "device, reads of 4 KiB at random"]);
        }
    }

    fn snapshots(&mut self) {
        self.snapshots_beside("sync", "durable commits");
        self.snapshots_beside("volatile", "commits that wait for nothing");
    }

    /// Readers and writers beside each other, by what the commits wait for.
    fn snapshots_beside(&mut self, durability: &str, commits: &str) {
        let (seconds, records) = (self.args.seconds, self.args.records);
        let line = format!("snapshots --records {records} --seconds {seconds} --durability {durability}");
        let Some((command, report)) = self.measure(&line) else { return };
        for (who, beside, alone, ratio, unit) in [
            (
                "snapshot readers",
                "snapshot reader beside a writer",
                "snapshot reader beside a busy thread",
                "  of its speed",
                "records/s",
            ),
            (
                "snapshot look-ups",
                "snapshot look-ups beside a writer",
                "snapshot look-ups beside a busy thread",
                "  of their speed",
                "records/s",
            ),
            (
                "writers beside a snapshot reader",
                "writer beside a snapshot reader",
                "writer beside a busy thread",
                "  of the writer's speed beside",
                "transactions/s",
            ),
        ] {
            let rate = |name| number(figure(&report, name).round());
            let made_of = format!("{} / {} {unit}, medians", rate(beside), rate(alone));
            let name = format!("{who}, {commits}, of their speed beside a busy thread");
            self.gate(&name, &command, figure(&report, ratio), true, 80.0, "%", made_of);
        }
    }

    /// Many threads with short transactions, against a few.
    fn crowds(&mut self) {
        for durability in ["sync", "pipelined", "async", "volatile"] {
            let line = format!("--durability {durability} --threads 4,8,50,200,500");
            self.crowd(&line, &format!("short {durability} transactions"), 4, &[8, 50, 200, 500], 100.0);
        }
        for (hot, what) in [(1, "transactions on one record"), (2, "transactions on two records in either order")] {
            let line = format!("--durability volatile --hot {hot} --threads 8,32,200");
            self.crowd(&line, what, 8, &[200], 100.0 / 3.0);
        }
        let line = "--durability volatile --hot 1 --threads 1,32,500";
        self.crowd(line, "transactions on one record", 1, &[32, 500], 50.0);
    }

    /// The rate of many threads, in percent of the rate of a few: the median of pairs.
    fn crowd(&mut self, line: &str, what: &str, few: u64, many: &[u64], target: f64) {
        let line = format!("crowd {line} --rounds 5 --seconds {}", self.args.seconds / 5.0);
        let Some((command, report)) = self.measure(&line) else { return };
        let rate = |count: u64| figure(&report, &format!("transactions, {count} threads"));
        for &count in many {
            let switches = figure(&report, &format!("  context switches each, {count} threads"));
            let rates = format!("{} / {}", number(rate(count).round()), number(rate(few).round()));
            let made_of = format!("{rates} transactions/s, {} context switches each", number(switches));
            let name = format!("{what}, {count} threads, of the rate of {few}");
            let share = figure(&report, &format!("  of the first rate, {count} threads (%)"));
            self.gate(&name, &command, share, true, target, "%", made_of);
        }
    }

    fn memory(&mut self) {
        let (records, seconds) = (self.args.records, self.args.seconds);
        let Some((command, report)) = self.measure(&format!("memory --records {records} --seconds {seconds}")) else {
            return;
        };
        let above = figure(&report, "resident above the cache limit, one transaction");
        self.gate(
            "resident memory above the cache limit, a transaction of 1,000,000 inserts",
            &command,
            above,
            false,
            64.0,
            "MiB",
            String::new(),
        );
        let all = figure(&report, "resident above the cache limit, all");
        self.gate("the same with a table of 10 times the cache", &command, all, false, 64.0, "MiB", String::new());
        let (pages, own) = (figure(&report, "pages read for them"), figure(&report, "the device's own random"));
        let made_of = format!("{} / {} pages/s", number(pages.round()), number(own.round()));
        self.gate("pages read, of the device's own rate", &command, pages / own * 100.0, true, 80.0, "%", made_of);
    }

    fn recovery(&mut self) {
        let Some((command, report)) = self.measure(&format!("recovery --accounts {}", self.args.records)) else {
            return;
        };
        let rate = figure(&report, "recovery (log records/s)");
        let made_of = format!(
            "{} records, open after {} ms",
            number(figure(&report, "log records")),
            number(figure(&report, "open, all of it").round())
        );
        self.gate("recovery", &command, rate, true, 500_000.0, "log records/s", made_of);
        self.others(
            "recovery",
            &report,
            &["analysis (ms)", "redo (ms)", "undo (ms)", "checkpoint (ms)", "first answer (ms)"],
        );
    }

    fn rollback(&mut self) {
        let Some((command, report)) = self.measure(&format!("rollback --changes {}", self.args.records)) else {
            return;
        };
        let ms = |name| number(figure(&report, name).round());
        let made_of = format!("{} / {} ms", ms("changes rolled back"), ms("changes made"));
        let times = figure(&report, "rollback, of the time of the changes");
        self.gate("rollback, of the time of its changes", &command, times, false, 3.0, "times", made_of);
    }

    fn latency(&mut self, name: &str, report: &Value) {
        let run = &report["run"];
        let us = |field: &str| number(run["latency"][field].as_f64().unwrap_or(0.0));
        let text = format!(
            "{} transactions/s; p50 {} us, p99 {}, p99.9 {}, max {}; {} aborts; {:.0} log bytes, {:.4} syncs each",
            number(run["per_second"].as_f64().unwrap_or(0.0).round()),
            us("p50_us"),
            us("p99_us"),
            us("p999_us"),
            us("max_us"),
            run["abort_count"],
            run["log_bytes_each"].as_f64().unwrap_or(0.0),
            run["syncs_each"].as_f64().unwrap_or(0.0),
        );
        self.also.push((name.to_owned(), text));
    }

    fn others(&mut self, what: &str, report: &Value, names: &[&str]) {
        for name in names {
            self.also.push((format!("{what}: {name}"), number(figure(report, name).round())));
        }
    }
}

/// The figure of a report whose name begins so; 0 if there is none.
fn figure(report: &Value, name: &str) -> f64 {
    let figures = report["figures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = figures.iter().find(|figure| figure["name"].as_str().is_some_and(|found| found.starts_with(name)));
    found.and_then(|figure| figure["value"].as_f64()).unwrap_or(0.0)
}

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let met = if self.is_met() { "met" } else { "missed" };
        let bound = if self.is_floor { "at least" } else { "at most" };
        write!(f, "{}: {} {} ({bound} {}): {met}", self.name, number(self.figure), self.unit, number(self.target))
    }
}

impl GatesReport {
    /// Promises kept, and all.
    #[must_use]
    pub fn met_count(&self) -> (usize, usize) {
        (self.gates.iter().filter(|gate| gate.is_met()).count(), self.gates.len())
    }

    /// The report as a table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Machine: {}.\n", self.machine);
        let _ =
            writeln!(text, "| what | figure | target | | made of | command |\n| --- | ---: | ---: | --- | --- | --- |");
        for gate in &self.gates {
            let bound = if gate.is_floor { "≥" } else { "≤" };
            let met = if gate.is_met() { "met".to_owned() } else { format!("**missed** by {:.1} %", gate.distance()) };
            let _ = writeln!(
                text,
                "| {} | {} {} | {bound} {} | {met} | {} | `{}` |",
                gate.name,
                number(gate.figure),
                gate.unit,
                number(gate.target),
                gate.made_of,
                gate.command
            );
        }
        if !self.also.is_empty() {
            let _ = writeln!(text, "\nBeside them, without a target:\n\n| what | figures |\n| --- | --- |");
            for (name, figures) in &self.also {
                let _ = writeln!(text, "| {name} | {figures} |");
            }
        }
        for failure in &self.failures {
            let _ = writeln!(text, "\nNot measured, the experiment failed: {failure}");
        }
        text
    }
}

impl std::fmt::Display for GatesReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (met, all) = self.met_count();
        for gate in &self.gates {
            writeln!(f, "{gate}")?;
        }
        for failure in &self.failures {
            writeln!(f, "not measured: {failure}")?;
        }
        writeln!(f, "{met} of {all} targets met, {} experiments failed", self.failures.len())
    }
}

/// Puts the table between the marks of a file; at its end if it has none.
fn write_into(file: &Path, table: &str) -> anyhow::Result<()> {
    let old = match std::fs::read_to_string(file) {
        Ok(old) => old,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
    };
    let new = between_marks(&old, table);
    std::fs::write(file, new).with_context(|| format!("cannot write {}", file.display()))
}

fn between_marks(old: &str, table: &str) -> String {
    let measured = format!("{BEGIN}\n\n{}\n\n{END}", table.trim());
    match (old.split_once(BEGIN), old.split_once(END)) {
        (Some((before, _)), Some((_, behind))) => format!("{before}{measured}{behind}"),
        _ => format!("{}\n\n{measured}\n", old.trim_end()).trim_start().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_only_what_was_measured() {
        let old = format!("# Figures\n\n{BEGIN}\nold\n{END}\n\nWhy.\n");
        assert_eq!(between_marks(&old, "new\n"), format!("# Figures\n\n{BEGIN}\n\nnew\n\n{END}\n\nWhy.\n"));
        assert_eq!(between_marks("", "new"), format!("{BEGIN}\n\nnew\n\n{END}\n"));
    }

    #[test]
    fn a_floor_and_a_ceiling_are_met_from_their_own_side() {
        let gate = |figure, is_floor| Gate {
            name: "x".into(),
            command: String::new(),
            figure,
            target: 10.0,
            unit: "",
            made_of: String::new(),
            is_floor,
        };
        assert!(gate(10.0, true).is_met() && gate(11.0, true).is_met() && !gate(9.0, true).is_met());
        assert!(gate(10.0, false).is_met() && !gate(11.0, false).is_met());
        assert_eq!(gate(9.0, true).distance(), 10.0);
    }
}
