//! Loading a dump into tables.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use ledgerstone::{Environment, Error, IndexDef, IndexKeys, TableTypes};

use super::reader::{DumpHeader, DumpItem, DumpReader, bad};
use super::{BETWEEN_NAMES, DumpProgress, INDEXES, PROGRESS_RECORDS, TABLE, TYPES, UNIQUE};

/// What happens to a key that a dump has several times. A table has a key once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// The load of the database is refused.
    #[default]
    Refuse,
    /// Each key of that database gets its place among its equals as a suffix, from 0 on: 4 bytes, big-endian. A search
    /// by prefix finds them in the order of the dump.
    Number,
}

/// How to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    table: Option<String>,
    batch: u64,
    duplicates: Duplicates,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { table: None, batch: 1000, duplicates: Duplicates::Refuse }
    }
}

impl LoadOptions {
    /// The table for a database without a name, such as a file of Berkeley DB that holds one database only.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = Some(name.into());
        self
    }

    /// Records in a transaction. The default is 1000. With 0, each database is one transaction, and is loaded whole or
    /// not at all.
    #[must_use]
    pub fn batch(mut self, records: u64) -> Self {
        self.batch = records;
        self
    }

    /// What happens to duplicates. The default is [`Duplicates::Refuse`].
    #[must_use]
    pub fn duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }
}

/// What was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LoadReport {
    /// Tables, in the order of the dump.
    pub tables: Vec<String>,
    /// Records.
    pub record_count: u64,
    /// Indexes that were made, each as its table, a dot and its name.
    pub indexes: Vec<String>,
    /// Indexes of the dump that were not made, because their keys come from a function that this program has not
    /// registered.
    pub skipped_indexes: Vec<String>,
}

/// Longest batch, in bytes of keys and values: a transaction's log must fit.
const BATCH_BYTES: u64 = 16 << 20;

/// [`Dump::load`](crate::Dump::load).
pub(crate) fn load(
    env: &Environment,
    from: &mut dyn BufRead,
    options: &LoadOptions,
    progress: &mut dyn FnMut(DumpProgress) -> ControlFlow<()>,
) -> Result<LoadReport, Error> {
    let mut reader = DumpReader::new(from);
    let mut report = LoadReport::default();
    // Behind the tables in a dump of ours, by its name in one that has been through Berkeley DB: made when the records
    // are in.
    let mut indexes = Vec::new();
    // Before the tables in a dump of ours, so that records are not put into a table of other types.
    let mut types: BTreeMap<String, TableTypes> = BTreeMap::new();
    while let Some(item) = reader.next()? {
        let DumpItem::Database(header) = item else { continue };
        if header.database.as_deref() == Some(INDEXES) {
            while let Some(DumpItem::Record { key, value }) = reader.next()? {
                let index = read_index(&key, &value);
                indexes.push(index.ok_or_else(|| bad(header.line, "no definitions of indexes"))?);
            }
            continue;
        }
        if header.database.as_deref() == Some(TYPES) {
            while let Some(DumpItem::Record { key, value }) = reader.next()? {
                types.extend([read_types(&key, &value).ok_or_else(|| bad(header.line, "no names of types"))?]);
            }
            continue;
        }
        let table = match (&header.database, &options.table) {
            (Some(name), _) => name.strip_prefix(TABLE).unwrap_or(name).to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => {
                return Err(bad(header.line, "this database has no name: say which table it goes into"));
            }
        };
        if header.has_duplicates && options.duplicates == Duplicates::Refuse {
            let what = "this database may hold a key several times, a table cannot: load it with numbered duplicates";
            return Err(bad(header.line, what));
        }
        report.tables.push(table.clone());
        let own_types = types.remove(&table).unwrap_or_default();
        env.transact(|txn| {
            txn.bytes_or_create(&table)?;
            txn.set_table_types(&table, &own_types)
        })?;
        load_records(env, &mut reader, &header, &table, options, &mut report, progress)?;
    }
    for (table, types) in types.iter().filter(|(table, _)| report.tables.contains(table)) {
        env.transact(|txn| txn.set_table_types(table, types))?;
    }
    load_indexes(env, &indexes, &mut report)?;
    Ok(report)
}

/// Makes the indexes that the dump says the tables had.
fn load_indexes(env: &Environment, indexes: &[(String, IndexDef)], report: &mut LoadReport) -> Result<(), Error> {
    for (table, index) in indexes {
        let is_made = env.transact(|txn| {
            if txn.bytes(table)?.indexes().contains(index) {
                return Ok(None);
            }
            match txn.create_index(table, index) {
                Ok(()) => Ok(Some(true)),
                Err(Error::NoIndexExtractor { .. } | Error::NotBuilt { .. }) => Ok(Some(false)),
                Err(error) => Err(error),
            }
        })?;
        let name = format!("{table}.{}", index.name());
        match is_made {
            Some(true) => report.indexes.push(name),
            Some(false) => report.skipped_indexes.push(name),
            None => {}
        }
    }
    Ok(())
}

fn load_records(
    env: &Environment,
    reader: &mut DumpReader<&mut dyn BufRead>,
    header: &DumpHeader,
    table: &str,
    options: &LoadOptions,
    report: &mut LoadReport,
    progress: &mut dyn FnMut(DumpProgress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut numbering = header.has_duplicates.then_some((None, 0u32));
    let mut is_over = false;
    while !is_over {
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        while options.batch == 0 || (batch.len() as u64) < options.batch && bytes < BATCH_BYTES {
            let Some(DumpItem::Record { mut key, value }) = reader.next()? else {
                is_over = true;
                break;
            };
            if let Some((last, number)) = &mut numbering {
                *number = if last.as_ref() == Some(&key) { *number + 1 } else { 0 };
                *last = Some(key.clone());
                key.extend_from_slice(&number.to_be_bytes());
            }
            bytes += (key.len() + value.len()) as u64;
            batch.push((key, value));
            report.record_count += 1;
            let table_count = report.tables.len() as u64;
            let (record_count, bytes) = (report.record_count, reader.bytes_read());
            let now = DumpProgress { table_count, record_count, bytes, snapshot_lsn: None };
            if report.record_count.is_multiple_of(PROGRESS_RECORDS) && progress(now).is_break() {
                return Err(Error::Cancelled);
            }
        }
        // As a batch, so that a transaction that meets a conflict can run again.
        env.transact(|txn| {
            let records = txn.bytes(table)?;
            batch.iter().try_for_each(|(key, value)| records.put(key, value))
        })?;
    }
    Ok(())
}

/// The types of a table as a dump has them.
fn read_types(key: &[u8], value: &[u8]) -> Option<(String, TableTypes)> {
    let (of_keys, of_values) = two_names(value)?;
    let some = |text: String| (!text.is_empty()).then_some(text);
    let types = TableTypes { key: some(of_keys), value: some(of_values) };
    Some((std::str::from_utf8(key).ok()?.to_string(), types))
}

/// A definition as a dump has it.
fn read_index(key: &[u8], value: &[u8]) -> Option<(String, IndexDef)> {
    let (table, index) = two_names(key)?;
    let text = std::str::from_utf8(value).ok()?;
    let unique = text.strip_prefix(UNIQUE);
    let keys: IndexKeys = unique.unwrap_or(text).parse().ok()?;
    let index = IndexDef::new(index, keys);
    Some((table, if unique.is_some() { index.unique() } else { index }))
}

fn two_names(bytes: &[u8]) -> Option<(String, String)> {
    let at = bytes.iter().position(|&byte| byte == BETWEEN_NAMES)?;
    let name = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_string);
    Some((name(&bytes[..at])?, name(&bytes[at + 1..])?))
}
