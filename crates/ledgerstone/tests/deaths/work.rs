//! What threads do.

use std::sync::Arc;

use ledgerstone::{BackupOptions, Durability, Environment, Error, IndexDef, IndexKeys, Ticket, Transaction};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync;

use crate::model::{ALL_COUNT, Change, SHARED, global_id, number, own, own_count};
use crate::world::Process;

/// What the victim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Work {
    /// Inserts into a table with two indexes.
    #[default]
    Insert,
    /// Changes what indexes have.
    Update,
    CreateTable,
    DropTable,
    /// Both in one transaction, of one name.
    DropAndCreate,
    CreateIndex,
    DropIndex,
    RenameTable,
    DeleteRange,
    LargeValue,
    /// A value that makes the file longer.
    Growth,
    Savepoint,
    Prepare,
    /// Prepared, and aborted then.
    AbortPrepared,
    Read,
    Checkpoint,
    Compact,
    /// Compaction of a file of which most is free, after which it grows again.
    Cut,
    Reclaim,
    /// The process closes its environment, which others have open.
    Close,
    /// All commits become durable, by a call of the environment's.
    Sync,
    /// The same, by a ticket.
    Ticket,
    Verify,
    Stat,
    Backup,
    /// A feed of changes is begun, read and acknowledged.
    Feed,
    /// All that is there is looked at: names of tables, pages.
    Look,
}

/// Calls of an environment that change nothing that others see.
pub const CALLS: [Work; 7] = [Work::Sync, Work::Ticket, Work::Verify, Work::Stat, Work::Backup, Work::Feed, Work::Look];

pub const ALL: [Work; 20] = [
    Work::Insert,
    Work::Update,
    Work::CreateTable,
    Work::DropTable,
    Work::DropAndCreate,
    Work::CreateIndex,
    Work::DropIndex,
    Work::RenameTable,
    Work::DeleteRange,
    Work::LargeValue,
    Work::Growth,
    Work::Savepoint,
    Work::Prepare,
    Work::AbortPrepared,
    Work::Read,
    Work::Checkpoint,
    Work::Compact,
    Work::Cut,
    Work::Reclaim,
    Work::Close,
];

enum End {
    Commit,
    /// And then commit, or abort.
    Prepare(bool),
}

/// One transaction, whose changes are remembered.
struct Writer<'t> {
    txn: &'t Transaction,
    changes: Vec<Change>,
}

impl Writer<'_> {
    fn create(&mut self, table: &str) -> Result<(), Error> {
        self.txn.create_table(table)?;
        self.changes.push(Change::Create(table.to_string()));
        Ok(())
    }

    fn index(&self, table: &str, name: &str, field: u32) -> Result<(), Error> {
        let keys = IndexKeys::Field { number: field, separator: b'\t' };
        self.txn.create_index(table, &IndexDef::new(name, keys))
    }

    fn drop(&mut self, table: &str) -> Result<(), Error> {
        self.txn.drop_table(table)?;
        self.changes.push(Change::Drop(table.to_string()));
        Ok(())
    }

    fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.txn.bytes(table)?.put(key, value)?;
        self.changes.push(Change::Put(table.to_string(), key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, table: &str, key: &[u8]) -> Result<(), Error> {
        self.txn.bytes(table)?.delete(key)?;
        self.changes.push(Change::Delete(table.to_string(), key.to_vec()));
        Ok(())
    }

    /// Adds one to a number.
    fn raise(&mut self, key: &[u8]) -> Result<(), Error> {
        let before = self.txn.bytes(SHARED)?.get_for_update(key)?;
        let next = number(before.as_deref()) + 1;
        self.put(SHARED, key, &next.to_le_bytes())
    }
}

pub fn key(no: u32) -> Vec<u8> {
    format!("{no:04}").into_bytes()
}

/// A record of which indexes have two parts, and that has so many bytes at least.
fn record(city: u32, name: u32, bytes: usize) -> Vec<u8> {
    let mut record = format!("city {city}\tname {name}\tthird {}\t", city + name).into_bytes();
    record.resize(record.len().max(bytes), b'.');
    record
}

impl Process {
    /// Runs one transaction to its end, as often as it takes. `work` says how it ends.
    fn transact(&self, thread: u32, mut work: impl FnMut(&mut Writer<'_>) -> Result<End, Error>) {
        loop {
            let txn = self.env.begin().unwrap();
            let mut writer = Writer { txn: &txn, changes: Vec::new() };
            let done = work(&mut writer).and_then(|end| {
                writer.raise(&own_count(thread))?;
                sync::yield_point("before the count of all");
                writer.raise(ALL_COUNT)?;
                Ok(end)
            });
            let changes = writer.changes;
            match done {
                Ok(End::Commit) => {
                    self.model.lock().may_commit(thread, changes);
                    txn.commit_with(Durability::Sync).unwrap();
                    return self.model.lock().committed(thread);
                }
                Ok(End::Prepare(commits)) => return self.prepare(thread, txn, changes, commits),
                Err(error) if error.is_retryable() => drop(txn),
                Err(error) => panic!("thread {thread}: {error}"),
            }
        }
    }

    fn prepare(&self, thread: u32, txn: Transaction, changes: Vec<Change>, commits: bool) {
        self.model.lock().may_prepare(thread, changes, commits);
        let prepared = txn.prepare(&global_id(thread)).unwrap();
        sync::yield_point("prepared");
        if commits {
            prepared.commit().unwrap();
            self.model.lock().committed(thread);
        } else {
            prepared.abort().unwrap();
            self.model.lock().rolled_back(thread);
        }
    }

    /// What there is before all else, for all threads.
    pub fn prepare_for_all(&self, threads: impl Iterator<Item = u32>) {
        let txn = self.env.begin().unwrap();
        let mut writer = Writer { txn: &txn, changes: Vec::new() };
        writer.create(SHARED).unwrap();
        for thread in threads {
            let table = own(thread);
            writer.create(&table).unwrap();
            writer.index(&table, "by_city", 1).unwrap();
            writer.index(&table, "by_name", 2).unwrap();
        }
        self.model.lock().may_commit(0, writer.changes);
        txn.commit().unwrap();
        self.model.lock().committed(0);
    }

    /// What a thread needs for its work.
    pub fn prepare_for(&self, thread: u32, work: Work) {
        let table = own(thread);
        let count = match work {
            Work::DeleteRange | Work::Compact | Work::Cut | Work::Reclaim | Work::CreateIndex => 50,
            _ => 4,
        };
        self.transact(thread, |writer| {
            (0..count).try_for_each(|no| writer.put(&table, &key(no), &record(no % 7, no, 200)))?;
            if matches!(work, Work::DropTable | Work::DropAndCreate | Work::RenameTable) {
                writer.create(&old(thread))?;
                writer.index(&old(thread), "by_city", 1)?;
                (0..20).try_for_each(|no| writer.put(&old(thread), &key(no), &record(no % 7, no, 200)))?;
                writer.put(&old(thread), &key(90), &record(1, 90, 20_000))?;
            }
            Ok(End::Commit)
        });
        if work == Work::Growth {
            self.fill(thread);
        }
        if matches!(work, Work::Reclaim | Work::Compact | Work::Cut) {
            let bytes = if work == Work::Cut { GROWTH_BYTES } else { 30_000 };
            self.grow(thread, 90, bytes);
            self.transact(thread, |writer| {
                writer.delete(&table, &key(90))?;
                (0..40).try_for_each(|no| writer.delete(&table, &key(no)))?;
                Ok(End::Commit)
            });
        }
    }

    /// Leaves only a few free pages in the file, so that it grows soon: it has grown just now, and what came with that
    /// is used up but for these.
    fn fill(&self, thread: u32) {
        let page_count = || self.env.stat().unwrap().page_count;
        let before = page_count();
        for no in 100.. {
            self.grow(thread, no, 4 * 4000);
            if page_count() > before {
                let free = page_count() - before - 4;
                return self.grow(thread, 99, (free - FREE_PAGES) as usize * 4000);
            }
        }
    }

    /// Writes a value of so many bytes.
    pub fn grow(&self, thread: u32, no: u32, bytes: usize) {
        self.transact(thread, |writer| {
            writer.put(&own(thread), &key(no), &record(5, 5, bytes))?;
            Ok(End::Commit)
        });
    }

    /// A worker's life.
    pub fn live(&self, thread: u32, rounds: u32) {
        let table = own(thread);
        for round in 0..rounds {
            self.transact(thread, |writer| {
                writer.put(&table, &key(round % 3), &record(round, round % 2, 120))?;
                if round % 2 == 1 {
                    writer.delete(&table, &key((round + 1) % 3))?;
                }
                Ok(End::Commit)
            });
        }
    }

    /// A reader's life: each snapshot sees whole transactions.
    pub fn read(&self, rounds: u32) {
        for _ in 0..rounds {
            match sums(&self.env) {
                Ok((own, all)) => assert_eq!(own, all, "a snapshot sees a part of a transaction"),
                Err(Error::SnapshotTooOld { .. }) => {}
                Err(error) => panic!("a reader: {error}"),
            }
        }
    }

    pub fn work(&self, thread: u32, work: Work) {
        let table = own(thread);
        match work {
            Work::Insert => self.transact(thread, |writer| {
                writer.put(&table, &key(11), &record(1, 11, 100))?;
                writer.put(&table, &key(12), &record(2, 12, 150))?;
                Ok(End::Commit)
            }),
            Work::Update => self.transact(thread, |writer| {
                (0..3).try_for_each(|no| writer.put(&table, &key(no), &record(no + 20, no + 30, 220)))?;
                writer.delete(&table, &key(3))?;
                Ok(End::Commit)
            }),
            Work::CreateTable => self.transact(thread, |writer| {
                let table = format!("new/{thread}");
                writer.create(&table)?;
                writer.index(&table, "by_city", 1)?;
                (0..3).try_for_each(|no| writer.put(&table, &key(no), &record(no, no, 100)))?;
                Ok(End::Commit)
            }),
            Work::DropTable => self.transact(thread, |writer| {
                writer.drop(&old(thread))?;
                Ok(End::Commit)
            }),
            Work::DropAndCreate => self.transact(thread, |writer| {
                writer.drop(&old(thread))?;
                writer.create(&old(thread))?;
                writer.put(&old(thread), &key(1), &record(3, 3, 100))?;
                Ok(End::Commit)
            }),
            Work::CreateIndex => self.transact(thread, |writer| {
                writer.index(&table, "by_third", 3)?;
                Ok(End::Commit)
            }),
            Work::DropIndex => self.transact(thread, |writer| {
                writer.txn.drop_index(&table, "by_city")?;
                Ok(End::Commit)
            }),
            Work::RenameTable => self.transact(thread, |writer| {
                let (from, to) = (old(thread), format!("renamed/{thread}"));
                writer.txn.rename_table(&from, &to)?;
                writer.changes.push(Change::Rename(from, to.clone()));
                writer.put(&to, &key(1), &record(3, 3, 100))?;
                Ok(End::Commit)
            }),
            Work::DeleteRange => self.transact(thread, |writer| {
                writer.txn.bytes(&table)?.delete_range(key(3)..key(47))?;
                writer.changes.extend((3..47).map(|no| Change::Delete(table.clone(), key(no))));
                Ok(End::Commit)
            }),
            Work::LargeValue => self.transact(thread, |writer| {
                writer.put(&table, &key(2), &record(5, 5, 20_000))?;
                writer.put(&table, &key(3), &record(6, 6, 9_000))?;
                Ok(End::Commit)
            }),
            Work::Growth => self.grow(thread, 2, GROWTH_BYTES),
            Work::Savepoint => self.transact(thread, |writer| {
                writer.put(&table, &key(1), &record(1, 1, 100))?;
                let (before, count) = (writer.txn.savepoint()?, writer.changes.len());
                writer.put(&table, &key(1), &record(2, 2, 300))?;
                writer.put(&table, &key(20), &record(3, 3, 300))?;
                writer.create(&format!("gone/{thread}"))?;
                writer.txn.rollback_to(before)?;
                writer.changes.truncate(count);
                writer.put(&table, &key(21), &record(4, 4, 50))?;
                Ok(End::Commit)
            }),
            Work::Prepare | Work::AbortPrepared => self.transact(thread, |writer| {
                writer.put(&table, &key(1), &record(1, 1, 100))?;
                writer.put(&table, &key(9), &record(2, 2, 150))?;
                Ok(End::Prepare(work == Work::Prepare))
            }),
            Work::Read => self.read(2),
            Work::Checkpoint => drop(self.env.checkpoint().unwrap()),
            Work::Compact => drop(self.env.compact().unwrap()),
            Work::Cut => {
                drop(self.env.compact().unwrap());
                self.work(thread, Work::Growth);
            }
            Work::Reclaim => self.env.reclaim().unwrap(),
            Work::Close => self.env.clone().close().unwrap(),
            Work::Sync => {
                drop(self.append(&table));
                self.env.sync().unwrap();
            }
            Work::Ticket => self.append(&table).wait().unwrap(),
            Work::Verify => match self.env.verify() {
                Ok(report) => assert!(report.problems.is_empty(), "{:?}", report.problems),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            },
            Work::Stat => assert!(!self.env.stat().unwrap().tables.is_empty()),
            Work::Backup => {
                let to = Arc::new(SimDisk::new());
                drop(self.env.backup_on(to, BackupOptions::default(), |_| ()).unwrap());
            }
            Work::Feed => {
                let mut feed = self.env.named_changes("feed").unwrap();
                let _ = self.append(&table).wait();
                while feed.next().unwrap().is_some() {}
                feed.acknowledge(feed.position()).unwrap();
                drop(feed);
                self.env.forget_changes("feed").unwrap();
            }
            Work::Look => {
                self.env.table_names().unwrap();
                assert!(self.env.damaged_pages().unwrap().is_empty());
            }
        }
    }

    /// Commits what changes nothing, and does not wait for it.
    fn append(&self, table: &str) -> Ticket {
        loop {
            let txn = self.env.begin().unwrap();
            let changed = txn.bytes(table).and_then(|table| {
                table.put(key(77), record(1, 1, 50))?;
                table.delete(key(77))
            });
            match changed {
                Ok(_) => return txn.commit_with(Durability::Volatile).unwrap().ticket,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }
}

/// About so many pages are left free in a file that is to grow.
const FREE_PAGES: u64 = 10;

/// More than such a file has room for.
const GROWTH_BYTES: usize = 80_000;

/// More than any file here has room for.
pub const LARGE_BYTES: usize = 600_000;

/// A table that is dropped.
fn old(thread: u32) -> String {
    format!("old/{thread}")
}

/// The counts of all threads together, and the count of all, at one snapshot.
fn sums(env: &Environment) -> Result<(u64, u64), Error> {
    let txn = env.snapshot()?;
    let (mut own, mut all) = (0, 0);
    for record in txn.bytes(SHARED)?.range(..)? {
        let (key, value) = record?;
        *if key == ALL_COUNT { &mut all } else { &mut own } += number(Some(&value));
    }
    txn.commit()?;
    Ok((own, all))
}
