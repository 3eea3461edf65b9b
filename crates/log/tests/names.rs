//! Names of segments that may not be durable fail the log.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, Open, SimDisk};
use ledgerstone_log::{ControlState, LOG_DIR, LogError, check_segments, segment_name, segment_start, tidy_segments};

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

/// A full disk may refuse another name. The segment goes then: it would stay for ever, before a gap (F8).
#[test]
fn a_segment_that_gets_no_later_name_is_removed() {
    let disk = FaultDisk::new(Arc::new(SimDisk::new()));
    let log = new_log(Arc::new(disk.clone()));
    for no in 0..60 {
        append_one(&log, no, 1000).unwrap();
        log.flush().unwrap();
    }
    disk.add(Fault::at(Call::Name, 1, Harm::Fail(DiskErrorKind::NoSpace)));
    let given_up = log.recycle_before(log.durable_lsn()).unwrap();
    assert!(given_up > 1 && disk.hits() == 1, "{given_up}, {}", disk.hits());
    let mut starts: Vec<u64> = disk.list(LOG_DIR).unwrap().iter().filter_map(|name| segment_start(name)).collect();
    starts.sort_unstable();
    assert_eq!(Some(&log.oldest_lsn().0), starts.first(), "{starts:?}");
    assert!(starts.is_sorted_by(|a, b| a + SEGMENT_BYTES == *b), "{starts:?}");
}

/// An old segment that somebody has cut is not used again: it would lack bytes when the next crash comes.
#[test]
fn a_segment_that_was_cut_is_not_used_again() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = new_log(Arc::clone(&disk));
    for no in 0..60 {
        append_one(&log, no, 1000).unwrap();
        log.flush().unwrap();
    }
    let path = format!("{LOG_DIR}/{}", segment_name(SEGMENT_BYTES));
    disk.open(&path, Open::EXISTING).unwrap().set_len(SEGMENT_BYTES - 1000).unwrap();
    assert!(log.recycle_before(log.durable_lsn()).unwrap() > 1);
    let state = ControlState { scan_lsn: log.oldest_lsn(), ..ControlState::new(ENVIRONMENT, 4096, SEGMENT_BYTES) };
    check_segments(&disk, &state).unwrap();
}

/// Also behind the end of the log: it goes on there.
#[test]
fn the_segment_in_which_a_log_ends_is_whole_or_refused() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = new_log(Arc::clone(&disk));
    for no in 0..20 {
        append_one(&log, no, 1000).unwrap();
    }
    log.flush().unwrap();
    let end = log.tail();
    drop(log);
    let start = end.0 - end.0 % SEGMENT_BYTES;
    let path = format!("{LOG_DIR}/{}", segment_name(start));
    let file = disk.open(&path, Open::EXISTING).unwrap();
    assert_eq!(tidy_segments(&disk, SEGMENT_BYTES, end).unwrap().0 % SEGMENT_BYTES, 0);
    assert!(end.0 - start < SEGMENT_BYTES - 1000);
    file.set_len(SEGMENT_BYTES - 1000).unwrap();
    let refused = tidy_segments(&disk, SEGMENT_BYTES, end);
    assert!(matches!(refused, Err(LogError::ShortSegment { .. })), "{refused:?}");
}

#[test]
fn names_that_no_segment_can_have_are_not_taken_for_segments() {
    // Behind the end of LSNs; with a sign; in capitals; too long.
    let strange = [
        "ffffffffffffc000.seg",
        "0001000000000000.seg",
        "+00000000000c000.seg",
        "000000000000C000.seg",
        "00000000000014000.seg",
    ];
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = new_log(Arc::clone(&disk));
    for no in 0..10 {
        append_one(&log, no, 1000).unwrap();
    }
    log.flush().unwrap();
    drop(log);
    for name in strange {
        assert_eq!(segment_start(name), None, "{name}");
        disk.open(&format!("{LOG_DIR}/{name}"), Open::CREATE).unwrap();
    }
    let (log, records) = reopen(Arc::clone(&disk), 1).unwrap();
    assert_eq!(records.len(), 10);
    for no in 0..100 {
        append_one(&log, no, 1000).unwrap();
        log.flush().unwrap();
    }
    log.recycle_before(log.durable_lsn()).unwrap();
    let state = ControlState { scan_lsn: log.oldest_lsn(), ..ControlState::new(ENVIRONMENT, 4096, SEGMENT_BYTES) };
    check_segments(&disk, &state).unwrap();
    for name in strange {
        assert!(disk.exists(&format!("{LOG_DIR}/{name}")).unwrap(), "{name} is not ours to remove");
    }
}
