//! fjall: log-structured trees, one for each table. Its transactions with a single writer: those that check for
//! conflicts at the commit would run most transactions of TPC-B again, because all change one of ten branches.

use ::fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use ::fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx,
    Snapshot,
};

use crate::peer::{Durability, Failure, Kind, Peer, Settings, Step, Steps, TABLE_COUNT, Txn, Visit, Worker};

const NAMES: [&str; TABLE_COUNT] = ["accounts", "tellers", "branches", "history", "records"];

struct Store {
    db: SingleWriterTxDatabase,
    tables: Vec<SingleWriterTxKeyspace>,
}

/// Opens, or makes, a store.
///
/// # Errors
/// The library's.
pub fn open(settings: Settings<'_>) -> anyhow::Result<Box<dyn Peer>> {
    let db = SingleWriterTxDatabase::builder(settings.dir).cache_size(settings.cache_bytes).worker_threads(2);
    let db = db.open()?;
    // With little memory, the memtables of the one table that is written have an eighth of it.
    let memtable_bytes = if settings.is_larger_than_memory { settings.cache_bytes / 8 } else { 64 << 20 };
    let options = || {
        let bits = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
        KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::disabled())
            .filter_policy(FilterPolicy::all(bits))
            .expect_point_read_hits(true)
            .max_memtable_size(memtable_bytes)
    };
    let tables = NAMES.iter().map(|name| db.keyspace(name, options)).collect::<Result<_, _>>()?;
    Ok(Box::new(Store { db, tables }))
}

/// The version that is measured.
pub fn version() -> String {
    format!("fjall {}", env!("FJALL_VERSION"))
}

impl Peer for Store {
    fn worker(&self, durability: Durability) -> anyhow::Result<Box<dyn Worker + '_>> {
        anyhow::ensure!(durability != Durability::Pipelined, "this peer has no pipelined commits");
        Ok(Box::new(Own { store: self, durability }))
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        for table in &self.tables {
            table.inner().rotate_memtable_and_wait()?;
        }
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

struct Own<'a> {
    store: &'a Store,
    durability: Durability,
}

impl Worker for Own<'_> {
    fn once(&mut self, kind: Kind, steps: Steps<'_>) -> Step {
        if kind != Kind::Write {
            return steps(&mut Reader { store: self.store, snapshot: self.store.db.read_tx() });
        }
        let mode = (self.durability == Durability::Sync).then_some(PersistMode::SyncData);
        let mut writer = Writer { store: self.store, txn: self.store.db.write_tx().durability(mode) };
        steps(&mut writer)?; // Dropping the transaction rolls it back.
        Ok(writer.txn.commit()?)
    }
}

struct Reader<'a> {
    store: &'a Store,
    snapshot: Snapshot,
}

struct Writer<'a> {
    store: &'a Store,
    txn: SingleWriterWriteTx<'a>,
}

fn get(from: &impl Readable, table: &SingleWriterTxKeyspace, key: u64, value: &mut Vec<u8>) -> Step<bool> {
    value.clear();
    let Some(found) = from.get(table, key.to_be_bytes())? else { return Ok(false) };
    value.extend_from_slice(&found);
    Ok(true)
}

fn scan(from: &impl Readable, table: &SingleWriterTxKeyspace, key: u64, count_max: u64, visit: Visit<'_>) -> Step {
    for (record, no) in from.range(table, key.to_be_bytes()..).zip(1..) {
        let (key, value) = record.into_inner()?;
        let key: [u8; 8] = key.as_ref().try_into()?;
        if !visit(u64::from_be_bytes(key), &value) || no == count_max {
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
        get(&self.snapshot, &self.store.tables[table], key, value)
    }

    fn put(&mut self, _: usize, _: u64, _: &[u8]) -> Step {
        only_reads()
    }

    fn add(&mut self, _: usize, _: u64, _: i64) -> Step<bool> {
        only_reads()
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
        scan(&self.snapshot, &self.store.tables[table], from, count_max, visit)
    }
}

impl Txn for Writer<'_> {
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool> {
        get(&self.txn, &self.store.tables[table], key, value)
    }

    fn put(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        self.txn.insert(&self.store.tables[table], key.to_be_bytes(), value);
        Ok(())
    }

    fn add(&mut self, table: usize, key: u64, delta: i64) -> Step<bool> {
        let table = &self.store.tables[table];
        let Some(found) = self.txn.get(table, key.to_be_bytes())? else { return Ok(false) };
        let mut record = found.to_vec();
        let Some((number, _)) = record.split_first_chunk_mut::<8>() else {
            return Err(Failure::Other(anyhow::anyhow!("not a record with a number")));
        };
        *number = i64::from_le_bytes(*number).wrapping_add(delta).to_le_bytes();
        self.txn.insert(table, key.to_be_bytes(), record);
        Ok(true)
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
        scan(&self.txn, &self.store.tables[table], from, count_max, visit)
    }
}
