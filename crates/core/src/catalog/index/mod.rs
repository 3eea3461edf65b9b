//! What an index is: how it is defined, and the keys that values in JSON give it. The bytes of its entries and its tree
//! are in `catalog/index` of the library.

mod definition;
#[cfg(feature = "json")]
mod json;

pub use definition::{IndexDef, IndexKeys, KeysNeed};
#[cfg(feature = "json")]
pub use json::{JsonKey, JsonNumber};

/// What the keys of indexes by a member of JSON values are called.
pub const JSON: &str = "json";
