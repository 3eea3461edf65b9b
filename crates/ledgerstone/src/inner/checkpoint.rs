//! Checkpoints, and what is freed between them.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use ledgerstone_core::base::Latched;
use ledgerstone_core::directory::{LOCK, RESTORE, await_turn, lock_to_share};
use ledgerstone_disk::DiskLock;
use ledgerstone_page::Lsn;

use super::{CLOSED, Checkpoints, Inner};
use crate::Error;

impl Checkpoints {
    /// The opening leaves its checkpoint to the housekeeper. The last one is at `last`.
    pub(crate) fn owe(&self, last: Lsn) {
        self.last.store(last.0, Release);
        self.is_owed.store(true, Relaxed);
    }
}

impl Inner {
    /// Frees what can be freed, with checkpoints in between as the log grows, until `goes_on` says no. Says whether
    /// anything was freed.
    pub(crate) fn reclaim(&self, goes_on: &dyn Fn() -> bool) -> Result<bool, Error> {
        if self.is_read_only {
            return Ok(false);
        }
        self.engine.thread()?;
        self.to_free.make_durable()?; // What is deleted and not durable yet would stay, and be looked at in vain.
        let mut refused = None;
        let mut between = || {
            refused = self.checkpoint_if_due().err();
            refused.is_none() && goes_on()
        };
        let freed = self.to_free.reclaim_in_turns(&mut between).map_err(|error| self.say_failed(error.into()));
        match refused {
            Some(error) => Err(error),
            None => freed,
        }
    }

    /// Takes the checkpoint that the opening has left, unless one was taken since. Where it finds no space, it leaves
    /// that to those that are due as the log grows, or when somebody lacks space.
    pub(crate) fn checkpoint_of_opening(&self) -> Result<(), Error> {
        if !self.checkpoints.is_owed.load(Relaxed) {
            return Ok(());
        }
        let taken = self.checkpoint();
        if matches!(taken, Err(Error::ReadOnly { .. })) {
            self.checkpoints.is_owed.store(false, Relaxed);
        }
        taken.map(drop)
    }

    /// Takes a checkpoint if there is as much log since the last one as the settings say.
    pub(crate) fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.log_since_checkpoint() >= self.effective.checkpoint_log_bytes {
            self.checkpoint()?;
        }
        Ok(())
    }

    pub(crate) fn log_since_checkpoint(&self) -> u64 {
        self.engine.log.tail().0.saturating_sub(self.checkpoints.last.load(Acquire))
    }

    /// Takes a checkpoint, unless the environment is closed or about to be.
    pub(crate) fn checkpoint(&self) -> Result<Lsn, Error> {
        self.check_writable()?;
        let latched = self.latch_unless_closed()?;
        self.take_checkpoint(latched, false)
    }

    /// The last one, of a close.
    pub(crate) fn checkpoint_of_close(&self, is_clean: bool) -> Result<Lsn, Error> {
        let latched = self.latch_checkpoints()?;
        self.take_checkpoint(latched, is_clean)
    }

    /// The latch of checkpoints. Nothing is written behind the checkpoint of a close: the next open would have to
    /// recover.
    pub(crate) fn latch_unless_closed(&self) -> Result<Latched<'_>, Error> {
        let latched = self.latch_checkpoints()?;
        if self.is_closed() {
            return Err(Error::Failed { why: CLOSED.into() });
        }
        Ok(latched)
    }

    pub(super) fn latch_checkpoints(&self) -> Result<Latched<'_>, Error> {
        self.engine.thread()?;
        self.space.await_finished_cut(); // A repair of this thread's may keep the latch.
        self.latch(&self.checkpoint_latch[0])
    }

    fn take_checkpoint(&self, latched: Latched<'_>, is_clean: bool) -> Result<Lsn, Error> {
        self.engine.check()?; // It may have been closed, and be another's.
        self.keep_lock()?;
        let taken = ledgerstone_recovery::checkpoint_keeping(&self.engine, &self.control, is_clean, &|low| {
            self.may_give_up(low)
        });
        if let Ok(taken) = &taken {
            self.checkpoints.last.store(taken.lsn.0, Release);
            self.checkpoints.count.fetch_add(1, Relaxed);
            self.checkpoints.is_owed.store(false, Relaxed);
        }
        let ended = if taken.is_ok() { self.end_restore() } else { Ok(()) };
        drop(latched);
        let taken = taken.map_err(|error| {
            if !error.is_no_space() {
                self.engine.fail(&format!("checkpoint: {error}"));
            }
            self.say_failed(error.into())
        })?;
        ended.map(|()| taken.lsn)
    }

    /// Takes the lock again if somebody has removed or replaced its file. If that has let another in, the environment
    /// fails: also if the other is gone, since what it has committed would be written over. Called with the latch of
    /// checkpoints held.
    pub(super) fn keep_lock(&self) -> Result<(), Error> {
        // `None`: closed or failed meanwhile, and nothing is written.
        self.fence.with_lock(|held| self.keep(held)).unwrap_or(Ok(()))
    }

    fn keep(&self, held: &mut Box<dyn DiskLock>) -> Result<(), Error> {
        let mut kept = Ok(());
        if held.is_in_place().is_ok_and(|is_in_place| !is_in_place) {
            match self.lock_again() {
                Ok(again) => {
                    *held = again;
                    if !matches!(self.control.is_as_we_left_it(), Ok(true)) {
                        self.engine
                            .fail("its lock file was replaced, and another process may have changed the environment");
                        kept = Err(Error::Failed { why: self.engine.why_failed() });
                    }
                }
                Err(error) => {
                    self.engine.fail("its lock file was replaced, and another process has the environment open");
                    kept = Err(error);
                }
            }
        }
        kept
    }

    /// Of those that share the environment, each has `sharing` locked, not `lock`. Nobody comes in between.
    fn lock_again(&self) -> Result<Box<dyn DiskLock>, Error> {
        if self.sharing.is_none() {
            return Ok(self.disk.lock(LOCK)?);
        }
        // The last one, which closes, has its turn already.
        let _turn = if self.is_closed() { None } else { Some(await_turn(&self.disk)?) };
        lock_to_share(&self.disk)
    }

    /// The log has a checkpoint of this life now: a control file that is made anew from it is of this life, too. What
    /// fails here is tried again by the next checkpoint, which has the latch as this one has.
    fn end_restore(&self) -> Result<(), Error> {
        if self.checkpoints.is_restored.load(Relaxed) {
            if self.disk.exists(RESTORE)? {
                self.disk.remove(RESTORE)?;
            }
            self.disk.sync_dir("")?;
            self.checkpoints.is_restored.store(false, Relaxed);
        }
        Ok(())
    }
}
