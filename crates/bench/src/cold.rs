//! Cold scans: a whole table of 100-byte records by an environment that has just been opened, and has nothing of it in
//! its cache. A table that was filled in the order of its keys, one that was filled at random, and one backwards.
//! Beside them, what the device gives: one read after the other through a file, and scattered pages.

use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Error};

use crate::device::{random_reads, sequential_reads};
use crate::report::median;
use crate::scan::{Way, backward, borrowed};
use crate::{Machine, Place, Report, Workdir};

const IN_ORDER: &str = "in order";
const AT_RANDOM: &str = "at random";
/// An odd number, so that multiples of it go through all numbers below a power of two.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// `bench cold`.
#[derive(Clone, Debug, clap::Args)]
pub struct ColdArgs {
    /// Number of records in each table, rounded up to a power of two.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub records: u64,
    /// Open the environment and scan this often each way.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures.
///
/// # Errors
/// The environment's; a scan that does not see every record.
pub fn run(args: &ColdArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let records = args.records.next_power_of_two();
    let cache_bytes = args.place.cache.unwrap_or(1 << 30);
    let open = || Environment::options().cache_bytes(cache_bytes).open(dir.path());
    let env = open()?;
    fill(&env, IN_ORDER, records, 1, &mut |done, all| progress("load in order", done, all))?;
    fill(&env, AT_RANDOM, records, STRIDE, &mut |done, all| progress("load at random", done, all))?;
    env.close()?;
    let mut report = Report::new("cold", Machine::here(dir.path()));
    let device = |report: &mut Report| -> anyhow::Result<f64> {
        let sequential = sequential_reads(dir.path(), 512 << 20)?;
        let scattered = random_reads(dir.path(), 256 << 20, 8, Duration::from_secs(1))? * 4096.0;
        report.add("device, reads of 1 MiB in order (MB/s)", sequential / 1e6);
        report.add("device, reads of 4 KiB at random, 8 threads (MB/s)", scattered / 1e6);
        Ok(sequential)
    };
    let before = device(&mut report)?;
    for (name, table, way) in [
        ("in order", IN_ORDER, borrowed as Way),
        ("in order, backwards", IN_ORDER, backward),
        ("filled at random", AT_RANDOM, borrowed),
        ("filled at random, backwards", AT_RANDOM, backward),
    ] {
        let (mut rates, mut bytes) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            progress(name, round.into(), args.rounds.into());
            let env = open()?;
            let page_bytes = env.stat()?.settings.page_bytes;
            let began = Instant::now();
            let count = way(&env, table)?;
            let seconds = began.elapsed().as_secs_f64();
            anyhow::ensure!(count == records, "the scan saw {count} records, and {records} are there");
            rates.push(count as f64 / seconds);
            bytes.push((env.stat()?.page_read_count * u64::from(page_bytes)) as f64 / seconds);
            env.close()?;
        }
        report.add(format!("cold scan, {name} (records/s)"), median(rates));
        let bytes = median(bytes);
        report.add(format!("  pages read, {name} (MB/s)"), bytes / 1e6);
        report.add(format!("  of the device in order, {name} (%)"), bytes / before * 100.0);
    }
    device(&mut report)?;
    Ok(report)
}

/// All keys below `count`, a power of two, one `stride` after the other.
fn fill(
    env: &Environment,
    table: &str,
    count: u64,
    stride: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    const BATCH: u64 = 5_000;
    let mut from = 0;
    while from < count {
        let to = (from + BATCH).min(count);
        let txn = env.begin()?;
        let records = txn.bytes_or_create(table)?;
        for number in from..to {
            let key = number.wrapping_mul(stride) & (count - 1);
            let mut value = [b'.'; 100];
            value[..8].copy_from_slice(&key.to_le_bytes());
            records.put(&key.to_be_bytes(), &value)?;
        }
        let _ = txn.commit_with(Durability::Volatile)?;
        from = to;
        progress(from, count);
    }
    env.checkpoint()?;
    Ok(())
}
