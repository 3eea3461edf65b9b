//! Logical undo: how a structure takes back what it did when the page no longer tells (Lemon 4.3).

use ledgerstone_page::OpId;

use crate::{Txn, TxnError};

/// Takes back one update whose place may have moved since, by its key.
///
/// Called while the transaction rolls back, during an abort or at restart, in reverse order of the updates. The
/// implementation finds the place anew and ends with **exactly one** [`Txn::update`], which becomes the compensation
/// record. Structure changes that it needs before (a split, because the old value is longer) are groups, and stay.
/// It takes no locks: the transaction holds them, or runs before anybody else does.
pub trait LogicalUndo: Send + Sync {
    /// Undoes the update that operation `op` made with `args`.
    ///
    /// # Errors
    /// Any error fails the environment: a rollback that cannot go on leaves work that only a restart can undo.
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError>;
}
