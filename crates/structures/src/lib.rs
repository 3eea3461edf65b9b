//! B-link tree and blobs, written as a user would write them: with operations, pages, latches and locks that everybody gets.
#![forbid(unsafe_code)]

pub mod btree;
