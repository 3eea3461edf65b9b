//! A lock manager that grants everything: for one transaction at a time, or for programs that keep their transactions
//! apart by design (Lemon 4.1).
//!
//! N1. Nothing is isolated. Two transactions that change one record see each other's values, and a rollback of one may
//!     find a record that it cannot put back, which fails the environment (reopening recovers). Nothing worse can
//!     happen.
//! N2. A caller that asks what others hold is told the worst case: while an owner runs that may have written, any key
//!     may be locked exclusively. That is one that has asked for a writer's lock on a key, or for a whole table
//!     exclusively, since it writes there without asking for more. So nothing that a rollback needs is purged, or
//!     passed over as dead.
//! N3. An owner that is granted a lock depends on the newest commit of all: its data may have been met.
//!
//! What it does not do: wait, refuse, search.

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use ledgerstone_region::{Handle, Region, RegionError};

use crate::{Grant, LockError, LockManager, LockName, LockStats, Mode, OwnerNo, Wait};

/// Grants every request at once and remembers none.
pub struct NoLocks {
    /// Owners that may have written (N2); 1 for each that may.
    wrote: Handle<[AtomicU32]>,
    /// How many of those there are, and the newest commit (N3).
    shared: Handle<[AtomicU64]>,
}

const WRITERS: usize = 0;
const NEWEST_COMMIT: usize = 1;

impl NoLocks {
    /// Makes one for owners numbered below `owner_count`.
    ///
    /// # Errors
    /// The region has no room for 4 bytes an owner and two cache lines.
    pub fn create(region: &Region, owner_count: u32) -> Result<NoLocks, RegionError> {
        let wrote = region.handle_slice(region.alloc::<AtomicU32>(u64::from(owner_count.max(1)), 64)?)?;
        let shared = region.handle_slice(region.alloc::<AtomicU64>(8, 64)?)?;
        Ok(NoLocks { wrote, shared })
    }

    fn grant(&self, owner: OwnerNo, name: LockName, mode: Mode) -> Lsn {
        let may_write = if name.is_table() { mode == Mode::X } else { mode.may_write() };
        if may_write && self.wrote[owner.0 as usize].swap(1, Relaxed) == 0 {
            // SeqCst: before the owner changes a page, and so before a thread that latches that page afterwards asks.
            self.shared[WRITERS].fetch_add(1, SeqCst);
        }
        Lsn(self.shared[NEWEST_COMMIT].load(Acquire))
    }
}

impl LockManager for NoLocks {
    fn isolates(&self) -> bool {
        false
    }

    fn begin(&self, _owner: OwnerNo, _age: Xid) {}

    fn lock(&self, owner: OwnerNo, name: LockName, mode: Mode, _wait: Wait) -> Result<Grant, LockError> {
        Ok(Grant { newly: true, previous: None, depends: self.grant(owner, name, mode) })
    }

    fn lock_instant(&self, owner: OwnerNo, name: LockName, mode: Mode, _wait: Wait) -> Result<Lsn, LockError> {
        Ok(self.grant(owner, name, mode))
    }

    fn held(&self, _owner: OwnerNo, _name: LockName) -> Option<Mode> {
        None
    }

    fn held_by_any(&self, name: LockName) -> Option<Mode> {
        // N2. Of a table it is an intention: an exclusive lock would speak for all its keys, which nobody has asked
        //     for.
        let has_writers = self.shared[WRITERS].load(SeqCst) > 0;
        has_writers.then_some(if name.is_table() { Mode::IX } else { Mode::X })
    }

    fn depends(&self, _name: LockName) -> Lsn {
        Lsn(self.shared[NEWEST_COMMIT].load(Acquire))
    }

    fn downgrade(&self, _owner: OwnerNo, _name: LockName, _to: Mode) -> Option<Mode> {
        None
    }

    fn unlock(&self, _owner: OwnerNo, _name: LockName) -> Option<Mode> {
        None
    }

    fn unlock_all(&self, owner: OwnerNo, commit_lsn: Option<Lsn>) {
        if let Some(lsn) = commit_lsn {
            self.shared[NEWEST_COMMIT].fetch_max(lsn.0, SeqCst);
        }
        if self.wrote[owner.0 as usize].swap(0, Relaxed) == 1 {
            self.shared[WRITERS].fetch_sub(1, SeqCst);
        }
    }

    fn for_each_held(&self, _owner: OwnerNo, _visit: &mut dyn FnMut(LockName, Mode)) {}

    fn cancel_all_waits(&self) {}

    fn allow_waits(&self) {}

    fn stats(&self) -> LockStats {
        LockStats::default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ledgerstone_page::TableId;

    use super::*;

    const ALICE: OwnerNo = OwnerNo(0);
    const BOB: OwnerNo = OwnerNo(1);

    fn manager() -> NoLocks {
        NoLocks::create(&Region::anonymous(1 << 16).expect("a small region"), 2).expect("it fits")
    }

    #[test]
    fn two_writers_of_one_record_are_both_let_by() {
        let (locks, key) = (manager(), LockName::key(TableId(5), 1));
        for owner in [ALICE, BOB] {
            assert!(locks.lock(owner, key, Mode::X, Wait::Try).is_ok());
        }
    }

    #[test]
    fn while_a_writer_runs_every_key_may_be_locked() {
        let (locks, table) = (manager(), TableId(5));
        let _ = locks.lock(ALICE, LockName::table(table), Mode::IX, Wait::Try).expect("granted");
        assert_eq!(locks.held_by_any(LockName::key(table, 9)), None, "an intention alone has changed nothing");
        let _ = locks.lock(ALICE, LockName::key(table, 1), Mode::X, Wait::Try).expect("granted");
        assert_eq!(locks.held_by_any(LockName::key(table, 9)), Some(Mode::X));
        assert_eq!(locks.held_by_any(LockName::table(table)), Some(Mode::IX));
        locks.unlock_all(ALICE, Some(Lsn(800)));
        assert_eq!(locks.held_by_any(LockName::key(table, 9)), None);
    }

    #[test]
    fn who_has_a_whole_table_to_itself_is_a_writer() {
        let (locks, table) = (manager(), TableId(5));
        for mode in [Mode::IS, Mode::IX, Mode::S, Mode::SIX, Mode::U] {
            let _ = locks.lock(ALICE, LockName::table(table), mode, Wait::Try).expect("granted");
            assert_eq!(
                locks.held_by_any(LockName::key(table, 9)),
                None,
                "{mode} lets it write with locks on keys only"
            );
        }
        let _ = locks.lock(ALICE, LockName::table(table), Mode::X, Wait::Try).expect("granted");
        let _ = locks.lock(BOB, LockName::key(table, 1), Mode::X, Wait::Try).expect("granted");
        for owner in [ALICE, BOB] {
            assert_eq!(locks.held_by_any(LockName::key(table, 9)), Some(Mode::X));
            assert_eq!(locks.held_by_any(LockName::table(table)), Some(Mode::IX));
            locks.unlock_all(owner, None);
        }
        assert_eq!(locks.held_by_any(LockName::key(table, 9)), None);
    }

    #[test]
    fn whoever_comes_later_depends_on_the_newest_commit() {
        let (locks, key) = (manager(), LockName::key(TableId(5), 1));
        locks.unlock_all(ALICE, Some(Lsn(800)));
        locks.unlock_all(ALICE, Some(Lsn(400)));
        assert_eq!(locks.lock(BOB, key, Mode::S, Wait::Try).expect("granted").depends, Lsn(800));
        assert_eq!(locks.lock_instant(BOB, key, Mode::S, Wait::Try), Ok(Lsn(800)));
    }
}
