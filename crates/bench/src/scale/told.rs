//! What the process of a step says to the one that started it, and where it is killed.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::machine::memory_bytes;

/// What a step says, as a line of JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Said {
    pub figures: Vec<(String, f64)>,
    pub peak_bytes: u64,
}

/// How often a watched step is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A step's figures so far, and in how many hundredths of its work it is killed, if it is.
#[derive(Debug)]
pub(super) struct Told {
    die_at: Option<u64>,
    said: Mutex<Said>,
}

impl Told {
    pub fn new(die_at: Option<u64>) -> Told {
        Told { die_at, said: Mutex::default() }
    }

    pub fn say(&self, name: &str, value: f64) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).figures.push((name.to_owned(), value));
    }

    /// Whether this process is to be killed.
    pub fn is_killed(&self) -> bool {
        self.die_at.is_some()
    }

    /// Writes the line.
    pub fn tell(&self) -> anyhow::Result<()> {
        write_line(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// So much of the work is done. Kills this process if that is enough.
    pub fn at(&self, done: u64, all: u64) {
        if self.die_at.is_some_and(|at| u128::from(done) * 100 >= u128::from(all) * u128::from(at)) {
            self.die(done as f64 * 100.0 / all.max(1) as f64);
        }
    }

    /// All of the work is done. Kills this process if it is to be killed, whatever was expected of the work.
    pub fn at_end(&self) {
        if self.die_at.is_some() {
            self.die(100.0);
        }
    }

    /// Does the work. Another thread looks meanwhile how much of how much is done, if the process is to be killed. If
    /// it looks too late, the process is killed at the end of the work.
    pub fn watched<T>(
        &self,
        look: impl Fn() -> anyhow::Result<(u64, u64)> + Sync,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if self.die_at.is_none() {
            return work();
        }
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| -> anyhow::Result<()> {
                while !is_done.load(Relaxed) {
                    let (done, all) = look()?;
                    self.at(done, all);
                    std::thread::sleep(LOOK_EVERY);
                }
                Ok(())
            });
            let worked = work();
            is_done.store(true, Relaxed);
            let looked = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let worked = worked?;
            looked?;
            self.at_end();
            Ok(worked)
        })
    }

    /// Holds what is said, so that two threads do not say it twice.
    fn die(&self, percent: f64) -> ! {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.figures.push(("killed at (%)".to_owned(), percent));
        let _ = write_line(&mut said); // Who waits for it says that there is none.
        loop {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

/// The program may have locked its standard output, in another thread than the one that ends the process.
fn write_line(said: &mut Said) -> anyhow::Result<()> {
    said.peak_bytes = memory_bytes("VmHWM");
    let mut out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    Ok(writeln!(out, "{}", serde_json::to_string(said)?)?)
}
