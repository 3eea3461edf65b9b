//! Instances of users' structures: created, opened and dropped by name, and worked on inside a transaction.
//!
//! I1. An instance has a table id of its own, so that its keys and gaps can be locked as a table's. It has a name in
//!     the catalog, which is locked as a table's name is (G1 in `catalog/mod.rs`).
//! I2. A transaction that uses an instance has locked its table, with an intention at least; a drop locks it
//!     exclusively. So a handle is good while its transaction runs. If that transaction itself drops the instance, or
//!     goes back to before it was made, the handle is refused (T4 in `catalog/own.rs`).

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ledgerstone_buffer::Cache;
use ledgerstone_lock::Mode;
use ledgerstone_page::{PageId, TableId};
use ledgerstone_region::Common;
use ledgerstone_space::Space;
use ledgerstone_structures::{Direction, Read};
use ledgerstone_txn::{Engine, StructureLatch, Txn, UsersCode};

use crate::catalog::{Entry, StructureId, check_name, unknown};
use crate::transaction::Shared;
use crate::{Error, Isolation, Transaction};

/// Where an instance is, and what its structure works with.
#[derive(Clone)]
pub struct Instance {
    engine: Arc<Engine>,
    space: Arc<Space>,
    table: TableId,
    root: PageId,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("table", &self.table).field("root", &self.root).finish()
    }
}

impl Instance {
    /// Its root page, which never moves.
    #[must_use]
    pub fn root(&self) -> PageId {
        self.root
    }

    /// The table that its locks belong to. Never used again, not even after a drop.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Log, cache, locks and operations.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The instance's latch, which is not held yet: step 1 of the recipe in `docs/operations.md` (Lemon 4.3).
    #[must_use]
    pub fn latch(&self) -> StructureLatch<'_> {
        StructureLatch::of(&self.engine, self.root)
    }

    /// The page cache: pages are read and latched here.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.engine.cache
    }

    /// Free pages.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }
}

/// An instance in a transaction. Owned, like a table's handle.
#[derive(Clone)]
pub struct StructureHandle {
    shared: Common<Shared>,
    name: String,
    structure: StructureId,
    instance: Instance,
}

impl std::fmt::Debug for StructureHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StructureHandle").field("name", &self.name).field("instance", &self.instance).finish()
    }
}

impl StructureHandle {
    /// The instance's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which structure it is an instance of.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    #[must_use]
    pub fn structure(&self) -> StructureId {
        self.structure
    }

    /// Where it is.
    #[must_use]
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Runs `f` on the running transaction with the instance's table locked in `mode`. `IS` is for reading parts under
    /// locks of their own, and `IX` for changing parts that way. `S` is for reading the whole, and `X` for changing it
    /// alone.
    ///
    /// What is left of a claim is given back afterwards. No latch may be held when `f` returns. If `f` panics, what it
    /// did is undone, and the transaction goes on. If `f` fails, what it did stays, and the caller decides.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if the transaction itself has dropped the instance, or has gone back to before it made
    /// it. Conflicts, [`Error::ReadOnly`] for a mode that writes, [`Error::Finished`], and what `f` returns.
    pub fn enter<T>(&self, mode: Mode, f: impl FnOnce(&mut Txn, &Instance) -> Result<T, Error>) -> Result<T, Error> {
        let users = self.shared.users_code();
        let mut f = Some(f); // Dropped out here if it is not called: what it has captured may panic then.
        self.shared.run_in(|txn, own| {
            if mode.may_write() {
                self.shared.check_writable()?;
            }
            if !own.has_structure(self.instance.table) {
                return Err(Error::NoSuchTable(self.name.clone()));
            }
            txn.lock_table(self.instance.table, mode)?;
            let before = txn.savepoint();
            let f = f.take().ok_or(Error::Busy)?; // It is there: this runs once.
            let done = catch_unwind(AssertUnwindSafe(|| users.run(|| f(txn, &self.instance))));
            let done = done.unwrap_or_else(|panic| {
                let kept = txn.engine().keep_panic(panic);
                // If this fails, so has the environment, and every later call says so.
                let _ = txn.rollback_to(before);
                kept.go_on()
            });
            let _ = txn.release_savepoint(before); // It is gone if `f` went back to an earlier one.
            done
        })
    }
}

impl Transaction {
    /// Creates an instance of a registered structure under a name. Tables and structures share their names. `options`
    /// are passed to [`Structure::format_root`](super::Structure::format_root).
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::StructureNeedsLocks`] unless the transaction is serializable. [`Error::TableExists`] if the name is
    /// taken. [`Error::UnknownOperation`] if the structure is not registered. Conflicts, no space.
    pub fn create_structure(
        &self,
        name: &str,
        structure: StructureId,
        options: &[u8],
    ) -> Result<StructureHandle, Error> {
        self.check_structure(name)?;
        let env = &self.shared.env;
        let kind = env.program.extensions.get(structure).ok_or_else(|| unknown(name, structure))?;
        let entry = self.shared.run_in(|txn, own| {
            self.shared.check_writable()?;
            if env.catalog().get(txn, name.as_bytes(), Read::ForUpdate)?.is_some() {
                return Err(Error::TableExists(name.to_string()));
            }
            let users = UsersCode::of(&env.engine, txn.owner(), txn.xid());
            let format = users.run(|| kind.format_root(PageId::NONE, options).0);
            let args_of = |root| users.run(|| kind.format_root(root, options).1);
            let entry = txn.whole(|txn| {
                let root = env.to_free().create_own(txn, structure.0, format, args_of)?;
                // Unique for ever: the LSN of a record that making the root has just written.
                let table = TableId(txn.last_lsn().0);
                txn.lock_table(table, Mode::X)?;
                let entry = Entry { table, root };
                env.catalog().put(txn, name.as_bytes(), &entry.encode_structure(structure.0))?;
                Ok::<_, Error>(entry)
            })?;
            own.note_structure_made(entry.table);
            Ok(entry)
        })?;
        Ok(self.handle(name, structure, entry))
    }

    /// Opens the instance with this name, which must be of `structure`.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::StructureNeedsLocks`] unless the transaction is serializable. [`Error::NoSuchTable`].
    /// [`Error::NotAStructure`] if it is something else. [`Error::UnknownOperation`] if the structure is not
    /// registered. Conflicts.
    pub fn structure(&self, name: &str, structure: StructureId) -> Result<StructureHandle, Error> {
        self.check_structure(name)?;
        let env = &self.shared.env;
        let _ = env.program.extensions.get(structure).ok_or_else(|| unknown(name, structure))?;
        let (found, entry) = self.shared.run(|txn| {
            let Some(bytes) = env.catalog().get(txn, name.as_bytes(), Read::Locked)? else {
                return Err(Error::NoSuchTable(name.to_string()));
            };
            let found = Entry::decode_structure(name, &bytes)?;
            txn.lock_table(found.1.table, Mode::IS)?;
            Ok(found)
        })?;
        if found != structure.0 {
            return Err(Error::NotAStructure { name: name.to_string() });
        }
        Ok(self.handle(name, structure, entry))
    }

    /// Drops the instance with this name. Its pages are freed after the commit.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NotAStructure`], conflicts.
    pub fn drop_structure(&self, name: &str) -> Result<(), Error> {
        self.check_structure(name)?;
        let env = Arc::clone(self.shared.env.arc());
        self.shared.run_in(|txn, own| {
            self.shared.check_writable()?;
            let Some(bytes) = env.catalog().get(txn, name.as_bytes(), Read::ForUpdate)? else {
                return Err(Error::NoSuchTable(name.to_string()));
            };
            let (structure, entry) = Entry::decode_structure(name, &bytes)?;
            txn.lock_table(entry.table, Mode::X)?;
            txn.whole(|txn| {
                env.catalog().delete(txn, name.as_bytes())?;
                env.to_free().defer_own(txn, structure, entry.root)
            })?;
            own.note_structure_dropped(entry.table);
            let env = Arc::clone(&env);
            txn.on_end(move |committed| {
                if committed {
                    env.nudge_reclaim();
                }
            });
            Ok(())
        })
    }

    /// The names of all structures, sorted, with the structure of which each is an instance. Locks the list against
    /// change.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Conflicts.
    pub fn structure_names(&self) -> Result<Vec<(String, StructureId)>, Error> {
        let env = Arc::clone(self.shared.env.arc());
        self.shared.run(|txn| {
            let mut names = Vec::new();
            let mut scan = env.catalog().scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((name, value)) = scan.next(txn)? {
                if let Some(structure) = Entry::structure_of(value) {
                    names.push((String::from_utf8_lossy(name).into_owned(), StructureId(structure)));
                }
            }
            Ok(names)
        })
    }

    /// Structures keep no versions of what they change: they are read and written under locks.
    fn check_structure(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        match self.shared.isolation {
            Isolation::Serializable => Ok(()),
            isolation => Err(Error::StructureNeedsLocks { name: name.to_string(), isolation }),
        }
    }

    fn handle(&self, name: &str, structure: StructureId, entry: Entry) -> StructureHandle {
        let env = &self.shared.env;
        let (engine, space) = (Arc::clone(&env.engine), Arc::clone(&env.space));
        let instance = Instance { engine, space, table: entry.table, root: entry.root };
        StructureHandle { shared: self.shared.clone(), name: name.to_string(), structure, instance }
    }
}
