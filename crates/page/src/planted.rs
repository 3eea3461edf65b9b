//! Bugs planted on purpose, to prove that the tests see them, and rare ways taken often. Compiled only with the feature
//! `planted`.

/// Declares the bugs: a sentence, the variant, its name on the command line.
macro_rules! bugs {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// A bug that a harness must find.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$doc])* $variant,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$variant),*];

            /// A name for the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$variant => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// A page goes out before the log that describes it.
    WriteAheadOff "write-ahead-off",
    /// Records of an earlier life of a log segment are accepted.
    StaleLogTail "stale-log-tail",
    /// A logical undo writes its compensation record and changes nothing.
    UndoDoesNothing "undo-does-nothing",
    /// A frame's `rec_lsn` is set after the record was appended.
    RecLsnLate "rec-lsn-late",
    /// Redo replays one half of a split.
    HalfSplit "half-split",
    /// An insert does not ask whether somebody has locked the gap that it goes into.
    NoGapLocks "no-gap-locks",
    /// A range goes on with the copy of a leaf that it made before its transaction locked the whole table.
    OldCopyKept "old-copy-kept",
    /// A record that appears where a tree was found dead leaves the tree's end where it was.
    DeadEdgeKept "dead-edge-kept",
    /// A transaction that has locked a table for reading it as a whole writes its records without locking them.
    TableLockCoversWrites "table-lock-covers-writes",
    /// A rollback to a savepoint leaves the first record after it.
    RollbackStopsEarly "rollback-stops-early",
    /// The abort of a nested transaction takes nothing back.
    NestedAbortStays "nested-abort-stays",
    /// A prepared transaction comes back from a crash without its locks.
    PreparedWithoutLocks "prepared-without-locks",
    /// A transaction that is rolled back after the opening leaves its tables unlocked.
    DeferredWithoutLocks "deferred-without-locks",
    /// Restart rolls prepared transactions back like any other.
    PreparedIsForgotten "prepared-is-forgotten",
    /// A page that was read is not compared with its checksum.
    ChecksumUnread "checksum-unread",
    /// A page write that failed counts as done.
    WriteErrorForgotten "write-error-forgotten",
    /// A page goes home without a copy in the double-write area, although the log has no image of it.
    ShelterForgotten "shelter-forgotten",
    /// A page that moves is freed in one group and appears at its new place in another.
    HalfMove "half-move",
    /// A snapshot does not wait for the stamp of a writer that is committing.
    CommitStampLate "commit-stamp-late",
    /// Images that a snapshot needs are dropped for lack of memory, and it is not told.
    FloorIgnored "floor-ignored",
    /// A transaction that opens a snapshot leaves the images of small writers where no reader looks.
    StagedUnlinked "staged-unlinked",
    /// A transaction that changes a record forgets which others of its page have changed, although a snapshot may not
    /// have seen that.
    TouchedForgotten "touched-forgotten",
    /// A reader of a snapshot does not ask for writers whose images are in the log.
    SpilledForgotten "spilled-forgotten",
    /// A ghost is purged although a snapshot still sees the record that it was.
    GhostPurgedEarly "ghost-purged-early",
    /// A writer does not ask whether another has committed a change of the record since its snapshot.
    LastCommitterWins "last-committer-wins",
    /// A record that is deleted or changed leaves its entry in an index.
    IndexEntryStays "index-entry-stays",
    /// A backup copies pages and does not wait for their log.
    BackupAheadOfLog "backup-ahead-of-log",
    /// The repair of a page leaves one of its records out.
    RepairSkipsRecord "repair-skips-record",
    /// The rollback of a transaction takes its ended nested top actions back, too.
    TopActionTakenBack "top-action-taken-back",
    /// Where leaves are to be locked, nothing is.
    NoLeafLocks "no-leaf-locks",
    /// A sorted load forgets to free the tree that its own replaces.
    LoadLeaksTree "load-leaks-tree",
    /// A range delete leaves the last record of what it has read.
    RangeDeleteStopsEarly "range-delete-stops-early",
    /// What was written over a part of a large value is not taken back.
    PartStays "part-stays",
    /// The rollback of a program's increment takes nothing back.
    IncrementStays "increment-stays",
    /// A patch of a record of a fixed page is not taken back.
    FixedPatchStays "fixed-patch-stays",
    /// A unique index does not refuse the second record.
    DuplicateLetIn "duplicate-let-in",
    /// Each table of a dump is read at a moment of its own.
    DumpOfManyMoments "dump-of-many-moments",
    /// The log of a killed process is believed and not synced.
    LogUnsettled "log-unsettled",
    /// The pages of a killed process are believed and not synced.
    DataUnsettled "data-unsettled",
    /// The names that a killed process has left are believed and not synced.
    NamesUnsettled "names-unsettled",
    /// The incarnation that recovery begins is not durable in the control file.
    IncarnationForgotten "incarnation-forgotten",
    /// A reader's commit does not wait until what it has read is durable.
    ReaderUnwaited "reader-unwaited",
    /// A change feed that goes on in the middle of a transaction does not look for its beginning.
    FeedForgetsBeginning "feed-forgets-beginning",
    /// A restart forgets what an earlier one has undone out of order, and undoes it again.
    UndoneTwice "undone-twice",
    /// What a restart undoes out of order it undoes oldest first, also for one key.
    UndoneOldestFirst "undone-oldest-first",
    /// The names in an archive's directory are not made durable.
    ArchiveNamesLost "archive-names-lost",
    /// A restored environment's double-write file gets its name after the last sync of names.
    RestoreNamesLost "restore-names-lost",
    /// An incremental backup goes on from the backup of another life.
    BackupOfAnotherLife "backup-of-another-life",
    /// The table of a raw store is written before what it names is durable.
    RawTableUnsynced "raw-table-unsynced",
    /// A slot of a raw store's table counts as durable once it is written.
    RawSlotUnsynced "raw-slot-unsynced",
    /// A file of a raw store that has become longer is synced without the table.
    RawLengthUnsynced "raw-length-unsynced",
    /// A directory of a raw store is synced without the table.
    RawNamesUnsynced "raw-names-unsynced",
    /// A checkpoint does not wait for changes that a restart has found and not repeated yet.
    PendingForgotten "pending-forgotten",
    /// Pages that are read ahead come in without the changes that are pending for them.
    RunsNotRedone "runs-not-redone",
    /// A page that gets its pending changes counts as changed now, and not since what the log says.
    PendingMadeNow "pending-made-now",
    /// An archive is anybody's.
    ArchiveOfAnybody "archive-of-anybody",
}

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

    use super::Bug;

    static BUG: AtomicU8 = AtomicU8::new(0);

    /// Plants a bug in the whole process, or none.
    pub fn set(bug: Option<Bug>) {
        BUG.store(bug.map_or(0, |b| b as u8 + 1), Relaxed);
    }

    /// True if this bug is planted.
    #[must_use]
    pub fn is_on(bug: Bug) -> bool {
        BUG.load(Relaxed) == bug as u8 + 1
    }

    /// What windows may hold: as much as memory does, or so many changes.
    const WINDOWS: [u32; 8] = [0, 0, 0, 1, 2, 5, 20, 100];
    static WINDOW: AtomicU32 = AtomicU32::new(0);
    static WINDOW_SEED: AtomicU32 = AtomicU32::new(0);

    /// From now on few changes are gathered to be sorted, as if their memory were full. Each restart gathers another
    /// number before it repeats or undoes them, and so does a range delete for an index. With 0, as many are gathered
    /// as there is room for. Begins the same sequence each time it is called.
    pub fn set_windows(seed: u32) {
        WINDOW.store(0, Relaxed);
        WINDOW_SEED.store(seed, Relaxed);
        begin_windows();
    }

    /// Draws the window of a redo or undo that begins.
    pub fn begin_windows() {
        let seed = WINDOW_SEED.load(Relaxed);
        if seed != 0 {
            let next = seed.wrapping_mul(0x9E37_79B1).wrapping_add(0x7F4A_7C15).max(1);
            WINDOW_SEED.store(next, Relaxed);
            WINDOW.store(WINDOWS[(next >> 29) as usize], Relaxed);
        }
    }

    /// Whether so many changes are all that may be gathered.
    #[must_use]
    pub fn fills_window(changes: usize) -> bool {
        let changes_max = WINDOW.load(Relaxed) as usize;
        changes_max > 0 && changes >= changes_max
    }

    static EVERY: AtomicU32 = AtomicU32::new(0);
    static DRAWN: AtomicU32 = AtomicU32::new(0);

    /// From now on one in so many descents through a tree latches its way from the start, as if it had lost too many
    /// races; 0: none. Begins the same sequence each time it is called.
    pub fn set_latching(every: u32) {
        EVERY.store(every, Relaxed);
        DRAWN.store(0, Relaxed);
    }

    /// Whether this descent is to latch its way.
    #[must_use]
    pub fn latches_now() -> bool {
        let every = EVERY.load(Relaxed);
        if every == 0 {
            return false;
        }
        // Spread, so that no rhythm of the caller's meets the same descents each time.
        let spread = DRAWN.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        spread.is_multiple_of(every)
    }
}

#[cfg(feature = "planted")]
pub use chosen::{begin_windows, fills_window, is_on, latches_now, set, set_latching, set_windows};

/// Draws the window of a redo or undo that begins: nothing, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn begin_windows() {}

/// Whether so many changes are all that may be gathered: only room says, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn fills_window(_changes: usize) -> bool {
    false
}

/// Whether this descent through a tree is to latch its way: never from the start, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn latches_now() -> bool {
    false
}

/// True if this bug is planted: never, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is_on(_bug: Bug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_planted_unless_somebody_asked() {
        assert!(Bug::ALL.iter().all(|&bug| !is_on(bug)));
        #[cfg(feature = "planted")]
        {
            set(Some(Bug::RecLsnLate));
            assert!(is_on(Bug::RecLsnLate) && !is_on(Bug::HalfSplit));
            set(None);
            assert!(!is_on(Bug::RecLsnLate));
        }
    }
}
