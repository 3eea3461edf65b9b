//! The parts of a repair that somebody could forget. A test leaves out each and sees that it is missed.

use super::VersionStore;

macro_rules! parts {
    ($($(#[$meta:meta])* $part:ident,)+) => {
        /// A part of a repair.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Part {
            $($(#[$meta])* $part,)+
        }

        #[cfg(all(test, feature = "deaths"))]
        impl Part {
            pub(super) const ALL: &[Part] = &[$(Part::$part,)+];
        }
    };
}

parts! {
    /// The latch of a bucket is taken over.
    BucketLatch,
    /// The latch of the list of free chunks is taken over, and the list made again.
    ChunkList,
    /// Chunks that were changing hands go to the list.
    LostChunks,
    /// A chunk that was being taken from another slot.
    TakenFrom,
    /// The latch of the images of commits is taken over.
    KeptLatch,
    /// The latch of the spilled writers is taken over.
    SpilledLatch,
    /// The slots of spilled writers are freed that were being filled, and counted.
    SpilledSlots,
    /// An image that is in a chain is counted.
    Uncounted,
    /// An image that is in no chain names nobody.
    Unlinked,
    /// Staged images of the living that a dead thread was putting into the chains.
    Staged,
    /// Snapshots are closed.
    Snapshots,
    /// Slots of snapshots that were held are let go.
    HeldSnapshots,
    /// The repairing thread becomes the writer's.
    Thread,
}

impl VersionStore {
    /// Whether this store's repairs leave a part out: in tests only.
    #[inline]
    pub(super) fn forgets(&self, part: Part) -> bool {
        #[cfg(all(test, feature = "deaths"))]
        return self.forgotten == Some(part);
        #[cfg(not(all(test, feature = "deaths")))]
        {
            let _ = part;
            false
        }
    }
}
