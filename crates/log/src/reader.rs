//! A cursor on the log: forward, backward, and waiting for what comes.
//!
//! The cursor stands between two records. Its log may be open in this program. Then it ends where the log is durable,
//! and that end moves. Or its log is files: those of an environment that is closed, an archive, a backup.
//!
//! R1. Only whole, durable records are seen, each exactly once on the way forward.
//! R2. Records that were given up are an error that says where the log begins now ([`LogError::Recycled`]), never
//!     silence. A [`LogPin`](crate::LogPin) keeps that from happening.
//! R3. Records that cannot be read are an error, too: every byte between the oldest record that is found and the end
//!     belongs to a record. What was damaged before that one cannot be told from what was given up.

use ledgerstone_region::atomic::AtomicU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Wake, Waker};

use ledgerstone_disk::{AlignedBuf, Disk};
use ledgerstone_page::Lsn;
use ledgerstone_region::sync;

use crate::EnvironmentId;
use crate::error::{LogError, Malformed};
use crate::log::Log;
use crate::probe::{Beginning, Whose, first_record};
use crate::record::{FIRST_LSN, RECORD_BYTES_MAX, Record};
use crate::scan::LogScan;
use crate::seal::Seals;
use crate::segment::{BLOCK_BYTES, Segments};
use crate::wakers::WakerNo;

/// A piece that is read at once on the way back.
const BACK_BYTES: u64 = 256 << 10;

/// The log as files that are not being written.
#[derive(Clone)]
pub struct LogFiles {
    /// Where the segments are, under `log/`.
    pub disk: Arc<dyn Disk>,
    /// The environment, sealed into every record.
    pub environment: EnvironmentId,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// A place where a record begins, if one is known. The end of the log is searched from there.
    pub known: Option<Beginning>,
    /// The largest incarnation that was ever given out.
    pub incarnation_max: u64,
    /// Where the log ends, behind a record, if that is known. Otherwise it ends at the first bytes that are not a
    /// record.
    pub end: Option<Lsn>,
}

#[derive(Clone)]
enum Source {
    Open(Arc<Log>),
    Files(LogFiles),
}

/// The cursor. It is owned, and can be moved to another thread.
pub struct LogReader {
    source: Source,
    segments: Segments,
    /// The next record begins here, or the log ends.
    at: Lsn,
    forward: Option<LogScan>,
    /// Records that begin below are passed over on the way forward: they were not durable when the cursor was moved.
    skip_below: Lsn,
    /// The records before `at` that were read on the way back; the last one ends there.
    behind: Vec<Record>,
    bell: Arc<Bell>,
    /// For which LSN the bell hangs in the log, and where.
    hung: Option<(Lsn, Option<WakerNo>)>,
}

impl LogReader {
    /// A cursor on an open log, before the first record that begins at `from` or later, also if that is not durable
    /// yet. `Lsn(0)` means before the oldest record that is kept. `Lsn(u64::MAX)` means behind the last durable one.
    ///
    /// # Errors
    /// [`LogError::Recycled`], or a failure of the disk.
    pub fn new(log: &Arc<Log>, from: Lsn) -> Result<LogReader, LogError> {
        let segments = Segments::new(Arc::clone(&log.disk), log.segments.segment_bytes(), true);
        LogReader::on(Source::Open(Arc::clone(log)), segments, from)
    }

    /// A cursor on files.
    ///
    /// # Errors
    /// The existing segments begin behind `from` ([`LogError::Recycled`]), there is damage, or the disk failed.
    pub fn of_files(files: LogFiles, from: Lsn) -> Result<LogReader, LogError> {
        let segments = Segments::new(Arc::clone(&files.disk), files.segment_bytes, true);
        let mut files = files;
        if files.end.is_none() {
            let mut scan = match files.known {
                Some(known) => files.scan(known)?.settled()?, // R1
                None => return Err(LogError::Setting { name: "end", value: 0, must: "known, or a record's LSN" }),
            };
            while scan.next_view()?.is_some() {}
            files.incarnation_max = files.incarnation_max.max(scan.incarnation());
            files.end = Some(scan.end());
        }
        let mut reader = LogReader::on(Source::Files(files), segments, Lsn(u64::MAX))?;
        reader.seek(from)?;
        Ok(reader)
    }

    fn on(source: Source, segments: Segments, from: Lsn) -> Result<LogReader, LogError> {
        let at = FIRST_LSN;
        let bell = Arc::new(Bell(AtomicU32::new(0)));
        let (behind, skip_below) = (Vec::new(), Lsn(0));
        let mut reader = LogReader { source, segments, at, forward: None, skip_below, behind, bell, hung: None };
        reader.seek(from)?;
        Ok(reader)
    }

    /// Moves before the first record that begins at `to` or later, as [`LogReader::new`] does.
    ///
    /// # Errors
    /// As there; damage around `to`.
    pub fn seek(&mut self, to: Lsn) -> Result<(), LogError> {
        let before = self.at;
        let found = loop {
            match self.seek_from(to) {
                // What was the oldest has been given up since: there is another.
                Err(LogError::Recycled { .. }) if to <= FIRST_LSN => {}
                found => break found,
            }
        };
        if found.is_err() {
            self.at = before;
        }
        found
    }

    fn seek_from(&mut self, to: Lsn) -> Result<(), LogError> {
        let end = self.end();
        self.behind.clear();
        self.forward = None;
        self.skip_below = Lsn(0);
        self.at = if to >= end {
            if to != Lsn(u64::MAX) {
                self.skip_below = to;
            }
            end
        } else {
            let oldest = self.oldest()?;
            if to != Lsn(0) && to < oldest && to > FIRST_LSN {
                return Err(LogError::Recycled { lsn: to, oldest });
            }
            let to = to.max(oldest);
            self.at = to; // Whether what goes wrong was given up depends on where it is.
            match self.beginning_from(to) {
                Ok(Some(found)) if found.lsn == to || to == oldest => {
                    self.forward = Some(self.scan(found)?);
                    found.lsn
                }
                Ok(None) if to == oldest => self.check_empty(oldest, end)?,
                // What comes behind may be damaged.
                Ok(_) | Err(LogError::Invalid { .. }) if to > oldest => self.walk_to(to, oldest)?,
                other => return other.map(drop),
            }
        };
        Ok(())
    }

    /// No record begins at `to`: one that begins before must cover it (R3). Walks from a record before to the first one
    /// behind.
    fn walk_to(&mut self, to: Lsn, oldest: Lsn) -> Result<Lsn, LogError> {
        let damaged = |reader: &LogReader| Err(reader.explain(LogError::Invalid { lsn: to, why: Malformed::Empty }));
        let before = Lsn(to.0.saturating_sub(RECORD_BYTES_MAX as u64)).max(oldest);
        let Some(found) = self.beginning_from(before)? else { return damaged(self) };
        // The log of a restored environment begins behind zeros; others with the rest of a record that was given up.
        if found.lsn > to && before != oldest {
            return damaged(self);
        }
        let mut scan = self.scan(found)?;
        while scan.end() < to {
            match scan.next_view() {
                Ok(Some(_)) => {}
                Ok(None) => return damaged(self),
                Err(error) => return Err(self.explain(error)),
            }
        }
        let at = scan.end();
        self.forward = Some(scan);
        Ok(at)
    }

    /// There is no record from `oldest` on: then `end` ends the rest of a record whose beginning was given up (R3). All
    /// of that is there.
    fn check_empty(&self, oldest: Lsn, end: Lsn) -> Result<Lsn, LogError> {
        let damaged = |why| Err(self.explain(LogError::Invalid { lsn: oldest, why }));
        if end.0 - oldest.0 > RECORD_BYTES_MAX as u64 {
            return damaged(Malformed::Empty);
        }
        let block = oldest.0 & !(BLOCK_BYTES - 1);
        let mut buffer = AlignedBuf::new((end.0 - block).next_multiple_of(BLOCK_BYTES) as usize);
        let have = self.segments.read(block, &mut buffer)? as u64;
        if block + have < end.0 {
            return damaged(Malformed::NoFile);
        }
        Ok(end)
    }

    /// Whether a record begins at `lsn`, or the log ends there.
    ///
    /// # Errors
    /// As [`LogReader::new`].
    pub fn is_boundary(&self, lsn: Lsn) -> Result<bool, LogError> {
        Ok(lsn == self.end() || lsn < self.end() && self.beginning_from(lsn)?.is_some_and(|found| found.lsn == lsn))
    }

    /// The position of the cursor. The next record begins here.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Where the log ends now: records that begin below can be read.
    pub fn end(&self) -> Lsn {
        match &self.source {
            Source::Open(log) => log.durable_lsn(),
            Source::Files(files) => files.end.unwrap_or(FIRST_LSN),
        }
    }

    /// Where the oldest segment begins. The oldest record that can be read begins there or a little behind.
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn oldest(&self) -> Result<Lsn, LogError> {
        match &self.source {
            Source::Open(log) => Ok(log.oldest_lsn()),
            Source::Files(_) => {
                // The last run of segments without a gap: what is before a gap cannot be read on from.
                let (bytes, end) = (self.segments.segment_bytes(), self.end().0);
                let starts = self.segments.list()?;
                let mut oldest = self.segments.start_of(end.saturating_sub(1));
                while oldest >= bytes && starts.binary_search(&(oldest - bytes)).is_ok() {
                    oldest -= bytes;
                }
                Ok(Lsn(oldest).max(FIRST_LSN))
            }
        }
    }

    /// The record behind the cursor, or `None` at the end of the log. The cursor moves behind the record.
    ///
    /// # Errors
    /// [`LogError::Recycled`], damage, or a failure of the disk.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it fails, and can go on after its end.
    pub fn next(&mut self) -> Result<Option<Record>, LogError> {
        loop {
            let found = self.next_of_all()?;
            if found.as_ref().is_none_or(|record| record.lsn() >= self.skip_below) {
                return Ok(found);
            }
        }
    }

    fn next_of_all(&mut self) -> Result<Option<Record>, LogError> {
        let end = self.end();
        if self.at >= end {
            return Ok(None);
        }
        let mut scan = match self.forward.take() {
            Some(scan) if scan.end() == self.at => scan,
            _ => match self.beginning_from(self.at)? {
                Some(found) if found.lsn == self.at => self.scan(found)?,
                _ => return Err(self.explain(LogError::Invalid { lsn: self.at, why: Malformed::Empty })),
            },
        };
        scan.set_limit(end);
        let found = match scan.next() {
            Err(error) => return Err(self.explain(error)),
            Ok(found) => found,
        };
        self.at = scan.end();
        self.forward = Some(scan);
        self.behind.clear();
        Ok(found)
    }

    /// The record before the cursor, or `None` where the kept log begins. The cursor moves before the record.
    ///
    /// # Errors
    /// As [`LogReader::next`].
    pub fn prev(&mut self) -> Result<Option<Record>, LogError> {
        if self.behind.is_empty() {
            self.read_behind()?;
        }
        let found = self.behind.pop();
        if let Some(record) = &found {
            self.at = record.lsn();
        }
        Ok(found)
    }

    /// Reads a piece of the log that ends at the cursor.
    fn read_behind(&mut self) -> Result<(), LogError> {
        let oldest = self.oldest()?;
        let mut bytes = BACK_BYTES;
        while self.at > oldest {
            let from = Lsn(self.at.0.saturating_sub(bytes)).max(oldest);
            if let Some(found) = self.beginning_from(from)?
                && found.lsn < self.at
            {
                let mut scan = self.scan(found)?;
                scan.set_limit(self.at);
                loop {
                    match scan.next() {
                        Ok(Some(record)) => self.behind.push(record),
                        Ok(None) => return Ok(()),
                        Err(error) => return Err(self.explain(error)),
                    }
                }
            }
            if from == oldest {
                self.check_empty(oldest, self.at)?;
                break;
            }
            bytes *= 2;
        }
        Ok(())
    }

    /// Waits until there is a record behind the cursor that is durable. Asks for no flush. `false`: the time went by.
    ///
    /// A log of files does not grow: the answer comes at once.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the log failed or was closed, and nothing comes any more.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> Result<bool, LogError> {
        let Source::Open(log) = &self.source else { return Ok(self.at < self.end()) };
        let until = timeout_ns.map(|ns| sync::now_ns().saturating_add(ns));
        loop {
            if log.durable_lsn() > self.at {
                return Ok(true);
            }
            log.check_failed()?;
            let left = until.map(|until| until.saturating_sub(sync::now_ns()));
            if left == Some(0) {
                return Ok(false);
            }
            let rung = self.bell.0.load(SeqCst);
            if self.hung.is_none_or(|(at, _)| at != self.at) {
                take_down(log, self.hung.take());
                let mut place = None;
                log.on_durable(self.at, &mut place, &Waker::from(Arc::clone(&self.bell)));
                self.hung = Some((self.at, place));
            }
            if log.durable_lsn() <= self.at && !log.is_failed() {
                sync::futex_wait(&self.bell.0, rung, left);
            }
            if self.bell.0.load(SeqCst) != rung {
                self.hung = None; // A bell rings once.
            }
        }
    }

    /// Keeps the log from the cursor on while the result lives, up to `bytes_max` bytes of it. `None` for files.
    ///
    /// # Errors
    /// [`LogError::Recycled`].
    pub fn pin(&self, name: &str, bytes_max: u64) -> Result<Option<crate::LogPin>, LogError> {
        match &self.source {
            Source::Open(log) => log.pin(name, self.at, bytes_max).map(Some),
            Source::Files(_) => Ok(None),
        }
    }

    /// The first record at or behind `from`.
    fn beginning_from(&self, from: Lsn) -> Result<Option<Beginning>, LogError> {
        let found = match &self.source {
            Source::Open(log) => {
                let (seals_at, known_from) = (&|lsn| log.seals_at(lsn), &|lsn| log.known_from(lsn));
                let whose = Whose { environment: log.environment, seals_at, known_from, is_to_be_whole: true };
                first_record(&self.segments, &whose, from, self.end())
            }
            Source::Files(files) => {
                let (seals_at, known_from) = (&|lsn| files.seals_at(lsn), &|lsn| files.known_from(lsn));
                let whose = Whose { environment: files.environment, seals_at, known_from, is_to_be_whole: true };
                first_record(&self.segments, &whose, from, self.end())
            }
        };
        match found {
            Err(error) => Err(self.explain(error)),
            Ok(None) if self.is_given_up(from) => Err(self.explain(LogError::Recycled { lsn: from, oldest: from })),
            Ok(found) => Ok(found),
        }
    }

    fn scan(&self, from: Beginning) -> Result<LogScan, LogError> {
        let scan = match &self.source {
            Source::Open(log) => LogScan::new(
                Arc::clone(&log.disk),
                log.environment,
                self.segments.segment_bytes(),
                from.lsn,
                from.incarnation,
            ),
            Source::Files(files) => files.scan(from),
        };
        let mut scan = scan.map_err(|error| self.explain(error))?;
        scan.set_limit(self.end());
        Ok(scan)
    }

    fn is_given_up(&self, lsn: Lsn) -> bool {
        matches!(&self.source, Source::Open(log) if lsn < log.oldest_lsn())
    }

    /// R2. What was read while its segment was used again is not damage.
    fn explain(&self, error: LogError) -> LogError {
        match &self.source {
            Source::Open(log) if self.at < log.oldest_lsn() => {
                LogError::Recycled { lsn: self.at, oldest: log.oldest_lsn() }
            }
            _ => error,
        }
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        if let Source::Open(log) = &self.source {
            take_down(log, self.hung.take());
        }
    }
}

/// Nobody waits for this LSN any more.
fn take_down(log: &Log, hung: Option<(Lsn, Option<WakerNo>)>) {
    if let Some((at, mut place)) = hung {
        log.forget_waker(at, &mut place);
    }
}

impl LogFiles {
    fn scan(&self, from: Beginning) -> Result<LogScan, LogError> {
        let disk = Arc::clone(&self.disk);
        let scan = LogScan::new(disk, self.environment, self.segment_bytes, from.lsn, from.incarnation)?;
        Ok(scan.with_incarnation_max(self.incarnation_max))
    }

    /// The first place from `lsn` on where a record is known to begin, or the log to end.
    fn known_from(&self, lsn: u64) -> Option<u64> {
        self.known.map(|known| known.lsn.0).filter(|known| *known >= lsn)
    }

    /// The seals that a record at `lsn` can have: incarnations go up with LSNs.
    fn seals_at(&self, lsn: u64) -> Seals {
        let (oldest, newest) = match self.known {
            Some(known) if lsn < known.lsn.0 => (1, known.incarnation),
            Some(known) => (known.incarnation, self.incarnation_max),
            None => (1, self.incarnation_max),
        };
        Seals::new(self.environment, oldest, newest)
    }
}

/// Wakes a reader that waits; counts how often.
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        sync::futex_wake(&self.0, u32::MAX);
    }
}
