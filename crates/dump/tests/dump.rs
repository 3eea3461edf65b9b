//! Dump and load: every table round-trips, and what Berkeley DB dumps loads.

#[path = "../../ledgerstone/tests/common/mod.rs"]
mod common;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::*;
use ledgerstone::{Environment, Error, IndexDef, IndexKeys, TableTypes};
use ledgerstone_disk::SimDisk;
use ledgerstone_dump::{Dump, DumpFormat, DumpOptions, Duplicates, LoadOptions, LoadReport};
use proptest::prelude::*;

fn dump(env: &Environment, options: &DumpOptions) -> Vec<u8> {
    let mut text = Vec::new();
    env.dump(&mut text, options).unwrap();
    text
}

fn load(env: &Environment, text: &[u8], options: &LoadOptions) -> Result<LoadReport, Error> {
    env.load(&mut &text[..], options)
}

fn with(state: &State) -> Environment {
    let env = open(&SimDisk::new()).unwrap();
    for (name, records) in state {
        env.transact(|txn| {
            let table = txn.bytes_or_create(name)?;
            records.iter().try_for_each(|(key, value)| table.put(key, value))
        })
        .unwrap();
    }
    env
}

fn assert_round_trips(state: &State) {
    let env = with(state);
    for format in [DumpFormat::ByteValue, DumpFormat::Print] {
        let text = dump(&env, &DumpOptions::default().format(format));
        let again = open(&SimDisk::new()).unwrap();
        load(&again, &text, &LoadOptions::default().batch(7)).unwrap();
        assert!(read(&again).unwrap() == *state, "{format:?}");
        assert_eq!(dump(&again, &DumpOptions::default().format(format)), text);
    }
}

/// Names that a dump has for itself, and the one that tells tables of such names apart.
const OWN: [&str; 3] = ["ledgerstone.types", "ledgerstone.indexes", "ledgerstone.table:x"];

#[test]
fn odd_names_empty_keys_and_large_values_round_trip() {
    let mut state = State::new();
    for name in [
        "plain",
        "with space",
        "new\nline",
        "HEADER=END",
        "ümlaut",
        "back\\slash",
        "\\41",
        "\u{1}",
        OWN[0],
        OWN[1],
        OWN[2],
    ] {
        let records = state.entry(name.to_string()).or_default();
        records.insert(Vec::new(), Vec::new());
        records.insert(b"DATA=END".to_vec(), b"VERSION=3".to_vec());
        records.insert((0..=255).collect(), (0..=255).rev().collect());
        records.insert(vec![b' '], vec![b'\n'; 3]);
    }
    state.entry("large".into()).or_default().insert(b"k".to_vec(), (0..300_000).map(|n| n as u8).collect());
    state.entry("empty".into()).or_default();
    assert_round_trips(&state);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_tables_round_trip(state in prop::collection::btree_map(
        "[a-z\\\\=\n ]{1,12}",
        prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..90), 0..30),
        0..4,
    )) {
        assert_round_trips(&state);
    }
}

/// Names with what a dump, a line or a program may take for an end; `separator` is what the dump itself puts between
/// names.
fn any_name() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec!["\0", "\n", "\r", "\t", "\u{ff}", "\\", "\\00", "=", " ", ".", "ledgerstone.", "table:", "x"])
            .prop_map(String::from),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// A table with its types and indexes, as the catalog has them.
fn catalog(env: &Environment) -> Vec<(String, TableTypes, Vec<IndexDef>)> {
    let txn = env.begin().unwrap();
    let names = txn.table_names().unwrap();
    names
        .into_iter()
        .map(|name| {
            let table = txn.bytes(&name).unwrap();
            (name, table.types().clone(), table.indexes().to_vec())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_names_come_back_or_are_refused_when_they_are_given(
        tables in prop::collection::vec((any_name(), any_name(), any_name(), prop::collection::vec((any_name(), any_name()), 0..3)), 1..4)
    ) {
        let env = open(&SimDisk::new()).unwrap();
        for (table, key_type, value_type, indexes) in tables {
            let made = env.transact(|txn| txn.bytes_or_create(&table).map(drop));
            if matches!(made, Err(Error::BadTableName { .. })) {
                continue;
            }
            made.unwrap();
            let types = TableTypes { key: Some(key_type), value: Some(value_type) };
            let typed = env.transact(|txn| txn.set_table_types(&table, &types));
            prop_assert!(matches!(typed, Ok(()) | Err(Error::BadTypeName { .. } | Error::TableTypeMismatch { .. })), "{typed:?}");
            for (name, member) in indexes {
                let keys = if member.is_empty() { IndexKeys::Value } else { IndexKeys::Json(member) };
                let made = env.transact(|txn| txn.create_index(&table, &IndexDef::new(name.clone(), keys.clone())));
                prop_assert!(
                    matches!(made, Ok(()) | Err(Error::BadTableName { .. } | Error::BadIndex { .. } | Error::IndexExists { .. })),
                    "{made:?}"
                );
            }
        }
        for format in [DumpFormat::ByteValue, DumpFormat::Print] {
            let again = open(&SimDisk::new()).unwrap();
            load(&again, &dump(&env, &DumpOptions::default().format(format)), &LoadOptions::default()).unwrap();
            prop_assert_eq!(catalog(&again), catalog(&env));
        }
    }
}

#[test]
fn chosen_tables_are_dumped_and_a_missing_one_is_named() {
    let state: State = [("a", 1u64), ("b", 2)].map(|(name, n)| (name.to_string(), [(key(n), key(n))].into())).into();
    let env = with(&state);
    let text = dump(&env, &DumpOptions::default().table("b"));
    let again = open(&SimDisk::new()).unwrap();
    assert_eq!(load(&again, &text, &LoadOptions::default()).unwrap().tables, ["b"]);
    let mut nowhere = Vec::new();
    let missing = env.dump(&mut nowhere, &DumpOptions::default().table("c"));
    assert!(matches!(missing, Err(Error::NoSuchTable(name)) if name == "c"));
    let cancelled = env.dump_with(&mut nowhere, &DumpOptions::default(), |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
}

/// Gives the text on to `then`, once, when the first records have been written.
struct Midway<F: FnMut()> {
    text: Vec<u8>,
    then: Option<F>,
}

impl<F: FnMut()> std::io::Write for Midway<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if self.text.len() > 2000
            && let Some(mut then) = self.then.take()
        {
            then();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_dump_is_of_one_moment_and_neither_waits_nor_keeps_waiting() {
    let mut state = State::new();
    for table in ["a", "b"] {
        state.insert(table.to_string(), (0..400).map(|n| (key(n), vec![n as u8; 40])).collect());
    }
    let env = with(&state);
    let waiting = env.begin().unwrap();
    waiting.bytes("b").unwrap().put(&key(5), b"not committed").unwrap();
    let writer = env.clone();
    // On the dump's own thread: a lock between the two would never be given.
    let then = || {
        for (table, n) in [("a", 399), ("b", 0), ("b", 399)] {
            writer.transact(|txn| txn.bytes(table)?.put(&key(n), b"later")).unwrap();
        }
        writer.transact(|txn| txn.drop_table("a")).unwrap();
        writer.reclaim().unwrap();
    };
    let mut midway = Midway { text: Vec::new(), then: Some(then) };
    env.dump(&mut midway, &DumpOptions::default()).unwrap();
    assert!(midway.then.is_none());
    waiting.abort().unwrap();
    let again = open(&SimDisk::new()).unwrap();
    load(&again, &midway.text, &LoadOptions::default()).unwrap();
    assert!(read(&again).unwrap() == state, "not the moment at which the dump began");
}

#[test]
fn a_dump_that_is_too_old_says_what_to_do_and_a_locked_one_ends() {
    let state: State = [("a".to_string(), (0..600).map(|n| (key(n), vec![n as u8; 40])).collect())].into();
    let disk = SimDisk::new();
    let env = tiny().version_store_bytes(16 << 10).open_on(Arc::new(disk)).unwrap();
    env.load(&mut &dump(&with(&state), &DumpOptions::default())[..], &LoadOptions::default()).unwrap();
    let writer = env.clone();
    // Small transactions: the images of a large one would be left to the log.
    let busy = || {
        for round in 0..400 {
            writer
                .transact(|txn| {
                    let other = txn.bytes_or_create("other")?;
                    (0..10).try_for_each(|n| other.put(&key(round % 200 * 10 + n), &[round as u8; 60]))
                })
                .unwrap();
        }
    };
    let mut midway = Midway { text: Vec::new(), then: Some(busy) };
    let refused = env.dump(&mut midway, &DumpOptions::default());
    let error = refused.expect_err("16 KiB cannot hold what was written");
    assert!(matches!(error, Error::SnapshotTooOld { .. }), "{error}");
    assert!(error.to_string().contains("version_store_bytes"), "{error}");
    let mut midway = Midway { text: Vec::new(), then: Some(busy) };
    let options = DumpOptions::default().table("a").locked(true);
    env.dump(&mut midway, &options).unwrap();
    let again = open(&SimDisk::new()).unwrap();
    load(&again, &midway.text, &LoadOptions::default()).unwrap();
    assert!(read(&again).unwrap() == state);
}

#[test]
fn duplicates_are_refused_or_numbered() {
    let text = b"VERSION=3\nformat=print\ntype=btree\nduplicates=1\nHEADER=END\n k\n a\n k\n b\n l\n c\nDATA=END\n";
    let env = open(&SimDisk::new()).unwrap();
    let refused = load(&env, text, &LoadOptions::default().table("t"));
    assert!(matches!(&refused, Err(Error::BadDump { what, .. }) if what.contains("several times")), "{refused:?}");
    assert!(matches!(load(&env, text, &LoadOptions::default()), Err(Error::BadDump { line: 1, .. })), "no name");
    load(&env, text, &LoadOptions::default().table("t").duplicates(Duplicates::Number)).unwrap();
    let found = read(&env).unwrap().remove("t").unwrap();
    let expected: [(&[u8], &[u8]); 3] = [(b"k\0\0\0\0", b"a"), (b"k\0\0\0\x01", b"b"), (b"l\0\0\0\0", b"c")];
    assert_eq!(found, expected.map(|(key, value)| (key.to_vec(), value.to_vec())).into());
}

#[test]
fn a_damaged_dump_is_refused_with_its_line_and_whole_transactions_stay() {
    let text = b"VERSION=3\nformat=print\ndatabase=t\ntype=btree\nHEADER=END\n a\n 1\n b\n 2\n c\n \\zz\nDATA=END\n";
    let env = open(&SimDisk::new()).unwrap();
    let refused = load(&env, text, &LoadOptions::default().batch(2));
    assert!(matches!(refused, Err(Error::BadDump { line: 11, .. })), "{refused:?}");
    assert_eq!(read(&env).unwrap()["t"].len(), 2);
    let env = open(&SimDisk::new()).unwrap();
    assert!(load(&env, text, &LoadOptions::default().batch(0)).is_err());
    assert!(read(&env).unwrap()["t"].is_empty(), "one transaction: nothing");
}

/// Runs one of Berkeley DB's tools as Debian calls them, with `input`; `None` if it is not installed.
fn berkeley(tool: &str, args: &[&str], file: &Path, input: &str) -> Option<String> {
    let is_there = |program: &String| Command::new(program).arg("-V").output().is_ok_and(|out| out.status.success());
    let program = ["db5.3_", "db_"].map(|prefix| format!("{prefix}{tool}")).into_iter().find(is_there)?;
    let mut command = Command::new(program);
    command.args(args).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Dumps to read: what the golden file holds and, where Berkeley DB's tools are installed, what they make now.
fn dumps_of(input: &str, load: &[&str], dump: &[&str], golden: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let made = berkeley("load", load, &file, input).and_then(|_| berkeley("dump", dump, &file, ""));
    std::iter::once(golden.to_string()).chain(made).collect()
}

/// A database that Berkeley DB's tools have made of a dump, in a directory that goes with the first value. Where the
/// tools are not installed, there is none, and the test says so.
fn loaded_by_berkeley(env: &Environment, format: DumpFormat) -> Option<(tempfile::TempDir, PathBuf)> {
    let text = String::from_utf8(dump(env, &DumpOptions::default().format(format))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    if berkeley("load", &[], &file, &text).is_none() {
        println!("Berkeley DB's tools are not installed (package db5.3-util): nothing was tested");
        return None;
    }
    Some((dir, file))
}

fn loaded(text: &str, options: &LoadOptions) -> State {
    let env = open(&SimDisk::new()).unwrap();
    load(&env, text.as_bytes(), options).unwrap_or_else(|error| panic!("{error}\n{text}"));
    read(&env).unwrap()
}

fn table<K: AsRef<[u8]>, V: AsRef<[u8]>>(name: &str, records: impl IntoIterator<Item = (K, V)>) -> State {
    let records = records.into_iter().map(|(key, value)| (key.as_ref().to_vec(), value.as_ref().to_vec())).collect();
    [(name.to_string(), records)].into()
}

#[test]
fn what_berkeley_db_dumps_loads() {
    let options = LoadOptions::default().table("t");
    let pairs = "apple\nred\npear\n\\00\\ff\nempty\n\n";
    let expected = table("t", [(&b"apple"[..], &b"red"[..]), (b"empty", b""), (b"pear", b"\x00\xff")]);
    for (kind, dump, golden) in [
        ("btree", &[][..], include_str!("golden/db_dump_btree.txt")),
        ("btree", &["-p"], include_str!("golden/db_dump_btree_print.txt")),
        ("btree", &["-r"], include_str!("golden/db_dump_btree.txt")),
        ("hash", &[], include_str!("golden/db_dump_hash.txt")),
    ] {
        for text in dumps_of(pairs, &["-T", "-t", kind, "-c", "chksum=1"], dump, golden) {
            assert_eq!(loaded(&text, &options), expected, "{kind} {dump:?}\n{text}");
        }
    }
    let lines = "one\nback\\\\slash\nthree\n";
    let values: [&[u8]; 3] = [b"one", b"back\\slash", b"three"];
    let numbered = |width: usize| {
        let padded = values.map(|value| [value, &vec![b' '; width.saturating_sub(value.len())]].concat());
        table("t", (1u32..).map(u32::to_be_bytes).zip(padded))
    };
    for (kind, load, dump, golden, width) in [
        ("recno", &[][..], &[][..], include_str!("golden/db_dump_recno.txt"), 0),
        ("recno", &[], &["-k"], include_str!("golden/db_dump_recno_keys.txt"), 0),
        ("queue", &["-c", "re_len=12"], &["-k"], include_str!("golden/db_dump_queue.txt"), 12),
    ] {
        for text in dumps_of(lines, &[&["-T", "-t", kind], load].concat(), dump, golden) {
            assert_eq!(loaded(&text, &options), numbered(width), "{kind} {dump:?}\n{text}");
        }
    }
}

#[test]
fn a_berkeley_db_file_of_several_databases_becomes_as_many_tables() {
    let text = "VERSION=3\nformat=print\ndatabase=one\ntype=btree\nHEADER=END\n k\n v\nDATA=END\n\
                VERSION=3\nformat=print\ndatabase=a b\\0a\\\\\ntype=hash\nHEADER=END\n \n \\00\nDATA=END\n";
    let expected: State = [table("one", [("k", "v")]), table("a b\n\\", [("", "\0")])].into_iter().flatten().collect();
    for text in dumps_of(text, &[], &[], text) {
        assert_eq!(loaded(&text, &LoadOptions::default()), expected, "{text}");
    }
    let text = "VERSION=3\nformat=print\ntype=btree\nduplicates=1\nHEADER=END\n k\n b\n k\n a\n l\n c\nDATA=END\n";
    let options = LoadOptions::default().table("t").duplicates(Duplicates::Number);
    let expected = table("t", [(b"k\0\0\0\0", b"b"), (b"k\0\0\0\x01", b"a"), (b"l\0\0\0\0", b"c")]);
    for text in dumps_of(text, &[], &[], text) {
        assert_eq!(loaded(&text, &options), expected, "{text}");
    }
}

/// Only where Berkeley DB's tools are installed.
#[test]
fn what_is_dumped_loads_into_berkeley_db_and_comes_back() {
    let mut state: State =
        [table("plain", [("a", "1"), ("b", "")]), table("odd \\ \n name", [("", "x")])].into_iter().flatten().collect();
    state.insert("empty".into(), Default::default());
    let records = state.entry("binary".into()).or_default();
    (0..=255u8).for_each(|byte| drop(records.insert(vec![byte; 3], vec![byte.wrapping_mul(7); 5000])));
    let env = with(&state);
    for format in [DumpFormat::ByteValue, DumpFormat::Print] {
        let Some((_dir, file)) = loaded_by_berkeley(&env, format) else { return };
        let text = berkeley("dump", &[], &file, "").unwrap();
        assert!(loaded(&text, &LoadOptions::default()) == state, "{format:?}");
    }
}

/// Only where Berkeley DB's tools are installed.
#[test]
fn to_berkeley_db_indexes_are_a_database_like_the_others_and_they_come_back() {
    let env = with(&table("people", (0..30u64).map(|n| (key(n), [b'a' + n as u8 % 7, b'!']))));
    let first = IndexDef::new("first", IndexKeys::Bytes { from: 0, to: Some(1) });
    env.transact(|txn| txn.create_index("people", &first)).unwrap();
    for format in [DumpFormat::ByteValue, DumpFormat::Print] {
        let Some((_dir, file)) = loaded_by_berkeley(&env, format) else { return };
        assert_eq!(berkeley("dump", &["-l"], &file, "").unwrap(), "ledgerstone.indexes\npeople\n");
        let records = berkeley("dump", &["-p", "-s", "people"], &file, "").unwrap();
        assert!(records.contains("HEADER=END\n \\00\\00\\00\\00\\00\\00\\00\\00\n a!\n"), "{records}");
        assert!(!records.contains("first"), "{records}");
        // It dumps them in the order of their names: the definitions before the table that they are about.
        let text = berkeley("dump", &[], &file, "").unwrap();
        let again = open(&SimDisk::new()).unwrap();
        let report = load(&again, text.as_bytes(), &LoadOptions::default()).unwrap();
        assert_eq!((report.tables, report.indexes), (vec!["people".to_string()], vec!["people.first".to_string()]));
        let txn = again.begin().unwrap();
        assert_eq!(txn.bytes("people").unwrap().index("first").unwrap().lookup(b"c").unwrap().count(), 4);
    }
}

#[test]
fn indexes_come_back_with_their_records() {
    let env = open(&SimDisk::new()).unwrap();
    let city = IndexDef::new("by city", IndexKeys::Json("city".into()));
    let unique = IndexDef::new("head", IndexKeys::Bytes { from: 0, to: Some(4) }).unique();
    let own = IndexDef::new("own", IndexKeys::Extractor("not registered elsewhere".into()));
    let with_function = tiny().index_extractor("not registered elsewhere", |_, value, emit| {
        emit(value);
        Ok(())
    });
    let source = with_function.open_on(Arc::new(SimDisk::new())).unwrap();
    source
        .transact(|txn| {
            let people = txn.create_table("people")?;
            (0..30).try_for_each(|n| people.put(&key(n), format!("{{\"city\":\"c{}\"}}", n % 7).as_bytes()))?;
            txn.create_index("people", &city)?;
            let codes = txn.create_table("codes")?;
            (0..30).try_for_each(|n| codes.put(&key(n), format!("{n:04} and more").as_bytes()))?;
            txn.create_index("codes", &unique)?;
            txn.create_index("codes", &own)
        })
        .unwrap();
    for format in [DumpFormat::ByteValue, DumpFormat::Print] {
        let text = dump(&source, &DumpOptions::default().format(format));
        let report = load(&env, &text, &LoadOptions::default()).unwrap();
        assert_eq!(
            (&*report.tables, report.skipped_indexes),
            (&["codes".to_string(), "people".into()][..], vec!["codes.own".into()])
        );
        let is_first = format == DumpFormat::ByteValue;
        assert_eq!(report.indexes, if is_first { vec!["codes.head", "people.by city"] } else { vec![] }, "made once");
        let txn = env.begin().unwrap();
        assert_eq!(txn.bytes("people").unwrap().indexes(), std::slice::from_ref(&city));
        assert_eq!(txn.bytes("people").unwrap().index("by city").unwrap().lookup(b"c3").unwrap().count(), 4);
        assert_eq!(txn.bytes("codes").unwrap().indexes(), std::slice::from_ref(&unique));
        let taken = txn.bytes("codes").unwrap().put(&key(77), b"0007 too");
        assert!(matches!(taken, Err(Error::IndexKeyExists { .. })), "{taken:?}");
    }
    // One table alone brings its own indexes only.
    let text = dump(&source, &DumpOptions::default().table("people"));
    assert_eq!(
        load(&open(&SimDisk::new()).unwrap(), &text, &LoadOptions::default()).unwrap().indexes,
        ["people.by city"]
    );
    let other = text.windows(4).position(|w| w == b"6a73").unwrap(); // "js" of json
    let mut broken = text.clone();
    broken[other] = b'7';
    let refused = load(&open(&SimDisk::new()).unwrap(), &broken, &LoadOptions::default());
    assert!(matches!(refused, Err(Error::BadDump { .. })), "{refused:?}");
}
