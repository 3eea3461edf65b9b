//! Which leaves are asked for.

use std::ops::Bound;
use std::ops::Bound::{Excluded, Included, Unbounded};

use ledgerstone_page::PageId;

use super::ahead::Ahead;
use super::level_tests::stack::Stack;
use super::node::Node;
use super::scan::Direction;
use super::tree::Tree;

/// A tree with several nodes above its leaves, in which leaves lie in any order.
fn tree(stack: &Stack) -> Tree {
    const COUNT: u64 = 1 << 14;
    let tree = stack.tree();
    for part in 0..16 {
        stack.run(|txn| {
            for n in 0..COUNT / 16 {
                let key = (part * (COUNT / 16) + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) % COUNT;
                tree.put(txn, &key.to_be_bytes(), &[7; 150]).unwrap();
            }
        });
    }
    assert!(tree.height().unwrap() >= 2);
    tree
}

/// All leaves with their low fences, by their links.
fn leaves(stack: &Stack, tree: &Tree) -> Vec<(PageId, Vec<u8>)> {
    let mut page = stack.engine.cache.shared(tree.root()).unwrap();
    while Node::new(page.words()).level() > 0 {
        let child = Node::new(page.words()).child(0);
        page = stack.engine.cache.shared(child).unwrap();
    }
    let mut leaves = Vec::new();
    loop {
        let node = Node::new(page.words());
        leaves.push((page.id(), node.low()));
        let link = node.link();
        if link == PageId(0) {
            return leaves;
        }
        page = stack.engine.cache.shared(link).unwrap();
    }
}

/// All that is asked for from a fence on, some at a time.
fn asked(tree: &Tree, direction: Direction, fence: &[u8], wanted: usize, end: &Bound<Vec<u8>>) -> Vec<PageId> {
    let mut ahead = Ahead::starting_at(fence);
    let mut all = Vec::new();
    loop {
        let some = ahead.leaves(tree, direction, wanted, end).unwrap();
        assert!(some.len() <= wanted);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

#[test]
fn leaves_are_asked_for_in_the_order_in_which_a_scan_comes_to_them() {
    let stack = Stack::new();
    let tree = tree(&stack);
    let leaves = leaves(&stack, &tree);
    assert!(leaves.len() > 500, "{} leaves", leaves.len());
    for from in [1, 2, 100, leaves.len() - 1] {
        let fence = &leaves[from].1;
        for wanted in [1, 8, 333, 1024] {
            let rising: Vec<_> = leaves[from..].iter().map(|leaf| leaf.0).collect();
            assert_eq!(asked(&tree, Direction::Forward, fence, wanted, &Unbounded), rising, "{from}, {wanted}");
            let falling: Vec<_> = leaves[..from].iter().rev().map(|leaf| leaf.0).collect();
            assert_eq!(asked(&tree, Direction::Backward, fence, wanted, &Unbounded), falling, "{from}, {wanted}");
        }
    }
}

#[test]
fn no_leaf_behind_the_end_of_the_range_is_asked_for() {
    let stack = Stack::new();
    let tree = tree(&stack);
    let leaves = leaves(&stack, &tree);
    for (from, to) in [(10, 10), (10, 11), (10, 400), (300, leaves.len() - 1)] {
        let (fence, end) = (leaves[from].1.clone(), leaves[to].1.clone());
        let until = |to: usize| leaves[from..to].iter().map(|leaf| leaf.0).collect::<Vec<_>>();
        for wanted in [8, 1024] {
            let rising = |end| asked(&tree, Direction::Forward, &fence, wanted, &end);
            // Who goes on has found the leaf at the fence within its range: that one is always asked for.
            assert_eq!(rising(Excluded(end.clone())), until(to), "{from}, {to}, {wanted}");
            assert_eq!(rising(Included(end.clone())), until(to + 1), "{from}, {to}, {wanted}");
        }
    }
    for (from, to) in [(11, 10), (400, 10), (leaves.len() - 1, 300)] {
        let falling = asked(&tree, Direction::Backward, &leaves[from].1, 8, &Included(leaves[to].1.clone()));
        assert!(falling.into_iter().eq(leaves[to..from].iter().rev().map(|leaf| leaf.0)), "{from}, {to}");
    }
}

#[test]
fn a_scan_of_what_is_not_in_memory_reads_each_leaf_once_and_a_short_one_only_its_own() {
    let stack = Stack::new();
    let tree = tree(&stack);
    let leaves = leaves(&stack, &tree);
    let all = stack.read_all(&tree, Direction::Forward);
    let cache = &stack.engine.cache;
    let empty = || {
        cache.write_back_all().unwrap();
        cache.discard_from(PageId(8)).unwrap();
        cache.stats().read_count
    };
    cache.allow_readers();
    for direction in [Direction::Forward, Direction::Backward] {
        let before = empty();
        let mut found = stack.read_all(&tree, direction);
        if direction == Direction::Backward {
            found.reverse();
        }
        assert_eq!(found, all);
        let reads = cache.stats().read_count - before;
        let (low, high) = (leaves.len() as u64, leaves.len() as u64 * 21 / 20 + 32);
        assert!((low..=high).contains(&reads), "{direction:?}: {reads} reads of {low} leaves");

        let before = empty();
        stack.run(|txn| {
            let mut scan = tree.scan(Unbounded, Unbounded, direction);
            for _ in 0..10 {
                scan.next(txn).unwrap().unwrap();
            }
        });
        cache.stop_readers();
        cache.allow_readers();
        let reads = cache.stats().read_count - before;
        assert!(reads <= 8, "{direction:?}: {reads} reads for 10 records");
    }
    cache.stop_readers();
    stack.check(&[&tree]);
}
