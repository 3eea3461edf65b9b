//! Savepoints and nested transactions: what is taken back, what stays, and what a crash makes of it.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::{assert_sound, key, open, read};
use ledgerstone::{Durability, Environment, Error, Isolation, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

fn environment() -> (SimDisk, Environment) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        (0..50).try_for_each(|n| t.put(&key(n), b"before"))
    })
    .unwrap();
    (disk, env)
}

fn values(txn: &Transaction) -> Vec<(u64, Vec<u8>)> {
    let number = |key: Vec<u8>| u64::from_be_bytes(key.try_into().unwrap());
    txn.bytes("t").unwrap().range(..).unwrap().map(|r| r.map(|(k, v)| (number(k), v)).unwrap()).collect()
}

/// What an impatient transaction is told of a key.
fn is_locked(env: &Environment, n: u64) -> bool {
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    let txn = env.begin_with(options).unwrap();
    let got = txn.bytes("t").unwrap().get(&key(n));
    assert!(matches!(got, Ok(_) | Err(Error::LockTimeout { .. })), "{got:?}");
    got.is_err()
}

#[test]
fn what_was_done_since_a_savepoint_is_taken_back_and_the_rest_stays() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    t.put(&key(1), b"kept").unwrap();
    t.delete(&key(2)).unwrap();
    let kept = values(&txn);
    let savepoint = txn.savepoint().unwrap();
    t.put(&key(1), b"a longer value, so that the record moves").unwrap();
    t.put(&key(2), b"again").unwrap();
    t.delete(&key(3)).unwrap();
    t.put(&key(99), b"new").unwrap();
    t.modify(&key(4), |_| Some(b"BEFORE".to_vec())).unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(values(&txn), kept);
    t.put(&key(5), b"after").unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(values(&txn), kept, "the savepoint can be gone back to again");
    t.put(&key(6), b"after").unwrap();
    let _ = txn.commit().unwrap();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    assert_eq!(t.get(&key(1)).unwrap().unwrap(), b"kept");
    assert_eq!(t.get(&key(5)).unwrap().unwrap(), b"before");
    assert_eq!(t.get(&key(6)).unwrap().unwrap(), b"after");
    drop((t, txn));
    assert_sound(&env, "after the commit");
}

#[test]
fn savepoints_are_a_stack_and_belong_to_their_transaction() {
    let (_, env) = environment();
    let (txn, other) = (env.begin().unwrap(), env.begin().unwrap());
    let t = txn.bytes("t").unwrap();
    let first = txn.savepoint().unwrap();
    t.put(&key(1), b"one").unwrap();
    let second = txn.savepoint().unwrap();
    t.put(&key(2), b"two").unwrap();
    let third = txn.savepoint().unwrap();
    let refused = |result| matches!(result, Err(Error::NoSavepoint));
    assert!(refused(other.rollback_to(first)));
    txn.rollback_to(second).unwrap();
    assert!(
        refused(txn.rollback_to(third)) && refused(txn.release(third)),
        "it came after the one that was gone back to"
    );
    txn.release(second).unwrap();
    assert!(refused(txn.rollback_to(second)), "it was released");
    assert_eq!(t.get(&key(1)).unwrap().unwrap(), b"one", "a release takes nothing back");
    txn.rollback_to(first).unwrap();
    assert_eq!(t.get(&key(1)).unwrap().unwrap(), b"before");
    txn.abort().unwrap();
    drop(other);
    assert_sound(&env, "after the abort");
}

#[test]
fn locks_taken_since_a_savepoint_are_kept_until_the_end() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let savepoint = txn.savepoint().unwrap();
    txn.bytes("t").unwrap().put(&key(7), b"x").unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert!(is_locked(&env, 7));
    let _ = txn.commit().unwrap();
    assert!(!is_locked(&env, 7));
}

#[test]
fn tables_created_and_dropped_since_a_savepoint_are_as_before() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    let early = txn.create_table("early").unwrap();
    let savepoint = txn.savepoint().unwrap();
    let late = txn.create_table("late").unwrap();
    late.put(b"k", &vec![7; 20_000]).unwrap();
    txn.drop_table("t").unwrap();
    txn.drop_table("early").unwrap();
    let other = txn.create_table("t").unwrap();
    other.put(b"k", b"v").unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(txn.table_names().unwrap(), ["early", "t"]);
    assert!(matches!(late.put(b"k", b"v"), Err(Error::NoSuchTable(_))), "a handle of a table that is gone");
    assert!(matches!(other.get(b"k"), Err(Error::NoSuchTable(_))));
    assert!(matches!(txn.bytes("late"), Err(Error::NoSuchTable(_))));
    assert_eq!(t.get(&key(3)).unwrap().unwrap(), b"before", "a handle of a table that is there again");
    early.put(b"k", b"v").unwrap();
    txn.create_table("late").unwrap().put(b"k", b"second").unwrap();
    let _ = txn.commit().unwrap();
    env.reclaim().unwrap();
    assert_sound(&env, "after the commit");
    let state = read(&env).unwrap();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["early", "late", "t"]);
    assert_eq!(state["late"][&b"k".to_vec()], b"second");
    assert_eq!(state["t"].len(), 50);
}

#[test]
fn large_values_come_and_go_with_the_savepoint() {
    let (disk, env) = environment();
    let big = |fill: u8| vec![fill; 30_000];
    env.transact(|txn| txn.bytes("t")?.put(&key(1), &big(1))).unwrap();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    let savepoint = txn.savepoint().unwrap();
    for round in 0..5 {
        t.put(&key(1), &big(10 + round)).unwrap();
        t.put(&key(2), &big(20 + round)).unwrap();
        t.delete(&key(1)).unwrap();
        txn.rollback_to(savepoint).unwrap();
        assert_eq!(t.get(&key(1)).unwrap().unwrap(), big(1));
        assert_eq!(t.get(&key(2)).unwrap().unwrap(), b"before");
    }
    t.put(&key(3), &big(3)).unwrap();
    let _ = txn.commit().unwrap();
    drop(t);
    env.reclaim().unwrap();
    let report = env.verify().unwrap();
    assert_eq!((report.problems.len(), report.blob_count, report.to_free_page_count), (0, 2, 0), "{report:?}");
    env.close().unwrap();
    let env = open(&disk).unwrap();
    assert_eq!(read(&env).unwrap()["t"][&key(3)], big(3));
}

#[test]
fn an_iterator_goes_on_with_what_is_there_after_the_rollback() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    let savepoint = txn.savepoint().unwrap();
    for n in 10..40 {
        t.delete(&key(n)).unwrap();
    }
    let mut range = t.range(..).unwrap();
    let mut seen: Vec<Vec<u8>> = range.by_ref().take(5).map(|r| r.unwrap().0).collect();
    txn.rollback_to(savepoint).unwrap();
    seen.extend(range.map(|r| r.unwrap().0));
    assert_eq!(seen, (0..50).map(key).collect::<Vec<_>>());
}

#[test]
fn children_commit_into_the_parent_and_abort_alone_at_any_depth() {
    let (disk, env) = environment();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(0), b"parent").unwrap();
    let result: Result<(), Error> = txn.nested(|txn| {
        let t = txn.bytes("t")?;
        t.put(&key(1), b"child")?;
        let failed: Result<(), Error> = txn.nested(|txn| {
            txn.bytes("t")?.put(&key(2), b"grandchild")?;
            txn.nested(|txn| txn.bytes("t")?.put(&key(3), b"kept by its parent, which fails"))?;
            Err(Error::user("on purpose"))
        });
        assert!(matches!(failed, Err(Error::User(_))));
        txn.nested(|txn| txn.bytes("t")?.put(&key(4), b"grandchild"))
    });
    result.unwrap();
    let failed: Result<(), Error> = txn.nested(|txn| {
        let created = txn.create_table("child's")?;
        created.put(b"k", b"v")?;
        txn.nested(|txn| txn.drop_table("t"))?;
        assert!(matches!(txn.bytes("t"), Err(Error::NoSuchTable(_))));
        Err(Error::user("on purpose"))
    });
    assert!(failed.is_err());
    assert_eq!(txn.table_names().unwrap(), ["t"]);
    let _ = txn.commit().unwrap();
    drop(env);
    let env = open(&disk).unwrap();
    let state = &read(&env).unwrap()["t"];
    let of = |n| state[&key(n)].as_slice();
    assert_eq!([of(0), of(1), of(2), of(3), of(4)], [&b"parent"[..], b"child", b"before", b"before", b"grandchild"]);
    assert_sound(&env, "after a restart");
}

#[test]
fn a_child_has_its_parents_locks_and_leaves_it_its_own() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(1), b"x").unwrap();
    txn.nested(|txn| txn.bytes("t")?.put(&key(1), b"y")).unwrap();
    let failed: Result<(), Error> = txn.nested(|txn| {
        txn.bytes("t")?.put(&key(2), b"z")?;
        Err(Error::user("on purpose"))
    });
    assert!(failed.is_err() && is_locked(&env, 1) && is_locked(&env, 2));
    txn.abort().unwrap();
    assert!(!is_locked(&env, 1) && !is_locked(&env, 2));
}

#[test]
fn a_child_cannot_go_back_to_before_it_began() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let outer = txn.savepoint().unwrap();
    let t = txn.bytes("t").unwrap();
    let inner = txn
        .nested(|txn| {
            t.put(&key(1), b"child")?;
            assert!(matches!(txn.rollback_to(outer), Err(Error::NoSavepoint)));
            assert!(matches!(txn.release(outer), Err(Error::NoSavepoint)));
            let inner = txn.savepoint()?;
            t.put(&key(1), b"undone")?;
            txn.rollback_to(inner)?;
            Ok::<_, Error>(inner)
        })
        .unwrap();
    assert!(matches!(txn.rollback_to(inner), Err(Error::NoSavepoint)), "it went with its child");
    assert_eq!(t.get(&key(1)).unwrap().unwrap(), b"child");
    txn.rollback_to(outer).unwrap();
    assert_eq!(t.get(&key(1)).unwrap().unwrap(), b"before");
}

#[test]
fn a_child_that_panics_is_taken_back() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _: Result<(), Error> = txn.nested(|_| {
            t.put(&key(1), b"child").unwrap();
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(t.get(&key(1)).unwrap().unwrap(), b"before");
    t.put(&key(2), b"parent").unwrap();
    let _ = txn.commit().unwrap();
    assert_sound(&env, "after the panic");
}

#[test]
fn a_read_only_child_reads_and_changes_nothing() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    t.put(&key(1), b"parent").unwrap();
    txn.nested_read_only(|txn| {
        assert_eq!(t.get(&key(1))?.unwrap(), b"parent", "it sees what its parent wrote");
        let refused = |result: Result<(), Error>| assert!(matches!(result, Err(Error::ReadOnly { .. })), "{result:?}");
        refused(t.put(&key(1), b"x"));
        refused(t.delete(&key(1)).map(drop));
        refused(txn.create_table("u").map(drop));
        refused(txn.drop_table("t"));
        refused(txn.nested(|_| t.put(&key(1), b"x")));
        Ok::<_, Error>(())
    })
    .unwrap();
    t.put(&key(2), b"parent again").unwrap();
    let _ = txn.commit().unwrap();
}

#[test]
fn a_deadlock_in_a_child_ends_the_whole_transaction() {
    let (_, env) = environment();
    let first = env.begin().unwrap();
    let second = env.begin().unwrap(); // The younger: it gives way.
    first.bytes("t").unwrap().put(&key(1), b"first").unwrap();
    let (asked, ask) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        ask.recv().unwrap();
        first.bytes("t").unwrap().put(&key(2), b"first").unwrap();
        let _ = first.commit().unwrap();
    });
    let result: Result<(), Error> = second.nested(|txn| {
        txn.bytes("t")?.put(&key(2), b"second")?;
        asked.send(()).unwrap();
        txn.bytes("t")?.put(&key(1), b"second")
    });
    thread.join().unwrap();
    // Either waits for the other first; the younger is the victim in any case.
    assert!(matches!(result, Err(Error::Deadlock { .. })), "{result:?}");
    assert!(matches!(second.savepoint(), Err(Error::Finished)));
    let state = &read(&env).unwrap()["t"];
    assert_eq!((state[&key(1)].as_slice(), state[&key(2)].as_slice()), (&b"first"[..], &b"first"[..]));
}

#[test]
fn a_crash_at_any_write_around_a_rollback_leaves_all_of_the_commit_or_nothing() {
    let script = |env: &Environment| -> Result<(), Error> {
        let txn = env.begin()?;
        let t = txn.bytes("t")?;
        t.put(&key(1), b"kept")?;
        let savepoint = txn.savepoint()?;
        for n in 0..40 {
            t.put(&key(n), &vec![n as u8; 900])?;
        }
        env.checkpoint()?;
        txn.rollback_to(savepoint)?;
        env.checkpoint()?;
        let _: Result<(), Error> = txn.nested(|_| {
            t.put(&key(2), &vec![2; 5000])?;
            Err(Error::user("on purpose"))
        });
        t.put(&key(3), b"kept")?;
        txn.commit().map(drop)
    };
    let (base, env) = environment();
    let before = read(&env).unwrap();
    env.close().unwrap();
    let mut after = before.clone();
    for n in [1, 3] {
        after.get_mut("t").unwrap().insert(key(n), b"kept".to_vec());
    }
    let mut outcomes = [0; 2];
    for n in 1.. {
        let disk = base.snapshot();
        let env = open(&disk).unwrap();
        disk.crash_at(disk.counters().mutations + n);
        let committed = script(&env).is_ok();
        let crashed = disk.is_crashed();
        disk.crash_now();
        drop(env);
        for survival in 0..2 {
            let env = open(&disk.after_crash(n << 1 | survival)).unwrap();
            let found = read(&env).unwrap();
            assert!(found == after || found == before && !committed, "power lost at change {n}");
            outcomes[usize::from(found == after)] += 1;
            assert_sound(&env, "after the crash");
        }
        if !crashed {
            break;
        }
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn a_savepoint_costs_the_same_however_many_there_are_and_whatever_was_made_before() {
    common::within(60, "300,000 savepoints", || {
        let options = Environment::options().cache_bytes(4 << 20).page_count_max(1 << 14);
        let env = options.open_on(std::sync::Arc::new(SimDisk::new())).unwrap();
        let txn = env.begin().unwrap();
        for n in 0..100 {
            txn.create_table(&format!("table {n}")).unwrap();
        }
        let points: Vec<_> = (0..300_000).map(|_| txn.savepoint().unwrap()).collect();
        let late = txn.create_table("late").unwrap();
        txn.drop_table("table 7").unwrap();
        for point in points.iter().rev().step_by(1000) {
            txn.nested(|txn| txn.savepoint().map(drop)).unwrap();
            txn.rollback_to(*point).unwrap();
        }
        assert!(matches!(late.put(b"k", b"v"), Err(Error::NoSuchTable(_))));
        assert_eq!(txn.table_names().unwrap().len(), 100);
        txn.release(points[0]).unwrap();
        txn.commit().unwrap();
    });
}

#[test]
fn tables_made_by_the_hundred_are_opened_again_and_their_handles_end_with_a_rollback() -> Result<(), Error> {
    for isolation in Isolation::ALL {
        let dir = tempfile::tempdir().unwrap();
        let env = Environment::options().cache_bytes(16 << 20).durability(Durability::Volatile).open(dir.path())?;
        let name = |n: u64| format!("table {n}");
        env.transact(|txn| txn.create_table("old")?.put(b"k", b"v"))?;
        let txn = env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() })?;
        let old = txn.bytes("old")?;
        let kept = txn.create_table("kept")?;
        let make =
            |from: u64| (from..from + 200).try_for_each(|n| txn.create_table(&name(n))?.put(b"k", &n.to_be_bytes()));
        make(0)?;
        let savepoint = txn.savepoint()?;
        make(200)?;
        // These had no handle any more, and have one again.
        let (before, since) = (txn.bytes(&name(7))?, txn.bytes(&name(207))?);
        assert_eq!(since.get(b"k")?, Some(207u64.to_be_bytes().to_vec()), "{isolation}");
        for table in ["old", "kept", "table 7", "table 9"] {
            txn.drop_table(table)?;
            assert!(matches!(txn.bytes(table), Err(Error::NoSuchTable(_))), "{isolation}, {table}");
        }
        for dropped in [&old, &kept, &before] {
            assert!(matches!(dropped.get(b"k"), Err(Error::NoSuchTable(_))), "{isolation}, {}", dropped.name());
        }
        txn.rollback_to(savepoint)?;
        assert!(matches!(since.get(b"k"), Err(Error::NoSuchTable(_))), "{isolation}");
        assert!(matches!(since.put(b"k", b"x"), Err(Error::NoSuchTable(_))), "{isolation}");
        assert!(matches!(txn.bytes(&name(207)), Err(Error::NoSuchTable(_))), "{isolation}");
        kept.put(b"k", b"kept")?;
        assert_eq!(old.get(b"k")?.as_deref(), Some(&b"v"[..]), "{isolation}");
        assert_eq!(before.get(b"k")?, Some(7u64.to_be_bytes().to_vec()), "{isolation}");
        assert_eq!(txn.bytes(&name(9))?.get(b"k")?, Some(9u64.to_be_bytes().to_vec()), "{isolation}");
        txn.release(savepoint)?;
        txn.commit()?;
        assert_eq!(env.transact(|txn| txn.table_names())?.len(), 202, "{isolation}");
        env.close()?;
    }
    Ok(())
}

/// A call of another thread has the transaction when a child ends: what the child has done is not committed by halves.
fn child_that_cannot_be_ended(end: impl Fn() -> Result<(), Error>) {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    std::thread::scope(|scope| {
        let (begin, begun) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
        let (ended, has_ended) = std::sync::mpsc::channel::<()>();
        let (t, begin_in, begun_out) = (&t, begin.1, begun.0);
        scope.spawn(move || {
            begin_in.recv().unwrap();
            let busy = t.modify(&key(7), |_| {
                begun_out.send(()).unwrap();
                has_ended.recv().unwrap(); // Longer than anybody waits for a closure.
                None
            });
            assert!(matches!(busy, Err(Error::Finished)), "{busy:?}");
        });
        let child = || {
            txn.nested(|txn| {
                txn.bytes("t")?.put(&key(1), b"half")?;
                begin.0.send(()).unwrap();
                begun.1.recv().unwrap();
                end()
            })
        };
        let refused = catch_unwind(AssertUnwindSafe(child));
        assert!(matches!(refused, Err(_) | Ok(Err(Error::Busy))), "{refused:?}");
        ended.send(()).unwrap();
    });
    assert!(matches!(t.put(&key(2), b"after"), Err(Error::Finished)));
    assert!(matches!(txn.commit(), Err(Error::Finished)));
    env.transact(|txn| {
        let t = txn.bytes("t")?;
        assert_eq!((t.get(&key(1))?.unwrap(), t.get(&key(2))?.unwrap()), (b"before".to_vec(), b"before".to_vec()));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_child_that_cannot_be_taken_back_ends_the_transaction() {
    std::thread::scope(|scope| {
        scope.spawn(|| child_that_cannot_be_ended(|| Err(Error::NoSavepoint)));
        scope.spawn(|| child_that_cannot_be_ended(|| panic!("in the child")));
        scope.spawn(|| child_that_cannot_be_ended(|| Ok(())));
    });
}

/// Two threads nest in one transaction side by side, and the one that began first ends first.
fn crossed_children(first: Result<(), Error>, second: Result<(), Error>) {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let (began, has_begun) = std::sync::mpsc::channel::<()>();
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    let txn = &txn;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let outer = txn.nested(|txn| {
                txn.bytes("t")?.put(&key(1), b"first")?;
                began.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(20)); // The other one begins, or is told that it may not.
                first
            });
            ended.send(()).unwrap();
            drop(outer);
        });
        has_begun.recv().unwrap();
        let refused = txn.nested(|txn| {
            txn.bytes("t")?.put(&key(2), b"half")?;
            has_ended.recv().unwrap();
            txn.bytes("t")?.put(&key(3), b"half")?;
            second
        });
        assert!(refused.is_err(), "{refused:?}");
    });
    let read = |n| txn.bytes("t").and_then(|t| t.get(key(n)));
    let done = (read(2), read(3));
    assert!(matches!(done, (Err(Error::Finished), Err(Error::Finished))), "{done:?}");
}

#[test]
fn children_in_two_threads_that_do_not_end_in_reverse_order_end_the_transaction() {
    crossed_children(Ok(()), Err(Error::NoSavepoint));
    crossed_children(Err(Error::NoSavepoint), Ok(()));
    crossed_children(Err(Error::NoSavepoint), Err(Error::NoSavepoint));
}
