//! A key's place in a table: looked at once, then filled.

use ledgerstone_page::Lsn;

use crate::typed::{AsValue, Key, Value};
use crate::{BytesTable, Error, Table};

/// The place of a key, locked for update. Made by [`BytesTable::entry`].
///
/// Nobody else changes the value while it is locked. If the transaction itself changes something before the entry is
/// used, the entry looks again.
#[derive(Debug)]
pub struct Entry {
    table: BytesTable,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    /// What the transaction had changed last when the value was read.
    seen: Lsn,
}

impl Entry {
    pub(crate) fn new(table: &BytesTable, key: &[u8]) -> Result<Entry, Error> {
        let seen = table.last_change()?; // Before the value: another thread may use the transaction, too.
        Ok(Entry { table: table.clone(), key: key.to_vec(), value: table.get_for_update(key)?, seen })
    }

    /// With the value that the key has by now.
    fn fresh(self) -> Result<Entry, Error> {
        if self.table.last_change()? == self.seen { Ok(self) } else { Entry::new(&self.table, &self.key) }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value it had when the entry was made.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// Its value. If it has none, `value` is put there first.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn or_insert(self, value: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        self.or_insert_with(|| value.as_ref().to_vec())
    }

    /// Its value. If it has none, the result of `make` is put there first.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn or_insert_with(self, make: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, Error> {
        let entry = self.fresh()?;
        if let Some(value) = entry.value {
            return Ok(value);
        }
        let inside = entry.table.shared.users_code();
        let value = make();
        drop(inside);
        let entry = entry.fresh()?; // `make` may have put one there.
        if let Some(value) = entry.value {
            return Ok(value);
        }
        entry.table.put(&entry.key, &value)?;
        Ok(value)
    }

    /// Changes the value if there is one, and returns the entry. What `change` makes of it replaces whatever `change`
    /// itself has put there.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn and_modify(self, change: impl FnOnce(&mut Vec<u8>)) -> Result<Entry, Error> {
        let mut entry = self.fresh()?;
        if let Some(value) = entry.value.as_mut() {
            let inside = entry.table.shared.users_code();
            change(value);
            drop(inside);
            entry.table.put(&entry.key, &*value)?;
            entry.seen = entry.table.last_change()?;
        }
        Ok(entry)
    }

    /// Puts `value` there, and returns the old one.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn replace(self, value: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let entry = self.fresh()?;
        entry.table.put(&entry.key, value)?;
        Ok(entry.value)
    }

    /// Removes the key, and returns its value.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::delete`].
    pub fn remove(self) -> Result<Option<Vec<u8>>, Error> {
        let entry = self.fresh()?;
        if entry.value.is_some() {
            entry.table.delete(&entry.key)?;
        }
        Ok(entry.value)
    }
}

/// The place of a key in a typed table, locked for update. Made by [`Table::entry`]. It looks again as an [`Entry`]
/// does.
pub struct TypedEntry<K, V> {
    table: Table<K, V>,
    key: Vec<u8>,
    value: Option<V>,
    seen: Lsn,
}

impl<K, V: std::fmt::Debug> std::fmt::Debug for TypedEntry<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedEntry").field("table", &self.table).field("value", &self.value).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> TypedEntry<K, V> {
    pub(crate) fn new(table: &Table<K, V>, key: Vec<u8>) -> Result<TypedEntry<K, V>, Error> {
        let bytes = table.as_bytes();
        let seen = bytes.last_change()?;
        let value = bytes.get_for_update(&key)?.map(|bytes| table.value(&bytes)).transpose()?;
        Ok(TypedEntry { table: table.clone(), key, value, seen })
    }

    /// With the value that the key has by now.
    fn fresh(self) -> Result<TypedEntry<K, V>, Error> {
        if self.table.as_bytes().last_change()? == self.seen {
            return Ok(self);
        }
        TypedEntry::new(&self.table, self.key)
    }

    /// The key.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the type does not read what it has written itself.
    pub fn key(&self) -> Result<K, Error> {
        self.table.here().key(&self.key)
    }

    /// The value it had when the entry was made.
    #[must_use]
    pub fn value(&self) -> Option<&V> {
        self.value.as_ref()
    }

    /// Its value. If it has none, `value` is put there first.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn or_insert(self, value: V) -> Result<V, Error> {
        self.or_insert_with(|| value)
    }

    /// Its value. If it has none, the result of `make` is put there first.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> Result<V, Error> {
        let entry = self.fresh()?;
        if let Some(value) = entry.value {
            return Ok(value);
        }
        let inside = entry.table.as_bytes().shared.users_code();
        let value = make();
        drop(inside);
        let entry = entry.fresh()?; // `make` may have put one there.
        if let Some(value) = entry.value {
            return Ok(value);
        }
        entry.table.put_at(&entry.key, &value)?;
        Ok(value)
    }

    /// Changes the value if there is one, and returns the entry. What `change` makes of it replaces whatever `change`
    /// itself has put there.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn and_modify(self, change: impl FnOnce(&mut V)) -> Result<TypedEntry<K, V>, Error> {
        let mut entry = self.fresh()?;
        if let Some(value) = entry.value.as_mut() {
            let inside = entry.table.as_bytes().shared.users_code();
            change(value);
            drop(inside);
            entry.table.put_at(&entry.key, &*value)?;
            entry.seen = entry.table.as_bytes().last_change()?;
        }
        Ok(entry)
    }

    /// Puts `value` there, and returns the old one.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn replace(self, value: impl AsValue<V>) -> Result<Option<V>, Error> {
        let entry = self.fresh()?;
        entry.table.put_at(&entry.key, value)?;
        Ok(entry.value)
    }

    /// Removes the key, and returns its value.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn remove(self) -> Result<Option<V>, Error> {
        let entry = self.fresh()?;
        if entry.value.is_some() {
            entry.table.as_bytes().delete(&entry.key)?;
        }
        Ok(entry.value)
    }
}
