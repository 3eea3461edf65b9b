//! The public interface as the sources have it, compared with what is tested here: a new method or a new closure that
//! nobody tests is told by its name.

use std::collections::BTreeSet;
use std::path::Path;

use super::calls;
use super::closures::{INSIDE, OUTSIDE};
use super::media::MEDIA;

/// The types whose methods are called inside of closures.
const TYPES: [&str; 22] = [
    "BytesTable",
    "ChangeFeed",
    "Entry",
    "EnvTable",
    "Environment",
    "Index",
    "IndexRange",
    "IndexedRecords",
    "LogReader",
    "Prepared",
    "Range",
    "SortedLoader",
    "StructureHandle",
    "Table",
    "Ticket",
    "Transaction",
    "TypedEntry",
    "TypedEnvTable",
    "TypedIndex",
    "TypedIndexRange",
    "TypedRange",
    "ValueReader",
];

/// Methods that no closure calls, and why.
const NOT_CALLED: [(&str, &str); 27] = [
    ("ChangeFeed::position", SAYS),
    ("Environment::assert_nothing_left", OF_CAMPAIGNS),
    ("Environment::end_background", OF_CAMPAIGNS),
    ("Environment::end_orphans", OF_CAMPAIGNS),
    ("Environment::is_half_cut", OF_CAMPAIGNS),
    ("Environment::repair_after_deaths", OF_CAMPAIGNS),
    ("Environment::view", OF_CAMPAIGNS),
    ("Environment::damaged_control_slot", OF_A_DIRECTORY),
    ("Environment::damaged_pages_in", OF_A_DIRECTORY),
    ("Environment::forget_all_changes", OF_A_DIRECTORY),
    ("Environment::forget_all_changes_on", OF_A_DIRECTORY),
    ("Environment::options", "makes options"),
    ("Environment::overwrite_device", OF_A_DIRECTORY),
    ("Environment::rebuild_control", OF_A_DIRECTORY),
    ("Environment::rebuild_control_on", OF_A_DIRECTORY),
    ("Environment::was_closed", OF_A_DIRECTORY),
    ("LogReader::end", SAYS),
    ("LogReader::position", SAYS),
    ("LogReader::with_filter", SAYS),
    ("Prepared::global_id", SAYS),
    ("Prepared::lsn", SAYS),
    ("Prepared::xid", SAYS),
    ("Environment::is_shared", OF_A_DIRECTORY),
    ("Environment::processes", SAYS),
    ("StructureHandle::instance", SAYS),
    ("StructureHandle::structure", SAYS),
    ("Ticket::lsn", SAYS),
];
const OF_CAMPAIGNS: &str = "for campaigns of deaths only";
const OF_A_DIRECTORY: &str = "of a directory that nobody has open; refused if somebody has";
const SAYS: &str = "says or keeps what the handle has, and asks nobody";

/// Closures that are not called here, and why.
const NOT_HANDED_IN: [(&str, &str); 4] = [
    ("Environment::wait_rolled_back_with", "called beside a rollback only: put_off.rs"),
    ("Backup::repair_on", "`repair_with` calls it, on a directory"),
    ("Backup::restore_on", "`restore_with` calls it, on a directory"),
    ("Names::make", "not public outside of the library"),
];

/// A public method: its type, its name, and what it takes.
struct Method {
    name: String,
    takes: String,
}

impl Method {
    /// It takes code of the user's: a closure, an iterator, or somebody to write to.
    fn takes_code(&self) -> bool {
        ["Fn(", "FnMut(", "FnOnce(", "IntoIterator<", "dyn Write", "dyn BufRead"]
            .iter()
            .any(|code| self.takes.contains(code))
    }
}

/// All public methods in a file.
fn methods_in(text: &str, methods: &mut Vec<Method>) {
    let mut of = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('}') {
            of = None;
        } else if let Some(rest) = line.strip_prefix("impl") {
            of = type_of(rest);
        } else if let (Some(of), Some(at)) = (&of, line.strip_prefix("    pub ").and_then(|rest| rest.find("fn "))) {
            let mut takes = line["    pub ".len() + at + 3..].to_string();
            while !takes.contains(" {") && !takes.contains(';') {
                takes.push_str(lines.next().expect("a signature ends"));
            }
            let end = takes.find(['(', '<']).expect("a method has parameters");
            methods.push(Method { name: format!("{of}::{}", &takes[..end]), takes: takes[end..].to_string() });
        }
    }
}

/// Whose methods a line says that begins so behind `impl`. `None`: of a trait.
fn type_of(rest: &str) -> Option<String> {
    let rest = match rest.strip_prefix('<') {
        None => rest,
        Some(_) => {
            let mut depth = 0;
            let end = rest.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            });
            &rest[end? + 1..]
        }
    };
    let name = rest.trim_start();
    (!name.contains(" for ")).then(|| name[..name.find(['<', ' ']).unwrap_or(name.len())].to_string())
}

fn methods() -> Vec<Method> {
    fn walk(dir: &Path, methods: &mut Vec<Method>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, methods);
            } else {
                methods_in(&std::fs::read_to_string(&path).unwrap(), methods);
            }
        }
    }
    let mut methods = Vec::new();
    for dir in ["src", "../core/src/keeper", "../core/src/typed", "../feed/src", "../media/src"] {
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut methods);
    }
    methods
}

/// Fails unless what is there is what is tested, or left out for a reason.
fn compare(what: &str, there: &BTreeSet<String>, tested: &BTreeSet<String>, left_out: &[(&str, &str)]) {
    let left_out: BTreeSet<String> = left_out
        .iter()
        .map(|(name, why)| {
            assert!(!why.is_empty(), "{name} is left out for no reason");
            (*name).to_string()
        })
        .collect();
    let missing: Vec<_> = there.iter().filter(|name| !tested.contains(*name) && !left_out.contains(*name)).collect();
    assert!(missing.is_empty(), "{what} that nobody tests: {missing:#?}");
    let gone: Vec<_> = tested.iter().chain(&left_out).filter(|name| !there.contains(*name)).collect();
    assert!(gone.is_empty(), "{what} that are tested or left out, and are not there: {gone:#?}");
    let both: Vec<_> = left_out.intersection(tested).collect();
    assert!(both.is_empty(), "{what} that are tested and left out: {both:#?}");
}

/// What a test is of: its name up to the comma. Without a `::` it is of no method: of code of types and structures, of
/// iterators and streams, of dumps.
fn of(name: &str) -> String {
    name.split(',').next().unwrap_or(name).to_string()
}

#[test]
fn every_public_method_is_called_inside_closures() {
    let is_of_those = |name: &str| name.split("::").next().is_some_and(|of| TYPES.contains(&of) || of == "ValueWriter");
    let there = methods().into_iter().map(|method| method.name).filter(|name| is_of_those(name)).collect();
    let tested = calls::names().into_iter().map(of).filter(|name| name.contains("::")).collect();
    compare("methods", &there, &tested, &NOT_CALLED);
}

#[test]
fn every_closure_that_can_be_handed_in_is_one_that_panics() {
    let there = methods().into_iter().filter(Method::takes_code).map(|method| method.name).collect();
    let inside = INSIDE.iter().map(|(name, _)| of(name));
    let tested = inside.chain(OUTSIDE.iter().map(|(name, _)| of(name))).chain(MEDIA.iter().map(|(name, _)| of(name)));
    compare("closures", &there, &tested.filter(|name| name.contains("::")).collect(), &NOT_HANDED_IN);
}

#[test]
fn a_table_of_the_environment_has_the_calls_of_one_in_a_transaction() {
    let all: BTreeSet<String> = methods().into_iter().map(|method| method.name).collect();
    let of = |of: &str| -> BTreeSet<&str> {
        all.iter().filter_map(|name| name.strip_prefix(of)?.strip_prefix("::")).filter(|name| *name != "of").collect()
    };
    assert!(of("BytesTable").len() > 30 && of("Table").len() > 20);
    assert_eq!(of("EnvTable"), of("BytesTable"));
    assert_eq!(of("TypedEnvTable"), of("Table"));
}
