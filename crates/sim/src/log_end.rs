//! The end of the log, alone: life after life of one log, each ended by a power failure or a kill, and what a recovery
//! reads of each.
//!
//! Where a power failure leaves a hole, the bytes behind it may be whole records of a life that is over, and the next
//! life writes over the hole. If what it writes ends exactly where one of those records begins, and no further, nothing
//! but the record's seal tells the two lives apart. Transactions of the whole engine end there once in ten thousand
//! rounds; here nearly all records end where a piece of the disk does.
//!
//! - E1. Records that were flushed, or read by an earlier life, are read, each in its place, as they were written.
//! - E2. Nothing else is read but what the same life wrote behind them, or a life before it that was read by this one.
//! - E3. In no case a panic, or an error other than the power failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskError, SimDisk};
use ledgerstone_log::{
    CONTROL_PATH, ControlError, ControlFile, ControlState, EnvironmentId, FIRST_LSN, Log, LogConfig, LogError, LogScan,
    NewRecord, RecordKind,
};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::Region;

use crate::counters::Counters;
use ledgerstone_region::Random;

const ENVIRONMENT: EnvironmentId = *b"the log's end...";
const SEGMENT_BYTES: u64 = 64 << 10;
const LIVES: usize = 6;
/// What a power failure takes or leaves together.
const PIECE_BYTES: u64 = 512;
/// Bytes of an update's record beside its body.
const UPDATE_BYTES: u64 = 40;

/// What the lives know of each other.
struct Known {
    /// The number in each record, by LSN; those behind the end that was read last are gone.
    written: BTreeMap<u64, u64>,
    /// Records below are durable.
    durable: u64,
    next_no: u64,
}

/// Runs the round of a seed.
///
/// # Errors
/// What the log did that it must not do.
pub fn run(seed: u64) -> Result<Counters, Vec<String>> {
    let mut random = Random::new(seed);
    let mut counters = Counters::default();
    let mut known = Known { written: BTreeMap::new(), durable: 0, next_no: 0 };
    let mut disk = SimDisk::new();
    for life in 0..LIVES {
        // Half of the time in the first flush: what the first records of two lives do to each other is seldom seen
        // otherwise.
        let end_at = if random.percent(50) { random.between(3, 7) } else { random.between(1, 40) };
        let is_killed = random.percent(40);
        if is_killed {
            disk.kill_at(end_at, random.pick(&[u64::MAX, 4096, 0]));
        } else {
            disk.crash_at(end_at);
        }
        match live(&disk, &mut known, &mut random, &mut counters) {
            Err(Trouble::Refused(_)) if disk.is_crashed() => {}
            Err(Trouble::Refused(what)) => return Err(vec![format!("life {life}: {what}")]),
            Err(Trouble::Wrong(what)) => return Err(vec![format!("life {life}: {what}")]),
            Ok(()) => disk.crash_now(),
        }
        counters.add(if is_killed { "kills" } else { "crashes" }, 1);
        disk = if is_killed { disk.after_kill() } else { disk.after_crash(random.number()) };
    }
    counters.add("rounds", 1);
    Ok(counters)
}

/// Why a life ends before its time.
enum Trouble {
    /// The life has ended, or the log has failed.
    Refused(String),
    /// What was read is not what was written.
    Wrong(String),
}

impl From<LogError> for Trouble {
    fn from(error: LogError) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

impl From<ControlError> for Trouble {
    fn from(error: ControlError) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

impl From<DiskError> for Trouble {
    fn from(error: DiskError) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

/// Reads what is there, compares, and appends until the power fails or enough is written.
fn live(disk: &SimDisk, known: &mut Known, random: &mut Random, counters: &mut Counters) -> Result<(), Trouble> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let control = if disk.exists(CONTROL_PATH)? {
        ControlFile::open(disk)?
    } else {
        ControlFile::create(disk, ControlState::new(ENVIRONMENT, 4096, SEGMENT_BYTES))?
    };
    let mut scan = LogScan::new(Arc::clone(&shared), ENVIRONMENT, SEGMENT_BYTES, FIRST_LSN, 1)?
        .with_incarnation_max(control.state().incarnation_max)
        .settled()?;
    let mut expected = known.written.iter();
    while let Some(record) = scan.next()? {
        if record.kind() == RecordKind::Incarnation {
            continue;
        }
        let no = record.body().first_chunk().map_or(u64::MAX, |no| u64::from_le_bytes(*no));
        let next = expected.next();
        if next != Some((&record.lsn().0, &no)) {
            return Err(Trouble::Wrong(format!("E2: read record {no} at {}, written was {next:?}", record.lsn())));
        }
        counters.add("records_read", 1);
    }
    let end = scan.end();
    if end.0 < known.durable {
        return Err(Trouble::Wrong(format!("E1: the log ends at {end}, and was durable to {}", known.durable)));
    }
    known.durable = end.0; // E1 holds for what was read as well.
    known.written.retain(|lsn, _| *lsn < end.0);
    let incarnation = control.begin_incarnation(scan.incarnation(), None)?;
    let region = Region::anonymous(16 << 20).map_err(|error| Trouble::Wrong(error.to_string()))?;
    let log = Log::open(LogConfig {
        segment_bytes: SEGMENT_BYTES,
        buffer_bytes: 128 << 10,
        end,
        incarnation: scan.incarnation(),
        incarnations: scan.incarnations().to_vec(),
        next_incarnation: Some(incarnation),
        ..LogConfig::new(shared, region, ENVIRONMENT)
    })?;
    for _ in 0..random.between(1, 60) {
        // To the end of a piece, or of the next but one.
        let room = PIECE_BYTES - log.tail().0 % PIECE_BYTES;
        let len = if room < UPDATE_BYTES + 8 { room + PIECE_BYTES } else { room } + random.below(2) * PIECE_BYTES;
        let no = known.next_no;
        known.next_no += 1;
        let mut body = vec![no as u8; (len - UPDATE_BYTES) as usize];
        body[..8].copy_from_slice(&no.to_le_bytes());
        let mut claim = log.claim(body.len() + 64)?;
        let record = NewRecord {
            kind: RecordKind::Update,
            xid: Xid(1),
            prev_lsn: Lsn(0),
            op: OpId(7),
            flags: 0,
            page: Some((PageId(1), Lsn(0))),
            body: &[&body],
        };
        let lsn = log.append(&mut claim, &record);
        log.give_back(claim);
        known.written.insert(lsn.0, no);
        if random.percent(25) {
            log.flush_to(lsn)?;
            known.durable = lsn.0 + len;
        }
    }
    Ok(())
}
