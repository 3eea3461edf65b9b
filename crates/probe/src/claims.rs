//! The paper's claims, K1 to K22, judged by what was measured here.
//!
//! A claim is judged only by values that are not noisy. What is missing is named, with the reason: not measurable here
//! is an answer, a guess is none.

use serde::{Deserialize, Serialize};

use crate::report::{Report, Status, Unit};
use crate::retake::Spot;
use crate::show::quantity;

/// How a claim fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is as the paper says.
    Holds,
    /// It is otherwise here.
    NoLongerHolds,
    /// It cannot be told here, for the reason that stands with it.
    NotMeasurable,
}

impl Standing {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::NoLongerHolds => "no longer holds",
            Standing::NotMeasurable => "not measurable here",
        }
    }
}

/// A claim with what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `K1` to `K22`.
    pub id: String,
    /// Where in the paper.
    pub section: String,
    /// What the paper says.
    pub paper: String,
    /// What was measured here, or why nothing was.
    pub here: String,
    /// How it fares.
    pub standing: Standing,
    /// The values it was judged by: group, series and place on the axis.
    pub based_on: Vec<String>,
}

struct Claim {
    id: &'static str,
    section: &'static str,
    paper: &'static str,
    /// Whether it holds and what was measured; none if something was missing, which [`Ask`] then knows.
    judge: fn(&mut Ask<'_>) -> Option<(bool, String)>,
}

/// Judges all claims.
#[must_use]
pub fn judge(report: &Report) -> Vec<Finding> {
    CLAIMS
        .iter()
        .map(|claim| {
            let mut ask = Ask::new(report);
            let judged = (claim.judge)(&mut ask);
            let (standing, here) = match judged {
                Some((true, here)) => (Standing::Holds, here),
                Some((false, here)) => (Standing::NoLongerHolds, here),
                None => (Standing::NotMeasurable, ask.missing.unwrap_or_else(|| "nothing was measured".into())),
            };
            Finding {
                id: claim.id.into(),
                section: claim.section.into(),
                paper: claim.paper.into(),
                here,
                standing,
                based_on: ask.used,
            }
        })
        .collect()
}

/// Asks a report for values, and remembers what was used and what was missing.
pub(crate) struct Ask<'a> {
    report: &'a Report,
    pub(crate) used: Vec<String>,
    pub(crate) missing: Option<String>,
    /// Values that were found, but decide nothing yet: too close to a border.
    pub(crate) undecided: Vec<Spot>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(report: &'a Report) -> Ask<'a> {
        Ask { report, used: Vec::new(), missing: None, undecided: Vec::new() }
    }

    pub(crate) fn report(&self) -> &'a Report {
        self.report
    }

    /// A median without an axis.
    pub(crate) fn get(&mut self, group: &str, series: &str) -> Option<f64> {
        self.at(group, series, None)
    }

    /// A median at a place on the axis.
    pub(crate) fn at(&mut self, group: &str, series: &str, x: Option<f64>) -> Option<f64> {
        let name = self.name(group, series, x);
        match self.report.value(group, series, x) {
            Some(value) if value.median.is_some() => {
                if !self.used.contains(&name) {
                    self.used.push(name);
                }
                value.median
            }
            Some(value) => {
                let why = value.noisy.as_deref().unwrap_or("noisy");
                self.missing.get_or_insert(format!("{name} is noisy: {why}"));
                None
            }
            None => {
                let why = self.why_not(group, series);
                self.missing.get_or_insert(format!("{name} was not measured: {why}"));
                None
            }
        }
    }

    /// The confidence interval of a median at a place on the axis.
    pub(crate) fn interval(&mut self, group: &str, series: &str, x: Option<f64>) -> Option<(f64, f64)> {
        self.at(group, series, x)?;
        self.report.value(group, series, x).map(|value| (value.low, value.high))
    }

    /// Notes that a value should be known more narrowly.
    pub(crate) fn is_undecided(&mut self, group: &str, series: &str, x: Option<f64>) {
        self.undecided.push(Spot { group: group.into(), series: series.into(), x });
    }

    /// The median at the largest place on the axis that has one, and the place.
    pub(crate) fn largest(&mut self, group: &str, series: &str) -> Option<(f64, f64)> {
        let xs = self.report.group(group).into_iter().flat_map(|g| &g.points);
        let x =
            xs.filter(|p| p.series == series && p.value.median.is_some()).filter_map(|p| p.x).max_by(f64::total_cmp);
        match x {
            Some(x) => Some((x, self.at(group, series, Some(x))?)),
            None => {
                self.at(group, series, None)?;
                None
            }
        }
    }

    /// The median at the smallest place on the axis that has one, and the place.
    pub(crate) fn smallest(&mut self, group: &str, series: &str) -> Option<(f64, f64)> {
        let xs = self.report.group(group).into_iter().flat_map(|g| &g.points);
        let x =
            xs.filter(|p| p.series == series && p.value.median.is_some()).filter_map(|p| p.x).min_by(f64::total_cmp);
        match x {
            Some(x) => Some((x, self.at(group, series, Some(x))?)),
            None => {
                self.at(group, series, None)?;
                None
            }
        }
    }

    pub(crate) fn fact(&mut self, experiment: &str, name: &str) -> Option<&'a str> {
        let fact = self.report.fact(experiment, name);
        match fact {
            Some(_) => self.used.push(format!("{experiment}: {name}")),
            None => {
                let why = self.why_not(&format!("{experiment}/"), name);
                self.missing.get_or_insert(format!("{experiment}: {name} was not found out: {why}"));
            }
        }
        fact
    }

    fn name(&self, group: &str, series: &str, x: Option<f64>) -> String {
        let unit = self.report.group(group).and_then(|g| g.x.as_ref()).map(|axis| axis.unit);
        match (x, unit) {
            (Some(x), Some(unit)) => format!("{group}: {series}, {}", quantity(unit, x)),
            (Some(x), None) => format!("{group}: {series}, {x}"),
            (None, _) => format!("{group}: {series}"),
        }
    }

    fn why_not(&self, group: &str, series: &str) -> String {
        let (experiment, local) = group.split_once('/').unwrap_or((group, ""));
        let Some(outcome) = self.report.experiment(experiment) else {
            return format!("the experiment {experiment} was not run");
        };
        let of_series = |s: &&crate::report::Skip| s.what.starts_with(&format!("{local}: {series}"));
        let skip = outcome.skipped.iter().find(of_series).or(outcome.skipped.first());
        match (&outcome.status, skip) {
            (_, Some(skip)) if skip.what.contains(series) => skip.why.clone(),
            (Status::Partial(why) | Status::Skipped(why), _) => why.clone(),
            (Status::Whole, Some(skip)) => format!("{}: {}", skip.what, skip.why),
            (Status::Whole, None) => "not at this effort".into(),
        }
    }
}

fn us(ns: f64) -> String {
    quantity(Unit::Nanoseconds, ns)
}

fn mibs(rate: f64) -> String {
    quantity(Unit::BytesPerSecond, rate)
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * 1024.0;

const CLAIMS: [Claim; 22] = [
    Claim {
        id: "K1",
        section: "4.1",
        paper: "Opening, mapping and closing a file take the same time at any size; unmapping grows with it.",
        judge: |ask| {
            let mut growth = |step| {
                let ((_, small), (_, large)) = (ask.smallest("bind/step", step)?, ask.largest("bind/step", step)?);
                Some((large / small, small, large))
            };
            let (open, map, unmap) = (growth("open")?, growth("map")?, growth("unmap")?);
            let here = format!(
                "from the smallest to the largest file: open {} to {}, map {} to {}, unmap {} to {}",
                us(open.1),
                us(open.2),
                us(map.1),
                us(map.2),
                us(unmap.1),
                us(unmap.2)
            );
            Some((open.0 < 8.0 && map.0 < 8.0 && unmap.0 > 8.0, here))
        },
    },
    Claim {
        id: "K2",
        section: "4.1",
        paper: "The first touch of a mapped page is slower than the second.",
        judge: |ask| {
            let (size, first) = ask.largest("bind/step", "first touch")?;
            let second = ask.at("bind/step", "second touch", Some(size))?;
            let here = format!(
                "{} against {} for {}: {:.1} times",
                us(first),
                us(second),
                quantity(Unit::Bytes, size),
                first / second
            );
            Some((first > 1.2 * second, here))
        },
    },
    Claim {
        id: "K3",
        section: "4.1",
        paper: "In all, mapped and unmapped use of a file cost the same.",
        judge: |ask| {
            let (size, mapped) = ask.largest("bind/total", "mapped, msync")?;
            let unmapped = ask.at("bind/total", "read, write, fdatasync", Some(size))?;
            let here = format!("{} mapped, {} unmapped for {}", us(mapped), us(unmapped), quantity(Unit::Bytes, size));
            Some(((mapped / unmapped - 1.0).abs() < 0.25, here))
        },
    },
    Claim {
        id: "K4",
        section: "4.2",
        paper: "Hints help sequential reads of unmapped files.",
        judge: |ask| {
            let plain = ask.get("strategy/sequential", "read, no advice")?;
            let hinted = ask.get("strategy/sequential", "read, SEQUENTIAL")?;
            let here = format!("{} with the hint, {} without", mibs(hinted), mibs(plain));
            Some((hinted > 1.1 * plain, here))
        },
    },
    Claim {
        id: "K5",
        section: "4.2",
        paper: "Mapped reads ignore the hints.",
        judge: |ask| {
            let plain = ask.get("strategy/sequential", "mapped, no advice")?;
            let sequential = ask.get("strategy/sequential", "mapped, SEQUENTIAL")?;
            let random = ask.get("strategy/sequential", "mapped, RANDOM")?;
            let here =
                format!("in order: {} without, {} sequential, {} random", mibs(plain), mibs(sequential), mibs(random));
            Some(((sequential / plain - 1.0).abs() < 0.2 && random > 0.8 * plain, here))
        },
    },
    Claim {
        id: "K6",
        section: "4.2",
        paper: "Reads through a mapping are ten times faster than unmapped ones: no copy is made.",
        judge: |ask| {
            let page = ask.at("strategy/warm", "mapped", Some(4.0 * KIB))?
                / ask.at("strategy/warm", "read", Some(4.0 * KIB))?;
            let chunk = ask.at("strategy/warm", "mapped", Some(64.0 * KIB))?
                / ask.at("strategy/warm", "read", Some(64.0 * KIB))?;
            Some((page >= 8.0, format!("warm: {page:.1} times by 4 KiB, {chunk:.1} times by 64 KiB")))
        },
    },
    Claim {
        id: "K7",
        section: "4.3",
        paper: "A database cannot give its own prefetching advice for random access, though only it knows what comes.",
        judge: |ask| {
            let plain = ask.get("strategy/pages", "read, no advice")?;
            let asked = ask.get("strategy/pages", "read, asked for ahead (WILLNEED)")?;
            let here = format!("random 4 KiB: {} plain, {} when the application asks ahead", mibs(plain), mibs(asked));
            Some((asked < 1.3 * plain, here))
        },
    },
    Claim {
        id: "K8",
        section: "5.2",
        paper: "Fragments make a sequential scan up to 800 times longer.",
        judge: |ask| {
            let (_, near) = ask.smallest("locality/scan", "written piece by piece, direct")?;
            let (gap, far) = ask.largest("locality/scan", "written piece by piece, direct")?;
            let (_, pieces) = ask.largest("locality/pieces", "written piece by piece")?;
            let here = format!(
                "{} without gaps, {} with gaps of {} in {pieces:.0} pieces: {:.1} times",
                us(near),
                us(far),
                quantity(Unit::Bytes, gap),
                far / near
            );
            Some((far > 10.0 * near, here))
        },
    },
    Claim {
        id: "K9",
        section: "5.1",
        paper: "A file system costs about 2 % against the raw device.",
        judge: |ask| {
            let x = Some(64.0 * KIB);
            let file = ask.at("locality/device", "file", x)?;
            // Where the device below may not be read, a loop device over the file stands for it.
            let has_device = ask.report().value("locality/device", "device", x).is_some();
            let series = if has_device { "device" } else { "loop device" };
            let device = ask.at("locality/device", series, x)?;
            let cost = (device / file - 1.0) * 100.0;
            Some((cost < 5.0, format!("{} by file, {} by {series}: {cost:.1} %", mibs(file), mibs(device))))
        },
    },
    Claim {
        id: "K10",
        section: "5.4",
        paper: "Filling new space with zeros is left to the application.",
        judge: |ask| {
            let zeros = ask.get("locality/grow", "zeros written")?;
            let fallocate = ask.get("locality/grow", "fallocate")?;
            let here = format!("fallocate gives 1 MiB of zeros in {}, writing them takes {}", us(fallocate), us(zeros));
            Some((false, here))
        },
    },
    Claim {
        id: "K11",
        section: "6.1",
        paper: "A thread switch costs ten fiber switches, a fiber switch ten calls; a call into a library costs a call.",
        judge: |ask| {
            let call = ask.get("schedule/switch", "call")?;
            let library = ask.get("schedule/switch", "call into a dynamic library")?;
            let fiber = ask.get("schedule/switch", "user-mode switch")?;
            let thread = ask.get("schedule/switch", "thread switch, same processor")?;
            let here =
                format!("call {}, library {}, fiber {}, thread {}", us(call), us(library), us(fiber), us(thread));
            let ten = |ratio: f64| (4.0..25.0).contains(&ratio);
            Some((ten(thread / fiber) && ten(fiber / call) && library < 2.0 * call, here))
        },
    },
    Claim {
        id: "K12",
        section: "6.2",
        paper: "Scheduling in user mode gains around 5 % under load.",
        judge: |ask| {
            let threads = ask.at("schedule/work", "threads", Some(10_000.0))?;
            let fibers = ask.at("schedule/work", "user-mode switches", Some(10_000.0))?;
            let gain = (fibers / threads - 1.0) * 100.0;
            Some(((2.0..10.0).contains(&gain), format!("{gain:.1} % for requests of 10 us")))
        },
    },
    Claim {
        id: "K13",
        section: "7.1",
        paper: "Shared memory is nearly as fast as a call in the process, and faster beyond 64 KB.",
        judge: |ask| {
            let call = ask.at("message/same", "call in the process, with a copy", Some(8.0 * KIB))?;
            let shared = ask.at("message/same", "shared memory, futex", Some(8.0 * KIB))?;
            let (large_call, large) = (
                ask.at("message/same", "call in the process, with a copy", Some(256.0 * KIB))?,
                ask.at("message/same", "shared memory, futex", Some(256.0 * KIB))?,
            );
            let here = format!(
                "8 KiB: {} against {}; 256 KiB: {} against {}",
                us(shared),
                us(call),
                us(large),
                us(large_call)
            );
            Some((shared < 2.0 * call && large < large_call, here))
        },
    },
    Claim {
        id: "K14",
        section: "7.1",
        paper: "Of what the kernel offers the pipe is the fastest and TCP the slowest.",
        judge: |ask| {
            let x = Some(8.0 * KIB);
            let pipe = ask.at("message/same", "pipe", x)?;
            let unix = ask.at("message/same", "Unix stream", x)?;
            let tcp = ask.at("message/same", "TCP", x)?;
            let here = format!("8 KiB on one processor: pipe {}, Unix stream {}, TCP {}", us(pipe), us(unix), us(tcp));
            Some((pipe <= unix * 1.05 && tcp > pipe && tcp > unix, here))
        },
    },
    Claim {
        id: "K15",
        section: "7.1",
        paper: "Messages larger than a pipe's buffer are slow; a larger buffer halves the cost.",
        judge: |ask| {
            let small = ask.at("message/buffer", "pipe", Some(64.0 * KIB))?;
            let large = ask.at("message/buffer", "pipe", Some(MIB))?;
            Some((
                large < 0.6 * small,
                format!("256 KiB: {} with 64 KiB of buffer, {} with 1 MiB", us(small), us(large)),
            ))
        },
    },
    Claim {
        id: "K16",
        section: "7.1",
        paper: "Larger buffers of TCP sockets make short conversations slower, not faster.",
        judge: |ask| {
            let small = ask.at("message/buffer", "TCP", Some(64.0 * KIB))?;
            let large = ask.at("message/buffer", "TCP", Some(MIB))?;
            Some((
                large > 1.05 * small,
                format!("256 KiB: {} with 64 KiB of buffer, {} with 1 MiB", us(small), us(large)),
            ))
        },
    },
    Claim {
        id: "K17",
        section: "7.1",
        paper: "Connecting costs most by TCP.",
        judge: |ask| {
            let tcp = ask.get("message/step", "TCP: connect")?;
            let fifo = ask.get("message/step", "FIFO: connect")?;
            let unix = ask.get("message/step", "Unix stream: connect")?;
            let memory = ask.get("message/step", "shared memory: connect")?;
            let here =
                format!("TCP {}, FIFO {}, Unix stream {}, shared memory {}", us(tcp), us(fifo), us(unix), us(memory));
            Some((tcp > fifo && tcp > unix && tcp > memory, here))
        },
    },
    Claim {
        id: "K18",
        section: "8.2",
        paper: "A lock in user mode is 9 % (read) and 68 % (write) cheaper than one of the file system.",
        judge: |ask| {
            let (file_read, file_write) =
                (ask.get("lock/alone", "fcntl, read")?, ask.get("lock/alone", "fcntl, write")?);
            let read = ask.get("lock/alone", "bare futex rwlock, read")?;
            let write = ask.get("lock/alone", "bare futex rwlock, write")?;
            let percent = |file: f64, bare: f64| (1.0 - bare / file) * 100.0;
            let here = format!(
                "read {} against {} ({:.0} % cheaper), write {} against {} ({:.0} %)",
                us(read),
                us(file_read),
                percent(file_read, read),
                us(write),
                us(file_write),
                percent(file_write, write)
            );
            Some((percent(file_read, read) >= 9.0 && percent(file_write, write) >= 68.0, here))
        },
    },
    Claim {
        id: "K19",
        section: "8.2",
        paper: "During 5,000 write locks another thread gets 4,567 read locks in user mode, and 13 of the file system.",
        judge: |ask| {
            let file = ask.get("lock/against", "fcntl")?;
            let bare = ask.get("lock/against", "bare futex rwlock")?;
            let here = format!("{bare:.0} of the bare lock, {file:.0} by fcntl");
            Some((bare > 10.0 * file, here))
        },
    },
    Claim {
        id: "K20",
        section: "8.1",
        paper: "An unmapped file can only be forced out as a whole.",
        judge: |ask| {
            let (pages, whole) = ask.largest("force/dirty", "write, fdatasync")?;
            let one = ask.at("force/dirty", "RWF_DSYNC", Some(pages))?;
            let here = format!(
                "with {pages:.0} dirty pages elsewhere: fdatasync {}, RWF_DSYNC of one page {}",
                us(whole),
                us(one)
            );
            Some((one > 0.5 * whole, here))
        },
    },
    Claim {
        id: "K21",
        section: "8.1",
        paper: "The kernel may write a mapped page before the log allows it, and nothing can hold it back.",
        judge: |ask| {
            let fact = ask.fact("force", "a dirty page of a mapping")?;
            Some((fact != "held back", format!("a page that its application did not sync was {fact}")))
        },
    },
    Claim {
        id: "K22",
        section: "4.3, 5.5",
        paper: "Scatter/gather with asynchronous input and output beats both mapped and unmapped files.",
        judge: |ask| {
            let (depth, rate) = ask.largest("device/depth", "random read")?;
            let mapped = ask.get("strategy/pages", "mapped, no advice")?;
            let unmapped = ask.get("strategy/pages", "read, no advice")?;
            let bytes = rate * 4.0 * KIB;
            let here = format!(
                "random 4 KiB, cold: {} direct at depth {depth:.0}, {} mapped, {} read",
                mibs(bytes),
                mibs(mapped),
                mibs(unmapped)
            );
            Some((bytes > mapped && bytes > unmapped, here))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::empty_report;

    #[test]
    fn every_claim_of_the_paper_is_there_once_and_says_why_it_is_not_measured() {
        let findings = judge(&empty_report());
        let ids: Vec<_> = findings.iter().map(|f| f.id.clone()).collect();
        assert_eq!(ids, (1..=22).map(|no| format!("K{no}")).collect::<Vec<_>>());
        for finding in findings {
            assert_eq!(finding.standing, Standing::NotMeasurable, "{finding:?}");
            assert!(finding.here.contains("was not run"), "{finding:?}");
        }
    }
}
