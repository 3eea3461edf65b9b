//! The losers of a restart that are rolled back while the environment is in use, and how far that is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ledgerstone_disk::quoted;
use ledgerstone_log::Watch;
use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_recovery::Adopted;
use ledgerstone_region::{Mutex, NumberSet, atomic::AtomicU32, sync};
use ledgerstone_txn::TxnError;

use super::Inner;
use crate::Error;

/// How often somebody who waits for the end is told how far it is.
const TELL_NS: u64 = 100_000_000;

/// How often a thread that found no thread slot looks for one.
const SLOT_LOOK_NS: u64 = 10_000_000;

/// A transaction that was open when the process was killed or the power failed, and is rolled back since the restart.
/// Its tables are locked until it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollingBack {
    /// Its id in this environment.
    pub xid: Xid,
    /// The tables that it changed, by the names that they had at the restart.
    pub tables: Vec<String>,
    /// Its first record. The log from here on is kept until it is rolled back.
    pub first_lsn: Lsn,
    /// Changes to take back since the restart.
    pub change_count: u64,
    /// Changes taken back of these.
    pub undone_count: u64,
}

/// How far the rollbacks are that a restart has left to be done in the background.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollbackProgress {
    /// Transactions that are still being rolled back.
    pub transaction_count: u64,
    /// Changes that all of them had to take back when the environment was opened, those of ended ones included.
    pub change_count: u64,
    /// Changes taken back of these.
    pub undone_count: u64,
}

/// A loser that is rolled back after the opening.
pub(crate) struct PutOff {
    pub loser: Adopted,
    /// The names of its tables.
    pub tables: Vec<String>,
    /// What it has locked: these tables, and their indexes.
    pub locked: NumberSet<TableId>,
}

/// All of them. Made by the opening, and emptied by a thread of its own.
#[derive(Default)]
pub(crate) struct Rollbacks {
    all: Vec<Rollback>,
    /// Those that have not begun.
    waiting: Mutex<Vec<(usize, Adopted)>>,
    /// Stopped when the environment is closed.
    watch: Watch,
    /// Not 0 when the thread does no more, whatever has ended it.
    is_over: AtomicU32,
}

struct Rollback {
    xid: Xid,
    tables: Vec<String>,
    locked: NumberSet<TableId>,
    first_lsn: Lsn,
    change_count: u64,
    undone_count: AtomicU64,
    has_ended: AtomicBool,
}

impl Rollbacks {
    /// What a restart has put off, in the order in which it is to be done.
    pub(crate) fn of(put_off: Vec<PutOff>) -> Rollbacks {
        let is_over = AtomicU32::new(u32::from(put_off.is_empty()));
        let (mut all, mut waiting) = (Vec::new(), Vec::new());
        for (no, PutOff { loser, tables, locked }) in put_off.into_iter().enumerate() {
            let found = loser.loser();
            all.push(Rollback {
                xid: loser.xid(),
                tables,
                locked,
                first_lsn: found.first,
                change_count: found.to_undo.update_count.saturating_sub(found.to_undo.undone_count),
                undone_count: AtomicU64::new(0),
                has_ended: AtomicBool::new(false),
            });
            waiting.push((no, loser));
        }
        Rollbacks { all, waiting: Mutex::new(waiting), watch: Watch::default(), is_over }
    }

    /// How many the opening has left.
    pub(crate) fn put_off_count(&self) -> u64 {
        self.all.len() as u64
    }

    /// Has the thread end soon, and leave what it has not done to the next restart.
    pub(crate) fn stop(&self) {
        self.watch.stop();
    }

    fn end(&self) {
        self.is_over.store(1, Release);
        sync::futex_wake(&self.is_over, u32::MAX);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Acquire) != 0
    }

    fn running(&self) -> impl Iterator<Item = &Rollback> {
        self.all.iter().filter(|one| !one.has_ended.load(Acquire))
    }

    pub(crate) fn list(&self) -> Vec<RollingBack> {
        self.running().map(Rollback::tell).collect()
    }

    pub(crate) fn progress(&self) -> RollbackProgress {
        let mut sum = RollbackProgress::default();
        for one in &self.all {
            let has_ended = one.has_ended.load(Acquire);
            sum.transaction_count += u64::from(!has_ended);
            sum.change_count += one.change_count;
            sum.undone_count += if has_ended { one.change_count } else { one.undone_count() };
        }
        sum
    }

    /// The transaction that keeps others from this table, if it is one of these.
    pub(crate) fn holder_of(&self, table: TableId) -> Option<Xid> {
        self.running().find(|one| one.locked.contains(table)).map(|one| one.xid)
    }

    /// What a call that was refused a lock is told of those who hold it.
    #[cold]
    pub(crate) fn told_of(&self, holders: &[Xid]) -> Option<String> {
        let one = self.running().find(|one| holders.contains(&one.xid))?;
        let (undone, all) = (one.undone_count(), one.change_count);
        let tables: Vec<String> = one.tables.iter().map(|name| quoted(name).to_string()).collect();
        Some(format!(
            "transaction {} was interrupted, and is being rolled back since the restart ({undone} of {all} changes); \
             until then it keeps locked: {}",
            one.xid,
            tables.join(", ")
        ))
    }
}

impl Rollback {
    /// A restart may meet more to undo than the analysis has counted; then the last part is not shown.
    fn undone_count(&self) -> u64 {
        self.undone_count.load(Relaxed).min(self.change_count)
    }

    fn tell(&self) -> RollingBack {
        RollingBack {
            xid: self.xid,
            tables: self.tables.clone(),
            first_lsn: self.first_lsn,
            change_count: self.change_count,
            undone_count: self.undone_count(),
        }
    }
}

/// Says that the thread does no more, however it ends.
struct Over<'r>(&'r Rollbacks);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Inner {
    /// Rolls back what the opening has put off, one transaction after the other. An error fails the environment.
    pub(crate) fn roll_back_put_off(&self) {
        let rollbacks = &self.rollbacks;
        let over = Over(rollbacks);
        let waiting = std::mem::take(&mut *rollbacks.waiting.lock());
        let mut goes_on = self.waits_for_slot() && self.waits_for_redo();
        for (no, loser) in waiting {
            if !goes_on || rollbacks.watch.check().is_err() {
                loser.leave();
                continue;
            }
            let one = &rollbacks.all[no];
            let undone =
                ledgerstone_recovery::undo_later(&self.engine, loser, &self.disk, &rollbacks.watch, &one.undone_count);
            goes_on = matches!(undone, Ok(true));
            one.has_ended.store(goes_on, Release);
        }
        drop(over);
    }

    /// Waits until all pages have their changes: others want those first, and find them sooner alone. False if the
    /// thread is to end first.
    fn waits_for_redo(&self) -> bool {
        while self.engine.cache.has_pending() {
            if self.rollbacks.watch.check().is_err() || self.engine.is_failed() {
                return false;
            }
            self.engine.cache.wait_redone_within(TELL_NS);
        }
        true
    }

    /// Waits until there is a thread slot for this thread. It has had one since before the open returned, unless all
    /// were taken by then. False if the thread is to end first.
    fn waits_for_slot(&self) -> bool {
        loop {
            match self.engine.thread() {
                Ok(_) => return true,
                Err(TxnError::TooManyThreads { .. }) if !self.engine.is_failed() => {}
                Err(_) => return false,
            }
            if self.rollbacks.watch.check().is_err() {
                return false;
            }
            sync::sleep_ns(SLOT_LOOK_NS);
        }
    }

    /// Waits until all of that is done, and all is repeated that the opening has left (O10 in `open/mod.rs`). Asks
    /// `see` now and then whether to go on.
    pub(crate) fn wait_rolled_back(
        &self,
        mut see: impl FnMut(RollbackProgress) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let rollbacks = &self.rollbacks;
        loop {
            self.engine.check()?;
            let is_over = rollbacks.is_over(); // First: the last one has ended before.
            let progress = rollbacks.progress();
            let are_rolled_back = progress.transaction_count == 0;
            if are_rolled_back && !self.engine.cache.has_pending() {
                return Ok(());
            }
            if is_over && !are_rolled_back {
                return Err(Error::Failed { why: super::CLOSED.into() });
            }
            see(progress)?;
            if are_rolled_back {
                self.engine.cache.wait_redone_within(TELL_NS);
            } else {
                sync::futex_wait(&rollbacks.is_over, 0, Some(TELL_NS));
            }
        }
    }
}
