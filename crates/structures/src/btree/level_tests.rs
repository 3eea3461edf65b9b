//! Levels that go while somebody is on the way to them (D5), and links that lead out of the tree.

use std::ops::Bound;

use ledgerstone_page::PageId;
use ledgerstone_txn::Part;

use super::node::Node;
use super::ops::OP_NODE_FREE;
use super::scan::Direction;
use super::search::{Aim, Descent, Unposted};
use super::split::Need;
use super::tree::Read;
use crate::TreeError;

#[path = "../../tests/stack/mod.rs"]
pub(super) mod stack;

/// A descent that has begun again too often.
fn latching(mut descent: Descent) -> Descent {
    while !descent.is_latching() {
        descent.restarted();
    }
    descent
}

#[test]
fn who_comes_to_post_in_a_tree_that_became_lower_has_nothing_to_do() {
    let stack = stack::Stack::new();
    let tree = stack.tree();
    let key = |n: u64| n.to_be_bytes();
    stack.run(|txn| (0..40).for_each(|n| tree.put(txn, &key(n), &[1; 400]).map(drop).unwrap()));
    assert_eq!(tree.height().unwrap(), 1);
    stack.run(|txn| (0..40).for_each(|n| assert!(tree.delete(txn, &key(n)).unwrap())));
    stack.run(|txn| tree.purge(txn).unwrap());
    assert_eq!(tree.height().unwrap(), 0);
    // As a writer would who followed a link before, and was long on the way.
    let found = Unposted { level: 1, separator: key(20).to_vec(), child: PageId(5) };
    stack.run(|txn| {
        tree.post_surely(txn, &found).unwrap();
        tree.split(txn, &Need::Child { key: &key(20), level: 1 }).unwrap();
    });
    for descent in [&mut Descent::default(), &mut latching(Descent::default())] {
        assert!(tree.find_at(Aim::Key(&key(20)), 1, descent).unwrap().is_none());
    }
    stack.check(&[&tree]);
}

#[test]
fn a_root_does_not_take_a_child_on_which_another_hangs_that_is_not_posted() {
    let stack = stack::Stack::new();
    let tree = stack.tree();
    let key = |n: u64| n.to_be_bytes();
    stack.run(|txn| (0..12).for_each(|n| tree.put(txn, &key(n), &[1; 400]).map(drop).unwrap()));
    stack.run(|txn| (7..12).for_each(|n| assert!(tree.delete(txn, &key(n)).unwrap())));
    stack.run(|txn| tree.purge(txn).unwrap());
    let child = {
        let root = stack.engine.cache.shared(tree.root()).unwrap();
        let root = Node::new(root.words());
        assert_eq!((root.level(), root.count()), (1, 1));
        root.child(0)
    };
    let need = Need::Insert { key: &key(7), value_len: 1500 };
    let unposted = stack.run(|txn| tree.split_unposted(txn, &need).unwrap().unwrap());
    stack.run(|txn| assert!(!tree.lower_root(txn, child).unwrap(), "what hangs on it is lost"));
    stack.run(|txn| tree.post_surely(txn, &unposted).unwrap());
    assert_eq!(stack.read_all(&tree, Direction::Forward).len(), 7);
    stack.check(&[&tree]);
}

#[test]
fn who_found_a_leaf_by_latching_holds_no_latch_while_the_callers_code_runs() {
    let stack = stack::Stack::new();
    let tree = stack.tree();
    let key = |n: u64| n.to_be_bytes();
    stack.run(|txn| (0..40).for_each(|n| tree.put(txn, &key(n), &[1; 300]).map(drop).unwrap()));
    for value_bytes in [300, 301, 3000] {
        stack.run(|txn| {
            let mut is_free = false;
            let change = |_: &[u8]| {
                let leaf = tree.find_key(&key(7), &mut Descent::default()).unwrap().page.id();
                is_free = stack.engine.cache.try_exclusive(leaf).unwrap().is_some();
                Some(vec![2; value_bytes])
            };
            assert!(tree.modify_by(txn, &key(7), change, latching(Descent::of_writer())).unwrap());
            assert!(is_free, "the leaf is latched");
        });
        let mut value = Vec::new();
        stack.run(|txn| assert!(tree.get_into(txn, &key(7), Read::Unlocked, &mut value).unwrap()));
        assert_eq!(value, vec![2; value_bytes]);
    }
    stack.check(&[&tree]);
}

#[test]
fn a_link_that_leads_out_of_the_tree_ends_a_scan_with_an_error() {
    let stack = stack::Stack::new();
    let tree = stack.tree();
    stack.run(|txn| (0..40u64).for_each(|n| tree.put(txn, &n.to_be_bytes(), &[1; 400]).map(drop).unwrap()));
    let first = tree.find_leaf(Aim::Key(&[]), &mut Descent::default()).unwrap();
    let second = Node::new(first.words()).link();
    drop(first);
    // As after a write of the second leaf that was lost.
    stack.run(|txn| {
        txn.claim(1000).unwrap();
        let mut page = stack.engine.cache.exclusive(second).unwrap();
        txn.group(&mut [&mut page], &[Part { page: 0, op: OP_NODE_FREE, args: &[] }]).unwrap();
    });
    stack.run(|txn| {
        let mut scan = tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut count = 0;
        let error = loop {
            match scan.next(txn) {
                Ok(Some(_)) => count += 1,
                Ok(None) => panic!("the end after {count} records"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TreeError::Corrupt(_)), "{error}");
        assert!(count > 0 && count < 40);
    });
}

/// Whoever held the parent shared at any moment made the one who posts begin again, without a wait: in a crowd for
/// ever.
#[test]
fn who_posts_waits_for_those_who_hold_the_parent() {
    let stack = stack::Stack::new();
    let tree = stack.tree();
    let key = |n: u64| n.to_be_bytes();
    stack.run(|txn| (0..40).for_each(|n| tree.put(txn, &key(n), &[1; 400]).map(drop).unwrap()));
    let need = Need::Insert { key: &[0, 0, 0, 0, 0, 0, 0, 3, 0], value_len: 1500 };
    let unposted = stack.run(|txn| tree.split_unposted(txn, &need).unwrap().unwrap());
    let mut descent = latching(Descent::default());
    let restarts = descent.restart_count();
    let parent = stack.engine.cache.shared(tree.root()).unwrap();
    std::thread::scope(|scope| {
        let poster = scope.spawn(|| {
            stack.run(|txn| tree.post_by(txn, &unposted, &mut descent).unwrap());
            descent.restart_count() - restarts
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(parent);
        assert!(poster.join().unwrap() <= 2, "who posts goes round and round");
    });
    stack.check(&[&tree]);
}
