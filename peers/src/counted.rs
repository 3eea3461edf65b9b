//! The operations that `make counts BESIDE=1` counts, each in one call of [`counted_work`]: callgrind counts there and
//! nowhere else. The names are those of Ledgerstone's own rows (`crates/bench/src/counts/work.rs`).

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;

use crate::experiments::bank::Bank;
use crate::experiments::fill;
use crate::measure::{Operation, Random};
use crate::peer::{self, ACCOUNTS, Durability, Entry, Failure, HISTORY, Kind, Peer, RECORDS, Settings, Step, Worker};

/// As the cache that Ledgerstone's rows have.
const CACHE_BYTES: u64 = 1 << 30;
/// More than the files will ever take.
const FILE_BYTES_MAX: u64 = 8 << 30;
/// Of so many records in a row, those above their leaves are few pages.
const APART: usize = 1_000;

/// Runs the operations that are counted under callgrind.
#[derive(clap::Args)]
pub struct CountedArgs {
    /// The peer.
    #[arg(long)]
    peer: String,
    /// The directory.
    #[arg(long)]
    dir: PathBuf,
    /// Records in the table, and accounts in the bank.
    #[arg(long)]
    records: u64,
    /// Make the stores that the operations run in, and nothing else.
    #[arg(long)]
    load: bool,
}

/// What was run, for whoever reads the counts.
#[derive(Serialize)]
struct Said {
    name: String,
    rows: Vec<SaidRow>,
}

#[derive(Serialize)]
struct SaidRow {
    name: &'static str,
    count: u64,
}

/// Where a row runs, and how often it was called before.
struct Place<'a> {
    peer: &'a dyn Peer,
    record_count: u64,
    call_no: u64,
}

struct Row {
    name: &'static str,
    count: u64,
    how: fn(&Place<'_>, u64) -> anyhow::Result<()>,
}

const fn row(name: &'static str, count: u64, how: fn(&Place<'_>, u64) -> anyhow::Result<()>) -> Row {
    Row { name, count, how }
}

/// In the table of records, in this order: none of them changes what a later one finds.
const WITH_RECORDS: [Row; 8] = [
    row("begin and commit, empty", 2_000, |place, count| empty(place, count, Kind::Write)),
    row("begin and commit, read-only", 2_000, |place, count| empty(place, count, Kind::Read)),
    row("get, own transaction", 2_000, gets_alone),
    row("get, inside one", 2_000, gets),
    row("scan, a record", 100_000, scan),
    row("put existing, own transaction", 2_000, puts_alone),
    row("insert in key order, one transaction", 20_000, inserts_in_order),
    row("insert in random order, one transaction", 20_000, inserts_at_random),
];

/// In the bank.
const WITH_A_BANK: [Row; 2] = [
    row("TPC-B without sync", 2_000, |place, count| {
        worked(place, count, bank(place.record_count).transfers(place.call_no, 0))
    }),
    row("TPC-B, read-only", 2_000, |place, count| {
        worked(place, count, bank(place.record_count).looks(Kind::Read, place.call_no))
    }),
];

/// Loads, or runs all rows and says which.
pub fn run(args: &CountedArgs) -> anyhow::Result<()> {
    let entry = peer::find(&args.peer)?;
    if args.load {
        return load(entry, &args.dir, args.records);
    }
    println!("{}", serde_json::to_string(&run_all(entry, &args.dir, args.records)?)?);
    Ok(())
}

fn open(entry: &Entry, dir: &Path) -> anyhow::Result<Box<dyn Peer>> {
    std::fs::create_dir_all(dir)?;
    entry.open(Settings { cache_bytes: CACHE_BYTES, file_bytes_max: FILE_BYTES_MAX, ..Settings::roomy(dir) })
}

/// As many branches as there are with ours.
fn bank(account_count: u64) -> Bank {
    Bank { account_count, branch_count: (account_count / 100_000).max(1) }
}

fn load(entry: &Entry, dir: &Path, record_count: u64) -> anyhow::Result<()> {
    let peer = open(entry, &dir.join("records"))?;
    fill(&*peer, record_count, 100)?;
    peer.close()?;
    let peer = open(entry, &dir.join("bank"))?;
    bank(record_count).load(&*peer)?;
    peer.close()
}

fn run_all(entry: &Entry, dir: &Path, record_count: u64) -> anyhow::Result<Said> {
    let peer = open(entry, &dir.join("records"))?;
    warm(&*peer, RECORDS, record_count)?;
    let mut rows = run_rows(&*peer, record_count, &WITH_RECORDS)?;
    peer.close()?;
    let peer = open(entry, &dir.join("bank"))?;
    bank(record_count).read_all(&*peer)?;
    warm(&*peer, ACCOUNTS, record_count)?;
    rows.extend(run_rows(&*peer, record_count, &WITH_A_BANK)?);
    bank(record_count).check(&*peer)?;
    peer.close()?;
    // The library's own words end with its date.
    let version = entry.version();
    let version = version.split(": ").next().unwrap_or_default().to_owned();
    Ok(Said { name: version, rows })
}

fn run_rows(peer: &dyn Peer, record_count: u64, rows: &[Row]) -> anyhow::Result<Vec<SaidRow>> {
    for row in rows {
        // Once before: what is made at the first use is not an operation's.
        (row.how)(&Place { peer, record_count, call_no: 0 }, 10)?;
        (row.how)(&Place { peer, record_count, call_no: 1 }, row.count)?;
    }
    Ok(rows.iter().map(|row| SaidRow { name: row.name, count: row.count }).collect())
}

/// Brings all pages of a table into the cache.
fn warm(peer: &dyn Peer, table: usize, record_count: u64) -> anyhow::Result<()> {
    let mut worker = peer.worker(Durability::None)?;
    worker.run(Kind::Read, &mut |txn| {
        let mut value = Vec::new();
        txn.scan(table, 0, u64::MAX, &mut |_, value| !std::hint::black_box(value).is_empty())?;
        // A scan goes from leaf to leaf: the pages above them come in by these.
        (0..record_count).step_by(APART).try_for_each(|key| txn.get(table, key, &mut value).and_then(found))
    })?;
    Ok(())
}

/// Everything below it is counted. Callgrind finds it by its name.
#[inline(never)]
fn counted_work(work: &mut dyn FnMut() -> Step) -> Step {
    std::hint::black_box(work())
}

fn repeated(count: u64, mut once: impl FnMut() -> Step) -> anyhow::Result<()> {
    counted_work(&mut || (0..count).try_for_each(|_| once())).map_err(Failure::into_error)
}

fn found(is_there: bool) -> Step {
    if is_there { Ok(()) } else { Err(Failure::Other(anyhow!("a record that was put in is not there"))) }
}

fn worker<'a>(place: &Place<'a>) -> anyhow::Result<Box<dyn Worker + 'a>> {
    place.peer.worker(Durability::None)
}

fn empty(place: &Place<'_>, count: u64, kind: Kind) -> anyhow::Result<()> {
    let mut worker = worker(place)?;
    // What a reader makes once is made.
    worker.run(kind, &mut |_| Ok(()))?;
    repeated(count, || worker.once(kind, &mut |_| Ok(())))
}

fn gets_alone(place: &Place<'_>, count: u64) -> anyhow::Result<()> {
    let (mut worker, mut random, mut value) = (worker(place)?, Random::new(1), Vec::new());
    worker.run(Kind::Read, &mut |_| Ok(()))?;
    repeated(count, || {
        let key = random.below(place.record_count);
        worker.once(Kind::Read, &mut |txn| txn.get(RECORDS, key, &mut value).and_then(found))
    })
}

/// Runs `work` in a transaction that is begun and committed outside of what is counted.
fn inside(place: &Place<'_>, kind: Kind, work: peer::Steps<'_>) -> anyhow::Result<()> {
    worker(place)?.once(kind, work).map_err(Failure::into_error)
}

fn gets(place: &Place<'_>, count: u64) -> anyhow::Result<()> {
    let (mut random, mut value) = (Random::new(1), Vec::new());
    inside(place, Kind::Read, &mut |txn| {
        let mut get = || txn.get(RECORDS, random.below(place.record_count), &mut value).and_then(found);
        counted_work(&mut || (0..count).try_for_each(|_| get()))
    })
}

fn scan(place: &Place<'_>, count: u64) -> anyhow::Result<()> {
    inside(place, Kind::Read, &mut |txn| {
        let mut left = count;
        counted_work(&mut || {
            // Once, unless the table is small.
            while left > 0 {
                txn.scan(RECORDS, 0, left, &mut |key, value| {
                    std::hint::black_box((key, value.len()));
                    left -= 1;
                    true
                })?;
            }
            Ok(())
        })
    })
}

fn puts_alone(place: &Place<'_>, count: u64) -> anyhow::Result<()> {
    let (mut worker, mut random) = (worker(place)?, Random::new(1));
    repeated(count, || {
        let key = random.below(place.record_count);
        worker.once(Kind::Write, &mut |txn| txn.put(RECORDS, key, &[b'!'; 100]))
    })
}

/// Into a table that has only the records of the call before.
fn inserts_in_order(place: &Place<'_>, count: u64) -> anyhow::Result<()> {
    // Keys of the second call are above those of the first.
    let mut key = place.call_no << 32;
    inside(place, Kind::Write, &mut |txn| {
        let mut insert = || {
            key += 1;
            txn.append(ACCOUNTS, key, &[b'.'; 100])
        };
        counted_work(&mut || (0..count).try_for_each(|_| insert()))
    })
}

/// The same, in another table.
fn inserts_at_random(place: &Place<'_>, count: u64) -> anyhow::Result<()> {
    let mut random = Random::new(place.call_no);
    inside(place, Kind::Write, &mut |txn| {
        let mut insert = || txn.put(HISTORY, random.below(1 << 63), &[b'.'; 100]);
        counted_work(&mut || (0..count).try_for_each(|_| insert()))
    })
}

fn worked(place: &Place<'_>, count: u64, mut operation: Operation<'_>) -> anyhow::Result<()> {
    let mut worker = worker(place)?;
    worker.run(Kind::Read, &mut |_| Ok(()))?;
    repeated(count, || operation(&mut *worker).map(drop).map_err(Failure::Other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_runs_and_leaves_what_its_name_says() {
        for name in ["lmdb", "bdb"] {
            let dir = tempfile::tempdir().unwrap();
            let entry = peer::find(name).unwrap();
            load(entry, dir.path(), 2_000).unwrap();
            let said = run_all(entry, dir.path(), 2_000).unwrap();
            assert!(!said.name.contains(':') && said.name.contains(entry.title), "{}", said.name);
            assert_eq!(said.rows.len(), WITH_RECORDS.len() + WITH_A_BANK.len());

            let peer = open(entry, &dir.path().join("records")).unwrap();
            let count = |table: usize, filler: u8| {
                let mut count = 0;
                peer.worker(Durability::None)
                    .unwrap()
                    .run(Kind::Read, &mut |txn| {
                        count = 0;
                        txn.scan(table, 0, u64::MAX, &mut |_, value| {
                            count += u64::from(value == [filler; 100]);
                            true
                        })
                    })
                    .unwrap();
                count
            };
            assert_eq!((count(ACCOUNTS, b'.'), count(HISTORY, b'.')), (20_010, 20_010));
            // Of 2,000 keys drawn 2,000 times, two thirds.
            assert!((1_100..1_500).contains(&count(RECORDS, b'!')), "{}", count(RECORDS, b'!'));
            peer.close().unwrap();

            let peer = open(entry, &dir.path().join("bank")).unwrap();
            assert_eq!(bank(2_000).check(&*peer).unwrap(), 2_010);
            peer.close().unwrap();
        }
    }
}
