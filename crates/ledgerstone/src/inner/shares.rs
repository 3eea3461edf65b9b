//! What a process has that shares its environment: its place among the others, and whether it does the work behind the
//! scenes for all of them.
//!
//! P1. One process leads: it has the log's flusher, the page writer, the housekeeper and the other background threads.
//!     A word in the region names it. Who leaves gives the lead up; that of one that has died is taken by whoever finds
//!     that out first.
//! P2. The one that leads has the keepers of the log, and nobody else gives log up. So nothing goes while nobody leads.
//! P3. Each process looks for the dead, [`LOOK_NS`] apart, and mends what they have left. So it does not matter who
//!     lives.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use ledgerstone_disk::Disk;
use ledgerstone_region::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use ledgerstone_region::{Handle, Mutex, Region, RegionError, sync};

use super::Among;

/// How often a process looks for the dead.
pub(crate) const LOOK_NS: u64 = 20_000_000;

const GOES_ON: u32 = 0;
const ENDS: u32 = 1;

pub(crate) struct Shares {
    pub(crate) among: Among,
    /// Its number + 1. 0: nobody leads.
    leader: Handle<AtomicU32>,
    /// The disk without this process's fence.
    disk: OnceLock<Arc<dyn Disk>>,
    /// Whether the thread that looks is to end.
    looking: AtomicU32,
    /// Whether this process may give up log (P2).
    gives_up: AtomicBool,
    /// The threads of the one that leads.
    threads: Mutex<Vec<sync::JoinHandle<()>>>,
}

impl Shares {
    pub(crate) fn of(among: Among, region: &Region) -> Result<Shares, RegionError> {
        let leader: Handle<AtomicU32> = region.place_one("environment.leader", 64)?;
        // That of a process that had this one's number.
        let _ = leader.compare_exchange(among.members.no() + 1, 0, AcqRel, Acquire);
        Ok(Shares {
            among,
            leader,
            disk: OnceLock::new(),
            looking: AtomicU32::new(GOES_ON),
            gives_up: AtomicBool::new(false),
            threads: Mutex::default(),
        })
    }

    /// The environment is open. `disk` is without a fence.
    pub(crate) fn has_opened(&self, disk: &Arc<dyn Disk>) {
        let _ = self.disk.set(Arc::clone(disk)); // Called once.
        self.among.has_opened();
    }

    /// The disk without this process's fence, once the environment is open.
    pub(crate) fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.get()
    }

    fn me(&self) -> u32 {
        self.among.members.no() + 1
    }

    /// Takes the lead, if nobody has it who lives (P1).
    pub(crate) fn take_lead(&self) -> bool {
        let leader = self.leader.load(Acquire);
        // Whoever leads may have been buried since, or be about to be.
        let members = &self.among.members;
        let is_gone = |no: u32| members.pid(no).is_none() || members.is_dead(no);
        let is_free = leader == 0 || leader != self.me() && is_gone(leader - 1);
        is_free && self.leader.compare_exchange(leader, self.me(), AcqRel, Acquire).is_ok()
    }

    /// The number of the one that leads, alive or not.
    pub(crate) fn leader(&self) -> Option<u32> {
        self.leader.load(Acquire).checked_sub(1)
    }

    pub(crate) fn leads(&self) -> bool {
        self.leader.load(Acquire) == self.me()
    }

    /// The threads of the one that leads have ended.
    pub(crate) fn give_up_lead(&self) {
        let _ = self.leader.compare_exchange(self.me(), 0, Release, Acquire); // It is another's.
    }

    /// Whether this process may give up log (P2).
    pub(crate) fn gives_up(&self) -> bool {
        self.gives_up.load(Acquire)
    }

    /// Its keepers are there, or it is the last; or it leads no more.
    pub(crate) fn may_give_up(&self, may: bool) {
        self.gives_up.store(may, Release);
    }

    /// Keeps a thread that the lead has started.
    pub(crate) fn keep(&self, thread: sync::JoinHandle<()>) {
        self.threads.lock().push(thread);
    }

    pub(crate) fn take_threads(&self) -> Vec<sync::JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock())
    }

    /// Whether this thread is one of them.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.threads.lock().iter().any(|thread| thread.mark().is_current())
    }

    /// Waits until the next look for the dead is due. False: there is none any more.
    pub(crate) fn await_look(&self) -> bool {
        sync::futex_wait(&self.looking, GOES_ON, Some(LOOK_NS));
        self.looking.load(Acquire) == GOES_ON
    }

    /// Whether nobody is to look any more.
    pub(crate) fn has_ended_looks(&self) -> bool {
        self.looking.load(Acquire) != GOES_ON
    }

    /// Nobody is to look any more.
    pub(crate) fn end_looks(&self) {
        self.looking.store(ENDS, Release);
        sync::futex_wake(&self.looking, u32::MAX);
    }
}
