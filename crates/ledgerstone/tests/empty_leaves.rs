//! Ranges over many leaves in which everything was deleted, in a cache most of whose frames are dirty: they end, and
//! each leaf is read a few times at most.

mod common;

use std::sync::Arc;

use common::levels::begin;
use common::{assert_sound, key, tiny, within};
use ledgerstone::{Durability, Environment, Error, Isolation, Transaction};
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

/// Some hundred leaves; the cache has 64 frames.
const COUNT: u64 = 12_000;

fn filled(faulty: &FaultDisk) -> Environment {
    let options = tiny().version_store_bytes(64 << 20).lock_count_max(1 << 16).checkpoint_log_bytes(1 << 30);
    let env = options.open_on(Arc::new(faulty.clone())).unwrap();
    let fill = |txn: &Transaction| {
        let table = txn.bytes_or_create("t")?;
        (0..COUNT).try_for_each(|n| table.put(key(n), [7; 60]))
    };
    env.transact(fill).unwrap();
    env.transact(|txn| txn.create_table("hot").map(drop)).unwrap();
    env
}

/// Deletes all records one by one, which leaves ghosts while a snapshot is open.
fn delete_all(env: &Environment) {
    env.transact(|txn| {
        let table = txn.bytes("t")?;
        (0..COUNT).try_for_each(|n| table.delete(key(n)).map(|was_there| assert!(was_there)))
    })
    .unwrap();
}

/// Makes all frames dirty but a few.
fn dirty(env: &Environment) {
    let put = |txn: &Transaction| {
        let table = txn.bytes("hot")?;
        (0..240).try_for_each(|n| table.put(key(n), vec![n as u8; 900]))
    };
    env.transact(put).unwrap();
}

/// How a range or a pop goes to the end of a table that has no records.
fn goes_through(txn: &Transaction, how: u32) -> Result<(), Error> {
    let table = txn.bytes("t")?;
    let found = match how {
        0 => table.range(..)?.next().transpose()?,
        1 => table.range(..)?.next_back().transpose()?,
        2 => table.pop_first()?,
        _ => table.pop_last()?,
    };
    assert_eq!(found, None);
    Ok(())
}

#[test]
fn a_range_over_empty_leaves_reads_each_a_few_times() {
    for has_snapshot in [true, false] {
        let env = filled(&FaultDisk::new(Arc::new(SimDisk::new())));
        let snapshot = has_snapshot.then(|| env.snapshot().unwrap());
        delete_all(&env);
        let pages = env.stat().unwrap().allocated_page_count;
        for isolation in Isolation::ALL {
            for how in 0..4 {
                dirty(&env);
                let reads = || env.stat().unwrap().page_read_count;
                let before = reads();
                let txn = begin(&env, isolation);
                goes_through(&txn, how).unwrap();
                txn.commit_with(Durability::Volatile).unwrap();
                let count = reads() - before;
                assert!(count < 4 * pages + 200, "{isolation}, {how}: {count} pages of {pages} read");
            }
        }
        if let Some(snapshot) = snapshot {
            assert_eq!(snapshot.bytes("t").unwrap().count().unwrap(), COUNT);
        }
        assert_sound(&env, "afterwards");
        env.close().unwrap();
    }
}

/// Nothing can be written any more, and most frames are dirty: what is left is read through, or refused at once.
#[test]
fn a_failed_environment_answers_a_range_over_empty_leaves() {
    for isolation in Isolation::ALL {
        for how in 0..4 {
            let faulty = FaultDisk::new(Arc::new(SimDisk::new()));
            let env = filled(&faulty);
            let snapshot = env.snapshot().unwrap();
            delete_all(&env);
            let txn = begin(&env, isolation);
            dirty(&env);
            faulty.add(Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::Io(5))).on("log").from_then_on());
            let failed = env.transact(|txn| txn.bytes("hot")?.put(b"k", b"v"));
            assert!(failed.is_err() && env.is_failed());
            let answered = within(60, "a range of a failed environment", move || {
                let answered = goes_through(&txn, how);
                drop(txn);
                answered
            });
            assert!(matches!(answered, Ok(()) | Err(Error::Failed { .. })), "{isolation}, {how}: {answered:?}");
            drop(snapshot);
        }
    }
}

/// What is in the tree of deferred frees is looked through while that tree is locked. A dropped table whose leaves were
/// emptied before is not locked itself any more.
#[test]
fn a_dropped_table_with_empty_leaves_stands_still_while_it_is_verified() {
    let env = tiny().lock_count_max(1 << 16).open_on(Arc::new(SimDisk::new())).unwrap();
    for _ in 0..10 {
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..500).try_for_each(|n| table.put(key(n), [7; 500]))
        })
        .unwrap();
        env.transact(|txn| {
            let table = txn.bytes("t")?;
            (0..500).try_for_each(|n| table.delete(key(n)).map(drop))
        })
        .unwrap();
        // While it is open, the table is not freed. The records that it does not see are not kept for it.
        let snapshot = env.snapshot().unwrap();
        env.transact(|txn| txn.drop_table("t")).unwrap();
        let mut pages_count = 0;
        let report = env.verify_with(|at| {
            pages_count += u32::from(at.what == "pages");
            // By now it is known which pages wait to be freed, and the maps are about to be read.
            if pages_count == 2 {
                let env = env.clone();
                std::thread::spawn(move || env.reclaim().unwrap()).join().unwrap();
            }
        });
        let report = report.unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        drop(snapshot);
        env.reclaim().unwrap();
    }
}
