//! Secondary indexes: a table and its indexes are one thing, in every transaction, at every level, after every ending.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone::{
    Environment, Error, IndexDef, IndexKeys, Isolation, Lsn, Options, TableDef, Transaction, TransactionOptions,
};
use ledgerstone_disk::{Disk, SimDisk};
use proptest::prelude::*;

mod common;
use common::{assert_sound, key, open, within};

fn field(number: u32) -> IndexKeys {
    IndexKeys::Field { number, separator: b'\t' }
}

/// Values are `city TAB name`.
fn people(disk: &SimDisk) -> Result<Environment, Error> {
    let env = open(disk)?;
    env.transact(|txn| {
        txn.create_table("people")?;
        txn.create_index("people", &IndexDef::new("by_city", field(1)))?;
        txn.create_index("people", &IndexDef::new("by_name", field(2)).unique())?;
        let people = txn.bytes("people")?;
        people.put(b"1", b"Bern\tAda")?;
        people.put(b"2", b"London\tMax")?;
        people.put(b"3", b"Bern\tEve")
    })?;
    Ok(env)
}

/// Index key, key, value.
type Joined = (Vec<u8>, Vec<u8>, Vec<u8>);
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn entries(env: &Environment, table: &str, index: &str) -> Result<Entries, Error> {
    env.transact(|txn| txn.bytes(table)?.index(index)?.range(..)?.collect())
}

fn pairs(expected: &[(&str, &str)]) -> Entries {
    expected.iter().map(|(a, b)| (a.as_bytes().to_vec(), b.as_bytes().to_vec())).collect()
}

fn in_city(city: &[u8], txn: &ledgerstone::Transaction) -> Result<Vec<Vec<u8>>, Error> {
    txn.bytes("people")?.index("by_city")?.lookup(city)?.map(|entry| entry.map(|(_, id)| id)).collect()
}

#[test]
fn records_are_found_by_what_they_hold() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    let txn = env.begin()?;
    let people = txn.bytes("people")?;
    let by_city = people.index("by_city")?;
    let all = pairs(&[("Bern", "1"), ("Bern", "3"), ("London", "2")]);
    assert!(by_city.range(..)?.map(Result::unwrap).eq(all.clone()));
    assert!(by_city.range(..)?.rev().map(Result::unwrap).eq(all.into_iter().rev()));
    assert_eq!(by_city.lookup(b"Ber")?.count(), 0);
    assert_eq!(by_city.prefix(b"Ber")?.count(), 2);
    assert_eq!(by_city.range((Bound::Excluded(&b"Bern"[..]), Bound::Unbounded))?.count(), 1);
    let joined = by_city.lookup(b"Bern")?.records().rev().collect::<Result<Vec<_>, _>>()?;
    let record = |id: &str, value: &str| (b"Bern".to_vec(), id.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(joined, [record("3", "Bern\tEve"), record("1", "Bern\tAda")]);
    assert_eq!(people.index("by_name")?.get(b"Max")?, Some((b"2".to_vec(), b"London\tMax".to_vec())));
    assert_eq!(people.index("by_name")?.get(b"Nobody")?, None);
    let names: Vec<_> = people.indexes().iter().map(|index| (index.name().to_string(), index.is_unique())).collect();
    assert_eq!(names, [("by_city".to_string(), false), ("by_name".to_string(), true)]);
    txn.commit()?;
    assert_sound(&env, "after reading");
    Ok(())
}

#[test]
fn every_change_of_a_record_changes_its_entries() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    env.transact(|txn| {
        let people = txn.bytes("people")?;
        people.put(b"1", b"Rome\tAda")?;
        assert!(people.modify(b"2", |_| Some(b"Oslo\tMax".to_vec()))?);
        assert!(people.modify(b"3", |_| None)?);
        people.insert_new(b"4", b"Oslo\tIda")?;
        people.insert_new(b"5", b"no fields")?;
        assert!(people.delete(b"3")?);
        assert!(!people.delete(b"9")?);
        // In parts: the city is overwritten in place, the name is cut off and written anew.
        let mut writer = people.value_writer(b"4")?;
        writer.write_all(b"Rome").unwrap();
        writer.set_len(5)?;
        writer.seek(SeekFrom::Start(5)).unwrap();
        writer.write_all(b"Una").unwrap();
        people.value_writer(b"6")?;
        Ok::<_, Error>(())
    })?;
    assert_sound(&env, "after the changes");
    let cities = pairs(&[("", "6"), ("Oslo", "2"), ("Rome", "1"), ("Rome", "4"), ("no fields", "5")]);
    assert_eq!(entries(&env, "people", "by_city")?, cities);
    assert_eq!(entries(&env, "people", "by_name")?, pairs(&[("Ada", "1"), ("Max", "2"), ("Una", "4")]));
    assert_eq!(env.transact(|txn| txn.bytes("people")?.delete_range(&b"2"[..]..&b"5"[..]))?, 2);
    assert_eq!(entries(&env, "people", "by_name")?, pairs(&[("Ada", "1")]));
    assert_sound(&env, "after a range was deleted");
    Ok(())
}

#[test]
fn a_key_that_is_taken_is_refused_and_the_transaction_goes_on() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    env.transact(|txn| {
        let people = txn.bytes("people")?;
        let refused = |done: Result<(), Error>| match done {
            Err(Error::IndexKeyExists { table, index, key }) => {
                assert_eq!((&*table, &*index, &*key), ("people", "by_name", r#""Ada""#));
            }
            other => panic!("{other:?}"),
        };
        refused(people.put(b"2", b"Rome\tAda"));
        refused(people.insert_new(b"7", b"Rome\tAda"));
        refused(people.modify(b"3", |_| Some(b"Rome\tAda".to_vec())).map(drop));
        assert_eq!(people.get(b"2")?.as_deref(), Some(&b"London\tMax"[..]));
        assert_eq!(people.get(b"7")?, None);
        people.put(b"1", b"Rome\tAda")?; // Its own key is not in its way.
        people.delete(b"1")?;
        people.put(b"2", b"Rome\tAda") // Free now.
    })?;
    assert_eq!(entries(&env, "people", "by_name")?, pairs(&[("Ada", "2"), ("Eve", "3")]));
    assert_eq!(entries(&env, "people", "by_city")?, pairs(&[("Bern", "3"), ("Rome", "2")]));
    assert_sound(&env, "after refusals");
    Ok(())
}

#[test]
fn an_index_of_a_filled_table_has_all_its_records() -> Result<(), Error> {
    let env = open(&SimDisk::new())?;
    // More entries than are sorted at once with so small a cache.
    let value = |n: u64| [&(n * 7919 % 5000).to_be_bytes()[..], &[b'x'; 20]].concat();
    env.transact(|txn| {
        let table = txn.create_table("t")?;
        (0..1500).try_for_each(|n| table.put(&key(n), &value(n)))
    })?;
    let by = |name: &str| IndexDef::new(name, IndexKeys::Bytes { from: 0, to: Some(8) });
    env.transact(|txn| txn.create_index("t", &by("plain")))?;
    env.transact(|txn| txn.create_index("t", &by("unique").unique()))?;
    let mut expected: Entries = (0..1500).map(|n| (key(n * 7919 % 5000), key(n))).collect();
    expected.sort();
    assert_eq!(entries(&env, "t", "plain")?, expected);
    assert_eq!(entries(&env, "t", "unique")?, expected);
    assert_sound(&env, "after two indexes were built");

    let third = IndexDef::new("letter", IndexKeys::Bytes { from: 9, to: Some(10) });
    let txn = env.begin()?;
    let refused = txn.create_index("t", &third.clone().unique());
    assert!(matches!(refused, Err(Error::IndexKeyExists { .. })), "{refused:?}");
    txn.bytes("t")?.put(&key(7), &value(5000 + 7))?; // It goes on.
    assert!(matches!(txn.create_index("t", &by("plain")), Err(Error::IndexExists { .. })));
    txn.create_index("t", &third)?;
    assert_eq!(txn.bytes("t")?.index("letter")?.lookup(b"x")?.count(), 1500);
    txn.abort()?;
    env.reclaim()?;
    assert!(matches!(entries(&env, "t", "letter"), Err(Error::NoSuchIndex { .. })));
    env.transact(|txn| txn.drop_index("t", "plain"))?;
    assert!(matches!(env.transact(|txn| txn.drop_index("t", "plain")), Err(Error::NoSuchIndex { .. })));
    env.reclaim()?;
    assert_sound(&env, "after an index was given up, and another dropped");
    Ok(())
}

#[test]
fn indexes_go_where_their_table_goes() -> Result<(), Error> {
    let disk = SimDisk::new();
    let env = people(&disk)?;
    env.transact(|txn| txn.rename_table("people", "folk"))?;
    env.transact(|txn| txn.bytes("folk")?.put(b"4", b"Rome\tIda"))?;
    env.close()?;
    let env = open(&disk)?;
    let cities = pairs(&[("Bern", "1"), ("Bern", "3"), ("London", "2"), ("Rome", "4")]);
    assert_eq!(entries(&env, "folk", "by_city")?, cities);
    env.compact()?;
    assert_eq!(entries(&env, "folk", "by_city")?, cities);
    let txn = env.begin()?;
    txn.drop_table("folk")?;
    txn.abort()?;
    assert_eq!(entries(&env, "folk", "by_city")?, cities);
    assert_sound(&env, "after a drop that was taken back");
    env.transact(|txn| txn.drop_table("folk"))?;
    env.reclaim()?;
    let report = env.verify()?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!((report.table_count, report.index_count), (0, 0));
    Ok(())
}

#[test]
fn a_sorted_load_fills_the_indexes_too() -> Result<(), Error> {
    let env = open(&SimDisk::new())?;
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &IndexDef::new("last", IndexKeys::Bytes { from: 7, to: None }))
    })?;
    let row = |n: u64| (key(n), [&[b'a'; 7][..], &(n % 50).to_be_bytes()].concat());
    env.transact(|txn| txn.bytes("t")?.load_sorted((0..1000).map(row)))?; // Into the empty table.
    env.transact(|txn| txn.bytes("t")?.load_sorted((1000..1200).map(row)))?; // Behind its records.
    let mut expected: Entries = (0..1200).map(|n| (key(n % 50), key(n))).collect();
    expected.sort();
    assert_eq!(entries(&env, "t", "last")?, expected);
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    table.delete_range(..)?;
    let mut loader = table.sorted_loader()?;
    loader.push(&key(1), b"given up")?;
    drop(loader);
    txn.abort()?;
    assert_eq!(entries(&env, "t", "last")?, expected);
    env.reclaim()?;
    assert_sound(&env, "after the loads");

    let txn = env.begin()?;
    txn.create_table("u")?;
    txn.create_index("u", &IndexDef::new("first", IndexKeys::Bytes { from: 0, to: Some(600) }).unique())?;
    let mut loader = txn.bytes("u")?.sorted_loader()?;
    loader.push(b"1", b"one")?;
    assert!(matches!(loader.push(b"2", &[b'x'; 600]), Err(Error::IndexKeyTooLarge { .. })));
    loader.push(b"2", b"two")?; // It was left out.
    loader.push(b"3", b"one")?;
    let refused = loader.finish();
    assert!(matches!(refused, Err(Error::IndexKeyExists { .. })), "{refused:?}");
    txn.abort()?;
    env.reclaim()?;
    assert_sound(&env, "after a load that was refused");
    Ok(())
}

/// Behind existing records a load keeps the indexes as puts do. All of it is taken back if a unique one refuses a
/// record, whether its like was there before or came by the load itself.
#[test]
fn a_sorted_load_behind_records_is_checked_by_unique_indexes() -> Result<(), Error> {
    let env = open(&SimDisk::new())?;
    let unique = IndexDef::new("u", IndexKeys::Value).unique();
    let plain = IndexDef::new("p", IndexKeys::Bytes { from: 0, to: Some(1) });
    let row = |n: u64| (key(n), format!("{}-{n}", n % 3).into_bytes());
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &unique)?;
        txn.create_index("t", &plain)?;
        let table = txn.bytes("t")?;
        (0..100).try_for_each(|n| table.put(row(n).0, row(n).1))
    })?;
    let (by_value, by_first) = (entries(&env, "t", "u")?, entries(&env, "t", "p")?);
    let txn = env.begin()?;
    let mut table = txn.bytes("t")?;
    for like in [row(7), row(230)] {
        let rows = (100..300).map(row).chain([(key(300), like.1)]);
        let refused = table.load_sorted(rows);
        assert!(matches!(refused, Err(Error::IndexKeyExists { .. })), "{refused:?}");
        assert_eq!(table.count()?, 100);
    }
    assert_eq!(table.load_sorted((100..300).map(row))?, 200); // The transaction and the handle go on.
    txn.commit()?;
    let expect = |keys: &dyn Fn(u64) -> Vec<u8>| {
        let mut expected: Entries = (0..300).map(|n| (keys(n), key(n))).collect();
        expected.sort();
        expected
    };
    assert_eq!(entries(&env, "t", "u")?, expect(&|n| row(n).1));
    assert_eq!(entries(&env, "t", "p")?, expect(&|n| row(n).1[..1].to_vec()));
    env.transact(|txn| txn.bytes("t")?.delete_range(&key(100)[..]..).map(drop))?;
    assert_eq!((entries(&env, "t", "u")?, entries(&env, "t", "p")?), (by_value, by_first));
    assert_sound(&env, "after the loads");
    Ok(())
}

/// Words of a value that are longer than three letters, backwards; refuses a value with a number.
fn with_words(options: Options) -> Options {
    options.index_extractor("words", |_, value, emit| {
        for word in value.split(|byte| *byte == b' ').filter(|word| word.len() > 3) {
            if word.iter().any(u8::is_ascii_digit) {
                return Err(format!("{:?} is not a word", String::from_utf8_lossy(word)));
            }
            emit(&word.iter().rev().copied().collect::<Vec<_>>());
        }
        Ok(())
    })
}

#[test]
fn a_function_of_the_program_says_the_keys_where_it_is_registered() -> Result<(), Error> {
    let disk = SimDisk::new();
    let on_disk = |options: Options| options.open_on(std::sync::Arc::new(disk.clone()));
    let env = on_disk(with_words(common::tiny()))?;
    env.transact(|txn| {
        txn.create_table("texts")?.put(b"1", b"the fish eats the fish")?;
        txn.create_index("texts", &IndexDef::new("words", IndexKeys::Extractor("words".into())))?;
        let texts = txn.bytes("texts")?;
        texts.put(b"2", b"a bird eats")?;
        let refused = texts.put(b"3", b"room1408");
        assert!(matches!(refused, Err(Error::NotIndexable { .. })), "{refused:?}");
        Ok::<_, Error>(())
    })?;
    let expected = pairs(&[("drib", "2"), ("hsif", "1"), ("stae", "1"), ("stae", "2")]);
    assert_eq!(entries(&env, "texts", "words")?, expected);
    assert_sound(&env, "with the function");
    env.close()?;

    let env = on_disk(common::tiny())?;
    assert_eq!(entries(&env, "texts", "words")?, expected);
    let missing = |done: Result<(), Error>| {
        let Err(error @ Error::NoIndexExtractor { .. }) = done else { panic!("{done:?}") };
        assert!(error.to_string().contains("Options::index_extractor"), "{error}");
    };
    missing(env.transact(|txn| txn.bytes("texts")?.put(b"4", b"more")));
    missing(env.transact(|txn| txn.bytes("texts")?.delete(b"1").map(drop)));
    let report = env.verify()?;
    assert!(report.problems.is_empty() && report.unchecked_indexes == ["index words of texts"], "{report:?}");
    env.transact(|txn| txn.drop_index("texts", "words"))?;
    env.transact(|txn| txn.bytes("texts")?.put(b"4", b"room1408"))?;
    assert_sound(&env, "without the index");
    Ok(())
}

#[test]
fn verify_names_each_difference_between_index_and_table() -> Result<(), Error> {
    let disk = SimDisk::new();
    let on_disk = |letter: u8| {
        let first = move |_: &[u8], value: &[u8], emit: &mut dyn FnMut(&[u8])| {
            emit(&[value[0], letter]);
            Ok(())
        };
        common::tiny().index_extractor("first", first).open_on(std::sync::Arc::new(disk.clone()))
    };
    let env = on_disk(b'x')?;
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &IndexDef::new("first", IndexKeys::Extractor("first".into())))?;
        txn.bytes("t")?.put(b"1", b"a")
    })?;
    env.close()?;
    // The function has changed under its name, as it must not.
    let env = on_disk(b'y')?;
    let report = env.verify()?;
    let told: Vec<_> = report.problems.iter().map(|problem| (problem.place.as_str(), problem.what.as_str())).collect();
    let place = "index first of t";
    assert_eq!(told, [(place, "record \"1\" has no entry \"ay\""), (place, "entry \"ax\" is not one of record \"1\"")]);
    let refused = env.transact(|txn| txn.bytes("t")?.delete(b"1"));
    assert!(matches!(refused, Err(Error::IndexDiffers { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn what_cannot_be_an_index_or_an_entry_is_refused() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    let txn = env.begin()?;
    let bad = |def: IndexDef| matches!(txn.create_index("people", &def), Err(Error::BadIndex { .. }));
    assert!(bad(IndexDef::new("", IndexKeys::Value)));
    assert!(bad(IndexDef::new("x".repeat(256), IndexKeys::Value)));
    assert!(bad(IndexDef::new("x", IndexKeys::Bytes { from: 3, to: Some(3) })));
    assert!(bad(IndexDef::new("x", IndexKeys::Field { number: 0, separator: b',' })));
    assert!(bad(IndexDef::new("x", IndexKeys::Json(String::new()))));
    assert!(matches!(txn.create_index("nothing", &IndexDef::new("x", IndexKeys::Value)), Err(Error::NoSuchTable(_))));
    let missing = txn.create_index("people", &IndexDef::new("x", IndexKeys::Extractor("nobody".into())));
    assert!(matches!(missing, Err(Error::NoIndexExtractor { .. })), "{missing:?}");
    let people = txn.bytes("people")?;
    let long = [&[b'y'; 600][..], b"\tZoe"].concat();
    assert!(matches!(people.put(b"8", &long), Err(Error::IndexKeyTooLarge { len: 603, .. })));
    assert_eq!(people.get(b"8")?, None);
    let refused = (0..100).map(|n| txn.create_index("people", &IndexDef::new(format!("{n:0100}"), IndexKeys::Value)));
    assert!(refused.into_iter().any(|done| matches!(done, Err(Error::TooManyIndexes { .. }))));
    txn.abort()?;
    assert_sound(&env, "after refusals");
    Ok(())
}

#[test]
fn nobody_comes_to_match_what_was_looked_up() -> Result<(), Error> {
    within(60, "phantoms", || {
        let env = people(&SimDisk::new()).unwrap();
        let impatient =
            TransactionOptions { lock_timeout: Some(Duration::from_millis(1)), ..TransactionOptions::default() };
        let reader = env.begin().unwrap();
        assert_eq!(in_city(b"Bern", &reader).unwrap(), [b"1".to_vec(), b"3".to_vec()]);
        let try_it = |f: &dyn Fn(&ledgerstone::BytesTable) -> Result<(), Error>| {
            let txn = env.begin_with(impatient).unwrap();
            let done = f(&txn.bytes("people").unwrap());
            txn.abort().unwrap();
            done
        };
        // Neither by a new record, nor by one that moves in or out.
        for done in [
            try_it(&|people| people.put(b"9", b"Bern\tTim")),
            try_it(&|people| people.put(b"2", b"Bern\tMax")),
            try_it(&|people| people.put(b"1", b"Rome\tAda")),
            try_it(&|people| people.delete(b"3").map(drop)),
        ] {
            assert!(matches!(done, Err(Error::LockTimeout { .. })), "{done:?}");
        }
        try_it(&|people| people.put(b"2", b"Rome\tMax")).unwrap();
        reader.commit().unwrap();
        assert_sound(&env, "after the reader");
    });
    Ok(())
}

#[test]
fn nobody_comes_before_the_first_record_that_was_found() -> Result<(), Error> {
    within(60, "phantoms", || {
        let env = people(&SimDisk::new()).unwrap();
        let impatient =
            TransactionOptions { lock_timeout: Some(Duration::from_millis(1)), ..TransactionOptions::default() };
        let reader = env.begin().unwrap();
        let table = reader.bytes("people").unwrap();
        let found = |index: &str, key: &[u8]| table.index(index).unwrap().get(key).unwrap();
        assert_eq!(found("by_city", b"Bern"), Some((b"1".to_vec(), b"Bern\tAda".to_vec())));
        assert_eq!(found("by_name", b"Max"), Some((b"2".to_vec(), b"London\tMax".to_vec())));
        assert_eq!(found("by_city", b"Oslo"), None);
        assert_eq!(found("by_name", &[b'n'; 4096]), None, "longer than any key");
        let try_it = |f: &dyn Fn(&ledgerstone::BytesTable) -> Result<(), Error>| {
            let txn = env.begin_with(impatient).unwrap();
            let done = f(&txn.bytes("people").unwrap());
            txn.abort().unwrap();
            done
        };
        for done in [
            try_it(&|people| people.put(b"0", b"Bern\tBob")),
            try_it(&|people| people.put(b"1", b"Rome\tAda")),
            try_it(&|people| people.put(b"2", b"London\tMaxi")),
            try_it(&|people| people.put(b"4", b"Oslo\tCid")),
        ] {
            assert!(matches!(done, Err(Error::LockTimeout { .. })), "{done:?}");
        }
        try_it(&|people| people.put(b"9", b"Bern\tBob")).unwrap(); // It comes behind, and was not asked for.
        drop(table);
        reader.commit().unwrap();
        // A record that has gone leaves a ghost, behind which the next one is found.
        env.transact(|txn| txn.bytes("people")?.delete(b"1").map(drop)).unwrap();
        let first = env.transact(|txn| txn.bytes("people")?.index("by_city")?.get(b"Bern")).unwrap();
        assert_eq!(first, Some((b"3".to_vec(), b"Bern\tEve".to_vec())));
        assert_sound(&env, "after the reader");
    });
    Ok(())
}

#[test]
fn each_level_sees_index_and_table_at_one_moment() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    let at =
        |isolation| env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() });
    let (snapshot, committed, uncommitted) =
        (at(Isolation::Snapshot)?, at(Isolation::ReadCommitted)?, at(Isolation::ReadUncommitted)?);
    let records = |txn: &ledgerstone::Transaction| -> Result<Vec<Joined>, Error> {
        txn.bytes("people")?.index("by_city")?.lookup(b"Bern")?.records().collect()
    };
    let old = records(&snapshot)?;
    assert_eq!(old.len(), 2);
    let writer = env.begin()?;
    writer.bytes("people")?.put(b"1", b"Rome\tAda")?;
    assert_eq!((records(&committed)?, records(&uncommitted)?.len()), (old.clone(), 1));
    writer.bytes("people")?.delete(b"3")?;
    writer.commit()?;
    assert_eq!((records(&snapshot)?, records(&committed)?.len()), (old.clone(), 0));

    // A snapshot from before sees no index that came, and the old one still.
    env.transact(|txn| txn.create_index("people", &IndexDef::new("whole", IndexKeys::Value)))?;
    env.transact(|txn| txn.drop_index("people", "by_city"))?;
    env.reclaim()?;
    assert_eq!(records(&snapshot)?, old);
    assert!(matches!(snapshot.bytes("people")?.index("whole"), Err(Error::NoSuchIndex { .. })));
    assert!(matches!(
        snapshot.create_index("people", &IndexDef::new("w", IndexKeys::Value)),
        Err(Error::IndexNeedsLocks { .. })
    ));
    assert!(matches!(snapshot.bytes("people")?.put(b"5", b"x\ty"), Err(Error::SnapshotConflict { .. })));
    assert!(matches!(records(&committed), Err(Error::NoSuchIndex { .. })));
    Ok(())
}

#[test]
fn who_opened_the_table_before_its_indexes_changed_is_told() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    let options = TransactionOptions { isolation: Some(Isolation::ReadCommitted), ..TransactionOptions::default() };
    let txn = env.begin_with(options)?;
    let table = txn.bytes("people")?;
    let index = table.index("by_city")?;
    env.transact(|txn| txn.drop_index("people", "by_city"))?;
    assert_eq!(table.get(b"1")?.as_deref(), Some(&b"Bern\tAda"[..]));
    assert!(matches!(index.lookup(b"Bern"), Err(Error::NoSuchIndex { .. })));
    let refused = table.put(b"4", b"Rome\tIda");
    assert!(matches!(refused, Err(Error::TableChanged { .. })), "{refused:?}");
    txn.bytes("people")?.put(b"4", b"Rome\tIda")?;
    txn.commit()?;
    assert_sound(&env, "after a handle was left behind");
    Ok(())
}

#[test]
fn an_index_made_anew_is_a_conflict_for_whoever_opened_the_table_before() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted, Isolation::Snapshot] {
        let options = TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() };
        let mut tries = 0;
        env.transact(|txn| txn.bytes("people").map(drop))?; // What is known of it is the same for all who open it now.
        env.transact_with(options, |txn| {
            let table = txn.bytes("people")?;
            tries += 1;
            if tries == 1 {
                env.transact(|txn| {
                    txn.drop_index("people", "by_city")?;
                    txn.create_index("people", &IndexDef::new("by_city", IndexKeys::Field { number: 1, separator: 9 }))
                })?;
            }
            table.put(b"4", b"Rome\tIda")
        })?;
        assert_eq!(tries, 2, "{isolation:?}");
    }
    assert_sound(&env, "after the index was made anew");
    Ok(())
}

#[test]
fn the_change_feed_shows_records_and_no_entries() -> Result<(), Error> {
    let env = people(&SimDisk::new())?;
    let mut feed = env.changes(Lsn(u64::MAX))?;
    env.transact(|txn| txn.bytes("people")?.put(b"1", b"Rome\tAda"))?;
    env.transact(|txn| txn.create_index("people", &IndexDef::new("whole", IndexKeys::Value)))?;
    env.transact(|txn| txn.bytes("people")?.delete(b"2"))?;
    let mut seen = Vec::new();
    while let Some(commit) = feed.next()? {
        seen.extend(commit.changes().map(|change| (change.table.to_string(), change.key.clone())));
    }
    let of = |key: &[u8]| ("people".to_string(), key.to_vec());
    assert_eq!(seen, [of(b"1"), of(b"2")]);
    Ok(())
}

#[test]
fn typed_tables_have_typed_indexes() -> Result<(), Error> {
    const PLAYERS: TableDef<String, i64> = TableDef::new("players");
    let options = common::tiny().typed_index_extractor("score", |_: &String, score: &i64| vec![*score]);
    let env = options.open_on(std::sync::Arc::new(SimDisk::new()))?;
    env.transact(|txn| {
        txn.open(PLAYERS)?;
        txn.create_index("players", &IndexDef::new("score", IndexKeys::Extractor("score".into())))?;
        let players = txn.open(PLAYERS)?;
        for (name, score) in [("ada", 70), ("max", -3), ("eve", 70), ("una", 9)] {
            players.put(name, &score)?;
        }
        let by_score = players.index::<i64>("score")?;
        let best: Vec<_> = by_score.range(0..)?.rev().collect::<Result<_, _>>()?;
        let of = |score: i64, name: &str| (score, name.to_string(), score);
        assert_eq!(best, [of(70, "eve"), of(70, "ada"), of(9, "una")]);
        assert_eq!(by_score.get(&-3)?, Some(("max".to_string(), -3)));
        assert_eq!(by_score.lookup(&70)?.count(), 2);
        players.modify("una", |score| Some(score - 100))?;
        assert_eq!(by_score.range(..0)?.count(), 2);
        Ok::<_, Error>(())
    })?;
    assert_sound(&env, "with typed records");
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8, u8),
    Insert(u8, u8, u8),
    Modify(u8, u8, u8),
    Delete(u8),
    Clear(u8, u8),
    Mark,
    Back,
    Commit,
    Abort,
    Reopen,
    Build,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..12u8;
    let c = 0..4u8;
    let u = 0..30u8;
    prop_oneof![
        6 => (n.clone(), c.clone(), u.clone()).prop_map(|(k, a, b)| Step::Put(k, a, b)),
        2 => (n.clone(), c.clone(), u.clone()).prop_map(|(k, a, b)| Step::Insert(k, a, b)),
        2 => (n.clone(), c, u).prop_map(|(k, a, b)| Step::Modify(k, a, b)),
        3 => n.clone().prop_map(Step::Delete),
        1 => (n.clone(), n).prop_map(|(a, b)| Step::Clear(a, b)),
        2 => Just(Step::Mark),
        2 => Just(Step::Back),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::Reopen),
        1 => Just(Step::Build),
        1 => Just(Step::Forget),
    ]
}

/// The table, and which indexes there are.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    records: BTreeMap<u8, (u8, u8)>,
    has_second: bool,
}

impl Model {
    /// False: the unique index refuses it.
    fn put(&mut self, key: u8, value: (u8, u8)) -> bool {
        if self.records.iter().any(|(&other, &(_, unique))| other != key && unique == value.1) {
            return false;
        }
        self.records.insert(key, value);
        true
    }
}

fn compare(txn: &ledgerstone::Transaction, model: &Model) -> Result<(), Error> {
    let table = txn.bytes("t")?;
    let records: BTreeMap<u8, (u8, u8)> =
        table.range(..)?.map(|row| row.map(|(k, v)| (k[0], (v[0], v[1])))).collect::<Result<_, _>>()?;
    assert_eq!(records, model.records);
    let unique: BTreeSet<(u8, u8)> = model.records.iter().map(|(&key, &(_, unique))| (unique, key)).collect();
    let found: Vec<(u8, u8)> =
        table.index("unique")?.range(..)?.map(|entry| entry.map(|(k, p)| (k[0], p[0]))).collect::<Result<_, _>>()?;
    assert!(found.iter().eq(unique.iter()), "{found:?} {unique:?}");
    if model.has_second {
        let many: BTreeSet<(u8, u8)> = model.records.iter().map(|(&key, &(many, _))| (many, key)).collect();
        let found: Vec<(u8, u8)> = table
            .index("many")?
            .range(..)?
            .rev()
            .map(|entry| entry.map(|(k, p)| (k[0], p[0])))
            .collect::<Result<_, _>>()?;
        assert!(found.iter().eq(many.iter().rev()), "{found:?} {many:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_table_and_its_indexes_are_as_a_model_says(steps in prop::collection::vec(step(), 1..60)) {
        let disk = SimDisk::new();
        let mut env = open(&disk).unwrap();
        env.transact(|txn| {
            txn.create_table("t")?;
            txn.create_index("t", &IndexDef::new("unique", IndexKeys::Bytes { from: 1, to: Some(2) }).unique())
        }).unwrap();
        let mut committed = Model::default();
        let mut now = committed.clone();
        let mut marks = Vec::new();
        let mut txn = env.begin().unwrap();
        for step in steps {
            let table = txn.bytes("t").unwrap();
            match step {
                Step::Put(k, a, b) => {
                    let done = table.put(&[k], &[a, b]);
                    prop_assert_eq!(done.is_ok(), now.put(k, (a, b)), "{:?}", done);
                }
                Step::Insert(k, a, b) => {
                    let done = table.insert_new(&[k], &[a, b]);
                    let fits = !now.records.contains_key(&k) && now.put(k, (a, b));
                    prop_assert_eq!(done.is_ok(), fits, "{:?}", done);
                }
                Step::Modify(k, a, b) => {
                    let done = table.modify(&[k], |_| Some(vec![a, b]));
                    let was_there = now.records.contains_key(&k);
                    let fits = !was_there || now.put(k, (a, b));
                    match done {
                        Ok(found) => prop_assert!(fits && found == was_there),
                        Err(error) => prop_assert!(!fits, "{}", error),
                    }
                }
                Step::Delete(k) => prop_assert_eq!(table.delete(&[k]).unwrap(), now.records.remove(&k).is_some()),
                Step::Clear(a, b) => {
                    let count = table.delete_range(&[a][..]..&[b][..]).unwrap();
                    let before = now.records.len();
                    now.records.retain(|&key, _| key < a || key >= b);
                    prop_assert_eq!(count, (before - now.records.len()) as u64);
                }
                Step::Mark => marks.push((txn.savepoint().unwrap(), now.clone())),
                Step::Back => if let Some((savepoint, then)) = marks.pop() {
                    txn.rollback_to(savepoint).unwrap();
                    now = then;
                },
                Step::Build if !now.has_second => {
                    txn.create_index("t", &IndexDef::new("many", IndexKeys::Bytes { from: 0, to: Some(1) })).unwrap();
                    now.has_second = true;
                }
                Step::Forget if now.has_second => {
                    txn.drop_index("t", "many").unwrap();
                    now.has_second = false;
                }
                Step::Build | Step::Forget => {}
                Step::Commit | Step::Abort | Step::Reopen => {
                    drop(table);
                    compare(&txn, &now).unwrap();
                    if matches!(step, Step::Commit) {
                        txn.commit().unwrap();
                        committed = now.clone();
                    } else {
                        txn.abort().unwrap();
                        now = committed.clone();
                    }
                    marks.clear();
                    if matches!(step, Step::Reopen) {
                        env.close().unwrap();
                        env = open(&disk).unwrap();
                        assert_sound(&env, "reopened");
                    }
                    txn = env.begin().unwrap();
                }
            }
        }
        compare(&txn, &now).unwrap();
        txn.commit().unwrap();
        env.reclaim().unwrap();
        assert_sound(&env, "at the end");
    }
}

/// More records than sorting has memory for: their values fall where the keys rise.
const MANY: u64 = 30_000;

fn many_records(disk: &SimDisk) -> Environment {
    let env = common::tiny().page_count_max(1 << 15).lock_count_max(1 << 16).open_on(Arc::new(disk.clone())).unwrap();
    let value = |n: u64| [&(MANY - n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[..], &[7; 30]].concat();
    let load =
        |txn: &Transaction| txn.bytes_or_create("t")?.load_sorted((0..MANY).map(|n| (key(n), value(n)))).map(drop);
    env.transact(load).unwrap();
    env.checkpoint().unwrap();
    env
}

#[test]
fn an_index_of_many_records_is_sorted_outside_memory_and_loaded_in_one_pass() {
    let disk = SimDisk::new();
    let env = many_records(&disk);
    let names = disk.list("").unwrap();
    let from = env.stat().unwrap().log_tail_lsn;
    let index = IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(8) }).unique();
    env.transact(|txn| txn.create_index("t", &index)).unwrap();
    let log_bytes = env.stat().unwrap().log_tail_lsn - from;
    // An entry has 16 bytes; put alone, each would take more than 80 of log.
    assert!(log_bytes < MANY * 40, "{log_bytes} bytes of log for {MANY} entries");
    assert_eq!(disk.list("").unwrap(), names, "no name of a temporary file is left");
    common::assert_sound(&env, "after the creation");
    // What comes twice is refused, in whichever runs it lies, and nothing has changed.
    env.transact(|txn| txn.drop_index("t", "i")).unwrap();
    env.transact(|txn| {
        let table = txn.bytes("t")?;
        let first = table.get(&key(0))?.unwrap();
        table.put(&key(MANY - 1), &first)
    })
    .unwrap();
    let refused = env.transact(|txn| txn.create_index("t", &index));
    let first = env.transact(|txn| txn.bytes("t")?.get(&key(0))).unwrap().unwrap();
    match refused {
        Err(Error::IndexKeyExists { key, .. }) => {
            assert_eq!(*key, first[..8].iter().fold("0x".to_string(), |all, byte| format!("{all}{byte:02x}")));
        }
        other => panic!("{other:?}"),
    }
    common::assert_sound(&env, "after the refusal");
}

#[test]
fn an_index_that_is_rolled_back_or_killed_is_dropped_as_a_whole() {
    let disk = SimDisk::new();
    let env = many_records(&disk);
    let index = IndexDef::new("i", IndexKeys::Value);
    let txn = env.begin().unwrap();
    txn.create_index("t", &index).unwrap();
    let killed = disk.snapshot();
    let tail = env.stat().unwrap().log_tail_lsn;
    txn.abort().unwrap();
    let undo_bytes = env.stat().unwrap().log_tail_lsn - tail;
    assert!(undo_bytes < 4096, "{undo_bytes} bytes of log to roll it back");
    env.reclaim().unwrap();
    common::assert_sound(&env, "rolled back");
    let pages = env.stat().unwrap().allocated_page_count;
    env.close().unwrap();

    // The log of the whole creation is durable, or a part of it.
    let env = common::open(&killed).unwrap();
    let report = env.recovery_report();
    let undo_bytes = env.stat().unwrap().log_tail_lsn - report.end_lsn.0;
    assert!(undo_bytes < 64 << 10, "{undo_bytes} bytes of log to undo it");
    env.reclaim().unwrap();
    common::assert_sound(&env, "killed");
    assert!(env.stat().unwrap().allocated_page_count <= pages);
    assert!(env.transact(|txn| Ok::<_, Error>(txn.bytes("t")?.indexes().is_empty())).unwrap());
}
