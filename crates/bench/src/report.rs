//! What an experiment says: figures with names, and the parts that several experiments share.

use ledgerstone::{Environment, Error, RecoveryReport};
use serde::Serialize;

use crate::Machine;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured, in words and with its unit, `point reads, 1 thread (1/s)`.
    pub name: String,
    /// The number.
    pub value: f64,
}

/// The figures of one experiment and where they were measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name, as typed behind `bench`.
    pub experiment: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The figures, in the order to print them.
    pub figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(experiment: &'static str, machine: Machine) -> Report {
        Report { experiment, machine, figures: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64) {
        self.figures.push(Figure { name: name.into(), value });
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "bench {} on {}", self.experiment, self.machine)?;
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        for Figure { name, value } in &self.figures {
            writeln!(f, "  {name:width$}  {:>14}", number(*value))?;
        }
        Ok(())
    }
}

/// A number for people: groups of three digits, decimals only where they matter.
pub(crate) fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 || value.fract() == 0.0 { 0 } else { 2 };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{rest}") }
}

/// The middle one of some figures; nothing is 0.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Counters of the log at one moment; the difference of two is what happened between them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counters {
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Durable writes of the log.
    pub sync_count: u64,
    /// Deadlocks that were ended.
    pub deadlock_count: u64,
    /// Locks that were waited for.
    pub lock_wait_count: u64,
    /// Times that a thread waited for room in the log buffer or its segments.
    pub log_wait_count: u64,
    /// Pages read from the disk.
    pub page_read_count: u64,
}

impl Counters {
    /// The counters now.
    ///
    /// # Errors
    /// As [`Environment::stat`].
    pub fn of(env: &Environment) -> Result<Counters, Error> {
        let stat = env.stat()?;
        Ok(Counters {
            log_bytes: stat.log_append_bytes,
            sync_count: stat.log_flush_count,
            deadlock_count: stat.deadlock_count,
            lock_wait_count: stat.lock_wait_count,
            log_wait_count: stat.log_wait_count,
            page_read_count: stat.page_read_count,
        })
    }

    /// What has happened since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            log_bytes: self.log_bytes - earlier.log_bytes,
            sync_count: self.sync_count - earlier.sync_count,
            deadlock_count: self.deadlock_count - earlier.deadlock_count,
            lock_wait_count: self.lock_wait_count - earlier.lock_wait_count,
            log_wait_count: self.log_wait_count - earlier.log_wait_count,
            page_read_count: self.page_read_count - earlier.page_read_count,
        }
    }
}

/// A recovery, in the words of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// True if there was nothing to recover.
    pub was_clean: bool,
    /// Log records that were read.
    pub record_count: u64,
    /// Transactions found committed.
    pub winner_count: u64,
    /// Transactions rolled back.
    pub loser_count: u64,
    /// Page updates that were missing on the disk and have been repeated.
    pub redo_applied_count: u64,
    /// Page updates that the disk had.
    pub redo_skipped_count: u64,
    /// Updates undone.
    pub undone_count: u64,
    /// Torn pages restored.
    pub torn_page_count: u64,
    /// Milliseconds of each phase, in order: torn pages, analysis, redo, undo, checkpoint.
    pub phases_ms: [f64; 5],
    /// Milliseconds of all.
    pub total_ms: f64,
}

/// The names of [`Recovery::phases_ms`].
pub const PHASES: [&str; 5] = ["torn pages", "analysis", "redo", "undo", "checkpoint"];

impl From<&RecoveryReport> for Recovery {
    fn from(report: &RecoveryReport) -> Recovery {
        let ms = |ns: u64| ns as f64 / 1e6;
        Recovery {
            was_clean: report.was_clean,
            record_count: report.record_count,
            winner_count: report.winner_count,
            loser_count: report.loser_count,
            redo_applied_count: report.redo_applied_count,
            redo_skipped_count: report.redo_skipped_count,
            undone_count: report.undone_count,
            torn_page_count: report.torn_pages.len() as u64,
            phases_ms: [report.torn_ns, report.analysis_ns, report.redo_ns, report.undo_ns, report.checkpoint_ns]
                .map(ms),
            total_ms: ms(report.total_ns()),
        }
    }
}

impl std::fmt::Display for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.was_clean {
            return write!(f, "closed in order, nothing to recover");
        }
        if self.total_ms == 0.0 {
            return write!(f, "a new environment, nothing to recover");
        }
        write!(f, "{:.1} ms:", self.total_ms)?;
        for (name, ms) in PHASES.iter().zip(self.phases_ms) {
            write!(f, " {name} {ms:.1},")?;
        }
        write!(
            f,
            " {} records read, {} commits found, {} transactions rolled back, {} page updates repeated, {} torn pages",
            self.record_count, self.winner_count, self.loser_count, self.redo_applied_count, self.torn_page_count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_come_in_groups_of_three() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(12.345), "12.35");
        assert_eq!(number(999.0), "999");
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(-1_000.0), "-1,000");
    }
}
