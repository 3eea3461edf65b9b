//! Ids of transactions: one counter, and what slots have taken of it in blocks (T5 and T6 in `table.rs`).
//!
//! The counter changes by addition only, so no id is taken from it twice. The words of a slot are changed by the
//! transaction that has the slot, and go from one to the next with it. An id is in a record of the log only after it
//! was taken. So whoever has read the log's tail reads a counter above the ids of all records below that.
//!
//! Modelled under loom (`loom_ids.rs`).

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};

/// Ids in a block (T5).
pub(crate) const BLOCK_IDS: u64 = 32;
/// So many transactions take their ids singly before their slot takes a block. Few slots are used so much, and where a
/// few transactions are tried out by hand, the order is strict.
pub(crate) const UNHINDERED_MIN: u64 = 64;
/// Later ids that are taken until a block is left (T6). So many threads as this has blocks can have one each.
pub(crate) const LAG_MAX: u64 = 64 * BLOCK_IDS;

/// What a slot has of the ids.
pub(crate) struct OwnIds<'s> {
    /// The next id of its block, and the first behind it.
    pub next: &'s AtomicU64,
    pub end: &'s AtomicU64,
    /// Transactions since the last that had to wait for a lock, or since a block was left.
    pub unhindered: &'s AtomicU64,
}

impl OwnIds<'_> {
    /// The id of the next transaction in this slot, which is the caller's.
    #[inline]
    pub(crate) fn take(&self, counter: &AtomicU64) -> u64 {
        let (own, end) = (self.next.load(Relaxed), self.end.load(Relaxed));
        let is_left = own < end && counter.load(Relaxed) > end + LAG_MAX;
        if own < end && !is_left {
            self.next.store(own + 1, Relaxed);
            return own;
        }
        let unhindered = if is_left { 0 } else { self.unhindered.load(Relaxed) };
        let count = if unhindered < UNHINDERED_MIN { 1 } else { BLOCK_IDS };
        let first = take_of(counter, count);
        self.next.store(first + 1, Relaxed);
        self.end.store(first + count, Relaxed);
        self.unhindered.store(unhindered + count, Relaxed);
        first
    }

    /// The transaction in this slot, which is the caller's, has to wait for a lock (T6).
    pub(crate) fn leave_block(&self) {
        self.end.store(0, Relaxed);
        self.unhindered.store(0, Relaxed);
    }
}

#[inline]
fn take_of(counter: &AtomicU64, count: u64) -> u64 {
    if cfg!(feature = "planted-ids-not-added") {
        let first = counter.load(Relaxed);
        counter.store(first + count, Relaxed);
        return first;
    }
    counter.fetch_add(count, Relaxed)
}
