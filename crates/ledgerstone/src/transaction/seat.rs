//! Where the transactions of one thread come from and go to.
//!
//! A thread runs one transaction after the other. What all of them hold of the environment is here, counted in lines of
//! the thread's own, and so is the memory of the last one for the next.
//!
//! S1. A transaction counts itself among the users of its seat before anything else, and to its end. So the counts of
//!     all seats together say how many are open (E4 in `txn/begins.rs`).
//! S2. What is kept for the next one is nobody else's: no table, range or other handle of the last one is left. The
//!     reference that is kept is the only one.
//! S3. Only a transaction that has ended as most do leaves its memory: committed, with no conflict, and with nothing
//!     made of tables. So there is little that the next one has to set right.

use std::sync::Arc;

use ledgerstone_page::Xid;
use ledgerstone_region::{Common, OwnCell, Share, SlotNo};
use ledgerstone_txn::{Engine, Txn};

use super::shared::Shared;
use crate::Error;
use crate::inner::{Handles, Inner};

/// See the file's beginning. One for each thread slot and environment.
pub(crate) struct Seat {
    /// First, since it holds clones of those below.
    spare: OwnCell<Spare>,
    slot: SlotNo,
    env: Share<Inner>,
    engine: Share<Engine>,
    /// The environment stays open while a transaction runs.
    _handles: Arc<Handles>,
}

/// A transaction that has ended, as memory for the next.
struct Spare {
    shared: Common<Shared>,
    txn: Box<Txn>,
}

impl Seat {
    /// Of the threads in `slot`.
    pub(crate) fn new(handles: &Arc<Handles>, slot: SlotNo) -> Seat {
        let env = &handles.env;
        Seat {
            spare: OwnCell::new(Arc::clone(&env.engine.slots), slot),
            slot,
            env: Share::new(Arc::clone(env)),
            engine: Share::new(Arc::clone(&env.engine)),
            _handles: Arc::clone(handles),
        }
    }

    /// Whose threads it is for.
    pub(super) fn slot(&self) -> SlotNo {
        self.slot
    }

    /// The environment.
    pub(super) fn env(&self) -> &Share<Inner> {
        &self.env
    }

    /// Begins a transaction, in the memory of the last one if that is there.
    #[inline]
    pub(super) fn begin(&self, age: Xid) -> Result<(Box<Txn>, Option<Common<Shared>>), Error> {
        match self.spare.take() {
            Some(Spare { shared, mut txn }) => {
                Engine::begin_again(&mut txn, self.slot, age)?; // Only a thread in the slot comes here.
                Ok((txn, Some(shared)))
            }
            None => Ok((self.begin_anew(age)?, None)),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_anew(&self, age: Xid) -> Result<Box<Txn>, Error> {
        Ok(Box::new(Engine::begin_aged(&self.engine, age)?))
    }

    /// Keeps the memory of a transaction that has committed, for the next one (S2, S3).
    #[inline]
    pub(super) fn keep(&self, shared: Common<Shared>, txn: Box<Txn>) {
        if let Some(before) = self.spare.put(Spare { shared, txn }) {
            drop(before); // That of a transaction that ended meanwhile.
        }
    }
}
