//! Memory that transactions share: offsets, words, latches, slots, and the one door to time and waiting.
//!
//! A [`Region`] is one mapping. Its values are [`Shared`]: atomics only, found by name, and reached through
//! [`Handle`]s that are private to a process. Page bytes are [`Words`]. A [`Latch`] says which thread may change them.
//!
//! The unsafe code of this crate relies on these invariants:
//!
//! R1. Memory of a region is zeroed before it is given out. It is given out once, and never moves.
//! R2. A region stays mapped while a [`Region`] or a [`Handle`] of it exists.
//! R3. A handle points at whole, aligned values of its type, which lie inside the mapping, apart from all others. Who
//!     finds them by name checks that, and that their layout is the type's (`directory.rs`).
//! R4. Every type in a region is [`Shared`]: `repr(C)`, valid for any bits, without `Drop`, and made of atomics. So a
//!     shared reference to it is all that any code gets or needs.
//! R5. Because of R3 and R4, all accesses to one byte have the same size and are atomic. Page bytes are reached by
//!     whole relaxed `u64`s only.
//! R6. A simulated thread touches its scheduler only between entering and leaving it, on its own stack.
//! R7. What a mutex of `try_mutex.rs` holds is reached through its only guard (M1 there). What is in an [`OwnCell`] is
//!     reached by the thread that has its slot (O1 there).
//! R8. A [`CrcWords`] exists only where the processor has its instruction.
//! R9. A value in [`Common`] is changed by who has the only reference, and dropped with the last (C1, C2 there).
//! R10. Memory of a file is as long as its mapping, and only processes of the same user reach it, which is checked as
//!     it is opened. They store what they like: whatever bits that is, they are values (R4). Nobody cuts the file. The
//!     system would end all who then touch what is missing.
//!
//! This crate does not know pages, logs or transactions. It knows bytes, which thread may touch them, and which thread
//! waits.
#![warn(missing_docs)]

pub mod atomic;
mod common;
mod crc;
#[cfg(not(loom))]
mod directory;
mod error;
#[cfg(not(loom))]
mod fork;
mod held;
mod latch;
#[cfg(all(loom, test))]
mod loom_common;
#[cfg(all(loom, test))]
mod loom_held;
#[cfg(all(loom, test))]
mod loom_latch;
#[cfg(all(loom, test))]
mod loom_mutex;
#[cfg(all(loom, test))]
mod loom_own_cell;
#[cfg(not(loom))]
mod map;
#[cfg(not(any(loom, miri)))]
mod members;
#[cfg(not(loom))]
mod memory;
#[cfg(not(any(loom, miri)))]
mod memory_file;
mod mutex;
mod ordered;
#[cfg(any(not(loom), test))]
mod own_cell;
mod page_buf;
mod per_slot;
mod random;
#[cfg(not(loom))]
mod repair;
mod share;
mod shared;
mod slot;
#[cfg(all(not(loom), feature = "deaths"))]
mod stepping;
pub mod sync;
#[cfg(any(not(loom), test))]
mod try_mutex;
mod words;

pub use common::Common;
pub use crc::CrcWords;
pub use error::RegionError;
#[cfg(not(loom))]
pub use fork::ForkMark;
pub use held::{HeldLine, HeldShared};
pub use latch::{LATCH_TIMEOUT_NS, Latch, LatchTimeout, Version};
#[cfg(not(loom))]
pub use map::{Handle, Region, WeakHandle};
#[cfg(not(any(loom, miri)))]
pub use members::{MEMBERS_MAX, Members};
pub use mutex::{Mutex, RwLock};
#[cfg(not(loom))]
pub use mutex::{TimedGuard, TimedMutex, Waiter};
pub use ordered::{ByName, ByNumber, Entries, Keys, Name, NamedEntries, Number, NumberSet};
#[cfg(not(loom))]
pub use own_cell::OwnCell;
pub use page_buf::PageBuf;
pub use per_slot::PerSlot;
pub use random::Random;
#[cfg(not(loom))]
pub use repair::{AnotherDied, Dead, Repair};
pub use share::Share;
#[cfg(not(loom))]
pub use shared::{Shared, layout_of};
pub use slot::{SLOTS_MAX, SlotNo};
#[cfg(not(loom))]
pub use slot::{SlotTable, ThreadGuard, ThreadSlot, as_another_thread};
pub use words::{STRETCH_BYTES, Words, WordsMut, prefetch, prefetch_to_write, short_word};
