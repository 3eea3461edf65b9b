//! Reading a table by one of its indexes.

use std::ops::Bound;

use ledgerstone_lock::Mode;
use ledgerstone_structures::Read;

use crate::catalog::index::escaped;
use crate::transaction::Sight;
use crate::typed::{KeyRange, TypeName};
use crate::{BytesTable, Error, IndexDef, Isolation, Range, Record};
use ledgerstone_core::typed::prefix_end;

/// An index of a table in a transaction. Made by [`BytesTable::index`]. It is owned, as its table is.
#[derive(Clone)]
pub struct Index {
    table: BytesTable,
    no: usize,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("table", &self.table).field("definition", self.definition()).finish()
    }
}

impl BytesTable {
    /// The index of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    pub fn index(&self, name: &str) -> Result<Index, Error> {
        Ok(Index { table: self.clone(), no: self.info().index_named(name)? })
    }
}

impl Index {
    /// Its definition.
    #[must_use]
    pub fn definition(&self) -> &IndexDef {
        &self.table.info().indexes[self.no].entry.def
    }

    /// The name of its keys' type in the catalog. `None` if there is none, as for a function for byte strings.
    #[must_use]
    pub fn key_type(&self) -> Option<&str> {
        self.table.info().indexes[self.no].entry.key_type.as_deref()
    }

    pub(super) fn check_type(&self, asked: &TypeName) -> Result<(), Error> {
        let info = self.table.info();
        info.indexes[self.no].check_type(info, asked)
    }

    /// Its table.
    #[must_use]
    pub fn table(&self) -> &BytesTable {
        &self.table
    }

    /// The entries with this index key, in the order of their primary keys. A serializable transaction locks them, and
    /// also locks out new ones.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn lookup(&self, index_key: impl AsRef<[u8]>) -> Result<IndexRange, Error> {
        let index_key = index_key.as_ref();
        self.between(Bound::Included(index_key), Bound::Included(index_key))
    }

    /// The first record with this index key, and its primary key. A unique index has only one.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`], and [`Error::IndexDiffers`].
    pub fn get(&self, index_key: impl AsRef<[u8]>) -> Result<Option<Record>, Error> {
        let index_key = index_key.as_ref();
        if let Some(found) = self.get_locked(index_key)? {
            return Ok(Some(found));
        }
        let first = self.lookup(index_key)?.records().next().transpose()?;
        Ok(first.map(|(_, primary_key, value)| (primary_key, value)))
    }

    /// The usual case for a serializable transaction, in one call and without a copy of a leaf. None says nothing.
    fn get_locked(&self, index_key: &[u8]) -> Result<Option<Record>, Error> {
        let (table, info) = (&self.table, self.table.info());
        if table.shared.isolation != Isolation::Serializable {
            return Ok(None);
        }
        let index = &info.indexes[self.no];
        let shape = index.shape();
        if index_key.len() > index.tree.key_bytes_max() {
            return Ok(None); // No entry has it.
        }
        table.enter(Mode::IS, |txn| {
            txn.lock_table(index.entry.entry.table, Mode::IS)?;
            let primary_key = if shape.is_unique {
                let Some(primary_key) = index.tree.get(txn, index_key, Read::Locked)? else { return Ok(None) };
                primary_key
            } else {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                if !index.tree.first_with(txn, &escaped(index_key), &mut key, &mut value)? {
                    return Ok(None);
                }
                let Some((_, primary_key)) = shape.parts(&key, &value) else { return Ok(None) };
                primary_key
            };
            let value = table.tree().get(txn, &primary_key, Read::Locked)?;
            Ok(value.map(|value| (primary_key, value)))
        })
    }

    /// The entries whose index keys lie in `index_keys`, in order. The iterator can be read from the back too.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn range(&self, index_keys: impl KeyRange<Vec<u8>>) -> Result<IndexRange, Error> {
        let (start, end) = self.table.here().bounds_of("index key", || index_keys.bounds())?;
        self.between(start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))
    }

    /// The entries whose index keys begin with `prefix`.
    ///
    /// May wait for locks and for pages, and so may each step of the iterator: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<IndexRange, Error> {
        let prefix = prefix.as_ref();
        let end = prefix_end(prefix);
        self.between(Bound::Included(prefix), end.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }

    fn between(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<IndexRange, Error> {
        let (start, end) = self.table.info().indexes[self.no].shape().bounds(start, end);
        let range = Range::of(self.table.clone(), Some(self.no), start, end)?;
        Ok(IndexRange { range, index: self.clone() })
    }
}

/// An owned iterator over the entries of an index, in order from either end. It is isolated as a [`Range`] of the table
/// is. Each entry is an index key, and the primary key of a record that has it.
#[derive(Debug)]
pub struct IndexRange {
    range: Range,
    index: Index,
}

impl IndexRange {
    /// The same with the records' values.
    #[must_use]
    pub fn records(self) -> IndexedRecords {
        IndexedRecords { entries: self }
    }

    fn parts(&self, entry: Result<Record, Error>) -> Result<Record, Error> {
        let (key, value) = entry?;
        let index = &self.index.table.info().indexes[self.index.no];
        index.shape().parts(&key, &value).ok_or_else(|| self.differs(format!("{} is not an entry", index.shown(&key))))
    }

    fn differs(&self, what: String) -> Error {
        let info = self.index.table.info();
        info.indexes[self.index.no].differs(&info.name, what)
    }

    /// The value of an entry's record, as the entry was seen. None: it went meanwhile, which only a reader of
    /// uncommitted sees.
    fn value(&self, primary_key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (table, sight) = (&self.index.table, self.range.sight());
        let value = table.shared.run_in(|txn, own| {
            own.check(txn, table.info())?;
            table.shared.check_sight(sight)?;
            Ok(table.tree().get(txn, primary_key, sight.read())?)
        })?;
        if value.is_none() && sight != Sight::Unlocked {
            return Err(self.differs(format!("there is no record {}", table.info().shown(primary_key))));
        }
        Ok(value)
    }
}

impl Iterator for IndexRange {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next()?;
        Some(self.parts(entry))
    }
}

impl DoubleEndedIterator for IndexRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_back()?;
        Some(self.parts(entry))
    }
}

impl std::iter::FusedIterator for IndexRange {}

/// An owned iterator over records by an index: index key, primary key, value. Made by [`IndexRange::records`].
#[derive(Debug)]
pub struct IndexedRecords {
    entries: IndexRange,
}

/// Index key, primary key, value.
pub type IndexedRecord = (Vec<u8>, Vec<u8>, Vec<u8>);

impl IndexedRecords {
    fn step(
        &mut self,
        next: impl Fn(&mut IndexRange) -> Option<Result<Record, Error>>,
    ) -> Option<Result<IndexedRecord, Error>> {
        loop {
            let (index_key, primary_key) = match next(&mut self.entries)? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            match self.entries.value(&primary_key) {
                Ok(Some(value)) => return Some(Ok((index_key, primary_key, value))),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Iterator for IndexedRecords {
    type Item = Result<IndexedRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(IndexRange::next)
    }
}

impl DoubleEndedIterator for IndexedRecords {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(IndexRange::next_back)
    }
}

impl std::iter::FusedIterator for IndexedRecords {}
