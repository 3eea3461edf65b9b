//! What processes that share the log tell each other: what they pin, and what their tasks wait for.
//!
//! Each handle of a log that has ever had something to tell has an entry, which names its process. The lowest LSN that
//! it pins is what its pins held when it last looked: more than they hold now, perhaps, and never less. The repair
//! clears the entries of the dead. A process's number is no other's before: whoever takes an entry has a thread slot,
//! and so the process is repaired after.

use std::sync::OnceLock;

use ledgerstone_region::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64};
use ledgerstone_region::{Handle, SlotTable, shared, sync};
use std::sync::Arc;

/// Handles of a log that can have an entry. There are fewer processes.
pub(crate) const HANDLES_MAX: u64 = 256;

shared! {
    /// What one handle tells.
    pub(crate) struct HandleWords {
        /// Its process's number + 1; 0: it is free.
        owner: AtomicU64,
        /// The lowest LSN that is pinned, + 1; 0: none is.
        low: AtomicU64,
        /// The lowest LSN that its tasks wait for, + 1; 0: none waits.
        awaited: AtomicU64,
        /// Raised to wake its notifier (`notifier.rs`).
        bell: AtomicU32,
        zero: AtomicU32,
    } size 32
}

/// The table, as one handle has it.
pub(crate) struct HandleTable {
    all: Handle<[HandleWords]>,
    slots: Arc<SlotTable>,
    mine: OnceLock<usize>,
}

impl HandleTable {
    pub fn new(all: Handle<[HandleWords]>, slots: Arc<SlotTable>) -> HandleTable {
        HandleTable { all, slots, mine: OnceLock::new() }
    }

    /// Says which LSN is the lowest that this handle's pins hold. One thread at a time.
    pub fn publish(&self, low: Option<u64>) {
        self.tell(low, |entry| &entry.low); // U1 in `giving_up.rs`.
    }

    /// Says which LSN is the lowest that this handle's tasks wait for. One thread at a time.
    pub fn publish_awaited(&self, low: Option<u64>) {
        self.tell(low, |entry| &entry.awaited); // A2 in `notifier.rs`.
    }

    fn tell(&self, lsn: Option<u64>, place: fn(&HandleWords) -> &AtomicU64) {
        let word = lsn.map_or(0, |lsn| lsn + 1);
        let taken = || (word != 0).then(|| self.take_entry()).flatten();
        let Some(no) = self.mine.get().copied().or_else(taken) else { return };
        let place = place(&self.all[no]);
        if place.load(Relaxed) != word {
            place.store(word, SeqCst);
        }
    }

    fn take_entry(&self) -> Option<usize> {
        let _ = self.slots.try_current(); // If all slots are taken, one of them is this process's.
        let process = self.slots.process();
        let is_taken =
            |entry: &HandleWords| entry.owner.compare_exchange(0, u64::from(process) + 1, AcqRel, Relaxed).is_ok();
        let no = self.all.iter().position(is_taken)?;
        let mine = *self.mine.get_or_init(|| no);
        if mine != no {
            self.clear(no); // Another thread of this handle was quicker.
        }
        Some(mine)
    }

    /// Rings the bells of other handles whose tasks wait for less than `durable`.
    pub fn ring_below(&self, durable: u64) {
        let mine = self.mine.get().copied();
        for (no, entry) in self.all.iter().enumerate().filter(|(no, _)| Some(*no) != mine) {
            let awaited = entry.awaited.load(SeqCst);
            if awaited != 0 && awaited <= durable {
                self.ring(no);
            }
        }
    }

    /// The handle's own bell, if it has an entry.
    pub fn bell(&self) -> Option<&AtomicU32> {
        self.mine.get().map(|no| &self.all[*no].bell)
    }

    /// Rings it.
    pub fn ring_own(&self) {
        if let Some(no) = self.mine.get() {
            self.ring(*no);
        }
    }

    fn ring(&self, no: usize) {
        self.all[no].bell.fetch_add(1, SeqCst);
        sync::futex_wake(&self.all[no].bell, u32::MAX);
    }

    /// The lowest LSN that anybody pins; `u64::MAX` if nobody pins any.
    pub fn low(&self) -> u64 {
        self.lows().map(|(_, low)| low).min().unwrap_or(u64::MAX)
    }

    /// The lowest LSNs of the others, with the numbers of their processes.
    pub fn of_others(&self) -> impl Iterator<Item = (u32, u64)> {
        let mine = self.mine.get().copied();
        self.lows().filter(move |(no, _)| Some(*no) != mine).filter_map(|(no, low)| Some((self.owner(no)?, low)))
    }

    fn owner(&self, no: usize) -> Option<u32> {
        self.all[no].owner.load(SeqCst).checked_sub(1).map(|owner| owner as u32)
    }

    fn lows(&self) -> impl Iterator<Item = (usize, u64)> {
        let low = |(no, entry): (usize, &HandleWords)| Some((no, entry.low.load(SeqCst).checked_sub(1)?));
        self.all.iter().enumerate().filter_map(low)
    }

    /// Gives the entry back: this handle pins nothing any more.
    pub fn leave(&self) {
        if let Some(no) = self.mine.get() {
            self.clear(*no);
        }
    }

    /// Clears the entries of processes that have died.
    pub fn clear_of(&self, has_died: impl Fn(u32) -> bool) {
        for no in 0..self.all.len() {
            if self.owner(no).is_some_and(&has_died) {
                self.clear(no);
            }
        }
    }

    fn clear(&self, no: usize) {
        self.all[no].low.store(0, SeqCst);
        self.all[no].awaited.store(0, SeqCst);
        self.all[no].owner.store(0, SeqCst);
    }
}
