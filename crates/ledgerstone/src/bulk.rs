//! Loading sorted records: full pages, and the content in the log once.
//!
//! An empty table gets a new tree, which takes the place of the old one in the catalog when the load is finished: until
//! then nobody sees it, and an abort or a crash frees it. A table that has records is appended to as usual.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_structures::{Direction, Loader, Tree};

use crate::catalog::Entry;
use crate::{BytesTable, Error};

/// Takes records in the order of their keys. Made by [`BytesTable::sorted_loader`]; nothing of it stays without
/// [`SortedLoader::finish`] when the table was empty.
#[derive(Debug)]
pub struct SortedLoader {
    table: BytesTable,
    filling: Filling,
    count: u64,
    last_key: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Filling {
    /// A new tree, for a table that was empty.
    New { tree: Tree, loader: Loader },
    /// The table itself.
    Append,
}

impl SortedLoader {
    /// The next record.
    ///
    /// # Errors
    /// [`Error::NotSorted`] if its key is not above the one before, or above the last of the table; as
    /// [`BytesTable::put`].
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.last_key.as_ref().is_some_and(|last| key <= last.as_slice()) {
            return Err(Error::NotSorted { record: self.count });
        }
        match &mut self.filling {
            Filling::New { loader, .. } => self.table.shared.run(|txn| Ok(loader.push(txn, key, value)?))?,
            Filling::Append => self.table.put(key, value)?,
        }
        self.count += 1;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All records were pushed: the table has them, for this transaction. Other handles to the table that this transaction
    /// has opened answer [`Error::NoSuchTable`] from now on; the one returned is good.
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn finish(self) -> Result<BytesTable, Error> {
        let SortedLoader { table, filling, .. } = self;
        let Filling::New { tree, loader } = filling else { return Ok(table) };
        let (shared, old) = (Arc::clone(&table.shared), Arc::clone(table.info()));
        let entry = Entry { root: tree.root(), ..old.entry };
        let env = &shared.env;
        table.enter(Mode::IX, |txn| {
            loader.finish(txn)?;
            env.catalog().put(txn, old.name.as_bytes(), &entry.encode())?;
            env.to_free().keep_tree(txn, tree.root())?;
            if !planted::is_on(Bug::LoadLeaksTree) {
                env.to_free().defer_tree(txn, old.entry.root)?;
            }
            Ok(())
        })?;
        let info = env.table_info(&old.name, entry);
        shared.replace_table(&old, &old.name, Some(Arc::clone(&info)))?;
        Ok(BytesTable::new(&shared, info))
    }
}

impl BytesTable {
    /// Begins to load records that come in the order of their keys: into full pages, with their content in the log once, if
    /// the table is empty; otherwise they are appended. Locks the whole table until the transaction ends.
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn sorted_loader(&self) -> Result<SortedLoader, Error> {
        let env = &self.shared.env;
        let info = self.info();
        let (filling, last_key) = self.enter(Mode::IX, |txn| {
            txn.lock_table(info.entry.table, Mode::X)?;
            let mut scan = self.tree().scan(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            if let Some((key, _)) = scan.next(txn)? {
                return Ok((Filling::Append, Some(key.to_vec())));
            }
            let root = env.to_free().create_tree_for_now(txn)?;
            let tree = env.table_info(&info.name, Entry { root, ..info.entry }).tree.clone();
            let loader = Loader::new(&tree);
            Ok((Filling::New { tree, loader }, None))
        })?;
        Ok(SortedLoader { table: self.clone(), filling, count: 0, last_key })
    }

    /// Loads records that come in the order of their keys ([`BytesTable::sorted_loader`]), and says how many there were. This
    /// handle goes on with the table; others of this transaction have to be opened again.
    ///
    /// # Errors
    /// [`Error::NotSorted`] naming the first record that is not above the one before; as [`BytesTable::put`].
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, Error> {
        let mut loader = self.sorted_loader()?;
        for (key, value) in records {
            loader.push(key.as_ref(), value.as_ref())?;
        }
        let count = loader.count();
        *self = loader.finish()?;
        Ok(count)
    }
}
