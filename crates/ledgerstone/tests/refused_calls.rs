//! A call that is refused has changed nothing: its transaction stands, may be asked again, and may commit.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use ledgerstone::{Durability, Environment, Error, IndexDef, IndexKeys, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

fn hasty() -> TransactionOptions {
    TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..TransactionOptions::default() }
}

fn assert_timed_out<T>(done: Result<T, Error>) {
    assert!(matches!(done, Err(Error::LockTimeout { .. })), "{:?}", done.err());
}

/// A table `t` with 1,000 records.
fn with_records(disk: &SimDisk) -> Environment {
    let env = open(disk).unwrap();
    env.transact(|txn| {
        let t = txn.bytes_or_create("t")?;
        (0..1000).try_for_each(|n| t.put(&key(n), b"value"))
    })
    .unwrap();
    env
}

#[test]
fn a_table_whose_new_name_was_not_given_in_time_keeps_its_name() {
    let env = with_records(&SimDisk::new());
    let before = read(&env).unwrap();
    let reader = env.begin().unwrap();
    assert!(matches!(reader.bytes("zz"), Err(Error::NoSuchTable(_)))); // No table may come to have that name.
    let txn = env.begin_with(hasty()).unwrap();
    assert_timed_out(txn.rename_table("t", "zz"));
    assert_eq!(txn.bytes("t").unwrap().count().unwrap(), 1000);
    txn.commit().unwrap();
    drop(reader);
    assert_eq!(read(&env).unwrap(), before);
    assert_sound(&env, "after a rename that timed out");
}

#[test]
fn a_table_whose_name_was_not_given_in_time_leaves_no_page() {
    let env = with_records(&SimDisk::new());
    let before = read(&env).unwrap();
    let reader = env.begin().unwrap();
    assert!(matches!(reader.bytes("zz"), Err(Error::NoSuchTable(_))));
    let txn = env.begin_with(hasty()).unwrap();
    assert_timed_out(txn.create_table("zz"));
    txn.commit().unwrap();
    drop(reader);
    env.reclaim().unwrap();
    assert_eq!(read(&env).unwrap(), before);
    assert_sound(&env, "after a creation that timed out");
}

#[test]
fn a_range_of_which_a_record_was_locked_for_too_long_is_there_as_a_whole() {
    let env = with_records(&SimDisk::new());
    let before = read(&env).unwrap();
    let reader = env.begin().unwrap();
    reader.bytes("t").unwrap().get(&key(900)).unwrap();
    let txn = env.begin_with(hasty()).unwrap();
    let t = txn.bytes("t").unwrap();
    assert_timed_out(t.delete_range(..));
    assert!(t.get(&key(5)).unwrap().is_some());
    txn.commit().unwrap();
    drop(reader);
    assert_eq!(read(&env).unwrap(), before);
    assert_sound(&env, "after a deletion that timed out");
}

// ---- Space that ends in the middle of a call, at every moment.

/// Has the log take so many small commits, or as many as it can; says how many.
fn fill(env: &Environment, count: u64) -> u64 {
    for done in 0..count {
        let txn = env.begin().unwrap();
        match txn.bytes("filler").unwrap().put(b"k", &done.to_be_bytes()) {
            Ok(()) => drop(txn.commit_with(Durability::Volatile).unwrap()),
            Err(Error::ReadOnly { .. }) => return done,
            Err(error) => panic!("{error}"),
        }
    }
    count
}

type Does = dyn Fn(&Transaction) -> Result<(), Error>;

/// Runs a call with more and more log left, until it comes to its end; the transaction commits, whatever came of it.
fn at_every_end_of_space(what: &str, does: &Does) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        txn.create_table("filler")?;
        let t = txn.create_table("t")?;
        t.put(b"small", b"value")?;
        t.put(b"large", &[7; 20_000])?;
        t.put(b"gone", &[7; 40_000])?; // Leaves free pages.
        (0..300).try_for_each(|n| t.put(&key(n), b"value"))?;
        txn.create_table("indexed")?;
        txn.create_index("indexed", &IndexDef::new("by_value", IndexKeys::Value))?;
        txn.bytes("indexed")?.put(b"k", b"v")
    })
    .unwrap();
    env.transact(|txn| txn.bytes("t")?.delete(b"gone")).unwrap();
    env.reclaim().unwrap();
    env.close().unwrap();

    // Somebody who is open, so that no checkpoint gives log up. What threads of the library take of the log is the same
    // in each round: the opening's checkpoint has been taken, and the log gets no segment.
    let full = |count: u64| {
        let disk = disk.snapshot();
        disk.no_space_after(disk.used_bytes());
        let env = open(&disk).unwrap();
        while env.stat().unwrap().checkpoint_count == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let open = env.begin().unwrap();
        open.bytes("filler").unwrap().put(b"open", b"").unwrap();
        let done = fill(&env, count);
        (disk, env, open, done)
    };
    let (_, _, _, room) = full(u64::MAX);
    for (refused_count, left) in (0..room).enumerate() {
        let (disk, env, open, _) = full(room - left);
        let txn = env.begin().unwrap();
        let done = does(&txn);
        assert!(!env.is_failed(), "{what}, {left} left");
        let is_refused = match &done {
            Ok(()) => false,
            Err(Error::ReadOnly { .. }) => true,
            Err(error) => panic!("{what}, {left} left: {error}"),
        };
        let has_committed = txn.commit().is_ok();
        disk.space_for_all();
        open.abort().unwrap();
        env.checkpoint().unwrap();
        env.reclaim().unwrap();
        assert_sound(&env, &format!("{what}, {left} left, refused {is_refused}, committed {has_committed}"));
        let mut now = read(&env).unwrap();
        now.remove("filler");
        let (t, indexed) = (now.remove("t").unwrap_or_default(), now.remove("indexed").unwrap_or_default());
        let is_whole = now.is_empty() && t.len() == 302 && t[&b"large"[..]] == [7; 20_000] && indexed.len() == 1;
        assert_eq!(is_refused || !has_committed, is_whole, "{what}, {left} left");
        if !is_refused && has_committed {
            assert!(refused_count > 0, "{what}: space never ended in it");
            return;
        }
    }
    panic!("{what}: there was never space for it");
}

#[test]
fn a_large_value_that_finds_no_space_is_not_there() {
    at_every_end_of_space("a new large value", &|txn| txn.bytes("t")?.put(b"new", &[1; 9_000]));
    at_every_end_of_space("a large value in the place of one", &|txn| txn.bytes("t")?.put(b"large", &[1; 9_000]));
}

#[test]
fn a_large_value_that_cannot_go_stays() {
    at_every_end_of_space("a small value for a large one", &|txn| txn.bytes("t")?.put(b"large", b"small"));
    at_every_end_of_space("a deletion", &|txn| txn.bytes("t")?.delete(b"large").map(drop));
    at_every_end_of_space("a range", &|txn| txn.bytes("t")?.delete_range(..).map(drop));
}

#[test]
fn tables_that_cannot_be_changed_for_want_of_space_are_what_they_were() {
    at_every_end_of_space("a creation", &|txn| txn.create_table("new").map(drop));
    at_every_end_of_space("a drop", &|txn| txn.drop_table("t"));
    at_every_end_of_space("a drop of two trees", &|txn| txn.drop_table("indexed"));
    at_every_end_of_space("a new name", &|txn| txn.rename_table("t", "u"));
}

// ---- Whatever is refused, in any order.

struct Dice(Random);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0.below(sides)
    }
    fn name(&mut self) -> &'static str {
        ["a", "b", "c", "d"][self.throw(4) as usize]
    }
    fn key(&mut self) -> Vec<u8> {
        key(self.throw(60) * 10)
    }
    fn value(&mut self) -> Vec<u8> {
        let bytes = [3, 40, 500, 1500, 9000][self.throw(5) as usize];
        vec![self.throw(250) as u8; bytes]
    }
}

/// One call; what it did is done to the model, if it was not refused.
fn call(txn: &Transaction, model: &mut State, dice: &mut Dice) -> Result<(), Error> {
    let name = dice.name();
    match dice.throw(16) {
        0 => {
            txn.create_table(name)?;
            model.insert(name.into(), BTreeMap::new());
        }
        1 => {
            txn.drop_table(name)?;
            model.remove(name);
        }
        2 => {
            let to = dice.name();
            txn.rename_table(name, to)?;
            let table = model.remove(name).unwrap();
            model.insert(to.into(), table);
        }
        3 => txn.create_index(name, &IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(2) }))?,
        4 => txn.drop_index(name, "i")?,
        5 => {
            let (from, to) = (dice.key(), dice.key());
            let table = txn.bytes(name)?;
            let count = table.delete_range(&from[..]..&to[..])?;
            let records = model.get_mut(name).unwrap();
            let before = records.len() as u64;
            records.retain(|key, _| !(from.clone()..to.clone()).contains(key));
            assert_eq!(before - records.len() as u64, count);
        }
        6..9 => {
            let key = dice.key();
            let was_there = txn.bytes(name)?.delete(&key)?;
            assert_eq!(model.get_mut(name).unwrap().remove(&key).is_some(), was_there);
        }
        9 => {
            let (key, value) = (dice.key(), dice.value());
            let is_there = txn.bytes(name)?.modify(&key, |_| Some(value.clone()))?;
            let records = model.get_mut(name).unwrap();
            assert_eq!(records.contains_key(&key), is_there);
            records.entry(key).and_modify(|old| *old = value);
        }
        _ => {
            let (key, value) = (dice.key(), dice.value());
            txn.bytes(name)?.put(&key, &value)?;
            model.get_mut(name).unwrap().insert(key, value);
        }
    }
    Ok(())
}

/// Transactions of calls that are refused in every way, each committed with what was not; others stand in their way,
/// and space comes and goes.
fn refuse_at_random(seed: u64) {
    let mut dice = Dice(Random::new(seed));
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let (mut committed, mut refused_count) = (State::new(), 0);
    for round in 0..40 {
        let what = format!("seed {seed}, round {round}");
        let reader = env.begin().unwrap();
        for _ in 0..dice.throw(4) {
            if let Ok(table) = reader.bytes(dice.name()) {
                let _ = table.get(&dice.key());
                let _ = table.range(&dice.key()[..]..).unwrap().next();
            }
        }
        let is_short = dice.throw(3) == 0;
        if is_short {
            disk.no_space_after(disk.used_bytes() + dice.throw(3) * 70_000);
        }
        let soon = TransactionOptions { lock_timeout: Some(Duration::from_millis(1)), ..hasty() };
        let txn = env.begin_with(soon).unwrap();
        let (mut model, mut marks, mut is_over) = (committed.clone(), Vec::new(), false);
        for _ in 0..dice.throw(if is_short { 120 } else { 15 }) {
            match dice.throw(12) {
                0 => marks.push((txn.savepoint().unwrap(), model.clone())),
                1 if !marks.is_empty() => {
                    let at = dice.throw(marks.len() as u64) as usize;
                    marks.truncate(at + 1);
                    txn.rollback_to(marks[at].0).unwrap();
                    model.clone_from(&marks[at].1);
                }
                _ => match call(&txn, &mut model, &mut dice) {
                    Ok(()) => {}
                    Err(Error::Deadlock { .. } | Error::LockRefused { .. } | Error::LockTableFull { .. }) => {
                        is_over = true;
                        break;
                    }
                    Err(Error::Failed { why }) => panic!("{what}: {why}"),
                    Err(Error::Corrupt { what: damage }) => panic!("{what}: {damage}"),
                    Err(_) => refused_count += 1,
                },
            }
        }
        let done = if is_over || dice.throw(8) == 0 { txn.abort().map(|()| false) } else { txn.commit().map(|_| true) };
        if done.is_ok_and(|stays| stays) {
            committed = model;
        }
        drop(reader);
        disk.space_for_all();
        if round % 4 == 3 {
            env.reclaim().unwrap();
            assert!(read(&env).unwrap() == committed, "{what}");
            assert_sound(&env, &what);
        }
    }
    disk.crash_now();
    drop(env);
    let env = open(&disk.after_crash(seed)).unwrap();
    assert!(read(&env).unwrap() == committed, "seed {seed}, after a crash");
    assert_sound(&env, &format!("seed {seed}, after a crash"));
    assert!(refused_count > 10);
}

#[test]
fn what_is_refused_at_random_is_not_there_and_the_rest_is() {
    for seed in 0..6 {
        refuse_at_random(seed);
    }
}
