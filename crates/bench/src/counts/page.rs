//! The page of counts (`docs/costs.md`): written from a report, read to see what has grown.

use std::path::Path;

use anyhow::{Context, ensure};

use super::beside::Beside;
use super::common::{INSTRUCTION_NS, LINES, TRANSFER_NS, rate};
use super::topics::TOPICS;
use super::work::{READ, READ_AND_EVICT};
use super::{Count, CountsReport, Profile};
use crate::report::number;

/// What grows by more is told: 3 %, and no less than this many instructions or atomics.
const GROWTH: f64 = 1.03;
const GROWTH_MIN: [f64; 3] = [10.0, 0.5, 0.1];
/// The cells of a row of the table.
const HEAD: &str = "| operation | instructions | atomics | allocations | code, KiB |";

/// Instructions and atomics that were aimed at.
const GOALS: [(&str, f64, f64); 10] = [
    ("begin and commit, empty", 450.0, 5.0),
    ("begin and commit, read-only", 300.0, 3.0),
    ("get, own transaction", 2_000.0, 8.0),
    ("get, inside one", 1_300.0, 3.0),
    ("scan, a record", 120.0, 0.1),
    ("put existing, own transaction", 4_500.0, 16.0),
    ("insert in key order, one transaction", 2_200.0, 4.0),
    ("insert in random order, one transaction", 3_500.0, 5.0),
    ("TPC-B without sync", 12_000.0, 40.0),
    ("TPC-B, read-only", 4_500.0, 18.0),
];

/// Of these rows the page says which lines they write.
const WRITERS: [&str; 6] = [
    "begin and commit, read-only",
    "get, own transaction",
    "put existing, own transaction",
    "insert in key order, one transaction",
    "TPC-B, read-only",
    "TPC-B without sync",
];

/// The page.
pub(super) fn text(report: &CountsReport) -> String {
    let mut text = format!(
        "# What an operation costs\n\n\
         Counted by `make counts` with callgrind, and so nearly the same on every machine of this kind. Two runs differ by\n\
         less than 1 % in instructions, and by one allocation in a TPC-B. The table has {} records with keys of 8 bytes\n\
         and values of 100, and the bank of TPC-B as many accounts. One thread works. All pages are in the cache, and\n\
         commits do not wait for the disk, unless the row says otherwise. The log of a row fits into its buffer of 256 MiB,\n\
         so the thread never flushes in place of the flusher. With the default's 8 MiB an insert has one atomic more,\n\
         since a transaction keeps less of the log between its calls. Transactions of their own, and those of TPC-B, use\n\
         tables that the environment has open. What background threads do is not counted.\n\n\
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
    text += &pages(&report.counts);
    text += &goals(&report.counts, report.beside.as_ref());
    text + &topics(&report.profiles) + &lines(&report.profiles) + &walls(&report.counts, &report.profiles)
}

/// What the rows say that are about one thing more than others are.
fn pages(counts: &[Count]) -> String {
    let row = |name: &str| counts.iter().find(|count| count.name == name);
    let (Some(read), Some(evicting)) = (row(READ), row(READ_AND_EVICT)) else { return String::new() };
    format!(
        "\nThree kinds of rows are checked while they are counted. Each insert that splits its leaf goes into another full\n\
         leaf, with a value of 300 bytes, and as many pages are made. It takes a page, moves half of the records there,\n\
         and puts a separator above. A get or put that reads its page from the device finds the cache full, and evicts\n\
         another page for it. A get that reads its page into a free frame evicts none. So an eviction takes\n\
         about {} instructions and {:.1} atomics.\n",
        number((evicting.instructions - read.instructions).round()),
        evicting.atomics - read.atomics,
    )
}

fn goals(counts: &[Count], beside: Option<&Beside>) -> String {
    let stores = beside.map_or(&[][..], |beside| &beside.stores);
    let mut text = "\n## Beside what was aimed at\n\nInstructions and atomics of an operation.".to_owned();
    if let Some(beside) = beside {
        text += &others(beside);
    }
    text += "\n[tried.md](tried.md) says what was tried where a goal is missed.\n\n| operation | here | goal | of the goal |";
    stores.iter().for_each(|store| text += &format!(" {} |", store.name));
    text += &format!("\n| --- | ---: | ---: | ---: |{}\n", " ---: |".repeat(stores.len()));
    for (name, instructions, atomics) in GOALS {
        let Some(count) = counts.iter().find(|count| count.name == name) else { continue };
        text += &format!(
            "| {name} | {} / {:.1} | {} / {atomics} | {:.2} / {:.2} |",
            number(count.instructions.round()),
            count.atomics,
            number(instructions),
            count.instructions / instructions,
            count.atomics / atomics,
        );
        for store in stores {
            text += &match store.row(name) {
                Some(row) => format!(" {} / {:.1} |", number(row.instructions), row.atomics),
                None => " - |".to_owned(),
            };
        }
        text += "\n";
    }
    text
}

/// How the other stores were counted.
fn others(Beside { day, record_count, stores }: &Beside) -> String {
    let names: Vec<&str> = stores.iter().map(|store| store.name.as_str()).collect();
    let (names, records) = (names.join(" and "), number(*record_count as f64));
    format!(
        " {names}\n\
         were counted on {day} by `make counts BESIDE=1`, in the same way, with {records} records. Theirs are\n\
         without the program that asks, which gives every store the same calls. Ours have it. In a get it takes some 50.\n\
         [peers.md](peers.md#how-each-peer-is-set-up) says how they are set up. Neither waits for the disk. Inserts in\n\
         key order tell LMDB that they are. LMDB keeps no log and lets one transaction write at a time.\n"
    )
}

fn topics(profiles: &[Profile]) -> String {
    let mut text = "\n## Where the instructions are\n\n\
         By what they are for, as the file says that they come from, also where the compiler has put them into another\n\
         one. Reading and writing words of pages is counted for the column that it is done for, where the compiler has\n\
         put it there. The column of words has what stayed a call of its own, such as copies of pages. The C library\n\
         copies, compares and gives memory. The rest is the program that is counted, and what other libraries do out of\n\
         line: the standard library, checksums, the calls of the disk.\n\n| operation |"
        .to_owned();
    TOPICS.iter().for_each(|topic| text += &format!(" {topic} |"));
    text += &format!(" rest |\n| --- |{}\n", " ---: |".repeat(TOPICS.len() + 1));
    for profile in profiles {
        text += &format!("| {} |", profile.name);
        let columns = profile.topics.iter().chain([&profile.rest]);
        columns.for_each(|each| text += &format!(" {} |", number(each.round())));
        text += "\n";
    }
    text
}

/// The profiles of [`WRITERS`].
fn writers(profiles: &[Profile]) -> Vec<&Profile> {
    WRITERS.iter().filter_map(|name| profiles.iter().find(|profile| profile.name == *name)).collect()
}

fn lines(profiles: &[Profile]) -> String {
    let mut text = "\n## Lines that are written in common\n\n\
         Atomic instructions of an operation, by what they write and who else writes it. Two that follow each other at\n\
         once, as on the two words of claims, find the line at hand the second time. [latch-order.md](latch-order.md)\n\
         says for each step what it writes.\n\n| line | who else |"
        .to_owned();
    let profiles = writers(profiles);
    profiles.iter().for_each(|profile| text += &format!(" {} |", profile.name));
    text += &format!("\n| --- | --- |{}\n", " ---: |".repeat(profiles.len()));
    for (no, line) in LINES.iter().enumerate() {
        text += &format!("| {} | {} |", line.name, line.whose.text());
        profiles.iter().for_each(|profile| text += &format!(" {:.2} |", profile.lines[no]));
        text += "\n";
    }
    text += "| references, and the program that is counted | nobody |";
    profiles.iter().for_each(|profile| text += &format!(" {:.2} |", profile.others));
    text + "\n"
}

fn walls(counts: &[Count], profiles: &[Profile]) -> String {
    const PROCESSORS: [f64; 5] = [1.0, 2.0, 8.0, 32.0, 128.0];
    let mut text = format!(
        "\n## What more processors could do\n\n\
         A model, and no measurement. An instruction takes {INSTRUCTION_NS} ns, and each visit to a line that all\n\
         threads write takes {TRANSFER_NS} ns more if another processor had it. A processor has a line at a time, and so\n\
         the line that is visited most is the first wall. Operations a second at best, without conflicts, and the wall\n\
         where there is one.\n\n| operation |"
    );
    PROCESSORS.iter().for_each(|count| text += &format!(" {count} |"));
    text += &format!("\n| --- |{}\n", " ---: |".repeat(PROCESSORS.len()));
    for profile in writers(profiles) {
        let Some(count) = counts.iter().find(|count| count.name == profile.name) else { continue };
        text += &format!("| {} |", profile.name);
        for processors in PROCESSORS {
            let (rate, wall) = rate(processors, count.instructions, &profile.lines);
            let wall = wall.map_or(String::new(), |no| format!(" ({})", LINES[no].name));
            text += &format!(" {}{wall} |", number((rate / 1000.0).round() * 1000.0));
        }
        text += "\n";
    }
    text + "\nWhat to do at these walls is in [latch-order.md](latch-order.md#the-first-walls).\n"
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
    use super::super::beside::{Store, StoreRow};
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
        let report = CountsReport {
            machine,
            record_count: 1_000_000,
            counts: counts.clone(),
            profiles: Vec::new(),
            grown: Vec::new(),
            beside: None,
        };
        let path = dir.path().join("costs.md");
        std::fs::write(&path, text(&report)).unwrap();
        assert_eq!(read(&path).unwrap(), counts);
        std::fs::write(&path, "# Nothing\n").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn goals_stand_beside_other_stores_where_these_were_counted() {
        let counts = [count("get, inside one", 2600.0, 3.0), count("scan, a record", 240.0, 0.25)];
        let alone = goals(&counts, None);
        assert!(alone.contains("\n| get, inside one | 2,600 / 3.0 | 1,300 / 3 | 2.00 / 1.00 |\n"), "{alone}");
        assert!(!alone.contains("LMDB"), "{alone}");

        let row = StoreRow {
            name: "get, inside one".into(),
            instructions: 1467.0,
            program_instructions: 30.0,
            atomics: 0.25,
        };
        let store = |name: &str, rows| Store { name: name.into(), rows };
        let stores = vec![store("LMDB 0.9.24", vec![row]), store("Berkeley DB 5.3.28", Vec::new())];
        let beside = Beside { day: "2026-11-28".into(), record_count: 1_000_000, stores };
        let text = goals(&counts, Some(&beside));
        for line in [
            "LMDB 0.9.24 and Berkeley DB 5.3.28\nwere counted on 2026-11-28 ",
            "| operation | here | goal | of the goal | LMDB 0.9.24 | Berkeley DB 5.3.28 |\n",
            "| get, inside one | 2,600 / 3.0 | 1,300 / 3 | 2.00 / 1.00 | 1,467 / 0.2 | - |\n",
            "| scan, a record | 240 / 0.2 | 120 / 0.1 | 2.00 / 2.50 | - | - |\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
    }

    #[test]
    fn each_goal_has_its_row_and_an_eviction_is_the_difference_of_two() {
        let is_row = |name: &str| super::super::work::ROWS.iter().any(|row| row.name == name);
        GOALS.iter().for_each(|(name, ..)| assert!(is_row(name), "{name}"));
        assert!(is_row(READ) && is_row(READ_AND_EVICT));
        assert_eq!(pages(&[count(READ, 1.0, 1.0)]), "");
        let text = pages(&[count(READ, 8000.0, 20.0), count(READ_AND_EVICT, 9500.0, 25.5)]);
        assert!(text.contains("an eviction takes\nabout 1,500 instructions and 5.5 atomics."), "{text}");
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
