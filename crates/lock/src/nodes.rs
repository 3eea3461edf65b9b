//! Where request nodes come from and go to.
//!
//! An owner keeps up to [`PRIVATE_NODES`] free nodes for itself, taken and given back without any atomic operation
//! (T3). They come and go in lots, from shards of free nodes and, when those are empty, from the rest that was never
//! used. So memory is touched only for the most locks that were ever held at a time.
//!
//! An owner that finds no node locks the whole table instead and gives its nodes for keys back. That should not fail
//! for want of a node, so a reserve is kept for it: two nodes for each owner, one for a request and one for an
//! intention. A request for a whole table collects the intentions of all others on that table, one node each. Owners
//! with intentions on several tables (up to [`INTENTIONS`](crate::table::INTENTIONS)) can need more, when all of these
//! tables are asked for at a time. Then the request is refused, as any other is when the nodes run out. What comes back
//! fills the reserve first, even before the owner's private stock: an idle owner would keep there what others need. The
//! reserve takes no more than it lacks, because locks on keys cannot have it.
//!
//! N1. The `keeper` of a free node says who has it, also while it is between two lists. It changes under the latch of
//!     the shard that gives or gets the node. So a repair makes the list of a shard again with its latch held, and that
//!     of an owner when its thread is dead.

use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use crate::table::{KEPT_BY_SHARD, LockTable, Node, Owner, PRIVATE_NODES, SHARDS};
use crate::{LockError, OwnerNo, bucket};

/// So many nodes are given back at a time: while a shard is latched, each of them is touched.
const LOT_MAX: u32 = 64;

/// A chain of free nodes on the way to a shard, linked by `owner_next`.
#[derive(Default)]
pub(crate) struct Lot {
    first: u32,
    last: u32,
    count: u32,
}

impl Lot {
    /// Takes a node out again.
    fn take(&mut self, table: &LockTable) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        let node_no = self.first;
        self.first = table.node(node_no).owner_next.load(Relaxed);
        Some(node_no)
    }
}

impl Node {
    /// Notes that an owner has it.
    #[inline]
    pub(crate) fn keep_by(&self, owner_no: OwnerNo) {
        self.keeper.store(owner_no.0 + 1, Relaxed); // Read by a repair, after the death of whoever stores it (N1).
    }

    /// Notes that a shard has it.
    pub(crate) fn keep_by_shard(&self, shard_no: usize) {
        self.keeper.store(KEPT_BY_SHARD | shard_no as u32, Relaxed); // Under the shard's latch (N1).
    }
}

impl LockTable {
    /// Takes a free node.
    ///
    /// # Errors
    /// [`LockError::TableFull`]: all are in use.
    #[inline]
    pub(crate) fn take_node(&self, owner_no: OwnerNo) -> Result<u32, LockError> {
        let owner = self.owner(owner_no);
        match self.take_private(owner) {
            Some(node_no) => Ok(node_no),
            None => self.take_node_of_others(owner_no, owner).ok_or_else(|| self.table_full()),
        }
    }

    /// Takes a node that the owner has kept for itself.
    #[inline]
    pub(crate) fn take_private(&self, owner: &Owner) -> Option<u32> {
        let node_no = owner.free_head.load(Relaxed);
        if node_no == 0 {
            return None;
        }
        owner.free_head.store(self.node(node_no).owner_next.load(Relaxed), Relaxed);
        owner.free_count.store(owner.free_count.load(Relaxed) - 1, Relaxed);
        Some(node_no)
    }

    /// Takes a free node for a lock on a whole table, from the reserve if there is no other.
    ///
    /// # Errors
    /// [`LockError::TableFull`]: all are in use, the reserve too.
    pub(crate) fn take_node_for_table(&self, owner_no: OwnerNo) -> Result<u32, LockError> {
        let owner = self.owner(owner_no);
        let mut node_no = self.take_private(owner).or_else(|| self.take_node_of_others(owner_no, owner));
        if node_no.is_none() && self.take_from_shard(owner_no, owner, SHARDS, 1) {
            node_no = self.take_private(owner);
        }
        node_no.ok_or_else(|| self.table_full())
    }

    /// Puts the first nodes into the reserve of a table that nobody uses yet.
    pub(crate) fn fill_reserve(&self) {
        let (reserve, count) = (&self.header().reserve, self.config.reserve_count());
        for node_no in 1..=count {
            let node = self.node(node_no);
            node.keep_by_shard(SHARDS);
            node.owner_next.store(if node_no < count { node_no + 1 } else { 0 }, Relaxed);
        }
        reserve.head.store(1, Relaxed);
        reserve.count.store(count, Relaxed);
    }

    fn table_full(&self) -> LockError {
        self.header().counters.table_full.fetch_add(1, Relaxed);
        LockError::TableFull { locks_max: self.config.locks_max }
    }

    /// Gives a node back; what exceeds the owner's private stock goes to `lot`.
    #[inline]
    pub(crate) fn free_node(&self, owner_no: OwnerNo, owner: &Owner, node_no: u32, lot: &mut Lot) {
        let node = self.node(node_no);
        let count = owner.free_count.load(Relaxed);
        if count < PRIVATE_NODES {
            node.owner_next.store(owner.free_head.load(Relaxed), Relaxed);
            owner.free_head.store(node_no, Relaxed);
            owner.free_count.store(count + 1, Relaxed);
        } else {
            node.owner_next.store(lot.first, Relaxed);
            lot.last = if lot.count == 0 { node_no } else { lot.last };
            lot.first = node_no;
            lot.count += 1;
            if lot.count == LOT_MAX {
                self.give_back_lot(owner_no, std::mem::take(lot));
            }
        }
    }

    /// Fills the reserve if that was drawn on, and puts what is left of a lot into the owner's shard.
    #[inline]
    pub(crate) fn give_back(&self, owner_no: OwnerNo, lot: Lot) {
        if lot.count > 0 || self.is_reserve_short() {
            self.give_back_lot(owner_no, lot);
        }
    }

    /// A guess without the reserve's latch: the next caller fills what is missed here.
    #[inline]
    fn is_reserve_short(&self) -> bool {
        self.header().reserve.count.load(Relaxed) < self.config.reserve_count()
    }

    #[cold]
    #[inline(never)]
    fn give_back_lot(&self, owner_no: OwnerNo, mut lot: Lot) {
        if self.is_reserve_short() {
            self.refill_reserve(owner_no, &mut lot);
        }
        if lot.count == 0 {
            return;
        }
        let shard_no = owner_no.0 as usize % SHARDS;
        let shard = self.shard(shard_no);
        bucket::latch(&shard.latch, self.holder(owner_no));
        let mut node_no = lot.first;
        for _ in 0..lot.count {
            let node = self.node(node_no);
            node.keep_by_shard(shard_no);
            node_no = node.owner_next.load(Relaxed);
        }
        self.node(lot.last).owner_next.store(shard.head.load(Relaxed), Relaxed);
        shard.head.store(lot.first, Relaxed);
        shard.count.store(shard.count.load(Relaxed) + lot.count, Relaxed);
        bucket::unlatch(&shard.latch);
    }

    /// Gives the reserve what it lacks, from the lot and then from the owner's private stock.
    fn refill_reserve(&self, owner_no: OwnerNo, lot: &mut Lot) {
        let (reserve, owner) = (&self.header().reserve, self.owner(owner_no));
        bucket::latch(&reserve.latch, self.holder(owner_no));
        let mut count = reserve.count.load(Relaxed);
        while count < self.config.reserve_count()
            && let Some(node_no) = lot.take(self).or_else(|| self.take_private(owner))
        {
            let node = self.node(node_no);
            node.keep_by_shard(SHARDS);
            node.owner_next.store(reserve.head.load(Relaxed), Relaxed);
            reserve.head.store(node_no, Relaxed);
            count += 1;
        }
        reserve.count.store(count, Relaxed);
        bucket::unlatch(&reserve.latch);
    }

    #[cold]
    #[inline(never)]
    fn take_node_of_others(&self, owner_no: OwnerNo, owner: &Owner) -> Option<u32> {
        let first = owner_no.0 as usize % SHARDS;
        let is_refilled = self.take_from_shard(owner_no, owner, first, PRIVATE_NODES)
            || self.take_fresh(owner_no, owner)
            || (1..SHARDS).any(|i| self.take_from_shard(owner_no, owner, (first + i) % SHARDS, PRIVATE_NODES));
        if is_refilled { self.take_private(owner) } else { None }
    }

    fn take_from_shard(&self, owner_no: OwnerNo, owner: &Owner, shard_no: usize, count_max: u32) -> bool {
        let shard = self.shard(shard_no);
        if shard.count.load(Relaxed) == 0 {
            return false; // A guess without the latch: an owner that misses nodes given back this instant goes on elsewhere.
        }
        bucket::latch(&shard.latch, self.holder(owner_no));
        let available = shard.count.load(Relaxed);
        let taken = available.min(count_max);
        if taken > 0 {
            let first = shard.head.load(Relaxed);
            let mut last = first;
            self.node(last).keep_by(owner_no);
            for _ in 1..taken {
                last = self.node(last).owner_next.load(Relaxed);
                self.node(last).keep_by(owner_no);
            }
            shard.head.store(self.node(last).owner_next.load(Relaxed), Relaxed);
            shard.count.store(available - taken, Relaxed);
            self.node(last).owner_next.store(owner.free_head.load(Relaxed), Relaxed);
            owner.free_head.store(first, Relaxed);
            owner.free_count.store(owner.free_count.load(Relaxed) + taken, Relaxed);
        }
        bucket::unlatch(&shard.latch);
        taken > 0
    }

    /// Takes nodes that nobody ever had. They have their keeper before the number says that they are in use.
    fn take_fresh(&self, owner_no: OwnerNo, owner: &Owner) -> bool {
        let header = self.header();
        let total = self.nodes.len() as u32;
        if header.fresh.load(Relaxed) >= total {
            return false; // It only rises.
        }
        bucket::latch(&header.fresh_latch, self.holder(owner_no));
        let first = header.fresh.load(Relaxed);
        let taken = PRIVATE_NODES.min(total.saturating_sub(first));
        for node_no in (first..first + taken).rev() {
            let node = self.node(node_no);
            node.keep_by(owner_no);
            node.owner_next.store(owner.free_head.load(Relaxed), Relaxed);
            owner.free_head.store(node_no, Relaxed);
        }
        owner.free_count.store(owner.free_count.load(Relaxed) + taken, Relaxed);
        header.fresh.store(first + taken, SeqCst); // Release, for whoever scans up to it.
        bucket::unlatch(&header.fresh_latch);
        taken > 0
    }
}
