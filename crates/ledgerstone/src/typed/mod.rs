//! Typed tables: keys and values of Rust types over byte strings.
//!
//! [`Key`] encodes so that bytes order as values do; [`Value`] only has to come back. Both are implemented for the
//! usual types, and for your own in a few lines:
//!
//! ```
//! use ledgerstone::typed::{DecodeError, Key, TypeName};
//!
//! #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
//! struct Day(u32);
//!
//! impl Key for Day {
//!     // In the catalog for good: a table of days is not opened as one of numbers.
//!     const TYPE: TypeName = TypeName::Named("calendar.day");
//!     fn encode(&self, out: &mut Vec<u8>) {
//!         Key::encode(&self.0, out);
//!     }
//!     fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
//!         <u32 as Key>::decode(bytes).map(Day)
//!     }
//!     fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
//!         u32::decode_part(bytes).map(Day)
//!     }
//! }
//! ```
//!
//! A table that is made by [`Transaction::open`](crate::Transaction::open) keeps the names of its types in the catalog. Opened with
//! others it is refused ([`Error::TableTypeMismatch`](crate::Error::TableTypeMismatch)). A table made for byte strings has no types,
//! so it opens with any, unchecked, until
//! [`Transaction::set_table_types`](crate::Transaction::set_table_types) gives it some.

mod key;
mod name;
mod value;

pub use key::{Key, KeyRef};
pub use name::{TableTypes, TypeName};
pub use value::Value;

use std::marker::PhantomData;

/// Bytes that are no value of the type asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes are not a valid {type_name}")]
pub struct DecodeError {
    /// The type.
    pub type_name: &'static str,
    /// How many bytes there were.
    pub len: usize,
}

impl DecodeError {
    /// The finding that `bytes` are no `T`.
    #[must_use]
    pub fn of<T: ?Sized>(bytes: &[u8]) -> DecodeError {
        DecodeError { type_name: std::any::type_name::<T>(), len: bytes.len() }
    }
}

/// The name of a table and the types of its keys and values; a constant of the program.
///
/// ```
/// const PRICES: ledgerstone::TableDef<String, f64> = ledgerstone::TableDef::new("prices");
/// ```
pub struct TableDef<K, V> {
    name: &'static str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> TableDef<K, V> {
    /// A table of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> TableDef<K, V> {
        TableDef { name, types: PhantomData }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K, V> Clone for TableDef<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableDef<K, V> {}

impl<K, V> std::fmt::Debug for TableDef<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableDef({:?})", self.name)
    }
}
