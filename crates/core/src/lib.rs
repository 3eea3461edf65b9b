//! What everything that stands on an open environment shares.
//!
//! Programs use the crate `ledgerstone`, which shows what is for them here under its own name. This crate is for the
//! crates of the same workspace that stand on an environment: `ledgerstone` itself, `ledgerstone-feed` and
//! `ledgerstone-media`. What it shows beside that may change in any version.
//!
//! | module | its idea |
//! | --- | --- |
//! | [`base`] | an open environment, as far as others need it |
//! | [`directory`] | a directory that nobody has open |
//! | [`keeper`] | who needs the log for longer than recovery does |
//! | [`catalog`] | what the catalog says of tables, indexes and structures |
//! | [`typed`] | types of keys and values |
//! | [`flow`] | what the callbacks of long calls answer |
//! | [`error`] | the one error type |
//! | [`choice`] | isolation levels |
//!
//! A module uses only those below it. The crate does not know how an environment is opened or closed, and no
//! transaction of a program's. Begin reading at `base/mod.rs`.
//!
//! # What blocks
//!
//! All calls are synchronous. Those that wait for the disk say so: they return when the files are read, written or
//! synced. [`base::Base::latch`] waits for the thread that has the latch. Nothing here waits for locks of tables.
//! Programs call this crate through the library only, whose page says
//! [what the calls of `ledgerstone` wait for](../ledgerstone/index.html#what-blocks).
#![forbid(unsafe_code)]

pub mod base;
pub mod catalog;
pub mod choice;
pub mod directory;
pub mod error;
pub mod flow;
pub mod keeper;
pub mod typed;

pub use error::{Error, TypeMismatch};
