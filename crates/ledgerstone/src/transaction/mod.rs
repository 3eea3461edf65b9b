//! A transaction as users see it.
//!
//! A [`Transaction`] and the tables opened in it share the running [`Txn`] behind a mutex. So handles and iterators can
//! be owned, sent to other threads, and outlive each other. Once the transaction has ended, all of them return
//! [`Error::Finished`].
//!
//! H1. A call has the transaction to itself, also while it runs a closure of the user's (`modify`, `for_each_ref`, the
//!     function of an index). If that closure calls back into the same transaction it is told [`Error::Busy`]. Other
//!     threads wait for their turn; but one and the same closure keeps them waiting for a second at most, then they are
//!     told the same. So nobody waits for ever for a closure that waits for him. A thread inside one transaction that
//!     waits for a call of another, which waits for the first to end, is told [`Error::HeldByCaller`].
//! H2. However a call ends, by a panic of the user's code too, it gives back what it held, and what it had half done is
//!     taken back.
//! H3. What belongs together is done while the transaction is held once: another thread that has it next may keep it
//!     for so long that the call is refused the rest.

mod isolation;
mod prepared;
mod savepoint;
mod seat;
mod shared;
mod ticket;

use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_lock::{LockName, Mode};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{Common, Share, sync};
use ledgerstone_txn::{Durability, Txn};

pub(crate) use isolation::Sight;
pub use prepared::Prepared;
pub use savepoint::Savepoint;
pub(crate) use seat::Seat;
pub(crate) use shared::{EndedBy, KeptView, Shared, set_out};
pub use ticket::{Committed, Ticket};

use crate::Error;
use ledgerstone_core::choice::Isolation;

/// How a transaction is to run. `Default` takes everything from the environment's options.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransactionOptions {
    /// When its commit returns.
    pub durability: Option<Durability>,
    /// How long it waits for a lock.
    pub lock_timeout: Option<std::time::Duration>,
    /// What it sees of other transactions. None means [`Isolation::Serializable`].
    pub isolation: Option<Isolation>,
    /// It only reads: whatever would change something is refused with [`Error::ReadOnly`].
    pub read_only: bool,
}

/// A running transaction. It is rolled back when it is dropped without [`Transaction::commit`].
///
/// Its [`Isolation`] says what it sees of other transactions. By default it runs as if it were alone. It is `Send`. Its
/// tables may be used from several threads, one call at a time.
pub struct Transaction {
    pub(crate) shared: Kept,
    durability: Durability,
    xid: Xid,
    has_ended: bool,
    /// When it ended, there was no other handle, and nothing that the next one would have to set right.
    leaves_nothing: bool,
    /// Last: the environment stays open until after the roll-back.
    seat: Share<Seat>,
}

/// What it shares with its handles, until its memory goes to the next transaction at the end of its commit.
pub(crate) struct Kept(Option<Common<Shared>>);

impl std::ops::Deref for Kept {
    type Target = Common<Shared>;

    #[inline]
    fn deref(&self) -> &Common<Shared> {
        self.0.as_ref().expect("a transaction that has committed is not asked again")
    }
}

impl Drop for Transaction {
    #[inline]
    fn drop(&mut self) {
        if !self.has_ended {
            self.roll_back();
        }
    }
}

impl Transaction {
    /// It was dropped before it has ended.
    #[inline(never)]
    fn roll_back(&mut self) {
        // Before anything is waited for. If a closure that a call of it runs keeps us waiting for too long (U2), the
        // closure still ran when we looked, a second after this was said. So the call sees it when it ends, and rolls
        // back. So does a call that drops it by its own closure (H1). In a thread without a slot tables may keep it
        // until they go.
        self.shared.is_doomed.store(true, Relaxed);
        let _ = self.shared.call(|state| {
            drop(state.txn.take());
            Ok::<_, Error>(())
        });
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("xid", &self.xid).field("durability", &self.durability).finish()
    }
}

impl Transaction {
    /// Begins one that is as old as `age`, or as itself. With `sets_out` off, [`Transaction::wait_and_set_out`] comes
    /// next.
    #[inline]
    pub(crate) fn begin(
        seat: Share<Seat>,
        options: TransactionOptions,
        age: Xid,
        sets_out: bool,
    ) -> Result<Transaction, Error> {
        let (mut txn, kept) = seat.begin(age)?;
        if let Some(timeout) = options.lock_timeout {
            txn.set_lock_timeout_ns(sync::nanoseconds(timeout));
        }
        if sets_out {
            set_out(&mut txn, options.isolation.unwrap_or_default(), seat.slot())?;
        }
        let xid = txn.xid();
        let durability = options.durability.unwrap_or(seat.env().durability);
        let shared = Shared::of(seat.env(), txn, &options, kept);
        Ok(Transaction { shared: Kept(Some(shared)), durability, xid, has_ended: false, leaves_nothing: false, seat })
    }

    /// Its id, never reused in the life of the environment.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.xid
    }

    /// What it sees of other transactions.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.shared.isolation
    }

    /// The LSN of its snapshot: it sees the commits whose records begin below. A change feed from there on shows all
    /// others. After a crash this holds too, if the log was durable up to there
    /// ([`Environment::sync`](crate::Environment::sync)). None at other levels than [`Isolation::Snapshot`], and when
    /// the transaction has ended.
    #[must_use]
    pub fn snapshot_lsn(&self) -> Option<Lsn> {
        let held = self.shared.hold().ok()?;
        held.state.txn.as_ref()?.snapshot().map(|at| at.lsn)
    }

    /// Runs `f` as a part of this transaction, like a closure of
    /// [`Environment::transact`](crate::Environment::transact). Use it for callbacks that run while a transaction is
    /// open. If `f` uses another transaction that needs a lock of this one, it would wait for ever. Inside this call
    /// it gets [`Error::HeldByCaller`] at once.
    pub fn run_inside<T>(&self, f: impl FnOnce() -> T) -> T {
        let _inside = self.shared.users_code();
        f()
    }

    /// True if a call met a deadlock or a lock time-out: run again, the transaction may well succeed.
    pub(crate) fn had_conflict(&self) -> bool {
        self.shared.conflict_count.load(Relaxed) != 0
    }

    /// The conflict that has rolled it back, if one has.
    pub(crate) fn ended_by(&self) -> Option<EndedBy> {
        if self.shared.was_ended.load(Relaxed) { self.shared.ended_by.lock().take() } else { None }
    }

    /// For a transaction that is run again: waits until it could have the lock that it gave way for, and sets out then.
    pub(crate) fn wait_and_set_out(&self, name: LockName, mode: Mode) -> Result<(), Error> {
        self.shared.run(|txn| {
            txn.lock_instant(name, mode)?;
            self.shared.set_out_now(txn)
        })?;
        self.shared.is_untouched.store(true, Relaxed); // Nobody has asked for anything yet.
        Ok(())
    }

    pub(crate) fn had_timeout(&self) -> bool {
        self.shared.had_timeout.load(Relaxed)
    }

    /// Commits with the transaction's durability. A transaction that has done nothing stands for all commits before it:
    /// it is durable when they are.
    ///
    /// Waits until the commit is durable with [`Durability::Sync`] only. With the others it may wait for room in the
    /// log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::Finished`]. [`Error::ReadOnly`] if there is no space for the commit record: the transaction is rolled
    /// back. [`Error::Failed`] if the log cannot be written: reopening tells whether the commit was kept.
    pub fn commit(mut self) -> Result<Committed, Error> {
        self.commit_here(self.durability)
    }

    /// Commits with the given durability.
    ///
    /// Waits as [`Transaction::commit`] does: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(mut self, durability: Durability) -> Result<Committed, Error> {
        self.commit_here(durability)
    }

    #[inline(never)]
    fn commit_here(&mut self, durability: Durability) -> Result<Committed, Error> {
        let txn = self.end()?;
        self.commit_ended(txn, durability)
    }

    /// Commits what [`Transaction::end`] has taken.
    #[inline]
    pub(crate) fn commit_ended(&mut self, mut txn: Box<Txn>, durability: Durability) -> Result<Committed, Error> {
        if self.shared.is_untouched.load(Relaxed) {
            let tail = txn.engine().log.tail();
            txn.depend_on_commits_below(tail);
        }
        let committed = txn.commit_in_place(durability)?;
        let ticket = Ticket::new(committed.depends, || txn.engine_share().clone());
        if self.leaves_nothing
            && let Some(shared) = self.shared.0.take()
        {
            self.seat.keep(shared, txn);
        }
        Ok(Committed { lsn: committed.lsn, ticket })
    }

    /// Rolls back.
    ///
    /// May wait for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::Finished`]. If the rollback fails, the environment fails.
    pub fn abort(mut self) -> Result<(), Error> {
        Ok(self.end()?.abort()?)
    }

    #[inline]
    pub(crate) fn end(&mut self) -> Result<Box<Txn>, Error> {
        match self.end_unless_ended()? {
            Some(txn) => Ok(txn),
            None => Err(Error::Finished),
        }
    }

    /// Takes the running transaction out, after calls of other threads; `None` if it has ended, by a conflict perhaps.
    #[inline]
    pub(crate) fn end_unless_ended(&mut self) -> Result<Option<Box<Txn>>, Error> {
        match self.end_alone() {
            Some(txn) => Ok(Some(txn)),
            None => self.end_among_others(),
        }
    }

    /// The same if there is no other handle, and so no call under way that would have to be waited for, and nothing was
    /// noted of the transaction. Most end like this. `None`: it is still there, if it was.
    #[inline]
    fn end_alone(&mut self) -> Option<Box<Txn>> {
        let shared = self.shared.0.as_mut()?.get_mut()?;
        shared.env.engine.slots.at_hand()?; // Otherwise it is for `hold` to say what is wrong with the thread.
        let txn = shared.take_alone()?;
        (self.has_ended, self.leaves_nothing) = (true, true);
        Some(txn)
    }

    #[inline(never)]
    fn end_among_others(&mut self) -> Result<Option<Box<Txn>>, Error> {
        let mut held = self.shared.hold()?;
        let txn = held.state.txn.take();
        drop(held);
        // If a handle goes after this look, the next transaction makes itself anew.
        let shared = self.shared.0.as_mut().and_then(Common::get_mut);
        (self.has_ended, self.leaves_nothing) = (true, shared.is_some_and(Shared::is_as_new));
        Ok(txn)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }
}
