//! What waits to be freed and cannot be read keeps nothing else from being freed.

mod common;

use common::{flip, key, open};
use ledgerstone::{Environment, Error};
use ledgerstone_disk::SimDisk;

const PAGE_BYTES: u64 = 4096;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn pages(env: &Environment) -> u64 {
    env.stat().unwrap().allocated_page_count
}

/// What a call says that meets the damage. While the housekeeper takes back what it has done to the damaged table,
/// another call does not see that the table waits to be freed, and finds nothing wrong.
fn refused(env: &Environment) -> Error {
    (0..1000).find_map(|_| env.reclaim().err()).expect("the damage is met")
}

#[test]
fn a_damaged_page_of_a_dropped_table_keeps_no_other_table_from_being_freed() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.create_table("stays").map(drop)).unwrap();
    let empty = pages(&env);
    for name in NAMES {
        env.transact(|txn| {
            let table = txn.create_table(name)?;
            (0..200).try_for_each(|n| table.put(key(n), [7; 1000]))
        })
        .unwrap();
    }
    env.transact(|txn| (0..200).try_for_each(|n| txn.bytes("stays")?.put(key(n), [7; 1000]))).unwrap();
    let root = env.transact(|txn| Ok(txn.bytes("a")?.root_page())).unwrap().0;
    let all = pages(&env) - empty;
    env.close().unwrap();
    flip(&disk, "data", root * PAGE_BYTES + 1000);

    let env = open(&disk).unwrap();
    for name in NAMES {
        env.transact(|txn| txn.drop_table(name)).unwrap();
    }
    env.transact(|txn| txn.bytes("stays")?.delete_range(..).map(drop)).unwrap();
    for _ in 0..3 {
        let refused = refused(&env);
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused:?}");
    }
    let left = pages(&env) - empty;
    assert!(left <= all / 5 + 5, "{left} of {all} pages are still taken, and one of five tables is damaged");
    assert!(!env.is_failed());
    // What is dropped later is freed, too.
    for _ in 0..5 {
        env.transact(|txn| {
            let table = txn.create_table("b")?;
            (0..200).try_for_each(|n| table.put(key(n), [7; 1000]))
        })
        .unwrap();
        env.transact(|txn| txn.drop_table("b")).unwrap();
        refused(&env);
        assert!(pages(&env) - empty <= left + 5);
    }
}
