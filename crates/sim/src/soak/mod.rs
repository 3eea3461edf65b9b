//! Everything at once, for a long time, in real files: does anything grow, slow down or stand still?
//!
//! Threads of every kind of user share one environment with small limits. They run short transactions at every level
//! and durability, and change records of all sizes under an index. They make and drop tables, write large values in
//! parts, and hold snapshots. Backups, an archive, a named feed and compactions run beside them, and so do crowds of
//! many more threads than processors. Each checks what it reads by itself. The money of a bank stays the same, a value
//! says its key and version, and a block of a large value is of one writer.
//!
//! `watch.rs` measures all the while. What it asks:
//! Q1. Memory, open files, log, data file and version store stay within fixed bounds after the first fifth of the time.
//! Q2. Neither the median nor the slowest thousandth of the short transactions takes much longer in the end than in the
//!     beginning. What a sync takes on the machine at that time is the measure. Nor does the median take twice as much
//!     of the processor's time. What a piece of work takes that is always the same is the measure of that.
//! Q3. No call takes longer than [`CALL_S_MAX`].
//! Q4. In the end the environment is sound, the bank has its money, and a restore from backup and archive has the same.

pub(crate) mod users;
pub(crate) mod watch;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ledgerstone::{ArchiveDirectory, Backup, Durability, Environment, Error, LogDirectory, Options, RestoreTo};
use ledgerstone_region::sync;

use crate::counters::Counters;
use ledgerstone_region::Random;
use users::{ACCOUNT_COUNT, BANK, MONEY, User, key};
use watch::Watch;

/// A call that takes longer than this hangs, whatever the machine does besides.
pub const CALL_S_MAX: u64 = 120;

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// What was done, and the most that was measured.
    pub counters: Counters,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<String>,
}

/// What the users share.
pub(crate) struct Stage {
    pub env: Environment,
    pub dir: std::path::PathBuf,
    pub watch: Watch,
    pub is_over: AtomicBool,
}

/// Small limits, so that every one of them is reached.
fn options(dir: &Path) -> Options {
    Environment::options()
        .cache_bytes(8 << 20)
        .log_segment_bytes(1 << 20)
        .log_buffer_bytes(1 << 20)
        .checkpoint_log_bytes(4 << 20)
        .version_store_bytes(8 << 20)
        .lock_count_max(16 << 10)
        .escalate_after(200)
        .transaction_count_max(128)
        .page_count_max(1 << 17)
        .lock_timeout(Duration::from_secs(5))
        .feed_log_bytes_max(32 << 20)
        .archive_dir(dir.join("archive"))
        .durability(Durability::Async)
}

/// Runs for `seconds` in `dir`, which is empty.
///
/// # Errors
/// The environment could not be made or opened; everything later is a problem of the report.
pub fn run(dir: &Path, seconds: u64, seed: u64) -> Result<Report, Error> {
    let env = options(dir).open(dir.join("env"))?;
    users::set_up(&env)?;
    let watch = Watch::new(dir, Duration::from_secs(seconds), users::KINDS.len()).map_err(Error::Disk)?;
    let stage = Arc::new(Stage { env, dir: dir.to_owned(), watch, is_over: AtomicBool::new(false) });
    let mut random = Random::new(seed);
    let threads: Vec<_> = users::KINDS
        .iter()
        .enumerate()
        .map(|(no, (name, act))| {
            let mut user = User::new(Arc::clone(&stage), no, name, random.fork());
            sync::spawn(name, move || user.go_on(*act))
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end && !stage.is_over.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(250));
        stage.watch.look(&stage.env);
    }
    stage.is_over.store(true, SeqCst);
    let mut counters = Counters::default();
    let mut problems = Vec::new();
    for thread in threads {
        match thread.join() {
            Ok(user) => counters.merge(&user),
            Err(_) => problems.push("a user panicked; see above".to_owned()),
        }
    }
    let Some(stage) = Arc::into_inner(stage) else {
        problems.push("a user did not end".to_owned());
        return Ok(Report { counters, problems });
    };
    stage.watch.judge(&mut counters, &mut problems);
    if let Err(error) = afterwards(stage, &mut problems) {
        problems.push(format!("afterwards: {error}"));
    }
    Ok(Report { counters, problems })
}

/// Q4.
fn afterwards(stage: Stage, problems: &mut Vec<String>) -> Result<(), Error> {
    let Stage { env, dir, .. } = stage;
    env.reclaim()?;
    check(&env, "in the end", problems)?;
    let stat = env.stat()?;
    if stat.held_back_free_count > 0 || stat.version_spilled_count > 0 {
        let (frees, spilled) = (stat.held_back_free_count, stat.version_spilled_count);
        problems.push(format!("nobody reads any more, and {frees} frees and {spilled} spilled writers are held"));
    }
    env.close()?;
    let env = options(&dir).open(dir.join("env"))?;
    check(&env, "opened again", problems)?;
    env.close()?;
    let logs = [ArchiveDirectory::open(dir.join("archive"))?.log()?, LogDirectory::open(dir.join("env"))?];
    Backup::open(dir.join("backup"))?.restore(dir.join("restored"), RestoreTo::End, &logs)?;
    let env = Environment::options().page_count_max(1 << 17).open(dir.join("restored"))?;
    check(&env, "restored", problems)?;
    env.close()
}

pub(crate) fn check(env: &Environment, when: &str, problems: &mut Vec<String>) -> Result<(), Error> {
    let report = env.verify()?;
    problems.extend(report.problems.iter().take(5).map(|problem| format!("{when}: {problem:?}")));
    let total = env.transact(|txn| {
        let bank = txn.bytes(BANK)?;
        let mut total = 0;
        for account in 0..ACCOUNT_COUNT {
            total += bank.get(&key(account))?.map_or(0, |value| users::number(&value));
        }
        Ok(total)
    })?;
    if total != ACCOUNT_COUNT * MONEY {
        problems.push(format!("{when}: the bank has {total} of {}", ACCOUNT_COUNT * MONEY));
    }
    Ok(())
}

/// Goes on until the callback says no more.
fn until(stage: &Stage) -> ControlFlow<()> {
    if stage.is_over.load(SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
