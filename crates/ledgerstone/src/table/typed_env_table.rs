//! A typed table that an environment has open, for all its transactions: [`EnvTable`] with keys and values of Rust
//! types.

use std::marker::PhantomData;

use ledgerstone_structures::Direction;

use super::here::TableIn;
use crate::typed::{AsKey, AsValue, Key, KeyPrefix, KeyRange, TableDef, Value};
use crate::{EnvTable, Error, Table, Transaction, TypedEntry, TypedIndex, TypedRange, TypedSortedLoader};

/// A table with keys of type `K` and values of type `V` of an environment, for any of its transactions. Made by
/// [`Environment::typed_table`](crate::Environment::typed_table).
///
/// Each call names the transaction that it belongs to. It does what the call of the same name of [`Table`] does,
/// without the cost of opening the table in each transaction. [`TypedEnvTable::of`] is the short form for a transaction
/// with many calls.
///
/// As an [`EnvTable`], a handle means the table that has its name. If a table with other types has the name by now, the
/// calls return [`Error::TableTypeMismatch`].
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// use ledgerstone::{Environment, Error, TableDef, TypedEnvTable};
///
/// /// What a program keeps, and hands to its threads.
/// struct Bank {
///     env: Environment,
///     accounts: TypedEnvTable<String, i64>,
/// }
///
/// impl Bank {
///     fn pay(&self, from: &str, to: &str, amount: i64) -> Result<(), Error> {
///         self.env.transact(|txn| {
///             self.accounts.modify(txn, from, |balance| Some(balance - amount))?;
///             self.accounts.modify(txn, to, |balance| Some(balance + amount)).map(drop)
///         })
///     }
/// }
///
/// let accounts = env.typed_table(TableDef::new("accounts"))?;
/// env.transact(|txn| accounts.load_sorted(txn, [("Ann", 100), ("Bob", 50)]))?;
/// let bank = Bank { env, accounts };
/// bank.pay("Ann", "Bob", 30)?;
/// let txn = bank.env.snapshot()?;
/// assert_eq!(bank.accounts.get(&txn, "Bob")?, Some(80));
/// assert_eq!(bank.accounts.range(&txn, ..)?.count(), 2);
/// # Ok(())
/// # }
/// ```
pub struct TypedEnvTable<K, V> {
    bytes: EnvTable,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for TypedEnvTable<K, V> {
    fn clone(&self) -> Self {
        TypedEnvTable { bytes: self.bytes.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for TypedEnvTable<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TypedEnvTable").field(&self.bytes).finish()
    }
}

impl<K: Key, V: Value> TypedEnvTable<K, V> {
    pub(crate) fn open(txn: &Transaction, definition: TableDef<'_, K, V>) -> Result<TypedEnvTable<K, V>, Error> {
        let bytes = EnvTable::open(txn, definition.name(), |info| info.check_types(&K::TYPE, &V::TYPE))?;
        Ok(TypedEnvTable { bytes, types: PhantomData })
    }

    /// The same table as byte strings. If a table with other types has the name by now, this handle refuses it, too.
    #[must_use]
    pub fn as_bytes(&self) -> &EnvTable {
        &self.bytes
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.bytes.name()
    }

    /// The table in a transaction, as [`Transaction::open`] opens it if it is there, but without a look at the name.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::TableTypeMismatch`], conflicts.
    pub fn of(&self, txn: &Transaction) -> Result<Table<K, V>, Error> {
        Ok(Table::new(self.bytes.of(txn)?))
    }

    #[inline]
    fn lent<'t>(&'t self, txn: &'t Transaction) -> TableIn<'t> {
        self.bytes.lent(txn)
    }

    /// As [`Table::get`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get(&self, txn: &Transaction, key: impl AsKey<K>) -> Result<Option<V>, Error> {
        let key = self.lent(txn).key_bytes::<K>(key)?;
        self.bytes.with(txn, |table| table.look_at(&key, |bytes| table.value(bytes))?.transpose())
    }

    /// As [`Table::get_with`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get_with`].
    pub fn get_with<T>(
        &self,
        txn: &Transaction,
        key: impl AsKey<K>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        self.bytes.get_with(txn, self.lent(txn).key_bytes::<K>(key)?, read)
    }

    /// As [`Table::get_for_update`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get_for_update`].
    pub fn get_for_update(&self, txn: &Transaction, key: impl AsKey<K>) -> Result<Option<V>, Error> {
        let key = self.lent(txn).key_bytes::<K>(key)?;
        let value = self.bytes.get_for_update(txn, key)?;
        value.map(|bytes| self.lent(txn).value(&bytes)).transpose()
    }

    /// As [`Table::contains`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::contains`].
    pub fn contains(&self, txn: &Transaction, key: impl AsKey<K>) -> Result<bool, Error> {
        self.bytes.contains(txn, self.lent(txn).key_bytes::<K>(key)?)
    }

    /// As [`Table::put`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put(&self, txn: &Transaction, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        let (key, value) = (self.lent(txn).key_bytes::<K>(key)?, self.lent(txn).value_bytes::<V>(value)?);
        self.bytes.put(txn, key, value)
    }

    /// As [`Table::insert`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn insert(&self, txn: &Transaction, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<Option<V>, Error> {
        let (key, value) = (self.lent(txn).key_bytes::<K>(key)?, self.lent(txn).value_bytes::<V>(value)?);
        self.bytes.with(txn, |table| table.insert_as(&key, &value, |old| table.value(&old)))
    }

    /// As [`Table::insert_new`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::insert_new`].
    pub fn insert_new(&self, txn: &Transaction, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        let (key, value) = (self.lent(txn).key_bytes::<K>(key)?, self.lent(txn).value_bytes::<V>(value)?);
        self.bytes.insert_new(txn, key, value)
    }

    /// As [`Table::delete`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete(&self, txn: &Transaction, key: impl AsKey<K>) -> Result<bool, Error> {
        self.bytes.delete(txn, self.lent(txn).key_bytes::<K>(key)?)
    }

    /// As [`Table::remove`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::remove`].
    pub fn remove(&self, txn: &Transaction, key: impl AsKey<K>) -> Result<Option<V>, Error> {
        let key = self.lent(txn).key_bytes::<K>(key)?;
        self.bytes.with(txn, |table| table.remove_as(&key, |value| table.value(&value)))
    }

    /// As [`Table::pop_first`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::pop_first`].
    pub fn pop_first(&self, txn: &Transaction) -> Result<Option<(K, V)>, Error> {
        self.bytes.with(txn, |table| table.pop_as(Direction::Forward, |key, value| table.record(key, &value)))
    }

    /// As [`Table::pop_last`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::pop_last`].
    pub fn pop_last(&self, txn: &Transaction) -> Result<Option<(K, V)>, Error> {
        self.bytes.with(txn, |table| table.pop_as(Direction::Backward, |key, value| table.record(key, &value)))
    }

    /// As [`Table::delete_range`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn delete_range(&self, txn: &Transaction, keys: impl KeyRange<K>) -> Result<u64, Error> {
        self.bytes.delete_range(txn, self.lent(txn).key_bounds::<K>(keys)?)
    }

    /// As [`Table::sorted_loader`]. See [`EnvTable::sorted_loader`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::sorted_loader`].
    pub fn sorted_loader(&self, txn: &Transaction) -> Result<TypedSortedLoader<K, V>, Error> {
        Ok(TypedSortedLoader::new(self.bytes.sorted_loader(txn)?))
    }

    /// As [`Table::load_sorted`]. See [`EnvTable::sorted_loader`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::load_sorted`].
    pub fn load_sorted(
        &self,
        txn: &Transaction,
        records: impl IntoIterator<Item = (impl AsKey<K>, impl AsValue<V>)>,
    ) -> Result<u64, Error> {
        self.try_load_sorted(txn, records.into_iter().map(Ok))
    }

    /// As [`Table::try_load_sorted`]. See [`EnvTable::sorted_loader`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::try_load_sorted`].
    pub fn try_load_sorted<E: From<Error>>(
        &self,
        txn: &Transaction,
        records: impl IntoIterator<Item = Result<(impl AsKey<K>, impl AsValue<V>), E>>,
    ) -> Result<u64, E> {
        let (count, _) = self.sorted_loader(txn)?.load_all(records)?;
        Ok(count)
    }

    /// As [`Table::modify`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn modify(
        &self,
        txn: &Transaction,
        key: impl AsKey<K>,
        change: impl FnOnce(V) -> Option<V>,
    ) -> Result<bool, Error> {
        let (key, mut change) = (self.lent(txn).key_bytes::<K>(key)?, Some(change));
        self.bytes.with(txn, |table| table.modify_as(&key, |old| change.take().and_then(|change| change(old))))
    }

    /// As [`Table::entry`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::entry`].
    pub fn entry(&self, txn: &Transaction, key: impl AsKey<K>) -> Result<TypedEntry<K, V>, Error> {
        let key = self.lent(txn).key_bytes::<K>(key)?;
        self.bytes.with(txn, |table| TypedEntry::new(&Table::new(table.owned()), key.clone()))
    }

    /// As [`Table::get_or_insert_with`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::get_or_insert_with`].
    pub fn get_or_insert_with(
        &self,
        txn: &Transaction,
        key: impl AsKey<K>,
        make: impl FnOnce() -> V,
    ) -> Result<V, Error> {
        self.entry(txn, key)?.or_insert_with(make)
    }

    /// As [`Table::index`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`TypedEnvTable::of`] and [`Table::index`].
    pub fn index<I: Key>(&self, txn: &Transaction, name: &str) -> Result<TypedIndex<I, K, V>, Error> {
        self.of(txn)?.index(name)
    }

    /// As [`Table::range`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn range(&self, txn: &Transaction, keys: impl KeyRange<K>) -> Result<TypedRange<K, V>, Error> {
        let bounds = self.lent(txn).key_bounds::<K>(keys)?;
        Ok(TypedRange::new(self.bytes.range_of(txn, bounds)?))
    }

    /// As [`Table::prefix`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::prefix`].
    pub fn prefix(&self, txn: &Transaction, prefix: impl KeyPrefix<K>) -> Result<TypedRange<K, V>, Error> {
        let bounds = self.lent(txn).key_prefix::<K>(prefix)?;
        Ok(TypedRange::new(self.bytes.range_of(txn, bounds)?))
    }

    /// As [`Table::first`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::first`].
    pub fn first(&self, txn: &Transaction) -> Result<Option<(K, V)>, Error> {
        let record = self.bytes.first(txn)?;
        record.map(|(key, value)| self.lent(txn).record(&key, &value)).transpose()
    }

    /// As [`Table::last`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::last`].
    pub fn last(&self, txn: &Transaction) -> Result<Option<(K, V)>, Error> {
        let record = self.bytes.last(txn)?;
        record.map(|(key, value)| self.lent(txn).record(&key, &value)).transpose()
    }

    /// As [`Table::is_empty`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::is_empty`].
    pub fn is_empty(&self, txn: &Transaction) -> Result<bool, Error> {
        self.bytes.is_empty(txn)
    }

    /// As [`Table::count`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::count`].
    pub fn count(&self, txn: &Transaction) -> Result<u64, Error> {
        self.bytes.count(txn)
    }
}
