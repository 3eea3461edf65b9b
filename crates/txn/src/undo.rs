//! Logical undo: how a structure takes back what it did when the page no longer tells (Lemon 4.3).

use ledgerstone_page::{OpId, PageId};

use crate::{Txn, TxnError};

/// Takes back one update whose place may have moved since, by its key.
///
/// Called while the transaction rolls back, during an abort or at restart, in reverse order of the updates. A restart keeps that
/// order only among updates of one [`LogicalUndo::place`], and among all that have none. So either all logical undos of a
/// structure have places or none has, and they read no other structure. The implementation finds the place anew and ends with **exactly one** [`Txn::update`], which becomes the compensation
/// record. Structure changes that it needs before (a split, because the old value is longer) are groups, and stay.
/// It takes no locks: the transaction holds them, or runs before anybody else does.
pub trait LogicalUndo: Send + Sync {
    /// Undoes the update that operation `op` made with `args`.
    ///
    /// # Errors
    /// Any error fails the environment: a rollback that cannot go on leaves work that only a restart can undo.
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError>;

    /// Where in its structure the update was made, if a restart may undo it before updates that were made later in other places of
    /// the structure; otherwise `None`. Undos with different places must come to the same whatever their order, and neither may need the other
    /// to have been done. Neighbouring places should be on one page or on pages that are needed soon: that is what it is for.
    fn place<'a>(&self, op: OpId, args: &'a [u8]) -> Option<UndoPlace<'a>> {
        let _ = (op, args);
        None
    }
}

/// Where an update was made; see [`LogicalUndo::place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoPlace<'a> {
    /// The root page of the structure.
    pub space: PageId,
    /// The place in it.
    pub key: &'a [u8],
    /// What [`LogicalUndo::undo`] needs of the arguments: a beginning of them that can be read without the rest.
    pub args: &'a [u8],
}
