//! Scans: a whole table of 100-byte records from its first key to its last, in the cache. Borrowed records first (what
//! the engine does), then owned ones (what an iterator hands out), then from the last to the first.

use std::time::Instant;

use ledgerstone::Environment;

use crate::points::{TABLE, fill};
use crate::report::median;
use crate::{Machine, Place, Report, Workdir};

/// `bench scan`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScanArgs {
    /// Number of records in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Scan the table this often each way. The best scan counts.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures.
///
/// # Errors
/// The environment's; a scan that does not see every record.
pub fn run(args: &ScanArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let env = Environment::options().cache_bytes(args.place.cache.unwrap_or(1 << 30)).open(dir.path())?;
    fill(&env, args.records, &mut |done, all| progress("load", done, all))?;
    let mut report = Report::new("scan", Machine::here(dir.path()));
    let ways: [(&str, Way); 3] = [("borrowed", borrowed), ("owned", owned), ("owned, backward", backward)];
    for (name, way) in ways {
        let mut rates = Vec::new();
        for _ in 0..args.rounds {
            let began = Instant::now();
            let count = way(&env, TABLE)?;
            rates.push(count as f64 / began.elapsed().as_secs_f64());
            anyhow::ensure!(count == args.records, "the scan saw {count} records, and {} are there", args.records);
        }
        rates.sort_by(f64::total_cmp);
        report.add(format!("scan, {name}, best of {} (records/s)", args.rounds), rates[rates.len() - 1]);
        report.add(format!("scan, {name}, median (records/s)"), median(rates));
    }
    env.close()?;
    Ok(report)
}

/// Scans a table, and returns how many records it has.
pub(crate) type Way = fn(&Environment, &str) -> Result<u64, ledgerstone::Error>;

pub(crate) fn borrowed(env: &Environment, table: &str) -> Result<u64, ledgerstone::Error> {
    env.transact(|txn| {
        let (mut count, mut bytes) = (0, 0);
        txn.bytes(table)?.range(..)?.for_each_ref(|key, value| {
            count += 1;
            bytes += key.len() + value.len();
            true
        })?;
        std::hint::black_box(bytes);
        Ok(count)
    })
}

fn owned(env: &Environment, table: &str) -> Result<u64, ledgerstone::Error> {
    env.transact(|txn| {
        let mut count = 0;
        for record in txn.bytes(table)?.range(..)? {
            std::hint::black_box(record?);
            count += 1;
        }
        Ok(count)
    })
}

pub(crate) fn backward(env: &Environment, table: &str) -> Result<u64, ledgerstone::Error> {
    env.transact(|txn| {
        let mut count = 0;
        for record in txn.bytes(table)?.range(..)?.rev() {
            std::hint::black_box(record?);
            count += 1;
        }
        Ok(count)
    })
}
