//! Values by way of `serde`: [`Json`] and [`Postcard`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AsValue, DecodeError, EncodeError, TypeName, Value};

/// A type with a name of its own. The catalog keeps the name for tables whose values are `Json<T>` or `Postcard<T>`.
///
/// The name stands for what is stored, for good. If the type changes so that it could not read what it has written,
/// choose another name. It is not the name that Rust gives the type. So moving or renaming the type changes nothing.
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
    |value, out| serde_json::to_writer(out, value).map_err(|error| EncodeError::of::<T>(error)),
    |bytes| serde_json::from_slice(bytes).map_err(|error| DecodeError::because::<T>(bytes, error)),
    /// A value that is stored as JSON text. Fields may come and go as `serde` allows it (`#[serde(default)]`), indexes can be
    /// made of members ([`IndexKeys::Json`](crate::IndexKeys::Json)), and other programs can read it.
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
        Ok((_, rest)) => Err(DecodeError::because::<T>(bytes, format!("{} bytes too many", rest.len()))),
        Err(error) => Err(DecodeError::because::<T>(bytes, error)),
    },
    /// A value that is stored in the compact binary form of the `postcard` crate: fields in order, without their names. A type
    /// whose fields change cannot read what it has written, so give it another [`Named::NAME`] then.
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

    proptest! {
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
