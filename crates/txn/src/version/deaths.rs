//! What a death must not leave in the version store.

use std::sync::atomic::Ordering::SeqCst;

use super::VersionStore;

impl VersionStore {
    /// Asserts that nothing is held, staged, open or on its way: so it is when nobody does anything.
    ///
    /// # Panics
    /// Something is.
    pub fn assert_nothing_left(&self) {
        self.lower_used();
        let state = &*self.state;
        assert_eq!(self.pins(), [], "snapshots are open");
        assert!(self.snapshots.iter().all(|slot| slot.lsn.load(SeqCst) == 0), "a slot of a snapshot is held");
        assert!(self.snapshots.iter().all(|slot| slot.horizon.load(SeqCst) == 0), "a horizon is left (Q5)");
        for bucket in self.buckets.iter() {
            assert!(bucket.optimistic().is_some(), "a bucket is held");
            assert_eq!(bucket.open.load(SeqCst), 0, "an image of an open writer is left over");
        }
        assert_eq!((state.kept_latch.owner(), state.spilled_latch.owner()), (None, None));
        assert_eq!(self.spilled_count(), 0, "spilled writers");
        assert_eq!(self.spilled_in_use(), 0, "slots of spilled writers");
        for line in self.writers.iter() {
            let words = [&line.staged, &line.first].map(|word| word.load(SeqCst));
            assert_eq!(words, [0, 0], "staged, first");
            assert_eq!(line.left.load(SeqCst) >> 32, 0, "a chunk is being taken away");
            assert_eq!(line.thread.load(SeqCst) >> 32, 0, "a line is being mended");
        }
        self.chunks.check(&self.writers);
        self.check_kept();
    }
}
