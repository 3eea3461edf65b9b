//! Tables and their names: made, found, renamed and dropped in a transaction.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_disk::quoted;
use ledgerstone_lock::Mode;
use ledgerstone_page::TableId;
use ledgerstone_region::Share;
use ledgerstone_structures::{Direction, Read, Tree};
use ledgerstone_txn::{Horizon, Txn};

use super::{BytesTable, Table};
use crate::Error;
use crate::catalog::{Definition, Entry, OwnTables, TableInfo, check_name, check_type_name};
use crate::transaction::{Shared, Transaction};
use crate::typed::{Key, TableDef, TableTypes, TypeName, Value};
use ledgerstone_core::choice::Isolation;

impl Transaction {
    /// Creates a table of byte strings.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], conflicts, no space.
    pub fn create_table(&self, name: &str) -> Result<BytesTable, Error> {
        self.find(name, Missing::Create, true)
    }

    /// Drops a table and all that is in it. Its pages are freed after the commit. Handles that this transaction has
    /// opened return [`Error::NoSuchTable`] from then on, unless it goes back to a savepoint before the drop.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        self.shared.check_writable()?;
        let table = self.find_locked(name, Missing::Refuse, false)?;
        let (env, info) = (&self.shared.env, table.info());
        let drop_whole = |txn: &mut Txn| {
            info.lock_whole(txn)?;
            if !env.catalog().delete(txn, name.as_bytes())? {
                return Err(Error::NoSuchTable(name.to_string()));
            }
            env.to_free().defer_tree(txn, info.entry.root)?;
            for index in &info.indexes {
                env.to_free().defer_tree(txn, index.entry.entry.root)?;
            }
            Ok(())
        };
        table.enter_own(Mode::IX, |txn, own| {
            txn.whole(drop_whole)?;
            self.shared.retire((txn, own), &table.info);
            Ok(())
        })
    }

    /// Renames a table. Handles that this transaction has opened under the old name return [`Error::NoSuchTable`] from
    /// then on: open the table by its new name. Waits for all other transactions that use the table.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::TableExists`], [`Error::BadTableName`], conflicts.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<(), Error> {
        check_name(from)?;
        check_name(to)?;
        self.shared.check_writable()?;
        let table = self.find_locked(from, Missing::Refuse, false)?;
        let (env, info) = (Arc::clone(self.shared.env.arc()), Arc::clone(table.info()));
        if from == to {
            return Ok(());
        }
        let rename = |txn: &mut Txn| {
            txn.lock_table(info.entry.table, Mode::X)?;
            if env.catalog().get(txn, to.as_bytes(), Read::ForUpdate)?.is_some() {
                return Err(Error::TableExists(to.to_string()));
            }
            let Some(entry) = env.catalog().get(txn, from.as_bytes(), Read::ForUpdate)? else {
                return Err(Error::NoSuchTable(from.to_string()));
            };
            env.catalog().delete(txn, from.as_bytes())?;
            env.catalog().put(txn, to.as_bytes(), &entry)?;
            Ok(())
        };
        table.enter_own(Mode::IX, |txn, own| {
            txn.whole(rename)?;
            self.shared.replace_table((txn, own), &table.info, env.table_info(to, info.definition()));
            Ok(())
        })
    }

    /// The names of all tables, sorted, without users' structures, as the transaction's [`Isolation`] sees them. A
    /// serializable transaction locks the list against change.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Conflicts.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        let env = Arc::clone(self.shared.env.arc());
        self.shared.run(|txn| {
            let mut names = Vec::new();
            let (sight, _view) = self.shared.sight(txn, Horizon::None)?;
            let mut scan = sight.scan(env.catalog(), Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((name, value)) = scan.next(txn)? {
                if Entry::structure_of(value).is_some() {
                    continue;
                }
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            Ok(names)
        })
    }

    /// Opens a table of byte strings that exists.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn bytes(&self, name: &str) -> Result<BytesTable, Error> {
        self.find(name, Missing::Refuse, false)
    }

    /// Opens a table of byte strings, creating it if it is missing.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn bytes_or_create(&self, name: &str) -> Result<BytesTable, Error> {
        self.find(name, Missing::Create, false)
    }

    /// Opens a typed table, and creates it with these types if it is missing. A transaction or an environment that only
    /// reads creates none, and returns [`Error::NoSuchTable`]. A table that was made for byte strings has no types, so
    /// none are compared.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::TableTypeMismatch`] if the table has other types, [`Error::BadTypeName`], conflicts, no space.
    pub fn open<K: Key, V: Value>(&self, definition: TableDef<'_, K, V>) -> Result<Table<K, V>, Error> {
        let is_writable = self.shared.check_writable().is_ok();
        let missing = if is_writable { Missing::CreateTyped(&K::TYPE, &V::TYPE) } else { Missing::Refuse };
        let table = self.find(definition.name(), missing, false)?;
        table.info().check_types(&K::TYPE, &V::TYPE)?;
        Ok(Table::new(table))
    }

    /// Sets the types of a table's keys and values in the catalog, as [`Transaction::open`] does for a table that it
    /// makes. For tables that were made for byte strings, by tools that know types by their names only. Existing
    /// records are not examined. Locks the whole table. Handles have to be opened again, as after
    /// [`Transaction::create_index`].
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::TableTypeMismatch`] if the table has a type already and it differs. [`Error::BadTypeName`].
    /// [`Error::TooManyIndexes`] if the names have no room in the catalog. [`Error::NoSuchTable`].
    /// [`Error::IndexNeedsLocks`] in a snapshot. Conflicts.
    pub fn set_table_types(&self, table: &str, types: &TableTypes) -> Result<(), Error> {
        for name in [&types.key, &types.value].into_iter().flatten() {
            check_type_name(name)?;
        }
        let table = self.to_redefine(table)?;
        let (env, old) = (Arc::clone(self.shared.env.arc()), Arc::clone(table.info()));
        let mut definition = old.definition();
        let known = &mut definition.types;
        for (what, known, new) in [("keys", &mut known.key, &types.key), ("values", &mut known.value, &types.value)] {
            match (&known, new) {
                (_, None) => {}
                (Some(stored), Some(asked)) if *stored != *asked => {
                    return Err(old.mismatch(what.to_string(), stored, asked.clone()));
                }
                (_, Some(new)) => *known = Some(new.clone()),
            }
        }
        if old.is_as(&definition) {
            return Ok(());
        }
        table.enter_own(Mode::IX, |txn, own| {
            old.lock_whole(txn)?;
            env.put_definition(txn, &old.name, &definition)?;
            self.shared.replace_table((txn, own), &table.info, env.table_info(&old.name, definition));
            Ok(())
        })
    }

    /// The table as it is now, for changes of what the catalog says of it.
    pub(crate) fn to_redefine(&self, table: &str) -> Result<BytesTable, Error> {
        self.shared.check_writable()?;
        if self.isolation() == Isolation::Snapshot {
            // It is of what is there, not of what there was.
            return Err(Error::IndexNeedsLocks { table: table.to_string() });
        }
        self.find_locked(table, Missing::Refuse, false)
    }

    /// Finds the table as this transaction's level sees it.
    fn find(&self, name: &str, missing: Missing<'_>, must_be_new: bool) -> Result<BytesTable, Error> {
        if self.shared.isolation != Isolation::Serializable && !must_be_new {
            check_name(name)?;
            if let Some(table) = self.find_at(name)? {
                return Ok(table);
            }
            if matches!(missing, Missing::Refuse) {
                return Err(Error::NoSuchTable(name.to_string()));
            }
        }
        let table = self.find_locked(name, missing, must_be_new)?;
        // Of one that was not there at the snapshot, nothing may be seen. But records of a sorted load do not say when
        // they came.
        if self.shared.isolation == Isolation::Snapshot && !must_be_new && self.find_at(name)?.is_none() {
            let what = format!("table {} was made after this transaction's snapshot", quoted(name));
            return Err(Error::SnapshotConflict { what });
        }
        Ok(table)
    }

    /// Without locks, in the transaction's snapshot or one for this call.
    fn find_at(&self, name: &str) -> Result<Option<BytesTable>, Error> {
        let env = &self.shared.env;
        self.shared.run_in(|txn, own| {
            let (sight, view) = self.shared.sight(txn, Horizon::None)?;
            // There are no uncommitted tables to be seen, at no level: nobody could be sure that their pages stay.
            let read = view.as_ref().map_or(sight.read(), |view| Read::At(view.at()));
            let Some(bytes) = env.catalog().get(txn, name.as_bytes(), read)? else { return Ok(None) };
            let definition = Definition::decode(name, &bytes)?;
            let own = own.open(name, &definition, || env.table_info(name, definition.clone()));
            if let Some(own) = own {
                return Ok(Some(BytesTable::new(&self.shared, Share::new(own))));
            }
            let known = env.known.get(env.engine.slots.at_hand(), name).filter(|known| known.is_as(&definition));
            let info = known.unwrap_or_else(|| Share::new(env.table_info(name, definition)));
            Ok(Some(BytesTable::new(&self.shared, info)))
        })
    }

    /// Finds the table and locks it with the weakest intention, so that it stays what it is until this transaction
    /// ends.
    fn find_locked(&self, name: &str, missing: Missing<'_>, must_be_new: bool) -> Result<BytesTable, Error> {
        check_name(name)?;
        if !must_be_new && let Some(table) = self.find_known(name)? {
            return Ok(table);
        }
        let env = &self.shared.env;
        loop {
            let found = match env.known.get(env.engine.slots.at_hand(), name) {
                Some(info) if !must_be_new => Some(info),
                _ => self.look_up(name)?.map(Share::new),
            };
            let info = match (found, missing) {
                (Some(_), _) if must_be_new => return Err(Error::TableExists(name.to_string())),
                (Some(info), _) => info,
                (None, Missing::Refuse) => return Err(Error::NoSuchTable(name.to_string())),
                (None, Missing::Create) => Share::new(self.create(name, TableTypes::default())?),
                (None, Missing::CreateTyped(key, value)) => {
                    let types = TableTypes { key: Some(key.to_string()), value: Some(value.to_string()) };
                    Share::new(self.create(name, types)?)
                }
            };
            let is_there = self.shared.run(|txn| {
                txn.lock_table(info.entry.table, Mode::IS)?;
                if !info.may_be_dropped() {
                    return Ok(true);
                }
                // It is asked here: what this transaction has made or changed itself it finds again as it is.
                Ok(!info.is_dropped(|| {
                    let view = txn.open_view(Horizon::None)?;
                    env.named_at(txn, &info.name, view.at())
                })?)
            })?;
            if is_there {
                return Ok(BytesTable::new(&self.shared, info));
            }
            // G2: dropped while the lock was waited for; perhaps there is another of that name by now.
        }
    }

    /// The usual case, in one go: a table that is known, and whose intention lock is free.
    fn find_known(&self, name: &str) -> Result<Option<BytesTable>, Error> {
        self.shared.call(|state| {
            let env = &self.shared.env;
            let Some(info) = env.known.get(env.engine.slots.at_hand(), name) else { return Ok(None) };
            let Some(txn) = state.txn.as_deref_mut() else { return Err(Error::Finished) };
            // A refusal comes again in the unusual case, which rolls back if the lock table is full.
            let is_locked = matches!(txn.try_lock_table(info.entry.table, Mode::IS), Ok(true));
            let is_there = is_locked && !info.may_be_dropped();
            Ok(is_there.then(|| BytesTable::new(&self.shared, info)))
        })
    }

    fn look_up(&self, name: &str) -> Result<Option<Arc<TableInfo>>, Error> {
        let env = &self.shared.env;
        self.shared.run_in(|txn, own| {
            let Some(bytes) = env.catalog().get(txn, name.as_bytes(), Read::Locked)? else { return Ok(None) };
            let definition = Definition::decode(name, &bytes)?;
            if let Some(own) = own.open(name, &definition, || env.table_info(name, definition.clone())) {
                return Ok(Some(own));
            }
            Ok(Some(env.known.insert(env.table_info(name, definition)))) // G2: the name is locked S now.
        })
    }

    /// Creates the table; another transaction may have been faster while the lock on the name was waited for.
    fn create(&self, name: &str, types: TableTypes) -> Result<Arc<TableInfo>, Error> {
        for name in [&types.key, &types.value].into_iter().flatten() {
            check_type_name(name)?;
        }
        let env = &self.shared.env;
        let make = |txn: &mut Txn| {
            if let Some(bytes) = env.catalog().get(txn, name.as_bytes(), Read::ForUpdate)? {
                return Ok::<_, Error>((Definition::decode(name, &bytes)?, false));
            }
            let root = Tree::create(txn, env.to_free())?;
            // Unique for ever: the LSN of a record that making the root has just written.
            let table = TableId(txn.last_lsn().0);
            txn.lock_table(table, Mode::X)?;
            let definition = Definition { entry: Entry { table, root }, types, indexes: Vec::new() };
            env.put_definition(txn, name, &definition)?;
            Ok((definition, true))
        };
        self.shared.run_in(|txn, own| {
            self.shared.check_writable()?;
            let (definition, is_own) = txn.whole(make)?;
            let info = env.table_info(name, definition);
            if !is_own {
                return Ok(env.known.insert(info)); // G2: the name is locked U.
            }
            own.note_made(Arc::clone(&info));
            Ok(info)
        })
    }
}

/// What to do about a table that is not there.
#[derive(Clone, Copy)]
enum Missing<'t> {
    Refuse,
    Create,
    /// With keys and values of these types.
    CreateTyped(&'t TypeName, &'t TypeName),
}

/// What others may still have of a table that was dropped or changed, until that is certain.
struct Retired {
    /// It was known; it is again if the change is taken back (G2).
    known: Option<Arc<TableInfo>>,
    /// The transaction's own, which none of the others knows.
    own: Option<Arc<TableInfo>>,
}

impl Shared {
    /// What is known of a table is over for this transaction, and, if it commits, for everybody; the table and its name
    /// are locked exclusively (G2). Said in the call that changes what the catalog says: nothing may come between (H3).
    /// Of a table that nobody else has opened nothing is kept.
    fn retire(&self, (txn, own): (&mut Txn, &mut OwnTables), info: &Share<TableInfo>) {
        let env = Arc::clone(self.env.arc());
        env.news.begin_drop(); // I3: from before the commit until nobody knows the table any more.
        own.note_dropped(info);
        // Below serializable a handle may know the table apart from the others, which wait for the lock and then ask
        // theirs.
        let known = env.known.remove(env.engine.slots.at_hand(), info);
        env.news.tell(); // N1 in `catalog/news.rs`.
        info.set_dropped(true);
        if let Some(known) = &known {
            known.set_dropped(true);
        }
        // The caller has one of `info`, and handles that he has cloned have others of the same share. What is no longer
        // known nobody else can get.
        let is_known = known.as_ref().is_some_and(|known| Arc::ptr_eq(known, info.arc()));
        let is_shared = info.count() > 1;
        let own = (!is_known && (is_shared || Arc::strong_count(info.arc()) > 1)).then(|| Arc::clone(info.arc()));
        let has_others =
            |known: &Arc<TableInfo>| is_known && is_shared || Arc::strong_count(known) > 1 + usize::from(is_known);
        let known = known.filter(has_others);
        let retired = (known.is_some() || own.is_some()).then(|| Box::new(Retired { known, own }));
        txn.on_end(move |committed| {
            if committed {
                env.nudge_reclaim();
            } else if let Some(retired) = retired {
                retired.known.iter().chain(&retired.own).for_each(|info| info.set_dropped(false));
                retired.known.map(|known| env.known.insert(known));
            }
            env.news.end_drop();
        });
    }

    /// The table is what `by` says; for this transaction, and, if it commits, for everybody. It is locked exclusively.
    pub(crate) fn replace_table(
        &self,
        (txn, own): (&mut Txn, &mut OwnTables),
        info: &Share<TableInfo>,
        by: Arc<TableInfo>,
    ) {
        self.retire((txn, own), info);
        own.note_changed(by);
    }
}
