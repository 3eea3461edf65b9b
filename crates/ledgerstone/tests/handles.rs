//! Handles of tables and indexes that have changed since they were opened: what they are handles of, or nothing.

mod common;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use common::levels::{all, begin, open, put};
use ledgerstone::{
    BytesTable, Environment, Error, IndexDef, IndexKeys, IndexRange, IndexedRecords, Isolation, Range, Transaction,
    ValueReader,
};
use ledgerstone_disk::{Disk as _, Open, SimDisk};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn a_snapshot_writer_does_not_write_into_a_table_that_was_dropped() {
    let env = open();
    put(&env, b"k", b"1");
    let txn = begin(&env, Isolation::Snapshot);
    let t = txn.bytes("t").unwrap();
    env.transact(|txn| txn.drop_table("t")).unwrap();
    env.transact(|txn| txn.create_table("t")?.put(b"other", b"2")).unwrap();
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
    for _ in 0..2 {
        assert!(matches!(t.put(b"k", b"3"), Err(Error::SnapshotConflict { .. })));
    }
    drop(txn);
    assert_eq!(all(&env.snapshot().unwrap()), [(b"other".to_vec(), b"2".to_vec())]);
}

#[test]
fn who_writes_into_a_dropped_table_is_told_whose_work_that_was() {
    let env = open();
    for is_known in [false, true] {
        put(&env, b"k", b"1");
        if is_known {
            put(&env, b"k", b"2"); // It has been opened by others before.
        }
        let txn = begin(&env, Isolation::Snapshot);
        let t = txn.bytes("t").unwrap();
        env.transact(|txn| txn.drop_table("t")).unwrap();
        assert!(matches!(t.put(b"k", b"3"), Err(Error::SnapshotConflict { .. })), "known: {is_known}");
        assert!(matches!(t.delete_range(..), Err(Error::SnapshotConflict { .. })));
        assert!(t.get(b"k").unwrap().is_some(), "it is as it was when the snapshot was taken");
    }
    put(&env, b"k", b"1");
    let txn = begin(&env, Isolation::Snapshot);
    let t = txn.bytes("t").unwrap();
    txn.drop_table("t").unwrap();
    let wrote = t.put(b"k", b"3");
    assert!(matches!(wrote, Err(Error::NoSuchTable(_))), "its own drop: {wrote:?}");
    let savepoint = txn.savepoint().unwrap();
    let u = txn.create_table("u").unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert!(matches!(u.put(b"k", b"3"), Err(Error::NoSuchTable(_))), "its own table, taken back");
}

#[test]
fn handles_from_before_a_change_of_the_table_by_the_same_transaction_write_nothing() {
    for isolation in Isolation::ALL {
        let env = open();
        put(&env, b"k", b"1");
        // Nobody but this transaction knows the table.
        let txn = begin(&env, isolation);
        let t = txn.bytes("t").unwrap();
        t.put(b"before", b"1").unwrap();
        if isolation != Isolation::Snapshot {
            txn.create_index("t", &IndexDef::new("by value", IndexKeys::Bytes { from: 0, to: None })).unwrap();
            let wrote = t.put(b"between", b"2");
            assert!(wrote.is_err(), "{isolation}: it does not know the index: {wrote:?}");
        }
        txn.rename_table("t", "u").unwrap();
        let u = txn.bytes("u").unwrap();
        u.put(b"after", b"3").unwrap();
        let wrote = t.put(b"under the old name", b"4");
        assert!(matches!(wrote, Err(Error::NoSuchTable(_))), "{isolation}: {wrote:?}");
        txn.commit().unwrap();
        let snapshot = env.snapshot().unwrap();
        let keys = snapshot.bytes("u").unwrap().range(..).unwrap().map(|row| row.unwrap().0);
        assert_eq!(keys.collect::<Vec<_>>(), [&b"after"[..], b"before", b"k"], "{isolation}");
        assert!(env.verify().unwrap().problems.is_empty(), "{isolation}");
    }
}

#[test]
fn an_index_that_a_rollback_brings_back_is_kept_by_handles_or_they_are_refused() {
    let env = open();
    put(&env, b"k", b"1");
    let txn = begin(&env, Isolation::ReadCommitted);
    let t = txn.bytes("t").unwrap();
    txn.create_index("t", &IndexDef::new("by value", IndexKeys::Bytes { from: 0, to: None })).unwrap();
    let savepoint = txn.savepoint().unwrap();
    txn.drop_index("t", "by value").unwrap();
    t.put(b"without", b"2").unwrap();
    txn.rollback_to(savepoint).unwrap();
    let wrote = t.put(b"with", b"3");
    // Its own work: no conflict, with which `transact` would run it again and again.
    assert!(matches!(wrote, Err(Error::NoSuchTable(_))), "it does not know the index: {wrote:?}");
    txn.bytes("t").unwrap().put(b"with", b"3").unwrap();
    txn.commit().unwrap();
    assert!(env.verify().unwrap().problems.is_empty());
}

/// A table that was opened, with all that can be made of a handle to read by.
struct Opened {
    table: BytesTable,
    range: Range,
    entries: IndexRange,
    records: IndexedRecords,
    reader: ValueReader,
}

impl Opened {
    fn new(txn: &Transaction, name: &str) -> Opened {
        let table = txn.bytes(name).unwrap();
        let by_value = || table.index("by value").unwrap().range(..).unwrap();
        let (range, entries, records) = (table.range(..).unwrap(), by_value(), by_value().records());
        let reader = table.value_reader(b"k").unwrap().unwrap();
        Opened { table, range, entries, records, reader }
    }

    /// Each way to read, and what came of it.
    fn read(&mut self) -> Vec<(&'static str, Result<(), Error>)> {
        let Opened { table, range, entries, records, reader } = self;
        let index = table.index("by value").unwrap();
        let mut byte = [0];
        let (whole, emptied) = (table.range(..), table.range(..));
        vec![
            ("get", table.get(b"k").map(drop)),
            ("get for update", table.get_for_update(b"k").map(drop)),
            ("range", table.range(..).map(drop)),
            ("a new range", whole.and_then(|mut range| range.next().unwrap().map(drop))),
            ("for each", emptied.and_then(|range| range.for_each_ref(|_, _| true))),
            ("a range from before", range.next().unwrap().map(drop)),
            ("from the back", range.next_back().unwrap_or(Ok(Default::default())).map(drop)),
            ("look-up", index.get(b"1").map(drop)),
            ("entries", index.range(..).map(drop)),
            ("entries from before", entries.next().unwrap().map(drop)),
            ("records from before", records.next().unwrap().map(drop)),
            ("length", table.value_len(b"k").map(drop)),
            ("a reader from before", reader.read(&mut byte).map(drop).map_err(|error| error.downcast().unwrap())),
            ("its length", reader.len().map(drop)),
            ("a new reader", table.value_reader(b"k").map(drop)),
        ]
    }

    fn check(mut self, is_good: bool, when: &str) {
        for (what, result) in self.read() {
            match result {
                Ok(()) if is_good => {}
                // It has ended with the error before.
                Ok(()) if what == "from the back" => {}
                Err(Error::NoSuchTable(_)) if !is_good => {}
                other => panic!("{when}: {what}: {other:?}"),
            }
        }
    }
}

#[test]
fn handles_from_before_a_change_of_the_table_by_the_same_transaction_read_nothing() {
    type Change = (&'static str, fn(&Transaction));
    let by_value = IndexDef::new("by value", IndexKeys::Value);
    let changes: [Change; 5] = [
        ("dropped", |txn| txn.drop_table("t").unwrap()),
        ("dropped and made again", |txn| {
            txn.drop_table("t").unwrap();
            txn.create_table("t").unwrap().put(b"k", b"new").unwrap();
        }),
        ("renamed", |txn| txn.rename_table("t", "u").unwrap()),
        ("without its index", |txn| txn.drop_index("t", "by value").unwrap()),
        ("loaded", |txn| {
            txn.bytes("t").unwrap().delete_range(..).unwrap();
            txn.bytes("t").unwrap().load_sorted([(b"k", b"2")]).map(drop).unwrap();
        }),
    ];
    for (isolation, is_known, (how, change)) in Isolation::ALL
        .into_iter()
        .flat_map(|isolation| [(isolation, false), (isolation, true)])
        .flat_map(|(isolation, is_known)| changes.map(|change| (isolation, is_known, change)))
    {
        if isolation == Isolation::Snapshot && how == "without its index" {
            continue; // Refused.
        }
        let env = open();
        env.transact(|txn| {
            let _ = txn.create_table("t")?;
            txn.create_index("t", &by_value)?;
            txn.bytes("t")?.put(b"k", b"1")?;
            txn.bytes("t")?.put(b"l", b"1")
        })
        .unwrap();
        if is_known {
            put(&env, b"l", b"2"); // Whoever opens it from now on knows it as the others do.
        }
        let when = format!("{isolation}, known {is_known}, {how}");
        let txn = begin(&env, isolation);
        let fresh = || Opened::new(&txn, "t");
        fresh().check(true, &when);
        let before = [fresh(), fresh()];
        let savepoint = txn.savepoint().unwrap();
        change(&txn);
        let [before, later] = before;
        before.check(false, &when);
        if how == "dropped and made again" {
            let handle = txn.bytes("t").unwrap();
            assert_eq!(handle.get(b"k").unwrap().as_deref(), Some(&b"new"[..]), "{when}");
            txn.rollback_to(savepoint).unwrap();
            assert!(matches!(handle.get(b"k"), Err(Error::NoSuchTable(_))), "{when}, and taken back");
            assert!(matches!(handle.range(..), Err(Error::NoSuchTable(_))), "{when}, and taken back");
        } else {
            txn.rollback_to(savepoint).unwrap();
        }
        later.check(true, &format!("{when}, and taken back"));
        fresh().check(true, &format!("{when}, and taken back, opened again"));
    }
}

/// A table in the model. Tables and indexes have numbers of their own, which no other gets.
#[derive(Debug, Clone, PartialEq)]
struct Modelled {
    what: What,
    records: BTreeMap<u8, u8>,
}

/// What a handle knows of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
struct What {
    table: u64,
    index: Option<u64>,
}

#[derive(Debug, Clone)]
enum Act {
    Open(usize),
    Put(usize, u8, u8),
    Clear(usize),
    Get(usize, u8),
    Scan(usize),
    Find(usize),
    Create(usize),
    Drop(usize),
    Rename(usize, usize),
    Index(usize),
    Unindex(usize),
    Savepoint,
    RollBack(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let name = 0..3usize;
    prop_oneof![
        3 => name.clone().prop_map(Act::Open),
        6 => (any::<usize>(), 0..20u8, any::<u8>()).prop_map(|(handle, key, value)| Act::Put(handle, key, value)),
        1 => any::<usize>().prop_map(Act::Clear),
        2 => (any::<usize>(), 0..20u8).prop_map(|(handle, key)| Act::Get(handle, key)),
        2 => any::<usize>().prop_map(Act::Scan),
        1 => any::<usize>().prop_map(Act::Find),
        1 => name.clone().prop_map(Act::Create),
        1 => name.clone().prop_map(Act::Drop),
        1 => (name.clone(), name.clone()).prop_map(|(from, to)| Act::Rename(from, to)),
        1 => name.clone().prop_map(Act::Index),
        1 => name.prop_map(Act::Unindex),
        1 => Just(Act::Savepoint),
        1 => any::<usize>().prop_map(Act::RollBack),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Alone, so at every level as the model. A handle from before the table changed is refused or still good. It never
    /// writes past what the table has become, nor reads what it was.
    #[test]
    fn old_handles_read_and_write_what_they_are_handles_of_or_nothing(
        level in 0..4usize, is_known in any::<bool>(), acts in vec(act(), 1..40)
    ) {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let isolation = Isolation::ALL[level];
        let by_value = IndexDef::new("by value", IndexKeys::Bytes { from: 0, to: None });
        let env = open();
        let mut model: BTreeMap<&str, Modelled> = BTreeMap::new();
        for (number, name) in (0..).zip(&NAMES[..2]) {
            env.transact(|txn| txn.create_table(name)?.put(&[1], &[2])).unwrap();
            model.insert(name, Modelled { what: What { table: number, index: None }, records: [(1, 2)].into() });
            if is_known {
                env.transact(|txn| txn.bytes(name).map(drop)).unwrap();
            }
        }
        let txn = begin(&env, isolation);
        let mut next = 10;
        let mut number = || { next += 1; next };
        // With each what it was opened as, and whether the table was something else for a time.
        let mut handles: Vec<(&str, What, bool, BytesTable)> = Vec::new();
        let mut savepoints = Vec::new();
        for act in &acts {
            match *act {
                Act::Open(name) => match (txn.bytes(NAMES[name]), model.get(NAMES[name])) {
                    (Ok(table), Some(known)) => handles.push((NAMES[name], known.what, false, table)),
                    (Err(Error::NoSuchTable(_)), None) => {}
                    (opened, known) => prop_assert!(false, "{opened:?}, not {known:?}"),
                },
                Act::Put(handle, ..) | Act::Clear(handle) => {
                    let count = handles.len().max(1);
                    let Some((name, what, was_old, table)) = handles.get(handle % count) else { continue };
                    let wrote = match *act {
                        Act::Put(_, key, value) => table.put(&[key], &[value]),
                        _ => table.delete_range(..).map(drop),
                    };
                    let known = model.get_mut(name).filter(|known| known.what == *what);
                    match (wrote, known, act) {
                        (Ok(()), Some(known), Act::Put(_, key, value)) => drop(known.records.insert(*key, *value)),
                        (Ok(()), Some(known), _) => known.records.clear(),
                        (Err(Error::NoSuchTable(_)), _, _) if *was_old => {}
                        (wrote, known, _) => prop_assert!(false, "{wrote:?} into {name} {what:?}, known: {known:?}"),
                    }
                }
                Act::Get(handle, _) | Act::Scan(handle) | Act::Find(handle) => {
                    let count = handles.len().max(1);
                    let Some((name, what, was_old, table)) = handles.get(handle % count) else { continue };
                    let all = |rows: Range| rows.map(|row| row.map(|(k, v)| (k[0], v[0]))).collect::<Result<BTreeMap<_, _>, _>>();
                    let read = match *act {
                        Act::Get(_, key) => table.get(&[key]).map(|value| value.map(|value| (key, value[0])).into_iter().collect()),
                        Act::Scan(_) => table.range(..).and_then(all),
                        _ if what.index.is_none() => continue,
                        _ => {
                            let entries = table.index("by value").and_then(|index| index.range(..));
                            let rows = entries.and_then(|entries| entries.records().collect::<Result<Vec<_>, _>>());
                            rows.map(|rows| rows.into_iter().map(|(_, key, value)| (key[0], value[0])).collect())
                        }
                    };
                    let known = model.get(name).filter(|known| known.what == *what);
                    match (read, known, act) {
                        (Ok(read), Some(known), Act::Get(_, key)) => {
                            let expected: BTreeMap<_, _> = known.records.get_key_value(key).map(|(k, v)| (*k, *v)).into_iter().collect();
                            prop_assert_eq!(read, expected);
                        }
                        (Ok(read), Some(known), _) => prop_assert_eq!(&read, &known.records),
                        (Err(Error::NoSuchTable(_)), _, _) if *was_old => {}
                        (read, known, _) => prop_assert!(false, "{read:?} from {name} {what:?}, known: {known:?}"),
                    }
                }
                Act::Create(name) => match txn.create_table(NAMES[name]) {
                    Ok(table) => {
                        let what = What { table: number(), index: None };
                        let made = Modelled { what, records: BTreeMap::new() };
                        prop_assert!(model.insert(NAMES[name], made).is_none());
                        handles.push((NAMES[name], what, false, table));
                    }
                    Err(error) => {
                        prop_assert!(matches!(error, Error::TableExists(_)) && model.contains_key(NAMES[name]), "{error}");
                    }
                },
                Act::Drop(name) => match txn.drop_table(NAMES[name]) {
                    Ok(()) => prop_assert!(model.remove(NAMES[name]).is_some()),
                    Err(error) => {
                        prop_assert!(matches!(error, Error::NoSuchTable(_)) && !model.contains_key(NAMES[name]), "{error}");
                    }
                },
                Act::Rename(from, to) if from != to => match txn.rename_table(NAMES[from], NAMES[to]) {
                    Ok(()) => {
                        let renamed = model.remove(NAMES[from]).unwrap();
                        prop_assert!(model.insert(NAMES[to], renamed).is_none());
                    }
                    Err(error) => {
                        let is_refused = !model.contains_key(NAMES[from]) || model.contains_key(NAMES[to]);
                        prop_assert!(is_refused && matches!(error, Error::NoSuchTable(_) | Error::TableExists(_)), "{error}");
                    }
                },
                Act::Index(name) | Act::Unindex(name) if isolation != Isolation::Snapshot => {
                    let makes = matches!(act, Act::Index(_));
                    let Some(known) = model.get_mut(NAMES[name]).filter(|known| known.what.index.is_some() != makes) else { continue };
                    let done = match makes {
                        true => txn.create_index(NAMES[name], &by_value),
                        false => txn.drop_index(NAMES[name], "by value").map(drop),
                    };
                    prop_assert!(done.is_ok(), "{done:?}");
                    known.what.index = makes.then(&mut number);
                }
                Act::Savepoint => savepoints.push((txn.savepoint().unwrap(), model.clone(), handles.len())),
                Act::RollBack(at) if !savepoints.is_empty() => {
                    savepoints.truncate(at % savepoints.len() + 1);
                    let (savepoint, before, count) = savepoints.last().unwrap();
                    txn.rollback_to(*savepoint).unwrap();
                    model.clone_from(before);
                    // What was opened since was what is taken back.
                    handles[*count..].iter_mut().for_each(|(_, _, was_old, _)| *was_old = true);
                }
                _ => {}
            }
            for (name, what, was_old, _) in &mut handles {
                *was_old |= model.get(name).is_none_or(|known| known.what != *what);
            }
        }
        let check = |txn: &Transaction| {
            assert_eq!(txn.table_names().unwrap(), model.keys().copied().collect::<Vec<_>>());
            for (name, known) in &model {
                let table = txn.bytes(name).unwrap();
                let rows = |row: Result<(Vec<u8>, Vec<u8>), Error>| row.map(|(k, v)| (k[0], v[0])).unwrap();
                assert_eq!(table.range(..).unwrap().map(rows).collect::<BTreeMap<_, _>>(), known.records, "{name}");
                assert_eq!(table.indexes().len(), usize::from(known.what.index.is_some()), "{name}");
            }
        };
        check(&txn);
        txn.commit().unwrap();
        check(&env.begin().unwrap());
        let problems = env.verify().unwrap().problems;
        prop_assert!(problems.is_empty(), "{problems:?}");
    }
}

#[test]
fn a_lock_file_that_was_removed_lets_nobody_in() {
    let dir = tempfile::tempdir().unwrap();
    let open = || common::tiny().open(dir.path());
    let lock = dir.path().join("lock");
    let env = open().unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"1")).unwrap();
    std::fs::remove_file(&lock).unwrap();
    for _ in 0..2 {
        let second = open().map(drop);
        assert!(matches!(second, Err(Error::LockFileMissing { .. })), "{second:?}");
        assert!(!lock.exists());
    }
    // Whoever has it open takes the lock again at its next checkpoint.
    env.checkpoint().unwrap();
    assert!(matches!(open().map(drop), Err(Error::AlreadyOpen { .. })));
    env.transact(|txn| txn.bytes("t")?.put(b"k", b"2")).unwrap();
    std::fs::remove_file(&lock).unwrap();
    env.close().unwrap();
    // Closed: somebody may read it.
    std::fs::remove_file(&lock).unwrap();
    assert!(matches!(open().map(drop), Err(Error::LockFileMissing { .. })));
    std::fs::write(&lock, b"").unwrap();
    let env = open().unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_deref(), Some(&b"2"[..]));

    // Replaced by one that another holds: the one that notices gives up before it writes a checkpoint.
    std::fs::remove_file(&lock).unwrap();
    let other = ledgerstone_disk::Disk::lock(&ledgerstone_disk::FileDisk::new(dir.path()), "lock").unwrap();
    let taken = env.checkpoint();
    assert!(taken.is_err() && env.is_failed(), "{taken:?}");
    drop(other);
    drop(env);

    // Replaced by one that another has held and given back: what it has committed is not written over.
    let env = open().unwrap();
    env.transact(|txn| txn.bytes("t")?.put(b"k", b"3")).unwrap();
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, b"").unwrap();
    let other = open().unwrap();
    other.transact(|txn| txn.bytes("t")?.put(b"k", b"the other's")).unwrap();
    other.close().unwrap();
    let taken = env.checkpoint();
    assert!(matches!(taken, Err(Error::Failed { .. })) && env.is_failed(), "{taken:?}");
    drop(env);
    let env = open().unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_deref(), Some(&b"the other's"[..]));
}

/// Whoever finds its lock replaced may still read, through a cache that is full of its own old pages.
#[test]
fn one_who_has_lost_its_lock_and_reads_on_writes_no_page() {
    let disk = SimDisk::new();
    let open = || common::tiny().checkpoint_log_bytes(1 << 30).open_on(Arc::new(disk.clone())).unwrap();
    let write = |env: &Environment, table: &str, keys: std::ops::Range<u32>, by: u8| {
        let put = |txn: &Transaction| {
            let table = txn.bytes_or_create(table)?;
            keys.clone().try_for_each(|key| table.put(key.to_be_bytes(), [by; 900]))
        };
        env.transact(put).unwrap();
    };
    let env = open();
    // More than there are frames.
    (0..30).for_each(|part| write(&env, "cold", part * 20..part * 20 + 20, 0));
    write(&env, "hot", 0..60, 0);
    env.checkpoint().unwrap();
    write(&env, "hot", 0..60, 1);
    let reader = begin(&env, Isolation::ReadCommitted);
    let cold = reader.bytes("cold").unwrap();
    disk.remove("lock").unwrap();
    drop(disk.open("lock", Open::CREATE).unwrap());
    let other = open();
    let taken = env.checkpoint();
    assert!(taken.is_err() && env.is_failed(), "{taken:?}");
    write(&other, "hot", 0..60, 2);
    other.checkpoint().unwrap();
    for _ in 0..3 {
        // Until it has no frame any more that it could use.
        if let Ok(range) = cold.range(..) {
            let _read = range.take_while(Result::is_ok).count();
        }
    }
    drop((cold, reader));
    drop(env); // With its page writer.
    other.close().unwrap();
    let env = open();
    let found =
        env.transact(|txn| txn.bytes("hot")?.range(..)?.map(|row| Ok(row?.1[0])).collect::<Result<Vec<_>, Error>>());
    assert_eq!(found.unwrap(), [2; 60], "what the other had acknowledged");
}

#[test]
fn a_lock_file_that_was_removed_lets_nobody_in_beside_readers() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("lock");
    let env = common::tiny().open(dir.path()).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"1")).unwrap();
    env.close().unwrap();
    let reader = common::tiny().read_only(true).open(dir.path()).unwrap();
    let read = || reader.transact(|txn| txn.bytes("t")?.get(b"k"));
    assert_eq!(read().unwrap().as_deref(), Some(&b"1"[..]));
    std::fs::remove_file(&lock).unwrap();
    for read_only in [false, true] {
        let second = common::tiny().read_only(read_only).open(dir.path()).map(drop);
        assert!(matches!(second, Err(Error::LockFileMissing { .. })), "{second:?}");
        assert!(!lock.exists());
    }
    // Nor tools that write beside an environment.
    let mended = Environment::forget_all_changes(dir.path());
    assert!(matches!(mended, Err(Error::LockFileMissing { .. })), "{mended:?}");
    assert_eq!(read().unwrap().as_deref(), Some(&b"1"[..]));
    // As the error says: when nobody has it open.
    reader.close().unwrap();
    std::fs::write(&lock, b"").unwrap();
    common::tiny().open(dir.path()).unwrap().close().unwrap();
}
