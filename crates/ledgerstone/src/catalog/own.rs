//! What a transaction has itself made of tables and structures, and which of its handles are good.
//!
//! Nobody else changes what a table is while this transaction has it locked, and at a snapshot it stays what it was.
//! The transaction itself can drop it, give it another name, other indexes or another tree, and can go back to a
//! savepoint before or after that.
//!
//! T1. A handle is good while the table is what it was when the handle was opened; otherwise it is refused, to read as
//!     to write. So there is no answer from a tree that is to be freed, or from an index that is no longer kept.
//! T2. A transaction that has changed no table asks one flag only. The flag stays set when changes are taken back,
//!     because handles from between are left.
//! T3. What this transaction drops or has made is locked exclusively. So a table that says that it was dropped, and is
//!     locked so, was dropped here. If it is not locked so, another transaction dropped it, and a snapshot may still
//!     see it.
//! T4. An instance of a structure is good until this transaction drops it or goes back to before it made it: then its
//!     pages are free, or about to be. Its table is never used again, so what was taken back stays bad.
//! T5. A transaction may make or drop more tables than memory should hold. So only the id is kept of a table that it
//!     has dropped, or has made and holds no handle to. The rest is in the catalog, and opening the table reads it
//!     there. A transaction sees its own changes there at every level.

use ledgerstone_region::{ByNumber, NumberSet};
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_txn::Txn;

use super::Definition;
use super::info::TableInfo;
use crate::Error;

/// How much a transaction had made of tables and structures, to go back to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Made(usize);

/// What a change replaced.
enum Replaced {
    Table(TableId, Option<OwnTable>),
    Structure(TableId, Option<OwnStructure>),
}

/// What a transaction has made of a table.
#[derive(Clone)]
enum OwnTable {
    /// Made, and nothing else since. `None` while nobody has a handle: the catalog says what it is (T5).
    Made(Option<Arc<TableInfo>>),
    /// It has another name, other indexes or other types now.
    Changed(Arc<TableInfo>),
    Dropped,
}

impl OwnTable {
    fn info(&self) -> Option<&Arc<TableInfo>> {
        match self {
            OwnTable::Made(info) => info.as_ref(),
            OwnTable::Changed(info) => Some(info),
            OwnTable::Dropped => None,
        }
    }
}

/// Handles of own tables, and tables entered, from which on it is looked for those that nobody uses any more.
const SWEPT_FROM: usize = 64;

/// What a transaction has made of tables, and what it has found them to be.
#[derive(Default)]
pub(crate) struct OwnTables {
    tables: ByNumber<TableId, OwnTable>,
    /// Those of `tables` that were made here and have had a handle since the last sweep (T5).
    opened: Vec<TableId>,
    opened_max: usize,
    /// Instances of users' structures, by their table.
    structures: ByNumber<TableId, OwnStructure>,
    /// What each change of these two has replaced, oldest first: a savepoint is a length of this. Kept while there is
    /// one.
    replaced: Vec<Replaced>,
    has_marks: bool,
    /// Instances of structures whose creation was taken back (T4).
    unmade: NumberSet<TableId>,
    /// Tables found to be still what they were after they were locked for writing (I4 in `transaction/isolation.rs`),
    /// by their addresses.
    entered: ByNumber<usize, Arc<TableInfo>>,
    entered_max: usize,
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
    /// True if nothing was made and nothing found, so that it will do for another transaction.
    pub(crate) fn is_as_new(&self) -> bool {
        let has_tables = self.has_changed || !self.entered.is_empty() || self.entered_max != 0;
        let has_structures = !self.structures.is_empty() || !self.unmade.is_empty();
        let has_marks = self.has_marks || !self.replaced.is_empty() || self.back_count != 0;
        !(has_tables || has_structures || has_marks)
    }

    /// The table that the catalog, as this transaction sees it, has under this name, if it is one of those that it has
    /// made or changed itself. `make` makes what a handle needs.
    pub(crate) fn open(
        &mut self,
        name: &str,
        definition: &Definition,
        make: impl FnOnce() -> Arc<TableInfo>,
    ) -> Option<Arc<TableInfo>> {
        let table = definition.entry.table;
        let own = self.tables.get_mut(table)?;
        if let Some(info) = own.info()
            && info.name == name
            && info.is_as(definition)
            && !info.may_be_dropped()
        // Else whoever opens it would ask again and again (N2).
        {
            return Some(Arc::clone(info));
        }
        let info = make();
        if let OwnTable::Made(at) = own {
            *at = Some(Arc::clone(&info));
            self.note_opened(table);
        }
        Some(info)
    }

    /// T5: what nobody has a handle to need not be kept. Each sweep is paid for by as many handles as it looks at.
    fn note_opened(&mut self, table: TableId) {
        self.opened.push(table);
        if self.opened.len() <= self.opened_max.max(SWEPT_FROM) {
            return;
        }
        let tables = &mut self.tables;
        self.opened.retain(|table| match tables.get_mut(*table) {
            Some(OwnTable::Made(info)) => {
                *info = info.take_if(|info| Arc::strong_count(info) > 1);
                info.is_some()
            }
            _ => false,
        });
        self.opened_max = 2 * self.opened.len();
    }

    /// To be kept with a savepoint (P1 in `transaction/savepoint.rs`).
    pub(crate) fn made(&mut self) -> Made {
        self.has_marks = true;
        Made(self.replaced.len())
    }

    /// No savepoint stands any more.
    pub(crate) fn forget_marks(&mut self) {
        self.has_marks = false;
        self.replaced = Vec::new();
    }

    /// This transaction has dropped a table, or is about to say what else it has made of it: a holder of a handle to it
    /// asks again before it writes.
    pub(crate) fn note_dropped(&mut self, info: &TableInfo) {
        let table = info.entry.table;
        self.set_table(table, OwnTable::Dropped);
        self.entered.retain(|_, entered| entered.entry.table != table);
    }

    /// The table is this now.
    pub(crate) fn note_changed(&mut self, info: Arc<TableInfo>) {
        self.set_table(info.entry.table, OwnTable::Changed(info));
    }

    /// This transaction has made the table.
    pub(crate) fn note_made(&mut self, info: Arc<TableInfo>) {
        let table = info.entry.table;
        self.set_table(table, OwnTable::Made(Some(info)));
        self.note_opened(table);
    }

    fn set_table(&mut self, table: TableId, now: OwnTable) {
        let before = self.tables.insert(table, now);
        self.note_replaced(Replaced::Table(table, before));
        self.has_changed = true;
    }

    fn set_structure(&mut self, table: TableId, now: OwnStructure) {
        let before = self.structures.insert(table, now);
        self.note_replaced(Replaced::Structure(table, before));
    }

    fn note_replaced(&mut self, replaced: Replaced) {
        if self.has_marks {
            self.replaced.push(replaced);
        }
    }

    /// This transaction has made an instance of a structure.
    pub(crate) fn note_structure_made(&mut self, table: TableId) {
        self.set_structure(table, OwnStructure::Made);
    }

    /// It has dropped one.
    pub(crate) fn note_structure_dropped(&mut self, table: TableId) {
        let dropped = match self.structures.get(table) {
            Some(OwnStructure::Made) => OwnStructure::MadeAndDropped,
            _ => OwnStructure::Dropped,
        };
        self.set_structure(table, dropped);
    }

    /// Whether a handle to an instance that was there once is still good (T4).
    pub(crate) fn has_structure(&self, table: TableId) -> bool {
        matches!(self.structures.get(table), None | Some(OwnStructure::Made)) && !self.unmade.contains(table)
    }

    /// Tables are what they were at a savepoint, and so not what they were found to be since.
    pub(crate) fn go_back(&mut self, made: Made) {
        for replaced in self.replaced.drain(made.0.min(self.replaced.len())..).rev() {
            match replaced {
                Replaced::Table(table, before) => {
                    let after = match before {
                        Some(before) => self.tables.insert(table, before),
                        None => self.tables.remove(table),
                    };
                    // Holders of a handle to what it was in between. One that stays has no other in its place.
                    let stays = self.tables.get(table).and_then(OwnTable::info);
                    if let Some(info) = after.as_ref().and_then(OwnTable::info)
                        && !stays.is_some_and(|stays| Arc::ptr_eq(stays, info))
                    {
                        info.set_dropped(true);
                    }
                }
                Replaced::Structure(table, Some(before)) => drop(self.structures.insert(table, before)),
                Replaced::Structure(table, None) => {
                    if self.structures.remove(table) != Some(OwnStructure::Dropped) {
                        self.unmade.insert(table);
                    }
                }
            }
        }
        self.entered.clear();
        self.back_count += 1;
    }

    /// The same for a caller that has something which no rollback takes back.
    pub(crate) fn back_count(&self) -> u64 {
        self.back_count
    }

    /// The table is what it was, and is locked for writing: it stays that.
    pub(crate) fn note_entered(&mut self, info: &Arc<TableInfo>) {
        if self.entered.len() >= self.entered_max.max(SWEPT_FROM) {
            // Without those that nobody has a handle to: beside this, only the own table itself may have it.
            let tables = &self.tables;
            self.entered.retain(|_, info| {
                let own = tables.get(info.entry.table).and_then(OwnTable::info);
                let is_own = own.is_some_and(|own| Arc::ptr_eq(own, info));
                Arc::strong_count(info) > 1 + usize::from(is_own)
            });
            self.entered_max = 2 * self.entered.len();
        }
        self.entered.insert(Arc::as_ptr(info).addr(), Arc::clone(info));
    }

    pub(crate) fn has_entered(&self, info: &Arc<TableInfo>) -> bool {
        self.entered.contains(Arc::as_ptr(info).addr())
    }
}

impl OwnTables {
    /// Refuses a handle if the transaction itself has made something else of its table (T1).
    #[inline]
    pub(crate) fn check(&self, txn: &Txn, info: &TableInfo) -> Result<(), Error> {
        if self.has_changed { self.compare(txn, info) } else { Ok(()) }
    }

    #[cold]
    fn compare(&self, txn: &Txn, info: &TableInfo) -> Result<(), Error> {
        let was_dropped_here = info.is_dropped_here() && txn.covers(info.entry.table, Mode::X); // T3
        // The handle may know the table apart from the transaction that has changed it.
        let is_other = match self.tables.get(info.entry.table) {
            // A handle to a table that was made here and not changed is a handle to that.
            None | Some(OwnTable::Made(_)) => false,
            Some(OwnTable::Changed(now)) => now.name != info.name || !now.is_as(&info.definition()),
            Some(OwnTable::Dropped) => true,
        };
        // Not a conflict, even if only indexes have changed: run again, the transaction would come here again.
        if was_dropped_here || is_other { Err(Error::NoSuchTable(info.name.clone())) } else { Ok(()) }
    }
}
