//! What keepers are asked and told.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ledgerstone_page::Lsn;
use ledgerstone_txn::run_users_code;

use super::Inner;
use crate::Error;

impl Inner {
    /// Asks the keepers before a checkpoint gives up the log below `low`, and tells them what goes; says below what it
    /// may. Called with the latch of checkpoints held.
    pub(crate) fn may_give_up(&self, low: Lsn) -> Lsn {
        let log = &self.engine.log;
        self.ask_keepers();
        let (start, end) = log.to_give_up(low);
        if start >= end {
            return start; // Not `low`: what a pin holds now may be free in a moment, and nobody was told of it.
        }
        let may_go = run_users_code(&self.engine, || self.keepers.tell(start, end, log.segment_bytes()));
        if may_go { end } else { start }
    }

    /// Announces again what a keeper held on to when a checkpoint announced it, and gives it up if all let go. Costs no
    /// log. What that checkpoint could do without, later ones can, too.
    pub(crate) fn give_up_what_was_held(&self) -> Result<(), Error> {
        if let Some(held) = self.keepers.held_below() {
            let _latched = self.latch_unless_closed()?;
            self.engine.check()?;
            self.keep_lock()?;
            self.engine.log.recycle_before(self.may_give_up(held))?;
        }
        Ok(())
    }

    /// Has each say what it needs now.
    pub(crate) fn ask_keepers(&self) {
        run_users_code(&self.engine, || self.keepers.ask(&self.engine.log));
    }

    /// Has the keepers that work do so, unless they are at it.
    pub(crate) fn work_for_keepers(&self) {
        for no in 0..self.workers.all.len() {
            self.work_for(no);
        }
    }

    /// The same for one of them. A panic of its is its own matter: it is called again.
    pub(crate) fn work_for(&self, no: usize) {
        if let Ok(Some(_latched)) = self.try_latch(&self.workers.latch[no]) {
            // But what it has called of ours may have panicked (P4 in `panicked.rs` of `txn`).
            let work = || self.engine.in_a_call_with_users(|| self.workers.all[no].work());
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
}
