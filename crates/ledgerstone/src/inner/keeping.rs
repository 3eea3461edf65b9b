//! What keepers are asked and told.

use std::panic::{AssertUnwindSafe, catch_unwind};

use std::sync::Arc;

use ledgerstone_log::Beginning;
use ledgerstone_page::Lsn;
use ledgerstone_txn::run_users_code;

use super::{Inner, Shares};
use crate::Error;
use crate::config::Maker;
use crate::keeper::{Owner, kept_log};

impl Inner {
    /// Makes the keepers of the program, if they are not made yet. All log that is there is kept for them, until each
    /// has said what it needs.
    ///
    /// # Errors
    /// What making one says.
    pub(crate) fn make_keepers(&self) -> Result<(), Error> {
        if self.is_read_only || self.workers.all.get().is_some() {
            return Ok(()); // An environment that only reads gives nothing up.
        }
        let state = self.control.state();
        let owner = Owner { environment: state.environment, life: state.life };
        let known = Beginning { lsn: state.scan_lsn, incarnation: state.scan_incarnation };
        let mut all = Vec::new();
        for make in self.workers.makers.iter().map(Maker::make) {
            match make(kept_log(&self.engine.log, owner, known)) {
                Ok(keeper) => {
                    let id = self.keepers.add(&self.engine.log, Arc::clone(&keeper));
                    all.push((id, keeper));
                }
                Err(error) => {
                    all.iter().for_each(|(id, _)| self.keepers.remove(*id)); // They are made again.
                    return Err(error);
                }
            }
        }
        let all = all.into_iter().map(|(_, keeper)| keeper).collect();
        let _ = self.workers.all.set(all); // One thread makes them.
        Ok(())
    }

    /// The same, where no other process may lead.
    ///
    /// # Errors
    /// What making one says.
    pub(crate) fn make_keepers_unless_shared(&self) -> Result<(), Error> {
        if self.sharing.is_some() { Ok(()) } else { self.make_keepers() }
    }

    /// Asks the keepers before a checkpoint gives up the log below `low`, and tells them what goes; says below what it
    /// may. Called with the latch of checkpoints held.
    pub(crate) fn may_give_up(&self, low: Lsn) -> Lsn {
        let log = &self.engine.log;
        let may = self.sharing.as_ref().is_none_or(Shares::gives_up) && self.refresh_positions().is_ok();
        self.ask_keepers();
        let (start, end) = log.to_give_up(low);
        if start >= end || !may {
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
        for no in 0..self.workers.all().len() {
            self.work_for(no);
        }
    }

    /// The same for one of them. A panic of its is its own matter: it is called again.
    pub(crate) fn work_for(&self, no: usize) {
        if let Ok(Some(_latched)) = self.try_latch(&self.workers.latch[no]) {
            // But what it has called of ours may have panicked (P4 in `panicked.rs` of `txn`).
            let work = || self.engine.in_a_call_with_users(|| self.workers.all()[no].work());
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
}
