//! Settings of locks and of group commit, through the library: each changes what it says, and work goes on under it.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::*;
use ledgerstone::lock::{
    AnotherDied, Dead, Grant, LockError, LockManager, LockName, LockStats, LockTable, Mode, OwnerNo, Repair, Wait,
};
use ledgerstone::{
    Conflict, Durability, Environment, Error, IndexDef, IndexKeys, Isolation, LockWait, Locking, Lsn, Options,
    TransactionOptions, Victim, Xid,
};
use ledgerstone_disk::SimDisk;

const ACCOUNTS: u64 = 4;

fn bank(options: Options) -> Environment {
    let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| {
        let accounts = txn.create_table("accounts")?;
        (0..ACCOUNTS).try_for_each(|n| accounts.put(&key(n), &100_i64.to_le_bytes()))
    })
    .unwrap();
    env
}

fn balance(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

/// Moves money to and fro in four threads that lock accounts in every order; nothing may be lost.
fn move_money(env: &Environment) {
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let env = env.clone();
            std::thread::spawn(move || {
                for n in 0..150_u64 {
                    let (from, to) = ((thread + n) % ACCOUNTS, (thread * 3 + n * 7 + 1) % ACCOUNTS);
                    if from == to {
                        continue;
                    }
                    env.transact(|txn| {
                        let accounts = txn.bytes("accounts")?;
                        for (account, by) in [(from, -1), (to, 1)] {
                            let old = accounts.get_for_update(&key(account))?.unwrap();
                            accounts.put(&key(account), &(balance(&old) + by).to_le_bytes())?;
                        }
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let state = read(env).unwrap();
    assert_eq!(state["accounts"].values().map(|value| balance(value)).sum::<i64>(), 100 * ACCOUNTS as i64);
}

fn quick() -> Options {
    tiny().durability(Durability::Volatile)
}

#[test]
fn money_is_kept_under_every_victim_policy() {
    for victim in [Victim::Youngest, Victim::Oldest, Victim::FewestLocks, Victim::LeastLog, Victim::Random] {
        within(120, "transfers", move || move_money(&bank(quick().deadlock_victim(victim))));
    }
}

#[test]
fn a_detector_resolves_deadlocks_that_nobody_looks_for() {
    within(120, "a deadlock", || {
        let env = bank(quick().deadlock_period(Duration::from_millis(5)).lock_timeout(Duration::from_secs(100)));
        let turns = Arc::new(std::sync::Barrier::new(2));
        let threads: Vec<_> = [(0, 1), (1, 0)]
            .into_iter()
            .map(|(first, second)| {
                let (env, turns) = (env.clone(), Arc::clone(&turns));
                std::thread::spawn(move || {
                    let txn = env.begin().unwrap();
                    let accounts = txn.bytes("accounts").unwrap();
                    accounts.put(&key(first), b"12345678").unwrap();
                    turns.wait();
                    let result = accounts.put(&key(second), b"12345678");
                    drop(txn);
                    result
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let victims = results.iter().filter(|result| matches!(result, Err(Error::Deadlock { .. }))).count();
        assert_eq!((victims, results.iter().filter(|result| result.is_ok()).count()), (1, 1), "{results:?}");
        env.close().unwrap();
    });
}

#[test]
fn money_is_kept_when_conflicts_are_refused() {
    for conflict in [Conflict::NoWait, Conflict::WaitDie] {
        within(120, "transfers", move || move_money(&bank(quick().lock_conflict(conflict))));
    }
}

#[test]
fn a_refused_lock_rolls_back_at_once_and_names_who_holds_it() {
    let env = bank(quick().lock_conflict(Conflict::NoWait));
    let (holder, asker) = (env.begin().unwrap(), env.begin().unwrap());
    holder.bytes("accounts").unwrap().put(&key(0), b"12345678").unwrap();
    let accounts = asker.bytes("accounts").unwrap();
    accounts.put(&key(1), b"87654321").unwrap();
    match accounts.get(&key(0)) {
        Err(error @ Error::LockRefused { .. }) => {
            assert!(error.is_retryable() && error.to_string().contains(&holder.xid().to_string()), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(asker.commit(), Err(Error::Finished)));
    holder.bytes("accounts").unwrap().put(&key(1), b"12345678").unwrap();
    let _ = holder.commit().unwrap();
}

/// However long that takes: 200 tries are over in half a second.
#[test]
fn whoever_was_refused_a_lock_waits_for_its_holder_before_it_runs_again() {
    for (conflict, isolation) in [
        (Conflict::NoWait, Isolation::Serializable),
        (Conflict::NoWait, Isolation::Snapshot),
        (Conflict::WaitDie, Isolation::Serializable),
    ] {
        within(60, "a refused writer", move || {
            let env = bank(quick().lock_conflict(conflict).lock_timeout(Duration::from_secs(100)));
            let holder = env.begin().unwrap();
            holder.bytes("accounts").unwrap().put(&key(0), b"12345678").unwrap();
            let writer = {
                let env = env.clone();
                std::thread::spawn(move || {
                    let (mut runs, isolation) = (0, Some(isolation));
                    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
                    let done = env.transact_with(options, |txn| {
                        runs += 1;
                        txn.bytes("accounts")?.put(&key(0), b"87654321")
                    });
                    (done, runs)
                })
            };
            look_until(&env, &writer, |waits| !waits.is_empty());
            let _ = holder.commit().unwrap();
            let (done, runs) = writer.join().unwrap();
            assert!(done.is_ok() && runs < 20, "{conflict:?}, {isolation}: {done:?} after {runs} runs");
        });
    }
}

/// The partner waits for somebody else, too, who does not end soon.
#[test]
fn the_victim_of_a_deadlock_waits_for_whom_it_met_before_it_runs_again() {
    within(60, "a victim", || {
        let env = bank(quick().deadlock_victim(Victim::Oldest).lock_timeout(Duration::from_secs(100)));
        let (begun, runs_now) = channel();
        let (go_on, may_go_on) = channel();
        let victim = {
            let env = env.clone();
            std::thread::spawn(move || {
                let mut runs = 0;
                let done = env.transact(|txn| {
                    runs += 1;
                    let accounts = txn.bytes("accounts")?;
                    accounts.get(&key(0))?;
                    if runs == 1 {
                        begun.send(txn.xid()).unwrap();
                        may_go_on.recv().unwrap();
                    }
                    accounts.put(&key(1), b"87654321")
                });
                (done, runs)
            })
        };
        let oldest = runs_now.recv().unwrap();
        let reader = env.begin().unwrap();
        assert!(reader.bytes("accounts").unwrap().get(&key(0)).unwrap().is_some());
        let partner = env.begin().unwrap();
        let partners = partner.xid();
        let waits = |edges: &[LockWait], who, whom| edges.iter().any(|e| e.waiter == who && e.waits_for == whom);
        let partner = std::thread::spawn(move || {
            let accounts = partner.bytes("accounts")?;
            accounts.put(&key(1), b"12345678")?;
            accounts.put(&key(0), b"12345678")?;
            partner.commit()
        });
        look_until(&env, &partner, |edges| waits(edges, partners, oldest));
        go_on.send(()).unwrap();
        look_until(&env, &victim, |edges| waits(edges, oldest, partners) && !waits(edges, partners, oldest));
        let _ = reader.commit().unwrap();
        let _ = partner.join().unwrap().unwrap();
        let (done, runs) = victim.join().unwrap();
        assert!(done.is_ok() && runs == 2, "{done:?} after {runs} runs");
    });
}

#[test]
fn money_is_kept_when_leaves_are_locked() {
    for conflict in [Conflict::Wait, Conflict::WaitDie] {
        within(120, "transfers", move || move_money(&bank(quick().locking(Locking::Pages).lock_conflict(conflict))));
    }
}

#[test]
fn a_locked_leaf_keeps_its_neighbours_keys_and_gaps() {
    let env = bank(quick().locking(Locking::Pages).lock_timeout(Duration::from_millis(20)));
    let reader = env.begin().unwrap();
    assert!(reader.bytes("accounts").unwrap().get(&key(99)).unwrap().is_none());
    let writer = env.begin().unwrap();
    let accounts = writer.bytes("accounts").unwrap();
    assert!(matches!(accounts.put(&key(3), b"12345678"), Err(Error::LockTimeout { .. })), "same leaf");
    drop(reader);
    accounts.put(&key(3), b"12345678").unwrap();
    let other = env.begin().unwrap();
    assert!(matches!(other.bytes("accounts").unwrap().get(&key(0)), Err(Error::LockTimeout { .. })), "same leaf");
}

/// Leaves split, empty and merge under their locks, and rollbacks find what they changed.
#[test]
fn locked_leaves_split_and_merge() {
    within(120, "splits", || {
        let env = bank(quick().locking(Locking::Pages));
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let env = env.clone();
                std::thread::spawn(move || {
                    for n in 0..40_u64 {
                        let keys = || (0..30).map(|i| key(((thread + 1) << 32) + (n / 2 * 30 + i) * 7));
                        let txn = loop {
                            let txn = env.begin().unwrap();
                            let table = txn.bytes("accounts").unwrap();
                            let done = keys().try_for_each(|key| match n % 2 {
                                0 => table.put(&key, &[n as u8; 300]),
                                _ => table.delete(&key).map(|_| ()),
                            });
                            match done {
                                Ok(()) => break txn,
                                Err(error) => assert!(error.is_retryable(), "{error}"),
                            }
                        };
                        if n % 5 == 2 { txn.abort().unwrap() } else { drop(txn.commit().unwrap()) }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_sound(&env, "leaves");
        // Of the fills those of n = 2, 12, 22, 32 were rolled back; of the others all was deleted again, but for those
        // whose deletion (7, 17, 27, 37) was.
        let left = read(&env).unwrap()["accounts"].len();
        assert_eq!(left, ACCOUNTS as usize + 3 * 4 * 30);
    });
}

/// One transaction at a time needs no locks: the whole script of the fault tests, with a restart.
#[test]
fn one_at_a_time_needs_no_locks() {
    let disk = SimDisk::new();
    let open = || tiny().locking(Locking::None).open_on(Arc::new(disk.clone())).unwrap();
    let env = open();
    let mut committed = std::collections::BTreeMap::new();
    for n in 0..400_u64 {
        let mut model = committed.clone();
        let txn = env.begin().unwrap();
        let table = txn.bytes_or_create("t").unwrap();
        let value = vec![n as u8; (n % 90) as usize];
        table.put(&key(n), &value).unwrap();
        model.insert(key(n), value);
        assert_eq!(table.delete(&key(n / 2)).unwrap(), model.remove(&key(n / 2)).is_some(), "{n}");
        if n % 5 == 4 {
            txn.abort().unwrap();
        } else {
            let _ = txn.commit().unwrap();
            committed = model;
        }
    }
    assert_eq!(read(&env).unwrap()["t"], committed);
    let before = read(&env).unwrap();
    assert_sound(&env, "no locks");
    drop(env);
    assert_eq!(read(&open()).unwrap(), before);
}

/// Two that changed one record, and were both interrupted, are undone together, the newest change first. One of them
/// may be so large that it would be undone after the opening, and the next life may have locks.
#[test]
fn interrupted_transactions_that_no_locks_kept_apart_are_undone_in_the_order_of_the_log() {
    for next in [Locking::None, Locking::Hierarchical] {
        let disk = SimDisk::new();
        let env = tiny().locking(Locking::None).open_on(Arc::new(disk.clone())).unwrap();
        env.transact(|txn| txn.create_table("t")?.put(b"both", b"committed")).unwrap();
        let before = read(&env).unwrap();
        let (small, large) = (env.begin().unwrap(), env.begin().unwrap());
        small.bytes("t").unwrap().put(b"both", b"by the small one").unwrap();
        small.bytes("t").unwrap().put(b"made", b"by the small one").unwrap();
        large.bytes("t").unwrap().put(b"both", b"by the large one").unwrap();
        assert!(large.bytes("t").unwrap().delete(b"made").unwrap());
        (0..200).for_each(|n| large.bytes("t").unwrap().put(&key(n), &[7; 200]).unwrap());
        env.sync().unwrap();
        let left = disk.snapshot();
        let env = tiny().locking(next).restart_undo_bytes(2000).open_on(Arc::new(left.clone())).unwrap();
        assert!(env.rolling_back().is_empty(), "{next:?}");
        assert_eq!(read(&env).unwrap(), before, "{next:?}");
        assert_sound(&env, "undone together");
        drop(env);
        // Once that is done, locks keep transactions apart again, or still do not.
        let env = tiny().locking(next).open_on(Arc::new(left.clone())).unwrap();
        let large = env.begin().unwrap();
        (0..200).for_each(|n| large.bytes("t").unwrap().put(&key(n), &[7; 200]).unwrap());
        env.sync().unwrap();
        let left = left.snapshot();
        let env = tiny().locking(next).restart_undo_bytes(2000).open_on(Arc::new(left)).unwrap();
        let put_off = env.recovery_report().put_off_count;
        assert_eq!(put_off, u64::from(next == Locking::Hierarchical), "{next:?}");
        env.wait_rolled_back().unwrap();
        assert_eq!(read(&env).unwrap(), before, "{next:?}");
    }
}

/// A transaction that locks a whole table to write asks for no locks on keys: without locks, too, what it has deleted
/// is not dead before it has ended. Neither is what a transaction has deleted that was prepared before a restart.
#[test]
fn without_locks_what_may_still_be_rolled_back_is_neither_dead_nor_purged() {
    const COUNT: u64 = 60;
    let environment = || {
        let disk = SimDisk::new();
        let env = tiny().locking(Locking::None).open_on(Arc::new(disk.clone())).unwrap();
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..COUNT).try_for_each(|n| table.put(&key(n), &[7; 40]))
        })
        .unwrap();
        (disk, env)
    };
    let all = |env: &Environment| {
        let found = read(env).unwrap()["t"].len() as u64;
        let last = env.begin().unwrap().bytes("t").unwrap().last().unwrap().map(|(key, _)| key);
        (found, last)
    };
    let expected = (COUNT, Some(key(COUNT - 1)));
    // Passed by scans, from both ends.
    for from_end in [false, true] {
        let (_, env) = environment();
        let txn = env.begin().unwrap();
        let loader = txn.bytes("t").unwrap().sorted_loader().unwrap();
        let table = loader.finish().unwrap();
        for n in 0..10 {
            assert!(table.delete(&key(if from_end { COUNT - 1 - n } else { n })).unwrap());
        }
        let end = if from_end { table.last() } else { table.first() };
        assert_eq!(end.unwrap().unwrap().0, key(if from_end { COUNT - 11 } else { 10 }));
        txn.abort().unwrap();
        assert_eq!(all(&env), expected, "from the end: {from_end}");
    }
    // Purged to make room, by the deleter itself and by another.
    for by_another in [false, true] {
        let (_, env) = environment();
        let txn = env.begin().unwrap();
        let loader = txn.bytes("t").unwrap().sorted_loader().unwrap();
        let table = loader.finish().unwrap();
        (0..COUNT / 2).for_each(|n| assert!(table.delete(&key(n * 2)).unwrap()));
        let fill = |table: &ledgerstone::BytesTable| {
            (0..COUNT).try_for_each(|n| table.put(&[&key(n)[..], b"more"].concat(), &[8; 40]))
        };
        if by_another {
            env.transact(|txn| fill(&txn.bytes("t")?)).unwrap();
        } else {
            fill(&table).unwrap();
        }
        txn.abort().unwrap();
        let records = read(&env).unwrap().remove("t").unwrap();
        assert!((0..COUNT).all(|n| records.contains_key(&key(n))), "by another: {by_another}");
        assert_sound(&env, "purged");
    }
    // Prepared, and taken over by a restart.
    for (by_keys, from_end) in [(false, false), (false, true), (true, false), (true, true)] {
        let (disk, env) = environment();
        let txn = env.begin().unwrap();
        let mut table = txn.bytes("t").unwrap();
        if !by_keys {
            table = table.sorted_loader().unwrap().finish().unwrap();
        }
        for n in 0..10 {
            assert!(table.delete(&key(if from_end { COUNT - 1 - n } else { n })).unwrap());
        }
        drop(txn.prepare(b"id").unwrap());
        env.close().unwrap();
        let env = tiny().locking(Locking::None).open_on(Arc::new(disk)).unwrap();
        let reader = env.begin().unwrap();
        let table = reader.bytes("t").unwrap();
        let end = if from_end { table.last() } else { table.first() };
        assert_eq!(end.unwrap().unwrap().0, key(if from_end { COUNT - 11 } else { 10 }));
        drop(reader);
        env.abort_in_doubt(b"id").unwrap();
        assert_eq!(all(&env), expected, "prepared by keys: {by_keys}, from the end: {from_end}");
    }
}

#[test]
fn a_program_may_bring_its_own_lock_manager() {
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let options = quick().own_lock_manager(move |region, slots, config| {
        count.fetch_add(1, SeqCst);
        Ok(Arc::new(LockTable::place(region, slots, config)?) as Arc<dyn LockManager>)
    });
    move_money(&bank(options));
    assert_eq!(made.load(SeqCst), 1);
}

#[test]
fn commits_are_durable_under_every_threshold() {
    let settings: [fn(Options) -> Options; 4] = [
        |o| o.commit_group_min(1).commit_wait_percent(100),
        |o| o.commit_group_min(1).commit_wait_percent(0),
        |o| o.commit_delay(Duration::from_micros(300)),
        |o| o.commit_log_delay_bytes(1),
    ];
    for set in settings {
        within(120, "commits", move || {
            let env = bank(set(tiny()));
            let threads: Vec<_> = (0..6_u64)
                .map(|thread| {
                    let env = env.clone();
                    std::thread::spawn(move || {
                        for n in 0..20 {
                            let txn = env.begin_with(TransactionOptions::default()).unwrap();
                            txn.bytes("accounts").unwrap().put(&key(100 + thread * 100 + n), b"x").unwrap();
                            assert!(txn.commit().unwrap().ticket.is_durable());
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn who_waits_for_a_transaction_in_doubt_is_told_in_the_end() {
    let disk = SimDisk::new();
    let env = tiny().lock_timeout(Duration::from_millis(20)).open_on(Arc::new(disk)).unwrap();
    let txn = env.begin().unwrap();
    txn.bytes_or_create("t").unwrap().put(b"k", b"prepared").unwrap();
    let _ = txn.prepare(b"id").unwrap();
    let waiting = env.clone();
    let told = within(60, "transact", move || waiting.transact(|txn| txn.bytes("t")?.put(b"k", b"never")));
    assert!(matches!(told, Err(Error::LockTimeout { .. })), "{told:?}");
    env.abort_in_doubt(b"id").unwrap();
}

#[test]
fn changes_of_one_record_take_one_lock() {
    let env = bank(quick().escalate_after(4).lock_timeout(Duration::from_millis(20)));
    let writer = env.begin().unwrap();
    let accounts = writer.bytes("accounts").unwrap();
    for n in 0..200_u64 {
        accounts.put(&key(0), &n.to_be_bytes()).unwrap();
    }
    let other = env.begin().unwrap();
    assert!(other.bytes("accounts").unwrap().get(&key(1)).unwrap().is_some(), "one record is locked, not the table");
    drop(other);
    // While another transaction uses the table, it cannot be locked; one record is changed on and on nevertheless.
    let reader = env.begin().unwrap();
    assert!(reader.bytes("accounts").unwrap().get(&key(1)).unwrap().is_some());
    for n in 0..200_u64 {
        accounts.put(&key(0), &n.to_be_bytes()).unwrap();
    }
    writer.commit().unwrap();
}

/// Scans that wait for the whole table, because a writer is in it, leave locks for all others.
#[test]
fn scans_leave_room_in_the_lock_table() {
    within(120, "scans", || {
        let env = bank(quick().lock_count_max(1024).lock_timeout(Duration::from_millis(300)));
        env.transact(|txn| {
            let large = txn.create_table("large")?;
            (0..3000).try_for_each(|n| large.put(&key(n), b"12345678"))
        })
        .unwrap();
        let writer = env.begin().unwrap();
        writer.bytes("large").unwrap().put(&key(2999), b"87654321").unwrap();
        let scans: Vec<_> = (0..6)
            .map(|_| {
                let env = env.clone();
                std::thread::spawn(move || env.begin().unwrap().bytes("large").unwrap().count())
            })
            .collect();
        while scans.iter().any(|scan| !scan.is_finished()) {
            env.transact(|txn| txn.bytes("accounts")?.put(&key(0), b"12345678")).unwrap();
        }
        for scan in scans {
            let scanned = scan.join().unwrap();
            assert!(matches!(scanned, Err(Error::LockTimeout { .. })), "{scanned:?}");
        }
        writer.commit().unwrap();
        assert_eq!(env.begin().unwrap().bytes("large").unwrap().count().unwrap(), 3000);
    });
}

/// A transaction with a lock on the whole table keeps none on its keys.
#[test]
fn a_lock_on_the_table_gives_the_key_locks_back() {
    let env = bank(quick().lock_count_max(1024).escalate_after(100));
    let writers: Vec<_> = (0..7).map(|no| (no, env.begin().unwrap())).collect();
    env.transact(|txn| (0..7).try_for_each(|no| txn.create_table(&format!("t{no}")).map(drop))).unwrap();
    // Seven times 500 locks, of which there are 1024.
    for (no, writer) in &writers {
        let table = writer.bytes(&format!("t{no}")).unwrap();
        (0..500).for_each(|n| table.put(&key(n), b"12345678").unwrap());
    }
    writers.into_iter().for_each(|(_, writer)| drop(writer.commit().unwrap()));
    assert_sound(&env, "escalated");
}

/// An environment with 1024 locks and tables `t0`, `t1` and so on.
fn few_locks(disk: &SimDisk, table_count: u64) -> Environment {
    let options = quick().lock_count_max(1024).transaction_count_max(4);
    let env = options.open_on(Arc::new(disk.clone())).unwrap();
    for from in (0..table_count).step_by(50) {
        let until = table_count.min(from + 50);
        env.transact(|txn| (from..until).try_for_each(|no| txn.create_table(&format!("t{no}")).map(drop))).unwrap();
    }
    env
}

/// A transaction that waits for no lock for long.
fn impatient(env: &Environment) -> ledgerstone::Transaction {
    let options = TransactionOptions { lock_timeout: Some(Duration::from_millis(1)), ..TransactionOptions::default() };
    env.begin_with(options).unwrap()
}

/// The key locks are in many tables, few in each, and none in the table where the lock table is full.
#[test]
fn key_locks_in_other_tables_are_given_back_when_the_lock_table_is_full() {
    const TABLES: u64 = 700; // Twice as many locks are more than there are.
    let env = few_locks(&SimDisk::new(), TABLES);
    let put = |value: &[u8]| {
        let txn = env.begin().unwrap();
        for no in 0..TABLES {
            txn.bytes(&format!("t{no}")).unwrap().put(&key(1), value).unwrap();
        }
        txn
    };
    put(b"committed").commit().unwrap();
    put(b"taken back").abort().unwrap();
    // The same with reads. Another transaction may read beside them.
    let readers = [env.begin().unwrap(), env.begin().unwrap()];
    for no in 0..TABLES {
        let name = format!("t{no}");
        let found = readers[0].bytes(&name).unwrap().get(&key(1)).unwrap();
        assert_eq!(found.as_deref(), Some(&b"committed"[..]), "{name}");
    }
    assert!(readers[1].bytes("t0").unwrap().get(&key(1)).unwrap().is_some());
    drop(readers);
    assert_sound(&env, "other tables");
}

/// Where others use the table in which a transaction has most key locks, it locks another one whole, and does not wait.
#[test]
fn a_transaction_that_finds_the_lock_table_full_waits_for_no_other_table() {
    let env = bank(quick().lock_count_max(1024).transaction_count_max(8));
    env.transact(|txn| ["t0", "t1", "t2", "large"].iter().try_for_each(|name| txn.create_table(name).map(drop)))
        .unwrap();
    let put = |txn: &ledgerstone::Transaction, table: &str, keys: std::ops::Range<u64>| {
        let table = txn.bytes(table)?;
        keys.into_iter().try_for_each(|n| table.put(&key(n), b"mine"))
    };
    let other = env.begin().unwrap();
    put(&other, "t0", 9999..10_000).unwrap();
    put(&other, "large", 0..1).unwrap();
    let txn = env.begin().unwrap();
    put(&txn, "t0", 0..80).unwrap();
    put(&txn, "t1", 0..70).unwrap();
    // A third one takes all that is left, and cannot lock its table whole, since the other one is there. After a
    // time-out it looks at its share again only some locks later. So when several follow each other, there are no
    // locks.
    let third = impatient(&env);
    let large = third.bytes("large").unwrap();
    let (mut n, mut refused_count) = (1, 0);
    while refused_count < 5 {
        match large.put(&key(n), b"third") {
            Ok(()) => (n, refused_count) = (n + 1, 0),
            Err(Error::LockTimeout { .. }) => refused_count += 1,
            Err(error) => panic!("{error}"),
        }
    }
    put(&txn, "t2", 0..40).unwrap();
    put(&other, "t0", 10_000..10_001).unwrap();
    let looks = impatient(&env);
    assert!(looks.bytes("t0").unwrap().get(&key(5000)).unwrap().is_none());
    assert!(looks.bytes("t2").unwrap().get(&key(5000)).unwrap().is_none());
    let refused = looks.bytes("t1").map(drop).unwrap_err();
    assert!(matches!(refused, Error::LockTimeout { .. }), "t1 is not locked whole: {refused:?}");
    [other, txn, third].into_iter().for_each(|txn| drop(txn.commit().unwrap()));
    assert_sound(&env, "full");
}

/// However many tables there are in which it has more key locks, and which others use: it gives up those that it can.
#[test]
fn a_transaction_that_finds_the_lock_table_full_tries_all_its_tables() {
    const SHARED: u64 = 40;
    const TABLES: u64 = 540;
    let env = few_locks(&SimDisk::new(), TABLES);
    let (writer, reader) = (env.begin().unwrap(), env.begin().unwrap());
    let read = |no: u64, keys: std::ops::Range<u64>| {
        let table = reader.bytes(&format!("t{no}"))?;
        keys.into_iter().try_for_each(|n| table.get(&key(n)).map(drop))
    };
    for no in 0..SHARED {
        writer.bytes(&format!("t{no}")).unwrap().put(&key(0), b"v").unwrap();
        read(no, 1..4).unwrap();
    }
    for no in SHARED..TABLES {
        read(no, 1..2).unwrap_or_else(|error| panic!("t{no}: {error}"));
    }
    writer.commit().unwrap();
    reader.commit().unwrap();
    assert_sound(&env, "many tables");
}

/// Its key locks in the catalog become a lock on the catalog, as in any table (`docs/limits.md`).
#[test]
fn a_transaction_that_makes_many_tables_keeps_others_from_making_any() {
    let disk = SimDisk::new();
    let open = || quick().escalate_after(20).open_on(Arc::new(disk.clone())).unwrap();
    let env = open();
    env.transact(|txn| ["known", "unknown"].iter().try_for_each(|name| txn.create_table(name).map(drop))).unwrap();
    env.close().unwrap();
    let env = open();
    env.transact(|txn| txn.bytes("known").map(drop)).unwrap();
    let txn = env.begin().unwrap();
    let make = |numbers: std::ops::Range<u32>| {
        numbers.into_iter().for_each(|n| drop(txn.create_table(&format!("t{n}")).unwrap()))
    };
    make(0..5);
    drop(impatient(&env).create_table("another").unwrap());
    make(5..60);
    for refused in [impatient(&env).create_table("another"), impatient(&env).bytes("unknown")] {
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{:?}", refused.map(drop));
    }
    drop(impatient(&env).bytes("known").unwrap());
    txn.commit().unwrap();
    env.transact(|txn| txn.create_table("another").and(txn.bytes("unknown")).map(drop)).unwrap();
}

/// A transaction that would need most of the lock table by itself is not run again, whatever its closure makes of that.
#[test]
fn a_full_lock_table_that_the_closure_ignores_is_told() {
    const TABLES: u64 = 2000; // More than there are locks, with one for each.
    let disk = SimDisk::new();
    let env = few_locks(&disk, TABLES);
    let mut runs = 0;
    let done = env.transact(|txn| {
        runs += 1;
        for no in 0..TABLES {
            let _ = txn.bytes(&format!("t{no}")).and_then(|table| table.put(&key(1), b"v"));
        }
        Ok::<_, Error>(())
    });
    let Err(error @ Error::LockTableFull { held, max }) = done else { panic!("{done:?}") };
    assert!(held > max / 2 && !error.is_retryable(), "{error}: run again, it would need them again");
    assert!(error.to_string().contains("make it smaller"), "{error}");
    assert_eq!(runs, 1);
    env.close().unwrap();
    let more_locks = quick().lock_count_max(4096).open_on(Arc::new(disk)).unwrap();
    assert_sound(&more_locks, "ignored"); // It locks every table.
}

/// Locks on leaves go when one on the table stands for them, as locks on keys do.
#[test]
fn a_lock_on_the_table_gives_the_leaf_locks_back() {
    const TABLES: u64 = 60;
    let options = quick().locking(Locking::Pages).escalate_after(20);
    let env = bank(options.lock_count_max(1024).transaction_count_max(4));
    env.transact(|txn| (0..TABLES).try_for_each(|no| txn.create_table(&format!("t{no}")).map(drop))).unwrap();
    // Sixty times twenty leaves are more than there are locks.
    let writer = env.begin().unwrap();
    for no in 0..TABLES {
        let table = writer.bytes(&format!("t{no}")).unwrap();
        (0..300).for_each(|n| table.put(&key(n), &[1; 400]).unwrap());
    }
    writer.commit().unwrap();
    assert_sound(&env, "leaves");
}

/// They are taken under latches, by tries. The lock on the table comes as soon as on keys all the same.
#[test]
fn as_many_leaf_locks_as_key_locks_become_a_lock_on_the_table() {
    let env = bank(quick().locking(Locking::Pages).escalate_after(20));
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let writer = env.begin().unwrap();
    let table = writer.bytes("t").unwrap();
    let is_locked = || match impatient(&env).bytes("t").map(drop) {
        Err(Error::LockTimeout { .. }) => true,
        found => found.map(|()| false).unwrap(),
    };
    let put = |n: u64| table.put(&key(n), &[1; 400]).unwrap();
    (0..50).for_each(put);
    assert!(!is_locked(), "a few leaves are locked, not the table");
    // No more than ten such records fit in a page.
    (50..400).for_each(put);
    assert!(is_locked(), "forty leaves are locked, one by one");
    writer.commit().unwrap();
    assert!(!is_locked());
    assert_sound(&env, "leaves");
}

/// The housekeeper frees what a load has replaced. It must wait for the load's end, though nothing is locked.
#[test]
fn without_locks_a_load_and_an_index_of_one_transaction_stay_whole() {
    for round in 0..40u64 {
        let disk = SimDisk::new();
        let open = || {
            Environment::options()
                .locking(Locking::None)
                .cache_bytes(64 * 4096)
                .open_on(Arc::new(disk.clone()))
                .unwrap()
        };
        let env = open();
        env.transact(|txn| {
            let mut table = txn.bytes_or_create("t")?;
            let records = (0..3000 + round).map(|n: u64| (n.to_be_bytes(), [n as u8; 60]));
            table.load_sorted(records)?;
            txn.create_index("t", &IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(8) }))
        })
        .unwrap();
        let report = env.verify().unwrap();
        assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
        env.close().unwrap();
        let env = open();
        let report = env.verify().unwrap();
        assert!(report.problems.is_empty(), "round {round}, opened again: {:?}", report.problems);
    }
}

/// Each wait for them gave the lock back at once, to those who had come meanwhile, and a new wait had a new time-out.
#[test]
fn an_append_gets_through_readers_of_the_end_who_come_again_and_again() {
    let env = Environment::options().lock_timeout(Duration::from_secs(20)).open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(&key(0), b"first")).unwrap();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..6)
        .map(|_| {
            let (env, is_over) = (env.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(SeqCst) {
                    env.transact(|txn| {
                        assert!(txn.bytes("t")?.last()?.is_some());
                        std::thread::sleep(Duration::from_millis(1));
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    let writer = env.clone();
    within(60, "appends", move || {
        (1..=20).for_each(|n| writer.transact(|txn| txn.bytes("t")?.put(&key(n), b"more")).unwrap());
    });
    is_over.store(true, SeqCst);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// A lock table that counts what it is asked exclusively, and has no room for that if it is told so.
struct Counting {
    table: LockTable,
    asked: Arc<AtomicU64>,
    is_full: Arc<AtomicU64>,
}

impl Repair for Counting {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        self.table.repair(dead)
    }
}

impl LockManager for Counting {
    fn begin(&self, owner: OwnerNo, age: Xid) {
        LockManager::begin(&self.table, owner, age);
    }

    fn lock(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Grant, LockError> {
        // Not the turns of the housekeeper.
        if mode == Mode::X && (name.is_table() || name.is_part()) {
            self.asked.fetch_add(1, SeqCst);
            if self.is_full.load(SeqCst) != 0 {
                return Err(LockError::TableFull { locks_max: 1 << 20 });
            }
        }
        LockManager::lock(&self.table, owner, name, mode, wait)
    }

    fn lock_instant(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Lsn, LockError> {
        LockManager::lock_instant(&self.table, owner, name, mode, wait)
    }

    fn held(&self, owner: OwnerNo, name: LockName) -> Option<Mode> {
        LockManager::held(&self.table, owner, name)
    }

    fn held_by_any(&self, name: LockName) -> Option<Mode> {
        LockManager::held_by_any(&self.table, name)
    }

    fn depends(&self, name: LockName) -> Lsn {
        LockManager::depends(&self.table, name)
    }

    fn downgrade(&self, owner: OwnerNo, name: LockName, to: Mode) -> Option<Mode> {
        LockManager::downgrade(&self.table, owner, name, to)
    }

    fn unlock(&self, owner: OwnerNo, name: LockName) -> Option<Mode> {
        LockManager::unlock(&self.table, owner, name)
    }

    fn unlock_all(&self, owner: OwnerNo, commit_lsn: Option<Lsn>) {
        LockManager::unlock_all(&self.table, owner, commit_lsn);
    }

    fn for_each_held(&self, owner: OwnerNo, visit: &mut dyn FnMut(LockName, Mode)) {
        LockManager::for_each_held(&self.table, owner, visit);
    }

    fn cancel_all_waits(&self) {
        LockManager::cancel_all_waits(&self.table);
    }

    fn allow_waits(&self) {
        LockManager::allow_waits(&self.table);
    }

    fn stats(&self) -> LockStats {
        LockManager::stats(&self.table)
    }
}

/// Asked again would be counted again, and would search the queue for nothing.
#[test]
fn a_lock_that_was_refused_is_asked_for_again_only_where_that_may_help() {
    let (asked, is_full) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, full) = (Arc::clone(&asked), Arc::clone(&is_full));
    let env = bank(quick().own_lock_manager(move |region, slots, config| {
        let table = LockTable::place(region, slots, config)?;
        Ok(Arc::new(Counting { table, asked: Arc::clone(&count), is_full: Arc::clone(&full) }) as Arc<dyn LockManager>)
    }));
    let asked_by = |f: &dyn Fn() -> Result<(), Error>| {
        let before = asked.load(SeqCst);
        (f(), asked.load(SeqCst) - before)
    };
    let impatient = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    // There is no room.
    let txn = env.begin().unwrap();
    let accounts = txn.bytes("accounts").unwrap();
    is_full.store(1, SeqCst);
    let (refused, count) = asked_by(&|| accounts.put(&key(0), b"12345678"));
    assert!(matches!(refused, Err(Error::LockTableFull { .. })), "{refused:?}");
    assert_eq!(count, 1, "a key");
    let txn = env.begin().unwrap();
    let (refused, count) = asked_by(&|| txn.drop_table("accounts"));
    assert!(matches!(refused, Err(Error::LockTableFull { .. })), "{refused:?}");
    assert_eq!(count, 1, "a table");
    is_full.store(0, SeqCst);
    // Another has it.
    let holder = env.begin().unwrap();
    assert!(holder.bytes("accounts").unwrap().get(&key(0)).unwrap().is_some());
    let txn = env.begin_with(impatient).unwrap();
    let accounts = txn.bytes("accounts").unwrap();
    let (refused, count) = asked_by(&|| accounts.put(&key(0), b"12345678"));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    assert_eq!(count, 2, "a key: without waiting, and with");
    drop((accounts, txn));
    let txn = env.begin_with(impatient).unwrap();
    let (refused, count) = asked_by(&|| txn.drop_table("accounts"));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    assert_eq!(count, 2, "a table: without waiting, and with");
}
