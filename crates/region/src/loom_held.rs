//! Models of latches whose shared holders have names, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-region --release loom_held`.
//!
//! A thread that has died is one whose line stays as it is. The living must be counted, and nobody else. The planted
//! bug must be found: with `--features planted-recount-unlooked`, a thread that is about to give the latch back counts
//! for nobody.

use crate::{HeldLine, Latch, SlotNo};
use loom::sync::Arc;
use loom::thread;

const NAME: u64 = 5;

struct Latched {
    latch: Latch,
    lines: [HeldLine; 2],
}

impl Latched {
    /// A latch that a thread held when it died, whose line nobody has to see.
    fn held_by_the_dead() -> Arc<Latched> {
        let latched = Latched { latch: Latch::new(), lines: [HeldLine::new(), HeldLine::new()] };
        assert!(latched.latch.try_shared());
        Arc::new(latched)
    }

    /// As `Dead::recount_shared`, of which it is the loop; false: to be tried again.
    fn recount(&self) -> bool {
        if !self.latch.begin_recount() {
            return true;
        }
        let before = self.latch.recounted();
        let mut counts = self.lines.iter().map(|line| line.count(NAME));
        let count: Option<u16> = if cfg!(feature = "planted-recount-unlooked") {
            Some(counts.map(Option::unwrap_or_default).sum())
        } else {
            counts.try_fold(0, |sum, count| Some(sum + count?))
        };
        count.is_some_and(|count| self.latch.end_recount(before, count))
    }

    fn recount_until_done(&self) {
        while !self.recount() {
            thread::yield_now();
        }
    }
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn the_living_are_counted_while_they_come_and_go() {
    model(|| {
        let latched = Latched::held_by_the_dead();
        let other = {
            let latched = latched.clone();
            thread::spawn(move || {
                let line = &latched.lines[1];
                if let Some(held) = line.try_shared(&latched.latch, NAME, SlotNo(1)) {
                    assert!(latched.latch.shared_count() >= 1, "a holder is not counted");
                    held.unlatch(&latched.latch);
                }
            })
        };
        latched.recount_until_done();
        other.join().unwrap();
        assert_eq!(latched.latch.shared_count(), 0);
        assert!(latched.latch.try_exclusive(SlotNo(0)));
    });
}

#[test]
fn who_holds_it_keeps_it() {
    model(|| {
        let latched = Latched::held_by_the_dead();
        let held = latched.lines[0].try_shared(&latched.latch, NAME, SlotNo(0)).unwrap();
        let repairer = {
            let latched = latched.clone();
            thread::spawn(move || latched.recount_until_done())
        };
        let line = &latched.lines[1];
        let other = line.try_shared(&latched.latch, NAME, SlotNo(1));
        assert!(!latched.latch.try_exclusive(SlotNo(2)), "it is held shared");
        if let Some(other) = other {
            other.unlatch(&latched.latch);
        }
        repairer.join().unwrap();
        assert_eq!(latched.latch.shared_count(), 1);
        held.unlatch(&latched.latch);
        assert!(latched.latch.try_exclusive(SlotNo(2)));
    });
}

#[test]
fn a_waiter_is_woken_when_the_dead_are_not_counted_any_more() {
    model(|| {
        let latched = Latched::held_by_the_dead();
        let waiter = {
            let latched = latched.clone();
            thread::spawn(move || {
                latched.latch.exclusive(SlotNo(1)).unwrap();
                latched.latch.unlatch_exclusive();
            })
        };
        latched.recount_until_done();
        waiter.join().unwrap();
        assert_eq!(latched.latch.shared_count(), 0);
    });
}
