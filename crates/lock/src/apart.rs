//! The locks of one table really held, under a manager that keeps nobody apart.
//!
//! A1. A program cannot give up the locks that an environment takes for its own housekeeping. By those on deferred
//!     frees the transactions take turns in which pages leave trees. Without them two would free the same pages.

use std::sync::Arc;

use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::{AnotherDied, Dead, Repair, SlotNo};

use crate::{DeadlockEdge, Grant, LockError, LockManager, LockName, LockStats, LockTable, Mode, OwnerNo, Wait};

/// Hands requests for names of one table to a lock table, and all others to a manager of any kind.
pub struct Apart {
    table: TableId,
    kept: LockTable,
    others: Arc<dyn LockManager>,
}

impl Apart {
    /// Keeps the locks of `table` in `kept`, which is made for the same owners as `others`.
    #[must_use]
    pub fn new(table: TableId, kept: LockTable, others: Arc<dyn LockManager>) -> Apart {
        Apart { table, kept, others }
    }

    fn of(&self, name: LockName) -> &dyn LockManager {
        if name.table_id() == self.table { &self.kept } else { &*self.others }
    }
}

impl Repair for Apart {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        self.others.repair(dead)?;
        self.kept.repair(dead)
    }
}

impl LockManager for Apart {
    fn begin(&self, owner: OwnerNo, age: Xid) {
        self.kept.begin(owner, age);
        self.others.begin(owner, age);
    }

    /// As of the manager of all other names.
    fn isolates(&self) -> bool {
        self.others.isolates()
    }

    fn lock(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Grant, LockError> {
        self.of(name).lock(owner, name, mode, wait)
    }

    fn lock_instant(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Lsn, LockError> {
        self.of(name).lock_instant(owner, name, mode, wait)
    }

    fn held(&self, owner: OwnerNo, name: LockName) -> Option<Mode> {
        self.of(name).held(owner, name)
    }

    fn held_by_any(&self, name: LockName) -> Option<Mode> {
        self.of(name).held_by_any(name)
    }

    fn depends(&self, name: LockName) -> Lsn {
        self.of(name).depends(name)
    }

    fn downgrade(&self, owner: OwnerNo, name: LockName, to: Mode) -> Option<Mode> {
        self.of(name).downgrade(owner, name, to)
    }

    fn unlock(&self, owner: OwnerNo, name: LockName) -> Option<Mode> {
        self.of(name).unlock(owner, name)
    }

    fn unlock_keys(&self, owner: OwnerNo, table: TableId) -> u32 {
        self.of(LockName::table(table)).unlock_keys(owner, table)
    }

    fn free_count(&self) -> u32 {
        self.kept.free_count().min(self.others.free_count())
    }

    fn unlock_all(&self, owner: OwnerNo, commit_lsn: Option<Lsn>) {
        self.others.unlock_all(owner, commit_lsn);
        self.kept.unlock_all(owner, commit_lsn);
    }

    fn for_each_held(&self, owner: OwnerNo, visit: &mut dyn FnMut(LockName, Mode)) {
        self.others.for_each_held(owner, visit);
        self.kept.for_each_held(owner, visit);
    }

    fn cancel_all_waits(&self) {
        self.others.cancel_all_waits();
        self.kept.cancel_all_waits();
    }

    fn allow_waits(&self) {
        self.others.allow_waits();
        self.kept.allow_waits();
    }

    fn may_avoid_deadlocks(&self) -> bool {
        self.others.may_avoid_deadlocks() || self.kept.may_avoid_deadlocks()
    }

    fn avoid_deadlocks(&self, owner: OwnerNo) {
        self.others.avoid_deadlocks(owner);
        self.kept.avoid_deadlocks(owner);
    }

    fn is_held_up_by(&self, thread: SlotNo) -> bool {
        self.others.is_held_up_by(thread) || self.kept.is_held_up_by(thread)
    }

    fn adopt(&self, owner: OwnerNo, thread: SlotNo) {
        self.others.adopt(owner, thread);
        self.kept.adopt(owner, thread);
    }

    fn set_weight(&self, owner: OwnerNo, weight: u64) {
        self.others.set_weight(owner, weight);
        self.kept.set_weight(owner, weight);
    }

    fn hold_up(&self, outer: OwnerNo, by: OwnerNo) {
        self.others.hold_up(outer, by);
        self.kept.hold_up(outer, by);
    }

    fn let_go(&self, outer: OwnerNo, by: OwnerNo) {
        self.others.let_go(outer, by);
        self.kept.let_go(outer, by);
    }

    fn awaits_end(&self, waiter: OwnerNo, of: OwnerNo) -> bool {
        self.others.awaits_end(waiter, of) || self.kept.awaits_end(waiter, of)
    }

    fn detect(&self) -> u32 {
        self.others.detect() + self.kept.detect()
    }

    fn waits(&self) -> Vec<DeadlockEdge> {
        [self.others.waits(), self.kept.waits()].concat()
    }

    /// Those of the manager of all other names.
    fn stats(&self) -> LockStats {
        self.others.stats()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ledgerstone_region::sync::deaths::{kill, spawn_in};
    use ledgerstone_region::sync::{self, Scheduler};
    use ledgerstone_region::{Region, SlotTable};

    use super::*;
    use crate::{LockConfig, NoLocks};

    /// A process dies with a lock of either kind. Whoever repairs has both, and gives them up.
    #[test]
    fn a_repair_is_one_of_both_managers() {
        let outcome = Scheduler::run(1, || {
            let config = LockConfig { owners: 2, locks_max: 64, ..LockConfig::default() };
            let region = Region::anonymous(config.region_bytes() + (1 << 16)).expect("a small region");
            let slots = Arc::new(SlotTable::place(&region, 4).expect("it fits"));
            let kept = LockTable::place(&region, &slots, config).expect("it fits");
            let others = NoLocks::place(&region, 2).expect("it fits");
            let locks = Arc::new(Apart::new(TableId(2), kept, Arc::new(others)));
            let (kept_key, other_key) = (LockName::key(TableId(2), 7), LockName::key(TableId(3), 7));
            let (owner, there) = (OwnerNo(0), Arc::clone(&locks));
            let victim = spawn_in(1, "victim", move || {
                there.begin(owner, Xid(1));
                for key in [kept_key, other_key] {
                    let _ = there.lock(owner, key, Mode::X, Wait::Try).expect("it is free");
                }
                kill(1);
            });
            assert!(victim.join().is_err_and(|panic| panic.is_released()), "it dies");
            while !slots.repair(|dead| locks.repair(dead)).expect("a slot is free") {
                sync::sleep_ns(100_000);
            }
            assert_eq!(locks.held(owner, kept_key), Some(Mode::X));
            assert_eq!(locks.held_by_any(other_key), Some(Mode::X));
            locks.adopt(owner, slots.current());
            locks.unlock_all(owner, None);
            assert_eq!((locks.held_by_any(kept_key), locks.held_by_any(other_key)), (None, None));
        });
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    #[test]
    fn locks_of_the_table_are_held_and_all_others_are_not() {
        let config = LockConfig { owners: 2, locks_max: 64, ..LockConfig::default() };
        let region = Region::anonymous(config.region_bytes() + (1 << 16)).expect("a small region");
        let slots = Arc::new(SlotTable::place(&region, 2).expect("it fits"));
        let kept = LockTable::place(&region, &slots, config).expect("it fits");
        let others = NoLocks::place(&region, 2).expect("it fits");
        let locks = Apart::new(TableId(2), kept, Arc::new(others));
        let (alice, bob) = (OwnerNo(0), OwnerNo(1));
        locks.begin(alice, Xid(1));
        locks.begin(bob, Xid(2));
        for (table, is_kept) in [(TableId(2), true), (TableId(3), false)] {
            let key = LockName::key(table, 7);
            assert!(locks.lock(alice, key, Mode::X, Wait::Try).is_ok());
            assert_eq!(locks.held(alice, key), is_kept.then_some(Mode::X));
            assert_eq!(locks.lock(bob, key, Mode::X, Wait::Try).is_err(), is_kept);
        }
        let mut held = Vec::new();
        locks.for_each_held(alice, &mut |name, mode| held.push((name, mode)));
        assert_eq!(held, [(LockName::key(TableId(2), 7), Mode::X)]);
        locks.unlock_all(alice, None);
        assert!(locks.lock(bob, LockName::key(TableId(2), 7), Mode::X, Wait::Try).is_ok());
        assert!(!locks.isolates());
    }
}
