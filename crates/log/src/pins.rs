//! Who holds the log back: positions below which somebody still wants to read.
//!
//! I1. A pin that was granted at an LSN finds every record from there on, until it moves on, is dropped, or the log has
//!     grown more than the pin's own bound beyond it. Then it holds nothing back any more, and its reader is told
//!     [`LogError::Recycled`].
//! I2. Granting and giving up meet in one mutex: either the pin is seen, or the pin sees that its LSN is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_page::Lsn;

use crate::error::LogError;
use crate::log::Log;

/// The pins of a log, by the order in which they were granted.
#[derive(Default)]
pub(crate) struct Pins {
    next: u64,
    held: BTreeMap<u64, Pinned>,
}

/// One pin, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The name of its holder.
    pub name: String,
    /// Records from here on are kept.
    pub lsn: Lsn,
    /// It holds at most this many bytes of the log back. `u64::MAX` means any number.
    pub bytes_max: u64,
}

impl Pins {
    /// What may be given up of what lies below `limit`, while the log ends at `tail`.
    pub fn low(&self, limit: u64, tail: u64) -> u64 {
        let in_force = |pin: &&Pinned| tail.saturating_sub(pin.lsn.0) <= pin.bytes_max;
        self.held.values().filter(in_force).map(|pin| pin.lsn.0).fold(limit, u64::min)
    }
}

/// Keeps the log from a position on while it lives.
pub struct LogPin {
    log: Arc<Log>,
    id: u64,
}

impl Log {
    /// Keeps the records from `lsn` on, but at most `bytes_max` bytes of them (I1). `name` is for people.
    ///
    /// # Errors
    /// [`LogError::Recycled`]: the records are already gone.
    pub fn pin(self: &Arc<Log>, name: &str, lsn: Lsn, bytes_max: u64) -> Result<LogPin, LogError> {
        let mut pins = self.pins.lock();
        let oldest = Lsn(self.state.oldest.load(SeqCst));
        if lsn < oldest {
            return Err(LogError::Recycled { lsn, oldest });
        }
        let id = pins.next;
        pins.next += 1;
        pins.held.insert(id, Pinned { name: name.to_string(), lsn, bytes_max });
        Ok(LogPin { log: Arc::clone(self), id })
    }

    /// The pins that hold the log back, the oldest position first.
    pub fn pinned(&self) -> Vec<Pinned> {
        let mut pins: Vec<Pinned> = self.pins.lock().held.values().cloned().collect();
        pins.sort_by_key(|pin| pin.lsn);
        pins
    }
}

impl LogPin {
    /// The first LSN that it keeps.
    pub fn lsn(&self) -> Lsn {
        self.log.pins.lock().held.get(&self.id).map_or(Lsn(0), |pin| pin.lsn)
    }

    /// Gives up what lies below `lsn`. Never goes back.
    pub fn advance(&self, lsn: Lsn) {
        if let Some(pin) = self.log.pins.lock().held.get_mut(&self.id) {
            pin.lsn = pin.lsn.max(lsn);
        }
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        if self.log.fork.is_inherited() {
            return; // Whoever held the mutex may not be here.
        }
        self.log.pins.lock().held.remove(&self.id);
    }
}
