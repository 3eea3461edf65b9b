//! The latch of a bucket: a word of 32 bits, held for some instructions.
//!
//! ```text
//! 0                       free
//! slot + 1                held by the thread in that slot, nobody sleeps
//! (slot + 1) | SLEEPERS   held, and the thread that lets go must wake one
//! ```
//!
//! B1. A thread that slept takes the latch with `SLEEPERS` set, because others may still sleep. So no sleeper is
//!     forgotten, unless the thread that was to wake it, or was woken, dies first. So a sleeper looks again by itself,
//!     after [`LOOK_NS`].
//! B2. Nothing waits while it holds a latch, but for another latch of lower rank (T4).
//! B3. The word names the holder's slot from the exchange that takes the latch on. So whoever repairs after a death
//!     knows which latches the dead hold, and takes them over by one exchange ([`take_over`]).

use ledgerstone_region::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ledgerstone_region::{SlotNo, sync};

const SLEEPERS: u32 = 1 << 31;

/// A sleeper looks again after so long, though nobody has woken it.
const LOOK_NS: u64 = 50_000_000;

/// Who holds a latch: a thread slot, as it stands in words. Not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder(pub u32);

impl Holder {
    pub(crate) const fn of(slot: SlotNo) -> Holder {
        Holder(slot.0 as u32 + 1)
    }

    /// The slot that a word names, if it names one.
    pub(crate) fn in_word(word: u32) -> Option<SlotNo> {
        (word & !SLEEPERS).checked_sub(1).map(|slot| SlotNo(slot as u16))
    }
}

/// Takes the latch if it is free.
#[inline]
pub(crate) fn try_latch(word: &AtomicU32, holder: Holder) -> bool {
    debug_assert!(holder.0 & !SLEEPERS != 0, "a latch is asked for in nobody's name");
    // Acquire pairs with the Release in `unlatch`.
    word.compare_exchange(0, holder.0, Acquire, Relaxed).is_ok()
}

/// Takes the latch; spins, then sleeps.
#[inline]
pub(crate) fn latch(word: &AtomicU32, holder: Holder) {
    if !try_latch(word, holder) {
        latch_contended(word, holder.0);
    }
}

/// Takes the latch of `from`, whose process has died, for `to`, which mends what it guards and lets go. False if `from`
/// does not hold it.
pub(crate) fn take_over(word: &AtomicU32, from: SlotNo, to: Holder) -> bool {
    let mut seen = word.load(Relaxed);
    while Holder::in_word(seen) == Some(from) {
        // Acquire: pairs with what the dead has stored with Release. Those that sleep still do (B1).
        let sleepers = if cfg!(feature = "planted-takeover-forgets-sleepers") { 0 } else { seen & SLEEPERS };
        match word.compare_exchange(seen, sleepers | to.0, Acquire, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now, // Somebody has gone to sleep.
        }
    }
    false
}

#[cold]
#[inline(never)]
fn latch_contended(word: &AtomicU32, tag: u32) {
    let mut round = 0;
    while sync::spin(round) {
        round += 1;
        if word.load(Relaxed) == 0 && word.compare_exchange(0, tag, Acquire, Relaxed).is_ok() {
            return;
        }
    }
    loop {
        let seen = word.load(Relaxed);
        if seen == 0 {
            if word.compare_exchange(0, tag | SLEEPERS, Acquire, Relaxed).is_ok() {
                return; // B1
            }
        } else if seen & SLEEPERS != 0 || word.compare_exchange(seen, seen | SLEEPERS, Relaxed, Relaxed).is_ok() {
            let look_ns = if cfg!(feature = "planted-death-of-who-was-woken") { None } else { Some(LOOK_NS) };
            sync::futex_wait(word, seen | SLEEPERS, look_ns);
        }
    }
}

/// Lets go, and wakes a sleeper if there is one.
#[inline]
pub(crate) fn unlatch(word: &AtomicU32) {
    if word.swap(0, Release) & SLEEPERS != 0 {
        sync::futex_wake(word, 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn the_word_names_the_holder_the_first_slot_too() {
        for slot in [SlotNo(0), SlotNo(1), SlotNo(ledgerstone_region::SLOTS_MAX as u16)] {
            let word = AtomicU32::new(0);
            latch(&word, Holder::of(slot));
            assert_eq!(Holder::in_word(word.load(Relaxed)), Some(slot));
            unlatch(&word);
            assert_eq!(word.load(Relaxed), 0);
        }
    }

    #[test]
    fn a_latch_is_taken_over_from_its_holder_only_and_its_sleepers_stay() {
        for sleepers in [0, SLEEPERS] {
            let word = AtomicU32::new(Holder::of(SlotNo(3)).0 | sleepers);
            assert!(!take_over(&word, SlotNo(2), Holder::of(SlotNo(5))));
            assert!(take_over(&word, SlotNo(3), Holder::of(SlotNo(5))));
            assert_eq!(word.load(Relaxed), Holder::of(SlotNo(5)).0 | sleepers);
        }
    }

    /// As when it was given back just before the first look.
    #[test]
    fn who_finds_the_latch_free_while_spinning_takes_it() {
        let word = AtomicU32::new(0);
        latch_contended(&word, 5);
        assert_eq!(word.load(Relaxed), 5);
    }

    /// B1. A process lets go and dies before it has woken the one that sleeps.
    #[test]
    #[cfg_attr(feature = "planted-death-of-who-was-woken", should_panic(expected = "is stuck"))]
    fn a_sleeper_whose_wake_up_died_looks_by_itself() {
        let outcome = sync::Scheduler::run(1, || {
            let word = Arc::new(AtomicU32::new(0));
            latch(&word, Holder::of(SlotNo(0)));
            let there = Arc::clone(&word);
            let sleeper = sync::spawn("sleeper", move || {
                latch(&there, Holder::of(SlotNo(1)));
                unlatch(&there);
            });
            while word.load(Relaxed) & SLEEPERS == 0 {
                sync::sleep_ns(1_000);
            }
            sync::sleep_ns(1_000_000);
            word.store(0, Release);
            assert!(sleeper.join().is_ok());
        });
        assert!(outcome.is_ok(), "{}", outcome.expect_err("it is none"));
    }

    #[test]
    fn the_latch_excludes_and_forgets_nobody() {
        let shared = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
        let threads = (0..4)
            .map(|n| {
                let shared = Arc::clone(&shared);
                sync::spawn("latch", move || {
                    for _ in 0..2000 {
                        latch(&shared.0, Holder::of(SlotNo(n)));
                        let seen = shared.1.load(Relaxed);
                        if seen.is_multiple_of(64) {
                            std::thread::yield_now();
                        }
                        shared.1.store(seen + 1, Relaxed);
                        unlatch(&shared.0);
                    }
                })
            })
            .collect::<Vec<_>>();
        for thread in threads {
            assert!(thread.join().is_ok());
        }
        assert_eq!(shared.1.load(Relaxed), 8000);
        assert_eq!(shared.0.load(Relaxed), 0);
    }
}
