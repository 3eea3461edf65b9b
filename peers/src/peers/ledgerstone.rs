//! Ledgerstone: locks on keys and gaps, group commit, snapshots for readers that ask for one.

use std::collections::VecDeque;

use ledgerstone::{Committed, EnvTable, Environment, Error, Isolation, Ticket, Transaction, TransactionOptions};

use crate::peer::{Durability, Failure, Kind, Peer, Settings, Step, Steps, TABLE_COUNT, Txn, Visit, Worker};

const NAMES: [&str; TABLE_COUNT] = ["accounts", "tellers", "branches", "history", "records"];
/// Commits of one thread that are under way at once, if it does not wait for each.
const WINDOW: usize = 1024;

struct Store {
    env: Environment,
    /// As a program keeps them. A transaction opens none by its name.
    tables: Vec<EnvTable>,
}

/// Opens, or makes, a store.
///
/// # Errors
/// The library's.
pub fn open(settings: Settings<'_>) -> anyhow::Result<Box<dyn Peer>> {
    let env = Environment::options()
        .cache_bytes(settings.cache_bytes)
        .checkpoint_log_bytes(if settings.is_larger_than_memory { 64 << 20 } else { 1 << 30 })
        .transaction_count_max(4096)
        .open(settings.dir)?;
    env.transact(|txn| NAMES.iter().try_for_each(|name| txn.bytes_or_create(name).map(drop)))?;
    let tables = NAMES.iter().map(|name| env.table(name)).collect::<Result<_, _>>()?;
    Ok(Box::new(Store { env, tables }))
}

/// The version that is measured.
pub fn version() -> String {
    "Ledgerstone of this repository".into()
}

fn failure(error: Error) -> Failure {
    if error.is_retryable() { Failure::Again } else { Failure::Other(error.into()) }
}

impl Peer for Store {
    fn worker(&self, durability: Durability) -> anyhow::Result<Box<dyn Worker + '_>> {
        Ok(Box::new(Own { store: self, durability, under_way: VecDeque::new() }))
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        self.env.checkpoint()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        drop(self.tables);
        Ok(self.env.close()?)
    }

    fn written(&self) -> anyhow::Result<Vec<(&'static str, u64)>> {
        let stat = self.env.stat()?;
        let data = stat.page_write_count * u64::from(stat.settings.page_bytes);
        Ok(vec![("log", stat.log_append_bytes), ("double write", stat.double_write_bytes), ("data", data)])
    }

    fn load(&self, table: usize, records: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Option<anyhow::Result<()>> {
        let mut load = || -> Result<(), Error> {
            let txn = self.env.begin()?;
            self.tables[table].load_sorted(&txn, records.map(|(key, value)| (key.to_be_bytes(), value)))?;
            txn.commit().map(drop)
        };
        Some(load().map_err(anyhow::Error::from))
    }
}

struct Own<'a> {
    store: &'a Store,
    durability: Durability,
    under_way: VecDeque<Ticket>,
}

impl Own<'_> {
    fn settle(&mut self, committed: Committed) -> Result<(), Error> {
        if self.durability == Durability::Pipelined {
            self.under_way.push_back(committed.ticket);
            if self.under_way.len() >= WINDOW
                && let Some(first) = self.under_way.pop_front()
            {
                first.wait()?;
            }
        }
        Ok(())
    }
}

impl Worker for Own<'_> {
    fn once(&mut self, kind: Kind, steps: Steps<'_>) -> Step {
        // Of readers too: one that waits for a commit that it has read would be the only one of all peers to do so.
        let durability = match self.durability {
            Durability::Sync => ledgerstone::Durability::Sync,
            Durability::Pipelined => ledgerstone::Durability::Pipelined,
            Durability::None => ledgerstone::Durability::Volatile,
        };
        let is_at_snapshot = kind == Kind::Snapshot;
        let txn = self.store.env.begin_with(TransactionOptions {
            durability: Some(durability),
            isolation: is_at_snapshot.then_some(Isolation::Snapshot),
            read_only: is_at_snapshot,
            ..Default::default()
        });
        let txn = txn.map_err(failure)?;
        let mut open = Open { txn: &txn, tables: &self.store.tables };
        steps(&mut open)?; // Dropping the transaction rolls it back.
        let committed = txn.commit().map_err(failure)?;
        self.settle(committed).map_err(failure)
    }
}

struct Open<'a> {
    txn: &'a Transaction,
    tables: &'a [EnvTable],
}

impl Txn for Open<'_> {
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool> {
        value.clear();
        let read = |bytes: &[u8]| value.extend_from_slice(bytes);
        Ok(self.tables[table].get_with(self.txn, key.to_be_bytes(), read).map_err(failure)?.is_some())
    }

    fn put(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        self.tables[table].put(self.txn, key.to_be_bytes(), value).map_err(failure)
    }

    fn add(&mut self, table: usize, key: u64, delta: i64) -> Step<bool> {
        let added = |record: &[u8]| {
            let (number, _) = record.split_first_chunk::<8>()?;
            let mut record = record.to_vec();
            record[..8].copy_from_slice(&i64::from_le_bytes(*number).wrapping_add(delta).to_le_bytes());
            Some(record)
        };
        self.tables[table].modify(self.txn, key.to_be_bytes(), added).map_err(failure)
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
        let mut left = count_max;
        let from = from.to_be_bytes();
        let range = self.tables[table].range(self.txn, &from[..]..).map_err(failure)?;
        range
            .for_each_ref(|key, value| {
                let Ok(key) = key.try_into() else { return false };
                left -= 1;
                visit(u64::from_be_bytes(key), value) && left > 0
            })
            .map_err(failure)
    }
}
