//! The peers with an interface in Rust, one file each.

pub mod fjall;
pub mod ledgerstone;
pub mod postgres;
pub mod redb;
