//! Images go: when nobody needs them any more, and when there is no memory for new ones.
//!
//! Committed writers wait in a queue, about in the order of their commits, until their commit is below the oldest snapshot.
//!
//! R1. Whoever puts a writer into the queue looks afterwards whether the oldest can go, and whoever closes a snapshot does: so
//!     nothing stays in the queue for good that nobody needs.
//! R2. A writer is taken out of the queue under its latch, and discarded by whoever took it out.
//! R3. The floor is raised before the first image of a commit above it goes (V4).

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};

use super::chunk::CHUNK_BYTES;
use super::registry;
use super::{StoreState, VersionStore};

/// Writers that may be dropped to make room for one image.
const DROP_COUNT_MAX: u32 = 16;

impl VersionStore {
    /// No snapshot older than this is open or can be opened: what commits below it have unlinked, nobody will ask for.
    #[must_use]
    pub fn oldest_snapshot(&self) -> Lsn {
        // The tail before the slots (Q2).
        let tail = self.log.tail().0;
        let state = &self.state[0];
        if state.open_count.load(SeqCst) == 0 {
            return Lsn(tail);
        }
        let used = state.slots_used.load(SeqCst) as usize;
        Lsn(registry::oldest(tail, self.snapshots[..used].iter()))
    }

    fn queue_state(&self) -> &StoreState {
        &self.state[0]
    }

    /// Puts a committed writer at the end of the queue.
    pub(super) fn queue(&self, writer: u32) {
        let state = self.queue_state();
        while state.queue_latch.exclusive(self.threads.current()).is_err() {}
        let last = state.queue_last.load(Relaxed) as u32; // The latch orders it, as all below.
        if last == 0 {
            state.queue_first.store(u64::from(writer), Relaxed);
        } else {
            self.chunks.set_queue_next(last, writer);
        }
        state.queue_last.store(u64::from(writer), Relaxed);
        state.queue_latch.unlatch_exclusive();
    }

    /// Takes the first writer out of the queue if its commit passes the test; says its first chunk and its commit.
    fn take_first(&self, may_go: impl Fn(u64) -> bool) -> Option<(u32, u64)> {
        let state = self.queue_state();
        if state.queue_first.load(Relaxed) == 0 {
            return None; // A hint; whoever puts one in looks afterwards (R1).
        }
        while state.queue_latch.exclusive(self.threads.current()).is_err() {}
        let first = state.queue_first.load(Relaxed) as u32;
        let lsn = if first == 0 { u64::MAX } else { self.chunks.status(first).map_or(0, |s| s.load(SeqCst)) >> 2 };
        let taken = (first != 0 && may_go(lsn)).then(|| {
            let next = self.chunks.queue_next(first);
            state.queue_first.store(u64::from(next), Relaxed);
            if next == 0 {
                state.queue_last.store(0, Relaxed);
            }
            (first, lsn)
        });
        state.queue_latch.unlatch_exclusive();
        taken
    }

    /// For each snapshot, given by rising LSNs, the bytes of the images that it may still ask for.
    pub(super) fn held_bytes(&self, snapshots: &[u64]) -> Vec<u64> {
        let mut held = vec![0; snapshots.len()];
        if snapshots.is_empty() {
            return held;
        }
        let state = self.queue_state();
        while state.queue_latch.exclusive(self.threads.current()).is_err() {}
        let mut writer = state.queue_first.load(Relaxed) as u32; // The latch orders it.
        while writer != 0 {
            let commit = self.chunks.status(writer).map_or(0, |status| status.load(SeqCst)) >> 2;
            // Those do not see it.
            if let Some(last) = snapshots.partition_point(|&lsn| lsn <= commit).checked_sub(1) {
                held[last] += self.chunks.count_of(writer) * CHUNK_BYTES;
            }
            writer = self.chunks.queue_next(writer);
        }
        state.queue_latch.unlatch_exclusive();
        // What a younger one holds, the older ones hold as well.
        for no in (1..held.len()).rev() {
            held[no - 1] += held[no];
        }
        held
    }

    /// A chunk that was left with any slot: there are no others.
    fn take_left(&self) -> Option<u32> {
        self.writers.iter().find_map(|slot| self.chunks.take_left(slot))
    }

    /// Snapshots that do not see the commit at `lsn` cannot be read any more.
    pub(super) fn raise_floor(&self, lsn: Lsn) {
        let state = self.queue_state();
        if !planted::is_on(Bug::FloorIgnored) {
            state.floor.fetch_max(lsn.0 + 1, SeqCst);
        }
        state.floor_count.fetch_add(1, Relaxed);
    }
}

/// Discards up to `count_max` writers that nobody needs. True: there may be more.
pub(super) fn reclaim_some(store: &VersionStore, count_max: u32) -> bool {
    let oldest = store.oldest_snapshot().0;
    store.reclaim_spilled(oldest);
    for _ in 0..count_max {
        match store.take_first(|lsn| lsn < oldest) {
            Some((writer, _)) => store.discard(writer),
            None => return false,
        }
    }
    true
}

/// Makes a chunk free, if need be at the cost of the oldest snapshot; none if open transactions have them all.
#[cold]
pub(super) fn make_free(store: &VersionStore) -> Option<u32> {
    reclaim_some(store, DROP_COUNT_MAX);
    for _ in 0..DROP_COUNT_MAX {
        if let Some(chunk) = store.chunks.take().or_else(|| store.take_left()) {
            return Some(chunk);
        }
        let (writer, lsn) = store.take_first(|_| true)?;
        store.raise_floor(Lsn(lsn)); // R3
        store.discard(writer);
    }
    store.chunks.take().or_else(|| store.take_left())
}
