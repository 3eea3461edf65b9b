//! Snapshots and isolation levels, as users see them.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek, SeekFrom, Write};
use std::ops::Bound;
use std::sync::Arc;

use ledgerstone::{
    BytesTable, Durability, Environment, Error, IndexDef, IndexKeys, IndexRange, IndexedRecords, Isolation, Locking,
    Options, Range, Transaction, TransactionOptions, ValueReader,
};
use ledgerstone_disk::SimDisk;
use proptest::collection::vec;
use proptest::prelude::*;

fn open() -> Environment {
    open_with(16 << 20)
}

fn open_with(version_store_bytes: u64) -> Environment {
    options().version_store_bytes(version_store_bytes).open_on(Arc::new(SimDisk::new())).unwrap()
}

fn options() -> Options {
    Environment::options().cache_bytes(4 << 20).page_count_max(1 << 16).durability(Durability::Volatile)
}

fn begin(env: &Environment, isolation: Isolation) -> Transaction {
    env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() }).unwrap()
}

fn put(env: &Environment, key: &[u8], value: &[u8]) {
    env.transact(|txn| txn.bytes_or_create("t")?.put(key, value)).unwrap();
}

fn delete(env: &Environment, key: &[u8]) {
    env.transact(|txn| txn.bytes("t")?.delete(key)).unwrap();
}

fn all(txn: &Transaction) -> Vec<(Vec<u8>, Vec<u8>)> {
    txn.bytes("t").unwrap().range(..).unwrap().collect::<Result<_, _>>().unwrap()
}

fn number(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

#[test]
fn a_snapshot_stays_as_it_was_while_others_change_everything() {
    let env = open();
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        (0..2000u32).filter(|n| n % 2 == 0).try_for_each(|n| t.put(&number(n), &n.to_le_bytes()))
    })
    .unwrap();
    let snapshot = env.snapshot().unwrap();
    let before = all(&snapshot);
    assert_eq!(before.len(), 1000);
    // Committed changes of all kinds, splits and emptied leaves among them.
    for round in 0..4u32 {
        env.transact(|txn| {
            let t = txn.bytes("t")?;
            for n in 0..2000u32 {
                match (n + round) % 4 {
                    0 => t.put(&number(n), &vec![round as u8; (n % 300) as usize])?,
                    1 => drop(t.delete(&number(n))?),
                    2 => drop(t.modify(&number(n), |v| Some(v.iter().map(|b| b ^ 0xff).collect()))?),
                    _ => {}
                }
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        env.reclaim().unwrap();
        assert_eq!(all(&snapshot), before, "round {round}");
    }
    // And an uncommitted one.
    let open = env.begin().unwrap();
    (0..2000u32).for_each(|n| assert!(open.bytes("t").unwrap().delete(&number(n)).is_ok()));
    assert_eq!(all(&snapshot), before);
    let t = snapshot.bytes("t").unwrap();
    let backwards: Vec<_> = t.range(..).unwrap().rev().map(Result::unwrap).collect();
    assert!(backwards.iter().rev().eq(&before));
    for n in 0..2000u32 {
        assert_eq!(t.get(&number(n)).unwrap(), (n % 2 == 0).then(|| n.to_le_bytes().to_vec()), "{n}");
    }
    assert_eq!(t.count().unwrap(), 1000);
    open.abort().unwrap();
    assert_eq!(all(&snapshot), before);
    drop(snapshot);
    env.transact(|txn| (0..2000u32).try_for_each(|n| txn.bytes("t")?.delete(&number(n)).map(drop))).unwrap();
    env.reclaim().unwrap();
    assert_eq!(env.snapshot().unwrap().bytes("t").unwrap().count().unwrap(), 0);
    assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty());
}

#[test]
fn a_table_that_another_has_created_since_is_opened_to_write_and_not_listed() {
    let env = open();
    let txn = begin(&env, Isolation::Snapshot);
    put(&env, b"other's", b"1");
    assert!(matches!(txn.bytes("t"), Err(Error::NoSuchTable(_))));
    let table = txn.bytes_or_create("t").unwrap();
    table.put(b"own", b"2").unwrap();
    let own: Result<Vec<_>, _> = table.range(..).and_then(Iterator::collect);
    assert_eq!(own.unwrap(), [(b"own".to_vec(), b"2".to_vec())]);
    assert_eq!(txn.table_names().unwrap(), Vec::<String>::new());
    assert!(matches!(table.put(b"other's", b"3"), Err(Error::SnapshotConflict { .. })));
    drop(txn);
    assert_eq!(all(&env.snapshot().unwrap()), [(b"other's".to_vec(), b"1".to_vec())]);
}

#[test]
fn a_snapshot_waits_for_nobody_and_nobody_waits_for_it() {
    let env = open();
    put(&env, b"k", b"old");
    let writer = env.begin().unwrap();
    writer.bytes("t").unwrap().put(b"k", b"new").unwrap();
    writer.bytes("t").unwrap().put(b"l", b"new").unwrap();
    let snapshot = env.snapshot().unwrap();
    assert_eq!(all(&snapshot), [(b"k".to_vec(), b"old".to_vec())]);
    writer.commit().unwrap();
    // The table itself: no intention is in the way.
    env.transact(|txn| txn.drop_table("t")).unwrap();
    assert_eq!(all(&snapshot), [(b"k".to_vec(), b"old".to_vec())]);
}

#[test]
fn dropped_and_new_tables_are_as_the_snapshot_sees_them() {
    let env = open();
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        (0..3000u32).try_for_each(|n| t.put(&number(n), &[7; 100]))
    })
    .unwrap();
    let old = env.snapshot().unwrap();
    env.transact(|txn| txn.drop_table("t")).unwrap();
    env.transact(|txn| txn.create_table("u").map(drop)).unwrap();
    env.reclaim().unwrap();
    let new = env.snapshot().unwrap();
    assert_eq!(old.table_names().unwrap(), ["t"]);
    assert_eq!(new.table_names().unwrap(), ["u"]);
    assert_eq!(old.bytes("t").unwrap().count().unwrap(), 3000);
    assert!(matches!(new.bytes("t"), Err(Error::NoSuchTable(_))));
    assert!(matches!(old.bytes("u"), Err(Error::NoSuchTable(_))));
    // Made anew under the same name, with the same pages perhaps.
    env.transact(|txn| txn.create_table("t")?.put(b"x", b"y")).unwrap();
    assert_eq!(old.bytes("t").unwrap().count().unwrap(), 3000);
    let used = env.stat().unwrap().allocated_page_count;
    drop((old, new));
    env.reclaim().unwrap();
    assert!(env.stat().unwrap().allocated_page_count < used, "the dropped table's pages come back at last");
    assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty());
}

#[test]
fn large_values_stay_for_the_snapshots_that_see_them() {
    let env = open();
    let large = |seed: u8| vec![seed; 100_000];
    put(&env, b"k", &large(1));
    let first = env.snapshot().unwrap();
    put(&env, b"k", &large(2));
    env.reclaim().unwrap();
    let second = env.snapshot().unwrap();
    delete(&env, b"k");
    env.reclaim().unwrap();
    for _ in 0..2 {
        assert!(first.bytes("t").unwrap().get(b"k").unwrap() == Some(large(1)));
        assert!(second.bytes("t").unwrap().get(b"k").unwrap() == Some(large(2)));
        assert!(all(&first)[0].1 == large(1));
        assert!(all(&second)[0].1 == large(2));
        put(&env, b"other", &large(3));
        env.reclaim().unwrap();
    }
    drop((first, second));
    env.reclaim().unwrap();
    assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty());
}

#[test]
fn a_snapshot_that_is_too_old_says_so() {
    let env = open_with(128 << 10);
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        (0..100u32).try_for_each(|n| t.put(&number(n), &[0; 200]))
    })
    .unwrap();
    let snapshot = env.snapshot().unwrap();
    for round in 0..2000u32 {
        put(&env, &number(round % 100), &[round as u8; 200]);
    }
    let t = snapshot.bytes("t");
    let read = t.and_then(|t| t.range(..)?.collect::<Result<Vec<_>, _>>());
    assert!(matches!(read, Err(Error::SnapshotTooOld { .. })), "{read:?}");
    // Another is not.
    assert_eq!(all(&env.snapshot().unwrap()).len(), 100);
}

/// A leaf's copy is still good when the images of a value's own pages have gone.
#[test]
fn a_large_value_whose_images_are_gone_is_too_old_in_a_running_range_and_reader_too() {
    let env = open_with(128 << 10);
    let large = |n: u8| (0..50_000u32).map(|at| at as u8 ^ n).collect::<Vec<_>>();
    let old = large(2);
    put(&env, b"1", &large(1));
    put(&env, b"2", &old);
    let snapshot = env.snapshot().unwrap();
    let table = snapshot.bytes("t").unwrap();
    let mut range = table.range(..).unwrap();
    assert!(range.next().unwrap().unwrap().1 == large(1));
    let mut reader = table.value_reader(b"2").unwrap().unwrap();
    let mut found = [0; 10];
    reader.read_exact(&mut found).unwrap();
    env.transact(|txn| {
        let mut writer = txn.bytes("t")?.value_writer(b"2")?;
        writer.seek(SeekFrom::Start(20)).unwrap();
        writer.write_all(&[255; 10]).unwrap();
        Ok::<_, Error>(())
    })
    .unwrap();
    reader.read_exact(&mut found).unwrap();
    assert_eq!(found, old[10..20]);
    for round in 0..2000u32 {
        put(&env, &number(1_000_000 + round % 100), &[round as u8; 200]);
    }
    let read = range.next().unwrap();
    assert!(matches!(read, Err(Error::SnapshotTooOld { .. })), "{:?}", read.map(|(key, _)| key));
    assert!(reader.read_exact(&mut found).is_err(), "{found:?}");
}

/// Reads all of it in every way there is.
fn assert_sees(txn: &Transaction, expected: &[(Vec<u8>, Vec<u8>)], what: &str) {
    assert_eq!(all(txn), expected, "{what}");
    let t = txn.bytes("t").unwrap();
    let mut back: Vec<_> = t.range(..).unwrap().rev().collect::<Result<_, _>>().unwrap();
    back.reverse();
    assert_eq!(back, expected, "{what}, backwards");
    for n in 0..900u32 {
        let key = number(n);
        let at = expected.binary_search_by(|(k, _)| k.as_slice().cmp(&key));
        assert_eq!(t.get(&key).unwrap(), at.ok().map(|at| expected[at].1.clone()), "{what}, key {n}");
    }
}

#[test]
fn a_transaction_larger_than_the_version_store_makes_no_snapshot_too_old() {
    for commits in [true, false] {
        let env = open_with(64 << 10);
        env.transact(|txn| {
            let t = txn.create_table("t")?;
            (0..600u32).step_by(2).try_for_each(|n| t.put(&number(n), &[n as u8; 150]))?;
            t.put(&number(7), &[7; 30_000])
        })
        .unwrap();
        // Commits that a snapshot does not see, below and above the changes of the large one.
        let oldest = env.snapshot().unwrap();
        let first = all(&oldest);
        put(&env, &number(0), b"between");
        delete(&env, &number(2));
        let before = env.snapshot().unwrap();
        let seen = all(&before);
        let txn = env.begin().unwrap();
        let t = txn.bytes("t").unwrap();
        for n in 0..600u32 {
            match n % 5 {
                0 => t.put(&number(n), &[1; 333]).unwrap(),
                1 => drop(t.delete(&number(n)).unwrap()),
                2 => drop(t.modify(&number(n), |old| Some([&[9; 4], &old[4..]].concat())).unwrap()),
                3 => t.put(&number(n), &[3; 150]).unwrap(),
                _ => {}
            }
        }
        let mut writer = t.value_writer(&number(7)).unwrap();
        writer.seek(SeekFrom::Start(12_000)).unwrap();
        writer.write_all(&[8; 9000]).unwrap();
        drop(writer);
        let mark = txn.savepoint().unwrap();
        for n in 0..900u32 {
            let _ = t.delete(&number(n)).unwrap();
        }
        let during = env.snapshot().unwrap();
        assert_sees(&before, &seen, "before, at the savepoint");
        assert_sees(&during, &seen, "during, at the savepoint");
        txn.rollback_to(mark).unwrap();
        for n in (0..900u32).step_by(3) {
            t.put(&number(n), &[n as u8; 40]).unwrap();
        }
        env.checkpoint().unwrap();
        let stat = env.stat().unwrap();
        assert_eq!(stat.version_spilled_count, 1, "{stat:?}");
        assert!(stat.version_log_low_lsn > 0 && stat.version_log_low_lsn <= before.snapshot_lsn().unwrap().0 + 4096);
        for (view, expected) in [(&oldest, &first), (&before, &seen), (&during, &seen)] {
            assert_sees(view, expected, "open");
        }
        let own = all(&txn);
        if commits {
            txn.commit().unwrap();
        } else {
            txn.abort().unwrap();
        }
        // Others change the same records again.
        for n in (0..600u32).step_by(70) {
            put(&env, &number(n), b"after");
            delete(&env, &number(n + 1));
        }
        env.checkpoint().unwrap();
        env.reclaim().unwrap();
        for (view, expected) in [(&oldest, &first), (&before, &seen), (&during, &seen)] {
            assert_sees(view, expected, "ended");
        }
        drop((oldest, before, during));
        let mut expected = if commits { own } else { seen };
        expected.retain(|(key, _)| {
            let n = u32::from_be_bytes(key.as_slice().try_into().unwrap());
            n >= 602 || !(n % 70 == 0 || n % 70 == 1)
        });
        expected.extend((0..600u32).step_by(70).map(|n| (number(n).to_vec(), b"after".to_vec())));
        expected.sort();
        assert_sees(&env.snapshot().unwrap(), &expected, "new");
        let stat = env.stat().unwrap();
        assert_eq!((stat.version_spilled_count, stat.version_floor_count, stat.version_log_low_lsn), (0, 0, 0));
        assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty());
    }
}

#[test]
fn a_table_filled_by_one_large_transaction_is_empty_to_older_snapshots() {
    let env = open_with(64 << 10);
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let before = env.snapshot().unwrap();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    for n in 0..5000u32 {
        t.put(&number(n), &[n as u8; 60]).unwrap();
    }
    assert!(all(&before).is_empty() && all(&env.snapshot().unwrap()).is_empty());
    txn.commit().unwrap();
    assert!(all(&before).is_empty());
    assert_eq!(all(&env.snapshot().unwrap()).len(), 5000);
}

#[test]
fn a_writer_whose_snapshot_is_older_than_a_large_commit_tries_again() {
    let env = open_with(64 << 10);
    put(&env, b"k", b"old");
    let writer = begin(&env, Isolation::Snapshot);
    env.transact(|txn| {
        let t = txn.bytes("t")?;
        (0..2000u32).try_for_each(|n| t.put(&number(n), &[1; 100]))
    })
    .unwrap();
    let wrote = writer.bytes("t").unwrap().put(&number(5), b"mine");
    assert!(matches!(wrote, Err(Error::SnapshotConflict { .. })), "{wrote:?}");
    drop(writer);
    let isolation = Some(Isolation::Snapshot);
    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
    env.transact_with(options, |txn| txn.bytes("t")?.put(&number(5), b"mine")).unwrap();
}

#[test]
fn a_transaction_for_reading_only_changes_nothing() {
    let env = open();
    put(&env, b"k", b"v");
    for isolation in Isolation::ALL {
        let options = TransactionOptions { isolation: Some(isolation), read_only: true, ..Default::default() };
        let txn = env.begin_with(options).unwrap();
        let t = txn.bytes("t").unwrap();
        assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert!(matches!(t.put(b"k", b"w"), Err(Error::ReadOnly { .. })));
        assert!(matches!(t.delete(b"k"), Err(Error::ReadOnly { .. })));
        assert!(matches!(t.get_for_update(b"k"), Err(Error::ReadOnly { .. })));
        assert!(matches!(txn.create_table("u"), Err(Error::ReadOnly { .. })));
        assert!(matches!(txn.drop_table("t"), Err(Error::ReadOnly { .. })));
        txn.commit().unwrap();
    }
}

#[test]
fn of_two_snapshot_transactions_that_change_a_record_the_first_to_commit_wins() {
    let env = open();
    put(&env, b"k", b"0");
    let (a, b) = (begin(&env, Isolation::Snapshot), begin(&env, Isolation::Snapshot));
    let (ta, tb) = (a.bytes("t").unwrap(), b.bytes("t").unwrap());
    ta.put(b"k", b"a").unwrap();
    assert_eq!(ta.get(b"k").unwrap().as_deref(), Some(&b"a"[..]), "its own change");
    assert_eq!(tb.get(b"k").unwrap().as_deref(), Some(&b"0"[..]));
    a.commit().unwrap();
    assert_eq!(tb.get(b"k").unwrap().as_deref(), Some(&b"0"[..]));
    let conflicts = [
        tb.put(b"k", b"b").unwrap_err(),
        tb.delete(b"k").unwrap_err(),
        tb.get_for_update(b"k").unwrap_err(),
        tb.modify(b"k", |_| None).unwrap_err(),
    ];
    for error in conflicts {
        assert!(matches!(error, Error::SnapshotConflict { .. }) && error.is_retryable(), "{error:?}");
    }
    drop(b);
    // Another key, a new one, and a key that was deleted: no conflict, no conflict, conflict.
    let c = begin(&env, Isolation::Snapshot);
    delete(&env, b"k");
    let tc = c.bytes("t").unwrap();
    tc.put(b"new", b"c").unwrap();
    assert!(matches!(tc.insert_new(b"k", b"c"), Err(Error::SnapshotConflict { .. })));
    c.commit().unwrap();
    assert_eq!(all(&env.snapshot().unwrap()), [(b"new".to_vec(), b"c".to_vec())]);
}

#[test]
fn a_range_delete_at_a_snapshot_is_refused_if_others_have_changed_the_range_since() {
    let by_value = IndexDef::new("by value", IndexKeys::Bytes { from: 0, to: None });
    for (locking, is_indexed) in [Locking::Hierarchical, Locking::Pages].map(|l| [(l, false), (l, true)]).concat() {
        let env = options().locking(locking).open_on(Arc::new(SimDisk::new())).unwrap();
        (0..40u32).for_each(|n| put(&env, &number(n), b"old"));
        if is_indexed {
            env.transact(|txn| txn.create_index("t", &by_value)).unwrap();
        }
        let range = |from: u32, to: u32| (Bound::Included(number(from)), Bound::Excluded(number(to)));
        type Change = fn(&Environment);
        let changes: [Change; 3] = [
            |env| delete(env, &number(3)),
            |env| put(env, &number(13), b"new"),
            |env| put(env, b"\0\0\0\x17+", b"more"),
        ];
        for (change, first) in changes.into_iter().zip([0, 10, 20]) {
            let txn = begin(&env, Isolation::Snapshot);
            let t = txn.bytes("t").unwrap();
            change(&env);
            let (from, to) = range(first, first + 10);
            let wrote = t.delete_range((from.as_ref().map(|k| &k[..]), to.as_ref().map(|k| &k[..])));
            assert!(
                matches!(wrote, Err(Error::SnapshotConflict { .. })),
                "{locking:?} {is_indexed} {first}: {wrote:?}"
            );
        }
        // What was deleted before the snapshot, and what it has deleted itself, is no conflict.
        let txn = begin(&env, Isolation::Snapshot);
        let t = txn.bytes("t").unwrap();
        t.delete(&number(35)).unwrap();
        assert_eq!(t.delete_range(..).unwrap(), 39);
        txn.commit().unwrap();
        assert_eq!(all(&env.snapshot().unwrap()), []);
        assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty());
    }
}

#[test]
fn transact_runs_a_snapshot_transaction_again_after_a_conflict() {
    let env = open();
    put(&env, b"n", &0u64.to_le_bytes());
    let options = TransactionOptions { isolation: Some(Isolation::Snapshot), ..Default::default() };
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let env = env.clone();
            std::thread::spawn(move || {
                for _ in 0..100 {
                    env.transact_with(options, |txn| {
                        let t = txn.bytes("t")?;
                        let n = u64::from_le_bytes(t.get(b"n")?.unwrap().try_into().unwrap());
                        t.put(b"n", &(n + 1).to_le_bytes())
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let n = env.snapshot().unwrap().bytes("t").unwrap().get(b"n").unwrap();
    assert_eq!(n, Some(400u64.to_le_bytes().to_vec()), "no update was lost");
}

#[test]
fn a_snapshot_transaction_sees_its_own_changes_in_its_ranges() {
    let env = open();
    (0..10u32).for_each(|n| put(&env, &number(n), b"old"));
    let txn = begin(&env, Isolation::Snapshot);
    put(&env, &number(3), b"later");
    put(&env, &number(20), b"later");
    let t = txn.bytes("t").unwrap();
    t.put(&number(5), b"own").unwrap();
    t.put(&number(30), b"own").unwrap();
    t.delete(&number(7)).unwrap();
    let seen: Vec<(u32, Vec<u8>)> =
        t.range(..).unwrap().map(|r| r.map(|(k, v)| (u32::from_be_bytes(k.try_into().unwrap()), v)).unwrap()).collect();
    let expected: Vec<(u32, Vec<u8>)> = [0, 1, 2, 3, 4, 5, 6, 8, 9, 30]
        .map(|n| (n, if n == 5 || n == 30 { b"own".to_vec() } else { b"old".to_vec() }))
        .into();
    assert_eq!(seen, expected);
    // A change ahead of a range that runs.
    let mut range = t.range((Bound::Included(&number(0)[..]), Bound::Unbounded)).unwrap();
    range.next();
    t.put(&number(1), b"ahead").unwrap();
    assert_eq!(range.next().unwrap().unwrap().1, b"ahead");
}

#[test]
fn read_committed_sees_the_newest_commit_in_each_call_and_waits_for_nobody() {
    let env = open();
    put(&env, b"k", b"1");
    let txn = begin(&env, Isolation::ReadCommitted);
    let t = txn.bytes("t").unwrap();
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
    put(&env, b"k", b"2");
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    let writer = env.begin().unwrap();
    writer.bytes("t").unwrap().put(b"k", b"3").unwrap();
    writer.bytes("t").unwrap().put(b"l", b"3").unwrap();
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    let mut range = t.range(..).unwrap();
    writer.commit().unwrap();
    // A range is one call.
    assert_eq!(range.next().unwrap().unwrap().1, b"2");
    assert!(range.next().is_none());
    assert_eq!(t.count().unwrap(), 2);
    t.put(b"m", b"own").unwrap();
    assert_eq!(t.count().unwrap(), 3);
    drop(range);
    env.transact(|txn| txn.create_table("u").map(drop)).unwrap();
    let u = txn.bytes("u").unwrap();
    assert_eq!(u.count().unwrap(), 0);
    env.transact(|txn| txn.drop_table("u")).unwrap();
    assert!(matches!(u.get(b"k"), Err(Error::NoSuchTable(_))));
    assert!(matches!(u.put(b"k", b"v"), Err(Error::NoSuchTable(_))));
}

#[test]
fn read_uncommitted_sees_pages_as_they_are() {
    let env = open();
    put(&env, b"k", b"1");
    let txn = begin(&env, Isolation::ReadUncommitted);
    let t = txn.bytes("t").unwrap();
    let writer = env.begin().unwrap();
    writer.bytes("t").unwrap().put(b"k", b"2").unwrap();
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(t.range(..).unwrap().next_back().unwrap().unwrap().1, b"2");
    writer.abort().unwrap();
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
}

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
        assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty(), "{isolation}");
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
    assert!(env.verify(&mut |_| {}).unwrap().problems.is_empty());
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

#[test]
fn what_a_transaction_does_to_one_table_keeps_no_other_from_its_snapshot() {
    let env = open();
    for is_known in [false, true] {
        put(&env, b"k", b"1");
        if is_known {
            put(&env, b"k", b"1");
        }
        let txn = begin(&env, Isolation::Snapshot);
        let t = txn.bytes("t").unwrap();
        txn.create_table("own").unwrap();
        let other = env.begin().unwrap();
        other.drop_table("t").unwrap();
        assert!(t.get(b"k").unwrap().is_some(), "another is about to drop it");
        other.commit().unwrap();
        assert!(t.get(b"k").unwrap().is_some(), "another has dropped it since the snapshot");
        assert!(matches!(t.put(b"k", b"2"), Err(Error::SnapshotConflict { .. })));
        assert_eq!(t.range(..).unwrap().count(), 1, "known: {is_known}");
    }
}

#[test]
fn a_load_at_a_snapshot_is_refused_if_others_have_emptied_the_table_since() {
    let env = open();
    put(&env, b"k", b"1");
    let late = begin(&env, Isolation::Snapshot);
    let mut t = late.bytes("t").unwrap();
    delete(&env, b"k");
    let loaded = t.load_sorted([(b"a", b"2")]);
    assert!(matches!(loaded, Err(Error::SnapshotConflict { .. })), "{loaded:?}");
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"1"[..]), "it is as it was when the snapshot was taken");
    drop((t, late));
    // What the transaction has emptied itself it may fill.
    put(&env, b"k", b"1");
    let txn = begin(&env, Isolation::Snapshot);
    let mut t = txn.bytes("t").unwrap();
    t.delete(b"k").unwrap();
    assert_eq!(t.load_sorted([(b"a", b"2")]).unwrap(), 1);
    assert_eq!(all(&txn), [(b"a".to_vec(), b"2".to_vec())]);
}

#[test]
fn a_failed_environment_still_shows_what_is_durable() {
    let disk = SimDisk::new();
    let env =
        Environment::options().cache_bytes(4 << 20).page_count_max(1 << 16).open_on(Arc::new(disk.clone())).unwrap();
    put(&env, b"k", b"durable");
    let durable = env.snapshot().unwrap();
    let t = durable.bytes("t").unwrap();
    t.get(b"k").unwrap();
    let volatile = TransactionOptions { durability: Some(Durability::Volatile), ..Default::default() };
    env.transact_with(volatile, |txn| txn.bytes("t")?.put(b"k", b"lost")).unwrap();
    let later = env.snapshot().unwrap();
    let lost = later.bytes("t").unwrap();
    disk.crash_now();
    let failed = env.transact(|txn| txn.bytes("t")?.put(b"k", b"no"));
    assert!(failed.is_err());
    assert!(env.is_failed());
    assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"durable"[..]));
    assert!(matches!(lost.get(b"k"), Err(Error::Failed { .. })));
}

#[test]
fn stat_says_who_holds_what_back() {
    let env = open();
    put(&env, b"k", b"1");
    let snapshot = env.snapshot().unwrap();
    env.transact(|txn| {
        let t = txn.bytes("t")?;
        (0..100u32).try_for_each(|n| t.put(&number(n), &[1; 100]))
    })
    .unwrap();
    env.transact(|txn| txn.drop_table("t")).unwrap();
    env.reclaim().unwrap();
    let stat = env.stat().unwrap();
    let held: Vec<_> = stat.snapshots.iter().map(|held| (held.lsn, held.xid)).collect();
    assert_eq!(held, [(snapshot.snapshot_lsn().unwrap().0, snapshot.xid().0)]);
    assert_eq!(stat.oldest_snapshot_lsn, held[0].0);
    assert!(stat.snapshots[0].held_bytes > 3000 && stat.snapshots[0].held_bytes <= stat.version_store_used_bytes);
    assert!(stat.version_store_used_bytes > 3000 && stat.held_back_free_count == 1, "{stat:?}");
    drop(snapshot);
    env.reclaim().unwrap();
    let stat = env.stat().unwrap();
    assert!(stat.snapshots.is_empty() && stat.version_store_used_bytes == 0 && stat.held_back_free_count == 0);
    assert!(stat.oldest_snapshot_lsn > held[0].0);
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

    /// Alone, so at every level as the model; a handle from before the table changed is refused or still good, and never
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
        let problems = env.verify(&mut |_| {}).unwrap().problems;
        prop_assert!(problems.is_empty(), "{problems:?}");
    }
}
