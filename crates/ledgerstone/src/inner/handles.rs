//! Who keeps an environment open, and its close.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_region::{Mutex, sync};

use super::Inner;
use crate::Error;

/// Held once by all clones of a handle, and by each running transaction: when the last goes, the environment is closed. Background threads, tables
/// and iterators hold [`Inner`] only.
pub(crate) struct Handles {
    pub(crate) env: Arc<Inner>,
    pub(crate) threads: Mutex<Vec<sync::JoinHandle<()>>>,
}

impl Handles {
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        if self.env.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        self.env.bell.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        let mut result = Ok(());
        for thread in threads {
            if thread.join().is_err() {
                result = Err(Error::Panicked("housekeeper"));
            }
        }
        self.env.engine.cache.stop_writer();
        if let Err(error) = self.env.engine.check() {
            // Nothing can be written any more; what was acknowledged as durable is, and the next open recovers.
            result = result.and(Err(error.into()));
        } else if !self.env.is_read_only && result.is_ok() {
            let is_clean = self.env.engine.table.active_count() == 0;
            self.env.work_for_keepers();
            result = self.env.checkpoint(is_clean).map(|_| ());
        }
        self.env.engine.log.stop_flusher();
        self.env.engine.clear_undos();
        // Tables and iterators that outlive this handle touch nothing any more; others may open the environment.
        self.env.engine.fail("the environment was closed");
        self.env.in_doubt.clear();
        // A checkpoint of another thread may be writing, and has the lock in its hands while it looks at it.
        let latched = self.env.latch(&self.env.checkpoint_latch[0]);
        self.env.lock.lock().take();
        drop(latched);
        result
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        if self.env.engine.is_inherited() {
            // Everything below is kept for good: the threads are not here, and what the files are believed to hold is the
            // parent's. The parent's lock is not ours since the fork (`held.rs` of the disk).
            std::mem::forget(Arc::clone(&self.env));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        // Whatever fails here is found and mended by the next open.
        let _ = self.shut_down();
    }
}
