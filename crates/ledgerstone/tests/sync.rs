//! What a commit without work of its own, and `sync`, make durable.

mod common;

use ledgerstone::{Durability, Environment, Error, Isolation, TransactionOptions};
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
