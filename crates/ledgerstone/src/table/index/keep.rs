//! Changes of a table's records, with those of its indexes (X1, X2). Tables without indexes pass through.

use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_structures::Read;
use ledgerstone_txn::{Txn, UsersCode};

use crate::Error;
use crate::catalog::TableInfo;
use crate::catalog::index::Stored;

/// What a change of a record changes in one index.
struct Difference {
    gone: Vec<Stored>,
    come: Vec<Stored>,
}

impl TableInfo {
    /// Sets the value of `key`.
    pub(crate) fn put(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.indexes.is_empty() {
            return txn.whole(|txn| Ok(self.tree.put(txn, key, value).map(drop)?));
        }
        self.in_one_step(txn, |txn| {
            let old = self.tree.get(txn, key, Read::ForUpdateOnly)?;
            let differences = self.differences(key, old.as_deref(), Some(value))?;
            self.tree.put(txn, key, value)?;
            self.change_indexes(txn, &differences)
        })
    }

    /// Sets the value of a key that has none; false if it has one.
    pub(crate) fn insert(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        if self.indexes.is_empty() {
            return txn.whole(|txn| Ok(self.tree.insert(txn, key, value)?));
        }
        self.in_one_step(txn, |txn| {
            let differences = self.differences(key, None, Some(value))?;
            if !self.tree.insert(txn, key, value)? {
                return Ok(false);
            }
            self.change_indexes(txn, &differences)?;
            Ok(true)
        })
    }

    /// Removes `key`; says whether it had a value.
    pub(crate) fn delete(&self, txn: &mut Txn, key: &[u8]) -> Result<bool, Error> {
        if self.indexes.is_empty() {
            return txn.whole(|txn| Ok(self.tree.delete(txn, key)?));
        }
        self.in_one_step(txn, |txn| {
            let old = self.tree.get(txn, key, Read::ForUpdateOnly)?;
            let differences = self.differences(key, old.as_deref(), None)?;
            let was_there = self.tree.delete(txn, key)?;
            self.change_indexes(txn, &differences)?;
            Ok(was_there)
        })
    }

    /// Replaces the value of `key` by what `change` makes of it; says whether there was one.
    pub(crate) fn modify(
        &self,
        txn: &mut Txn,
        key: &[u8],
        change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<bool, Error> {
        if self.indexes.is_empty() {
            return txn.whole(|txn| Ok(self.tree.modify(txn, key, change)?)); // `change` is asked first of all.
        }
        self.in_one_step(txn, |txn| {
            let mut differences = Ok(Vec::new());
            let was_there = self.tree.modify(txn, key, |old| {
                let new = change(old)?;
                differences = self.differences(key, Some(old), Some(&new));
                differences.is_ok().then_some(new)
            })?;
            self.change_indexes(txn, &differences?)?;
            Ok(was_there)
        })
    }

    /// Changes a part of the value of `key`, which is made if it has none: `edit` does to a copy what `write` does to
    /// the table. A table with indexes needs the whole value for that, twice.
    pub(crate) fn edit_value<T>(
        &self,
        txn: &mut Txn,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>),
        write: impl FnOnce(&mut Txn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.indexes.is_empty() {
            return txn.whole(write);
        }
        self.in_one_step(txn, |txn| {
            let old = self.tree.get(txn, key, Read::ForUpdateOnly)?;
            let mut new = old.clone().unwrap_or_default();
            edit(&mut new);
            let differences = self.differences(key, old.as_deref(), Some(&new))?;
            let written = write(txn)?;
            self.change_indexes(txn, &differences)?;
            Ok(written)
        })
    }

    /// Runs `f`, and takes back what it did if it fails or panics (X1).
    pub(crate) fn in_one_step<T>(
        &self,
        txn: &mut Txn,
        f: impl FnOnce(&mut Txn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Functions of the user's say what the entries are.
        let _inside = UsersCode::of(self.tree.engine(), txn.owner(), txn.xid());
        txn.in_one_step(f)
    }

    /// What a change of a record changes in each index. Changes nothing yet, so that a function of the user's that
    /// refuses, or panics, has done no harm.
    fn differences(&self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> Result<Vec<Difference>, Error> {
        let mut differences = Vec::with_capacity(self.indexes.len());
        for index in &self.indexes {
            let of = |value: Option<&[u8]>| value.map_or(Ok(Vec::new()), |value| index.entries(&self.name, key, value));
            let (mut gone, mut come) = (of(old)?, of(new)?);
            // Both are sorted.
            let stays = |entry: &Stored, others: &[Stored]| others.binary_search(entry).is_ok();
            let kept: Vec<Stored> = gone.iter().filter(|entry| stays(entry, &come)).cloned().collect();
            gone.retain(|entry| !stays(entry, &kept));
            come.retain(|entry| !stays(entry, &kept));
            differences.push(Difference { gone, come });
        }
        Ok(differences)
    }

    fn change_indexes(&self, txn: &mut Txn, differences: &[Difference]) -> Result<(), Error> {
        for (index, Difference { gone, come }) in self.indexes.iter().zip(differences) {
            if gone.is_empty() && come.is_empty() {
                continue;
            }
            txn.lock_table(index.entry.entry.table, Mode::IX)?;
            for (key, _) in gone {
                if !planted::is_on(Bug::IndexEntryStays) && !index.tree.delete(txn, key)? {
                    return Err(index.lacks(&self.name, key));
                }
            }
            for (key, value) in come {
                if index.tree.insert(txn, key, value)? || planted::is_on(Bug::DuplicateLetIn) {
                    continue;
                }
                return Err(if index.entry.def.is_unique() {
                    let (table, key) = (self.name.as_str().into(), index.shown(key).into());
                    Error::IndexKeyExists { table, index: index.name().into(), key }
                } else {
                    index.differs(&self.name, format!("it has an entry {} already", index.shown(key)))
                });
            }
        }
        Ok(())
    }
}
