//! Pages that were filled and left behind, as a load leaves its leaves: they go home while the load goes on.
//!
//! ```text
//! left behind ──► the list ──► so many: the page writer is called ──► batches in the order of ids, one sync for many
//! ```
//! L1. A page in the list is a hint and no more: it may be clean by then, latched, or full of new changes. What is left
//!     out stays dirty, and the next checkpoint writes it.
//! L2. The list is bounded. While the writer cannot keep up, pages are left to the checkpoint.
//! L3. The writer holds no write between its rounds: each ends with a sync (F4). So a checkpoint that meets a page in
//!     flight waits for one round at most.

use crate::cache::Cache;
use crate::error::BufferError;
use crate::frame_no::FrameNo;
use ledgerstone_page::PageId;
use ledgerstone_region::Mutex;

/// Batches that are worth a call of the writer, and a sync; but no more than an eighth of the frames.
const CALL_BATCHES: usize = 4;
/// The list holds so many times what is worth a call, at most (L2).
const LIST_CALLS: usize = 16;

/// The list. The mutex is held for a push, or to take all.
#[derive(Default)]
pub(crate) struct Behind(Mutex<Vec<PageId>>);

#[cfg(test)]
impl Behind {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Cache {
    /// Says that a page which was changed will hardly be changed again soon. Never waits for the device.
    pub fn leave_behind(&self, id: PageId) {
        let call_pages = self.call_pages();
        let count = {
            let mut list = self.behind.0.lock();
            if list.len() < LIST_CALLS * call_pages {
                list.push(id);
            }
            list.len()
        };
        if count.is_multiple_of(call_pages) {
            self.call_writer();
        }
    }

    fn call_pages(&self) -> usize {
        let part = self.frame_count() as usize / 8;
        part.min(CALL_BATCHES * self.double_write.batch_pages())
    }

    /// Writes pages that were left behind, if there are enough of them. Says whether there were.
    pub(crate) fn write_behind(&self) -> Result<bool, BufferError> {
        let ids = {
            let mut list = self.behind.0.lock();
            if list.len() < self.call_pages() {
                return Ok(false);
            }
            std::mem::take(&mut *list)
        };
        let frame_of = |id: PageId| Some((id, self.entry_there(id)?.frame()?));
        let frames: Vec<(PageId, FrameNo)> = ids.into_iter().filter_map(frame_of).collect();
        self.write_back_left(frames)?;
        Ok(true)
    }
}
