//! Random transactions that write down what they see: under the seeded scheduler on a simulated disk, or on real
//! threads on a real one. The same clients, the same checker.
//!
//! Few items, many scans, inserts and deletes: what must not happen should have every chance to.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ledgerstone::{
    BytesTable, Durability, EnvTable, Environment, Error, Isolation, Locking, Options, Range, TransactionOptions,
};
use ledgerstone_disk::{Disk, FileDisk, SimDisk};
use ledgerstone_region::sync::{self, Scheduler};

use super::history::{Access, Act, Commit, History, Item, Seen, Transaction};
use super::processes::{self, Process};
use super::restless;
use crate::crash::client::with_durability;
use ledgerstone_region::Random;

pub(super) const TABLE_COUNT: u32 = 2;

/// How much is to happen.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Clients at once.
    pub client_count: u64,
    /// Transactions of each.
    pub transaction_count: u64,
    /// Keys of each table.
    pub key_count: u32,
    /// Level of all transactions; `None`: each draws one.
    pub isolation: Option<Isolation>,
    /// Bytes of a value: small ones share a leaf, large ones make leaves split and ghosts be purged.
    pub value_bytes: usize,
    /// Memory of the version store.
    pub version_store_bytes: u64,
    /// Mostly the first and the last records are read and taken, and put again.
    pub is_queue: bool,
    /// Tables are dropped, made, renamed and indexed; see `restless.rs`.
    pub is_restless: bool,
}

impl Size {
    /// A size for a short simulated run.
    pub fn small(random: &mut Random) -> Size {
        Size {
            client_count: random.between(2, 6),
            transaction_count: random.between(4, 14),
            key_count: random.pick(&[3, 6, 12, 40]),
            isolation: None,
            value_bytes: random.pick(&[8, 8, 700]),
            version_store_bytes: random.pick(&[16 << 10, 1 << 20]),
            is_queue: random.percent(30),
            is_restless: false,
        }
    }

    /// A size for a run on real threads.
    pub fn on_threads(seed: u64, client_count: u64, transaction_count: u64) -> Size {
        let of = |values: &[usize]| values[(seed / 5) as usize % values.len()];
        Size {
            client_count,
            transaction_count,
            key_count: of(&[4, 16, 64]) as u32,
            isolation: Size::level_of(seed),
            value_bytes: of(&[8, 700, 8, 700, 9000]),
            version_store_bytes: 4 << 20,
            is_queue: of(&[0, 0, 0, 1]) == 1,
            is_restless: false,
        }
    }

    /// The level of the n-th run: each in turn, and all of them together.
    pub fn level_of(number: u64) -> Option<Isolation> {
        Isolation::ALL.get((number % 5) as usize).copied()
    }
}

/// Runs a seed under the scheduler on a simulated disk. `locks_pages`: leaves are locked, whatever the seed says.
///
/// # Errors
/// What went wrong before there was a history: an error, a panic, a hang.
pub fn simulate(seed: u64, locks_pages: bool) -> Result<History, Vec<String>> {
    crate::planted::take_rare_branches(seed / 3);
    let mut random = Random::new(seed ^ 0x6869_7374);
    let size = Size { isolation: Size::level_of(seed), ..Size::small(&mut random) };
    let disk = SimDisk::new();
    let schedule_seed = random.number();
    let body = || {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let escalate_after = random.pick(&[2, 3, 5, 8, 4096]);
        // Some seeds, at each level, lock leaves.
        let locking = locking_of(seed, locks_pages);
        let options = options(locking, escalate_after, 128 * 4096, size);
        let env = options.open_on(shared).map_err(|error| format!("open: {error}"))?;
        // From here on each operation of the disk is a place to lose the baton.
        disk.set_hook(Arc::new(sync::yield_point));
        run(vec![Process::alone(env)], random.number(), size)
    };
    let result = catch_unwind(AssertUnwindSafe(|| Scheduler::run(schedule_seed, body)));
    let panics = crate::crash::round::take_panics();
    match result {
        Ok(Ok(Ok(history))) if panics.is_empty() => Ok(history),
        Ok(Ok(Ok(_))) => Err(panics),
        Ok(Ok(Err(error))) => Err(vec![error]),
        Ok(Err(stuck)) => Err([vec![format!("a hang: {stuck}")], panics].concat()),
        Err(_) => Err([vec!["a thread panicked".to_owned()], panics].concat()),
    }
}

/// Runs on real threads and a real directory.
///
/// # Errors
/// What went wrong before there was a history.
pub fn run_on_threads(dir: &Path, seed: u64, size: Size, locks_pages: bool) -> Result<History, Vec<String>> {
    crate::planted::take_rare_branches(seed / 3);
    let options = options(locking_of(seed, locks_pages), 4096, 8 << 20, size);
    let env = options.open_on(Arc::new(FileDisk::new(dir))).map_err(|error| vec![format!("open: {error}")])?;
    run(vec![Process::alone(env)], seed, size).map_err(|error| vec![error])
}

/// The same with two to four processes that share the environment. Each client works in one of them.
///
/// # Errors
/// What went wrong before there was a history.
pub fn run_on_processes(
    dir: &Path,
    region_dir: PathBuf,
    seed: u64,
    size: Size,
    locks_pages: bool,
) -> Result<History, Vec<String>> {
    let process_count = Random::new(seed).between(2, 4);
    let escalate_after = if seed % 3 == 1 { 8 } else { 4096 };
    let cache_bytes = if seed % 4 == 1 { 128 * 4096 } else { 8 << 20 };
    let options = options(locking_of(seed, locks_pages), escalate_after, cache_bytes, size);
    let processes =
        processes::share(&options, dir, region_dir, process_count).map_err(|error| vec![format!("open: {error}")])?;
    run(processes, seed, size).map_err(|error| vec![error])
}

fn locking_of(seed: u64, locks_pages: bool) -> Locking {
    if locks_pages || seed % 7 == 2 { Locking::Pages } else { Locking::Hierarchical }
}

fn options(locking: Locking, escalate_after: u32, cache_bytes: u64, size: Size) -> Options {
    Environment::options()
        .cache_bytes(cache_bytes)
        .log_segment_bytes(256 << 10)
        .log_buffer_bytes(128 << 10)
        .checkpoint_log_bytes(128 << 10)
        .lock_timeout(Duration::from_millis(200))
        .locking(locking)
        .escalate_after(escalate_after)
        .lock_count_max(16384)
        .transaction_count_max(64)
        .version_store_bytes(size.version_store_bytes)
        .page_count_max(1 << 16)
}

pub(super) fn table_name(table: u32) -> String {
    format!("table {table}")
}

pub(super) fn key_bytes(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

fn run(processes: Vec<Process>, seed: u64, size: Size) -> Result<History, String> {
    let mut random = Random::new(seed);
    let mut history = History::default();
    let clock = Arc::new(AtomicU64::new(1));
    processes[0]
        .env()
        .1
        .transact(|txn| {
            history.initial.clear();
            for table in 0..TABLE_COUNT {
                let records = txn.create_table(&table_name(table))?;
                for key in (0..size.key_count).filter(|key| key % 2 == 0) {
                    let value = clock.fetch_add(1, SeqCst);
                    records.put(&key_bytes(key), &value_of(value, size))?;
                    history.initial.push((Item { table, key }, value));
                }
            }
            Ok(())
        })
        .map_err(|error| format!("set-up: {error}"))?;
    let mut client = |number: u64| {
        let process = processes[(number % processes.len() as u64) as usize].clone();
        let (clock, random) = (clock.clone(), random.fork());
        Client { process, number, size, clock, random, opened: 0, kept: Vec::new() }
    };
    let clients: Vec<_> = (0..size.client_count)
        .map(|number| {
            let client = client(number);
            sync::spawn(&format!("client {number}"), move || client.run())
        })
        .collect();
    let mut errors = Vec::new();
    for client in clients {
        match client.join() {
            Ok(Ok(transactions)) => history.transactions.extend(transactions),
            Ok(Err(error)) => errors.push(error),
            Err(panicked) => errors.push(panicked.to_string()),
        }
    }
    if size.is_restless && errors.is_empty() {
        match client(size.client_count).look_at_all() {
            Ok(last) => history.transactions.push(last),
            Err(error) => errors.push(error),
        }
    }
    for process in processes {
        process.close().map_err(|error| [&errors[..], &[format!("close: {error}")]].concat().join("; "))?;
    }
    if errors.is_empty() { Ok(history) } else { Err(errors.join("; ")) }
}

pub(super) struct Client {
    pub(super) process: Process,
    number: u64,
    pub(super) size: Size,
    clock: Arc<AtomicU64>,
    pub(super) random: Random,
    /// How often its process had been opened again when it opened these tables.
    opened: u64,
    /// Tables that it keeps open from transaction to transaction.
    pub(super) kept: Vec<EnvTable>,
}

impl Client {
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn run(mut self) -> Result<Vec<Transaction>, String> {
        let mut done = Vec::new();
        for number in 0..self.size.transaction_count {
            if self.size.is_restless && self.random.percent(2) {
                let (opened, env) = self.process.env();
                match self.keep_house(&env).or_else(pass) {
                    // Another client of this process has closed what this one still had.
                    Err(Error::Failed { .. }) if self.process.env().0 != opened => {}
                    kept => kept.map_err(|error| format!("house: {error} ({error:?})"))?,
                }
            }
            let isolation = self.size.isolation.unwrap_or_else(|| self.random.pick(&Isolation::ALL));
            let mut transaction = self.new_transaction(number, isolation);
            let opened = self.process.env().0;
            let defines = self.size.is_restless && self.random.percent(3);
            let done_so = if defines { self.definer(&mut transaction) } else { self.transaction(&mut transaction) };
            // Unlocked readers may find that the table or the index of their handle has gone.
            let may_go = self.size.is_restless
                && matches!(transaction.isolation, Isolation::ReadCommitted | Isolation::ReadUncommitted);
            match done_so.or_else(pass) {
                Ok(()) => {}
                Err(Error::NoSuchTable(_) | Error::NoSuchIndex { .. }) if may_go => {}
                // Closed before it could begin. With a transaction open, the close would have been refused.
                Err(Error::Failed { .. }) if transaction.begun == 0 && self.process.env().0 != opened => {}
                Err(error) => return Err(format!("{}: {error} ({error:?})", transaction.name)),
            }
            done.push(transaction);
        }
        Ok(done)
    }

    fn new_transaction(&self, number: u64, isolation: Isolation) -> Transaction {
        Transaction {
            name: format!("T{}.{number}", self.number),
            isolation,
            snapshot: None,
            began: self.tick(),
            begun: 0,
            ending: 0,
            accesses: Vec::new(),
            commit: None,
        }
    }

    /// The last transaction reads everything. The environment is sound.
    fn look_at_all(mut self) -> Result<Transaction, String> {
        let env = self.process.env().1;
        let mut transaction = self.new_transaction(0, Isolation::Serializable);
        let mut look = || {
            let txn = env.begin()?;
            transaction.begun = self.tick();
            self.read_all(&txn, &mut transaction)?;
            self.commit(txn, &mut transaction)
        };
        look().map_err(|error| format!("the last look: {error}"))?;
        let report = env.verify().map_err(|error| format!("verify: {error}"))?;
        if report.problems.is_empty() { Ok(transaction) } else { Err(format!("verify: {:?}", report.problems)) }
    }

    /// Changes definitions, and goes on with what is there then.
    fn definer(&mut self, transaction: &mut Transaction) -> Result<(), Error> {
        transaction.isolation = Isolation::Serializable;
        let env = self.process.env().1;
        let isolation = Some(Isolation::Serializable);
        let txn = env.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() })?;
        transaction.begun = self.tick();
        transaction.ending = transaction.begun;
        let point = if self.random.percent(30) { Some((txn.savepoint()?, transaction.accesses.len())) } else { None };
        for _ in 0..self.random.between(1, 2) {
            transaction.ending = self.tick();
            self.define(&txn, transaction)?;
        }
        if let Some((point, count)) = point {
            transaction.ending = self.tick();
            txn.rollback_to(point)?;
            restless::undo(transaction, count);
        }
        let tables = [txn.bytes(&table_name(0))?, txn.bytes(&table_name(1))?];
        for _ in 0..self.random.between(0, 3) {
            transaction.ending = self.tick();
            self.step(&tables, false, transaction)?;
        }
        transaction.ending = self.tick();
        if self.random.percent(20) {
            return txn.abort();
        }
        drop(tables);
        self.commit(txn, transaction)
    }

    fn commit(&self, txn: ledgerstone::Transaction, transaction: &mut Transaction) -> Result<(), Error> {
        let asked = self.tick();
        transaction.ending = asked;
        let committed = txn.commit()?;
        transaction.commit = Some(Commit { asked, answered: self.tick(), lsn: committed.lsn.0 });
        Ok(())
    }

    fn transaction(&mut self, transaction: &mut Transaction) -> Result<(), Error> {
        let durabilities =
            [Durability::Volatile, Durability::Volatile, Durability::Async, Durability::Pipelined, Durability::Sync];
        let options = with_durability(self.random.pick(&durabilities));
        let only_reads = self.random.percent(20);
        let isolation = Some(transaction.isolation);
        let (opened, env) = self.process.env();
        if self.size.is_restless && (self.kept.is_empty() || opened != self.opened) {
            self.kept = vec![env.table(&table_name(0))?, env.table(&table_name(1))?];
            self.opened = opened;
        }
        let txn = env.begin_with(TransactionOptions { isolation, read_only: only_reads, ..options })?;
        transaction.begun = self.tick();
        transaction.ending = transaction.begun;
        transaction.snapshot = txn.snapshot_lsn().map(|lsn| lsn.0);
        let tables = match &self.kept[..] {
            [first, second] if self.random.percent(50) => [first.of(&txn)?, second.of(&txn)?],
            _ => [txn.bytes(&table_name(0))?, txn.bytes(&table_name(1))?],
        };
        // A client that only reads without locks may well take long; and some that write have more images than a small
        // version store takes.
        let is_long = match only_reads {
            true => transaction.isolation != Isolation::Serializable && self.random.percent(30),
            false => self.size.value_bytes > 8 && self.random.percent(15),
        };
        let mut open: Option<OpenRange> = None;
        for _ in 0..self.random.between(1, if is_long { 30 } else { 5 }) {
            sync::yield_point("client");
            transaction.ending = self.tick();
            self.step(&tables, only_reads, transaction)?;
            if self.size.is_restless {
                self.restless_step(&txn, &tables, only_reads, transaction)?;
            }
            // At other levels a range is one call, however long it is left open.
            if transaction.isolation == Isolation::Serializable && self.random.percent(40) {
                self.go_on(&tables, &mut open, transaction)?;
            }
        }
        transaction.ending = self.tick();
        if self.random.percent(10) {
            return txn.abort();
        }
        self.commit(txn, transaction)
    }

    /// A step by a kept table, or some that are taken back.
    fn restless_step(
        &mut self,
        txn: &ledgerstone::Transaction,
        tables: &[BytesTable; 2],
        only_reads: bool,
        transaction: &mut Transaction,
    ) -> Result<(), Error> {
        match self.random.weighted(&[6, 2, 1]) {
            0 => Ok(()),
            1 => self.use_kept(txn, only_reads, transaction),
            _ => {
                let (point, count) = (txn.savepoint()?, transaction.accesses.len());
                for _ in 0..self.random.between(1, 3) {
                    transaction.ending = self.tick();
                    self.step(tables, only_reads, transaction)?;
                }
                if self.random.percent(40) {
                    return txn.release(point);
                }
                transaction.ending = self.tick();
                txn.rollback_to(point)?;
                restless::undo(transaction, count);
                Ok(())
            }
        }
    }

    fn step(&mut self, tables: &[BytesTable; 2], only_reads: bool, into: &mut Transaction) -> Result<(), Error> {
        let table = self.random.below(u64::from(TABLE_COUNT)) as u32;
        let item = Item { table, key: self.random.below(u64::from(self.size.key_count)) as u32 };
        let number = self.tick();
        let done = self.step_on(&tables[table as usize], item, number, only_reads, into);
        if done.is_err() && !only_reads {
            into.accesses.push(self.refused(item, number));
        }
        done
    }

    /// A write that was refused: by the lock of an index's entry, say. Until then the record was there for those who
    /// read what is not committed.
    pub(super) fn refused(&self, item: Item, number: u64) -> Access {
        Access { item, act: Act::Undone(Some(number)), began: number, ended: self.tick() }
    }

    fn step_on(
        &mut self,
        records: &BytesTable,
        item: Item,
        number: u64,
        only_reads: bool,
        into: &mut Transaction,
    ) -> Result<(), Error> {
        let (table, key) = (item.table, key_bytes(item.key));
        let mut began = self.tick();
        let mut acts: Vec<(Item, Act)> = Vec::new();
        let value = value_of(number, self.size);
        let weights: &[u64] = match (only_reads, self.size.is_queue) {
            (true, false) => &[6, 0, 4, 0, 0, 0, 0, 2],
            (true, true) => &[2, 0, 4, 0, 0, 0, 0, 12],
            (false, false) => &[6, 3, 5, 8, 4, 5, 5, 1, 1],
            (false, true) => &[2, 1, 2, 5, 5, 1, 2, 6, 24],
        };
        let mut kind = self.random.weighted(weights);
        if self.size.is_restless && self.random.percent(25) {
            kind = if only_reads { 9 } else { self.random.pick(&[9, 10, 10, 11]) };
        }
        match kind {
            0 => acts.push((item, Act::Read(seen(records.get(&key)?)))),
            1 => acts.push((item, Act::Read(seen(records.get_for_update(&key)?)))),
            2 => self.scan(records, item, &mut acts)?,
            3 => {
                records.put(&key, &value)?;
                acts.push((item, Act::Write(Some(number))));
            }
            4 => match records.insert_new(&key, &value) {
                Ok(()) => acts.extend([(item, Act::Read(Seen::Absent)), (item, Act::Write(Some(number)))]),
                Err(Error::KeyExists { .. }) => acts.push((item, Act::Read(Seen::Present))),
                Err(error) => return Err(error),
            },
            5 => {
                if records.delete(&key)? {
                    acts.extend([(item, Act::Read(Seen::Present)), (item, Act::Write(None))]);
                } else {
                    acts.push((item, Act::Read(Seen::Absent)));
                }
            }
            9 => self.read_by_index(records, table, into.isolation, &mut acts)?,
            10 => self.take_end(records, table, into.isolation, &mut acts)?,
            11 => self.delete_range(records, item, into.isolation, &mut acts)?,
            7 => drop(self.look_at_end(records, table, &mut acts)?),
            8 => {
                if let Some(item) = self.look_at_end(records, table, &mut acts)? {
                    // Two calls: below serializable they need not belong to one moment.
                    let ended = self.tick();
                    into.accesses.extend(acts.drain(..).map(|(item, act)| Access { item, act, began, ended }));
                    began = self.tick();
                    if records.delete(&key_bytes(item.key))? {
                        acts.extend([(item, Act::Read(Seen::Present)), (item, Act::Write(None))]);
                    } else {
                        acts.push((item, Act::Read(Seen::Absent)));
                    }
                }
            }
            _ => {
                let mut old = None;
                let there = records.modify(&key, |before| {
                    old = Some(before.to_vec());
                    Some(value.clone())
                })?;
                acts.push((item, Act::Read(seen(old))));
                if there {
                    acts.push((item, Act::Write(Some(number))));
                }
            }
        }
        let ended = self.tick();
        into.accesses.extend(acts.into_iter().map(|(item, act)| Access { item, act, began, ended }));
        Ok(())
    }

    /// Reads the first or the last record: there is none before or behind it.
    fn look_at_end(
        &mut self,
        records: &BytesTable,
        table: u32,
        acts: &mut Vec<(Item, Act)>,
    ) -> Result<Option<Item>, Error> {
        let from_end = self.random.percent(25);
        let found = if from_end { records.last()? } else { records.first()? };
        let universe = self.size.key_count;
        let Some((key, value)) = found else {
            acts.extend((0..universe).map(|key| (Item { table, key }, Act::Read(Seen::Absent))));
            return Ok(None);
        };
        let item = Item { table, key: key.try_into().map_or(u32::MAX, u32::from_be_bytes) };
        let passed = if from_end { item.key + 1..universe } else { 0..item.key };
        acts.extend(passed.map(|key| (Item { table, key }, Act::Read(Seen::Absent))));
        acts.push((item, Act::Read(seen(Some(value)))));
        Ok(Some(item))
    }

    /// Opens a range and leaves it open, or reads on in the one that is open: one record, or all that is left.
    fn go_on(
        &mut self,
        tables: &[BytesTable; 2],
        open: &mut Option<OpenRange>,
        into: &mut Transaction,
    ) -> Result<(), Error> {
        let mut range = match open.take() {
            Some(range) => range,
            None => {
                let table = self.random.below(u64::from(TABLE_COUNT)) as u32;
                let low = self.random.below(u64::from(self.size.key_count)) as u32 / 2;
                let high = self.size.key_count + 1;
                let bounds = (Bound::Included(&key_bytes(low)[..]), Bound::Excluded(&key_bytes(high)[..]));
                let range = tables[table as usize].range(bounds)?;
                OpenRange { range, table, low, high, backward: self.random.percent(40), reads_all: false }
            }
        };
        let mut is_done = false;
        while !is_done {
            let began = self.tick();
            let mut acts = Vec::new();
            is_done = range.step(&mut acts)?;
            let ended = self.tick();
            into.accesses.extend(acts.into_iter().map(|(item, act)| Access { item, act, began, ended }));
            if !range.reads_all {
                break;
            }
        }
        if !is_done {
            range.reads_all = self.random.percent(50);
            *open = Some(range);
        }
        Ok(())
    }

    /// Reads a range, from either end, all of it or until so many were found; every key passed was read.
    fn scan(&mut self, records: &BytesTable, from: Item, acts: &mut Vec<(Item, Act)>) -> Result<(), Error> {
        let to = from.key + self.random.below(u64::from(self.size.key_count) + 2) as u32;
        let limit = self.random.pick(&[1, 3, usize::MAX]);
        let backward = self.random.percent(40);
        let range = records.range((Bound::Included(&key_bytes(from.key)[..]), Bound::Excluded(&key_bytes(to)[..])))?;
        let rows: Result<Vec<_>, Error> =
            if backward { range.rev().take(limit).collect() } else { range.take(limit).collect() };
        let rows: Vec<(u32, Vec<u8>)> = rows?
            .into_iter()
            .map(|(key, value)| (key.try_into().map_or(u32::MAX, u32::from_be_bytes), value))
            .collect();
        // What was passed: all of it, or up to the last one that was asked for.
        let (mut low, mut high) = (from.key, to);
        if rows.len() == limit {
            match rows.last() {
                Some((last, _)) if backward => low = *last,
                Some((last, _)) => high = last + 1,
                None => {}
            }
        }
        let universe = self.size.key_count + self.size.key_count + 2;
        for key in low..high.min(universe) {
            let mut found = rows.iter().filter(|(other, _)| *other == key).map(|(_, value)| value.clone());
            acts.push((Item { key, ..from }, Act::Read(seen(found.next()))));
            if found.next().is_some() {
                // A key twice in one scan cannot be a version of anything.
                acts.push((Item { key, ..from }, Act::Read(Seen::Value(0))));
            }
        }
        let is_sorted =
            if backward { rows.is_sorted_by(|a, b| a.0 >= b.0) } else { rows.is_sorted_by(|a, b| a.0 <= b.0) };
        if !is_sorted || rows.iter().any(|(key, _)| !(low..high).contains(key)) {
            acts.push((from, Act::Read(Seen::Value(0))));
        }
        Ok(())
    }
}

/// What ends a transaction, and is nobody's fault.
fn pass(error: Error) -> Result<(), Error> {
    let is_usual = error.is_retryable() || matches!(error, Error::SnapshotTooOld { .. });
    if is_usual { Ok(()) } else { Err(error) }
}

/// A range that a transaction reads on in between other calls.
struct OpenRange {
    range: Range,
    table: u32,
    /// What is left of it.
    low: u32,
    high: u32,
    backward: bool,
    /// The next time, all that is left is read.
    reads_all: bool,
}

impl OpenRange {
    /// Reads one record, and each key that is passed. True at the end.
    fn step(&mut self, acts: &mut Vec<(Item, Act)>) -> Result<bool, Error> {
        let next = if self.backward { self.range.next_back() } else { self.range.next() };
        let item = |key| Item { table: self.table, key };
        let absent = |key| (item(key), Act::Read(Seen::Absent));
        let Some((key, value)) = next.transpose()? else {
            acts.extend((self.low..self.high).map(absent));
            return Ok(true);
        };
        let key = key.try_into().map_or(u32::MAX, u32::from_be_bytes);
        if !(self.low..self.high).contains(&key) {
            // A key out of its order cannot be a version of anything.
            acts.push((item(self.low), Act::Read(Seen::Value(0))));
            return Ok(true);
        }
        let passed = if self.backward { key + 1..self.high } else { self.low..key };
        acts.extend(passed.map(absent));
        acts.push((item(key), Act::Read(seen(Some(value)))));
        if self.backward {
            self.high = key;
        } else {
            self.low = key + 1;
        }
        Ok(false)
    }
}

pub(super) fn seen(value: Option<Vec<u8>>) -> Seen {
    match value {
        None => Seen::Absent,
        Some(value) => Seen::Value(value.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))),
    }
}

/// A value that tells its number, and is as long as the run wants it.
pub(super) fn value_of(number: u64, size: Size) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(size.value_bytes.max(8), number as u8);
    value
}
