//! Callbacks of calls on directories: backups, archives, and environments that are closed. A call that has ended by a
//! panic can be made again, and comes to the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone::lock::{LockManager, LockTable};
use ledgerstone::{
    ArchiveDirectory, Backup, BackupOptions, Environment, Error, LogKeeper, Lsn, Options, RepairPages, RestoreTo,
};

use super::{Hook, panic_at, quietly};

/// An environment with one damaged page, its backup and its archive.
pub struct Stage {
    dir: tempfile::TempDir,
}

/// A call that runs a callback; gives what it came to.
type Media = fn(&Stage, &Hook) -> Result<String, Error>;

pub const MEDIA: &[(&str, Media)] = &[
    ("Backup::verify_with", |stage, hook| {
        let report = stage.backup()?.verify_with(|_| hook.call())?;
        Ok(format!("{report:?}"))
    }),
    ("ArchiveDirectory::verify_with", |stage, hook| {
        let segments = ArchiveDirectory::open(stage.at("archive"))?.verify_with(|_| hook.call())?;
        Ok(format!("{segments:?}"))
    }),
    ("Environment::damaged_pages_in", |stage, hook| {
        let pages = Environment::damaged_pages_in(stage.at("env"), |_| hook.call())?;
        Ok(format!("{pages:?}"))
    }),
    ("Backup::restore_with", |stage, hook| {
        let target = stage.at("restored");
        if target.join("control").exists() {
            std::fs::remove_dir_all(&target).unwrap(); // Of the restore before.
        }
        stage.backup()?.restore_with(&target, RestoreTo::End, &[], |_| hook.call())?;
        let env = options().open(&target)?;
        let count = env.transact(|txn| txn.bytes("t")?.count())?;
        env.close()?;
        Ok(format!("{count} records"))
    }),
    ("Backup::repair_with", |stage, hook| {
        stage.damage();
        let archive = ArchiveDirectory::open(stage.at("archive"))?.log()?;
        let pages = RepairPages::AllDamaged;
        let repaired = stage.backup()?.repair_with(stage.at("env"), &pages, Some(&archive), |_| hook.call())?;
        let env = options().open(stage.at("env"))?;
        let report = env.verify()?;
        env.close()?;
        Ok(format!("{:?}, then {:?}", repaired.repaired.len(), report.problems))
    }),
    ("Environment::backup_with, and again", |stage, hook| {
        let env = options().open(stage.at("second"))?;
        env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", vec![1; 9_000]))?;
        env.backup_with(stage.at("second backup"), BackupOptions::default(), |_| hook.call())?;
        Backup::open(stage.at("second backup"))?.verify()?;
        Ok("a backup".to_string())
    }),
    ("Options::log_keeper", |stage, hook| {
        let hook = hook.clone();
        let make = move |_| {
            hook.call();
            Ok(Arc::new(NeedsNothing) as Arc<dyn LogKeeper>)
        };
        options().log_keeper(make).open(stage.at("second"))?.close()?;
        Ok("opened".to_string())
    }),
    ("Options::own_lock_manager", |stage, hook| {
        let hook = hook.clone();
        let make = move |region: &_, slots: &_, config| {
            hook.call();
            Ok(Arc::new(LockTable::place(region, slots, config)?) as Arc<dyn LockManager>)
        };
        options().own_lock_manager(make).open(stage.at("second"))?.close()?;
        Ok("opened".to_string())
    }),
];

struct NeedsNothing;

impl LogKeeper for NeedsNothing {
    fn name(&self) -> String {
        "needs nothing".to_string()
    }
    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        Ok(None)
    }
}

fn options() -> Options {
    super::tiny().log_segment_bytes(64 << 10)
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { dir: tempfile::tempdir().unwrap() };
        let env = options().archive_dir(stage.at("archive")).open(stage.at("env")).unwrap();
        let put = |from: u64| {
            env.transact(|txn| {
                let t = txn.bytes_or_create("t")?;
                (from..from + 700).try_for_each(|n| t.put(n.to_be_bytes(), vec![n as u8; 300]))
            })
        };
        put(0).unwrap();
        env.backup(stage.at("backup"), BackupOptions::default()).unwrap();
        put(700).unwrap();
        let _ = env.archive_now().unwrap();
        env.close().unwrap();
        stage.damage();
        stage
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn backup(&self) -> Result<Backup, Error> {
        Backup::open(self.at("backup"))
    }

    /// Damages one page of the closed environment.
    fn damage(&self) {
        let path = self.at("env").join("data");
        let mut data = std::fs::read(&path).unwrap();
        let at = 20 * 4096 + 100;
        data[at..at + 8].copy_from_slice(b"rotten!!");
        std::fs::write(&path, data).unwrap();
    }
}

#[test]
fn a_panic_at_any_call_of_a_callback_on_directories_can_be_followed_by_the_same_call() {
    super::at_once(MEDIA, |&(name, call)| {
        let stage = Stage::new();
        let silent = Hook::default();
        let expected = call(&stage, &silent).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut at = 1;
        loop {
            let hook = Hook::default();
            let calls = panic_at(&hook, at);
            let done = quietly(|| call(&stage, &hook));
            hook.clear();
            if calls.load(SeqCst) < at {
                assert_eq!(done.unwrap_or_else(|_| panic!("{name}")).unwrap(), expected, "{name}");
                break;
            }
            assert!(done.is_err(), "{name}, panic at call {at}: it went on");
            let again =
                call(&stage, &silent).unwrap_or_else(|error| panic!("{name} after a panic at call {at}: {error}"));
            assert_eq!(again, expected, "{name} after a panic at call {at}");
            at += 1;
        }
        assert!(at > 1, "{name} calls nothing of the user's");
    });
}
