//! Page 0: whose data file this is.
//!
//! ```text
//! offset  size  field
//!      0    40  page header, layout 4
//!     40     8  magic "LSTNDATA"
//!     48     4  format version, 1
//!     52     4  page_bytes
//!     56    16  environment id, as in the control file
//!     72     8  created, nanoseconds since 1970
//!     80        zeros
//! ```

use std::cmp::Ordering;

use ledgerstone_disk::{AlignedBuf, DiskFile};
use ledgerstone_op::PageMut;
use ledgerstone_page::{
    Corrupt, HEADER_BYTES, Layout, LayoutId, Lsn, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PageId, checksum, header,
};
use ledgerstone_region::Words;

use crate::{FileHeader, SpaceError};

/// Layout of the file header.
pub const LAYOUT_FILE_HEADER: LayoutId = LayoutId(4);
const MAGIC: u64 = u64::from_le_bytes(*b"LSTNDATA");
const MAGIC_AT: usize = HEADER_BYTES;
const FORMAT_AT: usize = MAGIC_AT + 8;
const PAGE_BYTES_AT: usize = FORMAT_AT + 4;
const ENVIRONMENT_AT: usize = PAGE_BYTES_AT + 4;
const CREATED_AT: usize = ENVIRONMENT_AT + 16;
/// The format that this version writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 2;
const _: () = assert!(CREATED_AT + 8 == 80);

pub(crate) fn args(environment: [u8; 16], created_ns: u64) -> [u8; 24] {
    let mut args = [0; 24];
    args[..16].copy_from_slice(&environment);
    args[16..].copy_from_slice(&created_ns.to_le_bytes());
    args
}

pub(crate) fn write(page: &mut PageMut<'_>, args: &[u8]) -> Option<()> {
    let args: &[u8; 24] = args.try_into().ok()?;
    page.format(LAYOUT_FILE_HEADER, 0, PageId::NONE);
    page.put_u64(MAGIC_AT, MAGIC);
    page.put_u32(FORMAT_AT, FORMAT);
    page.put_u32(PAGE_BYTES_AT, u32::try_from(page.len_bytes()).ok()?);
    page.put(ENVIRONMENT_AT, args);
    Some(())
}

/// Refuses a file of another format.
fn check_format(data: &dyn DiskFile, found: u32) -> Result<(), SpaceError> {
    let (file, supported) = (data.name().to_owned(), FORMAT);
    match found.cmp(&FORMAT) {
        Ordering::Less => Err(SpaceError::OlderFormat { file, found, supported }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(SpaceError::NewerFormat { file, found, supported }),
    }
}

/// Refuses the file, if the page is a file header of another format.
pub(crate) fn refuse_other_format(data: &dyn DiskFile, page: Words<'_>) -> Result<(), SpaceError> {
    let is_ours = header::layout(page) == LAYOUT_FILE_HEADER && page.u64(MAGIC_AT) == MAGIC;
    if is_ours { check_format(data, page.u32(FORMAT_AT)) } else { Ok(()) }
}

pub(crate) fn read(data: &dyn DiskFile) -> Result<Option<FileHeader>, SpaceError> {
    let there = data.len().map_err(SpaceError::Disk)?.min(PAGE_BYTES_MAX as u64) as usize;
    let mut page = AlignedBuf::new(there / PAGE_BYTES_MIN * PAGE_BYTES_MIN);
    if page.is_empty() {
        return Ok(None);
    }
    data.read_at(0, &mut page).map_err(SpaceError::Disk)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| page[at + i]));
    let page_bytes = (word(FORMAT_AT) >> 32) as u32;
    let is_ours = word(MAGIC_AT) == MAGIC;
    let whole = page.get(..page_bytes as usize).filter(|page| is_ours && page.len() >= PAGE_BYTES_MIN);
    let Some(whole) = whole.filter(|page| checksum::verify(page, PageId(0)).is_ok()) else { return Ok(None) };
    check_format(data, word(FORMAT_AT) as u32)?;
    let mut environment = [0; 16];
    environment.copy_from_slice(&whole[ENVIRONMENT_AT..CREATED_AT]);
    Ok(Some(FileHeader { environment, page_bytes, lsn: Lsn(word(header::PAGE_LSN)) }))
}

pub(crate) fn check(page: Words<'_>, environment: Option<[u8; 16]>) -> Result<(), Corrupt> {
    let at = |what, offset: usize, expected: u64, found: u64| {
        if expected == found { Ok(()) } else { Err(Corrupt::new(what, offset as u64, expected, found).on(PageId(0))) }
    };
    header::check(page, LAYOUT_FILE_HEADER)?;
    at("file header: magic", MAGIC_AT, MAGIC, page.u64(MAGIC_AT))?;
    at("file header: format version", FORMAT_AT, u64::from(FORMAT), u64::from(page.u32(FORMAT_AT)))?;
    at("file header: page size", PAGE_BYTES_AT, page.len_bytes() as u64, u64::from(page.u32(PAGE_BYTES_AT)))?;
    if let Some(id) = environment {
        let half = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| id[from + i]));
        at("file header: environment id", ENVIRONMENT_AT, half(0), page.u64(ENVIRONMENT_AT))?;
        at("file header: environment id", ENVIRONMENT_AT + 8, half(8), page.u64(ENVIRONMENT_AT + 8))?;
    }
    Ok(())
}

/// Checks file headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileHeaderLayout;

impl Layout for FileHeaderLayout {
    fn id(&self) -> LayoutId {
        LAYOUT_FILE_HEADER
    }

    fn name(&self) -> &'static str {
        "file header"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        check(page, None)
    }

    fn print(&self, page: Words<'_>) -> String {
        format!("format {}, pages of {} bytes", page.u32(FORMAT_AT), page.u32(PAGE_BYTES_AT))
    }
}
