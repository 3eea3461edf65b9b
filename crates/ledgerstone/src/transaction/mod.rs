//! A transaction as users see it.
//!
//! A [`Transaction`] and the tables opened in it share the running [`Txn`] behind a mutex, so that handles and iterators
//! can be owned, sent to other threads, and outlive each other; once it ends they all say [`Error::Finished`].
//!
//! H1. A call has the transaction to itself, also while it runs a closure of the user's (`modify`, `for_each_ref`, the function of
//!     an index). If that closure calls back into the same transaction it is told [`Error::Busy`]. Other threads wait for their
//!     turn; but one and the same closure keeps them waiting for a second at most, then they are told the same. So nobody waits
//!     for ever for a closure that waits for him. A thread inside one transaction that waits for a call of another, which waits for
//!     the first to end, is told [`Error::HeldByCaller`].
//! H2. However a call ends, by a panic of the user's code too, it gives back what it held, and what it had half done is taken back.
//! H3. What belongs together is done while the transaction is held once: another thread that has it next may keep it for so long
//!     that the call is refused the rest.

pub(crate) mod isolation;
pub(crate) mod prepared;
mod savepoint;
mod ticket;

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ledgerstone_lock::{LockName, Mode, OwnerNo};
use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::SlotNo;
use ledgerstone_structures::{Direction, Read, Tree};
use ledgerstone_txn::{Durability, Horizon, Patience, Txn, UsersCode, View, WaitForCall};
use parking_lot::{Mutex, MutexGuard};

pub use isolation::Isolation;
pub use prepared::{InDoubt, Prepared};
pub use savepoint::Savepoint;
pub use ticket::{Committed, Ticket};

use crate::catalog::own::OwnTables;
use crate::catalog::{Definition, Entry, TYPE_NAME_BYTES_MAX, TableInfo};
use crate::environment::{Handles, Inner};
use crate::transaction::savepoint::Point;
use crate::typed::{Key, TableDef, TableTypes, TypeName, Value};
use crate::{BytesTable, Error, Table};

/// How a transaction is to run. `Default` takes everything from the environment's options.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransactionOptions {
    /// When its commit returns.
    pub durability: Option<Durability>,
    /// How long it waits for a lock.
    pub lock_timeout: Option<std::time::Duration>,
    /// What it sees of others. None: [`Isolation::Serializable`].
    pub isolation: Option<Isolation>,
    /// It only reads: whatever would change something is refused with [`Error::ReadOnly`].
    pub read_only: bool,
}

/// What transaction, tables and iterators share.
pub(crate) struct Shared {
    pub env: Arc<Inner>,
    owner: OwnerNo,
    xid: Xid,
    state: Mutex<State>,
    /// A child that may only read is running. Changes under the mutex only.
    refuses_writes: AtomicBool,
    /// The slot number of the thread that holds the mutex, plus one; 0 if none does, or not for long.
    holder: AtomicU32,
    /// The transaction was dropped by a closure that it was calling: rolled back when that call ends.
    is_dropped: AtomicBool,
    /// Nothing was asked of the transaction yet: its commit stands for all before it.
    is_untouched: AtomicBool,
    /// Set when a call failed in a way that another try may mend.
    had_conflict: AtomicBool,
    /// Set when a lock was not given in time.
    had_timeout: AtomicBool,
    /// The conflict that has rolled it back, and whether there is one.
    ended_by: Mutex<Option<EndedBy>>,
    was_ended: AtomicBool,
    pub(crate) isolation: Isolation,
    is_read_only: bool,
}

/// A conflict that has rolled a transaction back.
pub(crate) struct EndedBy {
    pub conflict: Error,
    /// The lock that it gave way for, if it did.
    pub awaited: Option<(LockName, Mode)>,
}

/// The running transaction, until it ends.
pub(crate) struct State {
    /// Boxed: it is large, and handed on several times.
    pub txn: Option<Box<Txn>>,
    /// What it has made of tables itself.
    pub own: OwnTables,
    /// Savepoints that stand and children that run, oldest first.
    pub points: Vec<Point>,
    /// Snapshots of ranges that are being read: they go when the transaction ends, whoever keeps the range.
    views: Vec<Weak<KeptView>>,
}

/// A snapshot of a range, until the range or the transaction ends.
pub(crate) type KeptView = Mutex<Option<View>>;

/// A running transaction; rolled back when dropped without [`Transaction::commit`].
///
/// What it sees of others is said by its [`Isolation`]; by default it runs as if it were alone. It is `Send`; its tables may be used from several threads, one call at a
/// time.
pub struct Transaction {
    pub(crate) shared: Arc<Shared>,
    durability: Durability,
    xid: Xid,
    has_ended: bool,
    /// The environment stays open while a transaction runs. Last: dropped after the roll-back.
    _handles: Arc<Handles>,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Before anything is waited for. If a closure that a call of it runs keeps us waiting for too long (U2), it still ran when
        // we looked, a second after this was said: so the call sees it when it ends, and rolls back. So does a call that drops it
        // by its own closure (H1). In a thread without a slot tables may keep it until they go.
        self.shared.is_dropped.store(true, Relaxed);
        if let Ok(mut held) = self.shared.hold() {
            drop(held.state.txn.take());
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("xid", &self.xid).field("durability", &self.durability).finish()
    }
}

/// The state of a transaction, for one call.
pub(crate) struct Held<'s> {
    pub state: MutexGuard<'s, State>,
    shared: &'s Shared,
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // H2.
        if let Some(txn) = &mut self.state.txn {
            txn.release_claim();
        }
        if self.shared.is_dropped.load(Relaxed) || self.state.txn.is_none() {
            self.end();
        }
        self.shared.holder.store(0, Relaxed);
    }
}

impl Held<'_> {
    /// The transaction has ended, or its handle was dropped, and so it is rolled back.
    #[cold]
    fn end(&mut self) {
        self.state.txn = None;
        self.state.views.drain(..).filter_map(|view| view.upgrade()).for_each(|view| *view.lock() = None);
    }
}

/// How often who waits for a call of another thread looks what it does.
const LOOK: Duration = Duration::from_millis(20);

impl Shared {
    /// Waits for calls of other threads; refuses a call from inside a call (H1).
    #[inline]
    pub(crate) fn hold(&self) -> Result<Held<'_>, Error> {
        if let Some(thread) = self.env.engine.slots.at_hand()
            && let Some(state) = self.state.try_lock()
        {
            self.holder.store(u32::from(thread.0) + 1, Relaxed);
            return Ok(Held { state, shared: self });
        }
        self.hold_later()
    }

    #[cold]
    #[inline(never)]
    fn hold_later(&self) -> Result<Held<'_>, Error> {
        let thread = self.env.engine.thread()?;
        let state = self.hold_waiting(thread)?;
        self.holder.store(u32::from(thread.0) + 1, Relaxed);
        Ok(Held { state, shared: self })
    }

    fn hold_waiting(&self, thread: SlotNo) -> Result<MutexGuard<'_, State>, Error> {
        let mut patience = Patience::default();
        let mut waiting: Option<WaitForCall<'_>> = None;
        loop {
            // Relaxed: only a thread itself stores its own number, and takes it back before it gives up the mutex; of others it
            // decides how long to wait.
            if let Some(holder) = self.holder.load(Relaxed).checked_sub(1) {
                let holder = SlotNo(holder as u16);
                if holder == thread || patience.is_over(&self.env.engine, holder) {
                    return Err(Error::Busy);
                }
            }
            if let Some(state) = self.state.try_lock_for(LOOK) {
                return Ok(state);
            }
            let waiting = waiting.get_or_insert_with(|| WaitForCall::begin(&self.env.engine, thread, self.owner));
            if let Some(caller) = waiting.awaited_caller() {
                let what = format!(
                    "transaction {} has a call under way in another thread, which waits for transaction {caller}, whose own \
                     closure this is",
                    self.xid
                );
                return Err(Error::HeldByCaller { what, table: None });
            }
        }
    }

    /// Keeps the snapshot of a range as long as the range, but no longer than the transaction runs.
    pub(crate) fn keep_view(&self, view: View) -> Result<Arc<KeptView>, Error> {
        let mut held = self.hold()?;
        let state = &mut *held.state;
        if state.txn.is_none() {
            return Err(Error::Finished);
        }
        if state.views.len() == state.views.capacity() {
            state.views.retain(|view| view.strong_count() > 0);
        }
        let kept = Arc::new(Mutex::new(Some(view)));
        state.views.push(Arc::downgrade(&kept));
        Ok(kept)
    }

    /// This thread is about to run closures of the user's for this transaction.
    #[inline]
    pub(crate) fn users_code(&self) -> UsersCode<'_> {
        UsersCode::of(&self.env.engine, self.owner, self.xid)
    }

    /// Refuses a change where only reading is allowed.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.refuses_writes.load(Relaxed) {
            return Err(Error::read_only("this nested transaction may only read"));
        }
        if self.is_read_only {
            return Err(Error::read_only("the transaction was begun for reading only"));
        }
        self.env.check_writable()
    }

    pub(crate) fn refuse_writes(&self, refuses: bool) {
        self.refuses_writes.store(refuses, Relaxed);
    }

    /// Runs `f` on the running transaction; a deadlock, a refused lock or a full lock table rolls it back at once, so that
    /// the others go on.
    #[inline]
    pub(crate) fn run<T>(&self, f: impl FnOnce(&mut Txn) -> Result<T, Error>) -> Result<T, Error> {
        self.run_in(|txn, _| f(txn))
    }

    /// As [`Shared::run`], with what the transaction itself has made of tables.
    #[inline]
    pub(crate) fn run_in<T>(&self, f: impl FnOnce(&mut Txn, &mut OwnTables) -> Result<T, Error>) -> Result<T, Error> {
        let mut held = self.hold()?;
        self.is_untouched.store(false, Relaxed);
        let state = &mut *held.state;
        let Some(txn) = state.txn.as_deref_mut() else { return Err(Error::Finished) };
        let result =
            f(txn, &mut state.own).map_err(|error| error.with_table_name(|table| self.env.known.name_of(table)));
        txn.release_claim();
        if self.is_dropped.load(Relaxed) {
            state.txn = None; // Dropped, and so rolled back.
            return Err(Error::Finished);
        }
        if let Err(error) = &result {
            // Whoever needs most of the locks by itself will need them again.
            let is_too_large = matches!(error, Error::LockTableFull)
                && state.txn.as_ref().is_some_and(|txn| txn.lock_count() > self.env.engine.locks.stats().locks_max / 2);
            if error.is_retryable() && !is_too_large {
                self.had_conflict.store(true, Relaxed);
                self.had_timeout.fetch_or(matches!(error, Error::LockTimeout { .. }), Relaxed);
            }
            let conflict = match error {
                Error::Deadlock { cycle, transactions } => {
                    Some(Error::Deadlock { cycle: cycle.clone(), transactions: transactions.clone() })
                }
                Error::LockRefused { what, table, holders } => {
                    Some(Error::LockRefused { what: what.clone(), table: *table, holders: holders.clone() })
                }
                Error::LockTableFull => Some(Error::LockTableFull),
                _ => None,
            };
            if let Some(conflict) = conflict
                && let Some(txn) = state.txn.take()
            {
                *self.ended_by.lock() = Some(EndedBy { conflict, awaited: txn.gave_way_for() });
                self.was_ended.store(true, Relaxed);
                txn.abort()?;
            }
        }
        result.map_err(|error| self.env.say_failed(error))
    }
}

/// What others may still have of a table that was dropped or changed, until that is certain.
struct Retired {
    /// It was known; it is again if the change is taken back (G2).
    known: Option<Arc<TableInfo>>,
    /// The transaction's own, which none of the others knows.
    own: Option<Arc<TableInfo>>,
}

impl Shared {
    /// What is known of a table is over for this transaction, and, if it commits, for everybody; the table and its name are
    /// locked exclusively (G2). Said in the call that changes what the catalog says: nothing may come between (H3). Of a table
    /// that nobody else has opened nothing is kept.
    fn retire(&self, (txn, own): (&mut Txn, &mut OwnTables), info: &Arc<TableInfo>) {
        let env = Arc::clone(&self.env);
        env.drops.fetch_add(1, SeqCst); // I3: from before the commit until nobody knows the table any more.
        own.note_dropped(info);
        // Below serializable a handle may know the table apart from the others, who wait for the lock and then ask theirs.
        let known = env.known.remove(info);
        info.set_dropped(true);
        if let Some(known) = &known {
            known.set_dropped(true);
        }
        // The caller has one of `info`. What is no longer known nobody else can get.
        let is_known = known.as_ref().is_some_and(|known| Arc::ptr_eq(known, info));
        let own = (!is_known && Arc::strong_count(info) > 1).then(|| Arc::clone(info));
        let known = known.filter(|known| Arc::strong_count(known) > 1 + usize::from(is_known));
        let retired = (known.is_some() || own.is_some()).then(|| Box::new(Retired { known, own }));
        txn.on_end(move |committed| {
            if committed {
                env.nudge_reclaim();
            } else if let Some(retired) = retired {
                retired.known.iter().chain(&retired.own).for_each(|info| info.set_dropped(false));
                retired.known.map(|known| env.known.insert(known));
            }
            env.drops.fetch_sub(1, SeqCst);
        });
    }

    /// The table is what `by` says; for this transaction, and, if it commits, for everybody. It is locked exclusively.
    pub(crate) fn replace_table(
        &self,
        (txn, own): (&mut Txn, &mut OwnTables),
        info: &Arc<TableInfo>,
        by: Arc<TableInfo>,
    ) {
        self.retire((txn, own), info);
        own.note_changed(by);
    }
}

/// What a transaction does first, or as soon as what it had to wait for has ended: its snapshot shows that.
pub(crate) fn set_out(txn: &mut Txn, isolation: Isolation) -> Result<(), Error> {
    txn.avoid_deadlocks(); // Before, it holds nothing that others could wait for.
    if isolation == Isolation::Snapshot {
        txn.set_snapshot()?;
    }
    Ok(())
}

impl Transaction {
    pub(crate) fn new(
        env: Arc<Inner>,
        txn: Box<Txn>,
        options: TransactionOptions,
        handles: Arc<Handles>,
    ) -> Transaction {
        let xid = txn.xid();
        let durability = options.durability.unwrap_or(env.durability);
        let owner = txn.owner();
        let state =
            Mutex::new(State { txn: Some(txn), own: OwnTables::default(), points: Vec::new(), views: Vec::new() });
        let no = || AtomicBool::new(false);
        let shared = Shared {
            env,
            owner,
            xid,
            state,
            refuses_writes: no(),
            holder: AtomicU32::new(0),
            is_dropped: no(),
            is_untouched: AtomicBool::new(true),
            had_conflict: no(),
            had_timeout: no(),
            ended_by: Mutex::new(None),
            was_ended: no(),
            isolation: options.isolation.unwrap_or_default(),
            is_read_only: options.read_only,
        };
        Transaction { shared: Arc::new(shared), durability, xid, has_ended: false, _handles: handles }
    }

    /// Its id, never reused in the life of the environment.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.xid
    }

    /// What it sees of others.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.shared.isolation
    }

    /// The LSN of its snapshot: it sees the commits whose records begin below. A change feed from there on shows all others, after a
    /// crash too if the log was durable up to there ([`Environment::sync`](crate::Environment::sync)). None at other levels than
    /// [`Isolation::Snapshot`], and when it has ended.
    #[must_use]
    pub fn snapshot_lsn(&self) -> Option<Lsn> {
        let held = self.shared.hold().ok()?;
        held.state.txn.as_ref()?.snapshot().map(|at| at.lsn)
    }

    /// True if a call met a deadlock or a lock time-out: run again, the transaction may well succeed.
    pub(crate) fn had_conflict(&self) -> bool {
        self.shared.had_conflict.load(Relaxed)
    }

    /// The conflict that has rolled it back, if one has.
    pub(crate) fn ended_by(&self) -> Option<EndedBy> {
        if self.shared.was_ended.load(Relaxed) { self.shared.ended_by.lock().take() } else { None }
    }

    /// For a transaction that is run again: waits until it could have the lock that it gave way for, and sets out then.
    pub(crate) fn wait_and_set_out(&self, name: LockName, mode: Mode) -> Result<(), Error> {
        self.shared.run(|txn| {
            txn.lock_instant(name, mode)?;
            set_out(txn, self.shared.isolation)
        })?;
        self.shared.is_untouched.store(true, Relaxed); // Nobody has asked for anything yet.
        Ok(())
    }

    pub(crate) fn had_timeout(&self) -> bool {
        self.shared.had_timeout.load(Relaxed)
    }

    /// Commits with the transaction's durability. A transaction of which nothing was asked stands for all before it: it is
    /// durable when every commit that had its place before is.
    ///
    /// Blocks until the commit is durable with [`Durability::Sync`] only. With the others it may wait for room in the log.
    ///
    /// # Errors
    /// [`Error::Finished`]; [`Error::ReadOnly`] without space for the commit record (rolled back);
    /// [`Error::Failed`] if the log cannot be written: reopening tells whether the commit was kept.
    pub fn commit(self) -> Result<Committed, Error> {
        let durability = self.durability;
        self.commit_with(durability)
    }

    /// Commits with the given durability.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(mut self, durability: Durability) -> Result<Committed, Error> {
        let txn = self.end()?;
        self.commit_ended(txn, durability)
    }

    /// Commits what [`Transaction::end`] has taken.
    pub(crate) fn commit_ended(&self, mut txn: Box<Txn>, durability: Durability) -> Result<Committed, Error> {
        let engine = Arc::clone(txn.engine());
        if self.shared.is_untouched.load(Relaxed) {
            txn.depend_on_commits_below(engine.log.tail());
        }
        let committed = txn.commit(durability)?;
        Ok(Committed { lsn: committed.lsn, ticket: Ticket::new(engine, committed.depends) })
    }

    /// Rolls back.
    ///
    /// # Errors
    /// [`Error::Finished`]; a rollback that fails fails the environment.
    pub fn abort(mut self) -> Result<(), Error> {
        Ok(self.end()?.abort()?)
    }

    pub(crate) fn end(&mut self) -> Result<Box<Txn>, Error> {
        self.end_unless_ended()?.ok_or(Error::Finished)
    }

    /// Takes the running transaction out, after calls of other threads; `None` if it has ended, by a conflict perhaps.
    pub(crate) fn end_unless_ended(&mut self) -> Result<Option<Box<Txn>>, Error> {
        let txn = self.shared.hold()?.state.txn.take();
        self.has_ended = true;
        Ok(txn)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Creates a table of byte strings.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], conflicts, no space.
    pub fn create_table(&self, name: &str) -> Result<BytesTable, Error> {
        self.find(name, Missing::Create, true)
    }

    /// Drops a table and all that is in it. Its pages are freed after the commit. Handles that this transaction has opened
    /// answer [`Error::NoSuchTable`] from then on, unless it goes back to a savepoint before the drop.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        self.shared.check_writable()?;
        let table = self.find_locked(name, Missing::Refuse, false)?;
        let (env, info) = (&self.shared.env, table.info());
        let drop_whole = |txn: &mut Txn| {
            info.lock_whole(txn)?;
            if !env.catalog().delete(txn, name.as_bytes())? {
                return Err(Error::NoSuchTable(name.to_string()));
            }
            env.to_free().defer_tree(txn, info.entry.root)?;
            for index in &info.indexes {
                env.to_free().defer_tree(txn, index.entry.entry.root)?;
            }
            Ok(())
        };
        table.enter_own(Mode::IX, |txn, own| {
            txn.whole(drop_whole)?;
            self.shared.retire((txn, own), info);
            Ok(())
        })
    }

    /// Gives a table another name. Handles that this transaction has opened under the old name answer
    /// [`Error::NoSuchTable`] from then on: open the table by its new name. Waits for everybody who uses the table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::TableExists`], [`Error::BadTableName`], conflicts.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<(), Error> {
        check_name(from)?;
        check_name(to)?;
        self.shared.check_writable()?;
        let table = self.find_locked(from, Missing::Refuse, false)?;
        let (env, info) = (Arc::clone(&self.shared.env), Arc::clone(table.info()));
        if from == to {
            return Ok(());
        }
        let rename = |txn: &mut Txn| {
            txn.lock_table(info.entry.table, Mode::X)?;
            if env.catalog().get(txn, to.as_bytes(), Read::ForUpdate)?.is_some() {
                return Err(Error::TableExists(to.to_string()));
            }
            let Some(entry) = env.catalog().get(txn, from.as_bytes(), Read::ForUpdate)? else {
                return Err(Error::NoSuchTable(from.to_string()));
            };
            env.catalog().delete(txn, from.as_bytes())?;
            env.catalog().put(txn, to.as_bytes(), &entry)?;
            Ok(())
        };
        table.enter_own(Mode::IX, |txn, own| {
            txn.whole(rename)?;
            self.shared.replace_table((txn, own), &info, env.table_info(to, info.definition()));
            Ok(())
        })
    }

    /// The names of all tables, sorted, without users' structures, as the transaction's [`Isolation`] sees them; a serializable one locks the list against
    /// change.
    ///
    /// # Errors
    /// Conflicts.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        let env = Arc::clone(&self.shared.env);
        self.shared.run(|txn| {
            let mut names = Vec::new();
            let (sight, _view) = self.shared.sight(txn, Horizon::None)?;
            let mut scan = sight.scan(env.catalog(), Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((name, value)) = scan.next(txn)? {
                if Entry::structure_of(value).is_some() {
                    continue;
                }
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            Ok(names)
        })
    }

    /// Opens a table of byte strings that exists.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn bytes(&self, name: &str) -> Result<BytesTable, Error> {
        self.find(name, Missing::Refuse, false)
    }

    /// Opens a table of byte strings, creating it if it is missing.
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn bytes_or_create(&self, name: &str) -> Result<BytesTable, Error> {
        self.find(name, Missing::Create, false)
    }

    /// Opens a typed table, creating it with these types if it is missing (in a read-only environment:
    /// [`Error::NoSuchTable`]). A table that was made for byte strings has no types, and none are compared.
    ///
    /// # Errors
    /// [`Error::TableTypeMismatch`] if the table has other types, [`Error::BadTypeName`], conflicts, no space.
    pub fn open<K: Key, V: Value>(&self, definition: TableDef<'_, K, V>) -> Result<Table<K, V>, Error> {
        let is_writable = self.shared.check_writable().is_ok();
        let missing = if is_writable { Missing::CreateTyped(&K::TYPE, &V::TYPE) } else { Missing::Refuse };
        let table = self.find(definition.name(), missing, false)?;
        table.info().check_types(&K::TYPE, &V::TYPE)?;
        Ok(Table::new(table))
    }

    /// Says of a table of which types its keys and values are, as [`Transaction::open`] does of a table that it makes: for tables
    /// made for byte strings, by tools that know types by their names only. What is there is not looked at. Locks the table as a
    /// whole; handles are to be opened again, as after [`Transaction::create_index`].
    ///
    /// # Errors
    /// [`Error::TableTypeMismatch`] for a type that is known and another, [`Error::BadTypeName`], [`Error::TooManyIndexes`] if
    /// the names have no room in the catalog, [`Error::NoSuchTable`], [`Error::IndexNeedsLocks`] in a snapshot, conflicts.
    pub fn set_table_types(&self, table: &str, types: &TableTypes) -> Result<(), Error> {
        for name in [&types.key, &types.value].into_iter().flatten() {
            check_type_name(name)?;
        }
        let table = self.to_redefine(table)?;
        let (env, old) = (Arc::clone(&self.shared.env), Arc::clone(table.info()));
        let mut definition = old.definition();
        let known = &mut definition.types;
        for (what, known, new) in [("keys", &mut known.key, &types.key), ("values", &mut known.value, &types.value)] {
            match (&known, new) {
                (_, None) => {}
                (Some(stored), Some(asked)) if *stored != *asked => {
                    return Err(old.mismatch(what.to_string(), stored, asked.clone()));
                }
                (_, Some(new)) => *known = Some(new.clone()),
            }
        }
        if old.is_as(&definition) {
            return Ok(());
        }
        table.enter_own(Mode::IX, |txn, own| {
            old.lock_whole(txn)?;
            env.put_definition(txn, &old.name, &definition)?;
            self.shared.replace_table((txn, own), &old, env.table_info(&old.name, definition));
            Ok(())
        })
    }

    /// The table as it is now, for who changes what the catalog says of it.
    pub(crate) fn to_redefine(&self, table: &str) -> Result<BytesTable, Error> {
        self.shared.check_writable()?;
        if self.isolation() == Isolation::Snapshot {
            // It is of what is there, not of what there was.
            return Err(Error::IndexNeedsLocks { table: table.to_string() });
        }
        self.find_locked(table, Missing::Refuse, false)
    }

    /// Finds the table as this transaction's level sees it.
    fn find(&self, name: &str, missing: Missing<'_>, must_be_new: bool) -> Result<BytesTable, Error> {
        if self.shared.isolation != Isolation::Serializable && !must_be_new {
            check_name(name)?;
            if let Some(table) = self.find_at(name)? {
                return Ok(table);
            }
            if matches!(missing, Missing::Refuse) {
                return Err(Error::NoSuchTable(name.to_string()));
            }
        }
        self.find_locked(name, missing, must_be_new)
    }

    /// Without locks, in the transaction's snapshot or one for this call.
    fn find_at(&self, name: &str) -> Result<Option<BytesTable>, Error> {
        let env = &self.shared.env;
        self.shared.run_in(|txn, own| {
            let (sight, view) = self.shared.sight(txn, Horizon::None)?;
            // There are no uncommitted tables to be seen, at no level: nobody could be sure that their pages stay.
            let read = view.as_ref().map_or(sight.read(), |view| Read::At(view.at()));
            let Some(bytes) = env.catalog().get(txn, name.as_bytes(), read)? else { return Ok(None) };
            let definition = Definition::decode(name, &bytes)?;
            let own = own.open(name, &definition, || env.table_info(name, definition.clone()));
            let known = own.or_else(|| env.known.get(name).filter(|known| known.is_as(&definition)));
            let info = known.unwrap_or_else(|| env.table_info(name, definition));
            Ok(Some(BytesTable::new(&self.shared, info)))
        })
    }

    /// Finds the table and locks it with the weakest intention, so that it stays what it is until this transaction ends.
    fn find_locked(&self, name: &str, missing: Missing<'_>, must_be_new: bool) -> Result<BytesTable, Error> {
        check_name(name)?;
        if !must_be_new && let Some(table) = self.find_known(name)? {
            return Ok(table);
        }
        let known = &self.shared.env.known;
        loop {
            let found = match known.get(name) {
                Some(info) if !must_be_new => Some(info),
                _ => self.look_up(name)?,
            };
            let info = match (found, missing) {
                (Some(_), _) if must_be_new => return Err(Error::TableExists(name.to_string())),
                (Some(info), _) => info,
                (None, Missing::Refuse) => return Err(Error::NoSuchTable(name.to_string())),
                (None, Missing::Create) => self.create(name, TableTypes::default())?,
                (None, Missing::CreateTyped(key, value)) => {
                    let types = TableTypes { key: Some(key.to_string()), value: Some(value.to_string()) };
                    self.create(name, types)?
                }
            };
            self.shared.run(|txn| Ok(txn.lock_table(info.entry.table, Mode::IS)?))?;
            if !info.is_dropped() {
                return Ok(BytesTable::new(&self.shared, info));
            }
            // G2: dropped while the lock was waited for; perhaps there is another of that name by now.
        }
    }

    /// The usual case, in one go: a table that is known, and whose intention lock is free.
    fn find_known(&self, name: &str) -> Result<Option<BytesTable>, Error> {
        let mut held = self.shared.hold()?;
        let Some(info) = self.shared.env.known.get(name) else { return Ok(None) };
        let Some(txn) = held.state.txn.as_deref_mut() else { return Err(Error::Finished) };
        // A refusal comes again in the unusual case, which rolls back if the lock table is full.
        let is_locked = matches!(txn.try_lock_table(info.entry.table, Mode::IS), Ok(true));
        let is_there = is_locked && !info.is_dropped();
        Ok(is_there.then(|| BytesTable::new(&self.shared, info)))
    }

    fn look_up(&self, name: &str) -> Result<Option<Arc<TableInfo>>, Error> {
        let env = &self.shared.env;
        self.shared.run_in(|txn, own| {
            let Some(bytes) = env.catalog().get(txn, name.as_bytes(), Read::Locked)? else { return Ok(None) };
            let definition = Definition::decode(name, &bytes)?;
            if let Some(own) = own.open(name, &definition, || env.table_info(name, definition.clone())) {
                return Ok(Some(own));
            }
            Ok(Some(env.known.insert(env.table_info(name, definition)))) // G2: the name is locked S now.
        })
    }

    /// Creates the table; another transaction may have been faster while the lock on the name was waited for.
    fn create(&self, name: &str, types: TableTypes) -> Result<Arc<TableInfo>, Error> {
        for name in [&types.key, &types.value].into_iter().flatten() {
            check_type_name(name)?;
        }
        let env = &self.shared.env;
        let make = |txn: &mut Txn| {
            if let Some(bytes) = env.catalog().get(txn, name.as_bytes(), Read::ForUpdate)? {
                return Ok::<_, Error>((Definition::decode(name, &bytes)?, false));
            }
            let root = Tree::create(txn, env.to_free())?;
            // Unique for ever: the LSN of a record that making the root has just written.
            let table = TableId(txn.last_lsn().0);
            txn.lock_table(table, Mode::X)?;
            let definition = Definition { entry: Entry { table, root }, types, indexes: Vec::new() };
            env.put_definition(txn, name, &definition)?;
            Ok((definition, true))
        };
        self.shared.run_in(|txn, own| {
            self.shared.check_writable()?;
            let (definition, is_own) = txn.whole(make)?;
            let info = env.table_info(name, definition);
            if !is_own {
                return Ok(env.known.insert(info)); // G2: the name is locked U.
            }
            own.note_made(Arc::clone(&info));
            Ok(info)
        })
    }
}

/// What to do about a table that is not there.
#[derive(Clone, Copy)]
enum Missing<'t> {
    Refuse,
    Create,
    /// With keys and values of these types.
    CreateTyped(&'t TypeName, &'t TypeName),
}

pub(crate) fn check_type_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > TYPE_NAME_BYTES_MAX {
        let (len, max) = (name.len(), TYPE_NAME_BYTES_MAX);
        return Err(Error::BadTypeName { name: name.chars().take(64).collect(), len, max });
    }
    Ok(())
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 255 {
        return Err(Error::BadTableName { name: name.chars().take(64).collect() });
    }
    Ok(())
}
