//! How far a recovery has come, to be looked at and stopped from another thread while an environment is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ledgerstone_log::Watch;
use ledgerstone_page::Lsn;

/// The phase of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// It has not begun, or is over.
    Nothing,
    /// Restores pages that were written half.
    TornPages,
    /// Reads the log to find out which transactions were open, and which pages were changed.
    Analysis,
    /// Repeats what the log says.
    Redo,
    /// Rolls back the transactions that were open.
    Undo,
    /// Writes pages and a checkpoint. Mostly this comes after the opening has returned, and is not shown.
    Checkpoint,
}

impl RecoveryPhase {
    const ALL: [RecoveryPhase; 6] = [
        RecoveryPhase::Nothing,
        RecoveryPhase::TornPages,
        RecoveryPhase::Analysis,
        RecoveryPhase::Redo,
        RecoveryPhase::Undo,
        RecoveryPhase::Checkpoint,
    ];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RecoveryPhase::Nothing => "open",
            RecoveryPhase::TornPages => "torn pages",
            RecoveryPhase::Analysis => "analysis",
            RecoveryPhase::Redo => "redo",
            RecoveryPhase::Undo => "undo",
            RecoveryPhase::Checkpoint => "checkpoint",
        }
    }
}

/// Filled by an opening, read by anybody: [`crate::Options::recovery_progress`]. Figures of different moments may meet.
#[derive(Debug, Default)]
pub struct RecoveryProgress {
    phase: AtomicU32,
    begin: AtomicU64,
    at: Arc<Watch>,
    end: AtomicU64,
}

impl RecoveryProgress {
    /// The phase that is running now.
    #[must_use]
    pub fn phase(&self) -> RecoveryPhase {
        RecoveryPhase::ALL[self.phase.load(Relaxed) as usize]
    }

    /// Bytes of the log that this phase has read.
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        self.at.at().0.saturating_sub(self.begin.load(Relaxed))
    }

    /// Bytes of the log that this phase will read. 0 while the number is not known.
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        self.end.load(Relaxed).saturating_sub(self.begin.load(Relaxed))
    }

    /// Ends the opening soon, with [`crate::Error::Cancelled`]. What was recovered until then is not lost, and neither
    /// is anything else. It is as if the process had been killed there: the next opening recovers. The progress stays
    /// stopped, so give the next opening a new one. The last phase, [`RecoveryPhase::Checkpoint`], is not stopped,
    /// because the environment is whole by then.
    pub fn stop(&self) {
        self.at.stop();
    }

    pub(crate) fn enter(&self, phase: RecoveryPhase, begin: Lsn, end: Lsn) {
        self.begin.store(begin.0, Relaxed);
        self.at.set(begin);
        self.end.store(end.0, Relaxed);
        self.phase.store(phase as u32, Relaxed);
    }

    /// Where the readers of the log write how far they are; with several, the last one that wrote counts.
    pub(crate) fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.at)
    }
}
