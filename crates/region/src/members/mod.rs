//! The processes that have a region mapped, and which of them have died.
//!
//! ```text
//! offset  size  field of a member
//!      0     4  state         0 free, 1 it is there, or was there when it died
//!      4     4  pid           in the namespace below
//!      8     8  started       field 22 of /proc/PID/stat: with it, a pid means one process
//!     16     8  namespace     inode of /proc/self/ns/pid; 0 if it cannot be read
//!     24    40  zero
//! ```
//! M1. Member N holds a record lock on byte N of the lock file from before it says that it is there until it has said
//!     that it is not. The kernel takes it from a process that ends, however that ends.
//! M2. So a member that is there and whose byte nobody has locked is dead. It stays so until those who mend what it
//!     left have freed its place ([`Members::bury`]): a place is taken only when it is free.
//! M3. The kernel gives up the lock late, after the memory of the process. Where `/proc` shows that all threads of the
//!     process are on their way out, it is dead already: none of them runs its code again.
//! M4. A process loses its record locks when it closes any descriptor of the file. So it opens the file once, and never
//!     closes it. What it holds itself, it does not see as locked: its own members are in a list.
//! M5. A child of a fork has none of the locks, and is no member.

mod exiting;
mod record_lock;

use std::path::Path;
use std::sync::Arc;

use crate::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::{Handle, Region, RegionError, shared};

use record_lock::LockFile;

/// How many processes can have a region at once.
pub const MEMBERS_MAX: u32 = 64;

const FREE: u32 = 0;
const THERE: u32 = 1;

shared! {
    /// One process.
    pub struct MemberWords {
        state: AtomicU32,
        pid: AtomicU32,
        started: AtomicU64,
        namespace: AtomicU64,
        zeroes: [AtomicU64; 5],
    } size 64
}

/// A process's place among those that have a region. It leaves when this is dropped.
pub struct Members {
    words: Handle<[MemberWords]>,
    locks: Arc<LockFile>,
    no: u32,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").field("no", &self.no).finish_non_exhaustive()
    }
}

impl Members {
    /// Joins those that have the region, with the lock file at `locks`, which is made if it is missing. It is the same
    /// for all.
    ///
    /// # Errors
    /// As [`Region::place`]. [`RegionError::File`]: the lock file cannot be made or locked.
    /// [`RegionError::TooManyProcesses`].
    pub fn join(region: &Region, locks: &Path) -> Result<Members, RegionError> {
        let words = region.place::<MemberWords>("members", u64::from(MEMBERS_MAX), 64)?;
        let locks = LockFile::open(locks)?;
        for no in 0..MEMBERS_MAX {
            let member = &words[no as usize];
            if member.state.load(Acquire) != FREE || !locks.take(no)? {
                continue;
            }
            // M1. Whoever had it last has said so before giving the byte up.
            if member.state.load(Acquire) != FREE {
                locks.give_back(no);
                continue;
            }
            let me = exiting::Process::me();
            member.pid.store(me.pid, Relaxed); // Published by the state.
            member.started.store(me.started, Relaxed);
            member.namespace.store(me.namespace, Relaxed);
            member.state.store(THERE, Release); // Pairs with the loads of it.
            return Ok(Members { words, locks, no });
        }
        Err(RegionError::TooManyProcesses { max: MEMBERS_MAX })
    }

    /// The number of this process.
    #[must_use]
    pub fn no(&self) -> u32 {
        self.no
    }

    /// The system's number of a member that is there.
    #[must_use]
    pub fn pid(&self, no: u32) -> Option<u32> {
        let member = self.words.get(no as usize)?;
        (member.state.load(Acquire) == THERE).then(|| member.pid.load(Relaxed)) // Stored before the state.
    }

    /// Whether a member has died, and what it left is not mended yet (M2, M3). A few system calls.
    #[must_use]
    pub fn is_dead(&self, no: u32) -> bool {
        let Some(member) = self.words.get(no as usize) else { return false };
        if member.state.load(Acquire) != THERE {
            return false;
        }
        let process = exiting::Process {
            pid: member.pid.load(Relaxed), // Stored before the state.
            started: member.started.load(Relaxed),
            namespace: member.namespace.load(Relaxed),
        };
        let is_dead = process.is_exiting() || !self.locks.is_held(no);
        // It may have left in order meanwhile, and another be there.
        is_dead && member.state.load(Acquire) == THERE && member.pid.load(Relaxed) == process.pid
    }

    /// What a dead member left is mended: its number may be taken again. To be called by one thread at a time, of all
    /// processes: [`SlotTable::repair`](crate::SlotTable::repair) does it.
    pub fn bury(&self, no: u32) {
        if self.is_dead(no)
            && let Some(member) = self.words.get(no as usize)
        {
            let _ = member.state.compare_exchange(THERE, FREE, AcqRel, Relaxed);
        }
    }

    /// All that are there, the dead included.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..MEMBERS_MAX).filter(|no| self.words[*no as usize].state.load(Acquire) == THERE)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if self.locks.is_inherited() {
            return; // M5
        }
        self.words[self.no as usize].state.store(FREE, Release); // M1
        self.locks.give_back(self.no);
    }
}
