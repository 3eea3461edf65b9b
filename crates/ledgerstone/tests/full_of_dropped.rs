//! A file at its limit, full of pages of dropped tables that a snapshot has held: refused writers get them soon.

use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Error, Isolation, TransactionOptions};

const PAGES_MAX: u64 = 4_096;

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Setting { name, .. } if name == "page_count_max")
}

/// Replaces a table by one of some 500 pages.
fn replace(env: &Environment, name: &str) -> Result<(), Error> {
    env.transact(|txn| {
        match txn.drop_table(name) {
            Ok(()) | Err(Error::NoSuchTable { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut table = txn.create_table(name)?;
        table.load_sorted((0..1_800_u32).map(|no| (no.to_be_bytes(), [0; 1_000]))).map(drop)
    })
}

#[test]
fn writers_that_meet_the_limit_go_on_once_what_was_dropped_is_held_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let options = Environment::options().page_count_max(PAGES_MAX).durability(Durability::Volatile);
    let env = options.open(dir.path()).unwrap();
    let snapshot = TransactionOptions { isolation: Some(Isolation::Snapshot), ..TransactionOptions::default() };
    for round in 0..5 {
        let held = env.begin_with(snapshot).unwrap();
        let error = (0..20).find_map(|no| replace(&env, ["a", "b"][no % 2]).err());
        assert!(error.as_ref().is_some_and(is_full), "{round}: {error:?}");
        held.commit().unwrap();
        // No transaction changes anything but these, so nothing but their refusals says that there is need.
        let begun = Instant::now();
        while let Err(error) = replace(&env, "a") {
            assert!(is_full(&error), "{round}: {error}");
            assert!(begun.elapsed() < Duration::from_secs(60), "{round}: nothing is freed");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    env.verify().unwrap();
    env.close().unwrap();
}
