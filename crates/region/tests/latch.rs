//! The latch on real threads and under the scheduler; all orders of few steps are in `loom_latch.rs`.
#![cfg(not(loom))]

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_region::{Latch, LatchTimeout, PageBuf, SlotNo, WordsMut};
use std::sync::Arc;

#[test]
fn versions_rise_only_when_something_changed() {
    let latch = Latch::new();
    let seen = latch.optimistic().unwrap();
    assert!(latch.try_exclusive(SlotNo(9)));
    assert_eq!((latch.optimistic(), latch.owner(), latch.is_still(seen)), (None, Some(SlotNo(9)), false));
    assert!(!latch.try_exclusive(SlotNo(1)) && !latch.try_shared() && !latch.try_upgrade(seen, SlotNo(1)));
    latch.unlatch_exclusive_unchanged();
    assert!(latch.is_still(seen));
    assert!(latch.try_shared() && latch.try_shared());
    assert!(latch.is_still(seen) && latch.optimistic() == Some(seen), "a shared holder does not matter");
    assert!(!latch.try_exclusive(SlotNo(1)) && !latch.try_upgrade(seen, SlotNo(1)));
    assert_eq!(latch.shared_count(), 2);
    latch.unlatch_shared();
    latch.unlatch_shared();
    assert!(latch.try_upgrade(seen, SlotNo(16382)));
    assert_eq!(latch.owner(), Some(SlotNo(16382)));
    latch.unlatch_exclusive();
    assert!(!latch.is_still(seen) && !latch.try_upgrade(seen, SlotNo(1)));
    assert_eq!(latch.version().to_raw(), seen.to_raw() + 1);
}

#[test]
fn a_time_out_names_the_owner() {
    let latch = Latch::new();
    assert!(latch.try_exclusive(SlotNo(3)));
    let timeout = LatchTimeout { owner: Some(SlotNo(3)), shared_count: 0, waited_ns: 1_000_000 };
    assert_eq!(latch.exclusive_within(SlotNo(4), 1_000_000), Err(timeout));
    assert_eq!(latch.shared_within(1_000_000), Err(timeout));
    latch.unlatch_exclusive();
    assert!(latch.try_shared());
    let timeout = LatchTimeout { owner: None, shared_count: 1, waited_ns: 1000 };
    assert_eq!(latch.exclusive_within(SlotNo(4), 1000), Err(timeout));
    latch.unlatch_shared();
    assert_eq!(latch.exclusive(SlotNo(4)), Ok(()));
}

/// Threads that add to two words under all kinds of holding; each checks that the words are equal.
fn hammer(thread_count: u16, rounds: u64) {
    let latch = Arc::new(Latch::new());
    let page = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let threads: Vec<_> = (0..thread_count)
        .map(|no| {
            let (latch, page) = (latch.clone(), page.clone());
            sync::spawn("hammer", move || {
                for round in 0..rounds {
                    match (round + u64::from(no)) % 3 {
                        0 => {
                            latch.exclusive(SlotNo(no)).unwrap();
                            let value = page[0].load(Relaxed);
                            let mut words = WordsMut::new(&page[..]);
                            words.put_u64(0, value + 1);
                            sync::yield_point("half written");
                            words.put_u64(8, value + 1);
                            latch.unlatch_exclusive();
                        }
                        1 => {
                            latch.shared().unwrap();
                            let first = page[0].load(Relaxed);
                            sync::yield_point("half read");
                            assert_eq!(first, page[1].load(Relaxed));
                            latch.unlatch_shared();
                        }
                        _ => {
                            let Some(seen) = latch.optimistic() else { continue };
                            let first = page[0].load(Relaxed);
                            sync::yield_point("half read");
                            let second = page[1].load(Relaxed);
                            if latch.is_still(seen) {
                                assert_eq!(first, second);
                            }
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let writes: u64 =
        (0..thread_count).map(|no| (0..rounds).filter(|round| (round + u64::from(no)) % 3 == 0).count() as u64).sum();
    assert_eq!((page[0].load(Relaxed), page[1].load(Relaxed)), (writes, writes));
    assert_eq!(latch.version().to_raw(), writes);
}

#[test]
fn holders_exclude_each_other_on_real_threads() {
    hammer(6, if cfg!(miri) { 20 } else { 20_000 });
}

#[test]
#[cfg(not(miri))]
fn holders_exclude_each_other_under_the_scheduler() {
    for seed in 0..200 {
        Scheduler::run(seed, || hammer(4, 12)).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

#[test]
fn a_latch_that_nobody_gives_back_times_out_in_virtual_time() {
    let timeout = Scheduler::run(1, || {
        let latch = Latch::new();
        assert!(latch.try_exclusive(SlotNo(7)));
        latch.exclusive(SlotNo(8))
    });
    assert_eq!(timeout.unwrap().unwrap_err().owner, Some(SlotNo(7)));
}

#[test]
fn a_copy_of_words_is_private() {
    let page = PageBuf::from_bytes(&[7; 64]);
    let copy = PageBuf::new(64);
    page.words().copy_words_to(&copy);
    assert_eq!(copy.to_bytes(), [7; 64]);
}
