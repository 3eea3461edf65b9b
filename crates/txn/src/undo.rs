//! Logical undo: how a structure undoes a change when the page alone is not enough (Lemon 4.3).

use ledgerstone_page::{OpId, PageId};

use crate::{Txn, TxnError};

/// Undoes one update by its key, because its place may have moved since.
///
/// Called during an abort or at a restart, in reverse order of the updates. A restart keeps that order only among
/// updates of one [`LogicalUndo::place`], and among all updates without a place. So either all logical undos of a
/// structure have places or none has. They read no other structure.
///
/// The implementation finds the place anew and ends with **exactly one** [`Txn::update`], which becomes the
/// compensation record. Structure changes that must come before it are groups, and stay: for example a split, because
/// the old value is longer. It takes no locks. The transaction already holds them, or runs before all others.
pub trait LogicalUndo: Send + Sync {
    /// Undoes the update that operation `op` made with `args`.
    ///
    /// # Errors
    /// Any error fails the environment. A rollback that cannot go on leaves work that only a restart can undo.
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError>;

    /// Where in its structure the update was made. `None` unless a restart may undo it before later updates of other
    /// places in the structure. Undos of different places must have the same result in any order, and none may need
    /// another to be done first. Places exist so that a restart visits each page once: neighbouring places should be on
    /// one page, or on pages that are needed soon after each other.
    fn place<'a>(&self, op: OpId, args: &'a [u8]) -> Option<UndoPlace<'a>> {
        let _ = (op, args);
        None
    }
}

/// Where an update was made. See [`LogicalUndo::place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoPlace<'a> {
    /// The root page of the structure.
    pub space: PageId,
    /// The place in it.
    pub key: &'a [u8],
    /// The part of the arguments that [`LogicalUndo::undo`] needs: a beginning that can be read without the rest.
    pub args: &'a [u8],
}
