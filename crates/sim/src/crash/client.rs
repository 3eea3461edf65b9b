//! A client: does what its plan says, and writes down what it did, what it saw and what it was told.
//!
//! Nothing here decides anything by itself: a conflict ends a transaction, a crash ends the client, and whatever else
//! the engine answers is a bug that the client reports.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ledgerstone::{
    BytesTable, Environment, Error, IndexDef, IndexKeys, Isolation, Lsn, Savepoint, Ticket, Transaction,
    TransactionOptions,
};
use ledgerstone_disk::{FaultDisk, SimDisk};
use ledgerstone_region::{Mutex, sync};

use super::consumer::{Consumer, Stopped};
use super::dump::dump;
use super::judge::{Outcome, Record, TwoPhase};
use super::model::{Bytes, Deed, Patch, Seen, counter_bytes, patched, value_bytes};
use super::plan::{
    Durability, End, JOURNAL, Job, Key, Step, TransactionPlan, is_unique, key_bytes, list_name, table_name,
};
use super::tally::{Kind, Tally};
use crate::counters::Counters;

/// What a client has to tell when it is done.
#[derive(Debug, Default)]
pub struct Report {
    /// All runs of transactions, in order.
    pub records: Vec<Record>,
    /// What happened how often.
    pub counters: Counters,
    /// Answers that the engine must not give.
    pub bugs: Vec<String>,
}

/// What a client works with.
pub struct Client {
    /// The environment.
    pub env: Environment,
    /// Tells whether the power is off, which excuses any error.
    pub disk: SimDisk,
    /// The disk that does harm, if one does: from then on every typed error is an answer.
    pub faults: Option<FaultDisk>,
    /// Its number among the clients.
    pub number: usize,
    /// The number of the life, for marks.
    pub life: usize,
    /// Tables get an index when they are made.
    pub is_indexed: bool,
    /// Counts events over all clients, and makes values unique.
    pub clock: Arc<AtomicU64>,
    /// The largest LSN that any client was told in this life.
    pub told_lsn: Arc<AtomicU64>,
    /// The reader of the change feed; one client at a time is it.
    pub consumer: Arc<Mutex<Consumer>>,
}

/// Why a transaction cannot go on.
enum Trouble {
    /// Deadlock or lock timeout, as the counters call it.
    Conflict(&'static str),
    /// No space, no locks left: refused.
    Refused,
    /// The power is off, or the environment has failed for a good reason.
    Down,
    /// No excuse.
    Bug(String),
}

/// Why a nested transaction does not commit.
enum Stop {
    /// The plan says so.
    Planned,
    /// The whole transaction cannot go on.
    Trouble(Trouble),
    /// The nested transaction could not begin or end.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error)
    }
}

impl Client {
    /// Does all jobs, or as many as the crash allows.
    pub fn run(self, jobs: &[Job]) -> Report {
        let mut report = Report::default();
        let mut tickets: Vec<(usize, Ticket)> = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            let went_on = match job {
                Job::Sleep(us) => {
                    sync::sleep_ns(us * 1000);
                    true
                }
                Job::Checkpoint => {
                    report.counters.add("checkpoints", 1);
                    match self.env.checkpoint() {
                        Ok(_) => true,
                        Err(error) => self.goes_on("checkpoint", &error, &mut report),
                    }
                }
                Job::Compact => {
                    report.counters.add("compactions", 1);
                    match self.env.compact() {
                        Ok(done) => {
                            report.counters.add("pages_moved", done.moved_page_count);
                            report
                                .counters
                                .add("pages_cut", done.page_count_before.saturating_sub(done.page_count_after));
                            true
                        }
                        Err(error) => self.goes_on("compact", &error, &mut report),
                    }
                }
                Job::WaitForTicket => {
                    if tickets.is_empty() {
                        continue;
                    }
                    let (index, ticket) = tickets.remove(0);
                    match ticket.wait() {
                        Ok(()) => {
                            acknowledge(&mut report.records[index]);
                            true
                        }
                        Err(error) => self.goes_on("wait for a ticket", &error, &mut report),
                    }
                }
                Job::Sync { commits } => {
                    let synced = if *commits {
                        let txn = self.env.begin_with(with_durability(ledgerstone::Durability::Sync));
                        txn.and_then(|txn| txn.commit().map(drop))
                    } else {
                        self.env.sync()
                    };
                    match synced {
                        Ok(()) => {
                            tickets.drain(..).for_each(|(index, _)| acknowledge(&mut report.records[index]));
                            true
                        }
                        Err(error) => self.goes_on("a sync", &error, &mut report),
                    }
                }
                Job::Decide => {
                    let is_left = |record: &&mut Record| record.outcome == Outcome::InDoubt;
                    let Some(record) = report.records.iter_mut().find(is_left) else { continue };
                    match self.decide(record) {
                        Ok(()) => true,
                        Err(error) => self.goes_on("a decision", &error, &mut report),
                    }
                }
                Job::Dump { prints } => match dump(&self.env, *prints) {
                    Ok((lsn, deeds)) => {
                        report.counters.add("dumps", 1);
                        let (asked_at, snapshot) = (self.clock.fetch_add(1, SeqCst), Some(lsn));
                        // Nobody has said that what it reads is durable.
                        let outcome = Outcome::Committed { lsn: 0, durable: false };
                        let (client, mark, two_phase) = (self.number, None, None);
                        let isolation = Isolation::Snapshot;
                        report.records.push(Record {
                            client,
                            mark,
                            deeds,
                            asked_at,
                            isolation,
                            snapshot,
                            lsn_min: 0,
                            two_phase,
                            outcome,
                        });
                        true
                    }
                    Err(error) => self.goes_on("dump", &error, &mut report),
                },
                Job::Follow { count, acknowledges } => self.follow(*count, *acknowledges, &mut report),
                Job::Transaction(plan) => self.transaction(plan, number, &mut report, &mut tickets),
            };
            if !went_on || self.disk.is_crashed() {
                break;
            }
        }
        // What was durable before the crash says so after it, and has to be there.
        for (index, ticket) in tickets {
            if ticket.is_durable() {
                acknowledge(&mut report.records[index]);
            }
        }
        report
    }

    /// Reads the change feed, unless another client does. False: the client cannot go on.
    fn follow(&self, count: usize, acknowledges: Option<usize>, report: &mut Report) -> bool {
        // Not waited for: the scheduler knows nothing of this mutex.
        let Some(mut consumer) = self.consumer.try_lock() else { return true };
        let mut read = || {
            report.counters.add("followed", consumer.read(count)?);
            acknowledges.map_or(Ok(()), |behind| consumer.acknowledge(behind))
        };
        match read() {
            Ok(()) => true,
            Err(Stopped::By(error)) => self.goes_on("the change feed", &error, report),
            Err(Stopped::Wrong(what)) => {
                report.bugs.push(what);
                false
            }
        }
    }

    /// Runs a transaction, again if it met a conflict. False: the client cannot go on.
    fn transaction(
        &self,
        plan: &TransactionPlan,
        number: usize,
        report: &mut Report,
        tickets: &mut Vec<(usize, Ticket)>,
    ) -> bool {
        for attempt in 0..=plan.retries {
            let mark = plan.mark_at.map(|_| format!("{}.{}.{number}.{attempt}", self.life, self.number));
            let mark = mark.map(|mark| Bytes::from(mark.as_bytes()));
            let two_phase = match plan.end {
                End::Prepare { commits, .. } => {
                    let global_id = format!("two-phase {}.{}.{number}.{attempt}", self.life, self.number).into_bytes();
                    Some(TwoPhase { global_id, commits, prepared_lsn: 0, was_decided: false })
                }
                _ => None,
            };
            let mut record = Record {
                client: self.number,
                mark,
                deeds: Vec::new(),
                asked_at: 0,
                isolation: plan.isolation,
                snapshot: None,
                lsn_min: 0,
                two_phase,
                outcome: Outcome::Ended,
            };
            let result = self.attempt(plan, &mut record);
            let index = report.records.len();
            report.records.push(record);
            let trouble = match result {
                Ok(ticket) => {
                    tickets.extend(ticket.map(|ticket| (index, ticket)));
                    report.counters.add("transactions", 1);
                    let is_below = plan.isolation != Isolation::Serializable && plan.mark_at.is_some();
                    report.counters.add("writers_below_serializable", u64::from(is_below));
                    let is_done = |(deed, seen): &&(Deed, Seen)| {
                        deed.changes_tables() && matches!(seen, Seen::Done | Seen::Flag(true))
                    };
                    let changes = report.records[index].deeds.iter().filter(is_done).count() as u64;
                    report.counters.add("table_changes_below_serializable", u64::from(is_below) * changes);
                    return true;
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Conflict(name) => report.counters.add(name, 1),
                Trouble::Refused => {
                    report.counters.add("refused", 1);
                    return true;
                }
                Trouble::Down => return false,
                Trouble::Bug(what) => {
                    report.bugs.push(what);
                    return false;
                }
            }
            sync::sleep_ns(100_000 << attempt);
        }
        true
    }

    fn attempt(&self, plan: &TransactionPlan, record: &mut Record) -> Result<Option<Ticket>, Trouble> {
        let durability = match plan.durability {
            Durability::Sync => ledgerstone::Durability::Sync,
            Durability::Pipelined => ledgerstone::Durability::Pipelined,
            Durability::Async => ledgerstone::Durability::Async,
            Durability::Volatile => ledgerstone::Durability::Volatile,
        };
        let mut options = with_durability(durability);
        options.isolation = Some(plan.isolation);
        options.read_only = plan.isolation == Isolation::Snapshot && plan.mark_at.is_none();
        let txn = self.env.begin_with(options).map_err(|error| self.trouble("begin", &error))?;
        record.snapshot = txn.snapshot_lsn().map(|lsn| self.told(lsn));
        let (tables, lists, is_indexed) = (BTreeMap::new(), BTreeMap::new(), self.is_indexed);
        let mut hands = Hands { txn: &txn, tables, lists, savepoints: Vec::new(), is_indexed };
        let done = self.steps(&mut hands, plan, 0, plan.steps.len(), record);
        let done = done.and_then(|()| {
            if plan.mark_at.is_some_and(|at| at >= plan.steps.len()) { self.mark(&mut hands, record) } else { Ok(()) }
        });
        drop(hands);
        if let Err(trouble) = done {
            return match (trouble, txn.abort()) {
                // A deadlock has rolled it back already.
                (trouble, Ok(()) | Err(Error::Finished)) => Err(trouble),
                (Trouble::Bug(what), _) => Err(Trouble::Bug(what)),
                (_, Err(error)) => Err(self.trouble("abort", &error)),
            };
        }
        match plan.end {
            End::Commit | End::CommitAndWait => self.commit(txn, plan, record),
            End::Prepare { is_left, .. } => self.prepare(txn, is_left, record).map(|()| None),
            End::Abort => txn.abort().map(|()| None).map_err(|error| self.trouble("abort", &error)),
            End::Drop => {
                drop(txn);
                Ok(None)
            }
        }
    }

    fn commit(&self, txn: Transaction, plan: &TransactionPlan, record: &mut Record) -> Result<Option<Ticket>, Trouble> {
        record.asked_at = self.clock.fetch_add(1, SeqCst);
        record.lsn_min = self.told_lsn.load(SeqCst);
        record.outcome = Outcome::Unknown;
        let committed = match txn.commit() {
            Ok(committed) => committed,
            Err(error) => {
                let trouble = self.trouble("commit", &error);
                if !matches!(trouble, Trouble::Down) {
                    record.outcome = Outcome::Ended;
                }
                return Err(trouble);
            }
        };
        let (lsn, ticket) = (self.told(committed.lsn), committed.ticket);
        let mut durable = plan.durability == Durability::Sync;
        record.outcome = Outcome::Committed { lsn, durable };
        if record.mark.is_some() && lsn == 0 {
            return Err(Trouble::Bug(format!("commit of client {} has no LSN though it wrote", self.number)));
        }
        if durable && !ticket.is_durable() {
            return Err(Trouble::Bug("a Sync commit came back and its ticket is not durable".to_owned()));
        }
        if !durable && plan.end == End::CommitAndWait {
            ticket.wait().map_err(|error| self.trouble("wait for a ticket", &error))?;
            durable = true;
            record.outcome = Outcome::Committed { lsn, durable };
        }
        Ok((!durable).then_some(ticket))
    }

    /// Remembers an LSN: the log's tail is there at least.
    fn told(&self, lsn: Lsn) -> u64 {
        self.told_lsn.fetch_max(lsn.0, SeqCst);
        lsn.0
    }

    /// Prepares, and decides if the decision is not left to others.
    fn prepare(&self, txn: Transaction, is_left: bool, record: &mut Record) -> Result<(), Trouble> {
        record.asked_at = self.clock.fetch_add(1, SeqCst);
        record.outcome = Outcome::Preparing;
        let Some(two_phase) = &mut record.two_phase else { return Ok(()) };
        let prepared = match txn.prepare(&two_phase.global_id) {
            Ok(prepared) => prepared,
            Err(error) => {
                let trouble = self.trouble("prepare", &error);
                if !matches!(trouble, Trouble::Down) {
                    record.outcome = Outcome::Ended;
                }
                return Err(trouble);
            }
        };
        two_phase.prepared_lsn = self.told(prepared.lsn());
        record.outcome = Outcome::InDoubt;
        drop(prepared); // Which decides nothing.
        if is_left { Ok(()) } else { self.decide(record).map_err(|error| self.trouble("a decision", &error)) }
    }

    /// Carries the decision out.
    fn decide(&self, record: &mut Record) -> Result<(), Error> {
        let Some(TwoPhase { global_id, commits, was_decided, .. }) = &mut record.two_phase else { return Ok(()) };
        sync::yield_point("client");
        record.outcome = Outcome::Deciding;
        record.lsn_min = self.told_lsn.load(SeqCst);
        *was_decided = true;
        record.outcome = if *commits {
            Outcome::Committed { lsn: self.told(self.env.commit_in_doubt(global_id)?.lsn), durable: true }
        } else {
            self.env.abort_in_doubt(global_id)?;
            Outcome::Ended
        };
        Ok(())
    }

    /// Does the steps from one number on to another, and sets the mark where it belongs.
    fn steps(
        &self,
        hands: &mut Hands<'_>,
        plan: &TransactionPlan,
        from: usize,
        to: usize,
        record: &mut Record,
    ) -> Result<(), Trouble> {
        let mut at = from;
        while at < to {
            if plan.mark_at == Some(at) {
                self.mark(hands, record)?;
            }
            match plan.steps[at] {
                Step::Nest { steps, commits } => {
                    let end = (at + 1 + steps).min(to);
                    self.nest(hands, plan, at + 1, end, commits, record)?;
                    at = end;
                }
                Step::Savepoint => {
                    let savepoint = hands.txn.savepoint().map_err(|error| self.trouble("savepoint", &error))?;
                    hands.savepoints.push(Some(savepoint));
                    record.deeds.push((Deed::Savepoint, Seen::Done));
                    at += 1;
                }
                Step::RollbackTo(number) | Step::Release(number) => {
                    if let Some((place, savepoint)) = hands.savepoint(number) {
                        let goes_back = matches!(plan.steps[at], Step::RollbackTo(_));
                        let done =
                            if goes_back { hands.txn.rollback_to(savepoint) } else { hands.txn.release(savepoint) };
                        done.map_err(|error| self.trouble("rollback to a savepoint", &error))?;
                        hands.forget(if goes_back { place + 1 } else { place });
                        let deed = if goes_back { Deed::RollbackTo(place) } else { Deed::Release(place) };
                        record.deeds.push((deed, Seen::Done));
                    }
                    at += 1;
                }
                ref step => {
                    self.step(hands, step, record)?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    fn nest(
        &self,
        hands: &mut Hands<'_>,
        plan: &TransactionPlan,
        from: usize,
        to: usize,
        commits: bool,
        record: &mut Record,
    ) -> Result<(), Trouble> {
        let place = hands.savepoints.len();
        let result = hands.txn.try_nested(|_| {
            hands.savepoints.push(None);
            record.deeds.push((Deed::Savepoint, Seen::Done));
            self.steps(hands, plan, from, to, record).map_err(Stop::Trouble)?;
            if commits { Ok(()) } else { Err(Stop::Planned) }
        });
        hands.forget(place);
        match result {
            Ok(()) => {}
            Err(Stop::Planned) => record.deeds.push((Deed::RollbackTo(place), Seen::Done)),
            Err(Stop::Trouble(trouble)) => return Err(trouble),
            Err(Stop::Refused(error)) => return Err(self.trouble("nested transaction", &error)),
        }
        record.deeds.push((Deed::Release(place), Seen::Done));
        Ok(())
    }

    /// Reads, and writes what it makes of that: what it has written is in the record, whatever it was to have read.
    fn rewrite(
        &self,
        hands: &mut Hands<'_>,
        key: Key,
        change: (usize, i32),
        record: &mut Record,
    ) -> Result<(), Trouble> {
        let (table, key) = (table_name(key.table), Bytes::from(key_bytes(key)));
        self.act(hands, Deed::Get { table: table.clone(), key: key.clone(), for_update: false }, record)?;
        let Some((_, Seen::Value(Some(old)))) = record.deeds.last() else { return Ok(()) };
        let value = Bytes::from(patched(old, self.patch(change)));
        self.act(hands, Deed::Put { table, key, value }, record)
    }

    /// A change that no other is like.
    fn patch(&self, (at, grow): (usize, i32)) -> Patch {
        Patch { number: self.clock.fetch_add(1, SeqCst) << 16 | 0x5a, at, grow }
    }

    /// Reads the record at one end of a table, and deletes it.
    fn pop(&self, hands: &mut Hands<'_>, table: u64, backward: bool, record: &mut Record) -> Result<(), Trouble> {
        let key = |number| Bytes::from(key_bytes(Key { table, number }));
        let table = table_name(table);
        let (from, to) = (key(0), key(500));
        self.act(hands, Deed::Scan { table: table.clone(), from, to, backward, limit: 1 }, record)?;
        let Some((_, Seen::Rows(rows))) = record.deeds.last() else { return Ok(()) };
        let Some((key, _)) = rows.first() else { return Ok(()) };
        let key = key.clone();
        self.act(hands, Deed::Delete { table, key }, record)
    }

    /// Does the deeds of a step.
    fn step(&self, hands: &mut Hands<'_>, step: &Step, record: &mut Record) -> Result<(), Trouble> {
        if let Step::Rewrite(key, change) = *step {
            return self.rewrite(hands, key, change, record);
        }
        if let Step::Pop { table, backward } = *step {
            return self.pop(hands, table, backward, record);
        }
        let mut act = |deed: Deed| self.act(hands, deed, record);
        let place = |key: Key| (table_name(key.table), Bytes::from(key_bytes(key)));
        let value = |length| Bytes::from(value_bytes(self.clock.fetch_add(1, SeqCst), length));
        let run = |key: Key, count: u64| (key.number..key.number + count).map(move |number| Key { number, ..key });
        match *step {
            Step::Get(key) => {
                let (table, key) = place(key);
                act(Deed::Get { table, key, for_update: false })
            }
            Step::GetForUpdate(key) => {
                let (table, key) = place(key);
                act(Deed::Get { table, key, for_update: true })
            }
            Step::Put(key, length) => {
                let (table, key) = place(key);
                act(Deed::Put { table, key, value: value(length) })
            }
            Step::Insert(key, length) => {
                let (table, key) = place(key);
                act(Deed::Insert { table, key, value: value(length) })
            }
            Step::Delete(key) => {
                let (table, key) = place(key);
                act(Deed::Delete { table, key })
            }
            Step::Modify(key, change) => {
                let (table, key) = place(key);
                act(Deed::Modify { table, key, patch: change.map(|change| self.patch(change)) })
            }
            Step::Scan { from, to, backward, limit } => {
                let (table, from_key) = place(from);
                let (_, to) = place(Key { number: to, ..from });
                act(Deed::Scan { table, from: from_key, to, backward, limit })
            }
            Step::Lookup { table, from, to, backward } => {
                act(Deed::Lookup { table: table_name(table), from, to, backward })
            }
            Step::Reindex(table) => {
                let table = table_name(table);
                act(Deed::Reindex { is_unique: is_unique(&table), table })
            }
            Step::Fill(first, count, length) => run(first, count).try_for_each(|key| {
                let (table, key) = place(key);
                act(Deed::Put { table, key, value: value(length) })
            }),
            Step::Clear(first, count) => run(first, count).try_for_each(|key| {
                let (table, key) = place(key);
                act(Deed::Delete { table, key })
            }),
            Step::WritePart(key, at, length) => {
                let (table, key) = place(key);
                act(Deed::WritePart { table, key, at, part: value(length) })
            }
            Step::SetLen(key, len) => {
                let (table, key) = place(key);
                act(Deed::SetLen { table, key, len })
            }
            Step::ReadPart(key, at, len) => {
                let (table, key) = place(key);
                act(Deed::ReadPart { table, key, at, len })
            }
            Step::ClearRange(first, count) => {
                let (table, from) = place(first);
                let (_, to) = place(Key { number: first.number + count, ..first });
                act(Deed::DeleteRange { table, from, to })
            }
            Step::Load(first, count, length) => {
                let rows = run(first, count).map(|key| (place(key).1, value(length))).collect();
                act(Deed::Load { table: table_name(first.table), rows })
            }
            Step::Rename(from, to) => act(Deed::Rename { table: table_name(from), to: table_name(to) }),
            Step::Create(table) => {
                let table = table_name(table);
                act(Deed::Create { is_unique: self.is_indexed && is_unique(&table), table })
            }
            Step::Drop(table) => act(Deed::Drop { table: table_name(table) }),
            Step::List => act(Deed::List),
            Step::CreateList(list) => act(Deed::CreateList { list: list_name(list) }),
            Step::DropList(list) => act(Deed::DropList { list: list_name(list) }),
            Step::Count { list, from, count, delta } => {
                let (list, key_count) = (list_name(list), key_count(list));
                // Every seventh, so that one page does not get them all.
                let mut keys = (0..count).map(|n| (from + 7 * n) % key_count);
                keys.try_for_each(|key| act(Deed::Count { list: list.clone(), key, delta }))
            }
            Step::Total(list, key) => act(Deed::Total { list: list_name(list), key: key % key_count(list) }),
            Step::Tally(list) => act(Deed::Tally { list: list_name(list) }),
            Step::Pause(us) => {
                sync::sleep_ns(us * 1000);
                Ok(())
            }
            // See above, and `steps`.
            Step::Rewrite(..)
            | Step::Pop { .. }
            | Step::Savepoint
            | Step::RollbackTo(_)
            | Step::Release(_)
            | Step::Nest { .. } => Ok(()),
        }
    }

    fn mark(&self, hands: &mut Hands<'_>, record: &mut Record) -> Result<(), Trouble> {
        match record.mark.clone() {
            Some(key) => self.act(hands, Deed::Mark { key }, record),
            None => Ok(()),
        }
    }

    fn act(&self, hands: &mut Hands<'_>, deed: Deed, record: &mut Record) -> Result<(), Trouble> {
        sync::yield_point("client");
        let seen = match hands.perform(&deed) {
            Ok(seen) => seen,
            Err(Error::NoSuchTable(_)) => Seen::NoTable,
            Err(Error::TableExists(_)) => Seen::TableExists,
            Err(Error::KeyExists { .. }) => Seen::Flag(false),
            Err(Error::IndexKeyExists { .. }) => Seen::Duplicate,
            // It was dropped between two calls, which at these levels nobody is kept from.
            Err(Error::NoSuchIndex { .. })
                if matches!(record.isolation, Isolation::ReadCommitted | Isolation::ReadUncommitted) =>
            {
                return Err(Trouble::Conflict("table_changed"));
            }
            Err(error) => return Err(self.trouble(&super::judge::describe(&deed), &error)),
        };
        record.deeds.push((deed, seen));
        Ok(())
    }

    fn trouble(&self, what: &str, error: &Error) -> Trouble {
        match error {
            _ if self.disk.is_crashed() => Trouble::Down,
            Error::Deadlock { .. } => Trouble::Conflict("deadlocks"),
            Error::LockRefused { .. } => Trouble::Conflict("refusals"),
            Error::LockTimeout { .. } => Trouble::Conflict("timeouts"),
            Error::SnapshotTooOld { .. } => Trouble::Conflict("too_old"),
            Error::SnapshotConflict { .. } => Trouble::Conflict("snapshot_conflicts"),
            Error::TableChanged { .. } => Trouble::Conflict("table_changed"),
            Error::LockTableFull { .. } | Error::ReadOnly { .. } => Trouble::Refused,
            Error::Panicked(_) => self.bug(what, error),
            _ if self.faults.as_ref().is_some_and(|faults| faults.hits() > 0) => {
                if self.env.is_failed() {
                    Trouble::Down
                } else {
                    Trouble::Refused
                }
            }
            error => self.bug(what, error),
        }
    }

    fn bug(&self, what: &str, error: &Error) -> Trouble {
        Trouble::Bug(format!("client {}: {what}: {error} ({error:?})", self.number))
    }

    fn goes_on(&self, what: &str, error: &Error, report: &mut Report) -> bool {
        match self.trouble(what, error) {
            Trouble::Conflict(_) | Trouble::Refused => true,
            Trouble::Down => false,
            Trouble::Bug(what) => {
                report.bugs.push(what);
                false
            }
        }
    }
}

/// The default options of a transaction, and this durability.
#[allow(clippy::field_reassign_with_default)] // The options have a private field: no other way to write them.
pub fn with_durability(durability: ledgerstone::Durability) -> TransactionOptions {
    let mut options = TransactionOptions::default();
    options.durability = Some(durability);
    options
}

/// What the engine said under the error of the standard library's traits.
fn engine_error(error: std::io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::Corrupt { what: format!("an answer that is not the engine's: {error}") },
    }
}

fn acknowledge(record: &mut Record) {
    if let Outcome::Committed { durable, .. } = &mut record.outcome {
        *durable = true;
    }
}

/// A transaction and the tables that it has opened.
struct Hands<'a> {
    txn: &'a Transaction,
    tables: BTreeMap<String, BytesTable>,
    lists: BTreeMap<String, Tally>,
    /// Savepoints that stand, and `None` where a nested transaction began.
    savepoints: Vec<Option<Savepoint>>,
    is_indexed: bool,
}

/// The index that tables have: by the first byte of the value.
pub(crate) fn index(is_unique: bool) -> IndexDef {
    let index = IndexDef::new(INDEX, IndexKeys::Bytes { from: 0, to: Some(1) });
    if is_unique { index.unique() } else { index }
}

/// The numbers that a structure of this number has.
fn key_count(list: u64) -> u64 {
    Kind::of(&list_name(list)).map_or(1, Kind::key_count)
}

const INDEX: &str = "first";

impl Hands<'_> {
    /// One of the savepoints of the innermost nested transaction, and its place.
    fn savepoint(&self, number: usize) -> Option<(usize, Savepoint)> {
        let first = self.savepoints.iter().rposition(Option::is_none).map_or(0, |child| child + 1);
        let usable = &self.savepoints[first..];
        let at = number.checked_rem(usable.len())?;
        usable[at].map(|savepoint| (first + at, savepoint))
    }

    /// Forgets all savepoints but the first `count`, and the tables and lists, some of which may be gone.
    fn forget(&mut self, count: usize) {
        self.savepoints.truncate(count);
        self.tables.clear();
        self.lists.clear();
    }

    fn list(&mut self, name: &str) -> Result<&Tally, Error> {
        if !self.lists.contains_key(name) {
            self.lists.insert(name.to_owned(), Tally::open(self.txn, name)?);
        }
        Ok(&self.lists[name])
    }

    fn table(&mut self, name: &str) -> Result<&BytesTable, Error> {
        if !self.tables.contains_key(name) {
            self.tables.insert(name.to_owned(), self.txn.bytes(name)?);
        }
        Ok(&self.tables[name])
    }

    fn perform(&mut self, deed: &Deed) -> Result<Seen, Error> {
        Ok(match deed {
            Deed::Get { table, key, for_update } => {
                let table = self.table(table)?;
                let value = if *for_update { table.get_for_update(key)? } else { table.get(key)? };
                Seen::Value(value.map(Bytes::from))
            }
            Deed::Put { table, key, value } => {
                self.table(table)?.put(key, value)?;
                Seen::Done
            }
            Deed::Insert { table, key, value } => {
                self.table(table)?.insert_new(key, value)?;
                Seen::Flag(true)
            }
            Deed::Delete { table, key } => Seen::Flag(self.table(table)?.delete(key)?),
            Deed::Modify { table, key, patch } => {
                Seen::Flag(self.table(table)?.modify(key, |old| patch.map(|patch| patched(old, patch)))?)
            }
            Deed::Scan { table, from, to, backward, limit } => {
                let range = self.table(table)?.range((Bound::Included(&from[..]), Bound::Excluded(&to[..])))?;
                let own = |row: Result<(Vec<u8>, Vec<u8>), Error>| {
                    row.map(|(key, value)| (Bytes::from(key), Bytes::from(value)))
                };
                let rows: Result<Vec<_>, Error> = if *backward {
                    range.rev().take(*limit).map(own).collect()
                } else {
                    range.take(*limit).map(own).collect()
                };
                Seen::Rows(rows?)
            }
            Deed::Create { table, is_unique } => {
                self.tables.remove(table);
                self.txn.create_table(table)?;
                if self.is_indexed {
                    self.txn.create_index(table, &index(*is_unique))?;
                }
                Seen::Done
            }
            Deed::Lookup { table, from, to, backward } => {
                let (from, to) = ([*from], [*to]);
                let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
                let found = self.table(table)?.index(INDEX)?.range(range)?.records();
                let found: Vec<_> =
                    if *backward { found.rev().collect::<Result<_, _>>()? } else { found.collect::<Result<_, _>>()? };
                Seen::Rows(found.into_iter().map(|(_, key, value)| (Bytes::from(key), Bytes::from(value))).collect())
            }
            Deed::Reindex { table, is_unique } => {
                self.table(table)?;
                self.tables.remove(table);
                self.txn.nested(|txn| {
                    txn.drop_index(table, INDEX)?;
                    txn.create_index(table, &index(*is_unique))
                })?;
                Seen::Done
            }
            Deed::WritePart { table, key, at, part } => {
                let mut writer = self.table(table)?.value_writer(key)?;
                writer.seek(SeekFrom::Start(*at as u64)).map_err(engine_error)?;
                writer.write_all(part).map_err(engine_error)?;
                Seen::Done
            }
            Deed::SetLen { table, key, len } => {
                self.table(table)?.value_writer(key)?.set_len(*len as u64)?;
                Seen::Done
            }
            Deed::ReadPart { table, key, at, len } => Seen::Value(match self.table(table)?.value_reader(key)? {
                None => None,
                Some(mut reader) => {
                    reader.seek(SeekFrom::Start(*at as u64)).map_err(engine_error)?;
                    let mut part = Vec::new();
                    reader.take(*len as u64).read_to_end(&mut part).map_err(engine_error)?;
                    Some(Bytes::from(part))
                }
            }),
            Deed::DeleteRange { table, from, to } => {
                let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
                Seen::Count(self.table(table)?.delete_range(range)?)
            }
            Deed::Load { table, rows } => {
                self.table(table)?;
                let Some(handle) = self.tables.get_mut(table) else { return Ok(Seen::NoTable) };
                Seen::Flag(match handle.load_sorted(rows.iter().map(|(key, value)| (key, value))) {
                    Ok(_) => true,
                    Err(Error::NotAtEnd { .. }) => false,
                    Err(error) => return Err(error),
                })
            }
            Deed::Rename { table, to } => {
                self.tables.remove(table);
                self.tables.remove(to);
                self.txn.rename_table(table, to)?;
                Seen::Done
            }
            Deed::Drop { table } => {
                self.tables.remove(table);
                self.txn.drop_table(table)?;
                Seen::Done
            }
            Deed::List => Seen::Names(self.txn.table_names()?),
            Deed::CreateList { list } => {
                self.lists.remove(list);
                let _ = Tally::create(self.txn, list)?;
                Seen::Done
            }
            Deed::DropList { list } => {
                self.lists.remove(list);
                self.txn.drop_structure(list)?;
                Seen::Done
            }
            Deed::Count { list, key, delta } => {
                self.list(list)?.add(*key, *delta)?;
                Seen::Done
            }
            Deed::Total { list, key } => Seen::Value(self.list(list)?.get(*key)?.map(counter_bytes)),
            Deed::Tally { list } => {
                let all = self.list(list)?.all()?;
                Seen::Rows(all.into_iter().map(|(key, n)| (Bytes::from(key.to_be_bytes()), counter_bytes(n))).collect())
            }
            Deed::Savepoint | Deed::RollbackTo(_) | Deed::Release(_) => Seen::Done, // See `Client::steps`.
            Deed::Mark { key } => {
                if !self.tables.contains_key(JOURNAL) {
                    self.tables.insert(JOURNAL.to_owned(), self.txn.bytes_or_create(JOURNAL)?);
                }
                self.tables[JOURNAL].put(key, b"")?;
                Seen::Done
            }
        })
    }
}
