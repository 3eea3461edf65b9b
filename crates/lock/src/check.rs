//! Proves the invariants of a lock table that nobody is using right now, for the tests.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

#[cfg(feature = "deaths")]
use ledgerstone_region::SlotNo;

use crate::mode::ModeSet;
use crate::table::{Bucket, KEPT_BY_SHARD, LockTable, PRIVATE_NODES, SHARDS};
use crate::{Mode, OwnerNo, wait_word};
#[cfg(feature = "deaths")]
use crate::{bucket::Holder, flags::Flag, table::MENDING};

#[cfg(feature = "deaths")]
impl LockTable {
    /// Asserts that no lock, latch, node or wait is left: so it is when nobody does anything.
    ///
    /// # Panics
    /// Something is.
    pub fn assert_nothing_left(&self) {
        assert_nobody_waits_in_vain(self);
        assert_eq!(assert_consistent(self), 0, "locks are left over");
        assert_idle(self, |slot| !self.slots.is_dead(slot) && self.slots.slot(slot).process().is_some());
    }
}

/// Asserts Q5. A release counts those that hold something, and stops at the first that does not.
fn assert_in_order(table: &LockTable, bucket: &Bucket) {
    let (mut node_no, mut youngest) = (bucket.head.load(Relaxed), None);
    while node_no != 0 {
        let node = table.node(node_no);
        let age = node.granted().is_none().then(|| table.age(node.owner_no()));
        assert!(age >= youngest, "Q5: {} is not where it belongs, on {}", node.owner_no(), node.name());
        (youngest, node_no) = (age, node.next.load(Relaxed));
    }
}

/// Asserts Q3 and Q5 at any moment, while others use the table: each waiter has somebody to wait for, whose end will
/// let it in. A wait for nobody is in no cycle, so no search would find it.
pub(crate) fn assert_nobody_waits_in_vain(table: &LockTable) {
    for bucket_no in 0..table.buckets.len() as u32 {
        let queue = table.latch_bucket(bucket_no, table.caller());
        assert_in_order(table, queue.bucket);
        let mut node_no = queue.bucket.head.load(Relaxed);
        while node_no != 0 {
            let node = table.node(node_no);
            let mut blockers = Vec::new();
            queue.blockers(node_no, &mut blockers);
            // An owner that was told to give up leaves by itself.
            let waits = wait_word::is_waiting(table.owner(node.owner_no()).wait_word.load(Acquire));
            let is_served = node.wanted().is_none() || !waits || !blockers.is_empty();
            assert!(is_served, "Q3: {} waits for nobody on {}", node.owner_no(), node.name());
            node_no = node.next.load(Relaxed);
        }
    }
}

/// Asserts that no owner waits, holds others up, or is being mended, and that its thread is in one of these slots.
#[cfg(feature = "deaths")]
pub(crate) fn assert_idle(table: &LockTable, is_known: impl Fn(SlotNo) -> bool) {
    for flag in [Flag::Sleeps, Flag::HoldsUp] {
        assert_eq!(table.raised_count(flag), 0, "{flag:?} is left over");
    }
    for (owner_no, owner) in table.owners.iter().enumerate() {
        assert_eq!(wait_word::state(owner.wait_word.load(Relaxed)), wait_word::IDLE, "owner {owner_no} waits");
        assert_eq!(owner.holds_up.load(Relaxed), 0, "owner {owner_no} holds up");
        assert!(owner.outer.iter().all(|place| place.load(Relaxed) == 0), "owner {owner_no} holds up");
        let thread = owner.thread.load(Relaxed);
        let is_known = thread & MENDING == 0 && Holder::in_word(thread).is_none_or(&is_known);
        assert!(is_known, "the thread of owner {owner_no} is {thread:#x}");
    }
}

/// Asserts T1, T2, T3, Q3, Q4, Q5 and L1; returns how many locks are held or waited for.
pub(crate) fn assert_consistent(table: &LockTable) -> usize {
    let mut places = BTreeSet::new();
    let mut queued = BTreeSet::new();
    for (bucket_no, bucket) in table.buckets.iter().enumerate() {
        assert_eq!(bucket.latch.load(Relaxed), 0, "bucket {bucket_no} is latched");
        let (mut waiting, mut strong, mut last, mut names) = (0, 0, 0, BTreeSet::new());
        let mut node_no = bucket.head.load(Relaxed);
        assert_in_order(table, bucket);
        while node_no != 0 {
            let node = table.node(node_no);
            assert!(places.insert(node_no), "node {node_no} is in two places");
            queued.insert((node.owner_no(), node_no));
            assert_eq!(node.previous.load(Relaxed), last);
            assert_eq!(table.bucket_no(node.name()), bucket_no as u32);
            assert_eq!(node.bucket.load(Relaxed), bucket_no as u32);
            assert!(node.granted().is_some() || node.wanted().is_some(), "an empty request in a queue");
            let is_strong = |mode: Option<Mode>| mode.is_some_and(|mode| !mode.is_intention());
            waiting += u32::from(node.wanted().is_some());
            strong += u32::from(node.name().is_table() && (is_strong(node.granted()) || is_strong(node.wanted())));
            names.insert(node.name());
            last = node_no;
            node_no = node.next.load(Relaxed);
        }
        assert_eq!(bucket.tail.load(Relaxed), last);
        assert_eq!((bucket.waiting.load(Relaxed), bucket.strong.load(Relaxed)), (waiting, strong), "Q4");
        for name in names {
            let queue = table.latch_bucket(table.bucket_no(name), table.caller());
            queue.for_each(name, |node_no, node| {
                let mut held = ModeSet::EMPTY;
                let mut is_beside = true;
                queue.for_each(name, |other_no, other| {
                    assert!(node_no == other_no || node.owner_no() != other.owner_no(), "two requests of one owner");
                    if let (Some(a), Some(b)) = (node.granted(), other.granted())
                        && node_no != other_no
                    {
                        is_beside &= a.is_compatible_with(b) || b.is_compatible_with(a);
                        held.add(b);
                    }
                });
                assert!(is_beside, "L1: {:?} beside {held:?} on {name}", node.granted());
                let mut blockers = Vec::new();
                queue.blockers(node_no, &mut blockers);
                assert!(node.wanted().is_none() || !blockers.is_empty(), "Q3: somebody waits for nobody on {name}");
            });
        }
    }
    let count = places.len();
    for (owner_no, owner) in table.owners.iter().enumerate() {
        let owner_no = OwnerNo(owner_no as u32);
        let (mut node_no, mut previous, mut tables, mut held) = (owner.held_head.load(Relaxed), 0, 0, 0);
        while node_no != 0 {
            let node = table.node(node_no);
            assert!(queued.remove(&(owner_no, node_no)), "node {node_no} of {owner_no} is in no queue");
            assert_eq!(node.owner_previous.load(Relaxed), previous);
            tables += u32::from(node.name().is_table());
            held += 1;
            (previous, node_no) = (node_no, node.owner_next.load(Relaxed));
        }
        assert_eq!(owner.table_nodes.load(Relaxed), tables, "table nodes of {owner_no}");
        assert_eq!(owner.held_count.load(Relaxed), held, "nodes of {owner_no}");
        let mut words = 0;
        for place in &owner.intentions {
            let word = place.load(Relaxed);
            words += u32::from(word != 0);
            if word >> 63 != 0 {
                assert!(queued.remove(&(owner_no, word as u32)), "a collected node is in no queue");
            }
        }
        assert_eq!(owner.intention_count.load(Relaxed), words, "intentions of {owner_no}");
        let (mut free_no, mut free) = (owner.free_head.load(Relaxed), 0);
        while free_no != 0 {
            assert!(places.insert(free_no), "free node {free_no} is in two places");
            assert_eq!(table.node(free_no).keeper.load(Relaxed), owner_no.0 + 1, "N1: node {free_no} of {owner_no}");
            free += 1;
            free_no = table.node(free_no).owner_next.load(Relaxed);
        }
        assert_eq!(owner.free_count.load(Relaxed), free);
        assert!(free <= PRIVATE_NODES, "{owner_no} keeps {free} nodes");
    }
    assert!(queued.is_empty(), "requests in nobody's list: {queued:?}");
    for shard_no in 0..=SHARDS {
        let shard = table.shard(shard_no);
        assert_eq!(shard.latch.load(Relaxed), 0, "shard {shard_no} is latched");
        let (mut node_no, mut free) = (shard.head.load(Relaxed), 0);
        while node_no != 0 {
            assert!(places.insert(node_no), "free node {node_no} is in two places");
            let keeper = table.node(node_no).keeper.load(Relaxed);
            assert_eq!(keeper, KEPT_BY_SHARD | shard_no as u32, "N1: node {node_no} of shard {shard_no}");
            free += 1;
            node_no = table.node(node_no).owner_next.load(Relaxed);
        }
        assert_eq!(shard.count.load(Relaxed), free);
    }
    let header = table.header();
    assert_eq!((header.search_latch.load(Relaxed), header.fresh_latch.load(Relaxed)), (0, 0), "a latch is held");
    let fresh = header.fresh.load(Relaxed);
    assert_eq!(places.len() as u32 + 1, fresh, "nodes were lost");
    count
}
