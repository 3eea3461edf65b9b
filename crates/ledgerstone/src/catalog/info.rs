//! A table that was found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use ledgerstone_structures::Tree;

use super::index::IndexTree;
use super::{Definition, Entry, Learnt};
use crate::error::{Error, TypeMismatch};
use crate::typed::{TableTypes, TypeName};
use ledgerstone_core::typed::shown;

/// A table that was found: all that a handle needs, made once and shared.
pub(crate) struct TableInfo {
    pub name: String,
    pub entry: Entry,
    pub tree: Tree,
    pub types: TableTypes,
    /// In the order of their creation.
    pub indexes: Vec<IndexTree>,
    /// Set by the transaction that drops the table, while it has the table locked X; taken back if it aborts. So
    /// a transaction that has any lock on the table sees the truth (the lock orders the two).
    is_dropped: AtomicBool,
    /// What the catalog said, as far as other processes change it.
    learnt: Learnt,
}

impl TableInfo {
    pub(crate) fn new(
        name: &str,
        entry: Entry,
        tree: Tree,
        types: TableTypes,
        indexes: Vec<IndexTree>,
        learnt: Learnt,
    ) -> Arc<TableInfo> {
        let is_dropped = AtomicBool::new(false);
        Arc::new(TableInfo { name: name.to_string(), entry, tree, types, indexes, is_dropped, learnt })
    }

    /// Refuses types that are not those of the table. A table whose types are not known has any.
    #[inline]
    pub(crate) fn check_types(&self, key: &TypeName, value: &TypeName) -> Result<(), Error> {
        for (what, stored, asked) in [("keys", &self.types.key, key), ("values", &self.types.value, value)] {
            if let Some(stored) = stored
                && !asked.is(stored)
            {
                return Err(self.mismatch(what.to_string(), stored, asked.to_string()));
            }
        }
        Ok(())
    }

    /// A key for a message.
    #[cold]
    pub(crate) fn shown(&self, key: &[u8]) -> String {
        shown(self.types.key.as_deref(), key)
    }

    #[cold]
    pub(crate) fn mismatch(&self, what: String, stored: &str, asked: String) -> Error {
        let (table, stored) = (self.name.clone(), stored.to_string());
        Error::TableTypeMismatch(Box::new(TypeMismatch::new(table, what, stored, asked, String::new())))
    }

    /// What the catalog says of it.
    pub(crate) fn definition(&self) -> Definition {
        let indexes = self.indexes.iter().map(|index| index.entry.clone()).collect();
        Definition { entry: self.entry, types: self.types.clone(), indexes }
    }

    /// True if it is as defined so, types and indexes included.
    pub(crate) fn is_as(&self, definition: &Definition) -> bool {
        self.entry == definition.entry
            && self.types == definition.types
            && self.indexes.iter().map(|index| &index.entry).eq(&definition.indexes)
    }

    pub(crate) fn set_dropped(&self, is_dropped: bool) {
        self.is_dropped.store(is_dropped, Release);
    }

    /// Whether a transaction of this process has dropped it. To be asked with the table locked.
    #[inline]
    pub(crate) fn is_dropped_here(&self) -> bool {
        self.is_dropped.load(Acquire)
    }

    /// Whether it was dropped or changed, or may have been by another process. To be asked with the table locked.
    #[inline]
    pub(crate) fn may_be_dropped(&self) -> bool {
        self.is_dropped_here() || !self.learnt.counts()
    }

    /// The same for sure: `ask` says what the catalog has now. The table is locked.
    pub(crate) fn is_dropped(&self, ask: impl FnOnce() -> Result<Option<Definition>, Error>) -> Result<bool, Error> {
        if self.is_dropped_here() {
            return Ok(true);
        }
        Ok(!self.learnt.again(|| Ok::<_, Error>(ask()?.is_some_and(|found| self.is_as(&found))))?)
    }
}
