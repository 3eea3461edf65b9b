//! A client: does what its plan says, and writes down what it did, what it saw and what it was told.
//!
//! Nothing here decides anything by itself: a conflict ends a transaction, a crash ends the client, and whatever else the
//! engine answers is a bug that the client reports.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ledgerstone::{BytesTable, CompactOptions, Environment, Error, Ticket, Transaction, TransactionOptions};
use ledgerstone_disk::{FaultDisk, SimDisk};
use ledgerstone_region::sync;

use super::judge::{Outcome, Record};
use super::model::{Bytes, Deed, Patch, Seen, patched, value_bytes};
use super::plan::{Durability, End, JOURNAL, Job, Key, Step, TransactionPlan, key_bytes, table_name};
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
    /// Counts events over all clients, and makes values unique.
    pub clock: Arc<AtomicU64>,
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
                    match self.env.compact(CompactOptions::default()) {
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
            let mut record =
                Record { client: self.number, mark, deeds: Vec::new(), asked_at: 0, outcome: Outcome::Ended };
            let result = self.attempt(plan, &mut record);
            let index = report.records.len();
            report.records.push(record);
            let trouble = match result {
                Ok(ticket) => {
                    tickets.extend(ticket.map(|ticket| (index, ticket)));
                    report.counters.add("transactions", 1);
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
        let options = with_durability(durability);
        let txn = self.env.begin_with(options).map_err(|error| self.trouble("begin", &error))?;
        let mut hands = Hands { txn: &txn, tables: BTreeMap::new() };
        let done = plan.steps.iter().enumerate().try_for_each(|(number, step)| {
            if plan.mark_at == Some(number) {
                self.mark(&mut hands, record)?;
            }
            self.step(&mut hands, step, record)
        });
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
            End::Abort => txn.abort().map(|()| None).map_err(|error| self.trouble("abort", &error)),
            End::Drop => {
                drop(txn);
                Ok(None)
            }
        }
    }

    fn commit(&self, txn: Transaction, plan: &TransactionPlan, record: &mut Record) -> Result<Option<Ticket>, Trouble> {
        record.asked_at = self.clock.fetch_add(1, SeqCst);
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
        let (lsn, ticket) = (committed.lsn.0, committed.ticket);
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

    /// Does the deeds of a step.
    fn step(&self, hands: &mut Hands<'_>, step: &Step, record: &mut Record) -> Result<(), Trouble> {
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
                let patch =
                    change.map(|(at, grow)| Patch { number: self.clock.fetch_add(1, SeqCst) << 16 | 0x5a, at, grow });
                act(Deed::Modify { table, key, patch })
            }
            Step::Scan { from, to, backward, limit } => {
                let (table, from_key) = place(from);
                let (_, to) = place(Key { number: to, ..from });
                act(Deed::Scan { table, from: from_key, to, backward, limit })
            }
            Step::Fill(first, count, length) => run(first, count).try_for_each(|key| {
                let (table, key) = place(key);
                act(Deed::Put { table, key, value: value(length) })
            }),
            Step::Clear(first, count) => run(first, count).try_for_each(|key| {
                let (table, key) = place(key);
                act(Deed::Delete { table, key })
            }),
            Step::Create(table) => act(Deed::Create { table: table_name(table) }),
            Step::Drop(table) => act(Deed::Drop { table: table_name(table) }),
            Step::List => act(Deed::List),
            Step::Pause(us) => {
                sync::sleep_ns(us * 1000);
                Ok(())
            }
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
            Err(Error::KeyExists) => Seen::Flag(false),
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
            Error::LockTableFull | Error::ReadOnly { .. } => Trouble::Refused,
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

fn acknowledge(record: &mut Record) {
    if let Outcome::Committed { durable, .. } = &mut record.outcome {
        *durable = true;
    }
}

/// A transaction and the tables that it has opened.
struct Hands<'a> {
    txn: &'a Transaction,
    tables: BTreeMap<String, BytesTable>,
}

impl Hands<'_> {
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
            Deed::Create { table } => {
                self.tables.remove(table);
                self.txn.create_table(table)?;
                Seen::Done
            }
            Deed::Drop { table } => {
                self.tables.remove(table);
                self.txn.drop_table(table)?;
                Seen::Done
            }
            Deed::List => Seen::Names(self.txn.table_names()?),
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
