//! Typed tables: keys and values of Rust types over byte strings.
//!
//! A [`Key`] is encoded so that its bytes are ordered as its values are. A [`Value`] need only be decoded again. Both
//! are implemented for the usual types, tuples and arrays. `#[derive(Key)]` and `#[derive(Value)]` (feature `derive`)
//! implement them for structs. `Json` and `Postcard` (features `json` and `postcard`) store types that `serde` knows.
//!
//! ```
//! # #[cfg(feature = "derive")]
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! # let txn = env.begin()?;
//! use ledgerstone::{Key, TableDef, Value};
//!
//! /// Orders by shop, then by shelf.
//! #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Key)]
//! struct Place {
//!     shop: String,
//!     shelf: u32,
//! }
//!
//! #[derive(Debug, PartialEq, Value)]
//! #[ledgerstone(name = "shop.goods")] // In the catalog; without it, that of a tuple: (string, f64).
//! struct Goods {
//!     what: String,
//!     weight: f64,
//! }
//!
//! const GOODS: TableDef<Place, Goods> = TableDef::new("goods");
//! let goods = txn.open(GOODS)?;
//! let place = Place { shop: "north".into(), shelf: 4 };
//! goods.put(&place, Goods { what: "salt".into(), weight: 0.5 })?;
//! assert_eq!(goods.first()?, Some((place, Goods { what: "salt".into(), weight: 0.5 })));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "derive"))]
//! # fn main() {}
//! ```
//!
//! By hand, each takes two small implementations:
//!
//! ```
//! use ledgerstone::typed::{AsKey, AsValue, DecodeError, EncodeError, Key, TypeName, Value};
//!
//! #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
//! struct Day(u32);
//!
//! impl AsKey<Day> for Day {
//!     fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
//!         AsKey::<u32>::encode(&self.0, out)
//!     }
//! }
//!
//! impl Key for Day {
//!     // In the catalog for good: a table of days is not opened as one of numbers.
//!     const TYPE: TypeName = TypeName::Named("calendar.day");
//!     fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
//!         <u32 as Key>::decode(bytes).map(Day)
//!     }
//!     fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
//!         u32::decode_part(bytes).map(Day)
//!     }
//! }
//!
//! /// A share of a whole.
//! #[derive(Debug, PartialEq)]
//! struct Percent(u8);
//!
//! impl AsValue<Percent> for Percent {
//!     fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
//!         if self.0 > 100 {
//!             return Err(EncodeError::of::<Percent>(format!("{} is more than 100", self.0)));
//!         }
//!         out.push(self.0);
//!         Ok(())
//!     }
//! }
//!
//! impl Value for Percent {
//!     const TYPE: TypeName = TypeName::Named("calendar.percent");
//!     fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
//!         match bytes {
//!             [share @ 0..=100] => Ok(Percent(*share)),
//!             _ => Err(DecodeError::of::<Percent>(bytes)),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! # let txn = env.begin()?;
//! const RAIN: ledgerstone::TableDef<Day, Percent> = ledgerstone::TableDef::new("rain");
//! let rain = txn.open(RAIN)?;
//! rain.put(Day(7), Percent(60))?;
//! assert_eq!(rain.range(Day(1)..Day(31))?.next().transpose()?, Some((Day(7), Percent(60))));
//! assert!(rain.put(Day(8), Percent(101)).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! A table that [`Transaction::open`](crate::Transaction::open) makes keeps the names of its types in the catalog.
//! Opening it with other types is refused ([`Error::TableTypeMismatch`](crate::Error::TableTypeMismatch)). A table that
//! was made for byte strings has no types. It opens with any types, unchecked, until
//! [`Transaction::set_table_types`](crate::Transaction::set_table_types) gives it some.

#[cfg(feature = "json")]
pub use ledgerstone_core::typed::Json;
#[cfg(any(feature = "json", feature = "postcard"))]
pub use ledgerstone_core::typed::Named;
#[cfg(feature = "postcard")]
pub use ledgerstone_core::typed::Postcard;
#[doc(hidden)] // For the derived implementations.
pub use ledgerstone_core::typed::derived;
pub use ledgerstone_core::typed::{
    AsKey, AsValue, DecodeError, EncodeError, Key, KeyBounds, KeyPrefix, KeyRange, TableDef, TableTypes, TypeName,
    Value,
};
#[cfg(feature = "derive")]
pub use ledgerstone_derive::{Key, Value};
