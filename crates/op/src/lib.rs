//! The contract of an operation, and the registry of all of them.
//!
//! It lies low because rollback and redo call operations without knowing one; the operations themselves lie high, with
//! their structures. There is no operation in this crate.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error;
mod operation;
mod page_mut;
mod registry;

pub use error::{DuplicateOperation, OpError, UnknownOperation};
pub use operation::{Operation, Undo};
pub use page_mut::PageMut;
pub use registry::Registry;
