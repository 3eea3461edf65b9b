//! A forked process.
//!
//! C1. What a child runs makes system calls and touches memory that was there before the fork: no allocation, no lock
//!     of this process, no printing. Another thread may have held a lock of the allocator at the fork.
//! C2. A child dies with its parent, and its parent waits for it.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::ProbeError;

/// The children alive, so that their processor time counts as ours.
static ALIVE: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

/// A process that runs one function. Killed and waited for when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    slot: Option<usize>,
}

impl Child {
    /// Starts a process that runs `body`, which keeps to C1, and ends.
    pub(crate) fn run(body: impl FnOnce()) -> Result<Child, ProbeError> {
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child runs `body` under C1 and then `_exit`: no destructor and no exit handler of ours runs
        // twice.
        match unsafe { libc::fork() } {
            -1 => Err(ProbeError::system("fork", std::io::Error::last_os_error())),
            0 => {
                // SAFETY: plain system calls. The parent may have died before the first took effect.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                    if libc::getppid() != parent {
                        libc::_exit(1);
                    }
                }
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                // SAFETY: ends this process, which has nothing to clean up.
                unsafe { libc::_exit(i32::from(ended.is_err())) }
            }
            pid => {
                let slot =
                    ALIVE.iter().position(|s| s.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok());
                Ok(Child { pid, slot })
            }
        }
    }

    /// Runs `body`, which keeps to C1, in a process of its own and returns its answer.
    pub(crate) fn ask(body: impl FnOnce() -> bool) -> Result<bool, ProbeError> {
        let child = Child::run(|| {
            let code = i32::from(!body());
            // SAFETY: ends the child, which has nothing to clean up.
            unsafe { libc::_exit(code) }
        })?;
        Ok(child.wait())
    }

    /// Waits until it ends by itself; whether it ended well.
    pub(crate) fn wait(mut self) -> bool {
        self.reap() == Some(0)
    }

    fn reap(&mut self) -> Option<i32> {
        if self.pid == 0 {
            return None;
        }
        let mut status = 0;
        // SAFETY: our child, which nobody else waits for; the kernel fills `status`.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } == -1
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        self.pid = 0;
        if let Some(slot) = self.slot.take() {
            ALIVE[slot].store(0, Ordering::Relaxed);
        }
        Some(status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: our child, not yet waited for, so the number is still its.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}

/// The children alive.
pub(crate) fn alive() -> impl Iterator<Item = i32> {
    ALIVE.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}
