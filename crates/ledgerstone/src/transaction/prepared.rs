//! Two-phase commit: transactions that are prepared, and wait for a decision from outside.
//!
//! ```text
//!  Transaction::prepare(id) ─► in doubt ─┬─ Prepared::commit, Environment::commit_in_doubt ─► committed
//!                                │   ▲   └─ Prepared::abort,  Environment::abort_in_doubt  ─► rolled back
//!                                └───┘ close, crash, restart, dropped handle
//! ```
//! D1. `Inner::in_doubt` holds every prepared transaction of the environment under its global id, whoever prepared it and
//!     when. A place is taken before the Prepare record is written, and given up after the Commit or End record is: so an id
//!     is never given twice.
//! D2. Whoever decides takes the transaction out of its place, and puts it back if the decision could not be written.
//! D3. A handle names its transaction by global id and [`Xid`]: another one that is prepared later under the same id is not
//!     meant.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_recovery::InDoubt as Found;
use ledgerstone_txn::{GLOBAL_ID_BYTES_MAX, Txn};
use parking_lot::Mutex;

use crate::environment::Inner;
use crate::{Committed, Environment, Error, Ticket, Transaction};

/// A transaction that was prepared: it can be committed, or aborted, and nothing can take that back.
///
/// Dropping it decides nothing: the transaction stays in doubt, with its locks, through a close, a crash and restarts, until
/// [`Environment::commit_in_doubt`] or [`Environment::abort_in_doubt`] is called. It does not keep the environment open.
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

/// A transaction in doubt, for who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InDoubt {
    /// The name under which it was prepared.
    pub global_id: Vec<u8>,
    /// Its id in this environment.
    pub xid: Xid,
    /// Its Prepare record.
    pub prepared_lsn: Lsn,
    /// Its first record. The log from here on is kept until it is decided.
    pub first_lsn: Lsn,
    /// Locks that it holds.
    pub lock_count: u64,
}

/// The prepared transactions of an environment (D1). None: being prepared or decided just now.
#[derive(Default)]
pub(crate) struct Undecided {
    by_id: Mutex<BTreeMap<Vec<u8>, Option<Box<Waiting>>>>,
}

struct Waiting {
    txn: Txn,
    lsn: Lsn,
    first: Lsn,
    lock_count: u64,
}

impl Undecided {
    /// What a restart has found.
    pub(crate) fn after_restart(found: Vec<(Found, Txn)>) -> Result<Undecided, Error> {
        let mut by_id = BTreeMap::new();
        for (found, txn) in found {
            let lock_count = found.record.locks.len() as u64;
            let waiting = Waiting { txn, lsn: found.last, first: found.first, lock_count };
            let id = found.record.global_id;
            if by_id.insert(id.clone(), Some(Box::new(waiting))).is_some() {
                let what = format!("the log has two prepared transactions named {}", printable(&id));
                return Err(Error::Corrupt { what });
            }
        }
        Ok(Undecided { by_id: Mutex::new(by_id) })
    }

    /// Forgets them all, when the environment closes: the log remembers. (Their hooks may hold the environment.)
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_id.lock());
        drop(all);
    }

    fn reserve(&self, global_id: &[u8]) -> Result<(), Error> {
        let mut by_id = self.by_id.lock();
        if by_id.contains_key(global_id) {
            return Err(Error::AlreadyPrepared { id: printable(global_id) });
        }
        by_id.insert(global_id.to_vec(), None);
        Ok(())
    }

    fn give_up(&self, global_id: &[u8]) {
        self.by_id.lock().remove(global_id);
    }

    fn put(&self, global_id: &[u8], waiting: Box<Waiting>) {
        self.by_id.lock().insert(global_id.to_vec(), Some(waiting));
    }

    /// Takes a transaction out of its place, to decide it (D2).
    fn take(&self, global_id: &[u8], xid: Option<Xid>) -> Result<Box<Waiting>, Error> {
        let mut by_id = self.by_id.lock();
        let place = by_id.get_mut(global_id);
        let is_meant = |waiting: &Waiting| xid.is_none_or(|xid| xid == waiting.txn.xid()); // D3
        match place {
            Some(place) if place.as_deref().is_some_and(is_meant) => {
                place.take().ok_or_else(|| Error::NotPrepared { id: printable(global_id) })
            }
            _ => Err(Error::NotPrepared { id: printable(global_id) }),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_id.lock().len() as u64
    }

    /// One of the transactions that keep others from locking the whole table for reading.
    pub(crate) fn holder_of(&self, table: TableId) -> Option<String> {
        let by_id = self.by_id.lock();
        let holds = |waiting: &Waiting| {
            let mut holds = false;
            waiting.txn.engine().locks.for_each_held(waiting.txn.owner(), &mut |name, mode| {
                holds |= name.is_table() && name.table_id() == table && !matches!(mode, Mode::IS | Mode::S);
            });
            holds
        };
        let mut all = by_id.iter();
        all.find(|(_, place)| place.as_deref().is_some_and(holds)).map(|(id, _)| printable(id))
    }

    fn list(&self) -> Vec<InDoubt> {
        let by_id = self.by_id.lock();
        let tell = |(global_id, place): (&Vec<u8>, &Option<Box<Waiting>>)| {
            place.as_ref().map(|waiting| InDoubt {
                global_id: global_id.clone(),
                xid: waiting.txn.xid(),
                prepared_lsn: waiting.lsn,
                first_lsn: waiting.first,
                lock_count: waiting.lock_count,
            })
        };
        by_id.iter().filter_map(tell).collect()
    }
}

impl Transaction {
    /// Prepares the transaction for a two-phase commit: when this returns, its work is durable and can still be committed or
    /// aborted, whatever crashes. `global_id` (1 to 255 bytes) is the coordinator's name for it.
    ///
    /// What it only read is free for others from now on; what it wrote stays locked until the decision.
    ///
    /// # Errors
    /// [`Error::AlreadyPrepared`], [`Error::BadGlobalId`], conflicts, [`Error::ReadOnly`]: the transaction is rolled back.
    /// [`Error::Failed`] if the log cannot be written: reopening tells whether it is in doubt.
    pub fn prepare(mut self, global_id: &[u8]) -> Result<Prepared, Error> {
        let env = Arc::clone(&self.shared.env);
        env.check_writable()?;
        if !(1..=GLOBAL_ID_BYTES_MAX).contains(&global_id.len()) {
            return Err(Error::BadGlobalId { len: global_id.len(), max: GLOBAL_ID_BYTES_MAX });
        }
        let mut txn = self.end()?;
        env.in_doubt.reserve(global_id)?;
        let prepared = txn.prepare(global_id);
        if txn.is_prepared() {
            let (xid, lsn) = (txn.xid(), txn.last_lsn());
            let waiting = Waiting { lsn, first: txn.first_lsn(), lock_count: lock_count(&txn), txn: *txn };
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

    /// Commits, durably: when this returns, the coordinator may forget the transaction.
    ///
    /// # Errors
    /// [`Error::NotPrepared`] if it was decided by somebody else; [`Error::Failed`] if the log cannot be written or the
    /// environment was closed: after opening again the transaction is committed or in doubt as before.
    pub fn commit(self) -> Result<Committed, Error> {
        self.env.commit_in_doubt(&self.global_id, Some(self.xid))
    }

    /// Rolls back, durably.
    ///
    /// # Errors
    /// As [`Prepared::commit`].
    pub fn abort(self) -> Result<(), Error> {
        self.env.abort_in_doubt(&self.global_id, Some(self.xid))
    }
}

impl Environment {
    /// All prepared transactions that are not decided, by global id: those of this run and those that a restart has found.
    #[must_use]
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        self.inner().in_doubt.list()
    }

    /// Commits the transaction that was prepared as `global_id`, durably.
    ///
    /// # Errors
    /// [`Error::NotPrepared`] if there is none, or somebody decides it just now; [`Error::ReadOnly`] in an environment opened
    /// for reading; [`Error::Failed`] as for [`Prepared::commit`].
    pub fn commit_in_doubt(&self, global_id: &[u8]) -> Result<Committed, Error> {
        self.inner().commit_in_doubt(global_id, None)
    }

    /// Rolls the transaction back that was prepared as `global_id`, durably.
    ///
    /// # Errors
    /// As [`Environment::commit_in_doubt`].
    pub fn abort_in_doubt(&self, global_id: &[u8]) -> Result<(), Error> {
        self.inner().abort_in_doubt(global_id, None)
    }
}

impl Inner {
    fn commit_in_doubt(&self, global_id: &[u8], xid: Option<Xid>) -> Result<Committed, Error> {
        let committed = self.decide(global_id, xid, |txn| Ok(txn.commit_prepared()?))?;
        let ticket = Ticket::new(Arc::clone(&self.engine), committed.depends);
        self.nudge_reclaim(); // It may have dropped a table before a restart, when nobody was left to say so.
        Ok(Committed { lsn: committed.lsn, ticket })
    }

    fn abort_in_doubt(&self, global_id: &[u8], xid: Option<Xid>) -> Result<(), Error> {
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

/// Bytes for a message: as text if they are some, else hexadecimal.
pub(crate) fn printable(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => id.iter().fold("0x".to_string(), |hex, byte| hex + &format!("{byte:02x}")),
    }
}
