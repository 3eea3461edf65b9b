//! A key's place in a table: looked at once, then filled.

use crate::typed::{AsValue, Key, Value};
use crate::{BytesTable, Error, Table};

/// The place of a key, locked for update. Made by [`BytesTable::entry`].
#[derive(Debug)]
pub struct Entry {
    table: BytesTable,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Entry {
    pub(crate) fn new(table: BytesTable, key: &[u8], value: Option<Vec<u8>>) -> Entry {
        Entry { table, key: key.to_vec(), value }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value it has now.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// Its value. If it has none, `value` is put there first.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn or_insert(self, value: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        self.or_insert_with(|| value.as_ref().to_vec())
    }

    /// Its value. If it has none, the result of `make` is put there first.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn or_insert_with(self, make: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, Error> {
        match self.value {
            Some(value) => Ok(value),
            None => {
                let inside = self.table.shared.users_code();
                let value = make();
                drop(inside);
                self.table.put(&self.key, &value)?;
                Ok(value)
            }
        }
    }

    /// Changes the value if there is one, and returns the entry.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn and_modify(mut self, change: impl FnOnce(&mut Vec<u8>)) -> Result<Entry, Error> {
        if let Some(value) = self.value.as_mut() {
            let inside = self.table.shared.users_code();
            change(value);
            drop(inside);
            self.table.put(&self.key, &*value)?;
        }
        Ok(self)
    }

    /// Puts `value` there, and returns the old one.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn replace(self, value: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.table.put(&self.key, value)?;
        Ok(self.value)
    }

    /// Removes the key, and returns its value.
    ///
    /// # Errors
    /// As [`BytesTable::delete`].
    pub fn remove(self) -> Result<Option<Vec<u8>>, Error> {
        if self.value.is_some() {
            self.table.delete(&self.key)?;
        }
        Ok(self.value)
    }
}

/// The place of a key in a typed table, locked for update. Made by [`Table::entry`].
pub struct TypedEntry<K, V> {
    table: Table<K, V>,
    key: Vec<u8>,
    value: Option<V>,
}

impl<K, V: std::fmt::Debug> std::fmt::Debug for TypedEntry<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedEntry").field("table", &self.table).field("value", &self.value).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> TypedEntry<K, V> {
    pub(crate) fn new(table: Table<K, V>, key: Vec<u8>, value: Option<V>) -> TypedEntry<K, V> {
        TypedEntry { table, key, value }
    }

    /// The value it has now.
    #[must_use]
    pub fn value(&self) -> Option<&V> {
        self.value.as_ref()
    }

    /// Its value. If it has none, `value` is put there first.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn or_insert(self, value: V) -> Result<V, Error> {
        match self.value {
            Some(value) => Ok(value),
            None => {
                self.table.put_at(&self.key, &value)?;
                Ok(value)
            }
        }
    }

    /// Its value. If it has none, the result of `make` is put there first.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> Result<V, Error> {
        match self.value {
            Some(value) => Ok(value),
            None => {
                let inside = self.table.as_bytes().shared.users_code();
                let value = make();
                drop(inside);
                self.table.put_at(&self.key, &value)?;
                Ok(value)
            }
        }
    }

    /// Changes the value if there is one, and returns the entry.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Result<TypedEntry<K, V>, Error> {
        if let Some(value) = self.value.as_mut() {
            let inside = self.table.as_bytes().shared.users_code();
            change(value);
            drop(inside);
            self.table.put_at(&self.key, &*value)?;
        }
        Ok(self)
    }

    /// Puts `value` there, and returns the old one.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn replace(self, value: impl AsValue<V>) -> Result<Option<V>, Error> {
        self.table.put_at(&self.key, value)?;
        Ok(self.value)
    }

    /// Removes the key, and returns its value.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn remove(self) -> Result<Option<V>, Error> {
        if self.value.is_some() {
            self.table.as_bytes().delete(&self.key)?;
        }
        Ok(self.value)
    }
}
