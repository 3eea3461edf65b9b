//! The environment: one directory, one engine, and everybody's handle to it.

mod background;
mod compact;
mod device;
#[cfg(feature = "feed")]
mod feed;
mod in_doubt;
mod lock_wait;
mod locking;
#[cfg(feature = "media")]
mod media;
pub(crate) mod open;
mod processes;
pub(crate) mod rebuild;
mod repair;
mod rolling_back;
mod shared;
mod stat;
mod transact;
mod verify;
#[cfg(feature = "deaths")]
mod view;

use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_page::Lsn;
use ledgerstone_recovery::RecoveryReport;
use ledgerstone_region::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use ledgerstone_region::{PerSlot, Share, SlotNo, sync};

pub use compact::{CompactPhase, CompactProgress, CompactReport};
pub use lock_wait::LockWait;
pub use processes::ProcessStat;
pub use stat::{IndexStat, LogPinStat, SnapshotStat, Stat};
pub use verify::{Problem, Skipped, VerifyProgress, VerifyReport};

use crate::catalog::Entry;
use crate::config::{Effective, Options};
use crate::inner::{Handles, Inner};
use crate::transaction::Seat;
use crate::{EnvTable, Error, Key, TableDef, Transaction, TypedEnvTable, Value};

/// An open environment. It is cheap to clone. It is closed in order when the last clone and the last transaction are
/// gone. If a waker or a keeper of the log drops the last one, that happens in another thread, a little later.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir)?;
/// env.transact(|txn| {
///     let fruit = txn.bytes_or_create("fruit")?;
///     fruit.put(b"apple", b"red")?;
///     fruit.put(b"pear", b"green")
/// })?;
/// let colour = env.transact(|txn| txn.bytes("fruit")?.get(b"pear"))?;
/// assert_eq!(colour.as_deref(), Some(&b"green"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Environment {
    inner: Arc<Clones>,
}

/// What the clones of a handle share.
struct Clones {
    handles: Arc<Handles>,
    /// What transactions hold, by the slot of the thread that begins them. A thread that begins many writes no line
    /// for it that others write. They go with the clones: then only the transactions that run keep the environment
    /// open.
    seats: PerSlot<Share<Seat>>,
}

impl Clones {
    fn of(handles: Arc<Handles>) -> Clones {
        let seats = PerSlot::new(handles.env.engine.slots.count());
        Clones { handles, seats }
    }

    /// That of a thread slot, which its first transaction makes. A thread that comes to the slot later uses it, too.
    fn seat(&self, slot: SlotNo) -> &Share<Seat> {
        self.seats.get_or_make(slot, || Share::new(Arc::new(Seat::new(&self.handles, slot))))
    }

    /// How many transactions there are, of all threads.
    fn transaction_count(&self) -> u32 {
        let count = self.seats.iter().map(|seat| seat.count() - 1).sum::<usize>(); // One is ours.
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// Starts a thread of the library's. When this returns, the thread has its slot, if there is one. The program's threads
/// may be as many as there are slots and stay for ever, and they come behind it.
fn start(env: &Arc<Inner>, name: &str, work: impl FnOnce(&Arc<Inner>) + Send + 'static) -> sync::JoinHandle<()> {
    let env = Arc::clone(env);
    start_with(name, move || {
        let _ = env.engine.thread(); // Without one it asks again whenever it works.
        move || {
            let _guard = env.engine.slots.guard_thread();
            work(&env);
        }
    })
}

/// An environment whose threads are being started. If that does not come to its end, those that run end, and it is let
/// go.
struct Starting {
    env: Option<Arc<Inner>>,
    threads: Vec<sync::JoinHandle<()>>,
}

impl Starting {
    fn succeeded(mut self) -> Vec<sync::JoinHandle<()>> {
        self.env = None;
        std::mem::take(&mut self.threads)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(env) = self.env.take() {
            if env.sharing.is_none() {
                env.engine.fail("it could not be opened to the end"); // So nothing is written as it closes.
            }
            drop(Handles::of(env, std::mem::take(&mut self.threads)));
        }
    }
}

/// Starts the threads that repeat what the opening has left (O10 in `open/mod.rs`).
fn redo_threads(env: &Arc<Inner>) -> Vec<sync::JoinHandle<()>> {
    let pending = env.pending.lock().take();
    let Some(pending) = pending else { return Vec::new() };
    let one = |no| {
        let pending = Arc::clone(&pending);
        start(env, "redo", move |_| pending.work(no))
    };
    (0..pending.worker_count()).map(one).collect()
}

/// Starts a thread that does `first`, and then what that returns. Waits until `first` has ended, by a panic perhaps.
fn start_with<W: FnOnce()>(name: &str, first: impl FnOnce() -> W + Send + 'static) -> sync::JoinHandle<()> {
    let has_ended = Arc::new(AtomicU32::new(0));
    let ended = Ended(Arc::clone(&has_ended));
    let thread = sync::spawn(name, move || {
        let work = first();
        drop(ended);
        work();
    });
    while has_ended.load(Acquire) == 0 {
        sync::futex_wait(&has_ended, 0, None);
    }
    thread
}

/// Dropped when a thread has done what its starter waits for, and when it has died before.
struct Ended(Arc<AtomicU32>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(1, Release);
        sync::futex_wake(&self.0, 1);
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("disk", &self.inner.handles.env.disk.describe()).finish()
    }
}

impl Environment {
    /// Settings to open an environment with, each with its default. [`Options::open`] opens it.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn open_with(options: &Options, disk: Arc<dyn Disk>) -> Result<Environment, Error> {
        let env = Arc::new(open::open(options, disk)?);
        env.mend_after_panics();
        let mut starting = Starting { env: Some(Arc::clone(&env)), threads: Vec::new() };
        let threads = &mut starting.threads;
        if let Some(shares) = &env.sharing {
            if options.has_background_threads {
                if shares.take_lead() {
                    env.lead(shares)?;
                }
                threads.push(start(&env, "looks for the dead", |env| {
                    env.sharing.iter().for_each(|shares| env.look_for_the_dead(shares));
                }));
            }
        } else if options.has_background_threads {
            env.engine.log.start_flusher()?;
            env.engine.cache.start_writer();
            open::allow_readers(&env.engine.cache, &env.effective);
            // First: what it keeps from others is theirs as soon as it has ended.
            if env.rollbacks.put_off_count() > 0 {
                threads.push(start(&env, "rollback", |env| env.roll_back_put_off()));
            }
            threads.extend(redo_threads(&env));
            threads.push(start(&env, "housekeeper", background::keep_house));
            for (no, worker) in env.workers.all().iter().enumerate() {
                if let Some(period) = worker.work_period() {
                    let period_ns = sync::nanoseconds(period);
                    threads.push(start(&env, "keeper", move |env| background::keep_log(env, no, period_ns)));
                }
            }
            if let period_ms @ 1.. = env.effective.deadlock_period_ms {
                let period_ns = period_ms.saturating_mul(1_000_000);
                threads.push(start(&env, "detector", move |env| background::detect_deadlocks(env, period_ns)));
            }
            env.nudge_reclaim(); // What a crash left over.
        }
        let threads = starting.succeeded();
        let handles = Arc::new(Handles::of(env, threads));
        Ok(Environment { inner: Arc::new(Clones::of(handles)) })
    }

    /// Takes a checkpoint: a restart will begin about here. Everything else goes on meanwhile.
    ///
    /// # Blocking
    /// Waits until the pages that were changed before are written, and until another checkpoint that runs has ended.
    ///
    /// # Errors
    /// A page or the log cannot be written.
    pub fn checkpoint(&self) -> Result<Lsn, Error> {
        let env = &self.inner.handles.env;
        env.engine.in_a_call(|| {
            env.work_for_keepers(); // So that it can give log up.
            env.checkpoint()
        })
    }

    /// The names of all tables that are committed now, sorted, without users' structures. Never waits for transactions
    /// that make or drop tables. [`Transaction::table_names`](crate::Transaction::table_names) shows what its
    /// transaction sees, and locks the list if the transaction is serializable.
    ///
    /// May wait for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::TooManySnapshots`], [`Error::SnapshotTooOld`], damage.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        self.inner().each_in_catalog(|name, value| {
            if Entry::structure_of(value).is_none() {
                names.push(name.to_string());
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// Opens a table of byte strings for all transactions, on all threads.
    ///
    /// May wait for locks, for pages, and for a flush of the log if the table was made just now: see
    /// [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], conflicts.
    pub fn table(&self, name: &str) -> Result<EnvTable, Error> {
        self.transact(|txn| EnvTable::open(txn, name, |_| Ok(())))
    }

    /// Opens a table of byte strings for all transactions, on all threads, and makes it if it is missing.
    ///
    /// May wait for locks, for pages, for room in the log, and for a flush of the log if the table was made just now:
    /// see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the table is missing in an environment for reading. [`Error::BadTableName`], conflicts,
    /// no space.
    pub fn table_or_create(&self, name: &str) -> Result<EnvTable, Error> {
        self.opened_or_made(|| self.table(name), |txn| txn.bytes_or_create(name).map(drop))
    }

    /// Opens a typed table for all transactions, on all threads, and makes it if it is missing, as
    /// [`Transaction::open`](crate::Transaction::open) does.
    ///
    /// May wait for locks, for pages, for room in the log, and for a flush of the log if the table was made just now:
    /// see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Transaction::open`](crate::Transaction::open).
    pub fn typed_table<K: Key, V: Value>(&self, definition: TableDef<'_, K, V>) -> Result<TypedEnvTable<K, V>, Error> {
        let open = || self.transact(|txn| TypedEnvTable::open(txn, definition));
        self.opened_or_made(open, |txn| txn.open(definition).map(drop))
    }

    /// A table that was made is opened by a later transaction: a snapshot from between does not show it.
    fn opened_or_made<T>(
        &self,
        open: impl Fn() -> Result<T, Error>,
        make: impl Fn(&Transaction) -> Result<(), Error>,
    ) -> Result<T, Error> {
        loop {
            match open() {
                Err(Error::NoSuchTable(_)) => self.transact(&make)?, // Others may drop it again.
                opened => return opened,
            }
        }
    }

    /// Makes every earlier commit durable, whatever its durability. Takes at most one flush of the log, and none if all
    /// of it is durable.
    ///
    /// # Blocking
    /// Waits for that flush.
    ///
    /// # Errors
    /// [`Error::Failed`] if the log cannot be written. Reopening tells which commits were kept.
    /// [`Error::TooManyThreads`].
    pub fn sync(&self) -> Result<(), Error> {
        let engine = &self.inner.handles.env.engine;
        engine.check()?;
        if engine.log.has_news() {
            engine.in_a_call(|| engine.log.flush())?;
        }
        Ok(())
    }

    /// The log is durable up to here. A crash now would keep all commits below this LSN, and perhaps later ones.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.inner().engine.log.durable_lsn()
    }

    /// What recovery did when the environment was opened.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.handles.env.report
    }

    /// The settings in force.
    #[must_use]
    pub fn effective(&self) -> &Effective {
        &self.inner.handles.env.effective
    }

    /// Frees the pages of dropped tables and replaced values now. Otherwise a background thread frees them soon.
    ///
    /// May wait for locks, for pages and for room in the log: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A page or the log cannot be read or written.
    pub fn reclaim(&self) -> Result<(), Error> {
        let env = &self.inner.handles.env;
        if !env.is_read_only {
            env.engine.check()?;
        }
        env.engine.in_a_call(|| env.reclaim(&|| true).map(drop))
    }

    /// True once the environment has failed: every call says so until it is opened again.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.inner.handles.env.engine.is_failed()
    }

    /// Closes in order: everything is written, so that the next open needs no recovery. Prepared transactions stay in
    /// doubt, and the next open finds them in the log.
    ///
    /// Once it has been decided to close, no transaction begins any more, on any clone. The lock of the environment is
    /// given back when the writes of other threads have ended.
    ///
    /// # Blocking
    /// Waits until everything is written. For the writes of other threads, or for the end of another clone's close, it
    /// waits a minute at most.
    ///
    /// # Errors
    /// [`Error::TransactionsOpen`], [`Error::Forked`]. [`Error::WritesInFlight`] if the device has stalled. If a page,
    /// the log or the control file cannot be written, the next open recovers. [`Error::Failed`]: the close of another
    /// clone has met one of these. [`Error::Busy`]: the close of another clone has not ended for a minute, or a
    /// waker or a keeper of the log calls this. They run in threads of the environment's own.
    pub fn close(self) -> Result<(), Error> {
        let handles = &self.inner.handles;
        handles.env.engine.check_process()?;
        if handles.is_own_thread() {
            return Err(Error::Busy); // It would wait for its own end.
        }
        // A transaction counts itself before it begins. Those that wait to hear whether they may are not open. The
        // library's own do not count themselves.
        let mut count = 0;
        let may_close = handles.env.engine.end_begins(|waiting| {
            count = self.inner.transaction_count().saturating_sub(waiting);
            count == 0 || self.is_failed()
        });
        if !may_close {
            return Err(Error::TransactionsOpen { count });
        }
        #[cfg(feature = "deaths")]
        self.end_orphans_before_close();
        handles.shut_down()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner.handles.env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_dies_at_once_keeps_nobody_waiting() {
        let thread = start_with("dies", || -> fn() { panic!("before anybody was told") });
        assert!(thread.join().is_err());
    }
}
