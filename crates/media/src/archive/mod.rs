//! The archive: copies of the log's segments, kept when the environment gives the segments up. What its files hold is
//! in `archive/mod.rs` of the crate `ledgerstone-feed`.
//!
//! A1. A segment is given up only when its copy and the copy's sum are durable, and this process has compared them with
//!     it. A pin on the log stands where that ends.
//! A2. A copy is replaced only by a longer one that begins with the same bytes, or by the same bytes when it is
//!     damaged.
//! A3. An archive is of one life of one environment. `owner` says of which, before the first segment is there; an open
//!     under another one is refused.
//! A4. What is copied was proved on its way, record by record: rot in the log is found here, while other copies of
//!     what it says (the pages) are still there. An archive may begin in the middle of a record whose head was given
//!     up. It has zeros in the place of that record's rest, which nobody could prove, and nobody can read.
//! A5. A file whose write, name or sync failed is written again, whatever it looks like: a second sync that succeeds
//!     says nothing of what the first has lost.
//! A6. Magic, format and checksum keep their places in every format, so that a file of another one is told from damage.
//!     It is refused wherever it is met.

mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use ledgerstone_core::Error;
use ledgerstone_core::base::{Base, Latched};
use ledgerstone_core::keeper::{KeptLog, LogKeeper, Owner, parts_of};
use ledgerstone_disk::{Disk, Open};
use ledgerstone_feed::archive::{PIECE_BYTES, Sum, files_of, path, problem_of, read_sum};
use ledgerstone_log::{Beginning, FIRST_LSN, LOG_DIR, Log, LogError, LogFiles, LogProof, Malformed, RECORD_BYTES_MAX};
use ledgerstone_page::Lsn;
use ledgerstone_recovery::backup::BackupError;
use ledgerstone_region::Mutex;

use self::write::{claim, sync_names, write};

/// How often it looks whether a segment is full.
const PERIOD: Duration = Duration::from_millis(50);

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

/// Makes the keeper that copies the log to `disk`, when an environment opens.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::ArchiveOfAnother`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::Corrupt`], or a failure of the
/// disk.
pub fn archive(disk: Arc<dyn Disk>, log: KeptLog) -> Result<Arc<dyn LogKeeper>, Error> {
    Ok(Arc::new(Archive::begin(disk, log)?))
}

/// Copies the log up to what is durable now: `Environment::archive_now` of the library. `latched`: the latch of the
/// thread that asks keepers, under which nobody else copies.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::NoArchive`], [`Error::ArchiveOfAnother`]. [`Error::Corrupt`] if the log is damaged. A failure of the disk.
pub fn archive_now(env: &Base, _latched: &Latched<'_>) -> Result<u64, Error> {
    env.keepers.find::<Archive>().ok_or(Error::NoArchive)?.copy(true)
}

/// Why the last copy to the archive failed.
#[must_use]
pub fn archive_trouble(env: &Base) -> Option<String> {
    env.keepers.find::<Archive>().and_then(|archive| archive.trouble())
}

impl Archive {
    /// An archive for the log of this environment, which it holds back from now on.
    ///
    /// # Errors
    /// As [`archive`].
    fn begin(disk: Arc<dyn Disk>, log: KeptLog) -> Result<Archive, Error> {
        let (log, owner, known) = parts_of(log);
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
    ///
    /// # Errors
    /// As [`archive_now`].
    fn copy(&self, all: bool) -> Result<u64, Error> {
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
        let is_damaged = there
            .map_or(Ok(false), |there| problem_of(&*self.disk, &there, &mut |_| Ok(())).map(|found| found.is_some()))?;
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
            if let Some(problem) = problem_of(&*self.disk, &sum, &mut |_| Ok(()))? {
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

    fn trouble(&self) -> Option<String> {
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

/// Reads all of `to` from the durable log.
fn read_log(log: &Log, from: Lsn, to: &mut [u8]) -> Result<(), Error> {
    let have = log.read_bytes(from, to)?;
    if have < to.len() {
        return Err(Error::Corrupt { what: format!("the log ends at LSN {}, in its middle", from.0 + have as u64) });
    }
    Ok(())
}
