//! Tables of a ledgerstone environment as text, and back, for moving between versions, page sizes and systems. The
//! format is that of Berkeley DB's `db_dump`, so dumps can be exchanged with it in both directions
//! (`docs/format/dump.md`).
//!
//! [`Dump`] adds the calls [`dump`](Dump::dump) and [`load`](Dump::load) to an [`Environment`]. [`DumpReader`] reads a
//! dump without one.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};
//!
//! env.transact(|txn| txn.bytes_or_create("fruit")?.put(b"apple", b"red"))?;
//! let mut text = Vec::new();
//! env.dump(&mut text, &DumpOptions::default())?;
//! env.transact(|txn| txn.drop_table("fruit"))?;
//! env.load(&mut &text[..], &LoadOptions::default())?;
//! assert_eq!(env.transact(|txn| txn.bytes("fruit")?.get(b"apple"))?.as_deref(), Some(&b"red"[..]));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod load;
mod reader;
mod text;

use std::io::{BufRead, Write};
use std::ops::ControlFlow;

use ledgerstone::{Environment, Error, Flow, Transaction};
use ledgerstone_page::planted::{self, Bug};

pub use load::{Duplicates, LoadOptions, LoadReport};
pub use reader::{DumpHeader, DumpItem, DumpReader, DumpType};
pub use text::DumpFormat;

/// What to dump, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpOptions {
    tables: Vec<String>,
    format: DumpFormat,
    locked: bool,
}

impl DumpOptions {
    /// Only this table. Call it again for more tables. By default, all tables are dumped.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.tables.push(name.into());
        self
    }

    /// How bytes are written. Default [`DumpFormat::ByteValue`].
    #[must_use]
    pub fn format(mut self, format: DumpFormat) -> Self {
        self.format = format;
        self
    }

    /// Reads under locks instead of at a snapshot. Writers wait where they would change what was read. The dump cannot
    /// become too old, however much is written elsewhere. Default: no.
    #[must_use]
    pub fn locked(mut self, locked: bool) -> Self {
        self.locked = locked;
        self
    }
}

/// How far a dump or a load is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DumpProgress {
    /// Tables begun.
    pub table_count: u64,
    /// Records written or read.
    pub record_count: u64,
    /// For a load, bytes of text that were read. For a dump, bytes of keys and values that were written.
    pub bytes: u64,
    /// For a dump at a snapshot: the dump has the commits whose LSNs are below this, and no others. A change feed that
    /// begins here ([`Environment::changes`]) has the rest.
    pub snapshot_lsn: Option<u64>,
}

/// The database behind the tables that holds the definitions of their indexes. A key is the table's name,
/// [`BETWEEN_NAMES`] and the index's name. A value is `bytes:0..8` or `unique bytes:0..8`: the index keys as
/// [`IndexKeys`](ledgerstone::IndexKeys) are written.
const INDEXES: &str = "ledgerstone.indexes";
const UNIQUE: &str = "unique ";
/// The database before the tables, which holds their types. A key is the name of a table. A value is the name of its
/// keys' type, [`BETWEEN_NAMES`], and the name of its values' type, each empty if it is not known.
const TYPES: &str = "ledgerstone.types";
/// Stands between two names, which are UTF-8 and so never have it.
const BETWEEN_NAMES: u8 = 0xff;
/// What the names of such databases begin with. A table whose name begins so has the other prefix in a dump.
const OWN: &str = "ledgerstone.";
const TABLE: &str = "ledgerstone.table:";

/// Records between two calls of the progress.
const PROGRESS_RECORDS: u64 = 1000;

/// Tables as text, and back: what this crate adds to an [`Environment`].
pub trait Dump {
    /// Writes tables as text, all as of one moment, a snapshot ([`Environment::snapshot`]). The dump is written as a
    /// stream, and takes the memory of one record. It waits for no other transaction, and none waits for it.
    ///
    /// Takes as long as its work, and waits for pages and for `to`: see [what blocks](ledgerstone#what-blocks). With
    /// [`DumpOptions::locked`] it also waits for locks.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]. [`Error::Disk`] if `to` cannot be written.
    /// [`Error::SnapshotTooOld`] if more was written meanwhile than `version_store_bytes` holds. The written text then
    /// ends in the middle: dump again with a larger setting, or with [`DumpOptions::locked`]. With locks, conflicts.
    fn dump(&self, to: &mut dyn Write, options: &DumpOptions) -> Result<DumpProgress, Error> {
        self.dump_with(to, options, |_| ())
    }

    /// The same. `progress` is called repeatedly, and may end the dump ([`Flow`]).
    ///
    /// # Errors
    /// As [`Dump::dump`], and [`Error::Cancelled`].
    fn dump_with<F: Flow>(
        &self,
        to: &mut dyn Write,
        options: &DumpOptions,
        progress: impl FnMut(DumpProgress) -> F,
    ) -> Result<DumpProgress, Error>;

    /// Reads a dump into tables with the names of its databases. The dump may be ours or one of `db_dump`. Missing
    /// tables are made. A record that already exists under the same key gets the value of the dump. The dump is read as
    /// a stream.
    ///
    /// Takes as long as its work, and waits for `from` and for its transactions: see [what
    /// blocks](ledgerstone#what-blocks).
    ///
    /// # Errors
    /// [`Error::BadDump`] with the line. A key or value that is too large, and the errors of transactions.
    /// [`Error::TableTypeMismatch`] for a table that has other types than the dump says. [`Error::IndexExists`] for an
    /// index that the table has with another definition, [`Error::IndexKeyExists`]. Batches that were committed before
    /// stay.
    fn load(&self, from: &mut dyn BufRead, options: &LoadOptions) -> Result<LoadReport, Error> {
        self.load_with(from, options, |_| ())
    }

    /// The same. `progress` is called repeatedly, and may end the load ([`Flow`]).
    ///
    /// # Errors
    /// As [`Dump::load`], and [`Error::Cancelled`].
    fn load_with<F: Flow>(
        &self,
        from: &mut dyn BufRead,
        options: &LoadOptions,
        progress: impl FnMut(DumpProgress) -> F,
    ) -> Result<LoadReport, Error>;
}

impl Dump for Environment {
    fn dump_with<F: Flow>(
        &self,
        to: &mut dyn Write,
        options: &DumpOptions,
        mut progress: impl FnMut(DumpProgress) -> F,
    ) -> Result<DumpProgress, Error> {
        let progress: &mut dyn FnMut(DumpProgress) -> ControlFlow<()> = &mut |at| progress(at).flow();
        let txn = if options.locked { self.begin()? } else { self.snapshot()? };
        // The callback for progress and the writer are the caller's code.
        let mut done = txn.run_inside(|| {
            if planted::is_on(Bug::DumpOfManyMoments) && !options.locked {
                let one = |name: String| dump_tables(&self.snapshot()?, to, &options.clone().table(name), progress);
                txn.table_names()?.into_iter().map(one).try_fold(DumpProgress::default(), |_, done| done)
            } else {
                dump_tables(&txn, to, options, progress)
            }
        })?;
        done.snapshot_lsn = txn.snapshot_lsn().map(|lsn| lsn.0);
        // A program that goes on from there with the change feed would miss commits that get these LSNs again after a
        // crash.
        if done.snapshot_lsn.is_some_and(|lsn| lsn > self.durable_lsn().0) {
            self.sync()?;
        }
        txn.abort()?; // It only read.
        Ok(done)
    }

    fn load_with<F: Flow>(
        &self,
        from: &mut dyn BufRead,
        options: &LoadOptions,
        mut progress: impl FnMut(DumpProgress) -> F,
    ) -> Result<LoadReport, Error> {
        load::load(self, from, options, &mut |at| progress(at).flow())
    }
}

fn dump_tables(
    txn: &Transaction,
    to: &mut dyn Write,
    options: &DumpOptions,
    progress: &mut dyn FnMut(DumpProgress) -> ControlFlow<()>,
) -> Result<DumpProgress, Error> {
    // It is the dump that has no space then, not the environment.
    let cannot_write =
        |error: std::io::Error| Error::Disk(std::io::Error::new(error.kind(), format!("write the dump: {error}")));
    let tables = if options.tables.is_empty() { txn.table_names()? } else { options.tables.clone() };
    let tables = tables.iter().map(|name| txn.bytes(name)).collect::<Result<Vec<_>, _>>()?;
    let format = options.format;
    let mut done = DumpProgress::default();
    let both = |one: &str, other: &str| [one.as_bytes(), &[BETWEEN_NAMES], other.as_bytes()].concat();
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    let typed = tables.iter().filter(|table| !table.types().is_empty());
    let types: Vec<_> = typed
        .map(|table| {
            let types = table.types();
            (table.name().as_bytes().to_vec(), both(&text(&types.key), &text(&types.value)))
        })
        .collect();
    write_own(to, TYPES, format, &types).map_err(cannot_write)?;
    let mut indexes = Vec::new();
    for table in tables {
        let name = table.name();
        done.table_count += 1;
        for index in table.indexes() {
            let definition = format!("{}{}", if index.is_unique() { UNIQUE } else { "" }, index.keys());
            indexes.push((both(name, index.name()), definition.into_bytes()));
        }
        if name.starts_with(OWN) {
            write_header(to, &format!("{TABLE}{name}"), format).map_err(cannot_write)?;
        } else {
            write_header(to, name, format).map_err(cannot_write)?;
        }
        for record in table.range(..)? {
            let (key, value) = record?;
            write_record(to, format, &key, &value).map_err(cannot_write)?;
            done.record_count += 1;
            done.bytes += (key.len() + value.len()) as u64;
            if done.record_count.is_multiple_of(PROGRESS_RECORDS) && progress(done).is_break() {
                return Err(Error::Cancelled);
            }
        }
        to.write_all(b"DATA=END\n").map_err(cannot_write)?;
    }
    write_own(to, INDEXES, format, &indexes).map_err(cannot_write)?;
    to.flush().map_err(cannot_write)?;
    if progress(done).is_break() { Err(Error::Cancelled) } else { Ok(done) }
}

/// What the catalog says of the tables, as a database, if it says anything.
fn write_own(
    to: &mut dyn Write,
    name: &str,
    format: DumpFormat,
    records: &[(Vec<u8>, Vec<u8>)],
) -> std::io::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    write_header(to, name, format)?;
    for (key, value) in records {
        write_record(to, format, key, value)?;
    }
    to.write_all(b"DATA=END\n")
}

fn write_record(to: &mut dyn Write, format: DumpFormat, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    for bytes in [key, value] {
        to.write_all(b" ")?;
        format.write(bytes, to)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

fn write_header(to: &mut dyn Write, name: &str, format: DumpFormat) -> std::io::Result<()> {
    let word = match format {
        DumpFormat::ByteValue => "bytevalue",
        DumpFormat::Print => "print",
    };
    write!(to, "VERSION=3\nformat={word}\ndatabase=")?;
    DumpFormat::Print.write(name.as_bytes(), to)?;
    to.write_all(b"\ntype=btree\nHEADER=END\n")
}
