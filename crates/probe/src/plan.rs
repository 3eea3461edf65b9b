//! What to measure, where, for how long and with how much disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ProbeError;
use crate::experiment::Experiment;
use crate::experiments;

/// How long to take for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Under half a minute; wide confidence intervals, small files.
    Quick,
    /// Under three minutes.
    #[default]
    Default,
    /// A quarter of an hour; narrow intervals, all sizes.
    Thorough,
}

impl Effort {
    /// Time of a run of all experiments. What is left over goes to cleaning up and to the report.
    #[must_use]
    pub fn time_max(self) -> Duration {
        Duration::from_secs(match self {
            Effort::Quick => 24,
            Effort::Default => 160,
            Effort::Thorough => 900,
        })
    }

    /// The most one measurement may take.
    pub(crate) fn measurement_time_max(self) -> Duration {
        Duration::from_millis(match self {
            Effort::Quick => 120,
            Effort::Default => 600,
            Effort::Thorough => 3000,
        })
    }

    /// Half the width of the median's confidence interval, as a part of the median, that is narrow enough.
    pub(crate) fn tolerance(self) -> f64 {
        match self {
            Effort::Quick => 0.10,
            Effort::Default => 0.04,
            Effort::Thorough => 0.02,
        }
    }

    /// Runs that a measurement has at least, if the time allows.
    pub(crate) fn run_count_min(self) -> usize {
        match self {
            Effort::Quick => 5,
            Effort::Default => 7,
            Effort::Thorough => 11,
        }
    }

    /// Picks by effort.
    pub(crate) fn pick<T>(self, quick: T, default: T, thorough: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Default => default,
            Effort::Thorough => thorough,
        }
    }
}

/// Everything a run is told.
#[derive(Clone)]
pub struct Plan {
    pub(crate) dir: PathBuf,
    pub(crate) effort: Effort,
    pub(crate) disk_bytes_max: u64,
    pub(crate) experiments: Vec<&'static dyn Experiment>,
    pub(crate) time_max: Option<Duration>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.experiments.iter().map(|e| e.id()).collect();
        f.debug_struct("Plan")
            .field("dir", &self.dir)
            .field("effort", &self.effort)
            .field("experiments", &names)
            .finish()
    }
}

impl Plan {
    /// Disk that a run may use unless it is told otherwise: 1 GiB.
    pub const DISK_BYTES_DEFAULT: u64 = 1 << 30;
    /// Less disk than this measures nothing of use.
    pub const DISK_BYTES_MIN: u64 = 16 << 20;

    /// All experiments on the file system of `dir`, which must exist, with 1 GiB of disk, in under three minutes.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Plan {
        Plan {
            dir: dir.into(),
            effort: Effort::Default,
            disk_bytes_max: Plan::DISK_BYTES_DEFAULT,
            experiments: experiments::ALL.to_vec(),
            time_max: None,
        }
    }

    /// In under half a minute.
    #[must_use]
    pub fn quick(mut self) -> Plan {
        self.effort = Effort::Quick;
        self
    }

    /// In a quarter of an hour.
    #[must_use]
    pub fn thorough(mut self) -> Plan {
        self.effort = Effort::Thorough;
        self
    }

    /// Only these experiments, in the order of [`experiments::ALL`], each with the share of time it has among all.
    ///
    /// # Errors
    /// [`ProbeError::Setting`] for a name that is none.
    pub fn only(mut self, names: &[impl AsRef<str>]) -> Result<Plan, ProbeError> {
        for name in names {
            if !experiments::ALL.iter().any(|e| e.id() == name.as_ref()) {
                let known: Vec<_> = experiments::ALL.iter().map(|e| e.id()).collect();
                let why = format!("there is no {}; there are {}", name.as_ref(), known.join(", "));
                return Err(ProbeError::Setting { name: "experiment", why });
            }
        }
        self.experiments =
            experiments::ALL.iter().copied().filter(|e| names.iter().any(|n| n.as_ref() == e.id())).collect();
        Ok(self)
    }

    /// Disk that the run may use at any moment.
    ///
    /// # Errors
    /// [`ProbeError::Setting`] below [`Plan::DISK_BYTES_MIN`].
    pub fn disk_bytes_max(mut self, bytes: u64) -> Result<Plan, ProbeError> {
        if bytes < Plan::DISK_BYTES_MIN {
            let why = format!("at least {} bytes are needed", Plan::DISK_BYTES_MIN);
            return Err(ProbeError::Setting { name: "disk", why });
        }
        self.disk_bytes_max = bytes;
        Ok(self)
    }

    /// Another time for the whole run than the effort's.
    #[must_use]
    pub fn time_max(mut self, time: Duration) -> Plan {
        self.time_max = Some(time);
        self
    }

    /// Where files are made.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The time for the experiments that are chosen.
    pub(crate) fn time(&self) -> Duration {
        let all: u32 = experiments::ALL.iter().map(|e| e.weight()).sum();
        let mine: u32 = self.experiments.iter().map(|e| e.weight()).sum();
        // One experiment alone may take twice its share: it is looked at closely.
        let share = (2.0 * f64::from(mine) / f64::from(all.max(1))).min(1.0);
        self.time_max.unwrap_or_else(|| self.effort.time_max().mul_f64(share))
    }
}
