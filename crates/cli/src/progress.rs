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
    /// Where the bar is drawn, until it is: it has something to show first.
    target: Option<ProgressDrawTarget>,
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
        Progress::on(is_shown.then(|| ProgressDrawTarget::stderr_with_hz(10)))
    }

    fn on(target: Option<ProgressDrawTarget>) -> Progress {
        let bar = target.is_some().then(ProgressBar::hidden);
        Progress { bar, target, what: String::new(), shown: None, done: 0 }
    }

    /// `done` of `all`; `all` 0 if nobody knows it. Rate and time left go on from call to call, whatever `what` says,
    /// until less is done than before: then something else has begun.
    pub(crate) fn show(&mut self, what: &str, done: u64, all: u64, unit: Unit) {
        let Some(bar) = &self.bar else { return };
        let is_new = self.shown != Some((unit, all > 0));
        if is_new {
            let style = ProgressStyle::with_template(&unit.template(all > 0));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.shown = Some((unit, all > 0));
        }
        bar.set_length(all); // Before anything is drawn in this style: a bar of 0 is full.
        if is_new || done < self.done {
            bar.reset();
        }
        if what != self.what {
            what.clone_into(&mut self.what);
            bar.set_message(escaped(what)); // Not in the template: a table may be called "{}".
        }
        self.done = done;
        bar.set_position(done);
        if let Some(target) = self.target.take() {
            bar.set_draw_target(target);
            bar.tick();
        }
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

#[cfg(test)]
mod tests {
    use std::io::Result;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what it is told.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl Kept {
        fn add(&self, text: &str) -> Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Kept {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> Result<()> {
            self.add(text)?;
            self.add("\n")
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> Result<()> {
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            self.add("\n")
        }
    }

    /// Each picture has the name of what is under way, and a bar only where its end is known.
    #[test]
    fn nothing_is_drawn_before_it_is_known() {
        let terminal = Kept::default();
        let mut progress = Progress::on(Some(ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 255)));
        assert_eq!(*terminal.0.lock().unwrap(), "");
        let steps =
            [("look", 0, 0), ("look", 5, 0), ("read", 0, 100), ("read", 50, 100), ("wait", 0, 0), ("end", 1, 9)];
        for (what, done, all) in steps {
            progress.show(what, done, all, Unit::Count);
            let bar = progress.bar.as_ref().unwrap();
            bar.tick();
        }
        drop(progress);
        let told = std::mem::take(&mut *terminal.0.lock().unwrap());
        let pictures: Vec<&str> = told.lines().filter(|line| !line.trim().is_empty()).collect();
        assert!(pictures.first().is_some_and(|first| first.starts_with("look ")), "{told}");
        for picture in pictures {
            assert!(steps.iter().any(|(what, ..)| picture.starts_with(&format!("{what} "))), "{told}");
            assert!(!picture.contains("0/0") && !picture.contains(" of 0"), "{told}");
        }
    }
}
