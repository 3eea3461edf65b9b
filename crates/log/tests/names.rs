//! Names of segments that may not be durable fail the log.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, Open, SimDisk};
use ledgerstone_log::{
    ControlState, LOG_DIR, Log, LogConfig, LogError, check_segments, segment_name, segment_start, tidy_segments,
};

/// Appends and flushes until something is refused; how often it was not.
fn run(log: &Log) -> (u64, Option<LogError>) {
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
                log.start_flusher().unwrap();
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

/// Nor is it forgotten if the disk refuses to remove it, too, or to make that durable. The next call begins with it, so
/// that none is missing behind it.
#[test]
fn a_segment_that_could_not_be_given_up_goes_with_the_next_call() {
    // Another name and the removal; the removal alone; what makes it durable; a look at the file.
    let cases =
        [(3, vec![(Call::Name, 1), (Call::Name, 2)]), (0, vec![(Call::Name, 1)]), (0, vec![(Call::SyncDir, 1)])];
    for (spare_segments, refused) in cases.into_iter().chain([(3, vec![(Call::Open, 1)])]) {
        let sim = SimDisk::new();
        let disk = FaultDisk::new(Arc::new(sim.clone()));
        let log = Log::open(LogConfig { spare_segments, ..config(Arc::new(disk.clone())) }).unwrap();
        for no in 0..200 {
            append_one(&log, no, 1000).unwrap();
            log.flush().unwrap();
        }
        let before = log.stat().segment_count;
        for (call, nth) in &refused {
            disk.add(Fault::at(*call, *nth, Harm::Fail(DiskErrorKind::NoSpace)));
        }
        let error = log.recycle_before(log.durable_lsn()).unwrap_err();
        assert!(matches!(&error, LogError::Disk(error) if error.is_no_space()), "{refused:?}: {error}");
        assert_eq!((disk.hits(), log.stat().segment_count), (refused.len() as u64, before));
        let given_up = log.recycle_before(log.oldest_lsn()).unwrap();
        assert_eq!(given_up, 1, "{refused:?}: it alone, since nothing else may go");
        log.recycle_before(log.durable_lsn()).unwrap();
        let mut starts: Vec<u64> = sim.list(LOG_DIR).unwrap().iter().filter_map(|name| segment_start(name)).collect();
        starts.sort_unstable();
        assert_eq!(Some(&(log.oldest_lsn().0 / SEGMENT_BYTES * SEGMENT_BYTES)), starts.first(), "{starts:?}");
        assert!(starts.is_sorted_by(|a, b| a + SEGMENT_BYTES == *b), "{starts:?}");
        assert_eq!(log.stat().segment_count, starts.len() as u64);
    }
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
