//! Loading sorted records: full pages, and the content in the log once.
//!
//! An empty table gets a new tree, which takes the place of the old one in the catalog when the load is finished. Until
//! then nobody sees the new tree, and an abort or a crash frees it. A table that has records is appended to as usual.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_disk::quoted;
use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_region::Share;
use ledgerstone_structures::{Direction, Loader};

use crate::catalog::{Definition, Entry};
use crate::table::index::Builders;
use crate::{BytesTable, Error};

/// Takes records in the order of their keys. Made by [`BytesTable::sorted_loader`]. If the table was empty, nothing of
/// the load stays without [`SortedLoader::finish`].
#[derive(Debug)]
pub struct SortedLoader {
    table: BytesTable,
    filling: Filling,
    count: u64,
    last_key: Option<Vec<u8>>,
    /// A record came only half in.
    is_broken: bool,
    /// How often the transaction had gone back to a savepoint when this was made. Leaves that are full stay where they
    /// are then, so that a new tree would have what was taken back.
    back_count: u64,
}

#[derive(Debug)]
enum Filling {
    /// A new tree, for a table that was empty; and new ones for its indexes.
    New { loader: Loader, indexes: Builders },
    /// The table itself.
    Append,
}

impl SortedLoader {
    /// The next record.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotSorted`] if its key is not above the one before. [`Error::NotAtEnd`] if it is the first, and not
    /// above the last key of the table. As [`BytesTable::put`]. A record that is refused for what it is can be left
    /// out. After any other error the load cannot go on: [`Error::LoadIncomplete`]. This holds for a key that comes
    /// twice in a unique index, and after the transaction went back to a savepoint.
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.push_bytes(key.as_ref(), value.as_ref())
    }

    fn push_bytes(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if let Some(last) = self.last_key.as_ref().filter(|last| key <= last.as_slice()) {
            return Err(self.out_of_order(key, last));
        }
        match &mut self.filling {
            Filling::New { loader, indexes } => {
                if self.is_broken {
                    return Err(Error::LoadIncomplete);
                }
                let entries = if indexes.is_empty() {
                    Vec::new()
                } else {
                    let _inside = self.table.shared.users_code();
                    self.table.shared.env.engine.in_a_call(|| indexes.entries(key, value))?
                };
                indexes.table().tree.check_sizes(key, value)?;
                self.is_broken = true; // Unless all of it is done.
                self.table.shared.run_in(|txn, own| {
                    if own.back_count() != self.back_count {
                        return Err(Error::LoadIncomplete);
                    }
                    loader.push(txn, key, value)?;
                    if entries.is_empty() { Ok(()) } else { indexes.add(entries) }
                })?;
                self.is_broken = false;
            }
            Filling::Append => self.table.put(key, value)?,
        }
        self.count += 1;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    #[cold]
    fn out_of_order(&self, key: &[u8], last: &[u8]) -> Error {
        let info = self.table.info();
        let (key, last) = (info.shown(key).into(), info.shown(last).into());
        match self.count {
            0 => Error::NotAtEnd { table: info.name.as_str().into(), key, last },
            record => Error::NotSorted { record, key, before: last },
        }
    }

    /// Loads all records and ends. Gives their count, and a handle that sees them. All are loaded or none.
    pub(super) fn load_all<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        mut self,
        records: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<(u64, BytesTable), E> {
        let shared = self.table.shared.clone();
        let push_all = |loader: &mut SortedLoader| -> Result<(), E> {
            let _inside = shared.users_code(); // Who makes the records.
            records.into_iter().try_for_each(|record| {
                let (key, value) = record?;
                Ok(loader.push(key, value)?)
            })
        };
        match self.filling {
            Filling::New { .. } => push_all(&mut self)?, // Nobody sees it before it is finished.
            Filling::Append => shared.run_child(false, || push_all(&mut self))?,
        }
        Ok((self.count, self.finish()?))
    }

    pub(super) fn table(&self) -> &BytesTable {
        &self.table
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Ends the load. From now on the table has the records, for this transaction. Other handles of this transaction to
    /// the table return [`Error::NoSuchTable`]. The one that is returned is valid.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LoadNotAlone`] if the table has got records by another handle since the load began. Nothing of the load
    /// is in the table then. Conflicts, no space.
    pub fn finish(self) -> Result<BytesTable, Error> {
        if self.is_broken {
            return Err(Error::LoadIncomplete);
        }
        let SortedLoader { table, filling, back_count, .. } = self;
        let Filling::New { loader, indexes } = filling else { return Ok(table) };
        let (shared, old) = (table.shared.clone(), Arc::clone(table.info()));
        if shared.hold()?.state.own.back_count() != back_count {
            return Err(Error::LoadIncomplete);
        }
        let (env, info) = (&shared.env, Arc::clone(indexes.table()));
        table.enter_own(Mode::IX, |txn, own| {
            old.in_one_step(txn, |txn| {
                // The table is this transaction's alone; it may have put records by another handle.
                let mut scan = old.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
                if scan.next(txn)?.is_some() {
                    return Err(Error::LoadNotAlone { table: old.name.to_string() });
                }
                loader.finish(txn)?;
                indexes.finish(txn, &mut || Ok(()))?;
                let definition = info.definition();
                env.put_definition(txn, &old.name, &definition)?;
                for root in definition.roots() {
                    env.to_free().keep_tree(txn, root)?;
                }
                if !planted::is_on(Bug::LoadLeaksTree) {
                    for root in old.definition().roots() {
                        env.to_free().defer_tree(txn, root)?;
                    }
                }
                Ok(())
            })?;
            shared.replace_table((txn, own), &table.info, Arc::clone(&info));
            Ok(())
        })?;
        Ok(BytesTable::new(&shared, Share::new(info)))
    }
}

impl BytesTable {
    /// Begins to load records that come in the order of their keys. If the table is empty, the load fills whole pages
    /// and logs their content once. Otherwise the records are appended. Locks the whole table until the transaction
    /// ends.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Conflicts, no space. [`Error::SnapshotConflict`] too if the table was not empty at the transaction's snapshot.
    pub fn sorted_loader(&self) -> Result<SortedLoader, Error> {
        let env = &self.shared.env;
        let info = self.info();
        let back_count = self.shared.hold()?.state.own.back_count();
        let (filling, last_key) = self.enter(Mode::IX, |txn| {
            info.lock_whole(txn)?;
            let mut scan = self.tree().scan(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            if let Some((key, _)) = scan.next(txn)? {
                return Ok((Filling::Append, Some(key.to_vec())));
            }
            // The old tree goes, and what the snapshot still shows of it would.
            if let Some(at) = txn.snapshot() {
                let mut scan = self.tree().scan_at(at, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                if scan.next(txn)?.is_some() {
                    let what = format!("records of table {} were deleted, all of them", quoted(&info.name));
                    return Err(Error::SnapshotConflict { what });
                }
            }
            let mut make = |entry: Entry| -> Result<Entry, Error> {
                Ok(Entry { root: env.to_free().create_tree_for_now(txn)?, ..entry })
            };
            let Definition { entry, types, mut indexes } = info.definition();
            let entry = make(entry)?;
            for index in &mut indexes {
                index.entry = make(index.entry)?;
            }
            let new = env.table_info(&info.name, Definition { entry, types, indexes });
            let (loader, indexes) = (Loader::new(&new.tree), Builders::new(env, &new, 0));
            Ok((Filling::New { loader, indexes }, None))
        })?;
        Ok(SortedLoader { table: self.clone(), filling, count: 0, last_key, is_broken: false, back_count })
    }

    /// Loads records that come in the order of their keys ([`BytesTable::sorted_loader`]), and returns how many there
    /// were. This handle stays valid. Other handles of this transaction to the table have to be opened again. All
    /// records are loaded or none: after an error or a panic of `records`, those that were appended are undone.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotSorted`] with the first record that is not above the one before, [`Error::NotAtEnd`], and as
    /// [`BytesTable::put`].
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, Error> {
        self.try_load_sorted(records.into_iter().map(Ok))
    }

    /// The same for records whose source may fail, such as lines of a file. The first `Err` ends the load and is
    /// returned.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Those of the source, and as [`BytesTable::load_sorted`].
    pub fn try_load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &mut self,
        records: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<u64, E> {
        let (count, table) = self.sorted_loader()?.load_all(records)?;
        *self = table;
        Ok(count)
    }
}
