//! What tests of snapshots and levels share: environments in memory, and one table.

use std::sync::Arc;

use ledgerstone::{Durability, Environment, Isolation, Options, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

pub const LEVELS: [Isolation; 4] =
    [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted, Isolation::ReadUncommitted];

pub fn open() -> Environment {
    open_with(16 << 20)
}

pub fn open_with(version_store_bytes: u64) -> Environment {
    options().version_store_bytes(version_store_bytes).open_on(Arc::new(SimDisk::new())).unwrap()
}

pub fn options() -> Options {
    Environment::options().cache_bytes(4 << 20).page_count_max(1 << 16).durability(Durability::Volatile)
}

pub fn begin(env: &Environment, isolation: Isolation) -> Transaction {
    env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() }).unwrap()
}

pub fn put(env: &Environment, key: &[u8], value: &[u8]) {
    env.transact(|txn| txn.bytes_or_create("t")?.put(key, value)).unwrap();
}

pub fn delete(env: &Environment, key: &[u8]) {
    env.transact(|txn| txn.bytes("t")?.delete(key)).unwrap();
}

pub fn all(txn: &Transaction) -> Vec<(Vec<u8>, Vec<u8>)> {
    txn.bytes("t").unwrap().range(..).unwrap().collect::<Result<_, _>>().unwrap()
}

pub fn number(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}
