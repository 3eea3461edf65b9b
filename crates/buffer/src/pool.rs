//! Frames, who latches their pages, and the log that goes before them: all that a guard needs of a cache.
//!
//! This file does not know which page is where, nor how pages come and go.

use crate::entry::PageEntry;
use crate::frame::Frames;
use crate::frame_no::FrameNo;
use crate::write_ahead::WriteAhead;
use ledgerstone_region::{SlotNo, SlotTable};
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

    /// Parts an exclusively latched page from its frame, and unlatches it with a new version (C1).
    pub fn take_out(&self, entry: &PageEntry, frame: FrameNo) {
        entry.set_frame(None);
        self.part(entry, frame);
    }

    /// The same for an entry that has been told already.
    pub fn part(&self, entry: &PageEntry, frame: FrameNo) {
        self.frames.descriptor(frame).set_page(None);
        entry.latch.unlatch_exclusive();
    }
}
