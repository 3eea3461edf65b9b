//! Finding a record's beginning in the middle of the log.
//!
//! Records have no marks between them. But a record's checksum is mixed with its LSN, so bytes are a record only where
//! they were written as one. The first place where two records follow each other, with their checksums, is a beginning.
//! One place in 2^64 could look so by chance.
//!
//! Which incarnation it is of is found out, too. All that it can be of are tried, however often the environment was
//! opened: a record that is passed over because it is too old would be lost in silence. To try one takes some
//! nanoseconds, and only places that look like a record with another one behind it are tried at all.

use std::sync::Arc;

use ledgerstone_disk::{AlignedBuf, Disk};
use ledgerstone_page::Lsn;

use crate::EnvironmentId;
use crate::error::{LogError, Malformed};
use crate::record::{FIRST_LSN, HEADER_BYTES, RECORD_BYTES_MAX, RecordKind, RecordView, decode, length_of};
use crate::seal::{Seal, Seals};
use crate::segment::{BLOCK_BYTES, Segments};

/// Read first.
const QUICK_BYTES: usize = 128 << 10;
/// Read at once where all of the log is looked through.
const PIECE_BYTES: usize = 1 << 20;

/// A beginning: the LSN of a record, and the incarnation it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// Where the record begins.
    pub lsn: Lsn,
    /// Its incarnation.
    pub incarnation: u64,
}

/// What is known of a log in which records are looked for.
pub(crate) struct Whose<'a> {
    pub environment: EnvironmentId,
    /// The seals that a record at an LSN can have.
    pub seals_at: &'a dyn Fn(u64) -> Seals,
    /// The first place from an LSN on where a record is known to begin, or the log to end.
    pub known_from: &'a dyn Fn(u64) -> Option<u64>,
    /// A log that has a beginning has a record there.
    pub is_to_be_whole: bool,
}

/// The first record of the newest segments that have no gap between them, and the largest incarnation that the log
/// speaks of. For callers that know neither where the log begins nor its incarnations. `None` if the segments hold no
/// record of this environment.
///
/// `told` is asked which incarnation a record speaks of that is of the kind [`RecordKind::Checkpoint`]. It was in force
/// there or earlier. The answer counts if it was in force there.
///
/// # Errors
/// A failure of the disk.
pub fn oldest_record(
    disk: &Arc<dyn Disk>,
    environment: EnvironmentId,
    segment_bytes: u64,
    told: &dyn Fn(RecordView<'_>) -> Option<u64>,
) -> Result<Option<(Beginning, u64)>, LogError> {
    let segments = Segments::new(Arc::clone(disk), segment_bytes, true);
    let starts = segments.list()?;
    let Some(last) = starts.last().copied() else { return Ok(None) };
    let mut oldest = last;
    while oldest > 0 && starts.binary_search(&(oldest - segment_bytes)).is_ok() {
        oldest -= segment_bytes;
    }
    let end = Lsn(last + segment_bytes);
    let incarnation_max = newest_told(&segments, environment, oldest, end, told)?;
    let seals_at = &|_| Seals::new(environment, 1, incarnation_max);
    let whose = Whose { environment, seals_at, known_from: &|_| None, is_to_be_whole: false };
    for start in (oldest..end.0).step_by(segment_bytes as usize) {
        let from = Lsn(start.max(FIRST_LSN.0));
        if let Some(found) = first_record(&segments, &whose, from, end)? {
            return Ok(Some((found, incarnation_max)));
        }
    }
    Ok(None)
}

/// The largest incarnation that a record speaks of which proves it: one that puts an incarnation in force, by the
/// record behind it; a checkpoint by its own seal. A log that has neither is of the first incarnation.
fn newest_told(
    segments: &Segments,
    environment: EnvironmentId,
    from: u64,
    end: Lsn,
    told: &dyn Fn(RecordView<'_>) -> Option<u64>,
) -> Result<u64, LogError> {
    let mut newest = 1;
    let mut buffer = AlignedBuf::new(PIECE_BYTES + 2 * RECORD_BYTES_MAX);
    for start in (from..end.0).step_by(PIECE_BYTES) {
        let have = segments.read(start, &mut buffer)?;
        let bytes = &buffer[..have.min((end.0 - start) as usize)];
        for at in (0..bytes.len().min(PIECE_BYTES)).step_by(8) {
            let Some(Ok(record)) = speaker(&bytes[at..]).then(|| decode(Lsn(start + at as u64), &bytes[at..])) else {
                continue;
            };
            let proof = match record.incarnation() {
                Some(number) => {
                    decode(record.end(), &bytes[at + record.bytes().len()..]).ok().map(|next| (number, next))
                }
                None => told(record).map(|number| (number, record)),
            };
            if let Some((number, sealed)) = proof.filter(|(number, _)| *number > newest)
                && sealed.check(&Seal::new(environment, number)).is_ok()
            {
                newest = number;
            }
        }
    }
    Ok(newest)
}

/// Whether these bytes can begin a record that speaks of an incarnation.
fn speaker(bytes: &[u8]) -> bool {
    let Some(word) = bytes.first_chunk().map(|word| u64::from_le_bytes(*word)) else { return false };
    let kind = (word >> 56) as u8;
    kind == RecordKind::Checkpoint as u8
        || kind == RecordKind::Incarnation as u8 && length_of(word) == INCARNATION_BYTES
}

/// Length of a record that puts an incarnation in force.
const INCARNATION_BYTES: u64 = HEADER_BYTES as u64 + 8;

/// The first record at or behind `from` that begins below `end`. `None` if there is none within the length of the
/// longest record, nor behind zeros that go on from there. The log of a restored environment may begin anywhere in its
/// segment.
///
/// # Errors
/// [`LogError::Invalid`] where a record is known to begin, and there is none. A failure of the disk.
pub(crate) fn first_record(
    segments: &Segments,
    whose: &Whose<'_>,
    from: Lsn,
    end: Lsn,
) -> Result<Option<Beginning>, LogError> {
    let mut found = record_near(segments, whose, from.0.next_multiple_of(8), end)?;
    if found.is_none()
        && let Some(begin) = behind_zeros(segments, from.0, end)?
    {
        found = record_near(segments, whose, begin, end)?;
    }
    let is_passed_over = |known: &u64| *known < end.0 && found.is_none_or(|found| found.lsn.0 > *known);
    let first = Some(FIRST_LSN.0).filter(|first| whose.is_to_be_whole && from.0 <= *first && is_passed_over(first));
    let passed_over = match first {
        // Zeros: the log of a restored environment.
        Some(first) if is_something_at(segments, first)? => Some(first),
        _ => (whose.known_from)(from.0).filter(is_passed_over),
    };
    match passed_over {
        Some(known) => Err(LogError::Invalid { lsn: Lsn(known), why: Malformed::Empty }),
        None => Ok(found),
    }
}

fn is_something_at(segments: &Segments, lsn: u64) -> Result<bool, LogError> {
    let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
    let at = lsn & !(BLOCK_BYTES - 1);
    let have = segments.read(at, &mut block)?;
    Ok(block[..have].get((lsn - at) as usize..).is_some_and(|bytes| bytes.iter().take(8).any(|byte| *byte != 0)))
}

/// The place of the first word that is not zero, from `from` on, in its segment and below `end`; `None` if that is the
/// first.
fn behind_zeros(segments: &Segments, from: u64, end: Lsn) -> Result<Option<u64>, LogError> {
    let end = end.0.min(segments.start_of(from) + segments.segment_bytes());
    let mut buffer = AlignedBuf::new(RECORD_BYTES_MAX);
    let mut block = from & !(BLOCK_BYTES - 1);
    while block < end {
        let have = (segments.read(block, &mut buffer)? as u64).min(end - block);
        let words = buffer[..have as usize].chunks_exact(8).zip((block..).step_by(8));
        if let Some((_, at)) = words.into_iter().find(|(word, at)| *at >= from && **word != [0; 8]) {
            return Ok((at >= from + 8).then_some(at));
        }
        if have < buffer.len() as u64 {
            break;
        }
        block += have;
    }
    Ok(None)
}

/// The first record at or behind `first` within the length of the longest one.
fn record_near(segments: &Segments, whose: &Whose<'_>, first: u64, end: Lsn) -> Result<Option<Beginning>, LogError> {
    let block = first & !(BLOCK_BYTES - 1);
    // Most records are short. The second: a longest record that begins just before `from`, and two that prove it.
    for wanted in [QUICK_BYTES, 3 * RECORD_BYTES_MAX + BLOCK_BYTES as usize] {
        let mut buffer = AlignedBuf::new(wanted);
        let have = segments.read(block, &mut buffer)? as u64;
        let have = have.min(end.0.saturating_sub(block));
        let bytes = &buffer[..have as usize];
        let mut at = first;
        while at < block + have && at <= first + RECORD_BYTES_MAX as u64 {
            if let Some(incarnation) = incarnation_of(bytes, block, at, whose, end) {
                return Ok(Some(Beginning { lsn: Lsn(at), incarnation }));
            }
            at += 8;
        }
    }
    Ok(None)
}

/// The incarnation of the record at `at` if there is one, and one that follows it below `end`. Where a record is known
/// to begin, the next one may be damaged.
fn incarnation_of(bytes: &[u8], start: u64, at: u64, whose: &Whose<'_>, end: Lsn) -> Option<u64> {
    let record_at = |at: u64| decode(Lsn(at), bytes.get((at - start) as usize..)?).ok();
    let record = record_at(at)?;
    let next = record_at(record.end().0).filter(|_| record.end() < end);
    let is_known = whose.is_to_be_whole && at == FIRST_LSN.0 || (whose.known_from)(at) == Some(at);
    if next.is_none() && record.end() < end && !is_known {
        return None;
    }
    let follows = |seal: Seal, next: RecordView<'_>| {
        let in_force = record.incarnation().map_or(seal, |number| Seal::new(whose.environment, number));
        next.check(&in_force).is_ok()
    };
    let mix = record.crc() ^ record.checksum();
    let mut seals = (whose.seals_at)(at).that_mix(at, mix);
    let proved = seals.find(|seal| next.map_or(record.end() == end, |next| follows(*seal, next)));
    // The oldest at the beginning of all; where else one is known, its seal is known, too.
    let believed = || is_known.then(|| (whose.seals_at)(at).that_mix(at, mix).last()).flatten();
    proved.or_else(believed).map(|seal| seal.incarnation())
}
