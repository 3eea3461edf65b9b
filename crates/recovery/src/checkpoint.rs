//! Fuzzy checkpoint: where the next recovery may begin, found while everybody goes on.
//!
//! ```text
//!  begin := tail ─► write back pages dirtied before begin ─► mark page 0, write it back
//!     ─► redo := min(tail, rec_lsn's), low := min(redo, first_lsn's) ─► Checkpoint record, flushed
//!     ─► control file names it ─► log below low is recycled
//! ```
//! K1. `low` is computed from the tail first and the marks afterwards, all sequentially consistent. A transaction
//!     whose mark is not seen reserves its record at or above that tail (T1 in `txn/table.rs`, and the same for
//!     frames).
//! K2. The control file is written after the checkpoint record, and everything that the record relies on, are durable.
//!     The log is recycled only after the control file is durable, in both slots (T5 there).
//! K3. Page 0 gets the LSN of a record of its own, its mark. It goes home after all pages that the checkpoint writes
//!     back, and before the control file names the mark. So if page 0 of a data file has a smaller LSN than the
//!     control file's mark, the file is from before the checkpoint's pages were home. It is an older file, which the
//!     log cannot make whole. After a crash page 0 may be younger than the mark, never older: the checkpoint that wrote
//!     it did not come to its end.
//! K4. Any data file from after that moment will do: what it lacks became dirty later, so it is in the log from `redo`
//!     on.
//! K5. `low` is where the analysis begins, since a rollback may need it; `redo` is where history is repeated from. A
//!     transaction that has been open for long keeps `low` back, and costs a restart no repetition of what is home.
//! K6. Changes that a restart has found and not repeated yet are no frame's. So a checkpoint waits until there are
//!     none.
//! K7. Marks are tails that somebody saw, and a restart can only read from where a record begins. The two differ after
//!     a repair that has filled several holes by one record. What was marked lies behind that record.

use std::sync::Arc;

use ledgerstone_log::{ControlFile, ControlState, Log, LogError, NewRecord, RecordKind};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_txn::{Engine, RECORD_OVERHEAD_BYTES};

use crate::RecoveryError;

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its record.
    pub lsn: Lsn,
    /// Where a recovery from it begins to read.
    pub scan_lsn: Lsn,
    /// Pages written back for it, its mark among them.
    pub written_count: usize,
}

/// Takes a checkpoint. One at a time: the caller owns the control file.
///
/// `is_clean` marks the checkpoint of an orderly close, when no transaction runs and no page stays dirty.
///
/// # Errors
/// A page, the log or the control file cannot be written.
pub fn checkpoint(engine: &Arc<Engine>, control: &ControlFile, is_clean: bool) -> Result<Checkpoint, RecoveryError> {
    checkpoint_keeping(engine, control, is_clean, &|low| low)
}

/// The same. Once the control file names the checkpoint, `may_give_up` is shown the LSN below which the log could be
/// given up. It answers with the LSN below which it may be, for those that need the log longer.
///
/// # Errors
/// As [`checkpoint`].
pub fn checkpoint_keeping(
    engine: &Arc<Engine>,
    control: &ControlFile,
    is_clean: bool,
    may_give_up: &dyn Fn(Lsn) -> Lsn,
) -> Result<Checkpoint, RecoveryError> {
    if !planted::is_on(Bug::PendingForgotten) {
        engine.cache.wait_redone()?; // K6
    }
    let begin = engine.log.tail();
    let mut written_count = engine.cache.write_back_before(begin)?;
    // K3. The file's length now is durable with the mark.
    let page_count = engine.cache.page_count()?;
    let mark = ledgerstone_space::mark(engine)?;
    written_count += engine.cache.write_back_page(PageId(0))?;

    let tail = engine.log.tail(); // K1: first the tail, then the marks.
    let redo = engine.cache.dirty_low().map_or(tail, |dirty| tail.min(dirty));
    let low_mark = engine.table.first_lsn_low().map_or(redo, |first| redo.min(first)); // K5
    let (redo, low) = (record_from(&engine.log, redo)?, record_from(&engine.log, low_mark)?); // K7

    let said = CheckpointRecord {
        scan_lsn: low,
        redo_lsn: redo,
        durable_lsn: engine.log.durable_lsn(),
        next_xid: engine.table.next_xid(),
        scan_incarnation: engine.log.incarnation_at(low),
        mark_lsn: mark,
        page_count,
        life: control.state().life,
    };
    let body = said.encode();
    let mut claim = engine.log.claim_upkeep(body.len() + RECORD_OVERHEAD_BYTES)?;
    let record = NewRecord {
        kind: RecordKind::Checkpoint,
        xid: Xid(0),
        prev_lsn: Lsn(0),
        op: OpId(0),
        flags: 0,
        page: None,
        body: &[&body],
    };
    let lsn = engine.log.append(&mut claim, &record);
    engine.log.give_back(claim);
    engine.log.flush_to(lsn)?;

    let next_xid = engine.table.next_xid();
    let durable = engine.log.durable_lsn();
    control.change(|state| {
        said.tell(lsn, state);
        state.xid_floor = next_xid;
        state.durable_lsn = durable;
        state.is_clean = is_clean;
    })?;
    // After the marks (L3 of the version store): a writer that was open then stands there now, if a reader needs its
    // records.
    let kept = engine.versions.log_low().map_or(low_mark, |kept| low_mark.min(kept));
    engine.log.recycle_before(kept.min(may_give_up(kept)))?;
    Ok(Checkpoint { lsn, scan_lsn: low, written_count })
}

/// K7. Where nothing is to be read yet, somebody is about to publish a record, or the log ends: then the mark it is.
fn record_from(log: &Log, mark: Lsn) -> Result<Lsn, LogError> {
    if mark >= log.tail() || log.read(mark).is_ok() {
        return Ok(mark);
    }
    log.flush()?;
    log.first_record_from(mark)
}

/// The content of a checkpoint record. It has everything about the checkpoint that the control file has, so that a lost
/// control file can be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Where a recovery from it begins to read.
    pub scan_lsn: Lsn,
    /// Where history is repeated from (K5).
    pub redo_lsn: Lsn,
    /// The log was durable up to here.
    pub durable_lsn: Lsn,
    /// Smaller transaction ids have been used.
    pub next_xid: Xid,
    /// The incarnation in force at `scan_lsn`.
    pub scan_incarnation: u64,
    /// The LSN that page 0 has had in its place in the data file since then (K3).
    pub mark_lsn: Lsn,
    /// Pages that the data file had.
    pub page_count: u64,
    /// The life of the environment.
    pub life: u64,
}

impl CheckpointRecord {
    /// Bytes of the body.
    pub const BYTES: usize = 64;

    /// The body of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; CheckpointRecord::BYTES] {
        let words = [
            self.scan_lsn.0,
            self.durable_lsn.0,
            self.next_xid.0,
            self.scan_incarnation,
            self.mark_lsn.0,
            self.page_count,
            self.life,
            self.redo_lsn.0,
        ];
        let mut body = [0; CheckpointRecord::BYTES];
        for (bytes, word) in body.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        body
    }

    /// Reads the body of a record, or returns `None` if it is another's. Takes any bytes.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<CheckpointRecord> {
        let body: &[u8; CheckpointRecord::BYTES] = body.try_into().ok()?;
        let word = |no: usize| u64::from_le_bytes(std::array::from_fn(|i| body[8 * no + i]));
        Some(CheckpointRecord {
            scan_lsn: Lsn(word(0)),
            durable_lsn: Lsn(word(1)),
            next_xid: Xid(word(2)),
            scan_incarnation: word(3),
            mark_lsn: Lsn(word(4)),
            page_count: word(5),
            life: word(6),
            redo_lsn: Lsn(word(7)),
        })
    }

    /// Has the control file's state say what the record at `lsn` says.
    pub fn tell(&self, lsn: Lsn, state: &mut ControlState) {
        state.checkpoint_lsn = lsn;
        state.scan_lsn = self.scan_lsn;
        state.redo_lsn = self.redo_lsn;
        state.scan_incarnation = self.scan_incarnation;
        state.xid_floor = self.next_xid;
        state.mark_lsn = self.mark_lsn;
        state.page_count = self.page_count;
        state.life = self.life;
    }
}
