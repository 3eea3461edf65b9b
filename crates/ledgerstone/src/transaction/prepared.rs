//! Two-phase commit: transactions that are prepared, and wait for a decision from outside.
//!
//! ```text
//!  Transaction::prepare(id) ─► in doubt ─┬─ Prepared::commit, Environment::commit_in_doubt ─► committed
//!                                │   ▲   └─ Prepared::abort,  Environment::abort_in_doubt  ─► rolled back
//!                                └───┘ close, crash, restart, dropped handle
//! ```
//! D1. `Inner::in_doubt` holds every prepared transaction of the environment under its global id, no matter who
//!     prepared it and when. A place is taken before the Prepare record is written, and given up after the Commit or
//!     End record is: so an id is never given twice.
//! D2. A decision takes the transaction out of its place, and puts it back if the decision could not be written.
//! D3. A handle names its transaction by global id and [`Xid`]: another one that is prepared later under the same id is
//!     not meant.

use std::sync::Arc;

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::Share;
use ledgerstone_txn::{GLOBAL_ID_BYTES_MAX, Txn};

use super::{Committed, Ticket, Transaction};
use crate::Error;
use crate::inner::{Inner, Waiting, number_of, printable};

/// A prepared transaction. It can be committed or aborted, and nothing can take that away.
///
/// Dropping it decides nothing. The transaction stays in doubt, with its locks, through a close, a crash and restarts,
/// until [`Environment::commit_in_doubt`](crate::Environment::commit_in_doubt) or
/// [`Environment::abort_in_doubt`](crate::Environment::abort_in_doubt) is called. It does not keep the
/// environment open.
pub struct Prepared {
    env: Arc<Inner>,
    global_id: Vec<u8>,
    xid: Xid,
    lsn: Lsn,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("global_id", &printable(&self.global_id)).field("xid", &self.xid).finish()
    }
}

impl Transaction {
    /// Prepares the transaction for a two-phase commit. When this returns, its work is durable and can still be
    /// committed or aborted, whatever crashes. `global_id` (1 to 255 bytes) is the coordinator's name for it.
    ///
    /// What it only read is free for others from now on. What it wrote stays locked until the decision.
    ///
    /// Waits for the disk, to make the transaction durable: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::AlreadyPrepared`], [`Error::BadGlobalId`], conflicts, [`Error::ReadOnly`]: in these cases the
    /// transaction is rolled back. [`Error::Failed`] if the log cannot be written: reopening tells whether the
    /// transaction is in doubt.
    pub fn prepare(mut self, global_id: &[u8]) -> Result<Prepared, Error> {
        let env = Arc::clone(self.shared.env.arc());
        env.check_writable()?;
        if !(1..=GLOBAL_ID_BYTES_MAX).contains(&global_id.len()) {
            return Err(Error::BadGlobalId { len: global_id.len(), max: GLOBAL_ID_BYTES_MAX });
        }
        let mut txn = self.end()?;
        // Among all processes first. If another has it and dies, its transaction may come to wait here at any moment.
        if !env.engine.table.claim_global_id(txn.owner().0, number_of(global_id)) {
            return Err(Error::AlreadyPrepared { id: printable(global_id) });
        }
        env.in_doubt.reserve(global_id)?;
        let prepared = txn.prepare(global_id);
        if txn.is_prepared() {
            let (xid, lsn) = (txn.xid(), txn.last_lsn());
            let lock_count = env.engine.in_a_call(|| lock_count(&txn));
            let waiting = Waiting { lsn, first: txn.first_lsn(), lock_count, txn: *txn };
            env.in_doubt.put(global_id, Box::new(waiting));
            prepared?;
            return Ok(Prepared { env, global_id: global_id.to_vec(), xid, lsn });
        }
        drop(txn); // Rolled back, and only then may the id be given again.
        env.in_doubt.give_up(global_id);
        prepared?;
        Err(Error::Finished)
    }
}

fn lock_count(txn: &Txn) -> u64 {
    let mut count = 0;
    txn.engine().locks.for_each_held(txn.owner(), &mut |_, _| count += 1);
    count
}

impl Prepared {
    /// The coordinator's name for the transaction.
    #[must_use]
    pub fn global_id(&self) -> &[u8] {
        &self.global_id
    }

    /// Its id in this environment.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.xid
    }

    /// Its Prepare record.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Commits, durably. When this returns, the coordinator may forget the transaction.
    ///
    /// Waits for the disk, to make the decision durable: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotPrepared`] if it was already decided elsewhere. [`Error::Failed`] if the log cannot be written or
    /// the environment was closed: after opening again, the transaction is committed, or in doubt as before.
    pub fn commit(self) -> Result<Committed, Error> {
        self.env.commit_in_doubt(&self.global_id, Some(self.xid))
    }

    /// Rolls back, durably.
    ///
    /// Waits for the disk, to make the decision durable: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Prepared::commit`].
    pub fn abort(self) -> Result<(), Error> {
        self.env.abort_in_doubt(&self.global_id, Some(self.xid))
    }
}

impl Inner {
    pub(crate) fn commit_in_doubt(&self, global_id: &[u8], xid: Option<Xid>) -> Result<Committed, Error> {
        let committed = self.decide(global_id, xid, |txn| Ok(txn.commit_prepared()?))?;
        let ticket = Ticket::new(committed.depends, || Share::new(Arc::clone(&self.engine)));
        self.nudge_reclaim(); // It may have dropped a table before a restart, when nobody was left to say so.
        Ok(Committed { lsn: committed.lsn, ticket })
    }

    pub(crate) fn abort_in_doubt(&self, global_id: &[u8], xid: Option<Xid>) -> Result<(), Error> {
        self.decide(global_id, xid, |txn| Ok(txn.abort_prepared()?))?;
        self.nudge_reclaim();
        Ok(())
    }

    fn decide<T>(
        &self,
        global_id: &[u8],
        xid: Option<Xid>,
        how: impl FnOnce(&mut Txn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.engine.check()?;
        self.check_writable()?;
        self.engine.thread()?;
        let mut waiting = self.in_doubt.take(global_id, xid)?;
        let done = how(&mut waiting.txn);
        if waiting.txn.is_prepared() {
            self.in_doubt.put(global_id, waiting); // D2
        } else {
            drop(waiting);
            self.in_doubt.give_up(global_id);
        }
        done
    }
}
