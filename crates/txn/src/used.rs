//! How many slots of a table are in use: whoever looks at all of them looks at those below this number only.
//!
//! U1. Who takes a slot counts it before it does what others must find by it. So whoever has met what its holder did
//!     afterwards, such as a record that it has reserved, finds the slot among those in use.
//! U2. The number sinks past a slot only while that is held, and nobody's. Who takes the slot next acquires that, sees
//!     the lower number, and raises it again.
//! U3. The number is looked at sequentially consistently, as it is raised and read. Suppose that a thread reads it too
//!     low. So that look comes before the raise, the raise before the look of the slot's holder, and that before all
//!     that the holder does afterwards.
//!
//! Modelled under loom (`loom_used.rs`, and `loom_registry.rs` for snapshots).

use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

use crate::state;

/// A slot that is nobody's.
pub(crate) const FREE: u32 = state::FREE;

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

/// Counts slot `no`, which is the caller's, among those in use (U1, U3).
#[inline]
pub(crate) fn count(used: &AtomicU64, no: u64) {
    if used.load(SeqCst) <= no {
        used.fetch_max(no + 1, SeqCst);
    }
}

/// A slot that is held while the number of those in use sinks below it (U2).
pub(crate) trait Slot {
    /// Holds it if it is free.
    fn hold(&self) -> bool;
    /// Gives it back.
    fn let_go(&self);
}

/// The slot of a transaction, by its state, for a thread.
pub(crate) struct ByOwner<'s>(pub &'s AtomicU32, pub SlotNo);

impl Slot for ByOwner<'_> {
    #[inline]
    fn hold(&self) -> bool {
        let held = if cfg!(feature = "planted-slot-not-held") { FREE } else { state::word(state::LOWERING, self.1) };
        take(self.0, held)
    }

    #[inline]
    fn let_go(&self) {
        give_back(self.0);
    }
}

/// The number that includes slot `no` as its last sinks below it, if that is free. `held` is called while the slot is
/// held, `lowered` before it is given back. False: somebody has the slot, or has raised the number.
#[inline]
pub(crate) fn lower_below(
    used: &AtomicU64,
    no: u64,
    slot: &impl Slot,
    held: impl FnOnce(),
    lowered: impl FnOnce(),
) -> bool {
    if !slot.hold() {
        return false;
    }
    held();
    let is_lowered = used.compare_exchange(no + 1, no, SeqCst, Relaxed).is_ok();
    lowered();
    slot.let_go();
    is_lowered
}
