//! Keys: encodings that order as bytes exactly as their values order.
//!
//! | type | bytes |
//! | --- | --- |
//! | unsigned integers | big-endian |
//! | signed integers | big-endian, sign bit flipped |
//! | `bool`, `char` | one byte; four, big-endian |
//! | `String`, `Vec<u8>`, `[u8; N]` | as they are |
//! | `Option<K>` | 0 for none; 1 and the key |
//! | tuples | parts behind each other; parts of variable length that are not the last are escaped |
//!
//! Escaped: each 0x00 is written 0x00 0xff, and 0x00 0x00 ends the part. So a part orders before its continuations.

use super::{DecodeError, TypeName};

/// A type that can be a key: its bytes order as its values do.
///
/// Implement it for your own types by way of those that have it. `encode` and `encode_part` append; bytes that come
/// from disk are decoded with all the checks that they need and no panic.
pub trait Key: Sized {
    /// What the catalog calls the type. It stands for the encoding, for good: types whose bytes mean the same, such as a wrapper of
    /// a number and the number, may share a name (`<u64 as Key>::TYPE`); a type whose bytes change needs another.
    const TYPE: TypeName;

    /// Appends the key as a whole key, or as the last part of one.
    fn encode(&self, out: &mut Vec<u8>);

    /// The key that these bytes are.
    ///
    /// # Errors
    /// They are none.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Appends the key as a part that others follow. The default is right for types whose bytes tell their own length.
    fn encode_part(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// Takes such a part off the front of `bytes`.
    ///
    /// # Errors
    /// There is none.
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError>;
}

/// What a key can be looked up by: the key itself, or what it lends, such as `str` for `String`. Both have the same bytes.
pub trait KeyRef {
    /// Appends the bytes of the whole key.
    fn encode_ref(&self, out: &mut Vec<u8>);
}

impl<K: Key> KeyRef for K {
    fn encode_ref(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

impl KeyRef for str {
    fn encode_ref(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl KeyRef for [u8] {
    fn encode_ref(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

fn split<'a, T>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (part, rest) = bytes.split_at_checked(len).ok_or(DecodeError::of::<T>(bytes))?;
    *bytes = rest;
    Ok(part)
}

/// Decodes a whole key as one part with nothing behind it.
fn whole<K: Key>(mut bytes: &[u8]) -> Result<K, DecodeError> {
    let all = bytes;
    let key = K::decode_part(&mut bytes)?;
    if bytes.is_empty() { Ok(key) } else { Err(DecodeError::of::<K>(all)) }
}

macro_rules! unsigned {
    ($($t:ty),*) => {$(
        impl Key for $t {
            const TYPE: TypeName = TypeName::Named(stringify!($t));
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                bytes.try_into().map(<$t>::from_be_bytes).map_err(|_| DecodeError::of::<$t>(bytes))
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Self::decode(split::<$t>(bytes, size_of::<$t>())?)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);

macro_rules! signed {
    ($($t:ty as $u:ty),*) => {$(
        impl Key for $t {
            const TYPE: TypeName = TypeName::Named(stringify!($t));
            fn encode(&self, out: &mut Vec<u8>) {
                ((*self as $u) ^ (1 << (<$u>::BITS - 1))).encode(out);
            }
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let flipped = <$u>::decode(bytes).map_err(|_| DecodeError::of::<$t>(bytes))?;
                Ok((flipped ^ (1 << (<$u>::BITS - 1))) as $t)
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Self::decode(split::<$t>(bytes, size_of::<$t>())?)
            }
        }
    )*};
}

signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, i128 as u128);

impl Key for bool {
    const TYPE: TypeName = TypeName::Named("bool");
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DecodeError::of::<bool>(bytes)),
        }
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Self::decode(split::<bool>(bytes, 1)?)
    }
}

impl Key for char {
    const TYPE: TypeName = TypeName::Named("char");
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        u32::decode(bytes).ok().and_then(char::from_u32).ok_or(DecodeError::of::<char>(bytes))
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Self::decode(split::<char>(bytes, 4)?)
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

impl Key for Vec<u8> {
    const TYPE: TypeName = TypeName::Named("bytes");
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
    fn encode_part(&self, out: &mut Vec<u8>) {
        escape(self, out);
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        unescape::<Vec<u8>>(bytes)
    }
}

impl Key for String {
    const TYPE: TypeName = TypeName::Named("string");
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::of::<String>(bytes))
    }
    fn encode_part(&self, out: &mut Vec<u8>) {
        escape(self.as_bytes(), out);
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Self::decode(&unescape::<String>(bytes)?)
    }
}

impl<const N: usize> Key for [u8; N] {
    const TYPE: TypeName = TypeName::Bytes(N);
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        bytes.try_into().map_err(|_| DecodeError::of::<[u8; N]>(bytes))
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Self::decode(split::<[u8; N]>(bytes, N)?)
    }
}

impl Key for () {
    const TYPE: TypeName = TypeName::Tuple(&[]);
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(bytes)
    }
    fn decode_part(_: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<K: Key> Key for Option<K> {
    const TYPE: TypeName = TypeName::Of("option", &[K::TYPE]);
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode(out);
        }
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, rest @ ..] => K::decode(rest).map(Some),
            _ => Err(DecodeError::of::<Option<K>>(bytes)),
        }
    }
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode_part(out);
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
    ($($part:ident $no:tt),+; $last:ident $last_no:tt) => {
        impl<$($part: Key,)+ $last: Key> Key for ($($part,)+ $last,) {
            const TYPE: TypeName = TypeName::Tuple(&[$($part::TYPE,)+ $last::TYPE]);
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$no.encode_part(out);)+
                self.$last_no.encode(out);
            }
            fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
                Ok(($($part::decode_part(&mut bytes)?,)+ $last::decode(bytes)?,))
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                $(self.$no.encode_part(out);)+
                self.$last_no.encode_part(out);
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(($($part::decode_part(bytes)?,)+ $last::decode_part(bytes)?,))
            }
        }
    };
}

tuple!(A 0; B 1);
tuple!(A 0, B 1; C 2);
tuple!(A 0, B 1, C 2; D 3);
tuple!(A 0, B 1, C 2, D 3; E 4);
tuple!(A 0, B 1, C 2, D 3, E 4; F 5);

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    fn bytes<K: Key>(key: &K) -> Vec<u8> {
        let mut out = Vec::new();
        key.encode(&mut out);
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
        fn any_bytes_are_a_key_or_an_error(any: Vec<u8>) {
            if let Ok(key) = <(Vec<u8>, Option<String>, i32)>::decode(&any) {
                prop_assert_eq!(bytes(&key), any.clone());
            }
            if let Ok(key) = <(bool, char, [u8; 2], u16)>::decode(&any) {
                prop_assert_eq!(bytes(&key), any);
            }
        }
    }
}
