//! What other stores take for the same operations.
//!
//! A program of its own has them (`peers/src/counted.rs`), since nobody who builds this one needs them. It says which
//! rows it has run, and callgrind counts them as it counts ours. The figures are kept in a file, so that the page shows
//! them also when nobody asks for the others.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::callgrind::{Files, Run};
use super::work;

/// The stores that are counted, as the program calls them.
const STORES: [&str; 2] = ["lmdb", "bdb"];

/// The counts of other stores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The day they were counted, `2026-11-28`.
    pub day: String,
    /// Records in the table, accounts in the bank.
    pub record_count: u64,
    /// The stores.
    pub stores: Vec<Store>,
}

/// One store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// Its name, with the version.
    pub name: String,
    /// The operations.
    pub rows: Vec<StoreRow>,
}

/// What one operation takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreRow {
    /// The operation, as our own row has it.
    pub name: String,
    /// Instructions of the store, and of the C library that it calls.
    pub instructions: f64,
    /// Those of the program that asks, which are not among them: it puts every store behind the same calls.
    pub program_instructions: f64,
    /// Atomic instructions.
    pub atomics: f64,
}

/// What the program says that it has run, in this order.
#[derive(Deserialize)]
struct Said {
    name: String,
    rows: Vec<SaidRow>,
}

#[derive(Deserialize)]
struct SaidRow {
    name: String,
    count: u64,
}

impl Said {
    fn parse(text: &str) -> anyhow::Result<Said> {
        let said: Said = serde_json::from_str(text).with_context(|| format!("{text:?} does not say what was run"))?;
        for SaidRow { name, count } in &said.rows {
            ensure!(*count > 0, "{}: {name:?} was never run", said.name);
            ensure!(work::ROWS.iter().any(|row| row.name == name), "{}: ours has no row {name:?}", said.name);
        }
        Ok(said)
    }
}

impl Beside {
    /// Counts with that program.
    pub(super) fn counted(
        program: &Path,
        dir: &Path,
        record_count: u64,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> anyhow::Result<Beside> {
        let mut stores = Vec::new();
        let program = program.canonicalize().with_context(|| format!("there is no {}", program.display()))?;
        for (no, store) in STORES.iter().enumerate() {
            progress("other stores", no as u64, STORES.len() as u64);
            let dir = dir.join(store);
            stores.push(counted(&program, store, &dir, record_count).with_context(|| format!("with {store}"))?);
            std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        Ok(Beside { day: today()?, record_count, stores })
    }

    /// Reads the file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Beside> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} has no counts of other stores", path.display()))
    }

    /// Writes it.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Store {
    /// The row of an operation, if it has one.
    pub(super) fn row(&self, name: &str) -> Option<&StoreRow> {
        self.rows.iter().find(|row| row.name == name)
    }
}

fn counted(program: &Path, store: &str, dir: &Path, record_count: u64) -> anyhow::Result<Store> {
    std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let records = record_count.to_string();
    let words = ["counted", "--peer", store, "--records", &records, "--dir"].map(OsStr::new);
    let words = [&words[..], &[dir.as_os_str()]].concat();
    // Loading under callgrind would take minutes.
    let loaded = Command::new(program).args(&words).arg("--load").output();
    let loaded = loaded.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(loaded.status.success(), "cannot load: {}", String::from_utf8_lossy(&loaded.stderr).trim());
    let run = Run::of(program, &words, dir.join("callgrind"))?;
    let said = Said::parse(&run.said)?;
    let (name, mut files, mut rows) = (program.display().to_string(), Files::default(), Vec::new());
    for (no, row) in said.rows.into_iter().enumerate() {
        let part = run.row(no)?;
        let own = part.executed(&name).0.map_or(0, |executed| executed.values().sum());
        let each = |sum: u64, places: f64| (sum as f64 / row.count as f64 * places).round() / places;
        rows.push(StoreRow {
            instructions: each(part.instructions - own, 1.0),
            program_instructions: each(own, 1.0),
            atomics: each(part.atomics(&mut files)?, 100.0),
            name: row.name,
        });
    }
    Ok(Store { name: said.name, rows })
}

fn today() -> anyhow::Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("cannot run date")?;
    ensure!(output.status.success(), "date: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_has_run_must_be_rows_of_ours() {
        let said = |name: &str, count: u64| {
            format!(r#"{{"name": "LMDB 0.9", "rows": [{{"name": "{name}", "count": {count}}}]}}"#)
        };
        let parsed = Said::parse(&said("get, inside one", 7)).unwrap();
        assert_eq!((&*parsed.name, &*parsed.rows[0].name, parsed.rows[0].count), ("LMDB 0.9", "get, inside one", 7));
        for wrong in [said("get in one", 7), said("get, inside one", 0), "LMDB 0.9".into(), String::new()] {
            assert!(Said::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_file_reads_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("beside.json");
        let row = StoreRow {
            name: "get, inside one".into(),
            instructions: 1467.0,
            program_instructions: 30.0,
            atomics: 0.25,
        };
        let store = Store { name: "LMDB 0.9.24".into(), rows: vec![row] };
        let beside = Beside { day: "2026-11-28".into(), record_count: 1_000_000, stores: vec![store] };
        beside.write(&path).unwrap();
        assert_eq!(Beside::read(&path).unwrap(), beside);
        std::fs::write(&path, "{}").unwrap();
        assert!(Beside::read(&path).is_err());
    }
}
