//! Asking a run to stop: from another thread, or by the signals a terminal sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::ProbeError;
use crate::sys::signal;

/// A request to stop, shared by the thread that asks and the thread that is asked. A run looks at it several times a
/// second.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    heeds_signals: bool,
}

impl Stop {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Also asked by SIGINT, SIGTERM and SIGHUP, which from now on do not end the process.
    ///
    /// For programs: a library that was not told to leaves signals alone.
    #[must_use]
    pub fn on_signals() -> Stop {
        signal::catch();
        Stop { heeds_signals: true, ..Stop::default() }
    }

    /// Asks the run to end, with what it has.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed); // Carries no data.
    }

    /// Whether anybody asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || (self.heeds_signals && signal::is_caught())
    }

    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        if self.is_asked() { Err(ProbeError::Stopped) } else { Ok(()) }
    }
}
