//! Savepoints and nested transactions, as users see them.
//!
//! Both are marks in the running transaction ([`ledgerstone_txn::Savepoint`]); a nested transaction is a mark that is
//! set before its closure and is gone after it.
//!
//! P1. With each mark it is kept how much the transaction had made of tables: going back takes back what it made since.
//!     A table created since is dropped for every handle to it that is left ([`Error::NoSuchTable`]); one dropped
//!     since is there again.
//! P2. Inside a child only the child's own savepoints can be gone back to or released: a child decides about itself
//!     alone.
//! P3. A child that ends in any way but success, a panic included, is taken back. A deadlock ends the whole
//!     transaction, with all its children: its locks are one set. So does a child whose end is refused because a call
//!     of another thread has the transaction (H1). So does one that outlives the child around it, in another thread.
//!     What is half done must not be committed.

use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_page::planted::{self, Bug};

use super::shared::State;
use super::{Shared, Transaction};
use crate::Error;
use crate::catalog::Made;

/// A point in a transaction to go back to with [`Transaction::rollback_to`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Savepoint(ledgerstone_txn::Savepoint);

/// A savepoint that stands, or the beginning of a child that runs.
pub(crate) struct Point {
    at: Savepoint,
    made: Made,
    /// Points up to the beginning of the innermost child that runs here, that one included.
    outside_count: usize,
    /// This child or one around it may only read.
    refuses_writes: bool,
}

impl Transaction {
    /// Marks this point of the transaction, to go back to it with [`Transaction::rollback_to`].
    ///
    /// # Errors
    /// [`Error::Finished`].
    pub fn savepoint(&self) -> Result<Savepoint, Error> {
        self.shared.mark(false, false)
    }

    /// Undoes everything that was done since `savepoint`. The transaction goes on from there. The savepoint stays, and
    /// can be gone back to again. Later ones are gone.
    ///
    /// Locks that were taken since are kept until the transaction ends. Tables that were created since are gone, and
    /// tables that were dropped since are back. Iterators go on with the records that are there now.
    ///
    /// May wait for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSavepoint`] if it was released, belongs to another transaction, or lies before the nested transaction
    /// that is running. [`Error::Finished`]. If the rollback fails, the environment fails.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Error> {
        self.shared.rollback_to(savepoint)
    }

    /// Forgets `savepoint` and all later ones. What was done since stays part of the transaction.
    ///
    /// # Errors
    /// As [`Transaction::rollback_to`].
    pub fn release(&self, savepoint: Savepoint) -> Result<(), Error> {
        self.shared.release(savepoint)
    }

    /// Runs `f` as a nested transaction. If it succeeds, its work becomes part of this transaction. If it fails or
    /// panics, only its work is undone, and this transaction goes on. Nested transactions can be nested to any depth.
    ///
    /// `f` gets this transaction itself, so the open tables can be used inside. The child has the parent's locks. The
    /// child's own locks pass to the parent when it ends, however it ends. Its work is durable when the outermost
    /// transaction has committed, and not before. A deadlock ends the outermost transaction. So does a closure of
    /// another thread that keeps this transaction busy for a second when `f` has ended.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// env.transact(|txn| {
    ///     let log = txn.bytes_or_create("log")?;
    ///     log.put(b"order", b"received")?;
    ///     let paid = txn.nested(|txn| {
    ///         txn.bytes("log")?.put(b"payment", b"tried")?;
    ///         txn.bytes("accounts")?.put(b"shop", b"+1") // There is no such table.
    ///     });
    ///     assert!(paid.is_err());
    ///     assert_eq!(log.get(b"payment")?, None);
    ///     assert_eq!(log.get(b"order")?.as_deref(), Some(&b"received"[..]));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// With an error type of your own, use [`Transaction::try_nested`].
    ///
    /// Waits for whatever `f` waits for. If `f` fails, it may also wait for pages: see [what
    /// blocks](crate#what-blocks).
    ///
    /// # Errors
    /// What `f` returns. [`Error::Finished`] if the transaction has ended. [`Error::Busy`] if another thread kept it
    /// busy at the end of `f`; [`Error::NoSavepoint`] if threads have nested in it side by side, and another's `f` that
    /// began before has ended. After both it is rolled back, and all later calls say that it has ended.
    pub fn nested<T>(&self, f: impl FnOnce(&Transaction) -> Result<T, Error>) -> Result<T, Error> {
        self.run_child(false, f)
    }

    /// As [`Transaction::nested`], for closures that fail with a program's own error type.
    ///
    /// Waits for whatever `f` waits for. If `f` fails, it may also wait for pages: see [what
    /// blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Transaction::nested`].
    pub fn try_nested<T, E: From<Error>>(&self, f: impl FnOnce(&Transaction) -> Result<T, E>) -> Result<T, E> {
        self.run_child(false, f)
    }

    /// As [`Transaction::nested`], and the child may only read: every change in it is refused with [`Error::ReadOnly`],
    /// also by the children that it has itself.
    ///
    /// Waits for whatever `f` waits for. If `f` fails, it may also wait for pages: see [what
    /// blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Transaction::nested`].
    pub fn nested_read_only<T>(&self, f: impl FnOnce(&Transaction) -> Result<T, Error>) -> Result<T, Error> {
        self.run_child(true, f)
    }

    fn run_child<T, E: From<Error>>(
        &self,
        refuses_writes: bool,
        f: impl FnOnce(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.shared.run_child(refuses_writes, || {
            let _inside = self.shared.users_code();
            f(self)
        })
    }
}

/// A child that runs; taken back if its closure panics (P3).
struct Child<'t> {
    shared: &'t Shared,
    at: Savepoint,
    has_ended: bool,
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // If this fails, so has the environment or the transaction, and every later call says so.
            let _ = self.shared.end_child(self.at, false);
        }
    }
}

impl Shared {
    /// Runs `f`; what it has done is taken back if it fails or panics.
    pub(crate) fn run_child<T, E: From<Error>>(
        &self,
        refuses_writes: bool,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut child = Child { shared: self, at: self.mark(true, refuses_writes)?, has_ended: false };
        let result = f();
        child.has_ended = true;
        let ended = self.end_child(child.at, result.is_ok());
        match (result, ended) {
            (Ok(value), Ok(())) => Ok(value),
            // The whole transaction has ended, by a deadlock perhaps; what `f` made of that says more.
            (Err(error), Ok(()) | Err(Error::Finished)) => Err(error),
            (_, Err(error)) => Err(error.into()),
        }
    }

    fn mark(&self, is_child: bool, refuses_writes: bool) -> Result<Savepoint, Error> {
        self.call(|state| {
            let at = Savepoint(state.txn.as_mut().ok_or(Error::Finished)?.savepoint());
            let (around, no) = (state.points.last(), state.points.len());
            let refuses_writes = refuses_writes || around.is_some_and(|around| around.refuses_writes);
            let outside_count = if is_child { no + 1 } else { around.map_or(0, |around| around.outside_count) };
            state.points.push(Point { at, made: state.own.made(), outside_count, refuses_writes });
            self.refuse_writes(refuses_writes);
            Ok(at)
        })
    }

    fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Error> {
        self.call(|state| {
            let txn = state.txn.as_mut().ok_or(Error::Finished)?;
            let at = own_point(&state.points, savepoint)?;
            txn.rollback_to(savepoint.0)?;
            state.own.go_back(state.points[at].made);
            state.points.truncate(at + 1);
            Ok(())
        })
    }

    fn release(&self, savepoint: Savepoint) -> Result<(), Error> {
        self.call(|state| {
            let txn = state.txn.as_mut().ok_or(Error::Finished)?;
            let at = own_point(&state.points, savepoint)?;
            txn.release_savepoint(savepoint.0)?;
            state.points.truncate(at);
            state.forget_marks();
            Ok(())
        })
    }

    fn end_child(&self, at: Savepoint, stays: bool) -> Result<(), Error> {
        let mut held = self.hold().inspect_err(|_| self.doom())?;
        self.env.engine.in_a_call(|| {
            let state = &mut *held.state;
            let no = state.points.iter().rposition(|point| point.at == at);
            let point = no.and_then(|no| state.points.drain(no..).next());
            if point.is_none() && state.txn.is_some() {
                // A child around it has ended before, in another thread. What it has taken back or kept was half of
                // this one's, so nobody can say any more what the transaction is (P3).
                self.is_doomed.store(true, Relaxed);
                return Err(Error::NoSavepoint);
            }
            self.refuse_writes(state.points.last().is_some_and(|point| point.refuses_writes));
            let txn = state.txn.as_mut().ok_or(Error::Finished)?;
            if !stays && !planted::is_on(Bug::NestedAbortStays) {
                txn.rollback_to(at.0)?;
                txn.release_savepoint(at.0)?;
                state.own.go_back(point.map(|point| point.made).unwrap_or_default());
            } else {
                txn.release_savepoint(at.0)?;
            }
            state.forget_marks();
            Ok(())
        })
    }
}

impl State {
    /// What could be gone back to is not kept longer than the last savepoint.
    fn forget_marks(&mut self) {
        if self.points.is_empty() {
            self.own.forget_marks();
        }
    }
}

/// Where a savepoint stands, if the child that runs may use it (P2).
fn own_point(points: &[Point], savepoint: Savepoint) -> Result<usize, Error> {
    let first = points.last().map_or(0, |point| point.outside_count);
    points[first..].iter().rposition(|point| point.at == savepoint).map(|at| first + at).ok_or(Error::NoSavepoint)
}
