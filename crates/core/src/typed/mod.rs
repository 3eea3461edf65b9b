//! Types of keys and values: what a type must have, the usual ones, and their names. `typed.rs` of the crate
//! `ledgerstone` says how programs use them.

#[cfg(any(feature = "json", feature = "postcard"))]
mod by_serde;
#[cfg(feature = "json")]
mod json_check;
mod key;
mod keys;
mod name;
mod prefix;
mod shown;
mod time;
#[cfg(feature = "uuid")]
mod uuid;
mod value;

#[cfg(feature = "json")]
pub use by_serde::Json;
#[cfg(any(feature = "json", feature = "postcard"))]
pub use by_serde::Named;
#[cfg(feature = "postcard")]
pub use by_serde::Postcard;
pub use key::{AsKey, Key};
pub use keys::{KeyBounds, KeyPrefix, KeyRange};
pub use name::{TableTypes, TypeName};
pub use prefix::prefix_end;
pub use shown::shown;
pub use value::{AsValue, Value};

/// What the code of `#[derive(Value)]` calls.
#[doc(hidden)]
pub mod derived {
    pub use super::value::{decode_part, encode_part};
}

/// What cannot be derived is refused when it is compiled.
///
/// ```compile_fail
/// #[derive(ledgerstone::Key)]
/// enum Either {
///     A(u8),
///     B(u8),
/// }
/// ```
/// ```compile_fail
/// #[derive(ledgerstone::Value)]
/// struct Pair<T>(T, T);
/// ```
/// ```compile_fail
/// #[derive(ledgerstone::Key)]
/// struct Nothing;
/// ```
/// ```compile_fail
/// // A list of numbers is not a key.
/// #[derive(ledgerstone::Key)]
/// struct List(Vec<u64>);
/// ```
/// ```compile_fail
/// #[derive(ledgerstone::Key)]
/// #[ledgerstone(name = "")]
/// struct Unnamed(u8);
/// ```
/// ```compile_fail
/// #[derive(ledgerstone::Key)]
/// #[ledgerstone(title = "x")]
/// struct Titled(u8);
/// ```
/// And so is a key or a value of another type:
/// ```compile_fail
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let env = ledgerstone::Environment::options().open("/nowhere")?;
/// # let txn = env.begin()?;
/// let ages = txn.open(ledgerstone::TableDef::<String, u32>::new("ages"))?;
/// ages.get(7)?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let env = ledgerstone::Environment::options().open("/nowhere")?;
/// # let txn = env.begin()?;
/// // Four bytes are not a key of three.
/// let colours = txn.open(ledgerstone::TableDef::<[u8; 3], u32>::new("colours"))?;
/// colours.put([1_u8, 2, 3, 4], 7)?;
/// # Ok(())
/// # }
/// ```
#[cfg(doctest)]
mod refused {}

use std::fmt::Display;
use std::marker::PhantomData;

/// A value that its type has no bytes for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{type_name} cannot be encoded: {reason}")]
#[non_exhaustive]
pub struct EncodeError {
    /// The type.
    pub type_name: &'static str,
    /// What is wrong with the value.
    pub reason: Box<str>,
}

impl EncodeError {
    /// The finding that a `T` cannot be encoded.
    #[must_use]
    pub fn of<T: ?Sized>(reason: impl Display) -> EncodeError {
        EncodeError { type_name: std::any::type_name::<T>(), reason: reason.to_string().into() }
    }
}

/// How many bytes, in words: `1 byte`, `2 bytes`.
pub fn byte_count(count: u64) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// The subject of a sentence about that many bytes.
fn bytes_are(count: &usize) -> String {
    format!("{} {}", byte_count(*count as u64), if *count == 1 { "is" } else { "are" })
}

/// Bytes that are not a value of the type asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} not a valid {type_name}{}{}", bytes_are(.len), if .reason.is_some() { ": " } else { "" }, .reason.as_deref().unwrap_or_default())]
#[non_exhaustive]
pub struct DecodeError {
    /// The type.
    pub type_name: &'static str,
    /// How many bytes there were.
    pub len: usize,
    /// What is wrong with them, where it is known.
    pub reason: Option<Box<str>>,
}

impl DecodeError {
    /// The finding that `bytes` are not a `T`.
    #[must_use]
    pub fn of<T: ?Sized>(bytes: &[u8]) -> DecodeError {
        DecodeError { type_name: std::any::type_name::<T>(), len: bytes.len(), reason: None }
    }

    /// The same, with the reason.
    #[must_use]
    pub fn because<T: ?Sized>(bytes: &[u8], reason: impl Display) -> DecodeError {
        DecodeError { reason: Some(reason.to_string().into()), ..DecodeError::of::<T>(bytes) }
    }
}

/// The name of a table and the types of its keys and values: a constant of the program, or made while it runs.
///
/// ```
/// use ledgerstone::TableDef;
///
/// const PRICES: TableDef<String, f64> = TableDef::new("prices");
///
/// let name = format!("prices of {}", 2024);
/// let of_a_year = TableDef::<String, f64>::new(&name);
/// ```
pub struct TableDef<'n, K, V> {
    name: &'n str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'n, K: Key, V: Value> TableDef<'n, K, V> {
    /// A table of this name.
    #[must_use]
    pub const fn new(name: &'n str) -> TableDef<'n, K, V> {
        TableDef { name, types: PhantomData }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'n str {
        self.name
    }
}

impl<K, V> Clone for TableDef<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableDef<'_, K, V> {}

impl<K, V> std::fmt::Debug for TableDef<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableDef({:?})", self.name)
    }
}
