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
