//! What a transaction has itself made of tables and structures, and which of its handles are good.
//!
//! Nobody else changes what a table is while this transaction has it locked, and at a snapshot it stays what it was. The transaction
//! itself can drop it, give it another name, other indexes or another tree, and can go back to a savepoint before or after that.
//!
//! T1. A handle is good while the table is what it was when the handle was opened; otherwise it is refused, to read as to write. So
//!     there is no answer from a tree that is to be freed, or from an index that is no longer kept.
//! T2. Who has changed no table asks one flag only. It stays set when changes are taken back: handles from between are left.
//! T3. What this transaction drops or has made is locked exclusively. So a table that says that it was dropped, and is locked so,
//!     was dropped here; one that is not locked so was dropped by another, and a snapshot may still see it.
//! T4. An instance of a structure is good until this transaction drops it or goes back to before it made it: then its pages are free, or
//!     about to be. Its table is never used again, so what was taken back stays bad.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_txn::Txn;

use crate::catalog::TableInfo;
use crate::{BytesTable, Error};

/// How much a transaction had made of tables and structures, to go back to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Made(usize);

/// What a change replaced.
enum Replaced {
    Table(String, Option<Option<Arc<TableInfo>>>),
    Structure(TableId, Option<OwnStructure>),
}

/// What a transaction has made of tables, and what it has found them to be.
#[derive(Default)]
pub(crate) struct OwnTables {
    /// By name: made, or made something else (`Some`), and dropped, or given another name (`None`).
    tables: BTreeMap<String, Option<Arc<TableInfo>>>,
    /// Instances of users' structures, by their table.
    structures: BTreeMap<TableId, OwnStructure>,
    /// What each change of these two has replaced, oldest first: a savepoint is a length of this.
    replaced: Vec<Replaced>,
    /// Instances of structures whose creation was taken back (T4).
    unmade: BTreeSet<TableId>,
    /// Tables found to be still what they were after they were locked for writing (I4 in `isolation.rs`), by their addresses.
    entered: BTreeMap<usize, Arc<TableInfo>>,
    /// T2.
    has_changed: bool,
    /// How often it went back to a savepoint, or to before a child.
    back_count: u64,
}

/// What became of an instance of a structure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnStructure {
    Made,
    MadeAndDropped,
    Dropped,
}

impl OwnTables {
    /// What this transaction has made of the name, if it has.
    pub(crate) fn named(&self, name: &str) -> Option<&Option<Arc<TableInfo>>> {
        self.tables.get(name)
    }

    pub(crate) fn has_any(&self) -> bool {
        !self.tables.is_empty()
    }

    /// To be kept with a savepoint (P1 in `savepoint.rs`).
    pub(crate) fn made(&self) -> Made {
        Made(self.replaced.len())
    }

    /// This transaction has made something else of a table, or of its name: who has a handle to it asks again before it writes.
    pub(crate) fn note_changed(&mut self, info: &TableInfo, name: &str) {
        self.set_table(name, None);
        self.entered.retain(|_, entered| entered.entry.table != info.entry.table);
        self.has_changed = true;
    }

    fn set_table(&mut self, name: &str, now: Option<Arc<TableInfo>>) {
        let before = self.tables.insert(name.to_string(), now);
        self.replaced.push(Replaced::Table(name.to_string(), before));
    }

    fn set_structure(&mut self, table: TableId, now: OwnStructure) {
        let before = self.structures.insert(table, now);
        self.replaced.push(Replaced::Structure(table, before));
    }

    /// This transaction has made the table of this name.
    pub(crate) fn note_made(&mut self, name: &str, info: Arc<TableInfo>) {
        self.set_table(name, Some(info));
        self.has_changed = true;
    }

    /// This transaction has made an instance of a structure.
    pub(crate) fn note_structure_made(&mut self, table: TableId) {
        self.set_structure(table, OwnStructure::Made);
    }

    /// It has dropped one.
    pub(crate) fn note_structure_dropped(&mut self, table: TableId) {
        let dropped = match self.structures.get(&table) {
            Some(OwnStructure::Made) => OwnStructure::MadeAndDropped,
            _ => OwnStructure::Dropped,
        };
        self.set_structure(table, dropped);
    }

    /// Whether a handle to an instance that was there once is still good (T4).
    pub(crate) fn has_structure(&self, table: TableId) -> bool {
        matches!(self.structures.get(&table), None | Some(OwnStructure::Made)) && !self.unmade.contains(&table)
    }

    /// Tables are what they were at a savepoint, and so not what they were found to be since.
    pub(crate) fn go_back(&mut self, made: Made) {
        for replaced in self.replaced.drain(made.0.min(self.replaced.len())..).rev() {
            match replaced {
                Replaced::Table(name, Some(before)) => drop(self.tables.insert(name, before)),
                Replaced::Table(name, None) => drop(self.tables.remove(&name)),
                Replaced::Structure(table, Some(before)) => drop(self.structures.insert(table, before)),
                Replaced::Structure(table, None) => {
                    if self.structures.remove(&table) != Some(OwnStructure::Dropped) {
                        self.unmade.insert(table);
                    }
                }
            }
        }
        self.entered.clear();
        self.back_count += 1;
    }

    /// The same for whoever has something that no rollback takes back.
    pub(crate) fn back_count(&self) -> u64 {
        self.back_count
    }

    /// The table is what it was, and is locked for writing: it stays that.
    pub(crate) fn note_entered(&mut self, info: &Arc<TableInfo>) {
        self.entered.insert(Arc::as_ptr(info).addr(), Arc::clone(info));
    }

    pub(crate) fn has_entered(&self, info: &Arc<TableInfo>) -> bool {
        self.entered.contains_key(&Arc::as_ptr(info).addr())
    }
}

impl BytesTable {
    /// Refuses if the transaction itself has made something else of the table (T1).
    #[inline]
    pub(crate) fn check_own(&self, txn: &Txn, own: &OwnTables) -> Result<(), Error> {
        if own.has_changed { self.compare_with_own(txn, own) } else { Ok(()) }
    }

    #[cold]
    fn compare_with_own(&self, txn: &Txn, own: &OwnTables) -> Result<(), Error> {
        let info = self.info();
        let was_dropped_here = info.is_dropped() && txn.covers(info.entry.table, Mode::X); // T3
        // The handle may know the table apart from who has changed it.
        let is_other = match own.tables.get(&info.name) {
            Some(Some(now)) => !now.is_as(&info.definition()),
            Some(None) => true,
            None => false,
        };
        // Not a conflict, even if only indexes have changed: run again, the transaction would come here again.
        if was_dropped_here || is_other { Err(Error::NoSuchTable(info.name.clone())) } else { Ok(()) }
    }
}
