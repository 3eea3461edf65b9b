//! Two neighbours under one parent become one, or the left one becomes full.
//!
//! ```text
//!        parent                    parent                        parent
//!       /      \\                       \\                        /      \\ (new separator)
//!   left ───► right     ──►     left + right     or     left, full ───► rest
//! ```
//! Going over a level from left to right, this leaves full nodes behind: that is how [`Tree::pack_children`] makes a
//! tree small. Purges use it for leaves that have become sparse, and for the step described in `merge.rs`.
//!
//! K1. One group: both nodes and the parent, and, when the right one goes, its map. It goes as in U1 of `merge.rs`.
//! K2. Latches in the usual order: map, parent, left, right. The parent is latched only if it is unchanged since it
//!     named the two. They are looked at again under their latches, because a node between them that is not posted
//!     would be lost.
//! K3. Records move to the left, against the direction of links. A thread that has the id of the right node from
//!     before finds that the page which named it has changed (D1 in `search.rs`). Or it latches the node, and finds
//!     that its key lies before it.
//! K4. Only what moves is logged. Pads and ghosts move as they are: rollbacks find them.

use ledgerstone_buffer::OptimisticPage;
use ledgerstone_page::{OpId, PageId};
use ledgerstone_space::OP_SPACE_CLEAR;
use ledgerstone_txn::{Part, RECORD_OVERHEAD_BYTES, Txn};

use super::args::{FenceArgs, PostArgs, TakeArgs, write_cut_low, write_remove};
use super::edit::size_of;
use super::entry::{Entry, entries_of, separator_between};
use super::ghost::Purged;
use super::merge::Pair;
use super::node::Node;
use super::ops::{OP_NODE_CUT_LOW, OP_NODE_FENCE, OP_NODE_FREE, OP_NODE_POST, OP_NODE_REMOVE, OP_NODE_TAKE};
use super::search::{Aim, Descent, Held, Unposted};
use super::tree::Tree;
use crate::TreeError;

/// How far two neighbours are to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// They become one if one of them is an empty leaf or has a single child.
    Few,
    /// They become one if that leaves room for what comes.
    Sparse,
    /// They become one, or the left one becomes full.
    Full,
}

/// What became of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairDone {
    /// They are one.
    Joined,
    /// The left one has taken from the right one.
    Shifted,
    /// They stay as they are.
    Stays,
    /// Somebody changed them.
    Changed,
}

/// What packing has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packed {
    /// Pages given back.
    pub freed_count: u64,
    /// Times that records moved to the left neighbour.
    pub shifted_count: u64,
    /// Ghosts removed.
    pub ghost_count: u64,
    /// Large values met in leaves.
    pub blob_count: u64,
    /// Leaves that were there when it came to them.
    pub leaf_count: u64,
}

/// Tries of a pair that others change all the time.
const TRY_COUNT_MAX: u32 = 3;

impl Tree {
    /// The level of the root: 0 for a tree that is one leaf.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn height(&self) -> Result<u8, TreeError> {
        Ok(Node::new(self.engine.cache.shared(self.root)?.words()).level())
    }

    /// Packs the children of the node of `level` (1 or more) that holds `key`. Returns the key to go on with, or none
    /// at the end of the level. Does nothing if the tree is not so high.
    ///
    /// For code that gives space back. It runs alternately with the reclaimer: in a turn of
    /// [`ToFree::begin_turn`](crate::ToFree::begin_turn), with an intention lock on the table. The work is bounded by
    /// the children of one node.
    ///
    /// # Errors
    /// A page cannot be read, or the log refuses or fails.
    pub fn pack_children(
        &self,
        txn: &mut Txn,
        level: u8,
        key: &[u8],
        packed: &mut Packed,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        let Some(parent) = self.find_parent(key, level)? else { return Ok(None) };
        let node = Node::new(parent.words());
        let (high, mut at, child_count) = (node.high(), node.low(), node.count());
        if parent.check().is_err() {
            return Ok(Some(key.to_vec()));
        }
        if level == 1 {
            packed.leaf_count += child_count as u64;
        }
        let mut tries = 0;
        let mut is_purged = false;
        loop {
            if level == 1 && !is_purged {
                self.purge_for_packing(txn, &at, packed)?;
                is_purged = true;
            }
            let Some(parent) = self.find_parent(&at, level)? else { return Ok(None) };
            let node = Node::new(parent.words());
            let slot = node.child_slot(&at);
            let right_slot = slot + 1;
            let is_last = right_slot >= node.count();
            let (left, right) = (node.child(slot), node.child(right_slot.min(node.last_slot())));
            let next = if is_last { node.high() } else { node.key(right_slot) };
            if parent.check().is_err() {
                continue;
            }
            if is_last {
                break;
            }
            if level == 1 {
                self.purge_for_packing(txn, &next, packed)?;
                if parent.check().is_err() {
                    tries += 1;
                    if tries < TRY_COUNT_MAX {
                        continue;
                    }
                }
            }
            match self.pack_pair(txn, Pair { parent, slot: right_slot, left, right }, Packing::Full)? {
                PairDone::Joined => packed.freed_count += 1,
                PairDone::Changed if tries < TRY_COUNT_MAX => {
                    tries += 1;
                    self.post_between(txn, left, right, level)?;
                    continue;
                }
                done => {
                    packed.shifted_count += u64::from(done == PairDone::Shifted);
                    // The right one was purged already.
                    at = next;
                }
            }
            tries = 0;
        }
        if level == 1 && high.is_empty() || level > 1 {
            self.lower_single_root(txn, packed)?;
        }
        Ok((!high.is_empty()).then_some(high))
    }

    /// Merges the leaf with this low fence with a neighbour if both leave room on one page. Says whether.
    pub(super) fn merge_sparse(&self, txn: &mut Txn, low: &[u8]) -> Result<bool, TreeError> {
        let Some(parent) = self.find_parent(low, 1)? else { return Ok(false) };
        let node = Node::new(parent.words());
        let (slot, count) = (node.child_slot(low), node.count());
        let pair_of = |right_slot: usize| (right_slot, node.child(right_slot - 1), node.child(right_slot));
        let right_slots = [slot + 1, slot].into_iter().filter(|&slot| slot > 0 && slot < count);
        let pairs: Vec<_> = right_slots.map(pair_of).collect();
        if parent.check().is_err() {
            return Ok(false);
        }
        for (slot, left, right) in pairs {
            match self.pack_pair(txn, Pair { parent, slot, left, right }, Packing::Sparse)? {
                PairDone::Joined => return Ok(true),
                PairDone::Stays => {}
                PairDone::Shifted | PairDone::Changed => return Ok(false),
            }
        }
        Ok(false)
    }

    /// The node of `level` that holds `key`. `None` if the tree is not so high.
    pub(super) fn find_parent(&self, key: &[u8], level: u8) -> Result<Option<OptimisticPage<'_>>, TreeError> {
        Ok(self.find_at(Aim::Key(key), level, &mut Descent::default())?.map(Held::unlatched))
    }

    fn purge_for_packing(&self, txn: &mut Txn, key: &[u8], packed: &mut Packed) -> Result<(), TreeError> {
        let mut purged = Purged::default();
        let leaf = self.find_leaf(Aim::Key(key), &mut Descent::default())?;
        let node = Node::new(leaf.words());
        let records = || (0..node.count()).map(|slot| node.record(slot));
        let is_due = node.count() == 0 || records().any(|record| record.is_ghost() || record.pad > 0);
        let blobs = records().filter(|record| record.is_blob() && !record.is_ghost()).count();
        if leaf.check().is_ok() {
            packed.blob_count += blobs as u64;
        }
        drop(leaf);
        if is_due {
            self.purge_leaf(txn, key, &mut purged)?;
        }
        packed.ghost_count += purged.ghost_count;
        packed.freed_count += purged.page_count;
        Ok(())
    }

    /// Posts what hangs between two neighbours, if that is why they are none.
    fn post_between(&self, txn: &mut Txn, left: PageId, right: PageId, level: u8) -> Result<(), TreeError> {
        let Ok(page) = self.engine.cache.optimistic(left) else { return Ok(()) };
        let node = Node::new(page.words());
        let is_ours = node.is_of(self.root) && node.level().saturating_add(1) == level && !node.is_rightmost();
        let (link, high) = (node.link(), node.high());
        if page.check().is_ok() && is_ours && link != right {
            self.post(txn, Unposted { level, separator: high, child: link })?;
        }
        Ok(())
    }

    fn lower_single_root(&self, txn: &mut Txn, packed: &mut Packed) -> Result<(), TreeError> {
        loop {
            let child = {
                let root = self.engine.cache.shared(self.root)?;
                let node = Node::new(root.words());
                if node.level() == 0 || node.count() != 1 {
                    return Ok(());
                }
                node.child(0)
            };
            if !self.lower_root(txn, child)? {
                return Ok(());
            }
            packed.freed_count += 1;
        }
    }

    /// Packs two neighbours, if they still are neighbours.
    pub(super) fn pack_pair(&self, txn: &mut Txn, pair: Pair<'_>, packing: Packing) -> Result<PairDone, TreeError> {
        txn.claim(self.page_bytes + self.page_bytes / 2 + 8 * RECORD_OVERHEAD_BYTES)?;
        let cache = &self.engine.cache;
        // They are brought in before anything is latched.
        for id in [pair.left, pair.right] {
            let _ = cache.optimistic(id);
        }
        let mut map = self.space.latch_map_of(pair.right)?;
        let Ok(mut parent) = pair.parent.try_upgrade() else { return Ok(PairDone::Changed) };
        let mut left_page = cache.exclusive(pair.left)?;
        let mut right_page = cache.exclusive(pair.right)?;
        let (left_copy, right_copy) =
            (left_page.words().to_vec(0, self.page_bytes), right_page.words().to_vec(0, self.page_bytes));
        let (left, right) = (Node::new(left_copy.as_slice()), Node::new(right_copy.as_slice()));
        let level = left.level();
        if !left.is_of(self.root)
            || !right.is_of(self.root)
            || right.level() != level
            || left.link() != pair.right
            || left.high() != right.low()
        {
            return Ok(PairDone::Changed);
        }
        if level == 0 && !self.try_lock_leaves(txn, &[pair.left, pair.right])? {
            return Ok(PairDone::Stays);
        }
        // What a node has when it is to go: an empty leaf, or a node with a single child.
        let few = usize::from(level > 0);
        if packing == Packing::Few && left.count().min(right.count()) > few {
            return Ok(PairDone::Stays);
        }
        let (low, middle, high) = (left.low(), right.low(), right.high());
        let mut entries = entries_of(&left);
        let keep = entries.len();
        entries.extend(entries_of(&right));
        if level > 0 && entries.len() > keep {
            // N4: what stood for the right node's low fence is a key now.
            entries[keep] = entries[keep].under(&middle);
        }
        let bytes_max = if packing == Packing::Sparse { self.page_bytes * 3 / 4 } else { self.page_bytes };
        if size_of(level, &low, &high, &entries) <= bytes_max {
            let link = right.link();
            let more = entries.split_off(keep);
            let (op, args) = if more.is_empty() {
                (OP_NODE_FENCE, FenceArgs { keep, link, high: &high }.write())
            } else {
                (OP_NODE_TAKE, TakeArgs { link, high: &high, entries: more }.write())
            };
            let clear = self.space.args_clear(&map, pair.right, 1)?;
            let remove = write_remove(&[pair.slot]);
            let parts: [(usize, OpId, &[u8]); 4] =
                [(0, OP_SPACE_CLEAR, &clear), (1, OP_NODE_REMOVE, &remove), (2, op, &args), (3, OP_NODE_FREE, &[])];
            txn.group(
                &mut [&mut map, &mut parent, &mut left_page, &mut right_page],
                &parts.map(|(page, op, args)| Part { page, op, args }),
            )?;
            return Ok(PairDone::Joined);
        }
        if packing != Packing::Full {
            return Ok(PairDone::Stays);
        }
        drop(map);
        let Some((count, separator)) = self.choose_shift(level, &low, &middle, &entries, keep) else {
            return Ok(PairDone::Stays);
        };
        if !self.parent_fits(&parent.words().to_vec(0, self.page_bytes), pair.slot, &separator) {
            return Ok(PairDone::Stays);
        }
        let more = entries[keep..keep + count].to_vec();
        let take = TakeArgs { link: pair.right, high: &separator, entries: more }.write();
        let cut = write_cut_low(count, &separator);
        let remove = write_remove(&[pair.slot]);
        let post = PostArgs { slot: pair.slot, child: pair.right, key: &separator }.write();
        let parts: [(usize, OpId, &[u8]); 4] = [
            (0, OP_NODE_REMOVE, &remove),
            (0, OP_NODE_POST, &post),
            (1, OP_NODE_TAKE, &take),
            (2, OP_NODE_CUT_LOW, &cut),
        ];
        txn.group(
            &mut [&mut parent, &mut left_page, &mut right_page],
            &parts.map(|(page, op, args)| Part { page, op, args }),
        )?;
        Ok(PairDone::Shifted)
    }

    /// How many of the right node's entries (from `keep` on) the left one can take, and what tells the two apart then.
    /// None if that is not worth a record of the log.
    fn choose_shift(
        &self,
        level: u8,
        low: &[u8],
        middle: &[u8],
        entries: &[Entry<'_>],
        keep: usize,
    ) -> Option<(usize, Vec<u8>)> {
        let left_bytes = size_of(level, low, middle, &entries[..keep]);
        if left_bytes + self.page_bytes / 16 > self.page_bytes {
            return None;
        }
        let separator = |count: usize| {
            let at = keep + count;
            if level > 0 { entries[at].key() } else { separator_between(&entries[at - 1].key(), &entries[at].key()) }
        };
        let fits = |count: usize| size_of(level, low, &separator(count), &entries[..keep + count]) <= self.page_bytes;
        // At least one entry stays. More entries nearly always need more room. The choice is one that fits.
        let (mut fit, mut too_many) = (0, entries.len() - keep);
        while fit + 1 < too_many {
            let count = fit + (too_many - fit) / 2;
            if fits(count) { fit = count } else { too_many = count }
        }
        (fit > 0).then(|| (fit, separator(fit)))
    }

    /// True if the parent has room for another separator in this slot.
    fn parent_fits(&self, parent: &[u8], slot: usize, separator: &[u8]) -> bool {
        let node = Node::new(parent);
        let mut entries = entries_of(&node);
        let Some(entry) = entries.get_mut(slot) else { return false };
        *entry = entry.under(separator);
        size_of(node.level(), &node.low(), &node.high(), &entries) <= self.page_bytes
    }
}
