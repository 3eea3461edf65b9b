//! What a tree no longer needs comes back: emptied pages, dropped trees, large values. In bounded transactions, and
//! never while somebody may still want it.

mod stack;

use ledgerstone_lock::Mode;
use ledgerstone_page::{PageId, TableId};
use ledgerstone_structures::{Direction, Read};
use ledgerstone_txn::Durability;
use stack::{Stack, TABLE, TO_FREE};

#[test]
fn emptied_pages_are_given_back_and_used_again() {
    let stack = Stack::new();
    let tree = stack.tree();
    let fill = |from: u64, to: u64| {
        stack.run(|txn| {
            for n in from..to {
                tree.put(txn, &n.to_be_bytes(), &[1; 200]).unwrap();
            }
        });
    };
    fill(0, 3000);
    let full = stack.check(&[&tree]);
    stack.run(|txn| {
        for n in 0u64..3000 {
            assert!(tree.delete(txn, &n.to_be_bytes()).unwrap());
        }
    });
    let ghosts = stack.check(&[&tree]);
    assert_eq!((ghosts.record_count, ghosts.ghost_count), (0, 3000));
    let purged = stack.run(|txn| tree.purge(txn).unwrap());
    assert_eq!((purged.ghost_count, purged.held_count), (3000, 0));
    let empty = stack.check(&[&tree]);
    assert!(full.pages.len() > 100 && empty.pages.len() == 1, "{} of {}", empty.pages.len(), full.pages.len());
    assert!(stack.read_all(&tree, Direction::Forward).is_empty());
    fill(0, 3000);
    assert_eq!(stack.check(&[&tree]).record_count, 3000);
}

#[test]
fn emptied_leaves_are_reclaimed_without_being_looked_for() {
    let stack = Stack::new();
    let tree = stack.tree();
    for count in [60u64, 20_000] {
        stack.run(|txn| {
            for n in 0..count {
                tree.put(txn, &n.to_be_bytes(), &[1; 200]).unwrap();
            }
        });
        let mut txn = stack.begin();
        for n in 10..count {
            tree.delete(&mut txn, &n.to_be_bytes()).unwrap();
        }
        assert!(stack.to_free.is_due());
        stack.to_free.reclaim().unwrap();
        assert!(stack.check(&[&tree]).ghost_count > 0 && stack.to_free.is_due(), "they are still needed");
        txn.commit(Durability::Sync).unwrap();
        stack.to_free.reclaim().unwrap();
        assert!(!stack.to_free.is_due());
        assert!(stack.check(&[&tree]).pages.len() <= 3);
        assert_eq!(stack.read_all(&tree, Direction::Forward).len(), 10);
    }
}

/// One transaction over a whole large tree would hold the log back, and those who want the table.
#[test]
fn many_emptied_leaves_are_reclaimed_in_many_transactions() {
    let stack = Stack::new();
    let tree = stack.tree();
    let put_all = || {
        stack.run(|txn| {
            for n in 0u64..40_000 {
                tree.put(txn, &n.to_be_bytes(), &[1; 200]).unwrap();
            }
        });
    };
    let delete_from = |first: u64| {
        let start = std::ops::Bound::Included(first.to_be_bytes().to_vec());
        stack.run(|txn| tree.delete_range(txn, start, std::ops::Bound::Unbounded).unwrap());
    };
    put_all();
    delete_from(10);
    let before = stack.check(&[&tree]).pages.len();
    let mut log_at = stack.engine.log.tail();
    let (mut turn_count, mut longest) = (0, 0);
    let mut turn = || {
        let now = stack.engine.log.tail();
        (turn_count, longest) = (turn_count + 1, longest.max(now.0 - log_at.0));
        log_at = now;
        assert_eq!(stack.engine.table.first_lsn_low(), None, "a turn has ended");
        turn_count < 2
    };
    assert!(stack.to_free.reclaim_in_turns(&mut turn).unwrap());
    let after = stack.check(&[&tree]).pages.len();
    assert_eq!(turn_count, 2);
    assert!(longest < 1 << 20, "a transaction has written {longest} bytes of log");
    assert!(3 < after && after < before && stack.to_free.is_due(), "from {before} pages to {after}");
    // What is emptied meanwhile before the place to go on at is not forgotten; nor is what somebody holds.
    delete_from(0);
    let mut holder = stack.begin();
    tree.get(&mut holder, &39_990u64.to_be_bytes(), Read::Locked).unwrap();
    stack.to_free.reclaim().unwrap();
    assert!(stack.check(&[&tree]).ghost_count > 0 && stack.to_free.is_due(), "somebody has seen that it is not there");
    holder.commit(Durability::Volatile).unwrap();
    stack.to_free.reclaim().unwrap();
    assert!(!stack.to_free.is_due());
    let report = stack.check(&[&tree]);
    assert_eq!((report.ghost_count, report.pages.len()), (0, 1));
}

/// A close waits for the transaction that is running, and so does whoever wants the next turn.
#[test]
fn a_large_dropped_tree_is_looked_through_in_many_transactions() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0u64..30_000 {
            tree.put(txn, &n.to_be_bytes(), &[1; 600]).unwrap();
        }
    });
    let page_count = stack.check(&[&tree]).pages.len();
    stack.run(|txn| stack.to_free.defer_tree(txn, tree.root()).unwrap());
    // Each call ends after a transaction, and the next one goes on.
    let (mut turn_count, mut read_max) = (0, 0);
    let reads = || stack.engine.cache.stats().read_count;
    let mut before = reads();
    while stack.to_free.reclaim_in_turns(&mut || false).unwrap() {
        (turn_count, read_max) = (turn_count + 1, read_max.max(reads() - before));
        assert!(turn_count < 100, "it begins again and again");
        before = reads();
    }
    assert!(page_count > 4000, "{page_count} pages");
    assert!(read_max < 2048 && turn_count >= 8, "{read_max} pages were read in one transaction of {turn_count}");
    stack.check(&[]);
}

#[test]
fn what_a_rollback_needs_of_locked_leaves_is_not_reclaimed() {
    for stack in [Stack::new(), Stack::locking_pages()] {
        let tree = stack.tree();
        let key = |n: u64| (n * 100).to_be_bytes();
        stack.run(|txn| {
            for n in 0..400 {
                tree.put(txn, &key(n), &[1; 200]).unwrap();
            }
        });
        let before = stack.check(&[&tree]);
        // Each leaf becomes sparse, of ghosts and of records that are shorter for now.
        let mut txn = stack.begin();
        for n in 0..400 {
            match n % 8 {
                0 => drop(tree.put(&mut txn, &key(n), &[2; 3]).unwrap()),
                _ => drop(tree.delete(&mut txn, &key(n)).unwrap()),
            }
        }
        stack.to_free.reclaim().unwrap();
        let held = stack.check(&[&tree]);
        assert_eq!((held.ghost_count, held.pages.len()), (350, before.pages.len()));
        // The transaction itself uses what room there is, in each leaf another part of it.
        for n in 0..400u64 {
            for more in 1..=n / 18 % 12 {
                tree.put(&mut txn, &(n * 100 + more).to_be_bytes(), &[3; 10]).unwrap();
            }
        }
        txn.abort().unwrap();
        stack.run(|txn| {
            for n in 0..400 {
                assert_eq!(tree.get(txn, &key(n), Read::Locked).unwrap(), Some(vec![1; 200]), "{n}");
            }
        });
        stack.to_free.reclaim().unwrap();
        assert_eq!(stack.check(&[&tree]).record_count, 400);
    }
}

#[test]
fn ghosts_that_somebody_holds_stay() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0u64..10 {
            tree.put(txn, &n.to_be_bytes(), b"v").unwrap();
        }
    });
    let mut deleter = stack.begin();
    tree.delete(&mut deleter, &3u64.to_be_bytes()).unwrap();
    let purged = stack.run(|txn| tree.purge(txn).unwrap());
    assert_eq!((purged.ghost_count, purged.held_count), (0, 1));
    deleter.commit(Durability::Volatile).unwrap();
    let mut reader = stack.begin();
    assert_eq!(tree.get(&mut reader, &3u64.to_be_bytes(), Read::Locked).unwrap(), None);
    assert_eq!(stack.run(|txn| tree.purge(txn).unwrap()).held_count, 1);
    reader.commit(Durability::Volatile).unwrap();
    assert_eq!(stack.run(|txn| tree.purge(txn).unwrap()).ghost_count, 1);
}

#[test]
fn a_dropped_tree_is_freed_after_the_commit_with_its_blobs() {
    let stack = Stack::new();
    let free = stack.space.allocated_count().unwrap();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0u64..2000 {
            let value = if n % 500 == 0 { vec![1; 20_000] } else { vec![1; 100] };
            tree.put(txn, &(n * 7919 % 2003).to_be_bytes(), &value).unwrap();
        }
    });
    let mut txn = stack.begin();
    txn.lock_table(TABLE, Mode::X).unwrap();
    stack.to_free.defer_tree(&mut txn, tree.root()).unwrap();
    stack.to_free.reclaim().unwrap();
    txn.abort().unwrap();
    stack.to_free.reclaim().unwrap();
    assert_eq!(stack.check(&[&tree]).record_count, 2000);
    stack.run(|txn| {
        txn.lock_table(TABLE, Mode::X).unwrap();
        stack.to_free.defer_tree(txn, tree.root()).unwrap();
    });
    stack.check(&[]);
    stack.to_free.reclaim().unwrap();
    stack.check(&[]);
    assert_eq!(stack.space.allocated_count().unwrap(), free);
}

#[test]
fn a_tree_of_an_aborted_transaction_is_freed() {
    let stack = Stack::new();
    let free = stack.space.allocated_count().unwrap();
    let mut txn = stack.begin();
    txn.lock_table(TABLE, Mode::X).unwrap();
    let root = ledgerstone_structures::Tree::create(&mut txn, &stack.to_free).unwrap();
    assert_ne!(root, PageId::NONE);
    txn.abort().unwrap();
    stack.check(&[]);
    stack.to_free.reclaim().unwrap();
    assert_eq!(stack.space.allocated_count().unwrap(), free);
    stack.check(&[]);
}

#[test]
fn a_tree_on_a_page_that_was_a_root_before_is_not_taken_for_half_dismantled() {
    let stack = Stack::new();
    let mut txn = stack.begin();
    let root = stack.to_free.create_tree_for_now(&mut txn).unwrap();
    txn.abort().unwrap();
    let key = [&[1][..], &root.0.to_be_bytes()].concat();
    let mut made = None;
    // It is free, and the ghost of its entry is not purged yet.
    let mut between = || {
        made.get_or_insert_with(|| {
            let mut txn = stack.begin();
            assert_eq!(stack.to_free.create_tree_for_now(&mut txn).unwrap(), root);
            let entry = stack.to_free.tree().get(&mut txn, &key, Read::Unlocked).unwrap();
            let unposted = [&txn.xid().0.to_le_bytes()[..], &[0]].concat();
            assert_eq!(entry, Some(unposted), "nothing says that all its nodes are named");
            txn
        });
        true
    };
    assert!(stack.to_free.reclaim_in_turns(&mut between).unwrap());
    made.unwrap().abort().unwrap();
    stack.to_free.reclaim().unwrap();
    stack.check(&[]);
}

/// What takes few steps is freed together: a transaction for each of many small values would let those that free fall
/// behind those that write.
#[test]
fn many_small_values_are_freed_in_few_transactions() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0u64..500 {
            tree.put(txn, &n.to_be_bytes(), &[1; 9_000]).unwrap();
        }
    });
    let used = stack.space.allocated_count().unwrap();
    for n in 0u64..500 {
        stack.run(|txn| {
            tree.delete(txn, &n.to_be_bytes()).unwrap();
        });
    }
    let mut turn_count = 0;
    let mut turn = || {
        turn_count += 1;
        true
    };
    assert!(stack.to_free.reclaim_in_turns(&mut turn).unwrap());
    assert!(stack.space.allocated_count().unwrap() < used - 1_000);
    assert!(turn_count < 50, "{turn_count} transactions for 500 values");
    assert_eq!(stack.check(&[&tree]).blob_count, 0);
}

/// Users may want the table, and would wait for the housekeeper.
#[test]
fn a_turn_never_locks_a_whole_table_however_many_leaves_it_locks() {
    const ESCALATE_AFTER: u32 = 5;
    let stack = Stack::locking_pages_up_to(ESCALATE_AFTER);
    let tree = stack.tree();
    let key = |n: u64| n.to_be_bytes();
    stack.run(|txn| (0..3000).for_each(|n| assert!(!tree.put(txn, &key(n), &[1; 200]).unwrap())));
    let sparse = |n: &u64| !n.is_multiple_of(150);
    stack.run(|txn| (0..3000).filter(sparse).for_each(|n| assert!(tree.delete(txn, &key(n)).unwrap())));
    let before = stack.check(&[&tree]).pages.len();
    let mut turn = stack.to_free.begin_turn().unwrap();
    let purged = tree.purge(&mut turn).unwrap();
    assert!(purged.page_count > 100, "{purged:?} of {before} pages");
    assert!(turn.lock_count() > u64::from(ESCALATE_AFTER) * 8, "{}", turn.lock_count());
    assert_eq!(turn.table_mode(TABLE), Some(Mode::IX));
    turn.commit(Durability::Volatile).unwrap();
    stack.check(&[&tree]);
}

/// The most log that one of the reclaimer's transactions writes, and how many there are.
fn turns(stack: &Stack) -> (u64, u32) {
    let (mut log_at, mut longest, mut count) = (stack.engine.log.tail(), 0, 0);
    let mut turn = || {
        let now = stack.engine.log.tail();
        (longest, count) = (longest.max(now.0 - log_at.0), count + 1);
        log_at = now;
        assert_eq!(stack.engine.table.first_lsn_low(), None, "a turn has ended");
        true
    };
    assert!(stack.to_free.reclaim_in_turns(&mut turn).unwrap());
    (longest.max(stack.engine.log.tail().0 - log_at.0), count)
}

/// A value in many pieces takes many steps to free, as a large tree does.
#[test]
fn a_large_value_in_pieces_is_freed_in_many_transactions() {
    for drops_tree in [false, true] {
        let stack = Stack::new();
        let tree = stack.tree();
        let small = |n: u64| n.to_be_bytes();
        stack.run(|txn| (0..3000).for_each(|n| assert!(!tree.put(txn, &small(n), &[1; 3_000]).unwrap())));
        // Every second page is free now.
        stack.run(|txn| (0..3000).step_by(2).for_each(|n| assert!(tree.delete(txn, &small(n)).unwrap())));
        stack.to_free.reclaim().unwrap();
        let other = stack.tree_of(TableId(11));
        let before = stack.space.allocated_count().unwrap();
        stack.run(|txn| other.put(txn, b"large", &vec![7; 1_400 * 4_000]).unwrap());
        assert!(stack.space.allocated_count().unwrap() > before + 1_300);
        stack.run(|txn| {
            if drops_tree {
                txn.lock_table(TableId(11), Mode::X).unwrap();
                stack.to_free.defer_tree(txn, other.root()).unwrap();
            } else {
                assert!(other.delete(txn, b"large").unwrap());
            }
        });
        let (longest, count) = turns(&stack);
        assert!(longest < 256 << 10, "a transaction has written {longest} bytes of log");
        assert!((2..20).contains(&count), "{count} transactions");
        assert_eq!(stack.space.allocated_count().unwrap(), before - u64::from(drops_tree));
        let left = [&tree, &other];
        stack.check(&left[..if drops_tree { 1 } else { 2 }]);
    }
}

/// What many frees leave behind is taken away in many transactions as well.
#[test]
fn a_long_list_of_frees_is_purged_in_many_transactions() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| tree.put(txn, b"k", &[1; 9_000]).unwrap());
    // In descending order, which leaves pages half full.
    let entry = |n: u64| [&[4][..], &(n + (1 << 20)).to_be_bytes()].concat();
    stack.run(|txn| {
        let entries = stack.to_free.tree();
        let of_this = [&txn.xid().0.to_le_bytes()[..], &[0]].concat();
        txn.lock_table(TO_FREE, Mode::IX).unwrap();
        (0..100_000).rev().for_each(|n| assert!(!entries.put(txn, &entry(n), &of_this).unwrap()));
        (0..100_000).for_each(|n| assert!(entries.delete(txn, &entry(n)).unwrap()));
        tree.delete(txn, b"k").unwrap();
    });
    let page_count = |stack: &Stack| stack.to_free.tree().check().unwrap().pages.len();
    let before = page_count(&stack);
    assert!(before > 1_024, "{before} pages");
    // One that is to end does so after some, and the next goes on.
    assert!(stack.to_free.reclaim_in_turns(&mut || false).unwrap());
    assert!(page_count(&stack) > 8);
    let mut count = 1;
    while page_count(&stack) > 8 {
        let log_at = stack.engine.log.tail();
        stack.to_free.reclaim_in_turns(&mut || false).unwrap();
        let longest = stack.engine.log.tail().0 - log_at.0;
        assert!(longest < 1 << 20, "a transaction has written {longest} bytes of log");
        count += 1;
        assert!(count < 20, "it does not go on");
    }
    stack.check(&[&tree]);
}
