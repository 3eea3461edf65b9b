//! The operations that are counted, each row in one call of [`counted_work`]: callgrind counts there and nowhere else.

use std::path::Path;

use ledgerstone::{
    BytesTable, Durability, Environment, Error, IndexDef, IndexKeys, Isolation, Transaction, TransactionOptions,
};
use ledgerstone_region::Random;

use crate::points::{self, TABLE};
use crate::tpcb::{self, KeyKind, Scale, Transfer, history_key};

/// Cache of the environments whose pages all fit.
const CACHE_BYTES: u64 = 1 << 30;
/// Cache of the one whose pages do not: about a thirtieth of 1,000,000 records.
const SMALL_CACHE_BYTES: u64 = 4 << 20;
/// The log of a row fits into half of it. A thread that found it full would do the flusher's work, or not, as the
/// machine has time for the flusher.
const LOG_BUFFER_BYTES: u64 = 256 << 20;
/// Of so many records in a row, those above their leaves are few pages.
const APART: u64 = 1_000;
/// More records than a leaf has: of so many in a row, the first ones are in different leaves.
const LEAF_APART: u64 = 100;
/// A value that needs more than a full leaf has left. That is less than a record, and a byte of each key where the keys
/// have more in common than the loader could know.
const FITS_NO_FULL_LEAF: usize = 300;
/// With so many records, the small cache holds next to no leaf that is wanted.
const MANY: u64 = 1_000_000;
/// Keys of records that are put in are these and above; those before are there.
const NEW_KEYS: u64 = 1 << 40;

/// One row: what an operation is, and how many of it are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub name: &'static str,
    pub count: u64,
    how: fn(&Environment, u64, u64) -> Result<(), Error>,
    place: Place,
}

/// Which environment a row runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Records,
    /// Frames are free, and only pages above leaves are in the cache.
    FreeFrames,
    SmallCache,
    Bank,
}

/// The page says what the difference of these two is.
pub(super) const READ: &str = "get that reads its page into a free frame";
pub(super) const READ_AND_EVICT: &str = "get that reads its page from the device";

const fn row(
    name: &'static str,
    count: u64,
    place: Place,
    how: fn(&Environment, u64, u64) -> Result<(), Error>,
) -> Row {
    Row { name, count, how, place }
}

/// In the order in which they are run, so that none of them changes what a later one finds.
pub(super) const ROWS: [Row; 27] = [
    row("begin and commit, empty", 2_000, Place::Records, empty),
    row("begin and commit, read-only", 2_000, Place::Records, empty_read_only),
    row("begin and end, at a snapshot", 2_000, Place::Records, empty_at_a_snapshot),
    row("open a table by name, open in the transaction", 2_000, Place::Records, open_again),
    row("get, own transaction", 2_000, Place::Records, get_alone),
    row("get, inside one", 2_000, Place::Records, |env, count, all| gets(env, count, all, Isolation::Serializable)),
    row("get, inside one, at a snapshot", 2_000, Place::Records, |env, count, all| {
        gets(env, count, all, Isolation::Snapshot)
    }),
    row("get, own transaction, at a snapshot", 2_000, Place::Records, |env, count, all| {
        gets_alone(env, count, all, || env.snapshot())
    }),
    row("scan, a record", 100_000, Place::Records, |env, count, _| scan(env, count, Isolation::Serializable)),
    row("scan at a snapshot, a record", 100_000, Place::Records, |env, count, _| scan(env, count, Isolation::Snapshot)),
    row("scan of 100, own transaction, at a snapshot", 500, Place::Records, scans_alone),
    row("put existing, own transaction", 2_000, Place::Records, |env, count, all| {
        put_alone(env, count, all, Durability::Volatile, b'!')
    }),
    row("put existing, own transaction, with sync", 200, Place::Records, |env, count, all| {
        put_alone(env, count, all, Durability::Sync, b'#')
    }),
    row("put existing, inside one", 2_000, Place::Records, puts),
    // Before the deletes, whose pages are given back behind them: it counts the pages that there are.
    row("insert that splits its leaf", 500, Place::Records, inserts_that_split),
    row("delete, inside one", 2_000, Place::Records, deletes),
    row("insert in key order, one transaction", 20_000, Place::Records, |env, count, _| {
        inserts(env, count, "in order", |no, _| no)
    }),
    row("insert in random order, one transaction", 20_000, Place::Records, |env, count, _| {
        inserts(env, count, "at random", |_, random| random.below(u64::MAX))
    }),
    row("insert, table with an index", 2_000, Place::Records, insert_indexed),
    row("get by an index", 2_000, Place::Records, get_by_index),
    row("sorted load, a record", 50_000, Place::Records, load),
    row("rollback of an insert", 2_000, Place::Records, roll_back),
    row(READ, 500, Place::FreeFrames, gets_that_read),
    row(READ_AND_EVICT, 1_000, Place::SmallCache, |env, count, all| {
        evicting(env, count, all, || get_alone(env, count, all))
    }),
    row("put that reads its page from the device", 1_000, Place::SmallCache, |env, count, all| {
        evicting(env, count, all, || put_alone(env, count, all, Durability::Volatile, b'%'))
    }),
    row("TPC-B without sync", 2_000, Place::Bank, |env, count, all| bank(env, count, all, false)),
    row("TPC-B, read-only", 2_000, Place::Bank, |env, count, all| bank(env, count, all, true)),
];

/// The directories of the environments.
pub(super) const ENVIRONMENTS: [&str; 2] = ["records", "bank"];

/// Makes the environments that the rows run in.
pub(super) fn prepare(dir: &Path, records: u64, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<()> {
    let env = Environment::options().cache_bytes(CACHE_BYTES).open(dir.join("records"))?;
    points::fill(&env, records, &mut |done, all| progress("records", done, all))?;
    env.close()?;
    let env = Environment::options().cache_bytes(CACHE_BYTES).open(dir.join("bank"))?;
    let scale = Scale::of(records, KeyKind::U64);
    tpcb::load(&env, &scale, &mut |done, all| progress("bank", done, all))?;
    Ok(env.close()?)
}

/// Runs all rows; to be called under callgrind.
pub(super) fn run(dir: &Path, records: u64) -> anyhow::Result<()> {
    are_prepared(dir, records)?;
    for (name, cache_bytes, places) in [
        ("records", CACHE_BYTES, Place::Records),
        ("records", CACHE_BYTES, Place::FreeFrames),
        ("records", SMALL_CACHE_BYTES, Place::SmallCache),
        ("bank", CACHE_BYTES, Place::Bank),
    ] {
        let env = Environment::options()
            .create(false)
            .cache_bytes(cache_bytes)
            .checkpoint_log_bytes(1 << 40)
            .log_buffer_bytes(LOG_BUFFER_BYTES)
            .durability(Durability::Volatile)
            .open(dir.join(name))?;
        match places {
            Place::Records => warm(&env, &[TABLE])?,
            // These are more pages than the small cache has frames.
            Place::FreeFrames | Place::SmallCache => warm_above(&env, records)?,
            Place::Bank => warm(&env, &["accounts", "tellers", "branches"])?,
        }
        for row in ROWS.iter().filter(|row| row.place == places) {
            // Once before: what is made at the first use is not an operation's.
            (row.how)(&env, 10, records)?;
            (row.how)(&env, row.count, records)?;
        }
        env.close()?;
    }
    Ok(())
}

/// Rows draw their keys below `records`, and make tables that must not be there yet. An environment of fewer records,
/// or one that was counted before, would fail in the midst of them.
fn are_prepared(dir: &Path, records: u64) -> anyhow::Result<()> {
    for (name, table, made) in [("records", TABLE, Some("deleted 10")), ("bank", "accounts", None)] {
        let path = dir.join(name);
        let env = Environment::options().create(false).open(&path)?;
        let (last, tables) = env.transact(|txn| Ok((txn.bytes(table)?.last()?, txn.table_names()?)))?;
        let last = last.and_then(|(key, _)| Some(u64::from_be_bytes(key.try_into().ok()?)));
        let count = last.map_or(0, |last| last + 1);
        env.close()?;
        let path = path.display();
        anyhow::ensure!(count == records, "{path} was made for {count} records, not for {records}: make it again");
        let is_used = tables.iter().any(|table| Some(table.as_str()) == made);
        anyhow::ensure!(!is_used, "{path} was counted before, which has changed it: make it again");
    }
    Ok(())
}

/// Everything below it is counted. Callgrind finds it by its name.
#[inline(never)]
fn counted_work(work: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
    std::hint::black_box(work())
}

fn warm(env: &Environment, tables: &[&str]) -> Result<(), Error> {
    let options = TransactionOptions { isolation: Some(Isolation::Snapshot), ..TransactionOptions::default() };
    let txn = env.begin_with(options)?;
    for name in tables {
        let (table, mut keys, mut no) = (txn.bytes(name)?, Vec::new(), 0_u64);
        table.range(..)?.for_each_ref(|key, _| {
            if no.is_multiple_of(APART) {
                keys.push(key.to_vec());
            }
            no += 1;
            true
        })?;
        // A scan goes from leaf to leaf: the pages above them come in by these.
        keys.iter().try_for_each(|key| table.get(key).map(drop))?;
    }
    txn.commit().map(drop)
}

/// Brings in the pages above the leaves, and one leaf of thirty.
fn warm_above(env: &Environment, records: u64) -> Result<(), Error> {
    inside(env, Isolation::Snapshot, |txn| {
        let table = txn.bytes(TABLE)?;
        (0..records).step_by(APART as usize).try_for_each(|no| table.get(no.to_be_bytes()).map(drop))
    })
}

fn repeated(count: u64, mut once: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    counted_work(&mut || (0..count).try_for_each(|_| once()))
}

/// Runs `work` in a transaction that is begun and committed outside of what is counted.
fn inside(
    env: &Environment,
    isolation: Isolation,
    work: impl FnOnce(&Transaction) -> Result<(), Error>,
) -> Result<(), Error> {
    let txn = env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() })?;
    work(&txn)?;
    txn.commit().map(drop)
}

fn random() -> Random {
    Random::new(1)
}

fn key(random: &mut Random, all: u64) -> [u8; 8] {
    random.below(all).to_be_bytes()
}

fn empty(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    repeated(count, || env.begin()?.commit().map(drop))
}

fn empty_read_only(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    let options = TransactionOptions { read_only: true, ..TransactionOptions::default() };
    repeated(count, || env.begin_with(options)?.commit().map(drop))
}

fn empty_at_a_snapshot(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    repeated(count, || env.snapshot()?.commit().map(drop))
}

fn open_again(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    inside(env, Isolation::Serializable, |txn| {
        let _open = txn.bytes(TABLE)?;
        repeated(count, || txn.bytes(TABLE).map(drop))
    })
}

fn get_alone(env: &Environment, count: u64, all: u64) -> Result<(), Error> {
    gets_alone(env, count, all, || env.begin())
}

/// Each in a transaction of its own.
fn gets_alone(
    env: &Environment,
    count: u64,
    all: u64,
    begin: impl Fn() -> Result<Transaction, Error>,
) -> Result<(), Error> {
    let mut random = random();
    let table = env.table(TABLE)?;
    repeated(count, || {
        let txn = begin()?;
        found(table.get(&txn, key(&mut random, all))?.is_some())?;
        txn.commit().map(drop)
    })
}

/// Each of another leaf, which [`warm_above`] has left out.
fn gets_that_read(env: &Environment, count: u64, all: u64) -> Result<(), Error> {
    let table = env.table(TABLE)?;
    // Those of the second call are others than those of the first.
    let mut no = if count > 10 { 10 } else { 0 };
    let (reads, evictions) = moved(env, || {
        repeated(count, || {
            let txn = env.begin()?;
            let key = (no * APART + APART / 2) % all;
            no += 1;
            found(table.get(&txn, key.to_be_bytes())?.is_some())?;
            txn.commit().map(drop)
        })
    })?;
    let is_so = evictions == 0 && (all < MANY || is_near(reads, count));
    expect(is_so, || format!("each get reads its page and evicts none, but {reads} read and {evictions} were evicted"))
}

/// Each reads a page, and evicts another one for it: the page of counts says so.
fn evicting(env: &Environment, count: u64, all: u64, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let (reads, evictions) = moved(env, work)?;
    // The first call fills the cache, and a small table is in it.
    let is_so = count <= 10 || all < MANY || is_near(reads, count) && is_near(evictions, count);
    expect(is_so, || format!("{count} read a page each and evict one, but {reads} were read and {evictions} evicted"))
}

/// A page above the leaves may have to be read, too, and a leaf may be there.
fn is_near(moved: u64, count: u64) -> bool {
    moved.abs_diff(count) <= 1 + count / 20
}

/// Pages that are read and evicted meanwhile.
fn moved(env: &Environment, work: impl FnOnce() -> Result<(), Error>) -> Result<(u64, u64), Error> {
    let before = env.stat()?;
    work()?;
    let after = env.stat()?;
    Ok((after.page_read_count - before.page_read_count, after.eviction_count - before.eviction_count))
}

fn gets(env: &Environment, count: u64, all: u64, isolation: Isolation) -> Result<(), Error> {
    let mut random = random();
    inside(env, isolation, |txn| {
        let table = txn.bytes(TABLE)?;
        repeated(count, || found(table.get(key(&mut random, all))?.is_some()))
    })
}

fn scan(env: &Environment, count: u64, isolation: Isolation) -> Result<(), Error> {
    inside(env, isolation, |txn| {
        let table = txn.bytes(TABLE)?;
        counted_work(&mut || {
            let mut left = count;
            // Once, unless the table is small.
            while left > 0 {
                table.range(..)?.for_each_ref(|key, value| {
                    std::hint::black_box(key.len() + value.len());
                    left -= 1;
                    left > 0
                })?;
            }
            Ok(())
        })
    })
}

fn scans_alone(env: &Environment, count: u64, all: u64) -> Result<(), Error> {
    let mut random = random();
    let table = env.table(TABLE)?;
    repeated(count, || {
        let txn = env.snapshot()?;
        let from = key(&mut random, all - 100);
        let mut left = 100;
        table.range(&txn, &from[..]..)?.for_each_ref(|key, value| {
            std::hint::black_box(key.len() + value.len());
            left -= 1;
            left > 0
        })?;
        found(left == 0)?;
        txn.commit().map(drop)
    })
}

/// Each row with another `filler`: the keys are the same, and a put of what is there already changes nothing.
fn put_alone(env: &Environment, count: u64, all: u64, durability: Durability, filler: u8) -> Result<(), Error> {
    let mut random = random();
    let table = env.table(TABLE)?;
    repeated(count, || {
        let txn = env.begin()?;
        table.put(&txn, key(&mut random, all), [filler; 100])?;
        txn.commit_with(durability).map(drop)
    })
}

fn puts(env: &Environment, count: u64, all: u64) -> Result<(), Error> {
    let mut random = random();
    inside(env, Isolation::Serializable, |txn| {
        let table = txn.bytes(TABLE)?;
        repeated(count, || table.put(key(&mut random, all), [b'?'; 100]))
    })
}

/// Of a table of its own, so that all keys are there when other rows look for them.
fn deletes(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    let table = format!("deleted {count}");
    inside(env, Isolation::Serializable, |txn| fill(&txn.create_table(&table)?, count))?;
    inside(env, Isolation::Serializable, |txn| {
        let table = txn.bytes(&table)?;
        let mut no = 0;
        repeated(count, || {
            no += 1;
            found(table.delete((NEW_KEYS + no - 1).to_be_bytes())?)
        })
    })
}

fn fill(table: &BytesTable, count: u64) -> Result<(), Error> {
    (0..count).try_for_each(|no| table.put((NEW_KEYS + no).to_be_bytes(), [b'.'; 100]))
}

fn inserts(env: &Environment, count: u64, name: &str, number: fn(u64, &mut Random) -> u64) -> Result<(), Error> {
    let mut random = random();
    inside(env, Isolation::Serializable, |txn| {
        let table = txn.create_table(&format!("{name} {count}"))?;
        let mut no = 0;
        repeated(count, || {
            no += 1;
            table.put(number(no, &mut random).to_be_bytes(), [b'.'; 100])
        })
    })
}

/// Into leaves that a load has filled, each into another one.
fn inserts_that_split(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    let name = format!("split {count}");
    inside(env, Isolation::Serializable, |txn| {
        let records = (0..(count + 1) * LEAF_APART).map(|no| ((2 * no).to_be_bytes(), [b'.'; 100]));
        txn.create_table(&name)?.load_sorted(records).map(drop)
    })?;
    env.reclaim()?; // So nothing is freed while pages are counted that the rows before have given up.
    inside(env, Isolation::Serializable, |txn| {
        let table = txn.bytes(&name)?;
        let before = env.stat()?.allocated_page_count;
        let mut no = 0;
        repeated(count, || {
            no += 1;
            table.put((2 * no * LEAF_APART + 1).to_be_bytes(), [b'.'; FITS_NO_FULL_LEAF])
        })?;
        let made = env.stat()?.allocated_page_count - before;
        // The leaves, and few of the pages above them.
        let is_so = (count..=count + count / 20 + 2).contains(&made);
        expect(is_so, || format!("each insert splits a leaf, but {made} pages were made"))
    })
}

const INDEX: &str = "by number";

fn indexed(count: u64) -> String {
    format!("indexed {count}")
}

fn insert_indexed(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    let name = indexed(count);
    let mut random = random();
    inside(env, Isolation::Serializable, |txn| {
        txn.create_table(&name)?;
        let index = IndexDef::new(INDEX, IndexKeys::Bytes { from: 0, to: Some(8) });
        txn.create_index(&name, &index)
    })?;
    inside(env, Isolation::Serializable, |txn| {
        let table = txn.bytes(&name)?;
        repeated(count, || {
            let mut value = [b'.'; 100];
            value[..8].copy_from_slice(&random.below(u64::MAX).to_be_bytes());
            table.put(random.below(u64::MAX).to_be_bytes(), value)
        })
    })
}

fn get_by_index(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    let mut random = random();
    inside(env, Isolation::Serializable, |txn| {
        let table = txn.bytes(&indexed(count))?;
        let index = table.index(INDEX)?;
        repeated(count, || {
            let number = random.below(u64::MAX).to_be_bytes();
            random.below(u64::MAX); // The record's own key, as when it was put in.
            found(index.get(number)?.is_some())
        })
    })
}

fn load(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    inside(env, Isolation::Serializable, |txn| {
        let mut table = txn.create_table(&format!("loaded {count}"))?;
        counted_work(&mut || table.load_sorted((0..count).map(|no| (no.to_be_bytes(), [b'.'; 100]))).map(drop))
    })
}

fn roll_back(env: &Environment, count: u64, _: u64) -> Result<(), Error> {
    env.transact(|txn| txn.bytes_or_create("rolled back").map(drop))?;
    let txn = env.begin()?;
    fill(&txn.bytes("rolled back")?, count)?;
    let mut txn = Some(txn);
    counted_work(&mut || txn.take().map_or(Ok(()), Transaction::abort))
}

fn bank(env: &Environment, count: u64, all: u64, is_read_only: bool) -> Result<(), Error> {
    let scale = Scale::of(all, KeyKind::U64);
    let tables = tpcb::Tables::open(env)?;
    let mut random = random();
    let mut no = if count > 10 { 10 } else { 0 }; // Behind the first ones.
    repeated(count, || {
        let transfer = Transfer::draw(&scale, &mut random);
        no += 1;
        if is_read_only {
            return tpcb::look(env, &tables, scale.key, &transfer).map(drop);
        }
        tpcb::transfer_in(env, &tables, scale.key, history_key(0, no), &transfer).map(drop)
    })
}

/// An operation that is not what its row says would be a false count.
fn expect(is_so: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Corrupt { what: what() }) }
}

fn found(is_there: bool) -> Result<(), Error> {
    if is_there { Ok(()) } else { Err(Error::Corrupt { what: "a record that was put in is not there".into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_of_another_size_are_refused_and_so_are_used_ones() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), 1_000, &mut |_, _, _| ()).unwrap();
        for records in [20_000, 500] {
            let refused = run(dir.path(), records).unwrap_err().to_string();
            assert!(refused.contains(&format!("was made for 1000 records, not for {records}")), "{refused}");
        }
        run(dir.path(), 1_000).unwrap();
        let refused = run(dir.path(), 1_000).unwrap_err().to_string();
        assert!(refused.contains("was counted before"), "{refused}");
    }
}
