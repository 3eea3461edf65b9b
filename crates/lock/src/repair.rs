//! What a survivor does about the words that a death has left half changed.
//!
//! R1. A node says itself where it is. With modes, it is a request: in the chain of the bucket that it names (Q8), and
//!     what it holds is its owner's. Without, its keeper has it, an owner or a shard (N1). Chains, lists and counts
//!     are made again from that, in this order: shards, buckets, owners.
//! R2. A shard or a bucket is mended if a dead thread holds its latch, and with the latch taken over. All others are
//!     whole.
//! R3. An owner is mended if its thread is dead. The repairing thread takes its place, by one exchange, and says that
//!     it is mending until it is done. If the owner is free by then, a thread that begins waits for that.
//! R4. The requests of the dead that wait are taken out. What the dead hold stays until somebody ends their
//!     transactions. An intention in a word is no lock if a strong request for the table is in the queue,
//!     which would have collected it (I4). It is cleared.
//! R5. In the end, waits are called off if somebody has begun to call them off, and every owner that waits is woken. It
//!     looks at its word again. So a wake-up that the dead did not send is made up for.
//!
//! Latches of the living are waited for in R3 and R4 only, one at a time, with no other held.

use ledgerstone_region::atomic::{
    AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use ledgerstone_region::{AnotherDied, Dead, Repair, SlotNo, sync};

use crate::bucket::Holder;
use crate::flags::Flag;
use crate::intention::{COLLECTED, lock_of};
use crate::planted::Part;
use crate::queue::{Queue, is_strong};
use crate::table::{KEPT_BY_SHARD, LockTable, MENDING, NOT_TAKEN_IN, Owner, PRIVATE_NODES, SHARDS};
use crate::{OwnerNo, bucket, standing, wait_word};

/// How long a repairer sleeps that waits for a living thread's next store: it has lost its processor.
const LOOK_NS: u64 = 20_000;

impl Repair for LockTable {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let mark = if self.forgets(Part::Mending) { 0 } else { MENDING };
        let repairer = Repairer { table: self, dead, me: self.caller(), mark };
        repairer.mend_free_nodes();
        repairer.mend_buckets();
        repairer.mend_owners()?;
        self.end_waits_and_wake();
        Ok(())
    }
}

impl LockTable {
    /// Whether a thread holds a latch of the table.
    pub(crate) fn has_latched(&self, slot: SlotNo) -> bool {
        let header = self.header();
        let shards = (0..=SHARDS).map(|no| &self.shard(no).latch);
        let buckets = self.buckets.iter().map(|bucket| &bucket.latch);
        let mut latches = [&header.search_latch, &header.fresh_latch].into_iter().chain(shards).chain(buckets);
        latches.any(|latch| Holder::in_word(latch.load(Relaxed)) == Some(slot))
    }

    /// R5.
    fn end_waits_and_wake(&self) {
        if self.header().is_cancelled.load(SeqCst) != 0 && !self.forgets(Part::CancelledWaits) {
            self.end_all_waits();
        }
        if self.forgets(Part::Wake) {
            return;
        }
        for owner in self.owners.iter() {
            if wait_word::state(owner.wait_word.load(Acquire)) != wait_word::IDLE {
                sync::futex_wake(&owner.wait_word, 1);
            }
        }
    }
}

/// One repair.
struct Repairer<'a> {
    table: &'a LockTable,
    dead: &'a Dead<'a>,
    me: Holder,
    /// In `thread` of the owners that are mended, beside our name.
    mark: u32,
}

impl<'a> Repairer<'a> {
    /// Whether a dead thread has held this latch, which is ours now.
    fn takes_over(&self, latch: &AtomicU32) -> bool {
        let owner = Holder::in_word(latch.load(Relaxed)); // The exchange looks again.
        owner.is_some_and(|owner| self.dead.has(owner) && bucket::take_over(latch, owner, self.me))
    }

    /// Takes a latch that none of the dead holds. Its holder may wait for another one, of a thread that has died since.
    fn latch(&self, latch: &AtomicU32) -> Result<(), AnotherDied> {
        let slots = &self.table.slots;
        let mut round = 0;
        while !bucket::try_latch(latch, self.me) {
            if sync::spin(round) {
                round += 1;
                continue;
            }
            let may_hold =
                |slot| !self.table.forgets(Part::DeathOfAThird) || Holder::in_word(latch.load(Relaxed)) == Some(slot);
            if slots.iter_owned().any(|slot| slots.is_dead(slot) && !self.dead.has(slot) && may_hold(slot)) {
                return Err(AnotherDied);
            }
            sync::sleep_ns(LOOK_NS);
        }
        Ok(())
    }

    fn latch_bucket(&self, bucket_no: u32) -> Result<Queue<'a>, AnotherDied> {
        let bucket = &self.table.buckets[bucket_no as usize];
        self.latch(&bucket.latch)?;
        Ok(Queue { table: self.table, bucket, bucket_no })
    }

    /// The latches around free nodes, and that of the deadlock search, which guards no words.
    fn mend_free_nodes(&self) {
        let (table, header) = (self.table, self.table.header());
        let latches = [(&header.search_latch, Part::SearchLatch), (&header.fresh_latch, Part::FreshLatch)];
        for (latch, part) in latches {
            if !table.forgets(part) && self.takes_over(latch) {
                bucket::unlatch(latch);
            }
        }
        for shard_no in 0..=SHARDS {
            let latch = &table.shard(shard_no).latch;
            if !table.forgets(Part::ShardLatch) && self.takes_over(latch) {
                self.rebuild_shard(shard_no);
                bucket::unlatch(latch);
            }
        }
    }

    /// N1.
    fn rebuild_shard(&self, shard_no: usize) {
        let (table, shard) = (self.table, self.table.shard(shard_no));
        if table.forgets(Part::ShardList) {
            return;
        }
        let keeper = KEPT_BY_SHARD | shard_no as u32;
        let (mut head, mut count) = (0, 0);
        for node_no in 1..table.header().fresh.load(Acquire) {
            sync::yield_point("lock shard mended");
            let node = table.node(node_no);
            if node.keeper.load(Relaxed) == keeper {
                node.owner_next.store(head, Relaxed); // Under the latch, as all here.
                (head, count) = (node_no, count + 1);
            }
        }
        shard.head.store(head, Relaxed);
        shard.count.store(count, Relaxed);
    }

    fn mend_buckets(&self) {
        for (bucket_no, bucket) in (0..).zip(self.table.buckets.iter()) {
            if self.table.forgets(Part::BucketLatch) || !self.takes_over(&bucket.latch) {
                continue;
            }
            let queue = Queue { table: self.table, bucket, bucket_no };
            self.table.rebuild(&queue);
        }
    }

    /// R3, R4.
    fn mend_owners(&self) -> Result<(), AnotherDied> {
        let left = self.take_owners();
        if left.is_empty() {
            return Ok(());
        }
        for &owner_no in &left {
            self.end_wait(owner_no)?;
            self.empty_lists(self.table.owner(owner_no));
        }
        let mut spare = Vec::new();
        for node_no in 1..self.table.header().fresh.load(Acquire) {
            sync::yield_point("lock nodes sorted");
            spare.extend(self.sort_in(node_no)?);
        }
        for (owner_no, node_no) in spare {
            self.give_to_shard(owner_no.0 as usize % SHARDS, node_no)?;
        }
        for owner_no in left {
            self.mend_intentions(owner_no)?;
            self.lower_flags(owner_no);
            if !self.table.forgets(Part::Thread) {
                // Release: pairs with the exchange of a thread that begins.
                self.table.owner(owner_no).thread.store(self.me.0, Release);
            }
        }
        Ok(())
    }

    /// The owners of the dead, and those that a repair was mending when it ended, are ours from now on.
    fn take_owners(&self) -> Vec<OwnerNo> {
        let mut left = Vec::new();
        for (no, owner) in (0..).zip(self.table.owners.iter()) {
            let seen = owner.thread.load(Acquire);
            let is_left = seen & MENDING != 0 || Holder::in_word(seen).is_some_and(|slot| self.dead.has(slot));
            sync::yield_point("lock owner taken");
            // If it fails, a living thread has begun there.
            if is_left && owner.thread.compare_exchange(seen, self.mark | self.me.0, AcqRel, Relaxed).is_ok() {
                left.push(OwnerNo(no));
            }
        }
        left
    }

    fn is_ours(&self, owner_no: OwnerNo) -> bool {
        let owner = self.table.owners.get(owner_no.0 as usize);
        owner.is_some_and(|owner| owner.thread.load(Relaxed) == self.mark | self.me.0) // Nobody else changes it.
    }

    /// Under the bucket's latch, so that nobody grants, condemns or passes the wait at the same time.
    fn end_wait(&self, owner_no: OwnerNo) -> Result<(), AnotherDied> {
        let owner = self.table.owner(owner_no);
        let word = &owner.wait_word;
        if wait_word::state(word.load(Acquire)) == wait_word::IDLE || self.table.forgets(Part::WaitOfTheDead) {
            return Ok(());
        }
        let queue = self.latch_bucket(owner.wait_bucket.load(Relaxed))?;
        word.store(wait_word::idle(word.load(Acquire)), Release);
        drop(queue);
        Ok(())
    }

    fn empty_lists(&self, owner: &Owner) {
        if !self.table.forgets(Part::HeldList) {
            owner.held_head.store(0, Relaxed); // Ours, as its lists are (T3).
            owner.held_count.store(0, Relaxed);
            owner.table_nodes.store(0, Relaxed);
        }
        if !self.table.forgets(Part::FreeList) {
            owner.free_head.store(0, Relaxed);
            owner.free_count.store(0, Relaxed);
        }
    }

    /// Puts a node into the list of the owner that has it, if we mend that one. Returns it if it is one too many.
    fn sort_in(&self, node_no: u32) -> Result<Option<(OwnerNo, u32)>, AnotherDied> {
        let table = self.table;
        let node = table.node(node_no);
        let modes = node.modes.load(Acquire); // The owner that is read next is that of this request, or of a later one.
        if modes != 0 && self.is_ours(node.owner_no()) {
            let is_looked_at = modes >> 8 != 0 || !table.forgets(Part::RequestBeingGranted);
            if is_looked_at && !table.forgets(Part::RequestOfTheDead) {
                self.take_out_or_list(node_no)?;
            } else {
                self.list_held(node_no);
            }
        }
        sync::yield_point("lock node looked at again");
        let Some(keeper) = standing::keeper_if_free(&node.modes, &node.keeper) else { return Ok(None) };
        let Some(owner_no) = keeper.checked_sub(1).map(OwnerNo).filter(|_| keeper & KEPT_BY_SHARD == 0) else {
            return Ok(None);
        };
        if !self.is_ours(owner_no) || table.forgets(Part::FreeList) {
            return Ok(None);
        }
        let owner = table.owner(owner_no);
        let count = owner.free_count.load(Relaxed);
        if count == PRIVATE_NODES {
            return Ok(Some((owner_no, node_no)));
        }
        node.owner_next.store(owner.free_head.load(Relaxed), Relaxed);
        owner.free_head.store(node_no, Relaxed);
        owner.free_count.store(count + 1, Relaxed);
        Ok(None)
    }

    /// Lists what an owner that we mend holds. What was collected and not taken in is in a word (I7). Under the
    /// bucket's latch: without it, a collector may have its node back between two of these looks.
    fn list_held(&self, node_no: u32) {
        let node = self.table.node(node_no);
        let owner_no = OwnerNo(node.owner.load(Acquire)); // Pairs with the store in `add`, which comes behind the mark.
        let is_taken_in = node.owner_previous.load(Relaxed) != NOT_TAKEN_IN;
        if self.is_ours(owner_no) && is_taken_in && !self.table.forgets(Part::HeldList) {
            self.table.own(self.table.owner(owner_no), node_no, node);
        }
    }

    /// Takes a request out of its queue if it waits. An upgrade goes back to what it holds. What holds something is
    /// listed.
    ///
    /// Only under the latch is it seen whether a request waits: a thread that grants it has to take that back, since
    /// its owner does not wait any more. Nor is it sure before whose the node is. A living thread may have collected
    /// what was given up, and have its node back.
    fn take_out_or_list(&self, node_no: u32) -> Result<(), AnotherDied> {
        let node = self.table.node(node_no);
        let bucket_no = node.bucket.load(Relaxed);
        let queue = self.latch_bucket(bucket_no)?;
        let modes = node.modes.load(Acquire); // First, as in `sort_in`.
        let is_theirs = modes != 0 && node.bucket.load(Relaxed) == bucket_no && self.is_ours(node.owner_no());
        if !is_theirs {
            return Ok(());
        }
        if modes >> 8 == 0 {
            self.list_held(node_no);
            return Ok(());
        }
        match node.granted() {
            Some(held) => {
                queue.set_modes(node, Some(held), None);
                self.list_held(node_no);
            }
            None => queue.remove(node),
        }
        let _ = queue.admit(node.name()); // Woken with all others (R5).
        Ok(())
    }

    fn give_to_shard(&self, shard_no: usize, node_no: u32) -> Result<(), AnotherDied> {
        let (shard, node) = (self.table.shard(shard_no), self.table.node(node_no));
        self.latch(&shard.latch)?;
        node.keep_by_shard(shard_no);
        node.owner_next.store(shard.head.load(Relaxed), Relaxed);
        shard.head.store(node_no, Relaxed);
        shard.count.store(shard.count.load(Relaxed) + 1, Relaxed);
        bucket::unlatch(&shard.latch);
        Ok(())
    }

    /// Takes in what was collected, clears what is no lock, and counts the rest.
    fn mend_intentions(&self, owner_no: OwnerNo) -> Result<(), AnotherDied> {
        let owner = self.table.owner(owner_no);
        for place in &owner.intentions {
            // A collector that lives may come at any time.
            loop {
                let word = place.load(SeqCst);
                if word & COLLECTED != 0 {
                    let node_no = word as u32;
                    let is_listed = self.table.node(node_no).owner_previous.load(Relaxed) != NOT_TAKEN_IN;
                    if !is_listed && !self.table.forgets(Part::TakeIn) {
                        self.table.own_collected(owner, node_no);
                    }
                    place.store(0, SeqCst);
                    break;
                }
                let Some((name, _)) = lock_of(word) else { break };
                let queue = self.latch_bucket(self.table.bucket_no(name))?;
                let mut has_strong = false;
                queue.for_each(name, |_, node| has_strong |= is_strong(node.modes.load(Relaxed)));
                if !has_strong || self.table.forgets(Part::UnbelievedWord) {
                    break;
                }
                // A word that was believed in would have been collected for that request (I1, I2).
                let _ = place.compare_exchange(word, 0, SeqCst, SeqCst); // If it fails, it was collected.
            }
        }
        let count = owner.intentions.iter().filter(|place| place.load(SeqCst) != 0).count();
        owner.intention_count.store(count as u32, Relaxed);
        Ok(())
    }

    fn lower_flags(&self, owner_no: OwnerNo) {
        if self.table.forgets(Part::Flags) {
            return;
        }
        let owner = self.table.owner(owner_no);
        owner.outer.iter().for_each(|place| place.store(0, SeqCst));
        owner.holds_up.store(0, SeqCst);
        self.table.lower(Flag::HoldsUp, owner_no);
        self.table.lower(Flag::Sleeps, owner_no);
    }
}
