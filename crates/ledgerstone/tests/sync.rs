//! What a commit without work of its own, and `sync`, make durable.

mod common;

use std::sync::Arc;

use ledgerstone::{Durability, Environment, Error, Isolation, Locking, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

fn with(durability: Durability) -> TransactionOptions {
    TransactionOptions { durability: Some(durability), ..TransactionOptions::default() }
}

/// A volatile commit, then `end`; whether the commit is there after the power was lost.
fn survives(end: impl FnOnce(&Environment) -> Result<(), Error>) -> bool {
    let disk = SimDisk::new();
    let env = common::open(&disk).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    env.transact_with(with(Durability::Volatile), |txn| txn.bytes("t")?.put(b"k", b"v")).unwrap();
    end(&env).unwrap();
    disk.crash_now();
    drop(env);
    let env = common::open(&disk.after_crash(1)).unwrap();
    env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().is_some()
}

#[test]
fn an_empty_sync_commit_covers_all_before_it() {
    assert!(!survives(|_| Ok(())), "volatile");
    assert!(survives(Environment::sync), "sync");
    for isolation in Isolation::ALL {
        for read_only in [false, true] {
            let options = TransactionOptions { isolation: Some(isolation), read_only, ..with(Durability::Sync) };
            assert!(survives(|env| env.begin_with(options)?.commit().map(drop)), "{isolation} {read_only}");
        }
    }
    assert!(survives(|env| env.transact(|_| Ok(()))), "transact");
    assert!(survives(|env| env.begin_with(with(Durability::Pipelined))?.commit()?.ticket.wait()), "a ticket");
    assert!(survives(|env| env.snapshot()?.commit().map(drop)), "a snapshot");
}

#[test]
fn a_reader_waits_for_what_it_read_and_for_nothing_else() {
    let disk = SimDisk::new();
    let env = common::open(&disk).unwrap();
    env.transact(|txn| {
        txn.create_table("quiet")?.put(b"k", b"v")?;
        txn.create_table("busy").map(drop)
    })
    .unwrap();
    env.transact_with(with(Durability::Volatile), |txn| txn.bytes("busy")?.put(b"k", b"v")).unwrap();
    let flushes = || disk.counters().syncs;
    let before = flushes();
    for _ in 0..10 {
        assert!(env.transact(|txn| txn.bytes("quiet")?.get(b"k")).unwrap().is_some());
    }
    assert_eq!(flushes(), before, "reads of what is durable");
    assert!(env.transact(|txn| txn.bytes("busy")?.get(b"k")).unwrap().is_some());
    let after = flushes();
    assert!(after > before, "a read of what is not");
    env.sync().unwrap();
    env.transact(|_| Ok::<_, Error>(())).unwrap();
    assert_eq!(flushes(), after, "all is durable");
}

/// The log is durable up to exactly where the commit record begins: that record is not.
#[test]
fn a_reader_waits_for_a_commit_at_the_very_end_of_what_is_durable() {
    let disk = SimDisk::new();
    let env = common::open(&disk).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let writer = env.begin().unwrap();
    writer.bytes("t").unwrap().put(b"k", b"v").unwrap();
    env.sync().unwrap();
    let durable = env.stat().unwrap().log_durable_lsn;
    let committed = writer.commit_with(Durability::Volatile).unwrap();
    assert_eq!(committed.lsn.0, durable);
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap(), Some(b"v".to_vec()));
    disk.crash_now();
    drop(env);
    let env = common::open(&disk.after_crash(1)).unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap(), Some(b"v".to_vec()), "it was told of it");
}

/// A record is deleted by a volatile commit, then `goes_by` comes by who may take what is left of it away; then
/// somebody reads that it is gone.
fn assert_reader_waits(what: &str, goes_by: impl Fn(&Environment) -> Result<(), Error>) {
    for locking in [Locking::Hierarchical, Locking::Pages, Locking::None] {
        let env = common::tiny().locking(locking).open_on(Arc::new(SimDisk::new())).unwrap();
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..40).try_for_each(|n| table.put(&common::key(n), &[0; 400]))
        })
        .unwrap();
        env.compact().unwrap(); // Another one has nothing to cut, and so waits for nothing.
        env.sync().unwrap();
        let deletion = env.begin_with(with(Durability::Volatile)).unwrap();
        let table = deletion.bytes("t").unwrap();
        assert!(table.delete(&common::key(14)).unwrap());
        drop(table);
        let deletion = deletion.commit().unwrap();
        goes_by(&env).unwrap();
        // Of the gap only: the other keys' locks may share a bucket with the deleted one's.
        let is_gone = |txn: &Transaction| {
            let records = txn.bytes("t")?.range(&common::key(14)[..]..&common::key(15)[..])?.count();
            Ok::<_, Error>(records == 0)
        };
        assert!(env.transact(is_gone).unwrap());
        assert!(deletion.ticket.is_durable(), "{what}, {locking:?}");
    }
}

/// Who is told that records are gone is told so for good, although nothing of them is left that could be locked.
#[test]
fn a_reader_of_a_gap_waits_for_the_deletions_that_made_it() {
    assert_reader_waits("nobody", |_| Ok(()));
    assert_reader_waits("a compaction", |env| env.compact().map(drop));
    assert_reader_waits("who takes it back", |env| {
        let txn = env.begin()?;
        let table = txn.bytes("t")?;
        (0..12).try_for_each(|n| table.put(&[&common::key(14)[..], &[n]].concat(), &[0; 400]))?;
        txn.abort()
    });
}

/// And so is who finds records on another page than they were written to.
#[test]
fn a_reader_waits_for_what_was_written_wherever_it_has_moved() {
    for locking in [Locking::Hierarchical, Locking::Pages] {
        let env = common::tiny().locking(locking).open_on(Arc::new(SimDisk::new())).unwrap();
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..40).try_for_each(|n| table.put(&common::key(n), &[0; 400]))
        })
        .unwrap();
        for n in 0..40 {
            env.sync().unwrap();
            let txn = env.begin_with(with(Durability::Volatile)).unwrap();
            txn.bytes("t").unwrap().put(&common::key(n), &[1; 400]).unwrap();
            let written = txn.commit().unwrap();
            let txn = env.begin().unwrap();
            let table = txn.bytes("t").unwrap();
            (0..12).for_each(|m| table.put(&[&common::key(n)[..], &[m]].concat(), &[0; 400]).unwrap());
            drop(table);
            txn.abort().unwrap();
            let value = env.transact(|txn| txn.bytes("t")?.get(&common::key(n))).unwrap();
            assert_eq!(value, Some(vec![1; 400]));
            assert!(written.ticket.is_durable(), "key {n}, {locking:?}");
        }
    }
}

#[test]
fn the_durable_lsn_says_what_a_crash_would_keep() {
    let env = common::open(&SimDisk::new()).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let put = |txn: &Transaction| txn.bytes("t")?.put(b"k", b"v");
    let ((), committed) = env.transact_ticket(with(Durability::Volatile), put).unwrap();
    assert!(env.durable_lsn() <= committed.lsn && !committed.ticket.is_durable());
    env.sync().unwrap();
    assert!(env.durable_lsn() > committed.lsn && committed.ticket.is_durable());
}
