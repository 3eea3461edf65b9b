//! The state of a transaction's slot and whose it is, in one word: no slot is in use without an owner's name.
//!
//! ```text
//! bits 22..8   thread slot of the owner, + 1; 0: nobody's
//! bit  7       ORPHAN: the owner's process has died. The slot named here is that of the thread that found it
//! bits 6..0    the state
//! ```
//! N1. An owner stands for its process: a thread slot stays with the process that has had it (T3 in `slot.rs` of
//!     `region`). So a transaction may go on in another thread, when the one that began it has ended.

use ledgerstone_region::SlotNo;

/// Nobody's.
pub const FREE: u32 = 0;
/// Reading and writing.
pub const RUNNING: u32 = 1;
/// Undoing.
pub const ABORTING: u32 = 2;
/// Its commit record is being appended.
pub const COMMITTING: u32 = 3;
/// Waiting for a decision, since a prepare or a restart.
pub const PREPARED: u32 = 4;
/// No transaction's: held while the number of slots in use sinks below it (T2 in `table.rs`).
pub const LOWERING: u32 = 5;

/// See the head of the file.
#[cfg(not(loom))]
pub(crate) const ORPHAN: u32 = 1 << 7;

const STATE: u32 = (1 << 7) - 1;
const OWNER_SHIFT: u32 = 8;

/// The state in a slot's word: one of those above.
#[inline]
#[must_use]
pub fn of(word: u32) -> u32 {
    word & STATE
}

/// Whose a slot is, by its word.
#[inline]
#[must_use]
pub fn owner(word: u32) -> Option<SlotNo> {
    (word >> OWNER_SHIFT).checked_sub(1).map(|no| SlotNo(no as u16))
}

/// The word of a slot in this state that is `owner`'s.
#[inline]
pub(crate) fn word(state: u32, owner: SlotNo) -> u32 {
    (u32::from(owner.0) + 1) << OWNER_SHIFT | state
}

/// The word with another state.
#[cfg(not(loom))]
#[inline]
pub(crate) fn with(word: u32, state: u32) -> u32 {
    word & !STATE | state
}
