//! The archive: copies of the log's segments, kept when the environment gives the segments up.
//!
//! ```text
//! log/SSSSSSSSSSSSSSSS.seg   the bytes of a segment, as in the environment; the newest may end early
//! log/SSSSSSSSSSSSSSSS.sum   what proves it, written after it: 72 bytes
//!
//! offset  size  field
//!      0     8  "LSTNARCH"
//!      8     4  format, 1
//!     12     4  crc32c of bytes 16..72
//!     16    16  environment id
//!     32     8  LSN where the segment begins
//!     40     8  bytes of a segment
//!     48     8  LSN where its log ends: the segment's end, or the end of the log when it was copied
//!     56     8  incarnation in force there
//!     64     4  crc32c of the bytes up to there
//!     68     4  zero
//! ```
//! A1. A segment is given up only when its copy and the copy's sum are durable: a pin on the log stands where the archive
//!     ends.
//! A2. A copy is replaced only by a longer one that begins with the same bytes. Another life of the environment (one
//!     restored to a moment) needs another archive.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskErrorKind, FileDisk, Open};
use ledgerstone_log::{EnvironmentId, FIRST_LSN, LOG_DIR, Log, LogFiles, LogPin, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_recovery::backup::BackupError;
use parking_lot::Mutex;
use serde::Serialize;

use crate::{Environment, Error, LogDirectory};

const MAGIC: [u8; 8] = *b"LSTNARCH";
const FORMAT: u32 = 1;
const SUM_BYTES: usize = 72;

/// What proves a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    environment: EnvironmentId,
    start: u64,
    segment_bytes: u64,
    end: u64,
    incarnation: u64,
    crc: u32,
}

impl Sum {
    fn encode(&self) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.environment);
        for (no, word) in [self.start, self.segment_bytes, self.end, self.incarnation].iter().enumerate() {
            bytes[32 + 8 * no..40 + 8 * no].copy_from_slice(&word.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// For any bytes.
    fn decode(bytes: &[u8; SUM_BYTES]) -> Option<Sum> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let is_whole = bytes[..8] == MAGIC && word(8) as u32 == FORMAT;
        let is_whole = is_whole && (word(8) >> 32) as u32 == crc32c::crc32c(&bytes[16..]);
        let sum = Sum {
            environment: std::array::from_fn(|i| bytes[16 + i]),
            start: word(32),
            segment_bytes: word(40),
            end: word(48),
            incarnation: word(56),
            crc: word(64) as u32,
        };
        let fits = sum.segment_bytes.is_power_of_two()
            && (4096..=1 << 32).contains(&sum.segment_bytes)
            && sum.start.is_multiple_of(sum.segment_bytes)
            && sum.start < sum.end
            && sum.end - sum.start <= sum.segment_bytes;
        (is_whole && fits).then_some(sum)
    }
}

/// A segment in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ArchivedSegment {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub start_lsn: u64,
    /// Where its log ends.
    pub end_lsn: u64,
    /// What is wrong with it; `None` for one that is whole, or that was not looked at closely.
    pub problem: Option<String>,
}

/// The archive of one environment.
pub(crate) struct Archive {
    disk: Arc<dyn Disk>,
    environment: EnvironmentId,
    segment_bytes: u64,
    /// A1. `None` until the log is open.
    pin: Mutex<Option<LogPin>>,
    /// Why the last attempt to copy failed.
    trouble: Mutex<Option<String>>,
}

impl Archive {
    /// An archive for the log of this environment, which it holds back from now on.
    pub(crate) fn begin(disk: Arc<dyn Disk>, environment: EnvironmentId, log: &Arc<Log>) -> Result<Archive, Error> {
        disk.create_dir(LOG_DIR)?;
        let segment_bytes = log.segment_bytes();
        let (pin, trouble) = (Mutex::new(None), Mutex::new(None));
        let archive = Archive { disk, environment, segment_bytes, pin, trouble };
        let oldest = log.oldest_lsn();
        let mut from = oldest.0 - oldest.0 % segment_bytes;
        while archive.sum(from)?.is_some_and(|sum| sum.end == from + segment_bytes) {
            from += segment_bytes;
        }
        *archive.pin.lock() = Some(log.pin("archive", Lsn(from).max(oldest), u64::MAX)?);
        Ok(archive)
    }

    /// Copies the segments that are full and durable; with `all`, also what there is of the newest. Returns how many.
    pub(crate) fn copy(&self, log: &Log, all: bool) -> Result<u64, Error> {
        let copied = self.copy_from_pin(log, all);
        *self.trouble.lock() = copied.as_ref().err().map(ToString::to_string);
        copied
    }

    fn copy_from_pin(&self, log: &Log, all: bool) -> Result<u64, Error> {
        let pinned = self.pin.lock().as_ref().map_or(FIRST_LSN, LogPin::lsn);
        let durable = log.durable_lsn().0;
        let mut start = pinned.0 - pinned.0 % self.segment_bytes;
        let mut count = 0;
        while start + self.segment_bytes <= durable || all && start < durable {
            let end = durable.min(start + self.segment_bytes);
            self.copy_segment(log, start, end)?;
            count += 1;
            start += self.segment_bytes;
            if start <= durable
                && let Some(pin) = &*self.pin.lock()
            {
                pin.advance(Lsn(start));
            }
        }
        Ok(count)
    }

    fn copy_segment(&self, log: &Log, start: u64, end: u64) -> Result<(), Error> {
        let mut bytes = vec![0; (end - start) as usize];
        // The log begins with a block that holds nothing.
        let skip = FIRST_LSN.0.saturating_sub(start).min(end - start) as usize;
        let have = log.read_bytes(Lsn(start + skip as u64), &mut bytes[skip..])?;
        if have < bytes.len() - skip {
            let what = format!("the log's segment at LSN {start} ends after {have} bytes");
            return Err(Error::Corrupt { what });
        }
        let sum = Sum {
            environment: self.environment,
            start,
            segment_bytes: self.segment_bytes,
            end,
            incarnation: log.incarnation_at(Lsn(end)),
            crc: crc32c::crc32c(&bytes),
        };
        if let Some(there) = self.sum(start)? {
            if there.end >= end && there.environment == self.environment && there.crc == sum.crc {
                return Ok(());
            }
            let known = there.end.min(end) - start;
            if there.environment != self.environment || crc32c::crc32c(&bytes[..known as usize]) != there.crc {
                let path = format!("{}/{}", self.disk.describe(), path(start, "seg"));
                return Err(Error::ArchiveOfAnother { path }); // A2
            }
        }
        self.write(&path(start, "seg"), &bytes)?;
        self.write(&path(start, "sum"), &sum.encode())?;
        Ok(())
    }

    /// Writes a file durably, all or nothing.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let part = format!("{path}.part");
        if self.disk.exists(&part)? {
            self.disk.remove(&part)?;
        }
        let file = self.disk.open(&part, Open::CREATE_NEW)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        self.disk.rename(&part, path)?;
        Ok(self.disk.sync_dir(LOG_DIR)?)
    }

    fn sum(&self, start: u64) -> Result<Option<Sum>, Error> {
        read_sum(&*self.disk, start)
    }

    /// Fills `to` with the log from `from` on, as far as the archive has it; says how much that was.
    pub(crate) fn read_bytes(&self, from: Lsn, to: &mut [u8]) -> Result<usize, BackupError> {
        let start = from.0 - from.0 % self.segment_bytes;
        let sum = self.sum(start).map_err(|error| BackupError::Chain { what: error.to_string() })?;
        let Some(sum) = sum.filter(|sum| sum.end > from.0 && sum.environment == self.environment) else { return Ok(0) };
        let have = (sum.end - from.0).min(to.len() as u64) as usize;
        self.disk.open(&path(start, "seg"), Open::READ)?.read_at(from.0 - start, &mut to[..have])?;
        Ok(have)
    }

    /// The archive as a log of files; `None` while it is empty.
    pub(crate) fn files(&self) -> Result<Option<LogFiles>, Error> {
        files_of(&self.disk)
    }

    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }
}

fn path(start: u64, ending: &str) -> String {
    let name = segment_name(start);
    format!("{LOG_DIR}/{}.{ending}", name.trim_end_matches(".seg"))
}

fn read_sum(disk: &dyn Disk, start: u64) -> Result<Option<Sum>, Error> {
    let file = match disk.open(&path(start, "sum"), Open::READ) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let mut bytes = [0; SUM_BYTES];
    match file.read_at(0, &mut bytes) {
        Err(error) if error.kind == DiskErrorKind::ShortRead => return Ok(None),
        other => other?,
    }
    Ok(Sum::decode(&bytes).filter(|sum| sum.start == start))
}

/// All sums of an archive, by LSN.
fn sums(disk: &dyn Disk) -> Result<Vec<Sum>, Error> {
    let mut sums = Vec::new();
    if !disk.exists(LOG_DIR)? {
        return Ok(sums);
    }
    for name in disk.list(LOG_DIR)? {
        let start = name.strip_suffix(".sum").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if let Some(start) = start
            && let Some(sum) = read_sum(disk, start)?
        {
            sums.push(sum);
        }
    }
    sums.sort_by_key(|sum| sum.start);
    Ok(sums)
}

/// The newest run of an archive without a gap, as a log of files; `None` if there is no archive.
pub(crate) fn files_of(disk: &Arc<dyn Disk>) -> Result<Option<LogFiles>, Error> {
    let sums = sums(&**disk)?;
    Ok(sums.last().map(|last| LogFiles {
        disk: Arc::clone(disk),
        environment: last.environment,
        segment_bytes: last.segment_bytes,
        known: None,
        incarnation_max: last.incarnation,
        end: Some(Lsn(last.end)),
        is_cut: true,
    }))
}

impl Environment {
    /// Copies the log into the archive now, up to what is durable; without that, segments are copied when they are full.
    /// Returns how many segments were looked at.
    ///
    /// # Errors
    /// [`Error::NoArchive`], [`Error::ArchiveOfAnother`], the disk's.
    pub fn archive_now(&self) -> Result<u64, Error> {
        let env = self.inner();
        env.engine.check_process()?;
        let archive = env.archive.as_ref().ok_or(Error::NoArchive)?;
        let tail = env.engine.log.tail();
        env.engine.log.flush_to(Lsn(tail.0.saturating_sub(8)))?;
        env.archive_copy(archive, true)
    }
}

impl crate::env::Inner {
    /// Copies under the latch of checkpoints: one at a time.
    fn archive_copy(&self, archive: &Archive, all: bool) -> Result<u64, Error> {
        let _latched = self.latch(&self.checkpoint_latch[0])?;
        archive.copy(&self.engine.log, all)
    }

    /// For the housekeeper: copies what is full. What fails is tried again; meanwhile the log is kept.
    pub(crate) fn archive_full_segments(&self) {
        if let Some(archive) = &self.archive
            && archive.is_behind(&self.engine.log)
        {
            let _ = self.archive_copy(archive, false);
        }
    }
}

impl Archive {
    fn is_behind(&self, log: &Log) -> bool {
        let pinned = self.pin.lock().as_ref().map_or(FIRST_LSN, LogPin::lsn);
        pinned.0 - pinned.0 % self.segment_bytes + self.segment_bytes <= log.durable_lsn().0
    }
}

/// An archive directory, looked at without an environment.
pub struct ArchiveDirectory {
    disk: Arc<dyn Disk>,
}

impl ArchiveDirectory {
    /// Looks at a directory.
    ///
    /// # Errors
    /// [`Error::NoArchive`]: it holds none.
    pub fn open(path: impl AsRef<Path>) -> Result<ArchiveDirectory, Error> {
        ArchiveDirectory::open_on(Arc::new(FileDisk::new(path.as_ref())))
    }

    /// The same on any [`Disk`].
    ///
    /// # Errors
    /// As [`ArchiveDirectory::open`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<ArchiveDirectory, Error> {
        if !disk.exists(LOG_DIR)? {
            return Err(Error::NoArchive);
        }
        Ok(ArchiveDirectory { disk })
    }

    /// The segments, oldest first. With `verify`, the contents of each are compared with its sum, and gaps are problems.
    ///
    /// # Errors
    /// The disk's.
    pub fn segments(&self, verify: bool) -> Result<Vec<ArchivedSegment>, Error> {
        let mut found = Vec::new();
        let mut before: Option<Sum> = None;
        for sum in sums(&*self.disk)? {
            let problem = if verify { self.problem(&sum, before.as_ref())? } else { None };
            before = Some(sum);
            found.push(ArchivedSegment {
                file: path(sum.start, "seg"),
                start_lsn: sum.start,
                end_lsn: sum.end,
                problem,
            });
        }
        Ok(found)
    }

    fn problem(&self, sum: &Sum, before: Option<&Sum>) -> Result<Option<String>, Error> {
        if let Some(before) = before {
            if before.environment != sum.environment {
                return Ok(Some("it is of another environment than the one before".into()));
            }
            if before.end != sum.start {
                return Ok(Some(format!("the log from LSN {} to {} is missing before it", before.end, sum.start)));
            }
        }
        let file = match self.disk.open(&path(sum.start, "seg"), Open::READ) {
            Err(error) if error.is_not_found() => return Ok(Some("the file is missing".into())),
            other => other?,
        };
        let mut bytes = vec![0; (sum.end - sum.start) as usize];
        match file.read_at(0, &mut bytes) {
            Err(error) if error.kind == DiskErrorKind::ShortRead => return Ok(Some("the file is too short".into())),
            other => other?,
        }
        let crc = crc32c::crc32c(&bytes);
        Ok((crc != sum.crc).then(|| format!("its checksum is {crc:#010x}, expected {:#010x}", sum.crc)))
    }

    /// Removes the segments that end at or before `lsn`: what no backup needs that you keep ([`crate::Backup::needs_log_from`]).
    /// Returns how many.
    ///
    /// # Errors
    /// The disk's; what was removed until then is.
    pub fn remove_before(&self, lsn: Lsn) -> Result<u64, Error> {
        let mut count = 0;
        for sum in sums(&*self.disk)? {
            if sum.end <= lsn.0 {
                // The sum first: what has none is no part of the archive.
                self.disk.remove(&path(sum.start, "sum"))?;
                if self.disk.exists(&path(sum.start, "seg"))? {
                    self.disk.remove(&path(sum.start, "seg"))?;
                }
                count += 1;
            }
        }
        if count > 0 {
            self.disk.sync_dir(LOG_DIR)?;
        }
        Ok(count)
    }

    /// Its log, for readers and for restores.
    ///
    /// # Errors
    /// [`Error::NoArchive`]: it is empty.
    pub fn log(&self) -> Result<LogDirectory, Error> {
        LogDirectory::of_files(files_of(&self.disk)?.ok_or(Error::NoArchive)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: Sum =
        Sum { environment: [3; 16], start: 65536, segment_bytes: 65536, end: 70000, incarnation: 4, crc: 5 };

    #[test]
    fn a_sum_survives_its_encoding_and_no_other_bytes_are_one() {
        assert_eq!(Sum::decode(&SUM.encode()), Some(SUM));
        for at in 0..SUM_BYTES {
            let mut bytes = SUM.encode();
            bytes[at] ^= 1;
            assert_eq!(Sum::decode(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn golden_bytes_of_a_sum() {
        let bytes = SUM.encode();
        assert_eq!(bytes[..12], *b"LSTNARCH\x01\0\0\0");
        assert_eq!(
            bytes[32..72],
            [
                0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x70, 0x11, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
                5, 0, 0, 0, 0, 0, 0, 0
            ]
        );
    }
}
