//! Bugs planted on purpose, to see whether the tests are awake.
//!
//! A kind of test is trusted after it has caught a bug that was put there for it. Where the engine could go wrong in the
//! way that a [`Bug`] names, it asks [`is_on`]; the crash harness switches one on with `set` and must report a failure.
//! Without the feature `planted` the question is a constant `false` and costs nothing.

/// A deliberate mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// Pages go out before the log that describes them.
    WriteAheadOff,
    /// Recovery reads records of an older life behind the end of the log as if they were new.
    StaleLogTail,
    /// Rollback writes its compensation records and changes nothing.
    UndoDoesNothing,
    /// A page's rec_lsn is set after its record was reserved, so that a checkpoint can overlook it.
    RecLsnLate,
    /// A split logs its two halves as two records, so that a crash can fall between them.
    HalfSplit,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 5] =
        [Bug::WriteAheadOff, Bug::StaleLogTail, Bug::UndoDoesNothing, Bug::RecLsnLate, Bug::HalfSplit];

    /// A name for the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Bug::WriteAheadOff => "write-ahead-off",
            Bug::StaleLogTail => "stale-log-tail",
            Bug::UndoDoesNothing => "undo-does-nothing",
            Bug::RecLsnLate => "rec-lsn-late",
            Bug::HalfSplit => "half-split",
        }
    }
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    // 0: none. Relaxed: switched while no engine runs, and it orders nothing.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Switches a bug on for the whole process, or all off.
    pub fn set(bug: Option<Bug>) {
        ON.store(bug.map_or(0, |bug| bug as u8 + 1), Relaxed);
    }

    /// Whether the engine shall make this mistake.
    #[inline]
    pub fn is_on(bug: Bug) -> bool {
        ON.load(Relaxed) == bug as u8 + 1
    }
}

#[cfg(feature = "planted")]
pub use switch::{is_on, set};

/// Whether the engine shall make this mistake: no.
#[cfg(not(feature = "planted"))]
#[inline(always)]
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
