//! The tables, for a terminal and for a page.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};

use super::{At, LinesReport, Operation, Shared};
use crate::report::number;

/// The tables of a page stand behind this line.
const MARK: &str = "<!-- measured: written by `make lines`, not by hand -->";
/// Places that move fewer lines an operation are left out.
const TRANSFERS_MIN: f64 = 0.005;

/// All tables.
pub(super) fn tables(report: &LinesReport) -> String {
    let mut text = String::new();
    let LinesReport { machine, processors, transfer, operations } = report;
    let _ = writeln!(text, "With {transfer} ns a transfer. Operations alone were timed on {machine}.\n");
    text += "| operation | alone (ns) | processors | transfers | of the hottest line | a second | wall, a second |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for Operation { name, nanoseconds, at, .. } in operations {
        for At { processors, transfers, hottest, rate, wall, .. } in at {
            let wall = if wall.is_finite() { number(wall.round()) } else { "none".into() };
            let (alone, rate) = (number(nanoseconds.round()), number(rate.min(1e12).round()));
            let _ =
                writeln!(text, "| {name} | {alone} | {processors} | {transfers:.2} | {hottest:.2} | {rate} | {wall} |");
        }
    }
    let numbers: Vec<String> = processors.iter().map(u64::to_string).collect();
    for Operation { name, at, shared, .. } in operations {
        let _ = write!(text, "\n**{name}.** ");
        let Some(last) = at.last().filter(|_| !shared.is_empty()) else {
            text += "No line is written by two processors, and none is taken from another.\n";
            continue;
        };
        match last.hottest > 0.0 {
            true => {
                let _ = writeln!(text, "The hottest line is that of `{}`.\n", last.hottest_place);
            }
            false => text += "No line is taken from another processor.\n\n",
        }
        let _ = writeln!(
            text,
            "| place | lines | written by all | writes | transfers with {} |\n| --- | ---: | ---: | ---: | {} |",
            numbers.join(" | with "),
            vec!["---:"; numbers.len()].join(" | ")
        );
        let shown =
            |shared: &&Shared| shared.written_by_all > 0 || shared.transfers.iter().any(|&t| t >= TRANSFERS_MIN);
        for Shared { place, line_count, written_by_all, writes, transfers } in shared.iter().filter(shown) {
            let transfers: Vec<String> = transfers.iter().map(|transfers| format!("{transfers:.2}")).collect();
            let transfers = transfers.join(" | ");
            let _ = writeln!(text, "| `{place}` | {line_count} | {written_by_all} | {writes:.2} | {transfers} |");
        }
    }
    text
}

/// Puts the tables into a page, in place of those that it has.
pub(super) fn write(path: &Path, report: &LinesReport) -> anyhow::Result<()> {
    let page = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let head = page.split_once(MARK).map(|(head, _)| head);
    ensure!(head.is_some(), "{} has no line {MARK}", path.display());
    let text = format!("{}{MARK}\n\n{}", head.unwrap_or_default(), tables(report));
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    #[test]
    fn tables_stand_behind_the_mark_and_replace_those_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines.md");
        let at = At {
            processors: 8,
            transfers: 1.5,
            hottest: 1.0,
            hottest_place: "log/append.rs claim".into(),
            rate: 8e6,
            wall: 1e7,
        };
        let shared = Shared {
            place: "log/append.rs claim".into(),
            line_count: 1,
            written_by_all: 1,
            writes: 3.0,
            transfers: vec![1.0],
        };
        let silent = Operation { name: "nothing".into(), nanoseconds: 5.0, at: vec![], shared: vec![] };
        let put = Operation { name: "put".into(), nanoseconds: 850.0, at: vec![at], shared: vec![shared] };
        let report = LinesReport {
            machine: Machine::here(dir.path()),
            processors: vec![8],
            transfer: 100.0,
            operations: vec![put, silent],
        };
        std::fs::write(&path, "# Lines\n").unwrap();
        assert!(write(&path, &report).is_err(), "it has no place for them");
        std::fs::write(&path, format!("# Lines\n\n{MARK}\n\nold\n")).unwrap();
        write(&path, &report).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.starts_with("# Lines\n") && !page.contains("old"), "{page}");
        assert!(page.contains("| put | 850 | 8 | 1.50 | 1.00 | 8,000,000 | 10,000,000 |"), "{page}");
        assert!(page.contains("| `log/append.rs claim` | 1 | 1 | 3.00 | 1.00 |"), "{page}");
        assert!(page.contains("**nothing.** No line is written by two processors"), "{page}");
        write(&path, &report).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
    }
}
