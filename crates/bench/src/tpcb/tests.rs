use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: TpcbArgs,
}

/// Runs the benchmark as typed, on a bank in a directory of the test's own.
fn tpcb(dir: &tempfile::TempDir, line: &str) -> anyhow::Result<TpcbReport> {
    let line = format!("tpcb --keep {} --cache 16M {line}", dir.path().join("bank").display());
    run(&Line::try_parse_from(line.split(' '))?.args, &mut |_, _, _| {})
}

#[test]
fn the_books_agree_after_every_kind_of_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut history_count = 0;
    for line in [
        "--accounts 1000 --transactions 200 --durability volatile --check",
        "--transactions 200 --threads 3 --durability async --check",
        "--transactions 300 --threads 2 --durability pipelined --window 16 --check",
        "--transactions 50 --threads 4 --durability sync --check",
    ] {
        let report = tpcb(&dir, &format!("{line} --warm-up 10")).unwrap();
        let (ran, books) = (report.run.unwrap(), report.check.unwrap());
        history_count += ran.transaction_count + 10;
        assert!(books.is_good(), "{line}: {books}");
        assert_eq!(books.history_count, history_count, "{line}");
    }
    let report = tpcb(&dir, "--transactions 100 --read-only --durability volatile --check").unwrap();
    assert_eq!(report.check.unwrap().history_count, history_count);
}

#[test]
fn a_missing_acknowledged_commit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let acks = dir.path().join("acks");
    let acks = acks.display();
    tpcb(&dir, &format!("--small --key u32 --transactions 40 --warm-up 0 --threads 2 --ack-file {acks}")).unwrap();
    let report = tpcb(&dir, &format!("--verify-acks {acks} --check")).unwrap();
    assert_eq!(report.acks.as_ref().unwrap().acknowledged_count, 40);
    assert!(report.is_good() && report.run.is_none());

    let env = Environment::options().open(dir.path().join("bank")).unwrap();
    env.transact(|txn| txn.bytes(bank::HISTORY)?.delete(&bank::history_key(1, 7))).unwrap();
    env.close().unwrap();
    let report = tpcb(&dir, &format!("--verify-acks {acks} --check")).unwrap();
    let found = report.acks.as_ref().unwrap();
    assert_eq!((found.missing_count, found.first_missing), (1, Some((1 << 48) + 7)));
    assert!(!report.check.as_ref().unwrap().is_good() && !report.is_good());
}

#[test]
fn flags_that_promise_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |line: &str| tpcb(&dir, line).unwrap_err().to_string();
    assert!(refused("--small --durability volatile --ack-file x").contains("--ack-file needs"));
    assert!(refused("--verify-acks x").contains("not a Ledgerstone environment"), "{}", refused("--verify-acks x"));
}
