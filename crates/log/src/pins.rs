//! Who holds the log back: positions below which somebody still wants to read.
//!
//! I1. A pin that was granted at an LSN finds every record from there on. That ends when the pin moves on, when it is
//!     dropped, or when the log has grown beyond it by more than the pin's own bound. Then it holds nothing back any
//!     more, and its reader is told [`LogError::Recycled`]. A pin of the newest part of the log holds back the bytes
//!     that its bound allows, wherever it was granted.
//! I2. Whoever gives something up says so before it looks at the pins, and a pin is published before it looks at what
//!     is given up (`giving_up.rs`). So either the pin is seen, or the pin sees that its LSN is gone.
//! I3. Each process knows its own pins, and says in the region which LSN is the lowest that they hold
//!     (`handle_table.rs`). It says so again whenever it pins, moves a pin, gives log up, or asks. Between such calls
//!     it may hold back more than the bounds of its pins allow: see [`Log::refresh`].

use ledgerstone_region::ByNumber;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_page::Lsn;

use crate::error::LogError;
use crate::giving_up::GivingUp;
use crate::log::Log;

/// The pins of a log, by the order in which they were granted.
#[derive(Default)]
pub(crate) struct Pins {
    next: u64,
    held: ByNumber<u64, Held>,
}

struct Held {
    pinned: Pinned,
    /// Of the newest part: it follows the log's end.
    follows_end: bool,
}

impl Held {
    /// The first LSN that it keeps while the log ends at `tail`, if it is in force.
    fn lsn(&self, tail: u64) -> Option<u64> {
        let Pinned { lsn, bytes_max, .. } = self.pinned;
        let is_near = tail.saturating_sub(lsn.0) <= bytes_max;
        if self.follows_end { Some(lsn.0.max(tail.saturating_sub(bytes_max))) } else { is_near.then_some(lsn.0) }
    }
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
    /// The lowest LSN that they hold while the log ends at `tail`.
    fn low(&self, tail: u64) -> Option<u64> {
        self.held.values().filter_map(|held| held.lsn(tail)).min()
    }

    fn hold(&mut self, pinned: Pinned, follows_end: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        self.held.insert(id, Held { pinned, follows_end });
        id
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
        let id = pins.hold(Pinned { name: name.to_string(), lsn, bytes_max }, false);
        self.publish_pins(&pins);
        let oldest = Lsn(self.giving_up().begins(lsn.0)); // I2
        if lsn < oldest {
            pins.held.remove(id);
            self.publish_pins(&pins);
            return Err(LogError::Recycled { lsn, oldest });
        }
        Ok(LogPin { log: Arc::clone(self), id })
    }

    /// Keeps what there is of the records from `lsn` on, but at most `bytes_max` bytes behind `lsn`.
    pub fn pin_rest(self: &Arc<Log>, name: &str, lsn: Lsn, bytes_max: u64) -> LogPin {
        let mut pins = self.pins.lock();
        let id = pins.hold(Pinned { name: name.to_string(), lsn, bytes_max }, false);
        self.publish_pins(&pins);
        self.giving_up().begins(lsn.0); // I2: what is being looked at stays.
        LogPin { log: Arc::clone(self), id }
    }

    /// Keeps the newest `bytes_max` bytes of the log, as far as they are there now: for a keeper that cannot say yet
    /// what it needs.
    pub fn pin_newest(self: &Arc<Log>, name: &str, bytes_max: u64) -> LogPin {
        let mut pins = self.pins.lock();
        let lsn = Lsn(self.state.oldest.load(SeqCst));
        let id = pins.hold(Pinned { name: name.to_string(), lsn, bytes_max }, true);
        self.publish_pins(&pins);
        self.giving_up().begins(lsn.0); // I2, as above.
        LogPin { log: Arc::clone(self), id }
    }

    /// The pins that hold the log back, the oldest position first. Of another process, there is one for all of its
    /// pins.
    pub fn pinned(&self) -> Vec<Pinned> {
        let tail = self.tail().0;
        let of = |held: &Held| Pinned { lsn: held.lsn(tail).map_or(held.pinned.lsn, Lsn), ..held.pinned.clone() };
        let mut pins: Vec<Pinned> = {
            let own = self.pins.lock();
            self.publish_pins(&own);
            own.held.values().map(of).collect()
        };
        pins.extend(self.handles.of_others().map(|(process, low)| Pinned {
            name: format!("process {process}"),
            lsn: Lsn(low),
            bytes_max: u64::MAX,
        }));
        pins.sort_by_key(|pin| pin.lsn);
        pins
    }

    /// What a process should do now and then that gives no log up itself. It says to the others what its pins hold now:
    /// a pin with a bound holds less as the log grows. And it closes files that another process has given up. Costs two
    /// mutexes, and a look at each pin.
    pub fn refresh(&self) {
        self.refresh_pins();
        let state = &*self.state;
        self.segments.close_below(state.oldest.load(SeqCst), state.durable.load(SeqCst));
    }

    pub(crate) fn refresh_pins(&self) {
        self.publish_pins(&self.pins.lock());
    }

    /// I3.
    fn publish_pins(&self, pins: &Pins) {
        let low = pins.low(self.state.tail.load(SeqCst));
        self.handles.publish(low);
    }

    /// The lowest LSN that anybody pins, and `limit` at most.
    pub(crate) fn lowest_pinned(&self, limit: u64) -> u64 {
        self.handles.low().min(limit)
    }

    pub(crate) fn giving_up(&self) -> GivingUp<'_> {
        GivingUp { oldest: &self.state.oldest, state: &self.state.giving_up }
    }
}

impl LogPin {
    /// The first LSN that it keeps.
    pub fn lsn(&self) -> Lsn {
        self.log.pins.lock().held.get(self.id).map_or(Lsn(0), |held| held.pinned.lsn)
    }

    /// Gives up what lies below `lsn`. Never goes back.
    pub fn advance(&self, lsn: Lsn) {
        let mut pins = self.log.pins.lock();
        if let Some(held) = pins.held.get_mut(self.id) {
            held.pinned.lsn = held.pinned.lsn.max(lsn);
            self.log.publish_pins(&pins);
        }
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        if self.log.fork.is_inherited() {
            return; // The thread that held the mutex may not be here.
        }
        let mut pins = self.log.pins.lock();
        pins.held.remove(self.id);
        self.log.publish_pins(&pins);
    }
}
