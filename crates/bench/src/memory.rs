//! Memory: how much the process really has, against the limit it was given, while one transaction inserts 1,000,000
//! records. And how fast a table ten times the cache is, against the device's own random reads.
//!
//! Resident memory is the system's figure for the whole process, at its highest.

use std::time::{Duration, Instant};

use ledgerstone::Environment;

use crate::machine::memory_bytes;
use crate::points::{fill, reads};
use crate::{Counters, Machine, Place, Report, Workdir, device};

/// `bench memory`.
#[derive(Clone, Debug, clap::Args)]
pub struct MemoryArgs {
    /// Number of records that one transaction inserts.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Make the second table this many times as large as the cache.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub times: u64,
    /// Number of threads that read the second table.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub threads: u64,
    /// Read the second table for this long.
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
pub fn run(args: &MemoryArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let cache_bytes = args.place.cache.unwrap_or(64 << 20);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut report = Report::new("memory", Machine::here(dir.path()));
    let own_reads = || {
        let time = Duration::from_secs_f64(args.seconds.min(3.0));
        device::random_reads(dir.path(), (cache_bytes * args.times).max(1 << 20), args.threads, time)
    };
    let own = own_reads()?;
    let env = Environment::options().cache_bytes(cache_bytes).open(dir.path())?;
    report.add("cache limit (MiB)", mib(cache_bytes));

    let began = Instant::now();
    let txn = env.begin()?;
    let table = txn.bytes_or_create("one transaction")?;
    for number in 0..args.records {
        // Spread over the table, as a load of real keys is, and every record once: the factor is odd.
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        table.put(&key, &[b'.'; 100])?;
        if number.is_multiple_of(4096) {
            progress("one transaction", number, args.records);
        }
    }
    let _ = txn.commit()?;
    report.add("inserts of one transaction (1/s)", args.records as f64 / began.elapsed().as_secs_f64());
    let over = |high: u64| mib(high.saturating_sub(cache_bytes));
    let high = memory_bytes("VmHWM");
    report.add("resident above the cache limit, one transaction (MiB)", over(high));

    let record_bytes = 120; // What a record of 8 + 100 bytes takes on its page, about.
    let record_count = cache_bytes * args.times / record_bytes;
    fill(&env, record_count, &mut |done, all| progress("load", done, all))?;
    let before = Counters::of(&env)?;
    let began = Instant::now();
    let rate = reads(&env, record_count, args.threads, 10, Duration::from_secs_f64(args.seconds))?;
    let page_count = Counters::of(&env)?.since(before).page_read_count;
    let page_rate = page_count as f64 / began.elapsed().as_secs_f64();
    report.add(format!("table of {} times the cache: point reads, {} threads (1/s)", args.times, args.threads), rate);
    report.add("pages read for them (1/s)", page_rate);
    let high = memory_bytes("VmHWM");
    env.close()?;
    // The faster of both moments is what the device can do.
    let own = own.max(own_reads()?);
    report.add("the device's own random 4 KiB reads, as many threads (1/s)", own);
    report.add("pages read, of the device's own rate (times)", page_rate / own);
    report.add("resident above the cache limit, all of it (MiB)", over(high));
    Ok(report)
}
