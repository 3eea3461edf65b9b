//! Signals that ask to stop, remembered in one word.

use std::sync::atomic::{AtomicU32, Ordering};

static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn remember(_signal: libc::c_int) {
    // A second one ends the process at once: somebody is in earnest. What is left in the directory goes with the next
    // run.
    if CAUGHT.fetch_add(1, Ordering::Relaxed) >= 2 {
        // SAFETY: `_exit` may be called from a signal handler.
        unsafe { libc::_exit(130) };
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP are remembered instead of ending the process. A file that reaches the limit
/// on files is an error of the call, as a full disk is.
pub(crate) fn catch() {
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler touches one atomic and calls `_exit` only; the zeroed action is a valid one. SA_RESTART
        // keeps system calls of the experiments from failing with EINTR.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = remember as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Whether one has come.
pub(crate) fn is_caught() -> bool {
    CAUGHT.load(Ordering::Relaxed) > 0
}
