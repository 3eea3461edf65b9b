//! Rollback: a transaction that changes many records is taken back, and its cost is compared with that of the changes.

use std::time::Instant;

use anyhow::ensure;
use ledgerstone::{Durability, Environment, Error, Transaction};

use crate::{Machine, Place, Report, Workdir};

const TABLE: &str = "rolled back";

/// `bench rollback`.
#[derive(Clone, Debug, clap::Args)]
pub struct RollbackArgs {
    /// Number of records in the table. The transaction changes each of them once.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub changes: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// Measures, and proves that nothing of the transaction is left.
///
/// # Errors
/// The environment's.
pub fn run(args: &RollbackArgs) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let env = Environment::options()
        .cache_bytes(args.place.cache.unwrap_or(1 << 30))
        .lock_count_max(1 << 20)
        .durability(Durability::Volatile)
        .open(dir.path())?;
    let count = args.changes;
    fill(&env, count)?;
    env.checkpoint()?;

    let mut report = Report::new("rollback", Machine::here(dir.path()));
    let txn = env.begin()?;
    let log_from = env.stat()?.log_tail_lsn;
    let began = Instant::now();
    change(&txn, count)?;
    let forward = began.elapsed().as_secs_f64();
    let log_bytes = env.stat()?.log_tail_lsn - log_from;
    let began = Instant::now();
    txn.abort()?;
    let back = began.elapsed().as_secs_f64();
    ensure_untouched(&env, count)?;
    report.add("changes", count as f64);
    report.add("log of them (bytes)", log_bytes as f64);
    report.add("changes made (ms)", forward * 1e3);
    report.add("changes rolled back (ms)", back * 1e3);
    report.add("rollback, of the time of the changes (times)", back / forward);
    env.close()?;
    Ok(report)
}

/// The table before the changes.
pub(crate) fn fill(env: &Environment, count: u64) -> Result<(), Error> {
    env.transact(|txn| {
        let mut table = txn.bytes_or_create(TABLE)?;
        table.load_sorted((0..count).map(|n| (key(n), key(n)))).map(drop)
    })
}

/// Whether the table is as [`fill`] made it.
pub(crate) fn ensure_untouched(env: &Environment, count: u64) -> anyhow::Result<()> {
    let mut next = 0;
    let mut is_whole = true;
    env.transact(|txn| {
        txn.bytes(TABLE)?.range(..)?.for_each_ref(|found, value| {
            is_whole &= found == key(next) && value == key(next);
            next += 1;
            true
        })
    })?;
    ensure!(is_whole && next == count, "the table is not what it was before the transaction");
    Ok(())
}

/// A third of them replace a value, a third delete a record, a third put a new one; all over the table.
pub(crate) fn change(txn: &Transaction, count: u64) -> Result<(), Error> {
    let table = txn.bytes(TABLE)?;
    for n in 0..count {
        let at = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count;
        match at % 3 {
            0 => table.put(&key(at), &key(at + 1))?,
            1 => drop(table.delete(&key(at))?),
            _ => table.put(&key(at + (1 << 40)), b"new")?,
        }
    }
    Ok(())
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}
