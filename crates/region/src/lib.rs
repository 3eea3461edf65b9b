//! Memory that transactions share: offsets, words, latches, slots, and the one door to time and waiting.
//!
//! A [`Region`] is one mapping. What lives in it is [`Shared`]: atomics only, addressed by [`Offset`]s, reached through
//! [`Handle`]s that are private to a process. Page bytes are [`Words`]; a [`Latch`] says who may change them.
//!
//! The invariants that the unsafe code of this crate stands on:
//!
//! R1. Memory of a region is zeroed before it is handed out, is handed out once, and never moves.
//! R2. A region stays mapped while a [`Region`] or a [`Handle`] of it exists.
//! R3. A handle points at whole, aligned values of its type: offset, count and alignment are checked against the block
//!     that was allocated there, and the block's type is the handle's type.
//! R4. Every type in a region is [`Shared`]: `repr(C)`, valid for any bits, without `Drop`, and made of atomics, so that
//!     a shared reference to it is all that anybody ever gets or needs.
//! R5. Because of R3 and R4 no two threads reach the same byte by accesses of different size, and none by an access that
//!     is not atomic. Page bytes are reached by whole relaxed `u64`s only.
//! R6. A simulated thread touches its scheduler only between entering and leaving it, on its own stack.
//!
//! This crate does not know pages, logs or transactions; it knows bytes, who may touch them, and who waits.
#![warn(missing_docs)]

pub mod atomic;
mod error;
#[cfg(not(loom))]
mod fork;
mod latch;
#[cfg(all(loom, test))]
mod loom_latch;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod offset;
mod page_buf;
mod shared;
mod slot;
pub mod sync;
mod words;

pub use error::RegionError;
#[cfg(not(loom))]
pub use fork::ForkMark;
pub use latch::{LATCH_TIMEOUT_NS, Latch, LatchTimeout, Version};
#[cfg(not(loom))]
pub use map::{Handle, Region, WeakHandle};
#[cfg(not(loom))]
pub use offset::{Offset, Span};
pub use page_buf::PageBuf;
#[cfg(not(loom))]
pub use shared::Shared;
pub use slot::{SLOTS_MAX, SlotNo};
#[cfg(not(loom))]
pub use slot::{SlotTable, ThreadSlot};
pub use words::{Words, WordsMut, prefetch, prefetch_to_write};
