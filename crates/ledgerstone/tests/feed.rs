//! The change feed: committed changes, in order, once, and after crashes too.

mod common;

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use ledgerstone::{
    Change, ChangeFeed, ChangeValue, CommittedChanges, CompactOptions, DumpItem, DumpOptions, DumpReader, Environment,
    Error, FeedItem, IndexDef, IndexKeys, LogValues, Lsn, TableChange, TableEvent, Transaction,
};
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

/// Everything to the end, the parts of each transaction together.
fn all(feed: &mut ChangeFeed) -> Vec<CommittedChanges> {
    let mut commits: Vec<CommittedChanges> = Vec::new();
    while let Some(part) = feed.next().unwrap() {
        match commits.last_mut().filter(|commit| !commit.is_last) {
            Some(commit) => {
                assert_eq!((commit.lsn, commit.xid), (part.lsn, part.xid));
                assert!(part.position >= commit.position && (part.is_last || part.position == commit.position));
                (commit.is_last, commit.position) = (part.is_last, part.position);
                commit.items.extend(part.items);
            }
            None => commits.push(part),
        }
    }
    assert!(commits.last().is_none_or(|commit| commit.is_last));
    commits
}

/// Tables as the feed tells them.
#[derive(Default, Clone, PartialEq, Debug)]
struct Replica {
    tables: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// By their ids, once the feed has named them.
    ids: BTreeMap<u64, String>,
    indexes: BTreeMap<(String, String), IndexDef>,
}

impl Replica {
    /// Applies changes, and fails where what was before is not what the replica has.
    fn apply(&mut self, commits: &[CommittedChanges]) {
        for item in commits.iter().flat_map(|commit| &commit.items) {
            match item {
                FeedItem::Record(change) => self.change(change),
                FeedItem::Table(change) => self.change_table(change),
                other => panic!("{other:?}"),
            }
        }
    }

    fn change(&mut self, change: &Change) {
        self.check_id(&change.table, change.table_id.0);
        let records = self.tables.get_mut(&*change.table).unwrap_or_else(|| panic!("no table: {change:?}"));
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

    fn change_table(&mut self, change: &TableChange) {
        let (name, id) = (change.table.to_string(), change.table_id.0);
        if !matches!(change.event, TableEvent::Created { .. }) {
            self.check_id(&name, id);
        }
        match &change.event {
            TableEvent::Created { .. } => {
                assert!(self.ids.values().all(|known| *known != name), "{change:?}");
                assert_eq!(self.ids.insert(id, name.clone()), None, "an id was used twice");
                assert_eq!(self.tables.insert(name, BTreeMap::new()), None, "{change:?}");
            }
            TableEvent::Dropped => {
                self.ids.remove(&id);
                self.tables.remove(&name).unwrap();
                self.indexes.retain(|(table, _), _| *table != name);
            }
            TableEvent::Renamed { to } => {
                self.ids.insert(id, to.clone());
                let records = self.tables.remove(&name).unwrap();
                assert_eq!(self.tables.insert(to.clone(), records), None, "{change:?}");
                let indexes = std::mem::take(&mut self.indexes).into_iter();
                let rename = |table: String| if table == name { to.clone() } else { table };
                self.indexes = indexes.map(|((table, index), def)| ((rename(table), index), def)).collect();
            }
            TableEvent::IndexCreated { index } => {
                let old = self.indexes.insert((name, index.name().to_string()), index.clone());
                assert_eq!(old, None, "{change:?}");
            }
            TableEvent::IndexDropped { index } => drop(self.indexes.remove(&(name, index.clone())).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// The name says the same as the id.
    fn check_id(&mut self, name: &str, id: u64) {
        let known = self.ids.entry(id).or_insert_with(|| name.to_string());
        assert_eq!(known, name, "the table with the id {id}");
    }

    /// The environment as a dump at a snapshot shows it, and the snapshot.
    fn of_dump(env: &Environment) -> (Replica, Lsn) {
        let mut text = Vec::new();
        let done = env.dump(&mut text, &DumpOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        let (mut replica, mut reader, mut table) = (Replica::default(), DumpReader::new(&text[..]), String::new());
        while let Some(item) = reader.next().unwrap() {
            match item {
                DumpItem::Database(header) => {
                    table = header.database.unwrap();
                    if table != "ledgerstone.indexes" {
                        replica.tables.insert(table.clone(), BTreeMap::new());
                    }
                }
                DumpItem::Record { key, value } if table == "ledgerstone.indexes" => {
                    let (of, index) = std::str::from_utf8(&key).unwrap().split_once('\0').unwrap();
                    let def = IndexDef::new(index, std::str::from_utf8(&value).unwrap().parse().unwrap());
                    replica.indexes.insert((of.to_string(), index.to_string()), def);
                }
                DumpItem::Record { key, value } => drop(replica.tables.get_mut(&table).unwrap().insert(key, value)),
                DumpItem::End => {}
            }
        }
        (replica, Lsn(done.snapshot_lsn.unwrap()))
    }

    /// Fails unless this is what is in the environment now.
    fn check(&self, env: &Environment, when: &str) {
        let (there, _) = Replica::of_dump(env);
        let names = |replica: &Replica| replica.tables.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(&there), "{when}");
        for (name, records) in &there.tables {
            let differs = |key: &&Vec<u8>| records.get(*key) != self.tables[name].get(*key);
            let keys: Vec<_> = records.keys().chain(self.tables[name].keys()).filter(differs).collect();
            assert_eq!(keys, Vec::<&Vec<u8>>::new(), "{when}: records of {name}");
        }
        assert_eq!(self.indexes, there.indexes, "{when}");
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
        let names: Vec<_> = commits.iter().flat_map(|commit| commit.changes()).map(|change| &*change.table).collect();
        assert_eq!(names, [&["other"; 7][..], &["dropped", "anew", "renamed", "anew", "new"]].concat());
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
    assert_eq!(commits[0].changes().count(), 500);
    assert!(commits[0].changes().all(|change| &*change.table == "plain" && change.old == ChangeValue::Absent));
    replica.apply(&commits);
    replica.check(&env, "at the end");
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
    assert_eq!(first.changes().next().unwrap().key, key(1), "nothing was lost over the restart");
    feed.acknowledge(first.position).unwrap();
    drop(feed);
    let env = {
        let crashed = disk.after_crash(9);
        drop(env);
        options().open_on(Arc::new(crashed)).unwrap()
    };
    let mut feed = env.named_changes("search").unwrap();
    assert_eq!(feed.next().unwrap().unwrap().changes().next().unwrap().key, key(0), "behind what was acknowledged");
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
    let told: Vec<_> = all(&mut feed).iter().flat_map(|commit| commit.changes().cloned().collect::<Vec<_>>()).collect();
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
    let told: Vec<_> = all(&mut feed).iter().flat_map(|commit| commit.changes().cloned().collect::<Vec<_>>()).collect();
    let told: Vec<_> = told.iter().map(|change| (&*change.table, change.key.clone())).collect();
    assert_eq!(told, [("t", key(2)), ("passing", key(3))]);
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

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// One step of a transaction on tables whose names begin so. What is refused is refused.
fn step(txn: &Transaction, prefix: &str, random: &mut Random) -> Result<(), Error> {
    let name = format!("{prefix}{}", random.below(4));
    let other = format!("{prefix}{}", random.below(4));
    let done = match random.below(16) {
        0 => txn.create_table(&name).map(drop),
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
            | Error::NotSorted { .. },
        ) => Ok(()),
        done => done,
    }
}

/// From whichever moment a dump is, with the feed behind it it becomes the environment: through tables made, dropped, renamed, filled
/// and indexed, beside transactions that are open for long, and through crashes.
#[test]
fn a_dump_and_the_feed_behind_it_are_the_environment() {
    for seed in 0..12 {
        let mut random = Random(seed);
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
            if random.below(20) == 0 {
                drop(long.take());
                disk.crash_now();
                drop(env);
                disk = disk.after_crash(random.below(1000));
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

/// A transaction whose changes take more memory than a feed may have comes in parts of a bounded size, and what it took back does not
/// come; from its middle on, too.
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

fn put_one(env: &Environment) {
    env.transact(|txn| {
        let small = txn.bytes_or_create("small")?;
        let count = small.count()?;
        small.put(&key(count), b"one")
    })
    .unwrap();
}

/// One transaction was open where the feed begins and has ended since. It is so large that its changes are left in the log: that is
/// kept, although nobody is open any more.
#[test]
fn the_log_of_a_large_transaction_that_ended_before_the_feed_was_opened_is_kept() {
    let env = whole(&SimDisk::new());
    put(&env, "t", 0, b"0");
    let long = env.begin().unwrap();
    let table = long.bytes_or_create("long").unwrap();
    (0..200).for_each(|n| table.put(&key(n), &[1; 400]).unwrap());
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    (200..400).for_each(|n| table.put(&key(n), &[2; 400]).unwrap());
    drop(table);
    long.commit().unwrap();
    let mut feed = env.changes(from).unwrap();
    for n in 0..400 {
        put(&env, "t", n % 3, &[n as u8; 600]);
        if n % 100 == 99 {
            env.checkpoint().unwrap();
        }
    }
    let commits = all(&mut feed);
    assert_eq!(commits[0].changes().count(), 400);
    assert_eq!(commits.len(), 401);
}

/// A record that could not be taken in, with the log's files failing for a while: no commit is lost.
#[test]
fn nothing_is_lost_however_often_reading_fails() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    put(&env, "long", 0, b"made before");
    let long = env.begin().unwrap();
    let table = long.bytes("long").unwrap();
    (0..150).for_each(|n| table.put(&key(n), &[1; 400]).unwrap());
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    for n in 0..400 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    drop(table);
    long.commit().unwrap();
    put(&env, "t", 1, b"last");
    let expected = all(&mut env.changes(from).unwrap());
    assert_eq!(expected.len(), 402);
    for (first, count) in (1..24).flat_map(|first| [1, 2, 3].map(|count| (first, count))) {
        let mut feed = env.changes(from).unwrap();
        faulty.add(Fault::at(Call::Read, first, Harm::Fail(DiskErrorKind::Io(5))).from_then_on().on("log"));
        let (mut told, mut errors) = (Vec::<CommittedChanges>::new(), 0);
        loop {
            match feed.next() {
                Ok(Some(part)) => match told.last_mut().filter(|commit| !commit.is_last) {
                    Some(commit) => {
                        (commit.is_last, commit.position) = (part.is_last, part.position);
                        commit.items.extend(part.items);
                    }
                    None => told.push(part),
                },
                Ok(None) => break,
                Err(_) => errors += 1,
            }
            if errors == count {
                faulty.behave();
            }
            assert!(errors < 20);
        }
        faulty.behave();
        assert!(told == expected, "after {errors} errors there are {} of {}", told.len(), expected.len());
    }
}

#[test]
fn a_forgotten_feed_does_not_come_back() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    put(&env, "t", 0, b"0");
    let mut feed = env.named_changes("consumer").unwrap();
    put(&env, "t", 1, b"1");
    assert_eq!(all(&mut feed).len(), 1);
    assert!(env.forget_changes("consumer").unwrap());
    let is_pinned = |env: &Environment| env.stat().unwrap().log_pins.iter().any(|pin| pin.name == "feed consumer");
    let refused = feed.acknowledge(feed.position()).unwrap_err();
    assert!(matches!(&refused, Error::FeedForgotten { name } if name == "consumer"), "{refused:?}");
    put(&env, "t", 2, b"2");
    assert_eq!(all(&mut feed).len(), 1, "it can be read on");
    assert!(!env.forget_changes("consumer").unwrap(), "it is not there any more");
    // Another of the same name is another.
    let mut other = env.named_changes("consumer").unwrap();
    assert!(feed.acknowledge(feed.position()).is_err());
    other.acknowledge(other.position()).unwrap();
    drop((feed, other));
    assert!(env.forget_changes("consumer").unwrap());
    assert!(!is_pinned(&env));
    env.close().unwrap();
    assert!(!whole(&disk).forget_changes("consumer").unwrap());
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

/// What a feed reads of the log to learn what a transaction did before it was met is read by pieces, not by records.
#[test]
fn the_beginning_of_a_long_transaction_is_read_by_pieces() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, "t", 0, b"0");
    let long = env.begin().unwrap();
    let table = long.bytes_or_create("long").unwrap();
    (0..2_000).for_each(|n| table.put(&key(n), &[1; 40]).unwrap());
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    drop(table);
    for n in 0..400 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    long.commit().unwrap();
    let before = disk.counters().reads;
    let commits = all(&mut env.changes(from).unwrap());
    assert_eq!(commits.len(), 401);
    let reads = disk.counters().reads - before;
    assert!(reads < 400, "{reads} reads for 2,000 records");
}
