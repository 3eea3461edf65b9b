//! Empty leaves leave the tree.
//!
//! ```text
//!  left ──► empty ──► right        left ───────────► right        the left neighbour takes over the range
//!
//!  empty ──► right ──► next        right's content ──► next       the leftmost child of its parent cannot be taken over:
//!                                  (in empty's page)              it takes its right neighbour's content instead
//!
//!  root ──► only child             root has the content           a root with one child takes the child's place
//! ```
//! U1. One group: the map's bit, the parent, the neighbour, and the page itself, which is formatted as no node at all, so
//!     that whoever still has its id and latches it sees that it is gone, by its version and by its layout.
//! U2. Latches in the usual order: map, parent, then left before right. The parent is latched only if it is unchanged since
//!     it named the pages.
//! U3. Nothing is waited for twice: if anything changed, the page stays until the next purge.

use ledgerstone_page::{OpId, PageId};
use ledgerstone_space::OP_SPACE_CLEAR;
use ledgerstone_txn::{Part, RECORD_OVERHEAD_BYTES, Txn};

use super::args::{FenceArgs, FormatArgs, write_remove};
use super::edit::{entries_of, size_of};
use super::node::Node;
use super::ops::{OP_NODE_FENCE, OP_NODE_FORMAT, OP_NODE_FREE, OP_NODE_REMOVE};
use super::search::{Aim, Descent, Held};
use super::tree::Tree;
use crate::TreeError;

impl Tree {
    /// Unlinks the leaf whose low fence is `low` if it is empty, and gives a page back. Says whether it did. Hold no latch.
    pub(crate) fn unlink_empty(&self, txn: &mut Txn, low: &[u8]) -> Result<bool, TreeError> {
        let root = self.engine.cache.optimistic(self.root)?;
        let height = Node::new(root.words()).level();
        if root.check().is_err() || height == 0 {
            return Ok(false);
        }
        let mut descent = Descent::default();
        let Held::Optimistic(parent) = self.find(Aim::Key(low), 1, &mut descent)? else { return Ok(false) };
        let node = Node::new(parent.words());
        let slot = node.child_slot(low);
        let (count, here) = (node.count(), node.child(slot));
        let (before, after) = (node.child(slot.saturating_sub(1)), node.child((slot + 1).min(count.saturating_sub(1))));
        if parent.check().is_err() {
            return Ok(false);
        }
        // What will be latched is brought in before anything is. From here on the parent must stay as it is (U2).
        for id in [before, here, after] {
            let _ = self.engine.cache.optimistic(id);
        }
        let is_root = parent.id() == self.root;
        if slot > 0 {
            self.unlink_into_left(txn, parent, slot, before, here)
        } else if count > 1 {
            self.unlink_by_content(txn, parent, here, after)
        } else if is_root {
            self.lower_root(txn, here)
        } else {
            Ok(false)
        }
    }

    fn claim_unlink(&self, txn: &mut Txn) -> Result<(), TreeError> {
        Ok(txn.claim(self.page_bytes + self.page_bytes / 2 + 8 * RECORD_OVERHEAD_BYTES)?)
    }

    fn unlink_into_left(
        &self,
        txn: &mut Txn,
        parent: ledgerstone_buffer::OptimisticPage<'_>,
        slot: usize,
        left: PageId,
        empty: PageId,
    ) -> Result<bool, TreeError> {
        self.claim_unlink(txn)?;
        let cache = &self.engine.cache;
        let mut map = self.space.latch_map_of(empty)?;
        let Ok(mut parent) = parent.try_upgrade() else { return Ok(false) };
        let mut left = cache.exclusive(left)?;
        let mut page = cache.exclusive(empty)?;
        let (left_node, node) = (Node::new(left.words()), Node::new(page.words()));
        // Another node between them is not posted yet: it would be lost.
        if node.count() > 0 || left_node.link() != empty || left_node.high() != node.low() {
            return Ok(false);
        }
        let (high, link) = (node.high(), node.link());
        let mut copy = vec![0u8; self.page_bytes];
        left.words().copy_to(0, &mut copy);
        let left_copy = Node::new(copy.as_slice());
        let entries = entries_of(&left_copy);
        if size_of(0, &left_copy.low(), &high, &entries) > self.page_bytes {
            return Ok(false);
        }
        let clear = self.space.args_clear(empty, 1);
        let remove = write_remove(&[slot]);
        let fence = FenceArgs { keep: entries.len(), link, high: &high }.write();
        let parts: [(usize, OpId, &[u8]); 4] = [
            (0, OP_SPACE_CLEAR, &clear),
            (1, OP_NODE_REMOVE, &remove),
            (2, OP_NODE_FENCE, &fence),
            (3, OP_NODE_FREE, &[]),
        ];
        txn.group(
            &mut [&mut map, &mut parent, &mut left, &mut page],
            &parts.map(|(page, op, args)| Part { page, op, args }),
        )?;
        Ok(true)
    }

    fn unlink_by_content(
        &self,
        txn: &mut Txn,
        parent: ledgerstone_buffer::OptimisticPage<'_>,
        empty: PageId,
        right: PageId,
    ) -> Result<bool, TreeError> {
        self.claim_unlink(txn)?;
        let cache = &self.engine.cache;
        let mut map = self.space.latch_map_of(right)?;
        let Ok(mut parent) = parent.try_upgrade() else { return Ok(false) };
        let mut page = cache.exclusive(empty)?;
        let mut right_page = cache.exclusive(right)?;
        let (node, right_node) = (Node::new(page.words()), Node::new(right_page.words()));
        if node.count() > 0 || node.link() != right || node.high() != right_node.low() {
            return Ok(false);
        }
        let low = node.low();
        let mut copy = vec![0u8; self.page_bytes];
        right_page.words().copy_to(0, &mut copy);
        let right_copy = Node::new(copy.as_slice());
        let (high, link, entries) = (right_copy.high(), right_copy.link(), entries_of(&right_copy));
        if size_of(0, &low, &high, &entries) > self.page_bytes {
            return Ok(false);
        }
        let clear = self.space.args_clear(right, 1);
        let remove = write_remove(&[1]);
        let format = FormatArgs { root: self.root, level: 0, link, low: &low, high: &high, entries }.write();
        let parts: [(usize, OpId, &[u8]); 4] = [
            (0, OP_SPACE_CLEAR, &clear),
            (1, OP_NODE_REMOVE, &remove),
            (2, OP_NODE_FORMAT, &format),
            (3, OP_NODE_FREE, &[]),
        ];
        txn.group(
            &mut [&mut map, &mut parent, &mut page, &mut right_page],
            &parts.map(|(page, op, args)| Part { page, op, args }),
        )?;
        Ok(true)
    }

    /// The root takes the content of its only child.
    fn lower_root(&self, txn: &mut Txn, child: PageId) -> Result<bool, TreeError> {
        self.claim_unlink(txn)?;
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
        let clear = self.space.args_clear(child, 1);
        let entries = entries_of(&node);
        let format =
            FormatArgs { root: self.root, level: node.level(), link: PageId(0), low: &[], high: &[], entries }.write();
        let parts: [(usize, OpId, &[u8]); 3] =
            [(0, OP_SPACE_CLEAR, &clear), (1, OP_NODE_FORMAT, &format), (2, OP_NODE_FREE, &[])];
        txn.group(&mut [&mut map, &mut root, &mut page], &parts.map(|(page, op, args)| Part { page, op, args }))?;
        Ok(true)
    }
}
