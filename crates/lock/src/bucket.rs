//! The latch of a bucket: a word of 32 bits, held for some instructions.
//!
//! ```text
//! 0              free
//! owner + 1      held, nobody sleeps
//! (owner + 1) | SLEEPERS   held, and the thread that lets go must wake one
//! ```
//!
//! B1. A thread that slept takes the latch with `SLEEPERS` set, because others may still sleep. So no sleeper is
//!     forgotten.
//! B2. Nothing waits while it holds a latch, but for another latch of lower rank (T4).
//!
//! The owner's number in the word is for the living that look at a latch that a dead process held.

use ledgerstone_region::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ledgerstone_region::sync;

use crate::OwnerNo;

const SLEEPERS: u32 = 1 << 31;
/// Holder when no transaction is behind the call.
pub(crate) const NOBODY: OwnerNo = OwnerNo(SLEEPERS - 2);

/// Takes the latch; spins, then sleeps.
#[inline]
pub(crate) fn latch(word: &AtomicU32, holder: OwnerNo) {
    // Acquire pairs with the Release in `unlatch`.
    if word.compare_exchange(0, holder.0 + 1, Acquire, Relaxed).is_err() {
        latch_contended(word, holder.0 + 1);
    }
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
            sync::futex_wait(word, seen | SLEEPERS, None);
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
    fn the_word_names_the_holder_the_first_owner_too() {
        for holder in [OwnerNo(0), OwnerNo(1), NOBODY] {
            let word = AtomicU32::new(0);
            latch(&word, holder);
            assert_eq!(word.load(Relaxed), holder.0 + 1);
            unlatch(&word);
            assert_eq!(word.load(Relaxed), 0);
        }
    }

    /// As when it was given back just before the first look.
    #[test]
    fn who_finds_the_latch_free_while_spinning_takes_it() {
        let word = AtomicU32::new(0);
        latch_contended(&word, 5);
        assert_eq!(word.load(Relaxed), 5);
    }

    #[test]
    fn the_latch_excludes_and_forgets_nobody() {
        let shared = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
        let threads = (0..4)
            .map(|n| {
                let shared = Arc::clone(&shared);
                sync::spawn("latch", move || {
                    for _ in 0..2000 {
                        latch(&shared.0, OwnerNo(n));
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
