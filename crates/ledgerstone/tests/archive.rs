//! What an archive takes, what it refuses, and what is left of it after a power loss.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::*;
use ledgerstone::{ArchiveDirectory, Backup, BackupOptions, Environment, Error, LogDirectory, Lsn, RestoreTo};
use ledgerstone_disk::{Disk, SimDisk};

fn archived(disk: &SimDisk, archive: &SimDisk) -> Result<Environment, Error> {
    tiny().archive_on(Arc::new(archive.clone())).open_on(Arc::new(disk.clone()))
}

fn backup(env: &Environment, to: &SimDisk) {
    env.backup_on(Arc::new(to.clone()), BackupOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
}

fn restore(from: &SimDisk, to: RestoreTo, logs: &[LogDirectory]) -> SimDisk {
    let target = SimDisk::new();
    Backup::open_on(from).unwrap().restore_on(Arc::new(target.clone()), to, logs).unwrap();
    target
}

fn work(env: &Environment, tag: u8, count: u64) -> Lsn {
    let mut last = Lsn(0);
    for n in 0..count {
        let txn = env.begin().unwrap();
        txn.bytes_or_create("t").unwrap().put(&[tag, (n / 200) as u8, (n % 200) as u8], &vec![tag; 700]).unwrap();
        last = txn.commit().unwrap().ticket.lsn();
    }
    last
}

fn directory(archive: &SimDisk) -> ArchiveDirectory {
    ArchiveDirectory::open_on(Arc::new(archive.clone())).unwrap()
}

fn assert_whole(archive: &SimDisk) {
    let segments = directory(archive).segments(true).unwrap();
    let problems: Vec<_> = segments.iter().filter(|segment| segment.problem.is_some()).collect();
    assert!(!segments.is_empty() && problems.is_empty(), "{problems:?}");
}

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
    backup(&env, &backups);
    work(&env, 2, 700);
    env.archive_now().unwrap();
    let state = read(&env).unwrap();
    env.close().unwrap();

    let log = || LogDirectory::open_on(Arc::new(archive.clone())).unwrap();
    let target = restore(&backups, RestoreTo::End, &[]);
    refused(archived(&target, &archive), "restored without the archive");
    // Even one that has all of the old life: who says that the old one does not go on?
    let target = restore(&backups, RestoreTo::End, &[log()]);
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
    assert!(read(&open(&restore(&backups, RestoreTo::End, &[log()])).unwrap()).unwrap() == all);
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
    let kept = directory(&archive).segments(true).unwrap();
    for seed in 0..50 {
        let after = archive.snapshot().after_crash(seed);
        assert_eq!(directory(&after).segments(true).unwrap(), kept, "seed {seed}");
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
        let next = directory(&archive).segments(true).unwrap().last().unwrap().start_lsn + bytes;
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
        let last = directory(&archive).segments(true).unwrap().pop().unwrap();
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
    let newest = directory(&archive).segments(true).unwrap().pop().unwrap().file;
    flip(&archive, &newest, 200);
    archive.remove(&directory(&archive).segments(false).unwrap().pop().unwrap().file.replace(".seg", ".sum")).unwrap();
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
