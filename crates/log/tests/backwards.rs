//! Chains are read backwards by pieces: every record as it was appended, with few reads of the device.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{Backwards, FIRST_LSN, Log, LogConfig, LogError};
use ledgerstone_page::Lsn;
use ledgerstone_region::Region;

/// A log with a buffer that is large beside its records.
fn roomy(disk: &SimDisk) -> Arc<Log> {
    let region = Region::anonymous(16 << 20).unwrap();
    let (segment_bytes, buffer_bytes) = (1 << 20, 256 << 10);
    Log::open(LogConfig { segment_bytes, buffer_bytes, region, ..config(Arc::new(disk.clone())) }).unwrap()
}

/// Reads `lsns` from the last to the first, proves that they are the records with these numbers, and calls `between`
/// after each.
fn read_all_back(log: &Log, lsns: &[(u64, Lsn)], bytes: u64, mut between: impl FnMut()) {
    let mut back = Backwards::new(log, lsns[0].1, bytes);
    for (no, lsn) in lsns.iter().rev() {
        let record = log.read_backwards(&mut back, *lsn).unwrap().to_record();
        assert_eq!((record.lsn(), number_of(&record)), (*lsn, *no));
        between();
    }
}

#[test]
fn a_chain_is_read_from_the_device_by_pieces() {
    let disk = SimDisk::new();
    let log = roomy(&disk);
    let lsns: Vec<_> =
        (0..20_000).map(|no| (no, append_one(&log, no, 20 + (no as usize * 37) % 200).unwrap())).collect();
    log.flush().unwrap();
    let before = disk.counters();
    read_all_back(&log, &lsns, log.tail().0, || ());
    let after = disk.counters();
    let (reads, bytes) = (after.reads - before.reads, after.read_bytes - before.read_bytes);
    assert!(reads < 20, "{reads} reads for 20,000 records");
    assert!(bytes < log.tail().0 * 5 / 4, "{bytes} bytes read of a log of {}", log.tail().0);
}

#[test]
fn a_sparse_chain_reads_no_more_than_it_must() {
    let disk = SimDisk::new();
    let log = roomy(&disk);
    let all: Vec<_> = (0..20_000).map(|no| (no, append_one(&log, no, 100).unwrap())).collect();
    log.flush().unwrap();
    let sparse: Vec<_> = all.iter().copied().step_by(500).collect();
    let before = disk.counters();
    read_all_back(&log, &sparse, 40 * 150, || ());
    let after = disk.counters();
    assert!(after.read_bytes - before.read_bytes <= 40 * 8192, "{} bytes", after.read_bytes - before.read_bytes);
}

#[test]
fn what_fits_half_the_buffer_is_not_read_from_the_device() {
    let disk = SimDisk::new();
    let log = roomy(&disk);
    for no in 0..3000 {
        append_one(&log, no, 100).unwrap();
    }
    let from = log.tail().0;
    let mut lsns = Vec::new();
    while log.tail().0 - from < 127 << 10 {
        lsns.push((lsns.len() as u64, append_one(&log, lsns.len() as u64, 60).unwrap()));
    }
    log.flush().unwrap();
    let before = disk.counters();
    // What is undone is logged anew, and pushes out of the buffer what is still to be read.
    read_all_back(&log, &lsns, log.tail().0 - from, || {
        append_one(&log, 0, 100).unwrap();
        log.flush().unwrap();
    });
    assert_eq!(disk.counters().reads - before.reads, 0);
}

#[test]
fn records_longer_than_a_piece_and_at_the_ends_are_read() {
    let disk = SimDisk::new();
    let log = roomy(&disk);
    let sizes = [60_000, 5, 9_000, 100_000, 4_000, 1, 30_000];
    let lsns: Vec<_> = (0..100).map(|no| (no, append_one(&log, no, sizes[no as usize % 7]).unwrap())).collect();
    log.flush().unwrap();
    for bytes in [0, u64::MAX] {
        read_all_back(&log, &lsns, bytes, || ());
    }
    let some: Vec<_> = lsns.iter().copied().filter(|(no, _)| no % 7 == 3).collect();
    read_all_back(&log, &some, 0, || ());
    drop(log);
    let (log, _) = reopen_roomy(&disk);
    read_all_back(&log, &lsns, u64::MAX, || ());
}

fn reopen_roomy(disk: &SimDisk) -> (Arc<Log>, usize) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut scan = ledgerstone_log::LogScan::new(Arc::clone(&shared), ENVIRONMENT, 1 << 20, FIRST_LSN, 1).unwrap();
    let count = read_all(&mut scan).unwrap().len();
    let region = Region::anonymous(16 << 20).unwrap();
    let log = Log::open(LogConfig {
        segment_bytes: 1 << 20,
        buffer_bytes: 256 << 10,
        region,
        end: scan.end(),
        incarnation: scan.incarnation(),
        incarnations: scan.incarnations().to_vec(),
        next_incarnation: Some(2),
        ..config(shared)
    });
    (log.unwrap(), count)
}

#[test]
fn what_is_no_record_and_what_was_given_up_is_refused() {
    let disk = SimDisk::new();
    let log = new_log(Arc::new(disk));
    let lsns: Vec<_> = (0..800).map(|no| append_one(&log, no, 200).unwrap()).collect();
    log.flush().unwrap();
    let mut back = Backwards::new(&log, FIRST_LSN, 0);
    for wrong in [Lsn(0), Lsn(8), Lsn(4097), lsns[700].max(Lsn(lsns[700].0 + 8)), log.tail(), Lsn(1 << 40)] {
        assert!(matches!(log.read_backwards(&mut back, wrong), Err(LogError::Invalid { .. })), "{wrong:?}");
    }
    assert!(log.read_backwards(&mut back, lsns[300]).is_ok());
    log.recycle_before(lsns[700]).unwrap();
    let mut back = Backwards::new(&log, FIRST_LSN, 0);
    assert!(matches!(log.read_backwards(&mut back, lsns[300]), Err(LogError::Recycled { .. })));
    assert_eq!(number_of(&log.read_backwards(&mut back, lsns[780]).unwrap().to_record()), 780);
}
