//! The archive: copies of the log's segments, kept when the environment gives the segments up.
//!
//! ```text
//! owner                      whose archive it is: 40 bytes
//! log/SSSSSSSSSSSSSSSS.seg   the bytes of a segment, as in the environment; the newest may end early
//! log/SSSSSSSSSSSSSSSS.sum   what proves it, written after it: 88 bytes
//!
//! owner:
//! offset  size  field
//!      0     8  "LSTNAOWN"
//!      8     4  format, 2
//!     12     4  crc32c of bytes 16..40
//!     16    16  environment id
//!     32     8  life, as in the control file
//!
//! sum:
//! offset  size  field
//!      0     8  "LSTNARCH"
//!      8     4  format, 2
//!     12     4  crc32c of bytes 16..88
//!     16    16  environment id
//!     32     8  life
//!     40     8  LSN where the segment begins
//!     48     8  bytes of a segment
//!     56     8  LSN where its log ends: the segment's end, or the end of the log when it was copied
//!     64     8  incarnation in force there
//!     72     8  LSN of the record that goes on behind that end; the end itself if none does
//!     80     4  crc32c of the bytes up to the end
//!     84     4  zero
//! ```
//! A1. A segment is given up only when its copy and the copy's sum are durable and were compared with it by this process: a
//!     pin on the log stands where that ends.
//! A2. A copy is replaced only by a longer one that begins with the same bytes, or by the same bytes when it is damaged.
//! A3. An archive is of one life of one environment. `owner` says of which, before the first segment is there; an open under
//!     another one is refused.
//! A4. What is copied was proved on its way, record by record: rot in the log is found here, while other copies of
//!     what it says (the pages) are still there. An archive that begins in the middle of a record, whose head was given up, has
//!     zeros in the place of its rest: nobody could prove it, and nobody can read it.
//! A5. A file whose write, name or sync failed is written again, whatever it looks like: a second sync that succeeds says
//!     nothing of what the first has lost.
//! A6. Magic, format and checksum keep their places in every format, so that a file of another one is told from damage. It
//!     is refused wherever it is met.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, FileDisk, Open};
use ledgerstone_log::{
    Beginning, FIRST_LSN, LOG_DIR, Log, LogError, LogFiles, LogProof, Malformed, RECORD_BYTES_MAX, segment_name,
};
use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_recovery::backup::BackupError;
use ledgerstone_region::Mutex;

use super::{KeptLog, LogKeeper, Owner};
use crate::Error;

const OWNER: &str = "owner";
const OWNER_MAGIC: [u8; 8] = *b"LSTNAOWN";
const OWNER_BYTES: usize = 40;
const MAGIC: [u8; 8] = *b"LSTNARCH";
const FORMAT: u32 = 2;
const SUM_BYTES: usize = 88;
/// No owner or sum of any format is longer.
const SMALL_BYTES_MAX: u64 = 4096;
/// How often it looks whether a segment is full.
const PERIOD: Duration = Duration::from_millis(50);
/// Read at once of a file in the archive.
const PIECE_BYTES: u64 = 1 << 20;

impl Owner {
    fn encode(&self) -> [u8; OWNER_BYTES] {
        let mut bytes = [0; OWNER_BYTES];
        bytes[16..32].copy_from_slice(&self.environment);
        bytes[32..].copy_from_slice(&self.life.to_le_bytes());
        seal(&mut bytes, OWNER_MAGIC);
        bytes
    }

    /// For any bytes.
    fn decode(bytes: &[u8; OWNER_BYTES]) -> Option<Owner> {
        is_sealed(bytes, OWNER_MAGIC)
            .then(|| Owner { environment: std::array::from_fn(|i| bytes[16 + i]), life: word(bytes, 32) })
    }
}

/// What proves a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    owner: Owner,
    start: u64,
    segment_bytes: u64,
    end: u64,
    incarnation: u64,
    resume: u64,
    crc: u32,
}

impl Sum {
    fn encode(&self) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        bytes[16..32].copy_from_slice(&self.owner.environment);
        let words = [self.owner.life, self.start, self.segment_bytes, self.end, self.incarnation, self.resume];
        for (no, word) in words.iter().enumerate() {
            bytes[32 + 8 * no..40 + 8 * no].copy_from_slice(&word.to_le_bytes());
        }
        bytes[80..84].copy_from_slice(&self.crc.to_le_bytes());
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// For any bytes.
    fn decode(bytes: &[u8; SUM_BYTES]) -> Option<Sum> {
        let sum = Sum {
            owner: Owner { environment: std::array::from_fn(|i| bytes[16 + i]), life: word(bytes, 32) },
            start: word(bytes, 40),
            segment_bytes: word(bytes, 48),
            end: word(bytes, 56),
            incarnation: word(bytes, 64),
            resume: word(bytes, 72),
            crc: word(bytes, 80) as u32,
        };
        let fits = sum.segment_bytes.is_power_of_two()
            && (4096..=1 << 32).contains(&sum.segment_bytes)
            && sum.start.is_multiple_of(sum.segment_bytes)
            && sum.start < sum.end
            && sum.end - sum.start <= sum.segment_bytes
            && sum.resume.abs_diff(sum.end) <= RECORD_BYTES_MAX as u64;
        (is_sealed(bytes, MAGIC) && fits).then_some(sum)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Puts magic, format and checksum in front.
fn seal(bytes: &mut [u8], magic: [u8; 8]) {
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8], magic: [u8; 8]) -> bool {
    let head = word(bytes, 8);
    bytes[..8] == magic && head as u32 == FORMAT && (head >> 32) as u32 == crc32c::crc32c(&bytes[16..])
}

/// A segment in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ArchivedSegment {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub start_lsn: u64,
    /// Where its log ends.
    pub end_lsn: u64,
    /// What is wrong with it. `None` if it is whole, or was not examined closely.
    pub problem: Option<String>,
}

/// The archive of one environment. One thread at a time copies, which the latch of its keeper sees to.
pub(crate) struct Archive {
    disk: Arc<dyn Disk>,
    owner: Owner,
    known: Beginning,
    segment_bytes: u64,
    log: Arc<Log>,
    /// A1.
    kept_from: AtomicU64,
    /// A4. How far the log is proved: up to the segment that is copied next. `None` after a copy that failed.
    proof: Mutex<Option<LogProof>>,
    /// The segment whose bytes were compared with its sum last, to be read in pieces.
    checked: Mutex<Option<Sum>>,
    /// The segment whose copy failed last (A5).
    unsure: Mutex<Option<u64>>,
    /// Why the last attempt to copy failed.
    trouble: Mutex<Option<String>>,
}

impl Archive {
    /// An archive for the log of this environment, which it holds back from now on.
    pub(crate) fn begin(disk: Arc<dyn Disk>, log: KeptLog) -> Result<Archive, Error> {
        // A record begins at `known`, whatever lies before.
        let KeptLog { log, owner, known } = log;
        disk.create_dir("")?;
        disk.create_dir(LOG_DIR)?;
        claim(&*disk, owner)?;
        // Names that are there may be from a process that was killed before it had synced them.
        disk.sync_dir(LOG_DIR)?;
        sync_names(&*disk, "")?;
        // Nothing is believed of what is there: what the log still has is compared with it first (A1).
        let kept_from = AtomicU64::new(log.oldest_lsn().0);
        let segment_bytes = log.segment_bytes();
        let (proof, checked) = (Mutex::default(), Mutex::default());
        let (unsure, trouble) = (Mutex::default(), Mutex::default());
        Ok(Archive { disk, owner, known, segment_bytes, log, kept_from, proof, checked, unsure, trouble })
    }

    /// Copies the segments that are full and durable; with `all`, also what there is of the newest. Returns how many.
    pub(crate) fn copy(&self, all: bool) -> Result<u64, Error> {
        let copied = self.copy_from(Lsn(self.kept_from.load(Acquire)), all);
        *self.trouble.lock() = copied.as_ref().err().map(ToString::to_string);
        copied
    }

    fn copy_from(&self, pinned: Lsn, all: bool) -> Result<u64, Error> {
        let log = &*self.log;
        let durable = log.durable_lsn().0;
        let mut start = pinned.0 - pinned.0 % self.segment_bytes;
        let proof = self.proof.lock().take();
        let mut proof = match proof {
            Some(proof) => proof,
            None => self.proof_of(log, pinned, durable)?,
        };
        let mut count = 0;
        while start < durable && (all || start + self.segment_bytes <= durable) {
            let end = durable.min(start + self.segment_bytes);
            let proved = self.copy_segment(log, start, end, &proof)?;
            count += 1;
            if end < start + self.segment_bytes {
                break;
            }
            (proof, start) = (proved, end);
            self.kept_from.store(start, Release);
        }
        *self.proof.lock() = Some(proof);
        Ok(count)
    }

    /// A proof that can go on at the segment of `from` (A4).
    fn proof_of(&self, log: &Log, from: Lsn, durable: u64) -> Result<LogProof, Error> {
        let start = from.0 - from.0 % self.segment_bytes;
        let of = |beginning| LogProof::new(self.owner.environment, beginning);
        let before = start.checked_sub(self.segment_bytes).map(|before| self.sum(before)).transpose()?.flatten();
        if let Some(before) = before.filter(|before| before.end == start && before.owner == self.owner) {
            // The head of the record that goes on here is in the archive only.
            let mut proof = of(Beginning { lsn: Lsn(before.resume), incarnation: before.incarnation });
            let mut at = before.resume;
            while at < start {
                let mut piece = vec![0; (start - at).min(PIECE_BYTES) as usize];
                let have = self.read_archived(Lsn(at), &mut piece)?;
                if have == 0 {
                    return Err(Error::Corrupt { what: format!("the archive lacks the log at LSN {at}") });
                }
                proof.feed(Lsn(at), &piece[..have])?;
                at += have as u64;
            }
            return Ok(proof);
        }
        match log.beginning_from(from)? {
            _ if from <= FIRST_LSN && self.known.lsn == FIRST_LSN => Ok(of(self.known)),
            Some(beginning) => Ok(of(beginning)),
            // The log of a restored environment begins in the middle of a segment, behind zeros.
            None if self.known.lsn >= from => Ok(of(self.known)),
            // Only the rest of a record whose head was given up.
            None if durable - from.0 <= RECORD_BYTES_MAX as u64 => {
                Ok(of(Beginning { lsn: Lsn(durable), incarnation: log.incarnation_at(Lsn(durable)) }))
            }
            None => Err(LogError::Invalid { lsn: from, why: Malformed::Empty }.into()),
        }
    }

    /// Copies `start..end`. Returns the proof, gone on up to the end.
    fn copy_segment(&self, log: &Log, start: u64, end: u64, proof: &LogProof) -> Result<LogProof, Error> {
        let there = self.sum(start)?;
        if there.is_some_and(|there| there.owner != self.owner || there.end > end) {
            return Err(self.of_another(start)); // A2
        }
        let is_damaged =
            there.map_or(Ok(false), |there| problem_of(&*self.disk, &there).map(|found| found.is_some()))?;
        let mut bytes = vec![0; (end - start) as usize];
        // The log begins with a block that holds nothing, and an archive may begin with the rest of a record (A4).
        let begin = proof.resumes_at().lsn.0.max(FIRST_LSN.0).clamp(start, end);
        let (head, body) = bytes.split_at_mut((begin - start) as usize);
        if let Some(there) = there.filter(|_| !is_damaged) {
            // It may have been proved when it was copied.
            let known = head.len().min((there.end - start) as usize);
            self.disk.open(&path(start, "seg"), Open::READ)?.read_at(0, &mut head[..known])?;
        }
        read_log(log, Lsn(begin), body)?;
        let is_headless = !head.is_empty();
        let mut proved = proof.clone();
        proved.feed(Lsn(begin), body)?;
        // A record that goes on behind the end is durable, and no part of it is taken on trust.
        let mut rest = vec![0; proved.missing_bytes()?];
        read_log(log, Lsn(end), &mut rest)?;
        proved.clone().feed(Lsn(end), &rest)?;
        let resume = proved.resumes_at();
        let sum = Sum {
            owner: self.owner,
            start,
            segment_bytes: self.segment_bytes,
            end,
            incarnation: resume.incarnation,
            resume: resume.lsn.0,
            crc: crc32c::crc32c(&bytes),
        };
        if let Some(there) = there {
            // A damaged copy may have had more than the log has now.
            let is_other = crc32c::crc32c(&bytes[..(there.end - start) as usize]) != there.crc;
            let can_compare = !(is_damaged && is_headless);
            if is_other && can_compare {
                return Err(self.of_another(start)); // A2
            }
            if there == sum && !is_damaged && *self.unsure.lock() != Some(start) {
                return Ok(proved);
            }
        }
        *self.unsure.lock() = Some(start); // A5
        self.write(LOG_DIR, &path(start, "seg"), &bytes)?;
        self.write(LOG_DIR, &path(start, "sum"), &sum.encode())?;
        *self.unsure.lock() = None;
        Ok(proved)
    }

    fn of_another(&self, start: u64) -> Error {
        Error::ArchiveOfAnother { path: format!("{}/{}", self.disk.describe(), path(start, "seg")) }
    }

    fn write(&self, dir: &str, path: &str, bytes: &[u8]) -> Result<(), Error> {
        write(&*self.disk, dir, path, bytes)
    }

    fn sum(&self, start: u64) -> Result<Option<Sum>, Error> {
        read_sum(&*self.disk, start)
    }

    /// Fills `to` with the log from `from` on, as far as the archive has it; says how much that was.
    pub(crate) fn read_bytes(&self, from: Lsn, to: &mut [u8]) -> Result<usize, BackupError> {
        self.read_archived(from, to).map_err(|error| BackupError::Chain { what: error.to_string() })
    }

    fn read_archived(&self, from: Lsn, to: &mut [u8]) -> Result<usize, Error> {
        let start = from.0 - from.0 % self.segment_bytes;
        let Some(sum) = self.sum(start)?.filter(|sum| sum.end > from.0 && sum.owner == self.owner) else {
            return Ok(0);
        };
        if *self.checked.lock() != Some(sum) {
            if let Some(problem) = problem_of(&*self.disk, &sum)? {
                return Err(Error::Corrupt { what: format!("{} in the archive: {problem}", path(start, "seg")) });
            }
            *self.checked.lock() = Some(sum);
        }
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

impl LogKeeper for Archive {
    fn name(&self) -> String {
        "archive".into()
    }

    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        Ok(Some(Lsn(self.kept_from.load(Acquire))))
    }

    /// An archive that stalls keeps the log, and nothing else.
    fn work_period(&self) -> Option<Duration> {
        Some(PERIOD)
    }

    /// Copies what is full. What fails is tried again; meanwhile the log is kept.
    fn work(&self) {
        let kept_from = self.kept_from.load(Acquire);
        if kept_from - kept_from % self.segment_bytes + self.segment_bytes <= self.log.durable_lsn().0 {
            let _ = self.copy(false);
        }
    }
}

/// Makes the archive this owner's, unless it is another's (A3).
fn claim(disk: &dyn Disk, owner: Owner) -> Result<(), Error> {
    if planted::is_on(Bug::ArchiveOfAnybody) {
        return Ok(());
    }
    let refuse = |path: &str| Err(Error::ArchiveOfAnother { path: format!("{}/{path}", disk.describe()) });
    if let Some(there) = read_owner(disk)? {
        return if there == owner { Ok(()) } else { refuse(OWNER) };
    }
    // It was lost: the segments say it too.
    if let Some(sum) = sums(disk)?.iter().find(|sum| sum.owner != owner) {
        return refuse(&path(sum.start, "seg"));
    }
    write(disk, "", OWNER, &owner.encode()).inspect_err(|_| {
        let _ = disk.remove(OWNER); // A5. What cannot be removed says the same.
    })
}

fn read_owner(disk: &dyn Disk) -> Result<Option<Owner>, Error> {
    let file = match disk.open(OWNER, Open::READ) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let bytes = read_small(&*file)?;
    refuse_other_format(&bytes, OWNER_MAGIC, || format!("{}/{OWNER}", disk.describe()))?;
    match bytes.first_chunk().and_then(Owner::decode) {
        Some(owner) => Ok(Some(owner)),
        // Its name came when it was whole.
        None => Err(Error::Corrupt {
            what: format!("{}/{OWNER} is damaged: it says whose archive this is", disk.describe()),
        }),
    }
}

/// The first bytes of a file, as many as one of ours can have.
fn read_small(file: &dyn DiskFile) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; file.len()?.min(SMALL_BYTES_MAX) as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// A6.
fn refuse_other_format(bytes: &[u8], magic: [u8; 8], path: impl FnOnce() -> String) -> Result<(), Error> {
    if bytes.len() < 16 || bytes[..8] != magic {
        return Ok(());
    }
    let head = word(bytes, 8);
    let (found, supported) = (head as u32, FORMAT);
    if found == FORMAT || (head >> 32) as u32 != crc32c::crc32c(&bytes[16..]) {
        return Ok(());
    }
    let path = path();
    Err(if found < FORMAT {
        Error::OlderFormat { path, found, supported }
    } else {
        Error::NewerFormat { path, found, supported }
    })
}

/// Reads all of `to` from the durable log.
fn read_log(log: &Log, from: Lsn, to: &mut [u8]) -> Result<(), Error> {
    let have = log.read_bytes(from, to)?;
    if have < to.len() {
        return Err(Error::Corrupt { what: format!("the log ends at LSN {}, in its middle", from.0 + have as u64) });
    }
    Ok(())
}

/// Writes a file of `dir` durably, all or nothing.
fn write(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> Result<(), Error> {
    let part = format!("{path}.part");
    if disk.exists(&part)? {
        disk.remove(&part)?;
    }
    let file = disk.open(&part, Open::CREATE_NEW)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    disk.rename(&part, path)?;
    sync_names(disk, dir)
}

fn sync_names(disk: &dyn Disk, dir: &str) -> Result<(), Error> {
    if dir.is_empty() && planted::is_on(Bug::ArchiveNamesLost) {
        return Ok(());
    }
    Ok(disk.sync_dir(dir)?)
}

/// What is wrong with the bytes of a segment.
fn problem_of(disk: &dyn Disk, sum: &Sum) -> Result<Option<String>, Error> {
    let file = match disk.open(&path(sum.start, "seg"), Open::READ) {
        Err(error) if error.is_not_found() => return Ok(Some("the file is missing".into())),
        other => other?,
    };
    let (bytes, mut at, mut crc) = (sum.end - sum.start, 0, 0);
    let mut buffer = vec![0; PIECE_BYTES.min(bytes) as usize];
    while at < bytes {
        let piece = &mut buffer[..PIECE_BYTES.min(bytes - at) as usize];
        match file.read_at(at, piece) {
            Err(error) if error.kind == DiskErrorKind::ShortRead => return Ok(Some("the file is too short".into())),
            other => other?,
        }
        crc = crc32c::crc32c_append(crc, piece);
        at += piece.len() as u64;
    }
    Ok((crc != sum.crc).then(|| format!("its checksum is {crc:#010x}, expected {:#010x}", sum.crc)))
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
    let bytes = read_small(&*file)?;
    refuse_other_format(&bytes, MAGIC, || format!("{}/{}", disk.describe(), path(start, "sum")))?;
    Ok(bytes.first_chunk().and_then(Sum::decode).filter(|sum| sum.start == start))
}

/// Where the segments begin that a sum is there for, whole or not.
fn starts(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    if !disk.exists(LOG_DIR)? {
        return Ok(Vec::new());
    }
    let digits = |name: &String| u64::from_str_radix(name.strip_suffix(".sum")?, 16).ok();
    let mut starts: Vec<u64> = disk.list(LOG_DIR)?.iter().filter_map(digits).collect();
    starts.sort_unstable();
    Ok(starts)
}

/// All whole sums of an archive, by LSN.
fn sums(disk: &dyn Disk) -> Result<Vec<Sum>, Error> {
    let mut sums = Vec::new();
    for start in starts(disk)? {
        sums.extend(read_sum(disk, start)?);
    }
    Ok(sums)
}

/// The newest run of an archive without a gap, as a log of files; `None` if there is no archive.
pub(crate) fn files_of(disk: &Arc<dyn Disk>) -> Result<Option<LogFiles>, Error> {
    let sums = sums(&**disk)?;
    // A record that is cut off at the end of the newest segment is no part of it.
    Ok(sums.last().map(|last| LogFiles {
        disk: Arc::clone(disk),
        environment: last.owner.environment,
        segment_bytes: last.segment_bytes,
        known: None,
        incarnation_max: last.incarnation,
        end: Some(Lsn(last.resume.min(last.end))),
    }))
}

/// An archive directory, looked at without an environment.
pub struct ArchiveDirectory {
    disk: Arc<dyn Disk>,
}

impl ArchiveDirectory {
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Opens the archive in a directory.
    ///
    /// # Errors
    /// [`Error::NoArchive`] if the directory has none.
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

    /// The segments, oldest first. With `verify`, the contents of each are compared with its sum, and gaps are problems. A
    /// segment whose sum is damaged has a problem in any case.
    ///
    /// # Errors
    /// [`Error::OlderFormat`], [`Error::NewerFormat`], the disk's.
    pub fn segments(&self, verify: bool) -> Result<Vec<ArchivedSegment>, Error> {
        let mut found = Vec::new();
        let mut before: Option<Sum> = None;
        for start in starts(&*self.disk)? {
            let Some(sum) = read_sum(&*self.disk, start)? else {
                let problem = Some("its sum is damaged".to_string());
                found.push(ArchivedSegment { file: path(start, "seg"), start_lsn: start, end_lsn: start, problem });
                continue;
            };
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
            if before.owner != sum.owner {
                return Ok(Some("it is of another environment, or another life, than the one before".into()));
            }
            if before.end != sum.start {
                return Ok(Some(format!("the log from LSN {} to {} is missing before it", before.end, sum.start)));
            }
        }
        problem_of(&*self.disk, sum)
    }

    /// Removes the segments that end at or before `lsn`: those that no backup that you keep needs
    /// ([`crate::Backup::needs_log_from`]). Returns how many.
    ///
    /// # Errors
    /// A failure of the disk. What was removed until then stays removed.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNED: Owner = Owner { environment: [3; 16], life: 0x0809 };
    const SUM: Sum =
        Sum { owner: OWNED, start: 65536, segment_bytes: 65536, end: 70000, incarnation: 4, resume: 69992, crc: 5 };

    #[test]
    fn sums_and_owners_survive_their_encoding_and_no_other_bytes_are_one() {
        assert_eq!(Sum::decode(&SUM.encode()), Some(SUM));
        for at in 0..SUM_BYTES {
            let mut bytes = SUM.encode();
            bytes[at] ^= 1;
            assert_eq!(Sum::decode(&bytes), None, "byte {at}");
        }
        assert_eq!(Owner::decode(&OWNED.encode()), Some(OWNED));
        for at in 0..OWNER_BYTES {
            let mut bytes = OWNED.encode();
            bytes[at] ^= 1;
            assert_eq!(Owner::decode(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn golden_bytes_of_a_sum_and_an_owner() {
        let bytes = SUM.encode();
        assert_eq!(bytes[..12], *b"LSTNARCH\x02\0\0\0");
        assert_eq!(bytes[16..32], [3; 16]);
        let words: [u64; 7] = std::array::from_fn(|no| word(&bytes, 32 + 8 * no));
        assert_eq!(words, [0x0809, 0x1_0000, 0x1_0000, 0x1_1170, 4, 0x1_1168, 5]);
        let bytes = OWNED.encode();
        assert_eq!(bytes[..12], *b"LSTNAOWN\x02\0\0\0");
        assert_eq!((&bytes[16..32], &bytes[32..]), (&[3; 16][..], &[9, 8, 0, 0, 0, 0, 0, 0][..]));
    }
}
