//! Values: encodings that come back. Numbers are little-endian; strings and bytes are as they are.
//!
//! | type | bytes |
//! | --- | --- |
//! | numbers, `bool`, `char` | little-endian |
//! | `String`, `Vec<u8>`, `[u8; N]` | as they are |
//! | `Duration`, `SystemTime` | whole seconds (since 1970, signed), 8 bytes, and nanoseconds, 4 bytes |
//! | `Uuid` (feature `uuid`) | its 16 bytes |
//! | `Option<V>` | 0 for none; 1 and the value |
//! | arrays of numbers | one behind the other |
//! | tuples, other arrays | parts behind each other, each but the last with its length before it as a u32 |

use super::{DecodeError, EncodeError, TypeName, byte_count};

/// A type that can be a value.
///
/// `#[derive(Value)]` implements it for structs (feature `derive`). By hand it takes two implementations: this trait,
/// and [`AsValue`] of the type for itself. The [module](super) has an example.
pub trait Value: AsValue<Self> + Sized {
    /// The type's name in the catalog. See [`Key::TYPE`](super::Key::TYPE).
    const TYPE: TypeName;

    /// The value that these bytes are.
    ///
    /// # Errors
    /// The bytes are not a value of this type.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// What stands for a value of type `V` in a call: the value itself, a reference to it, or what it lends, such as `str`
/// for `String`. All have the same bytes. `None` needs its type (`None::<&str>`), as in a key
/// ([`AsKey`](super::AsKey)).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not stand for a value of type `{V}`",
    note = "a table takes values of its own type, references to them, and what they lend, such as `&str` for `String`"
)]
pub trait AsValue<V> {
    /// Appends the value's bytes.
    ///
    /// # Errors
    /// The value has no encoding. What was appended does not count.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;
}

impl<V, Q: AsValue<V> + ?Sized> AsValue<V> for &Q {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (**self).encode(out)
    }
}

/// Appends a part that others follow: with its length before it, as a u32.
pub fn encode_part<V>(part: &(impl AsValue<V> + ?Sized), out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    part.encode(out)?;
    let len = out.len() - at - 4;
    let len = u32::try_from(len)
        .map_err(|_| EncodeError::of::<V>(format!("a part of {len} bytes; at most {} bytes fit", u32::MAX)))?;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Takes such a part off the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(part)
}

/// Takes a part that others follow off the front of `bytes`, and decodes it.
pub fn decode_part<V: Value>(bytes: &mut &[u8]) -> Result<V, DecodeError> {
    let all = *bytes;
    V::decode(take(bytes).ok_or_else(|| DecodeError::of::<V>(all))?)
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl AsValue<$t> for $t {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                out.extend_from_slice(&self.to_le_bytes());
                Ok(())
            }
        }

        impl Value for $t {
            const TYPE: TypeName = TypeName::Named(stringify!($t));
            #[inline]
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                bytes.try_into().map(<$t>::from_le_bytes).map_err(|_| DecodeError::of::<$t>(bytes))
            }
        }
    )*};
}

numbers!(u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl AsValue<u8> for u8 {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(*self);
        Ok(())
    }
}

impl Value for u8 {
    const TYPE: TypeName = TypeName::Named("u8");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if let [byte] = bytes { Ok(*byte) } else { Err(DecodeError::of::<u8>(bytes)) }
    }
}

impl AsValue<bool> for bool {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(*self));
        Ok(())
    }
}

impl Value for bool {
    const TYPE: TypeName = TypeName::Named("bool");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DecodeError::of::<bool>(bytes)),
        }
    }
}

impl AsValue<char> for char {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        AsValue::<u32>::encode(&u32::from(*self), out)
    }
}

impl Value for char {
    const TYPE: TypeName = TypeName::Named("char");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let found = <u32 as Value>::decode(bytes).ok().and_then(char::from_u32);
        found.ok_or_else(|| DecodeError::of::<char>(bytes))
    }
}

impl AsValue<()> for () {
    fn encode(&self, _: &mut Vec<u8>) -> Result<(), EncodeError> {
        Ok(())
    }
}

impl Value for () {
    const TYPE: TypeName = TypeName::Tuple(&[]);
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() { Ok(()) } else { Err(DecodeError::of::<()>(bytes)) }
    }
}

/// What lends its bytes as they are.
macro_rules! plain {
    ($($q:ty as $v:ty $(where $n:ident)?;)*) => {$(
        impl$(<const $n: usize>)? AsValue<$v> for $q {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                let bytes: &[u8] = self.as_ref();
                out.extend_from_slice(bytes);
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

impl Value for Vec<u8> {
    const TYPE: TypeName = TypeName::Named("bytes");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
}

impl Value for String {
    const TYPE: TypeName = TypeName::Named("string");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::of::<String>(bytes))
    }
}

/// How an array of these is laid out: by the name of its parts, so that types of one name can read each other's.
impl<V: Value, Q: AsValue<V>, const N: usize> AsValue<[V; N]> for [Q; N] {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let Some((last, rest)) = self.split_last() else { return Ok(()) };
        let Some(len) = (const { V::TYPE.number_bytes() }) else {
            rest.iter().try_for_each(|value| encode_part(value, out))?;
            return last.encode(out);
        };
        self.iter().try_for_each(|number| {
            let at = out.len();
            number.encode(out)?;
            match out.len() - at {
                found if found == len => Ok(()),
                found => Err(EncodeError::of::<V>(format!(
                    "{}; all of the name {} have {len}",
                    byte_count(found as u64),
                    V::TYPE
                ))),
            }
        })
    }
}

impl<V: Value, const N: usize> Value for [V; N] {
    const TYPE: TypeName = if V::TYPE.is_u8() { TypeName::Bytes(N) } else { TypeName::Array(&V::TYPE, N) };
    fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let all = bytes;
        let mut values = Vec::with_capacity(N);
        for no in 0..N {
            let is_last = no + 1 == N;
            let value = match const { V::TYPE.number_bytes() } {
                Some(len) => {
                    let (number, rest) = bytes.split_at_checked(len).ok_or_else(|| DecodeError::of::<[V; N]>(all))?;
                    bytes = rest;
                    V::decode(number)
                }
                None if is_last => V::decode(std::mem::take(&mut bytes)),
                None => decode_part(&mut bytes),
            };
            values.push(value?);
        }
        let values = if bytes.is_empty() { values.try_into().ok() } else { None };
        values.ok_or_else(|| DecodeError::of::<[V; N]>(all))
    }
}

impl<V: Value, Q: AsValue<V>> AsValue<Option<V>> for Option<Q> {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(self.is_some()));
        self.as_ref().map_or(Ok(()), |value| value.encode(out))
    }
}

impl<V: Value> Value for Option<V> {
    const TYPE: TypeName = TypeName::Of("option", &[V::TYPE]);
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, rest @ ..] => V::decode(rest).map(Some),
            _ => Err(DecodeError::of::<Option<V>>(bytes)),
        }
    }
}

macro_rules! tuple {
    ($($part:ident $lent:ident $no:tt),+; $last:ident $last_lent:ident $last_no:tt) => {
        impl<$($part, $lent: AsValue<$part>,)+ $last, $last_lent: AsValue<$last>> AsValue<($($part,)+ $last,)>
            for ($($lent,)+ $last_lent,)
        {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                $(encode_part::<$part>(&self.$no, out)?;)+
                self.$last_no.encode(out)
            }
        }

        impl<$($part: Value,)+ $last: Value> Value for ($($part,)+ $last,) {
            const TYPE: TypeName = TypeName::Tuple(&[$($part::TYPE,)+ $last::TYPE]);
            fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
                Ok(($(decode_part::<$part>(&mut bytes)?,)+ $last::decode(bytes)?,))
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
    use proptest::prelude::*;

    use super::*;

    fn check<V: Value>(value: &V, bytes: &[u8]) {
        let mut out = Vec::new();
        value.encode(&mut out).unwrap();
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
        check(&[0x0102_u16, 3], &[2, 1, 3, 0]);
        check(&[7_u8, 8], &[7, 8]);
        check(&["a".to_string(), "b".to_string()], &[1, 0, 0, 0, b'a', b'b']);
        check::<[String; 0]>(&[], &[]);
    }

    struct Cents(u32);

    impl AsValue<Cents> for Cents {
        fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
            AsValue::<u32>::encode(&self.0, out)
        }
    }

    impl Value for Cents {
        const TYPE: TypeName = <u32 as Value>::TYPE;
        fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
            Value::decode(bytes).map(Cents)
        }
    }

    /// One that takes a name whose bytes are not its own.
    struct Odd;

    impl AsValue<Odd> for Odd {
        fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
            out.extend([1, 2, 3]);
            Ok(())
        }
    }

    impl Value for Odd {
        const TYPE: TypeName = <u32 as Value>::TYPE;
        fn decode(_: &[u8]) -> Result<Self, DecodeError> {
            Ok(Odd)
        }
    }

    /// References to numbers, and types that share a number's name, are stored in arrays as the numbers are.
    #[test]
    fn what_stands_for_numbers_has_their_bytes_in_arrays() {
        fn encoded<V: Value>(value: &(impl AsValue<V> + ?Sized)) -> Vec<u8> {
            let mut out = Vec::new();
            value.encode(&mut out).unwrap();
            out
        }
        let bytes = encoded::<[u32; 2]>(&[7_u32, 8]);
        assert_eq!(bytes, [7, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(encoded::<[u32; 2]>(&[&7_u32, &8]), bytes);
        assert_eq!(encoded::<Option<[u32; 2]>>(&Some([&7_u32, &8]))[1..], bytes);
        assert_eq!(encoded::<[u8; 2]>(&[&7_u8, &8]), [7, 8]);
        assert_eq!(encoded::<[Cents; 2]>(&[Cents(7), Cents(8)]), bytes);
        assert_eq!(<[Cents; 2] as Value>::TYPE.to_string(), <[u32; 2] as Value>::TYPE.to_string());
        assert_eq!(<[Cents; 2]>::decode(&bytes).unwrap().map(|cents| cents.0), [7, 8]);
        assert_eq!(encoded::<[String; 2]>(&["a", "b"]), [1, 0, 0, 0, b'a', b'b']);
        let error = AsValue::<[Odd; 1]>::encode(&[Odd], &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("3 bytes; all of the name u32 have 4"), "{error}");
    }

    proptest! {
        #[test]
        fn values_come_back(value: (String, Option<i32>, Vec<u8>, (u8, bool))) {
            let mut bytes = Vec::new();
            AsValue::<(String, Option<i32>, Vec<u8>, (u8, bool))>::encode(&value, &mut bytes).unwrap();
            prop_assert_eq!(<(String, Option<i32>, Vec<u8>, (u8, bool)) as Value>::decode(&bytes), Ok(value));
        }

        #[test]
        fn numbers_come_back_to_the_bit(a: i128, b: u16, c in prop::num::f32::ANY, d in prop::num::f64::ANY, e: char) {
            let mut bytes = Vec::new();
            AsValue::<(i128, u16, f32, f64, char, ())>::encode(&(a, b, c, d, e, ()), &mut bytes).unwrap();
            let (a2, b2, c2, d2, e2, ()) = <(i128, u16, f32, f64, char, ()) as Value>::decode(&bytes).unwrap();
            prop_assert_eq!((a, b, c.to_bits(), d.to_bits(), e), (a2, b2, c2.to_bits(), d2.to_bits(), e2));
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(any: Vec<u8>) {
            let _ = <(String, Option<i32>, Vec<u8>, (u8, bool)) as Value>::decode(&any);
            let _ = <(f64, char, [u8; 3]) as Value>::decode(&any);
            let _ = <([f32; 2], [String; 2]) as Value>::decode(&any);
            prop_assert_eq!(<[String; 0] as Value>::decode(&any).is_ok(), any.is_empty());
        }

        #[test]
        fn arrays_come_back(numbers: [i16; 3], texts: [String; 2], bytes: [u8; 5]) {
            let mut out = Vec::new();
            let value = (numbers, texts, bytes);
            AsValue::<([i16; 3], [String; 2], [u8; 5])>::encode(&value, &mut out).unwrap();
            prop_assert_eq!(<([i16; 3], [String; 2], [u8; 5]) as Value>::decode(&out), Ok(value));
        }
    }
}
