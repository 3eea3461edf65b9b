//! The environment: one directory, one engine, and everybody's handle to it.

mod background;
mod compact;
mod latched;
mod lock_wait;
mod locking;
pub(crate) mod open;
mod options;
pub(crate) mod rebuild;
mod recovery_progress;
mod stat;
mod verify;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use ledgerstone_disk::{Disk, DiskLock};
use ledgerstone_log::ControlFile;
use ledgerstone_page::{Layouts, Lsn, Xid};
use ledgerstone_recovery::RecoveryReport;
use ledgerstone_region::{Handle, Latch, sync};
use ledgerstone_space::Space;
use ledgerstone_structures::{ToFree, Tree};
use ledgerstone_txn::{Engine, Txn};
use parking_lot::Mutex;

pub use compact::{CompactOptions, CompactPhase, CompactProgress, CompactReport};
pub use lock_wait::LockWait;
pub use locking::Locking;
pub use options::{Durability, LogValues, Options, Replacement};
pub use recovery_progress::{RecoveryPhase, RecoveryProgress};
pub use stat::{IndexStat, LogPinStat, SnapshotStat, Stat};
pub use verify::{Problem, Skipped, VerifyProgress, VerifyReport};

use self::background::Bell;
use crate::catalog::{Definition, Entry, IndexEntry, Known, TableInfo};
use crate::config::Effective;
use crate::extend::Extensions;
use crate::feed::log_reader::nanoseconds;
use crate::feed::named::Feeds;
use crate::media::Archive;
use crate::table::index::{Extractors, IndexTree};
use crate::transaction::prepared::Undecided;
use crate::transaction::{EndedBy, set_out};
use crate::{Committed, Error, Isolation, Transaction, TransactionOptions};

/// Tries of [`Environment::transact`] before it gives a conflict back to its caller.
const TRY_COUNT_MAX: u32 = 200;
/// So many times the pauses between them double.
const PAUSE_GROWTH: u32 = 8;
/// How long it tries at least to get a lock that is not given in time.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// An open environment. Cheap to clone; closed in order when the last clone and transaction are gone.
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
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("disk", &self.inner.handles.env.disk.describe()).finish()
    }
}

/// Held once by all clones of a handle, and by each running transaction: when the last goes, the environment is closed. Background threads, tables
/// and iterators hold [`Inner`] only.
pub(crate) struct Handles {
    env: Arc<Inner>,
    threads: Mutex<Vec<sync::JoinHandle<()>>>,
}

/// Everything behind a handle.
pub(crate) struct Inner {
    pub(crate) disk: Arc<dyn Disk>,
    /// Held from open to close.
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) space: Arc<Space>,
    pub(crate) catalog: Tree,
    pub(crate) to_free: Arc<ToFree>,
    pub(crate) known: Known,
    /// Drops of tables that are under way (I3 in `isolation.rs`).
    pub(crate) drops: AtomicU64,
    pub(crate) in_doubt: Undecided,
    pub(crate) extensions: Extensions,
    pub(crate) extractors: Extractors,
    /// Of users' pages.
    pub(crate) layouts: Layouts,
    pub(crate) effective: Effective,
    pub(crate) durability: Durability,
    pub(crate) is_read_only: bool,
    pub(crate) report: RecoveryReport,
    /// Held by whoever takes a checkpoint; a latch, because it waits for the disk.
    pub(crate) checkpoint_latch: Handle<[Latch]>,
    /// Held for the length of a compaction: taken before all other latches.
    pub(crate) compact_latch: Handle<[Latch]>,
    /// Held by whoever copies to the archive.
    pub(crate) archive_latch: Handle<[Latch]>,
    /// Checkpoints are named there, and by the log its newest segment.
    pub(crate) control: Arc<ControlFile>,
    pub(crate) last_checkpoint: AtomicU64,
    pub(crate) checkpoint_count: AtomicU64,
    /// A restore has made it, and it has not taken a checkpoint since (R1 in `restore.rs`).
    pub(crate) is_restored: AtomicBool,
    pub(crate) archive: Option<Archive>,
    pub(crate) feeds: Feeds,
    pub(crate) bell: Bell,
    pub(crate) is_closed: AtomicBool,
}

impl Environment {
    /// Settings to open an environment with.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn open_with(options: &Options, disk: Arc<dyn Disk>) -> Result<Environment, Error> {
        let env = Arc::new(open::open(options, disk)?);
        let mut threads = Vec::new();
        if options.has_background_threads {
            env.engine.log.start_flusher();
            env.engine.cache.start_writer();
            let keeper = Arc::clone(&env);
            threads.push(sync::spawn("housekeeper", move || background::keep_house(&keeper)));
            if env.archive.is_some() {
                let env = Arc::clone(&env);
                threads.push(sync::spawn("archiver", move || background::keep_archive(&env)));
            }
            if let period_ms @ 1.. = env.effective.deadlock_period_ms {
                let (env, period_ns) = (Arc::clone(&env), period_ms.saturating_mul(1_000_000));
                threads.push(sync::spawn("detector", move || background::detect_deadlocks(&env, period_ns)));
            }
            env.nudge_reclaim(); // What a crash left over.
        }
        let handles = Arc::new(Handles { env, threads: Mutex::new(threads) });
        Ok(Environment { inner: Arc::new(Clones { handles }) })
    }

    /// Begins a transaction with the environment's settings.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::TooManyTransactions`].
    pub fn begin(&self) -> Result<Transaction, Error> {
        self.begin_with(TransactionOptions::default())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Environment::begin`].
    pub fn begin_with(&self, options: TransactionOptions) -> Result<Transaction, Error> {
        self.begin_aged(options, Xid::NONE, true)
    }

    /// With `sets_out` off, [`Transaction::wait_and_set_out`] comes next.
    fn begin_aged(&self, options: TransactionOptions, age: Xid, sets_out: bool) -> Result<Transaction, Error> {
        let env = &self.inner.handles.env;
        let mut txn = Box::new(env.engine.begin_aged(age)?);
        if let Some(timeout) = options.lock_timeout {
            txn.set_lock_timeout_ns(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        }
        if sets_out {
            set_out(&mut txn, options.isolation.unwrap_or_default())?;
        }
        Ok(Transaction::new(Arc::clone(env), txn, options, Arc::clone(&self.inner.handles)))
    }

    /// Begins a transaction for reading only, at a snapshot of all that is committed: it takes no locks, waits for nobody and
    /// keeps nobody waiting.
    ///
    /// What it sees is kept for it in memory ([`Options::version_store_bytes`]): read and close it soon, or it becomes too old.
    ///
    /// # Errors
    /// As [`Environment::begin`]; [`Error::TooManySnapshots`].
    pub fn snapshot(&self) -> Result<Transaction, Error> {
        let isolation = Some(Isolation::Snapshot);
        self.begin_with(TransactionOptions { isolation, read_only: true, ..TransactionOptions::default() })
    }

    /// Runs `f` in a transaction and commits it. A transaction that meets a conflict is run again, with growing pauses. After a
    /// deadlock it first waits until it could have the lock, no longer than for any lock: whoever stood in its way would do
    /// so again. It does the same for a lock that was refused to avoid deadlocks, once the pauses have grown.
    ///
    /// If `f` fails or panics, the transaction is rolled back. It is run again if a call in it met a conflict
    /// ([`Error::is_retryable`]), whatever error `f` made of that, and also if it made none of a conflict that has rolled the
    /// transaction back; let it change nothing else.
    /// A repeated transaction keeps its age, so that it wins against younger ones in the end.
    ///
    /// `f` may give up with a reason of its own: [`Error::user`]. With an error type of your own, use
    /// [`Environment::try_transact`]. To learn when a commit is durable, use [`Environment::transact_ticket`].
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use ledgerstone::{Error, TableDef};
    ///
    /// const ACCOUNTS: TableDef<u64, u64> = TableDef::new("accounts");
    ///
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let paid = env.transact(|txn| {
    ///     let accounts = txn.open(ACCOUNTS)?;
    ///     let balance = accounts.get(&1)?.unwrap_or(0);
    ///     let rest = balance.checked_sub(30).ok_or_else(|| Error::user("not enough money"))?;
    ///     accounts.put(&1, &rest)?;
    ///     Ok(())
    /// });
    /// assert_eq!(paid.unwrap_err().to_string(), "not enough money");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Blocking
    /// May wait for locks, for pages to be read, for room in the log, and between tries. With
    /// [`Durability::Sync`](crate::Durability::Sync) it also waits until the commit is durable.
    ///
    /// # Errors
    /// What `f` returns; a conflict that has been met 200 times; a lock that was not given although three times its
    /// timeout, and a second, have gone by: who holds it does not end, a transaction in doubt perhaps; a failed commit.
    pub fn transact<T>(&self, f: impl FnMut(&Transaction) -> Result<T, Error>) -> Result<T, Error> {
        self.try_transact(f)
    }

    /// As [`Environment::transact`], with options.
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn transact_with<T>(
        &self,
        options: TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_transact_with(options, f)
    }

    /// As [`Environment::transact_with`], and says where the commit lies in the log and when it is durable.
    ///
    /// With [`Durability::Pipelined`](crate::Durability::Pipelined) and [`Durability::Async`](crate::Durability::Async) this
    /// returns before the commit is durable. Pass the result on when the [`Ticket`](crate::Ticket) says that it is: wait for
    /// the ticket, poll it, or await it in any async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use ledgerstone::{Durability, TableDef, TransactionOptions};
    ///
    /// const JOBS: TableDef<u64, String> = TableDef::new("jobs");
    ///
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let options = TransactionOptions { durability: Some(Durability::Pipelined), ..Default::default() };
    /// let (id, committed) = env.transact_ticket(options, |txn| {
    ///     txn.open(JOBS)?.put(&7, &"print".to_string())?;
    ///     Ok(7)
    /// })?;
    /// committed.ticket.wait()?; // In async code: `committed.ticket.await?`.
    /// println!("job {id} is durable");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Blocking
    /// As [`Environment::transact`]: async code calls it in a thread where it may block, such as tokio's `spawn_blocking`.
    /// Awaiting the ticket never blocks.
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn transact_ticket<T>(
        &self,
        options: TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, Error>,
    ) -> Result<(T, Committed), Error> {
        self.try_transact_ticket(options, f)
    }

    /// As [`Environment::transact`], for closures that fail with a program's own error type.
    ///
    /// ```
    /// # fn main() -> Result<(), ledgerstone::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// #[derive(Debug)]
    /// enum Broke {
    ///     NoMoney { missing: u64 },
    ///     Store(ledgerstone::Error),
    /// }
    ///
    /// impl From<ledgerstone::Error> for Broke {
    ///     fn from(error: ledgerstone::Error) -> Broke {
    ///         Broke::Store(error)
    ///     }
    /// }
    ///
    /// const ACCOUNTS: ledgerstone::TableDef<u64, u64> = ledgerstone::TableDef::new("accounts");
    ///
    /// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
    /// let paid = env.try_transact(|txn| {
    ///     let balance = txn.open(ACCOUNTS)?.get(&1)?.unwrap_or(0);
    ///     if balance < 30 {
    ///         return Err(Broke::NoMoney { missing: 30 - balance });
    ///     }
    ///     Ok(())
    /// });
    /// assert!(matches!(paid, Err(Broke::NoMoney { missing: 30 })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn try_transact<T, E: From<Error>>(&self, f: impl FnMut(&Transaction) -> Result<T, E>) -> Result<T, E> {
        self.try_transact_with(TransactionOptions::default(), f)
    }

    /// As [`Environment::try_transact`], with options.
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn try_transact_with<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.try_transact_ticket(options, f).map(|(value, _)| value)
    }

    /// As [`Environment::transact_ticket`], for closures that fail with a program's own error type.
    ///
    /// # Errors
    /// As [`Environment::transact`].
    pub fn try_transact_ticket<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        mut f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let (mut tries, mut age, mut awaited) = (0, Xid::NONE, None);
        let timeout = options.lock_timeout.unwrap_or(Duration::from_millis(self.effective().lock_timeout_ms));
        let patience = timeout.saturating_mul(3).max(PATIENCE_MIN);
        let give_up_ns = sync::now_ns().saturating_add(nanoseconds(patience));
        loop {
            let mut txn = self.begin_aged(options, age, awaited.is_none())?;
            let xid = txn.xid();
            if age == Xid::NONE {
                age = xid;
            }
            let done = match awaited {
                None => Ok(()),
                Some((name, mode)) => txn.wait_and_set_out(name, mode).map_err(E::from),
            };
            let inside = txn.shared.users_code();
            let done = done.and_then(|()| f(&txn));
            drop(inside);
            // What was not ended by a conflict now, in another thread perhaps, will not be.
            let done = done.and_then(|value| Ok((value, txn.end_unless_ended()?)));
            let ended_by = txn.ended_by();
            // A refused lock is often free after a pause, and whoever waits for it keeps younger ones out where they avoid deadlocks.
            let has_to_wait = |by: &&EndedBy| tries >= PAUSE_GROWTH || matches!(by.conflict, Error::Deadlock { .. });
            awaited = ended_by.as_ref().filter(has_to_wait).and_then(|by| by.awaited);
            let error = match (done, ended_by) {
                (Ok((value, Some(running))), _) => {
                    // Deadlock and time-out come before: a commit waits for nothing but the log.
                    return Ok((value, txn.commit_ended(running, txn.durability())?));
                }
                // `f` made nothing of a conflict that has rolled its transaction back: what it did is gone.
                (Ok((_, None)), Some(ended_by)) => ended_by.conflict.into(),
                (Ok((_, None)), None) => Error::Finished.into(),
                (Err(error), _) => error,
            };
            let (had_conflict, had_timeout) = (txn.had_conflict(), txn.had_timeout());
            drop(txn); // Rolled back before the pause.
            tries += 1;
            if !had_conflict || tries == TRY_COUNT_MAX || had_timeout && sync::now_ns() >= give_up_ns {
                return Err(error);
            }
            pause(tries, xid);
        }
    }

    /// Takes a checkpoint: a restart will begin about here. Runs beside everything else.
    ///
    /// # Errors
    /// A page or the log cannot be written.
    pub fn checkpoint(&self) -> Result<Lsn, Error> {
        let env = &self.inner.handles.env;
        env.archive_full_segments(); // So that it can give them up.
        env.checkpoint(false)
    }

    /// The names of all tables that are committed now, sorted, without users' structures. Waits for nobody, whoever makes or
    /// drops tables; [`Transaction::table_names`] sees what its transaction sees, and locks the list if that is serializable.
    ///
    /// # Errors
    /// [`Error::TooManySnapshots`], [`Error::SnapshotTooOld`]; damage.
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

    /// Makes every commit durable that had its place before, whatever its durability. One flush of the log at most, and none if
    /// all of it is durable.
    ///
    /// # Errors
    /// [`Error::Failed`] if the log cannot be written; reopening tells which commits were kept.
    pub fn sync(&self) -> Result<(), Error> {
        let engine = &self.inner.handles.env.engine;
        engine.check()?;
        if engine.log.has_news() {
            engine.log.flush()?;
        }
        Ok(())
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

    /// Frees now what dropped tables and replaced values have left behind. Done in the background anyway.
    ///
    /// # Errors
    /// A page or the log cannot be read or written.
    pub fn reclaim(&self) -> Result<(), Error> {
        let env = &self.inner.handles.env;
        if !env.is_read_only {
            env.engine.check()?;
        }
        env.reclaim(&|| true).map(drop)
    }

    /// True once the environment has failed: every call says so until it is opened again.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.inner.handles.env.engine.is_failed()
    }

    /// Closes in order: everything is written, so that the next open needs no recovery. Prepared transactions stay in doubt;
    /// the next open finds them in the log.
    ///
    /// # Errors
    /// [`Error::TransactionsOpen`]; [`Error::Forked`]; a page, the log or the control file cannot be written (the next open recovers).
    pub fn close(self) -> Result<(), Error> {
        let handles = &self.inner.handles;
        handles.env.engine.check_process()?;
        // One is ours, each of the others a transaction's. The library's own transactions hold none.
        let count = u32::try_from(Arc::strong_count(handles) - 1).unwrap_or(u32::MAX);
        if count > 0 && !self.is_failed() {
            return Err(Error::TransactionsOpen { count });
        }
        handles.shut_down()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner.handles.env
    }
}

/// Waits a little, longer from try to try, and differently for each transaction, so that rivals do not meet again.
fn pause(tries: u32, xid: Xid) {
    let step_ns = 20_000 << tries.min(PAUSE_GROWTH);
    sync::sleep_ns(xid.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) % step_ns);
}

impl Handles {
    fn shut_down(&self) -> Result<(), Error> {
        if self.env.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        self.env.bell.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        let mut result = Ok(());
        for thread in threads {
            if thread.join().is_err() {
                result = Err(Error::Panicked("housekeeper"));
            }
        }
        self.env.engine.cache.stop_writer();
        if let Err(error) = self.env.engine.check() {
            // Nothing can be written any more; what was acknowledged as durable is, and the next open recovers.
            result = result.and(Err(error.into()));
        } else if !self.env.is_read_only && result.is_ok() {
            let is_clean = self.env.engine.table.active_count() == 0;
            self.env.archive_full_segments();
            result = self.env.checkpoint(is_clean).map(|_| ());
        }
        self.env.engine.log.stop_flusher();
        self.env.engine.clear_undos();
        // Tables and iterators that outlive this handle touch nothing any more; others may open the environment.
        self.env.engine.fail("the environment was closed");
        self.env.in_doubt.clear();
        // A checkpoint of another thread may be writing, and has the lock in its hands while it looks at it.
        let latched = self.env.latch(&self.env.checkpoint_latch[0]);
        self.env.lock.lock().take();
        drop(latched);
        result
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        if self.env.engine.is_inherited() {
            // Everything below is kept for good: the threads are not here, and the lock file, once closed, would take a lock
            // with it that this process may have taken since.
            std::mem::forget(Arc::clone(&self.env));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        // Whatever fails here is found and mended by the next open.
        let _ = self.shut_down();
    }
}

impl Inner {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn catalog(&self) -> &Tree {
        &self.catalog
    }

    pub(crate) fn to_free(&self) -> &ToFree {
        &self.to_free
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn table_info(&self, name: &str, definition: impl Into<Definition>) -> Arc<TableInfo> {
        let Definition { entry, types, indexes } = definition.into();
        let tree = self.tree(entry).logging_whole_values(self.effective.log_values == crate::LogValues::Whole);
        let index = |index: IndexEntry| {
            let tree = self.tree(index.entry);
            IndexTree::new(index, tree, &types, &self.extractors)
        };
        let indexes = indexes.into_iter().map(index).collect();
        TableInfo::new(name, entry, tree, types, indexes)
    }

    fn tree(&self, entry: Entry) -> Tree {
        Tree::new(&self.engine, &self.space, &self.to_free, entry.table, entry.root)
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.is_read_only {
            return Err(Error::read_only("the environment was opened for reading only"));
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    pub(crate) fn nudge_reclaim(&self) {
        self.bell.reclaim();
    }

    pub(crate) fn begin(&self) -> Result<Txn, Error> {
        Ok(self.engine.begin()?)
    }

    /// Frees what can be freed, with checkpoints in between as the log grows, until `goes_on` says no. Says whether anything was freed.
    pub(crate) fn reclaim(&self, goes_on: &dyn Fn() -> bool) -> Result<bool, Error> {
        if self.is_read_only {
            return Ok(false);
        }
        self.engine.thread()?;
        self.to_free.make_durable()?; // What is deleted and not durable yet would stay, and be looked at in vain.
        let mut refused = None;
        let mut between = || {
            refused = self.checkpoint_if_due().err();
            refused.is_none() && goes_on()
        };
        let freed = self.to_free.reclaim_in_turns(&mut between).map_err(|error| self.say_failed(error.into()));
        match refused {
            Some(error) => Err(error),
            None => freed,
        }
    }

    /// Takes a checkpoint if there is as much log since the last one as the settings say.
    pub(crate) fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.log_since_checkpoint() >= self.effective.checkpoint_log_bytes {
            self.checkpoint(false)?;
        }
        Ok(())
    }

    /// What a reclaimer that found all of it held looks at, to see whether that may have changed: the oldest snapshot, or how much
    /// log there is without one, and how many transactions run.
    pub(crate) fn holders(&self) -> (Lsn, u32) {
        (self.engine.versions.oldest_snapshot(), self.engine.table.active_count())
    }

    /// Space that was refused where it was promised, under a page that has its place, has failed the environment: it is
    /// no reason to go on.
    pub(crate) fn say_failed(&self, error: Error) -> Error {
        match error {
            Error::ReadOnly { .. } if self.engine.is_failed() => Error::Failed { why: self.engine.why_failed() },
            other => other,
        }
    }

    pub(crate) fn log_since_checkpoint(&self) -> u64 {
        self.engine.log.tail().0.saturating_sub(self.last_checkpoint.load(Acquire))
    }

    /// Takes the lock again if somebody has removed or replaced its file. If that has let another in, the environment fails:
    /// also if the other is gone, since what it has committed would be written over. Called with the latch of checkpoints held.
    fn keep_lock(&self) -> Result<(), Error> {
        // Held all the while: a close waits for it, and does not find the lock's place empty.
        let mut place = self.lock.lock();
        let Some(held) = &mut *place else { return Ok(()) };
        let mut kept = Ok(());
        if held.is_in_place().is_ok_and(|is_in_place| !is_in_place) {
            match self.disk.lock(open::LOCK) {
                Ok(again) => {
                    *held = again;
                    if !matches!(self.control.is_as_we_left_it(), Ok(true)) {
                        self.engine
                            .fail("its lock file was replaced, and another process may have changed the environment");
                        kept = Err(Error::Failed { why: self.engine.why_failed() });
                    }
                }
                Err(error) => {
                    self.engine.fail("its lock file was replaced, and another process has the environment open");
                    kept = Err(error.into());
                }
            }
        }
        kept
    }

    pub(crate) fn checkpoint(&self, is_clean: bool) -> Result<Lsn, Error> {
        self.check_writable()?;
        let latched = self.latch(&self.checkpoint_latch[0])?;
        self.engine.check()?; // It may have been closed, and be another's.
        self.keep_lock()?;
        let taken = ledgerstone_recovery::checkpoint(&self.engine, &self.control, is_clean);
        if let Ok(taken) = &taken {
            self.last_checkpoint.store(taken.lsn.0, Release);
            self.checkpoint_count.fetch_add(1, Relaxed);
        }
        let ended = if taken.is_ok() { self.end_restore() } else { Ok(()) };
        drop(latched);
        let taken = taken.map_err(|error| {
            if !error.is_no_space() {
                self.engine.fail(&format!("checkpoint: {error}"));
            }
            self.say_failed(error.into())
        })?;
        ended.map(|()| taken.lsn)
    }

    /// The log has a checkpoint of this life now: a control file that is made anew from it is of this life, too. What fails here
    /// is tried again by the next checkpoint, which has the latch as this one has.
    fn end_restore(&self) -> Result<(), Error> {
        if self.is_restored.load(Relaxed) {
            if self.disk.exists(open::RESTORE)? {
                self.disk.remove(open::RESTORE)?;
            }
            self.disk.sync_dir("")?;
            self.is_restored.store(false, Relaxed);
        }
        Ok(())
    }
}
