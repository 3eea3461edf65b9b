//! A transaction begins in the memory of the last one of its thread: nothing of that one is left.

mod common;

use std::time::Duration;

use common::levels::{all, begin, open, put};
use ledgerstone::{Durability, Error, Isolation, TransactionOptions};

#[test]
fn handles_of_a_transaction_that_has_ended_are_none_of_the_next() {
    let env = open();
    put(&env, b"k", b"1");
    for _ in 0..3 {
        let first = env.begin().unwrap();
        let (table, mut range) = (first.bytes("t").unwrap(), first.bytes("t").unwrap().range(..).unwrap());
        first.commit().unwrap();
        let next = env.begin().unwrap();
        next.bytes("t").unwrap().put(b"k", b"2").unwrap();
        assert!(matches!(table.get(b"k"), Err(Error::Finished)));
        assert!(matches!(table.put(b"k", b"3"), Err(Error::Finished)));
        assert!(matches!(range.next(), Some(Err(Error::Finished))));
        next.commit().unwrap();
        assert!(matches!(table.get(b"k"), Err(Error::Finished)));
    }
    assert_eq!(all(&env.snapshot().unwrap()), [(b"k".to_vec(), b"2".to_vec())]);
}

#[test]
fn what_one_transaction_was_told_holds_for_it_alone() {
    let env = open();
    put(&env, b"k", b"1");
    let options = TransactionOptions {
        isolation: Some(Isolation::Snapshot),
        read_only: true,
        lock_timeout: Some(Duration::from_millis(1)),
        ..TransactionOptions::default()
    };
    let mut xids = Vec::new();
    for _ in 0..3 {
        let reader = env.begin_with(options).unwrap();
        xids.push(reader.xid());
        assert!(reader.snapshot_lsn().is_some());
        assert!(matches!(reader.bytes("t").unwrap().put(b"k", b"2"), Err(Error::ReadOnly { .. })));
        reader.commit().unwrap();

        let writer = env.begin().unwrap();
        xids.push(writer.xid());
        assert_eq!((writer.isolation(), writer.snapshot_lsn()), (Isolation::Serializable, None));
        let savepoint = writer.savepoint().unwrap();
        writer.bytes("t").unwrap().put(b"k", b"3").unwrap();
        assert!(matches!(writer.nested_read_only(|txn| txn.bytes("t")?.put(b"k", b"4")), Err(Error::ReadOnly { .. })));
        writer.commit().unwrap();

        let next = begin(&env, Isolation::Serializable);
        xids.push(next.xid());
        assert!(matches!(next.rollback_to(savepoint), Err(Error::NoSavepoint)), "of the one before");
        next.create_table("made").unwrap();
        next.abort().unwrap();
    }
    let count = xids.len();
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len(), count, "each has an id of its own");
}

#[test]
fn tables_that_one_transaction_has_made_are_not_its_successors() {
    let env = open();
    for round in 0..3 {
        env.transact(|txn| txn.create_table("made")?.put(b"k", b"1")).unwrap();
        let txn = env.begin().unwrap();
        assert_eq!(txn.bytes("made").unwrap().get(b"k").unwrap().as_deref(), Some(&b"1"[..]), "{round}");
        txn.drop_table("made").unwrap();
        txn.commit().unwrap();
        let txn = env.begin().unwrap();
        assert!(matches!(txn.bytes("made"), Err(Error::NoSuchTable(_))));
        txn.commit().unwrap();
    }
}

/// Each of many transactions may be in the memory of one that another thread has begun.
#[test]
fn transactions_that_are_committed_by_other_threads_keep_to_themselves() {
    let env = open();
    put(&env, b"k", b"0");
    for no in 1..50_u64 {
        let txn = env.begin().unwrap();
        let sent = std::thread::scope(|scope| {
            let other = || {
                env.transact(|own| own.bytes("t")?.get(b"other").map(drop)).unwrap();
                txn.bytes("t").unwrap().put(b"k", no.to_string()).unwrap();
                txn.commit().map(drop)
            };
            scope.spawn(other).join().unwrap()
        });
        sent.unwrap();
        let read = env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap();
        assert_eq!(read, Some(no.to_string().into_bytes()));
    }
    env.close().unwrap();
}

#[test]
fn one_that_asked_nothing_stands_for_all_before_it() {
    let env = open();
    put(&env, b"k", b"0");
    for _ in 0..3 {
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(b"k", b"1").unwrap();
        let before = txn.commit_with(Durability::Volatile).unwrap();
        env.begin().unwrap().commit_with(Durability::Sync).unwrap();
        assert!(env.durable_lsn() > before.lsn, "the commit before is not durable");
    }
}

#[test]
fn a_conflict_of_one_transaction_is_none_of_the_next() {
    let env = open();
    put(&env, b"k", b"1");
    let options = TransactionOptions { lock_timeout: Some(Duration::from_millis(1)), ..TransactionOptions::default() };
    for _ in 0..3 {
        let holder = env.begin().unwrap();
        holder.bytes("t").unwrap().put(b"k", b"2").unwrap();
        let other = env.begin_with(options).unwrap();
        let refused = other.bytes("t").unwrap().put(b"k", b"3");
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        other.commit().unwrap();
        let mut count = 0;
        let given_up: Result<(), Error> = env.transact(|_| {
            count += 1;
            Err(Error::Finished)
        });
        assert!(given_up.is_err() && count == 1, "it was run {count} times");
        holder.abort().unwrap();
    }
}
