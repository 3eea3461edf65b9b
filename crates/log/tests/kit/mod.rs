//! What the tests of the log share: a small log on any disk, records with content that can be recognised, a reader.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_log::{
    Claim, EnvironmentId, FIRST_LSN, Log, LogConfig, LogError, LogScan, NewRecord, Record, RecordKind,
};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::{Members, Region, SlotTable};

pub const ENVIRONMENT: EnvironmentId = *b"test environment";
pub const SEGMENT_BYTES: u64 = 16 << 10;
pub const BUFFER_BYTES: u64 = 16 << 10;

pub fn config(disk: Arc<dyn Disk>) -> LogConfig {
    let region = Region::anonymous(16 << 20).unwrap();
    LogConfig { segment_bytes: SEGMENT_BYTES, buffer_bytes: BUFFER_BYTES, ..LogConfig::new(disk, region, ENVIRONMENT) }
}

pub fn new_log(disk: Arc<dyn Disk>) -> Arc<Log> {
    Log::open(config(disk)).unwrap()
}

pub fn scan(disk: Arc<dyn Disk>, from: Lsn, incarnation: u64) -> LogScan {
    LogScan::new(disk, ENVIRONMENT, SEGMENT_BYTES, from, incarnation).unwrap()
}

/// Reads to the end.
pub fn read_all(scan: &mut LogScan) -> Result<Vec<Record>, LogError> {
    let mut records = Vec::new();
    while let Some(record) = scan.next()? {
        records.push(record);
    }
    Ok(records)
}

/// Opens the log where a scan from the beginning finds its end, under `incarnation_max + 1`.
pub fn reopen(disk: Arc<dyn Disk>, incarnation_max: u64) -> Result<(Arc<Log>, Vec<Record>), LogError> {
    let mut scan = scan(Arc::clone(&disk), FIRST_LSN, 1).with_incarnation_max(incarnation_max);
    let records = read_all(&mut scan)?;
    let log = Log::open(LogConfig {
        end: scan.end(),
        incarnation: scan.incarnation(),
        incarnations: scan.incarnations().to_vec(),
        next_incarnation: Some(incarnation_max + 1),
        ..config(disk)
    })?;
    Ok((log, records))
}

/// A record of `bytes` of body made from `no`; every fourth is a commit that carries what is durable.
pub fn body_of(no: u64, bytes: usize, durable: Lsn) -> Vec<u8> {
    let mut body = durable.0.to_le_bytes().to_vec();
    body.extend_from_slice(&no.to_le_bytes());
    body.extend((0..bytes).map(|at| (no as usize * 31 + at * 7) as u8));
    body
}

pub fn append(log: &Log, claim: &mut Claim, no: u64, bytes: usize) -> Lsn {
    let body = body_of(no, bytes, log.durable_lsn());
    let (first, second) = body.split_at(body.len() / 2);
    let kind = if no % 4 == 3 { RecordKind::Commit } else { RecordKind::Update };
    let page = kind.has_page().then_some((PageId(no + 1), Lsn(4096)));
    let record =
        NewRecord { kind, xid: Xid(no), prev_lsn: Lsn(8 * no), op: OpId(7), flags: 5, page, body: &[first, second] };
    log.append(claim, &record)
}

/// How many bytes make record `no` as long as `total`.
pub fn bytes_for(no: u64, total: usize) -> usize {
    total - if no % 4 == 3 { 24 + 16 } else { 40 + 16 }
}

pub fn append_one(log: &Log, no: u64, bytes: usize) -> Result<Lsn, LogError> {
    let mut claim = log.claim(bytes + 64)?;
    let lsn = append(log, &mut claim, no, bytes);
    log.give_back(claim);
    Ok(lsn)
}

/// Proves that a record is what [`append`] made, and says its number.
pub fn number_of(record: &Record) -> u64 {
    let no = u64::from_le_bytes(record.body()[8..16].try_into().unwrap());
    let bytes = record.body().len() - 16;
    assert_eq!(record.body()[8..], body_of(no, bytes, Lsn(0))[8..], "record at {}", record.lsn().0);
    assert_eq!((record.xid(), record.op(), record.prev_lsn(), record.flags()), (Xid(no), OpId(7), Lsn(8 * no), 5));
    if record.kind() == RecordKind::Update {
        assert_eq!((record.page(), record.prev_page_lsn()), (PageId(no + 1), Lsn(4096)));
    }
    no
}

/// Two logs in two mappings of one region, as two processes have them: the one that made it, and one that joined.
pub fn two_logs(dir: &Path, disk: &Arc<dyn Disk>) -> [Arc<Log>; 2] {
    let (path, locks) = (dir.join("region"), dir.join("members"));
    let of = |region: Region| {
        let members = Arc::new(Members::join(&region, &locks).unwrap());
        let slots = Arc::new(SlotTable::place_among(members, &region, 16).unwrap());
        LogConfig { region, slots: Some(slots), ..config(Arc::clone(disk)) }
    };
    let first = Log::open(of(Region::create_at(&path, 1 << 20).unwrap())).unwrap();
    [first, Log::join(of(Region::join_at(&path).unwrap())).unwrap()]
}
