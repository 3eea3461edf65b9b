//! An entry of the page table: a page's latch and version, and where it is.
//!
//! ```text
//! page table, in the region, indexed by page id:
//! offset  size  field
//!      0     8  latch    47 bits of version, see `region::Latch`
//!      8     8  place    bits 0..32 frame number + 1, 0 none; bit 32 referenced;
//!                        bits 33..64 mark of the LSN that the page had when it was evicted, 0 unknown
//! ```
//!
//! C1. The frame number in `place` changes only while the entry is latched exclusively, and the version is raised then,
//!     by eviction too; versions are never reset. So a thread that reads version, place, bytes and finds the version
//!     unchanged has read the bytes of that page. A frame that went to another page in between raised ours.
//! C2. Any value that `place` ever had names a frame that exists: a reader of junk reads junk, never outside.
//! C3. A hit writes nothing but the referenced bit, and that only if it is not set.
//! C4. What a page had when it was evicted is what it has when it comes back. The mark tells a page whose write went to
//!     another place, or nowhere, and that is an older one with a good checksum.
//!
//! Why a reader cannot miss that its frame was taken: eviction latched our entry exclusively, and gave the frame away
//! by a release. The frame's next owner acquired it, and then passed [`fence_before_fill`]. If one of our relaxed loads
//! saw a word of that writer's, our `fence(Acquire)` before the check pairs with that fence, and our look at the
//! version sees the eviction. The fence in the latch that it fills under does not do: it may have got the frame after
//! the latch. loom finds that.
//!
//! Checked under loom: `loom_entry.rs`. This file does not know frames, nor why a page comes or goes.

use crate::frame_no::FrameNo;
use ledgerstone_region::Latch;
use ledgerstone_region::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
    fence,
};

#[cfg(not(loom))]
ledgerstone_region::shared! {
    /// A page's line in the page table.
    pub(crate) struct PageEntry {
        pub(crate) latch: Latch,
        place: AtomicU64,
    } size 16
}

#[cfg(loom)]
pub(crate) struct PageEntry {
    pub(crate) latch: Latch,
    place: AtomicU64,
}

const REFERENCED: u64 = 1 << 32;
const MARK_SHIFT: u32 = 33;

/// 31 bits of an LSN; zero for a page that nobody has changed. LSNs are multiples of 8; two that share a mark lie 16
/// GiB of log apart.
fn mark(page_lsn: u64) -> u32 {
    if page_lsn == 0 { 0 } else { ((page_lsn >> 3) as u32 & (u32::MAX >> 1)).max(1) }
}

/// To be passed by a thread that has got a frame, before it stores the first word in it.
#[inline]
pub(crate) fn fence_before_fill() {
    fence(Release); // Pairs with the fence(Acquire) in `Latch::is_still` of the frame's former page.
}

impl PageEntry {
    /// An entry of a page that is nowhere.
    #[cfg(loom)]
    pub(crate) fn new() -> PageEntry {
        PageEntry { latch: Latch::new(), place: AtomicU64::new(0) }
    }

    /// The frame that holds the page. Counts only under the latch, or if the version is unchanged afterwards (C1).
    /// Relaxed is enough: the latch's version orders it.
    #[inline]
    pub(crate) fn frame(&self) -> Option<FrameNo> {
        (self.place.load(Relaxed) as u32).checked_sub(1).map(FrameNo)
    }

    /// The same, noting that the page is used.
    #[inline]
    pub(crate) fn frame_used(&self) -> Option<FrameNo> {
        let place = self.place.load(Relaxed);
        if place & REFERENCED == 0 {
            // Losing a race with eviction leaves the bit on an entry with no frame, which is harmless.
            self.place.fetch_or(REFERENCED, Relaxed);
        }
        (place as u32).checked_sub(1).map(FrameNo)
    }

    /// Under the exclusive latch.
    pub(crate) fn set_frame(&self, frame: Option<FrameNo>) {
        self.place.store(frame.map_or(0, |frame| u64::from(frame.0 + 1) | REFERENCED), Release);
    }

    /// Under the exclusive latch: the page leaves its frame, with this LSN.
    pub(crate) fn set_evicted(&self, page_lsn: u64) {
        self.place.store(u64::from(mark(page_lsn)) << MARK_SHIFT, Release);
    }

    /// Whether a page with this LSN, 0 for one that was never written, can be the one that was evicted last (C4).
    /// Certain under the latch only.
    pub(crate) fn may_have_evicted(&self, page_lsn: u64) -> bool {
        let seen = self.place.load(Relaxed) >> MARK_SHIFT;
        seen == 0 || seen == u64::from(mark(page_lsn))
    }

    /// Whether the page was used since the mark was last taken.
    pub(crate) fn is_referenced(&self) -> bool {
        self.place.load(Relaxed) & REFERENCED != 0
    }

    /// Takes the mark, and says whether it was there.
    pub(crate) fn take_referenced(&self) -> bool {
        self.is_referenced() && self.place.fetch_and(!REFERENCED, Relaxed) & REFERENCED != 0
    }
}
