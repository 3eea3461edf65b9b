//! A table in a transaction, both lent for a call: what handles of a transaction and of the environment have in common.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_region::{Common, Share};
use ledgerstone_structures::{Direction, Read, Tree};
use ledgerstone_txn::{Horizon, Txn};

use super::range::is_empty;
use crate::catalog::{OwnTables, TableInfo};
use crate::transaction::{Shared, Sight};
use crate::typed::KeyBounds;
use crate::{BytesTable, Error, Isolation};

/// A buffer that is kept for the next read of a value is at most so large, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Where values are read that only a closure looks at.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A table and a transaction. No count of references changes for it.
#[derive(Clone, Copy)]
pub(crate) struct TableIn<'t> {
    pub shared: &'t Common<Shared>,
    pub info: &'t Share<TableInfo>,
}

impl<'t> TableIn<'t> {
    pub(crate) fn info(self) -> &'t Arc<TableInfo> {
        self.info.arc()
    }

    /// The same as a handle of the transaction.
    pub(crate) fn owned(self) -> BytesTable {
        BytesTable::new(self.shared, self.info.clone())
    }

    #[inline]
    fn tree(self) -> &'t Tree {
        &self.info.tree
    }

    /// Runs `f` with the intention `mode` on the table, if the table is still there (G2).
    #[inline]
    fn enter<T>(self, mode: Mode, f: impl FnOnce(&mut Txn) -> Result<T, Error>) -> Result<T, Error> {
        self.enter_own(mode, move |txn, _| f(txn))
    }

    /// The same, with what the transaction itself has made of tables.
    #[inline]
    pub(crate) fn enter_own<T>(
        self,
        mode: Mode,
        f: impl FnOnce(&mut Txn, &mut OwnTables) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.shared.run_in(move |txn, own| {
            if mode == Mode::IX {
                self.shared.check_writable()?;
            }
            txn.lock_table(self.info.entry.table, mode)?;
            if self.info.may_be_dropped() {
                self.check_there(txn)?;
            }
            if self.shared.isolation != Isolation::Serializable {
                own.check(txn, self.info())?;
                self.check_written(txn, own)?;
            }
            f(txn, own)
        })
    }

    /// Runs `f` as this transaction's level reads.
    #[inline]
    pub(crate) fn look<T>(self, f: impl FnOnce(&mut Txn, Sight) -> Result<T, Error>) -> Result<T, Error> {
        match self.shared.isolation {
            Isolation::Serializable => self.enter(Mode::IS, move |txn| f(txn, Sight::Locked)),
            Isolation::Snapshot => self.shared.run_in(move |txn, own| {
                own.check(txn, self.info())?;
                let sight = self.shared.sight_at_snapshot(txn)?;
                f(txn, sight)
            }),
            Isolation::ReadCommitted | Isolation::ReadUncommitted => self.look_now(f),
        }
    }

    /// The same with a snapshot of its own.
    #[inline(never)]
    fn look_now<T>(self, f: impl FnOnce(&mut Txn, Sight) -> Result<T, Error>) -> Result<T, Error> {
        self.shared.run_in(move |txn, own| {
            own.check(txn, self.info())?;
            let (sight, _view) = self.sight_of(txn, Horizon::None, None)?;
            f(txn, sight)
        })
    }

    /// The value of `key`.
    #[inline]
    pub(crate) fn get(self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.read_into(key, &mut value)?.then_some(value))
    }

    /// Calls `read` with the value of `key`, in a buffer that the thread keeps.
    pub(crate) fn look_at<T>(self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        let mut value = BUFFER.try_with(Cell::take).unwrap_or_default(); // Empty if `read` of another call is running.
        let is_there = self.read_into(key, &mut value)?;
        let found = is_there.then(|| read(&value));
        if value.capacity() <= KEPT_BYTES_MAX {
            let _ = BUFFER.try_with(|kept| kept.set(value)); // Else the thread is ending.
        }
        Ok(found)
    }

    fn read_into(self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.look(move |txn, sight| Ok(self.tree().get_into(txn, key, sight.read(), value)?))
    }

    pub(crate) fn get_for_update(self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.enter(Mode::IX, |txn| Ok(self.tree().get(txn, key, self.for_update())?))
    }

    fn for_update(self) -> Read {
        match self.shared.isolation {
            Isolation::Serializable => Read::ForUpdate,
            _ => Read::ForUpdateOnly,
        }
    }

    pub(crate) fn put(self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.enter(Mode::IX, move |txn| self.info.put(txn, key, value))
    }

    pub(crate) fn insert_new(self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.enter(Mode::IX, |txn| match self.info.insert(txn, key, value)? {
            true => Ok(()),
            false => Err(Error::KeyExists { table: self.info.name.clone(), key: self.info.shown(key) }),
        })
    }

    /// Sets the value, and gives the old one as `read` makes of it; nothing has changed if that fails.
    pub(crate) fn insert_as<T>(
        self,
        key: &[u8],
        value: &[u8],
        read: impl FnOnce(Vec<u8>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let users = self.shared.users_code();
        self.enter(Mode::IX, |txn| {
            let old = self.tree().get(txn, key, self.for_update())?;
            let mut old = old.map(|old| users.run(|| read(old))).transpose()?;
            self.info.put(txn, key, value).inspect_err(|_| users.run(|| drop(old.take())))?;
            Ok(old)
        })
    }

    pub(crate) fn delete(self, key: &[u8]) -> Result<bool, Error> {
        self.enter(Mode::IX, |txn| self.info.delete(txn, key))
    }

    /// Removes the key, and gives its value as `read` makes of it; nothing has changed if that fails.
    pub(crate) fn remove_as<T>(
        self,
        key: &[u8],
        read: impl FnOnce(Vec<u8>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let users = self.shared.users_code();
        self.enter(Mode::IX, |txn| {
            let Some(value) = self.tree().get(txn, key, self.for_update())? else { return Ok(None) };
            let mut value = Some(users.run(|| read(value))?);
            self.info.delete(txn, key).inspect_err(|_| users.run(|| drop(value.take())))?;
            Ok(value)
        })
    }

    /// Removes the record at one end, and gives it as `read` makes of it; it is still there if that fails.
    pub(crate) fn pop_as<T>(
        self,
        end: Direction,
        read: impl Fn(&[u8], Vec<u8>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.shared.isolation == Isolation::Serializable {
            // Locked for good at once: two that had both locked it for reading would wait for each other.
            let users = self.shared.users_code();
            return self.enter(Mode::IX, |txn| {
                let mut scan = self.tree().scan(Bound::Unbounded, Bound::Unbounded, end).for_change();
                let Some((key, value)) = scan.next(txn)? else { return Ok(None) };
                let (key, value) = (key.to_vec(), value.to_vec());
                let mut record = Some(users.run(|| read(&key, value))?);
                self.info.delete(txn, &key).inspect_err(|_| users.run(|| drop(record.take())))?;
                Ok(record)
            });
        }
        let table = self.owned();
        loop {
            let found = if end == Direction::Forward { table.first()? } else { table.last()? };
            let Some((key, _)) = found else { return Ok(None) };
            if let Some(record) = self.remove_as(&key, |value| read(&key, value))? {
                return Ok(Some(record));
            }
            // Somebody else has taken it since.
        }
    }

    pub(crate) fn delete_between(self, (start, end): KeyBounds) -> Result<u64, Error> {
        if is_empty(&start, &end) {
            return Ok(0);
        }
        self.enter(Mode::IX, |txn| self.info.delete_range(&self.shared.env, txn, start, end))
    }

    pub(crate) fn modify(self, key: &[u8], change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Result<bool, Error> {
        let users = self.shared.users_code();
        // Dropped out here if it is not called: what it has captured is the user's, and may panic then.
        let mut change = Some(change);
        self.enter(Mode::IX, |txn| {
            self.info.modify(txn, key, |old| users.run(|| change.take().and_then(|change| change(old))))
        })
    }
}
