//! Long calls that whoever watches their progress ends: at every place where they ask, nothing is half.
#![allow(missing_docs)]

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::Path;
use std::sync::Arc;

use ledgerstone::{
    Backup, BackupOptions, Environment, Error, IndexDef, IndexKeys, RecoveryProgress, RepairPages, RestoreTo,
};

fn open(path: &Path) -> Environment {
    Environment::options().cache_bytes(16 << 20).open(path).unwrap()
}

/// So many records, and an index.
fn filled(path: &Path, count: u32) -> Environment {
    let env = open(path);
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..count).try_for_each(|no| table.put(no.to_be_bytes(), [b'x'; 100]))?;
        txn.create_index("t", &IndexDef::new("by_head", IndexKeys::Bytes { from: 0, to: Some(4) }))
    })
    .unwrap();
    env
}

/// Calls `call` with a callback that stops it at its first question, then at its second, and so on, until it comes to
/// its end.
fn at_each_question<T>(mut call: impl FnMut(&mut dyn FnMut() -> ControlFlow<()>) -> Result<T, Error>) -> (T, u32) {
    for stop_at in 0.. {
        let mut asked = 0;
        let done = call(&mut || {
            asked += 1;
            if asked > stop_at { Break(()) } else { Continue(()) }
        });
        match done {
            Ok(done) => return (done, stop_at),
            Err(Error::Cancelled) => assert_eq!(asked, stop_at + 1, "it goes on after it was stopped"),
            Err(error) => panic!("stopped at question {stop_at}: {error}"),
        }
    }
    unreachable!()
}

#[test]
fn a_verification_that_is_stopped_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let env = filled(dir.path(), 10_000);
    let (report, count) = at_each_question(|go_on| {
        env.verify_with(|at| {
            assert!(at.done <= at.total, "{at:?}");
            go_on()
        })
    });
    assert!(report.problems.is_empty() && count > 20, "{count} questions, {:?}", report.problems);
    env.transact(|txn| txn.bytes("t")?.put(b"k", b"v")).unwrap();
    env.close().unwrap();
}

#[test]
fn an_index_that_is_stopped_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let env = filled(dir.path(), 4_000);
    let index = IndexDef::new("by_value", IndexKeys::Value);
    let txn = env.begin().unwrap();
    let ((), count) = at_each_question(|go_on| {
        assert_eq!(txn.bytes("t")?.indexes().len(), 1);
        txn.create_index_with("t", &index, |_| go_on())
    });
    assert!(count > 3, "{count} questions");
    let _ = txn.commit().unwrap();
    assert!(env.verify().unwrap().problems.is_empty());
    env.close().unwrap();
}

#[test]
fn a_restore_that_is_stopped_leaves_no_file_and_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there, again) = (dir.path().join("env"), dir.path().join("backups"), dir.path().join("again"));
    let env = filled(&here, 4_000);
    env.backup(&there, BackupOptions::default()).unwrap();
    env.close().unwrap();
    let backup = Backup::open(&there).unwrap();
    let (_, count) = at_each_question(|go_on| backup.verify_with(|_| go_on()));
    assert!(count > 10, "{count} questions");
    let (_, count) = at_each_question(|go_on| {
        for place in [again.clone(), again.join("log")] {
            let mut entries = std::fs::read_dir(place).into_iter().flatten();
            assert!(entries.all(|entry| entry.unwrap().path().is_dir()), "a file is left");
        }
        backup.restore_with(&again, RestoreTo::End, &[], |_| go_on())
    });
    assert!(count > 10, "{count} questions");
    assert!(open(&again).verify().unwrap().problems.is_empty());
    // A wrong moment costs nothing, either.
    let other = dir.path().join("other");
    let behind = backup.restore(&other, RestoreTo::Lsn(ledgerstone::Lsn(u64::MAX / 2)), &[]);
    assert!(matches!(behind, Err(Error::MomentNotInBackup { .. })), "{behind:?}");
    backup.restore(&other, RestoreTo::End, &[]).unwrap();
    let full = backup.restore(&other, RestoreTo::End, &[]);
    assert!(matches!(full, Err(Error::TargetNotEmpty { .. })), "{full:?}");
}

#[test]
fn a_repair_that_is_stopped_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("env"), dir.path().join("backups"));
    let env = filled(&here, 10_000);
    env.backup(&there, BackupOptions::default()).unwrap();
    env.close().unwrap();
    let mut bytes = std::fs::read(here.join("data")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 100].fill(0xAA);
    std::fs::write(here.join("data"), &bytes).unwrap();
    let (found, count) = at_each_question(|go_on| Environment::damaged_pages_in(&here, |_| go_on()));
    assert!(found.len() == 1 && count > 0, "{found:?}");
    let backup = Backup::open(&there).unwrap();
    let (report, count) = at_each_question(|go_on| {
        assert!(std::fs::read(here.join("data")).unwrap() == bytes, "the data file has changed");
        backup.repair_with(&here, &RepairPages::AllDamaged, None, |_| go_on())
    });
    assert!(report.repaired.len() == 1 && count > 0, "{report:?}");
    assert!(open(&here).verify().unwrap().problems.is_empty());
}

#[test]
fn an_opening_that_is_stopped_leaves_the_rest_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let env = filled(dir.path(), 100);
    env.close().unwrap();
    for _ in 0..2 {
        let progress = Arc::new(RecoveryProgress::default());
        progress.stop();
        let stopped = Environment::options().cache_bytes(16 << 20).recovery_progress(progress).open(dir.path());
        assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    }
    let env = open(dir.path());
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), 100);
    env.close().unwrap();
}
