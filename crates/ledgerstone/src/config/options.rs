//! How to open an environment: the settings of `config`, and what only code can say.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "media")]
use ledgerstone_disk::Disk;
use ledgerstone_lock::{LockConfig, LockManager};
use ledgerstone_region::{Region, SlotTable};

use super::{Config, Effective, RecoveryProgress};
use crate::Error;
use crate::catalog::index::{ExtractorTypes, Extractors};
use crate::catalog::{Extensions, Structure};
use crate::keeper::{KeptLog, LogKeeper, MakeKeeper};
use crate::typed::{Key, Value};

/// Makes the lock manager when the environment is opened.
type Make = dyn Fn(&Region, &Arc<SlotTable>, LockConfig) -> Result<Arc<dyn LockManager>, Error> + Send + Sync;

/// A program's own lock manager.
#[derive(Clone)]
pub(crate) struct OwnLocking(pub Arc<Make>);

impl fmt::Debug for OwnLocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("own lock manager")
    }
}

/// Makes a keeper of the log.
#[derive(Clone)]
pub(crate) struct Maker(Arc<MakeKeeper>);

impl Maker {
    pub(crate) fn make(&self) -> &MakeKeeper {
        &*self.0
    }
}

#[cfg(feature = "media")]
impl Maker {
    /// Of the archive there.
    pub(crate) fn of_archive(disk: Arc<dyn Disk>) -> Maker {
        Maker(Arc::new(move |log| ledgerstone_media::archive(Arc::clone(&disk), log)))
    }
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keeper of the log")
    }
}

/// How to open an environment. See [`Environment::options`](crate::Environment::options).
///
/// The setters that are named like settings of `ledgerstone.toml` override that file. The file is read if the library
/// was built with the feature `settings-file`; without it, an environment that has the file is refused.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// use std::time::Duration;
///
/// let env = ledgerstone::Environment::options()
///     .cache_bytes(16 << 20)
///     .lock_timeout(Duration::from_secs(2))
///     .open(dir.path())?;
/// assert_eq!(env.effective().lock_timeout_ms, 2000);
/// # env.close()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// What code has set.
    pub(crate) config: Config,
    /// What `ledgerstone.toml` says, once it was read.
    pub(crate) file: Config,
    /// The environment's, once it is known.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) has_background_threads: bool,
    /// Instead of the lock manager that the settings name.
    pub(crate) own_locking: Option<OwnLocking>,
    /// The archive as `archive_dir` or code says.
    pub(crate) archive: Option<Maker>,
    /// The program's own keepers.
    log_keepers: Vec<Maker>,
    pub(crate) recovery_progress: Arc<RecoveryProgress>,
    /// Users' structures.
    pub(crate) extensions: Extensions,
    /// Users' functions for indexes.
    pub(crate) extractors: Extractors,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            config: Config::default(),
            file: Config::default(),
            directory: None,
            create: true,
            read_only: false,
            has_background_threads: true,
            own_locking: None,
            archive: None,
            log_keepers: Vec::new(),
            recovery_progress: Arc::default(),
            extensions: Extensions::default(),
            extractors: Extractors::default(),
        }
    }
}

impl Options {
    /// Create the environment if there is none. Default true.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Opens for reading only. Every write is refused with [`Error::ReadOnly`]. Default false.
    ///
    /// If the environment was closed in order, no byte is written, so the directory need not be writable. Several
    /// processes may read it at the same time, while none may write. If it was not closed in order, this call recovers
    /// it first, which writes. Without the right to write there, it is refused with [`Error::ReadOnly`].
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Runs with a lock manager of your own. `make` is called when the environment is opened. The region has room for
    /// what `LockTable` would take with this configuration, and its threads have their slots in the table.
    /// [`LockManager`] says what it has to promise. Isolation is as good as what it grants.
    #[must_use]
    pub fn own_lock_manager(
        mut self,
        make: impl Fn(&Region, &Arc<SlotTable>, LockConfig) -> Result<Arc<dyn LockManager>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.own_locking = Some(OwnLocking(Arc::new(make)));
        self
    }

    /// Stores in `progress` how far the opening has come. Read it from another thread.
    #[must_use]
    pub fn recovery_progress(mut self, progress: Arc<RecoveryProgress>) -> Self {
        self.recovery_progress = progress;
        self
    }

    /// Registers a structure of the program's own: its operations, layouts and undo. If the log or the data need a
    /// structure that is not registered, opening is refused with [`Error::UnknownOperation`]. Nothing is lost by
    /// trying.
    #[must_use]
    pub fn structure(mut self, structure: Arc<dyn Structure>) -> Self {
        self.extensions.add(structure);
        self
    }

    /// Registers a function that finds the index keys of a record, for indexes with
    /// [`IndexKeys::Extractor`](crate::IndexKeys::Extractor) of this name. It gets the record's key and value, and
    /// calls its third argument with each index key. If it returns `Err`, there can be no such record: the change is
    /// refused with [`Error::NotIndexable`].
    ///
    /// The result may depend on nothing else, in any process and at any time. A changed function therefore needs
    /// another name. Where the function is not registered, tables with such indexes can be read but not changed
    /// ([`Error::NoIndexExtractor`]).
    #[must_use]
    pub fn index_extractor(
        mut self,
        name: impl Into<String>,
        extract: impl Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.extractors.add(name.into(), Arc::new(extract), None);
        self
    }

    /// The same for typed tables. The index keys are values of a type, and are ordered as these values are. An index
    /// made with the function remembers the type of its keys. If the function is registered for other types than the
    /// catalog names, records cannot be changed ([`Error::TableTypeMismatch`]).
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use ledgerstone::{Environment, IndexDef, IndexKeys, TableDef};
    ///
    /// /// Orders by number: customer and price.
    /// const ORDERS: TableDef<u64, (String, u32)> = TableDef::new("orders");
    ///
    /// let env = Environment::options()
    ///     .cache_bytes(16 << 20)
    ///     .typed_index_extractor("customer", |_: &u64, order: &(String, u32)| vec![order.0.clone()])
    ///     .open(dir.path())?;
    /// env.transact(|txn| {
    ///     txn.open(ORDERS)?;
    ///     let by_customer = IndexDef::new("by_customer", IndexKeys::Extractor("customer".into()));
    ///     txn.create_index_if_missing("orders", &by_customer)?;
    ///     let orders = txn.open(ORDERS)?;
    ///     orders.put(7, ("ann", 12))?;
    ///     orders.put(8, ("bob", 30))?;
    ///     assert_eq!(orders.index::<String>("by_customer")?.lookup("ann")?.count(), 1);
    ///     Ok(())
    /// })?;
    /// # env.close()
    /// # }
    /// ```
    #[must_use]
    pub fn typed_index_extractor<K: Key, V: Value, I: Key>(
        mut self,
        name: impl Into<String>,
        extract: impl Fn(&K, &V) -> Vec<I> + Send + Sync + 'static,
    ) -> Self {
        let extract = move |key: &[u8], value: &[u8], emit: &mut dyn FnMut(&[u8])| {
            let key = K::decode(key).map_err(|error| format!("its key: {error}"))?;
            let value = V::decode(value).map_err(|error| format!("its value: {error}"))?;
            for index_key in extract(&key, &value) {
                let mut bytes = Vec::with_capacity(16);
                index_key.encode(&mut bytes).map_err(|error| format!("its index key: {error}"))?;
                emit(&bytes);
            }
            Ok(())
        };
        let types = ExtractorTypes { key: K::TYPE, value: V::TYPE, index_key: I::TYPE };
        self.extractors.add(name.into(), Arc::new(extract), Some(types));
        self
    }

    /// Copies segments of the log to the root directory of `disk` before they are given up: as the setting
    /// `archive_dir`, on any [`Disk`].
    #[cfg(feature = "media")]
    #[must_use]
    pub fn archive_on(mut self, disk: Arc<dyn Disk>) -> Self {
        self.archive = Some(Maker::of_archive(disk));
        self
    }

    /// Adds a keeper of your own to the archive and the named feeds. Each checkpoint asks the keeper what log it still
    /// needs, and tells it what goes. `make` is called when the environment is opened for writing, once it has
    /// recovered and before any log is given up. An open fails as `make` does.
    #[must_use]
    pub fn log_keeper(
        mut self,
        make: impl Fn(KeptLog) -> Result<Arc<dyn LogKeeper>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.log_keepers.push(Maker(Arc::new(make)));
        self
    }

    /// What makes the keepers of the log, the archive first.
    pub(crate) fn keepers(&self) -> Vec<Maker> {
        self.archive.iter().chain(&self.log_keepers).cloned().collect()
    }

    /// The settings in force for an environment of the given page and segment size, or for a new one.
    pub(crate) fn effective(&self, fixed: Option<(u32, u64)>) -> Result<Effective, Error> {
        Effective::resolve(&self.config, &self.file, fixed)
    }
}
