//! What a reader calls damage, and what it does not: nothing between two records that can be read is passed over.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use kit::*;
use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::{Beginning, FIRST_LSN, Log, LogConfig, LogError, LogFiles, LogReader, segment_name};
use ledgerstone_page::Lsn;

/// A log of about 60 KiB in segments of 16, as files and open.
struct Kept {
    disk: SimDisk,
    lsns: Vec<Lsn>,
    end: Lsn,
    /// Where the log was begun to be read when it was opened: a record begins there.
    known: usize,
}

impl Kept {
    fn new() -> Kept {
        let disk = SimDisk::new();
        let log = new_log(Arc::new(disk.clone()));
        let lsns: Vec<Lsn> = (0..66).map(|no| append_one(&log, no, 870 + no as usize % 5 * 8).unwrap()).collect();
        log.flush().unwrap();
        Kept { disk, lsns, end: log.tail(), known: 60 }
    }

    fn log(&self) -> Arc<Log> {
        let incarnations = vec![(self.lsns[self.known], 1)];
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Log::open(LogConfig { end: self.end, incarnation: 1, incarnations, ..config(disk) }).unwrap()
    }

    /// A reader of the open log, and one of the files.
    fn readers(&self, from: Lsn) -> [Result<LogReader, LogError>; 2] {
        let files = LogFiles {
            disk: Arc::new(self.disk.clone()),
            environment: ENVIRONMENT,
            segment_bytes: SEGMENT_BYTES,
            known: Some(Beginning { lsn: self.lsns[self.known], incarnation: 1 }),
            incarnation_max: 1,
            end: Some(self.end),
        };
        [LogReader::new(&self.log(), from), LogReader::of_files(files, from)]
    }

    fn path(&self, segment: u64) -> String {
        format!("log/{}", segment_name(segment * SEGMENT_BYTES))
    }

    fn write(&self, lsn: u64, bytes: &[u8]) {
        let file = self.disk.open(&self.path(lsn / SEGMENT_BYTES), Open::EXISTING).unwrap();
        file.write_at(lsn % SEGMENT_BYTES, bytes).unwrap();
    }

    fn end_of(&self, lsn: Lsn) -> Lsn {
        self.lsns.iter().copied().find(|next| *next > lsn).unwrap_or(self.end)
    }

    /// Fails unless every record that is not in `lost` can be read from where it begins up to the next that is lost. No
    /// reader may go from one record to another over one that is lost.
    fn check(&self, lost: std::ops::Range<usize>, what: &str) {
        let is_lost = |no: usize| lost.contains(&no);
        for (no, &lsn) in self.lsns.iter().enumerate() {
            for reader in self.readers(lsn) {
                let mut reader = match reader {
                    Ok(reader) => reader,
                    Err(LogError::Invalid { .. }) => {
                        // A place behind the damage may be needed to prove it; never one before.
                        assert!(is_lost(no), "{what}: {no}");
                        continue;
                    }
                    Err(error) => panic!("{what}: {no}: {error}"),
                };
                assert_eq!(reader.position(), lsn, "{what}: {no}");
                let stop = if no < lost.end { lost.start.max(no) } else { self.lsns.len() };
                for next in no..stop {
                    assert_eq!(number_of(&reader.next().unwrap().unwrap()), next as u64, "{what}: {no}");
                }
                match reader.next() {
                    Ok(None) => assert_eq!(stop, self.lsns.len(), "{what}: {no}: silence"),
                    Err(LogError::Invalid { .. }) => assert!(stop < self.lsns.len(), "{what}: {no}"),
                    other => panic!("{what}: {no}: {other:?}"),
                }
            }
        }
        for reader in self.readers(Lsn(0)) {
            let told = reader.and_then(|mut reader| {
                assert_eq!(reader.position(), FIRST_LSN, "{what}");
                while reader.next()?.is_some() {}
                Ok(())
            });
            assert!(matches!(told, Err(LogError::Invalid { .. })), "{what}: {told:?}");
        }
        for reader in self.readers(Lsn(u64::MAX)) {
            let mut reader = reader.unwrap();
            let told = loop {
                match reader.prev() {
                    Ok(Some(_)) => {}
                    ended => break ended.map(drop),
                }
            };
            assert!(matches!(told, Err(LogError::Invalid { .. })), "{what}: {told:?}");
            assert!(reader.position() >= self.lsns[lost.end], "{what}");
        }
    }
}

#[test]
fn a_record_damaged_anywhere_is_never_passed_over() {
    for no in [0, 1, 20, 40, 64] {
        let log = Kept::new();
        log.write(log.lsns[no].0 + 100, b"damage");
        log.check(no..no + 1, &format!("record {no}"));
        // Its head, which says where the next one begins.
        let log = Kept::new();
        log.write(log.lsns[no].0, &[0xff; 24]);
        log.check(no..no + 1, &format!("head of record {no}"));
    }
}

#[test]
fn a_segment_that_is_emptied_cut_or_missing_is_never_passed_over() {
    for segment in 0..4 {
        let whole = Kept::new();
        let first = whole.lsns.iter().position(|lsn| whole.end_of(*lsn).0 > segment * SEGMENT_BYTES).unwrap();
        let last = whole.lsns.iter().rposition(|lsn| lsn.0 < (segment + 1) * SEGMENT_BYTES).unwrap();
        if last + 1 >= whole.lsns.len() {
            continue; // The log ends in it.
        }
        let file = |log: &Kept| log.disk.open(&log.path(segment), Open::EXISTING).unwrap();
        let log = Kept::new();
        file(&log).set_len(0).unwrap();
        log.check(first..last + 1, &format!("segment {segment} emptied"));
        let log = Kept::new();
        file(&log).set_len(SEGMENT_BYTES / 2).unwrap();
        let half = segment * SEGMENT_BYTES + SEGMENT_BYTES / 2;
        let from = log.lsns.iter().position(|lsn| log.end_of(*lsn).0 > half).unwrap();
        log.check(from..last + 1, &format!("segment {segment} cut"));
    }
}

/// What was not durable is not damage, whatever lies there.
#[test]
fn a_torn_tail_is_no_damage() {
    let log = Kept::new();
    for junk in [vec![0x5a; 3000], vec![0; 3000], b"half of a record".repeat(100)] {
        log.write(log.end.0, &junk);
        for reader in log.readers(Lsn(0)) {
            let mut reader = reader.unwrap();
            for no in 0..log.lsns.len() as u64 {
                assert_eq!(number_of(&reader.next().unwrap().unwrap()), no);
            }
            assert!(reader.next().unwrap().is_none());
            assert_eq!(reader.position(), log.end);
        }
        // One that finds the end by itself finds the same.
        let mut reader = scan(Arc::new(log.disk.clone()), FIRST_LSN, 1);
        assert_eq!(read_all(&mut reader).unwrap().len(), log.lsns.len());
        assert_eq!(reader.end(), log.end);
    }
}

/// A reader may be moved to where the log is not durable yet: what comes before is not shown.
#[test]
fn a_reader_moved_behind_what_is_durable_shows_nothing_before() {
    for (record, plus, first) in [(2, 0, 3), (2, -8, 3), (2, 8, 4), (0, 0, 1)] {
        let log = new_log(Arc::new(SimDisk::new()));
        append_one(&log, 0, 100).unwrap();
        log.flush().unwrap();
        let lsns: Vec<Lsn> = (1..6).map(|no| append_one(&log, no, 100).unwrap()).collect();
        let mut reader = LogReader::new(&log, Lsn(lsns[record].0.wrapping_add_signed(plus))).unwrap();
        assert!(reader.next().unwrap().is_none(), "not durable");
        log.flush().unwrap();
        let numbers: Vec<u64> =
            std::iter::from_fn(|| reader.next().unwrap()).map(|record| number_of(&record)).collect();
        assert_eq!(numbers, (first..6).collect::<Vec<_>>());
    }
}

/// The oldest segment goes just before the reader opens it, and so does the next one.
#[test]
fn the_oldest_that_is_kept_is_found_while_the_log_is_given_up() {
    let kept = Kept::new();
    let log = kept.log();
    let (giving_up, calls, is_busy) = (Arc::downgrade(&log), AtomicU32::new(0), AtomicBool::new(false));
    kept.disk.set_hook(Arc::new(move |what| {
        if what == "open"
            && let Some(log) = giving_up.upgrade()
            && !is_busy.swap(true, SeqCst)
        {
            if calls.fetch_add(1, SeqCst) < 2 {
                log.recycle_before(Lsn(log.oldest_lsn().0 / SEGMENT_BYTES * SEGMENT_BYTES + SEGMENT_BYTES)).unwrap();
            }
            is_busy.store(false, SeqCst);
        }
    }));
    let before = log.oldest_lsn();
    let mut reader = LogReader::new(&log, Lsn(0)).unwrap();
    assert!(log.oldest_lsn() > before, "it went away while the reader was made");
    let first = reader.next().unwrap().unwrap().lsn();
    assert!(kept.lsns.contains(&first) && first >= log.oldest_lsn());
    assert!(matches!(LogReader::new(&log, kept.lsns[1]), Err(LogError::Recycled { .. })), "that one is gone");
}
