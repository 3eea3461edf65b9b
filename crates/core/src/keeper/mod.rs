//! Keepers: who needs the log for longer than recovery does.
//!
//! A checkpoint gives up the segments of the log that no recovery would read any more. Before that it asks each keeper
//! from where on it still needs the log, and says which segments are about to go. The archive and named feeds are
//! keepers, and a program can bring its own (`Options::log_keeper`).
//!
//! K1. Nothing is given up behind a keeper's back. At the open, all the log that is there is kept for it. After that,
//!     what lies above the place that it named last is kept, up to its bound. If a part of that is gone, `stat` says
//!     so.
//! K2. A keeper that fails or panics costs log, not the environment. What was kept for it stays; checkpoints, commits
//!     and reads go on; the next checkpoint asks again; `stat` says why
//!     (`Stat::keeper_troubles`).
//! K3. A checkpoint asks and tells keepers one after the other, under its latch, with nothing else held. `stat` asks
//!     them too, without the latch, so two threads may ask at once.
//! K4. Nothing is kept without a bound for a keeper whose place is gone: it could never go on, and nothing would ever
//!     be given up. Once it names a place that is there, the log is kept from that on.

mod keepers;
mod positions;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone_log::{Beginning, EnvironmentId, Log};
use ledgerstone_page::Lsn;

use crate::Error;

pub use keepers::KeeperTrouble;
pub use keepers::{KeeperId, Keepers};
pub use positions::{FEEDS, Positions, check_positions, forget_all};

/// Something of the program that needs the log for longer than recovery does: a follower, or an archive of your own.
///
/// It is made when the environment is opened for writing, by what was given to
/// `Options::log_keeper`, and dropped with it. All log that is there then is kept for it
/// until it is asked for the first time.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use ledgerstone::{Environment, Error, LogKeeper, Lsn};
///
/// /// Keeps the log until somebody has seen it.
/// struct Follower(Arc<AtomicU64>);
///
/// impl LogKeeper for Follower {
///     fn name(&self) -> String {
///         "follower".into()
///     }
///
///     fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
///         Ok(Some(Lsn(self.0.load(Relaxed))))
///     }
/// }
///
/// let seen = Arc::new(AtomicU64::new(0));
/// let of_keeper = Arc::clone(&seen);
/// let env = Environment::options()
///     .cache_bytes(16 << 20)
///     .log_keeper(move |_log| Ok(Arc::new(Follower(Arc::clone(&of_keeper)))))
///     .open(dir.path())?;
/// seen.store(env.checkpoint()?.0, Relaxed); // The log before the checkpoint may go.
/// # env.close()
/// # }
/// ```
///
/// # Callbacks
/// The environment calls a keeper with the latch of checkpoints held. A call back into the environment that needs the
/// same latch, such as a checkpoint, returns [`Error::Busy`]. A call that has waited for that latch for a second
/// returns it too, so put slow work into [`LogKeeper::work`]. A keeper that holds an
/// `Environment` would keep it open for ever; what it needs is in [`KeptLog`]. `stat` asks
/// without the latch, perhaps at the same time as a checkpoint.
pub trait LogKeeper: Any + Send + Sync {
    /// What it is called in `Stat::log_pins` and in reports.
    fn name(&self) -> String;

    /// The records from here on are needed; `None`: none are, until it says otherwise. `Lsn(0)` stands for all records
    /// that are there when it is named first. It never goes back: what it has once let go is not kept for it again. If
    /// a part of what it needs is gone, `stat` says so, and the rest is kept only up to its bound
    /// ([`LogKeeper::log_bytes_max`]). Asked at each checkpoint, and by
    /// `Environment::stat`.
    ///
    /// # Errors
    /// What keeps it from knowing. All that was kept for it stays until it is asked again.
    fn needs_log_from(&self) -> Result<Option<Lsn>, Error>;

    /// The most log that is kept for it, in bytes. Once its place is farther behind the end, nothing is kept for it.
    /// Before it has named a place, so much of the newest log is kept. Default: no bound. Then a keeper that never goes
    /// on holds the log until the disk is full. One without a bound whose place is gone already holds nothing: it must
    /// begin anew, at a place that is still there.
    fn log_bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// These segments, the oldest first, are given up as soon as all keepers have returned. They can still be read now.
    /// One of them may stay if somebody else comes to need it just then; it is announced again.
    ///
    /// # Errors
    /// What it has not finished with them. None of them goes; the next checkpoint announces them again. While a full
    /// disk refuses writes, they are announced again every second or so.
    fn log_goes(&self, segments: &[GoingSegment]) -> Result<(), Error> {
        let _ = segments;
        Ok(())
    }

    /// How often [`LogKeeper::work`] is called by a thread of the keeper's own. Default: there is no such thread.
    fn work_period(&self) -> Option<Duration> {
        None
    }

    /// Does what is to be done as the log grows, such as copying it. Called by its thread, before the checkpoint of
    /// `Environment::checkpoint`, and when the environment is closed; never by two
    /// threads at once, and never under the latch of checkpoints. What fails here it tries again by itself.
    fn work(&self) {}
}

/// A segment of the log that is about to go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GoingSegment {
    /// Its file in the environment's directory.
    pub file: String,
    /// Where it begins.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
}

/// The log that a keeper is made for.
#[derive(Clone)]
pub struct KeptLog {
    log: Arc<Log>,
    owner: Owner,
    known: Beginning,
}

/// The log of an open environment. A record begins at `known`, whatever lies before.
#[must_use]
pub fn kept_log(log: &Arc<Log>, owner: Owner, known: Beginning) -> KeptLog {
    KeptLog { log: Arc::clone(log), owner, known }
}

/// The same taken apart.
#[must_use]
pub fn parts_of(log: KeptLog) -> (Arc<Log>, Owner, Beginning) {
    let KeptLog { log, owner, known } = log;
    (log, owner, known)
}

impl KeptLog {
    /// The environment's id. A copy of it and a restored one have the same.
    #[must_use]
    pub fn environment(&self) -> EnvironmentId {
        self.owner.environment
    }

    /// The life of the environment. Each restore begins another, whose log has nothing to do with that of the one
    /// before.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.owner.life
    }

    /// Where the log begins now.
    #[must_use]
    pub fn oldest_lsn(&self) -> Lsn {
        self.log.oldest_lsn()
    }

    /// The log is durable up to here.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.log.durable_lsn()
    }

    /// Bytes of a segment. Segments begin at multiples of it.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.log.segment_bytes()
    }

    /// Fills `to` with the bytes of the durable log from `from` on; says how much there was.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LogGone`]: they were given up. [`Error::Corrupt`]: a segment is missing, or has lost bytes. The disk's.
    pub fn read(&self, from: Lsn, to: &mut [u8]) -> Result<usize, Error> {
        Ok(self.log.read_bytes(from, to)?)
    }
}

/// Which log it is: of one life of one environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The environment's id.
    pub environment: EnvironmentId,
    /// Its life. Each restore begins another.
    pub life: u64,
}

/// Makes a keeper when the environment is opened.
pub type MakeKeeper = dyn Fn(KeptLog) -> Result<Arc<dyn LogKeeper>, Error> + Send + Sync;
