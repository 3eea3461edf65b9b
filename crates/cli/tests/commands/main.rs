//! The commands as people type them: what they print, and the exit codes (0 done, 1 not found or a check failed, 2
//! error).
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod environment;
mod errors;
mod files;
mod log;
mod measured;
mod output;
mod records;
