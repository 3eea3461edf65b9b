//! Models of the latch under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-region --release loom_latch`.
//!
//! The planted bugs must be found: with `--features planted-no-fence` or `planted-no-reader-fence`,
//! `a_torn_optimistic_read_is_never_validated` fails;
//! with `--features planted-lost-wake`, `no_wake_is_lost_among_exclusive_waiters` ends in a deadlock.

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::{Latch, SlotNo, Words, WordsMut};
use loom::sync::Arc;
use loom::thread;

/// Two words that are equal whenever nobody holds the latch.
struct Guarded {
    latch: Latch,
    words: [AtomicU64; 2],
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Guarded { latch: Latch::new(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn write(&self, value: u64) {
        let mut words = WordsMut::new(&self.words);
        words.put_u64(0, value);
        words.put_u64(8, value);
    }

    fn read(&self) -> (u64, u64) {
        let words = Words::new(&self.words);
        (words.u64(0), words.u64(8))
    }

    /// What both words are, if a look without latching counts.
    fn read_optimistic(&self) -> Option<u64> {
        let seen = self.latch.optimistic()?;
        let (first, second) = self.read();
        if !self.latch.is_still(seen) {
            return None;
        }
        assert_eq!(first, second, "a torn read was validated");
        Some(first)
    }
}

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

#[test]
fn a_torn_optimistic_read_is_never_validated() {
    model(3, || {
        let guarded = Guarded::new();
        let writer = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                for value in 1..=2 {
                    assert!(guarded.latch.try_exclusive(SlotNo(1)));
                    guarded.write(value);
                    guarded.latch.unlatch_exclusive();
                }
            })
        };
        guarded.read_optimistic();
        guarded.read_optimistic();
        writer.join().unwrap();
        assert_eq!(guarded.read_optimistic(), Some(2));
    });
}

#[test]
fn exclusive_excludes_exclusive() {
    model(3, || {
        let guarded = Guarded::new();
        let threads: Vec<_> = (1..=2)
            .map(|no| {
                let guarded = guarded.clone();
                thread::spawn(move || {
                    guarded.latch.exclusive(SlotNo(no)).unwrap();
                    assert_eq!(guarded.latch.owner(), Some(SlotNo(no)));
                    let (first, second) = guarded.read();
                    assert_eq!(first, second);
                    guarded.write(first + 1);
                    guarded.latch.unlatch_exclusive();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(guarded.read(), (2, 2));
        assert_eq!(guarded.latch.version().to_raw(), 2);
    });
}

#[test]
fn exclusive_excludes_shared() {
    model(3, || {
        let guarded = Guarded::new();
        let writer = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                guarded.latch.exclusive(SlotNo(1)).unwrap();
                guarded.write(1);
                guarded.latch.unlatch_exclusive();
            })
        };
        guarded.latch.shared().unwrap();
        let (first, second) = guarded.read();
        assert_eq!(first, second);
        let again = guarded.read();
        assert_eq!(again, (first, second), "the bytes changed under a shared latch");
        guarded.latch.unlatch_shared();
        writer.join().unwrap();
        assert_eq!(guarded.read(), (1, 1));
    });
}

#[test]
fn an_upgrade_succeeds_only_if_nothing_changed() {
    model(3, || {
        let guarded = Guarded::new();
        let add_one = |guarded: &Guarded, no: u16| loop {
            let Some(seen) = guarded.latch.optimistic() else {
                thread::yield_now();
                continue;
            };
            let value = guarded.read().0;
            if guarded.latch.try_upgrade(seen, SlotNo(no)) {
                guarded.write(value + 1);
                guarded.latch.unlatch_exclusive();
                break;
            }
            thread::yield_now();
        };
        let other = {
            let guarded = guarded.clone();
            thread::spawn(move || add_one(&guarded, 1))
        };
        add_one(&guarded, 2);
        other.join().unwrap();
        assert_eq!(guarded.read(), (2, 2));
    });
}

/// loom reports a deadlock if a sleeper is forgotten.
#[test]
fn no_wake_is_lost_among_exclusive_waiters() {
    model(2, || {
        let guarded = Guarded::new();
        let threads: Vec<_> = (1..=2)
            .map(|no| {
                let guarded = guarded.clone();
                thread::spawn(move || {
                    guarded.latch.exclusive(SlotNo(no)).unwrap();
                    guarded.latch.unlatch_exclusive_unchanged();
                })
            })
            .collect();
        guarded.latch.exclusive(SlotNo(3)).unwrap();
        guarded.latch.unlatch_exclusive();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn no_wake_is_lost_between_shared_and_exclusive() {
    model(2, || {
        let guarded = Guarded::new();
        let sharers: Vec<_> = (0..2)
            .map(|_| {
                let guarded = guarded.clone();
                thread::spawn(move || {
                    guarded.latch.shared().unwrap();
                    guarded.latch.unlatch_shared();
                })
            })
            .collect();
        guarded.latch.exclusive(SlotNo(3)).unwrap();
        guarded.latch.unlatch_exclusive();
        for sharer in sharers {
            sharer.join().unwrap();
        }
        // Relaxed and joined: all that is left of the waiting is a bit at most.
        assert_eq!(guarded.latch.shared_count(), 0);
        assert_eq!(guarded.words[0].load(Relaxed), 0);
    });
}
