//! Memory that two processes map, and nothing else: where this crate's unsafe code about mappings lives.
//!
//! A [`Mapping`] is one sealed memory file. It starts with bells, on which futexes sleep: each is an `AtomicU32` in a
//! line of 64 bytes. Words (`AtomicU64`) fill the rest. The numbered invariants are at the top of `lib.rs`.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::error::SystemError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;

/// What the kernel says of files that are in memory only, page by page.
const MEMORY_FILES: rustix::fs::FsWord = 0x0102_1994;
/// A cache line; also what one bell occupies.
pub(crate) const LINE_BYTES: usize = 64;

/// One memory file mapped shared; unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    bell_count: usize,
    is_writable: bool,
}

// SAFETY: everything reached through a shared reference is an atomic (P2); raw access has its own argument where it is.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes of a mapping with so many bells and words.
pub(crate) fn mapping_bytes(bell_count: usize, word_count: usize) -> usize {
    bell_count * LINE_BYTES + word_count * 8
}

impl Mapping {
    /// Makes a zeroed memory file of fixed size and maps it.
    ///
    /// The file is sealed against shrinking and growing, so that no process that is handed it can take the memory away
    /// from under the others (P1). It is sealed against more seals, so that no process can keep later ones from
    /// writing. Its memory is allocated now, so that a full machine says so here.
    pub(crate) fn create(name: &str, bell_count: usize, word_count: usize) -> Result<(OwnedFd, Mapping), SystemError> {
        Mapping::create_partly(name, bell_count, word_count, word_count)
    }

    /// As [`create`](Mapping::create), with memory for the first words only; the rest is allocated when it is wanted.
    pub(crate) fn create_partly(
        name: &str,
        bell_count: usize,
        word_count: usize,
        allocated_words: usize,
    ) -> Result<(OwnedFd, Mapping), SystemError> {
        Mapping::create_sealed(name, bell_count, word_count, allocated_words, SealFlags::empty())
    }

    /// As [`create`](Mapping::create), for words that no process can write that maps them later.
    pub(crate) fn create_ours(name: &str, word_count: usize) -> Result<(OwnedFd, Mapping), SystemError> {
        Mapping::create_sealed(name, 0, word_count, word_count, SealFlags::FUTURE_WRITE)
    }

    fn create_sealed(
        name: &str,
        bell_count: usize,
        word_count: usize,
        allocated_words: usize,
        seals: SealFlags,
    ) -> Result<(OwnedFd, Mapping), SystemError> {
        let bytes = mapping_bytes(bell_count, word_count);
        let system = |call: &'static str| move |error: rustix::io::Errno| SystemError::new(call, error);
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(system("ftruncate"))?;
        let allocated = mapping_bytes(bell_count, allocated_words) as u64;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, allocated).map_err(system("fallocate"))?;
        let mapping = Mapping::map(&fd, bytes, bell_count, true)?;
        let seals = seals | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(system("fcntl(F_ADD_SEALS)"))?;
        Ok((fd, mapping))
    }

    /// Allocates the memory of some words of the file that is mapped here.
    pub(crate) fn allocate(&self, fd: &OwnedFd, words: std::ops::Range<usize>) -> Result<(), SystemError> {
        let start = mapping_bytes(self.bell_count, words.start) as u64;
        rustix::fs::fallocate(fd, FallocateFlags::empty(), start, words.len() as u64 * 8)
            .map_err(|error| SystemError::new("fallocate", error))
    }

    /// Maps a memory file that another process made, after checking that it has the size it should have and can never
    /// lose it (P1).
    ///
    /// The seal is looked at first: before it the size could be changed between two looks. Only files whose pages come
    /// from ordinary memory are taken. Huge pages can be taken back from a sealed file too. Reading such a place kills
    /// the reader if the system has no other page for it.
    pub(crate) fn attach(
        fd: &OwnedFd,
        bell_count: usize,
        word_count: usize,
        is_writable: bool,
    ) -> Result<Mapping, SystemError> {
        let bytes = mapping_bytes(bell_count, word_count);
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|error| SystemError::new("fcntl(F_GET_SEALS)", error))?;
        let system = rustix::fs::fstatfs(fd).map_err(|error| SystemError::new("fstatfs", error))?;
        let stat = rustix::fs::fstat(fd).map_err(|error| SystemError::new("fstat", error))?;
        let is_good = seals.contains(SealFlags::SHRINK)
            && system.f_type == MEMORY_FILES
            && u64::try_from(stat.st_size) == Ok(bytes as u64);
        if !is_good {
            return Err(SystemError::new("attach", rustix::io::Errno::INVAL));
        }
        Mapping::map(fd, bytes, bell_count, is_writable)
    }

    fn map(fd: &OwnedFd, bytes: usize, bell_count: usize, is_writable: bool) -> Result<Mapping, SystemError> {
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd.as_fd(), 0) }
                .map_err(|error| SystemError::new("mmap", error))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(SystemError::new("mmap", rustix::io::Errno::NOMEM))?;
        Ok(Mapping { base, bytes, bell_count, is_writable })
    }

    /// The words behind the bells. Of a mapping that is only readable they may only be loaded.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let bells_bytes = self.bell_count * LINE_BYTES;
        // SAFETY: the mapping is `bytes` long and stays mapped while `self` lives (P1). Words start on a line, so they
        // are aligned. Nobody reaches them but by atomics of this size, or under the argument of P4.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().add(bells_bytes).cast(), (self.bytes - bells_bytes) / 8)
        }
    }

    /// Bell `no`.
    ///
    /// # Panics
    /// If there is none of that number, or the mapping is only readable: our own bug.
    #[inline]
    pub(crate) fn bell(&self, no: usize) -> &AtomicU32 {
        assert!(no < self.bell_count && self.is_writable, "bell {no} of {}", self.bell_count);
        // SAFETY: inside the mapping (asserted), aligned to a line, reached as `AtomicU32` only (P2).
        unsafe { &*self.base.as_ptr().add(no * LINE_BYTES).cast::<AtomicU32>() }
    }

    /// Address of `len` bytes from word `word_no` on, for callers that argue about access themselves (P4, P5).
    ///
    /// # Panics
    /// If they are not inside the mapping: our own bug.
    #[inline]
    pub(crate) fn bytes_at(&self, word_no: usize, len: usize) -> NonNull<u8> {
        let offset = self.bell_count * LINE_BYTES + word_no * 8;
        assert!(offset <= self.bytes && len <= self.bytes - offset, "{len} bytes at {offset} of {}", self.bytes);
        // SAFETY: the offset is inside the mapping (asserted).
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(flags: MemfdFlags, bytes: u64, seals: SealFlags) -> Option<OwnedFd> {
        let fd = rustix::fs::memfd_create("test", flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        rustix::fs::ftruncate(&fd, bytes).ok()?;
        rustix::fs::fcntl_add_seals(&fd, seals).ok()?;
        Some(fd)
    }

    fn refusal(fd: &OwnedFd, word_count: usize) -> Option<String> {
        Mapping::attach(fd, 0, word_count, false).err().map(|error| error.to_string())
    }

    #[test]
    fn only_memory_that_cannot_be_taken_away_is_mapped() {
        let good = file(MemfdFlags::empty(), 4096, SealFlags::SHRINK).unwrap();
        assert_eq!(refusal(&good, 512), None);
        assert!(refusal(&good, 513).is_some_and(|error| error.contains("attach")), "another size");
        let open = file(MemfdFlags::empty(), 4096, SealFlags::GROW).unwrap();
        assert!(refusal(&open, 512).is_some_and(|error| error.contains("attach")), "it can be made shorter");
        // Where the kernel has such files at all.
        if let Some(huge) = file(MemfdFlags::HUGETLB, 2 << 20, SealFlags::SHRINK) {
            assert!(refusal(&huge, 1 << 18).is_some_and(|error| error.contains("attach")), "huge pages");
        }
    }

    #[test]
    fn who_has_a_file_cannot_change_what_others_may_do_with_it() {
        let (fd, _memory) = Mapping::create("test", 1, 8).unwrap();
        for seal in [SealFlags::FUTURE_WRITE, SealFlags::WRITE, SealFlags::GROW] {
            assert!(rustix::fs::fcntl_add_seals(&fd, seal).is_err(), "{seal:?}");
        }
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(Mapping::attach(&fd, 1, 8, true).is_ok());
        let (fd, _memory) = Mapping::create_ours("test", 512).unwrap();
        assert!(Mapping::attach(&fd, 0, 512, true).is_err() && Mapping::attach(&fd, 0, 512, false).is_ok());
    }
}
