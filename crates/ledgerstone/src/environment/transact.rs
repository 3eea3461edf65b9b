//! How transactions begin, and are run again after a conflict.

use std::time::Duration;

use ledgerstone_page::Xid;
use ledgerstone_region::sync;

use super::Environment;
use crate::Error;
use crate::transaction::{Committed, EndedBy, Transaction, TransactionOptions};
use ledgerstone_core::choice::Isolation;

/// Tries of [`Environment::transact`] before it gives a conflict back to its caller.
const TRY_COUNT_MAX: u32 = 200;
/// So many times the pauses between them double.
const PAUSE_GROWTH: u32 = 8;
/// How long it tries at least to get a lock that is not given in time.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

impl Environment {
    /// Begins a transaction with the environment's settings.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::TooManyTransactions`].
    pub fn begin(&self) -> Result<Transaction, Error> {
        self.begin_with(TransactionOptions::default())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Environment::begin`].
    pub fn begin_with(&self, options: TransactionOptions) -> Result<Transaction, Error> {
        self.begin_aged(options, Xid::NONE, true)
    }

    /// With `sets_out` off, [`Transaction::wait_and_set_out`] comes next.
    fn begin_aged(&self, options: TransactionOptions, age: Xid, sets_out: bool) -> Result<Transaction, Error> {
        let engine = &self.inner.handles.env.engine;
        let slot = match engine.slots.at_hand() {
            Some(slot) => slot,
            None => {
                engine.check()?; // The first thing to be told, also where there is no slot.
                engine.thread()?
            }
        };
        let seat = self.inner.seat(slot).clone(); // Counted first (S1 in `transaction/seat.rs`).
        Transaction::begin(seat, options, age, sets_out)
    }

    /// Begins a transaction for reading only, at a snapshot of everything that is committed. It takes no locks, so it
    /// never waits for other transactions, and they never wait for it.
    ///
    /// What it sees is kept for it in memory ([`Options::version_store_bytes`](crate::Options::version_store_bytes)).
    /// Read and drop it soon, or it becomes too old. A table that was not there at that moment is not made: opening it
    /// returns [`Error::NoSuchTable`].
    ///
    /// # Errors
    /// As [`Environment::begin`]; [`Error::TooManySnapshots`].
    pub fn snapshot(&self) -> Result<Transaction, Error> {
        let isolation = Some(Isolation::Snapshot);
        self.begin_with(TransactionOptions { isolation, read_only: true, ..TransactionOptions::default() })
    }

    /// Runs `f` in a transaction and commits it. A transaction that meets a conflict is run again, with growing pauses.
    /// After a deadlock it first waits until it could have the lock, but no longer than for any lock. Otherwise the
    /// same transaction would stand in its way again. It does the same for a lock that was refused to avoid deadlocks,
    /// once the pauses have grown.
    ///
    /// If `f` fails or panics, the transaction is rolled back. After a failure it is run again if a call in it met a
    /// conflict ([`Error::is_retryable`]), whatever error `f` made of that conflict. It is also run again if `f`
    /// ignored a conflict that has rolled the transaction back. So `f` must change nothing but the database. A
    /// transaction that is run again keeps its age, so that it wins against younger ones in the end.
    ///
    /// `f` may give up for a reason of its own: [`Error::user`]. With an error type of your own, use
    /// [`Environment::try_transact`]. To learn when a commit is durable, use [`Environment::transact_ticket`].
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use ledgerstone::{Error, TableDef};
    ///
    /// const ACCOUNTS: TableDef<u64, u64> = TableDef::new("accounts");
    ///
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let paid = env.transact(|txn| {
    ///     let accounts = txn.open(ACCOUNTS)?;
    ///     let balance = accounts.get(&1)?.unwrap_or(0);
    ///     let rest = balance.checked_sub(30).ok_or_else(|| Error::user("not enough money"))?;
    ///     accounts.put(&1, &rest)?;
    ///     Ok(())
    /// });
    /// assert_eq!(paid.unwrap_err().to_string(), "not enough money");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Blocking
    /// May wait for locks, for pages to be read, for room in the log, and between tries. With
    /// [`Durability::Sync`](crate::Durability::Sync) it also waits until the commit is durable.
    ///
    /// # Errors
    /// What `f` returns, or the error of a commit that failed. A conflict that was met 200 times.
    /// [`Error::LockTimeout`] when a lock was not granted for three times its time-out, and for a second at least,
    /// because its holder does not end. The holder may be a transaction in doubt. [`Error::TooManyTransactions`], and
    /// [`Error::Failed`].
    pub fn transact<T>(&self, f: impl FnMut(&Transaction) -> Result<T, Error>) -> Result<T, Error> {
        self.try_transact(f)
    }

    /// As [`Environment::transact`], with options.
    ///
    /// Waits as [`Environment::transact`] does: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn transact_with<T>(
        &self,
        options: TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_transact_with(options, f)
    }

    /// As [`Environment::transact_with`]. Also returns where the commit lies in the log, and a ticket that tells when
    /// it is durable.
    ///
    /// With [`Durability::Pipelined`](crate::Durability::Pipelined) and [`Durability::Async`](crate::Durability::Async)
    /// this returns before the commit is durable. Pass the result on when the [`Ticket`](crate::Ticket) says that it is
    /// durable: wait for the ticket, poll it, or await it in any async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use ledgerstone::{Durability, TableDef, TransactionOptions};
    ///
    /// const JOBS: TableDef<u64, String> = TableDef::new("jobs");
    ///
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let options = TransactionOptions { durability: Some(Durability::Pipelined), ..Default::default() };
    /// let (id, committed) = env.transact_ticket(options, |txn| {
    ///     txn.open(JOBS)?.put(&7, &"print".to_string())?;
    ///     Ok(7)
    /// })?;
    /// committed.ticket.wait()?; // In async code: `committed.ticket.await?`.
    /// println!("job {id} is durable");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Blocking
    /// As [`Environment::transact`]. Async code calls it in a thread that may block, such as tokio's `spawn_blocking`.
    /// Awaiting the ticket never blocks.
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn transact_ticket<T>(
        &self,
        options: TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, Error>,
    ) -> Result<(T, Committed), Error> {
        self.try_transact_ticket(options, f)
    }

    /// As [`Environment::transact`], for closures that fail with a program's own error type.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// #[derive(Debug)]
    /// enum Broke {
    ///     NoMoney { missing: u64 },
    ///     Store(ledgerstone::Error),
    /// }
    ///
    /// impl From<ledgerstone::Error> for Broke {
    ///     fn from(error: ledgerstone::Error) -> Broke {
    ///         Broke::Store(error)
    ///     }
    /// }
    ///
    /// const ACCOUNTS: ledgerstone::TableDef<u64, u64> = ledgerstone::TableDef::new("accounts");
    ///
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let paid = env.try_transact(|txn| {
    ///     let balance = txn.open(ACCOUNTS)?.get(&1)?.unwrap_or(0);
    ///     if balance < 30 {
    ///         return Err(Broke::NoMoney { missing: 30 - balance });
    ///     }
    ///     Ok(())
    /// });
    /// assert!(matches!(paid, Err(Broke::NoMoney { missing: 30 })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Waits as [`Environment::transact`] does: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn try_transact<T, E: From<Error>>(&self, f: impl FnMut(&Transaction) -> Result<T, E>) -> Result<T, E> {
        self.try_transact_with(TransactionOptions::default(), f)
    }

    /// As [`Environment::try_transact`], with options.
    ///
    /// Waits as [`Environment::transact`] does: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn try_transact_with<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.try_transact_ticket(options, f).map(|(value, _)| value)
    }

    /// As [`Environment::transact_ticket`], for closures that fail with a program's own error type.
    ///
    /// Waits as [`Environment::transact`] does: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn try_transact_ticket<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        mut f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let (mut tries, mut age, mut awaited) = (0, Xid::NONE, None);
        let timeout = options.lock_timeout.unwrap_or(Duration::from_millis(self.effective().lock_timeout_ms));
        let patience = timeout.saturating_mul(3).max(PATIENCE_MIN);
        let give_up_ns = sync::now_ns().saturating_add(sync::nanoseconds(patience));
        loop {
            let mut txn = self.begin_aged(options, age, awaited.is_none())?;
            let xid = txn.xid();
            if age == Xid::NONE {
                age = xid;
            }
            let done = match awaited {
                None => Ok(()),
                Some((name, mode)) => txn.wait_and_set_out(name, mode).map_err(E::from),
            };
            let inside = txn.shared.users_code();
            let done = done.and_then(|()| f(&txn));
            drop(inside);
            // What was not ended by a conflict now, in another thread perhaps, will not be.
            let done = done.and_then(|value| Ok((value, txn.end_unless_ended()?)));
            let ended_by = txn.ended_by();
            // A refused lock is often free after a pause, and a transaction that waits for it keeps younger ones out
            // where they avoid deadlocks.
            let has_to_wait = |by: &&EndedBy| tries >= PAUSE_GROWTH || matches!(by.conflict, Error::Deadlock { .. });
            awaited = ended_by.as_ref().filter(has_to_wait).and_then(|by| by.awaited);
            let error = match (done, ended_by) {
                (Ok((value, Some(running))), _) => {
                    // Deadlock and time-out come before: a commit waits for nothing but the log.
                    return Ok((value, txn.commit_ended(running, txn.durability())?));
                }
                // `f` made nothing of a conflict that has rolled its transaction back: what it did is gone.
                (Ok((_, None)), Some(ended_by)) => ended_by.conflict.into(),
                (Ok((_, None)), None) => Error::Finished.into(),
                (Err(error), _) => error,
            };
            let (had_conflict, had_timeout) = (txn.had_conflict(), txn.had_timeout());
            drop(txn); // Rolled back before the pause.
            tries += 1;
            if !had_conflict || tries == TRY_COUNT_MAX || had_timeout && sync::now_ns() >= give_up_ns {
                return Err(error);
            }
            pause(tries, xid);
        }
    }
}

/// Waits a little, longer from try to try, and differently for each transaction, so that rivals do not meet again.
fn pause(tries: u32, xid: Xid) {
    let step_ns = 20_000 << tries.min(PAUSE_GROWTH);
    sync::sleep_ns(xid.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) % step_ns);
}
