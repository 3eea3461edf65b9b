//! A sleeping mutual exclusion on one word of the region, for sections that wait for the device. Not for hot paths: a
//! latch has versions and an owner, this has neither.
//!
//! 0 open, 1 closed, 2 closed and somebody may sleep.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use ledgerstone_region::sync;

/// Open again when dropped.
pub(crate) struct Passage<'g>(&'g AtomicU32);

/// Waits until nobody else is inside.
pub(crate) fn enter(gate: &AtomicU32) -> Passage<'_> {
    if gate.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        while gate.swap(2, Acquire) != 0 {
            sync::futex_wait(gate, 2, None);
        }
    }
    Passage(gate)
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.0.swap(0, Release) == 2 {
            sync::futex_wake(self.0, 1);
        }
    }
}
