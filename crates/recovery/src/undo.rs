//! Undo: the losers rolled back, as their programs could have done themselves.
//!
//! U1. First, for every loser, the updates of its open nested top actions are undone on their pages. Only then are the
//!     structures whole, and only then may a logical undo walk through them (design 6).
//! U2. Then all losers are undone together, newest record first; updates whose operations give them a place
//!     (`LogicalUndo::place`) are gathered on the way and undone place by place, those of one place newest first. Before an update
//!     without a place is undone, all that have been gathered are.
//! U3. Whatever is undone leaves compensation records, so that a crash in here costs nothing but time. Those of gathered updates
//!     name what they undo (B3 in `txn/rollback.rs`). The next restart meets them first, remembers what they name, and passes it
//!     over. A window of gathered updates ends with a record of every transaction it was of, which says how far that is undone, so
//!     that the next restart remembers no more than one window. But not while something is remembered that has not been met: it
//!     lies further back, and the record would hide what names it. That happens when a window is smaller than an earlier
//!     restart's, for want of space for its file.
//! U4. Prepared transactions are taken over before that, with their locks: no checkpoint may pass them, and nobody may begin
//!     before them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_log::Backwards;
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
/// No slot for one of them, or no space for its rollback.
pub fn keep_prepared(
    engine: &Arc<Engine>,
    in_doubt: &BTreeMap<Xid, InDoubt>,
) -> Result<Vec<(InDoubt, Txn)>, RecoveryError> {
    let keep = |(&xid, found): (&Xid, &InDoubt)| {
        let txn = engine.adopt_prepared(xid, found.first, found.last, &found.record)?;
        Ok((found.clone(), txn))
    };
    in_doubt.iter().map(keep).collect()
}

/// Rolls all losers back and ends them. Returns how many records were visited. What memory does not hold of a large loser is
/// sorted in a temporary file on `disk`; without space for it, it takes longer.
///
/// # Errors
/// The log or a page cannot be read or written; an undo is missing or refuses; the temporary file cannot be read back.
pub fn undo(engine: &Arc<Engine>, losers: &BTreeMap<Xid, Loser>, disk: &Arc<dyn Disk>) -> Result<u64, RecoveryError> {
    let tail = engine.log.tail();
    let low = losers.values().map(|loser| loser.first).min().unwrap_or(tail);
    let window = Window::for_log(disk, tail.0.saturating_sub(low.0));
    let mut all = Undo { engine, txns: Vec::new(), open: BTreeMap::new(), undone: LsnSet::default(), window };
    for (no, (&xid, loser)) in (0..).zip(losers) {
        let mut txn = engine.adopt(xid, loser.first, loser.last)?;
        txn.begin_undo();
        if let Some(&outermost) = loser.open_nested.first() {
            txn.undo_back_to(outermost)?; // U1
            txn.release_claim();
        }
        all.open.insert(txn.last_lsn(), no);
        all.txns.push(Undoing { txn: Some(txn), is_in_window: false, goes_on_at: Lsn(0) });
    }
    all.run(&mut Backwards::new(&engine.log, low, u64::MAX)) // Together they want most of it.
}

struct Undo<'e> {
    engine: &'e Arc<Engine>,
    txns: Vec<Undoing>,
    /// Who has a record to look at, by the newest one.
    open: BTreeMap<Lsn, u32>,
    /// Records that were undone out of their order by an earlier restart and not met yet (U3).
    undone: LsnSet,
    window: Window,
}

struct Undoing {
    /// None when it has ended.
    txn: Option<Txn>,
    /// The window has updates of it.
    is_in_window: bool,
    /// The next record to look at; none if there is none.
    goes_on_at: Lsn,
}

impl Undo<'_> {
    fn run(mut self, back: &mut Backwards) -> Result<u64, RecoveryError> {
        let mut visited_count = 0;
        while let Some((lsn, who)) = self.open.pop_last() {
            visited_count += 1;
            let Some(txn) = &self.txns[who as usize].txn else { continue };
            let (step, next) = txn.look_at(back, lsn)?;
            match step {
                Step::Undid(_) if planted::is_on(Bug::UndoneTwice) => {}
                Step::Undid(undone) => self.undone.insert(undone),
                Step::InPlace { op, page, place } if !self.undone.remove(lsn) => {
                    self.window.push(who, lsn, op, page, place);
                    self.txns[who as usize].is_in_window = true;
                }
                Step::InOrder => {
                    // Its own compensation record says what the window's record of this transaction would.
                    self.undo_window(Some(who))?;
                    if let Some(txn) = &mut self.txns[who as usize].txn {
                        txn.undo_one(back, lsn)?;
                        txn.release_claim();
                    }
                }
                Step::InPlace { .. } | Step::Pass => {}
            }
            let one = &mut self.txns[who as usize];
            one.goes_on_at = next;
            if next != Lsn(0) {
                self.open.insert(next, who);
            } else if !one.is_in_window
                && let Some(txn) = one.txn.take()
            {
                txn.end_loser()?;
            }
            if self.window.is_full() {
                self.undo_window(None)?;
            }
        }
        self.undo_window(None)?;
        Ok(visited_count)
    }

    /// Undoes what has been gathered, and says so for every transaction but `untold`.
    fn undo_window(&mut self, untold: Option<u32>) -> Result<(), RecoveryError> {
        if self.window.is_empty() {
            return Ok(());
        }
        let txns = &mut self.txns;
        self.window.drain(self.engine, &mut |update, args| {
            if let Some(txn) = &mut txns[update.who as usize].txn {
                txn.undo_in_place(update.lsn, update.op, args)?;
                txn.release_claim(); // Nobody may wait for room while many hold some that they do not need.
            }
            Ok(())
        })?;
        let may_say = self.undone.is_empty(); // U3
        debug_assert!(may_say || untold.is_none(), "no window reaches beyond an update without a place");
        for (who, one) in (0..).zip(&mut self.txns).filter(|(_, one)| one.is_in_window) {
            one.is_in_window = false;
            if untold == Some(who) {
                continue;
            }
            if one.goes_on_at != Lsn(0) {
                if let Some(txn) = one.txn.as_mut().filter(|_| may_say) {
                    txn.say_undone_to(one.goes_on_at)?;
                    txn.release_claim();
                }
            } else if let Some(txn) = one.txn.take() {
                txn.end_loser()?;
            }
        }
        Ok(())
    }
}
