//! What is asked of files beyond reading and writing them.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::error::ProbeError;

fn last(call: &str) -> ProbeError {
    ProbeError::system(call, std::io::Error::last_os_error())
}

/// A piece of a file on the device of its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) bytes: u64,
    /// Allocated, and zero until it is written.
    pub(crate) is_unwritten: bool,
    /// `physical` cannot be used to find the bytes: not allocated yet, encoded, or packed with others.
    pub(crate) is_elsewhere: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const EXTENTS_A_CALL: usize = 128;

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; EXTENTS_A_CALL],
}

const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
const FIEMAP_FLAG_SYNC: u32 = 1;
const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELALLOC: u32 = 0x4;
const ENCODED: u32 = 0x8;
const UNWRITTEN: u32 = 0x800;
const PACKED: u32 = 0x100 | 0x200 | 0x400;

/// The extents of a file in order, neighbours not joined. Writes the file's dirty pages out first.
pub(crate) fn extents(file: &File) -> Result<Vec<Extent>, ProbeError> {
    let mut found: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let mut map = Fiemap {
            start,
            length: u64::MAX - start,
            flags: FIEMAP_FLAG_SYNC,
            mapped_extents: 0,
            extent_count: EXTENTS_A_CALL as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); EXTENTS_A_CALL],
        };
        // SAFETY: the kernel fills at most `extent_count` extents behind the header, which are there.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &mut map) } != 0 {
            return Err(last("FIEMAP"));
        }
        let count = (map.mapped_extents as usize).min(EXTENTS_A_CALL);
        let mut is_last = count == 0;
        for e in &map.extents[..count] {
            found.push(Extent {
                logical: e.logical,
                physical: e.physical,
                bytes: e.length,
                is_unwritten: e.flags & UNWRITTEN != 0,
                is_elsewhere: e.flags & (UNKNOWN | DELALLOC | ENCODED | PACKED) != 0,
            });
            is_last |= e.flags & LAST != 0;
            if e.logical.saturating_add(e.length) <= start && !is_last {
                return Err(ProbeError::Missing("the extents of this file system go in circles".into()));
            }
        }
        match found.last() {
            Some(e) if !is_last => start = e.logical.saturating_add(e.bytes),
            _ => return Ok(found),
        }
    }
}

/// Pages of a file in the kernel's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Cached {
    pub(crate) cached: u64,
    pub(crate) dirty: u64,
    pub(crate) under_write_back: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat(2)`, Linux 6.5.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of a range are cached and dirty.
pub(crate) fn cached(file: &File, offset: u64, bytes: u64) -> Result<Cached, ProbeError> {
    let range = [offset, bytes];
    let mut found = Cached::default();
    // SAFETY: the kernel reads two words and fills five.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &mut found, 0) };
    if result == 0 { Ok(found) } else { Err(last("cachestat")) }
}

/// Starts and awaits the writing of dirty pages of a range. Not durable: no metadata, no flush of the device's cache.
pub(crate) fn sync_range(file: &File, offset: u64, bytes: u64) -> Result<(), ProbeError> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is involved.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset as i64, bytes as i64, flags) };
    if result == 0 { Ok(()) } else { Err(last("sync_file_range")) }
}

/// Reads ahead into the cache.
pub(crate) fn read_ahead(file: &File, offset: u64, bytes: usize) -> Result<(), ProbeError> {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::readahead(file.as_raw_fd(), offset as i64, bytes) };
    if result == 0 { Ok(()) } else { Err(last("readahead")) }
}

/// What a file declares of direct and of atomic writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Alignment of memory for direct I/O; 0 if there is none.
    pub(crate) direct_memory_bytes: u32,
    /// Alignment of offsets and lengths for direct I/O; 0 if there is none.
    pub(crate) direct_offset_bytes: u32,
    /// Smallest write that is whole or not at all; 0 if none is declared.
    pub(crate) atomic_bytes_min: u32,
    /// Largest write that is whole or not at all; 0 if none is declared.
    pub(crate) atomic_bytes_max: u32,
    /// Whether the kernel and the file system answer the question about direct I/O.
    pub(crate) answers_direct: bool,
    /// Whether the kernel and the file system answer the question about atomic writes.
    pub(crate) answers_atomic: bool,
}

const STATX_DIOALIGN: u32 = 0x2000;
const STATX_WRITE_ATOMIC: u32 = 0x10000;

/// Asks by `statx`. The structure is read by offset: the C library's is older than its newest fields.
pub(crate) fn declared(file: &File) -> Declared {
    let mut bytes = [0_u8; 512];
    // SAFETY: the kernel fills 256 bytes; the path is empty and terminated.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN | STATX_WRITE_ATOMIC,
            bytes.as_mut_ptr(),
        )
    };
    let word =
        |offset: usize| u32::from_ne_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]]);
    let mask = word(0);
    let (direct, atomic) = (mask & STATX_DIOALIGN != 0, mask & STATX_WRITE_ATOMIC != 0);
    if result != 0 {
        return Declared::default();
    }
    Declared {
        direct_memory_bytes: if direct { word(152) } else { 0 },
        direct_offset_bytes: if direct { word(156) } else { 0 },
        atomic_bytes_min: if atomic { word(168) } else { 0 },
        atomic_bytes_max: if atomic { word(172) } else { 0 },
        answers_direct: direct,
        answers_atomic: atomic,
    }
}
