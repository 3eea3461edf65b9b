//! Pages leave memory for good, unwritten: the data file is about to end before them.
//!
//! Nobody uses these pages any more, and the log says so durably before this is called: what they hold in memory,
//! changed or not, will never be asked for. A thread that still has the id of such a page finds that its version has
//! risen.

use crate::cache::Cache;
use crate::error::BufferError;
use ledgerstone_page::PageId;
use std::sync::atomic::Ordering::SeqCst;

/// How long one sleep for a write in flight lasts at most.
const BELL_WAIT_NS: u64 = 2_000_000;

impl Cache {
    /// Removes all pages from `first` on from memory without writing them. Waits for writes of them that are in flight,
    /// and for threads that are reading them in.
    ///
    /// A page that another thread begins to read in meanwhile may be missed. So this is called again when the file has
    /// been cut: whoever reads such a page in then finds that it is not there. A changed page is not missed, because no
    /// thread changes these pages. Waits for latches and the device. Hold no latch of such a page.
    ///
    /// # Errors
    /// `LatchTimeout`, or `Failed` if a write that was waited for failed.
    pub fn discard_from(&self, first: PageId) -> Result<(), BufferError> {
        // A thread that reads one of them in holds its entry until the page has its frame. So each entry is latched
        // once: what came in is found below. And what pages that left earlier had when they left counts no more: they
        // may come again as pages never written.
        for (id, entry) in self.seen(first) {
            self.latch_exclusive(id, entry)?;
            if entry.frame().is_none() {
                entry.set_frame(None);
            }
            entry.latch.unlatch_exclusive_unchanged();
        }
        for (frame, descriptor) in self.pool.frames.all() {
            while let Some(id) = descriptor.page().filter(|&id| id >= first) {
                let seen = self.pool.frames.progress();
                let entry = self.entry(id)?;
                self.latch_exclusive(id, entry)?;
                if entry.frame() == Some(frame) && descriptor.writer().is_none() {
                    descriptor.rec_lsn.store(0, SeqCst);
                    descriptor.flushing_rec_lsn.store(0, SeqCst); // Left by the dead.
                    self.pool.take_out(entry, frame);
                    self.pool.frames.give_back(frame);
                    break;
                }
                let is_in_flight = entry.frame() == Some(frame);
                entry.latch.unlatch_exclusive_unchanged();
                self.check_writes()?; // Those that were sent home and not synced stay so when the log has failed.
                if is_in_flight {
                    self.pool.frames.wait_progress(seen, BELL_WAIT_NS);
                }
            }
        }
        Ok(())
    }
}
