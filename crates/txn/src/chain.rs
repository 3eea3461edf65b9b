//! A transaction's records in the log: their chain, and the claim they are appended under.
//!
//! Apart from [`crate::Txn`] so that the engine can be borrowed while the chain grows, without counting references on
//! the hot path.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ledgerstone_log::{Claim, LONG_KEPT_UNDO_BYTES, LogError, NewRecord, RECORD_BYTES_MAX, RecordKind};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};

use crate::txn::RECORD_OVERHEAD_BYTES;
use crate::{Engine, TxnError};

pub(crate) struct Chain {
    pub no: u32,
    pub xid: Xid,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
    claim: Option<Claim>,
    /// What is left of the bytes asked for; the claim may have more. Room for the undo is reserved for these.
    asked: u64,
    /// Bytes that undoing what was done so far would take, and bytes reserved for it.
    undo_needed: u64,
    undo_reserved: u64,
    /// Of every record from now on.
    flags: u16,
    /// It may keep more of a claim than others, and does so beyond its end, for the next in the same memory (C6 in
    /// `log/append.rs`).
    keeps_more: bool,
}

/// Longest record that is written forwards: its compensation has 8 bytes more.
pub(crate) const FORWARD_BYTES_MAX: u64 = RECORD_BYTES_MAX as u64 - 8;

/// The flag of records of a transaction that changes where things are, and not what they are. Readers of changes skip
/// its commit.
pub const FLAG_UPKEEP: u16 = 1;

/// The flag of a compensation record that says which record it undoes, and not where the rollback goes on.
pub const FLAG_OUT_OF_ORDER: u16 = 2;

impl Chain {
    pub fn new(no: u32, xid: Xid) -> Chain {
        let (first_lsn, last_lsn) = (Lsn::NONE, Lsn::NONE);
        Chain {
            no,
            xid,
            first_lsn,
            last_lsn,
            claim: None,
            asked: 0,
            undo_needed: 0,
            undo_reserved: 0,
            flags: 0,
            keeps_more: false,
        }
    }

    /// Makes it the chain of the next transaction in the same memory, with what the last one has left of the log's
    /// room. Where that one wrote, the next will want some, too.
    #[inline]
    pub fn renew(&mut self, engine: &Engine, no: u32, xid: Xid) {
        let keeps_more = self.keeps_more || self.last_lsn != Lsn::NONE && engine.log.may_keep_more();
        let (claim, undo_reserved) = (self.claim.take(), self.undo_reserved);
        *self = Chain { claim, undo_reserved, keeps_more, ..Chain::new(no, xid) };
    }

    /// What it may keep of a claim between calls.
    #[inline]
    fn kept_bytes(&self, engine: &Engine) -> u64 {
        if self.keeps_more { engine.log.long_kept_bytes() } else { engine.log.kept_claim_bytes() }
    }

    pub fn mark_upkeep(&mut self) {
        self.flags |= FLAG_UPKEEP;
    }

    /// Has a claim of `bytes` at least: what is kept, if that will do, or else a new one. Reserves room for the undo.
    pub fn claim(&mut self, engine: &Engine, bytes: usize) -> Result<(), TxnError> {
        // Somewhat more than asked for, so that the next calls need not ask.
        self.claim_at_least(engine, bytes, bytes.max(self.kept_bytes(engine) as usize))
    }

    /// As [`Chain::claim`], for the last records of the transaction: nothing would be kept, except by who keeps more.
    pub fn claim_last(&mut self, engine: &Engine, bytes: usize) -> Result<(), TxnError> {
        if self.keeps_more { self.claim(engine, bytes) } else { self.claim_at_least(engine, bytes, bytes) }
    }

    #[inline]
    fn claim_at_least(&mut self, engine: &Engine, least: usize, bytes: usize) -> Result<(), TxnError> {
        let least = (least as u64).next_multiple_of(8);
        let wanted = self.undo_needed + least + 4 * RECORD_OVERHEAD_BYTES as u64;
        let is_reserved = wanted <= self.undo_reserved;
        let left = self.claim.as_ref().map_or(0, Claim::left);
        if is_reserved && left >= least {
            self.asked = least;
            return Ok(());
        }
        self.release_claim(engine);
        // In steps, so that a transaction of a few updates does this once.
        let step = if is_reserved { 0 } else { (wanted - self.undo_reserved).max(2048) };
        self.claim = Some(match engine.log.claim_and_reserve_undo(bytes, step) {
            // What was asked for beyond need is refused to nobody's harm.
            Err(LogError::NoSpace { .. }) if bytes as u64 > least => {
                engine.log.claim_and_reserve_undo(least as usize, step)?
            }
            claimed => claimed?,
        });
        self.undo_reserved += step;
        self.asked = least;
        Ok(())
    }

    /// Claims as a rollback does, whose room is reserved.
    pub fn claim_undo(&mut self, engine: &Engine, bytes: usize) -> Result<(), TxnError> {
        self.release_claim(engine);
        let claim = engine.log.claim_undo(bytes)?;
        self.asked = claim.left();
        self.claim = Some(claim);
        Ok(())
    }

    /// Bytes of log that a rollback would cost now.
    pub fn undo_needed(&self) -> u64 {
        self.undo_needed
    }

    pub fn undo_reserved(&self) -> u64 {
        self.undo_reserved
    }

    /// Reserves room for a rollback of `bytes` and the records around it, which was reserved before a restart.
    pub fn reserve_for_undo_again(&mut self, engine: &Engine, bytes: u64) {
        let wanted = bytes + 4 * RECORD_OVERHEAD_BYTES as u64;
        engine.log.reserve_undo_again(wanted);
        self.undo_reserved += wanted;
        self.undo_needed += bytes;
    }

    #[inline(never)]
    pub fn release_claim(&mut self, engine: &Engine) {
        if let Some(claim) = self.claim.take() {
            engine.log.give_back(claim);
        }
    }

    /// Gives back what is left of a claim, unless it is so little that it may be kept for the next call.
    #[inline]
    pub fn keep_claim(&mut self, engine: &Engine) {
        self.asked = 0;
        if self.claim.as_ref().is_some_and(|claim| claim.left() > self.kept_bytes(engine)) {
            engine.in_a_call(|| self.release_claim(engine)); // The library calls it when its own call is over.
        }
    }

    /// The transaction has ended. What it holds of the log's room goes back, or stays for the next in the same memory.
    #[inline]
    pub fn end(&mut self, engine: &Engine) {
        let left = self.claim.as_ref().map_or(0, Claim::left);
        let may_stay = left <= engine.log.long_kept_bytes() && self.undo_reserved <= LONG_KEPT_UNDO_BYTES;
        if !(self.keeps_more && may_stay) {
            self.release_all(engine);
        }
    }

    /// No transaction comes after it in the same memory.
    #[inline]
    pub fn keep_nothing(&mut self, engine: &Engine) {
        if self.keeps_more {
            self.release_all(engine);
            self.keep_no_more(engine);
        }
    }

    /// It keeps no more than others from now on, and nothing beyond its end.
    pub fn keep_no_more(&mut self, engine: &Engine) {
        if std::mem::take(&mut self.keeps_more) {
            engine.log.end_keeping_more();
        }
    }

    #[inline]
    fn release_all(&mut self, engine: &Engine) {
        let undo_reserved = std::mem::take(&mut self.undo_reserved);
        self.undo_needed = 0;
        match self.claim.take() {
            Some(claim) => engine.log.give_back_all(claim, undo_reserved),
            None if undo_reserved > 0 => engine.log.release_undo(undo_reserved),
            None => {}
        }
    }

    /// Refuses if the claim has no room for a record with `args_bytes` of arguments; else marks the transaction's first
    /// LSN (T1) so that the record may follow.
    pub fn prepare(&mut self, engine: &Engine, record: &NewRecord<'_>) -> Result<(), TxnError> {
        let needed = record.len_bytes() as u64;
        let left = self.claim.as_ref().map_or(0, Claim::left).min(self.asked);
        if left < needed {
            return Err(TxnError::ClaimTooSmall { needed, left, op: record.op });
        }
        if needed > FORWARD_BYTES_MAX && record.kind != RecordKind::Compensation {
            return Err(TxnError::RecordTooLong { op: record.op, needed, most: FORWARD_BYTES_MAX });
        }
        if self.first_lsn == Lsn::NONE {
            // T1: the mark before the reservation.
            let tail = engine.log.tail();
            engine.table.slot(self.no).first_lsn.store(tail.0, SeqCst);
            self.first_lsn = tail;
        }
        Ok(())
    }

    /// Appends a record that [`Chain::prepare`] has let through.
    pub fn append(&mut self, engine: &Engine, record: &NewRecord<'_>) -> Result<Lsn, TxnError> {
        let Some(claim) = self.claim.as_mut() else {
            return Err(TxnError::ClaimTooSmall { needed: record.len_bytes() as u64, left: 0, op: record.op });
        };
        let before = claim.left();
        let lsn = engine.log.append(claim, record);
        self.asked = self.asked.saturating_sub(before - claim.left());
        self.last_lsn = lsn;
        engine.table.slot(self.no).last_lsn.store(lsn.0, Relaxed);
        Ok(lsn)
    }

    /// A record of this chain that touches no page, prepared and appended.
    pub fn append_plain(&mut self, engine: &Engine, kind: RecordKind, body: &[&[u8]]) -> Result<Lsn, TxnError> {
        let record = self.record(kind, OpId(0), None, body);
        self.prepare(engine, &record)?;
        self.append(engine, &record)
    }

    pub fn record<'a>(
        &self,
        kind: RecordKind,
        op: OpId,
        page: Option<(PageId, Lsn)>,
        body: &'a [&'a [u8]],
    ) -> NewRecord<'a> {
        NewRecord { kind, xid: self.xid, prev_lsn: self.last_lsn, op, flags: self.flags, page, body }
    }

    /// Goes back to an earlier value of [`Chain::undo_needed`], when what came after it has been undone. What was
    /// reserved for that has been used, and so is given back.
    pub fn set_undo_needed(&mut self, engine: &Engine, needed: u64) {
        let used = self.undo_needed.saturating_sub(needed).min(self.undo_reserved);
        if used > 0 {
            engine.log.release_undo(used);
            self.undo_reserved -= used;
        }
        self.undo_needed = needed;
    }

    /// Counts `bytes` that will be claimed as a rollback claims them, whatever happens: the next claim reserves room
    /// for them.
    pub fn expect_more(&mut self, bytes: u64) {
        self.undo_needed += bytes;
    }

    /// Takes [`Chain::expect_more`] back, when the claim that was to reserve the room was refused.
    pub fn expect_less(&mut self, bytes: u64) {
        self.undo_needed -= bytes;
    }

    /// Counts what undoing an update of `args_bytes` will take.
    #[inline]
    pub fn count_undo(&mut self, args_bytes: usize) {
        self.undo_needed += (args_bytes + RECORD_OVERHEAD_BYTES) as u64;
    }
}
