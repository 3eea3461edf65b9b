//! Models of the two hand-offs under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-lock --release
//! loom_hand_off`.

use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use ledgerstone_region::{SlotNo, sync};
use loom::sync::Arc;
use loom::thread;

use crate::bucket::Holder;
use crate::wait_word::Sleeper;
use crate::{bucket, wait_word};

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

#[test]
fn the_bucket_latch_excludes_and_wakes_whoever_sleeps() {
    model(2, || {
        let shared = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
        let add = |shared: &(AtomicU32, AtomicU64), n| {
            bucket::latch(&shared.0, Holder::of(SlotNo(n)));
            shared.1.store(shared.1.load(Relaxed) + 1, Relaxed); // Lost if two were inside.
            bucket::unlatch(&shared.0);
        };
        let threads = [1, 2].map(|n| {
            let shared = shared.clone();
            thread::spawn(move || add(&shared, n))
        });
        add(&shared, 0);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((shared.0.load(Relaxed), shared.1.load(Relaxed)), (0, 3));
    });
}

/// Ends the wait that is going on, and wakes the owner if that is needed (O3).
fn end(word: &AtomicU32, how: u32) -> bool {
    let ended = wait_word::end_wait(word, wait_word::ticket(word.load(Relaxed)), how);
    if ended == Some(Sleeper::Asleep) {
        sync::futex_wake(word, 1);
    }
    ended.is_some()
}

/// Sleeps until the word says that the wait is over.
fn sleep(word: &AtomicU32) -> u32 {
    loop {
        let seen = word.load(Acquire);
        if !wait_word::is_waiting(seen) {
            return seen;
        }
        if let Some(asleep) = wait_word::fall_asleep(word, seen) {
            sync::futex_wait(word, asleep, None);
        }
    }
}

/// Q6: one lets go, another passes the sleeper and lets go in its turn. The sleeper has the lock in the end, whatever
/// wake-up it was sent for, and after the one who passed it.
#[test]
fn whoever_is_passed_has_the_lock_in_the_end() {
    model(3, || {
        // The word, and how often the lock was let go.
        let shared = Arc::new((AtomicU32::new(wait_word::next_wait(0)), AtomicU64::new(0)));
        let others = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.fetch_add(1, Relaxed);
                assert!(end(&shared.0, wait_word::GRANTED));
                let seen = shared.0.load(Acquire);
                let is_passed = wait_word::state(seen) == wait_word::GRANTED && wait_word::take_back(&shared.0, seen);
                if is_passed {
                    shared.1.fetch_add(1, Relaxed);
                    assert!(end(&shared.0, wait_word::GRANTED));
                }
                is_passed
            })
        };
        loop {
            let seen = sleep(&shared.0);
            if wait_word::take(&shared.0, seen) {
                break;
            }
        }
        let seen_count = shared.1.load(Relaxed);
        let is_passed = others.join().unwrap();
        assert_eq!(seen_count, 1 + u64::from(is_passed));
        assert_eq!(wait_word::state(shared.0.load(Relaxed)), wait_word::IDLE);
    });
}

#[test]
fn a_wait_has_one_end_and_the_waiter_sees_what_came_before_it() {
    model(3, || {
        // The word, and the LSN left in the bucket before the grant.
        let shared = Arc::new((AtomicU32::new(wait_word::next_wait(0)), AtomicU64::new(0)));
        let granter = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.store(7, Relaxed);
                end(&shared.0, wait_word::GRANTED)
            })
        };
        let judge = {
            let shared = shared.clone();
            thread::spawn(move || end(&shared.0, wait_word::VICTIM))
        };
        let end = wait_word::state(sleep(&shared.0));
        if end == wait_word::GRANTED {
            assert_eq!(shared.1.load(Relaxed), 7);
        }
        let (is_granted, is_flagged) = (granter.join().unwrap(), judge.join().unwrap());
        assert_eq!((is_granted, is_flagged), (end == wait_word::GRANTED, end == wait_word::VICTIM));
    });
}

/// I1 and W3 stand on this: of two that each write first and then look at the other's word, one sees the other. To
/// loom, sequentially consistent loads and stores are acquire and release, so the model puts fences beside them.
#[test]
fn of_a_weak_and_a_strong_request_one_sees_the_other() {
    use ledgerstone_region::atomic::fence;
    model(3, || {
        let shared = Arc::new((AtomicU64::new(0), AtomicU32::new(0)));
        let strong = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.fetch_add(1, SeqCst);
                fence(SeqCst);
                shared.0.load(SeqCst) != 0
            })
        };
        shared.0.store(1, SeqCst);
        fence(SeqCst);
        let is_seen_by_weak = shared.1.load(SeqCst) != 0;
        assert!(strong.join().unwrap() || is_seen_by_weak);
    });
}
