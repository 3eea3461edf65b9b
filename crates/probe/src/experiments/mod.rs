//! The experiments, one file each, in the order they run. What one needs of the system that no safe wrapper has is in
//! `sys`.

use crate::experiment::Experiment;

mod baton;
mod force;
mod lock;
mod schedule;

/// All of them. A new one is a file in this folder and a line here.
pub const ALL: &[&dyn Experiment] = &[&schedule::Schedule, &lock::Lock, &force::Force];
