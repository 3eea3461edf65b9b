//! Keys: encodings that order as bytes exactly as their values order.
//!
//! | type | bytes |
//! | --- | --- |
//! | unsigned integers | big-endian |
//! | signed integers | big-endian, sign bit flipped |
//! | `f32`, `f64` | big-endian; sign bit flipped, and all other bits too in negative numbers |
//! | `bool`, `char` | one byte; four, big-endian |
//! | `String`, `Vec<u8>` | as they are |
//! | `Duration`, `SystemTime` | whole seconds (since 1970, signed) and nanoseconds, as integers |
//! | `Uuid` (feature `uuid`) | its 16 bytes |
//! | `Option<K>` | 0 for none; 1 and the key |
//! | tuples, `[K; N]` | parts behind each other; parts of variable length that are not the last are escaped |
//!
//! Escaped: each 0x00 is written 0x00 0xff, and 0x00 0x00 ends the part. So a part orders before its continuations.
//! Floating-point numbers order as `f64::total_cmp` orders them: -0.0 is below 0.0, and each NaN is a key of its own.

use super::{DecodeError, EncodeError, TypeName};

/// A type that can be a key. Its bytes are ordered as its values are.
///
/// `#[derive(Key)]` implements it for structs (feature `derive`). By hand it takes two implementations: this trait, and
/// [`AsKey`] of the type for itself. The [module](super) has an example. `decode` gets bytes from the disk. It must
/// check all that it relies on, and must not panic.
pub trait Key: AsKey<Self> + Sized {
    /// The type's name in the catalog. It stands for the encoding, for good. Types whose bytes mean the same may share
    /// a name: a wrapper of a number may use `<u64 as Key>::TYPE`. A type whose bytes change needs another name.
    const TYPE: TypeName;

    /// The key that these bytes are.
    ///
    /// # Errors
    /// The bytes are not a key of this type.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Takes a key that others may follow off the front of `bytes`.
    ///
    /// # Errors
    /// `bytes` does not begin with such a key.
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError>;

    /// Takes `N` keys off the front, the last one as a part too or as the rest.
    #[doc(hidden)]
    fn decode_array<const N: usize>(bytes: &mut &[u8], is_part: bool) -> Result<[Self; N], DecodeError> {
        let all = *bytes;
        let mut keys = Vec::with_capacity(N);
        for no in 0..N {
            keys.push(if no + 1 < N || is_part {
                Self::decode_part(bytes)?
            } else {
                Self::decode(std::mem::take(bytes))?
            });
        }
        keys.try_into().map_err(|_| DecodeError::of::<[Self; N]>(all))
    }
}

/// What stands for a key of type `K` in a call. It is the key itself, a reference to it, or what it lends: `str` for
/// `String`, and `(&str, u32)` for `(String, u32)`. All have the same bytes.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// # let txn = env.begin()?;
/// const STOCK: ledgerstone::TableDef<(String, u32), u64> = ledgerstone::TableDef::new("stock");
/// let stock = txn.open(STOCK)?;
/// stock.put(("bolt", 8), 250)?;
/// stock.put(&("bolt".to_string(), 10), &90)?;
/// assert_eq!(stock.get(("bolt", 8))?, Some(250));
/// assert_eq!(stock.range(("bolt", 9)..)?.count(), 1);
/// # Ok(())
/// # }
/// ```
///
/// `None` needs its type. `None::<&str>` and `None::<String>` both stand for a key `Option<String>`, so the table alone
/// cannot tell Rust which of them is meant. Any type that stands for the key will do; the bytes are the same:
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// # let txn = env.begin()?;
/// const SHELVES: ledgerstone::TableDef<(Option<String>, Option<u8>), u64> = ledgerstone::TableDef::new("shelves");
/// let shelves = txn.open(SHELVES)?;
/// shelves.put((Some("north"), Some(4)), 250)?;
/// shelves.put((None::<&str>, None::<u8>), 7)?;
/// assert_eq!(shelves.get((None::<String>, None::<u8>))?, Some(7));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not stand for a key of type `{K}`",
    note = "a table takes keys of its own type, references to them, and what they lend, such as `&str` for `String`"
)]
pub trait AsKey<K> {
    /// Appends the key as a whole key, or as the last part of one.
    ///
    /// # Errors
    /// The value has no encoding. What was appended does not count.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Appends the key as a part that others follow. The default is right for types whose bytes tell their own length.
    ///
    /// # Errors
    /// As [`AsKey::encode`].
    fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode(out)
    }

    /// Appends several, the last one as a part too or as the end.
    #[doc(hidden)]
    fn encode_array(all: &[Self], is_part: bool, out: &mut Vec<u8>) -> Result<(), EncodeError>
    where
        Self: Sized,
    {
        let Some((last, rest)) = all.split_last() else { return Ok(()) };
        rest.iter().try_for_each(|key| key.encode_part(out))?;
        if is_part { last.encode_part(out) } else { last.encode(out) }
    }
}

impl<K, Q: AsKey<K> + ?Sized> AsKey<K> for &Q {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (**self).encode(out)
    }
    fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (**self).encode_part(out)
    }
}

pub(super) fn split<'a, T>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (part, rest) = bytes.split_at_checked(len).ok_or_else(|| DecodeError::of::<T>(bytes))?;
    *bytes = rest;
    Ok(part)
}

/// Decodes a whole key as one part with nothing behind it.
pub(super) fn whole<K: Key>(mut bytes: &[u8]) -> Result<K, DecodeError> {
    let all = bytes;
    let key = K::decode_part(&mut bytes)?;
    if bytes.is_empty() { Ok(key) } else { Err(DecodeError::of::<K>(all)) }
}

macro_rules! unsigned {
    ($($t:ty),*) => {$(
        impl AsKey<$t> for $t {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                out.extend_from_slice(&self.to_be_bytes());
                Ok(())
            }
        }

        impl Key for $t {
            const TYPE: TypeName = TypeName::Named(stringify!($t));
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                bytes.try_into().map(<$t>::from_be_bytes).map_err(|_| DecodeError::of::<$t>(bytes))
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Self::decode(split::<$t>(bytes, size_of::<$t>())?)
            }
        }
    )*};
}

unsigned!(u16, u32, u64, u128);

impl AsKey<u8> for u8 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(*self);
        Ok(())
    }
    fn encode_array(all: &[u8], _: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(all);
        Ok(())
    }
}

impl Key for u8 {
    const TYPE: TypeName = TypeName::Named("u8");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(bytes)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(split::<u8>(bytes, 1)?[0])
    }
    fn decode_array<const N: usize>(bytes: &mut &[u8], _: bool) -> Result<[u8; N], DecodeError> {
        let all = *bytes;
        split::<[u8; N]>(bytes, N)?.try_into().map_err(|_| DecodeError::of::<[u8; N]>(all))
    }
}

/// Numbers whose bits, changed by `$forth`, order as an unsigned integer.
macro_rules! by_bits {
    ($($t:ty as $u:ty: $forth:expr, $back:expr;)*) => {$(
        impl AsKey<$t> for $t {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                let forth: fn($t) -> $u = $forth;
                AsKey::<$u>::encode(&forth(*self), out)
            }
        }

        impl Key for $t {
            const TYPE: TypeName = TypeName::Named(stringify!($t));
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let back: fn($u) -> $t = $back;
                <$u as Key>::decode(bytes).map(back).map_err(|_| DecodeError::of::<$t>(bytes))
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                <Self as Key>::decode(split::<$t>(bytes, size_of::<$t>())?)
            }
        }
    )*};
}

by_bits!(
    i8 as u8: |n| n as u8 ^ (1 << 7), |bits| (bits ^ (1 << 7)) as i8;
    i16 as u16: |n| n as u16 ^ (1 << 15), |bits| (bits ^ (1 << 15)) as i16;
    i32 as u32: |n| n as u32 ^ (1 << 31), |bits| (bits ^ (1 << 31)) as i32;
    i64 as u64: |n| n as u64 ^ (1 << 63), |bits| (bits ^ (1 << 63)) as i64;
    i128 as u128: |n| n as u128 ^ (1 << 127), |bits| (bits ^ (1 << 127)) as i128;
    // All bits of a negative number are flipped: the larger its magnitude, the smaller it is.
    f32 as u32:
        |n| n.to_bits() ^ if n.is_sign_negative() { u32::MAX } else { 1 << 31 },
        |bits| f32::from_bits(bits ^ if bits >> 31 == 0 { u32::MAX } else { 1 << 31 });
    f64 as u64:
        |n| n.to_bits() ^ if n.is_sign_negative() { u64::MAX } else { 1 << 63 },
        |bits| f64::from_bits(bits ^ if bits >> 63 == 0 { u64::MAX } else { 1 << 63 });
);

impl AsKey<bool> for bool {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(*self));
        Ok(())
    }
}

impl Key for bool {
    const TYPE: TypeName = TypeName::Named("bool");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DecodeError::of::<bool>(bytes)),
        }
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        <Self as Key>::decode(split::<bool>(bytes, 1)?)
    }
}

impl AsKey<char> for char {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        AsKey::<u32>::encode(&u32::from(*self), out)
    }
}

impl Key for char {
    const TYPE: TypeName = TypeName::Named("char");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let found = <u32 as Key>::decode(bytes).ok().and_then(char::from_u32);
        found.ok_or_else(|| DecodeError::of::<char>(bytes))
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        <Self as Key>::decode(split::<char>(bytes, 4)?)
    }
}

/// Escapes a part of variable length: 0x00 becomes 0x00 0xff, and 0x00 0x00 ends it, which is below any continuation.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn unescape<T>(bytes: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    let all = *bytes;
    let mut part = Vec::new();
    loop {
        match *bytes {
            [0, 0, ..] => {
                *bytes = &bytes[2..];
                return Ok(part);
            }
            [0, 0xff, ..] => {
                part.push(0);
                *bytes = &bytes[2..];
            }
            [byte, ..] if *byte != 0 => {
                part.push(*byte);
                *bytes = &bytes[1..];
            }
            _ => return Err(DecodeError::of::<T>(all)),
        }
    }
}

/// What lends its bytes as they are.
macro_rules! plain {
    ($($q:ty as $k:ty $(where $n:ident)?;)*) => {$(
        impl$(<const $n: usize>)? AsKey<$k> for $q {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                let bytes: &[u8] = self.as_ref();
                out.extend_from_slice(bytes);
                Ok(())
            }
            fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                escape(self.as_ref(), out);
                Ok(())
            }
        }
    )*};
}

plain!(
    String as String;
    str as String;
    Vec<u8> as Vec<u8>;
    [u8] as Vec<u8>;
    [u8; N] as Vec<u8> where N;
    str as Vec<u8>;
    String as Vec<u8>;
);

impl Key for Vec<u8> {
    const TYPE: TypeName = TypeName::Named("bytes");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        unescape::<Vec<u8>>(bytes)
    }
}

impl Key for String {
    const TYPE: TypeName = TypeName::Named("string");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::of::<String>(bytes))
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        <Self as Key>::decode(&unescape::<String>(bytes)?)
    }
}

impl<K: Key, Q: AsKey<K>, const N: usize> AsKey<[K; N]> for [Q; N] {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Q::encode_array(self, false, out)
    }
    fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Q::encode_array(self, true, out)
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    const TYPE: TypeName = if K::TYPE.is_u8() { TypeName::Bytes(N) } else { TypeName::Array(&K::TYPE, N) };
    fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let all = bytes;
        let keys = K::decode_array(&mut bytes, false)?;
        if bytes.is_empty() { Ok(keys) } else { Err(DecodeError::of::<Self>(all)) }
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        K::decode_array(bytes, true)
    }
}

impl AsKey<()> for () {
    fn encode(&self, _: &mut Vec<u8>) -> Result<(), EncodeError> {
        Ok(())
    }
}

impl Key for () {
    const TYPE: TypeName = TypeName::Tuple(&[]);
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(bytes)
    }
    fn decode_part(_: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<K: Key, Q: AsKey<K>> AsKey<Option<K>> for Option<Q> {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(self.is_some()));
        self.as_ref().map_or(Ok(()), |key| key.encode(out))
    }
    fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(self.is_some()));
        self.as_ref().map_or(Ok(()), |key| key.encode_part(out))
    }
}

impl<K: Key> Key for Option<K> {
    const TYPE: TypeName = TypeName::Of("option", &[K::TYPE]);
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, rest @ ..] => K::decode(rest).map(Some),
            _ => Err(DecodeError::of::<Option<K>>(bytes)),
        }
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let all = *bytes;
        match split::<Option<K>>(bytes, 1)? {
            [0] => Ok(None),
            [1] => K::decode_part(bytes).map(Some),
            _ => Err(DecodeError::of::<Option<K>>(all)),
        }
    }
}

macro_rules! tuple {
    ($($part:ident $lent:ident $no:tt),+; $last:ident $last_lent:ident $last_no:tt) => {
        impl<$($part, $lent: AsKey<$part>,)+ $last, $last_lent: AsKey<$last>> AsKey<($($part,)+ $last,)>
            for ($($lent,)+ $last_lent,)
        {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                $(self.$no.encode_part(out)?;)+
                self.$last_no.encode(out)
            }
            fn encode_part(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                $(self.$no.encode_part(out)?;)+
                self.$last_no.encode_part(out)
            }
        }

        impl<$($part: Key,)+ $last: Key> Key for ($($part,)+ $last,) {
            const TYPE: TypeName = TypeName::Tuple(&[$($part::TYPE,)+ $last::TYPE]);
            fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
                Ok(($($part::decode_part(&mut bytes)?,)+ $last::decode(bytes)?,))
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(($($part::decode_part(bytes)?,)+ $last::decode_part(bytes)?,))
            }
        }
    };
}

tuple!(A QA 0; B QB 1);
tuple!(A QA 0, B QB 1; C QC 2);
tuple!(A QA 0, B QB 1, C QC 2; D QD 3);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3; E QE 4);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3, E QE 4; F QF 5);

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    fn bytes<K: Key>(key: &K) -> Vec<u8> {
        let mut out = Vec::new();
        key.encode(&mut out).unwrap();
        out
    }

    fn orders_and_returns<K: Key + Ord + Debug>(a: K, b: K) {
        assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b), "{a:?} {b:?}");
        assert_eq!(K::decode(&bytes(&a)).as_ref(), Ok(&a));
    }

    fn check<K: Key>(key: &K, expected: &[u8]) {
        assert_eq!(bytes(key), expected);
    }

    /// These bytes are in files: a change of one is a new format.
    #[test]
    fn the_encodings_are_what_the_files_hold() {
        check(&0x0102_u16, &[1, 2]);
        check(&-1_i16, &[0x7f, 0xff]);
        check(&1_i16, &[0x80, 1]);
        check(&true, &[1]);
        check(&'a', &[0, 0, 0, 0x61]);
        check(&"a\0".to_string(), &[b'a', 0]);
        check(&("a\0b".to_string(), 7_u8), &[b'a', 0, 0xff, b'b', 0, 0, 7]);
        check(&(7_u8, "a\0".to_string()), &[7, b'a', 0]);
        check(&(None::<u8>, Some(vec![0_u8]), 1_u8), &[0, 1, 0, 0xff, 0, 0, 1]);
        check(&([1_u8, 0], ()), &[1, 0]);
        check(&1.5_f32, &[0xbf, 0xc0, 0, 0]);
        check(&-1.5_f32, &[0x40, 0x3f, 0xff, 0xff]);
        check(&0.0_f64, &[0x80, 0, 0, 0, 0, 0, 0, 0]);
        check(&-0.0_f64, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        check(&[0x0102_u16, 3], &[1, 2, 0, 3]);
        check(&["a".to_string(), "b".to_string()], &[b'a', 0, 0, b'b']);
        check(&(["a".to_string(), "b".to_string()], 1_u8), &[b'a', 0, 0, b'b', 0, 0, 1]);
    }

    #[test]
    fn the_small_types_order_in_every_pair() {
        for a in i8::MIN..=i8::MAX {
            for b in i8::MIN..=i8::MAX {
                assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b));
                assert_eq!(bytes(&(a as u8)).cmp(&bytes(&(b as u8))), (a as u8).cmp(&(b as u8)));
            }
        }
        orders_and_returns(false, true);
        orders_and_returns((), ());
        orders_and_returns(i64::MIN, i64::MAX);
        orders_and_returns(-1_i128, 0);
    }

    /// Parts made of the bytes that the escape is about, so that prefixes and zeros meet often.
    fn spiky() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xfe, 0xff]), 0..5)
    }

    proptest! {
        #[test]
        fn zeros_and_prefixes_order_inside_tuples(
            a in (spiky(), spiky(), any::<u8>(), spiky()),
            b in (spiky(), spiky(), any::<u8>(), spiky()),
        ) {
            orders_and_returns((a.0.clone(), Some(a.1.clone())), (b.0.clone(), Some(b.1.clone())));
            orders_and_returns(((a.0.clone(), a.1.clone()), a.2), ((b.0.clone(), b.1.clone()), b.2));
            orders_and_returns(a, b);
        }

        #[test]
        fn integers_and_chars_order(
            a: (u16, i16, u32, i32, u64, char),
            b: (u16, i16, u32, i32, u64, char),
        ) {
            orders_and_returns(a.1, b.1);
            orders_and_returns(a.3, b.3);
            orders_and_returns(a.5, b.5);
            // Few values each, so that the later parts decide as well.
            let few = |k: (u16, i16, u32, i32, u64, char)| (k.0 % 2, k.1 % 2, k.2 % 2, k.3 % 2, k.4 % 2, k.5);
            orders_and_returns(few(a), few(b));
        }

        #[test]
        fn bytes_order_as_keys_do(
            a in any::<(i64, String, Option<Vec<u8>>)>(),
            b in any::<(i64, String, Option<Vec<u8>>)>(),
            (c, d) in any::<(u128, u128)>(),
            (e, f) in any::<(i8, i8)>(),
        ) {
            orders_and_returns(c, d);
            orders_and_returns(e, f);
            orders_and_returns(a.0, b.0);
            orders_and_returns(a.1.clone(), b.1.clone());
            orders_and_returns((a.1.clone(), e, c), (b.1.clone(), f, d));
            orders_and_returns(((a.1.clone(), a.2.clone()), a.0), ((b.1.clone(), b.2.clone()), b.0));
            orders_and_returns((a.2, true, 'x', a.1, [1u8; 3]), (b.2, false, 'y', b.1, [2u8; 3]));
        }

        #[test]
        fn numbers_with_a_point_order_totally_and_keep_their_bits(
            a in prop::num::f64::ANY,
            b in prop::num::f64::ANY,
            c in prop::num::f32::ANY,
            d in prop::num::f32::ANY,
        ) {
            prop_assert_eq!(bytes(&a).cmp(&bytes(&b)), a.total_cmp(&b));
            prop_assert_eq!(bytes(&c).cmp(&bytes(&d)), c.total_cmp(&d));
            prop_assert_eq!(<f64 as Key>::decode(&bytes(&a)).map(f64::to_bits), Ok(a.to_bits()));
            prop_assert_eq!(<f32 as Key>::decode(&bytes(&c)).map(f32::to_bits), Ok(c.to_bits()));
        }

        #[test]
        fn arrays_order(
            a in (any::<[i16; 3]>(), [spiky(), spiky()], any::<u8>()),
            b in (any::<[i16; 3]>(), [spiky(), spiky()], any::<u8>()),
        ) {
            orders_and_returns(a.0, b.0);
            orders_and_returns(a.0.map(|n| n % 2), b.0.map(|n| n % 2));
            orders_and_returns(a.1.clone(), b.1.clone());
            orders_and_returns((a.1, a.2), (b.1, b.2));
        }

        #[test]
        fn what_a_key_lends_has_its_bytes(a: String, b: u32, c: Option<Vec<u8>>) {
            let lent = (a.as_str(), &b, c.as_deref());
            let mut out = Vec::new();
            AsKey::<(String, u32, Option<Vec<u8>>)>::encode(&lent, &mut out).unwrap();
            prop_assert_eq!(out, bytes(&(a, b, c)));
        }

        #[test]
        fn any_bytes_are_a_key_or_an_error(any: Vec<u8>) {
            if let Ok(key) = <([Option<f32>; 2], [Vec<u8>; 2]) as Key>::decode(&any) {
                prop_assert_eq!(bytes(&key), any.clone());
            }
            if let Ok(key) = <[u16; 0] as Key>::decode(&any) {
                prop_assert_eq!(bytes(&key), any.clone());
            }
            if let Ok(key) = <(Vec<u8>, Option<String>, i32) as Key>::decode(&any) {
                prop_assert_eq!(bytes(&key), any.clone());
            }
            if let Ok(key) = <(bool, char, [u8; 2], u16) as Key>::decode(&any) {
                prop_assert_eq!(bytes(&key), any);
            }
        }
    }
}
