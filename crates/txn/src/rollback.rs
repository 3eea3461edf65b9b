//! Rollback: the chain of records read backwards, each update undone by a compensation record.
//!
//! The same code serves an abort, a failed nested top action, and the losers of a restart.
//!
//! B1. A record is undone once: its compensation record names what comes next, and a rollback that starts again (after
//!     a crash in the middle) goes on there.
//! B2. Compensation records and groups are never undone; a finished nested top action is jumped over.
//! B3. A restart undoes records out of their order, where their operations say that it does not matter. Their
//!     compensation records name what they undo, and say nothing of the rest: a reader of the chain backwards meets
//!     them before what they undo, and passes that over. When everything behind a record has been undone, the last of
//!     them says so as in B1, and nothing behind it needs to be looked at again. So a restart writes no more than an
//!     abort would.

use ledgerstone_log::{Backwards, RecordKind, RecordView};
use ledgerstone_op::Undo;
use ledgerstone_page::{Lsn, OpId, PageId};

use crate::chain::FLAG_OUT_OF_ORDER;
use crate::txn::{Compensates, RECORD_OVERHEAD_BYTES};
use crate::{Txn, TxnError, UndoPlace, state};

impl Txn {
    /// Rolls the transaction back. Afterwards it is as if it had never been.
    ///
    /// # Errors
    /// If the rollback fails, the environment fails. A restart finishes the rollback.
    pub fn abort(mut self) -> Result<(), TxnError> {
        self.roll_back_all()
    }

    /// Undoes everything after `savepoint`, a value of [`Txn::last_lsn`] that was taken earlier. The transaction goes
    /// on.
    ///
    /// # Errors
    /// As [`Txn::abort`].
    pub fn undo_back_to(&mut self, savepoint: Lsn) -> Result<(), TxnError> {
        let was = self.rolling_back;
        self.rolling_back = true;
        self.set_near(PageId::NONE, PageId::NONE);
        let done = self.undo_chain(savepoint);
        self.rolling_back = was;
        if let Err(error) = &done {
            self.engine.fail(&format!("rollback of transaction {} failed: {error}", self.chain.xid));
        }
        done
    }

    pub(crate) fn roll_back_all(&mut self) -> Result<(), TxnError> {
        self.engine.check()?;
        self.ending(|txn| {
            if txn.chain.last_lsn != Lsn(0) {
                txn.slot().enter(state::ABORTING);
                txn.undo_back_to(Lsn(0))?;
                txn.finish_rollback()?;
            }
            txn.end_rolled_back();
            Ok(())
        })
    }

    /// Ends it, when all that it has done is undone.
    pub(crate) fn end_rolled_back(&mut self) {
        // Where leaves are locked, a split stays that has moved what others have written and not made durable yet: to a
        // leaf whose lock only this transaction ever had. So a thread that reads there waits for its end.
        let moved = self.engine.settings.locks_pages && self.chain.last_lsn != Lsn(0);
        self.end(false, moved.then_some(self.chain.last_lsn));
    }

    /// Writes the record that says that the rollback is complete.
    pub(crate) fn finish_rollback(&mut self) -> Result<(), TxnError> {
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

    /// Undoes the record at `lsn`, read through `back`, if it needs it, and says where the rollback goes on.
    fn undo_one(&mut self, back: &mut Backwards, lsn: Lsn) -> Result<Lsn, TxnError> {
        let record = self.read_own(back, lsn)?;
        if record.kind() == RecordKind::Update {
            let says = Compensates::BackTo(record.prev_lsn());
            self.undo_update(lsn, record.op(), record.page(), record.args(), says)?;
        }
        Ok(goes_on_at(record))
    }

    /// What the rollback of this transaction at a restart has to do about the record at `lsn`, and where the rollback
    /// goes on. The caller keeps [`Txn::begin_undo`] in force.
    ///
    /// # Errors
    /// The log cannot be read, or an operation is unknown.
    pub fn look_at<'b>(&self, back: &'b mut Backwards, lsn: Lsn) -> Result<(Step<'b>, Lsn), TxnError> {
        let record = self.read_own(back, lsn)?;
        let step = match record.kind() {
            RecordKind::Update => {
                let (op, page, args) = (record.op(), record.page(), record.args());
                let operation = self.engine.ops.get(op)?;
                let in_order = UndoPlace { space: PageId::NONE, key: &[], args };
                let place = match operation.undo(args) {
                    Undo::Nothing => None,
                    Undo::Page { .. } if operation.is_undone_by_page() => Some(UndoPlace { space: page, ..in_order }),
                    Undo::Page { .. } => Some(in_order),
                    Undo::Logical => Some(self.engine.undo_of(op, lsn)?.place(op, args).unwrap_or(in_order)),
                };
                place.map_or(Step::Pass, |place| Step::Undo { op, page, place })
            }
            RecordKind::Compensation if record.flags() & FLAG_OUT_OF_ORDER != 0 => Step::Undid(record.undo_next()),
            _ => Step::Pass,
        };
        Ok((step, goes_on_at(record)))
    }

    pub(crate) fn read_own<'b>(&self, back: &'b mut Backwards, lsn: Lsn) -> Result<RecordView<'b>, TxnError> {
        let record = self.engine.log.read_backwards(back, lsn)?;
        if record.xid() != self.chain.xid {
            return Err(TxnError::BrokenChain { lsn, xid: self.chain.xid });
        }
        Ok(record)
    }

    /// Undoes the record at `lsn` out of order, by what its [`UndoPlace`](crate::UndoPlace) kept of the arguments. If
    /// `goes_on_at` is given, this notes that it is the last to be undone behind the record there (B3).
    ///
    /// # Errors
    /// A page cannot be read, the undo refuses, or the log failed.
    pub fn undo_in_place(
        &mut self,
        lsn: Lsn,
        (op, page): (OpId, PageId),
        args: &[u8],
        goes_on_at: Option<Lsn>,
    ) -> Result<(), TxnError> {
        let says = goes_on_at.map_or(Compensates::Only(lsn), Compensates::BackTo);
        self.undo_update(lsn, op, page, args, says)?;
        let needed = self.chain.undo_needed().saturating_sub((args.len() + RECORD_OVERHEAD_BYTES) as u64);
        self.chain.set_undo_needed(&self.engine, needed); // A3 in `later.rs`
        Ok(())
    }

    /// Declares that this transaction only undoes from now on (restart). Dropped before its end it stays as it is, and
    /// the engine fails: the next restart goes on. [`Txn::leave`] drops it without that.
    pub fn begin_undo(&mut self) {
        self.rolling_back = true;
        self.is_loser = true;
        self.slot().enter(state::ABORTING);
    }

    fn undo_update(
        &mut self,
        lsn: Lsn,
        op: OpId,
        page: PageId,
        args: &[u8],
        says: Compensates,
    ) -> Result<(), TxnError> {
        let engine = self.engine.clone();
        match engine.ops.get(op)?.undo(args) {
            Undo::Nothing => {}
            Undo::Page { op, args } => {
                self.claim(args.len() + 2 * RECORD_OVERHEAD_BYTES)?;
                let mut page = engine.cache.exclusive(page)?;
                self.compensating = Some(says);
                self.update(&mut page, op, &args)?;
            }
            Undo::Logical => {
                let handler = engine.undo_of(op, lsn)?;
                self.compensating = Some(says);
                handler.undo(self, op, args)?;
                assert!(self.compensating.is_none(), "the logical undo of operation {op} wrote no compensation record");
            }
        }
        Ok(())
    }
}

/// What to do about a record of a transaction that a restart rolls back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'b> {
    /// Nothing.
    Pass,
    /// Nothing. The record that it names has already been undone.
    Undid(Lsn),
    /// Undo it, after the later records of the same place.
    Undo {
        /// The operation.
        op: OpId,
        /// The page that it changed then.
        page: PageId,
        /// Its place. Updates that may not change places with each other have one together: page none, and no key.
        place: UndoPlace<'b>,
    },
}

/// The record of the chain that comes after this one in a rollback.
pub(crate) fn goes_on_at(record: RecordView<'_>) -> Lsn {
    match record.kind() {
        RecordKind::Compensation if record.flags() & FLAG_OUT_OF_ORDER != 0 => record.prev_lsn(),
        RecordKind::Compensation | RecordKind::NtaEnd => record.undo_next(),
        _ => record.prev_lsn(),
    }
}
