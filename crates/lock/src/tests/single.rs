//! What one thread can see.

use ledgerstone_page::{Lsn, TableId, Xid};

use super::{key, make, small, table_name};
use crate::check::assert_consistent;
use crate::{LockConfig, LockError, LockManager, LockName, Mode, OwnerNo, Wait};

const A: OwnerNo = OwnerNo(0);
const B: OwnerNo = OwnerNo(1);
const C: OwnerNo = OwnerNo(2);

#[test]
fn a_request_that_would_wait_changes_nothing() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.lock(B, key(1), Mode::S, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.lock_instant(B, key(1), Mode::IX, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.held(B, key(1)), None);
    assert_eq!(assert_consistent(&locks), 1);
}

#[test]
fn asking_again_raises_to_the_supremum_and_says_what_was_held() {
    let locks = small();
    let first = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    assert_eq!((first.newly, first.previous), (true, None));
    let second = locks.lock(A, key(1), Mode::IX, Wait::Try).unwrap();
    assert_eq!((second.newly, second.previous), (false, Some(Mode::S)));
    assert_eq!(locks.held(A, key(1)), Some(Mode::SIX));
    let third = locks.lock(A, key(1), Mode::IS, Wait::Try).unwrap();
    assert_eq!((third.previous, locks.held(A, key(1))), (Some(Mode::SIX), Some(Mode::SIX)));
    assert_eq!(assert_consistent(&locks), 1);
    locks.unlock_all(A, None);
    assert_eq!(assert_consistent(&locks), 0);
}

#[test]
fn an_updater_comes_in_beside_readers_and_keeps_new_ones_out() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(B, key(1), Mode::U, Wait::Try).unwrap();
    assert_eq!(locks.lock(C, key(1), Mode::S, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.lock(C, key(1), Mode::U, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.lock(B, key(1), Mode::X, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.held(B, key(1)), Some(Mode::U));
    locks.unlock_all(A, None);
    let _ = locks.lock(B, key(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.held_by_any(key(1)), Some(Mode::X));
}

#[test]
fn a_downgrade_lets_others_in_and_never_raises() {
    let locks = small();
    assert_eq!(locks.downgrade(A, key(1), Mode::S), None);
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.downgrade(A, key(1), Mode::S), Some(Mode::S));
    let _ = locks.lock(B, key(1), Mode::S, Wait::Try).unwrap();
    assert_eq!(locks.downgrade(A, key(1), Mode::X), Some(Mode::S));
    assert_eq!(locks.downgrade(A, key(1), Mode::IX), Some(Mode::S), "IX is not less than S");
    assert_eq!(assert_consistent(&locks), 2);
}

#[test]
fn an_instant_lock_leaves_nothing_behind() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    assert_eq!(locks.lock_instant(A, key(1), Mode::IX, Wait::Try), Ok(Lsn(0)));
    assert_eq!(locks.held(A, key(1)), Some(Mode::S));
    assert_eq!(locks.lock_instant(B, key(2), Mode::X, Wait::Try), Ok(Lsn(0)));
    assert_eq!(locks.lock_instant(B, table_name(3), Mode::X, Wait::Try), Ok(Lsn(0)));
    assert_eq!(locks.lock_instant(B, table_name(3), Mode::IX, Wait::Try), Ok(Lsn(0)));
    assert_eq!((locks.held_by_any(key(2)), locks.held_by_any(table_name(3))), (None, None));
    assert_eq!(assert_consistent(&locks), 1);
}

#[test]
fn unlock_gives_up_one_lock_and_unlock_all_the_rest() {
    let locks = small();
    for n in 0..10 {
        let _ = locks.lock(A, key(n), Mode::X, Wait::Try).unwrap();
    }
    let _ = locks.lock(A, table_name(1), Mode::IX, Wait::Try).unwrap();
    assert_eq!(locks.unlock(A, key(4)), Some(Mode::X));
    assert_eq!(locks.unlock(A, key(4)), None);
    let mut held = Vec::new();
    locks.for_each_held(A, &mut |name, mode| held.push((name, mode)));
    let expected = [9, 8, 7, 6, 5, 3, 2, 1, 0].map(|n| (key(n), Mode::X));
    assert_eq!(held[0], (table_name(1), Mode::IX));
    assert_eq!(held[1..], expected);
    assert_eq!(locks.unlock(A, table_name(1)), Some(Mode::IX));
    locks.unlock_all(A, None);
    assert_eq!(assert_consistent(&locks), 0);
    locks.begin(A, Xid(900));
}

#[test]
fn whoever_comes_after_a_writer_depends_on_its_commit() {
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let _ = locks.lock(A, key(2), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(A, table_name(1), Mode::IX, Wait::Try).unwrap();
    locks.unlock_all(A, Some(Lsn(77)));
    assert_eq!(locks.lock(B, key(1), Mode::S, Wait::Try).unwrap().depends, Lsn(77));
    assert_eq!(locks.lock_instant(C, key(1), Mode::S, Wait::Try), Ok(Lsn(77)));
    assert_eq!(locks.lock(B, table_name(1), Mode::S, Wait::Try).unwrap().depends, Lsn(77));
    let _ = locks.lock(C, key(5), Mode::X, Wait::Try).unwrap();
    locks.unlock_all(C, Some(Lsn(50)));
    assert_eq!(locks.lock(B, key(1), Mode::S, Wait::Try).unwrap().depends, Lsn(77), "never goes down");
}

#[test]
fn a_reader_leaves_no_commit_behind() {
    let locks =
        make(LockConfig { owners: 2, locks_max: 8, buckets: 1, fast_intentions: true, ..LockConfig::default() });
    let _ = locks.lock(A, key(1), Mode::S, Wait::Try).unwrap();
    let _ = locks.lock(A, table_name(1), Mode::IS, Wait::Try).unwrap();
    locks.unlock_all(A, Some(Lsn(77)));
    assert_eq!(locks.lock(B, key(1), Mode::X, Wait::Try).unwrap().depends, Lsn(0));
    assert_eq!(locks.lock(B, table_name(1), Mode::X, Wait::Try).unwrap().depends, Lsn(0));
}

#[test]
fn a_full_table_is_an_error_and_works_again_when_locks_are_given_up() {
    let locks =
        make(LockConfig { owners: 3, locks_max: 40, buckets: 4, fast_intentions: true, ..LockConfig::default() });
    let mut granted = 0;
    let full = loop {
        match locks.lock(A, key(granted), Mode::S, Wait::Try) {
            Ok(_) => granted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, LockError::TableFull { locks_max: 40 });
    assert!(granted >= 40, "the budget is {granted}");
    assert_eq!(assert_consistent(&locks) as u64, granted);
    assert_eq!(locks.stats().table_full, 1);
    assert!(locks.lock(A, key(0), Mode::X, Wait::Try).is_ok(), "an upgrade needs no node");
    locks.unlock_all(A, None);
    for n in 0..40 {
        let _ = locks.lock(B, key(n), Mode::X, Wait::Try).unwrap();
    }
    assert_eq!(assert_consistent(&locks), 40);
}

#[test]
fn what_idle_owners_keep_does_not_come_off_the_budget() {
    let locks =
        make(LockConfig { owners: 20, locks_max: 100, buckets: 8, fast_intentions: true, ..LockConfig::default() });
    for owner in 0..20 {
        for n in 0..16 {
            let _ = locks.lock(OwnerNo(owner), key(n), Mode::S, Wait::Try).unwrap();
        }
    }
    for owner in 0..20 {
        locks.unlock_all(OwnerNo(owner), None);
    }
    for n in 0..100 {
        let _ = locks.lock(A, key(n), Mode::S, Wait::Try).unwrap();
    }
    assert_eq!(assert_consistent(&locks), 100);
}

#[test]
fn intentions_need_no_node_until_somebody_wants_the_table() {
    let locks = small();
    for owner in [A, B, C] {
        let grant = locks.lock(owner, table_name(5), Mode::IS, Wait::Try).unwrap();
        assert_eq!((grant.newly, grant.previous), (true, None));
    }
    let grant = locks.lock(A, table_name(5), Mode::IX, Wait::Try).unwrap();
    assert_eq!((grant.newly, grant.previous), (false, Some(Mode::IS)));
    assert_eq!(assert_consistent(&locks), 0);
    assert_eq!(locks.held_by_any(table_name(5)), Some(Mode::IX));
    assert_eq!(locks.lock(B, table_name(5), Mode::S, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(assert_consistent(&locks), 3, "they stand in the queue now");
    assert_eq!(locks.stats().intentions_collected, 3);
    assert_eq!(locks.downgrade(A, table_name(5), Mode::IS), Some(Mode::IS));
    let grant = locks.lock(B, table_name(5), Mode::S, Wait::Try).unwrap();
    assert_eq!(grant.previous, Some(Mode::IS));
    assert_eq!(locks.lock(A, table_name(5), Mode::IX, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(locks.lock(A, table_name(6), Mode::IX, Wait::Try).unwrap().previous, None);
    assert_eq!(locks.held(A, table_name(5)), Some(Mode::IS));
    for owner in [A, B, C] {
        locks.unlock_all(owner, None);
    }
    assert_eq!(assert_consistent(&locks), 0);
    let _ = locks.lock(A, table_name(5), Mode::IX, Wait::Try).unwrap();
    assert_eq!(assert_consistent(&locks), 0, "no node again once the strong request is gone");
}

#[test]
fn more_tables_than_words_are_locked_all_the_same() {
    let locks = small();
    for n in 0..20 {
        let _ = locks.lock(A, table_name(n), Mode::IX, Wait::Try).unwrap();
    }
    for n in 0..20 {
        assert_eq!(locks.held(A, table_name(n)), Some(Mode::IX));
        assert_eq!(locks.lock(B, table_name(n), Mode::S, Wait::Try), Err(LockError::WouldBlock));
        assert_eq!(locks.held(A, table_name(n)), Some(Mode::IX));
    }
    assert_eq!(assert_consistent(&locks), 20);
    locks.unlock_all(A, None);
    assert_eq!(assert_consistent(&locks), 0);
}

#[test]
fn an_owner_may_want_more_on_a_table_it_has_an_intention_on() {
    let locks = small();
    let _ = locks.lock(A, table_name(1), Mode::IX, Wait::Try).unwrap();
    let grant = locks.lock(A, table_name(1), Mode::S, Wait::Try).unwrap();
    assert_eq!(grant.previous, Some(Mode::IX));
    assert_eq!(locks.held(A, table_name(1)), Some(Mode::SIX));
    let _ = locks.lock(A, table_name(1), Mode::X, Wait::Try).unwrap();
    assert_eq!(locks.lock(B, table_name(1), Mode::IS, Wait::Try), Err(LockError::WouldBlock));
    assert_eq!(assert_consistent(&locks), 1);
    assert_eq!(locks.unlock(A, table_name(1)), Some(Mode::X));
    assert_eq!(assert_consistent(&locks), 0);
}

#[test]
fn one_bucket_is_enough() {
    let locks =
        make(LockConfig { owners: 2, locks_max: 64, buckets: 1, fast_intentions: false, ..LockConfig::default() });
    for n in 0..30 {
        let _ = locks.lock(A, key(n), Mode::X, Wait::Try).unwrap();
        let _ = locks.lock(A, LockName::gap(TableId(7), n), Mode::S, Wait::Try).unwrap();
    }
    for n in (0..30).rev() {
        assert_eq!(locks.held(A, key(n)), Some(Mode::X));
        assert_eq!(locks.unlock(A, LockName::gap(TableId(7), n)), Some(Mode::S));
    }
    assert_eq!(assert_consistent(&locks), 30);
}

#[test]
#[should_panic(expected = "still holds locks")]
fn an_owner_that_holds_locks_cannot_begin() {
    let locks = small();
    let _ = locks.lock(A, table_name(1), Mode::IS, Wait::Try);
    locks.begin(A, Xid(3));
}

#[test]
fn names_and_errors_say_what_they_are() {
    assert_eq!(table_name(4).to_string(), "table 4");
    assert_eq!(key(255).to_string(), "key 0xff of table 7");
    let locks = small();
    let _ = locks.lock(A, key(1), Mode::X, Wait::Try).unwrap();
    let error = locks.lock(B, key(1), Mode::S, Wait::Until(0)).unwrap_err();
    assert!(error.to_string().starts_with("timed out waiting for S on key 0x1 of table 7, blocked by "), "{error}");
}

/// A program may have locked keys by itself: what the lock on the table does not stand for stays.
#[test]
fn locks_on_keys_that_the_lock_on_the_table_does_not_cover_stay() {
    for (whole, stays) in [(Mode::S, true), (Mode::SIX, true), (Mode::U, true), (Mode::X, false)] {
        let locks = small();
        let (a, table) = (OwnerNo(0), LockName::table(TableId(7)));
        let held = [(key(1), Mode::X), (key(2), Mode::S), (key(3), Mode::U), (LockName::gap(TableId(7), 4), Mode::S)];
        for (name, mode) in held {
            let _ = locks.lock(a, name, mode, Wait::Try).unwrap();
        }
        let _ = locks.lock(a, table, whole, Wait::Try).unwrap();
        assert_eq!(locks.unlock_keys(a, TableId(7)), if stays { 2 } else { 4 }, "{whole}");
        let left = held.map(|(name, _)| locks.held(a, name));
        assert_eq!(left, if stays { [Some(Mode::X), None, Some(Mode::U), None] } else { [None; 4] }, "{whole}");
    }
}
