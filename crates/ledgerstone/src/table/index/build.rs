//! Indexes are created, filled, and dropped.
//!
//! A new index is filled in the transaction that creates it. Its entries are sorted, in memory or in runs of a
//! temporary file (the crate `sort`). The bulk loader makes full pages of them in one pass. So nothing of it has an
//! undo of its own: what is rolled back, or killed, is freed as the tree that it is.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use ledgerstone_disk::quoted;
use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_sort::Sorter;
use ledgerstone_structures::{Direction, Loader, Tree};
use ledgerstone_txn::{Txn, run_users_code};

use crate::catalog::check_type_name;
use crate::catalog::index::{IndexTree, Stored};
use crate::catalog::{Entry, IndexEntry, TableInfo};
use crate::flow::{Flow, go_on};
use crate::inner::Inner;
use crate::{BytesTable, Error, IndexDef, Transaction};

/// Records or entries between two calls of the progress callback.
const RECORDS_BETWEEN: u64 = 1024;

/// The part of the page cache's size that sorting may take beside it, for all indexes together, and most that it is.
const CACHE_PART: u64 = 8;
const SORT_BYTES_MAX: u64 = 16 << 20;

impl Transaction {
    /// Makes an index of a table. The table may have records already, and their entries are there when this returns.
    /// From then on every change of the table keeps the index up to date. Waits for all other transactions that use the
    /// table.
    ///
    /// Handles of this transaction to the table return [`Error::NoSuchTable`] afterwards: open the table again.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::IndexExists`], [`Error::BadIndex`], [`Error::TooManyIndexes`].
    /// [`Error::IndexKeyExists`], [`Error::IndexKeyTooLarge`] or [`Error::NotIndexable`] for an existing record, with
    /// nothing changed. [`Error::NoIndexExtractor`]. [`Error::IndexNeedsLocks`] in a snapshot. Conflicts, no space.
    pub fn create_index(&self, table: &str, index: &IndexDef) -> Result<(), Error> {
        self.create_index_with(table, index, |_| ())
    }

    /// The same. `progress` is called repeatedly with the count of records and entries that have been read so far. It
    /// may end the call ([`Flow`]), and nothing has changed then.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Transaction::create_index`], and [`Error::Cancelled`].
    pub fn create_index_with<F: Flow>(
        &self,
        table: &str,
        index: &IndexDef,
        mut progress: impl FnMut(u64) -> F,
    ) -> Result<(), Error> {
        self.create_index_by(table, index, &mut |count| progress(count).flow())
    }

    fn create_index_by(
        &self,
        table: &str,
        index: &IndexDef,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut count = 0_u64;
        let mut step = || {
            count += 1;
            match count.is_multiple_of(RECORDS_BETWEEN) {
                true => go_on(run_users_code(&self.shared.env.engine, || progress(count))),
                false => Ok(()),
            }
        };
        check_definition(index)?;
        let table = self.to_redefine(table)?;
        let (env, old) = (Arc::clone(self.shared.env.arc()), Arc::clone(table.info()));
        table.enter_own(Mode::IX, |txn, own| {
            old.lock_whole(txn)?;
            if old.indexes.iter().any(|other| other.name() == index.name()) {
                return Err(Error::IndexExists { table: old.name.clone(), index: index.name().to_string() });
            }
            let new = old.in_one_step(txn, |txn| {
                let root = Tree::create(txn, env.to_free())?;
                // Unique for ever: the LSN of a record that making the root has just written.
                let entry = Entry { table: TableId(txn.last_lsn().0), root };
                txn.lock_table(entry.table, Mode::X)?;
                let mut definition = old.definition();
                let key_type = env.program.extractors.key_type(&old, index)?;
                key_type.as_deref().map_or(Ok(()), check_type_name)?;
                definition.indexes.push(IndexEntry { entry, def: index.clone(), key_type });
                // First, so that a reader of the log knows what is to come.
                env.put_definition(txn, &old.name, &definition)?;
                let new = env.table_info(&old.name, definition);
                let mut builders = Builders::new(&env, &new, old.indexes.len());
                let mut scan = old.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                while let Some((key, value)) = scan.next(txn)? {
                    step()?;
                    let entries = builders.entries(key, value)?;
                    builders.add(entries)?;
                }
                builders.finish(txn, &mut step)?;
                Ok(new)
            })?;
            self.shared.replace_table((txn, own), &table.info, new);
            Ok(())
        })
    }

    /// As [`Transaction::create_index`], unless the table has this index already. Returns whether it was created. So a
    /// program may call this each time it starts. If the index exists, the call looks at the table once, and nothing
    /// waits.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// use ledgerstone::{IndexDef, IndexKeys};
    ///
    /// env.transact(|txn| {
    ///     txn.bytes_or_create("people")?;
    ///     let by_city = IndexDef::new("by_city", IndexKeys::Json("city".into()));
    ///     assert!(txn.create_index_if_missing("people", &by_city)?);
    ///     assert!(!txn.create_index_if_missing("people", &by_city)?);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::IndexExists`] if the table has an index of this name with other keys, or one of the two is unique and
    /// the other is not. Otherwise as [`Transaction::create_index`].
    pub fn create_index_if_missing(&self, table: &str, index: &IndexDef) -> Result<bool, Error> {
        if self.bytes(table)?.indexes().contains(index) {
            return Ok(false);
        }
        match self.create_index(table, index) {
            // Another transaction was faster, while this one waited for the table.
            Err(Error::IndexExists { .. }) if self.bytes(table)?.indexes().contains(index) => Ok(false),
            created => created.map(|()| true),
        }
    }

    /// Drops an index of a table. Its pages are freed after the commit. Waits for all other transactions that use the
    /// table. Handles have to be opened again, as after [`Transaction::create_index`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NoSuchIndex`], [`Error::IndexNeedsLocks`] in a snapshot, conflicts.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<(), Error> {
        let table = self.to_redefine(table)?;
        let (env, old) = (Arc::clone(self.shared.env.arc()), Arc::clone(table.info()));
        let redefine = |txn: &mut Txn| {
            old.lock_whole(txn)?;
            let mut definition = old.definition();
            let at = old.index_named(index)?;
            let gone = definition.indexes.remove(at);
            env.put_definition(txn, &old.name, &definition)?;
            env.to_free().defer_tree(txn, gone.entry.root)?;
            Ok::<_, Error>(env.table_info(&old.name, definition))
        };
        table.enter_own(Mode::IX, |txn, own| {
            let new = txn.whole(redefine)?;
            self.shared.replace_table((txn, own), &table.info, new);
            Ok(())
        })
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

/// Refuses what could not be read back from the catalog.
fn check_definition(index: &IndexDef) -> Result<(), Error> {
    if index.name().is_empty() || index.name().len() > 255 {
        return Err(Error::BadIndex { what: "the name of an index has 1 to 255 bytes".into() });
    }
    let text = index.keys().to_string();
    match text.parse() {
        Ok(keys) if index.keys() == &keys => Ok(()),
        _ => Err(Error::BadIndex { what: format!("{} does not say what to index by", quoted(&text)) }),
    }
}

/// The memory that the sorter of each of `count` indexes may take, in bytes.
pub(super) fn sort_bytes(env: &Inner, count: usize) -> usize {
    (env.effective.cache_bytes / CACHE_PART).min(SORT_BYTES_MAX) as usize / count.max(1)
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
    sorter: Sorter,
}

impl Builders {
    /// For indexes whose trees are empty and locked exclusively.
    pub(crate) fn new(env: &Inner, info: &Arc<TableInfo>, first: usize) -> Builders {
        let count = info.indexes.len() - first;
        let bytes_max = sort_bytes(env, count);
        let builder = |index| Builder { index, sorter: Sorter::new(&env.disk, bytes_max) };
        Builders { info: Arc::clone(info), builders: (first..info.indexes.len()).map(builder).collect() }
    }

    /// The table with the new indexes.
    pub(crate) fn table(&self) -> &Arc<TableInfo> {
        &self.info
    }

    /// True if there is no index to fill.
    pub(crate) fn is_empty(&self) -> bool {
        self.builders.is_empty()
    }

    /// The entries of a record, for each index.
    pub(crate) fn entries(&self, key: &[u8], value: &[u8]) -> Result<Vec<Vec<Stored>>, Error> {
        let of = |builder: &Builder| self.info.indexes[builder.index].entries(&self.info.name, key, value);
        self.builders.iter().map(of).collect()
    }

    /// Adds the entries of the next record; records come in any order. May write to a temporary file.
    pub(crate) fn add(&mut self, entries: Vec<Vec<Stored>>) -> Result<(), Error> {
        for (builder, entries) in self.builders.iter_mut().zip(entries) {
            entries.iter().try_for_each(|(key, value)| builder.sorter.push(key, value))?;
        }
        Ok(())
    }

    /// All records are there: fills the trees.
    /// `step` is called for each entry, and ends it by an error.
    pub(crate) fn finish(self, txn: &mut Txn, step: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let Builders { info, builders } = self;
        builders
            .into_iter()
            .try_for_each(|Builder { index, sorter }| fill(txn, sorter, &info.name, &info.indexes[index], step))
    }
}

/// Fills an index's tree with entries.
fn fill(
    txn: &mut Txn,
    sorter: Sorter,
    table: &str,
    index: &IndexTree,
    step: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let mut loader = Loader::new(&index.tree);
    let mut last: Option<Vec<u8>> = None;
    sorter.give_all::<Error>(&mut |key, value| {
        match &mut last {
            Some(last) if last == key => {
                return Err(if index.entry.def.is_unique() {
                    let (table, key) = (table.into(), index.shown(key).into());
                    Error::IndexKeyExists { table, index: index.name().into(), key }
                } else {
                    index.differs(table, format!("entry {} comes twice", index.shown(key)))
                });
            }
            Some(last) => {
                last.clear();
                last.extend_from_slice(key);
            }
            None => last = Some(key.to_vec()),
        }
        step()?;
        Ok(loader.push(txn, key, value)?)
    })?;
    Ok(loader.finish(txn)?)
}
