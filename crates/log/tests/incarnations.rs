//! However often a log was opened, its oldest records are found and read, and damage is told from its end.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{Beginning, FIRST_LSN, Log, LogConfig, LogError, LogFiles, LogReader, RecordKind, oldest_record};
use ledgerstone_page::Lsn;

/// A log that goes on at `end`, with nothing known of what lies before, as after a checkpoint there.
fn go_on(disk: &Arc<dyn Disk>, end: Lsn, incarnation: u64, next: u64) -> Arc<Log> {
    let (incarnations, next_incarnation) = (vec![(end, incarnation)], Some(next));
    Log::open(LogConfig { end, incarnation, incarnations, next_incarnation, ..config(Arc::clone(disk)) }).unwrap()
}

/// A log with a record of each of these incarnations but the first, which has three. All of it is kept.
fn opened(disk: &Arc<dyn Disk>, incarnations: &[u64]) -> (Arc<Log>, Vec<Lsn>) {
    let mut log = new_log(Arc::clone(disk));
    let mut lsns: Vec<Lsn> = (0..3).map(|no| append_one(&log, no, 100).unwrap()).collect();
    for pair in incarnations.windows(2) {
        log.flush().unwrap();
        let end = log.tail();
        drop(log);
        log = go_on(disk, end, pair[0], pair[1]);
        lsns.push(append_one(&log, lsns.len() as u64, 10).unwrap());
    }
    log.flush().unwrap();
    let end = log.tail();
    drop(log);
    let last = incarnations[incarnations.len() - 1];
    (go_on(disk, end, last, last + 1), lsns)
}

fn places(reader: &mut LogReader) -> Vec<Lsn> {
    let records = std::iter::from_fn(|| reader.next().unwrap());
    records.filter(|record| record.kind() != RecordKind::Incarnation).map(|record| record.lsn()).collect()
}

fn check(incarnations: &[u64]) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (log, lsns) = opened(&disk, incarnations);
    let mut reader = LogReader::new(&log, Lsn(0)).unwrap();
    assert_eq!(reader.position(), FIRST_LSN);
    assert!(places(&mut reader) == lsns);
    let mut back = Vec::new();
    while let Some(record) = reader.prev().unwrap() {
        back.push(record.lsn());
    }
    back.retain(|lsn| lsns.binary_search(lsn).is_ok());
    assert!(back.iter().rev().eq(&lsns));
    let step = lsns.len().div_ceil(50);
    for (no, lsn) in lsns.iter().enumerate().step_by(step) {
        assert_eq!(log.beginning_from(*lsn).unwrap().unwrap().lsn, *lsn);
        reader.seek(Lsn(lsn.0 - 8)).unwrap();
        assert!(reader.position() <= *lsn);
        assert_eq!(number_of(&log.read(*lsn).unwrap()), no as u64);
    }
    let end = log.durable_lsn();
    drop((reader, log));

    let last = incarnations[incarnations.len() - 1];
    let (found, told) = oldest_record(&disk, ENVIRONMENT, SEGMENT_BYTES, &|_| None).unwrap().unwrap();
    assert_eq!((found, told), (Beginning { lsn: FIRST_LSN, incarnation: incarnations[0] }, last));
    for known in [None, Some(Beginning { lsn: end, incarnation: last })] {
        let (environment, segment_bytes) = (ENVIRONMENT, SEGMENT_BYTES);
        let disk = Arc::clone(&disk);
        let files = LogFiles { disk, environment, segment_bytes, known, incarnation_max: last, end: Some(end) };
        assert!(places(&mut LogReader::of_files(files, Lsn(0)).unwrap()) == lsns);
    }
}

#[test]
fn a_log_that_was_opened_thousands_of_times_is_read_from_its_beginning() {
    check(&(1..=6000).collect::<Vec<_>>());
}

#[test]
fn a_log_of_which_most_openings_left_nothing_is_read_from_its_beginning() {
    check(&[1, 5000, 5001, 200_000, 1_000_000]);
}

/// A segment that begins with the rest of a record, all of whose records are old.
#[test]
fn the_oldest_segment_is_read_from_its_first_whole_record() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = new_log(Arc::clone(&disk));
    let lsns: Vec<Lsn> = (0..60).map(|no| append_one(&log, no, 900).unwrap()).collect();
    log.flush().unwrap();
    assert!(log.recycle_before(lsns[30]).unwrap() > 0);
    let (oldest, end) = (log.oldest_lsn(), log.tail());
    drop(log);
    let log = go_on(&disk, end, 1, 70_000);
    let first = lsns.iter().position(|lsn| *lsn >= oldest).unwrap();
    assert!(lsns[first] > oldest, "a record goes on there");
    assert!(places(&mut LogReader::new(&log, Lsn(0)).unwrap()) == lsns[first..]);
}

/// The commit that proves the damage is of an incarnation far behind.
#[test]
fn damage_is_told_from_the_end_by_a_commit_of_a_much_later_incarnation() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = new_log(Arc::clone(&disk));
    let lsns: Vec<Lsn> = (0..3).map(|no| append_one(&log, no, 100).unwrap()).collect();
    log.flush().unwrap();
    let end = log.tail();
    drop(log);
    let log = go_on(&disk, end, 1, 3000);
    log.flush().unwrap();
    append_one(&log, 3, 100).unwrap(); // A commit.
    log.flush().unwrap();
    drop(log);
    let file =
        disk.open(&format!("log/{}", ledgerstone_log::segment_name(0)), ledgerstone_disk::Open::EXISTING).unwrap();
    file.write_at(lsns[1].0 + 50, &[0xff; 8]).unwrap();
    let told = read_all(&mut scan(disk, FIRST_LSN, 1).with_incarnation_max(3000));
    assert!(matches!(told, Err(LogError::Corrupt { lsn, .. }) if lsn == lsns[1]), "{told:?}");
}
