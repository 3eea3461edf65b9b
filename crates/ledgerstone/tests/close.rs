//! The close of an environment beside threads that still write: none of their writes comes after the lock is given
//! back, and nobody begins anything any more.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use common::{assert_sound, within};
use ledgerstone::{
    Durability, Environment, Error, Isolation, LogKeeper, Lsn, Options, RecoveryPhase, RecoveryProgress, Transaction,
    TransactionOptions,
};
use ledgerstone_disk::{
    Call, Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Fault, FaultDisk, Harm, Open, SimDisk,
};
use ledgerstone_region::sync::{self, Scheduler};

/// A write that does not come back before the test says so.
struct Stall {
    path: &'static str,
    is_met: AtomicBool,
    is_over: AtomicBool,
}

impl Stall {
    fn end(&self) {
        self.is_over.store(true, SeqCst);
    }

    fn wait_until_met(&self) {
        wait_for(|| self.is_met.load(SeqCst));
    }
}

fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "what the test waits for does not happen");
        sync::sleep_ns(100_000);
    }
}

/// A disk on which single writes stall.
#[derive(Clone)]
struct StallDisk {
    below: Arc<dyn Disk>,
    next: Arc<Mutex<Vec<Arc<Stall>>>>,
}

impl StallDisk {
    fn on(below: impl Disk + 'static) -> StallDisk {
        StallDisk { below: Arc::new(below), next: Arc::default() }
    }

    /// The next write to a file whose path has `path` in it stalls.
    fn stall(&self, path: &'static str) -> Arc<Stall> {
        let stall = Arc::new(Stall { path, is_met: false.into(), is_over: false.into() });
        self.next.lock().unwrap().push(Arc::clone(&stall));
        stall
    }
}

struct StallFile {
    below: Arc<dyn DiskFile>,
    next: Arc<Mutex<Vec<Arc<Stall>>>>,
}

impl StallFile {
    fn meet(&self) {
        let stall = {
            let mut next = self.next.lock().unwrap();
            next.iter().position(|stall| self.name().contains(stall.path)).map(|at| next.remove(at))
        };
        if let Some(stall) = stall {
            stall.is_met.store(true, SeqCst);
            while !stall.is_over.load(SeqCst) {
                sync::sleep_ns(1_000_000);
            }
        }
    }
}

impl Disk for StallDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(Arc::new(StallFile { below: self.below.open(path, how)?, next: Arc::clone(&self.next) }))
    }
    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.below.exists(path)
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.below.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.below.rename(from, to)
    }
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.below.list(dir)
    }
    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.below.create_dir(dir)
    }
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.below.sync_dir(dir)
    }
    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.below.lock(path)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

impl DiskFile for StallFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.meet();
        self.below.write_at(offset, bytes)
    }
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.meet();
        self.below.write_durable_at(offset, bytes)
    }
    fn sync(&self) -> Result<(), DiskError> {
        self.below.sync()
    }
    fn settle(&self) -> Result<(), DiskError> {
        self.below.settle()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.below.len()
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.below.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.below.set_len(len)
    }
    fn name(&self) -> &str {
        self.below.name()
    }
}

/// Room in the log's buffer and in the cache for all that is done while a write stalls.
fn options() -> Options {
    Environment::options().cache_bytes(4 << 20).page_count_max(1 << 14).log_buffer_bytes(4 << 20)
}

fn open(disk: &SimDisk) -> Result<Environment, Error> {
    options().open_on(Arc::new(disk.clone()))
}

/// An environment with one record, and a checkpoint behind it.
fn begun(disk: &StallDisk) -> Environment {
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| txn.create_table("u").map(drop)).unwrap();
    env.transact(|txn| txn.create_table("t")?.put(b"k", b"first")).unwrap();
    env.checkpoint().unwrap();
    env
}

/// Closes in another thread.
fn close(env: Environment) -> JoinHandle<Result<(), Error>> {
    spawn(move || env.close())
}

/// The environment is not let go while the write stalls. Then it is, and something is committed there, and the process
/// killed. What came of the close, and what it has left.
fn is_let_go_after(
    stall: &Stall,
    closing: JoinHandle<Result<(), Error>>,
    disk: &SimDisk,
) -> (Result<(), Error>, SimDisk) {
    // However long the machine takes, it is not let go. The longer we look, the surer is it found if it were.
    for _ in 0..20 {
        let opened = open(disk).map(drop);
        assert!(matches!(opened, Err(Error::AlreadyOpen { .. })), "a write is under way: {opened:?}");
        sleep(Duration::from_millis(5));
    }
    assert!(!closing.is_finished(), "the close did not wait for a write");
    stall.end();
    let closed = within(60, "the close", || closing.join().unwrap());
    let env = open(disk).unwrap();
    env.transact(|txn| txn.bytes("t")?.put(b"k", b"acknowledged")).unwrap();
    (closed, disk.snapshot())
}

fn comes_back(disk: &SimDisk) -> Environment {
    let env = open(disk).unwrap();
    let found = env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap();
    assert_eq!(found.as_deref(), Some(&b"acknowledged"[..]));
    assert_sound(&env, "after the crash");
    env
}

#[test]
fn nobody_begins_while_another_closes() {
    let sim = SimDisk::new();
    let disk = StallDisk::on(sim.clone());
    let env = begun(&disk);
    let others = env.clone();
    let stall = disk.stall("control");
    let closing = close(env);
    stall.wait_until_met();
    let begun = others.begin().map(drop);
    assert!(matches!(&begun, Err(Error::Failed { why }) if why.contains("closed")), "{begun:?}");
    let put = others.transact(|txn| txn.bytes("t")?.put(b"k", b"lost"));
    assert!(matches!(put, Err(Error::Failed { .. })), "{put:?}");
    assert!(others.table_names().is_err() && others.verify().is_err());
    let (closed, left) = is_let_go_after(&stall, closing, &sim);
    closed.unwrap();
    comes_back(&left).close().unwrap();
}

/// A checkpoint behind that of the close would leave more to recover than nothing.
#[test]
fn nothing_is_written_behind_the_checkpoint_of_a_close_and_a_second_close_waits_for_the_first() {
    let sim = SimDisk::new();
    let disk = StallDisk::on(sim.clone());
    let env = begun(&disk);
    let stall = disk.stall("control");
    let (first, second) = (env.clone(), env.clone());
    let closing = close(first);
    stall.wait_until_met(); // It has the latch of checkpoints.
    let checkpoint = spawn({
        let env = env.clone();
        move || env.checkpoint()
    });
    let compaction = spawn(move || env.compact().map(drop));
    let second = spawn(move || {
        let closed = second.close();
        (closed, options().open_on(Arc::new(sim.clone())).map(|env| env.recovery_report().was_clean))
    });
    // They come to where they wait, or later: all is well then, too.
    sleep(Duration::from_millis(50));
    assert!(!second.is_finished(), "it answers before the environment is closed");
    stall.end();
    within(60, "all of them", move || {
        closing.join().unwrap().unwrap();
        let refused = [checkpoint.join().unwrap().map(drop), compaction.join().unwrap()];
        assert!(refused.iter().all(|refused| matches!(refused, Err(Error::Failed { .. }))), "{refused:?}");
        let (closed, opened) = second.join().unwrap();
        closed.unwrap();
        assert!(opened.unwrap(), "a checkpoint came behind that of the close");
    });
}

#[test]
fn who_may_not_close_keeps_nobody_from_beginning() {
    let env = begun(&StallDisk::on(SimDisk::new()));
    let others = env.clone();
    let txn = env.begin().unwrap();
    let tries = spawn(move || {
        for _ in 0..500 {
            let closed = others.clone().close();
            assert!(matches!(closed, Err(Error::TransactionsOpen { .. })), "{closed:?}");
        }
    });
    while !tries.is_finished() {
        env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap();
    }
    tries.join().unwrap();
    drop(txn);
    env.close().unwrap();
}

#[test]
fn who_is_refused_does_not_make_a_close_unclean() {
    let sim = SimDisk::new();
    let env = begun(&StallDisk::on(sim.clone()));
    let is_over = Arc::new(AtomicBool::new(false));
    let begin_all_the_time = || {
        let (env, is_over) = (env.clone(), Arc::clone(&is_over));
        spawn(move || {
            while !is_over.load(SeqCst) {
                drop(env.begin());
            }
        })
    };
    let others = [begin_all_the_time(), begin_all_the_time()];
    let closed = loop {
        match env.clone().close() {
            Err(Error::TransactionsOpen { .. }) => {} // One that waits for the decision does not count as open.
            closed => break closed,
        }
    };
    is_over.store(true, SeqCst);
    others.into_iter().for_each(|other| other.join().unwrap());
    closed.unwrap();
    assert!(open(&sim).unwrap().recovery_report().was_clean);
}

#[test]
fn a_decision_under_way_is_waited_for() {
    let sim = SimDisk::new();
    let disk = StallDisk::on(sim.clone());
    let env = begun(&disk);
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(b"prepared", b"v").unwrap();
    let prepared = txn.prepare(b"a decision").unwrap();
    let control = disk.stall("control"); // The last write of the close's checkpoint.
    let closing = close(env);
    control.wait_until_met();
    let log = disk.stall("log/");
    let deciding = spawn(move || prepared.commit());
    log.wait_until_met();
    control.end();
    let (closed, left) = is_let_go_after(&log, closing, &sim);
    closed.unwrap();
    // It is committed, or it could not be said.
    let decided = deciding.join().unwrap();
    assert!(matches!(decided, Ok(_) | Err(Error::Failed { .. })), "{decided:?}");
    let env = comes_back(&left);
    let found = env.transact(|txn| txn.bytes("t")?.get(b"prepared")).unwrap();
    assert_eq!((found.as_deref(), env.in_doubt().len()), (Some(&b"v"[..]), 0), "its record came to the log in time");
}

/// Fails the environment by a device that refuses to make the data file longer.
fn fail(env: &Environment, faulty: &FaultDisk) {
    faulty.add(Fault::at(Call::Allocate, 1, Harm::Fail(DiskErrorKind::Io(5))).on("data").from_then_on());
    let volatile = TransactionOptions { durability: Some(Durability::Volatile), ..TransactionOptions::default() };
    let mut count = 0u32;
    while env.transact_with(volatile, |txn| txn.bytes("u")?.put(count.to_be_bytes(), vec![1u8; 900])).is_ok() {
        count += 1;
        assert!(count < 100_000, "it does not fail");
    }
    assert!(env.is_failed());
}

/// Its lock may never come: the transaction that holds it can neither commit nor be rolled back.
#[test]
fn a_wait_for_a_lock_ends_when_the_environment_fails() {
    let faulty = FaultDisk::new(Arc::new(SimDisk::new()));
    let env = options().lock_timeout(Duration::from_secs(3600)).open_on(Arc::new(faulty.clone())).unwrap();
    env.transact(|txn| ["t", "u"].iter().try_for_each(|name| txn.create_table(name).map(drop))).unwrap();
    let holder = env.begin().unwrap();
    holder.bytes("t").unwrap().put(b"k", b"held").unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let txn = env.begin().unwrap();
            spawn(move || txn.bytes("t")?.get(b"k").map(drop))
        })
        .collect();
    wait_for(|| env.lock_waits().len() == 2);
    fail(&env, &faulty);
    within(60, "the waits", move || {
        for waiter in waiters {
            let waited = waiter.join().unwrap();
            assert!(matches!(waited, Err(Error::Failed { .. })), "{waited:?}");
        }
    });
    assert!(matches!(holder.commit(), Err(Error::Failed { .. })));
}

#[test]
fn a_failed_environment_is_not_let_go_before_a_log_write_has_ended() {
    let sim = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(sim.clone()));
    let disk = StallDisk::on(faulty.clone());
    let env = begun(&disk);
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(b"b", vec![7; 10_000]).unwrap();
    let log = disk.stall("log/");
    let committing = spawn(move || txn.commit_with(Durability::Sync));
    log.wait_until_met();
    fail(&env, &faulty);
    let (closed, left) = is_let_go_after(&log, close(env), &sim);
    assert!(matches!(closed, Err(Error::Failed { .. })), "{closed:?}");
    let committed = committing.join().unwrap();
    assert!(matches!(committed, Err(Error::Failed { .. })), "nobody knows: {committed:?}");
    comes_back(&left);
}

#[test]
fn a_failed_environment_is_not_let_go_before_a_page_write_has_ended() {
    let sim = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(sim.clone()));
    let disk = StallDisk::on(faulty.clone());
    let env = begun(&disk);
    env.transact(|txn| txn.bytes("t")?.put(b"k", b"second")).unwrap();
    let page = disk.stall("data");
    let checkpoints = env.clone();
    let writing = spawn(move || checkpoints.checkpoint());
    page.wait_until_met();
    faulty.add(Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::Io(5))).on("log").from_then_on());
    assert!(env.transact(|txn| txn.bytes("t")?.put(b"k", b"third")).is_err() && env.is_failed());
    let (closed, left) = is_let_go_after(&page, close(env), &sim);
    assert!(matches!(closed, Err(Error::Failed { .. })), "{closed:?}");
    assert!(writing.join().unwrap().is_err());
    comes_back(&left);
}

#[test]
fn a_close_gives_up_waiting_for_a_device_that_has_stalled_and_keeps_the_lock_until_it_answers() {
    let closes = || {
        let sim = SimDisk::new();
        let faulty = FaultDisk::new(Arc::new(sim.clone()));
        let disk = StallDisk::on(faulty.clone());
        let env = begun(&disk);
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(b"b", b"b").unwrap();
        let log = disk.stall("log/");
        let committing = sync::spawn("commit", move || txn.commit_with(Durability::Sync).map(drop));
        while !log.is_met.load(SeqCst) {
            sync::sleep_ns(1_000_000);
        }
        fail(&env, &faulty);
        let closed = env.close();
        let taken = open(&sim).map(drop);
        assert!(matches!(taken, Err(Error::AlreadyOpen { .. })), "{taken:?}");
        log.end();
        assert!(matches!(committing.join(), Ok(Err(Error::Failed { .. }))));
        open(&sim).unwrap().close().unwrap();
        closed
    };
    // In simulated time.
    let closed = Scheduler::run_within(1, 10_000_000, closes).unwrap();
    assert!(matches!(closed, Err(Error::WritesInFlight { count: 1 })), "{closed:?}");
}

#[test]
fn after_the_close_of_a_failed_environment_nothing_is_read_at_any_level() {
    for isolation in Isolation::ALL {
        let sim = SimDisk::new();
        let faulty = FaultDisk::new(Arc::new(sim.clone()));
        let env = begun(&StallDisk::on(faulty.clone()));
        let options = TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() };
        let txn = env.begin_with(options).unwrap();
        let t = txn.bytes("t").unwrap();
        let mut range = t.range(..).unwrap();
        fail(&env, &faulty);
        if isolation == Isolation::Serializable {
            assert_eq!(t.get(b"k").unwrap().as_deref(), Some(&b"first"[..]), "it is only failed");
        }
        assert!(matches!(env.close(), Err(Error::Failed { .. })));
        let found = t.get(b"k");
        assert!(matches!(found, Err(Error::Failed { .. })), "{isolation}: {found:?}");
        let next = range.next();
        assert!(matches!(next, Some(Err(Error::Failed { .. }))), "{isolation}: {next:?}");
    }
}

/// What a thread of the library's drops, and what came of a close there, if it is to close.
#[derive(Default)]
struct Last {
    env: Mutex<Option<Environment>>,
    closes: AtomicBool,
    closed: Mutex<Option<Result<(), Error>>>,
}

impl Last {
    fn goes(&self) {
        let env = self.env.lock().unwrap().take();
        if let Some(env) = env
            && self.closes.load(SeqCst)
        {
            *self.closed.lock().unwrap() = Some(env.close());
        }
    }

    fn has_gone(&self) -> bool {
        self.env.lock().unwrap().is_none() && (!self.closes.load(SeqCst) || self.closed.lock().unwrap().is_some())
    }
}

/// As a task of an executor that is gone: its waker is all that keeps it.
impl Wake for Last {
    fn wake(self: Arc<Self>) {
        self.goes();
    }
}

impl LogKeeper for Last {
    fn name(&self) -> String {
        "last".into()
    }
    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        Ok(None)
    }
    fn work_period(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
    fn work(&self) {
        self.goes();
    }
}

/// A thread of the library's cannot wait for its own end.
#[test]
fn the_last_handle_may_go_in_a_thread_of_the_librarys() {
    for (in_waker, closes) in [(true, false), (true, true), (false, false), (false, true)] {
        let what = format!("in a waker: {in_waker}, by a close: {closes}");
        let sim = SimDisk::new();
        let last = Arc::new(Last::default());
        last.closes.store(closes, SeqCst);
        let mut opening = options().durability(Durability::Pipelined);
        if !in_waker {
            let last = Arc::clone(&last);
            opening = opening.log_keeper(move |_| Ok(Arc::clone(&last) as Arc<dyn LogKeeper>));
        }
        let env = opening.open_on(Arc::new(sim.clone())).unwrap();
        env.transact(|txn| txn.create_table("t")?.put(b"k", b"acknowledged")).unwrap();
        let options = TransactionOptions { durability: Some(Durability::Volatile), ..TransactionOptions::default() };
        let (_, committed) = env.transact_ticket(options, |txn| txn.bytes("t")?.put(b"l", b"v")).unwrap();
        let mut ticket = committed.ticket;
        *last.env.lock().unwrap() = Some(env);
        if in_waker {
            let waker = Waker::from(Arc::clone(&last));
            let _ = pin!(&mut ticket).poll(&mut Context::from_waker(&waker));
        }
        wait_for(|| last.has_gone());
        if let Some(closed) = last.closed.lock().unwrap().take() {
            assert!(matches!(closed, Err(Error::Busy)), "{what}: {closed:?}");
        }
        // Somebody closes it all the same, and in order.
        let begun = Instant::now();
        let env = loop {
            match open(&sim) {
                Err(Error::AlreadyOpen { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                    sleep(Duration::from_millis(10));
                }
                opened => break opened.unwrap(),
            }
        };
        assert!(env.recovery_report().was_clean, "{what}");
        assert!(env.transact(|txn| txn.bytes("t")?.get(b"l")).unwrap().is_some(), "{what}");
    }
}

/// A keeper of the log that closes its environment while another thread closes it.
#[derive(Default)]
struct ClosesToo {
    env: Mutex<Option<Environment>>,
    is_closing: AtomicBool,
    has_thread: bool,
    closed: Mutex<Option<(Result<(), Error>, u64)>>,
}

impl LogKeeper for ClosesToo {
    fn name(&self) -> String {
        "closes too".into()
    }
    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        Ok(None)
    }
    fn work_period(&self) -> Option<Duration> {
        self.has_thread.then_some(Duration::from_millis(1))
    }
    fn work(&self) {
        if !self.is_closing.load(SeqCst) {
            return;
        }
        let env = self.env.lock().unwrap().take();
        let Some(env) = env else { return };
        sync::sleep_ns(1_000_000_000); // The other waits for this thread's end by now.
        let began_ns = sync::now_ns();
        let closed = env.close();
        *self.closed.lock().unwrap() = Some((closed, sync::now_ns() - began_ns));
    }
}

/// A close that waits for a thread of the library's does not have that thread wait for it.
#[test]
fn a_keeper_that_closes_beside_another_close_is_refused_at_once() {
    for (seed, has_thread) in [(0, true), (1, true), (2, true), (3, false)] {
        let what = format!("seed {seed}, in a thread of its own: {has_thread}");
        Scheduler::run(seed, || {
            let sim = SimDisk::new();
            let keeper = Arc::new(ClosesToo { has_thread, ..ClosesToo::default() });
            let opening = {
                let keeper = Arc::clone(&keeper);
                options().log_keeper(move |_| Ok(Arc::clone(&keeper) as Arc<dyn LogKeeper>))
            };
            let env = opening.open_on(Arc::new(sim.clone())).unwrap();
            env.transact(|txn| txn.create_table("t")?.put(b"k", b"v")).unwrap();
            *keeper.env.lock().unwrap() = Some(env.clone());
            keeper.is_closing.store(true, SeqCst);
            let began_ns = sync::now_ns();
            env.close().unwrap();
            let took_ns = sync::now_ns() - began_ns;
            let closed = keeper.closed.lock().unwrap().take();
            assert!(matches!(closed, Some((Err(Error::Busy), _))), "{what}: {closed:?}");
            assert!(took_ns < 5_000_000_000, "{what}: {took_ns} ns");
            let env = open(&sim).unwrap();
            assert!(env.recovery_report().was_clean, "{what}");
            env.close().unwrap();
        })
        .unwrap_or_else(|stuck| panic!("{what}: {stuck}"));
    }
}

/// As [`the_last_handle_may_go_in_a_thread_of_the_librarys`], under the simulator, which has threads of its own.
#[test]
fn the_last_handle_may_go_in_a_simulated_thread_of_the_librarys() {
    for (seed, closes) in [(0, false), (1, false), (2, true), (3, true)] {
        let what = format!("seed {seed}, by a close: {closes}");
        Scheduler::run(seed, || {
            let sim = SimDisk::new();
            let last = Arc::new(Last::default());
            last.closes.store(closes, SeqCst);
            let opening = {
                let last = Arc::clone(&last);
                options().log_keeper(move |_| Ok(Arc::clone(&last) as Arc<dyn LogKeeper>))
            };
            let env = opening.open_on(Arc::new(sim.clone())).unwrap();
            env.transact(|txn| txn.create_table("t")?.put(b"k", b"v")).unwrap();
            *last.env.lock().unwrap() = Some(env);
            while !last.has_gone() {
                sync::sleep_ns(1_000_000);
            }
            if let Some(closed) = last.closed.lock().unwrap().take() {
                assert!(matches!(closed, Err(Error::Busy)), "{what}: {closed:?}");
            }
            // Another thread closes it, in order and soon.
            let began_ns = sync::now_ns();
            let env = loop {
                match open(&sim) {
                    Err(Error::AlreadyOpen { .. }) => sync::sleep_ns(1_000_000),
                    opened => break opened.unwrap(),
                }
                assert!(sync::now_ns() - began_ns < 5_000_000_000, "{what}: it is not closed");
            };
            assert!(env.recovery_report().was_clean, "{what}");
            env.close().unwrap();
        })
        .unwrap_or_else(|stuck| panic!("{what}: {stuck}"));
    }
}

#[test]
fn an_opening_after_a_kill_answers_before_it_has_written_a_page() {
    let disk = SimDisk::new();
    let env = begun(&StallDisk::on(disk.clone()));
    env.transact(|txn| txn.bytes("t")?.put(b"k", b"acknowledged")).unwrap();
    let stalling = StallDisk::on(disk.after_kill());
    drop(env);
    let stalls = [stalling.stall("double_write"), stalling.stall("data")];
    let env = {
        let disk = stalling.clone();
        within(60, "the opening", move || options().open_on(Arc::new(disk)).unwrap())
    };
    let found = env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap();
    assert_eq!(found.as_deref(), Some(&b"acknowledged"[..]));
    env.transact(|txn| txn.bytes("t")?.put(b"k2", b"durable")).unwrap();
    assert_eq!(env.stat().unwrap().checkpoint_count, 0);
    // Its checkpoint comes behind it, without anybody asking.
    stalls.iter().for_each(|stall| stall.end());
    wait_for(|| env.stat().unwrap().checkpoint_count == 1);
    sync::sleep_ns(300_000_000);
    assert_eq!(env.stat().unwrap().checkpoint_count, 1, "it is taken once");
    env.close().unwrap();
}

/// As programs do that end soon, and without a close: none of them comes to the checkpoint behind its opening.
#[test]
fn an_opening_that_finds_the_log_of_many_takes_its_checkpoint_itself() {
    let options = || options().checkpoint_log_bytes(64 << 10);
    let disk = SimDisk::new();
    begun(&StallDisk::on(disk.clone())).close().unwrap();
    let mut disk = disk.after_kill();
    let mut record_counts = Vec::new();
    let mut waits_for_it = false;
    while !waits_for_it {
        let life = record_counts.len() as u64;
        assert!(life < 60, "each opening reads more log than the one before: {record_counts:?}");
        let stalling = StallDisk::on(disk.clone());
        let stalls = ["double_write", "data"].map(|path| stalling.stall(path));
        let progress = Arc::new(RecoveryProgress::default());
        let opening = spawn({
            let (stalling, progress) = (stalling.clone(), Arc::clone(&progress));
            move || options().recovery_progress(progress).open_on(Arc::new(stalling)).unwrap()
        });
        wait_for(|| opening.is_finished() || progress.phase() == RecoveryPhase::Checkpoint);
        waits_for_it = !opening.is_finished();
        if waits_for_it {
            stalls.iter().for_each(|stall| stall.end());
        }
        let env = opening.join().unwrap();
        assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), 1 + 8 * life);
        record_counts.push(env.recovery_report().record_count);
        let put = |txn: &Transaction| {
            let table = txn.bytes("t")?;
            (8 * life..8 * life + 8).try_for_each(|n| table.put(&n.to_be_bytes(), &[7; 2000]))
        };
        env.transact(put).unwrap();
        disk = disk.after_kill();
        stalls.iter().for_each(|stall| stall.end());
        drop(env);
    }
    let env = open(&disk).unwrap();
    let last = env.recovery_report().record_count;
    assert!(record_counts.len() > 5 && last < record_counts[5], "{last} after {record_counts:?}");
    env.close().unwrap();
}
