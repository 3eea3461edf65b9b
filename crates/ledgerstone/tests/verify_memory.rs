//! What a verification takes of memory. Alone in its process, whose memory is looked at.

use std::fs;

use ledgerstone::{Durability, Environment, VerifyReport};

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
}

/// Bytes that verifying takes beside what there is.
fn more(env: &Environment) -> (u64, VerifyReport) {
    let before = status("VmRSS:");
    fs::write("/proc/self/clear_refs", "5").unwrap(); // The highest is counted from here.
    let report = env.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    (status("VmHWM:").saturating_sub(before), report)
}

#[test]
fn a_verification_keeps_less_than_a_hundred_bytes_for_each_page_and_200_for_each_table() {
    const COUNT: u64 = 20_000;
    // Keys are long and differ at their ends, so that separators are long too.
    let key = |n: u64| [&[b'k'; 480][..], &n.to_be_bytes()].concat();
    let dir = tempfile::tempdir().unwrap();
    let options = || Environment::options().cache_bytes(4 << 20).durability(Durability::Volatile);
    let env = options().open(dir.path()).unwrap();
    let load = |n: u64| (key(n), [7; 700]);
    env.transact(|txn| txn.bytes_or_create("t")?.load_sorted((0..COUNT).map(load)).map(drop)).unwrap();
    env.close().unwrap();

    let env = options().open(dir.path()).unwrap();
    // The cache is filled, and has all the memory that it will have.
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), COUNT);
    let (bytes, report) = more(&env);
    assert!(report.page_count > COUNT / 6, "{} pages", report.page_count);
    assert!(bytes < 100 * report.page_count + (1 << 20), "{bytes} bytes to verify {} pages", report.page_count);

    let make = |n| env.transact(|txn| (0..100).try_for_each(|m| txn.create_table(&format!("{n} {m}")).map(drop)));
    (0..COUNT / 100).try_for_each(make).unwrap();
    let (bytes, report) = more(&env);
    assert_eq!(report.table_count, COUNT + 1);
    let pages_and_tables = 100 * report.page_count + 200 * report.table_count;
    assert!(bytes < pages_and_tables + (1 << 20), "{bytes} bytes to verify {} tables", report.table_count);
}
