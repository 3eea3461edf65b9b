//! An index of a typed table: [`Index`] with keys and values of Rust types.

use std::marker::PhantomData;

use super::read::{Index, IndexRange, IndexedRecord, IndexedRecords};
use crate::typed::{AsKey, EncodeError, Key, KeyPrefix, KeyRange, Value};
use crate::{Error, IndexDef, Table};

/// What errors call it.
const INDEX_KEY: &str = "index key";

/// An index with keys of type `I` of a table with keys of type `K` and values of type `V`. Made by [`Table::index`].
pub struct TypedIndex<I, K, V> {
    index: Index,
    table: Table<K, V>,
    types: PhantomData<fn() -> I>,
}

impl<I, K, V> Clone for TypedIndex<I, K, V> {
    fn clone(&self) -> Self {
        TypedIndex { index: self.index.clone(), table: self.table.clone(), types: PhantomData }
    }
}

impl<I, K, V> std::fmt::Debug for TypedIndex<I, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TypedIndex").field(&self.index).finish()
    }
}

impl<K: Key, V: Value> Table<K, V> {
    /// The index of this name. Its keys are of type `I`, as registered with
    /// [`Options::typed_index_extractor`](crate::Options::typed_index_extractor).
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`]. [`Error::TableTypeMismatch`] if the index has keys of another type. Keys that are bytes
    /// of the value can be read as `Vec<u8>`, `[u8; N]` and `String`.
    pub fn index<I: Key>(&self, name: &str) -> Result<TypedIndex<I, K, V>, Error> {
        let index = self.as_bytes().index(name)?;
        index.check_type(&I::TYPE)?;
        Ok(TypedIndex { index, table: self.clone(), types: PhantomData })
    }
}

impl<I: Key, K: Key, V: Value> TypedIndex<I, K, V> {
    /// Its definition.
    #[must_use]
    pub fn definition(&self) -> &IndexDef {
        self.index.definition()
    }

    /// The records with this index key, in the order of their primary keys. See [`Index::lookup`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Index::lookup`].
    pub fn lookup(&self, index_key: impl AsKey<I>) -> Result<TypedIndexRange<I, K, V>, Error> {
        let bytes = self.encoded(|bytes| index_key.encode(bytes))?;
        Ok(self.typed(self.index.lookup(&bytes)?))
    }

    /// The first record with this index key. A unique index has only one.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Index::get`], and [`Error::WrongType`].
    pub fn get(&self, index_key: impl AsKey<I>) -> Result<Option<(K, V)>, Error> {
        let first = self.lookup(index_key)?.next().transpose()?;
        Ok(first.map(|(_, key, value)| (key, value)))
    }

    /// The records whose index keys lie in `index_keys`, in order. The iterator can be read from the back too.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Index::range`].
    pub fn range(&self, index_keys: impl KeyRange<I>) -> Result<TypedIndexRange<I, K, V>, Error> {
        let bounds = self.table.here().bounds_of(INDEX_KEY, || index_keys.bounds())?;
        Ok(self.typed(self.index.range(bounds)?))
    }

    /// The records whose index keys begin with `prefix`. See [`KeyPrefix`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Index::range`].
    pub fn prefix(&self, prefix: impl KeyPrefix<I>) -> Result<TypedIndexRange<I, K, V>, Error> {
        let bytes = self.encoded(|bytes| prefix.encode_prefix(bytes))?;
        Ok(self.typed(self.index.prefix(&bytes)?))
    }

    fn encoded(&self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Result<Vec<u8>, Error> {
        self.table.here().encoded(INDEX_KEY, 16, encode)
    }

    fn typed(&self, range: IndexRange) -> TypedIndexRange<I, K, V> {
        TypedIndexRange { records: range.records(), table: self.table.clone(), types: PhantomData }
    }
}

/// An owned iterator over typed records by an index: index key, primary key, value.
#[derive(Debug)]
pub struct TypedIndexRange<I, K, V> {
    records: IndexedRecords,
    table: Table<K, V>,
    types: PhantomData<fn() -> I>,
}

impl<I: Key, K: Key, V: Value> TypedIndexRange<I, K, V> {
    fn record(&self, record: Result<IndexedRecord, Error>) -> Result<(I, K, V), Error> {
        let (index_key, key, value) = record?;
        let index_key = self.table.here().decoded(INDEX_KEY, || I::decode(&index_key))?;
        let key = self.table.here().key(&key)?;
        Ok((index_key, key, self.table.value(&value)?))
    }
}

impl<I: Key, K: Key, V: Value> Iterator for TypedIndexRange<I, K, V> {
    type Item = Result<(I, K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.next()?;
        Some(self.record(record))
    }
}

impl<I: Key, K: Key, V: Value> DoubleEndedIterator for TypedIndexRange<I, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let record = self.records.next_back()?;
        Some(self.record(record))
    }
}
