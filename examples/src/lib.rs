//! Structures written as a user of Ledgerstone writes them: with the crate `ledgerstone` and nothing else.
//!
//! | file | shows |
//! | --- | --- |
//! | [`increment`] | an operation whose undo is its inverse, so that many transactions change one number at once (Lemon 4.4) |
//! | [`counter_list`] | a layout and a structure of many pages by the three-step recipe (Lemon 4.3): latch, logical undo, nested top action |
//!
//! `docs/operations.md` explains them. Whole programs are in `src/bin`, and `README.md` says what each is.
#![forbid(unsafe_code)]

pub mod counter_list;
pub mod increment;

/// The examples of pages, compiled and run with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/operations.md")]
#[doc = include_str!("../../docs/processes.md")]
struct Pages;
