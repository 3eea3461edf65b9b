//! What one transaction holds: the list of its nodes, through the region, so that any process can give them all up.

use std::sync::atomic::Ordering::Relaxed;

use crate::nodes::Lot;
use crate::table::{LockTable, Node, Owner};
use crate::{LockName, Mode, OwnerNo};

impl Owner {
    /// What stands for this run of an owner with those that hold it up.
    pub(crate) fn as_outer(&self, owner_no: OwnerNo) -> u64 {
        u64::from(self.run.load(Relaxed)) << 32 | u64::from(owner_no.0 + 1)
    }
}

impl LockTable {
    /// Puts a node into its owner's list.
    #[inline]
    pub(crate) fn own(&self, owner: &Owner, node_no: u32, node: &Node) {
        self.own_part(owner, node_no, node);
        if node.name().is_table() {
            owner.table_nodes.store(owner.table_nodes.load(Relaxed) + 1, Relaxed);
        }
    }

    /// The same for one that is not for a whole table.
    #[inline]
    pub(crate) fn own_part(&self, owner: &Owner, node_no: u32, node: &Node) {
        let head = owner.held_head.load(Relaxed);
        node.owner_next.store(head, Relaxed);
        node.owner_previous.store(0, Relaxed);
        if head != 0 {
            self.node(head).owner_previous.store(node_no, Relaxed);
        }
        owner.held_head.store(node_no, Relaxed);
        owner.held_count.store(owner.held_count.load(Relaxed) + 1, Relaxed);
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
        owner.held_count.store(owner.held_count.load(Relaxed) - 1, Relaxed);
        if node.name().is_table() {
            owner.table_nodes.store(owner.table_nodes.load(Relaxed) - 1, Relaxed);
        }
        let mut lot = Lot::default();
        self.free_node(owner_no, owner, node_no, &mut lot);
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
