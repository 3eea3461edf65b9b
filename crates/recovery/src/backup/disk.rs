//! A full backup and the incremental ones that go on from it, read as if they were the environment. It is a disk with
//! a data file, a log and a control file, and cannot be written.
//!
//! So everything that reads an environment's files reads a backup: scans and readers of the log, page checks, restores.
//!
//! B1. Bytes are given out only from frames whose checksums were compared in this process.
//! B2. Each backup of the chain begins where the one before ends, and names it.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Open};
use ledgerstone_log::{CONTROL_PATH, ControlState, LOG_DIR, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_region::{ByNumber, Mutex};

use super::error::BackupError;
use super::format::{End, FRAME_BYTES, Frame, FrameKind, Header};

/// The name of the data file of a backup.
pub const DATA: &str = "data";

/// One backup file whose frames were found.
#[derive(Clone)]
pub struct BackupFile {
    file: Arc<dyn DiskFile>,
    /// What the backup is of.
    pub header: Header,
    /// What it holds.
    pub end: End,
    /// By `at`: where the frame lies. Of pages and of log.
    pages: ByNumber<u64, (u64, Frame)>,
    log: ByNumber<u64, (u64, Frame)>,
}

impl BackupFile {
    /// Reads the heads of all frames, and checks header and end.
    ///
    /// # Errors
    /// The file is not a backup, is not complete, or is damaged in what was read.
    pub fn open(file: Arc<dyn DiskFile>) -> Result<BackupFile, BackupError> {
        let name = file.name().to_string();
        let damaged = |offset: u64, what: &'static str| BackupError::Damaged { file: name.clone(), offset, what };
        let bytes = file.len()?;
        let (mut at, mut number, mut crc) = (0, 0, 0u32);
        let mut header: Option<Header> = None;
        let (mut pages, mut log) = (ByNumber::new(), ByNumber::new());
        loop {
            if bytes - at < FRAME_BYTES as u64 {
                return Err(match header {
                    None => BackupError::NotABackup { file: name },
                    Some(_) => BackupError::Incomplete { file: name },
                });
            }
            let mut head = [0; FRAME_BYTES];
            file.read_at(at, &mut head)?;
            let frame = match (Frame::decode(&head), header) {
                (Ok(frame), _) => frame,
                (Err(_), None) => return Err(BackupError::NotABackup { file: name }),
                (Err(what), Some(_)) => return Err(damaged(at, what)),
            };
            let payload_at = at + FRAME_BYTES as u64;
            if bytes - payload_at < u64::from(frame.payload_bytes) {
                return Err(match header {
                    None => BackupError::NotABackup { file: name },
                    Some(_) => BackupError::Incomplete { file: name },
                });
            }
            if frame.number != number || header.is_some_and(|header| header.mark() != frame.mark) {
                return Err(damaged(at, "a frame that is missing, or another backup's"));
            }
            match (frame.kind, header) {
                (FrameKind::Header, None) => header = Some(read_header(&*file, payload_at, &frame, &name)?),
                (FrameKind::Pages, Some(_)) => drop(pages.insert(frame.at, (payload_at, frame))),
                (FrameKind::Log, Some(_)) => drop(log.insert(frame.at, (payload_at, frame))),
                (FrameKind::End, Some(header)) => {
                    let payload = read_frame(&*file, payload_at, &frame)?;
                    let end = End::decode(&payload).filter(|end| end.frames_crc == crc);
                    let end = end.ok_or(damaged(at, "the frames are not those that the end speaks of"))?;
                    return Ok(BackupFile { file, header, end, pages, log });
                }
                (_, None) => return Err(BackupError::NotABackup { file: name }),
                (FrameKind::Header, Some(_)) => return Err(damaged(at, "a second header")),
            }
            crc = crc32c::crc32c_append(crc, &frame.crc.to_le_bytes());
            at = payload_at + u64::from(frame.payload_bytes);
            number += 1;
        }
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Compares the checksums of all frames. `progress` is called with the bytes done.
    ///
    /// # Errors
    /// The first frame that is damaged; what `progress` answers.
    pub fn check_frames(&self, progress: &mut dyn FnMut(u64) -> Result<(), BackupError>) -> Result<(), BackupError> {
        for (at, frame) in self.pages.values().chain(self.log.values()) {
            read_frame(&*self.file, *at, frame)?;
            progress(u64::from(frame.payload_bytes))?;
        }
        Ok(())
    }

    /// Whether this is the incremental backup that goes on from `before` (B2).
    ///
    /// # Errors
    /// Why not.
    pub fn check_follows(&self, before: &BackupFile) -> Result<(), String> {
        let (control, other) = (&self.header.control, &before.header.control);
        let follows = !self.header.is_full
            && self.header.parent == before.header.id
            && self.header.log_from == before.end.log_end
            && (control.environment, control.life) == (other.environment, other.life);
        if follows { Ok(()) } else { Err(format!("{} does not go on from {}", self.name(), before.name())) }
    }

    /// Bytes of pages and log in it.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.pages.values().chain(self.log.values()).map(|(_, frame)| u64::from(frame.payload_bytes)).sum()
    }

    /// Ids of the pages that it holds.
    pub fn page_ids(&self) -> impl Iterator<Item = u64> + '_ {
        let page_bytes = self.header.control.page_bytes.max(1);
        self.pages.values().flat_map(move |(_, f)| f.at..f.at + u64::from(f.payload_bytes / page_bytes))
    }
}

fn read_header(file: &dyn DiskFile, at: u64, frame: &Frame, name: &str) -> Result<Header, BackupError> {
    let payload = read_frame(file, at, frame)?;
    Header::decode(&payload).map_err(|newer| match newer {
        Some(found) => {
            BackupError::NewerFormat { file: name.to_string(), found, supported: super::format::BACKUP_FORMAT }
        }
        None => BackupError::NotABackup { file: name.to_string() },
    })
}

fn read_frame(file: &dyn DiskFile, at: u64, frame: &Frame) -> Result<Vec<u8>, BackupError> {
    let mut payload = vec![0; frame.payload_bytes as usize];
    file.read_at(at, &mut payload)?;
    if frame.fits(&payload) {
        return Ok(payload);
    }
    Err(BackupError::Damaged { file: file.name().to_string(), offset: at, what: "the checksum of a frame is wrong" })
}

/// Which file, where, and the bytes.
type LastRead = (usize, u64, Arc<Vec<u8>>);

/// A chain of backups as a disk (B2).
pub struct BackupDisk {
    chain: Vec<BackupFile>,
    control: Vec<u8>,
    /// The frame that was read last: which file, where, its bytes.
    last: Mutex<Option<LastRead>>,
}

impl BackupDisk {
    /// A full backup and the incremental backups that go on from it, in order.
    ///
    /// # Errors
    /// [`BackupError::Chain`].
    pub fn new(chain: Vec<BackupFile>) -> Result<Arc<BackupDisk>, BackupError> {
        let Some(first) = chain.first().filter(|first| first.header.is_full) else {
            return Err(BackupError::Chain { what: "it does not begin with a full backup".into() });
        };
        for pair in chain.windows(2) {
            if let Err(what) = pair[1].check_follows(&pair[0]) {
                return Err(BackupError::Chain { what });
            }
        }
        let state = ControlState {
            scan_lsn: first.header.log_from,
            scan_incarnation: first.header.incarnation,
            incarnation_max: chain.iter().map(|file| file.end.incarnation_max).max().unwrap_or(1),
            ..first.header.control.of_a_copy()
        };
        let slot = state.encode(1);
        let control = [slot, slot].concat();
        Ok(Arc::new(BackupDisk { chain, control, last: Mutex::new(None) }))
    }

    /// The control file that goes with it: recovery begins where the full backup's log does.
    #[must_use]
    pub fn state(&self) -> ControlState {
        let header = &self.chain[0].header;
        let incarnation_max = self.chain.iter().map(|file| file.end.incarnation_max).max().unwrap_or(1);
        ControlState {
            scan_lsn: header.log_from,
            scan_incarnation: header.incarnation,
            incarnation_max,
            ..header.control.of_a_copy()
        }
    }

    /// The files, the full one first.
    #[must_use]
    pub fn chain(&self) -> &[BackupFile] {
        &self.chain
    }

    /// Pages that the data file had.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.chain[0].end.page_count
    }

    /// Where the full one's log ends: no earlier moment can be restored.
    #[must_use]
    pub fn full_end(&self) -> Lsn {
        self.chain[0].end.log_end
    }

    /// Where the log ends.
    #[must_use]
    pub fn log_end(&self) -> Lsn {
        self.chain.last().map_or(Lsn(0), |file| file.end.log_end)
    }

    fn frame(&self, no: usize, at: u64, frame: &Frame) -> Result<Arc<Vec<u8>>, DiskError> {
        if let Some((last_no, last_at, bytes)) = &*self.last.lock()
            && (*last_no, *last_at) == (no, at)
        {
            return Ok(Arc::clone(bytes));
        }
        let file = &self.chain[no].file;
        let bytes = Arc::new(read_frame(&**file, at, frame).map_err(|error| match error {
            BackupError::Disk(error) => error,
            // A disk can only say that bytes cannot be read; verification of the backup says more.
            _ => DiskError::new(file.name(), "read a damaged frame of", DiskErrorKind::Io(EIO)).at(at),
        })?);
        *self.last.lock() = Some((no, at, Arc::clone(&bytes)));
        Ok(bytes)
    }

    /// Fills `to` with what is stored from `from` on; what is not is zero. `unit`: bytes of one step of `at`.
    fn fill(&self, kind: FrameKind, unit: u64, from: u64, to: &mut [u8]) -> Result<(), DiskError> {
        to.fill(0);
        let end = from + to.len() as u64;
        for (no, file) in self.chain.iter().enumerate() {
            let frames = if kind == FrameKind::Pages { &file.pages } else { &file.log };
            let first = frames.range(..=from / unit).next_back().map_or(0, |(at, _)| at);
            for (at, (payload_at, frame)) in frames.range(first..) {
                let start = at.saturating_mul(unit);
                let stop = start.saturating_add(u64::from(frame.payload_bytes));
                if start >= end {
                    break;
                }
                if stop <= from {
                    continue;
                }
                let bytes = self.frame(no, *payload_at, frame)?;
                let (a, b) = (start.max(from), stop.min(end));
                to[(a - from) as usize..(b - from) as usize]
                    .copy_from_slice(&bytes[(a - start) as usize..(b - start) as usize]);
            }
        }
        Ok(())
    }

    fn segments(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = self.chain[0].header.control.segment_bytes.max(1);
        let (from, end) = (self.chain[0].header.log_from.0, self.log_end().0);
        (from / bytes..end.div_ceil(bytes)).map(move |no| no * bytes)
    }
}

/// `EIO`.
const EIO: i32 = 5;

/// One file of the disk.
struct View {
    disk: Arc<BackupDisk>,
    name: String,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Control,
    Data,
    Segment(u64),
}

/// The disk, as others see it. Made from the [`BackupDisk`] so that files can outlive the handle.
#[derive(Clone)]
pub struct BackupView(pub Arc<BackupDisk>);

impl Disk for BackupView {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        let disk = &self.0;
        if how.create || how.create_new || !how.read_only {
            return Err(DiskError::new(path, "write", DiskErrorKind::ReadOnlyFs));
        }
        let what = match path {
            CONTROL_PATH => Some(What::Control),
            DATA => Some(What::Data),
            _ => disk.segments().find(|start| path == format!("{LOG_DIR}/{}", segment_name(*start))).map(What::Segment),
        };
        let what = what.ok_or(DiskError::new(path, "open", DiskErrorKind::NotFound))?;
        Ok(Arc::new(View { disk: Arc::clone(disk), name: path.to_string(), what }))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        Ok(path == LOG_DIR || self.open(path, Open::READ).is_ok())
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        match dir {
            LOG_DIR => Ok(self.0.segments().map(segment_name).collect()),
            "" => Ok(vec![CONTROL_PATH.to_string(), DATA.to_string(), LOG_DIR.to_string()]),
            _ => Err(DiskError::new(dir, "list", DiskErrorKind::NotFound)),
        }
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        Err(DiskError::new(path, "remove", DiskErrorKind::ReadOnlyFs))
    }

    fn rename(&self, from: &str, _to: &str) -> Result<(), DiskError> {
        Err(DiskError::new(from, "rename", DiskErrorKind::ReadOnlyFs))
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        Err(DiskError::new(dir, "create", DiskErrorKind::ReadOnlyFs))
    }

    fn sync_dir(&self, _dir: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        Err(DiskError::new(path, "lock", DiskErrorKind::ReadOnlyFs))
    }

    fn describe(&self) -> String {
        self.0.chain[0].name().to_string()
    }
}

impl DiskFile for View {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let short = || DiskError::new(&*self.name, "read", DiskErrorKind::ShortRead).at(offset);
        let end = offset.checked_add(buf.len() as u64).ok_or_else(short)?;
        if end > self.len()? {
            return Err(short());
        }
        match self.what {
            What::Control => buf.copy_from_slice(&self.disk.control[offset as usize..end as usize]),
            What::Data => {
                let unit = u64::from(self.disk.chain[0].header.control.page_bytes);
                self.disk.fill(FrameKind::Pages, unit, offset, buf)?;
            }
            What::Segment(start) => self.disk.fill(FrameKind::Log, 1, start + offset, buf)?,
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        let state = &self.disk.chain[0].header.control;
        Ok(match self.what {
            What::Control => self.disk.control.len() as u64,
            What::Data => self.disk.page_count() * u64::from(state.page_bytes),
            What::Segment(_) => state.segment_bytes,
        })
    }

    fn write_at(&self, offset: u64, _bytes: &[u8]) -> Result<(), DiskError> {
        Err(DiskError::new(&*self.name, "write", DiskErrorKind::ReadOnlyFs).at(offset))
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn allocate(&self, offset: u64, _len: u64) -> Result<(), DiskError> {
        self.write_at(offset, &[])
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.write_at(len, &[])
    }

    fn name(&self) -> &str {
        &self.name
    }
}
