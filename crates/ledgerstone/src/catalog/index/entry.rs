//! The bytes of an entry of an index (`docs/format/index.md`).
//!
//! ```text
//!               key                                              value
//! not unique    index key escaped, 0x00 0x00, primary key        empty
//! unique        index key                                        primary key
//! ```
//! Escaped: each 0x00 is written 0x00 0xff. So entries order by index key, then by primary key, as byte strings do, and
//! the end of an index key is found without knowing its length.

use std::ops::Bound;

use ledgerstone_core::typed::prefix_end;

/// How entries are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub is_unique: bool,
}

/// Key and value of an entry in the index's tree.
pub(crate) type Stored = (Vec<u8>, Vec<u8>);

impl Shape {
    /// The entry for a record.
    pub(crate) fn entry(self, index_key: &[u8], primary_key: &[u8]) -> Stored {
        if self.is_unique {
            return (index_key.to_vec(), primary_key.to_vec());
        }
        let mut key = escaped(index_key);
        key.extend_from_slice(primary_key);
        (key, Vec::new())
    }

    /// Index key and primary key of an entry; none for bytes that are not an entry.
    pub(crate) fn parts(self, key: &[u8], value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.is_unique {
            return Some((key.to_vec(), value.to_vec()));
        }
        let mut index_key = Vec::with_capacity(key.len());
        let mut rest = key;
        loop {
            match rest {
                [0, 0, primary_key @ ..] if value.is_empty() => return Some((index_key, primary_key.to_vec())),
                [0, 0xff, more @ ..] => {
                    index_key.push(0);
                    rest = more;
                }
                [byte, more @ ..] if *byte != 0 => {
                    index_key.push(*byte);
                    rest = more;
                }
                _ => return None,
            }
        }
    }

    /// The bounds in the index's tree of the entries whose index keys lie between these.
    pub(crate) fn bounds(self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        if self.is_unique {
            return (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        }
        let start = match start {
            Bound::Included(key) => Bound::Included(escaped(key)),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Bound::Unbounded,
        };
        let end = match end {
            Bound::Included(key) => match behind(key) {
                Bound::Included(next) => Bound::Excluded(next),
                other => other,
            },
            Bound::Excluded(key) => Bound::Excluded(escaped(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        (start, end)
    }
}

/// Where the entries behind those of an index key begin.
fn behind(index_key: &[u8]) -> Bound<Vec<u8>> {
    prefix_end(&escaped(index_key)).map_or(Bound::Unbounded, Bound::Included)
}

/// The index key as the beginning of an entry.
pub(crate) fn escaped(index_key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(index_key.len() + 16);
    for &byte in index_key {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(0xff);
        }
    }
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MANY: Shape = Shape { is_unique: false };
    const ONE: Shape = Shape { is_unique: true };

    /// These bytes are in files: a change of one is a new format.
    #[test]
    fn golden_bytes_of_entries() {
        assert_eq!(MANY.entry(b"a\0b", b"k\0"), (b"a\0\xffb\0\0k\0".to_vec(), vec![]));
        assert_eq!(ONE.entry(b"a\0b", b"k\0"), (b"a\0b".to_vec(), b"k\0".to_vec()));
        assert_eq!(MANY.entry(b"", b""), (vec![0, 0], vec![]));
    }

    /// Keys made of the bytes that the escape is about.
    fn spiky() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xfe, 0xff]), 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn entries_order_as_their_keys_and_come_back(a in (spiky(), spiky()), b in (spiky(), spiky())) {
            let (x, y) = (MANY.entry(&a.0, &a.1), MANY.entry(&b.0, &b.1));
            prop_assert_eq!(x.0.cmp(&y.0), a.cmp(&b));
            for shape in [MANY, ONE] {
                let (key, value) = shape.entry(&a.0, &a.1);
                prop_assert_eq!(shape.parts(&key, &value), Some(a.clone()));
            }
        }

        #[test]
        fn bounds_hold_exactly_the_entries_of_their_keys(k in (spiky(), spiky()), low in spiky(), high in spiky(), kind: (bool, bool)) {
            use std::ops::RangeBounds;
            let start = if kind.0 { Bound::Included(&low[..]) } else { Bound::Excluded(&low[..]) };
            let end = if kind.1 { Bound::Included(&high[..]) } else { Bound::Excluded(&high[..]) };
            for shape in [MANY, ONE] {
                let (key, _) = shape.entry(&k.0, &k.1);
                let is_in = RangeBounds::<[u8]>::contains(&(start, end), &k.0[..]);
                let bounds = shape.bounds(start, end);
                prop_assert_eq!(RangeBounds::<Vec<u8>>::contains(&bounds, &key), is_in);
            }
        }

        #[test]
        fn any_bytes_are_an_entry_or_none(key: Vec<u8>, value: Vec<u8>) {
            if let Some((index_key, primary_key)) = MANY.parts(&key, &value) {
                prop_assert_eq!(MANY.entry(&index_key, &primary_key), (key, value));
            }
        }
    }
}
