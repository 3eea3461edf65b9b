//! redb: a copy-on-write tree with one writer; typed tables, opened once in a transaction.

use ::redb::{
    Database, Durability as Redb, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table,
    TableDefinition, WriteTransaction,
};

use crate::peer::{Durability, Failure, Kind, Peer, Settings, Step, Steps, TABLE_COUNT, Txn, Visit, Worker};

type Definition = TableDefinition<'static, u64, &'static [u8]>;

const TABLES: [Definition; TABLE_COUNT] = [
    TableDefinition::new("accounts"),
    TableDefinition::new("tellers"),
    TableDefinition::new("branches"),
    TableDefinition::new("history"),
    TableDefinition::new("records"),
];

struct Store(Database);

/// Opens, or makes, a store.
///
/// # Errors
/// The library's.
pub fn open(settings: Settings<'_>) -> anyhow::Result<Box<dyn Peer>> {
    let mut builder = Database::builder();
    builder.set_cache_size(usize::try_from(settings.cache_bytes)?);
    let store = builder.create(settings.dir.join("data.redb"))?;
    let txn = store.begin_write()?;
    for table in TABLES {
        txn.open_table(table)?;
    }
    txn.commit()?;
    Ok(Box::new(Store(store)))
}

/// The version that is measured.
pub fn version() -> String {
    format!("redb {}", env!("REDB_VERSION"))
}

impl Peer for Store {
    fn worker(&self, durability: Durability) -> anyhow::Result<Box<dyn Worker + '_>> {
        anyhow::ensure!(durability != Durability::Pipelined, "this peer has no pipelined commits");
        Ok(Box::new(Own { store: &self.0, durability }))
    }

    /// An empty durable commit takes those before it along.
    fn checkpoint(&self) -> anyhow::Result<()> {
        Ok(self.0.begin_write()?.commit()?)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.checkpoint()
    }
}

struct Own<'a> {
    store: &'a Database,
    durability: Durability,
}

impl Worker for Own<'_> {
    fn once(&mut self, kind: Kind, steps: Steps<'_>) -> Step {
        if kind != Kind::Write {
            let txn = self.store.begin_read()?;
            return steps(&mut Reader { txn: &txn, tables: [const { None }; TABLE_COUNT] });
        }
        let mut txn = self.store.begin_write()?;
        txn.set_durability(if self.durability == Durability::Sync { Redb::Immediate } else { Redb::None })?;
        let mut writer = Writer { txn: &txn, tables: [const { None }; TABLE_COUNT] };
        steps(&mut writer)?; // Dropping the transaction rolls it back.
        drop(writer);
        Ok(txn.commit()?)
    }
}

struct Reader<'a> {
    txn: &'a ReadTransaction,
    tables: [Option<ReadOnlyTable<u64, &'static [u8]>>; TABLE_COUNT],
}

struct Writer<'a> {
    txn: &'a WriteTransaction,
    tables: [Option<Table<'a, u64, &'static [u8]>>; TABLE_COUNT],
}

impl Reader<'_> {
    fn table(&mut self, table: usize) -> Step<&ReadOnlyTable<u64, &'static [u8]>> {
        let kept = &mut self.tables[table];
        if kept.is_none() {
            *kept = Some(self.txn.open_table(TABLES[table])?);
        }
        kept.as_ref().ok_or(Failure::Again)
    }
}

impl<'a> Writer<'a> {
    fn table(&mut self, table: usize) -> Step<&mut Table<'a, u64, &'static [u8]>> {
        let kept = &mut self.tables[table];
        if kept.is_none() {
            *kept = Some(self.txn.open_table(TABLES[table])?);
        }
        kept.as_mut().ok_or(Failure::Again)
    }
}

fn get(table: &impl ReadableTable<u64, &'static [u8]>, key: u64, value: &mut Vec<u8>) -> Step<bool> {
    value.clear();
    let Some(found) = table.get(key)? else { return Ok(false) };
    value.extend_from_slice(found.value());
    Ok(true)
}

fn scan(table: &impl ReadableTable<u64, &'static [u8]>, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
    for (record, no) in table.range(from..)?.zip(1..) {
        let (key, value) = record?;
        if !visit(key.value(), value.value()) || no == count_max {
            break;
        }
    }
    Ok(())
}

fn only_reads<T>() -> Step<T> {
    Err(Failure::Other(anyhow::anyhow!("a transaction that only reads")))
}

impl Txn for Reader<'_> {
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool> {
        get(self.table(table)?, key, value)
    }

    fn put(&mut self, _: usize, _: u64, _: &[u8]) -> Step {
        only_reads()
    }

    fn add(&mut self, _: usize, _: u64, _: i64) -> Step<bool> {
        only_reads()
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
        scan(self.table(table)?, from, count_max, visit)
    }
}

impl Txn for Writer<'_> {
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool> {
        get(self.table(table)?, key, value)
    }

    fn put(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        self.table(table)?.insert(key, value)?;
        Ok(())
    }

    fn add(&mut self, table: usize, key: u64, delta: i64) -> Step<bool> {
        let table = self.table(table)?;
        let Some(mut found) = table.get_mut(key)? else { return Ok(false) };
        let mut record = found.value().to_vec();
        let Some((number, _)) = record.split_first_chunk_mut::<8>() else {
            return Err(Failure::Other(anyhow::anyhow!("not a record with a number")));
        };
        *number = i64::from_le_bytes(*number).wrapping_add(delta).to_le_bytes();
        found.insert(record.as_slice())?;
        Ok(true)
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
        scan(&*self.table(table)?, from, count_max, visit)
    }
}
