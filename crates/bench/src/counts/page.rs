//! The page of counts (`docs/costs.md`): written from a report, read to see what has grown.

use std::path::Path;

use anyhow::{Context, ensure};

use super::{Count, CountsReport};
use crate::report::number;

/// What grows by more is told: 3 %, and no less than this many instructions or atomics.
const GROWTH: f64 = 1.03;
const GROWTH_MIN: [f64; 3] = [10.0, 0.5, 0.1];
/// The cells of a row of the table.
const HEAD: &str = "| operation | instructions | atomics | allocations | code, KiB |";

/// The page.
pub(super) fn text(report: &CountsReport) -> String {
    let mut text = format!(
        "# What an operation costs\n\n\
         Counted by `make counts` with callgrind, and so nearly the same on every machine of this kind. The table has\n\
         {} records with keys of 8 bytes and values of 100, and the bank of TPC-B as many accounts. One thread works. All\n\
         pages are in the cache, and commits do not wait for the disk, unless the row says otherwise. Transactions of\n\
         their own, and those of TPC-B, use tables that the environment has open. What background threads do is not\n\
         counted.\n\n\
         Atomics are instructions that change memory in one step for all processors (`lock`, and `xchg` with memory).\n\
         Allocations are calls of `malloc` and the like. The last column is the code that all operations of a row\n\
         touched, in lines of 64 bytes: the instruction cache has 32 KiB.\n\n{HEAD}\n| --- | ---: | ---: | ---: | ---: |\n",
        number(report.record_count as f64)
    );
    for Count { name, instructions, atomics, allocations, code_bytes } in &report.counts {
        let instructions = number(instructions.round());
        let kib = *code_bytes as f64 / 1024.0;
        text += &format!("| {name} | {instructions} | {atomics:.1} | {allocations:.1} | {kib:.1} |\n");
    }
    text
}

/// The counts of a page.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Count>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = text.lines().skip_while(|line| *line != HEAD).skip(2).take_while(|line| line.starts_with('|'));
    let counts: Option<Vec<Count>> = rows.map(row).collect();
    let counts = counts.with_context(|| format!("{}: a row of the table is not understood", path.display()))?;
    ensure!(!counts.is_empty(), "{} has no table of counts", path.display());
    Ok(counts)
}

fn row(line: &str) -> Option<Count> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [name, instructions, atomics, allocations, kib] = cells[..] else { return None };
    let figure = |cell: &str| cell.replace(',', "").parse::<f64>().ok();
    Some(Count {
        name: name.to_owned(),
        instructions: figure(instructions)?,
        atomics: figure(atomics)?,
        allocations: figure(allocations)?,
        code_bytes: (figure(kib)? * 1024.0) as u64,
    })
}

/// What has grown, a line each, and what is not there any more.
pub(super) fn grown(before: &[Count], now: &[Count]) -> Vec<String> {
    let mut lines = Vec::new();
    for old in before {
        let Some(new) = now.iter().find(|new| new.name == old.name) else {
            lines.push(format!("{}: it is not counted any more", old.name));
            continue;
        };
        let figures = [
            ("instructions", old.instructions, new.instructions),
            ("atomics", old.atomics, new.atomics),
            ("allocations", old.allocations, new.allocations),
        ];
        for ((what, was, is), least) in figures.into_iter().zip(GROWTH_MIN) {
            if is > was * GROWTH && is - was >= least {
                lines.push(format!("{}: {} {what} instead of {}", old.name, number(is), number(was)));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn count(name: &str, instructions: f64, atomics: f64) -> Count {
        Count { name: name.into(), instructions, atomics, allocations: 1.0, code_bytes: 2048 }
    }

    #[test]
    fn a_page_reads_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let counts = vec![count("get", 1234.0, 3.5), count("put, own transaction", 9.0, 0.0)];
        let machine = Machine::here(dir.path());
        let report = CountsReport { machine, record_count: 1_000_000, counts: counts.clone(), grown: Vec::new() };
        let path = dir.path().join("costs.md");
        std::fs::write(&path, text(&report)).unwrap();
        assert_eq!(read(&path).unwrap(), counts);
        std::fs::write(&path, "# Nothing\n").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn what_has_grown_is_told_and_small_changes_are_not() {
        let before = [count("get", 1000.0, 3.0), count("put", 1000.0, 3.0), count("scan", 5.0, 0.0)];
        let now = [count("get", 1029.0, 3.0), count("put", 1031.0, 3.6)];
        let told = grown(&before, &now);
        let expected = [
            "put: 1,031 instructions instead of 1,000",
            "put: 3.60 atomics instead of 3",
            "scan: it is not counted any more",
        ];
        assert_eq!(told, expected);
    }
}
