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

use std::sync::Arc;

use ledgerstone_page::Lsn;
use ledgerstone_region::Share;

use super::BytesTable;
use super::here::TableIn;
use crate::catalog::TableInfo;
use crate::{Error, Isolation, Transaction};

/// How often a call looks for its table by its name at the most, if others drop and make it again each time.
const TRIES_MAX: u32 = 1000;

/// A table of byte strings of an environment, for any of its transactions. Made by
/// [`Environment::table`](crate::Environment::table).
///
/// Each call names the transaction that it belongs to. It does what the call of the same name of [`BytesTable`] does,
/// without the cost of opening the table in each transaction. [`EnvTable::of`] opens it there, for all other calls.
///
/// A handle means the table that has its name. If that was dropped and made again, or its indexes have changed, the
/// handle goes on with what is there then. Each call then costs a look at the name. A handle does not keep the
/// environment open, but the memory of its cache stays until the last handle is dropped.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// env.transact(|txn| txn.bytes_or_create("stock").map(drop))?;
/// let stock = env.table("stock")?;
/// env.transact(|txn| stock.put(txn, "apples", "12"))?;
/// let apples = env.transact(|txn| stock.get(txn, "apples"))?;
/// assert_eq!(apples.as_deref(), Some(&b"12"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EnvTable {
    info: Share<TableInfo>,
    /// All commits that the handle has seen the table at lie below (V2).
    since: Lsn,
}

impl std::fmt::Debug for EnvTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvTable").field("name", &self.info.name).field("table", &self.info.entry.table).finish()
    }
}

impl EnvTable {
    /// The table that a transaction has opened just now, and has locked.
    pub(crate) fn of_open(table: &BytesTable) -> EnvTable {
        let info = Share::new(Arc::clone(table.info()));
        // It is locked, and so it is what it is at this tail.
        let since = table.shared.env.engine.log.tail();
        EnvTable { info, since }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The table in a transaction, as [`Transaction::bytes`] opens it.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn of(&self, txn: &Transaction) -> Result<BytesTable, Error> {
        txn.bytes(&self.info.name)
    }

    /// True if this is what the transaction would find by the name, as far as can be seen without a lock.
    #[inline]
    fn is_known_to(&self, txn: &Transaction) -> bool {
        let is_seen = match txn.shared.isolation {
            Isolation::Snapshot => txn.snapshot_lsn().is_some_and(|at| at >= self.since), // V2
            _ => true,
        };
        is_seen && !self.info.is_dropped() && std::ptr::eq(&*txn.shared.env.engine, &**self.info.tree.engine())
    }

    /// Calls `f` with the table in the transaction; once more if it turns out that it is not what the handle knows.
    /// What `f` did then was to find that out.
    #[inline]
    fn with<T>(&self, txn: &Transaction, mut f: impl FnMut(TableIn<'_>) -> Result<T, Error>) -> Result<T, Error> {
        if self.is_known_to(txn) {
            match f(TableIn { shared: &txn.shared, info: &self.info }) {
                Err(error @ (Error::NoSuchTable(_) | Error::TableChanged { .. })) if self.info.is_dropped() => {
                    txn.shared.forget_conflict(&error); // V1
                }
                done => return done,
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
            match f(self.of(txn)?.here()) {
                Err(error @ (Error::NoSuchTable(_) | Error::TableChanged { .. })) if tries < TRIES_MAX => {
                    txn.shared.forget_conflict(&error); // V3
                }
                done => return done,
            }
        }
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
}
