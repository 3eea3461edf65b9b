//! Frames, who latches their pages, and the log that goes before them: all that a guard needs of a cache.
//!
//! This file does not know which page is where, nor how pages come and go.

use crate::entry::PageEntry;
use crate::frame::Frames;
use crate::frame_no::FrameNo;
use crate::write_ahead::WriteAhead;
use ledgerstone_page::PageId;
use ledgerstone_region::{HeldShared, LatchTimeout, SlotNo, SlotTable};
use std::sync::Arc;

pub(crate) struct Pool {
    pub frames: Frames,
    pub slots: Arc<SlotTable>,
    pub log: Arc<dyn WriteAhead>,
}

impl Pool {
    /// Who latches: this thread.
    #[inline]
    pub fn slot(&self) -> SlotNo {
        self.slots.current()
    }

    /// Latches a page shared, under its name (`held.rs` of `region`), unless it is latched exclusively.
    #[inline]
    pub fn try_shared(&self, id: PageId, entry: &PageEntry) -> Option<HeldShared<'_>> {
        let slot = self.slot();
        self.slots.held(slot).try_shared(&entry.latch, name_of(id), slot)
    }

    /// The same. Waits for a while.
    pub fn shared(&self, id: PageId, entry: &PageEntry) -> Result<HeldShared<'_>, LatchTimeout> {
        let slot = self.slot();
        self.slots.held(slot).shared(&entry.latch, name_of(id), slot)
    }

    /// Takes the frame from an exclusively latched page into this thread's hand, and unlatches the page with a new
    /// version (C1).
    pub fn take_out(&self, entry: &PageEntry, frame: FrameNo) {
        entry.set_frame(None);
        self.part(entry, frame);
    }

    /// The same for an entry that has been told already.
    pub fn part(&self, entry: &PageEntry, frame: FrameNo) {
        self.frames.descriptor(frame).take_from_page(self.slot());
        entry.latch.unlatch_exclusive();
    }
}

/// What a page's latch is called in a thread's line.
fn name_of(id: PageId) -> u64 {
    id.0 + 1
}

/// The page whose latch has that name.
pub(crate) fn page_of(name: u64) -> PageId {
    PageId(name - 1)
}
