//! The running transaction that handles share (H1 to H3 in `mod.rs`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use ledgerstone_lock::{LockName, Mode, OwnerNo};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{Common, Mutex, Share, SlotNo, TimedGuard, TimedMutex};
use ledgerstone_txn::{Patience, Txn, UsersCode, View, WaitForCall, run_users_code};

use super::TransactionOptions;
use super::savepoint::Point;
use crate::Error;
use crate::catalog::OwnTables;
use crate::inner::Inner;
use ledgerstone_core::choice::Isolation;

/// What transaction, tables and iterators share.
pub(crate) struct Shared {
    pub env: Share<Inner>,
    pub(super) owner: OwnerNo,
    pub(super) xid: Xid,
    pub(super) state: TimedMutex<State>,
    /// A child that may only read is running. Changes under the mutex only.
    pub(super) refuses_writes: AtomicBool,
    /// The slot number of the thread that holds the mutex, plus one; 0 if none does, or not for long.
    pub(super) holder: AtomicU32,
    /// Its handle was dropped, or a child that had failed could not be taken back. It is rolled back as soon as its
    /// state is at hand, when the call under way ends.
    pub(super) is_doomed: AtomicBool,
    /// Nothing was asked of the transaction yet: its commit stands for all before it.
    pub(super) is_untouched: AtomicBool,
    /// Calls that failed in a way that another try may mend.
    pub(super) conflict_count: AtomicU32,
    /// Set when a lock was not given in time.
    pub(super) had_timeout: AtomicBool,
    /// The conflict that has rolled it back, and whether there is one.
    pub(super) ended_by: Mutex<Option<EndedBy>>,
    pub(super) was_ended: AtomicBool,
    pub(crate) isolation: Isolation,
    pub(super) is_read_only: bool,
    /// The LSN of the snapshot that it has set out with, 0 without one. It stays when the transaction ends.
    pub(super) snapshot_lsn: AtomicU64,
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
    /// Snapshots of ranges that are being read: they go when the transaction ends, even if somebody keeps the range.
    pub(super) views: Vec<Weak<KeptView>>,
}

/// A snapshot of a range, until the range or the transaction ends.
pub(crate) type KeptView = Mutex<Option<View>>;

impl Shared {
    /// What a transaction that begins shares with its handles: in the memory of one that has ended, if that is there.
    #[inline]
    pub(super) fn of(
        env: &Share<Inner>,
        txn: Box<Txn>,
        options: &TransactionOptions,
        kept: Option<Common<Shared>>,
    ) -> Common<Shared> {
        let isolation = options.isolation.unwrap_or_default();
        if let Some(mut kept) = kept
            && let Some(shared) = kept.get_mut()
        {
            // The rest is as new (S3 in `seat.rs`).
            (shared.owner, shared.xid) = (txn.owner(), txn.xid());
            (shared.isolation, shared.is_read_only) = (isolation, options.read_only);
            *shared.snapshot_lsn.get_mut() = snapshot_lsn_of(&txn);
            *shared.is_untouched.get_mut() = true;
            shared.state.get_mut().txn = Some(txn);
            return kept;
        }
        Shared::anew(env, txn, isolation, options.read_only)
    }

    #[cold]
    #[inline(never)]
    fn anew(env: &Share<Inner>, txn: Box<Txn>, isolation: Isolation, is_read_only: bool) -> Common<Shared> {
        let no = || AtomicBool::new(false);
        Common::new(Shared {
            env: env.clone(),
            owner: txn.owner(),
            xid: txn.xid(),
            snapshot_lsn: AtomicU64::new(snapshot_lsn_of(&txn)),
            state: TimedMutex::new(State {
                txn: Some(txn),
                own: OwnTables::default(),
                points: Vec::new(),
                views: Vec::new(),
            }),
            refuses_writes: no(),
            holder: AtomicU32::new(0),
            is_doomed: no(),
            is_untouched: AtomicBool::new(true),
            conflict_count: AtomicU32::new(0),
            had_timeout: no(),
            ended_by: Mutex::new(None),
            was_ended: no(),
            isolation,
            is_read_only,
        })
    }

    /// Takes the running transaction out, if nothing is left of it here then. No other handle is there.
    #[inline]
    pub(super) fn take_alone(&mut self) -> Option<Box<Txn>> {
        if self.leaves_nothing() { self.state.get_mut().txn.take() } else { None }
    }

    /// True if there is nothing that the next transaction would have to set right. No other handle is there.
    pub(super) fn is_as_new(&mut self) -> bool {
        self.leaves_nothing() && self.state.get_mut().txn.is_none()
    }

    /// The same but for the running transaction. Of ranges, which are handles too, nothing but places in `views` is
    /// left.
    #[inline]
    fn leaves_nothing(&mut self) -> bool {
        let flags = [&mut self.refuses_writes, &mut self.is_doomed, &mut self.had_timeout, &mut self.was_ended];
        let has_flags = flags.into_iter().any(|flag| *flag.get_mut()) || *self.conflict_count.get_mut() != 0;
        let state = self.state.get_mut();
        !has_flags && state.points.is_empty() && state.own.is_as_new()
    }
}

/// The state of a transaction, for one call.
pub(crate) struct Held<'s> {
    pub state: TimedGuard<'s, State>,
    shared: &'s Shared,
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let state = &mut *self.state;
        let has_ended = match &mut state.txn {
            Some(txn) => {
                txn.keep_claim(); // H2.
                false
            }
            None => !state.views.is_empty(),
        };
        if self.shared.is_doomed.load(Relaxed) || has_ended {
            self.end();
        }
        self.shared.holder.store(0, Relaxed);
    }
}

impl Held<'_> {
    /// The transaction has ended, or is doomed, and so it is rolled back.
    #[cold]
    fn end(&mut self) {
        let state = &mut *self.state;
        self.shared.env.engine.in_a_call(|| {
            state.txn = None;
            state.views.drain(..).filter_map(|view| view.upgrade()).for_each(|view| *view.lock() = None);
        });
    }
}

/// How often a thread that waits for a call of another thread looks what that call does.
const LOOK_NS: u64 = 20_000_000;

impl Shared {
    /// Runs `f`, a call of the engine's code, with the state. Waits for calls of other threads; refuses a call from
    /// inside a call (H1).
    #[inline(always)]
    pub(crate) fn call<T, E: From<Error>>(&self, f: impl FnOnce(&mut State) -> Result<T, E>) -> Result<T, E> {
        let mut held = self.hold()?;
        self.env.engine.in_a_call(|| f(&mut held.state))
    }

    /// The same for what cannot panic half done.
    #[inline(always)]
    pub(crate) fn hold(&self) -> Result<Held<'_>, Error> {
        if let Some(thread) = self.env.engine.slots.at_hand()
            && let Some(state) = self.state.try_lock()
        {
            return Ok(self.held_by(thread, state));
        }
        self.hold_later()
    }

    #[inline(always)]
    fn held_by<'s>(&'s self, thread: SlotNo, state: TimedGuard<'s, State>) -> Held<'s> {
        self.holder.store(u32::from(thread.0) + 1, Relaxed);
        let mut held = Held { state, shared: self };
        if self.is_doomed.load(Relaxed) {
            held.end();
        }
        held
    }

    /// The thread that has the state now, or is the next to have it, rolls the transaction back.
    pub(super) fn doom(&self) {
        self.is_doomed.store(true, Relaxed);
        drop(self.state.try_lock().map(|state| Held { state, shared: self }));
    }

    #[cold]
    #[inline(never)]
    fn hold_later(&self) -> Result<Held<'_>, Error> {
        let thread = self.env.engine.thread()?;
        let state = self.env.engine.in_a_call(|| self.hold_waiting(thread))?;
        Ok(self.held_by(thread, state))
    }

    fn hold_waiting(&self, thread: SlotNo) -> Result<TimedGuard<'_, State>, Error> {
        let mut patience = Patience::default();
        let in_line = self.state.wait_in_line();
        let mut waiting: Option<WaitForCall<'_>> = None;
        loop {
            // Relaxed: only a thread itself stores its own number, and takes it back before it gives up the mutex; of
            // others it decides how long to wait.
            if let Some(holder) = self.holder.load(Relaxed).checked_sub(1) {
                let holder = SlotNo(holder as u16);
                if holder == thread || patience.is_over(&self.env.engine, holder) {
                    return Err(Error::Busy);
                }
            }
            if let Some(state) = in_line.try_lock_for(LOOK_NS) {
                return Ok(state);
            }
            let waiting = waiting.get_or_insert_with(|| WaitForCall::begin(&self.env.engine, thread, self.owner));
            if let Some(caller) = waiting.awaited_caller() {
                let what = format!(
                    "transaction {} has a call under way in another thread. That call waits for transaction {caller}, and \
                     this call is made inside its closure, so both would wait for ever: use transaction {caller}, or \
                     make the call after it ends",
                    self.xid
                );
                return Err(Error::HeldByCaller { what, table: None });
            }
        }
    }

    /// Sets out, if it has not when it began ([`set_out`]).
    pub(super) fn set_out_now(&self, txn: &mut Txn) -> Result<(), Error> {
        let thread = txn.engine().thread()?;
        set_out(txn, self.isolation, thread)?;
        self.snapshot_lsn.store(snapshot_lsn_of(txn), Relaxed); // For the threads that are handed the transaction.
        Ok(())
    }

    /// True if the snapshot that it has set out with is as new as `lsn`. It may have ended since, as any call says.
    #[inline]
    pub(crate) fn has_snapshot_since(&self, lsn: Lsn) -> bool {
        self.snapshot_lsn.load(Relaxed) >= lsn.0
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

    /// Runs `f` on the running transaction; a deadlock, a refused lock or a full lock table rolls it back at once, so
    /// that the others go on.
    #[inline]
    pub(crate) fn run<T>(&self, f: impl FnOnce(&mut Txn) -> Result<T, Error>) -> Result<T, Error> {
        self.run_in(|txn, _| f(txn))
    }

    /// As [`Shared::run`], with what the transaction itself has made of tables.
    #[inline]
    pub(crate) fn run_in<T>(&self, f: impl FnOnce(&mut Txn, &mut OwnTables) -> Result<T, Error>) -> Result<T, Error> {
        self.run_as(f)
    }

    /// The same with an error of the caller's choice ([`Rare`](crate::rare::Rare)).
    #[inline]
    pub(crate) fn run_as<T, E>(&self, f: impl FnOnce(&mut Txn, &mut OwnTables) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + Into<Error>,
    {
        if self.env.is_closed() {
            return Err(Error::Failed { why: self.env.engine.why_failed() }.into());
        }
        self.call(|state| {
            self.is_untouched.store(false, Relaxed);
            let Some(txn) = state.txn.as_deref_mut() else { return Err(Error::Finished.into()) };
            let mut result = f(txn, &mut state.own);
            if self.is_doomed.load(Relaxed) {
                return self.doomed(result);
            }
            // In place: a copy of what was stored just now waits for the stores.
            if let Err(error) = &mut result {
                *error = self.refused(state, std::mem::replace(error, Error::Finished.into()).into()).into();
            }
            result
        })
    }

    /// The transaction is rolled back when the state is given back. What the call has made is the user's, perhaps.
    #[cold]
    fn doomed<T, E: From<Error>>(&self, result: Result<T, E>) -> Result<T, E> {
        run_users_code(&self.env.engine, || drop(result));
        Err(Error::Finished.into())
    }

    /// A call failed with `error`, and what it was to do is done in another way: its caller does not hear of it.
    #[cold]
    pub(crate) fn forget_conflict(&self, error: &Error) {
        if error.is_retryable() {
            self.conflict_count.fetch_sub(1, Relaxed); // It was noted in `refused`.
        }
    }

    /// What a call answers that ended with `error`: with names in it, and after the rollback if it needs one.
    #[cold]
    fn refused(&self, state: &mut State, error: Error) -> Error {
        let error = match error {
            Error::LockTableFull { held, max } => {
                Error::LockTableFull { held: state.txn.as_ref().map_or(held, |txn| txn.lock_count()), max }
            }
            error => {
                let named = error.with_locks_named(&|lock| self.env.lock_text(lock));
                named.with_holders_told(&|holders| self.env.rollbacks.told_of(holders))
            }
        };
        if error.is_retryable() {
            self.conflict_count.fetch_add(1, Relaxed);
            self.had_timeout.fetch_or(matches!(error, Error::LockTimeout { .. }), Relaxed);
        }
        // The disk may be full of log, and the file of pages that wait to be freed.
        match &error {
            Error::ReadOnly { .. } => self.env.bell().lack(),
            Error::Setting { name, .. } if name == "page_count_max" => self.env.bell().lack(),
            _ => {}
        }
        let conflict = match &error {
            Error::Deadlock { cycle, transactions } => {
                Some(Error::Deadlock { cycle: cycle.clone(), transactions: transactions.clone() })
            }
            Error::LockRefused { what, table, holders } => {
                Some(Error::LockRefused { what: what.clone(), table: *table, holders: holders.clone() })
            }
            &Error::LockTableFull { held, max } => Some(Error::LockTableFull { held, max }),
            _ => None,
        };
        if let Some(conflict) = conflict
            && let Some(txn) = state.txn.take()
        {
            *self.ended_by.lock() = Some(EndedBy { conflict, awaited: txn.gave_way_for() });
            self.was_ended.store(true, Relaxed);
            if let Err(failed) = txn.abort() {
                return failed.into();
            }
        }
        self.env.say_failed(error)
    }
}

#[inline]
fn snapshot_lsn_of(txn: &Txn) -> u64 {
    txn.snapshot().map_or(0, |at| at.lsn.0)
}

/// What a transaction does first, or as soon as what it had to wait for has ended: its snapshot shows that.
#[inline(always)]
pub(crate) fn set_out(txn: &mut Txn, isolation: Isolation, thread: SlotNo) -> Result<(), Error> {
    txn.avoid_deadlocks(); // Before, it holds nothing that others could wait for.
    if isolation == Isolation::Snapshot {
        txn.set_snapshot(thread)?;
    }
    Ok(())
}
