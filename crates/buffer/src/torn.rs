//! The double-write area: a whole copy of every page that a power cut may be tearing, and their repair.
//!
//! ```text
//! offset              size            field
//!      0                 8  magic     "LSTDWRIT"
//!      8                 2  version   3
//!     10                 2  zero
//!     12                 4  page_bytes
//!     16                 4  lane_count
//!     20                 4  lane_pages
//!     24                 4  checksum  CRC32C of bytes 0..24
//!     28              rest  zero, up to 32768
//!  32768  lane_count * (1 + lane_pages) * page_bytes
//!                           lanes. The first slot of each ends with its mark, in the last 4096 bytes; the others hold one
//!                           sealed page each: its header names page and LSN
//!
//! mark, written with the pages behind it:
//!      0                 8  magic     "LSTDMARK"
//!      8                 8  the log was durable up to here when the lane was written
//!     16                 4  checksum  CRC32C of bytes 0..16
//!     20              rest  zero, up to 4096
//! ```
//!
//! D0. A page whose whole image is in the log goes home without a copy: redo formats it, and does not read what a
//!     power cut has left. The log has it if the first change that is not home yet formats the page (F7). No checkpoint
//!     passes that change before the write is done, so redo meets it. Page 0 always has a copy: it is read before redo.
//! D1. A slot is written only while its lane is held, and the lane is given back only after the data file's sync (W2).
//!     So while a write of ours may tear a home page, the copy that is being written is whole and durable in a slot, or
//!     in the log (D0). No other slot holds a younger one.
//! D2. Slots are never cleared: whole copies of pages long at home stay, and older copies of the same page.
//! D3. Repair changes a home page only if it is neither whole nor all zeros. A whole page, even an older one, and a
//!     page that was never written are left to redo. Redo has their changes, because they were dirty at the last
//!     checkpoint or became so later. A page is read once more before it is changed. A bit of its LSN that was read
//!     wrong, once, would make it look older than a copy of long ago, and that copy would replace it.
//! D4. What is torn is made of 512-byte pieces of the copy and of what was there before. So its LSN field is the copy's
//!     or an older one, and the page number its own. If nothing was there before, all its pieces are zeros or the
//!     copy's. A page with a younger LSN than every copy was not torn by us, and neither was one with another page's
//!     number. An old copy would hide lost changes, so the page is left as it is, to be found damaged. (A repair by
//!     `put_back` may be torn where another page stood. That page has to be repaired once more.)
//! D5. Repair may be interrupted and repeated: slots do not change by it.
//! D6. Before a home page is looked at, the data file is synced: a killed process may have left pages in the system's
//!     cache only. A page that is whole there would be left alone here, by redo and by the next checkpoint, and go with
//!     the power.
//! D7. From its making on, before any page is written, the file is never shorter than its header says: it is made long
//!     first. So one that is shorter, or missing, after a crash has lost copies that may be needed.
//! D8. No page at home has an LSN beyond the largest mark. Before a page goes home, a mark beyond its LSN is durable,
//!     and a mark is replaced only by a larger one. A mark lies in one 512-byte piece, so a power cut leaves the old
//!     one or the new one. So a log that ends before the largest mark has lost its end, whether that page is ever read
//!     again or not.
//! D9. A mark is believed at the beginning of a lane only. In a copy of a page the same bytes are a user's, and say
//!     nothing. Before lanes get another length, the largest mark is put into the first one, whose place does not
//!     depend on that.
//!
//! D10. A process that dies leaves its lanes to whoever repairs. They are freed after what it was writing home is whole
//!     there and durable (R3 in `repair.rs`).
//!
//! D11. Who joins a region uses the area as who made the region has opened it, with lanes of the same length. It writes
//!      no header: a lane may be in use.
//!
//! The format for people is in `docs/format/double-write.md`. This file does not know the log, frames or latches.

use crate::cache::Cache;
use crate::config::TornPages;
use crate::error::BufferError;
use ledgerstone_disk::{AlignedBuf, DiskErrorKind, DiskFile};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, checksum, header};
use ledgerstone_region::{ByNumber, Mutex};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

const MAGIC: [u8; 8] = *b"LSTDWRIT";
const VERSION: u16 = 3;
const VERSION_AT: usize = 8;
const PAGE_BYTES_AT: usize = 12;
const LANE_COUNT_AT: usize = PAGE_BYTES_AT + 4;
const LANE_PAGES_AT: usize = LANE_COUNT_AT + 4;
const CHECKSUM_AT: usize = LANE_PAGES_AT + 4;
/// What is written of the header.
const HEADER_BYTES: usize = 4096;
/// Where lanes begin: on a multiple of every page size.
const LANES_AT: u64 = 32768;
const MARK_MAGIC: [u8; 8] = *b"LSTDMARK";
const MARK_DURABLE_AT: usize = 8;
const MARK_CHECKSUM_AT: usize = MARK_DURABLE_AT + 8;
/// What is written of a lane before its pages: a mark, in the unit of direct writes.
pub(crate) const MARK_BYTES: usize = 4096;
/// No area is longer: four lanes of the largest batch, of the largest pages, fit easily.
const AREA_BYTES_MAX: u64 = 64 << 20;
/// A page that is torn is made of such pieces (D4).
const PIECE_BYTES: usize = 512;
/// Of the data file, read at once.
const RUN_BYTES: u64 = 256 << 10;
/// Batches that can be on their way at the same time.
const LANE_COUNT: u32 = 4;

/// The area of one cache.
pub(crate) struct DoubleWrite {
    file: Arc<dyn DiskFile>,
    torn_pages: TornPages,
    page_bytes: usize,
    lane_pages: u32,
    /// The largest mark that is known to be durable, or 0.
    marked: AtomicU64,
    /// Buffers of a batch's size that nobody uses. The mutex is held for a push or a pop.
    buffers: Mutex<Vec<AlignedBuf>>,
}

impl DoubleWrite {
    /// Where the area is.
    #[cfg(all(feature = "deaths", not(miri)))]
    pub(crate) fn file(&self) -> Arc<dyn DiskFile> {
        Arc::clone(&self.file)
    }

    /// Takes the area in `file`, which is made if the file has none. Slots of an area that is there keep what they hold
    /// until they are used.
    pub(crate) fn open(
        file: Arc<dyn DiskFile>,
        page_bytes: u32,
        lane_pages: u32,
        torn_pages: TornPages,
    ) -> Result<DoubleWrite, BufferError> {
        if torn_pages == TornPages::DoubleWrite {
            let needed = bytes_needed(VERSION, page_bytes, lane_pages);
            let wanted = header_make(page_bytes, lane_pages);
            let found = file.len()?;
            if found < needed {
                file.allocate(0, needed)?;
                file.sync()?; // D7
            }
            let there = header_read(&*file, page_bytes)?;
            if there.as_deref() != Some(&wanted[..]) {
                if found > LANES_AT {
                    keep_durable(&*file, there.as_deref(), page_bytes as usize)?;
                }
                file.write_at(0, &wanted)?;
                file.sync()?;
            }
        }
        Ok(DoubleWrite::over(file, page_bytes, lane_pages, torn_pages))
    }

    /// The area that another process has opened, which uses it (D11).
    pub(crate) fn join(
        file: Arc<dyn DiskFile>,
        page_bytes: u32,
        lane_pages: u32,
        torn_pages: TornPages,
    ) -> Result<DoubleWrite, BufferError> {
        if torn_pages == TornPages::DoubleWrite {
            let (found, expected) = (file.len()?, bytes_needed(VERSION, page_bytes, lane_pages));
            let name = file.name().to_owned();
            if found < expected {
                return Err(BufferError::DoubleWriteShort { file: name, expected, found });
            }
            let Some(there) = header_read(&*file, page_bytes)? else {
                return Err(BufferError::DoubleWriteMissing { file: name });
            };
            let found = u64::from(u32_at(&there, LANE_PAGES_AT));
            if there[..] != header_make(page_bytes, lane_pages)[..] {
                let (what, expected) = ("lane_pages", u64::from(lane_pages));
                return Err(BufferError::DoubleWriteFormat { file: name, what, expected, found });
            }
        }
        Ok(DoubleWrite::over(file, page_bytes, lane_pages, torn_pages))
    }

    fn over(file: Arc<dyn DiskFile>, page_bytes: u32, lane_pages: u32, torn_pages: TornPages) -> DoubleWrite {
        let (page_bytes, buffers) = (page_bytes as usize, Mutex::new(Vec::new()));
        DoubleWrite { file, torn_pages, page_bytes, lane_pages, marked: AtomicU64::new(0), buffers }
    }

    /// Pages of a batch, at most.
    pub(crate) fn batch_pages(&self) -> usize {
        self.lane_pages as usize
    }

    pub(crate) fn lane_count(&self) -> u32 {
        LANE_COUNT
    }

    /// Whether a mark beyond `lsn` is durable (D8).
    pub(crate) fn is_marked(&self, lsn: Lsn) -> bool {
        self.torn_pages == TornPages::DeviceAtomic || self.marked.load(Acquire) > lsn.0
    }

    /// Makes whole copies of sealed pages durable, which stand in `batch` behind room for the mark. There may be none.
    /// The log is `durable` up to there (D8). The lane is the caller's (D1). Says how many bytes were written.
    pub(crate) fn shelter(&self, lane: u32, durable: Lsn, batch: &mut [u8]) -> Result<u64, BufferError> {
        let lane_bytes = (1 + self.lane_pages as usize) * self.page_bytes;
        let skip = self.page_bytes - MARK_BYTES;
        assert!(lane < LANE_COUNT && skip + batch.len() <= lane_bytes, "lane {lane} cannot take {} bytes", batch.len());
        if self.torn_pages != TornPages::DoubleWrite {
            return Ok(0);
        }
        mark_put(&mut batch[..MARK_BYTES], durable);
        self.file.write_durable_at(LANES_AT + u64::from(lane) * lane_bytes as u64 + skip as u64, batch)?;
        self.marked.fetch_max(durable.0, Release);
        Ok(batch.len() as u64)
    }

    /// Puts the copies in a lane whose write has died where they belong, if what is there is torn and the page is one
    /// of that write's (R3 in `repair.rs`). Nobody else uses the lane or writes these pages.
    pub(crate) fn mend_home(
        &self,
        lane: u32,
        data: &dyn DiskFile,
        is_its: impl Fn(PageId) -> bool,
    ) -> Result<(), BufferError> {
        if self.torn_pages != TornPages::DoubleWrite {
            return Ok(());
        }
        let page_bytes = self.page_bytes;
        let lane_bytes = (1 + self.lane_pages as usize) * page_bytes;
        let mut area = AlignedBuf::new(lane_bytes);
        self.file.read_at(LANES_AT + u64::from(lane) * lane_bytes as u64, &mut area)?;
        let mut home = Home { data, bytes: data.len()?, page_bytes, start: 0, run: Vec::new() };
        for copy in area.chunks_exact(page_bytes).skip(1) {
            if let Some((id, lsn)) = copy_identity(copy).filter(|(id, _)| is_its(*id))
                && home.is_torn(id, id.0 * page_bytes as u64, (lsn, copy))?
            {
                data.write_at(id.0 * page_bytes as u64, copy)?;
            }
        }
        Ok(())
    }

    /// The youngest whole copy of a page in the area, which others may be writing, and its LSN.
    pub(crate) fn find_copy(&self, id: PageId) -> Result<Option<(Lsn, Vec<u8>)>, BufferError> {
        if self.torn_pages != TornPages::DoubleWrite {
            return Ok(None);
        }
        let mut area = AlignedBuf::new(self.file.len()?.min(AREA_BYTES_MAX) as usize);
        self.file.read_at(0, &mut area)?;
        let copies = repair_find_copies(&area, self.page_bytes);
        Ok(copies.get(id).map(|&(lsn, at)| (lsn, area[at..at + self.page_bytes].to_vec())))
    }

    /// Room for a mark and a batch of pages behind it.
    pub(crate) fn take_buffer(&self) -> AlignedBuf {
        let kept = self.buffers.lock().pop();
        kept.unwrap_or_else(|| AlignedBuf::new(MARK_BYTES + self.lane_pages as usize * self.page_bytes))
    }

    pub(crate) fn give_buffer_back(&self, buffer: AlignedBuf) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < LANE_COUNT as usize {
            buffers.push(buffer);
        }
    }
}

/// Makes an area if there is none. Makes durable what is there, whatever process wrote it (D7), except the file's name.
///
/// # Errors
/// `Disk`. `DoubleWriteFormat` if there is an area of a newer format or another page size.
pub fn make_double_write(file: Arc<dyn DiskFile>, page_bytes: u32) -> Result<(), BufferError> {
    let header = header_read(&*file, page_bytes)?;
    let lane_pages = header.map_or(1, |header| u32_at(&header, LANE_PAGES_AT));
    let area = DoubleWrite::open(file, page_bytes, lane_pages, TornPages::DoubleWrite)?;
    Ok(area.file.sync()?)
}

impl Cache {
    /// Restores every torn page of the data file of which the double-write area has a whole copy, and returns their
    /// ids. What is read of the data file afterwards is durable. To be called at open, before the first page is read or
    /// written, because redo needs whole pages.
    ///
    /// `log_end` is where the log ends. `may_be_missing` says that no page can be torn, and that the area may be lost,
    /// another's, or not made yet. Then only whole copies of pages that are damaged in the data file are believed. An
    /// area with a mark beyond `log_end` is another log's then, and is emptied.
    ///
    /// Reads the area in one go, and the pages of which it has copies in runs.
    ///
    /// # Errors
    /// `Disk`. `DoubleWriteFormat` if the area has a newer format or another page size. `DoubleWriteShort` unless the
    /// area may be missing (D7). `LogEndsEarly` (D8), with nothing written.
    pub fn repair_torn(
        data: &dyn DiskFile,
        double_write: &dyn DiskFile,
        page_bytes: u32,
        log_end: Lsn,
        may_be_missing: bool,
    ) -> Result<Vec<PageId>, BufferError> {
        if !planted::is_on(Bug::DataUnsettled) {
            data.settle()?; // D6
        }
        let found = double_write.len()?;
        let mut area = AlignedBuf::new(found.min(AREA_BYTES_MAX) as usize);
        double_write.read_at(0, &mut area)?;
        // A header that cannot be read says nothing against the slots, which vouch for themselves.
        let is_whole = header_check(&area, page_bytes, double_write.name())?;
        let (version, lane_pages) =
            if is_whole { (version(&area), u32_at(&area, LANE_PAGES_AT)) } else { (VERSION, 1) };
        let expected = bytes_needed(version, page_bytes, lane_pages);
        if found < expected && !may_be_missing {
            return Err(BufferError::DoubleWriteShort { file: double_write.name().to_owned(), expected, found });
        }
        let durable = find_durable(&area, is_whole.then_some((version, lane_pages)), page_bytes as usize);
        if durable > log_end {
            if !may_be_missing {
                return Err(BufferError::LogEndsEarly { file: double_write.name().to_owned(), durable, end: log_end });
            }
            // Another log's. After the next crash its marks would count, and its copies might look younger than ours.
            double_write.set_len(0)?;
            double_write.sync()?;
            return Ok(Vec::new());
        }
        let mut restored = Vec::new();
        let mut home = Home { data, bytes: data.len()?, page_bytes: page_bytes as usize, start: 0, run: Vec::new() };
        for (id, (lsn, at)) in repair_find_copies(&area, page_bytes as usize) {
            let home_at = id.0 * u64::from(page_bytes);
            let copy = &area[at..at + page_bytes as usize];
            if home.is_torn(id, home_at, (lsn, copy))? {
                data.write_at(home_at, copy)?;
                restored.push(id);
            }
        }
        if !restored.is_empty() {
            data.sync()?;
        }
        Ok(restored)
    }
}

/// How far the log was durable, by the largest mark (D9). `lanes`: version and pages of a lane, as a whole header says;
/// where none does, a lane may begin with any slot that holds no page.
fn find_durable(area: &[u8], lanes: Option<(u16, u32)>, page_bytes: usize) -> Lsn {
    let slots = area.get(LANES_AT as usize..).unwrap_or(&[]).chunks_exact(page_bytes);
    // A whole page has no mark, whatever its bytes say: it may be left from when lanes had another length.
    let mark_of = |slot: &[u8]| mark_read(&slot[page_bytes - MARK_BYTES..]).filter(|_| copy_identity(slot).is_none());
    let largest = match lanes {
        Some((..2, _)) => None,
        Some((_, lane_pages)) => {
            slots.step_by(1 + lane_pages as usize).take(LANE_COUNT as usize).filter_map(mark_of).max()
        }
        None => slots.filter_map(mark_of).max(),
    };
    largest.unwrap_or_default()
}

/// D9. Lanes are about to be of another length than `header` says.
fn keep_durable(file: &dyn DiskFile, header: Option<&[u8]>, page_bytes: usize) -> Result<(), BufferError> {
    let mut area = AlignedBuf::new(file.len()?.min(AREA_BYTES_MAX) as usize);
    file.read_at(0, &mut area)?;
    let lanes = header.map(|header| (version(header), u32_at(header, LANE_PAGES_AT)));
    let durable = find_durable(&area, lanes, page_bytes);
    if durable > Lsn(0) {
        let mut mark = AlignedBuf::new(MARK_BYTES);
        mark_put(&mut mark, durable);
        file.write_at(LANES_AT + (page_bytes - MARK_BYTES) as u64, &mark)?;
        file.sync()?;
    }
    Ok(())
}

/// Where the youngest whole copy of each page is.
fn repair_find_copies(area: &[u8], page_bytes: usize) -> ByNumber<PageId, (Lsn, usize)> {
    let mut copies = ByNumber::new();
    let slots = area.get(LANES_AT as usize..).unwrap_or(&[]).chunks_exact(page_bytes);
    for (no, slot) in slots.enumerate() {
        if let Some((id, lsn)) = copy_identity(slot)
            && copies.get(id).is_none_or(|&(other, _)| other < lsn)
        {
            copies.insert(id, (lsn, LANES_AT as usize + no * page_bytes));
        }
    }
    copies
}

/// Page and LSN of a slot, if it holds a whole page.
fn copy_identity(slot: &[u8]) -> Option<(PageId, Lsn)> {
    let id = PageId(u64_at(slot, header::PAGE_ID));
    // A page number whose place cannot be counted cannot come from us.
    id.0.checked_add(1)?.checked_mul(slot.len() as u64)?;
    checksum::verify(slot, id).ok()?;
    Some((id, Lsn(u64_at(slot, header::PAGE_LSN))))
}

/// The pages at home, read in runs: their copies come in the order of their ids.
struct Home<'a> {
    data: &'a dyn DiskFile,
    bytes: u64,
    page_bytes: usize,
    start: u64,
    run: Vec<u8>,
}

impl Home<'_> {
    /// Whether the home page is torn. It is read once more before that is believed (D3).
    fn is_torn(&mut self, id: PageId, home_at: u64, copy: (Lsn, &[u8])) -> Result<bool, BufferError> {
        if home_at >= self.bytes {
            return Ok(false);
        }
        let is_read = home_at >= self.start && home_at + self.page_bytes as u64 <= self.start + self.run.len() as u64;
        Ok((is_read || self.read(home_at, RUN_BYTES)?)
            && self.looks_torn(id, home_at, copy)
            && self.read(home_at, self.page_bytes as u64)?
            && self.looks_torn(id, home_at, copy))
    }

    /// Reads a run, or what there is of it. False: there is nothing.
    fn read(&mut self, home_at: u64, bytes_max: u64) -> Result<bool, BufferError> {
        // A file that ends inside the page: a write past the end was torn. What is missing is zeros.
        let there = (self.bytes - home_at).min(bytes_max) as usize;
        self.start = home_at;
        self.run.clear();
        self.run.resize(there.next_multiple_of(self.page_bytes), 0);
        match self.data.read_at(home_at, &mut self.run[..there]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind == DiskErrorKind::ShortRead => {
                self.run.clear();
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the home page is neither whole nor unwritten, and can have been torn by the write of the copy (D3, D4).
    fn looks_torn(&self, id: PageId, home_at: u64, (copy_lsn, copy): (Lsn, &[u8])) -> bool {
        let skip = (home_at - self.start) as usize;
        let home = &self.run[skip..skip + self.page_bytes];
        let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        let is_whole = checksum::verify(home, id).is_ok();
        let is_ours = match u64_at(home, header::PAGE_ID) == id.0 {
            true => Lsn(u64_at(home, header::PAGE_LSN)) <= copy_lsn,
            // Nothing was there before: it has what the write brought, and zeros.
            false => {
                home.chunks(PIECE_BYTES).zip(copy.chunks(PIECE_BYTES)).all(|(home, copy)| is_zero(home) || home == copy)
            }
        };
        !is_zero(home) && !is_whole && is_ours
    }
}

/// The length of an area.
fn bytes_needed(version: u16, page_bytes: u32, lane_pages: u32) -> u64 {
    let lane_slots = u64::from(lane_pages) + u64::from(version >= 2);
    LANES_AT + u64::from(LANE_COUNT) * lane_slots * u64::from(page_bytes)
}

fn mark_put(block: &mut [u8], durable: Lsn) {
    block[..8].copy_from_slice(&MARK_MAGIC);
    block[MARK_DURABLE_AT..MARK_CHECKSUM_AT].copy_from_slice(&durable.0.to_le_bytes());
    let checksum = crc32c::crc32c(&block[..MARK_CHECKSUM_AT]);
    block[MARK_CHECKSUM_AT..MARK_CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn mark_read(block: &[u8]) -> Option<Lsn> {
    let is_whole =
        block[..8] == MARK_MAGIC && u32_at(block, MARK_CHECKSUM_AT) == crc32c::crc32c(&block[..MARK_CHECKSUM_AT]);
    is_whole.then(|| Lsn(u64_at(block, MARK_DURABLE_AT)))
}

fn header_make(page_bytes: u32, lane_pages: u32) -> AlignedBuf {
    let mut bytes = AlignedBuf::new(HEADER_BYTES);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[VERSION_AT..VERSION_AT + 2].copy_from_slice(&VERSION.to_le_bytes());
    bytes[PAGE_BYTES_AT..LANE_COUNT_AT].copy_from_slice(&page_bytes.to_le_bytes());
    bytes[LANE_COUNT_AT..LANE_PAGES_AT].copy_from_slice(&LANE_COUNT.to_le_bytes());
    bytes[LANE_PAGES_AT..CHECKSUM_AT].copy_from_slice(&lane_pages.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The header block if there is a whole one.
fn header_read(file: &dyn DiskFile, page_bytes: u32) -> Result<Option<AlignedBuf>, BufferError> {
    if file.len()? < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = AlignedBuf::new(HEADER_BYTES);
    file.read_at(0, &mut bytes)?;
    Ok(header_check(&bytes, page_bytes, file.name())?.then_some(bytes))
}

/// Whether there is a whole header of ours.
fn header_check(bytes: &[u8], page_bytes: u32, file: &str) -> Result<bool, BufferError> {
    if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
        return Ok(false);
    }
    if u32_at(bytes, CHECKSUM_AT) != crc32c::crc32c(&bytes[..CHECKSUM_AT]) {
        return Ok(false);
    }
    let found_version = version(bytes);
    let refuse = |what, expected: u64, found: u64| {
        Err(BufferError::DoubleWriteFormat { file: file.to_owned(), what, expected, found })
    };
    if found_version > VERSION {
        return refuse("version", VERSION.into(), found_version.into());
    }
    let found_page_bytes = u32_at(bytes, PAGE_BYTES_AT);
    if found_page_bytes != page_bytes {
        return refuse("page_bytes", page_bytes.into(), found_page_bytes.into());
    }
    Ok(true)
}

fn version(header: &[u8]) -> u16 {
    u16::from_le_bytes([header[VERSION_AT], header[VERSION_AT + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
