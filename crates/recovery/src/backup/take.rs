//! Taking a backup while everybody goes on (Lemon 3.4: a fuzzy copy of the pages, and the log that makes it whole).
//!
//! ```text
//!  checkpoint ─► log pinned at its scan LSN ─► pages copied one by one ─► log flushed past all of them ─► log copied
//! ```
//! K1. Changes below the scan LSN are in the data file before the first page is copied. Redo from there brings every
//!     copy to the end of the log, whenever it was copied.
//! K2. The log of a full backup ends behind the newest LSN of any copy: a copy from memory may be ahead of the device.
//! K3. The log begins and ends between two records.
//! K4. What is copied of the log is proved on its way. A read that went wrong once must not become a backup that is
//!     found damaged when it is needed. Pages are proved by the cache.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use ledgerstone_log::{Beginning, ControlState, LogError, LogPin, LogProof, Malformed};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::sync;
use ledgerstone_txn::Engine;

use super::error::BackupError;
use super::format::{End, FrameKind, Header, PAYLOAD_BYTES_MAX};
use super::writer::BackupWriter;

/// Pages that are copied at a time.
const READ_PAGES_MAX: usize = 64;

/// Where the log of a backup comes from when the environment no longer has it. The function fills the buffer from an
/// LSN on, and returns how many bytes there were.
pub type OlderLog<'a> = &'a dyn Fn(Lsn, &mut [u8]) -> Result<usize, BackupError>;

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes of pages and log looked at.
    pub done_bytes: u64,
    /// Bytes in all, as far as is known now.
    pub total_bytes: u64,
}

/// How to take one.
pub struct Take<'a> {
    /// Whose.
    pub engine: &'a Arc<Engine>,
    /// Where it goes.
    pub to: &'a mut dyn Write,
    /// The most bytes a second. 0 means no limit.
    pub bytes_per_s: u64,
    /// Called after each piece. `Break` cancels the backup.
    pub progress: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
}

/// What was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its header.
    pub header: Header,
    /// Its end.
    pub end: End,
    /// Bytes written.
    pub bytes: u64,
}

/// Sleeps so that no more than so many bytes go by in a second, and asks whether to go on.
struct Pace<'a> {
    began_ns: u64,
    bytes_per_s: u64,
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
}

impl Pace<'_> {
    fn step(&mut self, bytes: u64) -> Result<(), BackupError> {
        self.done_bytes += bytes;
        self.total_bytes = self.total_bytes.max(self.done_bytes);
        let now = BackupProgress { done_bytes: self.done_bytes, total_bytes: self.total_bytes };
        if (self.progress)(now).is_break() {
            return Err(BackupError::Cancelled);
        }
        if self.bytes_per_s > 0 {
            let due_ns = u128::from(self.done_bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
            let due_ns = self.began_ns.saturating_add(u64::try_from(due_ns).unwrap_or(u64::MAX));
            let now_ns = sync::now_ns();
            if due_ns > now_ns {
                sync::sleep_ns(due_ns - now_ns);
            }
        }
        Ok(())
    }
}

impl Take<'_> {
    /// Takes a full backup. `control` is the control file after a checkpoint, and `pin` keeps the log from its scan LSN
    /// on.
    ///
    /// # Errors
    /// A page is damaged, the log or the target fails, or the backup was cancelled. What was written until then is not
    /// a backup (P2).
    pub fn full(self, control: ControlState, id: [u8; 16], pin: &LogPin) -> Result<Taken, BackupError> {
        let Take { engine, to, bytes_per_s, progress } = self;
        let header = Header {
            is_full: true,
            id,
            parent: [0; 16],
            begun_ns: sync::unix_time_ns(),
            log_from: control.scan_lsn,
            incarnation: control.scan_incarnation,
            control,
        };
        assert!(pin.lsn() <= header.log_from, "the log of the backup is not kept");
        let page_bytes = engine.cache.page_bytes();
        let page_count = engine.cache.page_count()?;
        let log_bytes = engine.log.tail().0 - header.log_from.0;
        let total_bytes = page_count * page_bytes as u64 + log_bytes;
        let mut pace = Pace { began_ns: sync::now_ns(), bytes_per_s, done_bytes: 0, total_bytes, progress };
        let mut writer = BackupWriter::begin(to, &header)?;

        let mut run = Vec::with_capacity(PAYLOAD_BYTES_MAX);
        let (mut first, mut stored_count, mut newest) = (0, 0, Lsn(0));
        let mut pages = vec![0; READ_PAGES_MAX * page_bytes];
        let mut lsns = Vec::new();
        for id in 0..page_count {
            let no = id as usize % READ_PAGES_MAX;
            if no == 0 {
                let count = (page_count - id).min(READ_PAGES_MAX as u64) as usize;
                engine.cache.copy_pages(PageId(id), &mut pages[..count * page_bytes], &mut lsns)?;
            }
            let (page, lsn) = (&pages[no * page_bytes..][..page_bytes], lsns[no]);
            if run.len() + page_bytes > PAYLOAD_BYTES_MAX || lsn.is_none() {
                if !run.is_empty() {
                    writer.frame(FrameKind::Pages, first, &run)?;
                    run.clear();
                }
                pace.step(0)?;
            }
            if let Some(lsn) = lsn {
                if run.is_empty() {
                    first = id;
                }
                run.extend_from_slice(page);
                stored_count += 1;
                newest = newest.max(lsn);
            }
            pace.done_bytes += page_bytes as u64;
            sync::yield_point("backup page");
        }
        if !run.is_empty() {
            writer.frame(FrameKind::Pages, first, &run)?;
        }

        if !planted::is_on(Bug::BackupAheadOfLog) && newest.0 != 0 {
            engine.log.flush_to(newest)?; // K2
        }
        let log_end = engine.log.durable_lsn();
        copy_log(engine, &mut writer, &mut pace, &header, log_end, &|_, _| Ok(0))?;
        let end = End { page_count, stored_count, ..end_of(engine, log_end) };
        Ok(Taken { header, end, bytes: writer.end(end)? })
    }

    /// Takes the log since the backup whose header and end are `after`.
    ///
    /// # Errors
    /// As [`Take::full`]. [`ledgerstone_log::LogError::Recycled`] if that log is gone and `older` does not have it.
    pub fn incremental(
        self,
        control: ControlState,
        id: [u8; 16],
        after: (&Header, &End),
        older: OlderLog<'_>,
    ) -> Result<Taken, BackupError> {
        let Take { engine, to, bytes_per_s, progress } = self;
        let header = Header {
            is_full: false,
            id,
            parent: after.0.id,
            begun_ns: sync::unix_time_ns(),
            log_from: after.1.log_end,
            incarnation: after.1.incarnation,
            control,
        };
        let tail = engine.log.tail();
        engine.log.flush_to(Lsn(tail.0.saturating_sub(8)))?;
        let log_end = engine.log.durable_lsn();
        let total_bytes = log_end.0.saturating_sub(header.log_from.0);
        let mut pace = Pace { began_ns: sync::now_ns(), bytes_per_s, done_bytes: 0, total_bytes, progress };
        let mut writer = BackupWriter::begin(to, &header)?;
        copy_log(engine, &mut writer, &mut pace, &header, log_end, older)?;
        let end = end_of(engine, log_end);
        Ok(Taken { header, end, bytes: writer.end(end)? })
    }
}

fn end_of(engine: &Engine, log_end: Lsn) -> End {
    End {
        page_count: 0,
        stored_count: 0,
        log_end,
        incarnation: engine.log.incarnation_at(log_end),
        incarnation_max: engine.log.incarnation(),
        ended_ns: sync::unix_time_ns(),
        frames_crc: 0,
    }
}

/// Copies the bytes of the log from where the header says to `end`, in frames that end where `PAYLOAD_BYTES_MAX`
/// divides (K4).
fn copy_log(
    engine: &Engine,
    writer: &mut BackupWriter<'_>,
    pace: &mut Pace<'_>,
    header: &Header,
    end: Lsn,
    older: OlderLog<'_>,
) -> Result<(), BackupError> {
    let from = Beginning { lsn: header.log_from, incarnation: header.incarnation };
    let mut proof = LogProof::new(header.control.environment, from);
    let mut at = from.lsn.0;
    let mut buffer = vec![0; PAYLOAD_BYTES_MAX];
    while at < end.0 {
        let wanted = (PAYLOAD_BYTES_MAX as u64 - at % PAYLOAD_BYTES_MAX as u64).min(end.0 - at) as usize;
        let piece = &mut buffer[..wanted];
        let mut have = match engine.log.read_bytes(Lsn(at), piece) {
            Err(error @ ledgerstone_log::LogError::Recycled { .. }) => match older(Lsn(at), piece)? {
                0 => return Err(error.into()),
                have => have,
            },
            other => other?,
        };
        have = have.min(wanted);
        proof.feed(Lsn(at), &piece[..have])?;
        writer.frame(FrameKind::Log, at, &piece[..have])?;
        pace.step(have as u64)?;
        at += have as u64;
    }
    let lsn = proof.resumes_at().lsn;
    match proof.missing_bytes()? as u64 {
        0 => Ok(()),
        missing => {
            let have = end.0 - lsn.0;
            Err(LogError::Invalid { lsn, why: Malformed::Short { needed: have + missing, have } }.into())
        }
    }
}
