//! Empty leaves leave the tree, and nodes with a single child make way for it.
//!
//! ```text
//!        parent                         parent
//!       /      \                           \
//!   left ───► right ───► next    ──►     left + right ───► next
//! ```
//! The one step: two neighbours under one parent become one, if one of them is an empty leaf or has a single child, and
//! all fits (`pack.rs`). The left page keeps its place and takes the right one's content, fence and link; the right
//! page goes.
//!
//! An empty leaf that is its parent's only child has no neighbour there. Then the lowest node above that has a
//! neighbour is joined with it first; that gives the node below a neighbour, and so on down. If no node above has one,
//! the root is the only one on its level with a single child, and takes that child's content.
//!
//! U1. One group has the map's bit, the parent, the left page and the right one. The right page is formatted as
//!     something that is not a node. So a thread that still has its id and latches it sees by its version and its
//!     layout that it is gone.
//! U2. Latches in the usual order: map, parent, left, right. The parent is latched only if it is unchanged since it
//!     named the two. They are looked at again under their latches, because a node between them that is not posted
//!     would be lost.
//! U3. Nothing is tried twice: if anything changed or does not fit, the page stays until the next purge.

use ledgerstone_buffer::OptimisticPage;
use ledgerstone_page::{OpId, PageId};
use ledgerstone_space::OP_SPACE_CLEAR;
use ledgerstone_txn::{Part, RECORD_OVERHEAD_BYTES, Txn};

use super::args::FormatArgs;
use super::entry::entries_of;
use super::node::Node;
use super::ops::{OP_NODE_FORMAT, OP_NODE_FREE};
use super::pack::{Packing, PairDone};
use super::search::{Aim, Descent, Unposted};
use super::tree::Tree;
use crate::TreeError;

/// Two neighbours under one parent.
pub(super) struct Pair<'t> {
    pub parent: OptimisticPage<'t>,
    /// Slot of the right one.
    pub slot: usize,
    pub left: PageId,
    pub right: PageId,
}

/// What can be done for an empty leaf.
enum Chance<'t> {
    /// Join these two.
    Join(Pair<'t>),
    /// The root has a single child.
    LowerRoot(PageId),
    /// Nothing now.
    No,
}

impl Tree {
    /// Unlinks the leaf whose low fence is `low` if it is empty. Says how many pages were given back. Hold no latch.
    pub(crate) fn unlink_empty(&self, txn: &mut Txn, low: &[u8]) -> Result<u64, TreeError> {
        let mut freed = 0;
        // Each step but the last brings the neighbour one level nearer to the leaf.
        for _ in 0..=u8::MAX {
            let done = match self.unlink_chance(txn, low)? {
                Chance::Join(pair) => self.pack_pair(txn, pair, Packing::Few)? == PairDone::Joined,
                Chance::LowerRoot(child) => self.lower_root(txn, child)?,
                Chance::No => false,
            };
            if !done {
                break;
            }
            freed += 1;
        }
        Ok(freed)
    }

    /// Looks at the way from the leaf of `low` up to the first node that has a neighbour.
    fn unlink_chance(&self, txn: &mut Txn, low: &[u8]) -> Result<Chance<'_>, TreeError> {
        let leaf = self.find_leaf(Aim::Key(low), &mut Descent::default())?.unlatched();
        let is_empty = Node::new(leaf.words()).count() == 0;
        if leaf.check().is_err() || !is_empty || leaf.id() == self.root {
            return Ok(Chance::No);
        }
        let mut below = leaf;
        loop {
            let level = Node::new(below.words()).level().saturating_add(1);
            if below.check().is_err() {
                return Ok(Chance::No);
            }
            let Some(parent) = self.find_at(Aim::Key(low), level, &mut Descent::default())? else {
                return Ok(Chance::No);
            };
            let parent = parent.unlatched();
            let node = Node::new(parent.words());
            let (count, slot) = (node.count(), node.child_slot(low));
            let right_slot = slot.max(1);
            let (here, left, right) = (node.child(slot), node.child(right_slot - 1), node.child(right_slot));
            if parent.check().is_err() {
                return Ok(Chance::No);
            }
            if here != below.id() {
                // Nobody has posted it yet: it is not a child that could be removed.
                let node = Node::new(below.words());
                let unposted = Unposted { level, separator: node.low(), child: below.id() };
                if below.check().is_ok() {
                    self.post(txn, unposted)?;
                }
                return Ok(Chance::No);
            }
            if count > 1 {
                return Ok(Chance::Join(Pair { parent, slot: right_slot, left, right }));
            }
            if parent.id() == self.root {
                return Ok(Chance::LowerRoot(here));
            }
            below = parent;
        }
    }

    /// The root takes the content of its only child.
    pub(super) fn lower_root(&self, txn: &mut Txn, child: PageId) -> Result<bool, TreeError> {
        txn.claim(self.page_bytes + self.page_bytes / 2 + 8 * RECORD_OVERHEAD_BYTES)?;
        let cache = &self.engine.cache;
        let mut map = self.space.latch_map_of(child)?;
        let mut root = cache.exclusive(self.root)?;
        let root_node = Node::new(root.words());
        if root_node.level() == 0 || root_node.count() != 1 || root_node.child(0) != child {
            return Ok(false);
        }
        let mut page = cache.exclusive(child)?;
        let mut copy = vec![0u8; self.page_bytes];
        page.words().copy_to(0, &mut copy);
        let node = Node::new(copy.as_slice());
        if !node.is_rightmost() {
            // A node that is not posted yet hangs on it.
            return Ok(false);
        }
        if node.level() == 0 && !self.try_lock_leaves(txn, &[self.root, child])? {
            return Ok(false);
        }
        let clear = self.space.args_clear(&map, child, 1)?;
        let entries = entries_of(&node);
        let format =
            FormatArgs { root: self.root, level: node.level(), link: PageId(0), low: &[], high: &[], entries }.write();
        let parts: [(usize, OpId, &[u8]); 3] =
            [(0, OP_SPACE_CLEAR, &clear), (1, OP_NODE_FORMAT, &format), (2, OP_NODE_FREE, &[])];
        txn.group(&mut [&mut map, &mut root, &mut page], &parts.map(|(page, op, args)| Part { page, op, args }))?;
        Ok(true)
    }
}
