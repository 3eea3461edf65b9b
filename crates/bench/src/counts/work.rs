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
/// Of so many records in a row, those above their leaves are few pages.
const APART: u64 = 1_000;
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
    SmallCache,
    Bank,
}

const fn row(
    name: &'static str,
    count: u64,
    place: Place,
    how: fn(&Environment, u64, u64) -> Result<(), Error>,
) -> Row {
    Row { name, count, how, place }
}

/// In the order in which they are run, so that none of them changes what a later one finds.
pub(super) const ROWS: [Row; 25] = [
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
    row("get that reads its page from the device", 1_000, Place::SmallCache, get_alone),
    row("put that reads its page from the device", 1_000, Place::SmallCache, |env, count, all| {
        put_alone(env, count, all, Durability::Volatile, b'%')
    }),
    row("TPC-B without sync", 2_000, Place::Bank, |env, count, all| bank(env, count, all, false)),
    row("TPC-B, read-only", 2_000, Place::Bank, |env, count, all| bank(env, count, all, true)),
];

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
    for (name, cache_bytes, places) in [
        ("records", CACHE_BYTES, Place::Records),
        ("records", SMALL_CACHE_BYTES, Place::SmallCache),
        ("bank", CACHE_BYTES, Place::Bank),
    ] {
        let env = Environment::options()
            .create(false)
            .cache_bytes(cache_bytes)
            .checkpoint_log_bytes(1 << 40)
            .durability(Durability::Volatile)
            .open(dir.join(name))?;
        if places == Place::Records {
            warm(&env, &[TABLE])?;
        } else if places == Place::Bank {
            warm(&env, &["accounts", "tellers", "branches"])?;
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
            table.range(..)?.for_each_ref(|key, value| {
                std::hint::black_box(key.len() + value.len());
                left -= 1;
                left > 0
            })?;
            found(left == 0)
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

fn found(is_there: bool) -> Result<(), Error> {
    if is_there { Ok(()) } else { Err(Error::Corrupt { what: "a record that was put in is not there".into() }) }
}
