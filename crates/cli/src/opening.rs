//! An environment is opened. After a crash that recovers, which may take long: a bar shows how far it is, and Ctrl-C
//! ends it.
//!
//! N1. The shell has its environment open already, and nobody else can. While it lends it ([`lend`]), what opens that
//!     directory on this thread gets the same one, and closing it is left to the shell.
//! N2. It may lend a transaction with it. Then what a command would do in a transaction of its own ([`Opened::begin`],
//!     [`Opened::try_transact`]) is a part of the shell's: all of it or nothing. Ending the transaction is left to the
//!     shell.

use std::cell::RefCell;
use std::ops::Deref;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ledgerstone::{
    Environment, Error, Options, RecoveryPhase, RecoveryProgress, RollbackProgress, Sharing, Transaction,
};
use ledgerstone_bench as bench;

use crate::interrupt::{self, Interrupted};
use crate::output::{Output, bytes_readable};
use crate::progress::{Progress, Unit};

/// The environment.
#[derive(Clone, Debug, clap::Args)]
pub struct DirArgs {
    /// Directory of the environment.
    pub dir: PathBuf,
    /// Memory for the page cache: bytes, or a number with K, M or G.
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_bytes)]
    pub cache: Option<u64>,
}

/// Whether a path leads to a block device. An environment may live on one.
pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| there.file_type().is_block_device())
}

/// A table of the environment.
#[derive(Clone, Debug, clap::Args)]
pub struct TableArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Name of the table.
    pub table: String,
}

const SHOW_PERIOD: Duration = Duration::from_millis(100);

thread_local! {
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
}

struct Lent {
    dir: PathBuf,
    env: Environment,
    txn: Option<Rc<Transaction>>,
}

/// While it lives, an open environment is lent (N1).
pub(crate) struct Lending(());

/// Lends the environment that is open in `dir`, and the transaction that commands are to be a part of.
pub(crate) fn lend(dir: &Path, env: &Environment, txn: Option<Rc<Transaction>>) -> Lending {
    LENT.with_borrow_mut(|lent| *lent = Some(Lent { dir: dir.to_path_buf(), env: env.clone(), txn }));
    Lending(())
}

impl Drop for Lending {
    fn drop(&mut self) {
        LENT.with_borrow_mut(|lent| *lent = None);
    }
}

/// An environment that a command uses.
pub(crate) struct Opened {
    env: Environment,
    is_lent: bool,
    txn: Option<Rc<Transaction>>,
}

/// A transaction to read in.
pub(crate) enum Reading {
    Own(Transaction),
    Lent(Rc<Transaction>),
}

impl Reading {
    /// Ends it, if it was begun here. It only read.
    pub(crate) fn end(self) -> Result<(), Error> {
        match self {
            Reading::Own(txn) => txn.abort(),
            Reading::Lent(_) => Ok(()),
        }
    }
}

impl Deref for Reading {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        match self {
            Reading::Own(txn) => txn,
            Reading::Lent(txn) => txn,
        }
    }
}

impl Opened {
    /// A transaction to read in (N2).
    pub(crate) fn begin(&self) -> Result<Reading, Error> {
        self.txn.clone().map_or_else(|| self.env.begin().map(Reading::Own), |txn| Ok(Reading::Lent(txn)))
    }

    /// The same, one that waits for nobody.
    pub(crate) fn snapshot(&self) -> Result<Reading, Error> {
        self.txn.clone().map_or_else(|| self.env.snapshot().map(Reading::Own), |txn| Ok(Reading::Lent(txn)))
    }

    /// Runs `f` in a transaction (N2).
    pub(crate) fn try_transact<T, E: From<Error>>(
        &self,
        mut f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(txn) = &self.txn else { return self.env.try_transact(f) };
        let before = txn.savepoint()?;
        let done = f(txn);
        if done.is_err() {
            let _ = txn.rollback_to(before); // A transaction that is lost has gone back already.
        }
        let _ = txn.release(before); // As above.
        done
    }

    /// The same.
    pub(crate) fn transact<T>(&self, f: impl FnMut(&Transaction) -> Result<T, Error>) -> Result<T, Error> {
        self.try_transact(f)
    }

    /// Closes it, if it was opened here.
    pub(crate) fn close(self) -> Result<(), Error> {
        if self.is_lent { Ok(()) } else { self.env.close() }
    }
}

impl Deref for Opened {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.env
    }
}

/// Opens an environment that must exist.
pub(crate) fn open(at: &DirArgs, output: &Output) -> anyhow::Result<Opened> {
    open_with(options(at), &at.dir, output)
}

/// Opens an environment to read it, with those that share it if there are any. One that was closed in order is opened
/// as it is: nothing is written, and others may read beside.
pub(crate) fn open_to_read(at: &DirArgs, output: &Output) -> anyhow::Result<Opened> {
    // Those that share it go on meanwhile: this one is one more of them.
    let is_shared = Environment::is_shared(&at.dir).is_ok_and(|is_shared| is_shared);
    open_with(options(at).read_only(!is_shared), &at.dir, output)
}

/// The same, after all that a restart has to do: nothing is left to be done behind the opening.
pub(crate) fn open_recovered(at: &DirArgs, output: &Output) -> anyhow::Result<Opened> {
    open_with(options(at).restart_undo_bytes(u64::MAX), &at.dir, output)
}

fn options(at: &DirArgs) -> Options {
    let options = Environment::options().create(false).sharing(Sharing::AsFound);
    at.cache.into_iter().fold(options, Options::cache_bytes)
}

/// The same with these options, unless it is lent.
pub(crate) fn open_with(options: Options, dir: &Path, output: &Output) -> anyhow::Result<Opened> {
    let opened = |lent: &Lent| Opened { env: lent.env.clone(), is_lent: true, txn: lent.txn.clone() };
    match LENT.with_borrow(|lent| lent.as_ref().filter(|lent| lent.dir == dir).map(opened)) {
        Some(opened) => Ok(opened),
        None => Ok(Opened { env: open_by(options, dir, output)?, is_lent: false, txn: None }),
    }
}

/// Opens an environment, and waits until everything that was interrupted is rolled back. Ctrl-C ends its recovery.
pub(crate) fn open_by(options: Options, dir: &Path, output: &Output) -> anyhow::Result<Environment> {
    let _heeding = interrupt::heed();
    let progress = Arc::new(RecoveryProgress::default());
    let opened = shown(&progress, output, || options.recovery_progress(Arc::clone(&progress)).open(dir));
    let how_far = || {
        let (done, all) = (bytes_readable(progress.done_bytes()), bytes_readable(progress.all_bytes()));
        let phase = match (progress.phase(), progress.all_bytes()) {
            (RecoveryPhase::Nothing, _) => String::new(),
            (phase, 0) => format!(", in {} after {done} of the log", phase.name()),
            (phase, _) => format!(", in {} after {done} of {all} of the log", phase.name()),
        };
        format!("while {} was opened{phase}: nothing is lost, and the next command recovers", dir.display())
    };
    let env = opened.map_err(|error: Error| interrupt::told(error, how_far))?;
    if let Some(slot) = env.recovery_report().damaged_table_slot {
        output.note(format_args!(
            "slot {slot} of the table of names on {} was damaged, or was being written when the power failed; the \
             other one is whole, and the first change makes both whole",
            dir.display()
        ));
    }
    let mut at = RollbackProgress::default();
    let mut bar = Progress::new(output);
    let waited = env.wait_rolled_back_with(|now| {
        at = now;
        bar.show("rollback", now.undone_count, now.change_count, Unit::Count("changes"));
        interrupt::flow()
    });
    drop(bar);
    if let Err(error) = waited {
        let _ = env.close(); // What it says is no news.
        let how_far = || {
            let (done, all) = (at.undone_count, at.change_count);
            format!(
                "while {} was opened, in the rollback after {done} of {all} changes: nothing is lost, and the next \
                 command goes on",
                dir.display()
            )
        };
        return Err(interrupt::told(error, how_far));
    }
    if interrupt::is_asked() {
        // It came too late to stop the opening.
        env.close()?;
        return Err(Interrupted(format!("when {} had been opened: nothing else was done", dir.display())).into());
    }
    Ok(env)
}

/// Runs `open` while a bar shows what it has come to, and hears whether to stop.
fn shown<T>(at: &RecoveryProgress, output: &Output, open: impl FnOnce() -> T) -> T {
    let mut progress = Progress::new(output);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            while !is_done.load(Relaxed) {
                std::thread::park_timeout(SHOW_PERIOD);
                if interrupt::is_asked() {
                    at.stop();
                }
                let (phase, done, all) = (at.phase(), at.done_bytes(), at.all_bytes());
                if phase != RecoveryPhase::Nothing && !is_done.load(Relaxed) {
                    progress.show(phase.name(), done, all, Unit::Bytes);
                }
            }
        });
        let opened = open();
        is_done.store(true, Relaxed);
        watcher.thread().unpark();
        opened
    })
}
