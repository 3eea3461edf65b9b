//! Deadlocks through users' closures. A transaction is begun, or waited for, inside the closure of another. So threads
//! and transactions wait for each other in a circle that the lock table alone does not show. Each is found at once.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use common::{tiny, within};
use ledgerstone::{Durability, Environment, Error, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

fn environment() -> Environment {
    let env = tiny()
        .cache_bytes(2 << 20)
        .durability(Durability::Volatile)
        .lock_timeout(Duration::from_millis(500))
        .transaction_count_max(512)
        .thread_count_max(512)
        .open_on(Arc::new(SimDisk::new()))
        .unwrap();
    env.transact(|txn| {
        let plain = txn.create_table("plain")?;
        (0..8u8).try_for_each(|n| plain.put(&[n], &[n; 50]))
    })
    .unwrap();
    env
}

/// Runs `f` with an environment of its own, and fails if it does not come back.
fn in_an_environment(what: &str, f: impl FnOnce(Environment) + Send + 'static) {
    within(60, what, || f(environment()));
}

#[test]
fn a_transaction_in_a_transaction_on_the_same_key_is_told_so_at_once() {
    in_an_environment("transact in transact", |env| {
        let (mut runs, mut inner_runs) = (0, 0);
        let done = env.transact(|outer| {
            runs += 1;
            outer.bytes("plain")?.put(b"k", b"outer")?;
            let xid = outer.xid();
            let inner = env.transact(|inner| {
                inner_runs += 1;
                inner.bytes("plain")?.put(b"k", b"inner")
            });
            let Err(Error::HeldByCaller { what, .. }) = &inner else { panic!("{inner:?}") };
            assert!(what.contains(&format!("transaction {xid}")), "{what}");
            Ok::<_, Error>(())
        });
        assert!(done.is_ok(), "{done:?}");
        assert_eq!((runs, inner_runs), (1, 1), "it is nothing that another try would mend");
        assert_eq!(env.stat().unwrap().lock_timeout_count, 0);
        // On another key it just works.
        env.transact(|outer| {
            outer.bytes("plain")?.put(b"k", b"outer")?;
            env.transact(|inner| inner.bytes("plain")?.put(b"l", b"inner"))
        })
        .unwrap();
    });
}

#[test]
fn a_deadlock_that_the_closure_ignores_runs_it_again() {
    in_an_environment("ignored deadlocks", |env| {
        let ignored = Arc::new(AtomicU32::new(0));
        let both_have_one = Arc::new(std::sync::Barrier::new(2));
        let threads = [(0u8, 1u8), (1, 0)].map(|(first, second)| {
            let (env, ignored, both_have_one) = (env.clone(), Arc::clone(&ignored), Arc::clone(&both_have_one));
            std::thread::spawn(move || {
                let mut is_first_run = true;
                for _ in 0..200 {
                    env.transact(|txn| {
                        let table = txn.bytes("plain")?;
                        let add = |key: u8| {
                            let change = |old: &[u8]| {
                                Some((u32::from_be_bytes(old.try_into().unwrap_or([0; 4])) + 1).to_be_bytes().to_vec())
                            };
                            table.modify(&[key], change)
                        };
                        for key in [first, second] {
                            // Whatever comes of it.
                            if let Err(Error::Deadlock { .. }) = add(key) {
                                ignored.fetch_add(1, SeqCst);
                            }
                            if std::mem::take(&mut is_first_run) {
                                both_have_one.wait(); // Each wants the other's next.
                            }
                        }
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let counts = env
            .transact(|txn| Ok::<_, Error>([txn.bytes("plain")?.get(&[0])?, txn.bytes("plain")?.get(&[1])?]))
            .unwrap();
        assert_eq!(counts, [0, 1].map(|_| Some(400u32.to_be_bytes().to_vec())));
        assert!(ignored.load(SeqCst) > 0, "no deadlock was met");
    });
}

/// The outer transaction reads a record, a third waits to change it, and the inner one reads it too. It is behind the
/// third, which waits for the outer one, whose thread waits here.
#[test]
fn a_third_that_waits_between_two_transactions_of_one_thread_gives_way() {
    in_an_environment("a third in between", |env| {
        env.transact(|txn| txn.bytes("plain")?.put(b"k", b"first")).unwrap();
        let third = env
            .transact(|outer| {
                let seen = outer.bytes("plain")?.get(b"k")?;
                let (before, other) = (env.stat()?.lock_wait_count, env.clone());
                let third = std::thread::spawn(move || other.transact(|txn| txn.bytes("plain")?.put(b"k", b"third")));
                while env.stat()?.lock_wait_count == before {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(env.transact(|inner| inner.bytes("plain")?.get(b"k"))?, seen);
                Ok::<_, Error>(third)
            })
            .unwrap();
        third.join().unwrap().unwrap();
        assert_eq!(env.stat().unwrap().lock_timeout_count, 0);
        assert_eq!(env.begin().unwrap().bytes("plain").unwrap().get(b"k").unwrap().as_deref(), Some(&b"third"[..]));
    });
}

/// One thread is in a call of the first transaction, which waits for a lock of the second; another thread, inside the
/// second, wants something of the first.
#[test]
fn whoever_waits_for_a_call_that_waits_for_its_own_caller_is_told_so() {
    in_an_environment("calls in a circle", |env| {
        let first = env.begin().unwrap();
        let (table, from_inside) = (first.bytes("plain").unwrap(), first.bytes("plain").unwrap());
        let waiter = env
            .transact(|second| {
                second.bytes("plain")?.put(b"k", b"second")?;
                let table = table.clone();
                let waiter = std::thread::spawn(move || table.put(b"k", b"first"));
                while env.lock_waits().is_empty() {
                    std::thread::yield_now();
                }
                let refused = from_inside.get(b"l");
                let Err(Error::HeldByCaller { what, .. }) = &refused else { panic!("{refused:?}") };
                assert!(what.contains(&format!("transaction {}", second.xid())), "{what}");
                Ok::<_, Error>(waiter)
            })
            .unwrap();
        waiter.join().unwrap().unwrap();
        let _ = first.commit().unwrap();
        assert_eq!(env.stat().unwrap().lock_timeout_count, 0);
    });
}

/// Two threads, each inside a transaction, want something of a third and of a fourth one. Each of those has a call
/// under way that waits for a lock of the other thread's transaction.
#[test]
fn a_circle_through_two_waits_for_calls_is_told_to_one_of_them() {
    in_an_environment("calls in a larger circle", |env| {
        let (left, right) = (env.begin().unwrap(), env.begin().unwrap());
        let table_of = |txn: &Transaction| (txn.bytes("plain").unwrap(), txn.bytes("plain").unwrap());
        let ((left_waits, left_is_asked), (right_waits, right_is_asked)) = (table_of(&left), table_of(&right));
        let ((ask, may_ask), (put_k, has_k)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let other_env = env.clone();
        let other = std::thread::spawn(move || {
            other_env.transact(|other| {
                other.bytes("plain")?.put(b"k", b"other")?;
                put_k.send(()).unwrap();
                may_ask.recv().unwrap();
                Ok::<_, Error>(right_is_asked.get(b"l").map(drop))
            })
        });
        let (told_here, waiters) = env
            .transact(|one| {
                one.bytes("plain")?.put(b"m", b"one")?;
                has_k.recv().unwrap();
                let left_waits = left_waits.clone();
                let right_waits = right_waits.clone();
                let left = std::thread::spawn(move || left_waits.put(b"k", b"left"));
                let right = std::thread::spawn(move || right_waits.put(b"m", b"right"));
                while env.lock_waits().len() < 2 {
                    std::thread::yield_now();
                }
                let _ = ask.send(());
                Ok::<_, Error>((left_is_asked.get(b"l").map(drop), (left, right)))
            })
            .unwrap();
        let told_there = other.join().unwrap().unwrap();
        waiters.0.join().unwrap().unwrap();
        waiters.1.join().unwrap().unwrap();
        match (&told_here, &told_there) {
            (Err(Error::HeldByCaller { .. }), Ok(())) | (Ok(()), Err(Error::HeldByCaller { .. })) => {}
            other => panic!("{other:?}"),
        }
        left.abort().unwrap();
        right.abort().unwrap();
        assert_eq!(env.stat().unwrap().lock_timeout_count, 0);
    });
}

/// The closure returns while another thread's call waits in its transaction: a deadlock that this one meets then
/// counts, too.
#[test]
fn a_conflict_of_another_thread_after_the_closure_has_returned_runs_it_again() {
    in_an_environment("a conflict after the closure", |env| {
        let older = env.begin().unwrap();
        older.bytes("plain").unwrap().put(b"k", b"older").unwrap();
        let (mut older, mut threads, mut runs) = (Some(older), Vec::new(), 0);
        env.transact(|txn| {
            runs += 1;
            let table = txn.bytes("plain")?;
            table.put(b"l", b"younger")?;
            let Some(older) = older.take() else { return Ok::<_, Error>(()) };
            threads.push(std::thread::spawn(move || {
                let refused = table.put(b"k", b"younger");
                assert!(matches!(refused, Err(Error::Deadlock { .. })), "{refused:?}");
            }));
            while env.lock_waits().is_empty() {
                std::thread::yield_now();
            }
            threads.push(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50)); // It is most likely at its commit then.
                older.bytes("plain").unwrap().put(b"l", b"older").unwrap();
                drop(older.commit().unwrap());
            }));
            Ok(())
        })
        .unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(runs, 2);
    });
}

/// A thread is inside a transaction that a deadlock has ended. Whoever has its place since is not the caller's.
#[test]
fn what_holds_a_lock_in_the_place_of_a_caller_that_has_ended_is_waited_for() {
    const PLACES: u32 = 16;
    let env = tiny().transaction_count_max(PLACES).open_on(Arc::new(SimDisk::new())).unwrap();
    within(60, "a place taken again", move || {
        env.transact(|txn| txn.create_table("plain").map(drop)).unwrap();
        let impatient = TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..Default::default() };
        let put = |txn: &Transaction, key: u8| txn.bytes("plain")?.put(&[key], b"v");
        let older = env.begin().unwrap();
        put(&older, 100).unwrap();
        let other = env.clone();
        let mut older = Some(older);
        let ended = env.transact(|outer| {
            let Some(older) = older.take() else { return Ok(()) };
            put(outer, 101)?;
            let before = env.stat()?.lock_wait_count;
            let rival = std::thread::spawn(move || {
                let done = older.bytes("plain").and_then(|table| table.put(&[101], b"v"));
                drop(older);
                done
            });
            while env.stat()?.lock_wait_count == before {
                std::thread::yield_now();
            }
            let refused = put(outer, 100);
            assert!(matches!(refused, Err(Error::Deadlock { .. })), "{refused:?}");
            rival.join().unwrap().unwrap();
            // All places but one are taken; each of them is the one that was the caller's sooner or later.
            for left_out in 0..PLACES as u8 {
                let mut others = (0..PLACES as u8).map(|no| (no, other.begin().unwrap())).collect::<Vec<_>>();
                others.iter().for_each(|(no, txn)| put(txn, *no).unwrap());
                others.remove(usize::from(left_out));
                let inner = other.begin_with(impatient).unwrap();
                let met = put(&inner, (left_out + 1) % PLACES as u8);
                assert!(matches!(met, Err(Error::LockTimeout { .. })), "{met:?}");
                drop(inner);
                let inner = other.begin_with(impatient).unwrap();
                let met = put(&inner, (left_out + PLACES as u8 - 1) % PLACES as u8);
                assert!(matches!(met, Err(Error::LockTimeout { .. })), "{met:?}");
            }
            refused
        });
        assert!(ended.is_ok(), "{ended:?}");
    });
}

#[test]
fn a_callback_run_inside_a_transaction_does_not_wait_for_it() {
    let env = tiny().open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(b"k", b"1").unwrap();
    let refused = txn.run_inside(|| env.begin()?.bytes("t")?.put(b"k", b"2"));
    assert!(matches!(refused, Err(Error::HeldByCaller { .. })), "{refused:?}");
    txn.run_inside(|| env.begin()?.bytes("t")?.put(b"other", b"2")).unwrap();
    txn.commit().unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_deref(), Some(&b"1"[..]));
}
