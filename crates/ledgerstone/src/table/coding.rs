//! Keys and values of Rust types, to bytes and back: what typed handles of a transaction and of the environment have in
//! common. The code of the types is the program's, and may call back.

use std::ops::Bound;

use super::here::TableIn;
use crate::Error;
use crate::typed::{AsKey, AsValue, DecodeError, EncodeError, Key, KeyBounds, KeyPrefix, KeyRange, Value};
use ledgerstone_core::typed::prefix_end;

/// The range of the keys that begin with `prefix`.
pub(super) fn prefix_bounds(prefix: Vec<u8>) -> KeyBounds {
    let end = prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix), end)
}

impl TableIn<'_> {
    /// Runs a program's code of key and value types, which may call back.
    #[inline]
    fn run_types<T>(self, f: impl FnOnce() -> T) -> T {
        let _inside = self.shared.users_code();
        f()
    }

    pub(super) fn key_bytes<K>(self, key: impl AsKey<K>) -> Result<Vec<u8>, Error> {
        self.encoded("key", 16, |out| key.encode(out))
    }

    pub(super) fn value_bytes<V>(self, value: impl AsValue<V>) -> Result<Vec<u8>, Error> {
        self.encoded("value", size_of::<V>(), |out| value.encode(out))
    }

    /// The ends of a range.
    pub(super) fn key_bounds<K>(self, keys: impl KeyRange<K>) -> Result<KeyBounds, Error> {
        self.bounds_of("key", || keys.bounds())
    }

    pub(super) fn bounds_of(
        self,
        what: &'static str,
        bounds: impl FnOnce() -> Result<KeyBounds, EncodeError>,
    ) -> Result<KeyBounds, Error> {
        self.run_types(bounds).map_err(|error| self.not_encodable(what, error))
    }

    pub(super) fn key_prefix<K>(self, prefix: impl KeyPrefix<K>) -> Result<KeyBounds, Error> {
        Ok(prefix_bounds(self.encoded("prefix", 16, |start| prefix.encode_prefix(start))?))
    }

    #[inline]
    pub(super) fn encoded(
        self,
        what: &'static str,
        len: usize,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(len);
        self.encode_to(what, &mut bytes, encode)?;
        Ok(bytes)
    }

    #[inline]
    pub(super) fn encode_to(
        self,
        what: &'static str,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<(), Error> {
        self.run_types(|| encode(out)).map_err(|error| self.not_encodable(what, error))
    }

    fn not_encodable(self, what: &'static str, source: EncodeError) -> Error {
        Error::NotEncodable { table: self.info.name.clone(), what, source: Box::new(source) }
    }

    pub(super) fn key<K: Key>(self, bytes: &[u8]) -> Result<K, Error> {
        self.decoded("key", || K::decode(bytes))
    }

    pub(super) fn value<V: Value>(self, bytes: &[u8]) -> Result<V, Error> {
        self.decoded("value", || V::decode(bytes))
    }

    pub(super) fn record<K: Key, V: Value>(self, key: &[u8], value: &[u8]) -> Result<(K, V), Error> {
        Ok((self.key(key)?, self.value(value)?))
    }

    #[inline]
    pub(super) fn decoded<T>(self, what: &str, decode: impl FnOnce() -> Result<T, DecodeError>) -> Result<T, Error> {
        self.run_types(decode)
            .map_err(|error| Error::WrongType { table: self.info.name.clone(), what: format!("{what}: {error}") })
    }

    /// As [`TableIn::modify`], with the value decoded; nothing has changed if the old one or the new one is refused.
    pub(super) fn modify_as<V: Value>(self, key: &[u8], change: impl FnOnce(V) -> Option<V>) -> Result<bool, Error> {
        let mut failed = None;
        let found = self.modify(key, |bytes| {
            let new = self.value(bytes).and_then(|value| change(value).map(|new| self.value_bytes(new)).transpose());
            new.unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        })?;
        failed.map_or(Ok(found), Err)
    }
}
