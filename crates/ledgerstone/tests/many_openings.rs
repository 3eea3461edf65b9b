//! An environment that was opened very often: nothing of its old log is passed over in silence.

mod common;

use std::sync::Arc;

use common::changes::{all, put};
use common::media::{archived, backup, directory};
use common::*;
use ledgerstone::{Backup, Environment, Error, LogDirectory, LogReader, Lsn, PageId, RepairPages};
use ledgerstone_disk::SimDisk;
use ledgerstone_log::ControlFile;

/// As if it had been opened so many times more, each time cut off before anything was written.
fn opened_often(disk: &SimDisk, count: u64) {
    ControlFile::open(disk).unwrap().change(|state| state.incarnation_max += count).unwrap();
}

/// An environment whose log is kept from its beginning on, of three times with many between them; and how many commits
/// it has.
fn old(disk: &SimDisk, count: u64) -> u64 {
    for time in 0..3 {
        let env = open(disk).unwrap();
        drop(env.named_changes("keeps the log").unwrap());
        (0..40).for_each(|n| put(&env, "t", time * 40 + n, &[7; 600]));
        env.close().unwrap();
        opened_often(disk, count);
    }
    120
}

fn forward(mut reader: LogReader) -> Vec<(Lsn, String)> {
    std::iter::from_fn(|| reader.next().unwrap()).map(|record| (record.lsn(), record.print())).collect()
}

fn commits(env: &Environment) -> usize {
    all(&mut env.changes(Lsn(0)).unwrap()).iter().filter(|commit| commit.changes().count() > 0).count()
}

#[test]
fn readers_feeds_and_archives_begin_where_the_log_does() {
    for count in [5000, 70_000] {
        let (disk, archive) = (SimDisk::new(), SimDisk::new());
        let made = old(&disk, count);
        let env = archived(&disk, &archive).unwrap();
        env.checkpoint().unwrap(); // Or else the opening's own comes behind it, at some moment.
        let there = forward(env.log_reader(Lsn(0)).unwrap());
        assert_eq!(there[0].0, Lsn(4096), "{count}");
        assert_eq!(commits(&env) as u64, made, "{count}");
        env.archive_now().unwrap();
        let problems: Vec<_> = directory(&archive).verify().unwrap().into_iter().filter_map(|s| s.problem).collect();
        assert_eq!(problems, [""; 0]);
        let kept = forward(directory(&archive).log().unwrap().log_reader(Lsn(0)).unwrap());
        assert!(kept == there[..kept.len()] && there.len() - kept.len() < 2, "{count}: {} {}", kept.len(), there.len());
        // Nor does it know more with an archive of its own making.
        env.close().unwrap();
        let env = archived(&disk, &archive).unwrap();
        env.archive_now().unwrap();
        env.close().unwrap();
        let closed = forward(LogDirectory::open_on(Arc::new(disk)).unwrap().log_reader(Lsn(0)).unwrap());
        assert_eq!(closed[..there.len()], there, "{count}");
    }
}

/// Everything about the log that the control file knew is found out from the log.
#[test]
fn a_control_file_is_made_anew_however_often_it_was_opened() {
    for count in [5000, 200_000] {
        let disk = SimDisk::new();
        old(&disk, count);
        let before = read(&open(&disk).unwrap()).unwrap();
        place(&disk, "control", None);
        assert!(Environment::rebuild_control_on(Arc::new(disk.clone())).unwrap());
        let env = open(&disk).unwrap();
        assert_eq!(read(&env).unwrap(), before, "{count}");
        assert_eq!(commits(&env), 120);
    }
}

#[test]
fn pages_are_repaired_with_the_log_of_any_number_of_openings() {
    for with_archive in [false, true] {
        let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
        let open = || if with_archive { archived(&disk, &archive) } else { open(&disk) }.unwrap();
        let mut env = open();
        if !with_archive {
            drop(env.named_changes("keeps the log").unwrap());
        }
        (0..40).for_each(|n| put(&env, "t", n, &[7; 600]));
        backup(&env, &backups, false).unwrap();
        for time in 1..4 {
            (0..100).for_each(|n| put(&env, "t", time * 100 + n, &[time as u8; 600]));
            env.close().unwrap();
            opened_often(&disk, 6000);
            env = open();
        }
        let state = read(&env).unwrap();
        let pages = env.stat().unwrap().allocated_page_count;
        env.close().unwrap();
        let sane = disk.snapshot();
        for page in (4..pages).step_by(pages as usize / 6) {
            flip(&disk, "data", page * 4096 + 2000);
        }
        let set = Backup::open_on(&backups).unwrap();
        let env = open();
        let report = env.repair(&set, &RepairPages::AllDamaged).unwrap();
        assert!(report.repaired.len() > 3, "{report:?}");
        assert_eq!(read(&env).unwrap(), state);
        env.close().unwrap();
        // The same of a directory that is closed.
        let log = with_archive.then(|| directory(&archive).log().unwrap());
        for page in (4..pages).step_by(pages as usize / 6) {
            flip(&disk, "data", page * 4096 + 2000);
        }
        let report = set.repair_on(Arc::new(disk.clone()), &RepairPages::AllDamaged, log.as_ref(), |_| ()).unwrap();
        assert!(report.repaired.len() > 3, "{report:?}");
        assert_eq!(read(&open()).unwrap(), state);

        // Without a segment between them the log is not taken for one that goes on.
        let segments: Vec<String> = {
            let place = if with_archive { &archive } else { &sane };
            place.files().into_iter().filter(|path| path.ends_with(".seg")).collect()
        };
        let lost = &segments[2];
        for disk in [&sane, &archive] {
            if disk.files().contains(lost) {
                place(disk, lost, None);
            }
        }
        flip(&sane, "data", 5 * 4096 + 2000);
        let refused = set.repair_on(Arc::new(sane.clone()), &RepairPages::Only(vec![PageId(5)]), log.as_ref(), |_| ());
        assert!(matches!(refused, Err(Error::LogGone { .. } | Error::Corrupt { .. })), "{refused:?}");
    }
}
