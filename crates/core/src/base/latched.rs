//! Latches of the facade: held for long, across waits for the disk, and given back however their holder's work ends.

use ledgerstone_region::{Latch, LatchTimeout, SlotNo, sync};
use ledgerstone_txn::Patience;

use super::Base;
use crate::Error;

/// How often a waiter looks what the holder does, in nanoseconds.
const LOOK_NS: u64 = 20_000_000;

/// A latch that is held until this goes.
#[must_use = "the latch is given back when this is dropped"]
pub struct Latched<'l>(&'l Latch, SlotNo);

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.0.unlatch_exclusive_unless_lost(self.1); // After a panic, others may have mended.
    }
}

impl Base {
    /// Waits for a latch, however long its holder takes: it may well wait for a slow device itself.
    ///
    /// # Errors
    /// [`Error::Busy`] if this thread holds it already, so that the call comes from a callback of the holder's; or if
    /// the holder's callback keeps others waiting (U2 in `txn/users_code.rs`). Too many threads.
    pub fn latch<'l>(&self, latch: &'l Latch) -> Result<Latched<'l>, Error> {
        let thread = self.engine.thread()?;
        let mut patience = Patience::default();
        loop {
            if latch.owner() == Some(thread) {
                return Err(Error::Busy);
            }
            match latch.exclusive_within(thread, LOOK_NS) {
                Ok(()) => return Ok(Latched(latch, thread)),
                Err(LatchTimeout { owner: Some(owner), .. }) if patience.is_over(&self.engine, owner) => {
                    return Err(Error::Busy);
                }
                Err(_) => sync::yield_point("facade latch"),
            }
        }
    }

    /// The same if nobody holds it.
    ///
    /// # Errors
    /// Too many threads.
    pub fn try_latch<'l>(&self, latch: &'l Latch) -> Result<Option<Latched<'l>>, Error> {
        let thread = self.engine.thread()?;
        Ok(latch.try_exclusive(thread).then(|| Latched(latch, thread)))
    }
}
