//! What will be freed once it is certain that nothing needs it: a tree in which each entry stands for a structure.
//!
//! ```text
//! key     kind u8 (1 a tree, 2 a blob; 3 and 4: `own.rs`), root page u64 big-endian
//! value   id of the transaction that wrote the entry last u64 little-endian, u8: 1 = taking it apart has begun, or 0
//! ```
//! F1. A transaction that makes a structure makes its entry in the same group as its root page. So whatever happens,
//!     something refers to the structure: a record or the entry. When a record refers to the structure, the transaction
//!     deletes the entry, and an abort brings it back.
//! F2. A transaction that drops a structure inserts the entry. An abort removes it.
//! F3. The reclaimer takes an entry on two conditions. The transaction that it names is not in the transaction table
//!     any more. And the entry is still there when the reclaimer looks again after that. Then that transaction has
//!     ended, and the entry stays. The first look alone says nothing: the transaction may have taken the entry out
//!     since, and ended. One in doubt is in the table, also after a restart. The reclaimer frees page by page, in
//!     groups that leave a smaller structure behind. In the last group the root and the entry go together. After a
//!     crash it goes on where it was.
//!
//! F4. It waits until no snapshot is older than the end of that transaction. The log's tail at the moment when the
//!     transaction was first found gone is above the commit. Every snapshot at or above that tail sees that the
//!     structure is gone.
//!     Another process may have freed the structure since, and another one have the page. So what is noted counts for
//!     the transaction only that wrote the entry.
//! F5. An entry begins anew, whatever the ghost of an earlier entry of the same page has left. The structure of that
//!     earlier entry was taken apart, but this one's was not.
//! F6. No key is locked here. One transaction may make any number of entries. So it would come to lock the whole tree,
//!     and keep all others from large values and from making and dropping tables. The table is locked with an intention
//!     by writers of entries, and S by readers that want it to stand still.
//! F7. Nobody else writes the entry of a transaction that has not ended. Its page is not free, so nobody makes another
//!     structure there. Only a transaction that has made a structure, or may drop it, refers to it. The reclaimer waits
//!     for the end. A ghost stays for as long, since a rollback may want it back (G8 in `btree/ghost.rs`). The
//!     reclaimer's own transaction changes entries whose writers have ended, in groups that stay: their ghosts may go
//!     at once. An entry that it deletes in any other way it first makes its own (O1 in `own.rs`).
//!
//! F1 and F2 are part of the user's transaction. F3 is another transaction: `reclaim.rs`, which also unlinks the leaves
//! that deletions have emptied (`emptied.rs`).

mod emptied;
mod own;
mod reclaim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ledgerstone_lock::Mode;
use ledgerstone_page::{Lsn, OpId, PageId, TableId, Xid};
use ledgerstone_region::{ByNumber, Mutex, Number};
use ledgerstone_space::{OP_SPACE_SET, Space};
use ledgerstone_txn::{Engine, Part, RECORD_OVERHEAD_BYTES, Txn, TxnError};

use own::Owners;

pub use own::PagesOf;

use crate::TreeError;
use crate::blob::BlobRef;
use crate::btree::Edges;
use crate::btree::args::{InsertArgs, Place, ReplaceArgs};
use crate::btree::edit::{Plan, plan_insert, plan_replace};
use crate::btree::node::{Node, PADDED};
use crate::btree::ops::{OP_NODE_FORMAT, OP_NODE_INSERT, OP_NODE_REPLACE};
use crate::btree::search::{Descent, Spot};
use crate::btree::split::Need;
use crate::btree::tree::{Tree, empty_root_args};

/// What an entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tree,
    Blob,
    /// A user's structure, by its number.
    Own(u16),
    /// A page of a user's structure that was dropped.
    Page,
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub root: PageId,
}

impl Entry {
    pub(crate) fn key(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(11);
        key.push(match self.kind {
            Kind::Tree => 1,
            Kind::Blob => 2,
            Kind::Own(_) => 3,
            Kind::Page => 4,
        });
        if let Kind::Own(structure) = self.kind {
            key.extend_from_slice(&structure.to_be_bytes());
        }
        key.extend_from_slice(&self.root.0.to_be_bytes());
        key
    }

    pub(crate) fn decode(key: &[u8]) -> Option<Entry> {
        let (kind, rest) = key.split_first()?;
        let (kind, root) = match kind {
            1 => (Kind::Tree, rest),
            2 => (Kind::Blob, rest),
            3 => {
                let (structure, root) = rest.split_first_chunk()?;
                (Kind::Own(u16::from_be_bytes(*structure)), root)
            }
            4 => (Kind::Page, rest),
            _ => return None,
        };
        let root = PageId(u64::from_be_bytes(root.try_into().ok()?));
        (!root.is_none() && root <= PageId::MAX).then_some(Entry { kind, root })
    }
}

/// Only to look entries up: their order means nothing.
impl Number for Entry {
    fn to_number(self) -> u128 {
        let (kind, structure) = match self.kind {
            Kind::Tree => (1, 0),
            Kind::Blob => (2, 0),
            Kind::Own(structure) => (3, structure),
            Kind::Page => (4, 0),
        };
        kind << 80 | u128::from(structure) << 64 | u128::from(self.root.0)
    }

    fn from_number(number: u128) -> Entry {
        let kind = match number >> 80 {
            1 => Kind::Tree,
            2 => Kind::Blob,
            3 => Kind::Own((number >> 64) as u16), // It was made from one.
            _ => Kind::Page,
        };
        Entry { kind, root: PageId(number as u64) }
    }
}

/// Bytes of an entry's value.
const VALUE_BYTES: usize = 9;
/// The header of its record in a leaf: the length.
const VALUE_HEADER: u16 = VALUE_BYTES as u16;

/// An entry's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// Who wrote the entry last.
    writer: Xid,
    /// All nodes of the tree are named by their parents (step 1 in `reclaim.rs`).
    is_posted: bool,
}

impl State {
    /// That of a new entry.
    fn of(txn: &Txn) -> State {
        State { writer: txn.xid(), is_posted: false }
    }

    fn encode(self) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&self.writer.0.to_le_bytes());
        value[8] = u8::from(self.is_posted);
        value
    }

    fn decode(value: &[u8]) -> Option<State> {
        match (value.split_first_chunk()?, value.len()) {
            ((writer, &[posted @ (0 | 1)]), VALUE_BYTES) => {
                Some(State { writer: Xid(u64::from_le_bytes(*writer)), is_posted: posted == 1 })
            }
            _ => None,
        }
    }
}

/// Who wrote the entry with this value last (F6). None if the value is none of an entry.
pub(crate) fn writer_of(value: &[u8]) -> Option<Xid> {
    State::decode(value).map(|state| state.writer)
}

/// The tree of deferred frees. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToFree {
    tree: Tree,
    notes: Arc<Notes>,
    owners: Owners,
}

/// What this process knows to be due. A crash loses it, but the entries remain.
#[derive(Debug, Default)]
struct Notes {
    /// Entries whose transactions have ended: which transactions, and the log's tail when that was first seen (F4).
    ended: Mutex<ByNumber<Entry, (Xid, Lsn)>>,
    /// Trees that are being looked through for nodes that no parent names: whose entries they are, and how far that has
    /// come.
    posting: Mutex<ByNumber<Entry, (Xid, Posting)>>,
    /// An entry was made since the last round of the reclaimer.
    has_entries: AtomicBool,
    /// Entries have gone, and their ghosts may not have yet.
    has_ghosts: AtomicBool,
    emptied: emptied::Emptied,
    edges: Edges,
    /// How often trees had been taken apart, by all processes, when this one forgot its notes of them last.
    taken_apart: AtomicU64,
    /// Pages below hold changes of transactions only that have ended, durably.
    durable_below: AtomicU64,
}

/// How far a tree has been looked through.
#[derive(Debug, Clone, Copy)]
struct Posting {
    level: u8,
    /// The next node there: none if it is the level's first.
    node: PageId,
}

impl ToFree {
    /// The tree with this root, which is locked as `table`. Nothing is read.
    #[must_use]
    pub fn new(engine: &Arc<Engine>, space: &Arc<Space>, table: TableId, root: PageId) -> ToFree {
        ToFree { tree: Tree::of_entries(engine, space, table, root), notes: Arc::default(), owners: Owners::default() }
    }

    /// The entries, as a tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What is known of the dead ends of all trees.
    pub(crate) fn edges(&self) -> &Edges {
        &self.notes.edges
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.tree.space
    }

    /// Makes the empty root of a new tree, for [`Tree::create`].
    pub(crate) fn create_tree(&self, txn: &mut Txn) -> Result<PageId, TreeError> {
        let root = self.create(txn, Kind::Tree, OP_NODE_FORMAT, &empty_root_args)?;
        self.settle(txn, Entry { kind: Kind::Tree, root })?;
        Ok(root)
    }

    /// Makes the empty root of a new tree that is freed when the transaction ends, however it ends, unless
    /// [`ToFree::keep_tree`] is called first.
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub fn create_tree_for_now(&self, txn: &mut Txn) -> Result<PageId, TreeError> {
        self.create(txn, Kind::Tree, OP_NODE_FORMAT, &empty_root_args)
    }

    /// Notes that something now refers to a tree that [`ToFree::create_tree_for_now`] made. The tree stays if the
    /// transaction commits.
    ///
    /// # Errors
    /// A lock was refused, or a page cannot be read.
    pub fn keep_tree(&self, txn: &mut Txn, root: PageId) -> Result<(), TreeError> {
        self.settle(txn, Entry { kind: Kind::Tree, root })
    }

    /// Notes that the tree with this root has to be freed when the transaction commits.
    ///
    /// # Errors
    /// A lock was refused, there is no space, or a page cannot be read.
    pub fn defer_tree(&self, txn: &mut Txn, root: PageId) -> Result<(), TreeError> {
        self.defer(txn, Entry { kind: Kind::Tree, root })
    }

    pub(crate) fn defer_blob(&self, txn: &mut Txn, blob: BlobRef) -> Result<(), TreeError> {
        self.defer(txn, Entry { kind: Kind::Blob, root: blob.page })
    }

    /// A record refers to the blob now.
    pub(crate) fn settle_blob(&self, txn: &mut Txn, blob: BlobRef) -> Result<(), TreeError> {
        self.settle(txn, Entry { kind: Kind::Blob, root: blob.page })
    }

    /// True if [`ToFree::reclaim`] may find something to do: an entry or an emptied leaf, of a transaction that has
    /// ended or not. This is cheap, for code that decides when to call `reclaim`. It says nothing about what a crash
    /// left over.
    #[must_use]
    pub fn is_due(&self) -> bool {
        // Relaxed: a hint, and the entry itself is behind locks.
        self.notes.has_entries.load(Relaxed) || !self.notes.emptied.is_empty()
    }

    /// Makes durable what has been committed, and notes which pages hold nothing else. The ghosts of those pages may
    /// go, whatever later commits have left in the buckets of the lock table. Waits for the device.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn make_durable(&self) -> Result<(), TreeError> {
        let engine = &self.tree.engine;
        // First the tail, then the marks (T1 in `txn/table.rs`): a transaction that wrote below both has ended, below
        // where the log ends then.
        let tail = engine.log.tail();
        let low = engine.table.first_lsn_low().map_or(tail, |first| first.min(tail));
        if engine.log.has_news() {
            engine.log.flush().map_err(TxnError::from)?;
        }
        self.notes.durable_below.fetch_max(low.0, Relaxed);
        Ok(())
    }

    /// Pages whose LSN is below hold changes of transactions only that have ended, durably.
    pub(crate) fn durable_below(&self) -> Lsn {
        Lsn(self.notes.durable_below.load(Relaxed))
    }

    /// How many structures are to be freed that an open snapshot may still read.
    #[must_use]
    pub fn held_back_count(&self) -> u64 {
        self.notes.ended.lock().len() as u64
    }

    /// A leaf of a tree holds nothing but ghosts. The reclaimer unlinks it when nobody needs them.
    pub(crate) fn note_emptied(&self, tree: &Tree, low: Vec<u8>) {
        self.notes.emptied.note(tree.table, tree.root, low);
    }

    /// F2.
    fn defer(&self, txn: &mut Txn, entry: Entry) -> Result<(), TreeError> {
        self.notes.has_entries.store(true, Relaxed);
        txn.lock_table(self.tree.table, Mode::IX)?; // F6
        self.tree.put(txn, &entry.key(), &State::of(txn).encode())?;
        Ok(())
    }

    /// F1, its second half.
    fn settle(&self, txn: &mut Txn, entry: Entry) -> Result<(), TreeError> {
        txn.lock_table(self.tree.table, Mode::IX)?; // F6
        if self.tree.delete(txn, &entry.key())? {
            Ok(())
        } else {
            Err(Tree::corrupt(entry.root, "entry of a new structure to be freed", 1, 0))
        }
    }

    /// Allocates and formats the first page of a structure, with its entry, for good (F1). The arguments of a user's
    /// structure are the user's code: they are made with nothing latched, for the page that it will probably be.
    pub(crate) fn create(
        &self,
        txn: &mut Txn,
        kind: Kind,
        op: OpId,
        args_of: &dyn Fn(PageId) -> Vec<u8>,
    ) -> Result<PageId, TreeError> {
        match self.create_run(txn, kind, 1, op, &|root, _| args_of(root))? {
            Some(root) => Ok(root),
            None => Err(Tree::corrupt(self.tree.root, "pages found by a search for one", 1, 0)),
        }
    }

    /// The same for `count` pages in a row, the first of which is the structure's; none if there are only fewer. The
    /// arguments of each page's operation are made of the first page and the page's number in the row.
    pub(crate) fn create_run(
        &self,
        txn: &mut Txn,
        kind: Kind,
        count: usize,
        op: OpId,
        args_of: &dyn Fn(PageId, usize) -> Vec<u8>,
    ) -> Result<Option<PageId>, TreeError> {
        let tree = &self.tree;
        let args_bytes: usize = (0..count).map(|no| args_of(PageId::MAX, no).len() + RECORD_OVERHEAD_BYTES).sum();
        txn.lock_table(tree.table, Mode::IX)?;
        let mut descent = Descent::default();
        let mut made: Option<(PageId, Vec<Vec<u8>>)> = None;
        let state = State::of(txn).encode();
        loop {
            txn.claim(8 * RECORD_OVERHEAD_BYTES + args_bytes + 2 * VALUE_BYTES)?;
            let found = match kind {
                Kind::Tree | Kind::Own(_) => tree.space.latch_for_root(),
                Kind::Blob | Kind::Page => tree.space.latch_free_up_to(count as u32),
            };
            let mut run = found?;
            if (run.count as usize) < count {
                return Ok(None);
            }
            let root = run.first;
            self.notes.edges.forget(root); // The page may have been another tree's root.
            let all_args = || (0..count).map(|no| args_of(root, no)).collect::<Vec<_>>();
            let args = match made.take() {
                Some((of, args)) if of == root => args,
                _ if matches!(kind, Kind::Own(_)) => {
                    drop(run);
                    txn.release_claim();
                    made = Some((root, all_args()));
                    continue;
                }
                _ => all_args(),
            };
            let key = Entry { kind, root }.key();
            let Spot { page: mut leaf, slot } = tree.latch_leaf(&key, &mut descent)?;
            let node = Node::new(leaf.words());
            let (entry_op, entry) = match slot {
                Ok(slot) if !node.record(slot).is_ghost() => {
                    return Err(Tree::corrupt(root, "free page that is still to be freed", 0, 1));
                }
                Ok(slot) if plan_replace(&node, slot, VALUE_BYTES) == Plan::Full => {
                    drop((leaf, run));
                    made = Some((root, args));
                    tree.make_room(txn, &Need::Replace { key: &key, value_len: VALUE_BYTES })?;
                    continue;
                }
                Ok(slot) => {
                    // F5.
                    let (place, old) = (Place { root: tree.root, slot, key: &key }, node.value(slot));
                    let old_header = node.record(slot).header & !PADDED;
                    let args = ReplaceArgs { place, old_header, old: &old, new_header: VALUE_HEADER, new: &state };
                    (OP_NODE_REPLACE, args.write())
                }
                Err(_) if plan_insert(&node, &key, VALUE_BYTES) == Plan::Full => {
                    drop((leaf, run));
                    made = Some((root, args));
                    tree.make_room(txn, &Need::Insert { key: &key, value_len: VALUE_BYTES })?;
                    continue;
                }
                Err(slot) => {
                    let place = Place { root: tree.root, slot, key: &key };
                    (OP_NODE_INSERT, InsertArgs { place, header: VALUE_HEADER, value: &state }.write())
                }
            };
            self.notes.has_entries.store(true, Relaxed); // If the transaction aborts.
            let set = run.args_set();
            let mut pages = (0..count as u64)
                .map(|no| tree.engine.cache.exclusive_new(PageId(root.0 + no)))
                .collect::<Result<Vec<_>, _>>()?;
            let mut parts = vec![Part { page: 0, op: OP_SPACE_SET, args: &set }];
            parts.extend(args.iter().enumerate().map(|(no, args)| Part { page: no + 2, op, args }));
            parts.push(Part { page: 1, op: entry_op, args: &entry });
            let mut latched = vec![&mut run.map, &mut leaf];
            latched.extend(pages.iter_mut());
            txn.group(&mut latched, &parts)?;
            return Ok(Some(root));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_value() {
        let state = State { writer: Xid(0x0102_0304_0506_0708), is_posted: false };
        assert_eq!(state.encode(), [8, 7, 6, 5, 4, 3, 2, 1, 0]);
        let posted = State { is_posted: true, ..state };
        assert_eq!(posted.encode(), [8, 7, 6, 5, 4, 3, 2, 1, 1]);
        for state in [state, posted] {
            assert_eq!(State::decode(&state.encode()), Some(state));
            assert_eq!(State::decode(&state.encode()[..8]), None);
            assert_eq!(State::decode(&[&state.encode()[..], &[0]].concat()), None);
        }
        assert_eq!(State::decode(&[8, 7, 6, 5, 4, 3, 2, 1, 2]), None);
        assert_eq!(State::decode(&[]), None);
    }
}
