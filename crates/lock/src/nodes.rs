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

use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use crate::table::{LockTable, Owner, PRIVATE_NODES, SHARDS, Shard};
use crate::{LockError, OwnerNo, bucket};

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
        if node_no.is_none() && self.take_from_shard(owner_no, owner, &self.header().reserve, 1) {
            node_no = self.take_private(owner);
        }
        node_no.ok_or_else(|| self.table_full())
    }

    /// Puts the first nodes into the reserve of a table that nobody uses yet.
    pub(crate) fn fill_reserve(&self) {
        let (reserve, count) = (&self.header().reserve, self.config.reserve_count());
        for node_no in 1..=count {
            self.node(node_no).owner_next.store(if node_no < count { node_no + 1 } else { 0 }, Relaxed);
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
    pub(crate) fn free_node(&self, owner: &Owner, node_no: u32, lot: &mut Lot) {
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
        let shard = &self.header().shards[owner_no.0 as usize % SHARDS];
        bucket::latch(&shard.latch, owner_no);
        self.node(lot.last).owner_next.store(shard.head.load(Relaxed), Relaxed);
        shard.head.store(lot.first, Relaxed);
        shard.count.store(shard.count.load(Relaxed) + lot.count, Relaxed);
        bucket::unlatch(&shard.latch);
    }

    /// Gives the reserve what it lacks, from the lot and then from the owner's private stock.
    fn refill_reserve(&self, owner_no: OwnerNo, lot: &mut Lot) {
        let (reserve, owner) = (&self.header().reserve, self.owner(owner_no));
        bucket::latch(&reserve.latch, owner_no);
        let mut count = reserve.count.load(Relaxed);
        while count < self.config.reserve_count()
            && let Some(node_no) = lot.take(self).or_else(|| self.take_private(owner))
        {
            self.node(node_no).owner_next.store(reserve.head.load(Relaxed), Relaxed);
            reserve.head.store(node_no, Relaxed);
            count += 1;
        }
        reserve.count.store(count, Relaxed);
        bucket::unlatch(&reserve.latch);
    }

    #[cold]
    #[inline(never)]
    fn take_node_of_others(&self, owner_no: OwnerNo, owner: &Owner) -> Option<u32> {
        let shards = &self.header().shards;
        let first = owner_no.0 as usize % SHARDS;
        let is_refilled = self.take_from_shard(owner_no, owner, &shards[first], PRIVATE_NODES)
            || self.take_fresh(owner)
            || (1..SHARDS).any(|i| self.take_from_shard(owner_no, owner, &shards[(first + i) % SHARDS], PRIVATE_NODES));
        if is_refilled { self.take_private(owner) } else { None }
    }

    fn take_from_shard(&self, owner_no: OwnerNo, owner: &Owner, shard: &Shard, count_max: u32) -> bool {
        if shard.count.load(Relaxed) == 0 {
            return false; // A guess without the latch: an owner that misses nodes given back this instant goes on elsewhere.
        }
        bucket::latch(&shard.latch, owner_no);
        let available = shard.count.load(Relaxed);
        let taken = available.min(count_max);
        if taken > 0 {
            let first = shard.head.load(Relaxed);
            let mut last = first;
            for _ in 1..taken {
                last = self.node(last).owner_next.load(Relaxed);
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

    fn take_fresh(&self, owner: &Owner) -> bool {
        let total = self.nodes.len() as u32;
        let lot = |fresh: u32| Some(fresh + PRIVATE_NODES.min(total - fresh)).filter(|&next| next > fresh);
        // SeqCst for no partner: the numbers are all that is handed over, and the path is rare.
        let Ok(first) = self.header().fresh.fetch_update(SeqCst, SeqCst, lot) else { return false };
        let taken = PRIVATE_NODES.min(total - first);
        for node_no in (first..first + taken).rev() {
            self.node(node_no).owner_next.store(owner.free_head.load(Relaxed), Relaxed);
            owner.free_head.store(node_no, Relaxed);
        }
        owner.free_count.store(owner.free_count.load(Relaxed) + taken, Relaxed);
        true
    }
}
