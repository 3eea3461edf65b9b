//! A table of byte strings that an environment has open, for all its transactions.
//!
//! A handle of a transaction costs a look at the name, and four counts of references. This one is looked up once, and a
//! call lends it and the transaction.
//!
//! V1. A call uses the table that the handle knows, if that is what a transaction would find by its name now. It does
//!     unless the table was dropped, renamed or changed since. Then the table says so (G2), and the call finds the
//!     table by its name, as a transaction does.
//! V2. A transaction that reads at a snapshot finds what its snapshot shows. If the snapshot is as new as the handle,
//!     that is what the handle knows. For an older one, the call finds the table by its name.
//! V3. A call below serializable finds the table by its name at a snapshot. Before it has locked the table, others may
//!     drop it and make another of that name. So the call looks again, until no table has the name.
//! V4. A table that is found by its name may have other types than the one that was opened. A typed handle compares
//!     them each time ([`Check`]). What the handle knows was compared when it was opened, and types never change in
//!     place.
//! V5. A handle whose table has changed learns what is there now, from the first call that finds it by its name. It
//!     learns only what everybody knows by that name ([`Known`](crate::catalog::Known)), which is what transactions
//!     have committed. The log's tail is read then, and the table is asked afterwards whether it was dropped. Who drops
//!     it says so before it commits. So a table that was not dropped is what each snapshot from that tail on shows
//!     (V2), until it says otherwise.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use ledgerstone_page::{Lsn, PageId, TableId};
use ledgerstone_region::Share;
use ledgerstone_structures::Direction;

use super::coding::prefix_bounds;
use super::here::TableIn;
use crate::catalog::TableInfo;
use crate::typed::{KeyBounds, KeyRange, TableTypes};
use crate::{
    BytesTable, Entry, Error, Index, IndexDef, Isolation, Range, Record, SortedLoader, Transaction, ValueReader,
    ValueWriter,
};

/// How often a call looks for its table by its name at the most, if others drop and make it again each time.
const TRIES_MAX: u32 = 1000;

/// How often a handle learns what has become of its table (V5). What it knew before stays as long as the handle.
const RENEWALS_MAX: u32 = 16;

/// A table of byte strings of an environment, for any of its transactions. Made by
/// [`Environment::table`](crate::Environment::table).
///
/// Each call names the transaction that it belongs to. It does what the call of the same name of [`BytesTable`] does,
/// without the cost of opening the table in each transaction. [`EnvTable::of`] is the short form for a transaction with
/// many calls. [`TypedEnvTable`](crate::TypedEnvTable) has keys and values of Rust types.
///
/// A handle means the table that has its name. If that was dropped and made again, loaded by
/// [`EnvTable::sorted_loader`], or its indexes have changed, the handle goes on with what is there then. It learns this
/// from the next call of a serializable transaction. Calls until then cost a look at the name, and all calls do after
/// 16 such changes, until the handle is cloned. A handle does not keep the environment open, but the memory of its
/// cache stays until the last handle is dropped.
///
/// Threads can share a handle, or have a clone each. Iterators, entries and what [`EnvTable::of`] returns count the
/// references to their handle. With a clone for each thread, no two threads write the same count.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// env.transact(|txn| txn.bytes_or_create("stock").map(drop))?;
/// let stock = env.table("stock")?;
/// env.transact(|txn| stock.put(txn, "apples", "12"))?;
/// env.transact(|txn| {
///     assert_eq!(stock.insert(txn, "apples", "13")?.as_deref(), Some(&b"12"[..]));
///     let all = stock.range(txn, "a".."b")?.collect::<Result<Vec<_>, _>>()?;
///     assert_eq!(all, [(b"apples".to_vec(), b"13".to_vec())]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct EnvTable {
    info: Share<TableInfo>,
    /// All commits that the handle has seen the table at lie below (V2).
    since: Lsn,
    /// Asked of a table that is found by its name, before it is used.
    check: Check,
    /// What the table has become since (V5).
    newer: OnceLock<Box<EnvTable>>,
    /// How often that may still be learnt.
    renewals_left: u32,
}

/// Refuses a table that is not for the handle.
type Check = fn(&TableInfo) -> Result<(), Error>;

impl Clone for EnvTable {
    /// References to the clone are counted apart: it may be for another thread.
    fn clone(&self) -> EnvTable {
        let latest = self.latest();
        EnvTable::new(latest.info.arc(), latest.since, latest.check, RENEWALS_MAX)
    }
}

impl std::fmt::Debug for EnvTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvTable").field("name", &self.info.name).field("table", &self.info.entry.table).finish()
    }
}

impl EnvTable {
    /// The table that a transaction finds and locks now. It must not have made it itself (V2).
    pub(crate) fn open(txn: &Transaction, name: &str, check: Check) -> Result<EnvTable, Error> {
        let table = txn.bytes(name)?;
        check(table.info())?;
        // It is locked, and so it is what it is at this tail.
        let since = txn.shared.env.engine.log.tail();
        Ok(EnvTable::new(table.info(), since, check, RENEWALS_MAX))
    }

    fn new(info: &Arc<TableInfo>, since: Lsn, check: Check, renewals_left: u32) -> EnvTable {
        EnvTable { info: Share::new(Arc::clone(info)), since, check, newer: OnceLock::new(), renewals_left }
    }

    /// What the handle knows of its table now.
    #[inline]
    fn latest(&self) -> &EnvTable {
        let mut table = self;
        while let Some(newer) = table.newer.get() {
            table = newer;
        }
        table
    }

    /// V5, with what a transaction has found by the name.
    fn renew(&self, txn: &Transaction, found: &BytesTable) {
        let env = &txn.shared.env;
        let is_here = std::ptr::eq(&*env.engine, &**self.info.tree.engine());
        if self.renewals_left == 0 || !is_here || Arc::ptr_eq(self.info.arc(), found.info()) {
            return;
        }
        let known = env.known.get(env.engine.slots.at_hand(), &self.info.name);
        let is_known = known.is_some_and(|known| Arc::ptr_eq(known.arc(), found.info()));
        let since = env.engine.log.tail();
        if is_known && !found.info().may_be_dropped() {
            let newer = EnvTable::new(found.info(), since, self.check, self.renewals_left - 1);
            let _ = self.newer.set(Box::new(newer)); // Else another thread was first, with something as good.
        }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The table in a transaction, as [`Transaction::bytes`] opens it, but without a look at the name.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn of(&self, txn: &Transaction) -> Result<BytesTable, Error> {
        self.with(txn, |table| {
            table.look(|_, _| Ok(()))?; // That it is there.
            Ok(table.owned())
        })
    }

    /// The table and a transaction, lent, for what depends on the table's name only.
    #[inline]
    pub(super) fn lent<'t>(&'t self, txn: &'t Transaction) -> TableIn<'t> {
        TableIn { shared: &txn.shared, info: &self.info }
    }

    /// True if this is what the transaction would find by the name, as far as can be seen without a lock.
    #[inline]
    fn is_known_to(&self, txn: &Transaction) -> bool {
        let is_seen = match txn.shared.isolation {
            Isolation::Snapshot => txn.shared.has_snapshot_since(self.since), // V2
            _ => true,
        };
        is_seen && !self.info.may_be_dropped() && std::ptr::eq(&*txn.shared.env.engine, &**self.info.tree.engine())
    }

    /// Calls `f` with the table in the transaction; once more if it turns out that it is not what the handle knows.
    /// What `f` did then was to find that out.
    #[inline]
    pub(super) fn with<T>(
        &self,
        txn: &Transaction,
        mut f: impl FnMut(TableIn<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let latest = self.latest();
        if latest.is_known_to(txn) {
            match f(latest.lent(txn)) {
                Ok(done) => return Ok(done),
                Err(error @ (Error::NoSuchTable(_) | Error::TableChanged { .. })) if latest.info.may_be_dropped() => {
                    txn.shared.forget_conflict(&error); // V1
                }
                Err(error) => return Err(error),
            }
        }
        self.with_found(txn, f)
    }

    /// The same with what a transaction finds by the name now. Below serializable, this may have been dropped by the
    /// time that it is locked.
    #[cold]
    #[inline(never)]
    fn with_found<T>(&self, txn: &Transaction, mut f: impl FnMut(TableIn<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let table = txn.bytes(&self.info.name)?;
            (self.check)(table.info())?;
            self.latest().renew(txn, &table);
            match f(table.here()) {
                Err(error @ (Error::NoSuchTable(_) | Error::TableChanged { .. })) if tries < TRIES_MAX => {
                    txn.shared.forget_conflict(&error); // V3
                }
                done => return done,
            }
        }
    }

    /// The records between `bounds`. They are no part of the call that finds the table, which may be done twice.
    pub(super) fn range_of(&self, txn: &Transaction, bounds: KeyBounds) -> Result<Range, Error> {
        let all = self.with(txn, |table| Range::new(table.owned(), Bound::Unbounded, Bound::Unbounded))?;
        Ok(all.within(bounds))
    }

    /// As [`BytesTable::table_id`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`EnvTable::of`].
    pub fn table_id(&self, txn: &Transaction) -> Result<TableId, Error> {
        Ok(self.of(txn)?.table_id())
    }

    /// As [`BytesTable::root_page`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`EnvTable::of`].
    pub fn root_page(&self, txn: &Transaction) -> Result<PageId, Error> {
        Ok(self.of(txn)?.root_page())
    }

    /// As [`BytesTable::types`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`EnvTable::of`].
    pub fn types(&self, txn: &Transaction) -> Result<TableTypes, Error> {
        Ok(self.of(txn)?.types().clone())
    }

    /// As [`BytesTable::indexes`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`EnvTable::of`].
    pub fn indexes(&self, txn: &Transaction) -> Result<Vec<IndexDef>, Error> {
        Ok(self.of(txn)?.indexes())
    }

    /// As [`BytesTable::index`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`EnvTable::of`], and [`Error::NoSuchIndex`].
    pub fn index(&self, txn: &Transaction, name: &str) -> Result<Index, Error> {
        self.of(txn)?.index(name)
    }

    /// As [`BytesTable::get`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn get(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.get(key))
    }

    /// As [`BytesTable::get_with`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn get_with<T>(
        &self,
        txn: &Transaction,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        let (key, mut read) = (key.as_ref(), Some(read));
        let found = self.with(txn, |table| {
            table.look_at(key, |value| {
                let _inside = txn.shared.users_code();
                read.take().map(|read| read(value)) // It is called once: where the table is found.
            })
        })?;
        Ok(found.flatten())
    }

    /// As [`BytesTable::get_for_update`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`].
    pub fn get_for_update(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.get_for_update(key))
    }

    /// As [`BytesTable::contains`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn contains(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        Ok(self.with(txn, |table| table.look_at(key, |_| ()))?.is_some())
    }

    /// As [`BytesTable::put`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn put(&self, txn: &Transaction, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.with(txn, |table| table.put(key, value))
    }

    /// As [`BytesTable::insert`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::insert`].
    pub fn insert(
        &self,
        txn: &Transaction,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.with(txn, |table| table.insert_as(key, value, Ok))
    }

    /// As [`BytesTable::insert_new`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::insert_new`].
    pub fn insert_new(&self, txn: &Transaction, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.with(txn, |table| table.insert_new(key, value))
    }

    /// As [`BytesTable::delete`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn delete(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.delete(key))
    }

    /// As [`BytesTable::remove`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::remove`].
    pub fn remove(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.remove_as(key, Ok))
    }

    /// As [`BytesTable::pop_first`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn pop_first(&self, txn: &Transaction) -> Result<Option<Record>, Error> {
        self.with(txn, |table| table.pop_as(Direction::Forward, |key, value| Ok((key.to_vec(), value))))
    }

    /// As [`BytesTable::pop_last`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn pop_last(&self, txn: &Transaction) -> Result<Option<Record>, Error> {
        self.with(txn, |table| table.pop_as(Direction::Backward, |key, value| Ok((key.to_vec(), value))))
    }

    /// As [`BytesTable::delete_range`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn delete_range(&self, txn: &Transaction, keys: impl KeyRange<Vec<u8>>) -> Result<u64, Error> {
        let bounds = self.lent(txn).key_bounds::<Vec<u8>>(keys)?;
        self.with(txn, |table| table.delete_between(bounds.clone()))
    }

    /// As [`BytesTable::modify`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::modify`].
    pub fn modify(
        &self,
        txn: &Transaction,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<bool, Error> {
        let (key, mut change) = (key.as_ref(), Some(change));
        self.with(txn, |table| table.modify(key, |old| change.take().and_then(|change| change(old))))
    }

    /// As [`BytesTable::entry`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get_for_update`].
    pub fn entry(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<Entry, Error> {
        let key = key.as_ref();
        self.with(txn, |table| Entry::new(&table.owned(), key))
    }

    /// As [`BytesTable::range`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn range(&self, txn: &Transaction, keys: impl KeyRange<Vec<u8>>) -> Result<Range, Error> {
        let bounds = self.lent(txn).key_bounds::<Vec<u8>>(keys)?;
        self.range_of(txn, bounds)
    }

    /// As [`BytesTable::prefix`].
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn prefix(&self, txn: &Transaction, prefix: impl AsRef<[u8]>) -> Result<Range, Error> {
        self.range_of(txn, prefix_bounds(prefix.as_ref().to_vec()))
    }

    /// As [`BytesTable::first`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn first(&self, txn: &Transaction) -> Result<Option<Record>, Error> {
        self.with(txn, |table| table.owned().first())
    }

    /// As [`BytesTable::last`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn last(&self, txn: &Transaction) -> Result<Option<Record>, Error> {
        self.with(txn, |table| table.owned().last())
    }

    /// As [`BytesTable::is_empty`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn is_empty(&self, txn: &Transaction) -> Result<bool, Error> {
        self.with(txn, |table| table.owned().is_empty())
    }

    /// As [`BytesTable::count`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn count(&self, txn: &Transaction) -> Result<u64, Error> {
        self.with(txn, |table| table.owned().count())
    }

    /// As [`BytesTable::estimated_count`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn estimated_count(&self, txn: &Transaction) -> Result<u64, Error> {
        self.with(txn, |table| table.owned().estimated_count())
    }

    /// As [`BytesTable::value_len`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn value_len(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.owned().value_len(key))
    }

    /// As [`BytesTable::value_reader`].
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn value_reader(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.owned().value_reader(key))
    }

    /// As [`BytesTable::value_writer`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::put`].
    pub fn value_writer(&self, txn: &Transaction, key: impl AsRef<[u8]>) -> Result<ValueWriter, Error> {
        let key = key.as_ref();
        self.with(txn, |table| table.owned().value_writer(key))
    }

    /// As [`BytesTable::sorted_loader`]. A load into an empty table makes it anew. After the commit, the first
    /// serializable call looks at the name, and the handle knows the new one from then on.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::sorted_loader`].
    pub fn sorted_loader(&self, txn: &Transaction) -> Result<SortedLoader, Error> {
        self.with(txn, |table| table.owned().sorted_loader())
    }

    /// As [`BytesTable::load_sorted`]. See [`EnvTable::sorted_loader`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::load_sorted`].
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        txn: &Transaction,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, Error> {
        self.try_load_sorted(txn, records.into_iter().map(Ok))
    }

    /// As [`BytesTable::try_load_sorted`]. See [`EnvTable::sorted_loader`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::try_load_sorted`].
    pub fn try_load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &self,
        txn: &Transaction,
        records: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<u64, E> {
        let (count, _) = self.sorted_loader(txn)?.load_all(records)?;
        Ok(count)
    }
}
