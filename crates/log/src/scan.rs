//! Reading the log forward, every record checked, in large pieces; and finding where it ends.
//!
//! Needs no [`Log`](crate::Log): recovery reads before there is one.
//!
//! S1. The records from `from` on are read under the incarnation given, and after an `Incarnation` record under the one
//!     it names, which must be larger.
//! S2. The first bytes that are not a record of the incarnation in force are the end of the log. The bytes behind them
//!     were never durable, or belong to an earlier life of the segment or of the log.
//! S3. There is one exception. A whole commit record may lie behind them, at a multiple of 8. It may be of the
//!     incarnation in force or a later one, and say that the log was durable beyond that place. Then the log is damaged
//!     there: [`LogError::Corrupt`]. All segments that exist are looked through.
//! S4. What is not a record is read once more before it is believed. A read that went wrong once would make the log end
//!     early: its last commits would be given up, and written over.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ledgerstone_disk::{AlignedBuf, Disk, DiskError};
use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};

use crate::EnvironmentId;
use crate::ahead::{Ahead, Checker, Piece};
use crate::error::{LogError, Malformed};
use crate::record::{
    COMMIT_BYTES_MAX, FIRST_LSN, RECORD_BYTES_MAX, Record, RecordKind, RecordView, decode, le_u64, length_checked,
    length_of,
};
use crate::seal::{Seal, Seals};
use crate::segment::{BLOCK_BYTES, Segments};

/// Read at once.
const READ_BYTES: usize = 512 << 10;
/// Later incarnations that are looked for behind the end when the caller does not say how many there were.
const LATER_INCARNATIONS: u64 = 16;

/// How far a reader of the log has come, for others to look at and to stop.
#[derive(Debug, Default)]
pub struct Watch {
    at: AtomicU64,
    is_stopped: AtomicBool,
}

impl Watch {
    /// The place it has come to.
    #[must_use]
    pub fn at(&self) -> Lsn {
        Lsn(self.at.load(Relaxed)) // Only shown.
    }

    /// Has come to `at`.
    pub fn set(&self, at: Lsn) {
        self.at.store(at.0, Relaxed); // As above.
    }

    /// Ends the reading: the next call on it answers [`LogError::Stopped`].
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed); // It carries no data.
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`LogError::Stopped`].
    pub fn check(&self) -> Result<(), LogError> {
        if self.is_stopped.load(Relaxed) { Err(LogError::Stopped) } else { Ok(()) }
    }
}

/// A forward reader.
pub struct LogScan {
    segments: Segments,
    environment: EnvironmentId,
    seal: Seal,
    incarnation_max: u64,
    incarnations: Vec<(Lsn, u64)>,
    at: u64,
    limit: u64,
    window: Window,
    has_ended: bool,
    watch: Option<Arc<Watch>>,
}

impl LogScan {
    /// A scan from `from`, where a record of `incarnation` begins.
    ///
    /// # Errors
    /// There is no segment for `from`, or the disk failed.
    pub fn new(
        disk: Arc<dyn Disk>,
        environment: EnvironmentId,
        segment_bytes: u64,
        from: Lsn,
        incarnation: u64,
    ) -> Result<LogScan, LogError> {
        if !segment_bytes.is_power_of_two() || segment_bytes < BLOCK_BYTES {
            return Err(LogError::Setting { name: "segment_bytes", value: segment_bytes, must: "a power of two" });
        }
        if from < FIRST_LSN || !from.0.is_multiple_of(8) {
            return Err(LogError::Setting { name: "from", value: from.0, must: "the LSN of a record" });
        }
        let segments = Segments::new(disk, segment_bytes, true);
        let starts = segments.list()?;
        let start = segments.start_of(from.0);
        let is_there = |start: u64| starts.binary_search(&start).is_ok();
        // The log may be empty, or end where the next segment would begin.
        let may_be_missing = from == FIRST_LSN || from.0 == start && is_there(start - segment_bytes);
        if !is_there(start) && !may_be_missing {
            return Err(LogError::MissingSegment { lsn: from, path: segments.path(start) });
        }
        Ok(LogScan {
            segments,
            environment,
            seal: Seal::new(environment, incarnation),
            incarnation_max: incarnation + LATER_INCARNATIONS,
            incarnations: vec![(from, incarnation)],
            at: from.0,
            limit: u64::MAX,
            window: Window::new(),
            has_ended: false,
            watch: None,
        })
    }

    /// The largest incarnation ever given out, from the control file: bounds what S3 looks for.
    pub fn with_incarnation_max(mut self, incarnation_max: u64) -> LogScan {
        self.incarnation_max = incarnation_max.max(self.seal.incarnation());
        self
    }

    /// Makes durable what the scan is going to read. Call it before the scan begins, unless the writer of the log is
    /// known to have synced it. A killed process may have left records in the system's cache. They would be lost with
    /// the power, although they were read, believed and acted on. Waits for the device.
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn settled(self) -> Result<LogScan, LogError> {
        self.segments.settle(self.at)?;
        Ok(self)
    }

    /// Lets threads read ahead and check once the scan turns out to be long. For one scan that is waited for.
    pub fn with_reader(mut self) -> LogScan {
        self.window.may_read_ahead = true;
        self
    }

    /// Stores in `watch` how far the scan has come, for another thread to read. That thread may also stop it.
    pub fn with_watch(mut self, watch: Arc<Watch>) -> LogScan {
        self.watch = Some(watch);
        self
    }

    /// Reads no record that begins at `limit` or later. For a log that grows: raise it to the new durable LSN and go
    /// on.
    pub fn set_limit(&mut self, limit: Lsn) {
        self.limit = limit.0;
    }

    /// The next record, or `None` at the end of the log.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] (S3), [`LogError::Stopped`], or a failure of the disk.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it fails, and can go on after its end.
    pub fn next(&mut self) -> Result<Option<Record>, LogError> {
        Ok(self.next_view()?.map(|record| record.to_record()))
    }

    /// As [`LogScan::next`], without a copy.
    ///
    /// # Errors
    /// As [`LogScan::next`].
    pub fn next_view(&mut self) -> Result<Option<RecordView<'_>>, LogError> {
        if self.has_ended || self.at >= self.limit {
            return Ok(None);
        }
        let lsn = Lsn(self.at);
        let looked = match self.window.checked_length(lsn.0) {
            Some(length) => Ok((length, None)),
            None => self.look_twice()?,
        };
        match looked {
            Ok((length, incarnation)) => {
                self.at += length as u64;
                if let Some(watch) = &self.watch {
                    watch.set(Lsn(self.at));
                    watch.check()?;
                }
                if let Some(incarnation) = incarnation {
                    self.seal = Seal::new(self.environment, incarnation);
                    self.incarnations.push((Lsn(self.at), incarnation));
                }
                Ok(decode(lsn, self.window.bytes(lsn.0)).ok())
            }
            Err(why) => {
                if self.limit != u64::MAX {
                    // Below a limit everything is durable.
                    return Err(LogError::Invalid { lsn, why });
                }
                self.look_behind_end(why)?;
                self.has_ended = true;
                Ok(None)
            }
        }
    }

    /// Where the next record would begin. After the last record, this is the end of the log.
    pub fn end(&self) -> Lsn {
        Lsn(self.at)
    }

    /// The incarnation in force there.
    pub fn incarnation(&self) -> u64 {
        self.seal.incarnation()
    }

    /// The incarnations met, each with the LSN from which on it is in force.
    pub fn incarnations(&self) -> &[(Lsn, u64)] {
        &self.incarnations
    }

    /// S4.
    fn look_twice(&mut self) -> Result<Result<(usize, Option<u64>), Malformed>, LogError> {
        let looked = self.look()?;
        if looked.is_ok() {
            return Ok(looked);
        }
        self.window.forget();
        self.look()
    }

    /// Brings the record at `at` into the window: its length, and the incarnation it puts in force.
    fn look(&mut self) -> Result<Result<(usize, Option<u64>), Malformed>, LogError> {
        let lsn = Lsn(self.at);
        if self.window.fill(&self.segments, self.at, 8, self.limit)? < 8 {
            return Ok(Err(Malformed::NoFile));
        }
        if self.limit == u64::MAX && self.window.wants_ahead() {
            self.begin_ahead();
        }
        let length = match length_checked(le_u64(self.window.bytes(self.at), 0)) {
            Ok(length) => length,
            Err(why) => return Ok(Err(why)),
        };
        let have = self.window.fill(&self.segments, self.at, length, self.limit)?;
        if have < length {
            return Ok(Err(Malformed::Short { needed: length as u64, have: have as u64 }));
        }
        let record = match decode(lsn, &self.window.bytes(self.at)[..length]) {
            Ok(record) => record,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = record.check(&self.seal)
            && !self.is_accepted_stale(&record)
        {
            return Ok(Err(why));
        }
        if let Some(found) = record.incarnation() {
            let current = self.seal.incarnation();
            return Ok(if found > current {
                Ok((length, Some(found)))
            } else {
                Err(Malformed::Incarnation { current, found })
            });
        }
        Ok(Ok((length, None)))
    }

    /// Lets threads go on behind the window.
    fn begin_ahead(&mut self) {
        let rest = self.window.bytes(self.at);
        let mut checker = Checker::new(self.environment, self.seal, self.at);
        let end = self.at + rest.len() as u64;
        self.window.checked = checker.pass(self.at, rest);
        self.window.ahead = Ahead::begin(self.segments.again(), end, checker);
        self.window.may_read_ahead = self.window.ahead.is_some();
    }

    /// S3. Looks for a commit record behind `at` that proves it durable.
    fn look_behind_end(&mut self, why: Malformed) -> Result<(), LogError> {
        let first = self.segments.start_of(self.at);
        let starts = self.segments.list()?;
        let incarnation = self.seal.incarnation();
        let seals = Seals::new(self.environment, incarnation, self.incarnation_max.max(incarnation));
        for start in starts.into_iter().filter(|start| *start >= first) {
            let mut at = start.max(self.at + 8);
            let end = start + self.segments.segment_bytes();
            while at + 8 <= end {
                let have = self.window.fill(&self.segments, at, 8, u64::MAX)?;
                if have < 8 {
                    break;
                }
                let words = self.window.bytes(at).chunks_exact(8).take(((end - at) / 8) as usize);
                let count = words.len() as u64;
                let candidate = words.enumerate().find(|(_, word)| is_commit(le_u64(word, 0)));
                let Some((no, word)) = candidate else {
                    at += count.max(1) * 8;
                    continue;
                };
                let length = length_of(le_u64(word, 0)) as usize;
                at += no as u64 * 8;
                if self.window.fill(&self.segments, at, length, u64::MAX)? >= length
                    && let Ok(record) = decode(Lsn(at), &self.window.bytes(at)[..length])
                    && (self.at + 1..=at).contains(&record.durable_lsn().0)
                {
                    let mix = record.crc() ^ record.checksum();
                    if seals.that_mix(at, mix).next().is_some() {
                        let (lsn, durable) = (Lsn(self.at), record.durable_lsn());
                        return Err(LogError::Corrupt { lsn, why, witness: Lsn(at), durable });
                    }
                }
                at += 8;
            }
        }
        Ok(())
    }

    /// The planted bug: takes what an earlier life of the segment or of the log has left for new.
    #[inline]
    fn is_accepted_stale(&self, record: &RecordView<'_>) -> bool {
        if !planted::is_on(Bug::StaleLogTail) {
            return false;
        }
        let mix = record.crc() ^ record.checksum();
        let lives = (0..64).map_while(|n| record.lsn().0.checked_sub(n * self.segments.segment_bytes()));
        lives
            .into_iter()
            .any(|lsn| (1..=self.incarnation_max).any(|number| Seal::new(self.environment, number).mix(lsn) == mix))
    }
}

/// Whether this can be the first word of a commit record.
fn is_commit(word: u64) -> bool {
    (word >> 56) as u8 == RecordKind::Commit as u8 && (32..=COMMIT_BYTES_MAX as u64).contains(&length_of(word))
}

/// So many pieces are read by the scan itself before threads read ahead.
const OWN_PIECES: u32 = 2;

/// The piece of the log that was read last.
struct Window {
    buffer: AlignedBuf,
    /// What threads have read and checked (`ahead.rs`), instead of the buffer.
    piece: Option<Piece>,
    ahead: Option<Ahead>,
    may_read_ahead: bool,
    /// Full pieces that were read one behind the other.
    own_count: u32,
    start: u64,
    len: usize,
    /// The LSNs of the records that need no check (A4).
    checked: Range<u64>,
}

impl Window {
    fn new() -> Window {
        let buffer = AlignedBuf::new(RECORD_BYTES_MAX + READ_BYTES);
        Window {
            buffer,
            piece: None,
            ahead: None,
            may_read_ahead: false,
            own_count: 0,
            start: 0,
            len: 0,
            checked: 0..0,
        }
    }

    /// Has the next call read anew, and nobody ahead.
    fn forget(&mut self) {
        (self.ahead, self.piece, self.may_read_ahead) = (None, None, false);
        (self.len, self.checked) = (0, 0..0);
    }

    /// Whether the log is long, and nobody reads ahead.
    fn wants_ahead(&self) -> bool {
        self.may_read_ahead && self.ahead.is_none() && self.own_count >= OWN_PIECES
    }

    /// The length of the record at `lsn`, if it is known to be one, and leaves in force what is.
    #[inline]
    fn checked_length(&self, lsn: u64) -> Option<usize> {
        if !self.checked.contains(&lsn) {
            return None;
        }
        let first_word = le_u64(self.bytes(lsn), 0);
        ((first_word >> 56) as u8 != RecordKind::Incarnation as u8).then(|| length_of(first_word) as usize)
    }

    /// Makes `count` bytes from `lsn` on be there, and says how many of them are: fewer if segments end or are missing,
    /// or `limit` is reached.
    fn fill(&mut self, segments: &Segments, lsn: u64, count: usize, limit: u64) -> Result<usize, DiskError> {
        if lsn < self.start || lsn + count as u64 > self.start + self.len as u64 {
            let is_there = limit == u64::MAX && self.ahead.is_some() && self.take_piece(lsn, count);
            if !is_there {
                self.read(segments, lsn, count, limit)?;
            }
        }
        let have = (self.start + self.len as u64).saturating_sub(lsn);
        Ok(have.min(count as u64) as usize)
    }

    fn read(&mut self, segments: &Segments, lsn: u64, count: usize, limit: u64) -> Result<(), DiskError> {
        if self.ahead.take().is_some() {
            self.own_count = 0; // What did not do may come again.
        }
        (self.piece, self.checked) = (None, 0..0);
        self.start = lsn & !(BLOCK_BYTES - 1);
        let needed = (lsn - self.start) as usize + count;
        // No more than there can be below the limit: a follower reads a block or two.
        let below = usize::try_from(limit.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let useful = needed.max(READ_BYTES.min(below));
        let wanted = useful.next_multiple_of(BLOCK_BYTES as usize).min(self.buffer.len());
        self.len = 0;
        let have = segments.read(self.start, &mut self.buffer[..wanted])?;
        // Bytes behind the limit may still change.
        self.len = have.min(limit.saturating_sub(self.start).min(usize::MAX as u64) as usize);
        self.own_count = if have == wanted { self.own_count.saturating_add(1) } else { 0 };
        Ok(())
    }

    /// Goes on to the next piece that was read ahead, and takes along what it needs of this one. False if that does not
    /// do: then nothing has changed but that nobody reads ahead any more.
    fn take_piece(&mut self, lsn: u64, count: usize) -> bool {
        let end = self.start + self.len as u64;
        let next = if (self.start..=end).contains(&lsn) { self.ahead.as_ref().and_then(Ahead::next) } else { None };
        let Some(mut next) = next else { return false };
        let rest = &self.bytes(lsn)[..(end - lsn) as usize];
        if next.bytes().len() + rest.len() < count || !next.put_before(rest) {
            return false;
        }
        self.start = lsn;
        self.len = next.bytes().len();
        self.checked = next.checked.clone();
        if let (Some(before), Some(ahead)) = (self.piece.replace(next), &self.ahead) {
            ahead.give_back(before);
        }
        true
    }

    /// The bytes from `lsn` on that are there.
    #[inline]
    fn bytes(&self, lsn: u64) -> &[u8] {
        let skip = (lsn - self.start) as usize;
        let bytes = match &self.piece {
            Some(piece) => piece.bytes(),
            None => &self.buffer[..self.len],
        };
        bytes[..self.len].get(skip..).unwrap_or(&[])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ledgerstone_disk::SimDisk;
    use ledgerstone_page::{OpId, Xid};
    use ledgerstone_region::Region;

    use super::*;
    use crate::{Log, LogConfig, NewRecord};

    #[test]
    fn nearly_all_records_of_a_long_log_are_checked_ahead() {
        let environment = *b"test environment";
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let config = LogConfig::new(Arc::clone(&disk), Region::anonymous(64 << 20).unwrap(), environment);
        let segment_bytes = config.segment_bytes;
        let log = Log::open(config).unwrap();
        let body: &[&[u8]] = &[&[7; 600]];
        let (xid, prev_lsn, op) = (Xid(0), Lsn(0), OpId(0));
        let record = NewRecord { kind: RecordKind::User, xid, prev_lsn, op, flags: 0, page: None, body };
        while log.tail().0 < 8 << 20 {
            let mut claim = log.claim(record.len_bytes()).unwrap();
            log.append(&mut claim, &record);
            log.give_back(claim);
        }
        log.flush().unwrap();
        let mut scan = LogScan::new(disk, environment, segment_bytes, FIRST_LSN, 1).unwrap().with_reader();
        let (mut count, mut checked_count) = (0, 0);
        while let Some(record) = scan.next().unwrap() {
            let lsn = record.lsn().0;
            count += 1;
            checked_count += u64::from(scan.window.checked.contains(&lsn));
        }
        // Two pieces of sixteen are read before.
        assert!(checked_count * 4 > count * 3, "{checked_count} of {count}");
    }
}
