//! A sleeping mutual exclusion between the threads of a process, for sections that wait for the device. Not for words
//! of the region: it does not know who is inside, and nobody could repair after it.
//!
//! The upper half of the word is the next ticket, the lower half says whose turn it is: open when both are the same.
//! So a thread that goes in again and again lets in those that wait.

use ledgerstone_region::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use ledgerstone_region::sync;

const TURN_BITS: u32 = 16;
const TURN: u32 = (1 << TURN_BITS) - 1;

/// Open again when dropped.
pub(crate) struct Passage<'g>(&'g AtomicU32);

/// Waits until nobody else is inside, and those that came before have been.
pub(crate) fn enter(gate: &AtomicU32) -> Passage<'_> {
    let before = gate.fetch_add(1 << TURN_BITS, Acquire);
    let (ticket, mut seen) = (before >> TURN_BITS, before.wrapping_add(1 << TURN_BITS));
    while seen & TURN != ticket {
        sync::futex_wait(gate, seen, None);
        seen = gate.load(Acquire); // Pairs with the Release below; tickets taken meanwhile do not come between.
    }
    Passage(gate)
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let next = |word: u32| (word & !TURN) | (word.wrapping_add(1) & TURN);
        let mut word = self.0.load(Relaxed);
        while let Err(other) = self.0.compare_exchange_weak(word, next(word), Release, Relaxed) {
            word = other;
        }
        let now = next(word);
        if now >> TURN_BITS != now & TURN {
            sync::futex_wake(self.0, u32::MAX); // The next one is among them.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_inside_and_the_halves_turn_over_by_themselves() {
        // As after many passages.
        let gate = AtomicU32::new((0xfff0 << TURN_BITS) | 0xfff0);
        let count = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _inside = enter(&gate);
                        let seen = count.load(Relaxed);
                        std::thread::yield_now();
                        count.store(seen + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Relaxed), 4000);
        let word = gate.load(Relaxed);
        assert_eq!(word >> TURN_BITS, word & TURN, "it is open");
    }

    #[test]
    fn who_waits_comes_before_who_comes_again() {
        let gate = AtomicU32::new(0);
        let (inside, has_been) = (enter(&gate), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let (gate, has_been) = (&gate, &has_been);
            scope.spawn(move || {
                let _inside = enter(gate);
                has_been.store(1, Relaxed);
            });
            while gate.load(Relaxed) >> TURN_BITS != 2 {
                std::thread::yield_now(); // Until it waits.
            }
            drop(inside);
            let _again = enter(gate);
            assert_eq!(has_been.load(Relaxed), 1);
        });
    }
}
