//! Bounds that come and go: what is kept for whom, and what a writer finds.

use std::ops::Bound;

use super::*;
use crate::btree::level_tests::stack;

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// However often the bound has moved since.
#[test]
fn each_open_snapshot_keeps_the_newest_bound_that_it_can_use() {
    for snapshots in [vec![3, 40, 41, 77], (0..20).map(|n| n * 5).collect()] {
        let mut edge = Edge::default();
        for n in 0..300 {
            // Opened while the bound moves.
            let open = || snapshots.iter().filter(|lsn| **lsn < n).map(|lsn| Lsn(*lsn)).collect();
            edge.push(key(n), Lsn(n), open);
            assert!(edge.bounds.len() <= BOUNDS_MAX);
            let oldest = snapshots[0];
            if n >= oldest {
                assert_eq!(edge.bound(Some(Lsn(oldest))), Some(&(key(oldest), Lsn(oldest))), "the oldest, at {n}");
            }
        }
        if snapshots.len() < BOUNDS_MAX {
            for lsn in snapshots {
                assert_eq!(edge.bound(Some(Lsn(lsn))), Some(&(key(lsn), Lsn(lsn))));
            }
        }
        assert_eq!(edge.newest(), Some(&(key(299), Lsn(299))));
    }
}

#[test]
fn for_one_tree_more_the_one_goes_whose_bounds_are_oldest() {
    let mut trees = ByNumber::new();
    let table = |n: u64| TableId(100 + n);
    for n in 0..TREES_MAX as u64 {
        assert!(Shard::make_room(&mut trees, |_| false));
        trees.insert(PageId(n), Ends { moved: 1_000 - n, ..Ends::new(table(n)) });
    }
    let last = TREES_MAX as u64 - 1;
    assert!(Shard::make_room(&mut trees, |held| held == table(last)));
    assert_eq!(trees.len(), TREES_MAX - 1, "one only");
    assert!(!trees.contains(PageId(last - 1)) && trees.contains(PageId(last)), "the oldest that nobody holds");
    trees.insert(PageId(99), Ends::new(table(99)));
    assert!(!Shard::make_room(&mut trees, |_| true), "all are held");
    assert_eq!(trees.len(), TREES_MAX);
}

/// Behind the last record there is nothing that could be dead: who appends after that looks at a word and goes on.
#[test]
fn appends_at_a_dead_end_ask_once() {
    for direction in DIRECTIONS {
        let stack = stack::Stack::new();
        let tree = stack.tree();
        let at = |n: u64| key(if direction == Direction::Backward { 10_000 + n } else { 10_000 - n });
        let put = |n: u64| stack.run(|txn| assert!(!tree.put(txn, &at(n), &[1; 40]).unwrap()));
        (0..500).for_each(put);
        stack.run(|txn| (400..500).for_each(|n| assert!(tree.delete(txn, &at(n)).unwrap())));
        let last = || {
            stack.run(|txn| {
                let mut scan = tree.scan(Bound::Unbounded, Bound::Unbounded, direction);
                scan.next(txn).unwrap().map(|(key, _)| key.to_vec())
            })
        };
        assert_eq!(last(), Some(at(399)));
        let shard = stack.to_free.edges().shard(tree.root());
        assert!(shard.may_hold(&at(450)) && shard.may_hold(&at(1_000)));
        put(1_000);
        assert!(!shard.may_hold(&at(1_001)) && !shard.has_any(), "nothing is dead beyond");
        (1_001..1_010).for_each(put);
        assert_eq!(last(), Some(at(1_009)));
    }
}
