//! What it takes two threads to see. Each test orders its threads by waiting until a request is queued, never by time.

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::sync;

use super::{in_the_background, key, make, patient, small, table_name};
use crate::check::assert_consistent;
use crate::deadlock::{Hop, Waiting};
use crate::{Conflict, LockConfig, LockError, LockManager, LockTable, Mode, OwnerNo, Victim, Wait};

const A: OwnerNo = OwnerNo(0);
const B: OwnerNo = OwnerNo(1);
const C: OwnerNo = OwnerNo(2);
const D: OwnerNo = OwnerNo(3);

#[test]
fn a_waiter_is_woken_and_depends_on_the_commit_it_waited_for() {
    for name in [key(1), table_name(1)] {
        let locks = small();
        let _ = locks.lock(A, name, Mode::X, Wait::Try).unwrap();
        let waiter = in_the_background(&locks, move |locks| locks.lock(B, name, Mode::IX, patient()));
        locks.unlock_all(A, Some(Lsn(9)));
        let grant = waiter.join().unwrap().unwrap();
        assert_eq!((grant.newly, grant.previous, grant.depends), (true, None, Lsn(9)));
        assert_eq!(locks.held(B, name), Some(Mode::IX));
        assert_eq!(assert_consistent(&locks), 1);
    }
}

#[test]
fn a_reader_does_not_overtake_a_waiting_writer() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let writer = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::X, patient()));
    assert_eq!(locks.lock(C, key(1), Mode::S, Wait::Try), Err(LockError::WouldBlock));
    let reader = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::S, patient()));
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    locks.unlock_all(A, None);
    let _ = writer.join().unwrap().unwrap();
    assert_eq!(locks.held(C, key(1)), None);
    assert!(!reader.is_finished());
    locks.unlock_all(B, None);
    let _ = reader.join().unwrap().unwrap();
    assert_eq!(assert_consistent(&locks), 1);
}

#[test]
fn an_upgrade_goes_before_those_who_hold_nothing() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    let writer = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::X, patient()));
    let upgrade = in_the_background(&locks, |locks| locks.lock(A, key(1), Mode::X, patient()));
    locks.unlock_all(B, None);
    assert_eq!(upgrade.join().unwrap().unwrap().previous, Some(Mode::S));
    assert_eq!(locks.held(A, key(1)), Some(Mode::X));
    assert!(!writer.is_finished());
    locks.unlock_all(A, None);
    let _ = writer.join().unwrap().unwrap();
}

#[test]
fn nobody_overtakes_an_upgrade_that_still_waits() {
    let locks = small();
    for owner in [A, B, D] {
        let _ = locks.lock(owner, key(1), Mode::S, Wait::Try).unwrap();
    }
    let upgrade = in_the_background(&locks, |locks| locks.lock(A, key(1), Mode::X, patient()));
    let reader = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::S, patient()));
    locks.unlock_all(B, None);
    assert_eq!(locks.held(C, key(1)), None);
    locks.unlock_all(D, None);
    let _ = upgrade.join().unwrap().unwrap();
    locks.unlock_all(A, None);
    let _ = reader.join().unwrap().unwrap();
}

#[test]
fn whoever_waited_behind_a_deadline_is_served_when_it_passes() {
    for seed in 0..20 {
        let outcome = sync::Scheduler::run(seed, || {
            let locks = small();
            let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
            let deadline = Wait::Until(sync::now_ns() + 1_000_000);
            let writer = in_the_background(&locks, move |locks| locks.lock(B, key(1), Mode::X, deadline));
            let reader = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::S, patient()));
            let expected = LockError::Timeout { name: key(1), mode: Mode::X, holders: vec![Xid(100)] };
            assert_eq!(writer.join().unwrap(), Err(expected));
            assert!(reader.join().unwrap().is_ok(), "seed {seed}: A still reads, and so may C");
        });
        assert!(outcome.is_ok(), "seed {seed}: {:?}", outcome.err());
    }
}

#[test]
fn a_deadline_names_those_in_the_way_and_lets_the_next_pass() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    let error = locks.lock(C, key(1), Mode::X, Wait::Until(0)).unwrap_err();
    assert_eq!(error, LockError::Timeout { name: key(1), mode: Mode::X, holders: vec![Xid(100), Xid(101)] });
    assert_eq!(locks.held(C, key(1)), None);
    let _ = locks.lock(D, key(1), Mode::S, Wait::Try).unwrap();
    let error = locks.lock(D, key(1), Mode::X, Wait::Until(0)).unwrap_err();
    assert!(matches!(error, LockError::Timeout { holders, .. } if holders == [Xid(100), Xid(101)]));
    assert_eq!(locks.held(D, key(1)), Some(Mode::S), "a failed upgrade keeps what there was");
    assert_eq!(locks.stats().timeouts, 2);
    assert_eq!(assert_consistent(&locks), 3);
}

#[test]
fn the_youngest_of_a_deadlock_gives_way_though_it_slept_first() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
    let young = in_the_background(&locks, |locks| {
        let result = locks.lock(B, key(1), Mode::S, patient());
        locks.unlock_all(B, None);
        result
    });
    let _ = locks.lock(A, key(2), Mode::X, patient()).unwrap();
    match young.join().unwrap() {
        Err(LockError::Deadlock { cycle, victim }) => {
            assert_eq!(victim, Xid(101));
            let edges = cycle.iter().map(|e| (e.xid.0, e.waits_for.0, e.name, e.mode)).collect::<Vec<_>>();
            assert_eq!(edges, [(101, 100, key(1), Mode::S), (100, 101, key(2), Mode::X)]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(locks.stats().deadlocks, 1);
    assert_eq!(assert_consistent(&locks), 2);
}

#[test]
fn two_upgrades_that_exclude_each_other_are_a_deadlock() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    let old = in_the_background(&locks, |locks| locks.lock(A, key(1), Mode::X, patient()));
    let error = locks.lock(B, key(1), Mode::X, patient()).unwrap_err();
    assert!(matches!(error, LockError::Deadlock { ref cycle, victim: Xid(101) } if cycle.len() == 2), "{error}");
    assert_eq!(locks.held(B, key(1)), Some(Mode::S));
    locks.unlock_all(B, None);
    assert_eq!(old.join().unwrap().unwrap().previous, Some(Mode::S));
}

#[test]
fn a_deadlock_through_tables_and_keys_names_all_of_its_members() {
    let locks = small();
    let _ = locks.lock(A, table_name(1), Mode::IX, Wait::Try).unwrap();
    let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(C, key(3), Mode::X, Wait::Try).unwrap();
    let b = in_the_background(&locks, |locks| locks.lock(B, table_name(1), Mode::S, patient()));
    let a = in_the_background(&locks, |locks| locks.lock(A, key(3), Mode::U, patient()));
    let error = locks.lock(C, key(2), Mode::S, patient()).unwrap_err();
    match &error {
        LockError::Deadlock { cycle, victim } => {
            assert_eq!(*victim, Xid(102));
            assert_eq!(cycle.iter().map(|edge| edge.xid.0).collect::<Vec<_>>(), [102, 101, 100]);
        }
        other => panic!("{other}"),
    }
    locks.unlock_all(C, None);
    let _ = a.join().unwrap().unwrap();
    locks.unlock_all(A, None);
    let _ = b.join().unwrap().unwrap();
    assert_eq!(assert_consistent(&locks), 2);
}

#[test]
fn waiting_behind_a_waiter_counts_as_waiting_for_it() {
    // A reads 1; B waits to write 1; C, with 2 in hand, waits to read 1 behind B; A wants 2.
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(C, key(2), Mode::X, Wait::Try).unwrap();
    let b = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::X, patient()));
    let c = in_the_background(&locks, |locks| {
        let result = locks.lock(C, key(1), Mode::S, patient());
        locks.unlock_all(C, None);
        result
    });
    let _ = locks.lock(A, key(2), Mode::S, patient()).unwrap();
    let error = c.join().unwrap().unwrap_err();
    assert!(matches!(error, LockError::Deadlock { ref cycle, victim: Xid(102) } if cycle.len() == 3), "{error}");
    locks.unlock_all(A, None);
    let _ = b.join().unwrap().unwrap();
}

#[test]
fn calling_off_all_waits_is_sticky_until_it_is_taken_back() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::S, Wait::Until(u64::MAX)));
    locks.cancel_all_waits();
    assert_eq!(waiter.join().unwrap(), Err(LockError::Cancelled));
    assert_eq!(locks.lock(B, key(1), Mode::S, Wait::Until(u64::MAX)), Err(LockError::Cancelled));
    assert_eq!(locks.lock_instant(B, key(1), Mode::S, Wait::Until(u64::MAX)), Err(LockError::Cancelled));
    assert!(locks.lock(B, key(2), Mode::S, Wait::Until(u64::MAX)).is_ok(), "no wait, no reason to refuse");
    locks.allow_waits();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::S, patient()));
    locks.unlock_all(A, None);
    let _ = waiter.join().unwrap().unwrap();
    assert_eq!(assert_consistent(&locks), 2);
}

#[test]
fn an_instant_lock_waits_and_then_holds_nothing() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::IS, Wait::Try).unwrap();
    let fresh = in_the_background(&locks, |locks| locks.lock_instant(C, key(1), Mode::IX, patient()));
    let upgrade = in_the_background(&locks, |locks| locks.lock_instant(B, key(1), Mode::IX, patient()));
    locks.unlock_all(A, Some(Lsn(4)));
    assert_eq!(fresh.join().unwrap(), Ok(Lsn(0)), "a reader leaves no commit behind");
    assert_eq!(upgrade.join().unwrap(), Ok(Lsn(0)));
    assert_eq!((locks.held(C, key(1)), locks.held(B, key(1))), (None, Some(Mode::IS)));
    assert_eq!(assert_consistent(&locks), 1);
}

#[test]
fn a_downgrade_wakes_those_who_can_come_in_now() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let readers = [B, C].map(|owner| in_the_background(&locks, move |l| l.lock(owner, key(1), Mode::S, patient())));
    let writer = in_the_background(&locks, |locks| locks.lock(D, key(1), Mode::X, patient()));
    assert_eq!(locks.downgrade(A, key(1), Mode::S), Some(Mode::S));
    for reader in readers {
        let _ = reader.join().unwrap().unwrap();
    }
    assert!(!writer.is_finished());
    for owner in [A, B, C] {
        locks.unlock_all(owner, None);
    }
    let _ = writer.join().unwrap().unwrap();
}

/// More than a release notes, to wake them behind the latch. In virtual time.
#[test]
fn a_release_wakes_all_of_a_crowd() {
    const READERS: u32 = 100;
    sync::Scheduler::run(1, || {
        let locks = make(LockConfig { owners: READERS + 1, locks_max: 1 << 10, ..LockConfig::default() });
        let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
        let readers: Vec<_> = (1..=READERS)
            .map(|no| in_the_background(&locks, move |l| l.lock(OwnerNo(no), key(1), Mode::S, patient())))
            .collect();
        sync::sleep_ns(1_000_000_000); // By now all of them sleep.
        let released_ns = sync::now_ns();
        locks.unlock_all(A, None);
        for reader in readers {
            let _ = reader.join().unwrap().unwrap();
        }
        let woken_ns = sync::now_ns() - released_ns;
        assert!(woken_ns < 10_000_000, "the last was woken after {woken_ns} ns");
    })
    .unwrap();
}

#[test]
fn another_thread_can_give_up_all_locks_of_an_owner() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(A, table_name(1), Mode::IX, Wait::Try).unwrap();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::S, patient()));
    let survivor = std::sync::Arc::clone(&locks);
    sync::spawn("survivor", move || survivor.unlock_all(A, None)).join().unwrap();
    let _ = waiter.join().unwrap().unwrap();
    let _ = locks.lock(C, table_name(1), Mode::X, Wait::Try).unwrap();
}

/// Two that wait for each other, each with what the policy looks at; says who gave way.
fn who_gives_way(victim: Victim, a: (u64, u64, u64), b: (u64, u64, u64)) -> OwnerNo {
    let locks = make(LockConfig { owners: 2, locks_max: 64, victim, ..LockConfig::default() });
    for (owner, (age, lock_count, weight)) in [(A, a), (B, b)] {
        locks.begin(owner, Xid(age));
        locks.set_weight(owner, weight);
        for n in 0..lock_count {
            let _ = locks.lock(owner, key(100 + 100 * u64::from(owner.0) + n), Mode::X, Wait::Try).unwrap();
        }
    }
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
    let other = in_the_background(&locks, |locks| {
        let result = locks.lock(B, key(1), Mode::X, patient());
        locks.unlock_all(B, None);
        result
    });
    let mine = locks.lock(A, key(2), Mode::X, patient());
    locks.unlock_all(A, None);
    match (mine, other.join().unwrap()) {
        (Err(LockError::Deadlock { .. }), Ok(_)) => A,
        (Ok(_), Err(LockError::Deadlock { .. })) => B,
        other => panic!("one gives way, the other goes on: {other:?}"),
    }
}

#[test]
fn the_victim_is_whom_the_policy_names_whoever_found_the_deadlock() {
    for (victim, better, worse) in [
        (Victim::Youngest, (1, 0, 0), (2, 5, 900)),
        (Victim::Oldest, (2, 0, 0), (1, 5, 900)),
        (Victim::FewestLocks, (2, 5, 0), (1, 2, 900)),
        (Victim::LeastLog, (2, 0, 900), (1, 5, 100)),
    ] {
        assert_eq!(who_gives_way(victim, better, worse), B, "{victim:?}");
        assert_eq!(who_gives_way(victim, worse, better), A, "{victim:?}");
    }
}

#[test]
fn without_waiting_a_conflict_is_refused_and_changes_nothing() {
    let locks = make(LockConfig { owners: 3, locks_max: 64, conflict: Conflict::NoWait, ..LockConfig::default() });
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    for owner in [B, C] {
        match locks.lock(owner, key(1), Mode::X, patient()) {
            Err(LockError::Refused { holders, mode: Mode::X, name }) => {
                assert!(name == key(1) && holders.contains(&Xid(100)), "{holders:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((locks.held(B, key(1)), locks.held(C, key(1))), (Some(Mode::S), None));
    assert_eq!((assert_consistent(&locks), locks.stats().refusals), (2, 2));
    locks.unlock_all(A, None);
    let _ = locks.lock(B, key(1), Mode::X, patient()).unwrap();
}

#[test]
fn the_older_waits_and_the_younger_dies() {
    let locks = make(LockConfig { owners: 2, locks_max: 64, conflict: Conflict::WaitDie, ..LockConfig::default() });
    let _ = locks.lock(B, key(1), Mode::X, Wait::Try).unwrap();
    let older = in_the_background(&locks, |locks| locks.lock(A, key(1), Mode::X, patient()));
    locks.unlock_all(B, None);
    let _ = older.join().unwrap().unwrap();
    assert!(matches!(locks.lock(B, key(1), Mode::S, patient()), Err(LockError::Refused { .. })));
}

#[test]
fn who_waits_for_whom_can_be_asked() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.waits(), []);
    let first = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::S, patient()));
    let second = in_the_background(&locks, |locks| locks.lock(C, key(1), Mode::X, patient()));
    let edges = || locks.waits().iter().map(|edge| (edge.xid, edge.waits_for, edge.mode)).collect::<Vec<_>>();
    let (a, b, c) = (Xid(100), Xid(101), Xid(102));
    assert_eq!(edges(), [(b, a, Mode::S), (c, a, Mode::X), (c, b, Mode::X)]);
    locks.unlock_all(A, None);
    let _ = first.join().unwrap().unwrap();
    assert_eq!(edges(), [(c, b, Mode::X)]);
    locks.unlock_all(B, None);
    let _ = second.join().unwrap().unwrap();
    assert_eq!(edges(), []);
}

/// A thread inside A asks for a lock of C's; somebody between the two waits for A.
#[test]
fn whoever_waits_for_a_transaction_whose_thread_waits_in_another_gives_way() {
    for comes_last in [B, C] {
        let locks = small();
        let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
        let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
        let third = |locks: &std::sync::Arc<LockTable>| {
            in_the_background(locks, |locks| {
                let result = locks.lock(B, key(1), Mode::X, patient());
                locks.unlock_all(B, None);
                result
            })
        };
        // C reads behind B in one order, and waits for what B holds in the other.
        let n = if comes_last == C { 1 } else { 2 };
        let inner = move |locks: &LockTable| {
            locks.hold_up(A, C);
            let result = locks.lock(C, key(n), Mode::S, patient());
            locks.let_go(A, C);
            result
        };
        let (third, inner) = if comes_last == C {
            let third = third(&locks);
            (third, in_the_background(&locks, inner))
        } else {
            let inner = in_the_background(&locks, inner);
            (third(&locks), inner)
        };
        let error = third.join().unwrap().unwrap_err();
        assert!(matches!(error, LockError::Deadlock { ref cycle, victim: Xid(101) } if cycle.len() == 3), "{error}");
        assert!(inner.join().unwrap().is_ok(), "C came last: {}", comes_last == C);
        assert_eq!(assert_consistent(&locks), 2);
    }
}

/// Two threads, each inside one transaction and in another, want what the other's outer one holds: nobody else can give
/// way.
#[test]
fn of_two_that_hold_up_what_the_other_wants_one_gives_way() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
    let inner = |locks: &LockTable, outer, inner, n| {
        locks.hold_up(outer, inner);
        let result = locks.lock(inner, key(n), Mode::X, patient());
        locks.let_go(outer, inner);
        locks.unlock_all(inner, None);
        locks.unlock_all(outer, None);
        result
    };
    let first = in_the_background(&locks, move |locks| inner(locks, A, C, 2));
    let error = inner(&locks, B, D, 1).unwrap_err();
    assert!(matches!(error, LockError::Deadlock { ref cycle, victim: Xid(103) } if cycle.len() == 4), "{error}");
    assert!(first.join().unwrap().is_ok());
    assert_eq!(assert_consistent(&locks), 0);
}

/// Two threads use one transaction: in one it waits by itself, in the other it is held up. Both count, and whoever
/// holds it up.
#[test]
fn a_transaction_is_held_up_by_all_its_threads() {
    const E: OwnerNo = OwnerNo(4);
    const G: OwnerNo = OwnerNo(5);
    for waits_too in [true, false] {
        let locks = small();
        let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
        let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
        let _ = locks.lock(G, key(3), Mode::X, Wait::Try).unwrap();
        let inner = |inner, n| {
            in_the_background(&locks, move |locks| {
                locks.hold_up(A, inner);
                let result = locks.lock(inner, key(n), Mode::X, patient());
                locks.let_go(A, inner);
                locks.unlock_all(inner, None);
                result
            })
        };
        let first = inner(C, 2);
        let second = match waits_too {
            true => in_the_background(&locks, |locks| locks.lock(A, key(3), Mode::X, patient())),
            false => inner(E, 3),
        };
        let error = locks.lock(B, key(1), Mode::X, Wait::Until(sync::now_ns() + 5_000_000_000)).unwrap_err();
        assert!(matches!(error, LockError::Deadlock { victim: Xid(101), .. }), "{error}");
        locks.unlock_all(B, None);
        assert!(first.join().unwrap().is_ok());
        locks.unlock_all(G, None);
        assert!(second.join().unwrap().is_ok());
        locks.unlock_all(A, None);
        assert_eq!(assert_consistent(&locks), 0);
    }
}

/// What an inner transaction holds itself comes free when it gives way: it is not spared for holding up another.
#[test]
fn an_inner_transaction_that_is_waited_for_itself_is_a_victim_like_others() {
    let locks = small();
    let _ = locks.lock(B, key(2), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(C, key(1), Mode::X, Wait::Try).unwrap();
    let inner = in_the_background(&locks, |locks| {
        locks.hold_up(A, C);
        let result = locks.lock(C, key(2), Mode::X, patient());
        locks.let_go(A, C);
        locks.unlock_all(C, None);
        result
    });
    assert!(locks.lock(B, key(1), Mode::X, patient()).is_ok(), "it is older");
    assert!(matches!(inner.join().unwrap(), Err(LockError::Deadlock { victim: Xid(102), .. })));
}

/// It waits again meanwhile, and must come to the same verdict.
#[test]
fn a_victim_by_lot_stays_the_same_while_it_waits_again() {
    let locks = make(LockConfig { owners: 3, locks_max: 64, victim: Victim::Random, ..LockConfig::default() });
    let hop = |owner: OwnerNo, ticket, next| Hop {
        owner,
        waiting: Waiting { ticket, name: key(1), mode: Mode::X },
        next,
        by: next,
    };
    let mut chosen = std::collections::BTreeSet::new();
    for run in 0..30 {
        let of = |ticket| locks.victim_of(&[hop(A, ticket, B), hop(B, 0x700, C), hop(C, 0x300, A)]);
        let first = of(0x100);
        assert!((2..40).all(|n| of(n << 8) == first), "run {run}");
        chosen.insert(first);
        locks.begin(A, Xid(100)); // Run again.
    }
    assert_eq!(chosen.len(), 3, "anybody sooner or later");
}

#[test]
fn housekeeping_waits_where_users_are_refused() {
    let locks = make(LockConfig { owners: 3, locks_max: 64, conflict: Conflict::NoWait, ..LockConfig::default() });
    locks.begin(B, Xid(200)); // Says nothing about deadlocks.
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let waiter = in_the_background(&locks, |locks| locks.lock(B, key(1), Mode::X, patient()));
    assert!(matches!(locks.lock(C, key(1), Mode::S, patient()), Err(LockError::Refused { .. })));
    locks.unlock_all(A, None);
    let _ = waiter.join().unwrap().unwrap();
}
