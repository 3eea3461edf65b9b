//! Finding a record's beginning in the middle of the log.
//!
//! Records have no marks between them. But a record's checksum is mixed with its LSN, so bytes are a record only where
//! they were written as one: the first place from which on two records follow each other, checksums and all, is a
//! beginning (one place in 2^64 could look so by chance).

use std::sync::Arc;

use ledgerstone_disk::{AlignedBuf, Disk};
use ledgerstone_page::Lsn;

use crate::EnvironmentId;
use crate::error::LogError;
use crate::record::{FIRST_LSN, RECORD_BYTES_MAX, RecordView, decode, le_u64, length_checked};
use crate::seal::Seal;
use crate::segment::{BLOCK_BYTES, Segments};

/// Read first.
const QUICK_BYTES: usize = 128 << 10;

/// A beginning: the LSN of a record, and the incarnation it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// Where the record begins.
    pub lsn: Lsn,
    /// Its incarnation.
    pub incarnation: u64,
}

/// Incarnations that are tried when nobody says how many there were.
const INCARNATIONS_TRIED: u64 = 1 << 16;
/// Of these at once.
const OLDER_MAX: u64 = 4096;

/// The first record of the newest segments that have no gap between them. For callers that know neither where the log
/// begins nor its incarnation. `None` if they hold no record of this environment.
///
/// # Errors
/// A failure of the disk.
pub fn oldest_record(
    disk: &Arc<dyn Disk>,
    environment: EnvironmentId,
    segment_bytes: u64,
) -> Result<Option<Beginning>, LogError> {
    let segments = Segments::new(Arc::clone(disk), segment_bytes, true);
    let starts = segments.list()?;
    let Some(last) = starts.last().copied() else { return Ok(None) };
    let mut oldest = last;
    while oldest > 0 && starts.binary_search(&(oldest - segment_bytes)).is_ok() {
        oldest -= segment_bytes;
    }
    let end = Lsn(last + segment_bytes);
    for incarnation_max in (OLDER_MAX..=INCARNATIONS_TRIED).step_by(OLDER_MAX as usize) {
        for start in (oldest..end.0).step_by(segment_bytes as usize) {
            let from = Lsn(start.max(FIRST_LSN.0));
            let found = first_record(&segments, environment, incarnation_max, from, end)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// The first record at or behind `from` that begins below `end`, of an incarnation up to `incarnation_max`. `None` if
/// there is none within the length of the longest record, nor behind zeros that go on from there: the log of a restored
/// environment begins anywhere in its segment.
pub(crate) fn first_record(
    segments: &Segments,
    environment: EnvironmentId,
    incarnation_max: u64,
    from: Lsn,
    end: Lsn,
) -> Result<Option<Beginning>, LogError> {
    let seals: Vec<Seal> = (incarnation_max.saturating_sub(OLDER_MAX).max(1)..=incarnation_max)
        .rev()
        .map(|number| Seal::new(environment, number))
        .collect();
    let found = record_near(segments, environment, &seals, from.0.next_multiple_of(8), end)?;
    if found.is_some() {
        return Ok(found);
    }
    match behind_zeros(segments, from.0, end)? {
        Some(begin) => record_near(segments, environment, &seals, begin, end),
        None => Ok(None),
    }
}

/// The place of the first word that is not zero, from `from` on, in its segment and below `end`; `None` if that is the first.
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
fn record_near(
    segments: &Segments,
    environment: EnvironmentId,
    seals: &[Seal],
    first: u64,
    end: Lsn,
) -> Result<Option<Beginning>, LogError> {
    let block = first & !(BLOCK_BYTES - 1);
    // Most records are short. The second: a longest record that begins just before `from`, and two that prove it.
    for wanted in [QUICK_BYTES, 3 * RECORD_BYTES_MAX + BLOCK_BYTES as usize] {
        let mut buffer = AlignedBuf::new(wanted);
        let have = segments.read(block, &mut buffer)? as u64;
        let have = have.min(end.0.saturating_sub(block));
        let bytes = &buffer[..have as usize];
        let mut at = first;
        while at < block + have && at <= first + RECORD_BYTES_MAX as u64 {
            if let Some((record, seal)) = sealed(bytes, block, at, seals) {
                let next = record.end().0;
                let follows = record.incarnation().map_or(seal, |number| Seal::new(environment, number));
                if next >= end.0 || sealed(bytes, block, next, &[follows]).is_some() {
                    return Ok(Some(Beginning { lsn: Lsn(at), incarnation: seal.incarnation() }));
                }
            }
            at += 8;
        }
    }
    Ok(None)
}

/// The record at `at` if there is one under one of these seals.
fn sealed<'a>(bytes: &'a [u8], start: u64, at: u64, seals: &[Seal]) -> Option<(RecordView<'a>, Seal)> {
    let rest = bytes.get((at - start) as usize..).filter(|rest| rest.len() >= 8)?;
    length_checked(le_u64(rest, 0)).ok()?;
    let record = decode(Lsn(at), rest).ok()?;
    let mix = record.crc() ^ record.checksum();
    seals.iter().find(|seal| seal.mix(at) == mix).map(|seal| (record, *seal))
}
