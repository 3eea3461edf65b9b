//! The tree promises what a map promises, in transactions.

mod stack;

use std::collections::BTreeMap;
use std::ops::Bound;

use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_structures::{Direction, Read, TreeError};
use ledgerstone_txn::Durability;
use proptest::prelude::*;
use stack::{Stack, TABLE, read};

#[test]
fn what_was_put_can_be_read_after_many_splits() {
    let stack = Stack::new();
    let tree = stack.tree();
    // Not in order: the multiplier is a bijection of 0..4096.
    let key = |n: u64| (n * 2741 % 4096).to_be_bytes();
    stack.run(|txn| {
        for n in 0..4096 {
            assert!(!tree.put(txn, &key(n), &[n as u8; 100]).unwrap());
        }
        for n in 0..4096 {
            assert_eq!(tree.get(txn, &key(n), Read::Locked).unwrap(), Some(vec![n as u8; 100]));
        }
        assert_eq!(tree.get(txn, b"no", Read::Locked).unwrap(), None);
    });
    let report = stack.check(&[&tree]);
    assert_eq!((report.record_count, report.unposted_count), (4096, 0));
    assert!(report.height == 2 && report.leaf_count < 2 * 4096 * 112 / 4096, "{} leaves", report.leaf_count);
    let all = stack.read_all(&tree, Direction::Forward);
    assert_eq!(all.len(), 4096);
    assert!(all.windows(2).all(|w| w[0].0 < w[1].0));
    let mut back = stack.read_all(&tree, Direction::Backward);
    back.reverse();
    assert_eq!(all, back);
}

/// A transaction remembers the leaf where it put its last record. Others split that leaf, it goes back to a savepoint,
/// empties the leaf, and writes to another tree.
#[test]
fn keys_in_order_go_where_they_belong_whatever_happens_between_them() {
    let stack = Stack::with(4096, 2048, 100_000); // Without a lock on the table, which would keep others out.
    let (tree, other) = (stack.tree(), stack.tree_of(TableId(11)));
    let key = |n: u64| n.to_be_bytes();
    let mut model = BTreeMap::new();
    stack.run(|txn| {
        for n in 0..3000 {
            assert!(!tree.put(txn, &key(n), &[n as u8; 100]).unwrap());
            model.insert(key(n).to_vec(), vec![n as u8; 100]);
            match n % 97 {
                5 => stack.run(|another| {
                    for far in (n * 10..n * 10 + 60).rev() {
                        tree.put(another, &key((1 << 40) + far), b"far").unwrap();
                        model.insert(key((1 << 40) + far).to_vec(), b"far".to_vec());
                    }
                }),
                20 => assert!(!other.put(txn, &key(n), b"other").unwrap()),
                50 => {
                    let before = txn.savepoint();
                    (n + 1..n + 80).for_each(|more| tree.put(txn, &key(more), &[0; 100]).map(drop).unwrap());
                    txn.rollback_to(before).unwrap();
                    txn.release_savepoint(before).unwrap();
                }
                70 => {
                    for gone in n - 40..=n {
                        assert!(tree.delete(txn, &key(gone)).unwrap());
                        model.remove(&key(gone)[..]);
                    }
                    tree.purge(txn).unwrap();
                }
                _ => {}
            }
        }
    });
    stack.check(&[&tree, &other]);
    assert_eq!(stack.read_all(&tree, Direction::Forward), model.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_few_pages_tell_about_how_many_records_there_are() {
    let stack = Stack::new();
    let tree = stack.tree();
    let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    assert_eq!((tree.estimated_count().unwrap(), tree.estimated_leaf_count().unwrap()), (0, 1));
    stack.run(|txn| (0..7).for_each(|n| tree.put(txn, &key(n), b"v").map(drop).unwrap()));
    stack.run(|txn| tree.delete(txn, &key(3)).map(drop).unwrap());
    assert_eq!(tree.estimated_count().unwrap(), 6, "one leaf is counted, without ghosts");
    // Two levels, three levels; small records and large ones, so that leaves differ.
    for count in [300, 20_000] {
        let value = |n: u64| vec![7; if key(n)[0] < 64 { 200 } else { 10 }];
        for batch in (0..count).step_by(100) {
            stack.run(|txn| (batch..batch + 100).for_each(|n| tree.put(txn, &key(n), &value(n)).map(drop).unwrap()));
        }
        let told = tree.estimated_count().unwrap();
        assert!((count * 3 / 4..count * 5 / 4).contains(&told), "{told} of {count}");
        let (told, leaves) = (tree.estimated_leaf_count().unwrap(), stack.check(&[&tree]).leaf_count);
        assert!((leaves * 3 / 4..=leaves * 5 / 4).contains(&told), "{told} of {leaves} leaves");
    }
}

#[test]
fn long_keys_make_a_high_tree() {
    let stack = Stack::new();
    let tree = stack.tree();
    // What tells keys apart comes last, and first.
    let key = |n: u64| [&[n as u8 % 3; 500][..], &(n * 2741 % 4096).to_be_bytes()].concat();
    stack.run(|txn| {
        for n in 0..3000 {
            tree.put(txn, &key(n), &[1; 400]).unwrap();
        }
        for n in 0..3000 {
            assert!(tree.get(txn, &key(n), Read::Locked).unwrap().is_some());
        }
    });
    let report = stack.check(&[&tree]);
    assert!(report.height >= 4 && report.record_count == 3000, "{}", report.height);
    stack.run(|txn| {
        for n in 0..3000 {
            assert!(tree.delete(txn, &key(n)).unwrap());
        }
    });
    stack.run(|txn| tree.purge(txn).unwrap());
    let empty = stack.check(&[&tree]);
    assert_eq!((empty.ghost_count, empty.pages.len()), (0, 1));
    assert!(stack.read_all(&tree, Direction::Backward).is_empty());
}

#[test]
fn records_of_nearly_half_a_page_find_a_leaf_whatever_their_keys() {
    let stack = Stack::new();
    let tree = stack.tree();
    // Fences as long as they can be, beside keys of no length at all; three such records do not share two leaves.
    let key = |n: u64| match n % 3 {
        0 => [&[n as u8 % 5; 504][..], &(n * 2741 % 4096).to_be_bytes()].concat(),
        1 => [&[n as u8 % 5; 200][..], &(n * 1831 % 4096).to_be_bytes()].concat(),
        _ => vec![n as u8 % 5, (n * 71 % 256) as u8],
    };
    let value = |n: u64, key: &[u8]| vec![n as u8; 1942 - key.len() - (n * 7919 % 60) as usize * 10];
    let mut model = std::collections::BTreeMap::new();
    stack.run(|txn| {
        for n in 0..600 {
            let key = key(n);
            let value = value(n, &key);
            // Some grow to their length, which asks for room as a new record does.
            if n % 4 == 0 {
                tree.put(txn, &key, &value[..value.len() / 3]).unwrap();
            }
            tree.put(txn, &key, &value).unwrap();
            model.insert(key, value);
        }
    });
    let report = stack.check(&[&tree]);
    assert_eq!((report.record_count, report.blob_count), (model.len() as u64, 0));
    assert!(stack.read_all(&tree, Direction::Forward).into_iter().eq(model));
}

#[test]
fn a_queue_uses_no_more_pages_than_it_holds() {
    let stack = Stack::new();
    let tree = stack.tree();
    // Long keys, so that nodes above the leaves fill and empty too.
    let key = |n: u64| [&n.to_be_bytes()[..], &[7; 300]].concat();
    let mut rng = 1u64;
    for round in 0..60u64 {
        stack.run(|txn| {
            for n in round * 50..round * 50 + 50 {
                tree.put(txn, &key(n), &[1; 300]).unwrap();
            }
            for n in (round.saturating_sub(4) * 50..).take(if round < 4 { 0 } else { 50 }) {
                tree.delete(txn, &key(n)).unwrap();
            }
        });
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if rng >> 62 != 0 {
            stack.run(|txn| tree.purge(txn).unwrap());
        }
    }
    stack.run(|txn| tree.purge(txn).unwrap());
    let report = stack.check(&[&tree]);
    assert_eq!(report.record_count, 200);
    assert!(report.pages.len() < 200 / 6 + 20, "{} leaves, {} above", report.leaf_count, report.inner_count);
    assert_eq!(stack.read_all(&tree, Direction::Forward).len(), 200);
}

#[test]
fn keys_in_order_leave_full_leaves() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0u64..10_000 {
            tree.put(txn, &n.to_be_bytes(), &[1; 50]).unwrap();
        }
    });
    let report = stack.check(&[&tree]);
    // 50 bytes, 2 of header, 2 or 3 of key after the prefix, 8 of slot.
    assert!(report.leaf_count <= 10_000 * 63 / 4000 + 2, "{}", report.leaf_count);
}

#[test]
fn an_abort_leaves_nothing_behind() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0u64..500 {
            tree.put(txn, &n.to_be_bytes(), &[7; 60]).unwrap();
        }
    });
    let before = stack.read_all(&tree, Direction::Forward);
    let mut txn = stack.begin();
    for n in 0u64..1500 {
        match n % 5 {
            0 => drop(tree.put(&mut txn, &n.to_be_bytes(), &[9; 20]).unwrap()),
            1 => drop(tree.delete(&mut txn, &n.to_be_bytes()).unwrap()),
            2 => drop(tree.put(&mut txn, &n.to_be_bytes(), &[9; 500]).unwrap()),
            3 => drop(tree.modify(&mut txn, &n.to_be_bytes(), |old| Some([old, b"x"].concat())).unwrap()),
            _ => {
                tree.delete(&mut txn, &n.to_be_bytes()).unwrap();
                tree.put(&mut txn, &n.to_be_bytes(), &[3; 61]).unwrap();
                tree.delete(&mut txn, &n.to_be_bytes()).unwrap();
                tree.put(&mut txn, &n.to_be_bytes(), &vec![4; 10_000]).unwrap();
                tree.put(&mut txn, &n.to_be_bytes(), &vec![5; 5_000]).unwrap();
            }
        }
    }
    txn.abort().unwrap();
    assert_eq!(stack.read_all(&tree, Direction::Forward), before);
    stack.check(&[&tree]);
    stack.to_free.reclaim().unwrap();
    let report = stack.check(&[&tree]);
    assert_eq!(stack.pages_to_free().len(), 0);
    assert_eq!(report.record_count, 500);
}

#[test]
fn an_insert_of_a_large_value_waits_for_who_has_the_key() {
    for stack in [Stack::new(), Stack::locking_pages()] {
        let tree = stack.tree();
        let mut first = stack.begin();
        tree.insert(&mut first, b"k", &[1; 10]).unwrap();
        let mut second = stack.begin();
        second.set_lock_timeout_ns(1_000_000);
        let refused = tree.insert(&mut second, b"k", &[2; 5000]);
        assert!(refused.is_err(), "it was told of a record that may never be: {refused:?}");
        second.abort().unwrap();
        first.abort().unwrap();
        assert!(stack.run(|txn| tree.insert(txn, b"k", &[2; 5000]).unwrap()));
    }
}

#[test]
fn a_gap_that_was_read_takes_no_new_key() {
    let stack = Stack::new();
    let tree = stack.tree();
    let key = |n: u64| n.to_be_bytes();
    stack.run(|txn| {
        for n in (0u64..100).step_by(10) {
            tree.put(txn, &key(n), b"v").unwrap();
        }
    });
    let insert = |n: u64| {
        let mut txn = stack.begin();
        txn.set_lock_timeout_ns(1_000_000);
        let done = tree.put(&mut txn, &key(n), b"new").is_ok();
        txn.abort().unwrap();
        stack.run(|txn| tree.purge(txn).unwrap());
        done
    };
    // A missing key.
    let mut reader = stack.begin();
    assert_eq!(tree.get(&mut reader, &key(15), Read::Locked).unwrap(), None);
    assert_eq!((insert(15), insert(16), insert(25), insert(95)), (false, false, true, true));
    reader.commit(Durability::Volatile).unwrap();
    // The end of the table.
    let mut reader = stack.begin();
    assert_eq!(tree.get(&mut reader, &key(95), Read::Locked).unwrap(), None);
    assert_eq!((insert(200), insert(85)), (false, true));
    reader.commit(Durability::Volatile).unwrap();
    // A range, either way: what lies in it is closed, and what lies beside it is open up to the next key.
    for direction in [Direction::Forward, Direction::Backward] {
        let mut reader = stack.begin();
        let (start, end) = (Bound::Included(key(20).to_vec()), Bound::Included(key(40).to_vec()));
        assert_eq!(read(&tree, &mut reader, start, end, direction).len(), 3);
        assert_eq!((insert(21), insert(39), insert(41), insert(9)), (false, false, true, true), "{direction:?}");
        reader.commit(Durability::Volatile).unwrap();
        let mut reader = stack.begin();
        let (start, end) = (Bound::Excluded(key(22).to_vec()), Bound::Excluded(key(35).to_vec()));
        assert_eq!(read(&tree, &mut reader, start, end, direction).len(), 1);
        assert_eq!((insert(23), insert(34), insert(41), insert(15)), (false, false, true, true), "{direction:?}");
        reader.commit(Durability::Volatile).unwrap();
        let mut reader = stack.begin();
        assert_eq!(read(&tree, &mut reader, Bound::Unbounded, Bound::Unbounded, direction).len(), 10);
        assert_eq!((insert(1), insert(95), insert(1000)), (false, false, false), "{direction:?}");
        reader.commit(Durability::Volatile).unwrap();
    }
    // Who splits a gap it has read keeps both parts.
    let mut reader = stack.begin();
    assert_eq!(tree.get(&mut reader, &key(55), Read::Locked).unwrap(), None);
    tree.put(&mut reader, &key(55), b"mine").unwrap();
    assert_eq!((insert(52), insert(57), insert(62)), (false, false, true));
    reader.commit(Durability::Volatile).unwrap();
}

#[test]
fn a_rollback_needs_no_space() {
    let stack = Stack::with(4096, 2048, 100_000);
    let tree = stack.tree();
    let key = |n: u64| (n * 10).to_be_bytes();
    stack.run(|txn| {
        for n in 0..200 {
            tree.put(txn, &key(n), &[1; 600]).unwrap();
        }
    });
    let mut txn = stack.begin();
    for n in 0..200 {
        match n % 4 {
            0 => drop(tree.put(&mut txn, &key(n), &[2; 3]).unwrap()),
            1 => drop(tree.modify(&mut txn, &key(n), |old| Some(old[..100].to_vec())).unwrap()),
            2 => {
                tree.delete(&mut txn, &key(n)).unwrap();
                tree.put(&mut txn, &key(n), &[3; 599]).unwrap();
                tree.put(&mut txn, &key(n), &[4; 7]).unwrap();
            }
            _ => drop(tree.delete(&mut txn, &key(n)).unwrap()),
        }
    }
    // Others use all the room that they can get, in these leaves and then in the file.
    stack.run(|other| {
        for n in (0..2000).filter(|n| n % 10 != 0) {
            tree.put(other, &u64::to_be_bytes(n), &[5; 30]).unwrap();
        }
    });
    stack.disk.no_space_after(0);
    let filler = stack.begin();
    let mut filler = Some(filler);
    for n in 10_000u64.. {
        let txn = filler.as_mut().unwrap();
        if let Err(error) = tree.put(txn, &n.to_be_bytes(), &[6; 800]) {
            assert!(format!("{error}").contains("no space"), "{error}");
            filler.take().unwrap().abort().unwrap();
            break;
        }
        if n % 10 == 0 {
            filler.replace(stack.begin()).unwrap().commit(Durability::Volatile).unwrap();
        }
    }
    txn.abort().unwrap();
    stack.disk.space_for_all();
    stack.run(|txn| {
        for n in 0..200 {
            assert_eq!(tree.get(txn, &key(n), Read::Locked).unwrap(), Some(vec![1; 600]), "{n}");
        }
    });
    assert!(stack.check(&[&tree]).unposted_count == 0);
}

#[test]
fn sizes_beyond_the_limits_are_refused_and_say_so() {
    let stack = Stack::new();
    let tree = stack.tree();
    let mut txn = stack.begin();
    assert!(matches!(tree.put(&mut txn, &[1; 513], b""), Err(TreeError::KeyTooLarge { len: 513, max: 512 })));
    assert!(matches!(tree.get(&mut txn, &[1; 600], Read::Locked), Err(TreeError::KeyTooLarge { len: 600, .. })));
    let large = vec![0; (1 << 30) + 1];
    assert!(matches!(tree.put(&mut txn, b"k", &large), Err(TreeError::ValueTooLarge { max: 1_073_741_824, .. })));
    for len in [0, 1, 1430, 1431, 1942, 1943, 4048, 4049, 32_384, 32_385, 100_000] {
        tree.put(&mut txn, &[2; 512], &vec![7; len]).unwrap();
        assert_eq!(tree.get(&mut txn, &[2; 512], Read::Locked).unwrap().unwrap().len(), len);
        tree.put(&mut txn, b"", &vec![8; len]).unwrap();
        assert_eq!(tree.get(&mut txn, b"", Read::Unlocked).unwrap().unwrap().len(), len);
    }
    txn.commit(Durability::Volatile).unwrap();
    stack.to_free.reclaim().unwrap();
    let report = stack.check(&[&tree]);
    assert_eq!((report.blob_count, report.blob_bytes), (2, 200_000));
}

#[test]
fn a_scan_sees_what_its_own_transaction_does_ahead_of_it() {
    for covered in [false, true] {
        let stack = Stack::new();
        let tree = stack.tree();
        stack.run(|txn| {
            for n in 0u64..300 {
                tree.put(txn, &(n * 10).to_be_bytes(), &[1; 30]).unwrap();
            }
        });
        let mut txn = stack.begin();
        if covered {
            txn.lock_table(tree.table(), Mode::X).unwrap();
        }
        let mut scan = tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut seen = Vec::new();
        while let Some((key, _)) = scan.next(&mut txn).unwrap() {
            let n = u64::from_be_bytes(key.try_into().unwrap());
            seen.push(n);
            if n % 100 == 0 {
                tree.put(&mut txn, &(n + 5).to_be_bytes(), &[2; 300]).unwrap();
                tree.delete(&mut txn, &(n + 10).to_be_bytes()).unwrap();
            }
        }
        let expected: Vec<u64> = (0..3000).filter(|n| n % 100 == 5 || n % 10 == 0 && n % 100 != 10).collect();
        assert_eq!(seen, expected, "covered {covered}");
        txn.abort().unwrap();
        stack.check(&[&tree]);
    }
}

#[test]
fn a_gap_below_a_ghost_is_held_by_who_read_it() {
    let stack = Stack::new();
    let tree = stack.tree();
    stack.run(|txn| {
        for n in (0u64..100).step_by(10) {
            tree.put(txn, &n.to_be_bytes(), b"v").unwrap();
        }
    });
    stack.run(|txn| tree.delete(txn, &30u64.to_be_bytes()).unwrap());
    let mut reader = stack.begin();
    assert_eq!(tree.get(&mut reader, &25u64.to_be_bytes(), Read::Locked).unwrap(), None);
    assert_eq!(stack.run(|txn| tree.purge(txn).unwrap()).held_count, 1);
    let mut writer = stack.begin();
    writer.set_lock_timeout_ns(1_000_000);
    assert!(tree.put(&mut writer, &24u64.to_be_bytes(), b"phantom").is_err());
    writer.abort().unwrap();
    reader.commit(Durability::Volatile).unwrap();
}

#[test]
fn a_scan_sees_what_others_commit_right_ahead_of_it() {
    for direction in [Direction::Forward, Direction::Backward] {
        let stack = Stack::with(4096, 2048, 100_000);
        let tree = stack.tree();
        stack.run(|txn| {
            for n in 1u64..=400 {
                tree.put(txn, &(n * 10).to_be_bytes(), &[1; 90]).unwrap();
            }
        });
        let mut txn = stack.begin();
        let mut scan = tree.scan(Bound::Unbounded, Bound::Unbounded, direction);
        let mut seen = Vec::new();
        while let Some((key, _)) = scan.next(&mut txn).unwrap() {
            let n = u64::from_be_bytes(key.try_into().unwrap());
            seen.push(n);
            if n % 10 == 0 && n > 10 {
                // Forwards the gap above the record is not read yet. Backwards the one below it is, but for what lies
                // below the next record.
                let new = if direction == Direction::Forward { n + 5 } else { n - 15 };
                stack.run(|other| tree.put(other, &new.to_be_bytes(), &[2; 90]).unwrap());
            }
        }
        let expected: Vec<u64> = match direction {
            Direction::Forward => (2..=801).map(|n| n * 5).filter(|&n| n != 15).collect(),
            Direction::Backward => [4000].into_iter().chain((1..=798).rev().map(|n| n * 5)).collect(),
        };
        assert_eq!(seen, expected, "{direction:?}");
        txn.commit(Durability::Volatile).unwrap();
        stack.check(&[&tree]);
    }
}

#[derive(Debug, Clone)]
enum Act {
    Put(Vec<u8>, Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Modify(Vec<u8>, u8),
    Get(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>, bool),
    End(bool),
    Purge,
    Reclaim,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u16..300).prop_map(|n| format!("key-{n:05}").into_bytes()),
        2 => (0u64..100).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
        1 => (0u8..6, 400usize..512).prop_map(|(b, len)| vec![b; len]),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let value = || {
        prop_oneof![
            6 => (any::<u8>(), 0usize..120).prop_map(|(b, n)| vec![b; n]),
            2 => (any::<u8>(), 500usize..1950).prop_map(|(b, n)| vec![b; n]),
            1 => (any::<u8>(), 1400usize..40_000).prop_map(|(b, n)| vec![b; n]),
        ]
    };
    let bound =
        || prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)];
    let act = prop_oneof![
        12 => (key(), value()).prop_map(|(k, v)| Act::Put(k, v)),
        4 => (key(), value()).prop_map(|(k, v)| Act::Insert(k, v)),
        6 => key().prop_map(Act::Delete),
        4 => (key(), any::<u8>()).prop_map(|(k, b)| Act::Modify(k, b)),
        4 => key().prop_map(Act::Get),
        2 => (bound(), bound(), any::<bool>()).prop_map(|(a, b, d)| Act::Range(a, b, d)),
        2 => any::<bool>().prop_map(Act::End),
        1 => Just(Act::Purge),
        1 => Just(Act::Reclaim),
    ];
    prop::collection::vec(act, 1..250)
}

fn in_order(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(a), Bound::Included(b)) => a <= b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a < b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_equals_a_map(acts in acts(), table_lock in prop_oneof![Just(None), Just(Some(Mode::S)), Just(Some(Mode::X))], escalate_after in prop_oneof![Just(20u32), Just(10_000)]) {
        let stack = Stack::with(4096, 256, escalate_after);
        let tree = stack.tree();
        let mut committed: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut model = committed.clone();
        let begin = || {
            let mut txn = stack.begin();
            if let Some(mode) = table_lock {
                txn.lock_table(TABLE, mode).unwrap();
            }
            txn
        };
        let mut txn = begin();
        for act in acts {
            match act {
                Act::Put(k, v) => {
                    prop_assert_eq!(tree.put(&mut txn, &k, &v).unwrap(), model.insert(k, v).is_some());
                }
                Act::Insert(k, v) => {
                    let is_new = !model.contains_key(&k);
                    prop_assert_eq!(tree.insert(&mut txn, &k, &v).unwrap(), is_new);
                    if is_new {
                        model.insert(k, v);
                    }
                }
                Act::Delete(k) => {
                    prop_assert_eq!(tree.delete(&mut txn, &k).unwrap(), model.remove(&k).is_some());
                }
                Act::Modify(k, b) => {
                    let change = |old: &[u8]| {
                        let mut new = old.to_vec();
                        match b % 4 {
                            0 => return None,
                            1 => new.push(b),
                            2 => new.truncate(usize::from(b)),
                            _ => new.iter_mut().skip(2).take(5).for_each(|byte| *byte = b),
                        }
                        Some(new)
                    };
                    prop_assert_eq!(tree.modify(&mut txn, &k, change).unwrap(), model.contains_key(&k));
                    if let Some(old) = model.get_mut(&k) && let Some(new) = change(old) {
                        *old = new;
                    }
                }
                Act::Get(k) => {
                    prop_assert_eq!(tree.get(&mut txn, &k, Read::Locked).unwrap(), model.get(&k).cloned());
                    prop_assert_eq!(tree.get(&mut txn, &k, Read::ForUpdate).unwrap(), model.get(&k).cloned());
                }
                Act::Range(start, end, forward) => {
                    let direction = if forward { Direction::Forward } else { Direction::Backward };
                    let found = read(&tree, &mut txn, start.clone(), end.clone(), direction);
                    let mut expected: Vec<_> = if in_order(&start, &end) {
                        model.range((start, end)).map(|(k, v)| (k.clone(), v.clone())).collect()
                    } else {
                        Vec::new()
                    };
                    if !forward {
                        expected.reverse();
                    }
                    prop_assert_eq!(found, expected);
                }
                Act::End(commit) => {
                    if commit {
                        txn.commit(Durability::Volatile).unwrap();
                        committed = model.clone();
                    } else {
                        txn.abort().unwrap();
                        model = committed.clone();
                    }
                    stack.check(&[&tree]);
                    txn = begin();
                }
                Act::Purge => {
                    if table_lock.is_none() && txn.table_mode(TABLE).is_none_or(|m| matches!(m, Mode::IS | Mode::IX)) {
                        stack.run(|txn| tree.purge(txn).unwrap());
                    }
                }
                Act::Reclaim => stack.to_free.reclaim().unwrap(),
            }
        }
        txn.abort().unwrap();
        let all = stack.read_all(&tree, Direction::Forward);
        prop_assert_eq!(all, committed.into_iter().collect::<Vec<_>>());
        stack.to_free.reclaim().unwrap();
        stack.run(|txn| tree.purge(txn).unwrap());
        let report = stack.check(&[&tree]);
        prop_assert_eq!(report.ghost_count, 0);
        prop_assert_eq!(stack.pages_to_free().len(), 0);
    }
}

/// All frames but one have pages that differ from the data file, and nobody writes pages ahead of need.
#[test]
fn a_scan_goes_on_where_one_frame_is_clean_and_no_page_writer_lives() {
    for direction in [Direction::Forward, Direction::Backward] {
        for changes_root in [true, false] {
            scan_in_one_frame(direction, changes_root);
        }
    }
}

fn scan_in_one_frame(direction: Direction, changes_root: bool) {
    let stack = Stack::with(4096, 16, 100_000);
    let (scanned, changed) = (stack.tree(), stack.tree_of(TableId(11)));
    let key = |n: u64| n.to_be_bytes();
    for part in 0..30 {
        stack.run(|txn| {
            for n in part * 10..part * 10 + 10 {
                scanned.put(txn, &key(n), &[1; 600]).unwrap();
                changed.put(txn, &key(n), &[1; 600]).unwrap();
            }
        });
    }
    stack.engine.cache.write_back_all().unwrap();
    // By a split of the last leaf.
    let end = if changes_root { 306 } else { 300 };
    stack.run(|txn| (300..end).for_each(|n| assert!(!scanned.put(txn, &key(n), &[1; 600]).unwrap())));
    let clean_count = || {
        let stats = stack.engine.cache.stats();
        stats.frame_count - stats.dirty_frame_count
    };
    stack.run(|txn| {
        let mut leaves = (0..300).step_by(5);
        while clean_count() > 1 {
            let n = leaves.next().expect("there are more leaves than frames");
            changed.put(txn, &key(n), &[2; 600]).unwrap();
        }
    });
    let (says, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || says.send(stack.read_all(&scanned, direction).len()));
    let count = hears.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(count, Ok(end as usize), "{direction:?}, the root is changed: {changes_root}");
}
