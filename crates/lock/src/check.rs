//! Proves the invariants of a lock table that nobody is using right now, for the tests.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::mode::ModeSet;
use crate::table::{Bucket, LockTable, PRIVATE_NODES};
use crate::{Mode, OwnerNo, bucket, wait_word};

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
        let queue = table.latch_bucket(bucket_no, bucket::NOBODY);
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
            let queue = table.latch(name, OwnerNo(0));
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
        let (mut node_no, mut previous, mut tables) = (owner.held_head.load(Relaxed), 0, 0);
        while node_no != 0 {
            let node = table.node(node_no);
            assert!(queued.remove(&(owner_no, node_no)), "node {node_no} of {owner_no} is in no queue");
            assert_eq!(node.owner_previous.load(Relaxed), previous);
            tables += u32::from(node.name().is_table());
            (previous, node_no) = (node_no, node.owner_next.load(Relaxed));
        }
        assert_eq!(owner.table_nodes.load(Relaxed), tables, "table nodes of {owner_no}");
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
            free += 1;
            free_no = table.node(free_no).owner_next.load(Relaxed);
        }
        assert_eq!(owner.free_count.load(Relaxed), free);
        assert!(free <= PRIVATE_NODES, "{owner_no} keeps {free} nodes");
    }
    assert!(queued.is_empty(), "requests in nobody's list: {queued:?}");
    for shard in table.header().shards.iter().chain([&table.header().reserve]) {
        let (mut node_no, mut free) = (shard.head.load(Relaxed), 0);
        while node_no != 0 {
            assert!(places.insert(node_no), "free node {node_no} is in two places");
            free += 1;
            node_no = table.node(node_no).owner_next.load(Relaxed);
        }
        assert_eq!(shard.count.load(Relaxed), free);
    }
    let fresh = table.header().fresh.load(Relaxed);
    assert_eq!(places.len() as u32 + 1, fresh, "nodes were lost");
    count
}
