//! What a round is going to do, drawn from its seed before anything runs.
//!
//! A round is a list of *lives*: times in which one process has the environment. Each life opens it, and may end
//! during that. It looks at everything that is there, and runs clients. It ends at a chosen change of the disk, or is
//! closed in order. It ends by a power failure or because the process is killed ([`Ending`]). A life without clients is
//! a recovery that may be cut short. The last one only looks.
//!
//! A plan is plain data. Whatever shrinks a failure takes pieces of it away and runs the rest ([`super::shrink`]).

use ledgerstone::{Conflict, Isolation, Locking, Victim};

mod draw;

/// How many names tables can have: `t0`, `t1`...
pub const TABLE_COUNT: u64 = 4;
/// The names that structures of users can have, see [`super::tally`].
pub const LISTS: [&str; 5] = ["c0", "h0", "f0", "v0", "c1"];
/// Counters that a list can have: more than one page does.
pub const COUNTER_COUNT: u64 = 600;
/// The table that every writing transaction leaves its mark in.
pub const JOURNAL: &str = "journal";

/// One round.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// What it is mostly about.
    pub flavour: Flavour,
    /// What the first life finds.
    pub start: Start,
    /// Settings of the environment.
    pub settings: Settings,
    /// From power on to power off.
    pub lives: Vec<Life>,
    /// The environment lives in a raw store.
    pub is_raw: bool,
}

/// What a round puts its weight on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// A bit of everything.
    Mixed,
    /// Few transactions, and the power fails soon.
    Short,
    /// Many small records, so that pages split and run empty.
    Splits,
    /// Values larger than a page.
    Large,
    /// Tables come and go.
    Catalog,
    /// Many clients on few keys: waits, deadlocks, early lock release.
    Crowded,
    /// Log switches segments, checkpoints follow each other.
    Log,
    /// Writers meet at snapshots, and readers stay while records come and go.
    Snapshots,
    /// Large transactions are open at the crash, and one restart after the other ends while it takes them back.
    Losers,
}

/// The flavours, with how often each is drawn.
const FLAVOURS: [(Flavour, u64); 9] = [
    (Flavour::Mixed, 6),
    (Flavour::Short, 4),
    (Flavour::Splits, 4),
    (Flavour::Large, 2),
    (Flavour::Catalog, 3),
    (Flavour::Crowded, 3),
    (Flavour::Log, 2),
    (Flavour::Snapshots, 3),
    (Flavour::Losers, 3),
];

/// What the first life finds on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// Nothing: it creates the environment, and may crash while it does.
    Nothing,
    /// An environment with empty tables.
    Empty,
    /// An environment with records in its tables.
    Filled,
}

/// Settings of the environment; small, so that much happens in little time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Pages in the cache.
    pub cache_frames: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes of the log buffer.
    pub buffer_bytes: u64,
    /// Bytes of log between checkpoints.
    pub checkpoint_log_bytes: u64,
    /// Lock timeout.
    pub lock_timeout_ms: u64,
    /// Key locks before escalation.
    pub escalate_after: u32,
    /// Memory of the version store: small ones, and one that is never full.
    pub version_store_bytes: u64,
    /// LRU instead of clock.
    pub is_lru: bool,
    /// Tables have an index.
    pub is_indexed: bool,
    /// What is locked, and what becomes of a lock that somebody holds.
    pub locking: (Locking, Conflict),
    /// Who gives way in a deadlock.
    pub victim: Victim,
    /// How often a detector looks for deadlocks; 0: a waiter looks.
    pub deadlock_period_ms: u64,
    /// The thresholds of group commit: threads, percent of them, bytes, microseconds.
    pub commit: (u32, u32, u64, u64),
    /// Old and new values go to the log whole.
    pub logs_whole: bool,
    /// The change feed is read.
    pub is_followed: bool,
    /// Log of losers that is undone before an opening returns.
    pub restart_undo_bytes: u64,
}

/// How a life ends, early or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The power fails. Of what is not synced any part is lost.
    PowerLoss,
    /// The process is killed, or ends: what is not synced stays, and is still not durable. Of the write that it is
    /// killed in so many bytes are done.
    Kill {
        /// See [`ledgerstone_disk::SimDisk::kill_at`].
        bytes: u64,
    },
}

impl Ending {
    /// Whether the machine goes on.
    pub fn is_kill(self) -> bool {
        self != Ending::PowerLoss
    }
}

/// One process, from its start to its end.
#[derive(Debug, Clone)]
pub struct Life {
    /// What the scheduler chooses threads by.
    pub schedule_seed: u64,
    /// The life ends inside the n-th change of the disk that opening makes, if it makes that many.
    pub crash_in_open: Option<u64>,
    /// What each client does.
    pub clients: Vec<Vec<Job>>,
    /// The life ends inside the n-th change of the disk after opening, if there are that many.
    pub crash_after: Option<u64>,
    /// If the life has not ended by itself: close in order, or end it as it is.
    pub closes: bool,
    /// By what it ends. After an orderly close too: then nothing should depend on it.
    pub ending: Ending,
    /// The disk refuses to grow by more than this.
    pub space_bytes: Option<u64>,
    /// Structure is verified after opening.
    pub verifies: bool,
    /// What of the unsynced survives.
    pub survival_seed: u64,
}

/// What a client does next.
#[derive(Debug, Clone)]
pub enum Job {
    /// A transaction.
    Transaction(TransactionPlan),
    /// A checkpoint on request.
    Checkpoint,
    /// The data file is compacted.
    Compact,
    /// Waits for its oldest ticket.
    WaitForTicket,
    /// Makes all that it has committed durable, by an empty commit or by a call.
    Sync {
        /// By a commit.
        commits: bool,
    },
    /// Gives others time, in microseconds.
    Sleep(u64),
    /// Decides its oldest transaction that it left in doubt.
    Decide,
    /// Dumps all tables, as hexadecimal digits or printed.
    Dump {
        /// Printed.
        prints: bool,
    },
    /// Reads the change feed.
    Follow {
        /// At most so many commits.
        count: usize,
        /// Acknowledges all but so many of those that were read.
        acknowledges: Option<usize>,
    },
}

/// When a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The engine's own names.
pub enum Durability {
    Sync,
    Pipelined,
    Async,
    Volatile,
}

/// How a transaction ends if nothing else ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Commit.
    Commit,
    /// Commit, and wait for the ticket at once.
    CommitAndWait,
    /// Abort.
    Abort,
    /// The handle is dropped.
    Drop,
    /// Prepared, and then decided.
    Prepare {
        /// The decision, by whichever call it is carried out, and how often.
        commits: bool,
        /// The handle is dropped first: decided by a later job, or by a later life.
        is_left: bool,
    },
}

/// A transaction.
#[derive(Debug, Clone)]
pub struct TransactionPlan {
    /// When its commit returns.
    pub durability: Durability,
    /// How it ends.
    pub end: End,
    /// How often it is run again after a conflict.
    pub retries: u32,
    /// What it sees of others; one that reads a snapshot and writes nothing says so when it begins.
    pub isolation: Isolation,
    /// Where among its steps the journal is written; none: it writes nothing.
    pub mark_at: Option<usize>,
    /// What it does.
    pub steps: Vec<Step>,
}

/// A key: a table's number and the key's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// `t0`, `t1`...
    pub table: u64,
    /// See [`key_bytes`].
    pub number: u64,
}

/// One step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reads.
    Get(Key),
    /// Reads, and locks for update.
    GetForUpdate(Key),
    /// Writes a value of this length.
    Put(Key, usize),
    /// Writes a value of this length if there is none.
    Insert(Key, usize),
    /// Removes.
    Delete(Key),
    /// Changes bytes at a place, and the length by so much; `None` leaves it as it is.
    Modify(Key, Option<(usize, i32)>),
    /// Reads, and in a call of its own writes what it makes of that, as `Modify` would.
    Rewrite(Key, (usize, i32)),
    /// Reads from a key on to another, at most so many.
    Scan {
        /// From here.
        from: Key,
        /// To the key of this number, exclusive.
        to: u64,
        /// From the end.
        backward: bool,
        /// At most.
        limit: usize,
    },
    /// Reads the first or the last record of a table, and deletes it.
    Pop {
        /// Its number.
        table: u64,
        /// The last one.
        backward: bool,
    },
    /// Finds records by the first bytes of their values, with the index.
    Lookup {
        /// Its number.
        table: u64,
        /// From this byte on.
        from: u8,
        /// To this one, inclusive.
        to: u8,
        /// From the end.
        backward: bool,
    },
    /// Drops the index of a table and makes it anew.
    Reindex(u64),
    /// Writes values of one length to a run of keys.
    Fill(Key, u64, usize),
    /// Deletes a run of keys.
    Clear(Key, u64),
    /// Writes a part of a value at a place.
    WritePart(Key, usize, usize),
    /// Gives a value another length.
    SetLen(Key, usize),
    /// Reads a part of a value.
    ReadPart(Key, usize, usize),
    /// Deletes the keys from one on to another, in one call.
    ClearRange(Key, u64),
    /// Loads a run of keys, in order, with values of one length.
    Load(Key, u64, usize),
    /// Gives a table another's name.
    Rename(u64, u64),
    /// Creates a table.
    Create(u64),
    /// Drops a table.
    Drop(u64),
    /// Names of all tables.
    List,
    /// Creates a counter list.
    CreateList(u64),
    /// Drops a counter list.
    DropList(u64),
    /// Adds to a run of counters of a list.
    Count {
        /// The list.
        list: u64,
        /// The first counter.
        from: u64,
        /// How many.
        count: u64,
        /// What is added.
        delta: i64,
    },
    /// Reads a counter of a list.
    Total(u64, u64),
    /// Reads all counters of a list.
    Tally(u64),
    /// Lets time pass, in microseconds, with all its locks held.
    Pause(u64),
    /// Sets a savepoint.
    Savepoint,
    /// Goes back to one of those that stand and may be used here, counted from the oldest, modulo how many there are.
    RollbackTo(usize),
    /// Releases one of them.
    Release(usize),
    /// Runs as many of the next steps as a nested transaction.
    Nest {
        /// How many, at most.
        steps: usize,
        /// How it ends.
        commits: bool,
    },
}

/// What can be set from outside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// This many clients, not a drawn number.
    pub client_count: Option<u64>,
    /// Without runs that are out of space.
    pub no_space_trouble: bool,
    /// Without steps that drop a table.
    pub no_drops: bool,
    /// Leaves are locked, not keys.
    pub locks_pages: bool,
    /// In a raw store.
    pub is_raw: bool,
}

/// The bytes of a key: short ones, long ones, and such as differ late.
pub fn key_bytes(key: Key) -> Vec<u8> {
    let Key { table, number } = key;
    match table {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("a rather long prefix that all keys have in common/{number:05}").into_bytes(),
        _ if number % 7 == 3 => format!("k{number:05}{}", "-long".repeat(20 + (number % 30) as usize)).into_bytes(),
        _ => format!("k{number:05}").into_bytes(),
    }
}

/// The name of a structure of a user's.
pub fn list_name(list: u64) -> String {
    LISTS[list as usize % LISTS.len()].to_owned()
}

/// Whether the index of a table of this name is made a unique one.
pub fn is_unique(table: &str) -> bool {
    table == "t3"
}

/// The name of a table.
pub fn table_name(table: u64) -> String {
    format!("t{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        for seed in 0..200 {
            let plan = Plan::new(seed, Wishes::default());
            assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::new(seed, Wishes::default())));
            let last = plan.lives.last().unwrap();
            assert!(last.clients.is_empty() && last.crash_in_open.is_none(), "the last life looks at what is left");
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        for table in 0..TABLE_COUNT {
            let keys: Vec<Vec<u8>> = (0..400).map(|number| key_bytes(Key { table, number })).collect();
            assert!(keys.is_sorted() && keys.iter().all(|key| key.len() <= 256));
        }
    }
}
