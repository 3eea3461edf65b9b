//! Values: encodings that come back. Numbers are little-endian; strings and bytes are as they are.

use super::{DecodeError, TypeName};

/// A type that can be a value.
pub trait Value: Sized {
    /// What the catalog calls the type; see [`Key::TYPE`](super::Key::TYPE).
    const TYPE: TypeName;

    /// Appends the value's bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// The value that these bytes are.
    ///
    /// # Errors
    /// They are none.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Value for $t {
            const TYPE: TypeName = TypeName::Named(stringify!($t));
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                bytes.try_into().map(<$t>::from_le_bytes).map_err(|_| DecodeError::of::<$t>(bytes))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl Value for bool {
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
}

impl Value for char {
    const TYPE: TypeName = TypeName::Named("char");
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        <u32 as Value>::decode(bytes).ok().and_then(char::from_u32).ok_or(DecodeError::of::<char>(bytes))
    }
}

impl Value for () {
    const TYPE: TypeName = TypeName::Tuple(&[]);
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() { Ok(()) } else { Err(DecodeError::of::<()>(bytes)) }
    }
}

impl Value for Vec<u8> {
    const TYPE: TypeName = TypeName::Named("bytes");
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
}

impl Value for String {
    const TYPE: TypeName = TypeName::Named("string");
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::of::<String>(bytes))
    }
}

impl<const N: usize> Value for [u8; N] {
    const TYPE: TypeName = TypeName::Bytes(N);
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        bytes.try_into().map_err(|_| DecodeError::of::<[u8; N]>(bytes))
    }
}

impl<V: Value> Value for Option<V> {
    const TYPE: TypeName = TypeName::Of("option", &[V::TYPE]);
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, rest @ ..] => V::decode(rest).map(Some),
            _ => Err(DecodeError::of::<Option<V>>(bytes)),
        }
    }
}

/// Each part but the last with its length before it, as a u32.
macro_rules! tuple {
    ($($part:ident $no:tt),+; $last:ident $last_no:tt) => {
        impl<$($part: Value,)+ $last: Value> Value for ($($part,)+ $last,) {
            const TYPE: TypeName = TypeName::Tuple(&[$($part::TYPE,)+ $last::TYPE]);
            fn encode(&self, out: &mut Vec<u8>) {
                $({
                    let at = out.len();
                    out.extend_from_slice(&[0; 4]);
                    self.$no.encode(out);
                    // A part above 4 GiB could not be stored either way; its length says so when it is read.
                    let len = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
                    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
                })+
                self.$last_no.encode(out);
            }
            fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
                let all = bytes;
                Ok(($($part::decode(take::<Self>(all, &mut bytes)?)?,)+ $last::decode(bytes)?,))
            }
        }
    };
}

fn take<'a, T>(all: &[u8], bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let (len, rest) = bytes.split_at_checked(4).ok_or(DecodeError::of::<T>(all))?;
    let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
    let (part, rest) = rest.split_at_checked(len).ok_or(DecodeError::of::<T>(all))?;
    *bytes = rest;
    Ok(part)
}

tuple!(A 0; B 1);
tuple!(A 0, B 1; C 2);
tuple!(A 0, B 1, C 2; D 3);
tuple!(A 0, B 1, C 2, D 3; E 4);
tuple!(A 0, B 1, C 2, D 3, E 4; F 5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check<V: Value>(value: &V, bytes: &[u8]) {
        let mut out = Vec::new();
        value.encode(&mut out);
        assert_eq!(out, bytes);
    }

    /// These bytes are in files: a change of one is a new format.
    #[test]
    fn the_encodings_are_what_the_files_hold() {
        check(&0x0102_u16, &[2, 1]);
        check(&-2_i32, &[0xfe, 0xff, 0xff, 0xff]);
        check(&1.5_f32, &[0, 0, 0xc0, 0x3f]);
        check(&true, &[1]);
        check(&'a', &[0x61, 0, 0, 0]);
        check(&(), &[]);
        check(&"ab".to_string(), b"ab");
        check(&None::<u8>, &[0]);
        check(&Some(7_u8), &[1, 7]);
        check(&("ab".to_string(), 7_u8), &[2, 0, 0, 0, b'a', b'b', 7]);
    }

    proptest! {
        #[test]
        fn values_come_back(value: (String, Option<i32>, Vec<u8>, (u8, bool))) {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            prop_assert_eq!(<(String, Option<i32>, Vec<u8>, (u8, bool)) as Value>::decode(&bytes), Ok(value));
        }

        #[test]
        fn numbers_come_back_to_the_bit(a: i128, b: u16, c in prop::num::f32::ANY, d in prop::num::f64::ANY, e: char) {
            let mut bytes = Vec::new();
            (a, b, c, d, e, ()).encode(&mut bytes);
            let (a2, b2, c2, d2, e2, ()) = <(i128, u16, f32, f64, char, ()) as Value>::decode(&bytes).unwrap();
            prop_assert_eq!((a, b, c.to_bits(), d.to_bits(), e), (a2, b2, c2.to_bits(), d2.to_bits(), e2));
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(any: Vec<u8>) {
            let _ = <(String, Option<i32>, Vec<u8>, (u8, bool)) as Value>::decode(&any);
            let _ = <(f64, char, [u8; 3]) as Value>::decode(&any);
        }
    }
}
