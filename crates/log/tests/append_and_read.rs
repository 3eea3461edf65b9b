//! What is appended is read back: from the buffer, from the segments, by a scan, after a reopening.
#![cfg(not(loom))]

mod kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Wake, Waker};

use kit::*;
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, FileDisk, Harm, Open, SimDisk};
use ledgerstone_log::{FIRST_LSN, LOG_DIR, Log, LogConfig, LogError, Malformed, RECORD_BYTES_MAX, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_region::{Region, sync};

#[test]
fn records_are_read_back_from_buffer_file_and_scan() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = new_log(Arc::clone(&disk));
    // Many times the buffer, over many segments, of all paddings and some longer than a block.
    let lsns: Vec<Lsn> = (0..400).map(|no| append_one(&log, no, (no as usize * 37) % 900).unwrap()).collect();
    let long = append_one(&log, 400, 7000).unwrap();
    assert_eq!(lsns[0], FIRST_LSN);
    for (no, lsn) in lsns.iter().chain([&long]).enumerate() {
        let record = log.read(*lsn).unwrap();
        assert_eq!((record.lsn(), number_of(&record)), (*lsn, no as u64));
    }
    log.flush().unwrap();
    assert_eq!(log.durable_lsn(), log.tail());
    assert!(log.is_durable(long));
    let mut scan = scan(Arc::clone(&disk), FIRST_LSN, 1);
    let numbers: Vec<u64> = read_all(&mut scan).unwrap().iter().map(number_of).collect();
    assert_eq!(numbers, (0..401).collect::<Vec<_>>());
    assert_eq!((scan.end(), scan.incarnation()), (log.tail(), 1));
    drop(log);

    let (log, records) = reopen(disk, 1).unwrap();
    assert_eq!(records.len(), 401);
    assert_eq!((log.incarnation(), log.incarnation_at(lsns[3]), log.incarnation_at(log.tail())), (2, 1, 2));
    for (no, lsn) in lsns.iter().enumerate() {
        assert_eq!(number_of(&log.read(*lsn).unwrap()), no as u64);
    }
    let lsn = append_one(&log, 500, 10).unwrap();
    assert_eq!(number_of(&log.read(lsn).unwrap()), 500);
    // The record of the incarnation lies between, sealed for the one before.
    assert_eq!(log.read(records[400].end()).unwrap().incarnation(), Some(2));
}

#[test]
fn lsns_without_a_record_are_refused() {
    let log = new_log(Arc::new(SimDisk::new()));
    let lsn = append_one(&log, 0, 100).unwrap();
    for wrong in [Lsn(0), Lsn(8), Lsn(4097), lsn.max(Lsn(4096 + 8)), log.tail(), Lsn(1 << 40)] {
        assert!(matches!(log.read(wrong), Err(LogError::Invalid { .. })), "{wrong:?}");
    }
    let future = log.flush_to(log.tail());
    assert!(matches!(future, Err(LogError::Invalid { why: Malformed::Empty, .. })), "{future:?}");
}

#[test]
fn a_live_log_is_followed_up_to_what_is_durable() {
    let log = new_log(Arc::new(SimDisk::new()));
    let mut scan = log.scan(FIRST_LSN).unwrap();
    let mut seen = 0;
    for no in 0..100 {
        append_one(&log, no, 333).unwrap();
        if no % 7 == 0 {
            log.flush().unwrap();
            append_one(&log, 1000, 5).unwrap();
        }
        scan.set_limit(log.durable_lsn());
        while let Some(record) = scan.next().unwrap() {
            assert!(log.is_durable(record.lsn()));
            number_of(&record);
            seen += 1;
        }
        assert_eq!(scan.end(), log.durable_lsn());
    }
    assert!(seen > 90);
}

#[test]
fn segments_are_used_again_and_stay_few() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let log = new_log(Arc::clone(&disk));
    let mut lsns = Vec::new();
    for no in 0..2000 {
        lsns.push(append_one(&log, no, 200).unwrap());
        if no % 50 == 49 {
            log.flush().unwrap();
            log.recycle_before(lsns[no as usize - 20]).unwrap();
        }
    }
    log.flush().unwrap();
    assert!(log.tail().0 > 25 * SEGMENT_BYTES);
    assert!(disk.list("log").unwrap().len() <= 5, "{:?}", disk.list("log").unwrap());
    assert_eq!(log.stat().segment_count, disk.list("log").unwrap().len() as u64);
    assert!(matches!(log.read(lsns[0]), Err(LogError::Recycled { .. })));
    for no in 1980..2000 {
        assert_eq!(number_of(&log.read(lsns[no as usize]).unwrap()), no);
    }
    let mut scan = scan(Arc::clone(&disk), lsns[1979], 1);
    assert_eq!(
        read_all(&mut scan).unwrap().iter().map(number_of).collect::<Vec<_>>(),
        (1979..2000).collect::<Vec<_>>()
    );
    let missing = ledgerstone_log::LogScan::new(disk, ENVIRONMENT, SEGMENT_BYTES, lsns[0], 1);
    assert!(matches!(missing, Err(LogError::MissingSegment { .. })) || lsns[0] == FIRST_LSN);
}

#[test]
fn claims_larger_than_the_buffer_name_the_limit() {
    let log = new_log(Arc::new(SimDisk::new()));
    match log.claim(BUFFER_BYTES as usize) {
        Err(LogError::ClaimTooLarge { bytes, bytes_max }) => {
            assert_eq!((bytes, bytes_max), (BUFFER_BYTES, BUFFER_BYTES / 2));
            let claim = log.claim(bytes_max as usize).unwrap();
            assert_eq!(claim.left(), bytes_max);
            log.give_back(claim);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(log.stat().claimed_bytes, 0);
}

#[test]
fn the_longest_record_goes_through() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let region = Region::anonymous(64 << 20).unwrap();
    let config = LogConfig { buffer_bytes: 4 << 20, region, ..config(Arc::clone(&disk)) };
    let log = ledgerstone_log::Log::open(config).unwrap();
    let bytes = RECORD_BYTES_MAX - 40 - 16;
    let lsns: Vec<Lsn> = (0..5).map(|no| append_one(&log, no * 4, bytes).unwrap()).collect();
    log.flush().unwrap();
    assert_eq!(number_of(&log.read(lsns[2]).unwrap()), 8);
    let records = read_all(&mut scan(disk, FIRST_LSN, 1)).unwrap();
    assert_eq!(records.iter().map(number_of).collect::<Vec<_>>(), [0, 4, 8, 12, 16]);
    assert_eq!(records[0].bytes().len(), RECORD_BYTES_MAX);
}

#[test]
fn no_space_is_refused_before_anything_is_written_and_passes() {
    let sim = SimDisk::new();
    let log = new_log(Arc::new(sim.clone()));
    // One segment and nothing more.
    sim.no_space_after(SEGMENT_BYTES);
    let undo = 2000;
    log.reserve_undo(undo).unwrap();
    let mut no = 0;
    let refused = loop {
        match append_one(&log, no, 300) {
            Ok(_) => no += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.is_no_space() && !log.is_failed(), "{refused:?}");
    assert!(matches!(log.reserve_undo(8000), Err(LogError::NoSpace { .. })));
    // What was reserved for rollbacks is there, and a checkpoint has its margin besides.
    let mut claim = log.claim_undo(undo as usize).unwrap();
    for _ in 0..5 {
        append(&log, &mut claim, no, 300);
        no += 1;
    }
    log.give_back(claim);
    log.release_undo(undo);
    let claim = log.claim_upkeep(500).unwrap();
    log.give_back(claim);
    log.flush().unwrap();
    assert!(matches!(append_one(&log, no, 3000), Err(LogError::NoSpace { .. })));

    sim.space_for_all();
    append_one(&log, no, 3000).unwrap();
    log.flush().unwrap();
    let records = read_all(&mut scan(Arc::new(sim), FIRST_LSN, 1)).unwrap();
    assert_eq!(records.iter().map(number_of).collect::<Vec<_>>(), (0..=no).collect::<Vec<_>>());
}

#[test]
fn checkpoints_on_a_full_disk_take_nothing_that_is_reserved_for_rollbacks() {
    let sim = SimDisk::new();
    let log = new_log(Arc::new(sim.clone()));
    sim.no_space_after(SEGMENT_BYTES);
    let undo = 4000;
    log.reserve_undo(undo).unwrap();
    let mut no = 0;
    while append_one(&log, no, 300).is_ok() {
        no += 1;
    }
    // Checkpoints that free nothing, until there is no room for them either.
    let mut checkpoint_count = 0;
    let refused = loop {
        match log.claim_upkeep(bytes_for(0, 400) + 56) {
            Ok(mut claim) => {
                append(&log, &mut claim, no, 200);
                log.give_back(claim);
                (no, checkpoint_count) = (no + 1, checkpoint_count + 1);
            }
            Err(error) => break error,
        }
    };
    assert!(refused.is_no_space() && checkpoint_count > 0, "{refused:?} after {checkpoint_count}");
    // Piece by piece, as a rollback does.
    for _ in 0..undo / 400 {
        let mut claim = log.claim_undo(400).unwrap();
        append(&log, &mut claim, no, 300);
        log.give_back(claim);
        no += 1;
    }
    log.release_undo(undo);
    log.flush().unwrap();
}

#[test]
fn a_failed_write_fails_the_log_for_good() {
    let faulty = Arc::new(FaultDisk::new(Arc::new(SimDisk::new())));
    let log = new_log(Arc::clone(&faulty) as Arc<dyn Disk>);
    let first = append_one(&log, 0, 100).unwrap();
    log.flush_to(first).unwrap();
    let lost = append_one(&log, 1, 100).unwrap();
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    log.on_durable(lost, &mut None, &Waker::from(Arc::clone(&counter)));
    assert_eq!(counter.0.load(SeqCst), 0);
    faulty.add(Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::Io(5))).from_then_on());
    let error = log.flush_to(lost).unwrap_err();
    assert!(error.is_failed(), "{error:?}");
    assert!(error.to_string().contains("log/"), "{error}");
    assert_eq!(counter.0.load(SeqCst), 1, "waiters learn of the failure");
    faulty.behave();
    assert!(log.is_failed());
    assert!(log.flush_to(lost).unwrap_err().is_failed());
    assert!(log.claim(8).unwrap_err().is_failed());
    assert!(log.reserve_undo(8).unwrap_err().is_failed());
    assert!(log.recycle_before(lost).unwrap_err().is_failed());
    assert_eq!(log.durable_lsn(), lost, "what was durable before stays so, and no more");
    assert_eq!(number_of(&log.read(first).unwrap()), 0);
}

/// Another part of the environment fails the log while a flush is writing, perhaps because another process has the
/// files now: what that write has made of them nobody knows.
#[test]
fn a_log_that_fails_during_a_write_does_not_acknowledge_it() {
    let sim = SimDisk::new();
    let log = new_log(Arc::new(sim.clone()));
    let first = append_one(&log, 0, 100).unwrap();
    log.flush_to(first).unwrap();
    let lost = append_one(&log, 1, 100).unwrap();
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    log.on_durable(lost, &mut None, &Waker::from(Arc::clone(&counter)));
    let failing = Arc::downgrade(&log);
    sim.set_hook(Arc::new(move |call| {
        if call.contains("write")
            && let Some(log) = failing.upgrade()
        {
            log.fail();
        }
    }));
    let written = sim.counters().mutations;
    assert!(log.flush_to(lost).unwrap_err().is_failed());
    assert!(sim.counters().mutations > written, "the write itself was done");
    assert_eq!((log.durable_lsn(), counter.0.load(SeqCst)), (lost, 1));
}

/// Who asks again and again is woken once, by the waker of the last time; and who does not want to be woken any more
/// leaves nothing behind.
#[test]
fn who_waits_for_an_lsn_has_one_waker_there() {
    let log = new_log(Arc::new(SimDisk::new()));
    let lsn = append_one(&log, 0, 100).unwrap();
    let counters: Vec<_> = (0..3).map(|_| Arc::new(Counter(AtomicU64::new(0)))).collect();
    let mut places = [None, None, None];
    for turn in 0..100 {
        // The second is polled by another task each time.
        log.on_durable(lsn, &mut places[0], &Waker::from(Arc::clone(&counters[0])));
        log.on_durable(lsn, &mut places[1], &Waker::from(Arc::clone(&counters[turn % 2])));
        log.on_durable(lsn, &mut places[2], &Waker::from(Arc::clone(&counters[2])));
    }
    let kept = |counters: &[Arc<Counter>]| counters.iter().map(|c| Arc::strong_count(c) - 1).collect::<Vec<_>>();
    assert_eq!(kept(&counters), [1, 1, 1]);
    log.forget_waker(lsn, &mut places[2]);
    assert_eq!(kept(&counters), [1, 1, 0]);
    log.flush_to(lsn).unwrap();
    let woken: Vec<_> = counters.iter().map(|c| c.0.load(SeqCst)).collect();
    assert_eq!(woken, [1, 1, 0]);
    assert_eq!(kept(&counters), [0, 0, 0]);
    log.forget_waker(lsn, &mut places[0]); // It is gone already.
}

/// Some executors' wakers panic when the executor is gone.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the executor is gone");
    }
}

#[test]
fn a_waker_that_panics_stops_nobody_else() {
    let log = new_log(Arc::new(SimDisk::new()));
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    let both = |lsn| {
        log.on_durable(lsn, &mut None, &Waker::from(Arc::new(Panics)));
        log.on_durable(lsn, &mut None, &Waker::from(Arc::clone(&counter)));
    };
    // By who flushes.
    let lsn = append_one(&log, 0, 50).unwrap();
    both(lsn);
    log.flush_to(lsn).unwrap();
    assert_eq!(counter.0.load(SeqCst), 1);
    // By the flusher, which goes on.
    log.start_flusher().unwrap();
    for no in 1..4 {
        let lsn = append_one(&log, no, 50).unwrap();
        both(lsn);
        log.request_flush(lsn);
        let deadline = sync::now_ns() + 20_000_000_000;
        while counter.0.load(SeqCst) <= no && sync::now_ns() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(counter.0.load(SeqCst), no + 1);
    }
    log.stop_flusher();
    // By claims that need room.
    for no in 4..400 {
        both(append_one(&log, no, 3000).unwrap());
    }
    log.flush().unwrap();
    assert_eq!(counter.0.load(SeqCst), 400);
}

#[test]
fn a_flusher_serves_tickets_and_asynchronous_commits() {
    let log = new_log(Arc::new(SimDisk::new()));
    log.start_flusher().unwrap();
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    for no in 0..200 {
        let lsn = append_one(&log, no, 50).unwrap();
        log.on_durable(lsn, &mut None, &Waker::from(Arc::clone(&counter)));
        if no % 2 == 0 { log.request_flush(lsn) } else { log.request_flush_soon(lsn) }
    }
    let deadline = sync::now_ns() + 20_000_000_000;
    while counter.0.load(SeqCst) < 200 && sync::now_ns() < deadline {
        sync::sleep_ns(1_000_000);
    }
    log.stop_flusher();
    assert_eq!(counter.0.load(SeqCst), 200);
    assert_eq!(log.durable_lsn(), log.tail());
}

#[test]
fn threads_append_and_commit_at_once_on_real_files() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()));
    let log = new_log(Arc::clone(&disk));
    log.start_flusher().unwrap();
    let threads: Vec<_> = (0..6u64)
        .map(|thread| {
            let log = Arc::clone(&log);
            sync::spawn("appender", move || {
                for no in 0..60 {
                    let mut claim = log.claim(3000).unwrap();
                    for part in 0..4 {
                        append(&log, &mut claim, (thread * 1000 + no) * 4 + part, ((no * 13 + part) % 600) as usize);
                    }
                    let lsn = append(&log, &mut claim, 3, 20);
                    log.give_back(claim);
                    match no % 8 {
                        0 => log.flush_to(lsn).unwrap(),
                        1 => log.request_flush(lsn),
                        _ => {}
                    }
                    assert_eq!(number_of(&log.read(lsn).unwrap()), 3);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    log.flush().unwrap();
    log.stop_flusher();
    let stat = log.stat();
    assert_eq!((stat.claimed_bytes, stat.record_count), (0, 6 * 60 * 5));
    let records = read_all(&mut scan(disk, FIRST_LSN, 1)).unwrap();
    assert_eq!(records.len(), 6 * 60 * 5);
    let mut numbers: Vec<u64> = records.iter().map(number_of).filter(|no| *no != 3).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() >= 6 * 60 * 4 - 1);
}

/// F1, F9: no write of a record lacks space later, and what lies behind the records is zeros, not what the buffer held.
#[test]
fn a_segment_has_all_its_space_and_zeros_behind_its_records() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()));
    let segment_bytes = 1 << 20;
    let log = Log::open(LogConfig { segment_bytes, buffer_bytes: 128 << 10, ..config(disk) }).unwrap();
    let first = dir.path().join(LOG_DIR).join(segment_name(0));
    let has_space = |bytes: u64| assert!(bytes >= segment_bytes, "{bytes} bytes of space");
    has_space(first.metadata().unwrap().blocks() * 512);
    for no in 0..60 {
        append_one(&log, no, if no % 10 == 0 { 9_000 } else { 3_000 }).unwrap();
        log.flush().unwrap();
        let behind = &std::fs::read(&first).unwrap()[log.durable_lsn().0 as usize..];
        assert_eq!(behind.iter().position(|&byte| byte != 0), None, "behind record {no}");
    }
    has_space(first.metadata().unwrap().blocks() * 512);
}

struct Counter(AtomicU64);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A flush that has ended says nothing of the record behind it, wherever a caller would like to give up the log.
#[test]
fn what_is_not_durable_is_neither_said_to_be_nor_given_up() {
    let log = new_log(Arc::new(SimDisk::new()));
    let first = append_one(&log, 0, 100).unwrap();
    assert!(!log.is_durable(first), "nothing is durable");
    while log.tail().0 < SEGMENT_BYTES * 2 - 4000 {
        append_one(&log, 1, 1000).unwrap();
    }
    log.flush().unwrap();
    let durable = log.durable_lsn();
    let next = append_one(&log, 2, 1000).unwrap();
    assert_eq!(next, durable);
    assert!(log.is_durable(first) && !log.is_durable(next));
    // Two segments lie behind the tail then, and one of them is not durable to its end.
    while log.tail().0 < SEGMENT_BYTES * 2 + 500 {
        append_one(&log, 3, 1000).unwrap();
    }
    assert_eq!(log.durable_lsn(), durable, "there was room in the buffer for all of it");
    assert_eq!(log.recycle_before(log.tail()).unwrap(), 1);
    assert_eq!(log.to_give_up(log.tail()), (Lsn(SEGMENT_BYTES), Lsn(SEGMENT_BYTES)));
    assert_eq!(log.oldest_lsn(), Lsn(SEGMENT_BYTES));
    log.flush().unwrap();
    assert_eq!(number_of(&log.read(next).unwrap()), 2);
}

/// What an earlier and longer write has left in the buffer is not written behind the end (W2).
#[test]
fn the_last_block_that_is_written_has_zeros_behind_the_end() {
    let disk = SimDisk::new();
    let log = new_log(Arc::new(disk.clone()));
    for (no, bytes) in [(0, 3000), (1, 7000), (2, 50), (3, 6000), (4, 20), (5, 20)] {
        append_one(&log, no, bytes).unwrap();
        log.flush().unwrap();
        let end = log.durable_lsn().0;
        let file = disk.open(&format!("{LOG_DIR}/{}", segment_name(end / SEGMENT_BYTES * SEGMENT_BYTES)), Open::READ);
        let mut behind = vec![1; (end.next_multiple_of(4096) - end) as usize];
        file.unwrap().read_at(end % SEGMENT_BYTES, &mut behind).unwrap();
        assert!(behind.iter().all(|&byte| byte == 0), "behind record {no}, which ends at {end}");
    }
}

/// The first flush writes the block of the log's end once more. A bit of it that was read wrong, once, must not be
/// written, for the records in it are needed still.
#[test]
fn what_was_read_wrong_once_at_the_end_is_not_written() {
    let sim = SimDisk::new();
    let log = new_log(Arc::new(sim.clone()));
    (0..6).for_each(|no| {
        append_one(&log, no, 100).unwrap();
    });
    log.flush().unwrap();
    let used = log.tail().0 - FIRST_LSN.0;
    drop(log);
    for (nth, bit) in [1, 2].into_iter().flat_map(|nth| (0..used * 8).step_by(97).map(move |bit| (nth, bit))) {
        let disk: Arc<dyn Disk> = Arc::new(sim.snapshot());
        let mut left = scan(Arc::clone(&disk), FIRST_LSN, 1);
        assert_eq!(read_all(&mut left).unwrap().len(), 6);
        let faulty = FaultDisk::new(Arc::clone(&disk));
        faulty.add(Fault::at(Call::Read, nth, Harm::FlipBit(bit)));
        let at_end = LogConfig { end: left.end(), next_incarnation: Some(2), ..config(Arc::new(faulty.clone())) };
        let log = Log::open(at_end).unwrap();
        assert_eq!(faulty.hits(), 1, "read {nth}");
        append_one(&log, 6, 100).unwrap();
        log.flush().unwrap();
        let found = read_all(&mut scan(disk, FIRST_LSN, 1)).unwrap();
        assert_eq!(found.len(), 8, "bit {bit} of read {nth}");
    }
}

/// A scan that has a thread read ahead reads what one without it does. That is so for a long log with records of all
/// lengths, and whatever a read of the thread's does.
#[test]
fn a_scan_with_a_reader_reads_the_same() {
    let disk = SimDisk::new();
    let region = Region::anonymous(64 << 20).unwrap();
    let shared = || Arc::new(disk.clone()) as Arc<dyn Disk>;
    let log = Log::open(LogConfig { buffer_bytes: 4 << 20, region, ..config(shared()) }).unwrap();
    let mut no = 0;
    while log.tail().0 < 6 << 20 {
        let bytes = if no % 97 == 5 { 40_000 * (no as usize % 23) } else { no as usize * 37 % 900 };
        append_one(&log, no, bytes).unwrap();
        no += 1;
    }
    log.flush().unwrap();
    let read = |disk: Arc<dyn Disk>| {
        let mut scan = scan(disk, FIRST_LSN, 1).with_reader();
        let numbers = read_all(&mut scan).map(|all| all.iter().map(number_of).collect::<Vec<_>>());
        numbers.map(|numbers| (numbers, scan.end()))
    };
    let expected = ((0..no).collect::<Vec<_>>(), log.tail());
    assert_eq!(read(shared()).unwrap(), expected);
    // What goes wrong once is read again, by the scan itself if it was the thread's.
    for nth in (1..400).step_by(7) {
        for harm in [Harm::FlipBit(nth * 4099), Harm::Short] {
            let faulty = FaultDisk::new(shared());
            faulty.add(Fault::at(Call::Read, nth, harm).on("log/"));
            match read(Arc::new(faulty.clone())) {
                Ok(found) => assert_eq!(found, expected, "{harm:?} of read {nth}"),
                Err(error) => assert!(matches!(harm, Harm::Short), "{harm:?} of read {nth}: {error}"),
            }
        }
    }
    // A thread that dies leaves the rest to the scan. Some of these reads are the scan's own.
    let mut died_count = 0;
    for nth in (100..380).step_by(31) {
        let faulty = FaultDisk::new(shared());
        faulty.add(Fault::at(Call::Read, nth, Harm::Panic).on("log/"));
        if let Ok(found) = catch_unwind(AssertUnwindSafe(|| read(Arc::new(faulty.clone())))) {
            assert_eq!(found.unwrap(), expected, "panic of read {nth}");
            died_count += faulty.hits();
        }
    }
    assert!(died_count > 0, "no thread has died");
    // It ends with a scan that nobody reads to its end.
    let mut scan = scan(shared(), FIRST_LSN, 1).with_reader();
    (0..no / 2).for_each(|_| assert!(scan.next().unwrap().is_some()));
}

/// The same for a log of many lives, which begin where threads read ahead, and wherever that log is damaged.
#[test]
fn a_scan_with_a_reader_meets_the_same_incarnations_and_damage() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut log = new_log(Arc::clone(&disk));
    let mut no = 0;
    for life in 1..12 {
        while log.tail().0 < life * (300 << 10) {
            append_one(&log, no, no as usize * 37 % 5000).unwrap();
            no += 1;
        }
        log.flush().unwrap();
        drop(log);
        log = reopen(Arc::clone(&disk), life).unwrap().0;
    }
    append_one(&log, no, 100).unwrap();
    log.flush().unwrap();
    let read = |has_reader: bool| {
        let mut scan = scan(Arc::clone(&disk), FIRST_LSN, 1).with_incarnation_max(12);
        if has_reader {
            scan = scan.with_reader();
        }
        let all = read_all(&mut scan).map(|all| all.iter().map(|record| record.bytes().to_vec()).collect::<Vec<_>>());
        (all.map_err(|error| error.to_string()), scan.end(), scan.incarnations().to_vec())
    };
    let (records, end, incarnations) = read(false);
    assert_eq!((end, incarnations.len()), (log.tail(), 12));
    assert!(records.as_ref().is_ok_and(|records| records.len() as u64 > no));
    assert!(read(true) == (records, end, incarnations.clone()));
    // Within records anywhere, and in the records that begin a life.
    let begins = incarnations.iter().skip(1).flat_map(|(at, _)| [at.0 - 32, at.0 - 25, at.0 - 8]);
    for at in begins.chain((8_000..end.0).step_by(171_000)) {
        let start = at / SEGMENT_BYTES * SEGMENT_BYTES;
        let file = disk.open(&format!("{LOG_DIR}/{}", segment_name(start)), Open::EXISTING).unwrap();
        let mut byte = [0];
        file.read_at(at - start, &mut byte).unwrap();
        file.write_at(at - start, &[byte[0] ^ 4]).unwrap();
        let expected = read(false);
        assert!(expected.1.0 <= at, "damage at {at} is not met");
        assert!(read(true) == expected, "damage at {at}");
        file.write_at(at - start, &byte).unwrap();
    }
}
