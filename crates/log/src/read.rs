//! One record by its LSN: from the buffer, whose older half is history, or from its segment.

use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::fence;

use ledgerstone_disk::AlignedBuf;
use ledgerstone_page::Lsn;

use crate::error::{LogError, Malformed};
use crate::log::Log;
use crate::record::{
    FIRST_LSN, RECORD_BYTES_MAX, Record, RecordKind, RecordView, decode, decode_sealed, le_u64, length_checked,
};
use crate::ring;
use crate::seal::Seal;
use crate::segment::BLOCK_BYTES;

impl Log {
    /// Reads the record that begins at `lsn`, durable or not. May read from the device.
    ///
    /// # Errors
    /// [`LogError::Invalid`] if none begins there or it is damaged, [`LogError::Recycled`], the disk's errors.
    pub fn read(&self, lsn: Lsn) -> Result<Record, LogError> {
        if lsn < FIRST_LSN || !lsn.0.is_multiple_of(8) || lsn >= self.tail() {
            return Err(LogError::Invalid { lsn, why: Malformed::Empty });
        }
        if lsn.0 >= self.first_in_ring
            && let Some(found) = self.read_ring(lsn)
        {
            return found.map_err(|why| LogError::Invalid { lsn, why });
        }
        let found = self.read_file(lsn);
        // Looked at afterwards: the segment may have been used again while we read.
        let oldest = self.oldest_lsn();
        if lsn < oldest { Err(LogError::Recycled { lsn, oldest }) } else { found }
    }

    /// Where the first record begins from `mark` on, a place at which somebody has once seen the log end. It is durable
    /// beyond that. A record begins at the mark, unless a repair has filled holes there. It puts one void record in the
    /// place of several that were reserved, since it cannot tell them apart (P2 in `repair.rs`). May read from the
    /// device.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn first_record_from(&self, mark: Lsn) -> Result<Lsn, LogError> {
        let none = match self.read(mark) {
            Ok(_) => return Ok(mark),
            Err(none @ LogError::Invalid { why: Malformed::Empty, .. }) => none,
            Err(error) => return Err(error),
        };
        let oldest = self.oldest_lsn();
        let before = Lsn(mark.0.saturating_sub(RECORD_BYTES_MAX as u64)).max(oldest);
        let Some(beginning) = self.beginning_from(before)? else { return Err(none) };
        let mut scan = self.scan(beginning.lsn)?;
        while let Some(record) = scan.next_view()? {
            match record.kind() {
                _ if record.end() <= mark => {}
                RecordKind::Void if record.lsn() < mark => return Ok(record.end()),
                // The mark is in a record whose beginning was given up.
                _ if record.lsn() == beginning.lsn && record.lsn() > mark && before == oldest => {
                    return Ok(record.lsn());
                }
                _ => break,
            }
        }
        Err(none)
    }

    /// Copies bytes of the durable log from `from` on into `to`, and returns how many. There are fewer than fit only at
    /// the end of the log. For copies of the log: a record may begin or end anywhere in them.
    ///
    /// # Errors
    /// [`LogError::Recycled`]. [`LogError::Invalid`]: a segment is missing, or has lost bytes. A failure of the disk.
    pub fn read_bytes(&self, from: Lsn, to: &mut [u8]) -> Result<usize, LogError> {
        self.slots.guarded(|| self.read_bytes_now(from, to)) // A keeper calls it in any thread.
    }

    fn read_bytes_now(&self, from: Lsn, to: &mut [u8]) -> Result<usize, LogError> {
        let block = from.0 & !(BLOCK_BYTES - 1);
        let skip = (from.0 - block) as usize;
        let durable = self.durable_lsn().0.saturating_sub(from.0);
        let wanted = durable.min(to.len() as u64) as usize;
        let found = (|| {
            let mut buffer = AlignedBuf::new((skip + wanted).next_multiple_of(BLOCK_BYTES as usize));
            let have = self.segments.read(block, &mut buffer)?.saturating_sub(skip).min(wanted);
            if have < wanted {
                return Err(LogError::Invalid { lsn: Lsn(from.0 + have as u64), why: Malformed::NoFile });
            }
            to[..have].copy_from_slice(&buffer[skip..skip + have]);
            Ok(have)
        })();
        // Looked at afterwards: the segment may have been used again while we read.
        let oldest = self.oldest_lsn();
        if from < oldest { Err(LogError::Recycled { lsn: from, oldest }) } else { found }
    }

    /// `None` if the buffer no longer holds it.
    fn read_ring(&self, lsn: Lsn) -> Option<Result<Record, Malformed>> {
        let ring_bytes = self.ring.len() as u64 * 8;
        let is_kept = || self.state.zero_begun.load(SeqCst) <= lsn.0 + ring_bytes;
        if !is_kept() {
            return None;
        }
        let length = length_checked(ring::first_word(&self.ring, lsn.0));
        let found = length.and_then(|length| {
            let mut bytes = vec![0; length.min(ring_bytes as usize)];
            ring::copy_out(&self.ring, lsn.0, &mut bytes);
            decode_sealed(lsn, &bytes, &self.seal).map(|record| record.to_record()).or_else(|why| {
                // The record of our incarnation itself is sealed for the one before.
                let seal = self.seal_at(lsn.0).ok_or(why)?;
                decode_sealed(lsn, &bytes, &seal).map(|record| record.to_record())
            })
        });
        fence(Acquire); // B4
        is_kept().then_some(found)
    }

    fn read_file(&self, lsn: Lsn) -> Result<Record, LogError> {
        let block = lsn.0 & !(BLOCK_BYTES - 1);
        let skip = (lsn.0 - block) as usize;
        let invalid = |why| LogError::Invalid { lsn, why };
        let mut blocks = 2;
        loop {
            let mut buffer = AlignedBuf::new(blocks * BLOCK_BYTES as usize);
            let have = self.segments.read(block, &mut buffer)?;
            let bytes = buffer.get(skip..have).filter(|bytes| bytes.len() >= 8).ok_or(invalid(Malformed::NoFile))?;
            let length = length_checked(le_u64(bytes, 0)).map_err(invalid)?;
            let needed = (skip + length).div_ceil(BLOCK_BYTES as usize);
            if needed > blocks {
                blocks = needed;
                continue;
            }
            let record = decode(lsn, bytes).map_err(invalid)?;
            self.check_seal(record).map_err(invalid)?;
            return Ok(record.to_record());
        }
    }

    /// Below the oldest known incarnation, any older one will do: a caller that asks for such an LSN has it from a
    /// valid record.
    pub(crate) fn check_seal(&self, record: RecordView<'_>) -> Result<(), Malformed> {
        let lsn = record.lsn();
        if let Some(seal) = self.seal_at(lsn.0) {
            return record.check(&seal);
        }
        let mix = record.crc() ^ record.checksum();
        match self.seals_at(lsn.0).that_mix(lsn.0, mix).next() {
            Some(_) => Ok(()),
            None => record.check(&Seal::new(self.environment, self.incarnation_at(lsn))),
        }
    }
}
