//! What a lock manager promises, whichever it is.
//!
//! An owner is a running transaction, by its number in the transaction table. All calls for one owner come from one
//! thread at a time; calls for different owners run at the same time, from any process that shares the region.

use std::fmt;

#[cfg(not(loom))]
use ledgerstone_page::Xid;
use ledgerstone_page::{Lsn, TableId};
#[cfg(not(loom))]
use ledgerstone_region::{Repair, SlotNo};

use crate::Mode;
#[cfg(not(loom))]
use crate::{DeadlockEdge, LockError};

/// Index of a transaction in the transaction table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerNo(pub u32);

impl fmt::Display for OwnerNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner {}", self.0)
    }
}

/// What is locked. The manager compares names and knows only one thing about them: tables ([`LockName::is_table`]) are
/// often locked by many owners at once with intentions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    /// Table id << 2 | kind (0 table, 1 key, 2 gap, 3 other).
    pub space: u64,
    /// The item in it: the hash of a key, or 0 for a table.
    pub item: u64,
}

impl LockName {
    /// A whole table.
    #[inline]
    #[must_use]
    pub const fn table(table: TableId) -> LockName {
        LockName { space: table.0 << 2, item: 0 }
    }

    /// A key of a table, by its hash.
    #[inline]
    #[must_use]
    pub const fn key(table: TableId, hash: u64) -> LockName {
        LockName { space: table.0 << 2 | 1, item: hash }
    }

    /// The gap before a key, by its hash.
    #[inline]
    #[must_use]
    pub const fn gap(table: TableId, hash: u64) -> LockName {
        LockName { space: table.0 << 2 | 2, item: hash }
    }

    /// Something else that belongs to a table, such as its end.
    #[inline]
    #[must_use]
    pub const fn other(table: TableId, item: u64) -> LockName {
        LockName { space: table.0 << 2 | 3, item }
    }

    /// True if this names a key, a gap or a page, for which a lock on its table can stand. Item 0 of the fourth kind is
    /// not a page with records, but something that a structure locks for itself.
    #[inline]
    #[must_use]
    pub const fn is_part(self) -> bool {
        matches!(self.space & 3, 1 | 2) || (self.space & 3 == 3 && self.item != 0)
    }

    /// The table that this names, or a part of it.
    #[must_use]
    pub const fn table_id(self) -> TableId {
        TableId(self.space >> 2)
    }

    /// Whether this names a whole table.
    #[inline]
    #[must_use]
    pub const fn is_table(self) -> bool {
        self.space & 3 == 0 && self.item == 0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.space >> 2;
        match self.space & 3 {
            0 if self.item == 0 => write!(f, "table {table}"),
            0 => write!(f, "table {table} part {:#x}", self.item),
            1 => write!(f, "key {:#x} of table {table}", self.item),
            2 => write!(f, "gap {:#x} of table {table}", self.item),
            _ => write!(f, "item {:#x} of table {table}", self.item),
        }
    }
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: allowed under page latches.
    Try,
    /// Wait until this time of `region::sync::now_ns`. With `u64::MAX` the wait has no end, except in a deadlock. The
    /// caller may hold no latch.
    Until(u64),
}

/// A granted lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reader under the lock depends on the commit in `depends`"]
pub struct Grant {
    /// The owner held nothing on this name before.
    pub newly: bool,
    /// The mode that the owner held before. It now holds the supremum of that mode and the request.
    pub previous: Option<Mode>,
    /// An LSN that this owner depends on: an owner that was granted the lock may not end as durable before the commit
    /// at this LSN is. It is at least the largest commit LSN of a writer that gave up a conflicting lock on this name
    /// before its commit was durable. [`Lsn`] 0 means that there was none.
    pub depends: Lsn,
}

/// Counters of a lock table. Nothing is counted on the path of a lock that is granted at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that ended as the victim of a deadlock.
    pub deadlocks: u64,
    /// Requests that ended at their deadline.
    pub timeouts: u64,
    /// Requests refused because the nodes ran out.
    pub table_full: u64,
    /// Deadlock searches.
    pub searches: u64,
    /// Requests refused to avoid a deadlock.
    pub refusals: u64,
    /// Requests that were granted before an older one, which had been granted the lock but had not woken up yet.
    pub passes: u64,
    /// Intentions on tables that were turned into queue entries because another owner wanted the whole table.
    pub intentions_collected: u64,
    /// The budget.
    pub locks_max: u64,
    /// Nodes out of the shared free lists: held, waiting, or kept ready by an owner (up to 16 each).
    pub nodes_taken: u64,
}

/// Who may touch what, and who waits for whom.
///
/// Promises, for every implementation:
///
/// L1. Two owners hold one name at the same time only in compatible modes ([`Mode::is_compatible_with`], with the
///     earlier grant as `held`).
/// L2. Conflicting requests for one name are granted the oldest transaction first. An owner that holds a lock and wants
///     more goes before owners that hold nothing. A running owner may pass an owner that was granted the lock but still
///     sleeps and holds nothing else. This happens a bounded number of times and for a moment only.
/// L3. Each wait ends: with the lock, at its deadline, by a deadlock (one owner of the cycle gives way), or by
///     [`cancel_all_waits`](LockManager::cancel_all_waits).
/// L4. A refused request changes nothing.
///
/// After a death, [`Repair::repair`] makes what the dead have left half done whole. Requests of theirs that wait are
/// taken out. What they hold stays, in the name of the thread that repairs, until somebody ends their transactions.
#[cfg(not(loom))]
pub trait LockManager: Repair + Send + Sync {
    /// Announces that `owner` now stands for transaction `age`. The call comes before the owner's first lock. By
    /// default the owner with the largest age gives way in a deadlock. So a retry that keeps the age of its first
    /// attempt succeeds in the end.
    ///
    /// # Panics
    /// The owner still holds locks, or its number is beyond what the table was made for. Both are bugs of the caller.
    fn begin(&self, owner: OwnerNo, age: Xid);

    /// False if the manager grants everything at once and isolates nothing. Then [`held`](LockManager::held) and
    /// [`for_each_held`](LockManager::for_each_held) say nothing about what an owner has written. An environment puts
    /// such a manager behind an [`Apart`](crate::Apart).
    fn isolates(&self) -> bool {
        true
    }

    /// The manager itself, if it is the table of this crate: that one can be had in another view of its region.
    #[cfg(feature = "deaths")]
    #[doc(hidden)]
    fn as_table(&self) -> Option<&crate::LockTable> {
        None
    }

    /// Locks `name`, or raises what `owner` holds on it to the supremum of that and `mode`.
    ///
    /// # Errors
    /// See [`LockError`]. A failed call changes nothing.
    fn lock(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Grant, LockError>;

    /// As [`lock`](LockManager::lock), but the lock is given back at once: the call only waits until nothing stands in
    /// the way. Returns what [`Grant::depends`] would have been.
    ///
    /// # Errors
    /// See [`LockError`]. A failed call changes nothing.
    fn lock_instant(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Lsn, LockError>;

    /// The mode that `owner` holds on `name`. Any thread may ask.
    fn held(&self, owner: OwnerNo, name: LockName) -> Option<Mode>;

    /// The supremum of what anybody at all holds on `name`, the caller included.
    fn held_by_any(&self, name: LockName) -> Option<Mode>;

    /// What [`Grant::depends`] would be for an owner that was granted a lock on `name` now. If
    /// [`held_by_any`](LockManager::held_by_any) was asked before and found no owner, the result covers all owners that
    /// have held the lock.
    fn depends(&self, name: LockName) -> Lsn;

    /// Lowers the mode that `owner` holds on `name` to `to`, unless it is no stronger than that already. Returns the
    /// mode that it holds now.
    fn downgrade(&self, owner: OwnerNo, name: LockName, to: Mode) -> Option<Mode>;

    /// Gives up one lock and returns its mode. Only for locks that protected nothing: two-phase locking keeps the rest.
    fn unlock(&self, owner: OwnerNo, name: LockName) -> Option<Mode>;

    /// Gives up the locks of `owner` on keys, gaps and pages of `table` for which its lock on the whole table stands
    /// ([`Mode::stands_for`]). Returns how many those were. What they protect stays protected until the lock on the
    /// table goes, and that lock leaves the commit LSN behind.
    fn unlock_keys(&self, owner: OwnerNo, table: TableId) -> u32 {
        let _ = (owner, table);
        0
    }

    /// How many locks may still be taken by all owners together, about.
    fn free_count(&self) -> u32 {
        u32::MAX
    }

    /// Gives up everything that `owner` holds. After a death, somebody else does so ([`adopt`](LockManager::adopt)).
    /// With `commit_lsn`, the locks of a writer leave it behind for the next owner. This is early lock release: the
    /// commit is in the log, but need not be durable yet.
    fn unlock_all(&self, owner: OwnerNo, commit_lsn: Option<Lsn>);

    /// Calls `visit` for each lock of `owner`, newest first but for intentions on tables, which come first.
    fn for_each_held(&self, owner: OwnerNo, visit: &mut dyn FnMut(LockName, Mode));

    /// Ends all waits, now and until [`allow_waits`](LockManager::allow_waits), with [`LockError::Cancelled`]: the
    /// environment has failed. Locks that need no wait are still granted.
    fn cancel_all_waits(&self);

    /// Takes back [`cancel_all_waits`](LockManager::cancel_all_waits).
    fn allow_waits(&self);

    /// Says that from now on requests of `owner` that might end in a deadlock are refused, if the manager avoids
    /// deadlocks that way. This holds until its next [`begin`](LockManager::begin). Without the call, requests wait:
    /// housekeeping is not refused where a user's transaction would be.
    fn avoid_deadlocks(&self, owner: OwnerNo) {
        let _ = owner;
    }

    /// Whether [`avoid_deadlocks`](LockManager::avoid_deadlocks) changes anything, or ever will. If not, it is not
    /// called.
    fn may_avoid_deadlocks(&self) -> bool {
        true
    }

    /// Hands all that `owner` holds to the thread in another slot, which makes the calls for it from now on. For a
    /// transaction that goes on in another process than the one that has begun it, or that is ended for the dead after
    /// the repair. Nobody else makes calls for the owner meanwhile. But a repair may be mending it, which is waited
    /// for: the last transaction of this owner may have been of a process that has died since.
    fn adopt(&self, owner: OwnerNo, thread: SlotNo) {
        let _ = (owner, thread);
    }

    /// Whether the thread in this slot holds something that others wait for, and that no guard gives back as it
    /// unwinds. Asked after a panic.
    fn is_held_up_by(&self, thread: SlotNo) -> bool {
        let _ = thread;
        false
    }

    /// Sets how much would be lost if `owner` gave way, in bytes of log. Called before it may wait.
    fn set_weight(&self, owner: OwnerNo, weight: u64) {
        let _ = (owner, weight);
    }

    /// Says that the calling thread is about to wait for a lock for `by`, inside a call of `outer`. `outer` does not
    /// end before that wait does. So an owner that waits for `outer` also waits for `by`, and for all others that hold
    /// `outer` up. Take this back with [`let_go`](LockManager::let_go) after the wait. Where only the locks of `outer`
    /// are waited for, `by` gives way only if no other owner can, since it would meet the same lock again. A wait
    /// counts as inside of at most eight owners.
    fn hold_up(&self, outer: OwnerNo, by: OwnerNo) {
        let _ = (outer, by);
    }

    /// Takes back [`hold_up`](LockManager::hold_up).
    fn let_go(&self, outer: OwnerNo, by: OwnerNo) {
        let _ = (outer, by);
    }

    /// True if the wait of `waiter` does not end before `of` has ended, directly or through others. For a thread that
    /// keeps `of` from ending while it waits for something that only the end of that wait gives back.
    fn awaits_end(&self, waiter: OwnerNo, of: OwnerNo) -> bool {
        let _ = (waiter, of);
        false
    }

    /// Searches all waits for deadlocks, tells one transaction of each to give way, and returns how many there were.
    /// For a manager that does not search when an owner blocks (LIBTP 4.1).
    fn detect(&self) -> u32 {
        0
    }

    /// Which owner waits for which at this moment, as one edge for each pair. The queues are read one by one while they
    /// change. An owner that has been told to give way counts as gone.
    fn waits(&self) -> Vec<DeadlockEdge> {
        Vec::new()
    }

    /// Counters since the table was made.
    fn stats(&self) -> LockStats;
}
