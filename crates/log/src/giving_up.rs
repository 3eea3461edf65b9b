//! How granting a pin and giving up a segment meet (I2 in `pins.rs`).
//!
//! Over borrowed words, so that a model has them among loom's (`loom_giving_up.rs`).
//!
//! ```text
//! 0            nothing is under way
//! X | PENDING  somebody looks whether anybody has pinned what lies below X
//! X            nobody had, and what lies below X is given up
//! ```
//! U1. Whoever gives up says so before it looks at the pins, and whoever pins publishes the pin before it looks here.
//!     So one of them sees the other.
//! U2. A pin that finds a look under way takes it back by one exchange, and that look then gives up nothing. So a pin
//!     waits for nobody, whether who looks lives, is stopped, or has died.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};

const PENDING: u64 = 1;

/// The words. What is given up ends at multiples of eight.
#[derive(Clone, Copy)]
pub(crate) struct GivingUp<'g> {
    /// The oldest LSN that is kept.
    pub oldest: &'g AtomicU64,
    /// See the file's beginning.
    pub state: &'g AtomicU64,
}

impl GivingUp<'_> {
    /// For whoever has published a pin at `lsn`: where the log begins for it. Not above `lsn`: the pin holds.
    pub fn begins(self, lsn: u64) -> u64 {
        fence(SeqCst); // U1: pairs with the one in `give_up_below`.
        let mut seen = self.state.load(SeqCst);
        while seen & PENDING != 0 && seen > lsn {
            match self.state.compare_exchange(seen, 0, SeqCst, SeqCst) {
                Ok(_) => seen = 0, // U2
                Err(now) => seen = now,
            }
        }
        let given_up = if seen & PENDING == 0 { seen } else { 0 };
        self.oldest.load(SeqCst).max(given_up)
    }

    /// Gives up what lies below `to`, unless a pin is lower: `low` says which one is the lowest. One thread at a time.
    pub fn give_up_below(self, to: u64, low: impl Fn() -> u64) -> bool {
        if low() < to {
            return false;
        }
        self.state.store(to | PENDING, SeqCst);
        fence(SeqCst); // U1: pairs with the one in `begins`.
        let is_free = cfg!(feature = "planted-pins-unlooked") || low() >= to;
        if !is_free {
            self.state.store(0, SeqCst);
            return false;
        }
        let is_decided = self.state.compare_exchange(to | PENDING, to, SeqCst, Relaxed).is_ok();
        if is_decided {
            self.oldest.store(to, SeqCst); // Readers are refused before the bytes are gone.
        }
        is_decided
    }
}
