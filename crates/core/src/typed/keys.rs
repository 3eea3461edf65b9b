//! Ranges and prefixes of keys, as calls take them.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::{AsKey, EncodeError};

/// Both ends of a range of keys, encoded.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range of keys of type `K`: any range of what stands for such a key ([`AsKey`]), or a pair of [`Bound`]s.
///
/// It is a trait of its own so that `..` needs no types, and the ends of a range can be borrowed:
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// # let txn = env.begin()?;
/// const AGES: ledgerstone::TableDef<String, u32> = ledgerstone::TableDef::new("ages");
/// let ages = txn.open(AGES)?;
/// for (name, age) in [("ann", 31), ("bob", 29), ("cid", 47)] {
///     ages.put(name, age)?;
/// }
/// assert_eq!(ages.range(..)?.count(), 3);
/// assert_eq!(ages.range("b"..)?.count(), 2);
/// assert_eq!(ages.range("ann"..="bob")?.count(), 2);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of keys of type `{K}`",
    note = "the ends are keys of that type, references to them, or what they lend, such as `&str` for `String`"
)]
pub trait KeyRange<K> {
    /// The ends, encoded.
    ///
    /// # Errors
    /// One of them has no encoding.
    fn bounds(&self) -> Result<KeyBounds, EncodeError>;
}

fn end<K>(bound: Bound<&impl AsKey<K>>) -> Result<Bound<Vec<u8>>, EncodeError> {
    let encoded = |key: &dyn Fn(&mut Vec<u8>) -> Result<(), EncodeError>| {
        let mut bytes = Vec::with_capacity(16);
        key(&mut bytes).map(|()| bytes)
    };
    Ok(match bound {
        Bound::Included(key) => Bound::Included(encoded(&|out| key.encode(out))?),
        Bound::Excluded(key) => Bound::Excluded(encoded(&|out| key.encode(out))?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

impl<K> KeyRange<K> for RangeFull {
    fn bounds(&self) -> Result<KeyBounds, EncodeError> {
        Ok((Bound::Unbounded, Bound::Unbounded))
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl<K, Q: AsKey<K>> KeyRange<K> for $range {
            fn bounds(&self) -> Result<KeyBounds, EncodeError> {
                Ok((end(RangeBounds::<Q>::start_bound(self))?, end(RangeBounds::<Q>::end_bound(self))?))
            }
        }
    )*};
}

ranges!(Range<Q>, RangeInclusive<Q>, RangeFrom<Q>, RangeTo<Q>, RangeToInclusive<Q>, (Bound<Q>, Bound<Q>));

/// What keys of type `K` can begin with: of a string or bytes, its first characters; of a tuple, its leading parts.
///
/// Of `(String, u32)`, the prefix `("a",)` are all keys whose first part is `"a"`, not those whose first part begins
/// so.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a prefix of keys of type `{K}`",
    note = "strings and bytes have prefixes of their kind; tuples have their leading parts, as tuples: `(\"a\",)`"
)]
pub trait KeyPrefix<K> {
    /// Appends the bytes that the keys begin with.
    ///
    /// # Errors
    /// A part has no encoding.
    fn encode_prefix(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;
}

impl<K, P: KeyPrefix<K> + ?Sized> KeyPrefix<K> for &P {
    fn encode_prefix(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (**self).encode_prefix(out)
    }
}

macro_rules! plain {
    ($($p:ty as $k:ty $(where $n:ident)?;)*) => {$(
        impl$(<const $n: usize>)? KeyPrefix<$k> for $p {
            fn encode_prefix(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                AsKey::<$k>::encode(self, out)
            }
        }
    )*};
}

plain!(
    str as String;
    String as String;
    [u8] as Vec<u8>;
    Vec<u8> as Vec<u8>;
    [u8; N] as Vec<u8> where N;
);

macro_rules! parts {
    ($($part:ident $lent:ident $no:tt),+; $($rest:ident),+) => {
        impl<$($part, $lent: AsKey<$part>,)+ $($rest),+> KeyPrefix<($($part,)+ $($rest,)+)> for ($($lent,)+) {
            fn encode_prefix(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                $(self.$no.encode_part(out)?;)+
                Ok(())
            }
        }
    };
}

parts!(A QA 0; B);
parts!(A QA 0; B, C);
parts!(A QA 0; B, C, D);
parts!(A QA 0; B, C, D, E);
parts!(A QA 0; B, C, D, E, F);
parts!(A QA 0, B QB 1; C);
parts!(A QA 0, B QB 1; C, D);
parts!(A QA 0, B QB 1; C, D, E);
parts!(A QA 0, B QB 1; C, D, E, F);
parts!(A QA 0, B QB 1, C QC 2; D);
parts!(A QA 0, B QB 1, C QC 2; D, E);
parts!(A QA 0, B QB 1, C QC 2; D, E, F);
parts!(A QA 0, B QB 1, C QC 2, D QD 3; E);
parts!(A QA 0, B QB 1, C QC 2, D QD 3; E, F);
parts!(A QA 0, B QB 1, C QC 2, D QD 3, E QE 4; F);
