//! Undo: the losers rolled back, as their programs could have done themselves.
//!
//! U1. First, for every loser, the updates of its open nested top actions are undone on their pages. Only then are the
//!     structures whole, and only then may a logical undo walk through them (design 6).
//! U2. Then all losers are read together, newest record first. Their updates are gathered in windows, and undone place
//!     by place, those of one place newest first. Trees say where their places are (`LogicalUndo::place`), pages may be
//!     places of their own (`Operation::is_undone_by_page`), and all other updates have one place together, which keeps
//!     them in order.
//! U3. Whatever is undone leaves compensation records, so that a crash in here costs nothing but time. They
//!     name what they undo (B3 in `txn/rollback.rs`). The next restart meets them first, remembers what they name, and
//!     passes it over. The last one of a transaction in a window says instead how far that is undone, so that the next
//!     restart remembers no more than one window. But not while something is remembered that has not been met: it lies
//!     further back, and the record would hide what names it. That happens when a window is smaller than an earlier
//!     restart's, for want of space for its file.
//! U4. Prepared transactions are taken over before that, with their locks: no checkpoint may pass them, and nobody may
//!     begin before them.
//! U5. A loser may be undone later, when the environment is open (`later.rs` of the transactions' crate). All its
//!     updates are of trees then, in which every update has a place of its own, and nobody else uses these trees
//!     meanwhile. So U1 is done before, for all losers, and everything else is as above: the records of others between
//!     its own are in other chains. Each is undone by itself, with windows of its own, so that its trees can be used
//!     as soon as it has ended. What it has undone when it is stopped is remembered by U3.

use ledgerstone_region::ByNumber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ledgerstone_disk::Disk;
use ledgerstone_lock::LockName;
use ledgerstone_log::{Backwards, LogError, Watch};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_txn::{Engine, Step, Txn};

use crate::RecoveryError;
use crate::analysis::{InDoubt, Loser};
use crate::lsn_set::LsnSet;
use crate::undo_window::Window;

/// Takes the prepared transactions over, each with its locks (U4).
///
/// # Errors
/// No slot for one of them.
pub fn keep_prepared(
    engine: &Arc<Engine>,
    in_doubt: &ByNumber<Xid, InDoubt>,
) -> Result<Vec<(InDoubt, Txn)>, RecoveryError> {
    let keep = |(xid, found): (Xid, &InDoubt)| {
        let txn = engine.adopt_prepared(xid, found.first, found.last, &found.record)?;
        Ok((found.clone(), txn))
    };
    in_doubt.iter().map(keep).collect()
}

/// A loser that was taken over from the log.
pub struct Adopted {
    txn: Txn,
    loser: Loser,
}

impl Adopted {
    /// Its id.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.txn.xid()
    }

    /// What the log says of it.
    #[must_use]
    pub fn loser(&self) -> &Loser {
        &self.loser
    }

    /// Has it keep its trees for itself until it is undone, by exclusive locks of these names (U5). `false` if one of
    /// them cannot be had. Waits for nothing.
    #[must_use]
    pub fn keep_for_later(&mut self, locks: &[LockName]) -> bool {
        let Some(roots) = self.loser.to_undo.trees() else { return false };
        self.txn.keep_for_later(locks, &roots, self.loser.to_undo.undo_bytes)
    }

    /// Leaves it to the next restart. To be called when the environment is about to be closed.
    pub fn leave(self) {
        self.txn.leave();
    }
}

/// Takes the losers over, and makes the structures whole (U1).
///
/// # Errors
/// No slot for one of them. The log or a page cannot be read or written.
pub fn adopt(engine: &Arc<Engine>, losers: &ByNumber<Xid, Loser>) -> Result<Vec<Adopted>, RecoveryError> {
    let mut all = Vec::new();
    for (xid, loser) in losers {
        let mut txn = engine.adopt(xid, loser.first, loser.last)?;
        txn.begin_undo();
        if let Some(&outermost) = loser.open_nested.first() {
            txn.undo_back_to(outermost)?;
            txn.release_claim();
        }
        all.push(Adopted { txn, loser: loser.clone() });
    }
    Ok(all)
}

/// Rolls losers back and ends them. Returns how many records were visited. If a large loser does not fit into memory,
/// its undo is sorted in a temporary file on `disk`. Without space for that file, the rollback takes longer.
///
/// `watch` shows how much of [`bytes_to_undo`] is done, window by window. It may also stop the rollback. A later
/// restart then goes on from there.
///
/// # Errors
/// The log or a page cannot be read or written. An undo is missing or refuses. The temporary file cannot be read back.
/// It was stopped.
pub fn undo(
    engine: &Arc<Engine>,
    losers: Vec<Adopted>,
    disk: &Arc<dyn Disk>,
    watch: &Watch,
) -> Result<u64, RecoveryError> {
    let window = window_for(engine, disk, &losers);
    Undo::of(engine, losers, window, watch, &AtomicU64::new(0)).run()
}

/// Rolls one loser back and ends it, beside other transactions (U5). It was kept by [`Adopted::keep_for_later`].
/// `undone_count` is raised with each update that is undone. Returns false if `watch` has stopped it: then it is left
/// as it is, to the next restart.
///
/// # Errors
/// As [`undo`]. The environment has failed then.
pub fn undo_later(
    engine: &Arc<Engine>,
    loser: Adopted,
    disk: &Arc<dyn Disk>,
    watch: &Watch,
    undone_count: &AtomicU64,
) -> Result<bool, RecoveryError> {
    let (xid, losers) = (loser.xid(), vec![loser]);
    let window = window_for(engine, disk, &losers);
    let mut undo = Undo::of(engine, losers, window, watch, undone_count);
    match undo.run() {
        Err(RecoveryError::Log(LogError::Stopped)) => {
            undo.txns.into_iter().filter_map(|one| one.txn).for_each(Txn::leave);
            Ok(false)
        }
        Err(error) => {
            engine.fail(&format!("the rollback of transaction {xid}, which a restart had found open, failed: {error}"));
            Err(error)
        }
        Ok(_) => Ok(true),
    }
}

/// Bytes of the log between the oldest and the newest record of the losers, which [`undo`] reads backwards.
#[must_use]
pub fn bytes_to_undo(losers: &[Adopted]) -> u64 {
    high_of(losers).0.saturating_sub(low_of(losers).0)
}

fn high_of(losers: &[Adopted]) -> Lsn {
    losers.iter().map(|one| one.loser.last).max().unwrap_or(Lsn(0))
}

/// Where the oldest begins; above all if there is none.
fn low_of(losers: &[Adopted]) -> Lsn {
    losers.iter().map(|one| one.loser.first).min().unwrap_or(Lsn(u64::MAX))
}

fn window_for(engine: &Arc<Engine>, disk: &Arc<dyn Disk>, losers: &[Adopted]) -> Window {
    planted::begin_windows();
    let tail = engine.log.tail();
    Window::for_log(disk, tail.0.saturating_sub(low_of(losers).min(tail).0))
}

pub(crate) struct Undo<'e> {
    engine: &'e Arc<Engine>,
    txns: Vec<Undoing>,
    /// Who has a record to look at, by the newest one.
    open: ByNumber<Lsn, u32>,
    /// Records that were undone out of their order by an earlier restart and not met yet (U3).
    undone: LsnSet,
    window: Window,
    watch: &'e Watch,
    /// Updates undone.
    undone_count: &'e AtomicU64,
    low: Lsn,
    high: Lsn,
}

struct Undoing {
    /// None when it has ended.
    txn: Option<Txn>,
    /// What it passes over ([`Loser::group_runs`]).
    group_runs: ByNumber<Lsn, Lsn>,
    /// How many updates of it the window has.
    in_window_count: u64,
    /// The next record to look at; none if there is none.
    goes_on_at: Lsn,
}

impl<'e> Undo<'e> {
    pub(crate) fn of(
        engine: &'e Arc<Engine>,
        losers: Vec<Adopted>,
        window: Window,
        watch: &'e Watch,
        undone_count: &'e AtomicU64,
    ) -> Undo<'e> {
        let (low, high) = (low_of(&losers).min(engine.log.tail()), high_of(&losers));
        let (mut txns, mut open) = (Vec::new(), ByNumber::new());
        for (no, Adopted { txn, loser }) in (0..).zip(losers) {
            open.insert(txn.last_lsn(), no);
            let group_runs = loser.group_runs;
            txns.push(Undoing { txn: Some(txn), group_runs, in_window_count: 0, goes_on_at: Lsn(0) });
        }
        Undo { engine, txns, open, undone: LsnSet::default(), window, watch, undone_count, low, high }
    }

    pub(crate) fn run(&mut self) -> Result<u64, RecoveryError> {
        let back = &mut Backwards::new(&self.engine.log, self.low, u64::MAX); // Together they want most of it.
        let mut visited_count = 0;
        while let Some((lsn, who)) = self.open.pop_last() {
            visited_count += 1;
            self.watch.check()?;
            let Some(txn) = &self.txns[who as usize].txn else { continue };
            let (step, next) = txn.look_at(back, lsn)?;
            match step {
                Step::Undid(_) if planted::is_on(Bug::UndoneTwice) => {}
                Step::Undid(undone) => self.undone.insert(undone),
                Step::Undo { op, page, place } if !self.undone.remove(lsn) => {
                    self.window.push(who, lsn, op, page, place);
                    self.txns[who as usize].in_window_count += 1;
                }
                Step::Undo { .. } | Step::Pass => {}
            }
            let one = &mut self.txns[who as usize];
            let next = one.group_runs.get(lsn).copied().unwrap_or(next);
            one.goes_on_at = next;
            if next != Lsn(0) {
                self.open.insert(next, who);
            } else if one.in_window_count == 0
                && let Some(txn) = one.txn.take()
            {
                txn.end_loser()?;
            }
            if self.window.is_full() {
                self.undo_window()?;
                self.watch.set(Lsn(self.high.0.saturating_sub(lsn.0)));
            }
        }
        self.undo_window()?;
        Ok(visited_count)
    }

    /// Undoes what has been gathered.
    fn undo_window(&mut self) -> Result<(), RecoveryError> {
        let may_say = self.undone.is_empty(); // U3
        let (txns, watch, undone_count) = (&mut self.txns, self.watch, self.undone_count);
        self.window.drain(self.engine, &mut |update, args| {
            watch.check()?;
            let one = &mut txns[update.who as usize];
            let Some(txn) = &mut one.txn else { return Ok(()) };
            one.in_window_count -= 1;
            let is_last = one.in_window_count == 0;
            let goes_on_at = (is_last && may_say).then_some(one.goes_on_at);
            txn.undo_in_place(update.lsn, (update.op, update.page), args, goes_on_at)?;
            txn.release_claim(); // Nobody may wait for room while many hold some that they do not need.
            undone_count.fetch_add(1, Relaxed);
            if is_last
                && one.goes_on_at == Lsn(0)
                && let Some(txn) = one.txn.take()
            {
                txn.end_loser()?;
            }
            Ok(())
        })
    }
}
