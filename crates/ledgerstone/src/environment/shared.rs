//! What a process does behind the scenes when it shares an environment (P1 to P3 in `inner/shares.rs`).

use std::sync::Arc;

use ledgerstone_region::sync;

use super::{background, open, start};
use crate::Error;
use crate::inner::{Inner, Shares};

/// A process that does not lead frees what it has noted after so many looks. The one that leads hears of what was
/// dropped, but not of leaves that have become empty.
const FREE_LOOKS: u32 = 50;
/// One that leads and could not make its keepers tries again after so many looks.
const LEAD_LOOKS: u32 = 50;

impl Inner {
    /// Looks for the dead, and mends what they have left, until the environment is closed or fails (P3).
    pub(super) fn look_for_the_dead(self: &Arc<Inner>, shares: &Shares) {
        let (mut since_freed, mut since_tried) = (0, 0);
        loop {
            if self.engine.is_failed() {
                // Another process may have failed it, and be about to say why. Those who wait here learn of it.
                shares.await_look();
                self.engine.fail(&self.engine.why_failed());
                break;
            }
            // What fails here has failed the environment, or is tried again at the next look.
            let _ = self.mend();
            if shares.take_lead() {
                let _ = self.lead(shares);
            } else if shares.leads() {
                // Those of another process may have lived until now.
                let _ = self.engine.log.start_flusher();
                self.engine.cache.start_writer();
                since_tried += 1;
                if !shares.gives_up() && since_tried >= LEAD_LOOKS {
                    since_tried = 0;
                    let _ = self.lead_keepers(shares);
                }
            }
            self.engine.log.refresh();
            if !shares.leads() && self.to_free.is_due() {
                since_freed += 1;
                if since_freed >= FREE_LOOKS {
                    since_freed = 0;
                    let _ = self.reclaim(&|| !shares.has_ended_looks()); // Tried again, as above.
                }
            }
            if !shares.await_look() {
                break;
            }
        }
        self.stop_leading(shares);
    }

    /// Starts the threads of the one that leads (P1). Those that keep the log come last: a process whose archive is out
    /// of reach leads all the same, and gives no log up (P2).
    ///
    /// # Errors
    /// All thread slots are taken, or a keeper cannot be made.
    pub(super) fn lead(self: &Arc<Inner>, shares: &Shares) -> Result<(), Error> {
        self.bell.start_again();
        let flushes = self.engine.log.start_flusher(); // Tried again at the next look.
        self.engine.cache.start_writer();
        open::allow_readers(&self.engine.cache, &self.effective);
        shares.keep(start(self, "housekeeper", background::keep_house));
        if let period_ms @ 1.. = self.effective.deadlock_period_ms {
            let period_ns = period_ms.saturating_mul(1_000_000);
            shares.keep(start(self, "detector", move |env| background::detect_deadlocks(env, period_ns)));
        }
        self.nudge_reclaim(); // What a death has left over.
        self.lead_keepers(shares)?;
        flushes?;
        Ok(())
    }

    /// Makes the keepers of this process, and lets log be given up.
    fn lead_keepers(self: &Arc<Inner>, shares: &Shares) -> Result<(), Error> {
        self.make_keepers()?;
        for (no, worker) in self.workers.all().iter().enumerate() {
            if let Some(period) = worker.work_period() {
                let period_ns = sync::nanoseconds(period);
                shares.keep(start(self, "keeper", move |env| background::keep_log(env, no, period_ns)));
            }
        }
        shares.may_give_up(true);
        Ok(())
    }

    /// Ends them, and lets another process lead.
    pub(crate) fn stop_leading(&self, shares: &Shares) {
        shares.may_give_up(false);
        self.bell.stop();
        for thread in shares.take_threads() {
            let _ = thread.join(); // A panic has failed the environment.
        }
        self.engine.cache.stop_readers();
        self.engine.cache.stop_writer();
        self.engine.log.stop_flusher();
        if shares.leads() {
            shares.give_up_lead();
        }
    }
}
