//! The verdict: the paper's table 10.1 for this machine.
//!
//! Each service has criteria that were measured or tried. Its rating is how many of those known it meets; a service of
//! which less than half is known is not rated. What is not met is what could be better.

use serde::{Deserialize, Serialize};

use crate::claims::Ask;
use crate::report::Report;

/// How well a service suits a transactional system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    /// Too little is known.
    Unknown,
    /// Less than a quarter of the criteria are met.
    Poor,
    /// Less than half.
    Fair,
    /// Less than three quarters.
    Good,
    /// Not all.
    VeryGood,
    /// All.
    Excellent,
}

impl Rating {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Rating::Unknown => "not rated",
            Rating::Poor => "poor",
            Rating::Fair => "fair",
            Rating::Good => "good",
            Rating::VeryGood => "very good",
            Rating::Excellent => "excellent",
        }
    }

    fn of(met: usize, known: usize, all: usize) -> Rating {
        match (met, known) {
            _ if known * 2 < all || known == 0 => Rating::Unknown,
            (met, known) if met == known => Rating::Excellent,
            (met, known) if met * 4 >= known * 3 => Rating::VeryGood,
            (met, known) if met * 2 >= known => Rating::Good,
            (met, known) if met * 4 >= known => Rating::Fair,
            _ => Rating::Poor,
        }
    }
}

/// A service with its rating and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What it is.
    pub name: String,
    /// What the paper said of Windows 2000.
    pub paper: String,
    /// What is said here.
    pub rating: Rating,
    /// What was found that suits.
    pub good: Vec<String>,
    /// What was found that does not.
    pub lacking: Vec<String>,
    /// What could not be told.
    pub unknown: Vec<String>,
}

/// One thing that a service should have: its words when it has it, when it has not, and how to know.
struct Criterion {
    good: &'static str,
    lacking: &'static str,
    met: fn(&mut Ask<'_>) -> Option<bool>,
}

const KIB: f64 = 1024.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

const fn criterion(good: &'static str, lacking: &'static str, met: fn(&mut Ask<'_>) -> Option<bool>) -> Criterion {
    Criterion { good, lacking, met }
}

const SERVICES: [(&str, &str, &[Criterion]); 7] = [
    (
        "buffering",
        "poor",
        &[
            criterion(
                "using a mapped file costs in all at most a quarter more than reading and writing it",
                "using a mapped file costs in all over a quarter more than reading and writing it",
                |a| {
                    let (size, mapped) = a.largest("bind/total", "mapped, msync")?;
                    Some(mapped < 1.25 * a.at("bind/total", "read, write, fdatasync", Some(size))?)
                },
            ),
            criterion(
                "an application that asks ahead for random pages is heard",
                "asking ahead for random pages gains less than a third",
                |a| {
                    let plain = a.get("strategy/pages", "read, no advice")?;
                    Some(a.get("strategy/pages", "read, asked for ahead (WILLNEED)")? > 1.3 * plain)
                },
            ),
            criterion(
                "direct requests at depth are faster than the cache's reads: an engine can have its own buffers",
                "direct requests at depth are slower than reads through the cache",
                |a| {
                    let (_, rate) = a.largest("device/depth", "random read")?;
                    Some(rate * 4.0 * KIB > a.get("strategy/pages", "read, no advice")?)
                },
            ),
            criterion(
                "the write-back of a mapping can be held back",
                "nothing can order a mapping's write-back: reads through it are fast, a log ahead of it is impossible",
                |a| Some(a.fact("force", "a dirty page of a mapping")? == "held back"),
            ),
        ],
    ),
    (
        "file system",
        "good",
        &[
            criterion("it costs less than 5 % against the device", "it costs more than 5 % against the device", |a| {
                let has_device = a.report().value("locality/device", "device", Some(64.0 * KIB)).is_some();
                let series = if has_device { "device" } else { "loop device" };
                let device = a.at("locality/device", series, Some(64.0 * KIB))?;
                Some(device / a.at("locality/device", "file", Some(64.0 * KIB))? < 1.05)
            }),
            criterion("preallocation keeps a file in few pieces", "preallocation does not keep a file together", |a| {
                Some(a.largest("locality/pieces", "preallocated")?.1 <= 4.0)
            }),
            criterion(
                "it gives zeroed space without writing zeros",
                "new space is not cheaper than writing zeros",
                |a| Some(a.get("locality/grow", "fallocate")? < a.get("locality/grow", "zeros written")?),
            ),
            criterion("it does direct input and output", "it has no direct input and output", |a| {
                Some(!matches!(a.fact("domains", "direct I/O")?, "none"))
            }),
        ],
    ),
    (
        "scheduling",
        "very good",
        &[
            criterion(
                "thousands of idle threads do not slow a switch",
                "idle threads slow a switch by more than a fifth",
                |a| {
                    let (_, many) = a.largest("schedule/idle", "thread switch, same processor")?;
                    Some(many < 1.2 * a.smallest("schedule/idle", "thread switch, same processor")?.1)
                },
            ),
            criterion(
                "a thread switch on one processor takes less than 5 us",
                "a thread switch on one processor takes more than 5 us",
                |a| Some(a.get("schedule/switch", "thread switch, same processor")? < 5_000.0),
            ),
            criterion(
                "waking a thread on another processor takes less than 10 us",
                "waking a thread on another processor takes more than 10 us: placement and spinning matter",
                |a| Some(a.get("schedule/wake", "futex, other processor")? < 10_000.0),
            ),
            criterion(
                "an engine's own scheduler would gain less than a tenth for requests of 10 us",
                "an engine's own scheduler would gain more than a tenth for requests of 10 us",
                |a| {
                    let threads = a.at("schedule/work", "threads", Some(10_000.0))?;
                    Some(a.at("schedule/work", "user-mode switches", Some(10_000.0))? < 1.1 * threads)
                },
            ),
        ],
    ),
    (
        "messages",
        "excellent",
        &[
            criterion(
                "8 KiB through shared memory and back take less than 10 us on one processor",
                "8 KiB through shared memory and back take more than 10 us on one processor",
                |a| Some(a.at("message/same", "shared memory, futex", Some(8.0 * KIB))? < 10_000.0),
            ),
            criterion(
                "the kernel carries 8 KiB there and back in less than 20 us on one processor",
                "the kernel needs more than 20 us for 8 KiB there and back on one processor",
                |a| Some(a.at("message/same", "Unix stream", Some(8.0 * KIB))? < 20_000.0),
            ),
            criterion(
                "to another processor and back it is less than 30 us",
                "to another processor and back it is more than 30 us: the wake-ups cost more than the message",
                |a| Some(a.at("message/other", "Unix stream", Some(8.0 * KIB))? < 30_000.0),
            ),
            criterion("256 KiB move at more than 1 GiB/s", "256 KiB move at less than 1 GiB/s", |a| {
                Some(2.0 * 256.0 * KIB * 1e9 / a.at("message/same", "Unix stream", Some(256.0 * KIB))? > GIB)
            }),
        ],
    ),
    (
        "consistency",
        "poor",
        &[
            criterion("one page can be forced out alone", "forcing out one page forces out the file", |a| {
                let (pages, whole) = a.largest("force/dirty", "write, fdatasync")?;
                Some(a.at("force/dirty", "RWF_DSYNC", Some(pages))? < 0.5 * whole)
            }),
            criterion(
                "a durable write of 4 KiB takes less than a millisecond",
                "a durable write of 4 KiB takes more than a millisecond",
                |a| Some(a.at("force/method", "RWF_DSYNC", Some(4.0 * KIB))? < 1e6),
            ),
            criterion(
                "writes of 16 KiB are whole or not at all",
                "writes of 16 KiB may tear: pages need a copy or their image in the log",
                |a| Some(a.fact("force", "a write of 16 KiB")? == "whole or not at all"),
            ),
            criterion(
                "locks of the file system cost less than ten times those in memory",
                "locks of the file system cost more than ten times those in memory",
                |a| {
                    Some(
                        a.get("lock/alone", "fcntl, write")?
                            < 10.0 * a.get("lock/alone", "bare futex rwlock, write")?,
                    )
                },
            ),
            criterion("no lock starves its readers", "some locks starve their readers under a writer", |a| {
                Some(a.fact("lock", "readers starved by a writer")? == "none")
            }),
        ],
    ),
    (
        "security",
        "very good",
        &[
            criterion("a server knows its local client's user", "a server does not learn its client's user", |a| {
                Some(a.fact("domains", "peer credentials")?.starts_with("told"))
            }),
            criterion("a server can give up its view of the system without root", "user namespaces are refused", |a| {
                Some(a.fact("domains", "user namespaces")? == "allowed")
            }),
            criterion("the file system can encrypt", "the file system does not encrypt", |a| {
                Some(!a.fact("domains", "encryption by the file system")?.starts_with("not"))
            }),
            criterion("one processor encrypts more than 1 GiB/s", "one processor encrypts less than 1 GiB/s", |a| {
                Some(a.at("domains/bytes", "AES-128-GCM, as in TLS", Some(16384.0))? > GIB)
            }),
        ],
    ),
    (
        "monitoring",
        "very good",
        &[
            criterion("the processor's counters can be read", "the processor's counters cannot be read", |a| {
                Some(a.fact("domains", "hardware counters")? == "available")
            }),
            criterion("the kernel's counters can be read", "the kernel's counters cannot be read", |a| {
                Some(a.fact("domains", "kernel counters")? == "available")
            }),
            criterion("the kernel tells where processes wait", "the kernel does not tell where processes wait", |a| {
                Some(a.fact("domains", "pressure, io")? != "not available")
            }),
        ],
    ),
];

/// Rates the services.
#[must_use]
pub fn rate(report: &Report) -> Vec<Service> {
    SERVICES
        .iter()
        .map(|(name, paper, criteria)| {
            let (mut good, mut lacking, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
            for criterion in *criteria {
                let mut ask = Ask::new(report);
                match (criterion.met)(&mut ask) {
                    Some(true) => good.push(criterion.good.to_owned()),
                    Some(false) => lacking.push(criterion.lacking.to_owned()),
                    None => unknown.push(format!("whether {} ({})", criterion.good, ask.missing.unwrap_or_default())),
                }
            }
            let rating = Rating::of(good.len(), good.len() + lacking.len(), criteria.len());
            Service { name: (*name).into(), paper: (*paper).into(), rating, good, lacking, unknown }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::empty_report;

    #[test]
    fn ratings_follow_the_part_of_the_criteria_that_is_met() {
        assert_eq!(Rating::of(4, 4, 4), Rating::Excellent);
        assert_eq!(Rating::of(3, 4, 4), Rating::VeryGood);
        assert_eq!(Rating::of(2, 4, 4), Rating::Good);
        assert_eq!(Rating::of(1, 4, 4), Rating::Fair);
        assert_eq!(Rating::of(0, 4, 4), Rating::Poor);
        assert_eq!(Rating::of(1, 1, 4), Rating::Unknown, "one of four known says nothing");
    }

    #[test]
    fn nothing_measured_is_nothing_rated() {
        let services = rate(&empty_report());
        assert_eq!(services.len(), 7);
        assert!(services.iter().all(|s| s.rating == Rating::Unknown && s.good.is_empty() && s.lacking.is_empty()));
    }
}
