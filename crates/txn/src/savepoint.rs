//! Savepoints: a transaction goes back to a point in the middle of it, and on from there.
//!
//! ```text
//!   update a   S   update b   update c   ── rollback to S ──   undo c   undo b   update d
//!                 └───────────────────────────────────────────────────────┘
//!                  jumped over by every later rollback: the compensation records say so (X3)
//! ```
//! V1. A rollback to a savepoint is the ordinary undo of what was logged since, compensation records and all. A crash
//!     in the middle of it rolls the whole transaction back and goes on where it was.
//! V2. Locks taken since stay until the transaction ends. The values read under them may have decided what the
//!     transaction does next, and iterators rely on the keys that they passed. (Locks of records that were taken back
//!     could be let go, but nobody can say which lock is for what.)
//! V3. Savepoints are a stack: going back to one forgets those that came after it, and keeps the one itself.
//! V4. Hooks that were set since run at once, told that their work did not stay.
//! V5. A savepoint is of one nesting depth: from inside a nested top action nobody goes back to before it, and
//!     those set inside are gone when it ends.
//! V6. What was reserved in the log for undoing what is undone now is given back, so that a transaction may go back and
//!     forth any number of times.
//! V7. A call that changes several things does so as one step: refused in the middle, it has changed nothing. A caller
//!     that asks for it may ask again, or commit what came before.

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, Xid};

use crate::{Txn, TxnError};

/// A point that a transaction can go back to. It belongs to that transaction only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Savepoint {
    xid: Xid,
    no: u64,
}

/// What is remembered of a savepoint.
pub(crate) struct Mark {
    no: u64,
    point: Point,
    nesting: u32,
}

/// A point in a transaction's work.
#[derive(Clone, Copy)]
struct Point {
    lsn: Lsn,
    hook_count: usize,
    undo_needed: u64,
}

/// The savepoints that stand, oldest first.
#[derive(Default)]
pub(crate) struct Marks {
    stack: Vec<Mark>,
    given_count: u64,
}

impl Marks {
    /// None any more, for another transaction.
    pub fn clear(&mut self) {
        self.stack.clear();
        self.given_count = 0;
    }

    pub fn count(&self) -> usize {
        self.stack.len()
    }

    /// Forgets all but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.stack.truncate(count);
    }
}

impl Txn {
    /// Marks this point. Costs nothing but a few words of memory.
    pub fn savepoint(&mut self) -> Savepoint {
        self.marks.given_count += 1;
        let no = self.marks.given_count;
        let point = self.point();
        self.marks.stack.push(Mark { no, point, nesting: self.nesting });
        Savepoint { xid: self.xid(), no }
    }

    #[inline]
    fn point(&self) -> Point {
        Point { lsn: self.chain.last_lsn, hook_count: self.hooks.len(), undo_needed: self.chain.undo_needed() }
    }

    /// Undoes everything since `savepoint`. The savepoint stays, and later ones are gone (V3). Locks are kept (V2).
    /// Hold no latch.
    ///
    /// # Errors
    /// [`TxnError::NoSavepoint`], with nothing changed. Any other error has failed the environment, as in
    /// [`Txn::abort`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let at = self.find_savepoint(savepoint)?;
        self.engine.check()?;
        let mut point = self.marks.stack[at].point;
        if planted::is_on(Bug::RollbackStopsEarly) {
            point.lsn = self.one_record_after(point.lsn)?;
        }
        self.go_back(point)?;
        self.marks.truncate(at + 1);
        Ok(())
    }

    fn go_back(&mut self, point: Point) -> Result<(), TxnError> {
        self.undo_back_to(point.lsn)?;
        self.release_claim();
        self.chain.set_undo_needed(&self.engine, point.undo_needed); // V6
        for hook in self.hooks.drain(point.hook_count..).rev() {
            hook(false); // V4
        }
        Ok(())
    }

    /// Runs `f` as one step: if `f` fails, what it did is undone, and the transaction goes on (V7). Use it for steps
    /// that call no user's code once they have changed something. For others there is [`Txn::in_one_step`]. A step that
    /// succeeds costs nothing. Hold no latch, and leave no savepoint behind.
    ///
    /// # Errors
    /// What `f` returns. If the rollback fails, the environment has failed.
    #[inline]
    pub fn whole<T, E: From<TxnError>>(&mut self, f: impl FnOnce(&mut Txn) -> Result<T, E>) -> Result<T, E> {
        let before = self.point();
        let done = f(self);
        if done.is_err() {
            self.take_back(before)?;
        }
        done
    }

    #[cold]
    fn take_back(&mut self, before: Point) -> Result<(), TxnError> {
        let has_done = self.chain.last_lsn != before.lsn || self.hooks.len() != before.hook_count;
        // What is left of a failed environment is the restart's.
        if has_done && !self.engine.is_failed() { self.go_back(before) } else { Ok(()) }
    }

    /// Forgets `savepoint` and those after it. What was done since then stays part of the transaction.
    ///
    /// # Errors
    /// [`TxnError::NoSavepoint`].
    pub fn release_savepoint(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let at = self.find_savepoint(savepoint)?;
        self.marks.truncate(at);
        Ok(())
    }

    fn find_savepoint(&self, savepoint: Savepoint) -> Result<usize, TxnError> {
        let is_it = |mark: &Mark| mark.no == savepoint.no && mark.nesting == self.nesting;
        match self.marks.stack.iter().rposition(is_it) {
            Some(at) if savepoint.xid == self.xid() => Ok(at),
            _ => Err(TxnError::NoSavepoint { xid: self.xid() }),
        }
    }

    /// For the planted bug: the first record behind a savepoint.
    fn one_record_after(&self, lsn: Lsn) -> Result<Lsn, TxnError> {
        let mut next = self.chain.last_lsn;
        let mut first = lsn;
        while next > lsn {
            first = next;
            next = self.engine.log.read(next)?.prev_lsn();
        }
        Ok(first)
    }
}
