//! One bit for each owner: whether it sleeps for a lock, whether it holds others up.
//!
//! F1. A bit is set or cleared by one store, so there is no count that a death could leave wrong. A bit that an owner
//!     of a dead process has left is cleared by the repair, and says too much until then: a search more, or a longer
//!     one.

use ledgerstone_region::atomic::{AtomicU64, Ordering::SeqCst};
use ledgerstone_region::shared;

use crate::OwnerNo;
use crate::table::LockTable;

shared! {
    /// The bits of 64 owners.
    pub(crate) struct Flags {
        sleeps: AtomicU64,
        holds_up: AtomicU64,
    }
    size 16
}

/// What a bit says of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// It sleeps for a lock, or is about to.
    Sleeps,
    /// It holds others up ([`crate::LockManager::hold_up`]).
    HoldsUp,
}

impl Flags {
    fn word(&self, flag: Flag) -> &AtomicU64 {
        match flag {
            Flag::Sleeps => &self.sleeps,
            Flag::HoldsUp => &self.holds_up,
        }
    }
}

impl LockTable {
    /// Sets the owner's bit. Sequentially consistent: of two owners that set theirs and then look, one sees the other.
    pub(crate) fn raise(&self, flag: Flag, owner_no: OwnerNo) {
        self.flags[owner_no.0 as usize / 64].word(flag).fetch_or(1 << (owner_no.0 % 64), SeqCst);
    }

    /// Clears the owner's bit.
    pub(crate) fn lower(&self, flag: Flag, owner_no: OwnerNo) {
        self.flags[owner_no.0 as usize / 64].word(flag).fetch_and(!(1 << (owner_no.0 % 64)), SeqCst);
    }

    /// How many owners have theirs set.
    pub(crate) fn raised_count(&self, flag: Flag) -> u32 {
        self.flags.iter().map(|flags| flags.word(flag).load(SeqCst).count_ones()).sum()
    }

    /// Calls `visit` for each owner that has its bit set.
    pub(crate) fn for_each_raised(&self, flag: Flag, mut visit: impl FnMut(OwnerNo)) {
        for (i, flags) in self.flags.iter().enumerate() {
            let mut bits = flags.word(flag).load(SeqCst);
            while bits != 0 {
                visit(OwnerNo(i as u32 * 64 + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
    }
}
