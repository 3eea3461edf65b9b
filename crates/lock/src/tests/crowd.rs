//! Many owners that want the same few locks: who is served, and what it costs.

use std::sync::Arc;

use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::sync;

use super::{in_the_background, key, make, patient};
use crate::check::assert_consistent;
use crate::{LockConfig, LockError, LockManager, LockName, LockStats, LockTable, Mode, OwnerNo, Wait};

const A: OwnerNo = OwnerNo(0);
const B: OwnerNo = OwnerNo(1);
const C: OwnerNo = OwnerNo(2);

fn large(owners: u32) -> Arc<LockTable> {
    make(LockConfig { owners, locks_max: 1024, buckets: 16, ..LockConfig::default() })
}

/// Queues a request as `lock` does, for an owner that is not there to wake up.
fn queue_asleep(locks: &LockTable, owner: OwnerNo, n: u64, mode: Mode) {
    let node_no = locks.take_node(owner).unwrap();
    let queue = locks.latch(key(n), owner);
    queue.add(node_no, key(n), owner, None, Some(mode));
    locks.own(locks.owner(owner), node_no, locks.node(node_no));
    locks.begin_wait(&queue, owner, node_no);
}

#[test]
fn the_oldest_is_granted_at_once_what_only_younger_ones_wait_for() {
    let locks = large(4);
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    queue_asleep(&locks, C, 1, Mode::X);
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    assert_eq!(assert_consistent(&locks), 3);
}

/// The oldest, which holds nothing, is queued before a younger one that waits already, and by that closes a cycle.
#[test]
fn whoever_is_queued_ahead_of_others_searches_though_it_holds_nothing() {
    const D: OwnerNo = OwnerNo(3);
    for seed in 0..10 {
        let outcome = sync::Scheduler::run(seed, || {
            let locks = large(4);
            let _ = locks.lock(C, key(1), Mode::S, Wait::Try).unwrap();
            let _ = locks.lock(D, key(1), Mode::U, Wait::Try).unwrap();
            let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
            let younger = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::U, patient()));
            let reader = in_the_background(&locks, |locks| {
                let result = locks.lock(C, key(2), Mode::S, patient());
                locks.unlock_all(C, None);
                result
            });
            let oldest = in_the_background(&locks, |locks| {
                let result = locks.lock(A, key(1), Mode::X, patient());
                locks.unlock_all(A, None);
                result
            });
            let error = reader.join().unwrap().unwrap_err();
            assert!(matches!(error, LockError::Deadlock { ref cycle, .. } if cycle.len() == 3), "seed {seed}: {error}");
            locks.unlock_all(D, None);
            assert!(oldest.join().unwrap().is_ok() && younger.join().unwrap().is_ok(), "seed {seed}");
        });
        assert!(outcome.is_ok(), "seed {seed}: {:?}", outcome.err());
    }
}

#[test]
fn an_instant_lock_does_not_pass_those_that_wait() {
    let locks = large(4);
    let _ = locks.lock(A, key(1), Mode::IX, Wait::Try).unwrap();
    assert_eq!(locks.lock_instant(C, key(1), Mode::IX, Wait::Try), Ok(Lsn(0)));
    queue_asleep(&locks, B, 1, Mode::S);
    // It gets along with what is held, and not with what an older transaction waits for.
    assert_eq!(locks.lock_instant(C, key(1), Mode::IX, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.lock_instant(A, key(1), Mode::IX, Wait::Try), Ok(Lsn(0)), "A holds it");
    locks.unlock_all(A, Some(Lsn(7)));
    assert_eq!(locks.lock_instant(C, key(1), Mode::IX, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.lock_instant(A, key(1), Mode::IS, Wait::Try), Ok(Lsn(7)));
    assert_eq!(assert_consistent(&locks), 1);
}

#[test]
fn key_locks_under_a_table_lock_are_given_up_together() {
    let locks = large(4);
    let table = TableId(7);
    for n in 0..20 {
        let _ = locks.lock(A, key(n), Mode::S, Wait::Try).unwrap();
        let _ = locks.lock(A, LockName::gap(table, n), Mode::S, Wait::Try).unwrap();
        let _ = locks.lock(A, LockName::key(TableId(8), n), Mode::S, Wait::Try).unwrap();
    }
    let _ = locks.lock(A, LockName::table(table), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(A, LockName::other(table, 0), Mode::X, Wait::Try).unwrap();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(3), Mode::X, patient()));
    let free = locks.free_count();
    assert_eq!(locks.unlock_keys(A, table), 40);
    assert!(locks.free_count() > free);
    let _ = waiter.join().unwrap().unwrap();
    assert_eq!((locks.held(A, key(4)), locks.held(A, LockName::key(TableId(8), 4))), (None, Some(Mode::S)));
    assert_eq!(locks.held(A, LockName::other(table, 0)), Some(Mode::X));
    assert_eq!(assert_consistent(&locks), 20 + 2 + 1);
}

/// Transactions of many owners on a few keys, every second one in the reverse order; a victim keeps its age.
fn crowd(owners: u32, keys: u64, rounds: u64) -> LockStats {
    let locks = large(owners);
    let age = Arc::new(std::sync::atomic::AtomicU64::new(10_000));
    let threads = (0..owners)
        .map(|no| {
            let (locks, age) = (Arc::clone(&locks), Arc::clone(&age));
            sync::spawn("crowd", move || {
                let owner = OwnerNo(no);
                for _ in 0..rounds {
                    let xid = Xid(age.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
                    while {
                        locks.begin(owner, xid);
                        let mut order = (0..keys).map(|at| if no % 2 == 0 { at } else { keys - 1 - at });
                        let result = order.try_for_each(|n| locks.lock(owner, key(n), Mode::X, patient()).map(drop));
                        sync::yield_point("commit");
                        locks.unlock_all(owner, None);
                        assert!(matches!(result, Ok(()) | Err(LockError::Deadlock { .. })), "{result:?}");
                        result.is_err()
                    } {}
                }
            })
        })
        .collect::<Vec<_>>();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(assert_consistent(&locks), 0);
    locks.stats()
}

#[test]
fn a_crowd_before_two_locks_has_few_victims() {
    const COMMITS: u64 = 40 * 8;
    for seed in 0..4 {
        let stats =
            sync::Scheduler::run(seed, || crowd(40, 2, 8)).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        assert!(stats.deadlocks > 0, "seed {seed}: a crowd without a deadlock proves little");
        assert!(stats.deadlocks <= 2 * COMMITS, "seed {seed}: {} victims for {COMMITS} commits", stats.deadlocks);
    }
}

#[test]
fn whoever_holds_nothing_hardly_ever_searches_for_a_deadlock() {
    for seed in 0..4 {
        let stats =
            sync::Scheduler::run(seed, || crowd(40, 1, 8)).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        assert!(stats.waits > 20, "seed {seed}: {} waits prove little", stats.waits);
        assert!(stats.searches * 4 <= stats.waits, "seed {seed}: {} searches of {}", stats.searches, stats.waits);
        assert_eq!(stats.deadlocks, 0, "seed {seed}");
    }
}
