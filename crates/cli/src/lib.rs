//! The `ledgerstone` command: translation between what people type and read, and the library.
#![forbid(unsafe_code)]

pub mod rows;
