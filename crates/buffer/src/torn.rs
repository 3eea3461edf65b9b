//! The double-write area: a whole copy of every page that a power cut may be tearing, and their repair.
//!
//! ```text
//! offset              size            field
//!      0                 8  magic     "LSTDWRIT"
//!      8                 2  version   1
//!     10                 2  zero
//!     12                 4  page_bytes
//!     16                 4  lane_count
//!     20                 4  lane_pages
//!     24                 4  checksum  CRC32C of bytes 0..24
//!     28              rest  zero, up to 32768
//!  32768  lane_count * lane_pages * page_bytes
//!                           lanes, of slots of one sealed page each: its header names page and LSN
//! ```
//!
//! D1. A slot is written only while its lane is held, and the lane is given back only after the data file's sync (W2). So as
//!     long as a home page may be torn by a write of ours, the copy that was being written is whole and durable in a slot, and
//!     no other slot holds a younger one.
//! D2. Slots are never cleared: whole copies of pages long at home stay, and older copies of the same page.
//! D3. Repair changes a home page only if it is neither whole nor all zeros. A whole one, even an older one, and one that was
//!     never written are left to redo, which has their changes: they were dirty at the last checkpoint or became so later.
//! D4. What is torn is made of 512-byte pieces of the copy and of what was there before, so its LSN field is the copy's or an
//!     older one. A page with a younger LSN than every copy was not torn by us: an old copy would hide lost changes,
//!     and the page is left as it is, to be found damaged.
//! D5. Repair may be interrupted and repeated: slots do not change by it.
//! D6. Before a home page is looked at, the data file is synced: a killed process may have left pages in the system's cache
//!     only. A page that is whole there would be left alone here, by redo and by the next checkpoint, and go with the power.
//!
//! The format for people is in `docs/format/double-write.md`. This file does not know the log, frames or latches.

use crate::cache::{Cache, TornPages};
use crate::error::BufferError;
use ledgerstone_disk::{AlignedBuf, DiskErrorKind, DiskFile};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, checksum, header};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"LSTDWRIT";
const VERSION: u16 = 1;
const VERSION_AT: usize = 8;
const PAGE_BYTES_AT: usize = 12;
const LANE_COUNT_AT: usize = PAGE_BYTES_AT + 4;
const LANE_PAGES_AT: usize = LANE_COUNT_AT + 4;
const CHECKSUM_AT: usize = LANE_PAGES_AT + 4;
/// What is written of the header.
const HEADER_BYTES: usize = 4096;
/// Where lanes begin: on a multiple of every page size.
const LANES_AT: u64 = 32768;
/// Batches that can be on their way at the same time.
const LANE_COUNT: u32 = 4;

/// The area of one cache.
pub(crate) struct DoubleWrite {
    file: Arc<dyn DiskFile>,
    torn_pages: TornPages,
    page_bytes: usize,
    lane_pages: u32,
    /// Buffers of a batch's size that nobody uses. The mutex is held for a push or a pop.
    buffers: Mutex<Vec<AlignedBuf>>,
}

impl DoubleWrite {
    /// Takes the area in `file`, which is made if the file has none. Slots of an area that is there keep what they hold until
    /// they are used.
    pub(crate) fn open(
        file: Arc<dyn DiskFile>,
        page_bytes: u32,
        lane_pages: u32,
        torn_pages: TornPages,
    ) -> Result<DoubleWrite, BufferError> {
        if torn_pages == TornPages::DoubleWrite {
            let area_bytes = u64::from(LANE_COUNT) * u64::from(lane_pages) * u64::from(page_bytes);
            let wanted = header_make(page_bytes, lane_pages);
            if header_read(&*file, page_bytes)?.as_deref() != Some(&wanted[..]) {
                if file.len()? < LANES_AT + area_bytes {
                    file.allocate(0, LANES_AT + area_bytes)?;
                }
                file.write_at(0, &wanted)?;
                file.sync()?;
            }
        }
        let page_bytes = page_bytes as usize;
        Ok(DoubleWrite { file, torn_pages, page_bytes, lane_pages, buffers: Mutex::new(Vec::new()) })
    }

    /// Pages of a batch, at most.
    pub(crate) fn batch_pages(&self) -> usize {
        self.lane_pages as usize
    }

    pub(crate) fn lane_count(&self) -> u32 {
        LANE_COUNT
    }

    /// Makes whole copies of sealed pages durable. The lane is the caller's (D1).
    pub(crate) fn shelter(&self, lane: u32, pages: &[u8]) -> Result<(), BufferError> {
        let lane_bytes = self.lane_pages as usize * self.page_bytes;
        assert!(lane < LANE_COUNT && pages.len() <= lane_bytes, "lane {lane} cannot take {} bytes", pages.len());
        if self.torn_pages == TornPages::DoubleWrite {
            self.file.write_durable_at(LANES_AT + u64::from(lane) * lane_bytes as u64, pages)?;
        }
        Ok(())
    }

    pub(crate) fn take_buffer(&self) -> AlignedBuf {
        let kept = self.buffers.lock().pop();
        kept.unwrap_or_else(|| AlignedBuf::new(self.lane_pages as usize * self.page_bytes))
    }

    pub(crate) fn give_buffer_back(&self, buffer: AlignedBuf) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < LANE_COUNT as usize {
            buffers.push(buffer);
        }
    }
}

impl Cache {
    /// Restores every torn page of the data file that the double-write area has a whole copy of, and returns their ids. What
    /// is read of the data file afterwards is durable. To be called at open, before the first page is read or written: redo
    /// needs whole pages.
    ///
    /// # Errors
    /// `Disk`; `DoubleWriteFormat` if the area is of a newer format or another page size.
    pub fn repair_torn(
        data: &dyn DiskFile,
        double_write: &dyn DiskFile,
        page_bytes: u32,
    ) -> Result<Vec<PageId>, BufferError> {
        if !planted::is_on(Bug::DataUnsettled) {
            data.settle()?; // D6
        }
        // A header that cannot be read says nothing against the slots, which vouch for themselves.
        header_read(double_write, page_bytes)?;
        let mut slot = AlignedBuf::new(page_bytes as usize);
        let mut home = AlignedBuf::new(page_bytes as usize);
        let mut restored = Vec::new();
        for (id, (lsn, at)) in repair_find_copies(double_write, &mut slot)? {
            let home_at = id.0 * u64::from(page_bytes);
            if !repair_is_torn(data, id, home_at, lsn, &mut home)? {
                continue;
            }
            double_write.read_at(at, &mut slot)?;
            if copy_identity(&slot) == Some((id, lsn)) {
                data.write_at(home_at, &slot)?;
                restored.push(id);
            }
        }
        if !restored.is_empty() {
            data.sync()?;
        }
        Ok(restored)
    }
}

/// Where the youngest whole copy of each page is.
fn repair_find_copies(file: &dyn DiskFile, slot: &mut AlignedBuf) -> Result<BTreeMap<PageId, (Lsn, u64)>, BufferError> {
    let slot_bytes = slot.len() as u64;
    let end = file.len()?;
    let mut copies = BTreeMap::new();
    let mut at = LANES_AT;
    while at + slot_bytes <= end {
        file.read_at(at, slot)?;
        if let Some((id, lsn)) = copy_identity(slot)
            && copies.get(&id).is_none_or(|&(other, _)| other < lsn)
        {
            copies.insert(id, (lsn, at));
        }
        at += slot_bytes;
    }
    Ok(copies)
}

/// Page and LSN of a slot, if it holds a whole page.
fn copy_identity(slot: &[u8]) -> Option<(PageId, Lsn)> {
    let id = PageId(u64_at(slot, header::PAGE_ID));
    // A page number whose place cannot be counted cannot come from us.
    id.0.checked_add(1)?.checked_mul(slot.len() as u64)?;
    checksum::verify(slot, id).ok()?;
    Some((id, Lsn(u64_at(slot, header::PAGE_LSN))))
}

/// Whether the home page is neither whole nor unwritten, and can have been torn by the write of the copy (D3, D4).
fn repair_is_torn(
    data: &dyn DiskFile,
    id: PageId,
    home_at: u64,
    copy_lsn: Lsn,
    home: &mut AlignedBuf,
) -> Result<bool, BufferError> {
    let file_bytes = data.len()?;
    if home_at >= file_bytes {
        return Ok(false);
    }
    // A file that ends inside the page: a write past the end was torn. What is missing is zeros.
    let there = (file_bytes - home_at).min(home.len() as u64) as usize;
    home.fill(0);
    match data.read_at(home_at, &mut home[..there]) {
        Ok(()) => {}
        Err(error) if error.kind == DiskErrorKind::ShortRead => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let is_zero = home.iter().all(|&byte| byte == 0);
    let is_whole = checksum::verify(home, id).is_ok();
    let is_younger = u64_at(home, header::PAGE_ID) == id.0 && Lsn(u64_at(home, header::PAGE_LSN)) > copy_lsn;
    Ok(!is_zero && !is_whole && !is_younger)
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
    if bytes[..8] != MAGIC || u32_at(&bytes, CHECKSUM_AT) != crc32c::crc32c(&bytes[..CHECKSUM_AT]) {
        return Ok(None);
    }
    let found_version = u16::from_le_bytes([bytes[VERSION_AT], bytes[VERSION_AT + 1]]);
    let refuse = |what, expected: u64, found: u64| {
        Err(BufferError::DoubleWriteFormat { file: file.name().to_owned(), what, expected, found })
    };
    if found_version > VERSION {
        return refuse("version", VERSION.into(), found_version.into());
    }
    let found_page_bytes = u32_at(&bytes, PAGE_BYTES_AT);
    if found_page_bytes != page_bytes {
        return refuse("page_bytes", page_bytes.into(), found_page_bytes.into());
    }
    Ok(Some(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
