//! Many records of an indexed table go at once: what it costs in pages, counted, and that all of it stays or none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ledgerstone::{
    Durability, Environment, Error, IndexDef, IndexKeys, Isolation, Locking, Options, Transaction, TransactionOptions,
};
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

mod common;
use common::{assert_sound, key};

const COUNT: u64 = 40_000;
/// Where no pages are counted: enough for temporary files.
const SOME: u64 = 5_000;

/// The larger index has seven times as many pages as the cache, the other one twice as many; their order has nothing to
/// do with that of the table. So in the table's order most entries would cost a page.
fn options() -> Options {
    common::tiny().cache_bytes(192 * 4096).page_count_max(1 << 15).lock_count_max(1 << 16).log_buffer_bytes(1 << 20)
}

fn value(n: u64) -> Vec<u8> {
    [&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[..], &[7; 92]].concat()
}

/// Two indexes: of the whole value, and a unique one of its first eight bytes.
fn filled(options: Options, disk: Arc<dyn Disk>, count: u64) -> Environment {
    let env = options.open_on(disk).unwrap();
    env.transact(|txn| {
        txn.bytes_or_create("t")?.load_sorted((0..count).map(|n| (key(n), value(n))))?;
        txn.create_index("t", &IndexDef::new("whole", IndexKeys::Value))?;
        txn.create_index("t", &IndexDef::new("first", IndexKeys::Bytes { from: 0, to: Some(8) }).unique())
    })
    .unwrap();
    env.checkpoint().unwrap();
    env
}

/// The table has the records whose numbers are below `end`, and so have its indexes.
fn assert_holds(env: &Environment, end: u64) {
    env.transact(|txn| {
        let table = txn.bytes("t")?;
        assert_eq!(table.count()?, end);
        for index in ["whole", "first"] {
            assert_eq!(table.index(index)?.range(..)?.count() as u64, end, "{index}");
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_sound(env, "afterwards");
}

/// Pages read until now, and pages that there are.
fn pages(env: &Environment) -> (u64, u64) {
    let stat = env.stat().unwrap();
    (stat.page_read_count, stat.allocated_page_count)
}

#[test]
fn a_range_delete_and_its_rollback_visit_pages_of_an_index_in_their_order() {
    for locking in [Locking::Hierarchical, Locking::Pages] {
        let env = filled(options().locking(locking), Arc::new(SimDisk::new()), COUNT);
        let (before, all) = pages(&env);
        let txn = env.begin().unwrap();
        assert_eq!(txn.bytes("t").unwrap().delete_range(&key(COUNT / 4)[..]..).unwrap(), COUNT * 3 / 4);
        let (deleted, _) = pages(&env);
        assert!(deleted - before < 5 * all, "{locking:?}: {} pages read to delete from {all}", deleted - before);
        txn.abort().unwrap();
        let (back, _) = pages(&env);
        assert!(back - deleted < 5 * all, "{locking:?}: {} pages read to take that back", back - deleted);
        assert_holds(&env, COUNT);

        env.transact(|txn| txn.bytes("t")?.delete_range(&key(COUNT / 4)[..]..).map(drop)).unwrap();
        let (deleted, _) = pages(&env);
        env.reclaim().unwrap();
        let (freed, _) = pages(&env);
        assert!(freed - deleted < 8 * all, "{locking:?}: {} pages read to free what was emptied", freed - deleted);
        assert_holds(&env, COUNT / 4);
    }
}

#[test]
fn a_killed_range_delete_is_undone_in_the_order_of_an_index() {
    let disk = SimDisk::new();
    let env = filled(options(), Arc::new(disk.clone()), COUNT);
    let (_, all) = pages(&env);
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().delete_range(&key(COUNT / 4)[..]..).unwrap();
    let mark = env.begin().unwrap();
    mark.create_table("mark").unwrap();
    mark.commit_with(Durability::Sync).unwrap(); // Makes all of the log durable.
    let after_kill = disk.after_kill();
    drop((txn, env));
    let env = options().open_on(Arc::new(after_kill)).unwrap();
    assert!(env.recovery_report().undone_count >= 3 * COUNT * 3 / 4);
    let (read, _) = pages(&env);
    assert!(read < 8 * all, "{read} pages of {all} read to open");
    assert_holds(&env, COUNT);
}

/// What is to be deleted is often deleted because the disk is full.
#[test]
fn a_range_delete_needs_no_space_for_its_temporary_files() {
    for part in [1, 30] {
        let disk = FaultDisk::new(Arc::new(SimDisk::new()));
        let env = filled(options(), Arc::new(disk.clone()), COUNT);
        disk.add(Fault::at(Call::Write, part, Harm::Fail(DiskErrorKind::NoSpace)).from_then_on().on("sort-"));
        let (before, all) = pages(&env);
        env.transact(|txn| txn.bytes("t")?.delete_range(&key(COUNT / 4)[..]..).map(drop)).unwrap();
        let (after, _) = pages(&env);
        // A part for each filling of memory: 128 KiB for each index.
        assert!(after - before < 20 * all, "{} pages read to delete from {all}", after - before);
        assert_holds(&env, COUNT / 4);
    }
}

/// An environment whose table's last index calls `hook` with the number of each record.
fn hooked(options: Options, disk: &SimDisk, hook: impl Fn(u64) -> bool + Send + Sync + 'static) -> Environment {
    let extract = move |k: &[u8], _: &[u8], emit: &mut dyn FnMut(&[u8])| {
        emit(&k[4..]);
        if hook(u64::from_be_bytes(k.try_into().unwrap())) { Ok(()) } else { Err("refused".to_string()) }
    };
    let env = filled(options.index_extractor("hook", extract), Arc::new(disk.clone()), SOME);
    env.transact(|txn| txn.create_index("t", &IndexDef::new("hooked", IndexKeys::Extractor("hook".into())))).unwrap();
    env
}

#[test]
fn an_extractor_that_refuses_or_panics_half_way_takes_back_all_of_a_range_delete() {
    let (calls, panics) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicBool::new(false)));
    let (left, panicking) = (Arc::clone(&calls), Arc::clone(&panics));
    let hook = move |_| {
        let is_last = left.load(Relaxed) != u64::MAX && left.fetch_sub(1, Relaxed) == 0;
        assert!(!is_last || !panicking.load(Relaxed), "told to panic");
        !is_last
    };
    let disk = SimDisk::new();
    let env = hooked(options(), &disk, hook);
    for (at, panic) in [(0, true), (300, false), (3_000, true), (SOME - 2, false)] {
        panics.store(panic, Relaxed);
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().delete(&key(0)).unwrap();
        calls.store(at, Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| txn.bytes("t").unwrap().delete_range(..)));
        calls.store(u64::MAX, Relaxed);
        assert!(if panic { done.is_err() } else { matches!(done, Ok(Err(Error::NotIndexable { .. }))) }, "{at}");
        let table = txn.bytes("t").unwrap();
        assert_eq!(table.count().unwrap(), SOME - 1, "the transaction goes on");
        assert_eq!(table.index("whole").unwrap().range(..).unwrap().count() as u64, SOME - 1);
        txn.abort().unwrap();
        assert_holds(&env, SOME);
    }
}

/// Entries are locked when their records go, though they go later themselves.
#[test]
fn beside_a_range_delete_readers_of_an_index_see_a_record_until_it_is_committed_or_wait() {
    const AT: u64 = 1_000;
    let beside: Arc<OnceLock<Environment>> = Arc::default();
    let is_on = Arc::new(AtomicBool::new(false));
    let (env, on) = (Arc::clone(&beside), Arc::clone(&is_on));
    let look = move |n| {
        if on.load(Relaxed) && n == AT + 500 {
            let env = env.get().unwrap();
            std::thread::scope(|scope| scope.spawn(|| see_beside(env)).join().unwrap());
        }
        true
    };
    let disk = SimDisk::new();
    beside.set(hooked(options().escalate_after(1 << 20).lock_count_max(1 << 18), &disk, look)).unwrap();
    let env = beside.get().unwrap();
    is_on.store(true, Relaxed);
    let txn = env.begin().unwrap();
    assert_eq!(txn.bytes("t").unwrap().delete_range(&key(AT)[..]..&key(AT + 2_000)[..]).unwrap(), 2_000);
    is_on.store(false, Relaxed);
    see_beside(env);
    txn.abort().unwrap();
    assert_holds(env, SOME);

    /// A record that goes, and one that does not, by both indexes.
    fn see_beside(env: &Environment) {
        let at = |isolation| {
            let options = TransactionOptions {
                isolation: Some(isolation),
                lock_timeout: Some(Duration::from_millis(1)),
                ..TransactionOptions::default()
            };
            env.begin_with(options).unwrap()
        };
        let look = |txn: &Transaction, n: u64| {
            let index = txn.bytes("t")?.index("whole")?;
            index.lookup(&value(n))?.collect::<Result<Vec<_>, _>>()
        };
        for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
            assert_eq!(look(&at(isolation), AT - 1).unwrap().len(), 1, "{isolation:?}");
            let gone = look(&at(isolation), AT + 100);
            match isolation {
                Isolation::Serializable => assert!(matches!(gone, Err(Error::LockTimeout { .. })), "{gone:?}"),
                _ => assert_eq!(gone.unwrap().len(), 1, "{isolation:?}"),
            }
        }
    }
}

/// A claim of as many keys as are deleted at once was refused where keys are long and the buffer is small.
#[test]
fn a_range_of_long_keys_is_deleted_with_the_smallest_log_buffer() {
    let options = Environment::options().page_bytes(32 << 10).log_buffer_bytes(128 << 10).cache_bytes(4 << 20);
    let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
    let key = |n: u32| [&[b'k'; 4000][..], &n.to_be_bytes()].concat();
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &IndexDef::new("by value", IndexKeys::Bytes { from: 0, to: Some(4) }))?;
        let table = txn.bytes("t")?;
        (0..100).try_for_each(|n| table.put(&key(n), &n.to_be_bytes()))
    })
    .unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.delete_range(..)).unwrap(), 100);
    env.close().unwrap();
}
