//! The change feed: committed changes, in order, once, and after crashes too.

mod common;

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use ledgerstone::{
    ChangeFeed, ChangeValue, CommittedChanges, CompactOptions, Environment, Error, IndexDef, IndexKeys, LogValues, Lsn,
};
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

fn all(feed: &mut ChangeFeed) -> Vec<CommittedChanges> {
    std::iter::from_fn(|| feed.next().unwrap()).collect()
}

/// Tables as the feed tells them.
#[derive(Default, PartialEq, Debug)]
struct Replica(BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>);

impl Replica {
    /// Applies changes, and fails where what was before is not what the replica has.
    fn apply(&mut self, commits: &[CommittedChanges]) {
        for change in commits.iter().flat_map(|commit| &commit.changes) {
            let records = self.0.entry(change.table.clone().expect("a name")).or_default();
            let old = records.get(&change.key).cloned();
            match &change.old {
                ChangeValue::Absent => assert_eq!(old, None, "{change:?}"),
                ChangeValue::Whole(bytes) => assert_eq!(old.as_ref(), Some(bytes), "{change:?}"),
                ChangeValue::Large(_) => {}
                other => panic!("{other:?}"),
            }
            match &change.new {
                ChangeValue::Absent => drop(records.remove(&change.key)),
                ChangeValue::Whole(bytes) => drop(records.insert(change.key.clone(), bytes.clone())),
                ChangeValue::Large(bytes) => drop(records.insert(change.key.clone(), vec![7; *bytes as usize])),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn whole(disk: &SimDisk) -> Environment {
    tiny().log_values(LogValues::Whole).open_on(Arc::new(disk.clone())).unwrap()
}

fn put(env: &Environment, table: &str, n: u64, value: &[u8]) {
    env.transact(|txn| txn.bytes_or_create(table)?.put(&key(n), value)).unwrap();
}

#[test]
fn a_replica_made_of_the_changes_equals_the_tables() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
    let mut replica = Replica::default();
    let mut random = 1u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
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
    assert!(replica.0 == read(&env).unwrap(), "the replica differs");
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
    assert!(there.iter().flat_map(|commit| &commit.changes).all(|change| change.key != key(99)));
    let of_long = there.iter().find(|c| c.changes[0].table.as_deref() == Some("long")).unwrap();
    assert_eq!(of_long.changes.len(), 2);
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
fn tables_have_the_names_they_had() {
    let disk = SimDisk::new();
    let env = tiny().open_on(Arc::new(disk)).unwrap();
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    put(&env, "a", 1, b"x");
    put(&env, "b", 1, b"y");
    env.transact(|txn| txn.drop_table("a")).unwrap();
    env.reclaim().unwrap();
    put(&env, "c", 1, b"z");
    env.transact(|txn| {
        txn.bytes("b")?.delete(&key(1))?;
        txn.drop_table("b")
    })
    .unwrap();
    put(&env, "a", 2, b"again");
    let told: Vec<(String, Vec<u8>)> = all(&mut env.changes(from).unwrap())
        .into_iter()
        .flat_map(|commit| commit.changes)
        .map(|change| (change.table.unwrap_or_default(), change.key))
        .collect();
    let expected = [("a", 1), ("b", 1), ("c", 1), ("b", 1), ("a", 2)];
    assert_eq!(told, expected.map(|(table, n)| (table.to_string(), key(n))));
}

#[test]
fn renames_are_followed_forward_and_back() {
    let disk = SimDisk::new();
    let env = tiny().open_on(Arc::new(disk.clone())).unwrap();
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    put(&env, "a", 1, b"1");
    put(&env, "b", 2, b"2");
    // Names swapped in one transaction, with changes around: they have the name of the commit.
    env.transact(|txn| {
        txn.bytes("a")?.put(&key(3), b"3")?;
        txn.rename_table("a", "c")?;
        txn.rename_table("b", "a")?;
        txn.rename_table("c", "b")?;
        txn.bytes("a")?.put(&key(4), b"4")
    })
    .unwrap();
    put(&env, "a", 5, b"5");
    put(&env, "b", 6, b"6");
    let not_kept = env.begin().unwrap();
    not_kept.rename_table("a", "gone").unwrap();
    not_kept.abort().unwrap();
    put(&env, "a", 7, b"7");
    env.transact(|txn| {
        txn.bytes("a")?.put(&key(8), b"8")?;
        txn.rename_table("a", "z")?;
        txn.drop_table("z")
    })
    .unwrap();
    let expected = [("a", 1), ("b", 2), ("b", 3), ("a", 4), ("a", 5), ("b", 6), ("a", 7)];
    let check = |commits: &[CommittedChanges]| {
        let told: Vec<_> = commits.iter().flat_map(|commit| &commit.changes).collect();
        let (last, others) = told.split_last().unwrap();
        let names: Vec<_> = others.iter().map(|c| (c.table.clone().unwrap(), c.key.clone())).collect();
        assert_eq!(names, expected.map(|(table, n)| (table.to_string(), key(n))));
        assert_eq!((last.key.clone(), last.table.is_some()), (key(8), true));
    };
    check_now_and_after_a_crash(env, &disk, from, &check);
}

/// Checks the commits from a position on, and that from every later one on they are the same, with the same names: those before the newest
/// are found by taking renames back.
fn check_now_and_after_a_crash(env: Environment, disk: &SimDisk, from: Lsn, check: &dyn Fn(&[CommittedChanges])) {
    let check = |env: &Environment| {
        let commits = all(&mut env.changes(from).unwrap());
        check(&commits);
        for (no, commit) in commits.iter().enumerate() {
            assert_eq!(all(&mut env.changes(commit.position).unwrap()), commits[no + 1..], "behind commit {no}");
        }
    };
    check(&env);
    let crashed = disk.after_crash(1);
    drop(env);
    check(&tiny().open_on(Arc::new(crashed)).unwrap());
}

#[test]
fn a_change_of_names_under_way_at_a_position_is_taken_back_whole() {
    let disk = SimDisk::new();
    let env = tiny().open_on(Arc::new(disk.clone())).unwrap();
    for table in ["dropped", "anew", "renamed", "other"] {
        put(&env, table, 1, b"1");
    }
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    let long = env.begin().unwrap();
    for table in ["dropped", "anew", "renamed"] {
        long.bytes(table).unwrap().put(&key(2), b"2").unwrap();
        put(&env, "other", 2, table.as_bytes());
    }
    let steps: [&dyn Fn() -> Result<(), Error>; 4] = [
        &|| long.drop_table("dropped"),
        &|| long.drop_table("anew"),
        &|| long.create_table("anew")?.put(&key(3), b"3"),
        &|| long.rename_table("renamed", "new"),
    ];
    for (n, step) in (3..).zip(steps) {
        step().unwrap();
        put(&env, "other", n, b"between");
    }
    long.commit().unwrap();
    put(&env, "new", 9, b"9");
    let check = |commits: &[CommittedChanges]| {
        let names = commits.iter().flat_map(|commit| &commit.changes).map(|change| change.table.as_deref());
        let names: Vec<_> = names.map(Option::unwrap).collect();
        assert_eq!(names, [&["other"; 7][..], &["dropped", "anew", "new", "anew", "new"]].concat());
    };
    check_now_and_after_a_crash(env, &disk, from, &check);
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
    let loaded = &commits[0].changes;
    assert_eq!(loaded.len(), 500);
    assert!(loaded.iter().all(|change| change.table.as_deref() == Some("plain") && change.old == ChangeValue::Absent));
    replica.apply(&commits);
    assert!(replica.0 == read(&env).unwrap(), "the replica differs");
}

#[test]
fn changes_have_the_name_that_their_table_had_at_the_commit() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    put(&env, "old", 1, b"one");
    let mut feed = env.changes(Lsn(0)).unwrap();
    env.transact(|txn| {
        txn.bytes("old")?.put(&key(2), b"two")?;
        txn.rename_table("old", "new")?;
        txn.bytes("new")?.put(&key(3), b"three")?;
        // Few records, which a sorted load puts one by one into a tree that has no name yet.
        txn.create_table("loaded")?.load_sorted([(key(4), b"four"), (key(5), b"five")])?;
        txn.bytes("new")?.put(&key(6), b"six")
    })
    .unwrap();
    let seen: Vec<_> = all(&mut feed)
        .iter()
        .map(|commit| {
            commit.changes.iter().map(|change| (change.table.clone(), change.key.clone())).collect::<Vec<_>>()
        })
        .collect();
    let of = |table: &str, n: u64| (Some(table.to_string()), key(n));
    let second = vec![of("new", 2), of("new", 3), of("loaded", 4), of("loaded", 5), of("new", 6)];
    assert_eq!(seen, [vec![of("old", 1)], second]);
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
        assert_eq!(commit.changes[0].key, key(n));
    }
    thread.join().unwrap();
    let follower = std::thread::spawn(move || feed.follow(None).map(|_| ()));
    env.close().unwrap();
    let ended = within(60, "the follower", move || follower.join().unwrap());
    assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
}

#[test]
fn a_named_feed_keeps_its_log_over_restarts_up_to_its_bound() {
    let disk = SimDisk::new();
    let options = || tiny().feed_log_bytes_max(700 << 10);
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let feed = env.named_changes("search").unwrap();
    let begin = feed.position();
    drop(feed);
    put(&env, "t", 1, b"first");
    for round in 0..3u64 {
        (0..80).for_each(|n| put(&env, "t", 100 * round + n, &[3; 500]));
        env.checkpoint().unwrap();
    }
    let pin = env.stat().unwrap().log_pins.into_iter().find(|pin| pin.name == "feed search").unwrap();
    assert!(pin.lsn <= begin.0 && pin.bytes_max == Some(700 << 10));
    env.close().unwrap();

    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    let first = feed.next().unwrap().unwrap();
    assert_eq!(first.changes[0].key, key(1), "nothing was lost over the restart");
    feed.acknowledge(first.position).unwrap();
    drop(feed);
    let env = {
        let crashed = disk.after_crash(9);
        drop(env);
        options().open_on(Arc::new(crashed)).unwrap()
    };
    let mut feed = env.named_changes("search").unwrap();
    assert_eq!(feed.next().unwrap().unwrap().changes[0].key, key(0), "behind what was acknowledged");
    let rest = all(&mut feed);
    assert_eq!(rest.len(), 239);
    drop(feed);
    // Beyond the bound the log goes, and the feed is told.
    for round in 0..12u64 {
        (0..100).for_each(|n| put(&env, "t", 1000 * round + n, &[3; 700]));
        env.checkpoint().unwrap();
    }
    let late = env.named_changes("search").map(|mut feed| feed.next().map(|_| ()));
    assert!(matches!(late, Err(Error::LogGone { .. }) | Ok(Err(Error::LogGone { .. }))), "lost in silence");
    assert!(env.forget_changes("search").unwrap() && !env.forget_changes("search").unwrap());
    assert!(env.stat().unwrap().log_pins.is_empty());
    assert!(env.named_changes("search").unwrap().next().unwrap().is_none(), "a new name begins now");
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
    let told: Vec<_> = all(&mut feed).into_iter().flat_map(|commit| commit.changes).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0].key, &told[0].old, &told[0].new),
        (&key(19), &ChangeValue::Large(40_000), &ChangeValue::Large(40_000))
    );
    env.transact(|txn| txn.bytes("t")?.delete_range(..&key(12)[..]).map(drop)).unwrap();
    env.reclaim().unwrap();
    assert_eq!(all(&mut feed).len(), 1);
    let report = env.compact(CompactOptions::default()).unwrap();
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
    let told: Vec<_> = all(&mut feed).into_iter().flat_map(|commit| commit.changes).collect();
    let told: Vec<_> = told.iter().map(|change| (change.table.as_deref(), change.key.clone())).collect();
    assert_eq!(told, [(Some("t"), key(2)), (Some("passing"), key(3))]);
}

#[test]
fn the_log_that_an_earlier_position_needs_is_kept() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    put(&env, "t", 0, b"0");
    let mut feed = env.named_changes("consumer").unwrap();
    let long = env.begin().unwrap();
    long.bytes_or_create("long").unwrap().put(&key(1), b"early").unwrap();
    for n in 0..300 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    // The commit before that of the long transaction.
    let before = all(&mut feed).pop().unwrap();
    long.commit().unwrap();
    put(&env, "t", 1, b"1");
    let behind = all(&mut feed);
    assert_eq!(behind.len(), 2);
    feed.acknowledge(before.position).unwrap();
    drop(feed);
    for _ in 0..3 {
        put(&env, "t", 2, b"2");
        env.checkpoint().unwrap();
    }
    let crashed = disk.after_crash(3);
    drop(env);
    let env = whole(&crashed);
    let mut feed = env.named_changes("consumer").unwrap();
    assert_eq!(feed.position(), before.position);
    assert_eq!(all(&mut feed)[..2], behind, "the long transaction is told whole");
    // And is let go when nothing needs it any more.
    feed.acknowledge(feed.position()).unwrap();
    assert!(feed.next().unwrap().is_none());
    let pin = env.stat().unwrap().log_pins.into_iter().find(|pin| pin.name == "feed consumer").unwrap();
    assert!(pin.lsn > before.position.0, "{pin:?}");
}

#[test]
fn what_could_not_be_read_is_there_when_it_is_asked_for_again() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    put(&env, "long", 0, b"made before");
    let long = env.begin().unwrap();
    long.bytes("long").unwrap().put(&key(1), b"early").unwrap();
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    for n in 0..400 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    long.commit().unwrap();
    put(&env, "t", 1, b"last");
    let expected = all(&mut env.changes(from).unwrap());
    assert_eq!(expected.len(), 402);
    for nth in 1..6 {
        let mut feed = env.changes(from).unwrap();
        faulty.add(Fault::at(Call::Read, nth, Harm::Fail(DiskErrorKind::Io(5))).on("log"));
        let (mut told, mut errors) = (Vec::new(), 0);
        loop {
            match feed.next() {
                Ok(Some(commit)) => told.push(commit),
                Ok(None) => break,
                Err(_) => errors += 1,
            }
            assert!(errors < 9);
        }
        assert!(told == expected, "after {errors} errors there are {} of {}", told.len(), expected.len());
    }
}
