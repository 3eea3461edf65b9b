//! The files of the log: how an LSN becomes a place in one, and how they are made ahead of use and used again.
//!
//! A segment is `log/` and the LSN of its first byte in 16 hexadecimal digits and `.seg`; it has `segment_bytes` bytes
//! and no header. LSN `l` lies in segment `l / segment_bytes` at `l % segment_bytes`; records go on from one to the
//! next.
//!
//! F1. A segment gets its name whole: drafted as `log/next.tmp`, all space taken, synced, renamed, directory synced.
//!     It never lacks space.
//! F2. A segment whose records are not needed gets a later name instead of being removed, while fewer than a few are
//!     ahead of the tail. Its old records stay in it, and their seal shows them as stale (`seal.rs`). A segment that
//!     was cut since is not whole (F1), and is removed.
//! F3. A record is written to a segment only after its name is durable, and the control file names it (T6 there). Names
//!     that are found at open may be a killed process's, so the directories are synced before anything is written.
//! F4. Before it is believed, what a killed process may have left in the system's cache is made durable.
//! F5. A name whose sync failed fails the log for good: a second sync that succeeds says nothing of what the first has
//!     lost. If the process dies before it can say so, another process does not learn of it.
//! F6. So a crash leaves no segment short, none missing below one that is there, and none that the control file names.
//! F7. A few segments are open at a time, those that are written to among them; others are opened again when they are
//!     read. Closing a file loses no error. Bytes written through a handle are durable when the write returns. After a
//!     write or a sync that failed, nothing is written through any handle. Another process may give up a segment, or
//!     rename it. A handle stays that of its LSNs, which never come again. It is closed when this process next looks
//!     what is given up ([`Segments::close_below`]), so that its space is free.
//! F8. Segments are given up from the oldest on, and each is gone or has its later name durably before the next. So
//!     none is missing between two that are there, below the scan LSN either; if one is, somebody has removed it.
//! F9. Space that was taken and never written costs the file system a change of its own at the first write there, and
//!     bytes that were written once are overwritten cheaply. So a small write to such a place brings zeros along for
//!     those to come. A large one pays by itself, and a load writes nothing twice. What is behind the end of the log in
//!     a segment that was found at open counts as never written. Nothing relies on these zeros, nor on those that the
//!     file system shows for space never written: the seal tells records from whatever else is there (F2).

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskError, DiskFile, Open};
use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_region::{ByNumber, Mutex, NumberSet};

use crate::control::ControlState;
use crate::error::LogError;
use crate::record::LSN_END;

/// Why a segment was not made, or not renamed.
#[derive(Debug)]
pub(crate) enum NoSegment {
    /// Nothing has changed: it can be tried again.
    Refused(DiskError),
    /// It has its name, and whether that is durable is not known (F5).
    Unsure(DiskError),
}

impl NoSegment {
    pub fn into_error(self) -> DiskError {
        match self {
            NoSegment::Refused(error) | NoSegment::Unsure(error) => error,
        }
    }
}

/// The directory of the segments.
pub const LOG_DIR: &str = "log";
/// The unit in which the log is written.
pub(crate) const BLOCK_BYTES: u64 = 4096;
const DRAFT: &str = "log/next.tmp";
const SUFFIX: &str = ".seg";
/// Zeros that go with a small write (F9): at first after an open, for a process that will write little; and at most.
/// A write of that many bytes is large.
const AHEAD_BYTES_FIRST: u64 = 16 << 10;
pub(crate) const AHEAD_BYTES_MAX: u64 = 256 << 10;

/// The file name, without directory, of the segment that begins at `lsn`.
pub fn segment_name(lsn: u64) -> String {
    format!("{lsn:016x}{SUFFIX}")
}

/// Whether a file of this name, without directory, can be one of ours.
pub fn is_log_file(name: &str) -> bool {
    segment_start(name).is_some() || DRAFT.strip_prefix(LOG_DIR).and_then(|draft| draft.strip_prefix('/')) == Some(name)
}

/// The first LSN of the segment with this file name, which has no directory. `None` for a name that we never write: one
/// behind the end of LSNs, or one with digits in another form.
pub fn segment_start(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let start = u64::from_str_radix(digits, 16).ok()?;
    (start < LSN_END.0 && segment_name(start) == name).then_some(start)
}

/// Refuses a log that lacks something that no crash can remove (F6): a segment from the scan LSN on, or a part of one.
/// After an orderly close, nothing behind the last checkpoint is needed. Writes nothing.
///
/// # Errors
/// [`LogError::MissingSegment`], [`LogError::ShortSegment`], or a failure of the disk.
pub fn check_segments(disk: &Arc<dyn Disk>, state: &ControlState) -> Result<(), LogError> {
    let segments = Segments::new(Arc::clone(disk), state.segment_bytes, true);
    let first = segments.start_of(state.scan_lsn.0);
    let listed = segments.list()?;
    let newest = match listed.last() {
        _ if state.is_clean => segments.start_of(state.checkpoint_lsn.0),
        None => state.newest_segment.0,
        Some(last) => state.newest_segment.0.max(*last),
    };
    let mut start = first;
    while start <= newest {
        if listed.binary_search(&start).is_err() {
            return Err(LogError::MissingSegment { lsn: Lsn(start.max(state.scan_lsn.0)), path: segments.path(start) });
        }
        let found = segments.file(start)?.len()?;
        if found < state.segment_bytes {
            let path = segments.path(start);
            return Err(LogError::ShortSegment { path, found, expected: state.segment_bytes });
        }
        start += state.segment_bytes;
    }
    Ok(())
}

/// After an orderly close: removes segments behind the log's end that hold nothing and that are short, or lie behind a
/// missing one. The removal is durable. Returns the newest segment that is left, which the control file must name
/// before the log is used again.
///
/// # Errors
/// [`LogError::ShortSegment`]: the log ends in one that was cut. A failure of the disk.
pub fn tidy_segments(disk: &Arc<dyn Disk>, segment_bytes: u64, end: Lsn) -> Result<Lsn, LogError> {
    let segments = Segments::new(Arc::clone(disk), segment_bytes, false);
    let mut newest = segments.start_of(end.0 - 1);
    let listed = segments.list()?;
    if listed.binary_search(&newest).is_ok() {
        let (path, found) = (segments.path(newest), segments.file(newest)?.len()?);
        if found < segment_bytes {
            return Err(LogError::ShortSegment { path, found, expected: segment_bytes });
        }
    }
    for start in listed.into_iter().filter(|start| *start > segments.start_of(end.0 - 1)) {
        if start == newest + segment_bytes && segments.file(start)?.len()? >= segment_bytes {
            newest = start;
        } else {
            segments.remove(start)?;
        }
    }
    // Also a name that a killed process gave may not be durable yet, and the newest is going to be relied on.
    disk.sync_dir(LOG_DIR)?;
    Ok(Lsn(newest))
}

/// Segments that are open at most, beside those that are written to.
const OPEN_MAX: usize = 8;

/// The segments of a log, and the handles that are open.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    is_read_only: bool,
    open: Mutex<Handles>,
    /// The first write or sync that failed (F7).
    failed: Mutex<Option<DiskError>>,
}

/// Open files by the first LSN of their segments, each with the time of its last use.
#[derive(Default)]
struct Handles {
    files: ByNumber<u64, (Arc<dyn DiskFile>, u64)>,
    /// Counts uses.
    now: u64,
    /// This segment and those behind it are written to.
    written_from: u64,
    /// Segments that got another name, and so were written to their ends before (F2).
    rewritten: NumberSet<u64>,
    /// In the others, what lies behind was never written (F9).
    written_to: u64,
    /// Zeros that the next small write behind brings along, if it is not the first.
    ahead_bytes: u64,
}

impl Handles {
    /// How many zeros a write of `len` bytes that ends at `end` brings along (F9). There is room for `room`, and the
    /// segment, which began at `start`, has as many bytes behind the write.
    fn ahead(&mut self, start: u64, end: u64, len: u64, room: u64) -> u64 {
        if end <= self.written_to || self.rewritten.contains(start) {
            return 0;
        }
        let mut ahead = 0;
        if len < AHEAD_BYTES_MAX {
            let bytes = self.ahead_bytes.max(AHEAD_BYTES_FIRST);
            self.ahead_bytes = (2 * bytes).min(AHEAD_BYTES_MAX);
            ahead = bytes.min(room);
        }
        self.written_to = end + ahead;
        ahead
    }

    fn get(&mut self, start: u64) -> Option<Arc<dyn DiskFile>> {
        self.now += 1;
        let (file, used) = self.files.get_mut(start)?;
        *used = self.now;
        Some(Arc::clone(file))
    }

    /// Takes out what lies below `oldest`. Segments below that of `durable` are not written to any more.
    fn take_below(&mut self, oldest: u64, durable: u64) -> Vec<Arc<dyn DiskFile>> {
        if self.written_from != u64::MAX {
            self.written_from = self.written_from.max(durable);
        }
        let mut taken = Vec::new();
        while self.files.first().is_some_and(|(start, _)| start < oldest) {
            taken.extend(self.files.pop_first().map(|(_, (file, _))| file));
        }
        taken
    }

    /// Keeps a file open, and returns the one that is closed for it.
    fn put(&mut self, start: u64, file: &Arc<dyn DiskFile>) -> Option<Arc<dyn DiskFile>> {
        self.now += 1;
        self.files.insert(start, (Arc::clone(file), self.now));
        let others = self.files.iter().filter(|&(at, _)| at < self.written_from && at != start);
        let oldest = others.clone().min_by_key(|(_, (_, used))| *used).map(|(at, _)| at);
        let is_over = others.count() >= OPEN_MAX;
        oldest.filter(|_| is_over).and_then(|at| self.files.remove(at)).map(|(file, _)| file)
    }
}

impl Segments {
    pub fn new(disk: Arc<dyn Disk>, segment_bytes: u64, is_read_only: bool) -> Segments {
        // A log that is not written has none that are to stay open.
        let open = Mutex::new(Handles { written_from: u64::MAX, ..Handles::default() });
        Segments { disk, segment_bytes, is_read_only, open, failed: Mutex::new(None) }
    }

    /// The same log to be read by another thread, through handles of its own.
    pub fn again(&self) -> Segments {
        Segments::new(Arc::clone(&self.disk), self.segment_bytes, true)
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The first LSN of the segment that holds `lsn`.
    pub fn start_of(&self, lsn: u64) -> u64 {
        lsn & !(self.segment_bytes - 1)
    }

    pub fn path(&self, start: u64) -> String {
        format!("{LOG_DIR}/{}", segment_name(start))
    }

    /// First LSNs of the segments that are there, ascending.
    pub fn list(&self) -> Result<Vec<u64>, DiskError> {
        if !self.disk.exists(LOG_DIR)? {
            return Ok(Vec::new());
        }
        let names = self.disk.list(LOG_DIR)?;
        let mut starts: Vec<u64> = names.iter().filter_map(|name| segment_start(name)).collect();
        starts.retain(|start| start.is_multiple_of(self.segment_bytes));
        starts.sort_unstable();
        Ok(starts)
    }

    /// Makes the directory, takes away a draft that a crash left, and makes durable the names that are there: those of
    /// the segments, and those beside the directory.
    pub fn prepare_dir(&self) -> Result<(), DiskError> {
        if !self.disk.exists(LOG_DIR)? {
            self.disk.create_dir(LOG_DIR)?;
        }
        if self.disk.exists(DRAFT)? {
            self.disk.remove(DRAFT)?;
        }
        if planted::is_on(Bug::NamesUnsettled) {
            return Ok(());
        }
        self.disk.sync_dir("")?; // F3
        self.disk.sync_dir(LOG_DIR)
    }

    /// Makes durable what is in the segment of `from` and in all behind it (F4).
    pub fn settle(&self, from: u64) -> Result<(), DiskError> {
        let first = self.start_of(from);
        for start in self.list()?.into_iter().filter(|start| *start >= first) {
            if !planted::is_on(Bug::LogUnsettled) {
                self.unless_failed(|| self.file(start)?.settle())?;
            }
        }
        Ok(())
    }

    /// Writes or syncs, unless that has failed once (F7).
    fn unless_failed(&self, write: impl FnOnce() -> Result<(), DiskError>) -> Result<(), DiskError> {
        if let Some(error) = &*self.failed.lock() {
            return Err(error.clone());
        }
        write().inspect_err(|error| {
            self.failed.lock().get_or_insert_with(|| error.clone());
        })
    }

    /// Makes the segment that begins at `start` (F1).
    pub fn create(&self, start: u64) -> Result<(), NoSegment> {
        let drafted = self.create_draft();
        if let Err(error) = drafted {
            // What was taken is given back. If that fails too, the next open removes it.
            let _ = self.disk.remove(DRAFT);
            return Err(NoSegment::Refused(error));
        }
        self.rename(DRAFT, start)
    }

    fn rename(&self, from: &str, start: u64) -> Result<(), NoSegment> {
        self.disk.rename(from, &self.path(start)).map_err(NoSegment::Refused)?;
        self.disk.sync_dir(LOG_DIR).map_err(NoSegment::Unsure)
    }

    fn create_draft(&self) -> Result<(), DiskError> {
        let file = self.disk.open(DRAFT, Open::CREATE.direct())?;
        file.allocate(0, self.segment_bytes)?;
        file.sync()
    }

    /// Gives the segment at `old` the name of the one at `new` (F2).
    pub fn recycle(&self, old: u64, new: u64) -> Result<(), NoSegment> {
        self.open.lock().files.remove(old);
        self.rename(&self.path(old), new)?;
        let mut open = self.open.lock();
        open.rewritten.remove(old);
        open.rewritten.insert(new);
        Ok(())
    }

    pub fn remove(&self, start: u64) -> Result<(), DiskError> {
        let mut open = self.open.lock();
        open.files.remove(start);
        open.rewritten.remove(start);
        drop(open);
        self.disk.remove(&self.path(start))
    }

    /// Closes what is open of the segments below that of `oldest`, which some process has given up. The log is durable
    /// up to `durable`, perhaps by another process.
    pub fn close_below(&self, oldest: u64, durable: u64) {
        let (oldest, durable) = (self.start_of(oldest), self.start_of(durable));
        let closed = self.open.lock().take_below(oldest, durable);
        drop(closed); // Outside the mutex.
    }

    /// The open file of the segment at `start`.
    pub fn file(&self, start: u64) -> Result<Arc<dyn DiskFile>, DiskError> {
        if let Some(file) = self.open.lock().get(start) {
            return Ok(file);
        }
        // Opened outside the mutex, since opening may wait.
        let how = if self.is_read_only { Open::READ } else { Open::EXISTING };
        let file = self.disk.open(&self.path(start), how.direct())?;
        let closed = self.open.lock().put(start, &file);
        drop(closed); // Outside the mutex too.
        Ok(file)
    }

    /// Writes the first `len` bytes of `buffer`, whole blocks, from `lsn` on, into as many segments as they touch.
    /// Zeros may go along as far as the buffer has room for them (F9). Durable on return. Returns how many bytes were
    /// written.
    pub fn write_durable(&self, mut lsn: u64, mut buffer: &mut [u8], mut len: usize) -> Result<u64, DiskError> {
        let mut written = 0;
        while len > 0 {
            let start = self.start_of(lsn);
            let here = (self.segment_bytes - (lsn - start)) as usize;
            let now = here.min(len);
            let room = (here - now).min(buffer.len() - len) as u64 & !(BLOCK_BYTES - 1);
            let mut open = self.open.lock();
            open.written_from = start;
            let ahead = open.ahead(start, lsn + now as u64, now as u64, room) as usize;
            drop(open);
            buffer[now..now + ahead].fill(0);
            self.unless_failed(|| self.file(start)?.write_durable_at(lsn - start, &buffer[..now + ahead]))?;
            written += (now + ahead) as u64;
            (lsn, buffer, len) = (lsn + now as u64, &mut buffer[now..], len - now);
        }
        Ok(written)
    }

    /// Reads from `lsn` on as much of `to` as there are bytes in segments, and says how much that was.
    pub fn read(&self, lsn: u64, to: &mut [u8]) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < to.len() {
            let at = lsn + done as u64;
            let start = self.start_of(at);
            let file = match self.file(start) {
                Err(error) if error.is_not_found() => break,
                file => file?,
            };
            let here = file.len()?.min(self.segment_bytes).saturating_sub(at - start);
            let wanted = (to.len() - done) as u64;
            let now = wanted.min(self.segment_bytes - (at - start)).min(here) as usize;
            if now > 0 {
                file.read_at(at - start, &mut to[done..done + now])?;
            }
            done += now;
            if here < wanted.min(self.segment_bytes - (at - start)) {
                break;
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_go_along_with_small_writes_to_places_never_written() {
        let mut handles = Handles::default();
        let (segment, room) = (1 << 22, 1 << 20);
        let mut ahead = |start, end, len| handles.ahead(start, end, len, room);
        assert_eq!(ahead(0, 4096, 4096), AHEAD_BYTES_FIRST);
        assert_eq!(ahead(0, 4096 + AHEAD_BYTES_FIRST, 4096), 0, "the zeros are there");
        assert_eq!(ahead(0, 8192 + AHEAD_BYTES_FIRST, 4096), 2 * AHEAD_BYTES_FIRST);
        assert_eq!(ahead(0, 1 << 20, 1 << 19), 0, "a large write pays by itself");
        assert_eq!(ahead(0, 1 << 20, 4096), 0, "the same block again");
        handles.rewritten.insert(segment);
        assert_eq!(handles.ahead(segment, segment + 4096, 4096, room), 0, "its old records are there");
        assert_eq!(handles.ahead(2 * segment, 2 * segment + 4096, 4096, 0), 0, "no room");
    }
}
