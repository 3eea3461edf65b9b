//! Structures that a user of the engine has brought: made and freed by what they say about themselves.
//!
//! ```text
//! key     3, structure u16 big-endian, root page u64 big-endian       a user's structure, as F1 and F2 say
//! key     4, page u64 big-endian                                      one page of one that was dropped
//! ```
//! O1. Only its structure knows the pages of an entry of kind 3 ([`PagesOf`]). The reclaimer asks for them once, and in
//!     one transaction replaces the entry by one for each page: all of them or none. The entry is written once more
//!     before it is deleted, so that its ghost, too, names who may roll that back. From then on nobody walks the
//!     structure.
//! O2. An entry of kind 4 and its page go together, in one group.
//! O3. An entry whose structure is not registered waits for a program that has it.

use std::sync::Arc;

use ledgerstone_page::{OpId, PageId};
use ledgerstone_space::OP_SPACE_CLEAR;
use ledgerstone_txn::{Engine, Part, RECORD_OVERHEAD_BYTES, Txn, TxnError, UsersCode};

use super::{Entry, Kind, ToFree};
use crate::TreeError;
use crate::btree::args::{Place, write_place};
use crate::btree::ops::OP_NODE_DELETE;
use crate::btree::search::{Descent, Spot};
use crate::btree::tree::Tree;

/// Says which pages users' structures are made of.
pub trait PagesOf: Send + Sync {
    /// All pages of the instance of `structure` with this root, the root included. None if the structure is not known
    /// here.
    ///
    /// # Errors
    /// A page cannot be read, or is not what it must be.
    fn pages_of(&self, engine: &Arc<Engine>, structure: u16, root: PageId) -> Result<Option<Vec<PageId>>, TxnError>;
}

/// Who is asked about users' structures. Nobody if none are registered.
#[derive(Clone, Default)]
pub(super) struct Owners(pub Option<Arc<dyn PagesOf>>);

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "users' structures" } else { "no users' structures" })
    }
}

impl ToFree {
    /// The same, for an environment with users' structures.
    #[must_use]
    pub fn with_structures(self, pages_of: Arc<dyn PagesOf>) -> ToFree {
        ToFree { owners: Owners(Some(pages_of)), ..self }
    }

    /// Allocates and formats the root of an instance of a user's structure. It stays if the transaction commits, and is
    /// freed later if it does not.
    ///
    /// # Errors
    /// A refused lock, no space, an operation that refuses to format.
    pub fn create_own(
        &self,
        txn: &mut Txn,
        structure: u16,
        format: OpId,
        args_of: impl Fn(PageId) -> Vec<u8>,
    ) -> Result<PageId, TreeError> {
        let root = self.create(txn, Kind::Own(structure), format, &args_of)?;
        self.settle(txn, Entry { kind: Kind::Own(structure), root })?;
        Ok(root)
    }

    /// Notes that the instance with this root has to be freed when the transaction commits.
    ///
    /// # Errors
    /// A lock was refused, there is no space, or a page cannot be read.
    pub fn defer_own(&self, txn: &mut Txn, structure: u16, root: PageId) -> Result<(), TreeError> {
        self.defer(txn, Entry { kind: Kind::Own(structure), root })
    }

    /// The pages of an entry of kind 3, if anybody knows them.
    pub(super) fn own_pages(&self, structure: u16, root: PageId) -> Result<Option<Vec<PageId>>, TreeError> {
        match &self.owners.0 {
            Some(owners) => Ok(owners.pages_of(&self.tree.engine, structure, root)?),
            None => Ok(None),
        }
    }

    /// O1. The pages follow in the next round.
    pub(super) fn take_own_apart(&self, txn: &mut Txn, entry: Entry, structure: u16) -> Result<(), TreeError> {
        let users = UsersCode::of(&self.tree.engine, txn.owner(), txn.xid());
        let pages = users.run(|| self.own_pages(structure, entry.root))?;
        let Some(pages) = pages else { return Ok(()) }; // O3
        for page in pages {
            self.defer(txn, Entry { kind: Kind::Page, root: page })?;
        }
        self.defer(txn, entry)?;
        self.tree.delete(txn, &entry.key())?;
        Ok(())
    }

    /// O2.
    pub(super) fn free_page(&self, txn: &mut Txn, entry: Entry) -> Result<(), TreeError> {
        let (tree, key) = (&self.tree, entry.key());
        txn.claim(8 * RECORD_OVERHEAD_BYTES)?;
        let mut map = tree.space.latch_map_of(entry.root)?;
        let Spot { page: mut leaf, slot } = tree.latch_leaf(&key, &mut Descent::default())?;
        let Ok(slot) = slot else { return Err(Tree::corrupt(entry.root, "entry to be freed", 1, 0)) };
        let clear = tree.space.args_clear(&map, entry.root, 1)?;
        let ghost = write_place(Place { root: tree.root, slot, key: &key });
        txn.group(
            &mut [&mut map, &mut leaf],
            &[Part { page: 0, op: OP_SPACE_CLEAR, args: &clear }, Part { page: 1, op: OP_NODE_DELETE, args: &ghost }],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_keys_of_entries() {
        let root = PageId(0x0102_0304_0506);
        for (kind, first) in
            [(Kind::Tree, &[1][..]), (Kind::Blob, &[2]), (Kind::Own(0x0a0b), &[3, 0x0a, 0x0b]), (Kind::Page, &[4])]
        {
            let key = Entry { kind, root }.key();
            assert_eq!(key, [first, &[0, 0, 1, 2, 3, 4, 5, 6]].concat());
            assert_eq!(Entry::decode(&key), Some(Entry { kind, root }));
            assert_eq!(Entry::decode(&key[..key.len() - 1]), None);
        }
        assert_eq!(Entry::decode(&[9, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
