//! Where threads meet that wait for durability: who leads, who sleeps, who is woken (G1 to G3 in `group_commit.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's. Knows nothing of what a
//! leader does, except that it raises `durable`.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::{SlotNo, sync};

use crate::group_commit::FlushState;
use crate::room::LOOK_NS;

const COUNT_BITS: u32 = 16;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

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
    /// How many sleep in each bed: the number of the flush that they wait for << 16 | how many. What is counted for an
    /// earlier flush says nothing: so whoever has died asleep is counted no longer than until that flush is over.
    pub sleepers: &'m [AtomicU64; 2],
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
    /// Waits until `durable` is above `lsn`, or `failed` says that it will not be. When nobody leads it calls
    /// `try_lead`, which begins a flush, leads and ends it, or returns `None` if somebody else was quicker.
    pub fn wait<E>(
        &self,
        lsn: u64,
        mut try_lead: impl FnMut(FlushState) -> Option<Result<(), E>>,
        failed: impl Fn() -> Option<E>,
    ) -> Result<(), E> {
        loop {
            if self.durable.load(SeqCst) > lsn {
                return Ok(());
            }
            if let Some(error) = failed() {
                return Err(error);
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
            let flush = seen.number() + u64::from(!is_covered);
            let word = self.beds[bed].load(SeqCst);
            self.count_sleeper(bed, flush);
            fence(SeqCst); // Pairs with the one in `wake_bed`.
            // Again, now that we are counted: if the flush is still under way its end will see us, and raise the word.
            if self.flush.load(SeqCst) == seen.0
                && (self.flushing_to.load(SeqCst) > lsn) == is_covered
                && failed().is_none()
            {
                sync::futex_wait(&self.beds[bed], word, Some(LOOK_NS));
            }
            self.discount_sleeper(bed, flush);
        }
    }

    fn count_sleeper(&self, bed: usize, flush: u64) {
        let one_more = |word: u64| match word >> COUNT_BITS {
            counted if counted == flush => Some(word + 1),
            counted if counted < flush => Some(flush << COUNT_BITS | 1),
            _ => None, // It is over, as the thread will see when it looks again.
        };
        let _ = self.sleepers[bed].fetch_update(SeqCst, SeqCst, one_more);
    }

    fn discount_sleeper(&self, bed: usize, flush: u64) {
        let one_less = |word: u64| (word >> COUNT_BITS == flush && word & COUNT != 0).then(|| word - 1);
        let _ = self.sleepers[bed].fetch_update(SeqCst, SeqCst, one_less);
    }

    /// How many sleep until a flush is over.
    pub fn sleeper_count(&self, flush: u64) -> u32 {
        let word = self.sleepers[FlushState::bed_of(flush)].load(SeqCst);
        if word >> COUNT_BITS == flush { (word & COUNT) as u32 } else { 0 }
    }

    /// Begins the flush after `seen`; `None` if somebody else was quicker (G1).
    pub fn begin(&self, seen: FlushState, me: SlotNo) -> Option<FlushState> {
        let leading = seen.begun(me);
        self.flush.compare_exchange(seen.0, leading.0, SeqCst, Relaxed).ok().map(|_| leading)
    }

    /// Takes the lead of a flush over from its leader, who has died. `None` if that one does not lead any more.
    pub fn take_over(&self, seen: FlushState, me: SlotNo) -> Option<FlushState> {
        let leading = seen.led_by(me);
        self.flush.compare_exchange(seen.0, leading.0, SeqCst, Relaxed).ok().map(|_| leading)
    }

    /// Ends the flush: lets the next one begin, and wakes those that are done and one that leads on.
    pub fn end(&self, leading: FlushState) -> Ended {
        self.flushing_to.store(u64::MAX, SeqCst);
        self.flush.store(leading.ended().0, SeqCst);
        let done = leading.number();
        // The next leader first: the device is idle until it runs.
        let next_count = self.wake_bed(done + 1, 1);
        let slept_count = self.wake_bed(done, u32::MAX);
        Ended { slept_count, next_count }
    }

    /// Wakes everybody: after a failure, or after the death of one who was going to wake somebody.
    pub fn wake_all(&self) {
        for word in self.beds {
            word.fetch_add(1, SeqCst);
            sync::futex_wake(word, u32::MAX);
        }
    }

    /// Wakes `count` of those that sleep until a flush is over; says how many slept.
    fn wake_bed(&self, flush: u64, count: u32) -> u32 {
        let word = &self.beds[FlushState::bed_of(flush)];
        word.fetch_add(1, SeqCst);
        fence(SeqCst); // Pairs with the one in `wait`.
        let sleepers = self.sleeper_count(flush);
        if sleepers > 0 {
            sync::futex_wake(word, count);
        }
        sleepers
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two have died while they slept until flush 1 was over: nobody takes them for sleepers of flush 3, or 5.
    #[test]
    fn who_sleeps_for_a_flush_is_not_counted_for_a_later_one() {
        let [flush, flushing_to, durable] = std::array::from_fn(|_| AtomicU64::new(0));
        let (sleepers, beds) = ([AtomicU64::new(0), AtomicU64::new(0)], [AtomicU32::new(0), AtomicU32::new(0)]);
        let (flush, flushing_to, durable) = (&flush, &flushing_to, &durable);
        let meeting = Meeting { flush, flushing_to, durable, sleepers: &sleepers, beds: &beds };
        let bed = FlushState::bed_of(1);
        (0..2).for_each(|_| meeting.count_sleeper(bed, 1));
        assert_eq!((meeting.sleeper_count(1), meeting.sleeper_count(3)), (2, 0));
        meeting.count_sleeper(bed, 3);
        assert_eq!((meeting.sleeper_count(1), meeting.sleeper_count(3)), (0, 1));
        meeting.discount_sleeper(bed, 1);
        meeting.count_sleeper(bed, 1);
        assert_eq!(meeting.sleeper_count(3), 1, "whoever is late changes nothing");
        meeting.discount_sleeper(bed, 3);
        assert_eq!((meeting.sleeper_count(3), meeting.sleeper_count(5)), (0, 0));
    }
}
