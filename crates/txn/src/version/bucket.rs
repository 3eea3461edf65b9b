//! Head of some keys' chains: a latch of a few instructions, with a version by which readers need not take it.
//!
//! ```text
//! offset  size  field
//!      0     8  latch   bit 0: held; bits 63..1: version, raised by every holder that changed something
//!      8     8  open    the newest entry of an open writer; 0 none
//!     16     8  kept    position of the newest entry of a commit; 0 none
//!     24     8  room to half a cache line
//! ```
//! B1. The protocol is that of `region::Latch` (L3 there). The holder passes a release fence after taking it, and ends
//!     with a release store of the next version. A reader passes an acquire fence before it looks at the version again.
//! B2. No thread waits, latches or calls anything while it holds one, so that a thread that finds it held need not be
//!     woken: it looks again. This saves a read-modify-write each time, and the owner's number.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

use ledgerstone_region::{shared, sync};

shared! {
    /// See the file's beginning.
    pub(crate) struct Bucket {
        latch: AtomicU64,
        pub(super) open: AtomicU64,
        pub(super) kept: AtomicU64,
        spare: AtomicU64,
    } size 32
}

const HELD: u64 = 1;

/// A bucket that is held. To be given back by one of its two ends.
#[must_use]
pub(super) struct Latched<'b> {
    latch: &'b AtomicU64,
    version: u64,
}

impl Bucket {
    /// The version to read under; none while it is held.
    #[inline]
    pub(super) fn optimistic(&self) -> Option<u64> {
        let word = self.latch.load(Acquire); // Pairs with the Release in `unlatch`.
        (word & HELD == 0).then_some(word)
    }

    /// Whether what was read since is whole and true.
    #[inline]
    pub(super) fn is_still(&self, version: u64) -> bool {
        fence(Acquire); // Pairs with the fence(Release) in `latch`.
        self.latch.load(Relaxed) == version
    }

    /// Whether it certainly holds nothing of an open writer, nor of commits from a position on.
    #[inline]
    pub(super) fn is_empty_from(&self, low: u64) -> bool {
        self.optimistic().is_some_and(|version| {
            self.open.load(Relaxed) == 0 && self.kept.load(Relaxed) < low.max(1) && self.is_still(version)
        })
    }

    #[inline]
    pub(super) fn latch(&self) -> Latched<'_> {
        let version = self.latch.load(Relaxed);
        // Acquire pairs with the Release in `unlatch`.
        if version & HELD == 0 && self.latch.compare_exchange(version, version | HELD, Acquire, Relaxed).is_ok() {
            fence(Release); // B1
            return Latched { latch: &self.latch, version };
        }
        self.latch_contended()
    }

    #[cold]
    fn latch_contended(&self) -> Latched<'_> {
        let mut round = 0;
        loop {
            let version = self.latch.load(Relaxed);
            if version & HELD == 0 && self.latch.compare_exchange(version, version | HELD, Acquire, Relaxed).is_ok() {
                fence(Release); // B1
                return Latched { latch: &self.latch, version };
            }
            if sync::spin(round) {
                round += 1;
            } else {
                sync::sleep_ns(1_000); // Its holder has lost the processor.
            }
        }
    }
}

impl Latched<'_> {
    /// Something has changed.
    #[inline]
    pub(super) fn unlatch(self) {
        self.latch.store(self.version + 2, Release); // Pairs with the Acquire of the next holder or reader.
    }

    /// Nothing has.
    #[inline]
    pub(super) fn unlatch_unchanged(self) {
        self.latch.store(self.version, Release);
    }
}
