//! Indexes are created, filled, and dropped.
//!
//! A new index is filled in the transaction that creates it: its entries are sorted in memory, as many at once as a part of the
//! page cache would hold. The first run becomes full pages by the bulk loader, later ones are put in order.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_structures::{Direction, Loader, Tree};
use ledgerstone_txn::Txn;

use super::entry::Stored;
use super::{IndexTree, shown};
use crate::catalog::{Definition, Entry, IndexEntry, TableInfo};
use crate::env::Inner;
use crate::{BytesTable, Error, IndexDef, Transaction};

/// Memory of an entry beside its bytes.
const ENTRY_BYTES: usize = 64;
/// The part of the page cache's size that sorting may take beside it, for all indexes together.
const CACHE_PART: u64 = 8;

impl Transaction {
    /// Makes an index of a table, which may have records already: their entries are there when this returns, and the index is
    /// kept from then on by every change of the table. Waits for everybody who uses the table.
    ///
    /// Handles that this transaction has opened to the table answer [`Error::NoSuchTable`] afterwards: open it again.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::IndexExists`], [`Error::BadIndex`], [`Error::TooManyIndexes`];
    /// [`Error::IndexKeyExists`], [`Error::IndexKeyTooLarge`], [`Error::NotIndexable`] for a record that is there (nothing has
    /// changed); [`Error::NoIndexExtractor`]; [`Error::IndexNeedsLocks`] in a snapshot; conflicts, no space.
    pub fn create_index(&self, table: &str, index: &IndexDef) -> Result<(), Error> {
        check_definition(index)?;
        let table = self.to_redefine(table)?;
        let (env, old) = (Arc::clone(&self.shared.env), Arc::clone(table.info()));
        let new = table.enter(Mode::IX, |txn| {
            old.lock_whole(txn)?;
            if old.indexes.iter().any(|other| other.name() == index.name()) {
                return Err(Error::IndexExists { table: old.name.clone(), index: index.name().to_string() });
            }
            old.in_one_step(txn, |txn| {
                let root = Tree::create(txn, env.to_free())?;
                // Unique for ever: the LSN of a record that making the root has just written.
                let entry = Entry { table: TableId(txn.last_lsn().0), root };
                txn.lock_table(entry.table, Mode::X)?;
                let mut definition = old.definition();
                let key_type = env.extractors.key_type(&old, index)?;
                definition.indexes.push(IndexEntry { entry, def: index.clone(), key_type });
                // First, so that who follows the log knows what is to come.
                env.put_definition(txn, &old.name, &definition)?;
                let new = env.table_info(&old.name, definition);
                let mut builders = Builders::new(&env, &new, old.indexes.len());
                let mut scan = old.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                while let Some((key, value)) = scan.next(txn)? {
                    let entries = builders.entries(key, value)?;
                    builders.add(txn, entries)?;
                }
                builders.finish(txn)?;
                Ok(new)
            })
        })?;
        self.shared.replace_table(&old, &old.name, Some(new))
    }

    /// Drops an index of a table. Its pages are freed after the commit. Waits for everybody who uses the table; handles are to
    /// be opened again, as after [`Transaction::create_index`].
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NoSuchIndex`], [`Error::IndexNeedsLocks`] in a snapshot, conflicts.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<(), Error> {
        let table = self.to_redefine(table)?;
        let (env, old) = (Arc::clone(&self.shared.env), Arc::clone(table.info()));
        let new = table.enter(Mode::IX, |txn| {
            old.lock_whole(txn)?;
            let mut definition = old.definition();
            let at = old.index_named(index)?;
            let gone = definition.indexes.remove(at);
            env.put_definition(txn, &old.name, &definition)?;
            env.to_free().defer_tree(txn, gone.entry.root)?;
            Ok(env.table_info(&old.name, definition))
        })?;
        self.shared.replace_table(&old, &old.name, Some(new))
    }
}

impl BytesTable {
    /// The table's indexes, in the order of their creation.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexDef> {
        self.info().indexes.iter().map(|index| index.entry.def.clone()).collect()
    }
}

impl TableInfo {
    /// Locks the table and its indexes, so that nobody else uses any of them, the reclaimer and a compaction included.
    pub(crate) fn lock_whole(&self, txn: &mut Txn) -> Result<(), Error> {
        txn.lock_table(self.entry.table, Mode::X)?;
        for index in &self.indexes {
            txn.lock_table(index.entry.entry.table, Mode::X)?;
        }
        Ok(())
    }

    /// Where in the list the index of this name is.
    pub(super) fn index_named(&self, index: &str) -> Result<usize, Error> {
        let at = self.indexes.iter().position(|found| found.name() == index);
        at.ok_or_else(|| Error::NoSuchIndex { table: self.name.clone(), index: index.to_string() })
    }
}

impl Inner {
    /// Writes a table's entry in the catalog; its name is locked.
    pub(crate) fn put_definition(&self, txn: &mut Txn, name: &str, definition: &Definition) -> Result<(), Error> {
        let bytes = definition.encode();
        if bytes.len() > self.catalog().short_value_bytes_max() {
            return Err(Error::TooManyIndexes { table: name.to_string() });
        }
        self.catalog().put(txn, name.as_bytes(), &bytes)?;
        Ok(())
    }
}

/// Refuses what could not be read back from the catalog.
fn check_definition(index: &IndexDef) -> Result<(), Error> {
    if index.name().is_empty() || index.name().len() > 255 {
        return Err(Error::BadIndex { what: "the name of an index has 1 to 255 bytes".into() });
    }
    let text = index.keys().to_string();
    match text.parse() {
        Ok(keys) if index.keys() == &keys => Ok(()),
        _ => Err(Error::BadIndex { what: format!("{text:?} says no index keys") }),
    }
}

/// Fills new indexes of a table, beginning with the n-th, with the entries of its records.
pub(crate) struct Builders {
    info: Arc<TableInfo>,
    builders: Vec<Builder>,
}

impl std::fmt::Debug for Builders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builders").field("table", &self.info.name).finish_non_exhaustive()
    }
}

struct Builder {
    index: usize,
    /// The run to come.
    run: Vec<Stored>,
    bytes: usize,
    bytes_max: usize,
    /// The first run has been written.
    has_content: bool,
}

impl Builders {
    /// For indexes whose trees are empty and locked exclusively.
    pub(crate) fn new(env: &Inner, info: &Arc<TableInfo>, first: usize) -> Builders {
        let count = info.indexes.len() - first;
        let bytes_max = (env.effective.cache_bytes / CACHE_PART) as usize / count.max(1);
        let builder = |index| Builder { index, run: Vec::new(), bytes: 0, bytes_max, has_content: false };
        Builders { info: Arc::clone(info), builders: (first..info.indexes.len()).map(builder).collect() }
    }

    /// The table with the new indexes.
    pub(crate) fn table(&self) -> &Arc<TableInfo> {
        &self.info
    }

    /// The entries of a record, for each index.
    pub(crate) fn entries(&self, key: &[u8], value: &[u8]) -> Result<Vec<Vec<Stored>>, Error> {
        let of = |builder: &Builder| self.info.indexes[builder.index].entries(&self.info.name, key, value);
        self.builders.iter().map(of).collect()
    }

    /// Adds the entries of the next record; records come in any order.
    pub(crate) fn add(&mut self, txn: &mut Txn, entries: Vec<Vec<Stored>>) -> Result<(), Error> {
        for (builder, entries) in self.builders.iter_mut().zip(entries) {
            let index = &self.info.indexes[builder.index];
            for entry in entries {
                builder.bytes += entry.0.len() + entry.1.len() + ENTRY_BYTES;
                builder.run.push(entry);
            }
            if builder.bytes > builder.bytes_max {
                builder.write(txn, &self.info.name, index)?;
            }
        }
        Ok(())
    }

    /// All records are there.
    pub(crate) fn finish(mut self, txn: &mut Txn) -> Result<(), Error> {
        for builder in &mut self.builders {
            builder.write(txn, &self.info.name, &self.info.indexes[builder.index])?;
        }
        Ok(())
    }
}

impl Builder {
    fn write(&mut self, txn: &mut Txn, table: &str, index: &IndexTree) -> Result<(), Error> {
        let mut run = std::mem::take(&mut self.run);
        self.bytes = 0;
        run.sort_unstable();
        let twice = |key: &[u8]| {
            if index.entry.def.is_unique() {
                let (table, index) = (table.to_string(), index.name().to_string());
                Error::IndexKeyExists { table, index, key: key.to_vec() }
            } else {
                index.differs(table, format!("entry {:?} comes twice", shown(key)))
            }
        };
        if let Some(pair) = run.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(twice(&pair[0].0));
        }
        if std::mem::replace(&mut self.has_content, true) {
            for (key, value) in &run {
                if !index.tree.insert(txn, key, value)? {
                    return Err(twice(key));
                }
            }
            return Ok(());
        }
        let mut loader = Loader::new(&index.tree);
        for (key, value) in &run {
            loader.push(txn, key, value)?;
        }
        Ok(loader.finish(txn)?)
    }
}
