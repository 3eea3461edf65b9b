//! What an archive takes, what it refuses, and what is left of it after a power loss.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::media::*;
use common::*;
use ledgerstone::{Environment, Error, LogDirectory, Lsn, RestoreTo};
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

fn refused(opened: Result<Environment, Error>, what: &str) {
    match opened {
        Err(Error::ArchiveOfAnother { .. }) => {}
        other => panic!("{what}: {:?}", other.map(drop)),
    }
}

#[test]
fn a_restored_life_is_kept_out_of_the_archive_of_the_old_one() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 50);
    backup(&env, &backups, false).unwrap();
    work(&env, 2, 700);
    env.archive_now().unwrap();
    let state = read(&env).unwrap();
    env.close().unwrap();

    let (target, _) = restore(&backups, RestoreTo::End, &[]).unwrap();
    refused(archived(&target, &archive), "restored without the archive");
    // Even one that has all of the old life: who says that the old one does not go on?
    let (target, _) = restore(&backups, RestoreTo::End, &[log(&archive)]).unwrap();
    refused(archived(&target, &archive), "restored to the end");

    // A new directory is taken, and the old one is still the old life's.
    let own = SimDisk::new();
    let env = archived(&target, &own).unwrap();
    work(&env, 4, 300);
    env.archive_now().unwrap();
    env.close().unwrap();
    assert_whole(&own);
    let env = archived(&disk, &archive).unwrap();
    work(&env, 3, 100);
    env.archive_now().unwrap();
    assert_whole(&archive);
    let mut all = state;
    all.get_mut("t").unwrap().extend((0..100).map(|n| (vec![3, 0, n], vec![3; 700])));
    let (target, _) = restore(&backups, RestoreTo::End, &[log(&archive)]).unwrap();
    assert!(read(&open(&target).unwrap()).unwrap() == all);
}

#[test]
fn two_environments_do_not_share_an_archive() {
    let archive = SimDisk::new();
    let first = archived(&SimDisk::new(), &archive).unwrap();
    // Before a single segment is there.
    refused(archived(&SimDisk::new(), &archive), "a second environment");
    work(&first, 1, 600);
    first.archive_now().unwrap();
    refused(archived(&SimDisk::new(), &archive), "a second environment, later");
    // Nor when the file that says whose it is was lost.
    archive.remove("owner").unwrap();
    refused(archived(&SimDisk::new(), &archive), "a second environment, by the segments");
    drop(first);
    assert_whole(&archive);
}

#[test]
fn a_copy_of_an_environment_that_went_another_way_gives_nothing_up() {
    let (disk, archive) = (SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 100);
    env.close().unwrap();
    let copy = disk.snapshot();
    let env = archived(&disk, &archive).unwrap();
    work(&env, 2, 700);
    env.archive_now().unwrap();
    env.close().unwrap();

    let env = archived(&copy, &archive).unwrap();
    let oldest = copy.list("log").unwrap()[0].clone();
    work(&env, 3, 900);
    for _ in 0..4 {
        env.checkpoint().unwrap();
    }
    let now = env.archive_now();
    assert!(matches!(now, Err(Error::ArchiveOfAnother { .. })), "{now:?}");
    assert!(env.stat().unwrap().archive_trouble.is_some());
    assert!(copy.list("log").unwrap()[0] <= oldest, "{oldest} was given up and is archived nowhere");
    assert_whole(&archive);
}

#[test]
fn an_archive_survives_a_power_loss_of_its_disk() {
    let (disk, archive) = (SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 600);
    for _ in 0..3 {
        env.checkpoint().unwrap();
    }
    assert!(env.log_reader(Lsn(0)).unwrap().oldest().unwrap().0 > 65536, "something was given up");
    let kept = directory(&archive).verify().unwrap();
    for seed in 0..50 {
        let after = archive.snapshot().after_crash(seed);
        assert_eq!(directory(&after).verify().unwrap(), kept, "seed {seed}");
        refused(archived(&SimDisk::new(), &after), "whose it is was forgotten");
    }
}

#[test]
fn a_rotten_segment_of_the_log_is_found_when_it_is_archived() {
    let bytes = 64 << 10;
    for (at, what) in [(20_000, "inside"), (bytes - 300, "at the end"), (bytes + 100, "at the beginning of the next")] {
        let (disk, archive) = (SimDisk::new(), SimDisk::new());
        let env = archived(&disk, &archive).unwrap();
        work(&env, 1, 30);
        env.archive_now().unwrap();
        // Nothing more is archived for a while, so the log is kept.
        archive.no_space_after(archive.used_bytes());
        work(&env, 2, 400);
        let next = directory(&archive).verify().unwrap().last().unwrap().start_lsn + bytes;
        let segment = next + at / bytes * bytes;
        flip(&disk, &format!("log/{segment:016x}.seg"), at % bytes);
        archive.space_for_all();
        let now = env.archive_now();
        assert!(matches!(now, Err(Error::Corrupt { .. })), "{what}: {now:?}");
        assert!(env.stat().unwrap().archive_trouble.unwrap().contains("LSN"), "{what}");
        for _ in 0..3 {
            env.checkpoint().unwrap();
        }
        assert_whole(&archive);
        let last = directory(&archive).verify().unwrap().pop().unwrap();
        assert!(last.end_lsn <= segment + at % bytes, "{what}: {last:?}");
        assert!(env.log_reader(Lsn(0)).unwrap().oldest().unwrap().0 <= segment, "{what}: given up");
    }
}

#[test]
fn a_rotten_copy_of_what_the_log_still_has_is_made_anew() {
    let (disk, archive) = (SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 300);
    env.archive_now().unwrap();
    env.close().unwrap();
    let newest = directory(&archive).verify().unwrap().pop().unwrap().file;
    flip(&archive, &newest, 200);
    archive.remove(&directory(&archive).segments().unwrap().pop().unwrap().file.replace(".seg", ".sum")).unwrap();
    let env = archived(&disk, &archive).unwrap();
    env.archive_now().unwrap();
    assert_whole(&archive);
}

#[test]
fn a_checkpoint_does_not_wait_for_a_slow_archive() {
    let (disk, archive) = (SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 30);
    let (is_slow, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (slow, on) = (Arc::clone(&is_slow), Arc::clone(&goes_on));
    archive.set_hook(Arc::new(move |what| {
        if what == "write" {
            slow.store(true, SeqCst);
            while !on.load(SeqCst) {
                std::thread::yield_now();
            }
        }
    }));
    let copying = {
        let env = env.clone();
        std::thread::spawn(move || env.archive_now())
    };
    while !is_slow.load(SeqCst) {
        std::thread::yield_now();
    }
    let checkpoints = env.clone();
    let taken = within(60, "checkpoints beside a stalled archive", move || {
        work(&checkpoints, 2, 30);
        checkpoints.checkpoint().map(drop)
    });
    goes_on.store(true, SeqCst);
    taken.unwrap();
    copying.join().unwrap().unwrap();
    assert_whole(&archive);
}

/// A sync of names that succeeds says nothing of what one that failed before has lost: the files are written anew.
#[test]
fn a_copy_whose_sync_failed_is_not_believed_at_the_next_try() {
    let mut lost = 0;
    for nth in 1..=6 {
        let (disk, archive) = (SimDisk::new(), SimDisk::new());
        let faulty = FaultDisk::new(Arc::new(archive.clone()));
        let options = tiny().archive_on(Arc::new(faulty.clone()));
        let env = options.open_on(Arc::new(disk.clone())).unwrap();
        work(&env, 1, 150);
        faulty.add(Fault::at(Call::SyncDir, nth, Harm::Fail(DiskErrorKind::Io(5))));
        lost += u64::from(env.archive_now().is_err());
        env.archive_now().unwrap();
        for _ in 0..3 {
            env.checkpoint().unwrap();
        }
        let oldest = env.log_reader(Lsn(0)).unwrap().oldest().unwrap();
        for seed in 0..12 {
            let after = archive.snapshot().after_crash(seed);
            let segments = directory(&after).verify().unwrap();
            let end = segments.iter().take_while(|s| s.problem.is_none()).last().map_or(0, |s| s.end_lsn);
            assert!(end >= oldest.0, "sync {nth}, seed {seed}: archived to {end}, given up to {oldest}: {segments:?}");
        }
    }
    assert!(lost >= 4, "{lost} syncs failed");
}

#[test]
fn files_of_another_format_are_refused_wherever_they_are_met() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 50);
    backup(&env, &backups, false).unwrap();
    work(&env, 1, 300);
    env.archive_now().unwrap();
    env.close().unwrap();
    let sums = || archive.files().into_iter().filter(|path| path.ends_with(".sum"));
    for path in sums().chain(["owner".to_string()]) {
        for (format, bytes) in [(1, 72), (3, 120)] {
            let other = archive.snapshot();
            let mut sum = bytes_of(&other, &path);
            sum.resize(bytes, 7);
            sum[8..12].copy_from_slice(&(format as u32).to_le_bytes());
            let crc = crc32c::crc32c(&sum[16..]).to_le_bytes();
            sum[12..16].copy_from_slice(&crc);
            place(&other, &path, Some(&sum));
            let before = other.fingerprint();
            let refused = |tried: Result<(), Error>, what: &str| match tried {
                Err(Error::OlderFormat { path: of, found: 1, .. }) if format == 1 => {
                    assert!(of.ends_with(&path), "{of}")
                }
                Err(Error::NewerFormat { path: of, found: 3, .. }) if format == 3 => {
                    assert!(of.ends_with(&path), "{of}")
                }
                tried => panic!("{what}, {path} of format {format}: {tried:?}"),
            };
            if path == "owner" {
                refused(archived(&disk.snapshot(), &other).map(drop), "opened");
                continue;
            }
            // A sum of the whole log stays where the environment does not look any more.
            let copied = archived(&disk.snapshot(), &other.snapshot()).and_then(|env| env.archive_now()).map(drop);
            if copied.is_err() {
                refused(copied, "copied");
            }
            let no_owner = other.snapshot();
            no_owner.remove("owner").unwrap();
            refused(archived(&SimDisk::new(), &no_owner).map(drop), "claimed");
            refused(directory(&other).verify().map(drop), "verified");
            refused(directory(&other).log().map(drop), "read");
            refused(LogDirectory::open_on(Arc::new(other.clone())).map(drop), "restored");
            assert_eq!(other.fingerprint(), before);
        }
    }
}

/// The rest of a record whose head was given up can be proved by nobody: it is not copied, and nobody misses it.
#[test]
fn an_archive_that_begins_in_the_middle_of_a_record_has_zeros_there() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    let bytes = 64 << 10;
    // The log begins with a segment whose first record goes on from one that is not there any more.
    let mut oldest = Lsn(0);
    for n in 0..40 {
        work(&env, 1, 60 + n);
        for _ in 0..3 {
            env.checkpoint().unwrap();
        }
        let reader = env.log_reader(Lsn(0)).unwrap();
        oldest = reader.oldest().unwrap();
        let first = env.log_reader(Lsn(0)).unwrap().next().unwrap().unwrap().lsn();
        if oldest.0 > 0 && oldest.0.is_multiple_of(bytes) && first > oldest {
            break;
        }
    }
    env.close().unwrap();
    let path = format!("log/{:016x}.seg", oldest.0);
    let first = log(&disk).log_reader(Lsn(0)).unwrap().next().unwrap().unwrap().lsn();
    assert!(first.0 > oldest.0 && first.0 < oldest.0 + bytes, "{oldest} begins with a record at {first}");
    flip(&disk, &path, 9);
    let env = archived(&disk, &archive).unwrap();
    backup(&env, &backups, false).unwrap();
    work(&env, 2, 100);
    env.archive_now().unwrap();
    assert_whole(&archive);
    let copy = bytes_of(&archive, &path);
    assert!(copy[..(first.0 - oldest.0) as usize].iter().all(|&byte| byte == 0), "rot was copied and proved by a sum");
    // The next process compares it with its log, and goes on.
    let state = read(&env).unwrap();
    env.close().unwrap();
    let env = archived(&disk, &archive).unwrap();
    env.archive_now().unwrap();
    assert_whole(&archive);
    drop(env);
    let (target, report) = restore(&backups, RestoreTo::End, &[log(&archive)]).unwrap();
    assert!(report.left_out.is_empty(), "{report:?}");
    assert!(read(&open(&target).unwrap()).unwrap() == state);
}

#[test]
fn a_damaged_sum_is_told() {
    let (disk, archive) = (SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 300);
    env.archive_now().unwrap();
    let sums: Vec<String> = archive.files().into_iter().filter(|path| path.ends_with(".sum")).collect();
    for path in sums {
        let damaged = archive.snapshot();
        flip(&damaged, &path, 60);
        let problems = directory(&damaged).verify().unwrap().into_iter().filter(|s| s.problem.is_some()).count();
        assert!(problems >= 1, "{path}");
    }
}
