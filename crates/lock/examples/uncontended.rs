//! What a lock costs when nobody stands in the way: `cargo run --release -p ledgerstone-lock --example uncontended`.
//!
//! Prints nanoseconds per lock and unlock together, best and median of several rounds, on one thread. Names are spread
//! over as many buckets as an engine would have, so that the far cases pay for their cache misses as an engine does.

use ledgerstone_lock::{LockConfig, LockManager, LockName, LockTable, Mode, OwnerNo, Wait};
use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::{Region, sync};

const ROUNDS: usize = 15;
const LOCKS: u64 = 200_000;

fn measure(what: &str, locks_each: u64, mut round: impl FnMut()) {
    round();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start_ns = sync::now_ns();
        round();
        times.push((sync::now_ns() - start_ns) as f64 / locks_each as f64);
    }
    times.sort_by(f64::total_cmp);
    println!("{what:<58} {:7.1} {:7.1}", times[0], times[times.len() / 2]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = LockConfig { owners: 64, ..LockConfig::default() };
    let region = Region::anonymous(config.region_bytes() * 3)?;
    let locks = LockTable::create(&region, config)?;
    let slow = LockTable::create(&region, LockConfig { fast_intentions: false, ..config })?;
    let owner = OwnerNo(3);
    let lock = |table: &LockTable, name: LockName, mode: Mode| {
        let _ = std::hint::black_box(table.lock(owner, name, mode, Wait::Try));
    };
    let far = |i: u64| LockName::key(TableId(5), i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    println!("{:<58} {:>7} {:>7}", "nanoseconds per lock and unlock", "best", "median");
    measure("one key, unlock_all after each lock", LOCKS, || {
        for _ in 0..LOCKS {
            lock(&locks, far(1), Mode::X);
            locks.unlock_all(owner, None);
        }
    });
    measure("256 keys in turn, unlock_all after each lock", LOCKS, || {
        for i in 0..LOCKS {
            lock(&locks, far(i % 256), Mode::X);
            locks.unlock_all(owner, Some(Lsn(i)));
        }
    });
    measure("200,000 keys in turn, unlock_all after each lock", LOCKS, || {
        for i in 0..LOCKS {
            lock(&locks, far(i), Mode::S);
            locks.unlock_all(owner, None);
        }
    });
    measure("transactions of 8 keys: begin, 8 locks, unlock_all", LOCKS, || {
        for i in 0..LOCKS / 8 {
            locks.begin(owner, Xid(i));
            for j in 0..8 {
                lock(&locks, far((i * 8 + j) % 4096), Mode::X);
            }
            locks.unlock_all(owner, Some(Lsn(i)));
        }
    });
    measure("one key, unlock by name", LOCKS, || {
        for _ in 0..LOCKS {
            lock(&locks, far(1), Mode::X);
            std::hint::black_box(locks.unlock(owner, far(1)));
        }
    });
    measure("instant lock of one gap", LOCKS, || {
        for _ in 0..LOCKS {
            let _ = std::hint::black_box(locks.lock_instant(owner, far(2), Mode::IX, Wait::Try));
        }
    });
    measure("lock of a key that is held already", LOCKS, || {
        lock(&locks, far(1), Mode::X);
        for _ in 0..LOCKS {
            lock(&locks, far(1), Mode::S);
        }
        locks.unlock_all(owner, None);
    });
    for (what, table) in [("in a word of the owner", &locks), ("through the queue", &slow)] {
        measure(&format!("IX on 4 tables, {what}"), LOCKS, || {
            for _ in 0..LOCKS / 4 {
                for t in 0..4 {
                    lock(table, LockName::table(TableId(t)), Mode::IX);
                }
                table.unlock_all(owner, None);
            }
        });
    }
    Ok(())
}
