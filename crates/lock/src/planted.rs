//! The parts of a repair that somebody could forget. A test leaves out each and sees that it is missed.

use crate::table::LockTable;

macro_rules! parts {
    ($($(#[$meta:meta])* $part:ident,)+) => {
        /// A part of a repair.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Part {
            $($(#[$meta])* $part,)+
        }

        #[cfg(all(test, feature = "deaths"))]
        impl Part {
            pub(crate) const ALL: &[Part] = &[$(Part::$part,)+];
        }
    };
}

parts! {
    /// The latch of the deadlock search is taken over.
    SearchLatch,
    /// The latch of the nodes that were never used is taken over.
    FreshLatch,
    /// The latch of a shard is taken over.
    ShardLatch,
    /// The list of a shard is made again.
    ShardList,
    /// The latch of a bucket is taken over.
    BucketLatch,
    /// The chain of a bucket is made again.
    Chain,
    /// What was collected by halves is taken back.
    HalfCollected,
    /// The waiters of a bucket are counted again.
    WaitingCount,
    /// The strong requests of a bucket are counted again.
    StrongCount,
    /// A grant that was under way is finished.
    HalfGranted,
    /// A waiter that was given its lock and its verdict at a time sees the lock.
    GrantAndVerdict,
    /// What nothing forbids any more is granted.
    Admit,
    /// The wait of an owner of the dead is over.
    WaitOfTheDead,
    /// The requests of the dead that wait are taken out.
    RequestOfTheDead,
    /// One of them that is being granted at that moment as well.
    RequestBeingGranted,
    /// Whoever holds a latch that a repair wants may wait for another that has died since.
    DeathOfAThird,
    /// The list of what an owner holds is made again.
    HeldList,
    /// The list of what an owner has free is made again.
    FreeList,
    /// What was collected of an owner is taken in.
    TakeIn,
    /// An intention that its owner did not believe in yet is cleared.
    UnbelievedWord,
    /// The flags of an owner are cleared.
    Flags,
    /// Whoever begins waits for an owner that is being mended.
    Mending,
    /// The repairing thread becomes the owner's.
    Thread,
    /// Waits are called off to the end.
    CancelledWaits,
    /// All that sleep look again.
    Wake,
}

impl LockTable {
    /// Whether this table's repairs leave a part out: in tests only.
    #[inline]
    pub(crate) fn forgets(&self, part: Part) -> bool {
        #[cfg(all(test, feature = "deaths"))]
        return self.forgotten == Some(part);
        #[cfg(not(all(test, feature = "deaths")))]
        {
            let _ = part;
            false
        }
    }
}
