//! What a recovery did, for people and programs.

use ledgerstone_page::{Lsn, PageId};

/// Phases, counts and times of one recovery. Times are in nanoseconds of `sync::now_ns`.
#[derive(Debug, Clone, Default)]
pub struct RecoveryReport {
    /// True if the environment was closed in order and there was nothing to do.
    pub was_clean: bool,
    /// Where the log scan began.
    pub scan_lsn: Lsn,
    /// Where the valid log ended.
    pub end_lsn: Lsn,
    /// The incarnation that this recovery began.
    pub incarnation: u64,
    /// Pages that a power cut had torn, and that were restored from the double-write file.
    pub torn_pages: Vec<PageId>,
    /// The slot of the control file that could not be read: it was damaged, or was being written when the power failed.
    /// It is whole again if the environment was opened for writing.
    pub damaged_control_slot: Option<u64>,
    /// On a block device: the slot of its table of names that was not whole, for one of the same reasons. The opening
    /// has made both whole.
    pub damaged_table_slot: Option<u64>,
    /// Records read by the analysis.
    pub record_count: u64,
    /// Commit records among them.
    pub winner_count: u64,
    /// Transactions that were open at the crash, and have been rolled back or are to be.
    pub loser_count: u64,
    /// Those among them that are rolled back after the opening.
    pub put_off_count: u64,
    /// Prepared transactions that wait for their commit or abort.
    pub in_doubt_count: u64,
    /// Page updates applied by redo.
    pub redo_applied_count: u64,
    /// Page updates that the pages already had.
    pub redo_skipped_count: u64,
    /// Page updates that had not been looked at when the opening returned. A page gets its own when it comes in.
    pub redo_put_off_count: u64,
    /// Updates undone before the opening returned.
    pub undone_count: u64,
    /// Time to restore torn pages.
    pub torn_ns: u64,
    /// Time of the analysis.
    pub analysis_ns: u64,
    /// Time of redo.
    pub redo_ns: u64,
    /// Time of undo.
    pub undo_ns: u64,
    /// Time of the checkpoint that ends it. Hardly any if the housekeeper takes it, after the opening has returned.
    pub checkpoint_ns: u64,
}

impl RecoveryReport {
    /// Time of all phases.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.torn_ns + self.analysis_ns + self.redo_ns + self.undo_ns + self.checkpoint_ns
    }
}
