//! What comes due while an environment rests is done as soon as if it did not rest. In virtual time.

mod common;

use std::sync::Arc;

use common::{key, tiny};
use ledgerstone::{Durability, Environment, Error};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::{self, Scheduler};

const SECOND_NS: u64 = 1_000_000_000;
/// The housekeeper rests since long.
const REST_NS: u64 = 25 * SECOND_NS;
/// A few of the periods at which it looks while it does not rest, and far less than it rests.
const SOON_NS: u64 = SECOND_NS / 2;

fn rest() {
    sync::sleep_ns(REST_NS);
}

/// Fails unless it is so soon.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let began_ns = sync::now_ns();
    while !is_so() {
        let waited_ns = sync::now_ns() - began_ns;
        assert!(waited_ns <= SOON_NS, "{what}: not after {} ms", waited_ns / 1_000_000);
        sync::sleep_ns(SECOND_NS / 100);
    }
}

fn in_virtual_time(durability: Durability, test: impl Fn(&Environment) -> Result<(), Error> + Send + Sync + 'static) {
    let test = Arc::new(test);
    for seed in 0..3 {
        let test = Arc::clone(&test);
        let options = tiny().durability(durability).checkpoint_log_bytes(256 << 10);
        Scheduler::run(seed, move || {
            let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
            env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
            rest();
            test(&env).unwrap();
            env.close().unwrap();
        })
        .unwrap_or_else(|stuck| panic!("{durability:?}, seed {seed}: {stuck}"));
    }
}

#[test]
fn a_checkpoint_is_taken_when_there_is_log_enough() {
    for durability in [Durability::Sync, Durability::Pipelined, Durability::Async, Durability::Volatile] {
        in_virtual_time(durability, move |env| {
            for round in 0..3 {
                let before = env.stat()?.checkpoint_count;
                // Twice what it takes: one that is not made durable at once is seen later.
                for n in 0..300 {
                    env.transact(|txn| txn.bytes("t")?.put(key(n), [round; 1500]))?;
                }
                soon("a checkpoint", || env.stat().unwrap().checkpoint_count > before);
                rest();
            }
            Ok(())
        });
    }
}

#[test]
fn pages_are_freed_when_they_may_be() {
    in_virtual_time(Durability::Sync, |env| {
        let empty = env.stat()?.allocated_page_count;
        let are_freed = || env.stat().unwrap().allocated_page_count <= empty + 2;
        let fill = || {
            env.transact(|txn| {
                let table = txn.bytes_or_create("u")?;
                (0..300).try_for_each(|n| table.put(key(n), [7; 1000]))
            })
        };
        fill()?;
        rest();
        env.transact(|txn| txn.drop_table("u"))?;
        soon("the pages of a dropped table", are_freed);
        fill()?;
        rest();
        env.transact(|txn| txn.bytes("u")?.delete_range(..).map(drop))?;
        soon("emptied leaves", || env.stat().unwrap().allocated_page_count <= empty + 6);
        fill()?;
        let snapshot = env.snapshot()?;
        env.transact(|txn| txn.drop_table("u"))?;
        rest();
        assert!(!are_freed());
        drop(snapshot);
        soon("what a snapshot held back", are_freed);
        Ok(())
    });
}
