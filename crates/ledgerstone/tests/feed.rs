//! The change feed: committed changes, in order, once, and after crashes too.

mod common;

use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use common::changes::{Replica, all, put, put_one, whole};
use common::*;
use ledgerstone::{Change, ChangeValue, Error, IndexDef, IndexKeys, Lsn};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

#[test]
fn a_replica_made_of_the_changes_equals_the_tables() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
    let mut replica = Replica::default();
    let mut random = Random::new(1);
    let mut next = move |below: u64| random.below(below);
    for round in 0..200u64 {
        let txn = env.begin().unwrap();
        {
            let table = txn.bytes_or_create(&format!("t{}", next(3))).unwrap();
            for _ in 0..=next(4) {
                let (k, kind) = (key(next(30)), next(6));
                match kind {
                    0 | 1 => drop(table.delete(&k).unwrap()),
                    2 => table.put(&k, &vec![7; 5000 + next(100) as usize]).unwrap(),
                    _ => table.put(&k, &vec![next(3) as u8; 20 + next(2) as usize]).unwrap(),
                }
            }
            if next(5) == 0 {
                // What is taken back is not shown.
                let savepoint = txn.savepoint().unwrap();
                table.put(&key(1), b"taken back").unwrap();
                table.delete(&key(2)).unwrap();
                txn.rollback_to(savepoint).unwrap();
                table.put(&key(3), b"after").unwrap();
            }
        }
        if next(6) == 0 {
            txn.abort().unwrap()
        } else {
            drop(txn.commit().unwrap())
        }
        if round % 7 == 0 {
            replica.apply(&all(&mut feed));
        }
    }
    replica.apply(&all(&mut feed));
    replica.check(&env, "at the end");
}

#[test]
fn every_position_is_one_to_go_on_from_after_a_crash_too() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    put(&env, "t", 0, b"0");
    // Transactions that are open for long, around the others' commits.
    let long = env.begin().unwrap();
    long.bytes_or_create("long").unwrap().put(&key(1), b"early").unwrap();
    for n in 1..10 {
        put(&env, "t", n, &n.to_be_bytes());
    }
    long.bytes("long").unwrap().put(&key(2), b"late").unwrap();
    long.commit().unwrap();
    for n in 10..15 {
        put(&env, "t", n, &n.to_be_bytes());
    }
    let open = env.begin().unwrap();
    open.bytes("t").unwrap().put(&key(99), b"never").unwrap();
    put(&env, "u", 1, b"one");
    let mut feed = env.changes(Lsn(0)).unwrap();
    let there = all(&mut feed);
    assert!(there.len() >= 17, "{}", there.len());
    assert!(there.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
    assert!(there.iter().flat_map(|commit| commit.changes()).all(|change| change.key != key(99)));
    let of_long = there.iter().find(|c| &*c.changes().next().unwrap().table == "long").unwrap();
    assert_eq!(of_long.changes().count(), 2);
    for (no, commit) in there.iter().enumerate() {
        assert_eq!(all(&mut env.changes(commit.position).unwrap()), there[no + 1..], "behind commit {no}");
    }
    let crashed = disk.after_crash(4);
    drop(feed);
    drop(open);
    let env = whole(&crashed);
    for (no, commit) in there.iter().enumerate().step_by(3) {
        assert_eq!(all(&mut env.changes(commit.position).unwrap()), there[no + 1..], "after the crash");
    }
}

#[test]
fn records_of_a_bulk_load_are_shown_each_once() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
    let mut replica = Replica::default();
    let load = |txn: &ledgerstone::Transaction, name: &str, count: u64, large: u64| {
        let mut table = txn.bytes_or_create(name)?;
        table.load_sorted((0..count).map(|n| {
            // Every so often one that lies outside of the leaves, with which those before it are put one by one.
            let len = if large > 0 && n % large == large - 1 { 5000 } else { n % 50 };
            (key(n), vec![7; len as usize])
        }))
    };
    env.transact(|txn| load(txn, "plain", 500, 0)).unwrap();
    env.transact(|txn| load(txn, "large", 500, 60)).unwrap();
    env.transact(|txn| load(txn, "few", 3, 0)).unwrap();
    env.transact(|txn| txn.bytes_or_create("there before").map(drop)).unwrap();
    env.transact(|txn| {
        load(txn, "there before", 300, 0)?;
        // Changes of what was loaded, and splits of its leaves; some of it taken back.
        let table = txn.bytes("there before")?;
        (0..300).step_by(3).try_for_each(|n| table.put(&key(n), &[1; 100]))?;
        let savepoint = txn.savepoint()?;
        (0..300).step_by(2).try_for_each(|n| table.put(&[key(n), vec![0]].concat(), &[2; 90]))?;
        txn.rollback_to(savepoint)?;
        table.delete(&key(7))?;
        table.put(&[key(4), vec![0]].concat(), &[3; 90])
    })
    .unwrap();
    let lost = env.begin().unwrap();
    load(&lost, "lost", 400, 0).unwrap();
    lost.abort().unwrap();
    env.transact(|txn| {
        let savepoint = txn.savepoint()?;
        load(txn, "taken back", 400, 0)?;
        txn.rollback_to(savepoint)?;
        load(txn, "loaded again", 200, 0).map(drop)
    })
    .unwrap();
    let commits = all(&mut feed);
    assert_eq!(commits[0].changes().count(), 500);
    assert!(commits[0].changes().all(|change| &*change.table == "plain" && change.old == ChangeValue::Absent));
    replica.apply(&commits);
    replica.check(&env, "at the end");
}

#[test]
fn a_follower_waits_and_sees_only_what_is_durable() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, "t", 0, b"x");
    let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
    assert!(feed.follow(Some(Duration::from_millis(1))).unwrap().is_none());
    let writer = env.clone();
    let thread = std::thread::spawn(move || (0..40).for_each(|n| put(&writer, "t", n, b"y")));
    for n in 0..40 {
        let commit = feed.follow(Some(Duration::from_secs(60))).unwrap().expect("a commit");
        assert_eq!(commit.changes().next().unwrap().key, key(n));
    }
    thread.join().unwrap();
    let follower = std::thread::spawn(move || feed.follow(None).map(|_| ()));
    env.close().unwrap();
    let ended = within(60, "the follower", move || follower.join().unwrap());
    assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
}

#[test]
fn a_part_of_a_large_value_is_a_change_and_a_move_of_it_is_none() {
    let env = whole(&SimDisk::new());
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..20).try_for_each(|n| table.put(&key(n), &vec![n as u8; 40_000]))
    })
    .unwrap();
    let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
    env.transact(|txn| {
        let table = txn.bytes("t")?;
        let mut writer = table.value_writer(&key(19))?;
        writer.seek(SeekFrom::Start(100)).unwrap();
        writer.write_all(b"other bytes, the same length").unwrap();
        Ok::<_, Error>(())
    })
    .unwrap();
    let told: Vec<_> = all(&mut feed).iter().flat_map(|commit| commit.changes().cloned().collect::<Vec<_>>()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0].key, &told[0].old, &told[0].new),
        (&key(19), &ChangeValue::Large(40_000), &ChangeValue::Large(40_000))
    );
    env.transact(|txn| txn.bytes("t")?.delete_range(..&key(12)[..]).map(drop)).unwrap();
    env.reclaim().unwrap();
    assert_eq!(all(&mut feed).len(), 1);
    let report = env.compact().unwrap();
    assert!(report.moved_page_count > 0, "{report:?}");
    assert_eq!(all(&mut feed), [], "a compaction changes nothing");
}

#[test]
fn entries_of_an_index_that_is_made_and_dropped_again_are_not_shown() {
    let env = whole(&SimDisk::new());
    put(&env, "t", 1, b"one");
    let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
    let index = IndexDef::new("i", IndexKeys::Value);
    env.transact(|txn| {
        txn.create_index("t", &index)?;
        txn.bytes("t")?.put(&key(2), b"two")?;
        txn.drop_index("t", "i")?;
        txn.create_table("passing")?.put(&key(3), b"three")?;
        txn.drop_table("passing")
    })
    .unwrap();
    let told: Vec<_> = all(&mut feed).iter().flat_map(|commit| commit.changes().cloned().collect::<Vec<_>>()).collect();
    let told: Vec<_> = told.iter().map(|change| (&*change.table, change.key.clone())).collect();
    assert_eq!(told, [("t", key(2)), ("passing", key(3))]);
}

/// A transaction whose changes take more memory than a feed may have comes in parts of a bounded size. What it took
/// back does not come. The same holds from its middle on.
#[test]
fn a_large_transaction_comes_in_parts() {
    let env = whole(&SimDisk::new()); // A feed may hold 32 KiB.
    put_one(&env);
    let (mut replica, from) = Replica::of_dump(&env);
    let txn = env.begin().unwrap();
    let table = txn.create_table("t").unwrap();
    let put = |from: u64, upto: u64, len: usize| (from..upto).for_each(|n| table.put(&key(n), &vec![7; len]).unwrap());
    put(0, 3000, 20);
    let mut middle = env.changes(Lsn(u64::MAX)).unwrap();
    let savepoint = txn.savepoint().unwrap();
    put(2000, 5000, 30);
    txn.create_table("taken back").unwrap();
    txn.rollback_to(savepoint).unwrap();
    put(2900, 4000, 40);
    txn.rename_table("t", "u").unwrap();
    txn.bytes("u").unwrap().put(&key(1), b"renamed").unwrap();
    // A small one commits first.
    put_one(&env);
    txn.commit().unwrap();
    put_one(&env);
    let mut feed = env.changes(from).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = feed.next().unwrap() {
        let len = |value: &ChangeValue| if let ChangeValue::Whole(bytes) = value { bytes.len() } else { 0 };
        let bytes = |change: &Change| 192 + change.key.len() + len(&change.old) + len(&change.new);
        let bytes: usize = part.changes().map(bytes).sum();
        assert!(bytes < (32 << 10) + 512, "{bytes} bytes at once");
        if !part.is_last {
            assert!(part.position <= part.lsn, "the position of a part is before the transaction");
        }
        parts.push(part);
    }
    assert!(parts.len() > 20, "{} parts", parts.len());
    replica.apply(&parts);
    replica.check(&env, "at the end");
    // Begun in the middle, and again from a part's position, it is the same.
    let whole = all(&mut env.changes(from).unwrap());
    assert_eq!(all(&mut middle)[..], whole[whole.len() - 3..]);
    let again = parts.iter().find(|part| !part.is_last).unwrap().position;
    assert_eq!(all(&mut env.changes(again).unwrap())[..], whole[whole.len() - 2..]);
}
