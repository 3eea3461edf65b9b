//! What every peer is asked to do, and what is not equal among them.
//!
//! A peer is a store in one directory. A worker belongs to one thread and runs one transaction at a time. Keys are
//! numbers below 2^63, which each peer keeps in the form that its users would choose. A record begins with a number of
//! 64 bits, little-endian, that [`Txn::add`] changes: how a balance is changed is the peer's own affair.

use std::path::Path;

use anyhow::Context;

use crate::c::{self, CPeer};
use crate::peers::{fjall, ledgerstone, postgres, redb};

/// Tables by number, the same in all peers.
pub const ACCOUNTS: usize = 0;
/// The tellers.
pub const TELLERS: usize = 1;
/// The branches.
pub const BRANCHES: usize = 2;
/// The history.
pub const HISTORY: usize = 3;
/// Everything else.
pub const RECORDS: usize = 4;
/// Number of tables.
pub const TABLE_COUNT: usize = 5;
/// Longest value.
pub const VALUE_MAX: usize = 1024;

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads and changes; serializable, or as near as the peer comes to it.
    Write,
    /// Several reads that see one state.
    Read,
    /// Several reads at a snapshot; the same as `Read` where that is what readers always have.
    Snapshot,
    /// One read and nothing else.
    One,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The device.
    Sync,
    /// Nothing, and the commit is made durable behind it: many are under way at once.
    Pipelined,
    /// Nothing.
    None,
}

/// Why a call did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The transaction met another one: it is rolled back and run again.
    Again,
    /// Anything else.
    Other(anyhow::Error),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Other(error.into())
    }
}

impl Failure {
    /// The error; a conflict that was not expected is one too.
    pub fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Again => anyhow::anyhow!("a conflict where there can be none"),
            Failure::Other(error) => error,
        }
    }
}

/// What a step of a transaction returns.
pub type Step<T = ()> = Result<T, Failure>;
/// Sees a record; true goes on.
pub type Visit<'a> = &'a mut dyn FnMut(u64, &[u8]) -> bool;

/// The transaction that a worker has open.
pub trait Txn {
    /// The value of a key, in `value`; false if there is none.
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool>;
    /// Writes a record, whether or not there was one.
    fn put(&mut self, table: usize, key: u64, value: &[u8]) -> Step;
    /// Writes a record above all keys of the table.
    fn append(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        self.put(table, key, value)
    }
    /// Adds to the number of a record; false if there is no such record.
    fn add(&mut self, table: usize, key: u64, delta: i64) -> Step<bool>;
    /// Records from `from` on, at most `count_max`.
    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step;
}

/// The steps of one transaction.
pub type Steps<'a> = &'a mut dyn FnMut(&mut dyn Txn) -> Step;

/// One thread's part of a store.
pub trait Worker {
    /// Runs the steps in one transaction and commits it. If they fail, it is rolled back.
    fn once(&mut self, kind: Kind, steps: Steps<'_>) -> Step;

    /// The same, run again as long as it meets others. Returns how often it was run again.
    fn run(&mut self, kind: Kind, steps: Steps<'_>) -> anyhow::Result<u64> {
        let mut again_count = 0;
        loop {
            match self.once(kind, &mut *steps) {
                Ok(()) => return Ok(again_count),
                Err(Failure::Again) => again_count += 1,
                Err(Failure::Other(error)) => return Err(error),
            }
        }
    }
}

/// A store.
pub trait Peer: Send + Sync {
    /// A worker for the thread that asks.
    fn worker(&self, durability: Durability) -> anyhow::Result<Box<dyn Worker + '_>>;
    /// Brings all that was committed into the data files, durably.
    fn checkpoint(&self) -> anyhow::Result<()>;
    /// Closes in order.
    fn close(self: Box<Self>) -> anyhow::Result<()>;
    /// Loads ascending keys into an empty table by the peer's own loader, if that is measured. `None`: it is not, and
    /// the keys come by [`Txn::append`] in one transaction.
    fn load(&self, _table: usize, _records: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Option<anyhow::Result<()>> {
        None
    }
    /// Bytes that it has written since it was opened, if it counts them: by what they are.
    fn written(&self) -> anyhow::Result<Vec<(&'static str, u64)>> {
        Ok(Vec::new())
    }
    /// Processes that work for the store beside this one.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// An empty directory, or one of the same peer.
    pub dir: &'a Path,
    /// Memory for the peer's own cache.
    pub cache_bytes: u64,
    /// More than the data will ever take.
    pub file_bytes_max: u64,
    /// The data will not fit into memory.
    pub is_larger_than_memory: bool,
    /// Commits will wait for the device.
    pub is_durable: bool,
}

impl<'a> Settings<'a> {
    /// For data that fits into memory.
    pub fn roomy(dir: &'a Path) -> Settings<'a> {
        Settings {
            dir,
            cache_bytes: 2 << 30,
            file_bytes_max: 32 << 30,
            is_larger_than_memory: false,
            is_durable: false,
        }
    }
}

/// A peer's name and what sets it apart.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// On the command line and in JSON.
    pub name: &'static str,
    /// In tables.
    pub title: &'static str,
    /// What is not equal: marks of the table.
    pub marks: &'static [&'static str],
    /// A table behind the numbers it could not be asked for.
    pub has_snapshots: bool,
    /// It reads its files past the system's cache, so that all it keeps of them is in its own.
    pub has_own_cache_only: bool,
    open: fn(Settings<'_>) -> anyhow::Result<Box<dyn Peer>>,
    version: fn() -> String,
}

impl Entry {
    /// Opens, or makes, a store.
    ///
    /// # Errors
    /// The peer's.
    pub fn open(&self, settings: Settings<'_>) -> anyhow::Result<Box<dyn Peer>> {
        (self.open)(settings).with_context(|| format!("{} cannot open {}", self.title, settings.dir.display()))
    }

    /// The version that is measured.
    pub fn version(&self) -> String {
        (self.version)()
    }
}

/// The marks, in the order of their letters, with what each says.
pub const MARKS: [(&str, &str); 8] = [
    ("w", "one writer at a time: a second one waits until the first has committed"),
    ("l", "no log: a commit writes pages; without sync, a power failure may leave a file that cannot be read"),
    ("g", "no group commit: commits that wait for the device wait for each other"),
    (
        "s",
        "snapshot isolation: two transactions may each read what the other writes; TPC-B is serializable all the same",
    ),
    ("k", "locks on keys without gaps, readers at a snapshot: not serializable where ranges are read"),
    ("b", "without sync, commits stay in the memory of the process: a killed process loses those since the last flush"),
    ("r", "read committed where it writes: a balance is changed by one statement, and TPC-B needs no more"),
    ("p", "another process, reached over a socket"),
];

/// All peers, in the order of the tables.
pub const PEERS: [Entry; 9] = [
    Entry {
        name: "ledgerstone",
        title: "Ledgerstone",
        marks: &["b"],
        has_snapshots: true,
        has_own_cache_only: true,
        open: ledgerstone::open,
        version: ledgerstone::version,
    },
    Entry {
        name: "bdb",
        title: "Berkeley DB",
        marks: &["b"],
        has_snapshots: false,
        has_own_cache_only: false,
        open: |settings| CPeer::open(c::Which::BerkeleyDb, settings),
        version: || c::version(c::Which::BerkeleyDb),
    },
    Entry {
        name: "lmdb",
        title: "LMDB",
        marks: &["w", "l", "g"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: |settings| CPeer::open(c::Which::Lmdb, settings),
        version: || c::version(c::Which::Lmdb),
    },
    Entry {
        name: "rocksdb",
        title: "RocksDB",
        marks: &["k"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: |settings| CPeer::open(c::Which::RocksDb, settings),
        version: || c::version(c::Which::RocksDb),
    },
    Entry {
        name: "sqlite",
        title: "SQLite",
        marks: &["w", "g"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: |settings| CPeer::open(c::Which::Sqlite, settings),
        version: || format!("SQLite {}", c::version(c::Which::Sqlite)),
    },
    Entry {
        name: "wiredtiger",
        title: "WiredTiger",
        marks: &["s", "b"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: |settings| CPeer::open(c::Which::WiredTiger, settings),
        version: || c::version(c::Which::WiredTiger),
    },
    Entry {
        name: "redb",
        title: "redb",
        marks: &["w", "l", "g", "b"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: redb::open,
        version: redb::version,
    },
    Entry {
        name: "fjall",
        title: "fjall",
        marks: &["w", "g"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: fjall::open,
        version: fjall::version,
    },
    Entry {
        name: "postgres",
        title: "PostgreSQL",
        marks: &["r", "p"],
        has_snapshots: true,
        has_own_cache_only: false,
        open: postgres::open,
        version: postgres::version,
    },
];

/// The peer of that name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> anyhow::Result<&'static Entry> {
    PEERS.iter().find(|entry| entry.name == name).with_context(|| {
        let names: Vec<_> = PEERS.iter().map(|entry| entry.name).collect();
        format!("there is no peer {name:?}; there are {}", names.join(", "))
    })
}
