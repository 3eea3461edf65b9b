//! Snapshots and isolation levels, as users see them.

mod common;

use std::io::{Read as _, Seek, SeekFrom, Write};
use std::ops::Bound;
use std::sync::Arc;

use common::levels::{all, begin, delete, number, open, open_with, options, put};
use ledgerstone::{
    Durability, Environment, Error, IndexDef, IndexKeys, Isolation, Locking, Transaction, TransactionOptions,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::{self, Scheduler};

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
    assert!(env.verify().unwrap().problems.is_empty());
}

/// A table that was filled by a sorted load has no word of when its records came: a snapshot that is older would see
/// them all, and write over them.
#[test]
fn a_table_that_another_has_created_since_is_a_conflict() {
    let env = open();
    for is_loaded in [false, true] {
        let name = if is_loaded { "loaded" } else { "put" };
        let txn = begin(&env, Isolation::Snapshot);
        env.transact(|other| {
            let mut table = other.create_table(name)?;
            if is_loaded {
                table.load_sorted((0..100u32).map(|n| (number(n), b"1"))).map(drop)
            } else {
                table.put(b"other's", b"1")
            }
        })
        .unwrap();
        assert!(matches!(txn.bytes(name), Err(Error::NoSuchTable(_))));
        let opened = txn.bytes_or_create(name);
        assert!(matches!(opened, Err(Error::SnapshotConflict { .. })), "{name}: {opened:?}");
        let options = TransactionOptions { isolation: Some(Isolation::Snapshot), ..TransactionOptions::default() };
        let again = env.transact_with(options, |txn| txn.bytes_or_create(name)?.put(b"own", b"2"));
        assert!(again.is_ok(), "{name}: {again:?}");
        // One of its own is none of another's.
        let own = env.transact_with(options, |txn| {
            txn.bytes_or_create(&format!("{name}, mine"))?.put(b"k", b"1")?;
            txn.bytes_or_create(&format!("{name}, mine"))?.get(b"k")
        });
        assert_eq!(own.unwrap(), Some(b"1".to_vec()), "{name}");
    }
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
    assert!(env.verify().unwrap().problems.is_empty());
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
    assert!(env.verify().unwrap().problems.is_empty());
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
        assert!(env.verify().unwrap().problems.is_empty());
    }
}

/// What it changed is read from the log: checkpoints may not give that up while a snapshot needs it, whoever has ended.
#[test]
fn the_log_of_a_large_transaction_stays_for_the_snapshots_that_do_not_see_it() {
    let env = options()
        .version_store_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
        .log_buffer_bytes(128 << 10)
        .open_on(Arc::new(SimDisk::new()))
        .unwrap();
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        txn.create_table("other")?;
        (0..600u32).try_for_each(|n| t.put(&number(n), &[n as u8; 150]))
    })
    .unwrap();
    let before = env.snapshot().unwrap();
    let seen = all(&before);
    env.transact(|txn| (0..600u32).try_for_each(|n| txn.bytes("t")?.put(&number(n), &[7; 333]))).unwrap();
    for _ in 0..3 {
        env.transact(|txn| (0..2000u32).try_for_each(|n| txn.bytes("other")?.put(&number(n), &[8; 333]))).unwrap();
        env.checkpoint().unwrap();
    }
    assert!(env.stat().unwrap().version_spilled_count > 0);
    assert_sees(&before, &seen, "beside checkpoints");
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
        // What was deleted before the snapshot, and what it has deleted itself, is not a conflict.
        let txn = begin(&env, Isolation::Snapshot);
        let t = txn.bytes("t").unwrap();
        t.delete(&number(35)).unwrap();
        assert_eq!(t.delete_range(..).unwrap(), 39);
        txn.commit().unwrap();
        assert_eq!(all(&env.snapshot().unwrap()), []);
        assert!(env.verify().unwrap().problems.is_empty());
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
fn a_range_shows_its_own_transactions_changes_ahead_of_it_at_every_level() {
    let levels = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted, Isolation::ReadUncommitted];
    for level in levels {
        let env = open();
        (0..10u32).for_each(|n| put(&env, &number(n * 10), b"old"));
        let txn = begin(&env, level);
        let t = txn.bytes("t").unwrap();
        let mut range = t.range(..).unwrap();
        assert_eq!(range.next().unwrap().unwrap().0, number(0));
        t.delete(&number(10)).unwrap();
        t.put(&number(15), b"own").unwrap();
        t.put(&number(20), b"own").unwrap();
        let next: Vec<_> = range.by_ref().take(3).map(Result::unwrap).collect();
        let expected: Vec<(Vec<u8>, Vec<u8>)> =
            [(15, "own"), (20, "own"), (30, "old")].map(|(n, v)| (number(n).to_vec(), v.into())).into();
        assert_eq!(next, expected, "{level:?}");
        let mut back = t.range(..).unwrap().rev();
        assert_eq!(back.next().unwrap().unwrap().0, number(90));
        t.delete(&number(80)).unwrap();
        t.put(&number(75), b"own").unwrap();
        assert_eq!(back.next().unwrap().unwrap().0, number(75), "{level:?}");
    }
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

#[test]
fn a_range_that_outlives_its_transaction_keeps_no_snapshot() {
    let env = open();
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        (0..500u32).try_for_each(|n| t.put(&number(n), &[0; 100]))
    })
    .unwrap();
    type End = fn(Transaction);
    let ends: [End; 3] = [|txn| drop(txn.commit().unwrap()), |txn| txn.abort().unwrap(), drop];
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        for end in ends {
            let txn = begin(&env, isolation);
            let t = txn.bytes("t").unwrap();
            // Many that have gone, and some that stay.
            (0..100).for_each(|_| assert!(t.first().unwrap().is_some()));
            let mut ranges: Vec<_> = (0..3).map(|_| t.range(..).unwrap()).collect();
            assert!(ranges.iter_mut().all(|range| range.next().is_some()));
            assert_eq!(env.stat().unwrap().snapshots.len(), 3, "{isolation}");
            drop(ranges.pop());
            assert_eq!(env.stat().unwrap().snapshots.len(), 2, "{isolation}");
            end(txn);
            assert_eq!(env.stat().unwrap().snapshots.len(), 0, "{isolation}");
            let next = ranges[0].next();
            assert!(matches!(next, Some(Err(Error::Finished))), "{isolation}: {next:?}");
            assert!(ranges[0].next().is_none());
        }
    }
}

/// What a snapshot keeps from being freed is looked for again and again, but less and less often. In virtual time.
#[test]
fn what_a_snapshot_holds_back_costs_the_housekeeper_few_reads() {
    const SECOND_NS: u64 = 1_000_000_000;
    let (first, later) = Scheduler::run(3, || {
        let disk = SimDisk::new();
        let env = common::tiny().open_on(Arc::new(disk.clone())).unwrap();
        // More than the cache has frames for the list of them.
        let change = |value: &[u8]| {
            for part in 0..60u32 {
                env.transact(|txn| {
                    let t = txn.bytes_or_create("t")?;
                    (0..100).try_for_each(|n| t.put(number(part * 100 + n), value))
                })
                .unwrap();
            }
        };
        change(&[1; 2_000]);
        let snapshot = env.snapshot().unwrap();
        change(b"short");
        let reads_in = |seconds: u64| {
            let before = disk.counters().reads;
            sync::sleep_ns(seconds * SECOND_NS);
            disk.counters().reads - before
        };
        let reads = (reads_in(600), reads_in(600));
        let stat = env.stat().unwrap();
        assert!(stat.held_back_free_count > 0 && stat.allocated_page_count > 6_000, "{stat:?}");
        drop(snapshot);
        let ended_ns = sync::now_ns();
        while env.stat().unwrap().allocated_page_count > 1_000 {
            assert!(sync::now_ns() - ended_ns < 60 * SECOND_NS, "{:?}", env.stat());
            sync::sleep_ns(SECOND_NS);
        }
        env.close().unwrap();
        reads
    })
    .unwrap();
    println!("{first} reads in ten minutes, {later} in the next ten");
    assert!(first <= 4_000 && later <= 2_000, "{first} reads in ten minutes, {later} in the next ten");
}
