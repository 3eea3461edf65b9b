//! How a node says where it is, and how whoever scans the nodes reads that with no latch held (Q8, N1).
//!
//! A thread stores what belongs to a request, and then its modes. It takes the modes away, and stores anew what belongs
//! to the next request. The scan reads in the other order. So a node that is between two buckets is in neither, and
//! one that has found another keeper is not the last one's.

use ledgerstone_region::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Stores the modes of a node behind all that belongs to them; 0 ends the request.
#[inline]
pub(crate) fn publish(modes: &AtomicU32, value: u32) {
    let order = if cfg!(feature = "planted-unpublished-request") { Relaxed } else { Release };
    modes.store(value, order);
}

/// Whether a node is a request in a bucket whose latch the caller holds.
pub(crate) fn is_request_in(modes: &AtomicU32, bucket: &AtomicU32, bucket_no: u32) -> bool {
    modes.load(Acquire) != 0 && bucket.load(Relaxed) == bucket_no
}

/// The keeper of a node, if it is free. It tells only those about which nobody else decides: a keeper that is dead, or
/// whose latch the caller holds.
pub(crate) fn keeper_if_free(modes: &AtomicU32, keeper: &AtomicU32) -> Option<u32> {
    (modes.load(Acquire) == 0).then(|| keeper.load(Relaxed))
}
