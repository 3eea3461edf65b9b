//! The two states of trouble: `ReadOnly` when space was refused before anything was written, `Failed` when a write or a
//! sync was lost; and logs that only a newer program understands.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::*;
use ledgerstone::{
    BackupOptions, Durability, Environment, Error, GoingSegment, LogKeeper, Lsn, TransactionOptions, Xid,
};
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_log::{ControlFile, Log, LogConfig, LogScan, NewRecord, RecordKind};
use ledgerstone_page::{OpId, PageId};
use ledgerstone_region::Region;
use ledgerstone_region::sync::{self, Scheduler};

const EIO: DiskErrorKind = DiskErrorKind::Io(5);

/// Runs `step` until it is refused for want of space; returns how often it was not.
fn until_refused(what: &str, mut step: impl FnMut(u64) -> Result<(), Error>) -> u64 {
    for n in 0..100_000 {
        match step(n) {
            Ok(()) => {}
            Err(Error::ReadOnly { why, .. }) => {
                assert!(why.contains("space"), "{what}: {why}");
                return n;
            }
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
    panic!("{what}: there was always space")
}

/// Fills the disk in one way, and looks at everything that must still work then.
fn fill(what: &str, keys: u64, value_bytes: usize, room: u64) {
    let disk = SimDisk::new();
    let env = tiny().lock_count_max(1 << 16).open_on(Arc::new(disk.clone())).unwrap();
    let told = script(&env);
    env.checkpoint().unwrap();
    env.reclaim().unwrap();
    // Open before, with something to undo.
    let early = env.begin().unwrap();
    (0..10).for_each(|n| early.bytes("u").unwrap().put(&key(n), b"early").unwrap());
    disk.no_space_after(disk.used_bytes() + room);
    let put = |txn: &ledgerstone::Transaction, n: u64| {
        txn.bytes("t")?.put(&key(1_000_000 + n * 7919 % keys), &large(n as u8, value_bytes))
    };

    // One transaction that fills it: refused, and it can be rolled back although there is no space.
    let txn = env.begin().unwrap();
    let count = until_refused(what, |n| put(&txn, n));
    assert!(!env.is_failed(), "{what}");
    assert!(txn.bytes("t").unwrap().get(b"last").unwrap().is_some(), "{what}: reads go on");
    txn.abort().unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"last")).unwrap(), Some(b"2".to_vec()), "{what}");

    // Many that fill it: each is whole or not there.
    env.checkpoint().unwrap();
    let mut after = told.last().clone();
    let (mut refused, mut committed) = (0, 0);
    for n in 0..4 * count.min(1000) + 50 {
        let txn = env.begin().unwrap();
        let done = put(&txn, n).and_then(|()| put(&txn, n + 1)).and_then(|()| txn.commit().map(|_| ()));
        match done {
            Ok(()) => {
                committed += 1;
                for n in [n, n + 1] {
                    let records = after.get_mut("t").unwrap();
                    records.insert(key(1_000_000 + n * 7919 % keys), large(n as u8, value_bytes));
                }
            }
            Err(Error::ReadOnly { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error:?}"),
        }
        if refused > 20 {
            break;
        }
    }
    early.abort().unwrap();
    assert!(read(&env).unwrap() == after, "{what}: after {committed} commits and {refused} refusals");
    assert_sound(&env, what);

    // A crash, and the next start of the machine finds the disk still full.
    let full = disk.after_crash(17);
    full.no_space_after(full.used_bytes());
    let again = open(&full).unwrap_or_else(|error| panic!("{what}: open on a full disk: {error}"));
    assert!(read(&again).unwrap() == after, "{what}: reopened on a full disk");
    full.space_for_all();
    again.transact(|txn| (0..50).try_for_each(|n| put(txn, n))).unwrap();
    assert_sound(&again, what);
}

#[test]
fn no_space_for_log_segments() {
    // The same keys over and over: only the log grows.
    fill("log", 20, 200, 300_000);
}

#[test]
fn no_space_for_data() {
    // Large values need pages more than log... and both, in the end.
    fill("data", 100_000, 3_000, 900_000);
    fill("blobs", 100_000, 30_000, 900_000);
}

#[test]
fn writes_go_on_when_there_is_space_again() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    disk.no_space_after(disk.used_bytes() + 100_000);
    let txn = env.begin().unwrap();
    let put = |n: u64| txn.bytes("t")?.put(&key(5000 + n), &large(n as u8, 400));
    let count = until_refused("one transaction", put);
    disk.space_for_all();
    // The very transaction that was refused goes on, its own work intact.
    (count..count + 200).for_each(|n| put(n).unwrap());
    txn.commit().unwrap();
    let mut after = told.last().clone();
    (0..count + 200).for_each(|n| {
        after.get_mut("t").unwrap().insert(key(5000 + n), large(n as u8, 400));
    });
    assert!(read(&env).unwrap() == after);
    let env = open(&disk.after_crash(4)).unwrap();
    assert!(read(&env).unwrap() == after);
    assert_sound(&env, "after");
}

#[test]
fn checkpoints_that_free_nothing_leave_a_rollback_its_room() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    env.checkpoint().unwrap();
    disk.no_space_after(disk.used_bytes());
    // It holds the log, so that no checkpoint gives any of it up.
    let txn = env.begin().unwrap();
    until_refused("one transaction", |n| txn.bytes("t")?.put(&key(5000 + n), &large(n as u8, 400)));
    let refused = (0..10_000).find_map(|_| env.checkpoint().err());
    assert!(matches!(refused, Some(Error::ReadOnly { .. })), "{refused:?}");
    txn.abort().unwrap();
    assert!(read(&env).unwrap() == *told.last());
    assert_sound(&env, "afterwards");
}

#[test]
fn a_log_that_has_filled_the_disk_is_given_up_when_it_refuses() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    env.checkpoint().unwrap();
    disk.no_space_after(disk.used_bytes() + (300 << 10));
    let put = |n: u64| env.transact(|txn| txn.bytes("t")?.put(b"k", &[n as u8; 500]));
    // Nobody takes a checkpoint, and the log is far from the length at which the housekeeper would.
    until_refused("the log", put);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = put(1) {
        assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
        assert!(std::time::Instant::now() < deadline, "still refused: {error}");
        std::thread::yield_now();
    }
}

/// Who keeps the log, and does something meanwhile.
type Holder = (&'static str, fn(&Environment, &AtomicBool, &mut dyn FnMut()));

/// A keeper that needs nothing, and yet lets nothing go while the program says so.
struct Holding(Arc<AtomicBool>);

impl LogKeeper for Holding {
    fn name(&self) -> String {
        "holding".into()
    }

    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        Ok(None)
    }

    fn log_goes(&self, _: &[GoingSegment]) -> Result<(), Error> {
        if self.0.load(Relaxed) { Err(Error::user("not yet")) } else { Ok(()) }
    }
}

const HOLDERS: [Holder; 5] = [
    ("a transaction", |env, _, meanwhile| {
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(b"held", b"1").unwrap();
        meanwhile();
        txn.abort().unwrap();
    }),
    ("a prepared transaction", |env, _, meanwhile| {
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(b"held", b"1").unwrap();
        let prepared = txn.prepare(b"global").unwrap();
        meanwhile();
        prepared.abort().unwrap();
    }),
    ("a feed", |env, _, meanwhile| {
        drop(env.named_changes("far behind").unwrap());
        meanwhile();
        env.forget_changes("far behind").unwrap();
    }),
    ("a backup", |env, _, meanwhile| {
        let mut meanwhile = Some(meanwhile);
        let progress = &mut |_| {
            meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
            ControlFlow::Continue(())
        };
        env.backup_to(&mut Vec::new(), BackupOptions::default(), progress).unwrap();
    }),
    ("a keeper that is told", |_, is_held, meanwhile| {
        is_held.store(true, Relaxed);
        meanwhile();
        is_held.store(false, Relaxed);
    }),
];

/// However long somebody has kept the log on a full disk: when it is given up, writes go on soon. In virtual time.
#[test]
fn a_full_disk_takes_writes_again_as_soon_as_nobody_keeps_the_log() {
    const SECOND_NS: u64 = 1_000_000_000;
    for (who, hold) in HOLDERS {
        let simulated = Scheduler::run(7, || {
            let (disk, is_held) = (SimDisk::new(), Arc::new(AtomicBool::new(false)));
            let holding = Arc::clone(&is_held);
            let options = tiny().log_keeper(move |_| Ok(Arc::new(Holding(Arc::clone(&holding)))));
            let env = options.open_on(Arc::new(disk.clone())).unwrap();
            env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
            env.checkpoint().unwrap();
            let put = |n: u64| env.transact(|txn| txn.bytes("t")?.put(b"k", &[n as u8; 500]));
            hold(&env, &is_held, &mut || {
                disk.no_space_after(disk.used_bytes() + (300 << 10));
                until_refused(who, put);
                let before = env.stat().unwrap().checkpoint_count;
                for _ in 0..300 {
                    sync::sleep_ns(SECOND_NS);
                    assert!(put(1).is_err(), "{who} does not keep the log");
                }
                // Each takes some of the room that is left for rollbacks.
                let in_vain = env.stat().unwrap().checkpoint_count - before;
                assert!(in_vain < 12, "{who}: {in_vain} checkpoints in vain");
            });
            let ended_ns = sync::now_ns();
            // Some segments.
            for n in 0..300 {
                while let Err(error) = put(n) {
                    assert!(matches!(error, Error::ReadOnly { .. }), "{who}: {error:?}");
                    let waited_ns = sync::now_ns() - ended_ns;
                    assert!(waited_ns < 5 * SECOND_NS, "{who} has ended {waited_ns} ns ago, write {n}: {error}");
                    sync::sleep_ns(SECOND_NS / 10);
                }
            }
            env.close().unwrap();
        });
        simulated.unwrap_or_else(|stuck| panic!("{who}: {stuck}"));
    }
}

#[test]
fn no_space_to_create_an_environment() {
    for room in [0, 10_000, 70_000, 100_000, 500_000, 1_200_000, 1_500_000] {
        let disk = SimDisk::new();
        disk.no_space_after(room);
        match open(&disk) {
            Ok(env) => env.close().unwrap(),
            Err(error) => assert!(matches!(error, Error::ReadOnly { .. }), "{room}: {error:?}"),
        }
        disk.space_for_all();
        let env = open(&disk).unwrap_or_else(|error| panic!("{room}: {error}"));
        env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    }
}

#[test]
fn no_space_where_a_page_has_its_place_fails_the_environment() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    let told = script(&env);
    faulty.add(Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::NoSpace)).on("data").from_then_on());
    // A file system that refuses bytes which it had promised: it is not known what is there.
    let failed = env.checkpoint();
    assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
    assert_failed(&env);
    drop(env);
    told.assert_kept(&read(&open(&disk).unwrap()).unwrap(), true, "reopened");
}

/// Every call says so.
fn assert_failed(env: &Environment) {
    let is_failed = |error: Error| matches!(error, Error::Failed { .. });
    assert!(env.is_failed());
    assert!(is_failed(env.begin().unwrap_err()));
    assert!(is_failed(env.transact(|txn| txn.bytes("t").map(|_| ())).unwrap_err()));
    assert!(is_failed(env.checkpoint().unwrap_err()));
    assert!(is_failed(env.reclaim().unwrap_err()));
    assert!(is_failed(env.verify().unwrap_err()));
}

#[test]
fn a_failed_log_fails_every_later_call() {
    for call in [Call::Write, Call::Sync] {
        let disk = SimDisk::new();
        let faulty = FaultDisk::new(Arc::new(disk.clone()));
        let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
        let mut told = script(&env);
        let running = env.begin().unwrap();
        let table = running.bytes("t").unwrap();
        table.put(b"running", b"1").unwrap();
        let also = env.begin().unwrap();
        also.bytes("u").unwrap().put(b"also", b"1").unwrap();
        faulty.add(Fault::at(call, 1, Harm::Fail(EIO)).on("log/"));
        let failed = env.transact(|txn| txn.bytes("t")?.put(b"unsure", b"1"));
        assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
        let mut after = told.last().clone();
        after.get_mut("t").unwrap().insert(b"unsure".to_vec(), b"1".to_vec());
        told.states.push(after);
        told.last_is_unsure = true;

        assert_failed(&env);
        assert!(matches!(table.put(b"running", b"2"), Err(Error::Failed { .. })));
        assert!(matches!(running.commit(), Err(Error::Failed { .. })));
        assert!(matches!(also.abort(), Err(Error::Failed { .. })));
        drop(table);
        drop(env);
        for disk in [disk.snapshot(), disk.after_crash(8)] {
            let env = open(&disk).unwrap();
            told.assert_kept(&read(&env).unwrap(), true, "reopened");
            assert_sound(&env, "reopened");
        }
    }
}

#[test]
fn who_waits_for_a_lock_learns_of_the_failure() {
    let faulty = FaultDisk::new(Arc::new(SimDisk::new()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"a", b"1")).unwrap();
    let holder = env.begin().unwrap();
    holder.bytes("t").unwrap().put(b"a", b"2").unwrap();
    let waits = Arc::new(AtomicBool::new(false));
    let waiter = std::thread::spawn({
        let (env, waits) = (env.clone(), Arc::clone(&waits));
        move || {
            let options = TransactionOptions { lock_timeout: Some(Duration::from_secs(120)), ..Default::default() };
            let txn = env.begin_with(options).unwrap();
            let table = txn.bytes("t").unwrap();
            waits.store(true, SeqCst);
            let began = Instant::now();
            (table.get(b"a"), began.elapsed())
        }
    });
    while !waits.load(SeqCst) {
        std::thread::yield_now();
    }
    faulty.add(Fault::at(Call::Sync, 1, Harm::Fail(EIO)).on("log/"));
    assert!(env.transact(|txn| txn.bytes("t")?.put(b"b", b"1")).is_err());
    let (refused, waited) = within(60, "the waiter", move || waiter.join().unwrap());
    assert!(matches!(refused, Err(Error::Failed { .. })), "{refused:?}");
    assert!(waited < Duration::from_secs(20), "{waited:?}");
}

#[test]
fn threads_keep_what_was_acknowledged_when_the_log_fails() {
    for nth in [1, 2, 5, 17] {
        for call in [Call::Sync, Call::Write] {
            let disk = SimDisk::new();
            let faulty = FaultDisk::new(Arc::new(disk.clone()));
            let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
            env.transact(|txn| {
                let table = txn.bytes_or_create("t")?;
                (0..5).try_for_each(|n| table.put(&key(n), &0u64.to_le_bytes()))
            })
            .unwrap();
            faulty.add(Fault::at(call, nth, Harm::Fail(EIO)).on("log/"));
            let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..4).map(|_| AtomicU64::new(0)).collect());
            let threads: Vec<_> = (0..4u64)
                .map(|no| {
                    let (env, acknowledged) = (env.clone(), Arc::clone(&acknowledged));
                    std::thread::spawn(move || {
                        let add =
                            |old: &[u8]| Some((u64::from_le_bytes(old.try_into().unwrap()) + 1).to_le_bytes().to_vec());
                        for _ in 0..10_000 {
                            let done = env.transact(|txn| {
                                let table = txn.bytes("t")?;
                                table.modify(&key(no), add)?;
                                table.modify(&key(4), add)
                            });
                            match done {
                                Ok(_) => acknowledged[no as usize].fetch_add(1, SeqCst),
                                Err(Error::Failed { .. }) => return,
                                Err(error) => panic!("{error:?}"),
                            };
                        }
                        panic!("the log never failed");
                    })
                })
                .collect();
            within(60, "threads", move || threads.into_iter().for_each(|thread| thread.join().unwrap()));
            drop(env);
            for disk in [disk.snapshot(), disk.after_crash(nth)] {
                let env = open(&disk).unwrap();
                let state = read(&env).unwrap();
                let value = |n| u64::from_le_bytes(state["t"][&key(n)].clone().try_into().unwrap());
                for (no, told) in acknowledged.iter().enumerate() {
                    let (found, told) = (value(no as u64), told.load(SeqCst));
                    assert!(found == told || found == told + 1, "{call:?} {nth}: thread {no}: {found}, told {told}");
                }
                assert_eq!((0..4).map(value).sum::<u64>(), value(4), "{call:?} {nth}");
            }
        }
    }
}

/// Appends records by hand to the log of a closed environment.
fn append(disk: &SimDisk, records: &[NewRecord<'_>]) -> Lsn {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let state = ControlFile::open(&*disk).unwrap().state();
    let mut scan =
        LogScan::new(Arc::clone(&disk), state.environment, state.segment_bytes, state.scan_lsn, state.scan_incarnation)
            .unwrap();
    while scan.next().unwrap().is_some() {}
    let log = Log::open(LogConfig {
        segment_bytes: state.segment_bytes,
        buffer_bytes: 128 << 10,
        end: scan.end(),
        incarnation: scan.incarnation(),
        incarnations: scan.incarnations().to_vec(),
        ..LogConfig::new(Arc::clone(&disk), Region::anonymous(16 << 20).unwrap(), state.environment)
    })
    .unwrap();
    let mut first = None;
    for record in records {
        let mut claim = log.claim(record.len_bytes()).unwrap();
        let lsn = log.append(&mut claim, record);
        log.give_back(claim);
        log.flush_to(lsn).unwrap();
        first.get_or_insert(lsn);
    }
    first.unwrap()
}

fn record<'a>(kind: RecordKind, op: OpId, page: Option<(PageId, Lsn)>, body: &'a [&'a [u8]]) -> NewRecord<'a> {
    NewRecord { kind, xid: Xid(9999), prev_lsn: Lsn(0), op, flags: 0, page, body }
}

#[test]
fn unknown_operations_in_the_log_are_named() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    env.close().unwrap();
    let args: [&[u8]; 1] = [b"arguments of an extension"];
    let mut parts = Vec::new();
    ledgerstone_log::group_body(&mut parts, [(PageId(5), OpId(2345), Lsn(0), &b"x"[..])]);
    let parts: [&[u8]; 1] = [&parts];
    let place = Some((PageId(5), Lsn(0)));
    for record in [
        record(RecordKind::Update, OpId(2345), place, &args),
        record(RecordKind::Compensation, OpId(2345), place, &[&[0; 8], b"x"]),
        record(RecordKind::Group, OpId(0), None, &parts),
    ] {
        let extended = disk.snapshot();
        let lsn = append(&extended, &[record]);
        for _ in 0..2 {
            let refused = open(&extended);
            let Err(Error::UnknownOperation { what }) = refused else { panic!("{refused:?}") };
            assert!(what.contains("2345") && what.contains(&lsn.to_string()), "{what}");
        }
        // Nothing was done to the pages: without the record, all is as it was.
        let segment = format!("log/{}", ledgerstone_log::segment_name(lsn.0 & !0xffff));
        overwrite(&extended, &segment, lsn.0 & 0xffff, &[0; 64]);
        told.assert_kept(&read(&open(&extended).unwrap()).unwrap(), true, "without the extension");
    }
}

/// Records with a good checksum and senseless contents: bytes from a program gone wrong.
#[test]
fn senseless_records_are_refused() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    script(&env);
    env.close().unwrap();
    let mut tried = 0;
    for op in 1..80u16 {
        for (page, body) in [(2u64, &b""[..]), (3, &[0xff; 40]), (1, &[0; 12]), (0, &[1; 3]), (9000, &[0x7f; 200])] {
            let bodies: [&[u8]; 1] = [body];
            let mut parts = Vec::new();
            ledgerstone_log::group_body(&mut parts, [(PageId(page), OpId(op), Lsn(0), body)]);
            let parts: [&[u8]; 1] = [&parts];
            for record in [
                record(RecordKind::Update, OpId(op), Some((PageId(page), Lsn(0))), &bodies),
                record(RecordKind::Group, OpId(0), None, &parts),
            ] {
                let damaged = disk.snapshot();
                append(&damaged, &[record]);
                let what = format!("op {op} on page {page}, {} bytes", body.len());
                let name = what.clone();
                within(60, &name, move || match open(&damaged) {
                    Ok(env) => {
                        let _ = read(&env);
                        let _ = env.verify();
                    }
                    Err(error) => assert!(!matches!(error, Error::Panicked(_) | Error::Disk(_)), "{what}: {error:?}"),
                });
                tried += 1;
            }
        }
    }
    assert!(tried > 500);
}

#[test]
fn a_volatile_commit_is_lost_with_all_that_follow_or_kept() {
    for seed in 0..10 {
        let disk = SimDisk::new();
        let env = open(&disk).unwrap();
        let mut told = Told::default();
        let mut state = State::new();
        for n in 0..30u64 {
            let durability = if n == 11 { Durability::Sync } else { Durability::Volatile };
            let options = TransactionOptions { durability: Some(durability), ..Default::default() };
            env.transact_with(options, |txn| txn.bytes_or_create("t")?.put(&key(n), b"v")).unwrap();
            state.entry("t".into()).or_default().insert(key(n), b"v".to_vec());
            told.states.push(state.clone());
            if durability == Durability::Sync {
                told.durable = told.states.len() - 1;
            }
        }
        let env = open(&disk.after_crash(seed)).unwrap();
        told.assert_kept(&read(&env).unwrap(), false, "volatile");
    }
}

/// Address space that is mapped in pieces too large for any other test of this file, in bytes.
fn mapped_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let sizes = maps.lines().filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
    });
    sizes.filter(|&bytes| bytes > 1 << 30).sum()
}

#[test]
fn an_open_that_fails_gives_its_memory_back() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    script(&env);
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(b"by a loser", b"1").unwrap();
    env.transact(|txn| txn.bytes("u")?.put(b"k", b"v")).unwrap();
    let crashed = disk.after_crash(1);
    drop(txn);
    let fails = |disk: &SimDisk, fault: Fault| {
        let faulty = FaultDisk::new(Arc::new(disk.clone()));
        faulty.add(fault.on("data").from_then_on());
        let opened = tiny().cache_bytes(1 << 31).open_on(Arc::new(faulty));
        let fails = opened.is_err();
        drop(opened);
        assert_eq!(mapped_bytes(), 0, "address space is kept by openings that failed");
        fails
    };
    let failed_count = (1..).take_while(|&n| fails(&crashed, Fault::at(Call::Read, n, Harm::Fail(EIO)))).count();
    assert!(failed_count > 5, "there are only {failed_count} reads");
    let new = SimDisk::new();
    assert!((0..5).all(|_| fails(&new, Fault::at(Call::Write, 1, Harm::Fail(EIO)))));
}

#[test]
fn a_large_table_is_freed_within_a_little_log() {
    let disk = SimDisk::new();
    let env = tiny().cache_bytes(4 << 20).checkpoint_log_bytes(128 << 10).open_on(Arc::new(disk.clone())).unwrap();
    let records = (0..40_000_u64).map(|n| (key(n), vec![n as u8; 700]));
    env.transact(|txn| txn.bytes_or_create("large")?.load_sorted(records.clone()).map(drop)).unwrap();
    env.checkpoint().unwrap();
    // Nobody frees it but we.
    let snapshot = env.snapshot().unwrap();
    env.transact(|txn| txn.drop_table("large")).unwrap();
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    let (pages, tail) = (env.stat().unwrap().allocated_page_count, env.stat().unwrap().log_tail_lsn);
    assert!(pages > 6000, "{pages} pages");
    disk.no_space_after(disk.used_bytes() + (384 << 10));
    drop(snapshot);
    within(60, "freeing", {
        let env = env.clone();
        move || {
            while env.stat().unwrap().allocated_page_count > 50 {
                env.reclaim().unwrap();
            }
        }
    });
    let log_bytes = env.stat().unwrap().log_tail_lsn - tail;
    assert!(log_bytes > 768 << 10, "{log_bytes} bytes of log: there was room for half of that");
    disk.space_for_all();
    common::assert_sound(&env, "freed");
}

/// A disk without space, and a transaction that waits for its decision.
fn full_with_one_in_doubt() -> (SimDisk, Environment) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let txn = env.begin().unwrap();
    (0..200).for_each(|n| txn.bytes("t").unwrap().put(&key(n), &[1; 100]).unwrap());
    drop(txn.prepare(b"doubt").unwrap());
    disk.no_space_after(disk.used_bytes());
    until_refused("fill", |n| env.transact(|txn| txn.bytes("t")?.put(&key(1000 + n % 50), &n.to_be_bytes())));
    (disk, env)
}

/// The room for its rollback was reserved before it was prepared, and is there after any number of restarts.
#[test]
fn a_full_disk_opens_with_a_transaction_in_doubt() {
    for checkpoint_count in [0, 1, 20, 400] {
        let (disk, env) = full_with_one_in_doubt();
        for _ in 0..checkpoint_count {
            let _ = env.checkpoint();
        }
        disk.crash_now();
        drop(env);
        let mut disk = disk.after_crash(3);
        for restart in 0..5 {
            disk.no_space_after(disk.used_bytes());
            let env = open(&disk).unwrap_or_else(|e| panic!("{checkpoint_count} checkpoints, restart {restart}: {e}"));
            assert_eq!(env.in_doubt().len(), 1);
            if restart == 4 {
                env.abort_in_doubt(b"doubt").unwrap();
                assert_eq!(env.transact(|txn| txn.bytes("t")?.get(&key(5))).unwrap(), None);
            }
            disk.crash_now();
            drop(env);
            disk = disk.after_crash(restart);
        }
    }
}

/// The commit of what was prepared needs nothing that could be refused: not before a restart, and not after one.
#[test]
fn a_full_disk_commits_a_transaction_in_doubt() {
    for restarts in [false, true] {
        let (mut disk, mut env) = full_with_one_in_doubt();
        until_refused("checkpoints", |_| env.checkpoint().map(drop));
        until_refused("fill", |n| env.transact(|txn| txn.bytes("t")?.put(&key(1000 + n % 50), b"")));
        if restarts {
            disk.crash_now();
            drop(env);
            disk = disk.after_crash(3);
            disk.no_space_after(disk.used_bytes());
            env = open(&disk).unwrap();
        }
        env.commit_in_doubt(b"doubt").unwrap_or_else(|e| panic!("restarted: {restarts}: {e}"));
        assert_eq!(env.transact(|txn| txn.bytes("t")?.get(&key(5))).unwrap(), Some(vec![1; 100]));
        disk.space_for_all();
        assert_sound(&env, "committed");
    }
}

/// Restarts of a full disk add nothing to its log: what is left there is the room of rollbacks.
#[test]
fn restarts_of_a_full_disk_leave_the_room_of_a_rollback() {
    let (disk, env) = full_with_one_in_doubt();
    until_refused("checkpoints", |_| env.checkpoint().map(drop));
    disk.crash_now();
    drop(env);
    let mut disk = disk.after_crash(3);
    let mut tails = Vec::new();
    for restart in 0..300 {
        disk.no_space_after(disk.used_bytes());
        let env = open(&disk).unwrap_or_else(|e| panic!("restart {restart}: {e}"));
        assert_eq!(env.in_doubt().len(), 1);
        let refused = env.transact(|txn| txn.bytes("t")?.put(b"more", b"more"));
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "restart {restart}: {refused:?}");
        tails.push(env.stat().unwrap().log_tail_lsn);
        env.sync().unwrap();
        let _ = env.reclaim();
        // Killed, without power, or closed as well as it goes.
        match restart % 3 {
            0 => drop(env),
            1 => {
                disk.crash_now();
                drop(env);
            }
            _ => drop(env.close()),
        }
        disk = disk.after_crash(restart);
    }
    // Some may take a checkpoint yet, behind the opening and behind our look, until no room is left for one. If each
    // restart added a record, it would be many times as much.
    let at_most = tails[30] + 4096;
    let grown: Vec<_> = tails.iter().enumerate().skip(30).filter(|(_, tail)| **tail > at_most).take(10).collect();
    assert!(grown.is_empty(), "the log ended at {at_most}, and after so many more restarts at {grown:?}");
    disk.no_space_after(disk.used_bytes());
    let env = open(&disk).unwrap();
    env.abort_in_doubt(b"doubt").unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(&key(5))).unwrap(), None);
    assert_sound(&env, "aborted");
}

/// A read that fails once, wherever in a verification, is a problem that says what to do about it.
#[test]
fn verify_names_what_mends_a_check_that_the_disk_ended() {
    use ledgerstone::{IndexDef, IndexKeys};
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &IndexDef::new("by", IndexKeys::Bytes { from: 0, to: Some(8) }))?;
        let table = txn.bytes("t")?;
        (0..1000).try_for_each(|n| table.put(&key(n), &large(n as u8, 1500)))
    })
    .unwrap();
    env.close().unwrap();
    let (mut of_index, mut of_other) = (0, 0);
    for nth in 1.. {
        let faulty = FaultDisk::new(Arc::new(disk.snapshot()));
        let env = tiny().read_only(true).open_on(Arc::new(faulty.clone())).unwrap();
        faulty.add(Fault::at(Call::Read, nth * 13, Harm::Fail(EIO)).on("data"));
        let Ok(report) = env.verify() else { continue }; // The catalog.
        if faulty.hits() == 0 {
            break;
        }
        for problem in &report.problems {
            assert!(problem.mend.is_some(), "read {}: {problem:?}", nth * 13);
            *(if problem.place.starts_with("index") { &mut of_index } else { &mut of_other }) += 1;
        }
    }
    assert!(of_index > 0 && of_other > 0, "{of_index} of the index, {of_other} of others");
}
