//! Levels that go while somebody is on the way to them (D5).

use ledgerstone_page::PageId;

use super::search::{Aim, Descent, Unposted};
use super::split::Need;

#[path = "../../tests/stack/mod.rs"]
mod stack;

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
    let mut latching = Descent::default();
    while !latching.is_latching() {
        latching.restarted();
    }
    for descent in [&mut Descent::default(), &mut latching] {
        assert!(tree.find_at(Aim::Key(&key(20)), 1, descent).unwrap().is_none());
    }
    stack.check(&[&tree]);
}
