//! Values by way of `serde`: [`Json`] and [`Postcard`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AsValue, DecodeError, EncodeError, TypeName, Value};

/// A type with a name of its own. The catalog keeps the name for tables whose values are `Json<T>` or `Postcard<T>`.
///
/// The name stands for what is stored, for good. If the type changes so that it could not read what it has written,
/// choose another name. It is not the name that Rust gives the type. So moving or renaming the type changes nothing.
///
/// Numbers, text, tuples, arrays, lists, sets, maps and options of named types have names already.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no name for the catalog",
    label = "needs `impl Named for {Self}`",
    note = "write `impl Named for ... {{ const NAME: TypeName = TypeName::Named(\"program.type\"); }}`"
)]
pub trait Named {
    /// The name. Put the name of your program before it: `TypeName::Named("shop.order")`.
    const NAME: TypeName;
}

impl<T: Named> Named for Vec<T> {
    const NAME: TypeName = TypeName::Of("list", &[T::NAME]);
}

impl<T: Named> Named for Option<T> {
    const NAME: TypeName = TypeName::Of("option", &[T::NAME]);
}

impl<T: Named> Named for &T {
    const NAME: TypeName = T::NAME;
}

impl<T: Named> Named for Box<T> {
    const NAME: TypeName = T::NAME;
}

impl<T: Named, const N: usize> Named for [T; N] {
    const NAME: TypeName = TypeName::Array(&T::NAME, N);
}

// The two kinds of maps are stored alike. So are the two kinds of sets, which are lists.
impl<K: Named, V: Named, S> Named for HashMap<K, V, S> {
    const NAME: TypeName = TypeName::Of("map", &[K::NAME, V::NAME]);
}

impl<K: Named, V: Named> Named for BTreeMap<K, V> {
    const NAME: TypeName = TypeName::Of("map", &[K::NAME, V::NAME]);
}

impl<T: Named, S> Named for HashSet<T, S> {
    const NAME: TypeName = TypeName::Of("list", &[T::NAME]);
}

impl<T: Named> Named for BTreeSet<T> {
    const NAME: TypeName = TypeName::Of("list", &[T::NAME]);
}

impl Named for String {
    const NAME: TypeName = TypeName::Named("string");
}

macro_rules! plain {
    ($($t:ty)*) => {$(
        impl Named for $t {
            const NAME: TypeName = TypeName::Named(stringify!($t));
        }
    )*};
}

plain! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 bool char }

macro_rules! tuples {
    ($($($part:ident)+),+) => {$(
        impl<$($part: Named),+> Named for ($($part,)+) {
            const NAME: TypeName = TypeName::Tuple(&[$($part::NAME),+]);
        }
    )+};
}

tuples! { A, A B, A B C, A B C D, A B C D E, A B C D E F }

#[cfg(feature = "json")]
impl Named for serde_json::Value {
    const NAME: TypeName = TypeName::Named("any");
}

macro_rules! by_serde {
    ($wrapper:ident, $name:literal, $feature:literal, $encode:expr, $decode:expr, $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[cfg(feature = $feature)]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $wrapper<T>(
            /// The value itself.
            pub T,
        );

        #[cfg(feature = $feature)]
        impl<T: Named + Serialize> AsValue<$wrapper<T>> for $wrapper<T> {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                let encode: fn(&T, &mut Vec<u8>) -> Result<(), EncodeError> = $encode;
                encode(&self.0, out)
            }
        }

        #[cfg(feature = $feature)]
        impl<T: Named + Serialize> AsValue<$wrapper<T>> for $wrapper<&T> {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                let encode: fn(&T, &mut Vec<u8>) -> Result<(), EncodeError> = $encode;
                encode(self.0, out)
            }
        }

        #[cfg(feature = $feature)]
        impl<T: Named + Serialize + DeserializeOwned> Value for $wrapper<T> {
            const TYPE: TypeName = TypeName::Of($name, &[T::NAME]);
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let decode: fn(&[u8]) -> Result<T, DecodeError> = $decode;
                decode(bytes).map($wrapper)
            }
        }
    };
}

by_serde!(
    Json,
    "json",
    "json",
    |value, out| {
        super::json_check::check(value).map_err(|refused| EncodeError::of::<T>(refused))?;
        serde_json::to_writer(out, value).map_err(|error| EncodeError::of::<T>(error))
    },
    |bytes| serde_json::from_slice(bytes).map_err(|error| DecodeError::because::<T>(bytes, error)),
    /// A value that is stored as JSON text. Fields may come and go as `serde` allows it (`#[serde(default)]`), indexes
    /// can be made of members ([`IndexKeys::Json`](crate::catalog::IndexKeys::Json)), and other programs can read it.
    /// Numbers come back to the bit. Values that hold a number which is not finite, or more than 127 arrays and objects
    /// inside each other, are refused.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// # let txn = env.begin()?;
    /// use ledgerstone::typed::{Json, Named, TypeName};
    ///
    /// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    /// struct Order {
    ///     customer: String,
    ///     cents: u64,
    /// }
    ///
    /// impl Named for Order {
    ///     const NAME: TypeName = TypeName::Named("shop.order");
    /// }
    ///
    /// const ORDERS: ledgerstone::TableDef<u64, Json<Order>> = ledgerstone::TableDef::new("orders");
    /// let orders = txn.open(ORDERS)?;
    /// let order = Order { customer: "Ann".into(), cents: 1250 };
    /// orders.put(1, Json(&order))?;
    /// assert_eq!(orders.get(1)?, Some(Json(order)));
    /// # Ok(())
    /// # }
    /// ```
);

by_serde!(
    Postcard,
    "postcard",
    "postcard",
    |value, out| {
        let start = std::mem::take(out);
        *out = postcard::to_extend(value, start).map_err(|error| EncodeError::of::<T>(error))?;
        Ok(())
    },
    |bytes| match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(DecodeError::because::<T>(bytes, format!("{} too many", super::byte_count(rest.len() as u64)))),
        Err(error) => Err(DecodeError::because::<T>(bytes, error)),
    },
    /// A value that is stored in the compact binary form of the `postcard` crate: fields in order, without their names.
    /// A type whose fields change cannot read what it has written, so give it another [`Named::NAME`] then. The text
    /// does not say what it holds, so types that `serde` reads by looking at it (`untagged`, `flatten`) are stored, but
    /// not read back: use [`Json`].
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// # let txn = env.begin()?;
    /// use ledgerstone::typed::{Named, Postcard, TypeName};
    ///
    /// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    /// struct Point {
    ///     x: i32,
    ///     y: i32,
    /// }
    ///
    /// impl Named for Point {
    ///     const NAME: TypeName = TypeName::Named("map.point");
    /// }
    ///
    /// const POINTS: ledgerstone::TableDef<String, Postcard<Point>> = ledgerstone::TableDef::new("points");
    /// let points = txn.open(POINTS)?;
    /// points.put("home", Postcard(Point { x: 3, y: -4 }))?;
    /// assert_eq!(points.get("home")?, Some(Postcard(Point { x: 3, y: -4 })));
    /// # Ok(())
    /// # }
    /// ```
);

#[cfg(all(test, feature = "json", feature = "postcard"))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Order {
        customer: String,
        cents: u64,
        notes: Option<Vec<i8>>,
    }

    impl Named for Order {
        const NAME: TypeName = TypeName::Named("shop.order");
    }

    /// JSON has no such keys.
    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    struct Odd(HashMap<(u8, u8), u8>);

    impl Named for Odd {
        const NAME: TypeName = TypeName::Named("odd");
    }

    fn bytes<V: Value>(value: &V) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![9];
        value.encode(&mut out).map(|()| out.split_off(1))
    }

    /// These bytes are in files: a change of one is a new format.
    #[test]
    fn the_encodings_are_what_the_files_hold() {
        let order = Order { customer: "Ann".into(), cents: 300, notes: Some(vec![-1]) };
        assert_eq!(bytes(&Json(order.clone())).unwrap(), br#"{"customer":"Ann","cents":300,"notes":[-1]}"#);
        assert_eq!(bytes(&Postcard(order)).unwrap(), b"\x03Ann\xac\x02\x01\x01\xff");
        assert_eq!(<Json<Vec<Order>> as Value>::TYPE.to_string(), "json<list<shop.order>>");
        assert_eq!(<Postcard<Order> as Value>::TYPE.to_string(), "postcard<shop.order>");
    }

    #[test]
    fn what_has_no_encoding_is_an_error_that_says_why() {
        let error = bytes(&Json(Odd(HashMap::from([((1, 2), 3)])))).unwrap_err();
        assert!(error.to_string().ends_with("cannot be encoded: key must be a string"), "{error}");
        let error = <Json<Order> as Value>::decode(br#"{"customer":"Ann"}"#).unwrap_err();
        assert!(error.to_string().contains("missing field `cents`"), "{error}");
    }

    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    enum Shape {
        Dots(Vec<Shape>),
        Line(f32, f32),
        Circle { around: Box<Option<Shape>> },
    }

    impl Named for Shape {
        const NAME: TypeName = TypeName::Named("shape");
    }

    #[test]
    fn what_json_would_not_give_back_is_refused() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = bytes(&Json(number)).unwrap_err();
            assert!(error.to_string().contains("JSON has no number"), "{error}");
            assert!(bytes(&Json(Some(number))).is_err());
            assert!(bytes(&Json(vec![0.5, number])).is_err());
            assert!(bytes(&Postcard(number)).is_ok());
        }
        assert!(bytes(&Json(Shape::Line(0.0, f32::NAN))).is_err());
        assert!(bytes(&Json(Some(None::<f64>))).is_err());
        assert!(bytes(&Json(Some(serde_json::Value::Null))).is_err());
        assert!(bytes(&Json(Some(vec![None::<f64>]))).is_ok());
        assert_eq!(bytes(&Json(None::<f64>)).unwrap(), b"null");
        let line = Shape::Line(0.5, 0.25);
        assert!(bytes(&Json(Shape::Circle { around: Box::new(Some(line)) })).is_ok());
    }

    /// Exactly what can be read back is taken.
    #[test]
    fn values_are_nested_as_deeply_as_they_can_be_read() {
        for depth in [1, 126, 127, 128, 129, 1000] {
            let nested = (1..depth).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
            let text = serde_json::to_vec(&nested).unwrap();
            assert_eq!(
                bytes(&Json(nested)).is_ok(),
                serde_json::from_slice::<serde_json::Value>(&text).is_ok(),
                "{depth}"
            );
        }
        for depth in 0..70 {
            let dots = (0..depth).fold(Shape::Line(0.0, 1.0), |inner, _| Shape::Dots(vec![inner]));
            let text = serde_json::to_vec(&dots).unwrap();
            assert_eq!(bytes(&Json(dots)).is_ok(), serde_json::from_slice::<Shape>(&text).is_ok(), "{depth}");
            let circles = (0..depth).fold(None, |inner, _| Some(Shape::Circle { around: Box::new(inner) }));
            let text = serde_json::to_vec(&circles).unwrap();
            assert_eq!(
                bytes(&Json(circles)).is_ok(),
                serde_json::from_slice::<Option<Shape>>(&text).is_ok(),
                "{depth}"
            );
        }
    }

    #[test]
    fn a_number_of_json_comes_back_to_the_bit() {
        let number: f64 = 94.527_069_555_392_23;
        let back = <Json<f64> as Value>::decode(&bytes(&Json(number)).unwrap()).unwrap();
        assert_eq!(back.0.to_bits(), number.to_bits());
    }

    proptest! {
        #[test]
        fn numbers_of_json_come_back_to_the_bit(number in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO) {
            let back = <Json<f64> as Value>::decode(&bytes(&Json(number)).unwrap()).unwrap();
            prop_assert_eq!(back.0.to_bits(), number.to_bits());
        }

        #[test]
        fn values_come_back(customer: String, cents: u64, notes: Option<Vec<i8>>) {
            let order = Order { customer, cents, notes };
            let json = Json(order.clone());
            prop_assert_eq!(<Json<Order> as Value>::decode(&bytes(&json).unwrap()), Ok(json));
            let postcard = Postcard(order);
            prop_assert_eq!(<Postcard<Order> as Value>::decode(&bytes(&postcard).unwrap()), Ok(postcard.clone()));
            let longer = [bytes(&postcard).unwrap(), vec![0]].concat();
            prop_assert!(<Postcard<Order> as Value>::decode(&longer).is_err());
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(any: Vec<u8>) {
            let _ = <Json<Order> as Value>::decode(&any);
            let _ = <Postcard<Order> as Value>::decode(&any);
        }
    }
}
