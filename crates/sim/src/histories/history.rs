//! A history: what transactions did to items, and when.
//!
//! An *item* is a key of a table. Each write gives an item a value that no other write has, so that a read tells which
//! version it saw. A scan reads each item of its range, those that are not there included: that is how phantoms show.
//!
//! Times are ticks of one counter, taken before and after each call. They say only what certainly came before what.

use ledgerstone::Isolation;

/// A key of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The table's number.
    pub table: u32,
    /// The key's number.
    pub key: u32,
}

/// What was seen of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was not there.
    Absent,
    /// It was there with some value.
    Present,
    /// It had this value.
    Value(u64),
}

/// What was done to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Read.
    Read(Seen),
    /// Given a value, or removed.
    Write(Option<u64>),
    /// Written so, and taken back by going to a savepoint before: no version, but readers of uncommitted may see it.
    Undone(Option<u64>),
}

/// One access of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Of what.
    pub item: Item,
    /// What.
    pub act: Act,
    /// Tick before the call.
    pub began: u64,
    /// Tick after it.
    pub ended: u64,
}

/// A transaction that has ended.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// For reports: client and number.
    pub name: String,
    /// What it was promised.
    pub isolation: Isolation,
    /// The LSN of its snapshot, if it had one.
    pub snapshot: Option<u64>,
    /// Tick before it began.
    pub began: u64,
    /// Tick after it began.
    pub begun: u64,
    /// Tick before the call that ended it, by a commit, an abort or an error: until then it has its locks.
    pub ending: u64,
    /// Its accesses in order.
    pub accesses: Vec<Access>,
    /// If it committed.
    pub commit: Option<Commit>,
}

/// A commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Tick before the call: its locks were held until then.
    pub asked: u64,
    /// Tick after the call.
    pub answered: u64,
    /// Its place in the order of commits; 0 if it wrote nothing.
    pub lsn: u64,
}

/// Everything that happened.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Values of items before the first transaction; an item that is not here was absent.
    pub initial: Vec<(Item, u64)>,
    /// All transactions that ended, in no order.
    pub transactions: Vec<Transaction>,
}
