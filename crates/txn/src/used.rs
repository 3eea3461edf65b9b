//! How many slots of a table are in use: whoever looks at all of them looks at those below this number only.
//!
//! U1. Who takes a slot counts it before it marks anything there. So whoever has met what its holder did afterwards,
//!     such as a record that it has reserved, finds the slot among those in use.
//! U2. The number sinks past a slot only while that is held, and nobody's. Who takes the slot next acquires that, sees
//!     the lower number, and raises it again.
//!
//! Modelled under loom (`loom_used.rs`).

use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

/// A slot that is nobody's.
pub(crate) const FREE: u32 = 0;
/// One that is no transaction's, while the number sinks below it (U2).
pub(crate) const LOWERING: u32 = 5;

/// Takes a slot that is free.
#[inline]
pub(crate) fn take(state: &AtomicU32, to: u32) -> bool {
    // Relaxed look first: a compare-exchange takes the cache line even when it fails.
    state.load(Relaxed) == FREE && state.compare_exchange(FREE, to, SeqCst, Relaxed).is_ok()
}

/// Gives back a slot that is the caller's.
#[inline]
pub(crate) fn give_back(state: &AtomicU32) {
    state.store(FREE, Release); // Who sees it sees all before; the next to take it acquires it (U2).
}

/// Counts slot `no`, which is the caller's, among those in use (U1).
#[inline]
pub(crate) fn count(used: &AtomicU64, no: u64) {
    if used.load(Relaxed) <= no {
        used.fetch_max(no + 1, SeqCst);
    }
}

/// The number that includes slot `no` as its last sinks below it, if that is free. `held` is called while the slot is
/// held, `lowered` before it is given back. False: somebody has the slot, or has raised the number.
#[inline]
pub(crate) fn lower_below(
    used: &AtomicU64,
    no: u64,
    state: &AtomicU32,
    held: impl FnOnce(),
    lowered: impl FnOnce(),
) -> bool {
    if !take(state, if cfg!(feature = "planted-slot-not-held") { FREE } else { LOWERING }) {
        return false;
    }
    held();
    let is_lowered = used.compare_exchange(no + 1, no, SeqCst, Relaxed).is_ok();
    lowered();
    give_back(state);
    is_lowered
}
