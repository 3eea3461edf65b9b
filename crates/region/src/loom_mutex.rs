//! Models of the line for a timed mutex under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-region --release loom_mutex`.
//!
//! Whoever sleeps and is not woken is a deadlock here: time stands still. A waiter whose time is over is one that does
//! not sleep, looks as often as it likes, and goes.

use crate::mutex::{TimedMutex, Waiter};
use loom::thread::{self, JoinHandle};

type Served = Vec<u32>;

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// For threads, which outlive what the model borrows.
fn mutex() -> &'static TimedMutex<Served> {
    Box::leak(Box::new(TimedMutex::new(Served::new())))
}

/// Waits for as long as it takes, and signs.
fn waits(place: Waiter<'static, Served>, name: u32) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut served = place.try_lock_for(u64::MAX).expect("time stands still");
        served.push(name);
        drop(place);
    })
}

fn served(mutex: &TimedMutex<Served>) -> Served {
    mutex.try_lock().expect("nobody waits any more").clone()
}

#[test]
fn who_waits_is_served_in_the_order_of_the_line() {
    model(3, || {
        let mutex = mutex();
        let held = mutex.try_lock().unwrap();
        let (first, second) = (mutex.wait_in_line(), mutex.wait_in_line());
        let (second, first) = (waits(second, 2), waits(first, 1));
        drop(held);
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(served(mutex), [1, 2]);
    });
}

#[test]
fn whoever_gives_up_at_the_head_of_the_line_leaves_nobody_asleep() {
    model(3, || {
        let mutex = mutex();
        let held = mutex.try_lock().unwrap();
        let (first, second) = (mutex.wait_in_line(), mutex.wait_in_line());
        let gives_up = thread::spawn(move || drop(first.try_lock_for(0)));
        let second = waits(second, 2);
        drop(held);
        gives_up.join().unwrap();
        second.join().unwrap();
        assert_eq!(served(mutex), [2]);
    });
}

#[test]
fn whoever_gives_up_in_the_middle_of_the_line_leaves_nobody_asleep() {
    model(2, || {
        let mutex = mutex();
        let held = mutex.try_lock().unwrap();
        let places = [mutex.wait_in_line(), mutex.wait_in_line(), mutex.wait_in_line()];
        let [first, second, third] = places;
        let (first, third) = (waits(first, 1), waits(third, 3));
        drop(held);
        // By now it may be the second one's turn, or any other's.
        drop(second.try_lock_for(0));
        drop(second);
        first.join().unwrap();
        third.join().unwrap();
        assert_eq!(served(mutex), [1, 3]);
    });
}

#[test]
fn who_comes_beside_a_waiter_takes_turns_with_it() {
    model(3, || {
        let mutex = mutex();
        let held = mutex.try_lock().unwrap();
        let waiter = waits(mutex.wait_in_line(), 1);
        drop(held);
        // Whoever comes may pass, or not; and has to wake the waiter in either case.
        drop(mutex.try_lock());
        waiter.join().unwrap();
        assert_eq!(served(mutex), [1]);
    });
}
