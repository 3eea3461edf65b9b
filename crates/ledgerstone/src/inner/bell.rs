//! How the background threads are told what to do.

use std::sync::Arc;
use std::task::Wake;

use ledgerstone_region::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use ledgerstone_region::{Handle, Region, RegionError, sync};

/// How often the housekeeper wakes without a ring, while there is something to do.
pub(crate) const PERIOD_NS: u64 = 50_000_000;

const STOP: u32 = 1;
const RECLAIM: u32 = 2;
/// Nothing but a look.
const LOOK: u32 = 4;
/// Somebody was refused a page or room in the log.
const LACK: u32 = 8;

/// What the housekeeper was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub stop: bool,
    pub reclaim: bool,
    /// Somebody was refused, who may get it once something is freed.
    pub lacks: bool,
    /// It was woken, for whatever reason.
    pub is_rung: bool,
}

/// The words by which the housekeeper is told what to do, and the others to stop.
pub(crate) struct Bell {
    word: Handle<[AtomicU32]>,
}

impl Bell {
    pub(crate) fn place(region: &Region) -> Result<Bell, RegionError> {
        Ok(Bell { word: region.place("environment.bell", 2, 8)? })
    }

    fn ring(&self, bits: u32) {
        self.word[0].fetch_or(bits, Release);
        sync::futex_wake(&self.word[0], 1);
    }

    pub(crate) fn reclaim(&self) {
        self.ring(RECLAIM);
    }

    /// Somebody was refused a page, or room in the log.
    pub(crate) fn lack(&self) {
        self.ring(LACK);
    }

    /// There is something to look at.
    pub(crate) fn look(&self) {
        self.ring(LOOK);
    }

    pub(crate) fn stop(&self) {
        self.ring(STOP);
        self.word[1].store(STOP, Release);
        sync::futex_wake(&self.word[1], u32::MAX);
    }

    /// True once the housekeeper is to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.word[0].load(Acquire) & STOP != 0
    }

    /// Waits so long, or until [`Bell::stop`]: then true.
    pub(crate) fn is_stopped_within(&self, ns: u64) -> bool {
        sync::futex_wait(&self.word[1], 0, Some(ns));
        self.word[1].load(Acquire) == STOP
    }

    /// Waits for a ring, `ns` at most. Returns what was asked and forgets all of it but `STOP`.
    pub(crate) fn wait(&self, ns: u64) -> Asked {
        let asked = self.word[0].load(Acquire);
        if asked == 0 {
            sync::futex_wait(&self.word[0], 0, Some(ns));
        }
        let asked = self.word[0].fetch_and(STOP, AcqRel);
        let has = |bit| asked & bit != 0;
        Asked { stop: has(STOP), reclaim: has(RECLAIM), lacks: has(LACK), is_rung: asked != 0 }
    }
}

/// For the log: it has grown.
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}
