//! Mappings: the only place that maps memory. Of nobody else's memory, or of a file's that several processes map.
//!
//! Address space is reserved for more than is asked for, so that what is used of it begins where the largest alignment
//! comes out. A file is mapped over that part.

use std::ptr::NonNull;

use crate::RegionError;
#[cfg(not(miri))]
use crate::memory_file::MemoryFile;

/// Alignments up to this one are kept: that of a huge page.
pub(crate) const ALIGN_BYTES_MAX: u64 = 2 << 20;

/// What the system gives and takes at once.
#[cfg(not(miri))]
const PAGE_BYTES: u64 = 4096;

/// Where the memory came from, to give it back there.
#[cfg(not(miri))]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    file: Option<MemoryFile>,
}

#[cfg(not(miri))]
impl Memory {
    /// Zeroed memory, and the aligned address in it where the region begins.
    pub fn anonymous(reserve_bytes: u64) -> Result<(Memory, NonNull<u8>), RegionError> {
        let refused = |errno| RegionError::MapRefused { bytes: reserve_bytes, errno };
        let bytes = reserve_bytes.checked_add(ALIGN_BYTES_MAX).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(refused(libc::ENOMEM))?;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory of anybody.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(refused(last_errno()));
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(refused(libc::ENOMEM))?;
        let skip = start.align_offset(ALIGN_BYTES_MAX as usize);
        // SAFETY: the mapping is ALIGN_BYTES_MAX longer than what is used of it.
        let base = unsafe { start.add(skip) };
        Ok((Memory { start, bytes, file: None }, base))
    }

    /// The first `reserve_bytes` of a file that is so long.
    pub fn of_file(file: MemoryFile, reserve_bytes: u64) -> Result<(Memory, NonNull<u8>), RegionError> {
        let (mut memory, base) = Memory::anonymous(reserve_bytes)?;
        let bytes = reserve_bytes.next_multiple_of(4096) as usize;
        // SAFETY: whole pages of our own mapping, which nobody uses yet: it is ALIGN_BYTES_MAX longer than the region.
        let start = unsafe {
            libc::mmap(
                base.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file.fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let refused = RegionError::MapRefused { bytes: reserve_bytes, errno: last_errno() };
            memory.release(base);
            return Err(refused);
        }
        crate::sync::add_view(base.addr().get(), bytes, file.no());
        memory.file = Some(file);
        Ok((memory, base))
    }

    /// The same memory at another address.
    #[cfg(feature = "deaths")]
    pub fn map_again(&self, reserve_bytes: u64) -> Result<(Memory, NonNull<u8>), RegionError> {
        match &self.file {
            Some(file) => Memory::of_file(file.clone(), reserve_bytes),
            None => Err(RegionError::MapRefused { bytes: reserve_bytes, errno: libc::EINVAL }),
        }
    }

    /// Takes memory from the system that is not to be missing at the first use.
    pub fn take(&self, offset: u64, bytes: u64) -> Result<(), RegionError> {
        self.file.as_ref().map_or(Ok(()), |file| file.take(offset, bytes))
    }

    /// Takes memory of the region that begins at `base`, which other processes may be taking at the same moment.
    ///
    /// If a signal interrupts one of them, the system gives back what it was taking: also what another has taken and
    /// nobody has used. So what is taken is used here, in a way that fails where a store would be the end.
    pub fn take_for_all(&self, base: NonNull<u8>, offset: u64, bytes: u64) -> Result<(), RegionError> {
        let Some(file) = &self.file else { return Ok(()) };
        file.take_among(offset, bytes)?;
        let skip = offset % PAGE_BYTES;
        let bytes_around = (bytes + skip).next_multiple_of(PAGE_BYTES);
        loop {
            // SAFETY: whole pages of our own mapping, which is whole pages long; what they hold does not change.
            let done = unsafe {
                let start = base.as_ptr().add((offset - skip) as usize);
                libc::madvise(start.cast(), bytes_around as usize, libc::MADV_POPULATE_WRITE)
            };
            return match if done == 0 { 0 } else { last_errno() } {
                0 => Ok(()),
                libc::EINTR | libc::EAGAIN => continue,
                libc::EINVAL => Ok(()), // An old system. It keeps what was taken, unless such a signal comes.
                _ => Err(file.no_memory(bytes)),
            };
        }
    }

    /// Whether others may have it, too.
    pub fn is_shared(&self) -> bool {
        self.file.is_some()
    }

    pub fn advise_huge(start: NonNull<u8>, bytes: usize) {
        advise(start, bytes, libc::MADV_HUGEPAGE);
    }

    /// Takes memory for whole pages now, which is otherwise taken at their first use.
    pub fn populate(start: NonNull<u8>, bytes: usize) {
        advise(start, bytes, libc::MADV_POPULATE_WRITE);
    }

    pub fn release(&self, base: NonNull<u8>) {
        if self.file.is_some() {
            crate::sync::remove_view(base.addr().get());
        }
        // SAFETY: this is what was mapped; nobody reaches it any more (R2).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// For the whole pages among these bytes of a mapping that the caller keeps.
#[cfg(not(miri))]
fn advise(start: NonNull<u8>, bytes: usize, advice: libc::c_int) {
    let skip = start.align_offset(4096);
    let bytes = bytes.saturating_sub(skip) / 4096 * 4096;
    if bytes > 0 {
        // SAFETY: whole pages of our own mapping; the two advices that come here do not change what they hold.
        unsafe { libc::madvise(start.as_ptr().add(skip).cast(), bytes, advice) };
    }
}

#[cfg(not(miri))]
pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Under Miri the region is heap memory, which Miri can watch.
#[cfg(miri)]
pub(crate) struct Memory {
    layout: std::alloc::Layout,
}

#[cfg(miri)]
impl Memory {
    pub fn anonymous(reserve_bytes: u64) -> Result<(Memory, NonNull<u8>), RegionError> {
        let refused = RegionError::MapRefused { bytes: reserve_bytes, errno: libc::ENOMEM };
        let layout = std::alloc::Layout::from_size_align(reserve_bytes as usize, ALIGN_BYTES_MAX as usize)
            .map_err(|_| refused.clone())?;
        // SAFETY: the layout is not empty: a region has a header.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(refused)?;
        Ok((Memory { layout }, base))
    }

    pub fn take(&self, _offset: u64, _bytes: u64) -> Result<(), RegionError> {
        Ok(())
    }

    pub fn take_for_all(&self, _base: NonNull<u8>, _offset: u64, _bytes: u64) -> Result<(), RegionError> {
        Ok(())
    }

    pub fn is_shared(&self) -> bool {
        false
    }

    pub fn advise_huge(_start: NonNull<u8>, _bytes: usize) {}

    pub fn populate(_start: NonNull<u8>, _bytes: usize) {}

    pub fn release(&self, base: NonNull<u8>) {
        // SAFETY: allocated with this layout; nobody reaches it any more (R2).
        unsafe { std::alloc::dealloc(base.as_ptr(), self.layout) };
    }
}
