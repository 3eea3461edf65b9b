//! How the background threads are told what to do.
//!
//! B1. What the housekeeper is asked for lies in the region, for any process may ask, and one keeps house. Who is to
//!     stop is a matter of the process that has the threads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Wake;

use ledgerstone_region::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use ledgerstone_region::{Handle, Region, RegionError, sync};

/// How often the housekeeper wakes without a ring, while there is something to do.
pub(crate) const PERIOD_NS: u64 = 50_000_000;

const RECLAIM: u32 = 1;
/// Nothing but a look.
const LOOK: u32 = 2;
/// Somebody was refused a page or room in the log.
const LACK: u32 = 4;

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

/// What a thread waits on that only stops: not to stop, or to stop.
const GOES_ON: u32 = 0;
const STOPS: u32 = 1;

/// The word by which the housekeeper is told what to do, and how this process's threads are told to stop (B1).
pub(crate) struct Bell {
    word: Handle<[AtomicU32]>,
    stops: AtomicU32,
    /// Whether the housekeeper is to stop: asked when the word has woken it.
    is_stopping: AtomicBool,
}

impl Bell {
    pub(crate) fn place(region: &Region) -> Result<Bell, RegionError> {
        let word = region.place("environment.bell", 1, 8)?;
        Ok(Bell { word, stops: AtomicU32::new(GOES_ON), is_stopping: AtomicBool::new(false) })
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

    /// This process's threads stop.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Release);
        self.stops.store(STOPS, Release);
        sync::futex_wake(&self.stops, u32::MAX);
        self.look(); // The housekeeper finds out (B1).
    }

    /// They have stopped, and others may be started.
    pub(crate) fn start_again(&self) {
        self.is_stopping.store(false, Release);
        self.stops.store(GOES_ON, Release);
    }

    /// True once the housekeeper is to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Acquire)
    }

    /// Waits so long, or until [`Bell::stop`]: then true.
    pub(crate) fn is_stopped_within(&self, ns: u64) -> bool {
        sync::futex_wait(&self.stops, GOES_ON, Some(ns));
        self.stops.load(Acquire) == STOPS
    }

    /// Waits for a ring, `ns` at most. Returns what was asked, and forgets it.
    pub(crate) fn wait(&self, ns: u64) -> Asked {
        let asked = self.word[0].load(Acquire);
        if asked == 0 && !self.is_stopping() {
            sync::futex_wait(&self.word[0], 0, Some(ns));
        }
        let asked = self.word[0].fetch_and(0, AcqRel);
        let has = |bit| asked & bit != 0;
        Asked { stop: self.is_stopping(), reclaim: has(RECLAIM), lacks: has(LACK), is_rung: asked != 0 }
    }
}

/// For the log: it has grown.
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}
