//! Leaves that hold nothing but ghosts, noted for the reclaimer.
//!
//! The last deletion in a leaf cannot unlink it: its ghosts are needed until the transaction has ended. So it leaves a
//! note, here, in this process: after a crash the notes are gone, and the ghosts wait until somebody writes nearby or
//! purges the tree. A note is a hint: it is looked at again under locks and latches.
//!
//! H1. A note names a tree by table and root. It is taken and used in one of the reclaimer's transactions, which take
//!     turns by a lock. Another of them forgets all notes of a dropped tree before it takes that tree apart. It counts
//!     that where other processes see it, and these forget all their notes in their next turns. So no note is ever used
//!     for a tree that is half gone, or for another one that got the same root page.

use ledgerstone_page::{PageId, TableId};
use ledgerstone_region::{ByNumber, Mutex};

/// Leaves noted of one tree before the whole tree is.
const LEAVES_MAX: usize = 256;

/// What to look at in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Where {
    /// The leaves with these low fences, in their order.
    Leaves(Vec<Vec<u8>>),
    /// All from the one that holds this key on.
    From(Vec<u8>),
}

impl Where {
    pub(super) fn nowhere() -> Where {
        Where::Leaves(Vec::new())
    }
}

/// The notes.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    trees: Mutex<ByNumber<(u64, u64), Where>>,
}

impl Emptied {
    pub(super) fn note(&self, table: TableId, root: PageId, low: Vec<u8>) {
        let mut trees = self.trees.lock();
        let noted = trees.get_or_insert_with((table.0, root.0), || Where::Leaves(Vec::new()));
        match noted {
            Where::Leaves(leaves) => {
                if let Err(place) = leaves.binary_search(&low) {
                    leaves.insert(place, low);
                }
                if leaves.len() > LEAVES_MAX {
                    *noted = Where::From(leaves.swap_remove(0));
                }
            }
            Where::From(key) if low < *key => *key = low,
            Where::From(_) => {}
        }
    }

    pub(super) fn put_back(&self, table: TableId, root: PageId, left: Where) {
        match left {
            Where::Leaves(lows) => lows.into_iter().for_each(|low| self.note(table, root, low)),
            Where::From(key) => {
                let mut trees = self.trees.lock();
                // Somebody may have noted leaves before it meanwhile.
                let first = match trees.remove((table.0, root.0)) {
                    Some(Where::Leaves(leaves)) => leaves.into_iter().chain([key]).min().unwrap_or_default(),
                    Some(Where::From(other)) => other.min(key),
                    None => key,
                };
                trees.insert((table.0, root.0), Where::From(first));
            }
        }
    }

    pub(super) fn forget(&self, root: PageId) {
        self.trees.lock().retain(|(_, of), _| of != root.0);
    }

    pub(super) fn forget_all(&self) {
        *self.trees.lock() = ByNumber::new();
    }

    pub(super) fn trees(&self) -> Vec<(TableId, PageId)> {
        self.trees.lock().keys().map(|(table, root)| (TableId(table), PageId(root))).collect()
    }

    pub(super) fn take(&self, table: TableId, root: PageId) -> Option<Where> {
        self.trees.lock().remove((table.0, root.0))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_leaves_of_one_tree_are_noted_as_all_from_the_first_on() {
        let notes = Emptied::default();
        for n in 0..LEAVES_MAX {
            notes.note(TableId(1), PageId(5), (n + 7).to_be_bytes().to_vec());
            notes.note(TableId(1), PageId(6), vec![1]);
        }
        notes.note(TableId(1), PageId(5), vec![9]);
        notes.note(TableId(1), PageId(5), vec![10]);
        notes.forget(PageId(7));
        assert_eq!(notes.trees(), [(TableId(1), PageId(5)), (TableId(1), PageId(6))]);
        assert_eq!(notes.take(TableId(1), PageId(5)), Some(Where::From(7_usize.to_be_bytes().to_vec())));
        let leaves = notes.take(TableId(1), PageId(6)).unwrap();
        assert_eq!(leaves, Where::Leaves(vec![vec![1]]));
        notes.put_back(TableId(1), PageId(6), leaves);
        notes.note(TableId(1), PageId(5), vec![3]);
        notes.put_back(TableId(1), PageId(5), Where::From(vec![4]));
        notes.note(TableId(1), PageId(5), vec![5]);
        assert_eq!(notes.take(TableId(1), PageId(5)), Some(Where::From(vec![3])), "what was noted meanwhile counts");
        notes.put_back(TableId(1), PageId(5), Where::From(vec![4]));
        notes.note(TableId(1), PageId(5), vec![2]);
        notes.put_back(TableId(1), PageId(5), Where::From(vec![6]));
        assert_eq!(notes.take(TableId(1), PageId(5)), Some(Where::From(vec![2])));
        notes.put_back(TableId(1), PageId(5), Where::From(vec![4]));
        notes.forget(PageId(5));
        assert_eq!(notes.trees(), [(TableId(1), PageId(6))]);
        notes.take(TableId(1), PageId(6));
        notes.put_back(TableId(1), PageId(6), Where::nowhere());
        assert!(notes.is_empty());
    }
}
