//! A process that joins a log knows of it what the one knows that has opened it.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{FIRST_LSN, Log, LogConfig, LogError};
use ledgerstone_page::Lsn;
use ledgerstone_region::{Region, SlotTable};

/// Records of several lives are read under their own incarnations, and a scan goes through all of them.
#[test]
fn records_of_earlier_incarnations_are_read() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let mut lsns = Vec::new();
    let log = new_log(Arc::clone(&disk));
    lsns.extend((0..5).map(|no| append_one(&log, no, 300).unwrap()));
    log.flush().unwrap();
    drop(log);
    for life in 1..4 {
        let (log, _) = reopen(Arc::clone(&disk), life).unwrap();
        lsns.extend((0..5).map(|no| append_one(&log, 5 * life + no, 300).unwrap()));
        log.flush().unwrap();
    }
    let mut found = scan(Arc::clone(&disk), FIRST_LSN, 1).with_incarnation_max(4);
    let records = read_all(&mut found).unwrap();
    let path = dir.path().join("region");
    let of = |region: Region| LogConfig {
        end: found.end(),
        incarnation: found.incarnation(),
        incarnations: found.incarnations().to_vec(),
        next_incarnation: region.is_made_here().then_some(5),
        slots: Some(Arc::new(SlotTable::place(&region, 8).unwrap())),
        region,
        ..config(Arc::clone(&disk))
    };
    let one = Log::open(of(Region::create_at(&path, 1 << 20).unwrap())).unwrap();
    one.flush().unwrap();
    let other = Log::join(LogConfig {
        end: FIRST_LSN,
        incarnation: 1,
        incarnations: Vec::new(),
        ..of(Region::join_at(&path).unwrap())
    })
    .unwrap();
    let numbers = |log: &Log, from| {
        let all = read_all(&mut log.scan(from).unwrap()).unwrap();
        all.iter().filter(|record| lsns.contains(&record.lsn())).map(number_of).collect::<Vec<_>>()
    };
    for (no, lsn) in lsns.iter().enumerate() {
        assert_eq!(other.incarnation_at(*lsn), one.incarnation_at(*lsn), "at {lsn}");
        assert_eq!(number_of(&other.read(*lsn).unwrap()), no as u64);
        assert_eq!(numbers(&other, *lsn), (no as u64..20).collect::<Vec<_>>());
    }
    assert_eq!((other.incarnation(), other.begun_lsn()), (one.incarnation(), one.begun_lsn()));
    let begins = records.last().unwrap().end();
    assert_eq!(other.read(begins).unwrap(), one.read(begins).unwrap(), "the record of the incarnation itself");
}

#[test]
fn settings_that_all_share_are_refused_if_they_differ() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let _logs = two_logs(dir.path(), &disk);
    let with = |change: fn(LogConfig) -> LogConfig| {
        let region = Region::join_at(&dir.path().join("region")).unwrap();
        let slots = Some(Arc::new(SlotTable::place(&region, 16).unwrap()));
        Log::join(change(LogConfig { region, slots, ..config(Arc::clone(&disk)) })).map(drop)
    };
    assert!(with(|config| config).is_ok());
    let refused = with(|config| LogConfig { segment_bytes: 2 * SEGMENT_BYTES, ..config });
    assert!(matches!(refused, Err(LogError::Setting { name: "segment_bytes", .. })));
    let refused = with(|config| LogConfig { kept_claim_count: 9, ..config });
    assert!(matches!(refused, Err(LogError::Setting { name: "kept_claim_count", .. })));
}

/// Whatever another process does with the files, a reader finds the record of its LSN, or that it is gone. Files that
/// were given up do not stay open.
#[test]
fn segments_are_given_up_and_used_again_under_the_hands_of_another_process() {
    let (sim, dir) = (SimDisk::new(), tempfile::tempdir().unwrap());
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let [one, other] = two_logs(dir.path(), &disk);
    let mut lsns = Vec::new();
    let mut append = |log: &Log, count: u64| {
        for _ in 0..count {
            lsns.push(append_one(log, lsns.len() as u64, 900).unwrap());
        }
        log.flush().unwrap();
        lsns.clone()
    };
    append(&other, 40); // It has led, and has what it wrote open.
    for _ in 0..30 {
        let lsns = append(&one, 40);
        let oldest = other.oldest_lsn();
        for (no, lsn) in lsns.iter().enumerate() {
            match other.read(*lsn) {
                Ok(record) => assert_eq!(number_of(&record), no as u64),
                Err(LogError::Recycled { .. }) => assert!(*lsn < oldest),
                Err(error) => panic!("{error} at {lsn}, of a log from {oldest} on"),
            }
        }
        one.recycle_before(Lsn(one.durable_lsn().0 - 2 * SEGMENT_BYTES)).unwrap();
        other.refresh();
        let kept = (one.tail().0 - one.oldest_lsn().0) / SEGMENT_BYTES + 3;
        assert!(sim.counters().open_files <= 2 * kept, "{} files of {kept}", sim.counters().open_files);
    }
    sim.no_space_after(sim.used_bytes());
    while other.claim(8000).map(|claim| append_and_flush(&other, claim)).is_ok() {}
    assert!(one.has_lacked_space() && !other.has_lacked_space());
}

fn append_and_flush(log: &Log, mut claim: ledgerstone_log::Claim) {
    append(log, &mut claim, 1, 7000);
    log.give_back(claim);
    log.flush().unwrap();
}
