//! A transaction that writes or drops many large values keeps others out of its own records only. That holds while it
//! runs, while it is in doubt, and after a restart.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{assert_sound, key, open, read, tiny, within};
use ledgerstone::{Environment, Error, Options, TransactionOptions};
use ledgerstone_disk::SimDisk;

const LARGE: [u8; 9000] = [7; 9000];

/// A few locks on keys become one on the whole table.
fn options() -> Options {
    tiny().escalate_after(4).transaction_count_max(8)
}

fn environment(options: Options) -> (SimDisk, Environment) {
    let disk = SimDisk::new();
    let env = options.open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| {
        for name in ["a", "b", "gone"] {
            let table = txn.create_table(name)?;
            (0..5).try_for_each(|n| table.put(&key(n), &LARGE))?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    env.reclaim().unwrap();
    (disk, env)
}

/// Far more locks than 4 if each entry of a deferred free took one: new ones, replaced ones and deleted ones.
fn write_many(txn: &ledgerstone::Transaction) {
    let a = txn.bytes("a").unwrap();
    (0..40).for_each(|n| a.put(&key(n), &[8; 9000]).unwrap());
    (2..5).for_each(|n| assert!(a.delete(&key(n)).unwrap()));
}

/// All that needs deferred frees, by somebody who does not wait, and then back to where it was.
fn assert_open_to_others(env: &Environment, what: &str) {
    for round in 0..2 {
        let in_turn = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
        let txn = env.begin_with(in_turn).unwrap();
        let refused = |error: Error| -> () { panic!("{what}, round {round}: {error}") };
        let b = txn.bytes("b").unwrap();
        (0..10).for_each(|n| b.put(&key(n), &LARGE).unwrap_or_else(refused));
        assert!(b.delete(&key(9)).unwrap());
        txn.create_table("made").map(drop).unwrap_or_else(refused);
        txn.drop_table("gone").unwrap_or_else(refused);
        if round == 0 {
            txn.abort().unwrap();
        } else {
            txn.commit().unwrap();
        }
        env.reclaim().unwrap_or_else(refused);
    }
    env.transact(|txn| {
        txn.rename_table("made", "gone")?;
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn many_large_values_of_one_transaction_keep_nobody_from_others() {
    let (_, env) = environment(options());
    let before = read(&env).unwrap();
    let txn = env.begin().unwrap();
    write_many(&txn);
    assert_open_to_others(&env, "while it runs");
    txn.abort().unwrap();
    env.reclaim().unwrap();
    assert_eq!(read(&env).unwrap()["a"], before["a"]);
    assert_sound(&env, "after the rollback");
    assert_eq!(env.verify().unwrap().to_free_page_count, 0);
}

#[test]
fn many_large_values_in_doubt_keep_nobody_from_others_and_are_kept_for_the_decision() {
    for commits in [true, false] {
        let (mut disk, mut env) = environment(options());
        let before = read(&env).unwrap();
        let txn = env.begin().unwrap();
        write_many(&txn);
        let prepared = txn.prepare(b"one").unwrap();
        assert_open_to_others(&env, "prepared");
        drop(prepared);
        for life in 0..2 {
            disk.crash_now();
            drop(env);
            disk = disk.after_crash(7);
            env = options().open_on(Arc::new(disk.clone())).unwrap();
            assert_eq!(env.in_doubt().len(), 1);
            assert_open_to_others(&env, &format!("in doubt, life {life}"));
        }
        if commits {
            env.commit_in_doubt(b"one").unwrap();
        } else {
            env.abort_in_doubt(b"one").unwrap();
        }
        env.reclaim().unwrap();
        let a = &read(&env).unwrap()["a"];
        if commits {
            assert_eq!(a.len(), 37);
            assert!(a.values().all(|value| value == &[8; 9000]));
        } else {
            assert_eq!(a, &before["a"]);
        }
        assert_sound(&env, "after the decision");
        assert_eq!(env.verify().unwrap().to_free_page_count, 0);
    }
}

#[test]
fn a_savepoint_takes_many_large_values_back_and_frees_them_at_the_end_only() {
    let (_, env) = environment(options());
    let before = read(&env).unwrap();
    let txn = env.begin().unwrap();
    for _ in 0..3 {
        let point = txn.savepoint().unwrap();
        write_many(&txn);
        env.reclaim().unwrap();
        txn.rollback_to(point).unwrap();
        env.reclaim().unwrap();
    }
    let a = txn.bytes("a").unwrap();
    assert!((0..5).all(|n| a.get(&key(n)).unwrap().as_deref() == Some(&LARGE[..])));
    txn.commit().unwrap();
    env.reclaim().unwrap();
    assert_eq!(read(&env).unwrap(), before);
    assert_sound(&env, "after the commit");
    assert_eq!(env.verify().unwrap().to_free_page_count, 0);
}

#[test]
fn close_waits_for_nothing_that_is_in_doubt() {
    // Somebody who waited would wait for a day.
    let day = Duration::from_secs(86_400);
    let (disk, env) = environment(options().lock_timeout(day));
    let txn = env.begin().unwrap();
    write_many(&txn);
    drop(txn.prepare(b"one").unwrap());
    within(60, "reclaim, and close", move || {
        env.reclaim().unwrap();
        env.close().unwrap();
    });
    let env = open(&disk).unwrap();
    assert_eq!(env.in_doubt().len(), 1);
}
