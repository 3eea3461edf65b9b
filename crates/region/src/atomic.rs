//! The atomics that algorithms are written over: the standard library's, or loom's when a model is checked.
//!
//! loom's atomics have another size than the real ones, so layouts and their assertions stand behind `not(loom)`.
//!
//! With the feature `deaths`, every store to one is a step at which a simulated process may die (`stepping`). Only
//! these are `Shared` then, so the compiler refuses a word of a region whose stores are no steps.

#[cfg(all(not(loom), not(feature = "deaths")))]
pub use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(not(loom), feature = "deaths"))]
pub use crate::stepping::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
#[cfg(all(not(loom), feature = "deaths"))]
pub use std::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
