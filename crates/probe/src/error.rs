//! What can go wrong. One failed measurement is a line in the report; these end an experiment, or keep a run from
//! beginning.

use std::path::{Path, PathBuf};

/// Why an experiment ended, or a run did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A system call was refused.
    #[error("{call}: {source}")]
    System {
        /// The call, and on what.
        call: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The directory cannot be measured.
    #[error("cannot make files in {}: {source}; name a directory that you may write to", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file system has less room than the run may use.
    #[error(
        "{} has {free_bytes} bytes free, the probe may use {need_bytes}: allow it less (--disk), or name another directory",
        dir.display()
    )]
    NoSpace {
        /// The directory.
        dir: PathBuf,
        /// Free for this user.
        free_bytes: u64,
        /// What the plan allows, with a reserve for others.
        need_bytes: u64,
    },
    /// An experiment wants more disk than the plan allows.
    #[error("needs {need_bytes} bytes of disk, {left_bytes} of the allowed ones are left")]
    Budget {
        /// Wanted.
        need_bytes: u64,
        /// Left.
        left_bytes: u64,
    },
    /// A plan that cannot be carried out.
    #[error("{name}: {why}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// What an experiment needs is not there.
    #[error("{0}")]
    Missing(String),
    /// A report cannot be read.
    #[error("{path}: {why}")]
    Report {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody asked to stop.
    #[error("stopped")]
    Stopped,
}

impl ProbeError {
    /// A refused system call.
    pub(crate) fn system(call: impl Into<String>, source: impl Into<std::io::Error>) -> ProbeError {
        ProbeError::System { call: call.into(), source: source.into() }
    }

    pub(crate) fn directory(dir: &Path, source: impl Into<std::io::Error>) -> ProbeError {
        ProbeError::Directory { dir: dir.to_owned(), source: source.into() }
    }

    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, ProbeError::Stopped)
    }
}

/// Names the call that failed: `pread(..).on("pread")?`.
pub(crate) trait On<T> {
    fn on(self, call: &str) -> Result<T, ProbeError>;
}

impl<T, E: Into<std::io::Error>> On<T> for Result<T, E> {
    fn on(self, call: &str) -> Result<T, ProbeError> {
        self.map_err(|source| ProbeError::system(call, source))
    }
}
