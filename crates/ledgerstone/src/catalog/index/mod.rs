//! What an index is: how it is defined, the bytes of its entries, the functions that programs register, and its tree.
//! What is done with it is in `table/index`.

mod definition;
mod entry;
mod extractors;
#[cfg(feature = "json")]
mod json;
mod tree;

pub use definition::{IndexDef, IndexKeys};
pub(crate) use entry::Stored;
pub(crate) use extractors::{ExtractorTypes, Extractors};
#[cfg(feature = "json")]
pub use json::{JsonKey, JsonNumber};
pub(crate) use tree::IndexTree;
