//! Progress of long work: a bar on standard error, only if that is a terminal and nobody asked for quiet.

use std::fmt::Write;
use std::io::IsTerminal;
use std::ops::ControlFlow;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
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
    shown: Option<(Unit, Bound)>,
    done: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    /// Things of this name, in the plural; empty where each step is of another kind.
    Count(&'static str),
}

/// What is known of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Unknown,
    Known,
    /// An estimate.
    About,
}

impl Bound {
    /// The bar: how much is done, how fast, and how long it will take.
    fn template(self) -> &'static str {
        match self {
            Bound::Unknown => "{msg} {spinner} {done}, {rate}, {elapsed}",
            Bound::Known => "{msg} {wide_bar} {done} of {all}, {rate}, {eta} left",
            Bound::About => "{msg} {wide_bar} {done} of about {all}, {rate}, about {eta} left",
        }
    }
}

impl Unit {
    fn style(self, bound: Bound) -> ProgressStyle {
        let style = ProgressStyle::with_template(bound.template()).unwrap_or_else(|_| ProgressStyle::default_bar());
        let done = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&self.amount(state.pos())); // Writing to a string cannot fail.
        };
        let all = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&self.named(self.amount(state.len().unwrap_or(0))));
        };
        let rate = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&self.rate(state.per_sec()));
        };
        style.with_key("done", done).with_key("all", all).with_key("rate", rate)
    }

    fn amount(self, count: u64) -> String {
        match self {
            Unit::Bytes => bytes_readable(count),
            Unit::Count(_) => HumanCount(count).to_string(),
        }
    }

    fn named(self, amount: String) -> String {
        match self {
            Unit::Bytes | Unit::Count("") => amount,
            Unit::Count(name) => format!("{amount} {name}"),
        }
    }

    /// Slow work has a decimal, and other work none.
    fn rate(self, per_second: f64) -> String {
        let amount = match self {
            Unit::Count(_) if per_second < 10.0 => format!("{per_second:.1}"),
            _ => self.amount(per_second.round() as u64),
        };
        self.named(amount) + "/s"
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
        self.draw(what, done, all, unit, if all > 0 { Bound::Known } else { Bound::Unknown });
    }

    /// The same with an estimate, which [`Progress::about`] has made.
    pub(crate) fn show_about(&mut self, what: &str, done: u64, about: u64, unit: Unit) {
        self.draw(what, done, about.max(done), unit, if about > 0 { Bound::About } else { Bound::Unknown });
    }

    /// An estimate, if there is a bar to show it; 0 if it cannot be made.
    pub(crate) fn about(&self, estimate: impl FnOnce() -> Result<u64, Error>) -> u64 {
        // What is wrong is said by the work itself.
        self.bar.as_ref().map_or(0, |_| estimate().unwrap_or(0))
    }

    fn draw(&mut self, what: &str, done: u64, all: u64, unit: Unit, bound: Bound) {
        let Some(bar) = &self.bar else { return };
        let is_new = self.shown != Some((unit, bound));
        if is_new {
            bar.set_style(unit.style(bound));
            self.shown = Some((unit, bound));
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

    /// A terminal that keeps what was written: all of it, and what is still there.
    #[derive(Debug, Clone, Default)]
    struct Screen {
        told: Arc<Mutex<String>>,
        shown: Arc<Mutex<String>>,
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            120
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
        fn write_line(&self, line: &str) -> Result<()> {
            self.write_str(line).and_then(|()| self.write_str("\n"))
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.told.lock().unwrap().push_str(text);
            self.shown.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> Result<()> {
            self.shown.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            self.told.lock().unwrap().push('\n');
            Ok(())
        }
    }

    /// Each picture has the name of what is under way, and a bar only where its end is known.
    #[test]
    fn nothing_is_drawn_before_it_is_known() {
        let screen = Screen::default();
        let mut progress = Progress::on(Some(ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255)));
        assert_eq!(*screen.told.lock().unwrap(), "");
        let steps =
            [("look", 0, 0), ("look", 5, 0), ("read", 0, 100), ("read", 50, 100), ("wait", 0, 0), ("end", 1, 9)];
        for (what, done, all) in steps {
            progress.show(what, done, all, Unit::Count("pages"));
            let bar = progress.bar.as_ref().unwrap();
            bar.tick();
        }
        drop(progress);
        let told = std::mem::take(&mut *screen.told.lock().unwrap());
        let pictures: Vec<&str> = told.lines().filter(|line| !line.trim().is_empty()).collect();
        assert!(pictures.first().is_some_and(|first| first.starts_with("look ")), "{told}");
        for picture in pictures {
            assert!(steps.iter().any(|(what, ..)| picture.starts_with(&format!("{what} "))), "{told}");
            assert!(!picture.contains("0/0") && !picture.contains(" of 0"), "{told}");
        }
    }

    #[test]
    fn a_bar_says_how_much_how_fast_and_how_long() {
        let said = |show: &dyn Fn(&mut Progress)| {
            let screen = Screen::default();
            let mut progress = Progress::on(Some(ProgressDrawTarget::term_like(Box::new(screen.clone()))));
            show(&mut progress);
            if let Some(bar) = progress.bar.take() {
                bar.abandon(); // Draws at once, and leaves it there.
            }
            screen.shown.lock().unwrap().clone()
        };
        let check = |text: &str, parts: &[&str]| {
            let found = parts.iter().try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest));
            assert!(found.is_some(), "{parts:?} in this order: {text}");
        };
        let records = Unit::Count("records");
        let text = said(&|progress| progress.show_about("export", 434_176, 1_500_000, records));
        check(&text, &["export", "434,176 of about 1,500,000 records, ", " records/s, about ", " left"]);
        let text = said(&|progress| progress.show_about("export", 7, 0, records));
        check(&text, &["export", " 7, ", " records/s, "]);
        assert!(!text.contains("left"), "{text}");
        let text = said(&|progress| progress.show_about("export", 11, 10, records));
        check(&text, &["11 of about 11 records"]);
        let text = said(&|progress| progress.show("verify pages", 3, 1234, Unit::Count("pages")));
        check(&text, &["verify pages", "3 of 1,234 pages, ", " pages/s, ", " left"]);
        let text = said(&|progress| progress.show("restore", 1 << 20, 3 << 20, Unit::Bytes));
        check(&text, &["restore", "1 MiB of 3 MiB, ", "/s, ", " left"]);
        let text = said(&|progress| progress.show_about("pack {big}", 200, 500, Unit::Count("leaves")));
        check(&text, &["pack {big}", "200 of about 500 leaves, ", " leaves/s, about ", " left"]);
    }

    #[test]
    fn rates_have_a_unit_and_no_digits_that_nobody_reads() {
        let check = |unit: Unit, per_second: f64, text: &str| assert_eq!(unit.rate(per_second), text);
        check(Unit::Count("records"), 275_811.1, "275,811 records/s");
        check(Unit::Count("cuts"), 1.1784, "1.2 cuts/s");
        check(Unit::Count(""), 12.4, "12/s");
        check(Unit::Bytes, 1_572_864.0, "1.50 MiB/s");
    }

    #[test]
    fn nothing_is_estimated_for_a_bar_that_is_not_there() {
        assert_eq!(Progress::on(None).about(|| panic!("it reads pages")), 0);
    }
}
