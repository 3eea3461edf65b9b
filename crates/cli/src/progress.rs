//! Progress of long work: a bar on standard error, only if that is a terminal and nobody asked for quiet.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{Output, escaped, say};

/// A bar that names what is under way. Without a terminal it does nothing.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    what: String,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Count,
}

impl Progress {
    pub(crate) fn new(output: &Output) -> Progress {
        let is_shown = !output.is_quiet && std::io::stderr().is_terminal();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::new(0);
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            bar
        });
        Progress { bar, what: String::new() }
    }

    /// `done` of `all`; `all` 0 if nobody knows it.
    pub(crate) fn show(&mut self, what: &str, done: u64, all: u64, unit: Unit) {
        let Some(bar) = &self.bar else { return };
        if what != self.what {
            what.clone_into(&mut self.what);
            bar.reset();
            let count = match unit {
                Unit::Bytes => "{bytes} of {total_bytes}, {bytes_per_sec}",
                Unit::Count => "{human_pos} of {human_len}, {per_sec}",
            };
            let template = if all == 0 {
                "{msg} {spinner} {human_pos}, {per_sec}, {elapsed}".to_owned()
            } else {
                format!("{{msg}} {{wide_bar}} {count}, {{eta}} left")
            };
            bar.set_message(escaped(what)); // Not in the template: a table may be called "{}".
            bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        bar.set_length(all);
        bar.set_position(done);
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
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
