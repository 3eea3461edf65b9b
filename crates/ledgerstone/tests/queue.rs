//! Tables used as queues and stacks: what is taken from one end does not have to be passed again, whoever keeps it
//! visible.

mod common;

use common::{assert_sound, key, tiny, within};
use ledgerstone::{BytesTable, Durability, Environment, Error, Isolation, Locking, TransactionOptions};
use ledgerstone_disk::SimDisk;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

/// Room in the version store for all images, a cache that holds a part of the table only.
fn environment(disk: &SimDisk) -> Environment {
    tiny().version_store_bytes(64 << 20).lock_count_max(1 << 16).open_on(Arc::new(disk.clone())).unwrap()
}

fn fill(env: &Environment, count: u64) {
    env.transact(|txn| {
        let queue = txn.bytes_or_create("queue")?;
        for n in 0..count {
            queue.put(&key(n), &[7; 40])?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
}

fn options(isolation: Isolation) -> TransactionOptions {
    TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() }
}

/// Runs `work` in a transaction of its own, as most queues are used.
fn at<T>(env: &Environment, isolation: Isolation, work: impl Fn(&BytesTable) -> Result<T, Error>) -> Result<T, Error> {
    let txn = env.begin_with(options(isolation))?;
    let found = work(&txn.bytes("queue")?)?;
    txn.commit_with(Durability::Volatile)?;
    Ok(found)
}

fn pop(env: &Environment, isolation: Isolation, from_end: bool) -> Option<u64> {
    at(env, isolation, |queue| {
        let found = if from_end { queue.last()? } else { queue.first()? };
        let Some((found, _)) = found else { return Ok(None) };
        assert!(queue.delete(&found)?);
        Ok(Some(u64::from_be_bytes(found.try_into().unwrap())))
    })
    .unwrap()
}

/// Pages read from the disk for each of the last pops must be as few as for the first. The cache has 64 frames, and the
/// ghosts fill hundreds of pages, so a call that passes them reads them.
#[test]
fn pops_beside_an_open_snapshot_do_not_pass_what_was_popped() {
    const COUNT: u64 = 6_000;
    const LOOKS: u64 = 200;
    for isolation in LEVELS {
        for from_end in [false, true] {
            let disk = SimDisk::new();
            let env = environment(&disk);
            fill(&env, COUNT);
            let snapshot = env.snapshot().unwrap();
            let reads = || env.stat().unwrap().page_read_count;
            for n in 0..COUNT - LOOKS {
                let expected = if from_end { COUNT - 1 - n } else { n };
                assert_eq!(pop(&env, isolation, from_end), Some(expected), "{isolation:?}");
            }
            let before = reads();
            for n in COUNT - LOOKS..COUNT {
                let expected = if from_end { COUNT - 1 - n } else { n };
                assert_eq!(pop(&env, isolation, from_end), Some(expected), "{isolation:?}");
            }
            assert_eq!(pop(&env, isolation, from_end), None, "{isolation:?}");
            assert_eq!(pop(&env, isolation, !from_end), None, "{isolation:?}, from the other end");
            let read_count = reads() - before;
            // The other end of the empty table is looked for once, past everything.
            let pages = env.stat().unwrap().allocated_page_count;
            assert!(read_count < LOOKS + 2 * pages, "{isolation:?}: {read_count} pages read for {LOOKS} pops");
            let old = snapshot.bytes("queue").unwrap();
            assert_eq!(old.first().unwrap().unwrap().0, key(0), "the snapshot still sees all");
            assert_eq!(old.last().unwrap().unwrap().0, key(COUNT - 1));
            assert_eq!(old.count().unwrap(), COUNT);
            drop(old);
            drop(snapshot);
            assert_sound(&env, "after the pops");
            env.close().unwrap();
        }
    }
}

/// At serializable, a transaction that has read the first record has read that there is none before it. Nobody puts one
/// there, by a new key or by one that was popped, until the reader has ended. Behind the first record they may.
#[test]
fn nothing_appears_before_the_first_record_that_was_read() {
    for from_end in [false, true] {
        let disk = SimDisk::new();
        let env = environment(&disk);
        fill(&env, 1_000);
        let snapshot = env.snapshot().unwrap();
        for _ in 0..500 {
            pop(&env, Isolation::Serializable, from_end).unwrap();
        }
        let (popped, new, first, inner) = if from_end { (900, 5_000, 499, 7) } else { (100, 0, 500, 993) };
        let look = |queue: &BytesTable| if from_end { queue.last() } else { queue.first() };
        let new = if new == 0 { vec![0; 3] } else { key(new) };
        for put in [key(popped), new] {
            let reader = env.begin().unwrap();
            let queue = reader.bytes("queue").unwrap();
            assert_eq!(look(&queue).unwrap().unwrap().0, key(first));
            let (done, wait) = channel();
            let writer = env.clone();
            let to_put = put.clone();
            let thread = std::thread::spawn(move || {
                let count = writer.transact(|txn| txn.bytes("queue")?.put(&to_put, b"new").map(drop)).is_ok();
                done.send(count).unwrap();
            });
            assert!(wait.recv_timeout(Duration::from_millis(200)).is_err(), "{put:?} was put before what was read");
            at(&env, Isolation::Serializable, |queue| queue.put(&key(inner), b"inner").map(drop)).unwrap();
            assert_eq!(look(&queue).unwrap().unwrap().0, key(first));
            drop(queue);
            reader.commit().unwrap();
            assert!(within(20, "the writer", move || wait.recv().unwrap()));
            thread.join().unwrap();
            // Now it is the first, for everybody.
            for isolation in LEVELS {
                assert_eq!(at(&env, isolation, |queue| look(queue)).unwrap().unwrap().0, put, "{isolation:?}");
            }
            at(&env, Isolation::Serializable, |queue| queue.delete(&put).map(drop)).unwrap();
        }
        // Who has put a record before the first one reads it, and keeps the others out of what it had read.
        let own = env.begin().unwrap();
        let queue = own.bytes("queue").unwrap();
        assert_eq!(look(&queue).unwrap().unwrap().0, key(first));
        let (mine, other) = if from_end { (800, 700) } else { (200, 300) };
        queue.put(&key(mine), b"mine").unwrap();
        assert_eq!(look(&queue).unwrap().unwrap().0, key(mine));
        let (done, wait) = channel();
        let writer = env.clone();
        let thread = std::thread::spawn(move || {
            let count = writer.transact(|txn| txn.bytes("queue")?.put(&key(other), b"new").map(drop)).is_ok();
            done.send(count).unwrap();
        });
        assert!(wait.recv_timeout(Duration::from_millis(200)).is_err(), "a record was put into what was read");
        drop(queue);
        own.abort().unwrap();
        assert!(within(20, "the writer", move || wait.recv().unwrap()));
        thread.join().unwrap();
        for isolation in LEVELS {
            assert_eq!(at(&env, isolation, |queue| look(queue)).unwrap().unwrap().0, key(other), "{isolation:?}");
        }
        drop(snapshot);
        assert_sound(&env, "after the puts");
    }
}

/// A pop that is not committed does not count. A reader waits meanwhile at serializable, and sees the record at the
/// other levels. If the pop is taken back, the record is the first one again.
#[test]
fn a_pop_taken_back_brings_the_first_record_back() {
    let disk = SimDisk::new();
    let env = environment(&disk);
    fill(&env, 600);
    let snapshot = env.snapshot().unwrap();
    for _ in 0..100 {
        pop(&env, Isolation::ReadCommitted, false).unwrap();
    }
    let popper = env.begin().unwrap();
    let queue = popper.bytes("queue").unwrap();
    for n in 100..150 {
        assert_eq!(queue.first().unwrap().unwrap().0, key(n));
        assert!(queue.delete(&key(n)).unwrap());
    }
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        assert_eq!(at(&env, isolation, BytesTable::first).unwrap().unwrap().0, key(100), "{isolation:?}");
    }
    assert_eq!(at(&env, Isolation::ReadUncommitted, BytesTable::first).unwrap().unwrap().0, key(150));
    drop(queue);
    popper.abort().unwrap();
    for isolation in LEVELS {
        assert_eq!(at(&env, isolation, BytesTable::first).unwrap().unwrap().0, key(100), "{isolation:?}");
        assert_eq!(pop(&env, isolation, false), Some(100));
        at(&env, isolation, |queue| queue.put(&key(100), b"again").map(drop)).unwrap();
    }
    // A range delete from the beginning, and ranges that begin below, in and above what is gone.
    at(&env, Isolation::Serializable, |queue| queue.delete_range(..&key(300)[..])).unwrap();
    for isolation in LEVELS {
        for from in [0, 100, 250, 300, 301] {
            let found =
                at(&env, isolation, |queue| queue.range(&key(from)[..]..)?.next().transpose()).unwrap().unwrap();
            assert_eq!(found.0, key(from.max(300)), "{isolation:?}");
            let found =
                at(&env, isolation, |queue| queue.range(&key(from)[..]..&key(300)[..])?.next().transpose()).unwrap();
            assert_eq!(found, None, "{isolation:?}");
        }
    }
    assert_eq!(snapshot.bytes("queue").unwrap().first().unwrap().unwrap().0, key(0));
    assert_eq!(snapshot.bytes("queue").unwrap().count().unwrap(), 600);
}

/// What a snapshot sees is dead to it up to where it was when that was opened, however much was popped since, beside
/// others too.
#[test]
fn an_older_snapshot_does_not_pass_what_was_popped_before_it() {
    const COUNT: u64 = 9_000;
    for from_end in [false, true] {
        let disk = SimDisk::new();
        let env = environment(&disk);
        fill(&env, COUNT);
        let mut snapshots = vec![(env.snapshot().unwrap(), 0)];
        for n in 0..COUNT - 100 {
            pop(&env, Isolation::Snapshot, from_end).unwrap();
            // The queue's leaves that nobody can purge, in thirds.
            if n == COUNT / 3 || n == COUNT / 2 {
                snapshots.push((env.snapshot().unwrap(), n + 1));
            }
        }
        let mut read_counts = Vec::new();
        for (snapshot, popped) in &snapshots {
            let queue = snapshot.bytes("queue").unwrap();
            let before = env.stat().unwrap().page_read_count;
            let found = if from_end { queue.last() } else { queue.first() };
            read_counts.push(env.stat().unwrap().page_read_count - before);
            assert_eq!(found.unwrap().unwrap().0, key(if from_end { COUNT - 1 - popped } else { *popped }));
        }
        assert!(read_counts.iter().all(|&count| count < 12), "from the end: {from_end}: {read_counts:?} pages read");
    }
}

/// Whoever wants to put a record before what others have read waits, and until it gets in the others go on as before.
#[test]
fn a_writer_that_waits_for_a_dead_end_does_not_bring_it_back_to_life() {
    const COUNT: u64 = 6_000;
    for from_end in [false, true] {
        let disk = SimDisk::new();
        let env = environment(&disk);
        fill(&env, COUNT);
        let snapshot = env.snapshot().unwrap();
        for _ in 0..COUNT - 500 {
            pop(&env, Isolation::Serializable, from_end).unwrap();
        }
        let look = |queue: &BytesTable| if from_end { queue.last() } else { queue.first() };
        let first = key(if from_end { 499 } else { COUNT - 500 });
        let reader = env.begin().unwrap();
        let queue = reader.bytes("queue").unwrap();
        assert_eq!(look(&queue).unwrap().unwrap().0, first);
        let popped = key(if from_end { COUNT - 10 } else { 10 });
        let impatient = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
        let writer = env.begin_with(impatient).unwrap();
        let refused = writer.bytes("queue").unwrap().put(&popped, b"again");
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        drop(writer);
        let before = env.stat().unwrap().page_read_count;
        assert_eq!(look(&queue).unwrap().unwrap().0, first);
        let read_count = env.stat().unwrap().page_read_count - before;
        assert!(read_count < 8, "from the end: {from_end}: {read_count} pages read");
        drop(queue);
        reader.commit().unwrap();
        at(&env, Isolation::Serializable, |queue| queue.put(&popped, b"again").map(drop)).unwrap();
        assert_eq!(at(&env, Isolation::Serializable, |queue| look(queue)).unwrap().unwrap().0, popped);
        drop(snapshot);
        assert_sound(&env, "after the put");
    }
}

/// A pop locks for good at once, whatever is locked: two that had first locked the same leaf for reading would
/// deadlock.
#[test]
fn pops_wait_for_each_other_and_never_deadlock() {
    for locking in [Locking::Hierarchical, Locking::Pages] {
        let env = tiny().locking(locking).open_on(Arc::new(SimDisk::new())).unwrap();
        fill(&env, 400);
        within(60, "pops", {
            let env = env.clone();
            move || {
                let pops = (0..4u8).map(|no| {
                    let env = env.clone();
                    std::thread::spawn(move || {
                        for _ in 0..100 {
                            let txn = env.begin_with(options(Isolation::Serializable)).unwrap();
                            let queue = txn.bytes("queue").unwrap();
                            let popped = if no % 2 == 0 { queue.pop_first() } else { queue.pop_last() };
                            assert!(popped.unwrap().is_some());
                            std::thread::yield_now();
                            txn.commit_with(Durability::Volatile).unwrap();
                        }
                    })
                });
                pops.collect::<Vec<_>>().into_iter().for_each(|pop| pop.join().unwrap());
            }
        });
        assert_eq!(env.transact(|txn| txn.bytes("queue")?.count()).unwrap(), 0, "{locking:?}");
    }
}
