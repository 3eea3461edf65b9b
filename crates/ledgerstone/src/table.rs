//! A typed table: [`BytesTable`] with keys and values of Rust types.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::typed::{DecodeError, Key, KeyRef, Value};
use crate::{BytesTable, Error, Range};

/// A table with keys of type `K` and values of type `V` in a transaction. Made by [`crate::Transaction::open`].
pub struct Table<K, V> {
    bytes: BytesTable,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table { bytes: self.bytes.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.bytes).finish()
    }
}

impl<K: Key, V: Value> Table<K, V> {
    pub(crate) fn new(bytes: BytesTable) -> Table<K, V> {
        Table { bytes, types: PhantomData }
    }

    /// The same table as byte strings.
    #[must_use]
    pub fn as_bytes(&self) -> &BytesTable {
        &self.bytes
    }

    /// The value of `key`, locked for reading until the transaction ends.
    ///
    /// # Errors
    /// As [`BytesTable::get`]; [`Error::WrongType`].
    pub fn get<Q: KeyRef + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        self.bytes.get(&encode_key(key))?.map(|bytes| self.value(&bytes)).transpose()
    }

    /// The value of `key`, locked so that only this transaction can change it next.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_for_update<Q: KeyRef + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        self.bytes.get_for_update(&encode_key(key))?.map(|bytes| self.value(&bytes)).transpose()
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn put<Q: KeyRef + ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.bytes.put(&encode_key(key), &encode_value(value))
    }

    /// Sets the value of a key that has none.
    ///
    /// # Errors
    /// As [`BytesTable::insert_new`].
    pub fn insert_new<Q: KeyRef + ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.bytes.insert_new(&encode_key(key), &encode_value(value))
    }

    /// Removes `key`; says whether it had a value.
    ///
    /// # Errors
    /// As [`BytesTable::delete`].
    pub fn delete<Q: KeyRef + ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        self.bytes.delete(&encode_key(key))
    }

    /// Removes all records whose keys lie in `keys`, and says how many there were.
    ///
    /// # Errors
    /// As [`BytesTable::delete_range`].
    pub fn delete_range(&self, keys: impl RangeBounds<K>) -> Result<u64, Error> {
        let (start, end) = (keys.start_bound().map(encode_key), keys.end_bound().map(encode_key));
        self.bytes.delete_between(start, end)
    }

    /// Fills a new or empty table with records that come in the order of their keys, or appends to one; see
    /// [`BytesTable::sorted_loader`]. Says how many there were. Other handles of this transaction to the table have to be
    /// opened again.
    ///
    /// # Errors
    /// [`Error::NotSorted`], and as [`BytesTable::put`].
    pub fn load_sorted(&mut self, records: impl IntoIterator<Item = (K, V)>) -> Result<u64, Error> {
        let records = records.into_iter().map(|(key, value)| (encode_key(&key), encode_value(&value)));
        self.bytes.load_sorted(records)
    }

    /// Replaces the value of `key` by what `change` makes of it, in one descent; says whether there was one. `None`
    /// leaves it as it is.
    ///
    /// # Errors
    /// As [`BytesTable::modify`]; [`Error::WrongType`], with nothing changed.
    pub fn modify<Q: KeyRef + ?Sized>(&self, key: &Q, change: impl FnOnce(V) -> Option<V>) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        let mut failed = None;
        let found = self.bytes.modify(&encode_key(key), |bytes| match V::decode(bytes) {
            Ok(value) => change(value).map(|value| encode_value(&value)),
            Err(error) => {
                failed = Some(error);
                None
            }
        })?;
        match failed {
            Some(error) => Err(self.wrong("value", error)),
            None => Ok(found),
        }
    }

    /// The value of `key`; if it has none, the result of `make` is put there first.
    ///
    /// # Errors
    /// As [`Table::get_for_update`] and [`Table::put`].
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V) -> Result<V, Error> {
        match self.get_for_update(key)? {
            Some(value) => Ok(value),
            None => {
                let inside = self.bytes.shared.users_code();
                let value = make();
                drop(inside);
                self.put(key, &value)?;
                Ok(value)
            }
        }
    }

    /// The records whose keys lie in `keys`, in order; from the back too.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn range(&self, keys: impl RangeBounds<K>) -> Result<TypedRange<K, V>, Error> {
        let own = |bound: Bound<&K>| match bound {
            Bound::Included(key) => Bound::Included(encode_key(key)),
            Bound::Excluded(key) => Bound::Excluded(encode_key(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let range = Range::new(self.bytes.clone(), own(keys.start_bound()), own(keys.end_bound()))?;
        Ok(TypedRange { range, table: self.clone() })
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.range(..)?.next().transpose()
    }

    /// The record with the largest key.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.range(..)?.next_back().transpose()
    }

    /// How many records there are, counted by reading them all.
    ///
    /// # Errors
    /// As [`BytesTable::count`].
    pub fn count(&self) -> Result<u64, Error> {
        self.bytes.count()
    }

    pub(crate) fn value(&self, bytes: &[u8]) -> Result<V, Error> {
        V::decode(bytes).map_err(|error| self.wrong("value", error))
    }

    pub(crate) fn wrong(&self, what: &str, error: DecodeError) -> Error {
        Error::WrongType { table: self.bytes.name().to_string(), what: format!("{what}: {error}") }
    }
}

pub(crate) fn encode_key<Q: KeyRef + ?Sized>(key: &Q) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    key.encode_ref(&mut bytes);
    bytes
}

fn encode_value<V: Value>(value: &V) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<V>());
    value.encode(&mut bytes);
    bytes
}

/// An owned iterator over typed records; see [`Range`].
#[derive(Debug)]
pub struct TypedRange<K, V> {
    range: Range,
    table: Table<K, V>,
}

impl<K: Key, V: Value> TypedRange<K, V> {
    fn typed(&self, record: Result<(Vec<u8>, Vec<u8>), Error>) -> Result<(K, V), Error> {
        let (key, value) = record?;
        let key = K::decode(&key).map_err(|error| self.table.wrong("key", error))?;
        Ok((key, self.table.value(&value)?))
    }
}

impl<K: Key, V: Value> Iterator for TypedRange<K, V> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.range.next()?;
        Some(self.typed(record))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for TypedRange<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let record = self.range.next_back()?;
        Some(self.typed(record))
    }
}
