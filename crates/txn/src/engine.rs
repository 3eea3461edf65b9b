//! The engine: log, cache, locks and operations under one roof, and whether they can still be trusted.
//!
//! It is what every structure and every transaction holds. It knows no structure, no table name and no file name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use ledgerstone_buffer::Cache;
use ledgerstone_disk::Fence;
use ledgerstone_lock::{LockManager, LockName, OwnerNo};
use ledgerstone_log::Log;
use ledgerstone_op::Registry;
use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_region::{ByNumber, Mutex, PerSlot, Region, RegionError, RwLock, Share, SlotNo, SlotTable, sync};

use crate::begins::Begins;
use crate::locks;
use crate::orphans::Ending;
use crate::users_code::CallWaits;
use crate::waited::WaitedKeys;
use crate::{LogicalUndo, Reason, StructureLatches, Txn, TxnError, TxnTable, VersionStore};

/// Why a closed environment has failed.
const CLOSED: &str = "the environment was closed";

/// How long the library's own transactions wait for one of their slots.
const SLOT_WAIT_NS: u64 = 2_000_000_000;
/// How often they look meanwhile. There are so many slots that it hardly ever comes to that.
const SLOT_LOOK_NS: u64 = 1_000_000;

/// The parts of an [`Engine`]. The code that opens an environment builds them bottom up.
pub struct EngineParts {
    /// Shared memory.
    pub region: Region,
    /// Thread slots.
    pub slots: Arc<SlotTable>,
    /// The log.
    pub log: Arc<Log>,
    /// The page cache.
    pub cache: Arc<Cache>,
    /// The lock manager.
    pub locks: Arc<dyn LockManager>,
    /// All operations that the log may name.
    pub ops: Registry,
    /// The transaction table. Its slot numbers are the lock manager's owners.
    pub table: TxnTable,
    /// What records were before they changed, for snapshots.
    pub versions: Arc<VersionStore>,
    /// Latches of users' structures.
    pub structure_latches: StructureLatches,
    /// Why it has failed, for all processes.
    pub reason: Reason,
    /// Settings.
    pub settings: EngineSettings,
    /// Around the disk of log and cache: a failed engine writes nothing.
    pub fence: Arc<Fence>,
}

/// Settings of transactions.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// How long a lock is waited for, in nanoseconds.
    pub lock_timeout_ns: u64,
    /// Key locks of one transaction on one table before it tries to lock the table instead.
    pub escalate_after: u32,
    /// Structures that can lock pages lock them instead of keys.
    pub locks_pages: bool,
}

/// Log, cache, locks and operations, shared by all transactions of this process.
pub struct Engine {
    /// Shared memory.
    pub region: Region,
    /// Thread slots.
    pub slots: Arc<SlotTable>,
    /// The log.
    pub log: Arc<Log>,
    /// The page cache.
    pub cache: Arc<Cache>,
    /// The lock manager.
    pub locks: Arc<dyn LockManager>,
    /// All operations that the log may name.
    pub ops: Registry,
    /// The transaction table.
    pub table: TxnTable,
    /// What records were before they changed, for snapshots.
    pub versions: Arc<VersionStore>,
    /// Latches of users' structures.
    pub(crate) structure_latches: StructureLatches,
    reason: Reason,
    /// Settings.
    pub settings: EngineSettings,
    /// Threads that wait for calls of others (U5 in `users_code.rs`).
    pub(crate) call_waits: CallWaits,
    fence: Arc<Fence>,
    pub(crate) waited: WaitedKeys,
    /// Whether the lock manager avoids deadlocks.
    pub(crate) avoids_deadlocks: bool,
    undos: RwLock<ByNumber<OpId, Arc<dyn LogicalUndo>>>,
    /// What open snapshots hold, by the slot of the thread that opens them.
    version_shares: PerSlot<Share<VersionStore>>,
    /// Whether transactions may begin.
    begins: Begins,
    /// Whether a thread of this process takes transactions of the dead, to end them (O6 in `orphans.rs`).
    pub(crate) takes_orphans: AtomicBool,
    pub(crate) ending: Mutex<Ending>,
    /// What its repairs leave out.
    #[cfg(feature = "deaths")]
    pub(crate) forgotten: std::sync::OnceLock<crate::RepairPart>,
    failed: AtomicBool,
    why_failed: Mutex<String>,
}

impl Engine {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: EngineParts) -> Arc<Engine> {
        Arc::new(Engine {
            region: parts.region,
            log: parts.log,
            cache: parts.cache,
            avoids_deadlocks: parts.locks.may_avoid_deadlocks(),
            locks: parts.locks,
            ops: parts.ops,
            table: parts.table,
            versions: parts.versions,
            structure_latches: parts.structure_latches,
            reason: parts.reason,
            settings: parts.settings,
            call_waits: CallWaits::default(),
            fence: parts.fence,
            begins: Begins::default(),
            waited: WaitedKeys::default(),
            version_shares: PerSlot::new(parts.slots.count()),
            slots: parts.slots,
            undos: RwLock::new(ByNumber::new()),
            takes_orphans: AtomicBool::new(false),
            ending: Mutex::new(Ending::default()),
            #[cfg(feature = "deaths")]
            forgotten: std::sync::OnceLock::new(),
            failed: AtomicBool::new(false),
            why_failed: Mutex::new(String::new()),
        })
    }

    /// What to call this lock in a message, without its table. `show` makes text of a key.
    #[must_use]
    pub fn lock_text(&self, name: LockName, show: impl FnOnce(&[u8]) -> String) -> String {
        locks::text_of(name, self.waited.get(name).map(|key| show(&key)))
    }

    /// Registers the logical undo of operation `op`. The last registration counts.
    pub fn register_undo(&self, op: OpId, undo: Arc<dyn LogicalUndo>) {
        self.undos.write().insert(op, undo);
    }

    /// Forgets all logical undos, so that what they hold can be dropped, which may be this engine. For closing.
    pub fn clear_undos(&self) {
        self.undos.write().clear();
    }

    pub(crate) fn undo_of(&self, op: OpId, lsn: Lsn) -> Result<Arc<dyn LogicalUndo>, TxnError> {
        self.undos.read().get(op).cloned().ok_or(TxnError::NoLogicalUndo { op, lsn })
    }

    /// Begins a transaction of the library's own, for which [`OWN_SLOT_COUNT`](crate::OWN_SLOT_COUNT) slots are kept.
    /// Takes none of users' transactions. If all are taken, waits two seconds for one. Hold no latch, and not another
    /// of these.
    ///
    /// # Errors
    /// The environment has failed, or all slots stay taken.
    pub fn begin(self: &Arc<Engine>) -> Result<Txn, TxnError> {
        self.check()?;
        let thread = self.thread()?;
        self.in_a_call(|| {
            let claimed = self.table.claim_own(thread).or_else(|_| self.wait_for_own_slot(thread))?;
            Engine::begin_in(&Share::new(Arc::clone(self)), claimed, false, Xid::NONE)
        })
    }

    #[cold]
    fn wait_for_own_slot(&self, thread: SlotNo) -> Result<(u32, Xid), TxnError> {
        let began_ns = sync::now_ns();
        loop {
            self.check()?;
            match self.table.claim_own(thread) {
                Err(full) if sync::now_ns().saturating_sub(began_ns) >= SLOT_WAIT_NS => return Err(full),
                Err(_) => sync::sleep_ns(SLOT_LOOK_NS),
                claimed => return claimed,
            }
        }
    }

    /// Begins a transaction of the user's, in a slot that is not kept for the library's own. It is as old as
    /// transaction `age` in the eyes of the deadlock detector. So a transaction that is run again after a deadlock does
    /// not become the youngest each time. With none, its age is its own. The caller has counted itself among the users
    /// that [`Engine::end_begins`] asks for.
    ///
    /// The transaction holds a clone of `engine`. So who begins many has a share for each thread.
    ///
    /// # Errors
    /// The environment has failed, or all slots are taken.
    pub fn begin_aged(engine: &Share<Engine>, age: Xid) -> Result<Txn, TxnError> {
        engine.check()?;
        engine.in_a_call(|| Engine::begin_in(engine, engine.table.claim(engine.thread()?)?, true, age))
    }

    /// Begins a transaction of the user's in the place of one that has ended. So nothing is allocated, and no reference
    /// to the engine is counted. `thread` is the caller's slot. Otherwise this is [`Engine::begin_aged`].
    ///
    /// # Errors
    /// As [`Engine::begin`]. The transaction is what it was, and has ended.
    ///
    /// # Panics
    /// If the transaction has not ended: a bug of the caller.
    #[inline]
    pub fn begin_again(ended: &mut Txn, thread: SlotNo, age: Xid) -> Result<(), TxnError> {
        assert!(ended.ended && !ended.is_prepared, "transaction {} has not ended", ended.xid());
        let engine = &*ended.engine;
        engine.check()?;
        let (no, xid) = engine.in_a_call(|| engine.enter_slot(engine.table.claim(thread)?, true, age))?;
        let lock_timeout_ns = engine.settings.lock_timeout_ns;
        ended.renew(no, xid, lock_timeout_ns);
        Ok(())
    }

    fn begin_in(engine: &Share<Engine>, claimed: (u32, Xid), is_users: bool, age: Xid) -> Result<Txn, TxnError> {
        let (no, xid) = engine.enter_slot(claimed, is_users, age)?;
        Ok(Txn::new(engine.clone(), no, xid))
    }

    #[inline]
    fn enter_slot(&self, (no, xid): (u32, Xid), is_users: bool, age: Xid) -> Result<(u32, Xid), TxnError> {
        if !self.begins.may_begin(is_users) {
            self.table.free(no);
            return Err(TxnError::Failed { why: CLOSED.into() });
        }
        self.locks.begin(OwnerNo(no), if age == Xid::NONE { xid } else { age });
        Ok((no, xid))
    }

    /// Ends the beginning of transactions for good if `may` says so (E1 in `begins.rs`). `may` counts the users and
    /// takes off the number that it is given: so many of them wait for this decision, and have not begun (E4). Says
    /// whether none begins any more.
    pub fn end_begins(&self, may: impl FnOnce(u32) -> bool) -> bool {
        self.begins.end(|waiting| {
            let _ = self.table.active_count(); // E1: from here on it is seen what their takers did before.
            may(waiting)
        })
    }

    /// The slot of this thread, which its first call claims. Functions that let threads in call this before anything
    /// that needs a slot, such as a latch.
    ///
    /// # Errors
    /// [`TxnError::TooManyThreads`], [`TxnError::Forked`].
    #[inline]
    pub fn thread(&self) -> Result<SlotNo, TxnError> {
        self.slots.try_current().map_err(|error| match error {
            RegionError::Forked => TxnError::Forked,
            _ => TxnError::TooManyThreads { slots: self.slots.max_threads() },
        })
    }

    /// Finds out which slots of transactions and snapshots are in use no more, so that nobody looks at them. To be
    /// called now and then.
    pub fn lower_used(&self) {
        let Ok(thread) = self.thread() else { return };
        self.table.lower_used(thread, |no| self.versions.lower_writers(no));
        self.versions.lower_used();
    }

    /// What the snapshots hold that the thread in this slot opens. Those of transactions need nothing: a transaction
    /// has the engine.
    #[inline]
    pub(crate) fn version_share(&self, thread: SlotNo) -> &Share<VersionStore> {
        self.version_shares.get_or_make(thread, || Share::new(Arc::clone(&self.versions)))
    }

    /// Takes a loser over from the log, to roll it back at restart (or to hold it, prepared).
    ///
    /// # Errors
    /// All slots are taken.
    pub fn adopt(self: &Arc<Engine>, xid: Xid, first: Lsn, last: Lsn) -> Result<Txn, TxnError> {
        let no = self.table.claim_for(self.thread()?, xid, first, last)?;
        self.locks.begin(OwnerNo(no), xid);
        Ok(Txn::adopted(Share::new(Arc::clone(self)), no, xid, first, last))
    }

    /// Fails the environment for good: every later call says so, every waiter wakes. The first reason is kept. No file
    /// is changed any more, but for writes that are under way.
    pub fn fail(&self, why: &str) {
        {
            let mut kept = self.why_failed.lock();
            if kept.is_empty() {
                kept.push_str(why);
            }
        }
        self.reason.note(why); // Before others can see that it has failed.
        self.failed.store(true, Release);
        self.fence.refuse_writes();
        self.log.fail();
        self.locks.cancel_all_waits();
    }

    /// Ends the engine for this process, for good, and for no other one that has the region. Every later call here says
    /// so. No file is changed any more, but for writes that are under way. None of its threads waits for anything.
    pub fn leave(&self, why: &str) {
        {
            let mut kept = self.why_failed.lock();
            if kept.is_empty() {
                kept.push_str(why);
            }
        }
        self.failed.store(true, Release);
        self.fence.refuse_writes();
        self.log.leave();
    }

    /// Waits a little for a writer that is committing. That writer waits for nothing itself. `round` counts from 0.
    ///
    /// # Errors
    /// The environment has failed: the writer may never end its commit.
    pub fn pause_for_commit(&self, round: u32) -> Result<(), TxnError> {
        self.versions.pause(round);
        self.check()
    }

    /// True in a child of the process that opened the environment. Files and locks are the parent's, and background
    /// threads did not come along. The child touches nothing, not even in destructors.
    #[inline]
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.slots.is_inherited()
    }

    /// Refuses in a child of the process that opened the environment.
    ///
    /// # Errors
    /// [`TxnError::Forked`].
    #[inline]
    pub fn check_process(&self) -> Result<(), TxnError> {
        if self.is_inherited() { Err(TxnError::Forked) } else { Ok(()) }
    }

    /// True once anything has failed that only a restart can repair: a log write, a sync, a rollback.
    #[inline]
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Acquire) || self.log.is_failed() // The log has failed in a child, too.
    }

    /// Why the environment failed. Empty while it has not failed.
    #[must_use]
    pub fn why_failed(&self) -> String {
        let mut why = self.why_failed.lock().clone();
        if why.is_empty() && self.is_failed() {
            why = self.reason.get().unwrap_or_default(); // Of another process.
        }
        match (why.is_empty(), self.log.is_failed_by_disk()) {
            (true, true) => "a write or sync of the log failed".into(),
            (true, false) if self.log.is_failed() => {
                "the page cache has failed, or a thread panicked that changed a page".into()
            }
            _ => why,
        }
    }

    /// Refuses when the environment has failed.
    ///
    /// # Errors
    /// [`TxnError::Failed`], [`TxnError::Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), TxnError> {
        if self.is_failed() { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> TxnError {
        if self.is_inherited() { TxnError::Forked } else { TxnError::Failed { why: self.why_failed() } }
    }
}
