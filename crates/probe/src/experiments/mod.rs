//! The experiments, one file each, in the order they run. What one needs of the system that no safe wrapper has is in
//! `sys`.

use crate::experiment::Experiment;

mod baton;
mod bind;
mod channel;
mod device;
mod domains;
mod files;
mod force;
mod locality;
mod lock;
mod message;
mod schedule;
#[cfg(test)]
mod sleep;
mod strategy;

/// All of them. A new one is a file in this folder and a line here.
pub const ALL: &[&dyn Experiment] = &[
    &schedule::Schedule,
    &message::Message,
    &lock::Lock,
    &domains::Domains,
    &bind::Bind,
    &strategy::Strategy,
    &locality::Locality,
    &device::Device,
    &force::Force,
];
