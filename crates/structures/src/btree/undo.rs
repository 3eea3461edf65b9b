//! Rollback: each update of a record taken back by its key, wherever the record is now.
//!
//! | update | taken back by |
//! | --- | --- |
//! | insert | the record becomes a ghost |
//! | delete | the ghost becomes a record again |
//! | revive | the record becomes a ghost again |
//! | patch | the old bytes are patched back |
//! | replace | the old value and flags are put back; the record has kept the room for them (N6 in `node.rs`) |
//!
//! B1. Exactly one `Txn::update` is all that an undo does; it is the compensation record. No space is ever needed.
//! B2. No lock is taken: the transaction holds its exclusive locks until it is rolled back, or, at restart, runs before
//!     anybody else. So the record is there, as this transaction left it: anything else is damage.
//! B3. Undos of different keys have nothing to do with each other: each changes one slot, in room that the record has
//!     (N6). So every update of a tree has a place. What moves keys or takes them all writes groups, or other keys'
//!     records.
//! B4. A ghost that may become a record again is in no dead end of its tree from then on (E2 in `edges.rs`), whatever
//!     was remembered of it. Nobody should have: its deleter had not ended. But programs that lock nothing may have
//!     two.

use std::sync::Arc;

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{OpId, PageId, TableId};
use ledgerstone_space::Space;
use ledgerstone_txn::{Engine, LogicalUndo, RECORD_OVERHEAD_BYTES, Txn, TxnError, UndoPlace};

use super::Edges;
use super::args::{PatchArgs, Place, ReplaceArgs, write_place};
use super::history::is_of_record;
use super::node::Node;
use super::ops::{OP_NODE_DELETE, OP_NODE_INSERT, OP_NODE_PATCH, OP_NODE_REPLACE, OP_NODE_REVIVE};
use super::search::{Descent, Spot};
use super::tree::Tree;
use crate::{ToFree, TreeError};

struct TreeUndo {
    space: Arc<Space>,
    to_free: ToFree,
}

/// Registers who undoes the tree's operations.
pub(crate) fn register_undos(engine: &Arc<Engine>, space: &Arc<Space>, to_free: &ToFree) {
    let undo: Arc<dyn LogicalUndo> = Arc::new(TreeUndo { space: Arc::clone(space), to_free: to_free.clone() });
    for op in [OP_NODE_INSERT, OP_NODE_DELETE, OP_NODE_REVIVE, OP_NODE_PATCH, OP_NODE_REPLACE] {
        engine.register_undo(op, Arc::clone(&undo));
    }
}

/// The root of the tree in which an update changed a record; `None` if the update was of something else. A restart may
/// undo what is of trees only beside other transactions, if nobody else uses these trees.
#[must_use]
pub fn tree_of_update(op: OpId, args: &[u8]) -> Option<PageId> {
    if is_of_record(op) { Place::of(args).map(|place| place.root) } else { None }
}

impl LogicalUndo for TreeUndo {
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError> {
        let Some(place) = Place::of(args) else { return Err(unreadable(op)) };
        // Locks are not taken, so the table does not matter.
        let tree = Tree::without_blobs(txn.engine(), &self.space, TableId(0), place.root);
        tree.undo(txn, self.to_free.edges(), (op, place, args)).map_err(TxnError::from)
    }

    /// B3.
    fn place<'a>(&self, op: OpId, args: &'a [u8]) -> Option<UndoPlace<'a>> {
        let place = Place::of(args)?;
        let needed = match op {
            OP_NODE_INSERT => args.get(..place.bytes())?,
            _ => args,
        };
        Some(UndoPlace { space: place.root, key: place.key, args: needed })
    }
}

fn unreadable(op: OpId) -> TxnError {
    TxnError::Structure { structure: "b-tree", what: format!("arguments of operation {op} cannot be read") }
}

impl Tree {
    fn undo(&self, txn: &mut Txn, edges: &Edges, (op, place, args): (OpId, Place<'_>, &[u8])) -> Result<(), TreeError> {
        txn.claim(args.len() + 2 * RECORD_OVERHEAD_BYTES)?;
        let Spot { mut page, slot } = self.latch_leaf(place.key, &mut Descent::default())?;
        let Ok(slot) = slot else {
            return Err(Self::corrupt(page.id(), "record that a rollback needs", 1, 0));
        };
        let place = Place { slot, ..place };
        if Node::new(page.words()).record(slot).is_ghost() {
            edges.revive(self.root, place.key); // B4
        }
        if planted::is_on(Bug::UndoDoesNothing) {
            let nothing = PatchArgs { place, offset: 0, old: &[], new: &[] };
            txn.update(&mut page, OP_NODE_PATCH, &nothing.write())?;
            return Ok(());
        }
        match op {
            OP_NODE_INSERT | OP_NODE_REVIVE => txn.update(&mut page, OP_NODE_DELETE, &write_place(place))?,
            OP_NODE_DELETE => txn.update(&mut page, OP_NODE_REVIVE, &write_place(place))?,
            OP_NODE_PATCH => {
                let done = PatchArgs::read(args).ok_or_else(|| unreadable(op))?;
                let back = PatchArgs { place, old: done.new, new: done.old, ..done };
                txn.update(&mut page, OP_NODE_PATCH, &back.write())?
            }
            _ => {
                let done = ReplaceArgs::read(args).ok_or_else(|| unreadable(op))?;
                let back = ReplaceArgs {
                    place,
                    old_header: done.new_header,
                    old: done.new,
                    new_header: done.old_header,
                    new: done.old,
                };
                txn.update(&mut page, OP_NODE_REPLACE, &back.write())?
            }
        };
        Ok(())
    }
}
