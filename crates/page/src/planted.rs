//! Bugs planted on purpose, to prove that the tests see them. Compiled only with the feature `planted`.

/// A bug that the crash harness must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A page goes out before the log that describes it.
    WriteAheadOff = 1,
    /// Records of an earlier life of a log segment are accepted.
    StaleLogTail = 2,
    /// A logical undo writes its compensation record and changes nothing.
    UndoDoesNothing = 3,
    /// A frame's `rec_lsn` is set after the record was appended.
    RecLsnLate = 4,
    /// Redo replays one half of a split.
    HalfSplit = 5,
    /// An insert does not ask whether somebody has locked the gap that it goes into.
    NoGapLocks = 6,
    /// A rollback to a savepoint leaves the first record after it.
    RollbackStopsEarly = 7,
    /// The abort of a nested transaction takes nothing back.
    NestedAbortStays = 8,
    /// A prepared transaction comes back from a crash without its locks.
    PreparedWithoutLocks = 9,
    /// Restart rolls prepared transactions back like any other.
    PreparedIsForgotten = 10,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 10] = [
        Bug::WriteAheadOff,
        Bug::StaleLogTail,
        Bug::UndoDoesNothing,
        Bug::RecLsnLate,
        Bug::HalfSplit,
        Bug::NoGapLocks,
        Bug::RollbackStopsEarly,
        Bug::NestedAbortStays,
        Bug::PreparedWithoutLocks,
        Bug::PreparedIsForgotten,
    ];

    /// A name for the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Bug::WriteAheadOff => "write-ahead-off",
            Bug::StaleLogTail => "stale-log-tail",
            Bug::UndoDoesNothing => "undo-does-nothing",
            Bug::RecLsnLate => "rec-lsn-late",
            Bug::HalfSplit => "half-split",
            Bug::NoGapLocks => "no-gap-locks",
            Bug::RollbackStopsEarly => "rollback-stops-early",
            Bug::NestedAbortStays => "nested-abort-stays",
            Bug::PreparedWithoutLocks => "prepared-without-locks",
            Bug::PreparedIsForgotten => "prepared-is-forgotten",
        }
    }
}

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use super::Bug;

    static BUG: AtomicU8 = AtomicU8::new(0);

    /// Plants a bug in the whole process, or none.
    pub fn set(bug: Option<Bug>) {
        BUG.store(bug.map_or(0, |b| b as u8), Relaxed);
    }

    /// True if this bug is planted.
    #[must_use]
    pub fn is_on(bug: Bug) -> bool {
        BUG.load(Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub use chosen::{is_on, set};

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
