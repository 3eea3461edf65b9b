//! What the engine does, measured: TPC-B as LIBTP ran it (5.1), and one experiment for each figure of
//! `docs/benchmarks.md`.
//!
//! Times are measured and reported here and asserted nowhere: a slow machine is not a failure. What is asserted are
//! facts about the data: that balances agree, that no acknowledged commit is missing.
//!
//! An experiment is a file with its arguments (clap), a `run` that returns a report, and the report as text and JSON.
//! It knows the library's public interface only.
#![forbid(unsafe_code)]

pub mod cold;
pub mod counts;
pub mod crowd;
pub mod device;
pub mod gates;
mod latency;
pub mod loser;
mod machine;
mod made;
pub mod memory;
pub mod points;
pub mod processes;
pub mod recovery;
mod report;
pub mod rollback;
pub mod scale;
pub mod scan;
pub mod settings;
pub mod snapshots;
pub mod tpcb;
mod workdir;

pub use latency::Latency;
pub use machine::Machine;
pub use made::abandon;
pub use report::{Counters, Figure, PHASES, Recovery, Report};
pub use workdir::Workdir;

use std::path::PathBuf;

/// What every experiment can be told.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// Use this directory and keep it. Without this, a temporary one is made and removed.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Make the temporary directory here. Choose a place on the device to measure, not in memory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub tmp: PathBuf,
    /// Memory for the page cache: bytes, or a number with K, M or G.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub cache: Option<u64>,
}

/// How long a commit waits for the device, as a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A commit is durable when it returns.
    Sync,
    /// A commit is durable when its ticket says so. Each thread has many commits under way at once.
    Pipelined,
    /// A commit is durable within a bounded delay.
    Async,
    /// Nobody asks for a commit to be durable. This is the benchmark "without sync".
    Volatile,
}

impl From<Durability> for ledgerstone::Durability {
    fn from(durability: Durability) -> ledgerstone::Durability {
        match durability {
            Durability::Sync => ledgerstone::Durability::Sync,
            Durability::Pipelined => ledgerstone::Durability::Pipelined,
            Durability::Async => ledgerstone::Durability::Async,
            Durability::Volatile => ledgerstone::Durability::Volatile,
        }
    }
}

/// A size as people write it and as settings take it: `4096`, `64K`, `256M`, `1G`.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    ledgerstone::config::Unit::Bytes.parse(text)
}

/// A time to measure for, in seconds: more than nothing, and no longer than some months.
///
/// # Errors
/// A text that is none.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e7 => Ok(seconds),
        _ => Err("a number of seconds is wanted, like 10 or 0.5".into()),
    }
}
