//! Transactions of the dead: marked by whoever repairs, and ended by a thread of the same process, by the log's word.
//!
//! ```text
//!  RUNNING, ABORTING, COMMITTING, PREPARED      owner: a dead thread's slot
//!         │  repair: ORPHAN, owner: the repairer's slot, last_lsn: what the log has
//!         ▼
//!  the newest record is      Commit ──► images stamped, locks released, slot free
//!                            End ─────► the same, rolled back
//!                            Prepare ─► in doubt: it goes on as prepared, for a decision
//!                            another, or none ──► nested top actions undone on their pages (O3) ──► rolled back
//! ```
//! O1. A slot of a dead owner is marked with the repairer's name, and with what is to be known of the dead. So when the
//!     slots of the dead are free, nothing of them is needed. If the repairer's process dies, its orphans are found as
//!     all of its transactions are.
//! O2. A transaction's last record may be newer than `last_lsn`, by one. It is that of the thread that appended it
//!     ([`newest_of`](ledgerstone_log::Log::newest_of)).
//! O3. Structures are whole when the open nested top actions of *all* orphans have been undone on their pages. Until
//!     then the latches that the dead held stay held. Only after that a logical undo may walk through a structure.
//! O4. Whoever repairs waits for nobody but the living, for some instructions. Whoever ends transactions takes latches
//!     and waits for room. So these are two threads.
//! O5. What is reserved in the log for rollbacks of the dead is taken by a thread that then takes orphans. It is given
//!     back when no thread of the process ends any. Marks come before that in a repair, and so do the latches' (O3). So
//!     an orphan may be taken before its room is there to be taken, and never after that room is given back.
//! O6. A logical undo may wait for the latch of a structure whose holder has died since, and then only a thread of this
//!     process can give it back. So threads take turns up to that only (O3), and undo beside each other. Whoever has
//!     had a turn looks once more for others, for whom there was none.
//! O7. A slot's mark goes before its id (T1 in `table.rs`), and all else before both. So a slot that has a record and
//!     no mark is of a transaction that has ended. Its records may be gone, and nobody needs them.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use ledgerstone_buffer::Rebuild;
use ledgerstone_lock::OwnerNo;
use ledgerstone_log::{Backwards, RecordKind};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{AnotherDied, Dead, Repair, Share, SlotNo, sync};

use crate::planted_repair::RepairPart as Part;
use crate::rollback::goes_on_at;
use crate::state::ORPHAN;
use crate::structure_latch::Heir;
use crate::{Engine, PrepareRecord, Txn, TxnError, TxnTable, state};

/// So long what is done in the wrong order, by a planted bug, can be seen.
const SEEN_NS: u64 = 1_000_000;

/// Whoever waits until others have ended orphans looks so often.
const LOOK_NS: u64 = 1_000_000;

/// A transaction of a dead process that waits for a decision.
pub struct OrphanInDoubt {
    /// What its prepare says.
    pub record: PrepareRecord,
    /// The transaction, prepared.
    pub txn: Txn,
}

impl Engine {
    /// Mends what processes have left that are known to have died, and marks their transactions. Then somebody calls
    /// [`Engine::end_orphans`], in another thread. `rebuild` is told up to where the log has no hole, and answers with
    /// what makes pages again that were half changed. True if anybody had died. The caller holds nothing.
    ///
    /// The log comes first, so that it can be read and has no holes, and then the locks. Versions come before pages:
    /// one that is built again shows changes to which images belong. Then transactions are marked, latches of
    /// structures taken over, and what is reserved in the log. `also` is last, for what stands on the engine.
    ///
    /// # Errors
    /// The thread has no slot.
    pub fn repair<R: Rebuild>(
        &self,
        rebuild: impl Fn(Lsn) -> R,
        also: impl Fn(&Dead<'_>) -> Result<(), AnotherDied>,
    ) -> Result<bool, TxnError> {
        let me = self.thread()?;
        let does = |part| !self.forgets(part);
        let mend = |dead: &Dead<'_>| {
            if does(Part::Log) {
                self.log.repair(dead)?;
            }
            self.locks.repair(dead)?;
            if does(Part::Versions) && does(Part::VersionsFirst) {
                self.versions.repair(dead)?;
            }
            if does(Part::Pages) {
                let until = self.log.settle(dead)?;
                self.cache.repairer(&rebuild(until)).repair(dead)?;
            }
            if !does(Part::VersionsFirst) {
                sync::sleep_ns(SEEN_NS);
                self.versions.repair(dead)?;
            }
            if does(Part::Orphans) {
                self.mark_orphans(dead, me);
            }
            if does(Part::Latches) {
                Heir { latches: &self.structure_latches, me }.repair(dead)?;
            }
            if does(Part::Reserved) {
                self.log.inherit(dead)?;
            }
            also(dead)
        };
        let lost = |_| TxnError::TooManyThreads { slots: self.slots.max_threads() };
        self.slots.repair(mend).map_err(lost)
    }

    fn mark_orphans(&self, dead: &Dead<'_>, me: SlotNo) {
        match self.log.newest_of(dead) {
            Ok(_) if self.forgets(Part::Newest) => self.table.mark_orphans(dead, me, &[]),
            Ok(newest) => self.table.mark_orphans(dead, me, &newest),
            Err(error) => self.fail(&format!("the last record of a thread that died cannot be read: {error}")),
        }
    }

    /// Ends the transactions of the dead that a repair of this process has marked. Those in doubt go to `in_doubt`.
    /// Leaves to other threads of this process what they are ending. The caller holds nothing.
    ///
    /// # Errors
    /// What a rollback may meet. The environment has failed then.
    pub fn end_orphans(self: &Arc<Engine>, mut in_doubt: impl FnMut(OrphanInDoubt)) -> Result<(), TxnError> {
        self.end_all_orphans(&mut in_doubt).inspect_err(|error| {
            self.fail(&format!("a transaction of a process that died could not be ended: {error}"));
        })
    }

    /// Whether a repair of this process has left work for [`Engine::end_orphans`], which no thread has taken.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.table.orphans(|owner| self.slots.is_of_us(owner)).next().is_some()
            || self.log.inherited() > 0
            || !self.structure_latches.inherited(&self.slots).is_empty()
    }

    /// Waits until no thread of this process is ending orphans. For a close, after which they could not be undone.
    pub fn await_orphans_ended(&self) {
        while !self.is_failed() && self.ending.lock().threads > 0 {
            sync::sleep_ns(LOOK_NS);
        }
    }

    fn end_all_orphans(self: &Arc<Engine>, in_doubt: &mut impl FnMut(OrphanInDoubt)) -> Result<(), TxnError> {
        let mut undoing = Vec::new();
        self.ending.lock().threads += 1;
        // O6
        while self.has_orphans() && !self.takes_orphans.swap(true, SeqCst) {
            let turn = Turn(self);
            let taken = self.log.take_inherited(); // O5: before the look at the slots.
            self.ending.lock().reserved += taken;
            self.take_orphans(&mut undoing, in_doubt)?;
            drop(turn);
            sync::yield_point("orphans taken");
        }
        undoing.into_iter().try_for_each(Txn::end_orphan)?;
        let left = self.ending.lock().leave();
        if !self.forgets(Part::Released) {
            self.log.release_undo(left);
        }
        Ok(())
    }

    /// Ends the orphans that need no rollback. Adds the others to `undoing`, without their nested top actions, and
    /// gives the latches of structures back (O3).
    fn take_orphans(
        self: &Arc<Engine>,
        undoing: &mut Vec<Txn>,
        in_doubt: &mut impl FnMut(OrphanInDoubt),
    ) -> Result<(), TxnError> {
        let latches = self.structure_latches.inherited(&self.slots); // Before the look at the slots.
        let (engine, thread) = (Share::new(Arc::clone(self)), self.thread()?);
        let first = undoing.len();
        let marked: Vec<u32> = self.table.orphans(|owner| self.slots.is_of_us(owner)).collect();
        for no in marked {
            undoing.extend(self.take_orphan(&engine, no, thread, in_doubt)?);
        }
        for txn in undoing[first..].iter_mut().filter(|_| !self.forgets(Part::Nested)) {
            txn.undo_nested()?;
        }
        if !self.forgets(Part::GivenBack) {
            self.structure_latches.give_back(&latches);
        }
        if self.forgets(Part::Nested) {
            sync::sleep_ns(SEEN_NS);
        }
        Ok(())
    }

    /// Ends an orphan, or returns what is to be rolled back.
    fn take_orphan(
        &self,
        engine: &Share<Engine>,
        no: u32,
        thread: SlotNo,
        in_doubt: &mut impl FnMut(OrphanInDoubt),
    ) -> Result<Option<Txn>, TxnError> {
        let slot = self.table.slot(no);
        let state = state::of(slot.state.load(Acquire));
        slot.state.store(state::word(state, thread), Release); // Ours: the owner is of this process.
        let (xid, first, last) = (slot.xid.load(Acquire), slot.first_lsn.load(SeqCst), slot.last_lsn.load(Relaxed));
        let has_ended = first == 0 && last != 0; // O7
        if xid == 0 || has_ended {
            self.table.free(no); // Or it had not begun, or was held (T2).
            return Ok(None);
        }
        let mut txn = Txn::adopted(engine.clone(), no, Xid(xid), Lsn(first), Lsn(last));
        txn.is_loser = true; // Should anything fail.
        self.locks.adopt(OwnerNo(no), thread);
        txn.writer = self.versions.adopt(no, Xid(xid));
        let record = if last == 0 { None } else { Some(self.log.read(Lsn(last))?) };
        match record.as_ref().map(|record| record.kind()) {
            Some(RecordKind::Commit) if !self.forgets(Part::Commit) => {
                if !txn.writer.is_empty() {
                    self.versions.end_commit(&mut txn.writer, Lsn(last));
                }
                txn.end(true, Some(Lsn(last)));
                Ok(None)
            }
            None => {
                txn.end(false, None);
                Ok(None)
            }
            Some(RecordKind::End) => {
                txn.end_rolled_back();
                Ok(None)
            }
            Some(RecordKind::Prepare) if !self.forgets(Part::Prepare) => {
                let body = record.as_ref().map_or(&[][..], |record| record.body());
                let record =
                    PrepareRecord::decode(body).map_err(|what| TxnError::OrphanPrepare { lsn: Lsn(last), what })?;
                txn.is_loser = false;
                txn.go_on_prepared(&record);
                in_doubt(OrphanInDoubt { record, txn });
                Ok(None)
            }
            Some(_) => {
                txn.begin_undo();
                Ok(Some(txn))
            }
        }
    }
}

/// What threads of this process are doing that end orphans (O5).
#[derive(Default)]
pub(crate) struct Ending {
    threads: u32,
    /// Room in the log that they have taken.
    reserved: u64,
}

impl Ending {
    /// A thread has ended its orphans. Says what is to be given back.
    fn leave(&mut self) -> u64 {
        self.threads -= 1;
        if self.threads == 0 { std::mem::take(&mut self.reserved) } else { 0 }
    }
}

/// While this lives, a thread of this process takes orphans (O6).
struct Turn<'e>(&'e Engine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.takes_orphans.store(false, SeqCst);
    }
}

impl TxnTable {
    /// O1, O2. `newest` has the newest record of each dead thread.
    fn mark_orphans(&self, dead: &Dead<'_>, me: SlotNo, newest: &[(Xid, Lsn)]) {
        for slot in (0..self.slot_count()).map(|no| self.slot(no)) {
            let word = slot.state.load(Acquire);
            if !state::owner(word).is_some_and(|owner| dead.has(owner)) {
                continue;
            }
            let xid = Xid(slot.xid.load(Acquire));
            let last = newest.iter().filter(|(of, _)| *of == xid).map(|(_, lsn)| lsn.0).max();
            slot.last_lsn.store(slot.last_lsn.load(Relaxed).max(last.unwrap_or(0)), Relaxed);
            slot.state.store(state::word(state::of(word), me) | ORPHAN, Release);
        }
    }

    /// The slots of orphans that no thread is ending, whose owner is `ours`.
    fn orphans(&self, ours: impl Fn(SlotNo) -> bool) -> impl Iterator<Item = u32> {
        let is_ours = move |no: &u32| {
            let word = self.slot(*no).state.load(Acquire);
            word & ORPHAN != 0 && state::owner(word).is_some_and(&ours)
        };
        (0..self.slot_count()).filter(is_ours)
    }
}

impl Txn {
    /// Undoes what open nested top actions have done, on their pages.
    fn undo_nested(&mut self) -> Result<(), TxnError> {
        if self.slot().nesting.load(Relaxed) > 0 {
            if let Some(outermost) = self.outermost_open()? {
                self.undo_back_to(outermost)?;
                self.release_claim();
            }
            self.slot().nesting.store(0, Relaxed);
        }
        Ok(())
    }

    /// Where the outermost nested top action begins that has not ended.
    fn outermost_open(&self) -> Result<Option<Lsn>, TxnError> {
        let mut back = Backwards::new(&self.engine.log, self.chain.first_lsn, 0);
        let (mut next, mut found) = (self.chain.last_lsn, None);
        while next != Lsn::NONE {
            let record = self.read_own(&mut back, next)?;
            if record.kind() == RecordKind::NtaBegin {
                found = Some(next);
            }
            next = goes_on_at(record);
        }
        Ok(found)
    }

    fn end_orphan(mut self) -> Result<(), TxnError> {
        self.undo_back_to(Lsn::NONE)?;
        self.finish_rollback()?;
        self.end_rolled_back();
        Ok(())
    }
}
