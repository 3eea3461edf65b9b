//! A table of byte strings in a transaction.

use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::{Lsn, PageId, TableId};
use ledgerstone_region::{Common, Share};
use ledgerstone_structures::{Direction, Tree};
use ledgerstone_txn::Txn;

use super::coding::prefix_bounds;
use super::here::TableIn;
use crate::catalog::{OwnTables, TableInfo};
use crate::transaction::{Shared, Sight};
use crate::typed::{KeyRange, TableTypes};
use crate::{Entry, Error, Range, Record};

/// A table whose keys and values are byte strings, ordered by key. Calls take all types that lend bytes: `"key"`,
/// `b"key"`, a `Vec`.
///
/// All calls may wait for locks and for pages to be read. Those that change something may also wait for room in the
/// log.
///
/// The handle is owned. It keeps its transaction's state alive, but does not keep the transaction open. Keys may be
/// empty, and have at most an eighth of a page. Values have at most 1 GiB. Large values can be read and written in
/// parts ([`BytesTable::value_reader`], [`BytesTable::value_writer`]).
#[derive(Clone)]
pub struct BytesTable {
    pub(crate) shared: Common<Shared>,
    pub(crate) info: Share<TableInfo>,
}

impl std::fmt::Debug for BytesTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BytesTable").field("name", &self.info.name).field("table", &self.info.entry.table).finish()
    }
}

impl BytesTable {
    pub(crate) fn new(shared: &Common<Shared>, info: Share<TableInfo>) -> BytesTable {
        BytesTable { shared: shared.clone(), info }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The table's id. The table keeps it when it is renamed, and no other table ever gets it. See
    /// [`Change::table_id`](crate::Change).
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.info.entry.table
    }

    /// The page where the table begins, which never moves. For [`crate::LogFilter::root`].
    #[must_use]
    pub fn root_page(&self) -> PageId {
        self.info.entry.root
    }

    /// The types of its keys and values as the catalog names them. Byte strings are not compared with them: they are
    /// read and written as they are.
    #[must_use]
    pub fn types(&self) -> &TableTypes {
        &self.info.types
    }

    pub(crate) fn info(&self) -> &Arc<TableInfo> {
        self.info.arc()
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.info.tree
    }

    /// The table and the transaction, lent.
    #[inline]
    pub(crate) fn here(&self) -> TableIn<'_> {
        TableIn { shared: &self.shared, info: &self.info }
    }

    /// Runs `f` with the intention `mode` on the table, if the table is still there (G2).
    #[inline]
    pub(crate) fn enter<T>(&self, mode: Mode, f: impl FnOnce(&mut Txn) -> Result<T, Error>) -> Result<T, Error> {
        self.here().enter_own(mode, |txn, _| f(txn))
    }

    /// The same, with what the transaction itself has made of tables.
    #[inline]
    pub(crate) fn enter_own<T>(
        &self,
        mode: Mode,
        f: impl FnOnce(&mut Txn, &mut OwnTables) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.here().enter_own(mode, f)
    }

    /// Runs `f` as this transaction's level reads.
    #[inline]
    pub(crate) fn look<T>(&self, f: impl FnOnce(&mut Txn, Sight) -> Result<T, Error>) -> Result<T, Error> {
        self.here().look(f)
    }

    /// The value of `key`, as the transaction's [`Isolation`](crate::Isolation) sees it. A serializable transaction
    /// locks it for reading until it ends.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Conflicts: [`Error::Deadlock`], [`Error::LockTimeout`], [`Error::LockRefused`], [`Error::LockTableFull`].
    /// [`Error::HeldByCaller`]. [`Error::SnapshotTooOld`] for a snapshot. [`Error::NoSuchTable`] if the table was
    /// dropped or renamed. [`Error::Corrupt`], [`Error::Finished`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.here().get(key.as_ref())
    }

    /// Calls `read` with the value of `key`, and returns its result. The value is copied into a buffer that the thread
    /// keeps, so nothing is allocated for a value that lies in its leaf. `read` does not see the page itself. It runs
    /// with no latch held, so other threads may change the page meanwhile. In `read`, the transaction can be used.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// # let txn = env.begin()?;
    /// let films = txn.bytes_or_create("films")?;
    /// films.put("night", "a long text")?;
    /// assert_eq!(films.get_with("night", |film| film.len())?, Some(11));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        self.look_at(key.as_ref(), |value| {
            let _inside = self.shared.users_code();
            read(value)
        })
    }

    pub(crate) fn look_at<T>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        self.here().look_at(key, read)
    }

    /// The value of `key`, locked so that only this transaction can change it next. Other transactions may still read
    /// it. At every level it is the newest committed value. A snapshot transaction is refused if that value is newer
    /// than its snapshot.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`], and [`Error::SnapshotConflict`].
    pub fn get_for_update(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.here().get_for_update(key.as_ref())
    }

    /// True if `key` has a value.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.look_at(key.as_ref(), |_| ())?.is_some())
    }

    /// Sets the value of `key`, whether it had one or not.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::ValueTooLarge`]. [`Error::ReadOnly`] without space, or in a transaction for
    /// reading only. Conflicts ([`Error::SnapshotConflict`] too). For a table with indexes: [`Error::IndexKeyExists`],
    /// [`Error::IndexKeyTooLarge`], [`Error::NotIndexable`], [`Error::NoIndexExtractor`]. Nothing has changed then, and
    /// the transaction goes on.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.here().put(key.as_ref(), value.as_ref())
    }

    /// Sets the value of `key` and returns the one that it had, if any. [`BytesTable::put`] does not read the old one.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`] and [`BytesTable::put`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.here().insert_as(key.as_ref(), value.as_ref(), Ok)
    }

    /// Sets the value of a key that has none.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::KeyExists`], and as [`BytesTable::put`].
    pub fn insert_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.here().insert_new(key.as_ref(), value.as_ref())
    }

    /// Removes `key`, and returns whether it had a value.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.here().delete(key.as_ref())
    }

    /// Removes `key` and returns the value that it had. [`BytesTable::delete`] does not read it.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`] and [`BytesTable::put`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.here().remove_as(key.as_ref(), Ok)
    }

    /// Removes the record with the smallest key and returns it. Serializable transactions that take from the same end
    /// wait for each other. At other levels, a transaction that comes second takes the next record, or is refused as a
    /// `remove` would be.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn pop_first(&self) -> Result<Option<Record>, Error> {
        self.here().pop_as(Direction::Forward, |key, value| Ok((key.to_vec(), value)))
    }

    /// Removes the record with the largest key and returns it, as [`BytesTable::pop_first`] does at the other end.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn pop_last(&self) -> Result<Option<Record>, Error> {
        self.here().pop_as(Direction::Backward, |key, value| Ok((key.to_vec(), value)))
    }

    /// Removes all records whose keys lie in `keys`, and returns how many there were. Until the transaction ends, no
    /// other transaction can put a record there. This is much cheaper than one call for each record. The entries of
    /// indexes are sorted first, in a temporary file if there are many.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn delete_range(&self, keys: impl KeyRange<Vec<u8>>) -> Result<u64, Error> {
        let here = self.here();
        here.delete_between(here.key_bounds::<Vec<u8>>(keys)?)
    }

    /// Reads the value of `key` and replaces it by what `change` makes of it, in one descent. `None` leaves the value
    /// as it is. Returns whether the key had a value. Only the bytes that differ are logged.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`]. In `change`, calls of this transaction are refused: [`Error::Busy`].
    pub fn modify(&self, key: impl AsRef<[u8]>, change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Result<bool, Error> {
        self.here().modify(key.as_ref(), change)
    }

    /// The place of `key`, to look at and to fill.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`].
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Result<Entry, Error> {
        Entry::new(self, key.as_ref())
    }

    /// The transaction's newest change of anything; a rollback to a savepoint counts.
    pub(crate) fn last_change(&self) -> Result<Lsn, Error> {
        self.shared.run(|txn| Ok(txn.last_lsn()))
    }

    /// The records whose keys lie in `keys`, in order. The iterator can be read from the back too. It is owned, and can
    /// be sent.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn range(&self, keys: impl KeyRange<Vec<u8>>) -> Result<Range, Error> {
        let (start, end) = self.here().key_bounds::<Vec<u8>>(keys)?;
        Range::new(self.clone(), start, end)
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range, Error> {
        let (start, end) = prefix_bounds(prefix.as_ref().to_vec());
        Range::new(self.clone(), start, end)
    }

    /// The record with the smallest key.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn first(&self) -> Result<Option<Record>, Error> {
        self.range(..)?.next().transpose()
    }

    /// The record with the largest key.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn last(&self) -> Result<Option<Record>, Error> {
        self.range(..)?.next_back().transpose()
    }

    /// True if there is no record.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.first()?.is_none())
    }

    /// About how many records there are, from a few dozen pages: for a progress bar, or to choose between two ways.
    /// What others have not committed counts, too. A table that fits on one page is counted.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn estimated_count(&self) -> Result<u64, Error> {
        self.look(|_, _| Ok(self.tree().estimated_count()?))
    }

    /// How many records there are, counted by reading them all.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
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
