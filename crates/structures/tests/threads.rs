//! Real threads on one tree: nothing lost, nothing twice, and the tree is whole afterwards.

mod stack;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_region::Random;
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_structures::{Direction, Packed, Read, Tree, TreeError};
use ledgerstone_txn::{Durability, KeyLock, Txn, TxnError, UsersCode, key_hash, key_name};
use stack::{Stack, TABLE};

fn key(n: u64) -> Vec<u8> {
    format!("account-{n:06}").into_bytes()
}

fn amount(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn value(amount: u64, len: usize) -> Vec<u8> {
    let mut value = amount.to_le_bytes().to_vec();
    value.resize(len, 0x55);
    value
}

/// What counts is what the lock would become: U and IX are X, and the caller's IS is in its way.
#[test]
fn a_lock_that_would_be_raised_against_the_callers_is_refused_at_once() {
    let stack = Stack::new();
    let name = key_name(TABLE, KeyLock::Key(1));
    let (mut outer, mut inner) = (stack.begin(), stack.begin());
    inner.set_lock_timeout_ns(1_000_000_000);
    outer.lock(name, Mode::IS).unwrap();
    inner.lock(name, Mode::U).unwrap();
    let inside = UsersCode::of(&stack.engine, outer.owner(), outer.xid());
    let refused = inner.lock(name, Mode::IX);
    assert!(matches!(refused, Err(TxnError::HeldByCaller { xid, .. }) if xid == outer.xid()), "{refused:?}");
    drop(inside);
}

/// Moves money between accounts, opening and closing them: the sum never changes.
fn transfer(tree: &Tree, txn: &mut Txn, random: &mut Random, accounts: u64) -> Result<bool, TreeError> {
    let (a, b) = (random.below(accounts), random.below(accounts));
    let Some(from) = tree.get(txn, &key(a), Read::ForUpdate)? else { return Ok(true) };
    let to = tree.get(txn, &key(b), Read::Locked)?.map_or(0, |v| amount(&v));
    if a == b {
        return Ok(true);
    }
    let len = 8 + random.below(200) as usize;
    let from = amount(&from);
    let part = if random.below(3) == 0 { from } else { from / 2 };
    if part == from {
        tree.delete(txn, &key(a))?;
    } else {
        tree.put(txn, &key(a), &value(from - part, len))?;
    }
    tree.put(txn, &key(b), &value(to + part, len))?;
    Ok(random.below(5) > 0)
}

fn sum(tree: &Tree, txn: &mut Txn, direction: Direction) -> Result<u64, TreeError> {
    let mut scan = tree.scan(Bound::Unbounded, Bound::Unbounded, direction);
    let (mut sum, mut last) = (0, None::<Vec<u8>>);
    while let Some((key, value)) = scan.next(txn)? {
        if let Some(last) = &last {
            assert_eq!(last.as_slice() < key, direction == Direction::Forward);
        }
        last = Some(key.to_vec());
        sum += amount(value);
    }
    Ok(sum)
}

fn client(stack: &Stack, tree: &Tree, seed: u64, rounds: u64, accounts: u64, total: u64) {
    let mut random = Random::new(seed);
    let mut done = 0;
    let mut refused = 0;
    while done < rounds {
        let mut txn = stack.begin();
        let is_scan = random.below(20) == 0;
        let result = if is_scan {
            let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
            sum(tree, &mut txn, direction).map(|found| {
                assert_eq!(found, total, "a scan saw half a transfer or a phantom");
                true
            })
        } else if random.below(30) == 0 {
            tree.purge(&mut txn).map(|_| true)
        } else {
            transfer(tree, &mut txn, &mut random, accounts)
        };
        match result {
            Ok(true) => drop(txn.commit(Durability::Volatile).unwrap()),
            Ok(false) => txn.abort().unwrap(),
            Err(TreeError::Txn(ledgerstone_txn::TxnError::Lock(_))) => {
                txn.abort().unwrap();
                refused += 1;
                assert!(refused < 100 * rounds, "nothing gets done");
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        done += 1;
    }
}

fn many_clients(stack: Stack, threads: u64, rounds: u64, accounts: u64) {
    let stack = Arc::new(stack);
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 0..accounts {
            tree.put(txn, &key(n), &value(1000, 60)).unwrap();
        }
    });
    let total = 1000 * accounts;
    let clients: Vec<_> = (0..threads)
        .map(|no| {
            let (stack, tree) = (Arc::clone(&stack), tree.clone());
            sync::spawn("client", move || client(&stack, &tree, no + 1, rounds, accounts, total))
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(stack.run(|txn| sum(&tree, txn, Direction::Forward).unwrap()), total);
    stack.run(|txn| tree.purge(txn).unwrap());
    let report = stack.check(&[&tree]);
    assert_eq!(report.ghost_count, 0);
}

#[test]
fn transfers_and_scans_on_real_threads_keep_the_sum() {
    many_clients(Stack::new(), 4, 400, 300);
}

#[test]
fn transfers_and_scans_keep_the_sum_in_a_small_cache() {
    many_clients(Stack::with(4096, 64, 50), 4, 150, 600);
}

#[test]
fn transfers_and_scans_keep_the_sum_under_the_seeded_scheduler() {
    for seed in 0..6 {
        Scheduler::run(seed, || many_clients(Stack::new(), 3, 25, 60)).unwrap();
    }
}

#[test]
fn records_put_by_many_threads_are_all_there() {
    let stack = Arc::new(Stack::new());
    let tree = stack.tree();
    let writers: Vec<_> = (0..4u64)
        .map(|no| {
            let (stack, tree) = (Arc::clone(&stack), tree.clone());
            sync::spawn("writer", move || {
                for n in 0..1500u64 {
                    let n = n * 4 + no;
                    let key = (n * 7919 % 8192).to_be_bytes();
                    let mut txn = stack.begin();
                    tree.put(&mut txn, &key, &n.to_le_bytes()).unwrap();
                    if n % 7 == 0 {
                        txn.abort().unwrap();
                    } else {
                        txn.commit(Durability::Volatile).unwrap();
                    }
                    // Readers without locks never see a tree that is not one.
                    let mut txn = stack.begin();
                    tree.get(&mut txn, &(n * 31 % 8192).to_be_bytes(), Read::Unlocked).unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..6000u64)
        .filter(|n| n % 7 != 0)
        .map(|n| ((n * 7919 % 8192).to_be_bytes().to_vec(), n.to_le_bytes().to_vec()))
        .collect();
    assert_eq!(stack.read_all(&tree, Direction::Forward), expected.into_iter().collect::<Vec<_>>());
    stack.check(&[&tree]);
    assert_eq!(tree.table(), TABLE);
}

#[test]
fn a_scan_that_waits_at_a_leafs_end_sees_what_was_put_behind_it_meanwhile() {
    let stack = Arc::new(Stack::with(4096, 1024, 100_000));
    let tree = stack.tree();
    stack.run(|txn| {
        for n in 1u64..=200 {
            tree.put(txn, &(n * 10).to_be_bytes(), &[1; 90]).unwrap();
        }
    });
    // Wherever the leaves end: the scan waits for the lock of every record in turn.
    for n in 2u64..=200 {
        let mut holder = stack.begin();
        holder.lock(key_name(TABLE, KeyLock::Key(key_hash(&(n * 10).to_be_bytes()))), Mode::X).unwrap();
        let waits = stack.engine.locks.stats().waits;
        let scanner = {
            let (stack, tree) = (Arc::clone(&stack), tree.clone());
            sync::spawn("scanner", move || {
                stack.run(|txn| {
                    let start = Bound::Included(((n - 1) * 10).to_be_bytes().to_vec());
                    let mut scan = tree.scan(start, Bound::Unbounded, Direction::Forward);
                    let mut next = || scan.next(txn).unwrap().map(|(key, _)| key.to_vec());
                    [next(), next()]
                })
            })
        };
        while stack.engine.locks.stats().waits == waits {
            std::thread::yield_now();
        }
        let new = (n * 10 - 5).to_be_bytes();
        tree.put(&mut holder, &new, &[2; 3]).unwrap();
        holder.commit(Durability::Volatile).unwrap();
        assert_eq!(scanner.join().unwrap()[1].as_deref(), Some(&new[..]), "before {}", n * 10);
    }
    stack.check(&[&tree]);
}

/// Keys in pairs that only their ends tell apart, so that separators are long and few children fill a node.
fn long_key(n: u64) -> Vec<u8> {
    [&[(n / 2) as u8; 400][..], &[n as u8]].concat()
}

const STORM_KEYS: u64 = 120;

/// Puts, grows and deletes records that nobody else writes, and takes notes of what is there.
fn storm_writer(stack: &Stack, tree: &Tree, seed: u64, part: u64, parts: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = Random::new(seed * 31 + part);
    let mut there = BTreeMap::new();
    for _ in 0..12 {
        let (begin, is_delete, len) = (random.below(STORM_KEYS), random.below(3) == 0, random.below(1300) as usize);
        let mut txn = stack.begin();
        let mut changes = Vec::new();
        let mut done = Ok(());
        for n in (begin..begin + 12).filter(|n| n % parts == part && n % 8 != 0) {
            let (key, value) = (long_key(n % 256), vec![n as u8; len]);
            done = match is_delete {
                true => tree.delete(&mut txn, &key).map(drop),
                false => tree.put(&mut txn, &key, &value).map(drop),
            };
            changes.push((key, value));
            if done.is_err() {
                break;
            }
        }
        match done {
            Ok(()) => {
                txn.commit(Durability::Sync).unwrap();
                for (key, value) in changes {
                    if is_delete {
                        there.remove(&key);
                    } else {
                        there.insert(key, value);
                    }
                }
            }
            Err(TreeError::Txn(TxnError::Lock(_))) => txn.abort().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
    there
}

#[test]
fn a_turn_waits_for_another_whatever_the_time_out_of_users() {
    let stack = Arc::new(Stack::impatient());
    let turn = stack.to_free.begin_turn().unwrap();
    let other = {
        let stack = Arc::clone(&stack);
        sync::spawn("other turn", move || {
            stack.to_free.begin_turn().and_then(|turn| Ok(turn.commit(Durability::Volatile)?))
        })
    };
    while stack.engine.locks.waits().is_empty() {
        assert!(!other.is_finished(), "refused: {:?}", other.join());
        std::thread::yield_now();
    }
    turn.commit(Durability::Volatile).unwrap();
    other.join().unwrap().unwrap();
}

/// Makes the tree small, as housekeeping and compaction do it.
fn storm_packer(stack: &Stack, tree: &Tree, seed: u64) {
    let mut random = Random::new(seed + 1000);
    for _ in 0..6 {
        let mut txn = stack.to_free.begin_turn().unwrap();
        if !txn.try_lock_table(TABLE, Mode::IX).unwrap() {
            continue;
        }
        if random.below(2) == 0 {
            tree.purge(&mut txn).unwrap();
        } else {
            let (mut key, level) = (Some(Vec::new()), 1 + random.below(2) as u8);
            while let Some(at) = key {
                key = tree.pack_children(&mut txn, level, &at, &mut Packed::default()).unwrap();
            }
        }
        txn.commit(Durability::Volatile).unwrap();
    }
}

fn storm(seed: u64) {
    let stack = Arc::new(Stack::with(4096, 24, 100_000));
    stack.disk.set_hook(Arc::new(|what| sync::yield_point(what)));
    stack.engine.cache.start_writer();
    let tree = stack.tree();
    let stays: BTreeMap<_, _> = (0..STORM_KEYS).step_by(8).map(|n| (long_key(n), vec![n as u8; 100])).collect();
    stack.run(|txn| stays.iter().for_each(|(key, value)| assert!(!tree.put(txn, key, value).unwrap())));
    let shared = || (Arc::clone(&stack), tree.clone());
    let writers: Vec<_> = (0..3)
        .map(|part| {
            let (stack, tree) = shared();
            sync::spawn("writer", move || storm_writer(&stack, &tree, seed, part, 3))
        })
        .collect();
    let (others, other) = (shared(), shared());
    let packer = sync::spawn("packer", move || storm_packer(&others.0, &others.1, seed));
    let keys: Vec<_> = stays.keys().cloned().collect();
    let reader = sync::spawn("reader", move || {
        let (stack, tree) = other;
        for key in keys.iter().cycle().take(6 * keys.len()) {
            let mut txn = stack.begin();
            assert!(tree.get(&mut txn, key, Read::Unlocked).unwrap().is_some(), "{} was missed", key[400]);
        }
    });
    let mut expected = stays;
    for writer in writers {
        expected.append(&mut writer.join().unwrap());
    }
    packer.join().unwrap();
    reader.join().unwrap();
    assert!(stack.read_all(&tree, Direction::Forward).into_iter().eq(expected), "seed {seed}");
    stack.check(&[&tree]);
    stack.engine.cache.stop_writer();
}

#[test]
fn nodes_that_split_and_merge_all_the_time_lose_nothing_under_the_seeded_scheduler() {
    for seed in 0..120 {
        Scheduler::run(seed, || storm(seed)).unwrap();
    }
}

/// F3: a transaction that ends between the reclaimer's looks has taken its entry back, or has kept what the entry stood
/// for.
#[test]
fn what_a_transaction_keeps_while_the_reclaimer_looks_at_it_is_not_freed() {
    for seed in 0..60 {
        Scheduler::run(seed, || kept_beside_the_reclaimer(seed)).unwrap();
    }
}

fn kept_beside_the_reclaimer(seed: u64) {
    let stack = Arc::new(Stack::new());
    let (dropped, large) = (stack.tree_of(TABLE), stack.tree_of(TableId(TABLE.0 + 1)));
    let records: Vec<_> = (0..40).map(|n| (key(n), value(n, 100))).collect();
    stack.run(|txn| records.iter().for_each(|(key, value)| tree_put(&dropped, txn, key, value)));
    let user = {
        let (stack, dropped, large) = (Arc::clone(&stack), dropped.clone(), large.clone());
        sync::spawn("user", move || {
            for n in 0..20 {
                let mut txn = stack.begin();
                stack.to_free.defer_tree(&mut txn, dropped.root()).unwrap();
                txn.abort().unwrap();
                // The value of the round before is overwritten, which is taken back in every second round.
                let mut txn = stack.begin();
                tree_put(&large, &mut txn, &key(0), &value(n, 10_000));
                if n % 2 == 0 {
                    txn.commit(Durability::Volatile).unwrap();
                } else {
                    txn.abort().unwrap();
                }
            }
        })
    };
    for _ in 0..40 + seed % 10 {
        stack.to_free.reclaim().unwrap();
    }
    user.join().unwrap();
    stack.to_free.reclaim().unwrap();
    assert_eq!(stack.read_all(&dropped, Direction::Forward), records);
    assert_eq!(stack.read_all(&large, Direction::Forward), [(key(0), value(18, 10_000))]);
    stack.check(&[&dropped, &large]);
}

fn tree_put(tree: &Tree, txn: &mut Txn, key: &[u8], value: &[u8]) {
    tree.put(txn, key, value).unwrap();
}
