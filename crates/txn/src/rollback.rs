//! Rollback: the chain of records read backwards, each update undone by a compensation record.
//!
//! The same code serves an abort, a failed nested top action, and the losers of a restart.
//!
//! B1. A record is undone once: its compensation record names what comes next, and a rollback that starts again (after
//!     a crash in the middle) goes on there.
//! B2. Compensation records and groups are never undone; a finished nested top action is jumped over.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_log::{Backwards, RecordKind, RecordView};
use ledgerstone_op::Undo;
use ledgerstone_page::Lsn;

use crate::table::state;
use crate::txn::RECORD_OVERHEAD_BYTES;
use crate::{Txn, TxnError};

impl Txn {
    /// Rolls the transaction back: afterwards it is as if it had never been.
    ///
    /// # Errors
    /// A rollback that fails fails the environment; a restart finishes it.
    pub fn abort(mut self) -> Result<(), TxnError> {
        self.roll_back_all()
    }

    /// Undoes everything after `savepoint`, a value of [`Txn::last_lsn`] taken earlier; the transaction goes on.
    ///
    /// # Errors
    /// As [`Txn::abort`].
    pub fn undo_back_to(&mut self, savepoint: Lsn) -> Result<(), TxnError> {
        let was = self.rolling_back;
        self.rolling_back = true;
        let done = self.undo_chain(savepoint);
        self.rolling_back = was;
        if let Err(error) = &done {
            self.engine.fail(&format!("rollback of transaction {} failed: {error}", self.chain.xid));
        }
        done
    }

    pub(crate) fn roll_back_all(&mut self) -> Result<(), TxnError> {
        self.engine.check()?;
        if self.chain.last_lsn != Lsn(0) {
            self.slot().state.store(state::ABORTING, Relaxed);
            self.undo_back_to(Lsn(0))?;
            self.finish_rollback()?;
        }
        self.end(false, None);
        Ok(())
    }

    /// Writes the record that says that the rollback is complete.
    fn finish_rollback(&mut self) -> Result<(), TxnError> {
        self.rolling_back = true;
        self.claim(2 * RECORD_OVERHEAD_BYTES)?;
        self.chain.append_plain(&self.engine, RecordKind::End, &[])?;
        Ok(())
    }

    /// Ends an adopted loser whose chain has been undone.
    ///
    /// # Errors
    /// The log failed.
    pub fn end_loser(mut self) -> Result<(), TxnError> {
        self.finish_rollback()?;
        self.end(false, None);
        Ok(())
    }

    fn undo_chain(&mut self, until: Lsn) -> Result<(), TxnError> {
        let mut next = self.chain.last_lsn;
        if next > until {
            let low = until.max(self.chain.first_lsn);
            let mut back = Backwards::new(&self.engine.log, low, self.chain.undo_needed());
            while next > until {
                next = self.undo_one(&mut back, next)?;
            }
        }
        Ok(())
    }

    /// Undoes the record at `lsn`, read through `back`, if it needs it, and says where the rollback goes on. For restart's merged
    /// undo, the caller keeps [`Txn::begin_undo`] in force.
    ///
    /// # Errors
    /// The log cannot be read, a page cannot, an undo refuses.
    pub fn undo_one(&mut self, back: &mut Backwards, lsn: Lsn) -> Result<Lsn, TxnError> {
        let record = self.engine.log.read_backwards(back, lsn)?;
        if record.xid() != self.chain.xid {
            return Err(TxnError::BrokenChain { lsn, xid: self.chain.xid });
        }
        match record.kind() {
            RecordKind::Update => {
                self.undo_update(record)?;
                Ok(record.prev_lsn())
            }
            RecordKind::Compensation | RecordKind::NtaEnd => Ok(record.undo_next()),
            _ => Ok(record.prev_lsn()),
        }
    }

    /// Declares that this transaction only undoes from now on (restart).
    pub fn begin_undo(&mut self) {
        self.rolling_back = true;
        self.slot().state.store(state::ABORTING, Relaxed);
    }

    fn undo_update(&mut self, record: RecordView<'_>) -> Result<(), TxnError> {
        let engine = Arc::clone(&self.engine);
        let op = record.op();
        let undo = engine.ops.get(op)?.undo(record.args());
        match undo {
            Undo::Nothing => Ok(()),
            Undo::Page { op, args } => {
                self.claim(args.len() + 2 * RECORD_OVERHEAD_BYTES)?;
                let mut page = engine.cache.exclusive(record.page())?;
                self.compensating = Some(record.prev_lsn());
                self.update(&mut page, op, &args)?;
                Ok(())
            }
            Undo::Logical => {
                let handler = engine.undo_of(op, record.lsn())?;
                self.compensating = Some(record.prev_lsn());
                handler.undo(self, op, record.args())?;
                assert!(self.compensating.is_none(), "the logical undo of operation {op} wrote no compensation record");
                Ok(())
            }
        }
    }
}
