//! What threads leave behind in an environment that they have used. Alone in its process, whose heap is counted.

#[path = "common/heap.rs"]
mod heap;

use std::thread::spawn;

use ledgerstone::{Durability, Environment};

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
    let before = heap::taken();
    run(10_000);
    let more = heap::taken().saturating_sub(before);
    assert!(more < 64 << 10, "{more} bytes more than before");
    env.close().unwrap();
}
