//! Progress of long work: a bar on standard error, only if that is a terminal and nobody asked for quiet.

use std::io::IsTerminal;
use std::ops::ControlFlow;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ledgerstone::{Error, MediaProgress};

use crate::interrupt::{self, Heeding};
use crate::output::{Output, bytes_readable, escaped, say_note};

/// A bar that names what is under way. Without a terminal it does nothing.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    /// What the bar looks like now, and where it is.
    shown: Option<(Unit, bool)>,
    done: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Count,
    Pages,
}

impl Unit {
    /// The bar: how much is done, how fast, and how long it will take; without `is_bounded` nobody knows the last.
    fn template(self, is_bounded: bool) -> String {
        let (done, all, rate) = match self {
            Unit::Bytes => ("{bytes}", "{total_bytes}", "{bytes_per_sec}"),
            Unit::Count => ("{human_pos}", "{human_len}", "{per_sec}"),
            Unit::Pages => ("{human_pos}", "{human_len} pages", "{per_sec}"),
        };
        if is_bounded {
            format!("{{msg}} {{wide_bar}} {done} of {all}, {rate}, {{eta}} left")
        } else {
            format!("{{msg}} {{spinner}} {done}, {rate}, {{elapsed}}")
        }
    }
}

impl Progress {
    pub(crate) fn new(output: &Output) -> Progress {
        let is_shown = !output.is_quiet && std::io::stderr().is_terminal();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::new(0);
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            bar
        });
        Progress { bar, what: String::new(), shown: None, done: 0 }
    }

    /// `done` of `all`; `all` 0 if nobody knows it. Rate and time left go on from call to call, whatever `what` says,
    /// until less is done than before: then something else has begun.
    pub(crate) fn show(&mut self, what: &str, done: u64, all: u64, unit: Unit) {
        let Some(bar) = &self.bar else { return };
        if what != self.what {
            what.clone_into(&mut self.what);
            bar.set_message(escaped(what)); // Not in the template: a table may be called "{}".
        }
        if done < self.done || self.shown != Some((unit, all > 0)) {
            bar.reset();
            let style = ProgressStyle::with_template(&unit.template(all > 0));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.shown = Some((unit, all > 0));
        }
        self.done = done;
        bar.set_length(all);
        bar.set_position(done);
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say_note(line)),
            None => say_note(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A call of the library on backups, shown, and ended by Ctrl-C.
pub(crate) struct Watched {
    bar: Progress,
    /// What is done, bytes done, and bytes in all, 0 if nobody knows.
    at: Option<(&'static str, u64, u64)>,
    _heeding: Heeding,
}

impl Watched {
    pub(crate) fn new(output: &Output) -> Watched {
        Watched { bar: Progress::new(output), at: None, _heeding: interrupt::heed() }
    }

    /// Shows it, and says whether to go on.
    pub(crate) fn show(&mut self, at: MediaProgress) -> ControlFlow<()> {
        self.bar.show(at.what, at.done_bytes, at.total_bytes, Unit::Bytes);
        self.at = Some((at.what, at.done_bytes, at.total_bytes));
        interrupt::flow()
    }

    /// The error, which says how far it came and what that leaves, if Ctrl-C ended it.
    pub(crate) fn told(&self, error: Error, leaves: &str) -> anyhow::Error {
        interrupt::told(error, || match self.at {
            None => format!("at once: {leaves}"),
            Some((what, done, 0)) => format!("({what}) after {}: {leaves}", bytes_readable(done)),
            Some((what, done, all)) => {
                format!("({what}) after {} of {}: {leaves}", bytes_readable(done), bytes_readable(all))
            }
        })
    }
}
