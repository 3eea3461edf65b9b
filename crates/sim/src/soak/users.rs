//! Who uses the environment, and what each of them checks.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone::{
    ArchiveDirectory, Backup, BackupOptions, BytesTable, ChangeFeed, Durability, Environment, Error, IndexDef,
    IndexKeys, Isolation, Lsn, Transaction, TransactionOptions,
};

use super::watch::Timing;
use super::{Stage, until};
use crate::counters::Counters;
use ledgerstone_region::Random;

pub(crate) const BANK: &str = "bank";
pub(crate) const ACCOUNT_COUNT: u64 = 200;
pub(crate) const MONEY: u64 = 1_000;
const RECORDS: &str = "records";
const RECORD_COUNT: u64 = 1_500;
const INDEX: &str = "by class";
const FILMS: &str = "films";
const FILM_COUNT: u64 = 6;
const CROWD: &str = "crowd";
/// Many more threads than processors: some have always lost theirs in the middle of something.
const CROWD_COUNT: u64 = 32;
const FEED: &str = "soak";
/// Bytes of a block of a film: written at once, all of one stamp.
const BLOCK_BYTES: usize = 8 << 10;
const BLOCK_COUNT_MAX: u64 = 128;

/// One thing that a user does.
pub(crate) type Act = fn(&mut User) -> Result<(), Error>;

/// Each is a thread.
pub(crate) const KINDS: [(&str, Act); 12] = [
    ("transfers 1", User::transfer),
    ("transfers 2", User::transfer),
    ("records 1", User::change_records),
    ("records 2", User::change_records),
    ("auditor", User::audit),
    ("old snapshot", User::hold_snapshot),
    ("tables", User::change_tables),
    ("films", User::change_film),
    ("backups", User::back_up),
    ("feed", User::follow),
    ("keeper", User::keep_house),
    ("crowd", User::come_in_a_crowd),
];

/// A thread's state.
pub(crate) struct User {
    pub stage: Arc<Stage>,
    no: usize,
    name: &'static str,
    pub random: Random,
    pub counters: Counters,
    feed: Option<ChangeFeed>,
}

pub(crate) fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// The number that a value begins with.
pub(crate) fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A record's value: key, stamp, and bytes that follow from both.
fn value_of(n: u64, stamp: u64, len: usize) -> Vec<u8> {
    let mut value = [n.to_le_bytes(), stamp.to_le_bytes()].concat();
    let from = value.len();
    value.resize(len.max(from), 0);
    for (at, byte) in value[from..].iter_mut().enumerate() {
        *byte = (at as u64 ^ stamp) as u8;
    }
    value
}

fn is_value_of(n: u64, value: &[u8]) -> bool {
    value.len() >= 16 && number(value) == n && value == value_of(n, number(&value[8..]), value.len())
}

pub(crate) fn set_up(env: &Environment) -> Result<(), Error> {
    env.transact(|txn| {
        let bank = txn.bytes_or_create(BANK)?;
        for account in 0..ACCOUNT_COUNT {
            bank.put(&key(account), &MONEY.to_le_bytes())?;
        }
        txn.create_table(RECORDS)?;
        txn.create_table(FILMS)?;
        txn.create_table(CROWD)?;
        txn.create_index(RECORDS, &IndexDef::new(INDEX, IndexKeys::Bytes { from: 8, to: Some(10) }))
    })
}

/// What users of an environment with small limits have to live with.
fn is_expected(error: &Error) -> bool {
    error.is_retryable()
        || matches!(error, Error::SnapshotTooOld { .. } | Error::LockTableFull { .. } | Error::NoSuchIndex { .. })
}

impl User {
    pub(crate) fn new(stage: Arc<Stage>, no: usize, name: &'static str, random: Random) -> User {
        User { stage, no, name, random, counters: Counters::default(), feed: None }
    }

    /// Acts again and again until the time is over; gives what was counted.
    pub(crate) fn go_on(&mut self, act: Act) -> Counters {
        while until(&self.stage) == ControlFlow::Continue(()) {
            self.stage.watch.call_begins(self.no);
            let done = act(self);
            self.stage.watch.call_ends(self.no);
            match done {
                Ok(()) => self.counters.add("acts", 1),
                Err(error) if is_expected(&error) => self.counters.add("refused", 1),
                Err(Error::Cancelled) => {}
                Err(error) => {
                    self.problem(&format!("{error} ({error:?})"));
                    break;
                }
            }
        }
        self.feed = None;
        std::mem::take(&mut self.counters)
    }

    pub(crate) fn problem(&self, what: &str) {
        self.stage.watch.problem(format!("{}: {what}", self.name));
    }

    pub(crate) fn pause(&mut self, ms_max: u64) {
        std::thread::sleep(Duration::from_millis(self.random.below(ms_max)));
    }

    /// Any level and durability.
    pub(crate) fn options(&mut self) -> TransactionOptions {
        let durabilities = [Durability::Sync, Durability::Pipelined, Durability::Async, Durability::Volatile];
        TransactionOptions {
            isolation: Some(self.random.pick(&Isolation::ALL)),
            durability: Some(self.random.pick(&durabilities)),
            ..TransactionOptions::default()
        }
    }

    /// Money goes from one account to another.
    pub(crate) fn transfer(&mut self) -> Result<(), Error> {
        let (from, to) = (self.random.below(ACCOUNT_COUNT), self.random.below(ACCOUNT_COUNT));
        let (options, gives_up) = (self.options(), self.random.percent(5));
        if self.random.percent(6) {
            self.stage.watch.measure_a_yard();
        }
        let timing = Timing::begin();
        let done = self.stage.env.transact_with(options, |txn| {
            let bank = txn.bytes(BANK)?;
            bank.modify(&key(from), |money| Some(number(money).wrapping_sub(1).to_le_bytes().to_vec()))?;
            bank.modify(&key(to), |money| Some(number(money).wrapping_add(1).to_le_bytes().to_vec()))?;
            if gives_up { Err(Error::Cancelled) } else { Ok(()) }
        });
        self.stage.watch.note_short(timing);
        self.counters.add("transfers", 1);
        done
    }

    /// Records of every size come, change and go.
    pub(crate) fn change_records(&mut self) -> Result<(), Error> {
        let options = self.options();
        let mut random = self.random.fork();
        let stage = Arc::clone(&self.stage);
        self.counters.add("record_transactions", 1);
        stage.env.transact_with(options, |txn| {
            let records = txn.bytes(RECORDS)?;
            for _ in 0..random.between(1, 12) {
                let n = random.below(RECORD_COUNT);
                let longest = random.pick(&[60, 60, 60, 900, 2_000, 4_000, 12_000, 60_000]);
                let len = random.between(16, longest) as usize;
                match random.below(10) {
                    0..5 => records.put(&key(n), &value_of(n, random.number(), len))?,
                    5 => drop(records.delete(&key(n))?),
                    6 => {
                        // Taken back by itself, or not.
                        let gives_up = random.percent(50);
                        let nested = txn.nested(|_| {
                            records.put(&key(n), &value_of(n, random.number(), len))?;
                            if gives_up { Err(Error::Cancelled) } else { Ok(()) }
                        });
                        match nested {
                            Ok(()) | Err(Error::Cancelled) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    7 if random.percent(10) => {
                        let end = key(n + random.below(150));
                        records.delete_range(&key(n)[..]..&end[..])?;
                    }
                    _ => {
                        if let Some(value) = records.get(&key(n))?
                            && !is_value_of(n, &value)
                        {
                            return Err(Error::user(format!(
                                "record {n} has another's value of {} bytes",
                                value.len()
                            )));
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// At a snapshot the bank has its money, and the index has the records.
    pub(crate) fn audit(&mut self) -> Result<(), Error> {
        let snapshot = self.stage.env.snapshot()?;
        self.count_money(&snapshot)?;
        let records = snapshot.bytes(RECORDS)?;
        let mut count = 0u64;
        for record in records.range(..)? {
            let (key, value) = record?;
            let n = u64::from_be_bytes(key.as_slice().try_into().unwrap_or_default());
            if !is_value_of(n, &value) {
                self.problem(&format!("record {n} has another's value of {} bytes", value.len()));
            }
            count += 1;
        }
        let mut indexed = 0u64;
        for record in records.index(INDEX)?.range(..)?.records() {
            record?;
            indexed += 1;
        }
        if indexed != count {
            self.problem(&format!("{count} records, {indexed} of them by the index"));
        }
        self.counters.add("audits", 1);
        snapshot.commit()?;
        self.pause(20);
        Ok(())
    }

    fn count_money(&self, txn: &Transaction) -> Result<(), Error> {
        let mut total = 0u64;
        txn.bytes(BANK)?.range(..)?.for_each_ref(|_, money| {
            total = total.wrapping_add(number(money));
            true
        })?;
        if total != ACCOUNT_COUNT * MONEY {
            self.problem(&format!("the bank has {total}"));
        }
        Ok(())
    }

    /// A snapshot is kept for a while, and sees the same in the end.
    pub(crate) fn hold_snapshot(&mut self) -> Result<(), Error> {
        let snapshot = self.stage.env.snapshot()?;
        let sum = |table: &BytesTable| {
            let (mut count, mut sum) = (0u64, 0u64);
            table.range(..)?.for_each_ref(|key, value| {
                (count, sum) = (count + 1, sum.wrapping_mul(31).wrapping_add(number(&value[8..]) ^ number(key)));
                true
            })?;
            Ok::<_, Error>((count, sum))
        };
        let records = snapshot.bytes(RECORDS)?;
        let before = sum(&records)?;
        self.pause(400);
        let after = sum(&records)?;
        if before != after {
            self.problem(&format!("a snapshot saw {before:?}, and later {after:?}"));
        }
        self.count_money(&snapshot)?;
        self.counters.add("snapshots_held", 1);
        snapshot.commit().map(drop)
    }

    /// Tables come and go, and change their names; the index is made anew.
    pub(crate) fn change_tables(&mut self) -> Result<(), Error> {
        let mut random = self.random.fork();
        let name = |random: &mut Random| format!("t{}", random.below(8));
        self.counters.add("table_changes", 1);
        let stage = Arc::clone(&self.stage);
        let done = stage.env.transact(|txn| match random.below(8) {
            0..3 => {
                let mut table = txn.create_table(&name(&mut random))?;
                let count = random.between(1, 3_000);
                table.load_sorted((0..count).map(|n| (key(n), value_of(n, count, 40)))).map(drop)
            }
            3 | 4 => txn.drop_table(&name(&mut random)),
            5 => txn.rename_table(&name(&mut random), &name(&mut random)),
            6 => txn.bytes(&name(&mut random))?.delete_range(..).map(drop),
            _ if random.percent(20) => {
                txn.drop_index(RECORDS, INDEX)?;
                txn.create_index(RECORDS, &IndexDef::new(INDEX, IndexKeys::Bytes { from: 8, to: Some(10) }))
            }
            _ => Ok(()),
        });
        self.pause(100);
        match done {
            Err(Error::NoSuchTable(_) | Error::TableExists(_)) => Ok(()),
            other => other,
        }
    }

    /// Many threads at once fill an empty table, so that all of them split the same few nodes.
    fn come_in_a_crowd(&mut self) -> Result<(), Error> {
        self.pause(2_000);
        self.counters.add("crowds", 1);
        crate::planted::take_rare_branches(self.random.number());
        let env = &self.stage.env;
        let put = |no: u64| {
            env.transact(|txn| {
                let crowd = txn.bytes(CROWD)?;
                (0..50).try_for_each(|at| crowd.put(&[key(no), key(at)].concat(), &value_of(no, at, 100)))
            })
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CROWD_COUNT).map(|no| scope.spawn(move || put(no))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(Error::Panicked("one of the crowd"))))
        })?;
        let count = env.transact(|txn| txn.bytes(CROWD)?.delete_range(..))?;
        if count != CROWD_COUNT * 50 {
            self.problem(&format!("{CROWD_COUNT} threads put 50 records each, and {count} are there"));
        }
        Ok(())
    }

    /// A large value is written anew, in parts, cut off, or read at a snapshot.
    pub(crate) fn change_film(&mut self) -> Result<(), Error> {
        let film = key(self.random.below(FILM_COUNT));
        let mut random = self.random.fork();
        let stage = Arc::clone(&self.stage);
        self.pause(10);
        self.counters.add("film_acts", 1);
        let block = |stamp: u64| stamp.to_le_bytes().repeat(BLOCK_BYTES / 8);
        let io = |error: std::io::Error| match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => Error::Disk(error),
        };
        match random.below(6) {
            0 => stage.env.transact(|txn| {
                let count = random.between(1, BLOCK_COUNT_MAX);
                let film_bytes: Vec<u8> = (0..count).flat_map(|_| block(random.number())).collect();
                txn.bytes(FILMS)?.put(&film, &film_bytes)
            }),
            1 | 2 => stage.env.transact(|txn| {
                let mut writer = txn.bytes(FILMS)?.value_writer(&film)?;
                for _ in 0..random.between(1, 20) {
                    let at = random.below(BLOCK_COUNT_MAX).min(writer.len()? / BLOCK_BYTES as u64);
                    writer.seek(SeekFrom::Start(at * BLOCK_BYTES as u64)).map_err(io)?;
                    writer.write_all(&block(random.number())).map_err(io)?;
                }
                Ok(())
            }),
            3 => stage.env.transact(|txn| {
                let mut writer = txn.bytes(FILMS)?.value_writer(&film)?;
                let blocks = writer.len()? / BLOCK_BYTES as u64;
                writer.set_len(random.below(blocks + 1) * BLOCK_BYTES as u64)
            }),
            4 if random.percent(20) => stage.env.transact(|txn| txn.bytes(FILMS)?.delete(&film).map(drop)),
            _ => {
                let snapshot = stage.env.snapshot()?;
                if let Some(mut reader) = snapshot.bytes(FILMS)?.value_reader(&film)? {
                    let mut found = vec![0; BLOCK_BYTES];
                    for no in 0..reader.len()? / BLOCK_BYTES as u64 {
                        reader.read_exact(&mut found).map_err(io)?;
                        if found.chunks(8).any(|word| word != &found[..8]) {
                            self.problem(&format!("block {no} of a film is of two writers"));
                        }
                        if no % 16 == 0 {
                            self.pause(5);
                        }
                    }
                }
                snapshot.commit().map(drop)
            }
        }
    }

    /// Backups, full and not; older ones go, and what only they need of the archive.
    pub(crate) fn back_up(&mut self) -> Result<(), Error> {
        let dir = self.stage.dir.join("backup");
        let archive_dir = self.stage.dir.join("archive");
        let mut files = match Backup::open(&dir) {
            Ok(backup) => backup.files(),
            Err(_) => Vec::new(),
        };
        let incremental = !files.is_empty() && self.random.percent(70);
        let options = BackupOptions::default().incremental(incremental);
        let stage = Arc::clone(&self.stage);
        let taken = self.stage.env.backup_with(&dir, options, |_| until(&stage))?;
        self.counters.add("backups", 1);
        if taken.is_full {
            files.retain(|file| file.file != taken.file);
            for file in files {
                std::fs::remove_file(dir.join(&file.file)).map_err(Error::Disk)?;
            }
            if let Some(lsn) = Backup::open(&dir)?.needs_log_from()
                && archive_dir.is_dir()
            {
                ArchiveDirectory::open(&archive_dir)?.remove_before(lsn)?;
            }
        }
        self.pause(1_000);
        Ok(())
    }

    /// Commits come in their order, each once. A feed that falls too far behind begins anew: the log is bounded.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        match self.follow_on() {
            Err(Error::LogGone { .. }) => {
                self.feed = None;
                self.stage.env.forget_changes(FEED)?;
                self.counters.add("feeds_lost", 1);
                Ok(())
            }
            other => other,
        }
    }

    fn follow_on(&mut self) -> Result<(), Error> {
        if self.feed.is_none() || self.random.percent(2) {
            self.feed = None;
            self.feed = Some(self.stage.env.named_changes(FEED)?);
        }
        let Some(feed) = &mut self.feed else { return Ok(()) };
        let (mut newest, mut count, mut is_whole) = (Lsn(0), 0, true);
        while let Some(committed) = feed.follow(Some(Duration::from_millis(20)))? {
            if committed.lsn < newest || (committed.lsn == newest) == is_whole {
                let (name, lsn) = (self.name, committed.lsn);
                self.stage.watch.problem(format!("{name}: the commit at {lsn} came after that at {newest}"));
            }
            (newest, is_whole) = (committed.lsn, committed.is_last);
            count += u64::from(committed.is_last);
            if count == 500 {
                break;
            }
        }
        let position = feed.position();
        feed.acknowledge(position)?;
        self.counters.add("commits_followed", count);
        Ok(())
    }

    /// Compactions, checkpoints, and what waits to be freed.
    fn keep_house(&mut self) -> Result<(), Error> {
        let stage = Arc::clone(&self.stage);
        match self.random.below(4) {
            0 => {
                let report = stage.env.compact_with(|_| until(&stage))?;
                self.counters.add("compactions", 1);
                self.counters.add("pages_moved", report.moved_page_count);
            }
            1 => drop(stage.env.checkpoint()?),
            2 => stage.env.reclaim()?,
            _ => drop(stage.env.archive_now()?),
        }
        self.pause(500);
        Ok(())
    }
}
