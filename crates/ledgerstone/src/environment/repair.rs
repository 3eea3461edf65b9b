//! What an environment does about a process that has died, or a thread that has panicked with something in its hands.
//!
//! The latches of this layer that the dead held are taken over and given back, since what they guard may stay as it is:
//! * of checkpoints. A checkpoint that the control file does not name is none, and the log is given up only behind one
//!   that it names. The file says the old or the new at each moment, and the next change of it writes both slots. Only
//!   if the dead cut the data file, the latch is kept until a thread has finished the cut (G3 in `space/repair.rs`).
//! * of compactions. Each step is a transaction, which ends as all of the dead do. The next compaction begins again.
//! * of the keepers that work. One that is asked again goes on where its own files say.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ledgerstone_page::Lsn;
use ledgerstone_region::{Dead, Latch, Repair, SlotNo, as_another_thread, sync};
use ledgerstone_txn::{OrphanInDoubt, PANICKED};

use crate::Error;
#[cfg(feature = "deaths")]
use crate::environment::Environment;
use crate::inner::{Inner, Waiting};

#[cfg(feature = "deaths")]
impl Environment {
    /// Mends what processes have left that are known to have died. True if anybody had died: then some thread of this
    /// process calls [`Environment::end_orphans`]. The caller holds nothing.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// The thread has no slot.
    #[doc(hidden)]
    pub fn repair_after_deaths(&self) -> Result<bool, Error> {
        self.inner().repair()
    }

    /// Ends the transactions of the dead after whom this process has repaired. Those in doubt wait for a decision here.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// What a rollback may meet. The environment has failed then.
    #[doc(hidden)]
    pub fn end_orphans(&self) -> Result<(), Error> {
        self.inner().end_orphans()
    }

    /// Ends what repairs of this process have left, if there is anything, before it closes: while it lives, nobody else
    /// does so. An error has failed the environment, which the close finds.
    pub(super) fn end_orphans_before_close(&self) {
        let env = self.inner();
        if env.engine.has_orphans() || env.space.is_half_cut() {
            let _ = self.end_orphans();
        }
        env.engine.await_orphans_ended();
    }
}

impl Inner {
    /// Has a thread that panics with something in its hands mended after, by another one, while it waits.
    pub(crate) fn mend_after_panics(self: &Arc<Inner>) {
        let env = Arc::downgrade(self);
        self.engine.slots.after_panics(move || {
            let Some(env) = env.upgrade() else { return };
            env.engine.fail(PANICKED);
            let own = Arc::clone(&env);
            // Whatever goes wrong here, all are told so who do not wait for what was held.
            match sync::try_spawn("mends after a panic", move || own.give_back_of_the_lost()) {
                Ok(thread) => drop(thread.join()),
                Err(_) => {
                    let mend = || as_another_thread(|| env.give_back_of_the_lost());
                    let _ = catch_unwind(AssertUnwindSafe(mend));
                }
            }
        });
    }

    fn give_back_of_the_lost(&self) {
        // T6 in `slot.rs` of `region`.
        if self.engine.slots.current_to_mend().is_ok() && self.repair().is_ok() {
            let _ = self.finish_cut(); // It fails, as all does, and gives the latches back.
        }
    }

    /// Mends what processes have left that have died since, if any has.
    pub(crate) fn mend(&self) -> Result<(), Error> {
        if self.repair()? || self.engine.has_orphans() {
            self.end_orphans()?;
        }
        Ok(())
    }

    fn end_orphans(&self) -> Result<(), Error> {
        self.finish_cut()?;
        self.engine.end_orphans(|found| self.await_decision(found))?;
        if let Some(shares) = &self.sharing {
            let members = &shares.among.members;
            self.positions.read_again();
            self.news.forget_dead(|no| members.pid(no).is_some() && !members.is_dead(no));
        }
        self.nudge_reclaim(); // They may have dropped tables, and have told nobody.
        Ok(())
    }

    fn repair(&self) -> Result<bool, Error> {
        let me = self.engine.thread()?;
        let also = |dead: &Dead<'_>| {
            self.space.repair(dead)?;
            self.give_back_latches(dead, me);
            Ok(())
        };
        Ok(ledgerstone_recovery::repair(&self.engine, also)?)
    }

    fn finish_cut(&self) -> Result<(), Error> {
        Ok(self.space.finish_cut(|| self.checkpoint_latch[0].unlatch_exclusive())?)
    }

    fn give_back_latches(&self, dead: &Dead<'_>, me: SlotNo) {
        let may_give_back = || {
            sync::yield_point("latch of checkpoints taken over");
            self.space.may_give_checkpoints_back()
        };
        take_over(&self.checkpoint_latch[0], dead, me, may_give_back);
        for latch in self.compact_latch.iter().chain(self.workers.latch.iter()) {
            take_over(latch, dead, me, || true);
        }
    }

    fn await_decision(&self, OrphanInDoubt { record, txn }: OrphanInDoubt) {
        let mut lock_count = 0;
        self.engine.locks.for_each_held(txn.owner(), &mut |_, _| lock_count += 1);
        let id = record.global_id.clone();
        let (lsn, first): (Lsn, Lsn) = (txn.last_lsn(), txn.first_lsn());
        if let Err(twice) = self.in_doubt.reserve(&id) {
            self.engine.fail(&format!("a transaction of a process that died: {twice}"));
        }
        self.in_doubt.put(&id, Box::new(Waiting { txn, lsn, first, lock_count }));
    }
}

/// `may_give_back` is asked when the latch is taken over.
fn take_over(latch: &Latch, dead: &Dead<'_>, me: SlotNo, may_give_back: impl FnOnce() -> bool) {
    if let Some(owner) = latch.owner()
        && dead.has(owner)
        && latch.take_over(owner, me)
        && may_give_back()
    {
        latch.unlatch_exclusive();
    }
}
