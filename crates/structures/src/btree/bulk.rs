//! Records in order become full leaves, one after the other, at the right end of a tree that nobody else sees.
//!
//! ```text
//!  records ─► leaf in memory ─► one group: map bit, the new leaf with all its content, fence and link of the one before
//!                               ─► its separator in the parent, as after a split (`post.rs`)
//! ```
//! B1. The content is in the log once, as a part of the page that it makes, and no record has an undo. The tree is
//!     new, and the entry in the tree of deferred frees stands for it until it is wanted (F1 in `to_free`). Abort and
//!     crash leave nothing.
//! B2. After each group the tree is whole: every page is reached by links from the first leaf.
//! B3. A record that does not fit into a leaf is put as usual, in its turn. So are the few small records before it, so
//!     that no sparse leaves are left behind.
//! B4. In the group of a leaf to the right of another the fence comes before the leaf; in that of a split, behind it.
//!     So readers of changes know records that are new from records that move (`loaded_leaf` in `change.rs`).

use ledgerstone_page::{OpId, PageId};
use ledgerstone_space::OP_SPACE_SET;
use ledgerstone_txn::{Part, RECORD_OVERHEAD_BYTES, Txn};

use super::args::{FenceArgs, FormatArgs};
use super::edit::{child_value, fits_fence};
use super::entry::{Entry, common, separator_between};
use super::node::{CHILD_BYTES, FENCES_AT, Node, RECORD_HEADER_BYTES, SLOT_BYTES, value_bytes_max};
use super::ops::{OP_NODE_FENCE, OP_NODE_FORMAT};
use super::search::{Aim, Descent, Unposted};
use super::tree::Tree;
use crate::TreeError;

/// A record of the leaf to come, as it lies in a node without a prefix.
#[derive(Debug, Clone, Copy)]
struct Pending {
    at: usize,
    key_len: usize,
    value_len: usize,
}

/// Fills a new tree with records in order. Made by [`Loader::new`].
#[derive(Debug)]
pub struct Loader {
    tree: Tree,
    /// The records of the leaf to come, and their bytes.
    records: Vec<Pending>,
    bytes: Vec<u8>,
    /// Bytes of its records with whole keys.
    body_bytes: usize,
    /// Whether there are leaves, and the last key in them.
    has_leaves: bool,
    last_key: Vec<u8>,
}

impl Loader {
    /// A loader for a tree that is empty, whose table the transaction has locked exclusively.
    #[must_use]
    pub fn new(tree: &Tree) -> Loader {
        let (records, bytes, last_key) = (Vec::new(), Vec::new(), Vec::new());
        Loader { tree: tree.clone(), records, bytes, body_bytes: 0, has_leaves: false, last_key }
    }

    /// The next record. The caller has seen to it that its key is larger than the one before.
    ///
    /// # Errors
    /// A key or value too large, no space, a failed environment.
    pub fn push(&mut self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        self.tree.check_sizes(key, value)?;
        if value.len() > value_bytes_max(self.tree.page_bytes, key.len()) {
            // B3
            if self.body_bytes > self.tree.page_bytes / 2 {
                self.flush(txn)?;
            }
            self.put_all(txn)?;
            self.tree.put(txn, key, value)?;
            self.set_last_key(key);
            return Ok(());
        }
        let bytes = RECORD_HEADER_BYTES + key.len() + value.len();
        if !self.records.is_empty() && self.bytes_with(key, bytes) > self.tree.page_bytes {
            self.flush(txn)?;
        }
        let at = self.bytes.len();
        self.bytes.reserve(bytes);
        self.bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.records.push(Pending { at, key_len: key.len(), value_len: value.len() });
        self.body_bytes += bytes;
        Ok(())
    }

    /// All records are there.
    ///
    /// # Errors
    /// As [`Loader::push`].
    pub fn finish(mut self, txn: &mut Txn) -> Result<(), TreeError> {
        if self.has_leaves || self.bytes_with(&[], 0) > self.tree.page_bytes / 4 {
            return self.flush(txn);
        }
        self.put_all(txn)
    }

    /// An upper bound of the leaf's size with one record more; the high fence is no longer than its last key and one
    /// byte.
    fn bytes_with(&self, key: &[u8], bytes: usize) -> usize {
        let (Some(first), Some(last)) = (self.records.first(), self.records.last()) else {
            return FENCES_AT + SLOT_BYTES + bytes;
        };
        let first = self.key(*first);
        let last = if key.is_empty() { self.key(*last) } else { key };
        let (count, prefix) = (self.records.len() + 1, common(first, last));
        let fences = first.len() + last.len() + 1 + prefix;
        FENCES_AT + fences.next_multiple_of(8) + count * SLOT_BYTES + self.body_bytes + bytes - (count - 1) * prefix
    }

    fn key(&self, record: Pending) -> &[u8] {
        &self.bytes[record.at + RECORD_HEADER_BYTES..][..record.key_len]
    }

    fn value(&self, record: Pending) -> &[u8] {
        &self.bytes[record.at + RECORD_HEADER_BYTES + record.key_len..][..record.value_len]
    }

    /// There are leaves up to this key.
    fn set_last_key(&mut self, key: &[u8]) {
        self.has_leaves = true;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// The leaf to come has nothing any more.
    fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.body_bytes = 0;
    }

    /// Puts what is left of a leaf as usual.
    fn put_all(&mut self, txn: &mut Txn) -> Result<(), TreeError> {
        for &record in &self.records {
            self.tree.put(txn, self.key(record), self.value(record))?;
        }
        self.end_leaf();
        Ok(())
    }

    /// The records of the leaf to come are in the tree.
    fn end_leaf(&mut self) {
        if let Some(&last) = self.records.last() {
            self.has_leaves = true;
            self.last_key.clear();
            self.last_key.extend_from_slice(&self.bytes[last.at + RECORD_HEADER_BYTES..][..last.key_len]);
        }
        self.clear();
    }

    /// Makes a leaf of the records.
    fn flush(&mut self, txn: &mut Txn) -> Result<(), TreeError> {
        let Some(&first) = self.records.first() else { return Ok(()) };
        let is_made = if self.has_leaves {
            self.make_next(txn, separator_between(&self.last_key, self.key(first)))?
        } else {
            self.make_first(txn)?
        };
        if !is_made {
            return self.put_all(txn);
        }
        self.end_leaf();
        Ok(())
    }

    fn entries(&self) -> Vec<Entry<'_>> {
        let entry = |&record: &Pending| {
            let image = &self.bytes[record.at..][..RECORD_HEADER_BYTES + record.key_len + record.value_len];
            Entry::of_image(&[], image, record.value_len as u16, record.key_len)
        };
        self.records.iter().map(entry).collect()
    }

    /// The first leaf, and the root above it. False: it cannot be made.
    fn make_first(&self, txn: &mut Txn) -> Result<bool, TreeError> {
        let tree = &self.tree;
        txn.claim(tree.page_bytes + tree.page_bytes / 2 + 8 * RECORD_OVERHEAD_BYTES)?;
        let mut run = tree.space.latch_free(1)?;
        let mut root = tree.engine.cache.exclusive(tree.root)?;
        let node = Node::new(root.words());
        if !node.is_of(tree.root) || node.level() > 0 || node.count() > 0 {
            return Err(Tree::corrupt(tree.root, "records of a tree to be filled", 0, node.count() as u64));
        }
        let mut page = tree.engine.cache.exclusive_new(run.first)?;
        let set = run.args_set();
        let none = PageId(0);
        let leaf = FormatArgs { root: tree.root, level: 0, link: none, low: &[], high: &[], entries: self.entries() };
        let child = child_value(run.first);
        let entries = vec![Entry::new(&[], CHILD_BYTES as u16, &child)];
        let above = FormatArgs { root: tree.root, level: 1, link: none, low: &[], high: &[], entries };
        let (leaf, above) = (leaf.write(), above.write());
        let parts: [(usize, OpId, &[u8]); 3] =
            [(0, OP_SPACE_SET, &set), (2, OP_NODE_FORMAT, &leaf), (1, OP_NODE_FORMAT, &above)];
        txn.group(&mut [&mut run.map, &mut root, &mut page], &parts.map(|(page, op, args)| Part { page, op, args }))?;
        Ok(true)
    }

    /// The next leaf, to the right of all. False: the one before has no room for its fence.
    fn make_next(&self, txn: &mut Txn, separator: Vec<u8>) -> Result<bool, TreeError> {
        let tree = &self.tree;
        txn.claim(tree.page_bytes + tree.page_bytes / 2 + 8 * RECORD_OVERHEAD_BYTES)?;
        let before = tree.find_leaf(Aim::Last, &mut Descent::default())?.id();
        if before == tree.root {
            return Ok(false);
        }
        let mut run = tree.space.latch_free(1)?;
        let mut before = tree.engine.cache.exclusive(before)?;
        let node = Node::new(before.words());
        if !node.is_of(tree.root) || !node.is_rightmost() || !fits_fence(&node, &separator) {
            return Ok(false);
        }
        let new = run.first;
        let mut page = tree.engine.cache.exclusive_new(new)?;
        let set = run.args_set();
        let entries = self.entries();
        let leaf =
            FormatArgs { root: tree.root, level: 0, link: PageId(0), low: &separator, high: &[], entries }.write();
        let fence = FenceArgs { keep: node.count(), link: new, high: &separator }.write();
        let parts: [(usize, OpId, &[u8]); 3] =
            [(0, OP_SPACE_SET, &set), (1, OP_NODE_FENCE, &fence), (2, OP_NODE_FORMAT, &leaf)]; // B4
        txn.group(&mut [&mut run.map, &mut before, &mut page], &parts.map(|(page, op, args)| Part { page, op, args }))?;
        let full = before.id();
        drop((run, before, page));
        tree.engine.cache.leave_behind(full);
        tree.post(txn, Unposted { level: 1, separator, child: new })?;
        Ok(true)
    }
}
