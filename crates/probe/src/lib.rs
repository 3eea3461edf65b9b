//! What this machine gives a transactional system. The study of Vasil, "Reexamining Operating System Support for
//! Database Management" (2003), as a tool for Linux. Run it before you trust a machine with data.
//!
//! | what | where |
//! | --- | --- |
//! | the experiments, one file each | [`experiments`] |
//! | what an experiment is, and what it is given | [`Experiment`], [`Context`] |
//! | running them within a time, a disk budget and until told to stop | [`run`], [`Plan`], [`Stop`] |
//! | repetition, confidence, noise, the clock | `measure`, `stats`, `noise`, `clock` |
//! | what is measured again in the time that is left | `retake` |
//! | what comes out | [`Report`] and the types below it; JSON by serde |
//! | the paper's claims, the verdict, the advice and the settings | [`claims`], [`verdict`], [`advice`] |
//! | for people: terminal, HTML, two machines side by side | [`show`] |
//! | system calls that no safe wrapper has | `sys`, the only unsafe code |
//!
//! The crate knows nothing of the storage engine: it can be used by any program.
//!
//! ```no_run
//! let plan = ledgerstone_probe::Plan::new("/var/lib/data").quick().only(&["force"])?;
//! let report = ledgerstone_probe::run(&plan, &ledgerstone_probe::Stop::new(), &mut |_| {})?;
//! if let Some(value) = report.value("force/method", "write, fdatasync", Some(4096.0)) {
//!     println!("a durable write of 4 KiB: {value:?}");
//! }
//! # Ok::<(), ledgerstone_probe::ProbeError>(())
//! ```
#![deny(unsafe_code)]

pub mod advice;
mod budget;
pub mod claims;
mod clock;
mod context;
mod error;
mod experiment;
pub mod experiments;
mod machine;
mod measure;
mod noise;
mod place;
mod plan;
mod random;
mod report;
mod retake;
mod run;
pub mod show;
mod stats;
mod stop;
mod sys;
pub mod verdict;
mod workdir;

pub use clock::Clock;
pub use context::{Context, Progress};
pub use error::ProbeError;
pub use experiment::Experiment;
pub use machine::{Device, Machine, Mount};
pub use plan::{Effort, Plan};
pub use report::{Axis, Better, Fact, Group, Outcome, Point, Report, Skip, Status, Unit, Usage, Value};
pub use run::run;
pub use stop::Stop;
