//! Whether this process is the one that made something, or was forked from it.
//!
//! A fork copies all memory and only one thread, and shares the files. What parent and child believe of the files parts
//! at once: only one of them may go on. The kernel wipes a page of the child's that was marked for it, so asking costs
//! one load.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::RegionError;

const PAGE_BYTES: usize = 4096;
const OURS: u32 = 1;
/// Ours or a child's: the kernel wipes nothing.
const UNSURE: u32 = 2;

/// Tells the process that made it from its children.
pub struct ForkMark {
    /// A page of its own, mapped while this lives: `OURS` in the process that made it, 0 in its children; `UNSURE` in
    /// all where the kernel wipes nothing (before Linux 4.14).
    page: NonNull<AtomicU32>,
    /// The process that made it.
    process: u32,
}

// SAFETY: the page holds one atomic and is unmapped by the last owner only.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// [`RegionError::MapRefused`].
    pub fn new() -> Result<ForkMark, RegionError> {
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory of anybody.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let refused = || RegionError::MapRefused {
            bytes: PAGE_BYTES as u64,
            errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        };
        if page == libc::MAP_FAILED {
            return Err(refused());
        }
        // SAFETY: the advice is for the whole page that was mapped just now, and changes nothing in this process.
        let is_wiped = unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } == 0;
        let page = NonNull::new(page.cast::<AtomicU32>()).ok_or_else(refused)?;
        let mark = ForkMark { page, process: std::process::id() };
        mark.word().store(if is_wiped { OURS } else { UNSURE }, Relaxed);
        Ok(mark)
    }

    /// True in a child of the process that made this: nothing that belongs to it may be touched. So it is in a
    /// simulated process that has died, whose destructors run when all is over.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        #[cfg(feature = "deaths")]
        if crate::sync::deaths::has_died() {
            return true;
        }
        self.is_of_a_parent()
    }

    /// True in a child of the process that made this.
    #[inline]
    pub(crate) fn is_of_a_parent(&self) -> bool {
        // Relaxed: a process never sees it change.
        let word = self.word().load(Relaxed);
        word != OURS && self.is_other(word)
    }

    #[cold]
    #[inline(never)]
    fn is_other(&self, word: u32) -> bool {
        word != UNSURE || self.process != std::process::id()
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: a mapped page, zeroed or written by `new`, aligned, and mapped while `self` lives.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and nobody borrows from it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}
