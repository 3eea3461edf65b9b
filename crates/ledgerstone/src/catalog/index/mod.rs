//! An index of a table: the bytes of its entries, the functions that programs register, and its tree. What is done with
//! it is in `table/index`.

mod entry;
mod extractors;
mod tree;

pub(crate) use entry::{Stored, escaped};
pub(crate) use extractors::{ExtractorTypes, Extractors};
pub(crate) use tree::IndexTree;
