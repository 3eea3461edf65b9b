//! A typed table: [`BytesTable`] with keys and values of Rust types.

use std::marker::PhantomData;

use ledgerstone_structures::Direction;

use super::here::TableIn;
use crate::typed::{AsKey, AsValue, Key, KeyPrefix, KeyRange, Value};
use crate::{BytesTable, Error, Range, SortedLoader, TypedEntry};

/// A table with keys of type `K` and values of type `V` in a transaction. Made by [`crate::Transaction::open`].
///
/// All calls may wait for locks and for pages to be read. Those that change something may also wait for room in the
/// log.
///
/// Keys and values are passed by value, by reference, or as a borrowed form ([`AsKey`], [`AsValue`]):
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// # let txn = env.begin()?;
/// const CAPITALS: ledgerstone::TableDef<(String, u32), String> = ledgerstone::TableDef::new("capitals");
/// let capitals = txn.open(CAPITALS)?;
/// capitals.put(("Norway", 1299), "Oslo")?;
/// assert_eq!(capitals.insert(("Finland", 1809), "Turku")?, None);
/// assert_eq!(capitals.insert(("Finland", 1812), "Helsinki")?, None);
/// assert_eq!(capitals.prefix(("Finland",))?.count(), 2);
/// assert_eq!(capitals.remove(("Finland", 1809))?.as_deref(), Some("Turku"));
/// assert_eq!(capitals.pop_last()?, Some((("Norway".to_string(), 1299), "Oslo".to_string())));
/// assert!(!capitals.is_empty()?);
/// # Ok(())
/// # }
/// ```
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

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.bytes.name()
    }

    /// The value of `key`, as the transaction's [`Isolation`](crate::Isolation) sees it. A serializable transaction
    /// locks it for reading until it ends.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`], [`Error::WrongType`], [`Error::NotEncodable`].
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<V>, Error> {
        self.here().look_at(&self.key_bytes(key)?, |bytes| self.value(bytes))?.transpose()
    }

    /// Calls `read` with the bytes of `key`'s value, without decoding or allocating. See [`BytesTable::get_with`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`], and [`Error::NotEncodable`].
    pub fn get_with<T>(&self, key: impl AsKey<K>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        self.bytes.get_with(self.key_bytes(key)?, read)
    }

    /// The value of `key`, locked so that only this transaction can change it next.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`], [`Error::WrongType`], [`Error::NotEncodable`].
    pub fn get_for_update(&self, key: impl AsKey<K>) -> Result<Option<V>, Error> {
        self.bytes.get_for_update(self.key_bytes(key)?)?.map(|bytes| self.value(&bytes)).transpose()
    }

    /// True if `key` has a value.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`], and [`Error::NotEncodable`].
    pub fn contains(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.bytes.contains(self.key_bytes(key)?)
    }

    /// Sets the value of `key`.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`], and [`Error::NotEncodable`].
    pub fn put(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        self.put_at(&self.key_bytes(key)?, value)
    }

    pub(crate) fn put_at(&self, key: &[u8], value: impl AsValue<V>) -> Result<(), Error> {
        self.bytes.put(key, self.value_bytes(value)?)
    }

    /// Sets the value of `key` and returns the one that it had, if any. [`Table::put`] does not read the old one.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::insert`], and [`Error::NotEncodable`]. [`Error::WrongType`], with nothing changed.
    pub fn insert(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<Option<V>, Error> {
        self.here().insert_as(&self.key_bytes(key)?, &self.value_bytes(value)?, |old| self.value(&old))
    }

    /// Sets the value of a key that has none.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::insert_new`], and [`Error::NotEncodable`].
    pub fn insert_new(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        self.bytes.insert_new(self.key_bytes(key)?, self.value_bytes(value)?)
    }

    /// Removes `key`, and returns whether it had a value.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::delete`], and [`Error::NotEncodable`].
    pub fn delete(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.bytes.delete(self.key_bytes(key)?)
    }

    /// Removes `key` and returns the value that it had. [`Table::delete`] does not read it.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::remove`], and [`Error::NotEncodable`]. [`Error::WrongType`], with nothing changed.
    pub fn remove(&self, key: impl AsKey<K>) -> Result<Option<V>, Error> {
        self.here().remove_as(&self.key_bytes(key)?, |value| self.value(&value))
    }

    /// Removes the record with the smallest key and returns it. See [`BytesTable::pop_first`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::pop_first`]. [`Error::WrongType`], with nothing changed.
    pub fn pop_first(&self) -> Result<Option<(K, V)>, Error> {
        self.here().pop_as(Direction::Forward, |key, value| self.record(key, &value))
    }

    /// Removes the record with the largest key and returns it. See [`BytesTable::pop_first`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(K, V)>, Error> {
        self.here().pop_as(Direction::Backward, |key, value| self.record(key, &value))
    }

    /// Removes all records whose keys lie in `keys`, and returns how many there were.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::delete_range`], and [`Error::NotEncodable`].
    pub fn delete_range(&self, keys: impl KeyRange<K>) -> Result<u64, Error> {
        self.here().delete_between(self.here().key_bounds::<K>(keys)?)
    }

    /// Fills a new or empty table with records that come in the order of their keys, or appends them to a table. See
    /// [`BytesTable::sorted_loader`]. Returns how many there were. Other handles of this transaction to the table have
    /// to be opened again.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotSorted`], [`Error::NotAtEnd`], [`Error::NotEncodable`], and as [`BytesTable::put`].
    pub fn load_sorted(
        &mut self,
        records: impl IntoIterator<Item = (impl AsKey<K>, impl AsValue<V>)>,
    ) -> Result<u64, Error> {
        self.try_load_sorted(records.into_iter().map(Ok))
    }

    /// The same for records whose source may fail, such as lines of a file. The first `Err` ends the load and is
    /// returned; none of the records is loaded then.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Those of the source, and as [`Table::load_sorted`].
    pub fn try_load_sorted<E: From<Error>>(
        &mut self,
        records: impl IntoIterator<Item = Result<(impl AsKey<K>, impl AsValue<V>), E>>,
    ) -> Result<u64, E> {
        let (count, table) = self.sorted_loader()?.load_all(records)?;
        *self = table;
        Ok(count)
    }

    /// Begins to load records that come in the order of their keys, one call each. [`Table::load_sorted`] is shorter
    /// where an iterator has them. See [`BytesTable::sorted_loader`].
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// # let txn = env.begin()?;
    /// let mut loader = txn.open(ledgerstone::TableDef::<u32, String>::new("squares"))?.sorted_loader()?;
    /// for n in 0..100_u32 {
    ///     loader.push(n, (n * n).to_string())?;
    /// }
    /// let squares = loader.finish()?;
    /// assert_eq!(squares.get(12)?.as_deref(), Some("144"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::sorted_loader`].
    pub fn sorted_loader(&self) -> Result<TypedSortedLoader<K, V>, Error> {
        Ok(TypedSortedLoader::new(self.bytes.sorted_loader()?))
    }

    /// Replaces the value of `key` by what `change` makes of it, in one descent. Returns whether there was one. `None`
    /// leaves it as it is.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::modify`]. [`Error::WrongType`] and [`Error::NotEncodable`], with nothing changed.
    pub fn modify(&self, key: impl AsKey<K>, change: impl FnOnce(V) -> Option<V>) -> Result<bool, Error> {
        self.here().modify_as(&self.key_bytes(key)?, change)
    }

    /// The place of `key`, to look at and to fill.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// # let txn = env.begin()?;
    /// let words = txn.open(ledgerstone::TableDef::<String, u64>::new("words"))?;
    /// for word in "the cat and the dog".split(' ') {
    ///     words.entry(word)?.and_modify(|count| *count += 1)?.or_insert(1)?;
    /// }
    /// assert_eq!(words.get("the")?, Some(2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get_for_update`].
    pub fn entry(&self, key: impl AsKey<K>) -> Result<TypedEntry<K, V>, Error> {
        TypedEntry::new(self, self.key_bytes(key)?)
    }

    /// The value of `key`. If it has none, the result of `make` is put there first.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get_for_update`] and [`Table::put`].
    pub fn get_or_insert_with(&self, key: impl AsKey<K>, make: impl FnOnce() -> V) -> Result<V, Error> {
        self.entry(key)?.or_insert_with(make)
    }

    /// The records whose keys lie in `keys`, in order. The iterator can be read from the back too.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`], and [`Error::NotEncodable`].
    pub fn range(&self, keys: impl KeyRange<K>) -> Result<TypedRange<K, V>, Error> {
        let (start, end) = self.here().key_bounds::<K>(keys)?;
        Ok(TypedRange::new(Range::new(self.bytes.clone(), start, end)?))
    }

    /// The records whose keys begin with `prefix`: the first characters of a string, or the leading parts of a tuple.
    /// See [`KeyPrefix`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn prefix(&self, prefix: impl KeyPrefix<K>) -> Result<TypedRange<K, V>, Error> {
        let (start, end) = self.here().key_prefix::<K>(prefix)?;
        Ok(TypedRange::new(Range::new(self.bytes.clone(), start, end)?))
    }

    /// The record with the smallest key.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.range(..)?.next().transpose()
    }

    /// The record with the largest key.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.range(..)?.next_back().transpose()
    }

    /// True if there is no record.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.bytes.is_empty()
    }

    /// How many records there are, counted by reading them all.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::count`].
    pub fn count(&self) -> Result<u64, Error> {
        self.bytes.count()
    }

    /// The table and the transaction, lent.
    #[inline]
    pub(super) fn here(&self) -> TableIn<'_> {
        self.bytes.here()
    }

    fn key_bytes(&self, key: impl AsKey<K>) -> Result<Vec<u8>, Error> {
        self.here().key_bytes::<K>(key)
    }

    fn value_bytes(&self, value: impl AsValue<V>) -> Result<Vec<u8>, Error> {
        self.here().value_bytes::<V>(value)
    }

    fn record(&self, key: &[u8], value: &[u8]) -> Result<(K, V), Error> {
        self.here().record(key, value)
    }

    pub(super) fn value(&self, bytes: &[u8]) -> Result<V, Error> {
        self.here().value(bytes)
    }
}

/// An owned iterator over typed records. See [`Range`].
#[derive(Debug)]
pub struct TypedRange<K, V> {
    range: Range,
    table: Table<K, V>,
}

impl<K, V> TypedRange<K, V> {
    pub(super) fn new(range: Range) -> TypedRange<K, V> {
        TypedRange { table: Table { bytes: range.table().clone(), types: PhantomData }, range }
    }

    /// Calls `f` with the bytes of each remaining key and value, without decoding or allocating, until `f` says false.
    /// [`Key::decode`] and [`Value::decode`] read what is wanted of them. See [`Range::for_each_ref`].
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// # let txn = env.begin()?;
    /// let mut notes = txn.open(ledgerstone::TableDef::<u64, String>::new("notes"))?;
    /// notes.load_sorted([(1, "milk"), (2, "bread and butter")])?;
    /// let mut longest = 0;
    /// notes.range(..)?.for_each_ref(|_key, note| {
    ///     longest = longest.max(note.len());
    ///     true
    /// })?;
    /// assert_eq!(longest, 16);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Range::for_each_ref`].
    pub fn for_each_ref(self, f: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        self.range.for_each_ref(f)
    }
}

impl<K: Key, V: Value> Iterator for TypedRange<K, V> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.range.next()?;
        Some(record.and_then(|(key, value)| self.table.record(&key, &value)))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for TypedRange<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let record = self.range.next_back()?;
        Some(record.and_then(|(key, value)| self.table.record(&key, &value)))
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for TypedRange<K, V> {}

/// Takes typed records in the order of their keys. Made by [`Table::sorted_loader`]. If the table was empty, nothing of
/// the load stays without [`TypedSortedLoader::finish`].
pub struct TypedSortedLoader<K, V> {
    loader: SortedLoader,
    table: Table<K, V>,
    /// The record at hand, encoded; kept, so that a record takes no memory of its own.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<K, V> std::fmt::Debug for TypedSortedLoader<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TypedSortedLoader").field(&self.loader).finish()
    }
}

impl<K: Key, V: Value> TypedSortedLoader<K, V> {
    pub(super) fn new(loader: SortedLoader) -> TypedSortedLoader<K, V> {
        TypedSortedLoader { table: Table::new(loader.table().clone()), loader, key: Vec::new(), value: Vec::new() }
    }

    /// Loads all records and ends. Gives their count, and a handle that sees them.
    pub(super) fn load_all<E: From<Error>>(
        self,
        records: impl IntoIterator<Item = Result<(impl AsKey<K>, impl AsValue<V>), E>>,
    ) -> Result<(u64, Table<K, V>), E> {
        let table = &self.table;
        let (count, loaded) = self.loader.load_all(records.into_iter().map(|record| {
            let (key, value) = record?;
            Ok::<_, E>((table.key_bytes(key)?, table.value_bytes(value)?))
        }))?;
        Ok((count, Table::new(loaded)))
    }

    /// The next record.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`SortedLoader::push`], and [`Error::NotEncodable`]. A record that has no encoding can be left out.
    pub fn push(&mut self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        self.key.clear();
        self.value.clear();
        let here = self.table.here();
        here.encode_to("key", &mut self.key, |out| key.encode(out))?;
        here.encode_to("value", &mut self.value, |out| value.encode(out))?;
        self.loader.push(&self.key, &self.value)
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.loader.count()
    }

    /// Ends the load, and returns a handle that sees the records. See [`SortedLoader::finish`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`SortedLoader::finish`].
    pub fn finish(self) -> Result<Table<K, V>, Error> {
        Ok(Table::new(self.loader.finish()?))
    }
}
