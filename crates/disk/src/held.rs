//! The descriptors of the locks that this process holds, and what a fork does with them.
//!
//! A lock of `flock` lasts while any process has a copy of its descriptor. A child of a fork gets copies of all of
//! them, and most children never hear of this library. So the child closes its copies at the fork itself
//! (`pthread_atfork`), before the program goes on. That gives back nothing: only `LOCK_UN` would. A child that was made
//! without the C library's `fork` keeps its copies until it ends or runs another program.

use std::cell::Cell;
use std::fs::File;
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long a fork waits for an open that takes a lock, and how long it sleeps between two looks.
const FORK_WAIT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// The descriptors by number. Locked over each fork and wherever a descriptor is opened for a lock, so that no child
/// gets a copy that is not in it.
static HELD: Mutex<Held> = Mutex::new(Held { files: Vec::new(), last: 0 });

thread_local! {
    /// Of the thread that forks, while it does.
    static FORKING: Cell<Option<MutexGuard<'static, Held>>> = const { Cell::new(None) };
}

pub(crate) struct Held {
    files: Vec<(u64, File)>,
    last: u64,
}

/// Locks the descriptors. The caller opens what it locks while it has them.
pub(crate) fn held() -> MutexGuard<'static, Held> {
    static AT_FORK: Once = Once::new();
    // If it is refused for want of memory, children keep copies as those without the C library's fork do.
    AT_FORK.call_once(|| drop(at_fork()));
    all()
}

fn all() -> MutexGuard<'static, Held> {
    // Whoever panicked has left whole entries.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, unless an open hangs that has them: a fork does not wait for a file system that does not answer. Its child
/// keeps copies then.
fn all_in_time() -> Option<MutexGuard<'static, Held>> {
    let began = Instant::now();
    loop {
        match HELD.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() > FORK_WAIT => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

impl Held {
    /// Keeps the descriptor, under a number of its own.
    pub(crate) fn keep(&mut self, file: File) -> u64 {
        self.last += 1;
        self.files.push((self.last, file));
        self.last
    }

    /// The descriptor of this number, unless this is a child of the process that has it.
    pub(crate) fn take(&mut self, number: u64) -> Option<File> {
        let at = self.files.iter().position(|(of, _)| *of == number)?;
        Some(self.files.swap_remove(at).1)
    }
}

#[allow(unsafe_code)] // All that there is in this crate.
fn at_fork() -> std::io::Result<()> {
    extern "C" fn before() {
        // A thread that is ending has no place for it: then its children keep copies.
        let _ = FORKING.try_with(|forking| forking.set(all_in_time()));
    }
    extern "C" fn in_parent() {
        let _ = FORKING.try_with(Cell::take);
    }
    extern "C" fn in_child() {
        if let Ok(Some(mut held)) = FORKING.try_with(Cell::take) {
            held.files.clear(); // Closes them.
        }
    }
    // SAFETY: the functions are the program's for good, or the C library forgets them when it unloads this one. None
    // unwinds: they take and give back a mutex that nobody holds while it forks, and close files, which a child of a
    // process with threads may.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        number => Err(std::io::Error::from_raw_os_error(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if the file system of a lock did not answer.
    #[test]
    fn a_fork_does_not_wait_for_an_open_that_hangs() {
        let held = held();
        let status = std::thread::scope(|scope| scope.spawn(forked_child).join().unwrap());
        assert_eq!(status, 0);
        drop(held);
    }

    /// Forks as a program does, by the C library, and answers how the child ended.
    #[allow(unsafe_code)]
    fn forked_child() -> i32 {
        // SAFETY: the child calls nothing but `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child, and touches nothing.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: `status` is ours to be written.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status
    }
}
