//! What threads leave behind in an environment that they have used. Alone in its process, whose heap is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::spawn;

use ledgerstone::{Durability, Environment};

/// Bytes that are taken from the system's allocator now. Blocks of many pages are the engine's, for all threads.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
const BLOCK_BYTES_MAX: usize = 256 << 10;

fn counted(layout: Layout) -> usize {
    if layout.size() <= BLOCK_BYTES_MAX { layout.size() } else { 0 }
}

struct Counted;

// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(counted(layout), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(counted(layout), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Threads at a time: so many slots are in use.
const AT_A_TIME: usize = 8;
const TABLES: u32 = 80;

#[test]
fn ten_thousand_threads_leave_no_more_behind_than_a_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let options = Environment::options().cache_bytes(16 << 20).durability(Durability::Volatile);
    let env = options.open(dir.path()).unwrap();
    let put = |n: u32| env.transact(|txn| txn.bytes_or_create(&format!("table {n}"))?.put("k", "v"));
    (0..TABLES).for_each(|n| put(n).unwrap());
    let run = |thread_count: usize| {
        for group in 0..thread_count / AT_A_TIME {
            let threads: Vec<_> = (0..AT_A_TIME)
                .map(|no| {
                    let env = env.clone();
                    spawn(move || {
                        // More than are kept near, in the end, and not the same in each thread.
                        for n in 0..8 {
                            let name = format!("table {}", (n + group as u32 + no as u32 * 10) % TABLES);
                            env.transact(|txn| txn.bytes(&name)?.get("k")).unwrap().unwrap();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            if group % 10 == 0 {
                env.transact(|txn| txn.drop_table("table 0")).unwrap();
                put(0).unwrap();
            }
        }
    };
    run(1000);
    let before = TAKEN.load(Relaxed);
    run(10_000);
    let more = TAKEN.load(Relaxed).saturating_sub(before);
    assert!(more < 64 << 10, "{more} bytes more than before");
    env.close().unwrap();
}
