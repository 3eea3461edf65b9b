//! Many owners that want the same few locks: who is served, who passes whom, and what it costs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::{Random, sync};

use super::{in_the_background, key, make, patient};
use crate::check::{assert_consistent, assert_nobody_waits_in_vain};
use crate::flags::Flag;
use crate::queue::{PASSED_HELD_MAX, PASSES_MAX};
use crate::{
    Conflict, LockConfig, LockError, LockManager, LockName, LockStats, LockTable, Mode, OwnerNo, Wait, wait_word,
};

const A: OwnerNo = OwnerNo(0);
const B: OwnerNo = OwnerNo(1);
const C: OwnerNo = OwnerNo(2);

fn large(owners: u32) -> Arc<LockTable> {
    make(LockConfig { owners, locks_max: 1024, buckets: 16, ..LockConfig::default() })
}

/// Queues a request as `lock` does, for an owner that is not there to wake up.
fn queue_asleep(locks: &LockTable, owner: OwnerNo, n: u64, mode: Mode) {
    queue_asleep_for(locks, owner, key(n), mode);
}

fn queue_asleep_for(locks: &LockTable, owner: OwnerNo, name: LockName, mode: Mode) {
    let node_no = locks.take_node(owner).unwrap();
    let queue = locks.latch(name, owner);
    queue.add(node_no, name, owner, None, Some(mode));
    locks.own(locks.owner(owner), node_no, locks.node(node_no));
    locks.owner(owner).wait_deadline_ns.store(u64::MAX, Relaxed);
    locks.begin_wait(&queue, owner, node_no);
}

#[test]
fn a_sleeper_is_passed_by_those_who_run_but_not_for_ever() {
    let outcome = sync::Scheduler::run(1, || {
        pass_a_sleeper_often(&large(4));
    });
    assert!(outcome.is_ok(), "{:?}", outcome.err());
}

fn pass_a_sleeper_often(locks: &Arc<LockTable>) {
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    queue_asleep(locks, B, 1, Mode::X);
    locks.unlock_all(A, Some(Lsn(5)));
    for no in 0..PASSES_MAX {
        let grant = locks.lock(C, key(1), Mode::X, Wait::Try).unwrap();
        assert_eq!(grant.depends, Lsn(5 + u64::from(no)));
        assert_eq!(locks.lock(A, key(1), Mode::S, Wait::Try), Err(LockError::WouldBlock), "C does not sleep");
        locks.unlock_all(C, Some(Lsn(6 + u64::from(no))));
    }
    assert_eq!(locks.lock(C, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!((locks.held(B, key(1)), locks.stats().passes), (Some(Mode::X), u64::from(PASSES_MAX)));
    assert_eq!(assert_consistent(locks), 1);
}

/// Whatever the number: what counts for the sleeper is time.
#[test]
fn a_sleeper_is_passed_for_a_moment_only() {
    for (timeout_ns, moment_ns) in [(u64::MAX, 1_000_000), (80_000, 10_000)] {
        let outcome = sync::Scheduler::run(1, || {
            let locks = large(3);
            let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
            queue_asleep(&locks, B, 1, Mode::X);
            let deadline_ns = sync::now_ns().saturating_add(timeout_ns);
            locks.owner(B).wait_deadline_ns.store(deadline_ns, Relaxed);
            locks.unlock_all(A, None);
            // From the first time on, however often.
            for _ in 0..2 {
                let _ = locks.lock(C, key(1), Mode::X, Wait::Try).unwrap();
                locks.unlock_all(C, None);
                sync::sleep_ns(moment_ns / 5 * 3);
            }
            assert_eq!(locks.lock(C, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
            assert_eq!((locks.held(B, key(1)), locks.stats().passes), (Some(Mode::X), 2));
        });
        assert!(outcome.is_ok(), "{:?}", outcome.err());
    }
}

/// Whoever locks a table to give its locks on keys back gets a node from the reserve, also where it passes a sleeper.
#[test]
fn a_sleeper_on_a_table_is_passed_though_the_table_is_full() {
    let locks = make(LockConfig { owners: 4, locks_max: 8, buckets: 16, ..LockConfig::default() });
    let table = LockName::table(TableId(7));
    let _ = locks.lock(A, table, Mode::X, Wait::Try).unwrap();
    queue_asleep_for(&locks, B, table, Mode::X);
    locks.unlock_all(A, None);
    for owner in [A, C, OwnerNo(3)] {
        let _ = (0..).find(|&n| locks.lock(owner, key(1000 * u64::from(owner.0) + n), Mode::X, Wait::Try).is_err());
    }
    let _ = locks.lock(C, table, Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.stats().passes, 1);
    assert_nobody_waits_in_vain(&locks);
}

#[test]
fn whoever_has_woken_up_or_holds_many_or_upgrades_is_not_passed() {
    let locks = large(4);
    // Awake.
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::X, patient()));
    locks.unlock_all(A, None);
    let _ = waiter.join().unwrap().unwrap();
    assert_eq!(locks.lock(C, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
    locks.unlock_all(B, None);
    // With many others, for which somebody may wait.
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    for n in 2..=1 + u64::from(PASSED_HELD_MAX) {
        let _ = locks.lock(B, key(n), Mode::X, Wait::Try).unwrap();
    }
    queue_asleep(&locks, B, 1, Mode::X);
    locks.unlock_all(A, None);
    assert_eq!(locks.lock(C, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
    let woken = &locks.owner(B).wait_word;
    assert!(wait_word::take(woken, woken.load(SeqCst)));
    locks.unlock_all(B, None);
    assert_eq!((locks.stats().passes, assert_consistent(&locks)), (0, 0));
    // Raising what it holds: to be passed would lose that.
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    let upgrade = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::X, patient()));
    locks.unlock_all(A, None);
    assert_eq!(locks.lock(C, key(1), Mode::S, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(upgrade.join().unwrap().unwrap().previous, Some(Mode::S));
    assert_eq!(locks.stats().passes, 0);
}

/// As in a bank, where many want one branch, and each of them has its own account by then.
#[test]
fn a_sleeper_with_a_few_locks_is_passed() {
    let locks = large(4);
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    for n in 2..=u64::from(PASSED_HELD_MAX) {
        let _ = locks.lock(B, key(n), Mode::X, Wait::Try).unwrap();
    }
    queue_asleep(&locks, B, 1, Mode::X);
    locks.unlock_all(A, None);
    let _ = locks.lock(C, key(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.stats().passes, 1);
    // What it still holds is its own, and a wait for it closes a cycle, which is found.
    assert_eq!(locks.held(B, key(8)), Some(Mode::X));
    locks.raise(Flag::Sleeps, B);
    assert!(matches!(locks.lock(C, key(8), Mode::X, patient()), Err(LockError::Deadlock { .. })));
    assert_nobody_waits_in_vain(&locks);
    locks.unlock_all(C, None);
    assert_eq!(locks.held(B, key(1)), Some(Mode::X));
    // And so it is not passed a second time, for a while.
    assert_eq!(locks.lock(C, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
    let careful = &locks.header().careful_until_ns;
    careful.store(0, Relaxed);
    let owner = locks.owner(B);
    locks.node(owner.wait_node.load(Relaxed)).passes.store(0, Relaxed);
    let _ = locks.lock(C, key(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.stats().passes, 2);
}

/// A sleeper that was passed holds nothing any more: whom it alone kept out comes in at once, beside who passed it.
#[test]
fn whoever_waited_for_a_sleeper_that_is_passed_is_looked_at_again() {
    let locks = large(4);
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    queue_asleep(&locks, B, 1, Mode::S);
    locks.unlock_all(A, None);
    let _ = locks.lock(C, key(1), Mode::IS, Wait::Try).unwrap();
    let upgrade = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::IX, patient()));
    let _ = locks.lock(A, key(1), Mode::IX, Wait::Try).unwrap();
    assert_eq!(locks.stats().passes, 1);
    assert_nobody_waits_in_vain(&locks);
    assert_eq!(upgrade.join().unwrap().unwrap().previous, Some(Mode::IS));
    assert_eq!(assert_consistent(&locks), 3);
}

/// It would wait for the older one, which waits for a reader, which waits for the sleeper. They have searched by then.
#[test]
fn a_sleeper_is_not_passed_where_it_would_stand_behind_those_whom_others_hold_up() {
    const D: OwnerNo = OwnerNo(3);
    const E: OwnerNo = OwnerNo(4);
    let locks = large(5);
    let granted_asleep = |mode: Mode| {
        let _ = locks.lock(E, key(1), mode, Wait::Try).unwrap();
        queue_asleep(&locks, B, 1, mode);
        locks.unlock_all(E, None);
        assert_eq!(locks.held(B, key(1)), Some(mode));
    };
    let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(C, key(1), Mode::S, Wait::Try).unwrap();
    granted_asleep(Mode::U);
    queue_asleep(&locks, A, 1, Mode::X);
    queue_asleep(&locks, C, 2, Mode::X);
    assert_eq!(locks.lock(D, key(1), Mode::S, Wait::Try), Err(LockError::WouldBlock));
    [A, B, C].into_iter().for_each(|owner| locks.raise(Flag::Sleeps, owner));
    assert_eq!((locks.stats().passes, locks.detect()), (0, 0), "a deadlock that nobody looks for");
    // Without the reader, all that the older one waits for is the sleeper.
    locks.unlock_all(C, None);
    let _ = locks.lock(D, key(1), Mode::S, Wait::Try).unwrap();
    assert_eq!((locks.stats().passes, locks.detect()), (1, 0));
    assert_nobody_waits_in_vain(&locks);
}

/// The same with one that holds the lock already and waits to hold more.
#[test]
fn a_sleeper_is_not_passed_where_others_hold_up_an_upgrade() {
    const D: OwnerNo = OwnerNo(3);
    let locks = large(5);
    let _ = locks.lock(C, key(1), Mode::IS, Wait::Try).unwrap();
    let _ = locks.lock(D, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(OwnerNo(4), key(1), Mode::U, Wait::Try).unwrap();
    queue_asleep(&locks, B, 1, Mode::U);
    locks.unlock_all(OwnerNo(4), None);
    let upgrade = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::IX, patient()));
    assert_eq!(locks.lock(A, key(1), Mode::IS, Wait::Try), Err(LockError::WouldBlock));
    locks.unlock_all(D, None);
    let _ = locks.lock(A, key(1), Mode::IS, Wait::Try).unwrap();
    assert_eq!((locks.stats().passes, upgrade.join().unwrap().unwrap().previous), (1, Some(Mode::IS)));
    assert_nobody_waits_in_vain(&locks);
}

/// Waits that avoid deadlocks would lead the wrong way.
#[test]
fn nobody_is_passed_where_deadlocks_are_avoided() {
    for conflict in [Conflict::WaitDie, Conflict::NoWait] {
        let locks = make(LockConfig { owners: 4, locks_max: 64, buckets: 16, conflict, ..LockConfig::default() });
        let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
        queue_asleep(&locks, B, 1, Mode::X);
        locks.unlock_all(A, None);
        assert_eq!(locks.lock(C, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
    }
}

/// It has not left its queue yet, and still holds what it held.
#[test]
fn whoever_was_told_to_give_way_is_granted_nothing() {
    let locks = large(4);
    let give_way = |owner: OwnerNo| {
        let word = &locks.owner(owner).wait_word;
        assert!(wait_word::end_wait(word, wait_word::ticket(word.load(SeqCst)), wait_word::VICTIM).is_some());
        locks.node(locks.owner(owner).wait_node.load(Relaxed))
    };
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    let node_no = locks.owner(B).held_head.load(Relaxed);
    let queue = locks.latch(key(1), B);
    queue.set_modes(locks.node(node_no), Some(Mode::S), Some(Mode::X));
    locks.begin_wait(&queue, B, node_no);
    drop(queue);
    queue_asleep(&locks, C, 1, Mode::X);
    let (upgrade, waiter) = (give_way(B), give_way(C));
    locks.unlock_all(A, None);
    assert_eq!((upgrade.granted(), upgrade.wanted()), (Some(Mode::S), Some(Mode::X)));
    assert_eq!((waiter.granted(), waiter.wanted()), (None, Some(Mode::X)));
    locks.unlock_all(B, None);
    assert_eq!((waiter.granted(), waiter.wanted()), (None, Some(Mode::X)));
}

/// Nothing is taken from a sleeper for somebody who cannot be given it.
#[test]
fn whoever_finds_the_table_full_passes_nobody() {
    let locks = make(LockConfig { owners: 3, locks_max: 8, buckets: 16, ..LockConfig::default() });
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    queue_asleep(&locks, B, 1, Mode::X);
    let mut n = 100;
    while locks.lock(C, key(n), Mode::X, Wait::Try).is_ok() {
        n += 1;
    }
    let mut to_be_given_up = 200;
    while locks.lock(A, key(to_be_given_up), Mode::X, Wait::Try).is_ok() {
        to_be_given_up += 1;
    }
    assert_eq!(locks.unlock(A, key(1)), Some(Mode::X));
    while locks.lock(A, key(to_be_given_up), Mode::X, Wait::Try).is_ok() {
        to_be_given_up += 1;
    }
    for owner in [A, C] {
        assert_eq!(locks.lock(owner, key(1), Mode::X, Wait::Try), Err(LockError::TableFull { locks_max: 8 }));
    }
    assert_eq!((locks.held(B, key(1)), locks.stats().passes), (Some(Mode::X), 0));
    assert_nobody_waits_in_vain(&locks);
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

/// A lock that was collected moves from the owner's words to its list: at each moment somebody who asks finds it.
#[test]
fn what_is_being_taken_in_is_held_all_the_while() {
    let (table, other) = (LockName::table(TableId(7)), LockName::table(TableId(8)));
    for seed in 0..200 {
        let outcome = sync::Scheduler::run(seed, || {
            let locks = large(3);
            let _ = locks.lock(A, table, Mode::IX, Wait::Try).unwrap();
            let asks = |locks: &Arc<LockTable>| {
                let locks = Arc::clone(locks);
                sync::spawn("asks", move || {
                    for _ in 0..6 {
                        assert_eq!(locks.held(A, table), Some(Mode::IX), "seed {seed}");
                    }
                })
            };
            let asking = [asks(&locks), asks(&locks)];
            assert_eq!(locks.lock(B, table, Mode::S, Wait::Try), Err(LockError::WouldBlock));
            let _ = locks.lock(A, other, Mode::IS, Wait::Try).unwrap(); // Takes in.
            asking.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert!(outcome.is_ok(), "seed {seed}: {:?}", outcome.err());
    }
}

/// Asked by another thread, it would change lists that are the owner's own.
#[test]
fn to_ask_what_another_holds_changes_nothing() {
    let locks = large(4);
    let table = LockName::table(TableId(7));
    let _ = locks.lock(A, table, Mode::IX, Wait::Try).unwrap();
    let _ = locks.lock(A, LockName::table(TableId(8)), Mode::IS, Wait::Try).unwrap();
    assert_eq!(locks.lock(B, table, Mode::S, Wait::Try), Err(LockError::WouldBlock));
    assert!(LockTable::is_collected(locks.owner(A)));
    assert_eq!((locks.held(A, table), locks.held(B, table)), (Some(Mode::IX), None));
    assert_eq!(locks.held(A, LockName::table(TableId(8))), Some(Mode::IS));
    assert!(LockTable::is_collected(locks.owner(A)), "what was collected is not taken in by who asks");
    locks.unlock_all(A, None);
    assert_eq!(assert_consistent(&locks), 0);
}

/// Whoever finds the table full locks a whole table, and that needs nodes for it and for the intentions of others.
#[test]
fn a_full_table_still_has_room_for_a_lock_on_a_whole_table() {
    let locks = make(LockConfig { owners: 4, locks_max: 8, buckets: 4, ..LockConfig::default() });
    let table = LockName::table(TableId(7));
    for round in 0..20 {
        for no in 0..4 {
            let _ = locks.lock(OwnerNo(no), table, Mode::IS, Wait::Try).unwrap();
        }
        let count = (0..).find(|&n| locks.lock(A, key(n), Mode::S, Wait::Try).is_err()).unwrap();
        assert!(count >= 8, "round {round}: {count}");
        let _ = locks.lock(A, table, Mode::S, Wait::Try).unwrap();
        assert_eq!(u64::from(locks.unlock_keys(A, TableId(7))), count);
        for no in 0..4 {
            locks.unlock_all(OwnerNo(no), None);
        }
        assert_eq!(assert_consistent(&locks), 0);
    }
}

/// Takes locks on keys until there are none left, and returns how many.
fn fill(locks: &LockTable, owner: OwnerNo) -> u64 {
    (0..).find(|&n| locks.lock(owner, key(n), Mode::X, Wait::Try).is_err()).unwrap()
}

/// Nodes of the reserve that the others keep for themselves would be missing there for as long as one transaction has
/// all locks.
#[test]
fn a_table_that_stays_full_has_room_for_one_whole_table_after_another() {
    let locks = make(LockConfig { owners: 4, locks_max: 64, buckets: 16, ..LockConfig::default() });
    fill(&locks, A);
    for round in 0..50 {
        let table = LockName::table(TableId(100 + round));
        for no in 2..4 {
            let _ = locks.lock(OwnerNo(no), table, Mode::IS, Wait::Try).unwrap();
        }
        assert!(locks.lock(B, table, Mode::S, Wait::Try).is_ok(), "round {round}");
        for no in 1..4 {
            locks.unlock_all(OwnerNo(no), None);
        }
        assert_consistent(&locks);
    }
}

/// What comes back while the reserve is short of one node fills it, and the rest is there for locks on keys again.
#[test]
fn a_reserve_that_was_drawn_on_takes_no_more_than_it_gave() {
    let locks = make(LockConfig { owners: 4, locks_max: 64, buckets: 16, ..LockConfig::default() });
    let count = fill(&locks, A);
    assert!(count >= 64, "{count}");
    let _ = locks.lock(B, LockName::table(TableId(8)), Mode::X, Wait::Try).unwrap();
    locks.unlock_all(A, None);
    assert_eq!(fill(&locks, A), count - 1, "all but the one that B has");
    locks.unlock_all(A, None);
    locks.unlock_all(B, None);
    assert_eq!(assert_consistent(&locks), 0);
}

#[test]
fn key_locks_under_a_table_lock_are_given_up_together() {
    let locks = large(4);
    let table = TableId(7);
    for n in 0..20 {
        let _ = locks.lock(A, key(n), Mode::S, Wait::Try).unwrap();
        let _ = locks.lock(A, LockName::gap(table, n), Mode::S, Wait::Try).unwrap();
        let _ = locks.lock(A, LockName::other(table, 1 + n), Mode::S, Wait::Try).unwrap();
        let _ = locks.lock(A, LockName::key(TableId(8), n), Mode::S, Wait::Try).unwrap();
    }
    let _ = locks.lock(A, LockName::table(table), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(A, LockName::other(table, 0), Mode::X, Wait::Try).unwrap();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(3), Mode::X, patient()));
    let free = locks.free_count();
    assert_eq!(locks.unlock_keys(A, table), 60);
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
                    let xid = Xid(age.fetch_add(1, SeqCst));
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
    let (mut searches, mut waits) = (0, 0);
    for seed in 0..16 {
        let stats =
            sync::Scheduler::run(seed, || crowd(40, 1, 8)).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        assert_eq!(stats.deadlocks, 0, "seed {seed}");
        (searches, waits) = (searches + stats.searches, waits + stats.waits);
    }
    assert!(waits > 500 && searches * 4 <= waits, "{searches} searches of {waits} waits");
}

/// The holders that can be reached from each waiter along the arrows, all of them or only the nearest.
#[test]
fn the_nearest_arrows_lead_wherever_all_of_them_lead() {
    for seed in 0..300_u64 {
        let locks = large(9);
        let mut state = Random::new(seed);
        let mut draw = |below| state.below(below);
        for no in 0..9 {
            let mode = Mode::ALL[draw(6) as usize];
            if locks.lock(OwnerNo(no), key(1), mode, Wait::Try).is_err() {
                queue_asleep(&locks, OwnerNo(no), 1, mode);
            }
        }
        let queue = locks.latch(key(1), A);
        let mut nodes = Vec::new();
        queue.for_each(key(1), |node_no, node| nodes.push((node.owner_no(), node_no)));
        let reached = |from: OwnerNo, is_whole: bool| {
            let (mut found, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(owner) = open.pop() {
                let node_no = nodes.iter().find(|(other, _)| *other == owner).unwrap().1;
                let mut arrows = Vec::new();
                if is_whole {
                    queue.blockers(node_no, &mut arrows);
                } else {
                    queue.nearest_blockers(node_no, &mut arrows);
                }
                open.extend(arrows.into_iter().filter(|next| found.insert(*next)));
            }
            found.retain(|owner| {
                locks.node(nodes.iter().find(|(other, _)| other == owner).unwrap().1).granted().is_some()
            });
            found
        };
        for (owner, _) in &nodes {
            assert_eq!(reached(*owner, true), reached(*owner, false), "seed {seed}, from {owner}");
        }
    }
}
