//! The atomics that algorithms are written over: the standard library's, or loom's when a model is checked.
//!
//! loom's atomics have another size than the real ones, so layouts and their assertions stand behind `not(loom)`.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
