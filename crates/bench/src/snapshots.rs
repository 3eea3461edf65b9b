//! Snapshot readers beside writers: what each costs the other.
//!
//! A scanning reader opens a snapshot, reads all of a table in order, and begins again. A looking-up reader opens a
//! snapshot for a thousand random records. A writer changes random records of the same table, one in each transaction.
//! It does not wait for the device unless it is told to. Each is first measured beside a thread that is busy and does
//! not touch the store, then a reader and the writer beside each other. That makes five measurements a round. Rounds
//! are short and many, so that whatever else happens to the machine happens to all measurements. The figures are
//! medians of the rounds.
//!
//! How often the version store was full is a figure of its own. A reader that becomes too old begins again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Error, TransactionOptions};

use crate::points::{TABLE, fill};
use crate::report::median;
use crate::{Machine, Place, Report, Workdir};
use ledgerstone_region::Random;

/// `bench snapshots`.
#[derive(Clone, Debug, clap::Args)]
pub struct SnapshotsArgs {
    /// Number of records in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Seconds that all measurements take together.
    #[arg(long, default_value_t = 20.0, allow_negative_numbers = true, value_parser = crate::parse_seconds)]
    pub seconds: f64,
    /// Memory for the version store: bytes, or a number with K, M or G.
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = crate::parse_bytes)]
    pub version_store: u64,
    /// What a writer's commit waits for. Waiting for nothing makes the most changes.
    #[arg(long, value_enum, default_value_t = crate::Durability::Volatile)]
    pub durability: crate::Durability,
    /// Number of rounds. Each has five measurements.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: Place,
}

/// What runs beside what is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Arithmetic, in registers.
    Busy,
    Reader,
    LookUp,
    Writer,
}

/// What is measured beside what, in one round.
const PAIRS: [(Work, Work); 5] = [
    (Work::Reader, Work::Busy),
    (Work::LookUp, Work::Busy),
    (Work::Writer, Work::Busy),
    (Work::Reader, Work::Writer),
    (Work::LookUp, Work::Writer),
];

/// Records that are looked up in one snapshot.
const LOOK_UPS: u64 = 1000;

/// Measures.
///
/// # Errors
/// The environment's.
pub fn run(args: &SnapshotsArgs, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<Report> {
    let dir = Workdir::new(&args.place)?;
    let env = Environment::options()
        .cache_bytes(args.place.cache.unwrap_or(1 << 30))
        .version_store_bytes(args.version_store)
        .open(dir.path())?;
    fill(&env, args.records, &mut |done, all| progress("load", done, all))?;
    let each = Duration::from_secs_f64(args.seconds / args.rounds as f64 / PAIRS.len() as f64);
    let mut rates: [[Vec<f64>; 2]; 5] = Default::default();
    for round in 0..=args.rounds {
        for (rates, (first, second)) in rates.iter_mut().zip(PAIRS) {
            let (a, b) = side_by_side(&env, args, round, (first, second), each)?;
            // The first round warms up.
            if round > 0 {
                rates[0].push(a);
                rates[1].push(b);
            }
        }
        progress("measure", round, args.rounds);
    }
    let stat = env.stat()?;
    let [reader, look_up, writer, beside_reader, beside_look_up] = rates.map(|pair| pair.map(median));
    let mut report = Report::new("snapshots", Machine::here(dir.path()));
    let mut compare = |alone: (&str, f64), beside: (&str, f64), ratio: &str| {
        report.add(alone.0, alone.1);
        report.add(beside.0, beside.1);
        report.add(ratio, beside.1 / alone.1 * 100.0);
    };
    compare(
        ("snapshot reader beside a busy thread (records/s)", reader[0]),
        ("snapshot reader beside a writer (records/s)", beside_reader[0]),
        "  of its speed beside a busy thread (%)",
    );
    compare(
        ("snapshot look-ups beside a busy thread (records/s)", look_up[0]),
        ("snapshot look-ups beside a writer (records/s)", beside_look_up[0]),
        "  of their speed beside a busy thread (%)",
    );
    compare(
        ("writer beside a busy thread (transactions/s)", writer[0]),
        ("writer beside a snapshot reader (transactions/s)", beside_reader[1]),
        "  of the writer's speed beside a busy thread (%)",
    );
    report.add("writer beside snapshot look-ups (transactions/s)", beside_look_up[1]);
    report.add("  of the writer's speed so (%)", beside_look_up[1] / writer[0] * 100.0);
    report.add("times that the version store was full", stat.version_floor_count as f64);
    env.close()?;
    Ok(report)
}

/// Two threads for so long: what each did, a second.
fn side_by_side(
    env: &Environment,
    args: &SnapshotsArgs,
    seed: u64,
    (first, second): (Work, Work),
    time: Duration,
) -> anyhow::Result<(f64, f64)> {
    let stop = AtomicBool::new(false);
    let (a, b) = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(env, args, seed + 1, second, &stop));
        let own = scope.spawn(|| work(env, args, seed + 1_000_001, first, &stop));
        std::thread::sleep(time);
        stop.store(true, Relaxed); // Nothing is handed over with it.
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<f64, Error>>| {
            thread.join().unwrap_or(Err(Error::Panicked("a thread of the benchmark")))
        };
        (join(own), join(other))
    });
    Ok((a?, b?))
}

fn work(env: &Environment, args: &SnapshotsArgs, seed: u64, work: Work, stop: &AtomicBool) -> Result<f64, Error> {
    let began = Instant::now();
    let mut count = 0u64;
    let mut random = Random::new(seed);
    while !stop.load(Relaxed) {
        count += match work {
            Work::Busy => {
                let sum = (0..10_000u64).fold(seed, |sum, n| sum.rotate_left(5) ^ n);
                u64::from(std::hint::black_box(sum) != 1)
            }
            Work::Reader => read_all(env, stop)?,
            Work::LookUp => look_up(env, args.records, &mut random)?,
            Work::Writer => write_one(env, args, &mut random)?,
        };
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Reads the table at one snapshot, and checks that it is whole.
fn read_all(env: &Environment, stop: &AtomicBool) -> Result<u64, Error> {
    let txn = env.snapshot()?;
    let mut count = 0u64;
    let mut is_whole = true;
    let read = txn.bytes(TABLE)?.range(..)?.for_each_ref(|key, value| {
        is_whole &= key == count.to_be_bytes() && value.len() == 100;
        count += 1;
        !count.is_multiple_of(1024) || !stop.load(Relaxed)
    });
    match read {
        Ok(()) | Err(Error::SnapshotTooOld { .. }) => {}
        Err(error) => return Err(error),
    }
    if !is_whole {
        return Err(Error::Corrupt { what: "a snapshot does not see all records".into() });
    }
    let _ = txn.commit_with(Durability::Volatile)?;
    Ok(count)
}

/// Looks some records up at one snapshot.
fn look_up(env: &Environment, records: u64, random: &mut Random) -> Result<u64, Error> {
    let txn = env.snapshot()?;
    let table = txn.bytes(TABLE)?;
    for done in 0..LOOK_UPS {
        match table.get(&random.below(records).to_be_bytes()) {
            Ok(Some(value)) if value.len() == 100 => {}
            Ok(_) => return Err(Error::Corrupt { what: "a snapshot does not see a record".into() }),
            Err(Error::SnapshotTooOld { .. }) => return Ok(done),
            Err(error) => return Err(error),
        }
    }
    let _ = txn.commit_with(Durability::Volatile)?;
    Ok(LOOK_UPS)
}

fn write_one(env: &Environment, args: &SnapshotsArgs, random: &mut Random) -> Result<u64, Error> {
    let number = random.below(args.records);
    let options = TransactionOptions { durability: Some(args.durability.into()), ..TransactionOptions::default() };
    env.transact_with(options, |txn| {
        txn.bytes(TABLE)?.modify(&number.to_be_bytes(), |value| {
            let mut value = value.to_vec();
            value[8..16].copy_from_slice(&random.below(u64::MAX).to_le_bytes());
            Some(value)
        })
    })?;
    Ok(1)
}
