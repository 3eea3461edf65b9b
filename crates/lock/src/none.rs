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
//! N4. Each owner that may have written has a bit of its own. The bit is set and cleared by one store, so a death
//!     leaves nothing to repair. The bits of the dead stay until somebody ends their transactions.
//!
//! What it does not do: wait, refuse, search.

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use ledgerstone_region::{AnotherDied, Dead, Handle, Region, RegionError, Repair};

use crate::{Grant, LockError, LockManager, LockName, LockStats, Mode, OwnerNo, Wait};

/// Grants every request at once and remembers none.
pub struct NoLocks {
    /// A bit for each owner: whether it may have written (N2, N4).
    writers: Handle<[AtomicU64]>,
    /// The newest commit (N3), alone in its line.
    newest_commit: Handle<[AtomicU64]>,
}

impl NoLocks {
    /// That of `region`, for owners numbered below `owner_count`.
    ///
    /// # Errors
    /// As [`Region::place`]: a bit an owner and two cache lines.
    pub fn place(region: &Region, owner_count: u32) -> Result<NoLocks, RegionError> {
        let words = u64::from(owner_count.max(1)).div_ceil(64).next_multiple_of(8);
        let writers = region.place::<AtomicU64>("no_locks.writers", words, 64)?;
        let newest_commit = region.place::<AtomicU64>("no_locks.newest", 8, 64)?;
        Ok(NoLocks { writers, newest_commit })
    }

    /// Where the owner's bit is.
    fn bit(&self, owner: OwnerNo) -> (&AtomicU64, u64) {
        (&self.writers[owner.0 as usize / 64], 1 << (owner.0 % 64))
    }

    fn grant(&self, owner: OwnerNo, name: LockName, mode: Mode) -> Lsn {
        let may_write = if name.is_table() { mode == Mode::X } else { mode.may_write() };
        let (word, bit) = self.bit(owner);
        if may_write && word.load(Relaxed) & bit == 0 {
            // SeqCst: before the owner changes a page, and so before a thread that latches that page afterwards asks.
            word.fetch_or(bit, SeqCst);
        }
        Lsn(self.newest_commit[0].load(Acquire))
    }
}

impl Repair for NoLocks {
    /// N4.
    fn repair(&self, _dead: &Dead<'_>) -> Result<(), AnotherDied> {
        Ok(())
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
        let has_writers = self.writers.iter().any(|word| word.load(SeqCst) != 0);
        has_writers.then_some(if name.is_table() { Mode::IX } else { Mode::X })
    }

    fn depends(&self, _name: LockName) -> Lsn {
        Lsn(self.newest_commit[0].load(Acquire))
    }

    fn downgrade(&self, _owner: OwnerNo, _name: LockName, _to: Mode) -> Option<Mode> {
        None
    }

    fn unlock(&self, _owner: OwnerNo, _name: LockName) -> Option<Mode> {
        None
    }

    fn unlock_all(&self, owner: OwnerNo, commit_lsn: Option<Lsn>) {
        if let Some(lsn) = commit_lsn {
            self.newest_commit[0].fetch_max(lsn.0, SeqCst);
        }
        let (word, bit) = self.bit(owner);
        if word.load(Relaxed) & bit != 0 {
            word.fetch_and(!bit, SeqCst);
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
        NoLocks::place(&Region::anonymous(1 << 16).expect("a small region"), 2).expect("it fits")
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
