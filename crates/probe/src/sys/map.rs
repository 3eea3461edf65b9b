//! Mappings of files and of shared memory. Other processes and the kernel may change the bytes at any time, so there
//! are not slices of them: only volatile reads and writes, and atomic words.
//!
//! M1. `start..start + bytes` is mapped, readable and writable, from `new` to `drop`; `start` is page-aligned.
//! M2. Every offset is checked against `bytes` before it is followed.
//!
//! A file that is cut off under a mapping ends the process by SIGBUS: experiments never shorten a mapped file.

use std::fs::File;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{Advice, MapFlags, MlockFlags, MsyncFlags, ProtFlags};

use crate::error::{On, ProbeError};

/// A shared mapping, of a file or of nothing.
#[derive(Debug)]
pub(crate) struct Map {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: all access is volatile or atomic and the mapping does not depend on a thread.
unsafe impl Send for Map {}
// SAFETY: concurrent access is like that of another process, which volatile and atomic accesses expect.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` of a file.
    pub(crate) fn file(file: &File, bytes: usize) -> Result<Map, ProbeError> {
        Map::file_with(file, bytes, MapFlags::empty())
    }

    /// Maps a file and has the kernel touch every page now.
    pub(crate) fn file_populated(file: &File, bytes: usize) -> Result<Map, ProbeError> {
        Map::file_with(file, bytes, MapFlags::POPULATE)
    }

    fn file_with(file: &File, bytes: usize, flags: MapFlags) -> Result<Map, ProbeError> {
        if bytes == 0 {
            return Err(ProbeError::Missing("an empty mapping".into()));
        }
        // SAFETY: a new mapping where the kernel likes; nothing of ours is there.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | flags,
                file,
                0,
            )
        };
        Ok(Map { start: start.on("mmap")?.cast(), bytes })
    }

    /// Zeroed memory that children share.
    pub(crate) fn anonymous(bytes: usize) -> Result<Map, ProbeError> {
        // SAFETY: as above.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes.max(4096),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        };
        Ok(Map { start: start.on("mmap")?.cast(), bytes: bytes.max(4096) })
    }

    /// Address of an offset, for calls that take one.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.bytes, "offset {offset} of a mapping of {} bytes", self.bytes);
        self.start.wrapping_add(offset)
    }

    /// Reads one byte in every `step`, from `from` to `to`: what the sum is does not matter, that it was read does.
    pub(crate) fn touch(&self, from: usize, to: usize, step: usize) -> u64 {
        let mut sum = 0;
        for offset in (from..to.min(self.bytes)).step_by(step.max(1)) {
            // SAFETY: M1, M2.
            sum += u64::from(unsafe { self.start.add(offset).read_volatile() });
        }
        sum
    }

    /// Reads every 64-bit word of a range.
    pub(crate) fn sum(&self, from: usize, bytes: usize) -> u64 {
        let to = (from + bytes).min(self.bytes);
        let mut sum = 0_u64;
        for offset in (from.next_multiple_of(8)..to.saturating_sub(7)).step_by(8) {
            // SAFETY: M1, M2; 8 divides the offset, and the start is page-aligned.
            sum = sum.wrapping_add(unsafe { self.start.add(offset).cast::<u64>().read_volatile() });
        }
        sum
    }

    /// Adds one to one byte in every `step`: the page is dirty from then on.
    pub(crate) fn dirty(&self, from: usize, to: usize, step: usize) {
        for offset in (from..to.min(self.bytes)).step_by(step.max(1)) {
            // SAFETY: M1, M2.
            unsafe {
                let at = self.start.add(offset);
                at.write_volatile(at.read_volatile().wrapping_add(1));
            }
        }
    }

    /// Copies a range out.
    pub(crate) fn read(&self, from: usize, buf: &mut [u8]) {
        assert!(from.checked_add(buf.len()).is_some_and(|end| end <= self.bytes));
        // SAFETY: M1 and the check; the memory of `buf` is another. Bytes that change meanwhile are any bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(from), buf.as_mut_ptr(), buf.len()) };
    }

    /// Copies into a range.
    pub(crate) fn write(&self, from: usize, buf: &[u8]) {
        assert!(from.checked_add(buf.len()).is_some_and(|end| end <= self.bytes));
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(buf.as_ptr(), self.start.add(from), buf.len()) };
    }

    /// A word that processes share.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: M1 and the check; aligned; any bits are a value, and access is atomic everywhere.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }
    }

    /// A wide word that processes share.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: as `word`.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// Tells the kernel how a range will be used. Advice that destroys bytes is not among those used.
    pub(crate) fn advise(&self, from: usize, bytes: usize, advice: Advice) -> Result<(), ProbeError> {
        let bytes = bytes.min(self.bytes.saturating_sub(from));
        // SAFETY: M1, M2. The mapping is of a file and shared, so that even advice to drop pages loses nothing.
        unsafe { rustix::mm::madvise(self.start.add(from).cast(), bytes, advice) }.on("madvise")
    }

    /// Writes dirty pages of a range out, and waits.
    pub(crate) fn sync(&self, from: usize, bytes: usize) -> Result<(), ProbeError> {
        let bytes = bytes.min(self.bytes.saturating_sub(from));
        // SAFETY: M1, M2; no byte changes.
        unsafe { rustix::mm::msync(self.start.add(from).cast(), bytes, MsyncFlags::SYNC) }.on("msync")
    }

    /// Keeps a range in memory.
    pub(crate) fn lock(&self, from: usize, bytes: usize) -> Result<(), ProbeError> {
        let bytes = bytes.min(self.bytes.saturating_sub(from));
        // SAFETY: M1, M2; no byte changes. Ends with the mapping.
        unsafe { rustix::mm::mlock_with(self.start.add(from).cast(), bytes, MlockFlags::empty()) }.on("mlock")
    }

    /// Whether each page of the mapping is in memory. For a file only its owner is told the truth.
    pub(crate) fn resident_pages(&self) -> Result<usize, ProbeError> {
        let mut pages = vec![0_u8; self.bytes.div_ceil(4096)];
        // SAFETY: the kernel writes one byte for each page into `pages`.
        let result = unsafe { libc::mincore(self.start.cast(), self.bytes, pages.as_mut_ptr()) };
        if result == 0 {
            Ok(pages.iter().filter(|p| **p & 1 == 1).count())
        } else {
            Err(ProbeError::system("mincore", std::io::Error::last_os_error()))
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: M1; borrows of words cannot outlive `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}
