//! What each thread keeps near of an environment and of its tables: it keeps nothing open, and is never out of date.

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

use common::assert_sound;
use ledgerstone::{
    Environment, Error, IndexDef, IndexKeys, Isolation, Options, Range, Transaction, TransactionOptions,
};
use ledgerstone_disk::SimDisk;

fn options() -> Options {
    Environment::options().cache_bytes(1 << 20).page_count_max(1 << 14)
}

fn open(disk: &SimDisk) -> Result<Environment, Error> {
    options().open_on(Arc::new(disk.clone()))
}

/// A thread that does one thing after the other, as it is told.
struct Worker {
    jobs: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new() -> Worker {
        let (jobs, asked): (_, Receiver<Box<dyn FnOnce() + Send>>) = channel();
        Worker { jobs: Some(jobs), thread: Some(spawn(move || asked.into_iter().for_each(|job| job()))) }
    }

    /// Has it done, and waits.
    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (said, heard) = channel();
        let job = move || said.send(job()).unwrap();
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
        heard.recv().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.thread.take().unwrap().join();
    }
}

/// What keeps an environment open.
enum Keeps {
    Clone(Environment),
    Transaction(Transaction),
}

/// All orders of `0..count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(count - 1) {
        for at in 0..count {
            let mut order = shorter.clone();
            order.insert(at, count - 1);
            all.push(order);
        }
    }
    all
}

#[test]
fn an_environment_closes_with_its_last_clone_and_its_last_transaction_in_any_order_and_thread() {
    let disk = SimDisk::new();
    let workers: Vec<Worker> = (0..3).map(|_| Worker::new()).collect();
    open(&disk).unwrap().transact(|txn| txn.create_table("t")?.put("k", "v")).unwrap();
    for (round, order) in orders(4).into_iter().enumerate() {
        let env = open(&disk).unwrap();
        assert!(env.recovery_report().was_clean, "round {round}: the last one was not closed in order");
        for worker in &workers {
            // Each thread has its own of everything from now on.
            let env = env.clone();
            worker.run(move || env.transact(|txn| txn.bytes("t")?.get("k")).unwrap());
        }
        let mut outlive: Vec<Range> = Vec::new();
        let mut begin = |worker: &Worker| {
            let env = env.clone();
            let (txn, range) = worker.run(move || {
                let txn = env.begin().unwrap();
                let range = txn.bytes("t").unwrap().range(..).unwrap();
                (txn, range)
            });
            outlive.push(range);
            Some(Keeps::Transaction(txn))
        };
        let mut keeps = [begin(&workers[0]), begin(&workers[1]), Some(Keeps::Clone(env.clone())), None];
        keeps[3] = Some(Keeps::Clone(env));
        for (step, &which) in order.iter().enumerate() {
            let refused = open(&disk).map(drop);
            assert!(
                matches!(refused, Err(Error::AlreadyOpen { .. })),
                "round {round}, {step} of {order:?}: {refused:?}"
            );
            let gone = keeps[which].take();
            // In a thread that it does not come from.
            workers[(which + 1) % 3].run(move || match gone {
                Some(Keeps::Transaction(txn)) if step % 2 == 0 => drop(txn.commit()),
                Some(Keeps::Transaction(txn)) => drop(txn),
                Some(Keeps::Clone(env)) => drop(env),
                None => unreachable!("each goes once"),
            });
        }
        // Iterators that are left do not keep it open.
        open(&disk).unwrap_or_else(|error| panic!("round {round}, {order:?}: {error}")).close().unwrap();
        assert!(outlive.iter_mut().all(|range| matches!(range.next(), Some(Err(_)))));
    }
}

#[test]
fn a_close_counts_the_transactions_of_all_threads() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let workers: Vec<Worker> = (0..3).map(|_| Worker::new()).collect();
    let mut open_ones = Vec::new();
    for (worker, count) in workers.iter().zip([1_usize, 2, 3]) {
        let env = env.clone();
        open_ones.extend(worker.run(move || (0..count).map(|_| env.begin().unwrap()).collect::<Vec<_>>()));
    }
    while let Some(txn) = open_ones.pop() {
        let closed = env.clone().close();
        let left = u32::try_from(open_ones.len() + 1).unwrap();
        assert!(matches!(closed, Err(Error::TransactionsOpen { count }) if count == left), "{left} left: {closed:?}");
        // Wherever it ends.
        workers[open_ones.len() % 3].run(move || drop(txn));
    }
    env.close().unwrap();
}

fn begin(env: &Environment, isolation: Isolation) -> Result<Transaction, Error> {
    env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() })
}

/// What the worker's thread reads in table `name`, by a transaction of its own.
fn read(
    worker: &Worker,
    env: &Environment,
    isolation: Isolation,
    name: &'static str,
) -> Result<Option<Vec<u8>>, Error> {
    let env = env.clone();
    worker.run(move || {
        let txn = begin(&env, isolation)?;
        let found = txn.bytes(name)?.get("k");
        txn.commit()?;
        found
    })
}

#[test]
fn a_table_that_another_thread_has_changed_is_not_what_a_thread_has_kept_of_it() {
    for isolation in Isolation::ALL {
        let env = open(&SimDisk::new()).unwrap();
        let (one, other) = (Worker::new(), Worker::new());
        let reads = |name| read(&one, &env, isolation, name);
        let changes = |change: fn(&Transaction) -> Result<(), Error>| {
            let env = env.clone();
            other.run(move || env.transact(change)).unwrap();
        };
        let keeps_near = |name| {
            for _ in 0..3 {
                reads(name).unwrap();
            }
        };
        changes(|txn| txn.create_table("t")?.put("k", "first"));
        keeps_near("t");
        changes(|txn| txn.drop_table("t"));
        assert!(matches!(reads("t"), Err(Error::NoSuchTable(_))), "{isolation}: dropped");
        changes(|txn| txn.create_table("t")?.put("k", "second"));
        assert_eq!(reads("t").unwrap().as_deref(), Some(&b"second"[..]), "{isolation}: made anew");
        keeps_near("t");
        changes(|txn| {
            txn.drop_table("t")?;
            txn.create_table("t")?.put("k", "third")
        });
        assert_eq!(reads("t").unwrap().as_deref(), Some(&b"third"[..]), "{isolation}: made anew at once");
        keeps_near("t");
        changes(|txn| txn.rename_table("t", "u"));
        assert!(matches!(reads("t"), Err(Error::NoSuchTable(_))), "{isolation}: renamed");
        assert_eq!(reads("u").unwrap().as_deref(), Some(&b"third"[..]), "{isolation}: renamed");
        keeps_near("u");
        changes(|txn| {
            txn.create_table("t")?.put("k", "fourth")?;
            txn.rename_table("u", "v")?;
            txn.rename_table("t", "u")
        });
        assert_eq!(reads("u").unwrap().as_deref(), Some(&b"fourth"[..]), "{isolation}: another of that name");
        assert_eq!(reads("v").unwrap().as_deref(), Some(&b"third"[..]), "{isolation}: another of that name");
        keeps_near("v");
        // What is taken back has not been.
        let (all, back) = (env.clone(), Isolation::Serializable);
        other.run(move || {
            let txn = begin(&all, back).unwrap();
            txn.drop_table("v").unwrap();
            txn.abort().unwrap();
        });
        assert_eq!(reads("v").unwrap().as_deref(), Some(&b"third"[..]), "{isolation}: a drop taken back");
        // Who has kept a table from before it had an index keeps the index all the same.
        changes(|txn| txn.create_index("v", &IndexDef::new("by value", IndexKeys::Value)));
        let all = env.clone();
        one.run(move || {
            let txn = begin(&all, isolation).unwrap();
            txn.bytes("v").unwrap().put("k2", "fifth").unwrap();
            txn.commit().unwrap();
        });
        assert_sound(&env, "an index made by another thread");
        env.close().unwrap();
    }
}

/// One thread makes a table anew all the time, in one step. Others never miss it, and never read one that is gone.
#[test]
fn who_reads_beside_a_thread_that_makes_the_table_anew_sees_each_of_them_in_order() {
    const ROUNDS: u32 = 150;
    let env = open(&SimDisk::new()).unwrap();
    let number = |value: Vec<u8>| u32::from_be_bytes(value.try_into().unwrap());
    env.transact(|txn| txn.create_table("t")?.put("k", 0_u32.to_be_bytes())).unwrap();
    let readers: Vec<JoinHandle<()>> = [Isolation::Serializable, Isolation::ReadCommitted]
        .into_iter()
        .map(|isolation| {
            let env = env.clone();
            spawn(move || {
                let options = TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() };
                let mut last = 0;
                while last < ROUNDS {
                    let found = env.transact_with(options, |txn| txn.bytes("t")?.get("k"));
                    let found = match found {
                        // Without locks, the table may go between two calls.
                        Err(Error::NoSuchTable(_) | Error::TableChanged { .. })
                            if isolation != Isolation::Serializable =>
                        {
                            continue;
                        }
                        found => number(found.unwrap().expect("it is made with its record")),
                    };
                    assert!(found >= last, "{isolation}: {found} after {last}");
                    last = found;
                }
            })
        })
        .collect();
    for round in 1..=ROUNDS {
        env.transact(|txn| {
            txn.drop_table("t")?;
            txn.create_table("t")?.put("k", round.to_be_bytes())
        })
        .unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    env.close().unwrap();
}
