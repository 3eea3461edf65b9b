//! What tests of several crates share: an engine put together, counters to change, the frame of campaigns of deaths.
//!
//! Crates below the engine use this one without its feature `engine`, which is on by default. This crate is not
//! published.
#![forbid(unsafe_code)]

#[cfg(feature = "engine")]
pub mod counters;
pub mod deaths;
#[cfg(feature = "engine")]
mod engine;
mod loop_device;
pub mod other;
#[cfg(feature = "deaths")]
mod shared_engine;
mod small_memory;

#[cfg(feature = "engine")]
pub use engine::EngineKit;
pub use loop_device::LoopDevice;
#[cfg(feature = "deaths")]
pub use shared_engine::SharedEngine;
pub use small_memory::SmallMemory;
