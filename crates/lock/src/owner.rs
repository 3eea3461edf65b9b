//! What one transaction holds and waits for.
//!
//! The wait word (32 bits; the futex a waiter sleeps on) says where the owner's current or last wait stands:
//!
//! ```text
//! bits 31..8  number of the wait, one more each time
//! bits  7..0  IDLE -> WAITING -> GRANTED     by whoever lets go, under the latch of the waiter's bucket (`queue`)
//!                             -> VICTIM      by a deadlock search, under its latch (`wait`)
//!                             -> CANCELLED   by `cancel_all_waits`
//!                             -> IDLE        by the owner, leaving
//! ```
//!
//! O1. The word leaves `WAITING` by compare-exchange, so each wait has one end, and the number keeps a verdict on an earlier
//!     wait from hitting a later one.
//! O2. While the word says `WAITING`, `wait_node` and `wait_bucket` say where; the node is in that bucket's chain, and stays
//!     as long as the bucket's latch is held by whoever saw the word under it.

use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::nodes::Lot;
use crate::table::{LockTable, Node, Owner};
use crate::{LockName, Mode, OwnerNo};

/// No wait.
pub(crate) const IDLE: u32 = 0;
/// In a queue.
pub(crate) const WAITING: u32 = 1;
/// The node holds what was wanted.
pub(crate) const GRANTED: u32 = 2;
/// Chosen to give way.
pub(crate) const VICTIM: u32 = 3;
/// Called off.
pub(crate) const CANCELLED: u32 = 4;

/// The state in a wait word.
#[inline]
pub(crate) fn state(word: u32) -> u32 {
    word & 0xff
}

/// Ends the wait that `seen` speaks of, if it is still going on. AcqRel: the waiter's Acquire load sees what the other did
/// before, and the other sees the node that the waiter queued before its word said `WAITING`.
pub(crate) fn end_wait(word: &AtomicU32, seen: u32, end: u32) -> bool {
    state(seen) == WAITING && word.compare_exchange(seen, (seen & !0xff) | end, AcqRel, Acquire).is_ok()
}

impl LockTable {
    /// Puts a node into its owner's list.
    #[inline]
    pub(crate) fn own(&self, owner: &Owner, node_no: u32, node: &Node) {
        let head = owner.held_head.load(Relaxed);
        node.owner_next.store(head, Relaxed);
        node.owner_previous.store(0, Relaxed);
        if head != 0 {
            self.node(head).owner_previous.store(node_no, Relaxed);
        }
        owner.held_head.store(node_no, Relaxed);
        if node.name().is_table() {
            owner.table_nodes.store(owner.table_nodes.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Takes a node that has left its queue out of its owner's list, and frees it.
    #[inline]
    pub(crate) fn disown(&self, owner_no: OwnerNo, node_no: u32) {
        let (owner, node) = (self.owner(owner_no), self.node(node_no));
        let (previous, next) = (node.owner_previous.load(Relaxed), node.owner_next.load(Relaxed));
        if previous == 0 {
            owner.held_head.store(next, Relaxed);
        } else {
            self.node(previous).owner_next.store(next, Relaxed);
        }
        if next != 0 {
            self.node(next).owner_previous.store(previous, Relaxed);
        }
        if node.name().is_table() {
            owner.table_nodes.store(owner.table_nodes.load(Relaxed) - 1, Relaxed);
        }
        let mut lot = Lot::default();
        self.free_node(owner, node_no, &mut lot);
        self.give_back(owner_no, lot);
    }

    /// Calls `visit` for each node of an owner, newest first.
    pub(crate) fn for_each_owned(&self, owner: &Owner, mut visit: impl FnMut(LockName, Mode)) {
        let mut node_no = owner.held_head.load(Relaxed);
        while node_no != 0 {
            let node = self.node(node_no);
            if let Some(mode) = node.granted() {
                visit(node.name(), mode);
            }
            node_no = node.owner_next.load(Relaxed);
        }
    }

    /// Whether the owner has nothing at all.
    #[inline]
    pub(crate) fn holds_nothing(owner: &Owner) -> bool {
        owner.held_head.load(Relaxed) == 0 && owner.intention_count.load(Relaxed) == 0
    }
}
