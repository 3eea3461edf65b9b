//! Which tasks to wake when which LSN is durable: one waker for each waiting task, however often it asks.

use ledgerstone_region::ByNumber;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// The place of a waker for one LSN ([`Log::on_durable`](crate::Log::on_durable)). It is valid for that LSN only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WakerNo(u64);

/// Wakers by LSN and place. A waker is its owner's code, also when it is dropped: none is dropped in here.
#[derive(Default)]
pub(crate) struct Wakers {
    waiting: ByNumber<(u64, u64), Waker>,
    given_count: u64,
}

impl Wakers {
    /// Puts a waker into its place, a new one if it has none; returns the one that was there.
    pub fn put(&mut self, lsn: u64, place: &mut Option<WakerNo>, waker: Waker) -> Option<Waker> {
        let given_count = &mut self.given_count;
        let no = *place.get_or_insert_with(|| {
            *given_count += 1;
            WakerNo(*given_count)
        });
        self.waiting.insert((lsn, no.0), waker)
    }

    pub fn remove(&mut self, lsn: u64, no: WakerNo) -> Option<Waker> {
        self.waiting.remove((lsn, no.0))
    }

    /// Takes those out that wait for less than `durable`.
    pub fn take_below(&mut self, durable: u64) -> impl Iterator<Item = Waker> + use<> {
        let mut taken = Vec::new();
        while self.low() < durable {
            taken.extend(self.waiting.pop_first().map(|(_, waker)| waker));
        }
        taken.into_iter()
    }

    /// The smallest LSN that somebody waits for; `u64::MAX` if nobody does.
    pub fn low(&self) -> u64 {
        self.waiting.first().map_or(u64::MAX, |((lsn, _), _)| lsn)
    }
}

/// Wakes. A waker is its owner's code: if it panics, that is its owner's to see, and the thread that flushed goes on.
pub(crate) fn wake(waker: Waker) {
    if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        std::mem::forget(panicked); // To drop it may panic again.
    }
}
