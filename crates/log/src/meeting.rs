//! Where threads meet that wait for durability: who leads, who sleeps, who is woken (G1 to G3 in `group_commit.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's. Knows nothing of what a
//! leader does, except that it raises `durable`.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::sync;

use crate::group_commit::FlushState;

/// The words of a meeting. A thread that goes to sleep and a thread that ends a flush each write one of them and then
/// read another. At least one must see the other's write. Hence the fences, which loom knows better than sequentially
/// consistent accesses.
pub(crate) struct Meeting<'m> {
    /// A [`FlushState`].
    pub flush: &'m AtomicU64,
    /// The flush under way covers records that begin below; `u64::MAX` while it, or the next one, takes what comes.
    pub flushing_to: &'m AtomicU64,
    /// Records that begin below are durable.
    pub durable: &'m AtomicU64,
    /// Not 0: no flush will succeed any more.
    pub failed: &'m AtomicU64,
    /// How many sleep in each bed.
    pub sleepers: &'m [AtomicU32; 2],
    /// What they sleep on.
    pub beds: &'m [AtomicU32; 2],
}

/// What the end of a flush found.
pub(crate) struct Ended {
    /// How many slept until this end.
    pub slept_count: u32,
    /// How many sleep until the next.
    pub next_count: u32,
}

impl Meeting<'_> {
    /// Waits until `durable` is above `lsn`. When nobody leads it calls `try_lead`, which begins a flush, leads and
    /// ends it, or returns `None` if somebody else was quicker.
    pub fn wait<E>(
        &self,
        lsn: u64,
        mut try_lead: impl FnMut(FlushState) -> Option<Result<(), E>>,
        failed: impl Fn() -> E,
    ) -> Result<(), E> {
        loop {
            if self.durable.load(SeqCst) > lsn {
                return Ok(());
            }
            if self.failed.load(SeqCst) != 0 {
                return Err(failed());
            }
            let seen = FlushState(self.flush.load(SeqCst));
            if !seen.is_leading() {
                if let Some(led) = try_lead(seen)
                    && led.is_err()
                {
                    return led;
                }
                continue;
            }
            let is_covered = self.flushing_to.load(SeqCst) > lsn;
            let bed = seen.bed(is_covered);
            let word = self.beds[bed].load(SeqCst);
            self.sleepers[bed].fetch_add(1, SeqCst);
            fence(SeqCst); // Pairs with the one in `wake_bed`.
            // Again, now that we are counted: if the flush is still under way its end will see us, and raise the word.
            if self.flush.load(SeqCst) == seen.0
                && (self.flushing_to.load(SeqCst) > lsn) == is_covered
                && self.failed.load(SeqCst) == 0
            {
                sync::futex_wait(&self.beds[bed], word, None);
            }
            self.sleepers[bed].fetch_sub(1, SeqCst);
        }
    }

    /// Begins the flush after `seen`; `None` if somebody else was quicker (G1).
    pub fn begin(&self, seen: FlushState) -> Option<FlushState> {
        let leading = seen.begun();
        self.flush.compare_exchange(seen.0, leading.0, SeqCst, Relaxed).ok().map(|_| leading)
    }

    /// Ends the flush: lets the next one begin, and wakes those that are done and one that leads on.
    pub fn end(&self, leading: FlushState) -> Ended {
        self.flushing_to.store(u64::MAX, SeqCst);
        self.flush.store(leading.ended().0, SeqCst);
        let (done, next) = (leading.bed(true), leading.bed(false));
        // The next leader first: the device is idle until it runs.
        let next_count = self.wake_bed(next, 1);
        let slept_count = self.wake_bed(done, u32::MAX);
        Ended { slept_count, next_count }
    }

    /// Wakes everybody, after a failure.
    pub fn wake_all(&self) {
        self.wake_bed(0, u32::MAX);
        self.wake_bed(1, u32::MAX);
    }

    /// Wakes `count` of those that sleep in a bed; says how many slept there.
    fn wake_bed(&self, bed: usize, count: u32) -> u32 {
        let word = &self.beds[bed];
        word.fetch_add(1, SeqCst);
        fence(SeqCst); // Pairs with the one in `wait`.
        let sleepers = self.sleepers[bed].load(SeqCst);
        if sleepers > 0 {
            sync::futex_wake(word, count);
        }
        sleepers
    }
}
