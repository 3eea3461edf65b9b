//! Ctrl-C: the first asks what runs to end in order, the second ends the process at once.
//!
//! R1. Only work that looks at [`is_asked`] heeds the first ([`heed`]). Everything else ends at once, as without this
//!     file: an environment bears that, and the next opening recovers. Benchmarks look at nothing either, but have
//!     directories and processes to take away first ([`end_with`]).
//! R2. A call that heeds it may be inside another that does: it is asked until the outermost has ended. At a terminal
//!     the shell heeds all the time, so that no Ctrl-C ends it, and forgets what was asked before each line
//!     ([`forget`]).
//! R3. A command that ends for it says how far it came ([`Interrupted`]), and the exit code is 130, as for any program.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Once, OnceLock};

use ledgerstone::Error;

use crate::output::{say_error, say_note};

/// The exit code of what was interrupted: 128 and the number of SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;

const IDLE: u8 = 0;
const HEEDED: u8 = 1;
const ASKED: u8 = 2;
/// The process ends.
const ENDING: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(IDLE);
/// How many heed.
static HEEDING_COUNT: AtomicU32 = AtomicU32::new(0);

/// Work was ended by Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted {0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// While it lives, the first Ctrl-C only asks.
pub(crate) struct Heeding(());

impl Drop for Heeding {
    fn drop(&mut self) {
        if HEEDING_COUNT.fetch_sub(1, Relaxed) == 1 {
            let _ = STATE.compare_exchange(HEEDED, IDLE, Relaxed, Relaxed);
            let _ = STATE.compare_exchange(ASKED, IDLE, Relaxed, Relaxed);
        }
    }
}

/// From now on the first Ctrl-C asks.
pub(crate) fn heed() -> Heeding {
    static HANDLER: Once = Once::new();
    // Where no handler can be set, Ctrl-C ends the process at once.
    HANDLER.call_once(|| drop(ctrlc::set_handler(on_signal)));
    if HEEDING_COUNT.fetch_add(1, Relaxed) == 0 && STATE.compare_exchange(IDLE, HEEDED, Relaxed, Relaxed).is_err() {
        leave_to_end();
    }
    Heeding(())
}

/// Takes it as not asked, while it is heeded.
pub(crate) fn forget() {
    let _ = STATE.compare_exchange(ASKED, HEEDED, Relaxed, Relaxed); // Otherwise there is nothing to forget.
}

/// What is done at the first Ctrl-C before the process ends, for work that looks at nothing; it says how far that came.
static LAST: OnceLock<fn() -> String> = OnceLock::new();

/// From now on the first Ctrl-C runs `last` and ends the process; the second ends it at once.
pub(crate) fn end_with(last: fn() -> String) -> Heeding {
    let _ = LAST.set(last); // There is one such work in a process.
    heed()
}

/// Waits for the end of the process if it was asked for, and [`end_with`] is under way.
pub(crate) fn leave_to_last() {
    while is_asked() {
        std::thread::park();
    }
}

/// Waits for the end of the process if it is near: whatever began now would be cut short.
fn leave_to_end() {
    while STATE.load(Relaxed) == ENDING {
        std::thread::park();
    }
}

fn on_signal() {
    let next = |state| Some(if state == HEEDED { ASKED } else { ENDING });
    if STATE.fetch_update(Relaxed, Relaxed, next) != Ok(HEEDED) {
        std::process::exit(EXIT_CODE.into());
    }
    say_note("stopping; Ctrl-C once more ends at once");
    if let Some(last) = LAST.get() {
        // Beside this thread, which hears the second one.
        std::thread::spawn(|| {
            say_error(&Interrupted(last()).to_string(), "interrupted", None);
            std::process::exit(EXIT_CODE.into());
        });
    }
}

/// Whether somebody wants this to end.
pub(crate) fn is_asked() -> bool {
    STATE.load(Relaxed) == ASKED // It carries no data.
}

/// Ends what goes record by record; `how_far` says what was done until now.
pub(crate) fn check(how_far: impl FnOnce() -> String) -> Result<(), Interrupted> {
    if is_asked() { Err(Interrupted(how_far())) } else { Ok(()) }
}

/// The same for the library's callbacks, which then answer [`Error::Cancelled`].
pub(crate) fn flow() -> ControlFlow<()> {
    if is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// An error of the library; a cancelled call says how far it came.
pub(crate) fn told(error: Error, how_far: impl FnOnce() -> String) -> anyhow::Error {
    match error {
        Error::Cancelled if is_asked() => Interrupted(how_far()).into(),
        other => other.into(),
    }
}
