//! Where the wait of an owner stands: a word of 32 bits, the futex that the owner sleeps on.
//!
//! ```text
//! bits 31..8  number of the wait, one more each time
//! bits  7..0  IDLE -> WAITING -> GRANTED     by a thread that lets go, under the latch of the waiter's bucket (`queue`)
//!                             -> VICTIM      by a deadlock search, under its latch (`wait`)
//!                             -> CANCELLED   by `cancel_all_waits`
//!                             -> IDLE        by the owner, leaving
//!             WAITING -> ASLEEP  by the owner, about to sleep; from here on as from WAITING, and it must be woken
//!             GRANTED -> IDLE    by the owner, awake: the lock is its own
//!                     -> WAITING by an owner that passes it, under the latch of its bucket (Q6): another wait
//! ```
//!
//! O1. The word leaves `WAITING`, `ASLEEP` and `GRANTED` by compare-exchange, or by the owner, under its bucket's
//!     latch. So each wait has one end. The number keeps a verdict on an earlier wait from hitting a later one.
//! O2. While the word says `WAITING` or `ASLEEP`, `wait_node` and `wait_bucket` of the owner say where. The node is in
//!     that bucket's chain. It stays there while the thread that saw the word under the bucket's latch holds that
//!     latch.
//! O3. A thread that ends a wait that says `ASLEEP` wakes the owner. One that says `WAITING` looks at the word by
//!     itself.

use ledgerstone_region::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

/// No wait.
pub(crate) const IDLE: u32 = 0;
/// In a queue, awake or woken.
pub(crate) const WAITING: u32 = 1;
/// The node holds what was wanted.
pub(crate) const GRANTED: u32 = 2;
/// Chosen to give way.
pub(crate) const VICTIM: u32 = 3;
/// Called off.
pub(crate) const CANCELLED: u32 = 4;
/// In a queue, asleep or about to be.
pub(crate) const ASLEEP: u32 = 5;

/// The state in a wait word.
#[inline]
pub(crate) fn state(word: u32) -> u32 {
    word & 0xff
}

/// Whether the owner is in a queue.
#[inline]
pub(crate) fn is_waiting(word: u32) -> bool {
    matches!(state(word), WAITING | ASLEEP)
}

/// Whether an owner whose wait was ended has to be woken (O3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// It looks by itself.
    Awake,
    /// To be woken by the thread that ended its wait.
    Asleep,
}

/// Ends the wait with this ticket, if it is still going on. AcqRel: the waiter's Acquire load sees what the other did
/// before, and the other sees the node that the waiter queued before its word said `WAITING`.
#[must_use]
pub(crate) fn end_wait(word: &AtomicU32, of: u32, end: u32) -> Option<Sleeper> {
    let mut seen = word.load(Acquire);
    while is_waiting(seen) && ticket(seen) == of {
        match word.compare_exchange(seen, of | end, AcqRel, Acquire) {
            Ok(_) if state(seen) == ASLEEP => return Some(Sleeper::Asleep),
            Ok(_) => return Some(Sleeper::Awake),
            Err(now) => seen = now,
        }
    }
    None
}

/// For the owner that saw `GRANTED`: takes what was granted. False if somebody has just passed it.
#[must_use]
pub(crate) fn take(word: &AtomicU32, seen: u32) -> bool {
    word.compare_exchange(seen, idle(seen), AcqRel, Acquire).is_ok()
}

/// For an owner that passes another, having seen `GRANTED`: takes back what was granted, unless the owner has taken it.
/// It waits again.
#[must_use]
pub(crate) fn take_back(word: &AtomicU32, seen: u32) -> bool {
    word.compare_exchange(seen, next_wait(seen), AcqRel, Acquire).is_ok()
}

/// For the owner that saw `WAITING`: says that it sleeps, and returns the word to sleep on. `None`: look again.
#[must_use]
pub(crate) fn fall_asleep(word: &AtomicU32, seen: u32) -> Option<u32> {
    let asleep = ticket(seen) | ASLEEP;
    (seen == asleep || word.compare_exchange(seen, asleep, AcqRel, Acquire).is_ok()).then_some(asleep)
}

/// The word of the next wait after `seen`.
pub(crate) fn next_wait(seen: u32) -> u32 {
    ((seen & !0xff) | WAITING).wrapping_add(0x100)
}

/// The word of the same wait, over.
pub(crate) fn idle(seen: u32) -> u32 {
    (seen & !0xff) | IDLE
}

/// What stays the same while a wait goes on, and never comes back soon.
pub(crate) fn ticket(seen: u32) -> u32 {
    seen & !0xff
}
