//! The descriptors of the locks that this process holds, and what a fork does with them.
//!
//! A lock of `flock` lasts while any process has a copy of its descriptor. A child of a fork gets copies of all of
//! them, and most children never hear of this library. So the child closes its copies at the fork itself
//! (`pthread_atfork`), before the program goes on. That gives back nothing: only `LOCK_UN` would. A child that was made
//! without the C library's `fork` keeps its copies until it ends or runs another program.

use std::cell::Cell;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a fork waits for threads that are at work ([`AtWork`]), and they for it.
const FORK_WAIT: Duration = Duration::from_secs(1);

/// The descriptors by number. Nobody opens, closes or waits for a file system with the mutex, but it is held over each
/// fork.
static HELD: Mutex<Held> = Mutex::new(Held { files: Vec::new(), last: 0, at_work_count: 0, forks_waiting: 0 });

/// A thread has ended that was waited for.
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Of the thread that forks, while it does.
    static FORKING: Cell<Option<MutexGuard<'static, Held>>> = const { Cell::new(None) };
}

struct Held {
    files: Vec<(u64, File)>,
    last: u64,
    at_work_count: u32,
    forks_waiting: u32,
}

/// While it lives there may be a descriptor that is not among those held: one that was just opened, or is about to be
/// closed. A fork waits for its end, so that no child gets a copy; but not for ever, as a file system may not answer.
/// Nobody else waits for it.
pub(crate) struct AtWork(());

/// Before a descriptor is opened for a lock, or taken to be closed.
pub(crate) fn at_work() -> AtWork {
    static IS_KNOWN_TO_FORKS: AtomicBool = AtomicBool::new(false);
    if !IS_KNOWN_TO_FORKS.load(Ordering::Acquire) {
        // If it is refused for want of memory, children keep copies as those without the C library's fork do. Two
        // threads may both come here, and `at_fork` bears that: a child of a fork meanwhile would wait for ever for
        // one that another thread had begun.
        drop(at_fork());
        IS_KNOWN_TO_FORKS.store(true, Ordering::Release);
    }
    // A thread that works all the time must not keep forks waiting.
    let waited = CHANGED.wait_timeout_while(all(), FORK_WAIT, |held| held.forks_waiting > 0);
    waited.unwrap_or_else(PoisonError::into_inner).0.at_work_count += 1;
    AtWork(())
}

fn all() -> MutexGuard<'static, Held> {
    // A thread that panicked has left whole entries.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AtWork {
    /// Keeps the descriptor, under a number of its own.
    pub(crate) fn keep(&self, file: File) -> u64 {
        let mut held = all();
        held.last += 1;
        let number = held.last;
        held.files.push((number, file));
        number
    }

    /// The descriptor of this number, unless this is a child of the process that has it.
    pub(crate) fn take(&self, number: u64) -> Option<File> {
        let mut held = all();
        let at = held.files.iter().position(|(of, _)| *of == number)?;
        Some(held.files.swap_remove(at).1)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut held = all();
        held.at_work_count = held.at_work_count.saturating_sub(1); // In a child it may have begun before the fork.
        let is_waited_for = held.at_work_count == 0 && held.forks_waiting > 0;
        drop(held);
        if is_waited_for {
            CHANGED.notify_all();
        }
    }
}

#[allow(unsafe_code)] // With `sys.rs`, all that there is in this crate.
fn at_fork() -> std::io::Result<()> {
    // Each may be called twice at one fork; the second call finds nothing to do.
    extern "C" fn before() {
        // A thread that is ending has no place for it: then its children keep copies.
        let _ = FORKING.try_with(|forking| forking.set(Some(forking.take().unwrap_or_else(all_at_rest))));
    }
    extern "C" fn in_parent() {
        if let Ok(Some(held)) = FORKING.try_with(Cell::take) {
            drop(held);
            CHANGED.notify_all();
        }
    }
    extern "C" fn in_child() {
        if let Ok(Some(mut held)) = FORKING.try_with(Cell::take) {
            held.files.clear(); // Closes them.
            (held.at_work_count, held.forks_waiting) = (0, 0); // Those threads are not here.
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

/// All descriptors, when nobody is at work, or after a while: a fork does not wait for a file system that does not
/// answer. Its child may keep a copy then of the one that is being opened or closed.
fn all_at_rest() -> MutexGuard<'static, Held> {
    let mut held = all();
    held.forks_waiting += 1;
    let waited = CHANGED.wait_timeout_while(held, FORK_WAIT, |held| held.at_work_count > 0);
    held = waited.unwrap_or_else(PoisonError::into_inner).0;
    held.forks_waiting -= 1;
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_lock::Kind;

    /// As if the file system of a lock did not answer.
    #[test]
    fn a_fork_does_not_wait_for_an_open_that_hangs() {
        let hanging = at_work();
        let status = std::thread::scope(|scope| scope.spawn(|| forked_child(|| 0)).join().unwrap());
        assert_eq!(status, 0);
        drop(hanging);
    }

    /// As if the file system of one environment did not answer.
    #[test]
    fn an_open_that_hangs_holds_up_no_lock_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let before = crate::file_lock::lock(&path, "lock", Kind::Exclusive).unwrap();
        let hanging = at_work();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(before);
            drop(crate::file_lock::lock(&path, "lock", Kind::Exclusive).unwrap());
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(hanging);
    }

    /// As by two threads that take the first locks of a process.
    #[test]
    fn forks_bear_to_be_told_twice() {
        at_fork().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = crate::file_lock::lock(&path, "lock", Kind::Exclusive).unwrap();
        let open_count = || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap();
            files.filter(|file| std::fs::read_link(file.as_ref().unwrap().path()).is_ok_and(|to| to == path)).count()
        };
        assert_eq!(open_count(), 1);
        let status = forked_child(|| {
            let other = crate::file_lock::lock(&path.with_extension("other"), "other", Kind::Exclusive);
            i32::from(open_count() != 0) + 2 * i32::from(other.is_err())
        });
        assert_eq!((status, open_count()), (0, 1));
        drop(lock);
    }

    /// Forks as a program does, by the C library, and answers how the child ended, which did that.
    #[allow(unsafe_code)]
    fn forked_child(then: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child goes on with a copy of this thread alone, and ends at once. If it hangs, the alarm ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: sets a timer that kills this process.
            unsafe { libc::alarm(60) };
            let code = then();
            // SAFETY: ends the child, and touches nothing.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `status` is ours to be written.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status
    }
}
