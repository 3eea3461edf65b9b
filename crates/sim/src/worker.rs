//! Rounds by the thousand: workers, each a process of its own on a processor of its own.
//!
//! The seeded scheduler hands one baton from thread to thread, which is cheap as long as all stay on one processor. So
//! a worker pins itself to one, and to use two processors the parent starts two workers of the same program. They
//! talk by lines on their standard output: `at <seed>`, `fail <seed>` and lines that begin with a blank, `done
//! <counters>`. A worker that dies is a failure of the seed that it was at.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::counters::Counters;

/// Real time without progress after which a worker gives up.
const STALL: Duration = Duration::from_secs(120);

/// What workers have brought back.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Sums.
    pub counters: Counters,
    /// Seeds that failed, with what was said.
    pub failures: Vec<(u64, Vec<String>)>,
}

/// Which seeds a worker runs: `first`, and every `step`-th after it, `count` in all.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The first seed.
    pub first: u64,
    /// To the next.
    pub step: u64,
    /// How many.
    pub count: u64,
    /// It stops after this many failures.
    pub failures_max: u64,
    /// Its number, which chooses its processor.
    pub worker: usize,
}

/// The body of a worker: runs its share and reports on standard output.
pub fn work(share: Share, mut round: impl FnMut(u64) -> Result<Counters, Vec<String>>) {
    pin(share.worker);
    let at = Arc::new(AtomicU64::new(share.first));
    watch(at.clone());
    let mut counters = Counters::default();
    let mut failures = 0;
    let mut out = std::io::stdout().lock();
    // A parent that is gone wants nothing any more.
    let mut tell = |text: &str| {
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            std::process::exit(2);
        }
    };
    for number in 0..share.count {
        let seed = share.first.wrapping_add(number.wrapping_mul(share.step));
        at.store(seed, Relaxed);
        tell(&format!("at {seed}"));
        match round(seed) {
            Ok(more) => counters.merge(&more),
            Err(lines) => {
                counters.add("rounds", 1);
                tell(&format!("fail {seed}"));
                for line in lines.iter().flat_map(|text| text.lines()) {
                    tell(&format!(" {line}"));
                }
                failures += 1;
                if failures >= share.failures_max {
                    break;
                }
            }
        }
    }
    tell(&format!("done {counters}"));
}

/// Stays on one processor, so that handing the baton over never leaves it. Not being allowed to is not a failure.
fn pin(worker: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if cpus.is_empty() {
        return;
    }
    let mut one = CpuSet::new();
    one.set(cpus[worker % cpus.len()]);
    let _ = sched_setaffinity(None, &one);
}

/// Ends the process when the rounds stand still: a hang that the scheduler cannot see is a failure too.
fn watch(at: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut seen = (at.load(Relaxed), Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = at.load(Relaxed);
            if now != seen.0 {
                seen = (now, Instant::now());
            } else if seen.1.elapsed() > STALL {
                // Standard output belongs to the thread that hangs.
                eprintln!("seed {now} does not come to an end: no progress for {} s", STALL.as_secs());
                std::process::exit(3);
            }
        }
    });
}

/// Runs `count` rounds from `seed` on in `worker_count` processes of this program; `arguments` go to each of them,
/// before those that say which seeds. After `failures_max` failures of all of them together they are stopped.
///
/// # Errors
/// When a worker cannot be started.
pub fn run_workers(
    arguments: &[String],
    seed: u64,
    count: u64,
    worker_count: u64,
    failures_max: u64,
    mut progress: impl FnMut(u64),
) -> std::io::Result<Tally> {
    let program = std::env::current_exe()?;
    let (sender, receiver) = mpsc::channel();
    let mut children = Vec::new();
    for worker in 0..worker_count.min(count.max(1)) {
        let share = count / worker_count + u64::from(worker < count % worker_count);
        let mut child = Command::new(&program)
            .arg("worker")
            .args(arguments)
            .args(["--first", &seed.wrapping_add(worker).to_string()])
            .args(["--step", &worker_count.to_string()])
            .args(["--count", &share.to_string()])
            .args(["--failures-max", &failures_max.to_string()])
            .args(["--worker", &worker.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take();
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in out.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if sender.send((worker, line)).is_err() {
                    return;
                }
            }
        });
        children.push(child);
    }
    drop(sender);
    let mut tally = Tally::default();
    let mut done = 0;
    let mut at = vec![0; children.len()];
    // The lines of a failure follow it, but lines of other workers may come between.
    let mut current = vec![None; children.len()];
    let mut was_stopped = vec![false; children.len()];
    let mut failing = None;
    for (worker, line) in receiver {
        let worker = worker as usize;
        if was_stopped[worker] {
            continue;
        }
        if let Some(text) = line.strip_prefix(' ') {
            if let Some(index) = current[worker] {
                let failure: &mut (u64, Vec<String>) = &mut tally.failures[index];
                failure.1.push(text.to_owned());
            }
        } else if let Some(seed) = line.strip_prefix("fail ") {
            current[worker] = Some(tally.failures.len());
            failing = Some(worker);
            tally.failures.push((seed.parse().unwrap_or(0), Vec::new()));
        } else if let Some(counters) = line.strip_prefix("done ") {
            tally.counters.merge(&counters.parse().unwrap_or_default());
        } else if let Some(seed) = line.strip_prefix("at ") {
            at[worker] = seed.parse().unwrap_or(0);
            done += 1;
            if done % 256 == 0 || done == count {
                progress(done);
            }
        }
        if tally.failures.len() as u64 >= failures_max && !line.starts_with(' ') {
            // The client that met the last failure is let finish telling of it.
            let is_told = failing == Some(worker) && !line.starts_with("fail ");
            for other in (0..children.len()).filter(|&other| is_told || failing != Some(other)) {
                if !std::mem::replace(&mut was_stopped[other], true) {
                    children[other].kill()?;
                }
            }
        }
    }
    for (worker, mut child) in children.into_iter().enumerate() {
        let status = child.wait()?;
        if !status.success() && !was_stopped[worker] {
            let what = format!("worker {worker} ended with {status}; its messages are above");
            tally.failures.push((at[worker], vec![what]));
        }
    }
    Ok(tally)
}
