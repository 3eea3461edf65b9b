//! What the tests of backups, archives and restores share.

use std::sync::Arc;

use ledgerstone::{
    ArchiveDirectory, Backup, BackupInfo, BackupOptions, Environment, Error, LogDirectory, Lsn, RestoreReport,
    RestoreTo,
};
use ledgerstone_disk::SimDisk;

use super::tiny;

/// An environment with an archive.
pub fn archived(disk: &SimDisk, archive: &SimDisk) -> Result<Environment, Error> {
    tiny().archive_on(Arc::new(archive.clone())).open_on(Arc::new(disk.clone()))
}

pub fn backup(env: &Environment, to: &SimDisk, incremental: bool) -> Result<BackupInfo, Error> {
    let options = BackupOptions::default().incremental(incremental);
    env.backup_on(Arc::new(to.clone()), options, |_| ())
}

/// Restores to a disk of its own.
pub fn restore(from: &SimDisk, to: RestoreTo, logs: &[LogDirectory]) -> Result<(SimDisk, RestoreReport), Error> {
    let target = SimDisk::new();
    let report = Backup::open_on(from)?.restore_on(Arc::new(target.clone()), to, logs, |_| ())?;
    Ok((target, report))
}

/// The log of an environment or of an archive.
pub fn log(disk: &SimDisk) -> LogDirectory {
    LogDirectory::open_on(Arc::new(disk.clone())).unwrap()
}

/// Commits records of about 700 bytes whose keys begin with the tag; the last commit.
pub fn work(env: &Environment, tag: u8, count: u64) -> Lsn {
    let mut last = Lsn(0);
    for n in 0..count {
        let txn = env.begin().unwrap();
        txn.bytes_or_create("t").unwrap().put(&[tag, (n / 200) as u8, (n % 200) as u8], &vec![tag; 700]).unwrap();
        last = txn.commit().unwrap().ticket.lsn();
    }
    last
}

pub fn directory(archive: &SimDisk) -> ArchiveDirectory {
    ArchiveDirectory::open_on(Arc::new(archive.clone())).unwrap()
}

/// Fails unless there are segments, and verification finds nothing.
pub fn assert_whole(archive: &SimDisk) {
    let segments = directory(archive).verify().unwrap();
    let problems: Vec<_> = segments.iter().filter(|segment| segment.problem.is_some()).collect();
    assert!(!segments.is_empty() && problems.is_empty(), "{problems:?}");
}
