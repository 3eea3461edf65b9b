//! Bells: how a sleeper is woken, and only if it sleeps.
//!
//! ```text
//!            prepare                     ring: wake the futex
//!   Awake ------------> Asleep  --------------------------------> Awake
//!         ------------> Polled  --------------------------------> Awake
//!            prepare                     ring: write the descriptor
//! ```
//!
//! B1. The sleeper sets the bell, then looks once more for what it waits for, then sleeps. A thread that has something
//!     for it publishes first, then looks at the bell. A full fence stands between the two on both sides, so at least
//!     one of them sees the other.
//! B2. The thread that takes the bell from Asleep or Polled to Awake, and no other, does the waking: one for many
//!     messages.
//! B3. Nobody sleeps longer than [`NAP_NS_MAX`] without looking: a hostile process that silences a bell it can write
//!     to delays messages by that much and no more.

use crate::atomic::{AtomicU32, Ordering, fence};

/// The longest sleep between two looks.
pub(crate) const NAP_NS_MAX: u64 = 100_000_000;

const AWAKE: u32 = 0;
/// What a futex sleeps on.
pub(crate) const ASLEEP: u32 = 1;
const POLLED: u32 = 2;

/// How the sleeper is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waking {
    Futex,
    Descriptor,
}

/// Before the last look and the sleep (B1).
#[inline]
pub(crate) fn prepare(bell: &AtomicU32, waking: Waking) {
    let state = if waking == Waking::Futex { ASLEEP } else { POLLED };
    bell.store(state, Ordering::Relaxed); // Ordered by the fence.
    fence(Ordering::SeqCst); // Pairs with the one in `ring`.
}

/// After the sleep, or when the last look found something.
#[inline]
pub(crate) fn awake(bell: &AtomicU32) {
    bell.store(AWAKE, Ordering::Relaxed); // A waking that comes too late is harmless.
}

/// After publishing: who has to be woken, and how (B2).
#[inline]
#[must_use]
pub(crate) fn ring(bell: &AtomicU32) -> Option<Waking> {
    if !cfg!(feature = "planted-no-fence") {
        fence(Ordering::SeqCst); // Pairs with the one in `prepare`.
    }
    // Relaxed: the fence orders it, and nothing is read on the strength of it.
    if bell.load(Ordering::Relaxed) == AWAKE {
        return None;
    }
    match bell.swap(AWAKE, Ordering::Relaxed) {
        ASLEEP => Some(Waking::Futex),
        POLLED => Some(Waking::Descriptor),
        _ => None,
    }
}
