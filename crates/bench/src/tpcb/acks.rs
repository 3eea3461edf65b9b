//! Acknowledgements: the history key of every commit that the engine called durable. Each thread writes them to a file
//! of its own, outside the engine, after the commit has returned. A program that kills the process can look afterwards
//! whether one of them is missing.
//!
//! The files are not synced: they are to survive a killed process, and what a process has written does. `PATH.0`,
//! `PATH.1`, ...: keys of 8 bytes, one behind the other.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ledgerstone::Environment;
use serde::Serialize;

use super::bank::HISTORY;

/// One thread's file.
pub(crate) struct Acks {
    file: Option<File>,
    gathered: Vec<u8>,
}

impl Acks {
    /// Opens the thread's file, to go on behind what it has; without a path nothing is kept.
    pub(crate) fn open(path: Option<&Path>, thread_no: u64) -> anyhow::Result<Acks> {
        let Some(path) = path else { return Ok(Acks { file: None, gathered: Vec::new() }) };
        let path = of_thread(path, thread_no);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot write acknowledgements to {}", path.display()))?;
        Ok(Acks { file: Some(file), gathered: Vec::new() })
    }

    #[inline]
    pub(crate) fn add(&mut self, history_key: [u8; 8]) {
        if self.file.is_some() {
            self.gathered.extend_from_slice(&history_key);
        }
    }

    /// Hands what was added to the system, in one write.
    #[inline]
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file
            && !self.gathered.is_empty()
        {
            file.write_all(&self.gathered).context("cannot write acknowledgements")?;
            self.gathered.clear();
        }
        Ok(())
    }
}

fn of_thread(path: &Path, thread_no: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{thread_no}"));
    name.into()
}

/// What became of the acknowledged commits.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AckReport {
    /// Commits that were acknowledged as durable.
    pub acknowledged_count: u64,
    /// Of them those whose history row is not there: must be 0.
    pub missing_count: u64,
    /// The first of the missing.
    pub first_missing: Option<u64>,
    /// All rows of the history. Those that nobody acknowledged were committed, but the kill came first.
    pub history_count: u64,
}

impl AckReport {
    /// True if no acknowledged commit is missing.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.missing_count == 0
    }
}

impl std::fmt::Display for AckReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AckReport { acknowledged_count, missing_count, history_count, .. } = self;
        write!(f, "{acknowledged_count} commits acknowledged as durable, {missing_count} missing")?;
        if let Some(key) = self.first_missing {
            write!(f, " (the first: history key {key})")?;
        }
        write!(f, "; {history_count} in the history")
    }
}

/// Looks for every acknowledged commit in the history.
///
/// # Errors
/// No such files, or the environment's.
pub fn verify(env: &Environment, path: &Path) -> anyhow::Result<AckReport> {
    let mut keys = Vec::new();
    let mut thread_no = 0;
    loop {
        let file = of_thread(path, thread_no);
        match std::fs::read(&file) {
            // A write that the kill cut off is a key that nobody was told.
            Ok(bytes) => keys.extend(bytes.chunks_exact(8).map(|key| key.to_vec())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) => bail!("cannot read {}: {e}", file.display()),
        }
        thread_no += 1;
    }
    if thread_no == 0 {
        bail!("there is no {}: was the run given --ack-file {}?", of_thread(path, 0).display(), path.display());
    }
    keys.sort_unstable();
    keys.dedup();
    let mut report = AckReport { acknowledged_count: keys.len() as u64, ..AckReport::default() };
    let txn = env.begin()?;
    let mut expected = keys.iter().peekable();
    let mut missing = |key: &[u8]| {
        report.missing_count += 1;
        report.first_missing = report.first_missing.or_else(|| super::bank::Key::number(key));
    };
    let mut history_count = 0;
    // Both are sorted: one pass.
    txn.bytes(HISTORY)?.range(..)?.for_each_ref(|key, _| {
        history_count += 1;
        while let Some(wanted) = expected.next_if(|wanted| wanted.as_slice() <= key) {
            if wanted.as_slice() < key {
                missing(wanted);
            }
        }
        true
    })?;
    expected.for_each(|key| missing(key));
    report.history_count = history_count;
    txn.abort()?;
    Ok(report)
}
