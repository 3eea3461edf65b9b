//! The housekeeper: checkpoints by log volume, and deferred frees, in one thread of its own; and a detector of deadlocks
//! in another, if the settings ask for one.
//!
//! It wakes on a nudge (a dropped table, a replaced large value, a close) and otherwise a few times a second to look how
//! much log there is. Page write-back and log flushing have threads of their own in `buffer` and `log`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use ledgerstone_region::{Handle, Region, RegionError, sync};

use crate::env::Inner;

/// How often the log's volume is looked at.
const PERIOD_NS: u64 = 50_000_000;

const STOP: u32 = 1;
const RECLAIM: u32 = 2;

/// The words by which the housekeeper is told what to do, and the detector of deadlocks to stop.
pub(crate) struct Bell {
    word: Handle<[AtomicU32]>,
}

impl Bell {
    pub(crate) fn create(region: &Region) -> Result<Bell, RegionError> {
        Ok(Bell { word: region.handle_slice(region.alloc::<AtomicU32>(2, 8)?)? })
    }

    fn ring(&self, bits: u32) {
        self.word[0].fetch_or(bits, Release);
        sync::futex_wake(&self.word[0], 1);
    }

    pub(crate) fn reclaim(&self) {
        self.ring(RECLAIM);
    }

    pub(crate) fn stop(&self) {
        self.ring(STOP);
        self.word[1].store(STOP, Release);
        sync::futex_wake(&self.word[1], 1);
    }

    /// Waits so long, or until [`Bell::stop`]: then true.
    fn is_stopped_within(&self, ns: u64) -> bool {
        sync::futex_wait(&self.word[1], 0, Some(ns));
        self.word[1].load(Acquire) == STOP
    }

    /// Waits for a ring or the period's end; returns what was asked and forgets all of it but `STOP`.
    fn wait(&self) -> u32 {
        let asked = self.word[0].load(Acquire);
        if asked == 0 {
            sync::futex_wait(&self.word[0], 0, Some(PERIOD_NS));
        }
        self.word[0].fetch_and(STOP, AcqRel)
    }
}

/// Looks for deadlocks every `period_ns` until the environment is closed or fails (LIBTP 4.1).
pub(crate) fn detect_deadlocks(env: &Arc<Inner>, period_ns: u64) {
    while !env.bell().is_stopped_within(period_ns) && !env.engine().is_failed() {
        env.engine().locks.detect();
    }
}

/// Runs until the bell says stop or the environment fails.
pub(crate) fn keep_house(env: &Arc<Inner>) {
    loop {
        let asked = env.bell().wait();
        if env.engine().is_failed() {
            // The log may have failed by itself: those who wait for locks learn of it here.
            env.engine().fail(&env.engine().why_failed());
            return;
        }
        if asked & STOP != 0 {
            return;
        }
        // What fails here fails the environment or is tried again at the next round: nobody waits for the result.
        if asked & RECLAIM != 0 || env.to_free().is_due() {
            let _ = env.reclaim();
        }
        env.archive_full_segments();
        if env.log_since_checkpoint() >= env.effective.checkpoint_log_bytes {
            let _ = env.checkpoint(false);
        }
    }
}
