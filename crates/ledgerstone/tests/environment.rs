//! What a program that embeds an environment may rely on.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{open, tiny, within};
use ledgerstone::{Durability, Environment, Error, Options, TransactionOptions};
use ledgerstone_disk::SimDisk;

fn small() -> Options {
    Environment::options().cache_bytes(1 << 20).page_count_max(1 << 20).log_segment_bytes(1 << 20)
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

#[test]
fn what_was_committed_is_there_after_reopening() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        for n in 0..500 {
            table.put(&key(n), format!("value {n}").as_bytes())?;
        }
        Ok::<_, Error>(())
    })?;
    env.close()?;
    let env = small().open(dir.path())?;
    assert!(env.recovery_report().was_clean);
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    assert_eq!(table.count()?, 500);
    assert_eq!(table.get(&key(77))?.as_deref(), Some(&b"value 77"[..]));
    assert_eq!(table.get(&key(500))?, None);
    Ok(())
}

#[test]
fn an_aborted_or_dropped_transaction_leaves_nothing() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"a", b"1"))?;
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    table.put(b"a", b"2")?;
    table.put(b"b", b"3")?;
    assert!(table.delete(b"a")?);
    txn.abort()?;
    assert!(matches!(table.get(b"a"), Err(Error::Finished)));
    {
        let txn = env.begin()?;
        txn.bytes("t")?.put(b"c", b"4")?;
        txn.create_table("other")?.put(b"x", b"y")?;
    }
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    assert_eq!(table.get(b"a")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(table.get(b"b")?, None);
    assert_eq!(table.get(b"c")?, None);
    assert!(matches!(txn.bytes("other"), Err(Error::NoSuchTable(_))));
    Ok(())
}

#[test]
fn tables_are_created_listed_and_dropped_inside_transactions() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        txn.create_table("b")?.put(b"k", b"v")?;
        txn.create_table("a")?;
        assert!(matches!(txn.create_table("a"), Err(Error::TableExists(_))));
        Ok::<_, Error>(())
    })?;
    assert_eq!(env.transact(|txn| txn.table_names())?, ["a", "b"]);
    env.transact(|txn| {
        txn.drop_table("b")?;
        assert!(matches!(txn.bytes("b"), Err(Error::NoSuchTable(_))));
        Ok::<_, Error>(())
    })?;
    assert!(matches!(env.transact(|txn| txn.bytes("b").map(|_| ())), Err(Error::NoSuchTable(_))));
    let again = env.transact(|txn| txn.create_table("b")?.get(b"k"))?;
    assert_eq!(again, None, "a new table of an old name is empty");
    Ok(())
}

#[test]
fn a_handle_to_a_dropped_table_is_refused_every_time() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v"))?;
    let user = env.begin()?;
    let handle = user.bytes("t")?;
    let options = TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..Default::default() };
    let impatient = env.begin_with(options)?;
    assert!(matches!(impatient.drop_table("t"), Err(Error::LockTimeout { .. })), "a drop waits for who uses the table");
    impatient.abort()?;
    handle.put(b"k", b"w")?;
    user.commit()?;
    let dropping = env.begin()?;
    let own = dropping.bytes("t")?;
    dropping.drop_table("t")?;
    for _ in 0..2 {
        assert!(matches!(own.get(b"k"), Err(Error::NoSuchTable(_))), "not even who drops it may use it");
    }
    dropping.commit()?;
    // A drop that is rolled back leaves the table usable, through old handles too.
    env.transact(|txn| txn.create_table("t")?.put(b"k", b"v"))?;
    let dropping = env.begin()?;
    let old = dropping.bytes("t")?;
    dropping.drop_table("t")?;
    dropping.abort()?;
    assert!(matches!(old.get(b"k"), Err(Error::Finished)));
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k"))?.as_deref(), Some(&b"v"[..]));
    Ok(())
}

#[test]
fn a_table_dropped_and_created_again_in_one_transaction_is_there() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"old", b"1"))?;
    assert!(env.transact(|txn| txn.bytes("t")?.get(b"old"))?.is_some());
    let waiting = env.begin()?;
    env.transact(|txn| {
        txn.drop_table("t")?;
        txn.create_table("t")?.put(b"new", b"2")
    })?;
    let table = waiting.bytes("t")?;
    assert_eq!(table.get(b"old")?, None);
    assert_eq!(table.get(b"new")?.as_deref(), Some(&b"2"[..]));
    Ok(())
}

#[test]
fn ranges_run_from_both_ends_and_meet() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let txn = env.begin()?;
    let table = txn.create_table("t")?;
    for n in 0..300u64 {
        table.put(&key(n), &key(n * n))?;
    }
    let keys: Vec<u64> = table
        .range(&key(10)[..]..&key(20)[..])?
        .map(|r| Ok(u64::from_be_bytes(r?.0.try_into().unwrap())))
        .collect::<Result<_, Error>>()?;
    assert_eq!(keys, (10..20).collect::<Vec<_>>());
    let mut range = table.range(..)?;
    let mut seen = 0;
    while let Some(front) = range.next().transpose()? {
        assert_eq!(front.0, key(seen / 2));
        seen += 1;
        let Some(back) = range.next_back().transpose()? else { break };
        assert_eq!(back.0, key(299 - seen / 2));
        seen += 1;
    }
    assert_eq!(seen, 300);
    assert_eq!(table.first()?.unwrap().0, key(0));
    assert_eq!(table.last()?.unwrap().0, key(299));
    Ok(())
}

#[test]
fn large_values_come_back_whole_and_their_space_is_reused() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let large: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    for _ in 0..20 {
        env.transact(|txn| txn.bytes_or_create("t")?.put(b"large", &large))?;
        env.reclaim()?;
    }
    let read = env.transact(|txn| txn.bytes("t")?.get(b"large"))?;
    assert_eq!(read.as_deref(), Some(&large[..]));
    let pages = env.stat()?.allocated_page_count;
    assert!(pages < 400, "{pages} pages in use for one value of 74");
    Ok(())
}

#[test]
fn a_panic_in_the_closure_rolls_back() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"a", b"1"))?;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        env.transact::<()>(|txn| {
            txn.bytes("t")?.put(b"a", b"2")?;
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    let value = env.transact(|txn| txn.bytes("t")?.get(b"a"))?;
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
    Ok(())
}

#[test]
fn a_second_open_is_refused_and_the_first_goes_on() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    assert!(matches!(small().open(dir.path()), Err(Error::AlreadyOpen { .. })));
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"a", b"1"))?;
    env.close()?;
    small().open(dir.path())?.close()
}

#[test]
fn limits_and_wrong_openings_are_typed_errors() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(small().create(false).open(dir.path().join("none")), Err(Error::NotAnEnvironment { .. })));
    assert!(matches!(small().create(false).open(dir.path()), Err(Error::NotAnEnvironment { .. })));
    assert!(matches!(small().page_bytes(5000).open(dir.path()), Err(Error::Setting { .. })));
    let env = small().open(dir.path())?;
    let txn = env.begin()?;
    let table = txn.create_table("t")?;
    assert!(matches!(table.put(&[7; 2000], b""), Err(Error::KeyTooLarge { len: 2000, .. })));
    assert!(matches!(table.put(b"k", &vec![0; (1 << 30) + 1]), Err(Error::ValueTooLarge { .. })));
    assert!(matches!(txn.create_table(""), Err(Error::BadTableName { .. })));
    table.put(b"", b"the empty key is a key")?;
    txn.commit()?;
    assert!(matches!(table.put(b"k", b"v"), Err(Error::Finished)));
    env.close()?;
    assert!(matches!(
        small().page_bytes(8192).open(dir.path()),
        Err(Error::WrongPageSize { found: 4096, asked: 8192 })
    ));
    Ok(())
}

#[test]
fn a_deadlock_ends_with_one_victim_and_a_cycle() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        table.put(b"a", b"0")?;
        table.put(b"b", b"0")
    })?;
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let run = |first: &'static [u8], second: &'static [u8]| {
        let (env, barrier) = (env.clone(), Arc::clone(&barrier));
        std::thread::spawn(move || -> Result<(), Error> {
            let txn = env.begin()?;
            let table = txn.bytes("t")?;
            table.put(first, b"1")?;
            barrier.wait();
            table.put(second, b"1")?;
            txn.commit()?;
            Ok(())
        })
    };
    let (one, two) = (run(b"a", b"b"), run(b"b", b"a"));
    let results = [one.join().unwrap(), two.join().unwrap()];
    let victims: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert_eq!(victims.len(), 1, "{results:?}");
    assert!(matches!(victims[0], Error::Deadlock { .. }) && victims[0].is_retryable(), "{:?}", victims[0]);
    let Error::Deadlock { cycle, transactions } = victims[0] else { unreachable!() };
    assert!(transactions.len() == 2 && transactions.iter().all(|xid| cycle.contains(&xid.to_string())), "{cycle}");
    Ok(())
}

#[test]
fn a_lock_wait_ends_when_its_time_is_over() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let holder = env.begin()?;
    holder.create_table("t")?.put(b"a", b"1")?;
    holder.commit()?;
    let holder = env.begin()?;
    holder.bytes("t")?.put(b"a", b"2")?;
    let options = TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..Default::default() };
    let waiter = env.begin_with(options)?;
    let error = waiter.bytes("t")?.get(b"a").unwrap_err();
    assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
    Ok(())
}

#[test]
fn tickets_resolve_for_every_durability() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    for durability in [Durability::Sync, Durability::Pipelined, Durability::Async, Durability::Volatile] {
        let txn = env.begin()?;
        txn.bytes_or_create("t")?.put(b"k", format!("{durability:?}").as_bytes())?;
        let committed = txn.commit_with(durability)?;
        committed.ticket.wait()?;
        assert!(committed.ticket.is_durable());
    }
    Ok(())
}

#[test]
fn a_transaction_larger_than_cache_and_log_buffer_works() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options()
        .cache_bytes(1 << 19)
        .log_buffer_bytes(128 << 10)
        .log_segment_bytes(256 << 10)
        .page_count_max(1 << 20)
        .open(dir.path())?;
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        for n in 0..20_000 {
            table.put(&key(n * 7919 % 20_000), &[n as u8; 100])?;
        }
        Ok::<_, Error>(())
    })?;
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    for n in 0..20_000 {
        table.delete(&key(n))?;
    }
    txn.abort()?;
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count())?, 20_000);
    Ok(())
}

#[test]
fn many_threads_keep_the_sum() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().durability(Durability::Volatile).open(dir.path())?;
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        for n in 0..50 {
            table.put(&key(n), &100i64.to_le_bytes())?;
        }
        Ok::<_, Error>(())
    })?;
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let env = env.clone();
            std::thread::spawn(move || -> Result<(), Error> {
                for round in 0..200u64 {
                    let (from, to) = ((thread * 13 + round * 7) % 50, (thread * 5 + round * 11 + 1) % 50);
                    env.transact(|txn| {
                        let table = txn.bytes("t")?;
                        let add = |delta: i64| {
                            move |old: &[u8]| {
                                Some((i64::from_le_bytes(old.try_into().unwrap()) + delta).to_le_bytes().to_vec())
                            }
                        };
                        table.modify(&key(from), add(-1))?;
                        table.modify(&key(to), add(1))?;
                        Ok::<_, Error>(())
                    })?;
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap()?;
    }
    let mut sum = 0;
    env.begin()?.bytes("t")?.range(..)?.try_for_each(|r| {
        sum += i64::from_le_bytes(r?.1.try_into().unwrap());
        Ok::<_, Error>(())
    })?;
    assert_eq!(sum, 5000);
    let report = env.verify()?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

/// A checkpoint of another thread looks at the lock of the environment just when that is closed: it does not keep it
/// for ever.
#[test]
fn a_checkpoint_beside_a_close_does_not_keep_the_environment_locked() {
    within(60, "a checkpoint beside a close", || {
        let disk = SimDisk::new();
        let looks = Arc::new(AtomicU32::new(0));
        let (closed, is_closed) = channel::<()>();
        let (go, may_go) = channel::<()>();
        let (is_closed, go) = (Mutex::new(is_closed), Mutex::new(go));
        let (count, is_armed) = (Arc::clone(&looks), Arc::new(AtomicBool::new(false)));
        let armed = Arc::clone(&is_armed);
        disk.set_hook(Arc::new(move |what| {
            if what != "look at lock" || !armed.load(SeqCst) {
                return;
            }
            match count.fetch_add(1, SeqCst) {
                // The checkpoint of the close; the other one comes, and waits for it.
                0 => {
                    go.lock().unwrap().send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                }
                // The other one: unless that is waited for, the environment is closed meanwhile.
                _ => drop(is_closed.lock().unwrap().recv_timeout(Duration::from_millis(300))),
            }
        }));
        let env = tiny().open_on(Arc::new(disk.clone())).unwrap();
        let other = env.clone();
        is_armed.store(true, SeqCst);
        let thread = std::thread::spawn(move || {
            may_go.recv().unwrap();
            drop(other.checkpoint());
            other // Kept open.
        });
        env.close().unwrap();
        let _ = closed.send(());
        let kept = thread.join().unwrap();
        drop(open(&disk).unwrap());
        drop(kept);
    });
}

/// Nobody asks for the log to be flushed, and nobody does anything any more.
#[test]
fn an_idle_environment_gives_back_what_was_deleted_and_is_not_durable_yet() {
    let options = common::tiny().cache_bytes(1024 * 4096).async_delay(Duration::from_secs(3600));
    let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| {
        let table = txn.create_table("t")?;
        // Few enough that the deletions lock keys, and not the table: it is the keys' locks that know of the commit.
        (0..300).try_for_each(|n| table.put(&common::key(n), &[7; 600]))
    })
    .unwrap();
    // A look that makes nothing durable itself, as `stat` does, which waits for what it has read.
    let look = |env: &Environment| env.verify().unwrap();
    let full = look(&env).page_count;
    let txn = env.begin().unwrap();
    let table = txn.bytes("t").unwrap();
    (0..300).for_each(|n| assert!(table.delete(&common::key(n)).unwrap()));
    let _ = txn.commit_with(Durability::Volatile).unwrap();
    common::within(60, "giving back", move || {
        while look(&env).page_count > full / 2 {
            // It locks what it looks at, and the housekeeper passes by then.
            std::thread::sleep(Duration::from_millis(120));
        }
        common::assert_sound(&env, "given back");
    });
}
