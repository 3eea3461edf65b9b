//! Tables in the change feed: made, dropped and renamed there as they were, and never under another name.

mod common;

use std::sync::Arc;

use common::changes::{Replica, all, put, put_one, whole};
use common::*;
use ledgerstone::{
    CommittedChanges, Environment, Error, FeedItem, IndexDef, IndexKeys, Lsn, TableDef, TableEvent, TableTypes,
    Transaction,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

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
        .flat_map(|commit| commit.changes().cloned().collect::<Vec<_>>())
        .map(|change| (change.table.to_string(), change.key))
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
    // Names swapped in one transaction, with changes around: each has the name of its time.
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
    let expected = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("a", 5), ("b", 6), ("a", 7), ("a", 8)];
    let check = |commits: &[CommittedChanges]| {
        let told = commits.iter().flat_map(|commit| commit.changes());
        let names: Vec<_> = told.map(|c| (c.table.to_string(), c.key.clone())).collect();
        assert_eq!(names, expected.map(|(table, n)| (table.to_string(), key(n))));
        let events = |commit: &CommittedChanges| {
            let items = commit.items.iter().filter_map(|item| match item {
                FeedItem::Table(change) => Some((change.table.to_string(), change.event.clone())),
                _ => None,
            });
            items.collect::<Vec<_>>()
        };
        let renamed = |from: &str, to: &str| (from.to_string(), TableEvent::Renamed { to: to.to_string() });
        assert_eq!(events(&commits[2]), [renamed("a", "c"), renamed("b", "a"), renamed("c", "b")]);
        assert_eq!(events(&commits[6]), [renamed("a", "z"), ("z".to_string(), TableEvent::Dropped)]);
        let ids: Vec<_> = commits[2].changes().map(|change| change.table_id).collect();
        assert_ne!(ids[0], ids[1], "two tables of one name");
    };
    check_now_and_after_a_crash(env, &disk, from, &check);
}

/// Checks the commits from a position on, and that from every later one on they are the same, with the same names.
/// Names before the newest are found by taking renames back.
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
        let names: Vec<_> = commits.iter().flat_map(|commit| commit.changes()).map(|change| &*change.table).collect();
        assert_eq!(names, [&["other"; 7][..], &["dropped", "anew", "renamed", "anew", "new"]].concat());
    };
    check_now_and_after_a_crash(env, &disk, from, &check);
}

#[test]
fn changes_have_the_name_that_their_table_had_then() {
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
        .map(|commit| commit.changes().map(|change| (change.table.to_string(), change.key.clone())).collect::<Vec<_>>())
        .collect();
    let of = |table: &str, n: u64| (table.to_string(), key(n));
    let second = vec![of("old", 2), of("new", 3), of("loaded", 4), of("loaded", 5), of("new", 6)];
    assert_eq!(seen, [vec![of("old", 1)], second]);
}

/// One step of a transaction on tables whose names begin so. What is refused is refused.
fn step(txn: &Transaction, prefix: &str, random: &mut Random) -> Result<(), Error> {
    let name = format!("{prefix}{}", random.below(4));
    let other = format!("{prefix}{}", random.below(4));
    let done = match random.below(18) {
        0 => txn.create_table(&name).map(drop),
        16 => {
            txn.open(TableDef::<u64, Vec<u8>>::new(&name)).and_then(|table| table.put(&random.below(60), &vec![7; 9]))
        }
        17 => {
            let key = (random.below(2) == 0).then(|| "u64".to_string());
            let value = (random.below(3) == 0).then(|| "bytes".to_string());
            txn.set_table_types(&name, &TableTypes { key, value })
        }
        1 => txn.drop_table(&name),
        2 => txn.rename_table(&name, &other),
        3 => (|| {
            // Names swapped.
            let between = format!("{prefix}x");
            txn.rename_table(&name, &between)?;
            if name != other {
                match txn.rename_table(&other, &name) {
                    Err(Error::NoSuchTable(_)) => {}
                    done => done?,
                }
            }
            txn.rename_table(&between, &other)
        })(),
        4 => (|| {
            let mut table = txn.bytes(&name)?;
            table.delete_range(..)?;
            let count = random.below(200);
            table.load_sorted((0..count).map(|n| (key(n), vec![7; 20 + n as usize % 9]))).map(drop)
        })(),
        5 => txn.create_index(&name, &IndexDef::new(format!("i{}", random.below(2)), IndexKeys::Value)),
        6 => txn.drop_index(&name, &format!("i{}", random.below(2))),
        7 => txn.bytes(&name).and_then(|table| table.delete_range(..&key(random.below(60))[..]).map(drop)),
        8 => txn.nested(|txn| {
            step(txn, prefix, random)?;
            step(txn, prefix, random)?;
            if random.below(2) == 0 { Err(Error::Cancelled) } else { Ok(()) }
        }),
        _ => txn.bytes_or_create(&name).and_then(|table| {
            for _ in 0..random.below(6) {
                let key = key(random.below(60));
                match random.below(4) {
                    0 => drop(table.delete(&key)?),
                    _ => table.put(&key, &vec![7; random.below(60) as usize])?,
                }
            }
            Ok(())
        }),
    };
    match done {
        Err(
            Error::NoSuchTable(_)
            | Error::TableExists(_)
            | Error::NoSuchIndex { .. }
            | Error::IndexExists { .. }
            | Error::Cancelled
            | Error::NotSorted { .. }
            | Error::NotAtEnd { .. }
            | Error::TableTypeMismatch { .. },
        ) => Ok(()),
        done => done,
    }
}

/// Runs transactions until the process dies in the middle of one, or of its commit: it may be there afterwards or not.
fn die_inside(env: &Environment, disk: &SimDisk, random: &mut Random) {
    let part = if random.below(2) == 0 { u64::MAX } else { 4096 };
    disk.kill_at(disk.counters().mutations + 1 + random.below(6), part);
    while !disk.is_crashed() {
        let done = env.begin().and_then(|txn| {
            (0..=random.below(4)).try_for_each(|_| step(&txn, "t", random))?;
            txn.commit().map(drop)
        });
        assert!(done.is_ok() || disk.is_crashed(), "{done:?}");
    }
}

/// From whichever moment a dump is, the feed behind it makes the environment of it. Tables are made, dropped, renamed,
/// typed, filled and indexed meanwhile, beside transactions that are open for long. Power is lost and processes are
/// killed, between commits and inside of them.
#[test]
fn a_dump_and_the_feed_behind_it_are_the_environment() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new();
        let mut env = whole(&disk);
        drop(env.named_changes("keeps the log").unwrap());
        // Between the names of the two kinds of transactions, so that they do not wait for each other's gaps.
        env.transact(|txn| txn.create_table("m").and_then(|_| txn.create_table("z")).map(drop)).unwrap();
        // What dumps of different moments have become, and how far.
        let mut replicas: Vec<(Replica, Lsn)> = Vec::new();
        let mut long: Option<Transaction> = None;
        for round in 0..60 {
            let txn = env.begin().unwrap();
            for _ in 0..=random.below(4) {
                step(&txn, "t", &mut random).unwrap();
            }
            if random.below(6) == 0 {
                txn.abort().unwrap()
            } else {
                drop(txn.commit().unwrap())
            }
            // One that is open while others commit, with tables of its own.
            let open = long.get_or_insert_with(|| env.begin().unwrap());
            step(open, "l", &mut random).unwrap();
            match random.below(8) {
                0 => drop(long.take().map(|txn| txn.commit().unwrap())),
                1 => drop(long.take()),
                _ => {}
            }
            if random.below(8) == 0 && replicas.len() < 6 {
                replicas.push(Replica::of_dump(&env));
            }
            if random.below(10) == 0 {
                if random.below(2) == 0 {
                    die_inside(&env, &disk, &mut random);
                }
                drop(long.take());
                disk.crash_now();
                drop(env);
                disk = if random.below(2) == 0 { disk.after_crash(random.below(1000)) } else { disk.after_kill() };
                env = whole(&disk);
            }
            if round % 7 == 6 {
                for (no, (replica, position)) in replicas.iter_mut().enumerate() {
                    let mut feed = env.changes(*position).unwrap();
                    replica.apply(&all(&mut feed));
                    *position = feed.position();
                    replica.check(&env, &format!("seed {seed}, round {round}, replica {no}"));
                }
            }
        }
    }
}

/// Thousands of tables made by one transaction come in parts of a bounded size.
#[test]
fn many_changes_of_tables_come_in_parts() {
    let env = whole(&SimDisk::new());
    put_one(&env);
    let (mut replica, from) = Replica::of_dump(&env);
    env.transact(|txn| {
        for n in 0..600 {
            txn.create_table(&format!("table {n}"))?;
        }
        (0..600).try_for_each(|n| if n % 3 > 0 { txn.drop_table(&format!("table {n}")) } else { Ok(()) })
    })
    .unwrap();
    let mut feed = env.changes(from).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = feed.next().unwrap() {
        assert!(part.items.len() < 400, "{} items at once", part.items.len());
        parts.push(part);
    }
    assert!(parts.len() > 3, "{} parts", parts.len());
    replica.apply(&parts);
    replica.check(&env, "at the end");
}
