//! Dump and load: every table round-trips, and what Berkeley DB dumps loads.

mod common;

use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::*;
use ledgerstone::{DumpFormat, DumpOptions, Duplicates, Environment, Error, LoadOptions, LoadReport};
use ledgerstone_disk::SimDisk;
use proptest::prelude::*;

fn dump(env: &Environment, options: &DumpOptions) -> Vec<u8> {
    let mut text = Vec::new();
    env.dump(&mut text, options, &mut |_| ControlFlow::Continue(())).unwrap();
    text
}

fn load(env: &Environment, text: &[u8], options: &LoadOptions) -> Result<LoadReport, Error> {
    env.load(&mut &text[..], options, &mut |_| ControlFlow::Continue(()))
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

#[test]
fn odd_names_empty_keys_and_large_values_round_trip() {
    let mut state = State::new();
    for name in ["plain", "with space", "new\nline", "HEADER=END", "ümlaut", "back\\slash", "\\41", "\u{1}"] {
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

#[test]
fn chosen_tables_are_dumped_and_a_missing_one_is_named() {
    let state: State = [("a", 1u64), ("b", 2)].map(|(name, n)| (name.to_string(), [(key(n), key(n))].into())).into();
    let env = with(&state);
    let text = dump(&env, &DumpOptions::default().table("b"));
    let again = open(&SimDisk::new()).unwrap();
    assert_eq!(load(&again, &text, &LoadOptions::default()).unwrap().tables, ["b"]);
    let mut nowhere = Vec::new();
    let missing = env.dump(&mut nowhere, &DumpOptions::default().table("c"), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(missing, Err(Error::NoSuchTable(name)) if name == "c"));
    let cancelled = env.dump(&mut nowhere, &DumpOptions::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
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

/// What Debian's tools make of this input, or what they made when the golden files were written.
fn berkeley(kind: &str, dump_args: &[&str], golden: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let tool = |name: &str| ["db5.3_", "db_"].map(|prefix| format!("{prefix}{name}"));
    let run = |name: &str, args: &[&str], input: &str| -> Option<String> {
        let program =
            tool(name).into_iter().find(|p| Command::new(p).arg("-V").output().is_ok_and(|o| o.status.success()))?;
        let mut child =
            Command::new(program).args(args).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        std::io::Write::write_all(&mut child.stdin.take()?, input.as_bytes()).ok()?;
        let output = child.wait_with_output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).ok())?
    };
    let input = match kind {
        "recno" => "one\nback\\\\slash\nthree\n".to_string(),
        _ => "apple\nred\npear\n\\00\\ff\nempty\n\n".to_string(),
    };
    if run("load", &["-T", "-t", kind], &input).is_some() {
        return run("dump", dump_args, "").expect("a file that was loaded can be dumped");
    }
    golden.to_string()
}

#[test]
fn what_berkeley_db_dumps_loads() {
    let expected: [(&[u8], &[u8]); 3] = [(b"apple", b"red"), (b"empty", b""), (b"pear", b"\x00\xff")];
    for (kind, args, golden) in [
        ("btree", &[][..], include_str!("golden/db_dump_btree.txt")),
        ("btree", &["-p"], include_str!("golden/db_dump_btree_print.txt")),
        ("hash", &[], include_str!("golden/db_dump_hash.txt")),
    ] {
        let env = open(&SimDisk::new()).unwrap();
        for text in [golden.to_string(), berkeley(kind, args, golden)] {
            load(&env, text.as_bytes(), &LoadOptions::default().table("t")).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let found = read(&env).unwrap().remove("t").unwrap();
            assert_eq!(found, expected.map(|(key, value)| (key.to_vec(), value.to_vec())).into(), "{kind} {args:?}");
        }
    }
    let numbered: [(u32, &[u8]); 3] = [(1, b"one"), (2, b"back\\slash"), (3, b"three")];
    for (args, golden) in
        [(&[][..], include_str!("golden/db_dump_recno.txt")), (&["-k"], include_str!("golden/db_dump_recno_keys.txt"))]
    {
        for text in [golden.to_string(), berkeley("recno", args, golden)] {
            let env = Arc::new(open(&SimDisk::new()).unwrap());
            load(&env, text.as_bytes(), &LoadOptions::default().table("t")).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let found = read(&env).unwrap().remove("t").unwrap();
            assert_eq!(found, numbered.map(|(n, value)| (n.to_be_bytes().to_vec(), value.to_vec())).into(), "{text}");
        }
    }
}
