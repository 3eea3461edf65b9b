//! How an environment is created, and how it is opened.
//!
//! ```text
//!  file          what
//!  lock          held by the process that has the environment open (`flock`)
//!  sharing       held by each of the processes that share it (H1 to H4 in `directory/sharing.rs` of `core`)
//!  control       sizes, ids, and where recovery begins; while the environment is being made its name is control.new
//!  log/          segments of the log, named by first LSN
//!  data          pages
//!  double_write  copies of pages in flight
//!  restore.new   there while a restore is made, until the first checkpoint of what it made (R1 in restore.rs)
//!  sort-N.tmp    a temporary file's name that a crash left; the next open removes it
//!  ledgerstone.toml   settings, optional, never written by us
//! ```
//! O1. A creation begins with `control.new`, durably, and ends by renaming it to `control`. A creation that was cut
//!     short is known by that name, and only then is what is there removed, to start afresh. A directory that has data
//!     or log and neither file is an environment that has lost its control file, or holds strangers' files: nothing
//!     there is touched.
//! O2. Recovery raises the incarnation durably in `control` before the log is written at all.
//! O3. Nobody else has the environment while we are here: the lock is taken first and released last. All that the
//!     environment does to its files goes through a fence, which gives the lock back when no write is under way and
//!     refuses all others (N2 in `disk/fence.rs`). A lock file is made with the environment, before `control`, and
//!     never removed. Where `control` is and it is not, somebody else has removed it, and nobody gets in. A process
//!     that has the environment open for writing looks at each checkpoint whether it is there.
//! O4. A data file that is missing is not made anew: nothing but a backup could fill it.
//! O5. An environment that was closed in order is opened for reading without a byte written, beside others that read
//!     it: the disk itself refuses to change anything. One that was not is first opened for writing, recovered and
//!     closed.
//! O6. What a killed process has written and not synced is made durable before it is believed. That is log, pages,
//!     names, and the newest slot of `control` (F4, D6, F3, T4 of their files). No answer of ours depends on what the
//!     power can still take.
//! O7. A double-write file that is missing after a crash is not made anew: a page may be torn whose only whole copy was
//!     in it. After an orderly close nothing in it is needed.
//! O8. Whatever no crash can cause is damage. It is refused before anything is written, so putting the file back
//!     repairs the environment. Damage is a segment that is short or missing (F6 in the log). It is a log that ends
//!     before it is known to have been durable, by the control file or by the double-write file (D8 in the buffer). It
//!     is a data file of another environment, or one that is shorter or older than at the last checkpoint (K3 in
//!     recovery).
//! O9. The checkpoint after a recovery is the housekeeper's, behind the opening. What was recovered lies in the cache
//!     as changes do that the log has and no checkpoint: the last checkpoint covers them. An opening that has more to
//!     say with it waits for it. That is one after a restore, whose mark goes with it (R1 in `restore.rs` of the crate
//!     `ledgerstone-media`), or after an opening without locks. And so does one that has found the log of several
//!     checkpoints that were due. Programs that end soon, and without a close, would never come to one, and each would
//!     repeat more log than the one before.
//! O10. Changes that the log has and pages may lack need not be repeated before the opening returns. They are the
//!     cache's then: a page gets its own as it comes in, and threads of the environment bring in the rest (D1 to D3 in
//!     `pending.rs` of recovery). An opening repeats them at once if it takes its own checkpoint (O9). So it does if
//!     the log tells of truncations, names unknown operations, or has more than there is memory for. So does one that
//!     is asked to leave no undo, by the largest `restart_undo_bytes`.

mod check;
mod counts;
mod create;
mod handed_on;
mod join;
mod parts;
mod put_off;
mod recover;
mod with_options;

use std::sync::Arc;

use ledgerstone_buffer::Cache;
use ledgerstone_core::directory::{LOCK, await_turn, control_error, is_shared, lock_to_share, take_lock};
use ledgerstone_disk::{Disk, DiskErrorKind, Fence, Open, ReadOnlyDisk};
use ledgerstone_log::{CONTROL_PATH, ControlFile};
use ledgerstone_txn::Engine;

use self::create::{Found, create, look_at};
use self::join::join;
use self::parts::Home;
#[cfg(feature = "deaths")]
pub(super) use self::parts::{CHECKPOINT_LATCH, COMPACT_LATCH, WORKERS_LATCHES, trees};
use self::recover::recover;
use super::Environment;
use crate::Error;
use crate::choice::Sharing;
use crate::config::{Effective, Options};
use crate::inner::{Inner, Place, join_those_there};

/// Opens the environment on `disk`, creating or recovering it as needed.
pub(crate) fn open(options: &Options, disk: Arc<dyn Disk>) -> Result<Inner, Error> {
    match options.effective(None)?.sharing {
        Sharing::Private => open_alone(options, disk),
        Sharing::Shared => open_shared(options, &disk, true),
        Sharing::AsFound if options.directory.is_some() && is_shared(&disk)? => open_shared(options, &disk, false),
        Sharing::AsFound => open_alone(options, disk),
    }
}

fn open_alone(options: &Options, disk: Arc<dyn Disk>) -> Result<Inner, Error> {
    if !disk.exists(CONTROL_PATH)? {
        let found = look_at(&disk)?; // Before anything is made there.
        if !options.create || options.read_only {
            let why = match found {
                Found::Empty => "it is empty or missing; ledgerstone init DIR makes one there",
                Found::Free => "it has none of the files of one",
                // A creation holds the lock from before its first file on.
                Found::Unfinished if disk.exists(LOCK)? && is_locked(&disk) => {
                    return Err(Error::AlreadyOpen { path: disk.describe() });
                }
                Found::Unfinished => "the creation there was cut short; ledgerstone init DIR begins it anew",
            };
            return Err(Error::NotAnEnvironment { path: disk.describe(), why });
        }
    } else if options.read_only
        && let Some(inner) = open_to_read(options, &disk)?
    {
        return Ok(inner);
    }
    fenced(&disk, |disk, fence| open_or_create(options, disk, fence, Home::Alone))
}

fn open_or_create(options: &Options, disk: Arc<dyn Disk>, fence: Arc<Fence>, home: Home) -> Result<Inner, Error> {
    match disk.exists(CONTROL_PATH)? {
        true => recover(options, disk, fence, true, home),
        false => create(options, disk, fence, home),
    }
}

/// Opens an environment with those that share it, or as the first of them (A1 in `inner/among.rs`). If nobody does, and
/// this process `may_be_first` no more, it opens it alone.
fn open_shared(options: &Options, disk: &Arc<dyn Disk>, may_be_first: bool) -> Result<Inner, Error> {
    let cannot = |what: &str| Err(Error::CannotShare { what: what.into() });
    let Some(directory) = options.directory.as_deref() else {
        return cannot("it is not in a directory of a file system");
    };
    if options.read_only {
        return cannot("who shares it writes its memory; open it without read_only");
    }
    if options.own_locking.is_some() {
        return cannot("this program has a lock manager of its own");
    }
    let is_there = disk.exists(CONTROL_PATH)?;
    if !is_there {
        look_at(disk)?; // Before anything is made there.
    }
    let turn = await_turn(disk)?;
    let environment = if disk.exists(CONTROL_PATH)? {
        Some(ControlFile::open_read_only(&**disk).map_err(|error| control_error(disk, error))?.state().environment)
    } else {
        None
    };
    let among = environment.map(|id| join_those_there(disk, directory, id)).transpose()?.flatten();
    if among.is_none() && !may_be_first {
        drop(turn);
        return open_alone(options, Arc::clone(disk));
    }
    let (fenced, fence) = Fence::around(disk, lock_to_share(disk)?);
    let opened = match among {
        Some(among) => join(options, fenced, Arc::clone(&fence), among),
        None => {
            let place = Place::new(&options.effective(None)?.region_dir, directory)?;
            let opened = open_or_create(options, fenced, Arc::clone(&fence), Home::First(place.clone()));
            if opened.is_err() {
                place.remove();
            }
            opened
        }
    };
    match &opened {
        Ok(inner) => inner.sharing.iter().for_each(|sharing| sharing.has_opened(disk)),
        Err(_) => fence.close(),
    }
    drop(turn); // H1
    opened
}

/// Takes the lock and opens behind a fence (O3). An opening that fails gives the lock back, even if somebody still has
/// parts of it.
fn fenced(
    disk: &Arc<dyn Disk>,
    open: impl FnOnce(Arc<dyn Disk>, Arc<Fence>) -> Result<Inner, Error>,
) -> Result<Inner, Error> {
    let (disk, fence) = Fence::around(disk, take_lock(disk)?);
    let opened = open(disk, Arc::clone(&fence));
    if opened.is_err() {
        fence.close();
    }
    opened
}

fn is_locked(disk: &Arc<dyn Disk>) -> bool {
    disk.lock(LOCK).is_err_and(|error| error.kind == DiskErrorKind::Locked)
}

/// O5. `None`: what is there cannot be closed in order, because a transaction is in doubt.
fn open_to_read(options: &Options, disk: &Arc<dyn Disk>) -> Result<Option<Inner>, Error> {
    let needs = match open_as_it_is(options, disk)? {
        AsItIs::Open(inner) => return Ok(Some(*inner)),
        AsItIs::Needs(needs) => needs,
    };
    let mut writing = options.clone().restart_undo_bytes(u64::MAX); // Whole when it returns.
    writing.read_only = false;
    let recovered = Environment::open_with(&writing, Arc::clone(disk)).map_err(|error| match (error, needs) {
        // What may not even be read is not a matter of recovery.
        (Error::Permission { .. }, unreadable @ Error::Permission { .. }) => unreadable,
        (Error::Permission { what, kind }, Error::ReadOnly { why, .. }) => Error::ReadOnly {
            kind: Some(kind),
            why: format!("{why}, and recovering it needs to write ({what}); run ledgerstone recover as a user who may"),
        },
        (other, _) => other,
    })?;
    let report = recovered.recovery_report().clone();
    recovered.close()?;
    match open_as_it_is(options, disk)? {
        AsItIs::Open(inner) => Ok(Some(Inner { report, ..*inner })),
        AsItIs::Needs(_) => Ok(None),
    }
}

/// What came of opening without writing.
enum AsItIs {
    Open(Box<Inner>),
    /// Why it has to be written first.
    Needs(Error),
}

/// O5.
fn open_as_it_is(options: &Options, disk: &Arc<dyn Disk>) -> Result<AsItIs, Error> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::new(Arc::clone(disk)));
    let unclean = "it was not closed in order";
    let opened = fenced(&disk, |disk, fence| {
        let control = ControlFile::open_read_only(&*disk).map_err(|error| control_error(&disk, error))?;
        if !control.state().is_clean {
            return Err(Error::read_only(unclean));
        }
        recover(options, disk, fence, false, Home::Alone)
    });
    match opened {
        Err(error @ (Error::ReadOnly { .. } | Error::Permission { .. })) => Ok(AsItIs::Needs(error)),
        opened => opened.map(|inner| AsItIs::Open(Box::new(inner))),
    }
}

/// How data and double-write file are opened.
pub(super) const FILE: Open = Open { create: true, create_new: false, read_only: false, direct: true };

/// Where threads are few, none is taken from those of the program.
pub(super) fn allow_readers(cache: &Cache, effective: &Effective) {
    if effective.thread_count_max >= 8 * Cache::READER_COUNT {
        cache.allow_readers();
    }
}

/// An engine whose environment is not open yet. The logical undos hold the engine that holds them, and the page writer
/// and the readers would wait for ever: an opening that fails ends all of them.
pub(super) struct Opening(pub(super) Option<Arc<Engine>>);

impl Opening {
    /// Leaves them to the close of the environment.
    pub(super) fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(engine) = &self.0 {
            engine.clear_undos();
            engine.cache.stop_readers();
            engine.cache.stop_writer();
        }
    }
}
