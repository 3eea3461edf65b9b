//! Many threads with short transactions: each inserts a record of its own, or all change the same few records.
//!
//! What a crowd costs shows in the rate against a few threads', and in the context switches of a transaction: whoever has
//! to sleep and be woken for every transaction is slow on any machine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ledgerstone::{Environment, Error};

use crate::{Counters, Machine, Place, Report, Workdir};

const TABLE: &str = "crowd";

/// `bench crowd`.
#[derive(Clone, Debug, clap::Args)]
pub struct CrowdArgs {
    /// Numbers of threads to measure, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "4,8,50,200,500", value_parser = clap::value_parser!(u64).range(1..=4000))]
    pub threads: Vec<u64>,
    /// When a commit returns.
    #[arg(long, value_enum, default_value_t = crate::Durability::Volatile)]
    pub durability: crate::Durability,
    /// So many records are changed by every transaction, by every second thread in the reverse order, so that they
    /// conflict and deadlock. 0: each transaction inserts a record that nobody else touches.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=64))]
    pub hot: u64,
    /// How long each number of threads is measured.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures.
///
/// # Errors
/// The environment's, and changes that are lost.
pub fn run(args: &CrowdArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let mut options = Environment::options().transaction_count_max(4096).durability(args.durability.into());
    options = options.cache_bytes(args.place.cache.unwrap_or(1 << 30)).lock_timeout(Duration::from_mins(1));
    let env = options.open(dir.path())?;
    env.transact(|txn| {
        let table = txn.bytes_or_create(TABLE)?;
        (0..args.hot).try_for_each(|key| table.put(&key.to_be_bytes(), &0_u64.to_le_bytes()))
    })?;
    let mut report = Report::new("crowd", Machine::here(dir.path()));
    let mut first = None;
    let mut commit_count = 0;
    for (done, &thread_count) in args.threads.iter().enumerate() {
        progress("crowds", done as u64, args.threads.len() as u64);
        let before = Counters::of(&env)?;
        let crowd = measure(&env, args.hot, thread_count, Duration::from_secs_f64(args.seconds))?;
        let since = Counters::of(&env)?.since(before);
        commit_count += crowd.commit_count;
        let rate = crowd.commit_count as f64 / crowd.seconds;
        let each = |count: u64| count as f64 / crowd.commit_count.max(1) as f64;
        report.add(format!("transactions, {thread_count} threads (1/s)"), rate);
        match first {
            None => first = Some(rate),
            Some(first) => report.add(format!("  of the first rate, {thread_count} threads (%)"), rate / first * 100.0),
        }
        report.add(format!("  context switches each, {thread_count} threads"), each(crowd.switch_count));
        report.add(format!("  lock waits each, {thread_count} threads"), each(since.lock_wait_count));
        report.add(format!("  deadlocks each, {thread_count} threads"), each(since.deadlock_count));
        report.add(format!("  longest transaction, {thread_count} threads (ms)"), crowd.longest.as_secs_f64() * 1e3);
        report.add(format!("  least of a thread, {thread_count} threads"), crowd.least as f64);
    }
    for key in 0..args.hot {
        let value = env.transact(|txn| txn.bytes(TABLE)?.get(&key.to_be_bytes()))?;
        let counted = value.as_deref().and_then(number_of).unwrap_or(0);
        anyhow::ensure!(
            counted == commit_count,
            "{commit_count} commits, and record {key} was changed {counted} times"
        );
    }
    env.close()?;
    Ok(report)
}

struct Crowd {
    commit_count: u64,
    seconds: f64,
    /// Voluntary and involuntary ones, of the crowd's threads.
    switch_count: u64,
    longest: Duration,
    /// Commits of the thread with the fewest.
    least: u64,
}

fn measure(env: &Environment, hot: u64, thread_count: u64, time: Duration) -> anyhow::Result<Crowd> {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    let began = Instant::now();
    let results: Vec<Result<(u64, u64, Duration), Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|thread_no| {
                let from = NEXT.fetch_add(1 << 32, Relaxed);
                scope.spawn(move || {
                    let (mut count, mut longest) = (0, Duration::ZERO);
                    let mut last = began.elapsed();
                    while last < time {
                        env.transact(|txn| {
                            let table = txn.bytes(TABLE)?;
                            if hot == 0 {
                                return table.put(&(from + count).to_be_bytes(), &[b'.'; 100]);
                            }
                            (0..hot).try_for_each(|at| {
                                let key = if thread_no % 2 == 0 { at } else { hot - 1 - at };
                                let add = |old: &[u8]| Some((number_of(old).unwrap_or(0) + 1).to_le_bytes().to_vec());
                                table.modify(&key.to_be_bytes(), add).map(drop)
                            })
                        })?;
                        count += 1;
                        let now = began.elapsed();
                        longest = longest.max(now - last);
                        last = now;
                    }
                    Ok((count, switches_of_this_thread(), longest))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Panicked("a writer")))).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut crowd = Crowd { commit_count: 0, seconds, switch_count: 0, longest: Duration::ZERO, least: u64::MAX };
    for result in results {
        let (count, switch_count, longest) = result?;
        crowd.commit_count += count;
        crowd.switch_count += switch_count;
        crowd.longest = crowd.longest.max(longest);
        crowd.least = crowd.least.min(count);
    }
    Ok(crowd)
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Context switches of the calling thread since it began; 0 if the system does not say.
fn switches_of_this_thread() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}
