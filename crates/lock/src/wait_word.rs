//! Where the wait of an owner stands: a word of 32 bits, the futex that the owner sleeps on.
//!
//! ```text
//! bits 31..8  number of the wait, one more each time
//! bits  7..0  IDLE -> WAITING -> GRANTED     by whoever lets go, under the latch of the waiter's bucket (`queue`)
//!                             -> VICTIM      by a deadlock search, under its latch (`wait`)
//!                             -> CANCELLED   by `cancel_all_waits`
//!                             -> IDLE        by the owner, leaving
//! ```
//!
//! O1. The word leaves `WAITING` by compare-exchange (or by the owner, under its bucket's latch), so each wait has one
//!     end, and the number keeps a verdict on an earlier wait from hitting a later one.
//! O2. While the word says `WAITING`, `wait_node` and `wait_bucket` of the owner say where; the node is in that
//!     bucket's chain, and stays as long as the bucket's latch is held by whoever saw the word under it.

use ledgerstone_region::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

/// No wait.
pub(crate) const IDLE: u32 = 0;
/// In a queue.
pub(crate) const WAITING: u32 = 1;
/// The node holds what was wanted.
pub(crate) const GRANTED: u32 = 2;
/// Chosen to give way.
pub(crate) const VICTIM: u32 = 3;
/// Called off.
pub(crate) const CANCELLED: u32 = 4;

/// The state in a wait word.
#[inline]
pub(crate) fn state(word: u32) -> u32 {
    word & 0xff
}

/// Ends the wait that `seen` speaks of, if it is still going on. AcqRel: the waiter's Acquire load sees what the other
/// did before, and the other sees the node that the waiter queued before its word said `WAITING`.
pub(crate) fn end_wait(word: &AtomicU32, seen: u32, end: u32) -> bool {
    state(seen) == WAITING && word.compare_exchange(seen, (seen & !0xff) | end, AcqRel, Acquire).is_ok()
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

/// The word of the wait with this ticket while it goes on.
pub(crate) fn waiting(ticket: u32) -> u32 {
    ticket | WAITING
}
