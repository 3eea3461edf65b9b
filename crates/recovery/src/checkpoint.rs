//! Fuzzy checkpoint: where the next recovery may begin, found while everybody goes on.
//!
//! ```text
//!  begin := tail ─► write back pages dirtied before begin ─► low := min(tail, rec_lsn's, first_lsn's)
//!     ─► Checkpoint record, flushed ─► control file names it ─► log below low is recycled
//! ```
//! K1. `low` is computed from the tail first and the marks afterwards, all sequentially consistent: whoever's mark is
//!     not seen reserves its record at or above that tail (T1 in `txn/table.rs`, and the same for frames).
//! K2. The control file is written after the checkpoint record and all that it relies on are durable, and the log is
//!     recycled only after the control file is.

use std::sync::Arc;

use ledgerstone_log::{ControlFile, NewRecord, RecordKind};
use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_txn::{Engine, RECORD_OVERHEAD_BYTES};

use crate::RecoveryError;

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its record.
    pub lsn: Lsn,
    /// Where a recovery from it begins to read.
    pub scan_lsn: Lsn,
    /// Pages written back for it.
    pub written_count: usize,
}

/// Takes a checkpoint. One at a time: the caller owns the control file.
///
/// `is_clean` marks the checkpoint of an orderly close, when no transaction runs and no page stays dirty.
///
/// # Errors
/// A page, the log or the control file cannot be written.
pub fn checkpoint(
    engine: &Arc<Engine>,
    control: &mut ControlFile,
    is_clean: bool,
) -> Result<Checkpoint, RecoveryError> {
    let begin = engine.log.tail();
    let written_count = engine.cache.write_back_before(begin)?;

    let tail = engine.log.tail(); // K1: first the tail, then the marks.
    let mut low = tail;
    if let Some(dirty) = engine.cache.dirty_low() {
        low = low.min(dirty);
    }
    if let Some(first) = engine.table.first_lsn_low() {
        low = low.min(first);
    }

    let mut body = [0u8; 24];
    body[..8].copy_from_slice(&low.0.to_le_bytes());
    body[8..16].copy_from_slice(&engine.log.durable_lsn().0.to_le_bytes());
    body[16..].copy_from_slice(&engine.table.next_xid().0.to_le_bytes());
    let mut claim = engine.log.claim_undo(body.len() + RECORD_OVERHEAD_BYTES)?;
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

    control.state.checkpoint_lsn = lsn;
    control.state.scan_lsn = low;
    control.state.scan_incarnation = engine.log.incarnation_at(low);
    control.state.xid_floor = engine.table.next_xid();
    control.state.is_clean = is_clean;
    control.write()?;
    // After the marks (L3 of the version store): who was open then stands there now, if a reader needs its records.
    let kept = engine.versions.log_low().map_or(low, |kept| low.min(kept));
    engine.log.recycle_before(kept)?;
    Ok(Checkpoint { lsn, scan_lsn: low, written_count })
}
