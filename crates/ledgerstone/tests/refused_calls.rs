//! A call that is refused has changed nothing: its transaction stands, may be asked again, and may commit.

mod common;

use std::time::Duration;

use common::*;
use ledgerstone::{Durability, Environment, Error, IndexDef, IndexKeys, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

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

    // Somebody who is open, so that no checkpoint gives log up.
    let full = |count: u64| {
        let disk = disk.snapshot();
        let env = open(&disk).unwrap();
        let open = env.begin().unwrap();
        open.bytes("filler").unwrap().put(b"open", b"").unwrap();
        disk.no_space_after(disk.used_bytes());
        let done = fill(&env, count);
        (disk, env, open, done)
    };
    let (_, _, _, room) = full(u64::MAX);
    for (refused_count, left) in (0..room).step_by(2).enumerate() {
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
            assert!(refused_count > 2, "{what}: space never ended in it");
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
