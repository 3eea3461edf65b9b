//! A table of byte strings in a transaction.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::{PageId, TableId};
use ledgerstone_structures::{Read, Tree};
use ledgerstone_txn::Txn;

use crate::catalog::TableInfo;
use crate::own_tables::OwnTables;
use crate::range::prefix_end;
use crate::transaction::Shared;
use crate::typed::TableTypes;
use crate::{Entry, Error, Isolation, Range, Record};

/// A table whose keys and values are byte strings, ordered by key.
///
/// Owned: it keeps its transaction's state alive, but not the transaction running. Keys may be empty and are at most an
/// eighth of a page; values are at most 1 GiB, and large ones can be read and written in parts
/// ([`BytesTable::value_reader`], [`BytesTable::value_writer`]).
#[derive(Clone)]
pub struct BytesTable {
    pub(crate) shared: Arc<Shared>,
    pub(crate) info: Arc<TableInfo>,
}

impl std::fmt::Debug for BytesTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BytesTable").field("name", &self.info.name).field("table", &self.info.entry.table).finish()
    }
}

impl BytesTable {
    pub(crate) fn new(shared: &Arc<Shared>, info: Arc<TableInfo>) -> BytesTable {
        BytesTable { shared: Arc::clone(shared), info }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The table's id, which it keeps whatever its name, and which no other table ever gets; [`Change::table_id`](crate::Change).
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.info.entry.table
    }

    /// The page where the table begins; it never moves. For [`crate::LogFilter::root`].
    #[must_use]
    pub fn root_page(&self) -> PageId {
        self.info.entry.root
    }

    /// What the catalog says of the types of its keys and values. They are not compared with anything here: byte strings are
    /// read and written as they are.
    #[must_use]
    pub fn types(&self) -> &TableTypes {
        &self.info.types
    }

    pub(crate) fn info(&self) -> &Arc<TableInfo> {
        &self.info
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.info.tree
    }

    /// Runs `f` with the intention `mode` on the table, if the table is still there (G2).
    #[inline]
    pub(crate) fn enter<T>(&self, mode: Mode, f: impl FnOnce(&mut Txn) -> Result<T, Error>) -> Result<T, Error> {
        self.enter_own(mode, |txn, _| f(txn))
    }

    /// The same, with what the transaction itself has made of tables.
    #[inline]
    pub(crate) fn enter_own<T>(
        &self,
        mode: Mode,
        f: impl FnOnce(&mut Txn, &mut OwnTables) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.shared.run_in(|txn, own| {
            if mode == Mode::IX {
                self.shared.check_writable()?;
            }
            txn.lock_table(self.info.entry.table, mode)?;
            if self.info.is_dropped() {
                return Err(self.why_gone(txn));
            }
            if self.shared.isolation != Isolation::Serializable {
                self.check_own(txn, own)?;
                self.check_written(txn, own)?;
            }
            f(txn, own)
        })
    }

    /// The value of `key`, as the transaction's [`Isolation`] sees it; a serializable one locks it for reading until it ends.
    ///
    /// # Errors
    /// Conflicts ([`Error::Deadlock`], [`Error::LockTimeout`]; [`Error::SnapshotTooOld`] for a snapshot), damage, a finished transaction.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.look(|txn, sight| Ok(self.tree().get(txn, key, sight.read())?))
    }

    /// The value of `key`, locked so that only this transaction can change it next; readers may still read. It is the newest
    /// committed one at every level; a snapshot transaction is refused if that is newer than its snapshot.
    ///
    /// # Errors
    /// As [`BytesTable::get`]; [`Error::SnapshotConflict`].
    pub fn get_for_update(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let read = match self.shared.isolation {
            Isolation::Serializable => Read::ForUpdate,
            _ => Read::ForUpdateOnly,
        };
        self.enter(Mode::IX, |txn| Ok(self.tree().get(txn, key, read)?))
    }

    /// True if `key` has a value.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.get(key)?.is_some())
    }

    /// Sets the value of `key`, whether it had one or not.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::ValueTooLarge`], [`Error::ReadOnly`] without space or in a transaction for reading only,
    /// conflicts ([`Error::SnapshotConflict`] too). Of a table with indexes: [`Error::IndexKeyExists`],
    /// [`Error::IndexKeyTooLarge`], [`Error::NotIndexable`], [`Error::NoIndexExtractor`]; nothing has changed then, and the
    /// transaction goes on.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.enter(Mode::IX, |txn| self.info.put(txn, key, value))
    }

    /// Sets the value of a key that has none.
    ///
    /// # Errors
    /// [`Error::KeyExists`], and as [`BytesTable::put`].
    pub fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.enter(Mode::IX, |txn| if self.info.insert(txn, key, value)? { Ok(()) } else { Err(Error::KeyExists) })
    }

    /// Removes `key`; says whether it had a value.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.enter(Mode::IX, |txn| self.info.delete(txn, key))
    }

    /// Removes all records whose keys lie in `keys`, and says how many there were. Until the transaction ends nobody can put one
    /// there. Much cheaper than one by one. The entries of indexes are sorted first, in a temporary file if there are many.
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn delete_range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Result<u64, Error> {
        let (start, end) = (own_bound(keys.start_bound()), own_bound(keys.end_bound()));
        self.delete_between(start, end)
    }

    pub(crate) fn delete_between(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<u64, Error> {
        if crate::range::is_empty(&start, &end) {
            return Ok(0);
        }
        self.enter(Mode::IX, |txn| self.info.delete_range(&self.shared.env, txn, start, end))
    }

    /// Reads the value of `key` and replaces it by what `change` makes of it, in one descent; `None` leaves it as it is.
    /// Says whether the key had a value. Only the bytes that differ are logged.
    ///
    /// # Errors
    /// As [`BytesTable::put`]. In `change`, calls of this transaction are refused: [`Error::Busy`].
    pub fn modify(&self, key: &[u8], change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Result<bool, Error> {
        let users = self.shared.users_code();
        self.enter(Mode::IX, |txn| self.info.modify(txn, key, |old| users.run(|| change(old))))
    }

    /// The place of `key`, to look at and to fill.
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`].
    pub fn entry(&self, key: &[u8]) -> Result<Entry, Error> {
        let value = self.get_for_update(key)?;
        Ok(Entry::new(self.clone(), key, value))
    }

    /// The records whose keys lie in `keys`, in order; from the back too. The iterator is owned and can be sent.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Result<Range, Error> {
        Range::new(self.clone(), own_bound(keys.start_bound()), own_bound(keys.end_bound()))
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Range, Error> {
        let end = match prefix_end(prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        Range::new(self.clone(), Bound::Included(prefix.to_vec()), end)
    }

    /// The record with the smallest key.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn first(&self) -> Result<Option<Record>, Error> {
        self.range(..)?.next().transpose()
    }

    /// The record with the largest key.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn last(&self) -> Result<Option<Record>, Error> {
        self.range(..)?.next_back().transpose()
    }

    /// How many records there are, counted by reading them all.
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn count(&self) -> Result<u64, Error> {
        let mut count = 0;
        self.range(..)?.for_each_ref(|_, _| {
            count += 1;
            true
        })?;
        Ok(count)
    }
}

fn own_bound(bound: Bound<&&[u8]>) -> Bound<Vec<u8>> {
    bound.map(|key| key.to_vec())
}
