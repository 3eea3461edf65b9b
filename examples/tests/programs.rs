//! What the programs of `src/bin` do. The package in `beside` runs this file too, with its own programs of the same
//! names.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const QUEUE: &str = env!("CARGO_BIN_EXE_queue");
const SHOP: &str = env!("CARGO_BIN_EXE_shop");
const INGEST: &str = env!("CARGO_BIN_EXE_ingest");
const ASYNC_ORDERS: &str = env!("CARGO_BIN_EXE_async_orders");
const HITS: &str = env!("CARGO_BIN_EXE_hits");

/// Runs a program in a directory, with standard input from a file of it.
fn run_with(input: &str, dir: &Path, program: &str, args: &[&str]) -> Output {
    let input = match input {
        "" => Stdio::null(),
        name => std::fs::File::open(dir.join(name)).unwrap().into(),
    };
    Command::new(program).args(args).current_dir(dir).stdin(input).output().unwrap()
}

/// What it prints, which must be all it has to say.
fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

fn run(dir: &Path, program: &str, args: &[&str]) -> String {
    printed(&run_with("", dir, program, args)).to_owned()
}

#[test]
fn a_job_is_done_once_though_the_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), QUEUE, &["jobs", "list"]), "0 waiting, 0 claimed\n", "a queue that is new");
    let jobs: Vec<String> = (1..=20).map(|no| format!("job {no}")).collect();
    let mut add = vec!["jobs", "add", "fail", "crash"];
    add.extend(jobs.iter().map(String::as_str));
    run(dir.path(), QUEUE, &add);
    assert!(!run_with("", dir.path(), QUEUE, &["jobs", "work"]).status.success(), "it aborts itself");
    run(dir.path(), QUEUE, &["jobs", "work"]);
    let mut expected = "0 waiting, 0 claimed\ndone: 2 crash\n".to_owned();
    for (no, job) in (3..).zip(&jobs) {
        expected += &format!("done: {no} {job}\n");
    }
    expected += "failed: 1 fail\n";
    assert_eq!(run(dir.path(), QUEUE, &["jobs", "list"]), expected);
}

#[test]
fn a_crowd_of_buyers_gets_what_there_is_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let shop = |args: &[&str]| run(dir.path(), SHOP, &[&["shop"], args].concat());
    assert_eq!(shop(&["report"]), "", "a shop that is new");
    assert_eq!(shop(&["buy", "ann", "apple", "1"]), "not enough left\n");
    shop(&["stock", "apple", "100", "30"]);
    shop(&["stock", "pear", "5", "40"]);
    assert_eq!(shop(&["buy", "ann", "apple", "2"]), "order 1\n");
    assert_eq!(shop(&["buy", "ann", "pear", "6"]), "not enough left\n");
    assert_eq!(shop(&["crowd", "8", "apple"]), "98 sold\n");
    shop(&["stock", "apple", "1", "35"]);
    assert_eq!(shop(&["buy", "ann", "apple", "1"]), "order 100\n");
    assert_eq!(shop(&["orders", "ann"]), "order 1: 2 apple, 60 cents\norder 100: 1 apple, 35 cents\n");
    let of_buyers: usize = (1..=8).map(|no| shop(&["orders", &format!("buyer {no}")]).lines().count()).sum();
    assert_eq!(of_buyers, 98);
    let report = "apple: 0 left, 101 sold for 3035 cents\npear: 5 left, 0 sold for 0 cents\n";
    assert_eq!(shop(&["report"]), report);
}

#[test]
fn measurements_loaded_and_streamed_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let lines = |seconds: std::ops::Range<u32>| {
        let line = |second| format!("roof,{second},{}\ncellar,{second},{}.5\n", second % 10, second % 4);
        seconds.rev().map(line).collect::<String>()
    };
    std::fs::write(dir.path().join("old"), lines(0..5000)).unwrap();
    std::fs::write(dir.path().join("new"), lines(5000..6000)).unwrap();
    std::fs::write(dir.path().join("bad"), "roof,9000,1\nroof,9001,much\n").unwrap();
    let ingest = |args: &[&str]| run(dir.path(), INGEST, &[&["readings"], args].concat());
    assert_eq!(ingest(&["report", "roof", "0", "9"]), "roof: no readings\n", "a directory that is new");
    assert_eq!(ingest(&["report", "roof", "9", "0"]), "roof: no readings\n", "nothing lies between");
    assert!(!run_with("", dir.path(), INGEST, &["readings", "load", "bad"]).status.success());
    assert_eq!(ingest(&["load", "old"]), "10000 loaded\n");
    assert_eq!(ingest(&["load", "old"]), "10000 loaded\n", "again: the same measurements");
    let stream = run_with("new", dir.path(), INGEST, &["readings", "stream"]);
    assert_eq!(printed(&stream), "2000 taken\n");
    assert_eq!(ingest(&["report", "roof", "0", "9999"]), "roof: 6000 readings, 0 to 9, mean 4.500\n");
    assert_eq!(ingest(&["report", "cellar", "4998", "5002"]), "cellar: 4 readings, 0.5 to 3.5, mean 2.000\n");
    assert_eq!(ingest(&["forget", "roof", "5990"]), "5990 forgotten\n");
    assert_eq!(ingest(&["report", "roof", "0", "9999"]), "roof: 10 readings, 0 to 9, mean 4.500\n");
    assert_eq!(ingest(&["report", "cellar", "0", "9999"]), "cellar: 6000 readings, 0.5 to 3.5, mean 2.000\n");
}

#[test]
fn tasks_sell_no_more_than_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let sold = run(dir.path(), ASYNC_ORDERS, &["orders", "150", "200"]);
    assert_eq!(sold, "150 of 200 orders taken; 0 apples left, 150 orders kept\n");
    let sold = run(dir.path(), ASYNC_ORDERS, &["orders", "10", "7"]);
    assert_eq!(sold, "7 of 7 orders taken; 3 apples left, 157 orders kept\n", "the next day");
}

#[test]
fn a_file_is_counted_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    for (name, lines) in [("a", "3\n1\n3\n"), ("b", "3\n9\n"), ("bad", "3\n1\nten\n")] {
        std::fs::write(dir.path().join(name), lines.repeat(50)).unwrap();
    }
    let refused = "bad: not counted: \"ten\" is not the number of a page\n";
    let counted = run(dir.path(), HITS, &["site", "a", "bad", "b"]);
    assert_eq!(counted, format!("a: 150 hits\n{refused}b: 100 hits\npage 1: 50\npage 3: 150\npage 9: 50\n"));
    let counted = run(dir.path(), HITS, &["site", "b"]);
    assert_eq!(counted, "b: 100 hits\npage 1: 50\npage 3: 200\npage 9: 100\n");
}
