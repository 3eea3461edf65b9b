//! What is traced: threads that take turns, one operation each, with marks in memory that say whose turn it is.
//!
//! L1. Whoever reads the trace knows no threads. So each turn begins with a store to a place that names the thread, and
//!     ends with one that names nobody. Only one thread has a turn at a time.
//! L2. Each operation is run some times by every thread before it is counted. What is made at the first use is not an
//!     operation's.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use anyhow::Context;
use ledgerstone::{Durability, EnvTable, Environment, Error, Isolation, TransactionOptions};
use ledgerstone_region::Random;

use super::Ask;
use crate::points::{self, TABLE};
use crate::tpcb::{self, KeyKind, Scale, Transfer, history_key};

/// Records of the table.
const RECORD_COUNT: u64 = 100_000;
/// LIBTP's ten branches are a hot spot, so there are 100 of them.
const BANK: Scale = Scale { account_count: 100_000, teller_count: 1_000, branch_count: 100, key: KeyKind::U64 };
/// All of it fits. More would only take longer to trace: each access at the opening is a line of the trace.
const CACHE_BYTES: u64 = 48 << 20;
/// Of a segment of the log and of its buffer, for the same reason.
const LOG_BYTES: u64 = 4 << 20;
/// Turns of each thread before those that count.
const WARM_TURNS: u64 = 2;
/// Operations of one thread, run without a trace to know how long one takes.
const ALONE_COUNT: u64 = 20_000;

/// More processors than this are not simulated.
pub(super) const PROCESSOR_COUNT_MAX: u64 = 128;
const CODE_COUNT: usize = 4096;
const NOBODY: usize = 1024;
const WORK: usize = 2048;

#[repr(align(4096))]
struct Marks([AtomicU8; CODE_COUNT]);

static MARKS: Marks = Marks([const { AtomicU8::new(0) }; CODE_COUNT]);

/// What a store to a place in the marks means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The thread's turn begins.
    Turn(u8),
    /// The turn is over.
    Nobody,
    /// From here on it is this operation, and it counts or does not.
    Work(usize, bool),
}

impl Mark {
    fn code(self) -> usize {
        match self {
            Mark::Turn(thread_no) => usize::from(thread_no),
            Mark::Nobody => NOBODY,
            Mark::Work(no, counts) => WORK + 2 * no + usize::from(counts),
        }
    }

    /// What a store to this address means, with the marks at `marks`.
    pub(super) fn at(address: u64, marks: u64) -> Option<Mark> {
        let code = usize::try_from(address.checked_sub(marks)?).ok().filter(|&code| code < CODE_COUNT)?;
        Some(match code {
            WORK.. => Mark::Work((code - WORK) / 2, code % 2 == 1),
            NOBODY => Mark::Nobody,
            turn => Mark::Turn(u8::try_from(turn).ok()?),
        })
    }
}

#[inline(never)]
fn mark(mark: Mark) {
    MARKS.0[mark.code()].store(1, Ordering::SeqCst);
}

/// Where the marks are, and where the code of this program is.
pub(super) fn here() -> (u64, u64) {
    (std::ptr::from_ref(&MARKS) as u64, mark as fn(Mark) as usize as u64)
}

/// What the operations work on.
pub(super) struct Places {
    env: Environment,
    table: EnvTable,
    bank: tpcb::Tables,
}

/// One operation of a thread: its number, how many it has run, and its random numbers.
pub(super) type How = fn(&Places, thread_no: u64, no: u64, random: &mut Random) -> Result<(), Error>;

/// The operations.
pub(super) const OPERATIONS: [(&str, How); 7] = [
    ("begin and commit", |at, _, _, _| at.env.begin()?.commit().map(drop)),
    ("begin and commit, read-only", |at, _, _, _| {
        at.env.begin_with(TransactionOptions { read_only: true, ..TransactionOptions::default() })?.commit().map(drop)
    }),
    ("get, own transaction", |at, _, _, random| {
        let txn = at.env.begin()?;
        at.table.get(&txn, key(random))?;
        txn.commit().map(drop)
    }),
    ("get at a snapshot, own transaction", |at, _, _, random| {
        let isolation = Some(Isolation::Snapshot);
        let txn = at.env.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() })?;
        at.table.get(&txn, key(random))?;
        txn.commit().map(drop)
    }),
    ("put existing, own transaction", |at, thread_no, no, random| {
        let txn = at.env.begin()?;
        at.table.put(&txn, key(random), [(thread_no + no) as u8; 100])?;
        txn.commit().map(drop)
    }),
    ("TPC-B without sync, 100 branches", |at, thread_no, no, random| {
        let transfer = Transfer::draw(&BANK, random);
        tpcb::transfer_in(&at.env, &at.bank, BANK.key, history_key(thread_no, no), &transfer).map(drop)
    }),
    ("TPC-B, read-only, 100 branches", |at, _, _, random| {
        tpcb::look(&at.env, &at.bank, BANK.key, &Transfer::draw(&BANK, random)).map(drop)
    }),
];

fn key(random: &mut Random) -> [u8; 8] {
    random.below(RECORD_COUNT).to_be_bytes()
}

/// Makes the environment.
pub(super) fn prepare(dir: &Path, progress: &mut dyn FnMut(&str, u64, u64)) -> anyhow::Result<()> {
    let env = Environment::options().log_segment_bytes(LOG_BYTES).log_buffer_bytes(LOG_BYTES).open(dir)?;
    points::fill(&env, RECORD_COUNT, &mut |done, all| progress("records", done, all))?;
    tpcb::load(&env, &BANK, &mut |done, all| progress("bank", done, all))?;
    Ok(env.close()?)
}

fn open(dir: &Path) -> anyhow::Result<Places> {
    let env = Environment::options()
        .create(false)
        .cache_bytes(CACHE_BYTES)
        .log_segment_bytes(LOG_BYTES)
        .log_buffer_bytes(LOG_BYTES)
        .checkpoint_log_bytes(1 << 40)
        .durability(Durability::Volatile)
        .open(dir)?;
    let (table, bank) = (env.table(TABLE)?, tpcb::Tables::open(&env)?);
    Ok(Places { env, table, bank })
}

/// Nanoseconds of each operation with one thread and without a trace.
pub(super) fn alone(dir: &Path) -> anyhow::Result<Vec<f64>> {
    let places = open(dir)?;
    let mut random = Random::new(1);
    let mut all = Vec::new();
    for (_, how) in OPERATIONS {
        let mut begin = Instant::now();
        for no in 0..2 * ALONE_COUNT {
            if no == ALONE_COUNT {
                begin = Instant::now(); // The first half brought the pages in.
            }
            how(&places, PROCESSOR_COUNT_MAX, no, &mut random)?;
        }
        all.push(begin.elapsed().as_nanos() as f64 / ALONE_COUNT as f64);
    }
    places.env.close()?;
    Ok(all)
}

/// Runs all operations, to be traced from outside.
pub(super) fn run(dir: &Path, ask: Ask) -> anyhow::Result<()> {
    let places = open(dir)?;
    std::thread::scope(|scope| {
        let threads: Vec<Thread> = (0..ask.processors)
            .map(|no| {
                let (turns, todo) = sync_channel(0);
                let (answers, done) = sync_channel(0);
                let places = &places;
                scope.spawn(move || take_turns(places, no, &todo, &answers));
                Thread { turns, done }
            })
            .collect();
        let mut order: Vec<usize> = (0..threads.len()).collect();
        let mut random = Random::new(7);
        for no in 0..OPERATIONS.len() {
            for turn in 0..WARM_TURNS + ask.turns {
                mark(Mark::Work(no, turn >= WARM_TURNS));
                for at in 0..order.len() {
                    let other = random.below(ask.processors) as usize;
                    order.swap(at, other);
                }
                for &thread in &order {
                    threads[thread].turns.send((no, turn)).context("a thread ended")?;
                    threads[thread].done.recv().context("a thread ended")??;
                }
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(places.env.close()?)
}

struct Thread {
    turns: SyncSender<(usize, u64)>,
    done: Receiver<Result<(), Error>>,
}

fn take_turns(places: &Places, thread_no: u64, todo: &Receiver<(usize, u64)>, answers: &SyncSender<Result<(), Error>>) {
    let mut random = Random::new(thread_no + 1);
    while let Ok((no, turn)) = todo.recv() {
        mark(Mark::Turn(thread_no as u8));
        let done = (OPERATIONS[no].1)(places, thread_no, turn, &mut random);
        mark(Mark::Nobody);
        if answers.send(done).is_err() {
            return;
        }
    }
}
