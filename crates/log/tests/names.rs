//! Names of segments that may not be durable fail the log.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_log::LogError;

/// Appends and flushes until something is refused; how often it was not.
fn run(log: &ledgerstone_log::Log) -> (u64, Option<LogError>) {
    for no in 0..200 {
        if let Err(error) = append_one(log, no, 1000).and_then(|lsn| log.flush_to(lsn)) {
            return (no, Some(error));
        }
    }
    (200, None)
}

#[test]
fn a_sync_of_a_segments_name_is_not_believed_after_it_has_failed() {
    for kind in [DiskErrorKind::Io(5), DiskErrorKind::NoSpace] {
        for (nth, has_flusher) in [(2, false), (3, false), (2, true), (4, true)] {
            let disk = FaultDisk::new(Arc::new(SimDisk::new()));
            let log = new_log(Arc::new(disk.clone()));
            disk.add(Fault::at(Call::SyncDir, nth, Harm::Fail(kind)));
            if has_flusher {
                log.start_flusher();
            }
            let (count, error) = run(&log);
            let what = format!("{kind:?}, sync {nth}, flusher {has_flusher}: {count} records, {error:?}");
            assert_eq!(disk.hits(), 1, "{what}");
            assert!(matches!(error, Some(LogError::Failed { .. })) && log.is_failed(), "{what}");
            log.stop_flusher();
        }
    }
}

#[test]
fn a_recycled_segments_name_is_not_believed_either() {
    for kind in [DiskErrorKind::Io(5), DiskErrorKind::NoSpace] {
        let disk = FaultDisk::new(Arc::new(SimDisk::new()));
        let log = new_log(Arc::new(disk.clone()));
        for no in 0..60 {
            append_one(&log, no, 1000).unwrap();
            log.flush().unwrap();
        }
        disk.add(Fault::at(Call::SyncDir, 1, Harm::Fail(kind)));
        let recycled = log.recycle_before(log.durable_lsn());
        assert!(matches!(recycled, Err(LogError::Failed { .. })) && log.is_failed(), "{recycled:?}");
    }
}
