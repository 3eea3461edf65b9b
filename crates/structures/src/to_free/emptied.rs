//! Leaves that hold nothing but ghosts, noted for the reclaimer.
//!
//! The last deletion in a leaf cannot unlink it: its ghosts are needed until the transaction has ended. So it leaves a note,
//! here, in this process: after a crash the notes are gone, and the ghosts wait until somebody writes nearby or purges the
//! tree. A note is a hint: it is looked at again under locks and latches.
//!
//! H1. A note names a tree by table and root. Before a dropped tree's root is freed its notes are forgotten, and only one
//!     reclaimer works at a time: no note is ever used for another tree that got the same root page.

use std::collections::{BTreeMap, BTreeSet};

use ledgerstone_page::{PageId, TableId};
use parking_lot::Mutex;

/// Leaves noted of one tree before the whole tree is.
const LEAVES_MAX: usize = 256;

/// What to look at in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Where {
    /// The leaves with these low fences.
    Leaves(BTreeSet<Vec<u8>>),
    /// All.
    Everywhere,
}

/// The notes.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    trees: Mutex<BTreeMap<(TableId, PageId), Where>>,
}

impl Emptied {
    pub(super) fn note(&self, table: TableId, root: PageId, low: Vec<u8>) {
        let mut trees = self.trees.lock();
        let noted = trees.entry((table, root)).or_insert_with(|| Where::Leaves(BTreeSet::new()));
        if let Where::Leaves(leaves) = noted {
            leaves.insert(low);
            if leaves.len() > LEAVES_MAX {
                *noted = Where::Everywhere;
            }
        }
    }

    pub(super) fn note_everywhere(&self, table: TableId, root: PageId) {
        self.trees.lock().insert((table, root), Where::Everywhere);
    }

    pub(super) fn forget(&self, root: PageId) {
        self.trees.lock().retain(|&(_, of), _| of != root);
    }

    pub(super) fn take(&self) -> BTreeMap<(TableId, PageId), Where> {
        std::mem::take(&mut *self.trees.lock())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_leaves_of_one_tree_are_noted_as_the_whole_tree() {
        let notes = Emptied::default();
        for n in 0..LEAVES_MAX {
            notes.note(TableId(1), PageId(5), n.to_be_bytes().to_vec());
            notes.note(TableId(1), PageId(6), vec![1]);
        }
        notes.note(TableId(1), PageId(5), vec![9]);
        notes.note(TableId(1), PageId(5), vec![10]);
        notes.forget(PageId(7));
        let trees = notes.take();
        assert_eq!(trees[&(TableId(1), PageId(5))], Where::Everywhere);
        assert_eq!(trees[&(TableId(1), PageId(6))], Where::Leaves(BTreeSet::from([vec![1]])));
        notes.note_everywhere(TableId(1), PageId(5));
        notes.forget(PageId(5));
        assert!(notes.is_empty());
    }
}
