//! Models of what a repair meets, under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-lock --release
//! loom_deaths`.

use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::Arc;
use loom::thread;

use crate::bucket::{self, Holder};
use crate::standing;

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// The words of a node.
struct Node {
    modes: AtomicU32,
    bucket: AtomicU32,
    keeper: AtomicU32,
}

/// Q8, B1: bucket 1 is mended with its latch held. A node that was in it once goes to bucket 2, and is never seen in 1.
#[test]
fn a_node_that_goes_to_another_bucket_is_not_seen_in_the_first() {
    model(|| {
        let node = Arc::new(Node { modes: AtomicU32::new(0), bucket: AtomicU32::new(1), keeper: AtomicU32::new(7) });
        let living = {
            let node = node.clone();
            thread::spawn(move || {
                node.bucket.store(2, Relaxed);
                standing::publish(&node.modes, 6);
            })
        };
        assert!(!standing::is_request_in(&node.modes, &node.bucket, 1), "a request of another bucket is in the chain");
        living.join().unwrap();
        assert!(standing::is_request_in(&node.modes, &node.bucket, 2));
    });
}

/// N1: thread 7 has died after it had collected a lock for 8. When 8 has taken the node in and given it up, it is 8's.
#[test]
fn a_node_that_was_collected_by_the_dead_and_given_up_is_not_theirs() {
    model(|| {
        let node = Arc::new(Node { modes: AtomicU32::new(2), bucket: AtomicU32::new(1), keeper: AtomicU32::new(7) });
        let living = {
            let node = node.clone();
            thread::spawn(move || {
                node.keeper.store(8, Relaxed);
                standing::publish(&node.modes, 0);
            })
        };
        assert_ne!(standing::keeper_if_free(&node.modes, &node.keeper), Some(7), "a node of the living is taken away");
        living.join().unwrap();
        assert_eq!(standing::keeper_if_free(&node.modes, &node.keeper), Some(8));
    });
}

/// B1, B3: the holder has died. Whoever sleeps for the latch, or comes to sleep while it is taken over, is woken when
/// the repair lets go.
#[test]
fn a_latch_that_is_taken_over_wakes_those_who_sleep_for_it() {
    model(|| {
        let (dead, repairer, living) = (SlotNo(1), Holder::of(SlotNo(2)), Holder::of(SlotNo(3)));
        let shared = Arc::new((AtomicU32::new(Holder::of(dead).0), AtomicU32::new(0)));
        let sleeper = {
            let shared = shared.clone();
            thread::spawn(move || {
                bucket::latch(&shared.0, living);
                assert_eq!(shared.1.load(Relaxed), 1, "the bucket was mended");
                bucket::unlatch(&shared.0);
            })
        };
        assert!(bucket::take_over(&shared.0, dead, repairer));
        shared.1.store(1, Relaxed);
        bucket::unlatch(&shared.0);
        sleeper.join().unwrap();
        assert_eq!(shared.0.load(Relaxed), 0);
    });
}
