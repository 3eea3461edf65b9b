//! What a run found, as data. Format 1; see `docs/probe.md`.
//!
//! Times are nanoseconds, rates are per second, sizes are bytes: always the plain unit, so that programs need not look.
//! A noisy value has no median: what is not known is not a number.

use serde::{Deserialize, Serialize};

use crate::advice::{self, Advice};
use crate::claims::{self, Finding};
use crate::clock::Clock;
use crate::error::ProbeError;
use crate::machine::Machine;
use crate::plan::Effort;
use crate::verdict::{self, Service};

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// When it began, seconds since 1970 UTC.
    pub started_unix_s: u64,
    /// How long it took.
    pub seconds: f64,
    /// How long it was allowed to take.
    pub effort: Effort,
    /// Why it ended early, if it did.
    pub stopped: Option<String>,
    /// What it ran on.
    pub machine: Machine,
    /// What it measured time with.
    pub clock: Clock,
    /// The results, an experiment each.
    pub experiments: Vec<Outcome>,
    /// The paper's claims, judged by the results.
    #[serde(default)]
    pub claims: Vec<Finding>,
    /// The verdict: each service rated.
    #[serde(default)]
    pub services: Vec<Service>,
    /// What to set, and why.
    #[serde(default)]
    pub advice: Vec<Advice>,
}

impl Report {
    /// The version of the format that this program writes and reads.
    pub const FORMAT: u32 = 1;

    /// Reads a report that a run has written.
    ///
    /// # Errors
    /// [`ProbeError::Report`] for any other bytes; `name` is what they came from.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Report, ProbeError> {
        let refuse = |why: String| ProbeError::Report { path: name.into(), why };
        // The format first: another one may have other fields.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } =
            serde_json::from_slice(bytes).map_err(|e| refuse(format!("not a report of a probe: {e}")))?;
        if format != Report::FORMAT {
            return Err(refuse(format!("a report of format {format}; this program reads {}", Report::FORMAT)));
        }
        serde_json::from_slice(bytes).map_err(|e| refuse(e.to_string()))
    }

    /// Draws the conclusions from the experiments: claims, verdict, advice.
    pub(crate) fn conclude(&mut self) {
        self.claims = claims::judge(self);
        self.services = verdict::rate(self);
        self.advice = advice::advise(self);
    }

    /// An experiment's result.
    #[must_use]
    pub fn experiment(&self, id: &str) -> Option<&Outcome> {
        self.experiments.iter().find(|e| e.id == id)
    }

    /// A group by its full name, `force/method`.
    #[must_use]
    pub fn group(&self, group: &str) -> Option<&Group> {
        let (experiment, _) = group.split_once('/')?;
        self.experiment(experiment)?.groups.iter().find(|g| g.id == group)
    }

    /// One value by group, series and place on the axis.
    #[must_use]
    pub fn value(&self, group: &str, series: &str, x: Option<f64>) -> Option<&Value> {
        let points = &self.group(group)?.points;
        points.iter().find(|p| p.series == series && p.x == x).map(|p| &p.value)
    }

    /// The median of a value, if it was measured and is not noisy.
    #[must_use]
    pub fn median(&self, group: &str, series: &str, x: Option<f64>) -> Option<f64> {
        self.value(group, series, x)?.median
    }

    /// A fact by experiment and name.
    #[must_use]
    pub fn fact(&self, experiment: &str, name: &str) -> Option<&str> {
        let fact = self.experiment(experiment)?.facts.iter().find(|f| f.name == name)?;
        Some(&fact.value)
    }
}

/// What one experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub id: String,
    /// What it asked.
    pub title: String,
    /// Where in the paper.
    pub section: String,
    /// Whether it is whole.
    pub status: Status,
    /// How long it took.
    pub seconds: f64,
    /// What it measured.
    pub groups: Vec<Group>,
    /// What it found without measuring.
    pub facts: Vec<Fact>,
    /// What it could not measure, and why.
    pub skipped: Vec<Skip>,
}

/// How an experiment ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything was tried.
    Whole,
    /// It ended early, for this reason.
    Partial(String),
    /// It did not begin, for this reason.
    Skipped(String),
}

/// Values that belong in one plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Experiment and name: `force/method`.
    pub id: String,
    /// What is shown.
    pub title: String,
    /// What the x values are; without an axis the series are compared.
    pub x: Option<Axis>,
    /// What the values are.
    pub unit: Unit,
    /// Which values are good.
    pub better: Better,
    /// What it says, in a sentence.
    pub says: String,
    /// The values.
    pub points: Vec<Point>,
}

/// An axis of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What it counts.
    pub label: String,
    /// In what.
    pub unit: Unit,
}

/// One value at its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was measured.
    pub series: String,
    /// Where on the axis.
    pub x: Option<f64>,
    /// The value.
    pub value: Value,
}

/// A measured value with its spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The median; absent when the value is noisy.
    pub median: Option<f64>,
    /// Lower end of the median's 95 % confidence interval.
    pub low: f64,
    /// Upper end of the median's 95 % confidence interval.
    pub high: f64,
    /// A tenth of the runs were at or below.
    pub p10: f64,
    /// Nine tenths of the runs were at or below.
    pub p90: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Runs.
    pub run_count: u64,
    /// Why it is noisy, if it is.
    pub noisy: Option<String>,
    /// What all runs together took from the processors.
    pub usage: Usage,
}

/// Time and context switches of all runs of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time.
    pub wall_ns: u64,
    /// Processor time in user mode, of all threads and children.
    pub user_ns: u64,
    /// Processor time in the kernel.
    pub system_ns: u64,
    /// Times that a thread slept.
    pub voluntary_switches: u64,
    /// Times that a thread was made to wait for others.
    pub involuntary_switches: u64,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Time.
    Nanoseconds,
    /// Size.
    Bytes,
    /// Size by time.
    BytesPerSecond,
    /// Events by time.
    PerSecond,
    /// A plain number.
    Count,
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Times.
    Lower,
    /// Rates.
    Higher,
    /// Neither is.
    Neither,
}

/// Something found without measuring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What.
    pub name: String,
    /// How it is here.
    pub value: String,
    /// What follows from it.
    pub means: String,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// What.
    pub what: String,
    /// Why not, and what it would need.
    pub why: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::Mount;

    /// A run in which nothing was measured.
    pub(crate) fn empty_report() -> Report {
        Report {
            format: Report::FORMAT,
            version: "0".into(),
            started_unix_s: 0,
            seconds: 1.0,
            effort: Effort::Quick,
            stopped: None,
            machine: Machine {
                processor: "test".into(),
                processor_count: 2,
                is_virtual: false,
                governor: "unknown".into(),
                memory_bytes: 1 << 30,
                memory_limit_bytes: None,
                kernel: "6.0".into(),
                mount: Mount { kind: "ext4".into(), ..Mount::default() },
                device: None,
            },
            clock: Clock { source: "test".into(), resolution_ns: 1, null_ns: 1.0, is_coarse: false },
            experiments: Vec::new(),
            claims: Vec::new(),
            services: Vec::new(),
            advice: Vec::new(),
        }
    }

    /// Puts a quiet value into a report.
    pub(crate) fn put(report: &mut Report, group: &str, series: &str, x: Option<f64>, median: f64) {
        let experiment = group.split_once('/').map_or(group, |(experiment, _)| experiment);
        if report.experiment(experiment).is_none() {
            report.experiments.push(Outcome {
                id: experiment.into(),
                title: "test".into(),
                section: "0".into(),
                status: Status::Whole,
                seconds: 1.0,
                groups: Vec::new(),
                facts: Vec::new(),
                skipped: Vec::new(),
            });
        }
        for outcome in report.experiments.iter_mut().filter(|e| e.id == experiment) {
            if !outcome.groups.iter().any(|g| g.id == group) {
                outcome.groups.push(Group {
                    id: group.into(),
                    title: "test".into(),
                    x: x.map(|_| Axis { label: "x".into(), unit: Unit::Bytes }),
                    unit: Unit::Nanoseconds,
                    better: Better::Lower,
                    says: String::new(),
                    points: Vec::new(),
                });
            }
            let value = Value {
                median: Some(median),
                low: median,
                high: median,
                p10: median,
                p90: median,
                min: median,
                max: median,
                run_count: 9,
                noisy: None,
                usage: Usage::default(),
            };
            for group in outcome.groups.iter_mut().filter(|g| g.id == group) {
                group.points.push(Point { series: series.into(), x, value: value.clone() });
            }
        }
    }

    #[test]
    fn a_report_survives_being_written_and_read() {
        let mut report = empty_report();
        put(&mut report, "force/method", "x", Some(4096.0), 100.5);
        report.conclude();
        let text = serde_json::to_vec(&report).expect("JSON");
        let read = Report::read("test", &text).expect("a report");
        assert_eq!(serde_json::to_vec(&read).expect("JSON"), text);
        assert_eq!(read.median("force/method", "x", Some(4096.0)), Some(100.5));
    }

    #[test]
    fn other_files_and_other_formats_are_refused_by_name() {
        for (bytes, words) in [
            (&b"not JSON"[..], "not a report of a probe"),
            (b"{}", "format"),
            (b"{\"format\": 7}", "format 7"),
            (b"{\"format\": 1}", "missing field"),
        ] {
            let said = Report::read("a.json", bytes).expect_err("refused").to_string();
            assert!(said.starts_with("a.json: ") && said.contains(words), "{said}");
        }
    }
}
