//! Records by their LSN, the newer ones first: how a transaction's chain is read when it is undone.
//!
//! Pieces of the log are copied at once, each ending with the record that was asked for, and whatever lies in the piece
//! is served from there. A piece is as long as the ones before it were useful: a chain may be all that the log holds,
//! or have one record in a megabyte of others'.
//!
//! A1. If a transaction's records are most of the log since its first one, they are copied from the log's buffer, as
//!     far as the buffer still has them. That happens before the compensation records push them out. So a rollback
//!     reads nothing from the device if the transaction fits the half of the buffer that is history.
//! A2. Every record is checked as [`Log::read`] does, in whatever piece it was found.

use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::fence;

use ledgerstone_disk::AlignedBuf;
use ledgerstone_page::Lsn;

use crate::error::{LogError, Malformed};
use crate::log::Log;
use crate::record::{FIRST_LSN, RecordView, decode, le_u64, length_checked};
use crate::ring;
use crate::segment::BLOCK_BYTES;

/// The shortest piece; a record may need a longer one.
const PIECE_BYTES_MIN: u64 = 2 * BLOCK_BYTES;
/// The longest piece that is read from the device.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// The piece of the log that was copied last. Made anew for each rollback.
pub struct Backwards {
    /// Nothing below is asked for; the log need not reach so far back.
    low: u64,
    piece: AlignedBuf,
    start: u64,
    len: usize,
    /// Bytes below were given up when the piece was copied.
    kept_from: u64,
    /// How long the next piece is to be, and how many records this one has served.
    wanted: u64,
    served_count: u64,
}

impl Backwards {
    /// For records from `low` on, `bytes` of them altogether, as far as the caller knows. Copies nothing yet.
    pub fn new(log: &Log, low: Lsn, bytes: u64) -> Backwards {
        let low = low.max(FIRST_LSN).0;
        let span = log.tail().0.saturating_sub(low);
        let is_dense = bytes.saturating_mul(4) >= span;
        Backwards {
            low,
            piece: AlignedBuf::new(0),
            start: 0,
            len: 0,
            kept_from: 0,
            wanted: if is_dense { span.max(PIECE_BYTES_MIN) } else { PIECE_BYTES_MIN },
            served_count: 0,
        }
    }

    fn holds(&self, lsn: u64, bytes: usize) -> bool {
        lsn >= self.start.max(self.kept_from) && lsn + bytes as u64 <= self.start + self.len as u64
    }

    /// The bytes of the record at `lsn`, if all of it is here.
    fn record(&self, lsn: u64) -> Option<Result<&[u8], Malformed>> {
        if !self.holds(lsn, 8) {
            return None;
        }
        let bytes = &self.piece[(lsn - self.start) as usize..self.len];
        match length_checked(le_u64(bytes, 0)) {
            Ok(length) if self.holds(lsn, length) => Some(Ok(&bytes[..length])),
            Ok(_) => None,
            Err(why) => Some(Err(why)),
        }
    }

    /// Makes room for `len` bytes from `start` on.
    fn begin(&mut self, start: u64, len: usize) {
        self.len = 0;
        self.start = start;
        if self.piece.len() < len {
            self.piece = AlignedBuf::new(len);
        }
    }

    /// How long the next piece shall be: longer if this one was of use, shorter if not.
    fn choose_length(&mut self) -> u64 {
        if self.len > 0 {
            let next = if self.served_count > 1 { self.wanted.saturating_mul(4) } else { self.wanted / 4 };
            self.wanted = next.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        }
        self.served_count = 0;
        self.wanted
    }
}

impl Log {
    /// Reads the record that begins at `lsn`, durable or not, and with it what lies before it. May read from the
    /// device.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn read_backwards<'b>(&self, back: &'b mut Backwards, lsn: Lsn) -> Result<RecordView<'b>, LogError> {
        let invalid = |why| LogError::Invalid { lsn, why };
        if lsn < FIRST_LSN || !lsn.0.is_multiple_of(8) || lsn >= self.tail() {
            return Err(invalid(Malformed::Empty));
        }
        if back.record(lsn.0).is_none() {
            let length = back.choose_length();
            if !self.copy_ring(back, lsn.0, length) {
                self.copy_file(back, lsn, length.min(PIECE_BYTES_MAX))?;
            }
        }
        back.served_count += 1;
        let bytes = back.record(lsn.0).unwrap_or(Err(Malformed::NoFile)).map_err(invalid)?;
        let record = decode(lsn, bytes).map_err(invalid)?;
        self.check_seal(record).map_err(invalid)?;
        Ok(record)
    }

    /// Copies a piece that ends with the record at `lsn` from the buffer; false if that has not got the record any
    /// more.
    fn copy_ring(&self, back: &mut Backwards, lsn: u64, length: u64) -> bool {
        let ring_bytes = self.ring.len() as u64 * 8;
        let kept_from = || self.first_in_ring.max(self.state.zero_begun.load(SeqCst).saturating_sub(ring_bytes));
        if lsn < kept_from() {
            return false;
        }
        // Zeroing may pass by: then this is any number, and so is what is copied.
        let Ok(record_bytes) = length_checked(ring::first_word(&self.ring, lsn)) else { return false };
        let end = lsn + record_bytes as u64;
        let start = end.saturating_sub(length).max(back.low).max(kept_from()).min(lsn);
        let bytes = (end - start).min(ring_bytes) as usize;
        back.begin(start, bytes);
        ring::copy_out(&self.ring, start, &mut back.piece[..bytes]);
        fence(Acquire); // B4
        back.kept_from = kept_from();
        back.len = bytes;
        lsn >= back.kept_from
    }

    /// Copies a piece that ends with the record at `lsn` from the segments.
    fn copy_file(&self, back: &mut Backwards, lsn: Lsn, length: u64) -> Result<(), LogError> {
        let block = lsn.0 & !(BLOCK_BYTES - 1);
        // The beginnings of most records tell their ends.
        let mut end = block + 2 * BLOCK_BYTES;
        let found = loop {
            // What was given up meanwhile cannot be read along.
            let low = back.low.max(self.oldest_lsn().0);
            let start = (end.saturating_sub(length).max(low) & !(BLOCK_BYTES - 1)).min(block);
            let bytes = (end - start) as usize;
            back.begin(start, bytes);
            back.len = match self.segments.read(start, &mut back.piece[..bytes]) {
                Ok(have) => have,
                Err(error) => break Err(error.into()),
            };
            back.kept_from = 0;
            let needed = match back.holds(lsn.0, 8) {
                true => length_checked(le_u64(&back.piece[(lsn.0 - start) as usize..back.len], 0)),
                false => break Ok(()),
            };
            match needed {
                Ok(needed) if lsn.0 + needed as u64 > end => {
                    end = (lsn.0 + needed as u64).next_multiple_of(BLOCK_BYTES)
                }
                _ => break Ok(()),
            }
        };
        // Looked at afterwards: the segments may have been used again while we read.
        let oldest = self.oldest_lsn();
        back.kept_from = oldest.0;
        if lsn < oldest { Err(LogError::Recycled { lsn, oldest }) } else { found }
    }
}
