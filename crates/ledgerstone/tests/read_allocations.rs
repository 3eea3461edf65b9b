//! What reading takes from the allocator. Alone in its process, whose heap is counted by thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ledgerstone::{Environment, TableDef};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counted;

// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Blocks that `work` takes, by the second time that it runs.
fn taken(work: impl Fn()) -> u64 {
    work();
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn a_value_is_read_without_an_allocation_and_a_key_costs_one() {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().cache_bytes(16 << 20).open(dir.path()).unwrap();
    let txn = env.begin().unwrap();
    let bytes = txn.bytes_or_create("bytes").unwrap();
    bytes.put("long", vec![7; 500]).unwrap();
    assert_eq!(taken(|| assert_eq!(bytes.get_with("long", <[u8]>::len).unwrap(), Some(500))), 0);
    assert_eq!(taken(|| assert!(bytes.contains("long").unwrap())), 0);
    assert_eq!(taken(|| assert!(bytes.get("long").unwrap().is_some())), 1);
    let ages = txn.open(TableDef::<String, u64>::new("ages")).unwrap();
    ages.put("ann", 31).unwrap();
    assert_eq!(taken(|| assert_eq!(ages.get("ann").unwrap(), Some(31))), 1);
    assert_eq!(taken(|| assert_eq!(ages.get_with("ann", <[u8]>::len).unwrap(), Some(8))), 1);
    txn.commit().unwrap();

    let (bytes, ages) = (env.table("bytes").unwrap(), env.typed_table(TableDef::<String, u64>::new("ages")).unwrap());
    let txn = env.begin().unwrap();
    assert_eq!(taken(|| assert_eq!(bytes.get_with(&txn, "long", <[u8]>::len).unwrap(), Some(500))), 0);
    assert_eq!(taken(|| drop(bytes.of(&txn).unwrap())), 0);
    assert_eq!(taken(|| drop(ages.of(&txn).unwrap())), 0);
    assert_eq!(taken(|| assert_eq!(ages.get(&txn, "ann").unwrap(), Some(31))), 1);
    let snapshot = env.snapshot().unwrap();
    assert_eq!(taken(|| drop(ages.of(&snapshot).unwrap())), 0);
}

/// The load makes the table anew. A handle that looked at its name in each call would read the catalog at a snapshot.
#[test]
fn a_handle_that_has_loaded_its_table_reads_it_without_an_allocation() {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().cache_bytes(16 << 20).open(dir.path()).unwrap();
    env.transact(|txn| txn.create_table("bytes").map(drop)).unwrap();
    let bytes = env.table("bytes").unwrap();
    env.transact(|txn| bytes.load_sorted(txn, [("long", vec![7; 500])]).map(drop)).unwrap();
    let txn = env.begin().unwrap();
    assert_eq!(taken(|| assert_eq!(bytes.get_with(&txn, "long", <[u8]>::len).unwrap(), Some(500))), 0);
    let snapshot = env.snapshot().unwrap();
    assert_eq!(taken(|| assert_eq!(bytes.get_with(&snapshot, "long", <[u8]>::len).unwrap(), Some(500))), 0);
}
