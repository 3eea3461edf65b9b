//! The processes that have a region mapped, and which of them have died.
//!
//! ```text
//! offset  size  field of a member
//!      0     4  turn          odd while a process is there, or was there when it died; even: it is free
//!      4     4  pid           in the namespaces below
//!      8     8  started       field 22 of /proc/PID/stat: with it, a pid means one process
//!     16     8  namespaces    inode of its pid namespace, and that of its time namespace above bit 32; 0 not known
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
//! M6. The turn goes up by one when a process comes, and when it leaves or is buried. Whoever finds a member dead has
//!     seen one odd turn before and after. Else one may have left in between, and another come, with the same pid: a
//!     process that comes back, or one of another namespace.
//! M7. The region knows the lock file. In another one nobody has locked anything, and all would be dead.

mod exiting;
mod record_lock;

use std::path::Path;
use std::sync::Arc;

use crate::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use crate::{Handle, Region, RegionError, shared};

use record_lock::LockFile;

/// How many processes can have a region at once.
pub const MEMBERS_MAX: u32 = 64;

shared! {
    /// One process.
    pub struct MemberWords {
        turn: AtomicU32,
        pid: AtomicU32,
        started: AtomicU64,
        namespaces: AtomicU64,
        zeroes: [AtomicU64; 5],
    } size 64
}

shared! {
    /// Which file the lock file is (M7).
    struct LockFileWords {
        device: AtomicU64,
        inode: AtomicU64,
    } size 16
}

/// Whether a process is there in this turn, or was when it died.
fn is_there(turn: u32) -> bool {
    !turn.is_multiple_of(2)
}

/// Whether a word has this value, which whoever comes first gives it.
fn is_or_becomes(word: &AtomicU64, value: u64) -> bool {
    let before = word.compare_exchange(0, value, AcqRel, Acquire).unwrap_or_else(|before| before);
    before == 0 || before == value
}

/// A process's place among those that have a region. It leaves when this is dropped.
pub struct Members {
    words: Handle<[MemberWords]>,
    locks: Arc<LockFile>,
    no: u32,
    /// The turn in which this process is there.
    turn: u32,
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
    /// As [`Region::place`]. [`RegionError::File`]: the lock file cannot be made or locked. [`RegionError::NotOurs`]:
    /// others may open it. [`RegionError::OtherLockFile`]: it is not the one of those that have the region (M7).
    /// [`RegionError::TooManyProcesses`].
    pub fn join(region: &Region, locks: &Path) -> Result<Members, RegionError> {
        let words = region.place::<MemberWords>("members", u64::from(MEMBERS_MAX), 64)?;
        let known = region.place_one::<LockFileWords>("members.locks", 64)?;
        let path = locks;
        let locks = LockFile::open(path)?;
        if !is_or_becomes(&known.device, locks.device()) || !is_or_becomes(&known.inode, locks.inode()) {
            return Err(RegionError::OtherLockFile { path: path.display().to_string() });
        }
        for no in 0..MEMBERS_MAX {
            let member = &words[no as usize];
            if is_there(member.turn.load(Acquire)) || !locks.take(no)? {
                continue;
            }
            // M1. Whoever had it last has said so before giving the byte up.
            let turn = member.turn.load(Acquire).wrapping_add(1);
            if !is_there(turn) {
                locks.give_back(no);
                continue;
            }
            let me = exiting::Process::me();
            fence(Release); // Pairs with the fence in `process`: whoever sees these stores sees the turn before ended.
            member.pid.store(me.pid, Relaxed); // Published by the turn.
            member.started.store(me.started, Relaxed);
            member.namespaces.store(me.namespaces, Relaxed);
            member.turn.store(turn, Release); // Pairs with the loads of it.
            return Ok(Members { words, locks, no, turn });
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
        self.process(no).map(|(_, process)| process.pid)
    }

    /// The process that a member is, and the turn in which it is there. None: it is not, or it changes just now.
    fn process(&self, no: u32) -> Option<(u32, exiting::Process)> {
        let member = self.words.get(no as usize)?;
        let turn = member.turn.load(Acquire); // Pairs with the store in `join`.
        let process = exiting::Process {
            pid: member.pid.load(Relaxed),
            started: member.started.load(Relaxed),
            namespaces: member.namespaces.load(Relaxed),
        };
        fence(Acquire); // Pairs with the fence in `join` (M6).
        (is_there(turn) && member.turn.load(Relaxed) == turn).then_some((turn, process))
    }

    /// Whether a member has died, and what it left is not mended yet (M2, M3). A few system calls.
    #[must_use]
    pub fn is_dead(&self, no: u32) -> bool {
        self.last_turn(no).is_some()
    }

    /// The turn in which a member has died.
    fn last_turn(&self, no: u32) -> Option<u32> {
        let (turn, process) = self.process(no)?;
        self.has_died_in(turn, no, process).then_some(turn)
    }

    /// Whether a member has died in that turn, in which this process was there.
    fn has_died_in(&self, turn: u32, no: u32, process: exiting::Process) -> bool {
        let is_dead = process.is_exiting() || !self.locks.is_held(no);
        // M6. Whoever leaves says so before giving the lock up.
        is_dead && self.words[no as usize].turn.load(Acquire) == turn
    }

    /// What a dead member left is mended: its number may be taken again. To be called by one thread at a time, of all
    /// processes: [`SlotTable::repair`](crate::SlotTable::repair) does it.
    pub fn bury(&self, no: u32) {
        if let Some(turn) = self.last_turn(no) {
            self.end_turn(no, turn);
        }
    }

    /// The member's number is free from now on, if it is in that turn still.
    fn end_turn(&self, no: u32, turn: u32) {
        let _ = self.words[no as usize].turn.compare_exchange(turn, turn.wrapping_add(1), AcqRel, Relaxed);
    }

    /// All that are there, the dead included.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..MEMBERS_MAX).filter(|no| is_there(self.words[*no as usize].turn.load(Acquire)))
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if self.locks.is_inherited() {
            return; // M5
        }
        self.end_turn(self.no, self.turn); // M1. Not if it was taken for dead: another one may be there.
        self.locks.give_back(self.no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins a region as often as asked.
    fn joins() -> (tempfile::TempDir, impl Fn() -> Members) {
        let dir = tempfile::tempdir().unwrap();
        let (path, locks) = (dir.path().join("region"), dir.path().join("locks"));
        drop(Members::join(&Region::create_at(&path, 1 << 16).unwrap(), &locks).unwrap());
        (dir, move || Members::join(&Region::join_at(&path).unwrap(), &locks).unwrap())
    }

    /// M6: what a late look has read may be of two processes.
    #[test]
    fn whoever_comes_after_one_that_was_looked_at_is_not_dead() {
        let (_dir, join) = joins();
        let (me, other) = (join(), join());
        let no = other.no();
        let (turn, process) = me.process(no).unwrap();
        let mixed = exiting::Process { started: process.started - 1, ..process };
        assert!(me.has_died_in(turn, no, mixed) && !me.has_died_in(turn, no, process));
        drop(other);
        assert!(!me.locks.is_held(no) && !me.has_died_in(turn, no, process), "it has left");
        assert!(me.process(no).is_none() && me.pid(no).is_none());
        let next = join();
        assert_eq!((next.no(), next.turn), (no, turn + 2));
        assert_eq!(me.process(no), Some((turn + 2, process)), "its pid is the same");
        assert!(!me.has_died_in(turn, no, mixed));
        me.end_turn(no, turn);
        assert_eq!(me.pid(no), Some(std::process::id()), "it is not buried for the one before");
    }

    /// Whoever was taken for dead, having lost its locks, does not send away the one that has come since.
    #[test]
    fn a_process_ends_no_turn_but_its_own() {
        let (_dir, join) = joins();
        let (me, other) = (join(), join());
        let no = other.no();
        me.end_turn(no, other.turn);
        let turn = &me.words[no as usize].turn;
        assert!(!is_there(turn.load(Relaxed)));
        turn.store(other.turn + 2, Relaxed);
        drop(other);
        assert!(me.process(no).is_some());
    }

    #[test]
    fn turns_go_round() {
        let (_dir, join) = joins();
        let me = join();
        me.words[1].turn.store(u32::MAX - 1, Relaxed);
        let other = join();
        assert_eq!((other.no(), other.turn), (1, u32::MAX));
        assert!(me.iter().eq([0, 1]));
        drop(other);
        assert_eq!(me.words[1].turn.load(Relaxed), 0);
        assert_eq!(join().no(), 1);
    }
}
