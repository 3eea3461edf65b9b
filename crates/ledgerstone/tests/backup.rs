//! Backups taken beside work, and what is made from them: whole environments at a moment, and single pages.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::*;
use ledgerstone::{
    ArchiveDirectory, Backup, BackupOptions, Environment, Error, LogDirectory, Lsn, PageId, RepairPages, RestoreTo,
};
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_region::Random;

const FULL: bool = false;
const LOG: bool = true;

fn backup(env: &Environment, to: &SimDisk, incremental: bool) -> ledgerstone::BackupInfo {
    let options = BackupOptions::default().incremental(incremental);
    env.backup_on(Arc::new(to.clone()), options, |_| ()).unwrap()
}

fn restore(from: &SimDisk, to: RestoreTo, logs: &[LogDirectory]) -> Result<SimDisk, Error> {
    let target = SimDisk::new();
    Backup::open_on(from)?.restore_on(Arc::new(target.clone()), to, logs, |_| ())?;
    Ok(target)
}

/// Writes, replaces and deletes; each commit with what it left, by its LSN.
struct Work {
    state: State,
    after: Vec<(Lsn, u64, State)>,
    random: Random,
}

impl Work {
    fn new() -> Work {
        Work { state: State::new(), after: Vec::new(), random: Random::new(1) }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn run(&mut self, env: &Environment, count: u64) {
        for _ in 0..count {
            let table = format!("t{}", self.next(3));
            let txn = env.begin().unwrap();
            let mut state = self.state.clone();
            {
                let records = txn.bytes_or_create(&table).unwrap();
                let here = state.entry(table.clone()).or_default();
                for _ in 0..=self.next(4) {
                    let (n, len) = (self.next(200), self.next(40) * self.next(40));
                    let len = if self.next(40) == 0 { 9000 + len } else { len };
                    if self.next(4) == 0 {
                        records.delete(&key(n)).unwrap();
                        here.remove(&key(n));
                    } else {
                        let value = vec![self.next(256) as u8; len as usize];
                        records.put(&key(n), &value).unwrap();
                        here.insert(key(n), value);
                    }
                }
            }
            if self.next(10) == 0 {
                txn.abort().unwrap();
                continue;
            }
            let committed = txn.commit().unwrap();
            self.state = state;
            if committed.ticket.lsn() != Lsn(0) {
                self.after.push((committed.ticket.lsn(), 0, self.state.clone()));
            }
        }
    }
}

fn assert_holds(disk: &SimDisk, state: &State, what: &str) {
    let env = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(read(&env).unwrap() == *state, "{what}: other records");
    assert_sound(&env, what);
    // It goes on from there.
    env.transact(|txn| txn.bytes_or_create("more")?.put(b"k", b"v")).unwrap();
    env.close().unwrap();
    let env = open(disk).unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("more")?.get(b"k")).unwrap().as_deref(), Some(&b"v"[..]), "{what}");
}

#[test]
fn every_commit_behind_a_full_backup_can_be_restored_by_its_lsn_and_its_time() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    let mut work = Work::new();
    work.run(&env, 60);
    let full = backup(&env, &backups, FULL);
    work.run(&env, 25);
    backup(&env, &backups, LOG);
    work.run(&env, 25);
    backup(&env, &backups, LOG);
    let times: BTreeMap<Lsn, u64> = {
        let mut reader = env.log_reader(Lsn(full.log_end_lsn)).unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).filter_map(|r| Some((r.lsn(), r.commit_time_ns()?))).collect()
    };
    let set = Backup::open_on(&backups).unwrap();
    let report = set.verify().unwrap();
    assert_eq!((report.chain_count, set.files().len()), (1, 3));
    assert!(report.page_count > 20 && report.commit_count > 35, "{report:?}");

    let moments: Vec<_> = work.after.iter().filter(|(lsn, ..)| lsn.0 >= full.log_end_lsn).cloned().collect();
    assert!(moments.len() > 30);
    for (no, (lsn, _, state)) in moments.iter().enumerate().filter(|(no, _)| no % 5 == 0) {
        let by_lsn = restore(&backups, RestoreTo::Lsn(*lsn), &[]).unwrap();
        assert_holds(&by_lsn, state, &format!("commit {no} by LSN {lsn}"));
        let by_time = restore(&backups, RestoreTo::TimeNs(times[lsn]), &[]).unwrap();
        assert_holds(&by_time, state, &format!("commit {no} by time"));
    }
    assert_holds(&restore(&backups, RestoreTo::End, &[]).unwrap(), &work.state, "the end");

    let early = restore(&backups, RestoreTo::Lsn(Lsn(full.log_from_lsn - 1)), &[]).map(|_| ());
    assert!(matches!(early, Err(Error::MomentNotInBackup { .. })), "{early:?}");
    let early = restore(&backups, RestoreTo::TimeNs(5), &[]).map(|_| ());
    assert!(matches!(early, Err(Error::MomentNotInBackup { .. })), "{early:?}");
    let late = restore(&backups, RestoreTo::Lsn(Lsn(1 << 40)), &[]).map(|_| ());
    assert!(matches!(late, Err(Error::MomentNotInBackup { .. })), "{late:?}");
    let target = SimDisk::new();
    target.create_dir("").unwrap();
    target.open("something", ledgerstone_disk::Open::CREATE).unwrap();
    let full = set.restore_on(Arc::new(target), RestoreTo::End, &[], |_| ());
    assert!(matches!(full, Err(Error::TargetNotEmpty { .. })), "{full:?}");
}

#[test]
fn a_backup_taken_beside_writers_restores_to_a_prefix_that_covers_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let env = tiny().open(dir.path().join("env")).unwrap();
    env.transact(|txn| txn.bytes_or_create("sums")?.put(b"total", &0u64.to_be_bytes())).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            let (env, stop) = (env.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut n = 0;
                while !stop.load(SeqCst) {
                    n += 1;
                    // The sum of all parts is the total, in every state that a transaction can see.
                    env.transact(|txn| {
                        let sums = txn.bytes("sums")?;
                        let part = [&[writer as u8][..], &(n % 500u64).to_be_bytes()].concat();
                        let number = |bytes: Option<Vec<u8>>| {
                            bytes.map_or(0, |b| u64::from_be_bytes(b[..8].try_into().unwrap()))
                        };
                        let (old, total) = (number(sums.get(&part)?), number(sums.get(b"total")?));
                        let mut value = (old + n).to_be_bytes().to_vec();
                        value.resize(8 + (n % 300) as usize, 7);
                        sums.put(&part, &value)?;
                        sums.put(b"total", &(total + n).to_be_bytes())
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    while env.transact(|txn| txn.bytes("sums")?.count()).unwrap() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(1)); // Until the first of them has committed.
    }
    let there = dir.path().join("backups");
    for no in 0..4 {
        let options = BackupOptions::default().incremental(no % 2 == 1).bytes_per_second(20 << 20);
        env.backup(&there, options).unwrap();
    }
    let mut stream = Vec::new();
    env.backup_to(&mut stream, BackupOptions::default(), |_| ()).unwrap();
    stop.store(true, SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    std::fs::write(dir.path().join("one.backup"), &stream).unwrap();

    for (from, to) in [("backups", "a"), ("one.backup", "b")] {
        let set = Backup::open(dir.path().join(from)).unwrap();
        set.verify().unwrap();
        let report = set.restore(dir.path().join(to), RestoreTo::End, &[]).unwrap();
        let env = tiny().open(dir.path().join(to)).unwrap();
        assert_sound(&env, from);
        let state = read(&env).unwrap();
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
        let total = number(&state["sums"][&b"total"[..]]);
        let parts: u64 = state["sums"].iter().filter(|(k, _)| *k != b"total").map(|(_, v)| number(v)).sum();
        assert!(total > 0 && total == parts, "{from}: total {total}, parts {parts}, {report:?}");
    }
}

#[test]
fn after_a_restore_to_a_moment_the_old_future_is_unreadable() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let env = tiny().archive_on(Arc::new(archive.clone())).open_on(Arc::new(disk.clone())).unwrap();
    let mut work = Work::new();
    work.run(&env, 20);
    backup(&env, &backups, FULL);
    work.run(&env, 10);
    let (moment, _, state) = work.after.last().unwrap().clone();
    work.run(&env, 200);
    env.archive_now().unwrap();
    let log = ArchiveDirectory::open_on(Arc::new(archive)).unwrap().log().unwrap();
    let again = restore(&backups, RestoreTo::Lsn(moment), std::slice::from_ref(&log)).unwrap();
    let env = open(&again).unwrap();
    assert!(read(&env).unwrap() == state);
    let mut reader = env.log_reader(moment).unwrap();
    reader.next().unwrap();
    let behind: Vec<_> = std::iter::from_fn(|| reader.next().unwrap()).collect();
    let first = behind.first().unwrap();
    assert_eq!(first.kind(), ledgerstone::RecordKind::Incarnation, "{first}");
    assert!(behind.iter().all(|r| r.kind() != ledgerstone::RecordKind::Commit), "no commit of the old future");
    // Not even where a segment of the old life is put back.
    env.close().unwrap();
    let path = again.list("log").unwrap().last().map(|name| format!("log/{name}")).unwrap();
    let (from, to) = (disk.open(&path, ledgerstone_disk::Open::READ), again.open(&path, Default::default()).unwrap());
    if let Ok(from) = from {
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_at(0, &mut bytes).unwrap();
        let here = LogDirectory::open_on(Arc::new(again.clone())).unwrap().log_reader(Lsn(u64::MAX)).unwrap().end();
        let skip = (here.0 % (64 << 10)) as usize;
        to.write_at(skip as u64, &bytes[skip..]).unwrap();
        to.sync().unwrap();
    }
    assert_holds(&again, &state, "with the old life's bytes behind its end");
}

#[test]
fn an_archive_keeps_what_the_log_gives_up_and_restores_to_the_very_end() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let options = || tiny().archive_on(Arc::new(archive.clone()));
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let mut work = Work::new();
    work.run(&env, 20);
    backup(&env, &backups, FULL);
    for _ in 0..5 {
        work.run(&env, 150);
        env.checkpoint().unwrap();
    }
    let kept = env.log_reader(Lsn(0)).unwrap().oldest().unwrap();
    let full = Backup::open_on(&backups).unwrap().files()[0].clone();
    assert!(kept.0 > full.log_end_lsn, "the log was given up");
    assert!(env.stat().unwrap().log_pins.iter().any(|pin| pin.name == "archive"));
    // An incremental backup finds in the archive what the environment has given up.
    backup(&env, &backups, LOG);
    assert_holds(&restore(&backups, RestoreTo::End, &[]).unwrap(), &work.state, "full and incremental");
    work.run(&env, 30);
    env.archive_now().unwrap();
    work.run(&env, 150);
    env.archive_now().unwrap();
    env.close().unwrap();

    let directory = ArchiveDirectory::open_on(Arc::new(archive.clone())).unwrap();
    let segments = directory.verify().unwrap();
    assert!(segments.len() > 5 && segments.iter().all(|segment| segment.problem.is_none()), "{segments:?}");
    let log = directory.log().unwrap();
    let mut reader = log.log_reader(Lsn(0)).unwrap();
    assert!(reader.next().unwrap().is_some(), "an archive is a log to read");
    assert_holds(
        &restore(&backups, RestoreTo::End, std::slice::from_ref(&log)).unwrap(),
        &work.state,
        "with the archive",
    );
    let own = LogDirectory::open_on(Arc::new(disk.clone())).unwrap();
    let gap = restore(&backups.snapshot(), RestoreTo::End, &[own]).map(|_| ());
    assert!(matches!(gap, Err(Error::LogGone { .. })), "the log of the lost environment begins later: {gap:?}");
    let both = [log, LogDirectory::open_on(Arc::new(disk.clone())).unwrap()];
    assert_holds(&restore(&backups, RestoreTo::End, &both).unwrap(), &work.state, "archive and the lost environment");
    let [log, _] = both;

    let before = directory.segments().unwrap().len();
    let needed = Backup::open_on(&backups).unwrap().needs_log_from().unwrap();
    directory.remove_before(needed).unwrap();
    assert_holds(&restore(&backups, RestoreTo::End, std::slice::from_ref(&log)).unwrap(), &work.state, "after removal");
    let removed = directory.remove_before(Lsn(segments[2].end_lsn)).unwrap();
    assert!(removed > 0 && directory.verify().unwrap().len() < before);
    flip(&archive, &segments[4].file, 700);
    let found = directory.verify().unwrap();
    let bad: Vec<_> = found.iter().filter(|segment| segment.problem.is_some()).collect();
    assert_eq!(bad.iter().map(|segment| &segment.file).collect::<Vec<_>>(), [&segments[4].file]);
}

#[test]
fn what_is_no_whole_backup_is_named_and_never_restored() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    let mut work = Work::new();
    work.run(&env, 40);
    let late = env.backup_on(Arc::new(backups.clone()), BackupOptions::default().incremental(true), |_| ());
    assert!(matches!(late, Err(Error::Corrupt { .. })), "nothing to go on from: {late:?}");
    let cancelled = env.backup_on(Arc::new(backups.clone()), BackupOptions::default(), |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    assert!(matches!(Backup::open_on(&backups), Err(Error::NotABackup { .. })), "nothing is left of it");

    let info = backup(&env, &backups, FULL);
    let whole = backups.snapshot();
    let bytes = {
        let file = whole.open(&info.file, ledgerstone_disk::Open::READ).unwrap();
        file.len().unwrap()
    };
    let mut found_by_open = 0;
    for at in (0..bytes).step_by(1777).chain([bytes - 1, 0, 40, 20]) {
        let damaged = whole.snapshot();
        flip(&damaged, &info.file, at);
        let verified = Backup::open_on(&damaged).and_then(|set| set.verify());
        found_by_open += u32::from(Backup::open_on(&damaged).is_err());
        assert!(verified.is_err(), "byte {at} of {bytes} changed and nobody noticed");
        assert!(restore(&damaged, RestoreTo::End, &[]).is_err());
    }
    assert!(found_by_open > 0);
    for len in [0, 10, 31, 4200, bytes / 2, bytes - 1] {
        let damaged = whole.snapshot();
        cut(&damaged, &info.file, len);
        let opened = Backup::open_on(&damaged).map(|_| ());
        assert!(matches!(opened, Err(Error::Corrupt { .. } | Error::NotABackup { .. })), "{len}: {opened:?}");
    }
    // Another environment's backup does not go on from this one.
    let other = open(&SimDisk::new()).unwrap();
    let refused = other.backup_on(Arc::new(whole), BackupOptions::default().incremental(true), |_| ());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

#[test]
fn a_restore_cut_short_at_any_write_is_no_environment() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    let mut work = Work::new();
    work.run(&env, 30);
    backup(&env, &backups, FULL);
    let set = Backup::open_on(&backups).unwrap();
    for n in 1.. {
        let target = SimDisk::new();
        target.crash_at(n);
        let done = set.restore_on(Arc::new(target.clone()), RestoreTo::End, &[], |_| ());
        let after = target.after_crash(n);
        match open(&after) {
            // The control file had its name: then everything else is durable.
            Ok(env) if after.exists("control").unwrap() && read(&env).unwrap() == work.state => {}
            // Nothing was there yet.
            Ok(env) => assert!(read(&env).unwrap().is_empty() && done.is_err(), "crash at {n}"),
            // An interrupted restore: nothing is made over it.
            Err(Error::ControlFile { .. } | Error::NotAnEnvironment { .. }) if done.is_err() => {}
            Err(error) => panic!("crash at {n}: {error}"),
        }
        if done.is_ok() {
            assert!(n > 5);
            break;
        }
    }
}

/// Pages of the data file that the cache does not hold: closes and opens.
fn reopened(disk: &SimDisk, archive: &SimDisk, env: Environment) -> Environment {
    env.close().unwrap();
    archived(disk, archive)
}

fn archived(disk: &SimDisk, archive: &SimDisk) -> Environment {
    tiny().archive_on(Arc::new(archive.clone())).open_on(Arc::new(disk.clone())).unwrap()
}

#[test]
fn damaged_pages_are_repaired_while_writers_run() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let mut env = archived(&disk, &archive);
    let mut work = Work::new();
    work.run(&env, 60);
    backup(&env, &backups, FULL);
    work.run(&env, 60);
    env = reopened(&disk, &archive, env);
    let pages = env.stat().unwrap().allocated_page_count;
    let mut repaired = 0;
    for round in 0..12u64 {
        work.run(&env, 3);
        // The close leaves nothing in memory; a few pages come in at the open.
        env = reopened(&disk, &archive, env);
        let page = 4 + (round * 7919) % (pages - 4);
        flip(&disk, "data", page * 4096 + 1000 + round);
        let damaged = env.damaged_pages().unwrap();
        let backup = Backup::open_on(&backups).unwrap();
        let writer = env.clone();
        let other = std::thread::spawn(move || {
            for n in 0..20u64 {
                writer.transact(|txn| txn.bytes_or_create("beside")?.put(&key(n), &[n as u8; 300])).ok();
            }
        });
        let report = env.repair(&backup, &RepairPages::AllDamaged).unwrap();
        other.join().unwrap();
        // The writer may have been given a damaged page that was free, and have made it anew.
        assert!(report.repaired.len() <= damaged.len(), "page {page}: {report:?}");
        repaired += report.repaired.len();
        assert!(env.damaged_pages().unwrap().is_empty(), "page {page}");
        assert_sound(&env, &format!("page {page}"));
        let mut found = read(&env).unwrap();
        found.remove("beside");
        assert!(found == work.state, "page {page}");
        let again = env.repair(&backup, &RepairPages::Only(vec![PageId(page)])).unwrap();
        assert_eq!((again.repaired.len(), again.sound.len()), (0, 1));
    }
    assert!(repaired > 6, "only {repaired} pages");
}

#[test]
fn a_directory_that_cannot_be_opened_is_repaired_closed() {
    for page in [0u64, 1, 2, 3, 5] {
        let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
        let env = archived(&disk, &archive);
        let mut work = Work::new();
        work.run(&env, 40);
        backup(&env, &backups, FULL);
        work.run(&env, 120);
        env.close().unwrap();
        let log = ArchiveDirectory::open_on(Arc::new(archive)).unwrap().log().unwrap();
        flip(&disk, "data", page * 4096 + 50);
        flip(&disk, "data", page * 4096 + 2000);
        let backup = Backup::open_on(&backups).unwrap();
        let report = backup.repair_on(Arc::new(disk.clone()), &RepairPages::AllDamaged, Some(&log), |_| ()).unwrap();
        assert_eq!(report.repaired, [page]);
        assert_holds(&disk, &work.state, &format!("page {page}"));
    }
}

#[test]
fn a_repair_that_lacks_records_is_refused() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    let mut work = Work::new();
    work.run(&env, 40);
    backup(&env, &backups, FULL);
    for _ in 0..4 {
        work.run(&env, 200);
        env.checkpoint().unwrap();
    }
    env.close().unwrap();
    let env = open(&disk).unwrap();
    flip(&disk, "data", 2 * 4096 + 3000);
    flip(&disk, "data", 9 * 4096 + 3000);
    let backup = Backup::open_on(&backups).unwrap();
    let refused = env.repair(&backup, &RepairPages::Only(vec![PageId(9)]));
    assert!(matches!(refused, Err(Error::LogGone { .. })), "no archive: {refused:?}");
    env.close().unwrap();
    // Nor does an archive help that was begun too late. It cannot be opened without page 2.
    flip(&disk, "data", 2 * 4096 + 3000);
    let env = archived(&disk, &SimDisk::new());
    let refused = env.repair(&backup, &RepairPages::Only(vec![PageId(9)]));
    assert!(matches!(refused, Err(Error::LogGone { .. })), "an empty archive: {refused:?}");
}

#[test]
fn a_backup_reads_the_data_file_by_runs() {
    let disk = SimDisk::new();
    let options = || Environment::options().cache_bytes(1 << 20).page_count_max(1 << 14);
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &vec![7; 8 << 20])).unwrap();
    env.close().unwrap();
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let target = SimDisk::new();
    let before = disk.counters().reads;
    env.backup_on(Arc::new(target.clone()), BackupOptions::default(), |_| ()).unwrap();
    let reads = disk.counters().reads - before;
    assert!(reads < 150, "{reads} reads for 2,080 pages");
    Backup::open_on(&target).unwrap().verify().unwrap();
}

/// The second would take the first one's file away, and its name could be given to a file that is not whole.
#[test]
fn a_second_backup_into_the_same_directory_is_refused_while_the_first_is_written() {
    let (disk, to) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    Work::new().run(&env, 50);
    let mut refused = 0;
    let second = || env.backup_on(Arc::new(to.clone()), BackupOptions::default(), |_| ControlFlow::Break(()));
    env.backup_on(Arc::new(to.clone()), BackupOptions::default(), |_| {
        assert!(matches!(second(), Err(Error::BackupUnderWay { .. })));
        refused += 1;
    })
    .unwrap();
    assert!(refused > 0);
    assert!(matches!(second(), Err(Error::Cancelled)));
    Backup::open_on(&to).unwrap().verify().unwrap();
    assert_eq!(to.files().iter().filter(|name| name.contains("backup")).count(), 1);
}

#[test]
fn a_place_without_locks_takes_backups_and_the_directory_of_an_environment_does_not() {
    let (disk, to) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    Work::new().run(&env, 50);
    let take = |to: Arc<dyn Disk>| env.backup_on(to, BackupOptions::default(), |_| ());
    let without_locks = FaultDisk::new(Arc::new(to.clone()));
    const ENOLCK: i32 = 37;
    without_locks.add(Fault::at(Call::Lock, 1, Harm::Fail(DiskErrorKind::Io(ENOLCK))).from_then_on());
    take(Arc::new(without_locks.clone())).unwrap();
    assert_eq!(without_locks.hits(), 1);
    Backup::open_on(&to).unwrap().verify().unwrap();
    let before = disk.files();
    assert!(matches!(take(Arc::new(disk.clone())), Err(Error::TargetNotEmpty { .. })));
    assert_eq!(disk.files(), before);
}

/// K4 in `take.rs` of the crate `ledgerstone-recovery`: whichever bit of the log is read wrong, the last record's
/// length too, the backup says so, or it is whole.
#[test]
fn no_backup_is_made_of_a_read_of_the_log_gone_wrong() {
    let faulty = FaultDisk::new(Arc::new(SimDisk::new()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(drop)).unwrap();
    let kept = SimDisk::new();
    backup(&env, &kept, FULL);
    env.transact(|txn| txn.bytes("t")?.put(b"k", &[7; 100]).map(drop)).unwrap();
    let open = env.begin().unwrap();
    open.bytes("t").unwrap().put(b"l", &[8; 100]).unwrap(); // A record that may be longer is the last one.
    let (mut told, mut whole) = (0, 0);
    for bit in (0..8192 * 8).step_by(7) {
        let to = kept.snapshot();
        faulty.add(Fault::at(Call::Read, 1, Harm::FlipBit(bit)).on("log/"));
        let taken = env.backup_on(Arc::new(to.clone()), BackupOptions::default().incremental(true), |_| ());
        faulty.behave();
        match taken {
            Ok(_) => {
                let verified = Backup::open_on(&to).and_then(|set| set.verify());
                verified.unwrap_or_else(|error| panic!("bit {bit}: {error}"));
                whole += 1;
            }
            Err(_) => told += 1,
        }
    }
    assert!(told > 100 && whole > 100, "{told} {whole}");
}
