//! Tables as users see them: of bytes and typed, ranges and entries in them, loads, large values, and indexes.

mod bulk;
mod bytes;
mod coding;
mod definition;
mod entry;
mod env_table;
mod here;
pub(crate) mod index;
pub(crate) mod range;
mod sight;
mod typed;
mod typed_env_table;
mod value_io;

pub use bulk::SortedLoader;
pub use bytes::BytesTable;
pub use entry::{Entry, TypedEntry};
pub use env_table::EnvTable;
pub use index::{Index, IndexRange, IndexedRecord, IndexedRecords, TypedIndex, TypedIndexRange};
pub use range::{Range, Record};
pub use typed::{Table, TypedRange, TypedSortedLoader};
pub use typed_env_table::TypedEnvTable;
pub use value_io::{ValueReader, ValueWriter};
