//! What a verification takes of memory. Alone in its process, whose memory is looked at.

use std::fs;

use ledgerstone::{Durability, Environment};

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
}

/// Keys are long and differ at their ends, so that separators are long too.
#[test]
fn a_verification_keeps_less_than_a_hundred_bytes_for_each_page() {
    const COUNT: u64 = 20_000;
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
    let before = status("VmRSS:");
    fs::write("/proc/self/clear_refs", "5").unwrap(); // The highest is counted from here.
    let report = env.verify(&mut |_| {}).unwrap();
    let more = status("VmHWM:").saturating_sub(before);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.page_count > COUNT / 6, "{} pages", report.page_count);
    assert!(more < 100 * report.page_count + (1 << 20), "{more} bytes to verify {} pages", report.page_count);
}
