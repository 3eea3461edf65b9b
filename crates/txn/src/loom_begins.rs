//! Transactions that begin beside a close under loom (E1 to E4 in `begins.rs`).
//!
//! Slots are taken and given back as the table does. A copy in small are the counts of the users of a seat: a `Share`
//! is an `Arc` of the standard library, whose count loom does not know. They are counted as it counts, relaxed.

use ledgerstone_region::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release, SeqCst},
    fence,
};
use loom::sync::Arc;
use loom::thread;

use super::begins::Begins;
use super::used::{FREE, give_back, take};

const RUNNING: u32 = 1;
const SEATS: usize = 2;
/// In `World::open`, beside twice the number of transactions that are open.
const CLOSED: u32 = 1;

struct World {
    begins: Begins,
    /// Users of each seat.
    counts: [AtomicU32; SEATS],
    slots: [AtomicU32; SEATS],
    open: AtomicU32,
}

impl World {
    fn new() -> Arc<World> {
        let number = || AtomicU32::new(0);
        let (counts, slots) = ([number(), number()], [number(), number()]);
        Arc::new(World { begins: Begins::default(), counts, slots, open: number() })
    }

    /// A transaction of the thread that has this seat begins: says whether it could.
    fn begin(&self, seat: usize) -> bool {
        self.counts[seat].fetch_add(1, Relaxed); // S1 in `seat.rs`: before anything else.
        assert!(take(&self.slots[seat], RUNNING), "nobody else takes it");
        let may_begin = self.begins.may_begin(true);
        if may_begin {
            assert_eq!(self.open.fetch_add(2, SeqCst) & CLOSED, 0, "a transaction begins after the close");
        } else {
            self.leave(seat);
        }
        may_begin
    }

    fn end(&self, seat: usize) {
        self.open.fetch_sub(2, SeqCst);
        self.leave(seat);
    }

    fn leave(&self, seat: usize) {
        give_back(&self.slots[seat]);
        self.counts[seat].fetch_sub(1, Release);
    }

    fn run(&self, seat: usize) -> bool {
        let has_begun = self.begin(seat);
        if has_begun {
            self.end(seat);
        }
        has_begun
    }

    /// As `Environment::close`: says whether it could close.
    fn close(&self) -> bool {
        let may_close = self.begins.end(|waiting| {
            fence(SeqCst);
            // E1: from here on it is seen what their takers did before.
            let _active = self.slots.iter().filter(|slot| slot.load(SeqCst) != FREE).count();
            let count = self.counts.iter().map(|count| count.load(Relaxed)).sum::<u32>();
            count.saturating_sub(waiting) == 0
        });
        if may_close {
            assert_eq!(self.open.fetch_or(CLOSED, SeqCst) & !CLOSED, 0, "closed although a transaction is open");
        }
        may_close
    }
}

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// A thread that waits for the first decision must not be taken off at the second. With fewer preemptions, one that
/// begins in the middle of the second is not met (E3).
#[test]
fn loom_a_close_that_tries_again_closes_under_no_transaction() {
    model(5, || {
        let world = World::new();
        let runs = Arc::clone(&world);
        let running = thread::spawn(move || runs.run(0));
        let has_closed = world.close() || world.close();
        let has_begun = running.join().unwrap();
        assert!(has_begun || has_closed);
        assert!(world.close(), "nobody is left");
        assert!(!world.run(0), "it is closed");
    });
}

/// Whoever waits for the decision is taken off the users, and hides no other that is open (E4).
#[test]
fn loom_a_transaction_that_waits_hides_none_that_is_open() {
    model(3, || {
        let world = World::new();
        assert!(world.begin(0));
        let [runs, closes] = [&world, &world].map(Arc::clone);
        let running = thread::spawn(move || runs.run(1));
        let closing = thread::spawn(move || closes.close());
        world.end(0);
        let has_begun = running.join().unwrap();
        assert!(closing.join().unwrap() || has_begun);
        assert!(world.close(), "nobody is left");
    });
}

/// With one preemption: with more, loom lets two that wait for a decision yield to each other for ever.
#[test]
fn loom_of_transactions_in_two_seats_none_is_open_after_a_close() {
    model(1, || {
        let world = World::new();
        let threads = [0, 1].map(|seat| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.run(seat))
        });
        world.close();
        threads.into_iter().for_each(|thread| _ = thread.join().unwrap());
        assert!(world.close(), "nobody is left");
    });
}
