//! Proving bytes of the log as they go by: that they are records without a gap, sealed for their places.
//!
//! For a copier of the log, which must not copy what has rotted: the bytes that are proved are the bytes that are
//! copied.

use ledgerstone_page::Lsn;

use crate::EnvironmentId;
use crate::error::LogError;
use crate::probe::Beginning;
use crate::record::{decode_sealed, le_u64, length_checked};
use crate::seal::Seal;

/// Takes the log piece by piece, in order.
#[derive(Debug, Clone)]
pub struct LogProof {
    environment: EnvironmentId,
    seal: Seal,
    /// Where the first record begins that is not proved.
    at: u64,
    /// What there was of it so far.
    part: Vec<u8>,
}

impl LogProof {
    /// Begins at a record.
    pub fn new(environment: EnvironmentId, from: Beginning) -> LogProof {
        let seal = Seal::new(environment, from.incarnation);
        LogProof { environment, seal, at: from.lsn.0, part: Vec::new() }
    }

    /// Checks the bytes from `lsn` on. They may begin before the end of what was checked so far, but not behind it. A
    /// record that goes on behind them is checked when its rest comes.
    ///
    /// # Errors
    /// [`LogError::Invalid`]: a record is not what was written.
    ///
    /// # Panics
    /// Bytes were left out, which is a bug of the caller.
    pub fn feed(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let seen = self.at + self.part.len() as u64;
        if !self.part.is_empty() {
            assert!(lsn.0 <= seen, "the log from {seen} to {lsn} was left out");
        }
        let skip = usize::try_from(seen.saturating_sub(lsn.0)).unwrap_or(usize::MAX);
        let mut bytes = bytes.get(skip..).unwrap_or(&[]);
        if !self.part.is_empty() {
            let missing = self.missing_bytes()?;
            let (rest, behind) = bytes.split_at(missing.min(bytes.len()));
            self.part.extend_from_slice(rest);
            if rest.len() < missing {
                return Ok(());
            }
            let record = std::mem::take(&mut self.part);
            self.check(&record)?;
            bytes = behind;
        }
        while bytes.len() >= 8 {
            let length = self.length(bytes)?;
            let Some(record) = bytes.get(..length) else {
                self.part = bytes.to_vec();
                break;
            };
            self.check(record)?;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    /// The missing bytes of the record that was cut off, as its head says. 0 behind a whole record.
    ///
    /// # Errors
    /// As [`LogProof::feed`].
    pub fn missing_bytes(&self) -> Result<usize, LogError> {
        if self.part.is_empty() { Ok(0) } else { Ok(self.length(&self.part)?.saturating_sub(self.part.len())) }
    }

    /// Where a proof of what follows would begin: at the record that was cut off, or behind the last one.
    pub fn resumes_at(&self) -> Beginning {
        Beginning { lsn: Lsn(self.at), incarnation: self.seal.incarnation() }
    }

    fn length(&self, bytes: &[u8]) -> Result<usize, LogError> {
        length_checked(le_u64(bytes, 0)).map_err(|why| LogError::Invalid { lsn: Lsn(self.at), why })
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        let lsn = Lsn(self.at);
        let record = decode_sealed(lsn, bytes, &self.seal).map_err(|why| LogError::Invalid { lsn, why })?;
        if let Some(next) = record.incarnation() {
            self.seal = Seal::new(self.environment, next);
        }
        self.at = record.end().0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FIRST_LSN, NewRecord, RecordKind};
    use ledgerstone_page::{OpId, Xid};

    /// Records of many lengths; in the middle a new incarnation.
    fn log() -> Vec<u8> {
        let (mut bytes, mut seal) = (Vec::new(), Seal::new([7; 16], 1));
        for n in 0..40 {
            let (kind, body) = match n {
                20 => (RecordKind::Incarnation, 5u64.to_le_bytes().to_vec()),
                _ => (RecordKind::User, vec![n as u8; n * n]),
            };
            let body: &[&[u8]] = &[&body];
            let record = NewRecord { kind, xid: Xid(0), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body };
            bytes.extend(record.encode(Lsn(FIRST_LSN.0 + bytes.len() as u64), &seal));
            if n == 20 {
                seal = Seal::new([7; 16], 5);
            }
        }
        bytes
    }

    fn prove(bytes: &[u8], piece: usize) -> Result<LogProof, LogError> {
        let mut proof = LogProof::new([7; 16], Beginning { lsn: FIRST_LSN, incarnation: 1 });
        for (no, piece_bytes) in bytes.chunks(piece).enumerate() {
            proof.feed(Lsn(FIRST_LSN.0 + (no * piece) as u64), piece_bytes)?;
        }
        Ok(proof)
    }

    #[test]
    fn a_log_is_proved_in_pieces_of_any_size() {
        let bytes = log();
        for piece in [8, 24, 64, 512, 1000, 4096, bytes.len()] {
            let end = prove(&bytes, piece / 8 * 8).unwrap().resumes_at();
            assert_eq!(end, Beginning { lsn: Lsn(FIRST_LSN.0 + bytes.len() as u64), incarnation: 5 });
        }
        let cut = prove(&bytes[..bytes.len() - 8], 512).unwrap();
        assert!(
            cut.resumes_at().lsn.0 < FIRST_LSN.0 + bytes.len() as u64 - 8,
            "a record that is cut off is begun again"
        );
    }

    #[test]
    fn every_changed_bit_is_found() {
        let bytes = log();
        for at in (0..bytes.len()).step_by(3) {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            // A length that grew may reach behind the end: then the record is not proved, and is not said to be.
            let end = prove(&bad, 512).map(|proof| proof.resumes_at().lsn.0);
            assert!(end.is_err() || end.unwrap() <= FIRST_LSN.0 + at as u64, "byte {at}");
        }
    }
}
