//! Point reads: random keys of a table of 1,000,000 records of 100 bytes, all in the cache, on one thread and on more.

use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Error};

use crate::{Machine, Place, Report, Workdir};
use ledgerstone_region::Random;

pub(crate) const TABLE: &str = "points";

/// `bench points`.
#[derive(Clone, Debug, clap::Args)]
pub struct PointsArgs {
    /// Number of records in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Measure these numbers of threads, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub threads: Vec<u64>,
    /// Number of reads in one transaction. Short transactions pay for begin and commit, long ones hold many locks.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub reads: u64,
    /// Measure each number of threads for this long.
    #[arg(long, default_value_t = 5.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures.
///
/// # Errors
/// The environment's.
pub fn run(args: &PointsArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let env = Environment::options().cache_bytes(args.place.cache.unwrap_or(1 << 30)).open(dir.path())?;
    fill(&env, args.records, &mut |done, all| progress("load", done, all))?;
    let mut report = Report::new("points", Machine::here(dir.path()));
    let time = Duration::from_secs_f64(args.seconds);
    let mut first = None;
    for &thread_count in &args.threads {
        reads(&env, args.records, thread_count, args.reads, time.min(Duration::from_millis(500)))?; // Warms up.
        let rate = reads(&env, args.records, thread_count, args.reads, time)?;
        report.add(format!("point reads, {thread_count} threads (1/s)"), rate);
        match first {
            None => first = Some(rate),
            Some(first) => report.add(format!("  of the rate before, {thread_count} threads (times)"), rate / first),
        }
    }
    env.close()?;
    Ok(report)
}

/// Makes the table if it is not there: keys 0 to `count` - 1 as 8 bytes big-endian, 100 bytes each.
pub(crate) fn fill(env: &Environment, count: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
    const BATCH: u64 = 5_000;
    let last = env.transact(|txn| txn.bytes_or_create(TABLE)?.last())?;
    let mut from = last.and_then(|(key, _)| key.try_into().ok().map(u64::from_be_bytes)).map_or(0, |last| last + 1);
    while from < count {
        let to = (from + BATCH).min(count);
        let txn = env.begin()?;
        let table = txn.bytes(TABLE)?;
        for number in from..to {
            let mut value = [b'.'; 100];
            value[..8].copy_from_slice(&number.to_le_bytes());
            table.put(&number.to_be_bytes(), &value)?;
        }
        let _ = txn.commit_with(Durability::Volatile)?;
        from = to;
        progress(from, count);
    }
    env.checkpoint()?;
    Ok(())
}

/// Random reads in all threads together, a second. Every key is there, so one that is not found is an error.
pub(crate) fn reads(
    env: &Environment,
    record_count: u64,
    thread_count: u64,
    each: u64,
    time: Duration,
) -> anyhow::Result<f64> {
    let began = Instant::now();
    let counts: Vec<Result<u64, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|thread_no| {
                scope.spawn(move || {
                    let mut random = Random::new(thread_no + 1);
                    let mut count = 0;
                    while began.elapsed() < time {
                        let txn = env.begin()?;
                        let table = txn.bytes(TABLE)?;
                        for _ in 0..each {
                            let key = random.below(record_count).to_be_bytes();
                            let found = table.get(&key)?;
                            if found.is_none_or(|value| value.len() != 100) {
                                return Err(Error::Corrupt { what: format!("key {key:?} is missing") });
                            }
                        }
                        let _ = txn.commit()?;
                        count += each;
                    }
                    Ok(count)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Panicked("a reader")))).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    Ok(counts.into_iter().sum::<Result<u64, Error>>()? as f64 / seconds)
}
