//! What no snapshot needs any more.
//!
//! R1. The oldest snapshot and the oldest position are taken as in `registry.rs`. They are at or below the LSN of every
//!     snapshot that is open, and of every one that is opened later.
//! R2. The floor is raised before the first image of a commit above it goes (V4).

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};

use super::VersionStore;
use super::registry;

impl VersionStore {
    /// No snapshot that is open, or can still be opened, is older than this. No reader will ask for what commits below
    /// it have unlinked.
    #[must_use]
    pub fn oldest_snapshot(&self) -> Lsn {
        // The tail before the slots (Q2).
        let tail = self.log.tail().0;
        Lsn(registry::oldest(tail, self.used_snapshots().iter()))
    }

    /// No open snapshot asks for images that are kept below this position, and none that will be opened.
    pub(super) fn oldest_position(&self) -> u64 {
        registry::lowest_position(|| self.kept_head(), || self.used_snapshots().iter())
    }

    /// Snapshots that do not see the commit at `lsn` cannot be read any more.
    pub(super) fn raise_floor(&self, lsn: Lsn) {
        let state = &*self.state;
        if !planted::is_on(Bug::FloorIgnored) {
            state.floor.fetch_max(lsn.0 + 1, SeqCst);
        }
        state.floor_count.fetch_add(1, Relaxed);
    }
}
