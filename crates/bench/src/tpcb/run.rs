//! The customers: each thread runs one transaction after the other until the time or its share is up.
//!
//! A transaction takes the account first and the branch last, so that the hottest lock is held shortest. All
//! transactions lock in one order of tables, so two can only meet, never cross. An abort then has another cause, or
//! shows a defect.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ledgerstone::{Committed, EnvTable, Environment, Error, Ticket};

use super::acks::Acks;
use super::bank::{
    ACCOUNTS, BRANCHES, HISTORY, Key, KeyKind, Scale, TELLERS, Transfer, counter_of, credited, history_key,
};
use crate::latency::Timer;
use ledgerstone_region::Random;

/// What the customers are to do.
pub(crate) struct Plan<'a> {
    pub(crate) scale: Scale,
    /// The number of its first thread, among all that write the history.
    pub(crate) first_thread: u64,
    pub(crate) thread_count: u64,
    pub(crate) limit: Limit,
    pub(crate) is_read_only: bool,
    /// Commits under way at once in a thread; 1 waits for each.
    pub(crate) window: usize,
    pub(crate) ack_file: Option<&'a Path>,
    pub(crate) seed: u64,
}

/// When a run ends.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    Time(Duration),
    Transactions(u64),
}

/// What they did.
pub(crate) struct Outcome {
    pub(crate) transaction_count: u64,
    pub(crate) abort_count: u64,
    pub(crate) seconds: f64,
    pub(crate) timer: Timer,
}

pub(crate) fn run(env: &Environment, plan: &Plan<'_>) -> anyhow::Result<Outcome> {
    let begin = Barrier::new(plan.thread_count as usize + 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread_no in 0..plan.thread_count {
            let customer = Customer::new(env, plan, thread_no);
            let (begin, is_over) = (&begin, &is_over);
            threads.push(scope.spawn(move || {
                begin.wait(); // Also when `customer` is an error: the others must not wait for ever.
                let done = customer.and_then(|mut customer| customer.serve(is_over));
                if done.is_err() {
                    is_over.store(true, Relaxed); // One that failed ends the run of all.
                }
                done
            }));
        }
        begin.wait();
        let began = Instant::now();
        if let Limit::Time(time) = plan.limit {
            while began.elapsed() < time && !is_over.load(Relaxed) {
                std::thread::sleep((time - began.elapsed().min(time)).min(Duration::from_millis(20)));
            }
            is_over.store(true, Relaxed);
        }
        let mut outcome = Outcome { transaction_count: 0, abort_count: 0, seconds: 0.0, timer: Timer::new() };
        for thread in threads {
            let done = thread.join().map_err(|_| anyhow::anyhow!("a customer's thread panicked"))??;
            outcome.transaction_count += done.transaction_count;
            outcome.abort_count += done.abort_count;
            outcome.timer.add(&done.timer);
        }
        outcome.seconds = began.elapsed().as_secs_f64();
        Ok(outcome)
    })
}

/// One thread.
struct Customer<'a> {
    env: &'a Environment,
    tables: Tables,
    plan: &'a Plan<'a>,
    thread_no: u64,
    /// Its number in the history.
    history_no: u64,
    counter: u64,
    random: Random,
    acks: Acks,
    under_way: VecDeque<(Ticket, Instant, [u8; 8])>,
    timer: Timer,
}

/// What one thread did.
struct Served {
    transaction_count: u64,
    abort_count: u64,
    timer: Timer,
}

impl<'a> Customer<'a> {
    fn new(env: &'a Environment, plan: &'a Plan<'a>, thread_no: u64) -> anyhow::Result<Customer<'a>> {
        Ok(Customer {
            env,
            tables: Tables::open(env)?,
            plan,
            thread_no,
            history_no: plan.first_thread + thread_no,
            counter: next_counter(env, plan.first_thread + thread_no)?,
            random: Random::new(plan.seed.wrapping_mul(1 << 20).wrapping_add(thread_no)),
            acks: Acks::open(plan.ack_file, thread_no)?,
            under_way: VecDeque::new(),
            timer: Timer::new(),
        })
    }

    fn serve(&mut self, is_over: &AtomicBool) -> anyhow::Result<Served> {
        let (mut transaction_count, mut abort_count) = (0, 0);
        let share = match self.plan.limit {
            Limit::Time(_) => u64::MAX,
            Limit::Transactions(all) => {
                all / self.plan.thread_count + u64::from(self.thread_no < all % self.plan.thread_count)
            }
        };
        let mut began = Instant::now();
        while transaction_count < share && !is_over.load(Relaxed) {
            let transfer = Transfer::draw(&self.plan.scale, &mut self.random);
            let key = history_key(self.history_no, self.counter);
            let committed = loop {
                let tried = if self.plan.is_read_only {
                    look(self.env, &self.tables, self.plan.scale.key, &transfer)
                } else {
                    transfer_in(self.env, &self.tables, self.plan.scale.key, key, &transfer)
                };
                match tried {
                    Ok(committed) => break committed,
                    Err(error) if error.is_retryable() => abort_count += 1,
                    Err(error) => return Err(error.into()),
                }
            };
            self.counter += 1;
            transaction_count += 1;
            if self.plan.window > 1 {
                self.under_way.push_back((committed.ticket, began, key));
                self.settle(self.plan.window - 1)?;
                began = Instant::now();
            } else {
                let now = Instant::now();
                self.timer.record(now.duration_since(began));
                began = now;
                self.acks.add(key);
                self.acks.write()?;
            }
        }
        self.settle(0)?;
        Ok(Served { transaction_count, abort_count, timer: std::mem::replace(&mut self.timer, Timer::new()) })
    }

    /// Takes the commits that are durable off the window, and waits until at most `left` are under way.
    fn settle(&mut self, left: usize) -> anyhow::Result<()> {
        let mut now = None;
        while let Some((ticket, began, key)) = self.under_way.front() {
            if !ticket.is_durable() {
                if self.under_way.len() <= left {
                    break;
                }
                ticket.wait()?;
                now = None;
            }
            let now = *now.get_or_insert_with(Instant::now);
            self.timer.record(now.duration_since(*began));
            self.acks.add(*key);
            self.under_way.pop_front();
        }
        self.acks.write()
    }
}

/// The tables of a bank, opened once for all transactions.
pub(crate) struct Tables {
    accounts: EnvTable,
    tellers: EnvTable,
    branches: EnvTable,
    history: EnvTable,
}

impl Tables {
    pub(crate) fn open(env: &Environment) -> Result<Tables, Error> {
        let [accounts, tellers, branches, history] = [ACCOUNTS, TELLERS, BRANCHES, HISTORY].map(|name| env.table(name));
        Ok(Tables { accounts: accounts?, tellers: tellers?, branches: branches?, history: history? })
    }
}

/// The transaction of TPC-B: three balances and a row of history.
#[inline]
pub(crate) fn transfer_in(
    env: &Environment,
    tables: &Tables,
    kind: KeyKind,
    key: [u8; 8],
    transfer: &Transfer,
) -> Result<Committed, Error> {
    let txn = env.begin()?;
    let credit = |table: &EnvTable, number| {
        let key = Key::new(kind, number);
        let is_there = table.modify(&txn, key.bytes(), |record| credited(record, transfer.delta))?;
        if is_there { Ok(()) } else { Err(missing(table)) }
    };
    credit(&tables.accounts, transfer.account)?;
    tables.history.insert_new(&txn, &key, &transfer.encode())?;
    credit(&tables.tellers, transfer.teller)?;
    credit(&tables.branches, transfer.branch)?;
    txn.commit()
}

/// LIBTP's read-only transaction: an account, a teller, a branch.
#[inline]
pub(crate) fn look(env: &Environment, tables: &Tables, kind: KeyKind, transfer: &Transfer) -> Result<Committed, Error> {
    let Tables { accounts, tellers, branches, .. } = tables;
    let txn = env.begin()?;
    for (table, number) in [(accounts, transfer.account), (tellers, transfer.teller), (branches, transfer.branch)] {
        table.get(&txn, Key::new(kind, number).bytes())?.ok_or_else(|| missing(table))?;
    }
    txn.commit()
}

/// The bank was whole when the run began, so a record that is not there has been lost.
fn missing(table: &EnvTable) -> Error {
    Error::Corrupt { what: format!("a record of the bank's table {:?} is missing", table.name()) }
}

/// The counter behind the last history row of a thread, so that a bank can be used again.
fn next_counter(env: &Environment, thread_no: u64) -> Result<u64, Error> {
    env.transact(|txn| {
        let (from, to) = (history_key(thread_no, 0), history_key(thread_no + 1, 0));
        let mut rows = txn.bytes(HISTORY)?.range(&from[..]..&to[..])?;
        let last = rows.next_back().transpose()?;
        Ok(last.and_then(|(key, _)| counter_of(&key)).map_or(0, |counter| counter + 1))
    })
}
