//! What the catalog holds, and handles made of it.

use std::sync::Arc;

use ledgerstone_disk::quoted;
use ledgerstone_lock::LockName;
use ledgerstone_structures::{Read, Tree};
use ledgerstone_txn::{At, Txn};

use super::Inner;
use crate::Error;
use crate::catalog::index::IndexTree;
use crate::catalog::{Definition, Entry, IndexEntry, Learnt, TableInfo};
use crate::choice::LogValues;
use ledgerstone_core::typed::shown;

impl Inner {
    pub(crate) fn table_info(&self, name: &str, definition: impl Into<Definition>) -> Arc<TableInfo> {
        let Definition { entry, types, indexes } = definition.into();
        let tree = self.tree(entry).logging_whole_values(self.effective.log_values == LogValues::Whole);
        let index = |index: IndexEntry| {
            let tree = self.tree(index.entry);
            IndexTree::new(index, tree, &types, &self.program.extractors)
        };
        let indexes = indexes.into_iter().map(index).collect();
        TableInfo::new(name, entry, tree, types, indexes, Learnt::now(&self.news))
    }

    /// What a lock is of, in a message: a table or an index that this environment has met, or the catalog.
    #[cold]
    pub(crate) fn lock_text(&self, lock: LockName) -> Option<String> {
        let (of, part) = if lock.table_id() == self.catalog.table() {
            ("the catalog".into(), self.engine.lock_text(lock, |name| shown(Some("string"), name)))
        } else {
            match self.known.with_tree(lock.table_id())? {
                (info, None) => {
                    (format!("table {}", quoted(&info.name)), self.engine.lock_text(lock, |key| info.shown(key)))
                }
                (info, Some(no)) => {
                    let index = &info.indexes[no];
                    let of = format!("index {} of table {}", quoted(index.name()), quoted(&info.name));
                    (of, self.engine.lock_text(lock, |entry| index.shown(entry)))
                }
            }
        };
        Some(if lock.is_table() { of } else { format!("{part} of {of}") })
    }

    fn tree(&self, entry: Entry) -> Tree {
        Tree::new(&self.engine, &self.space, &self.to_free, entry.table, entry.root)
    }

    /// The table that the catalog, as the snapshot and this transaction see it, has under this name.
    pub(crate) fn named_at(&self, txn: &mut Txn, name: &str, at: At) -> Result<Option<Definition>, Error> {
        let found = self.catalog.get(txn, name.as_bytes(), Read::At(at))?;
        match found.map(|bytes| Definition::decode(name, &bytes)).transpose() {
            Err(Error::NotATable { .. }) => Ok(None),
            found => found,
        }
    }

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
