//! The lowest pins of all processes that have the log.
//!
//! Each handle of a log that has ever pinned something has an entry, which names its process. The lowest LSN there is
//! what its pins held when it last looked: more than they hold now, perhaps, and never less. The repair clears the
//! entries of the dead. A process's number is no other's before.

use std::sync::OnceLock;

use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use ledgerstone_region::{Handle, shared};

/// Handles of a log that can pin. There are fewer processes.
pub(crate) const HANDLES_MAX: u64 = 256;

shared! {
    /// What one handle pins.
    pub(crate) struct PinLow {
        /// Its process's number + 1; 0: it is free.
        owner: AtomicU64,
        /// The lowest LSN that is pinned, + 1; 0: none is.
        low: AtomicU64,
    } size 16
}

/// The table, as one handle has it.
pub(crate) struct PinTable {
    all: Handle<[PinLow]>,
    mine: OnceLock<usize>,
}

impl PinTable {
    pub fn new(all: Handle<[PinLow]>) -> PinTable {
        PinTable { all, mine: OnceLock::new() }
    }

    /// Says which LSN is the lowest that this handle's pins hold. One thread at a time.
    pub fn publish(&self, low: Option<u64>, process: u32) {
        let word = low.map_or(0, |low| low + 1);
        let Some(no) = self.mine.get().copied().or_else(|| (word != 0).then(|| self.take_entry(process)).flatten())
        else {
            return;
        };
        if self.all[no].low.load(Relaxed) != word {
            self.all[no].low.store(word, SeqCst); // U1 in `giving_up.rs`.
        }
    }

    fn take_entry(&self, process: u32) -> Option<usize> {
        let is_taken =
            |entry: &PinLow| entry.owner.compare_exchange(0, u64::from(process) + 1, AcqRel, Relaxed).is_ok();
        let no = self.all.iter().position(is_taken)?;
        Some(*self.mine.get_or_init(|| no))
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
        let low = |(no, entry): (usize, &PinLow)| Some((no, entry.low.load(SeqCst).checked_sub(1)?));
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
        self.all[no].owner.store(0, SeqCst);
    }
}
