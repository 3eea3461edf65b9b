//! What a restore makes of chains and logs that are damaged, short or of another life, and that it is durable.

mod common;

use std::sync::Arc;

use common::media::*;
use common::*;
use ledgerstone::{Backup, Environment, Error, LogDirectory, Lsn, RepairPages, RestoreTo};
use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::{ControlFile, ControlState};

/// How many records each tag has.
fn counts(disk: &SimDisk) -> Vec<usize> {
    let state = read(&open(disk).unwrap()).unwrap();
    (1..=5).map(|tag| state.get("t").map_or(0, |t| t.keys().filter(|key| key[0] == tag).count())).collect()
}

#[test]
fn a_backup_does_not_go_on_from_one_of_another_life() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    work(&env, 1, 50);
    backup(&env, &backups, false).unwrap();
    let moment = work(&env, 2, 10);
    work(&env, 3, 100);
    backup(&env, &backups, true).unwrap();
    drop(env);
    for to in [RestoreTo::Lsn(moment), RestoreTo::End] {
        let (target, _) = restore(&backups, to, &[]).unwrap();
        let env = open(&target).unwrap();
        work(&env, 4, 400);
        let taken = backup(&env, &backups, true);
        assert!(matches!(&taken, Err(Error::Corrupt { what }) if what.contains("another life")), "{taken:?}");
        // A full one begins a chain of its own, and the older chain stays what it was.
        let both = backups.snapshot();
        backup(&env, &both, false).unwrap();
        work(&env, 5, 20);
        backup(&env, &both, true).unwrap();
        assert_eq!(Backup::open_on(&both).unwrap().verify().unwrap().chain_count, 2);
        let (again, report) = restore(&both, RestoreTo::End, &[]).unwrap();
        assert!(report.left_out.is_empty(), "{report:?}");
        assert_eq!(counts(&again)[4], 20);
    }
    assert_eq!(counts(&restore(&backups, RestoreTo::End, &[]).unwrap().0), [50, 10, 100, 0, 0]);
}

#[test]
fn a_chain_counts_up_to_its_first_file_that_is_damaged_or_missing() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    work(&env, 1, 30);
    backup(&env, &backups, false).unwrap();
    let mut last = Lsn(0);
    for tag in 2..=4 {
        last = work(&env, tag, 10);
        backup(&env, &backups, true).unwrap();
    }
    drop(env);
    let name = |n: u64| format!("00000{n}-{}.backup", if n == 1 { "full" } else { "log" });
    let whole = [30, 10, 10, 10, 0];
    for n in 2..=4 {
        for how in ["missing", "flipped", "cut", "flipped in its head"] {
            let what = format!("file {n} {how}");
            let damaged = backups.snapshot();
            match how {
                "missing" => damaged.remove(&name(n)).unwrap(),
                "flipped" => flip(&damaged, &name(n), len_of(&damaged, &name(n)) / 2),
                "cut" => cut(&damaged, &name(n), len_of(&damaged, &name(n)) - 9),
                _ => flip(&damaged, &name(n), 3),
            }
            let (target, report) = restore(&damaged, RestoreTo::End, &[]).unwrap();
            let mut expected = whole;
            expected[n as usize - 1..].fill(0);
            assert_eq!(counts(&target), expected, "{what}");
            // Behind the last file there is nothing to miss.
            assert_eq!(report.left_out.is_empty(), how == "missing" && n == 4, "{what}: {report:?}");
            if let Some(left) = report.left_out.first() {
                let named = name(if how == "missing" { n + 1 } else { n });
                assert!(left.what.contains(&named) && !left.why.is_empty(), "{what}: {left:?}");
            }
            // A moment that is not in what is left is refused, and verification finds what is wrong.
            let moment = restore(&damaged, RestoreTo::Lsn(last), &[]).map(drop);
            assert!(matches!(moment, Err(Error::MomentNotInBackup { .. })), "{what}: {moment:?}");
            let verified = Backup::open_on(&damaged).and_then(|set| set.verify());
            assert_eq!(verified.is_ok(), report.left_out.is_empty(), "{what}: {verified:?}");
            // With the log that the environment still has, nothing is lost.
            let (target, _) = restore(&damaged, RestoreTo::End, &[log(&disk)]).unwrap();
            assert_eq!(counts(&target), whole, "{what}, with the log");
        }
    }
    // A full backup that is damaged: the chain before it, if there is one.
    let env = open(&disk).unwrap();
    work(&env, 5, 10);
    backup(&env, &backups, false).unwrap();
    flip(&backups, "000005-full.backup", 5000);
    let (target, report) = restore(&backups, RestoreTo::End, &[]).unwrap();
    assert_eq!(counts(&target), whole);
    assert!(report.left_out[0].what.contains("000005-full.backup"), "{report:?}");
    for n in 1..=4 {
        backups.remove(&name(n)).unwrap();
    }
    let none = restore(&backups, RestoreTo::End, &[]).map(drop);
    assert!(matches!(none, Err(Error::Corrupt { .. })), "{none:?}");
}

#[test]
fn a_restored_environment_survives_a_power_loss_at_any_write() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    work(&env, 1, 200);
    backup(&env, &backups, false).unwrap();
    drop(env);
    let (restored, _) = restore(&backups, RestoreTo::End, &[]).unwrap();
    for crash in (1..).step_by(3) {
        let disk = restored.snapshot();
        disk.crash_at(crash);
        let durable = (|| {
            let env = open(&disk).ok()?;
            for n in 0..40u8 {
                if env.transact(|txn| txn.bytes("t")?.put(&[1, 0, n], &[n; 700])).is_err() {
                    return Some(n);
                }
                if n % 10 == 9 && env.checkpoint().is_err() {
                    return Some(n + 1);
                }
            }
            None
        })();
        if !disk.is_crashed() {
            break;
        }
        for seed in 0..8 {
            let after = disk.after_crash(seed);
            let state = open(&after).and_then(|env| read(&env));
            let state = state.unwrap_or_else(|error| panic!("crash at {crash}, seed {seed}: {error}"));
            for n in 0..durable.unwrap_or(0) {
                assert_eq!(state["t"][&vec![1, 0, n]], vec![n; 700], "crash at {crash}, seed {seed}: {n}");
            }
        }
    }
}

/// The open finds no space for its checkpoint: a later one ends the restore.
#[test]
fn the_first_checkpoint_that_finds_space_ends_a_restore() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    work(&env, 1, 30);
    // Its rollback has more room reserved than there is without another segment.
    let txn = env.begin().unwrap();
    (0..1500).for_each(|n| txn.bytes("t").unwrap().put(&key(1_000_000 + n), &[1; 100]).unwrap());
    drop(txn.prepare(b"doubt").unwrap());
    backup(&env, &backups, false).unwrap();
    let (target, _) = restore(&backups, RestoreTo::End, &[]).unwrap();
    // Room for what the open makes before it recovers.
    let trial = target.snapshot();
    let opened = open(&trial).unwrap();
    assert!(!trial.exists("restore.new").unwrap(), "it goes before the opening returns");
    drop(opened);
    let double_write = trial.open("double_write", Open::READ).unwrap().len().unwrap();
    target.no_space_after(target.used_bytes() + double_write);
    let restored = open(&target).unwrap();
    assert_eq!(restored.in_doubt().len(), 1);
    assert!(matches!(restored.checkpoint(), Err(Error::ReadOnly { .. })));
    assert!(target.exists("restore.new").unwrap());
    target.space_for_all();
    restored.checkpoint().unwrap();
    assert!(!target.exists("restore.new").unwrap());
    // Not kept by the power, either.
    target.crash_now();
    drop(restored);
    let target = target.after_crash(1);
    assert!(!target.exists("restore.new").unwrap());
    assert_eq!(open(&target).unwrap().in_doubt().len(), 1);
}

#[test]
fn a_missing_double_write_file_is_reported_after_a_crash() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    work(&env, 1, 200);
    let crashed = disk.snapshot();
    env.close().unwrap();
    for how in ["missing", "empty", "cut"] {
        let after = crashed.snapshot();
        let bytes = bytes_of(&after, "double_write");
        match how {
            "missing" => after.remove("double_write").unwrap(),
            "empty" => cut(&after, "double_write", 0),
            _ => cut(&after, "double_write", 40_000),
        }
        for _ in 0..2 {
            let refused = open(&after).map(drop);
            assert!(
                matches!(&refused, Err(Error::Corrupt { what }) if what.contains("double_write")),
                "{how}: {refused:?}"
            );
            assert_eq!(after.exists("double_write").unwrap(), how != "missing", "{how}: replaced");
        }
        // Put back, everything is there.
        let file = after.open("double_write", Open::CREATE).unwrap();
        file.write_at(0, &bytes).unwrap();
        file.sync().unwrap();
        assert_eq!(counts(&after), [200, 0, 0, 0, 0], "{how}");
    }
    // What was closed in order has nothing in it that is needed; a new one is made, durably.
    disk.remove("double_write").unwrap();
    let env = open(&disk).unwrap();
    work(&env, 2, 50);
    for seed in 0..30 {
        assert_eq!(counts(&disk.snapshot().after_crash(seed)), [200, 50, 0, 0, 0], "seed {seed}");
    }
}

/// Opening mends what a closed environment may lack. The power may fail while it does.
#[test]
fn what_a_closed_environment_lacks_is_mended_whenever_the_power_fails() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    work(&env, 1, 200);
    env.close().unwrap();
    let spare = format!("log/{}", disk.list("log").unwrap().pop().unwrap());
    for how in ["without double_write", "with a short spare segment"] {
        let lacking = disk.snapshot();
        match how {
            "without double_write" => lacking.remove("double_write").unwrap(),
            _ => cut(&lacking, &spare, 4096),
        }
        lacking.sync_dir("").unwrap();
        for crash in 1.. {
            let opened = lacking.snapshot();
            opened.crash_at(crash);
            let env = open(&opened);
            if !opened.is_crashed() {
                assert!(crash > 5, "{how}: {env:?}");
                break;
            }
            for seed in 0..12 {
                assert_eq!(counts(&opened.after_crash(seed)), [200, 0, 0, 0, 0], "{how}, at {crash}, seed {seed}");
            }
        }
    }
}

#[test]
fn of_several_logs_the_one_whose_records_reach_farthest_wins() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 50);
    backup(&env, &backups, false).unwrap();
    work(&env, 2, 6);
    env.archive_now().unwrap();
    drop(env);
    // The newest segment of the lost environment was damaged: from the end of the backup on it holds zeros.
    let from = Backup::open_on(&backups).unwrap().files()[0].log_end_lsn;
    let bytes = 64 << 10;
    let start = from - from % bytes;
    let path = format!("log/{start:016x}.seg");
    let broken = disk.snapshot();
    overwrite(&broken, &path, from - start, &vec![0; (bytes - (from - start)) as usize]);
    for later in broken.list("log").unwrap().iter().filter(|name| **name > format!("{start:016x}.seg")) {
        broken.remove(&format!("log/{later}")).unwrap();
    }
    for logs in [[&archive, &broken], [&broken, &archive]] {
        let (again, _) = restore(&backups, RestoreTo::End, &logs.map(log)).unwrap();
        assert_eq!(counts(&again), [50, 6, 0, 0, 0]);
    }
}

#[test]
fn logs_that_are_damaged_in_different_places_complete_each_other() {
    let (disk, backups, archive) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    let env = archived(&disk, &archive).unwrap();
    work(&env, 1, 50);
    backup(&env, &backups, false).unwrap();
    let from = Backup::open_on(&backups).unwrap().files()[0].log_end_lsn;
    work(&env, 2, 60);
    env.archive_now().unwrap();
    work(&env, 3, 10);
    let lost = disk.snapshot();
    drop(env);
    let bytes = 64 << 10;
    let place = |lsn: u64| (format!("log/{:016x}.seg", lsn - lsn % bytes), lsn % bytes);
    let (early, late) = (place(from + 5_000), place(from + 25_000));
    let (a, b) = (archive.snapshot(), lost.snapshot());
    flip(&a, &late.0, late.1);
    flip(&b, &early.0, early.1);
    for logs in [[&a, &b], [&b, &a]] {
        let (again, report) = restore(&backups, RestoreTo::End, &logs.map(log)).unwrap();
        let found = counts(&again);
        assert!(found[1] > 20, "{found:?}, {report:?}");
        assert!(found[..3] == [50, 60, 10] || !report.left_out.is_empty(), "{found:?}, {report:?}");
    }
    // Alone, a log that is damaged is used up to there, and that is said.
    let (again, report) = restore(&backups, RestoreTo::End, &[log(&a)]).unwrap();
    let found = counts(&again);
    assert!(found[1] > 20 && found[1] < 60, "{found:?}");
    assert!(report.left_out.iter().any(|left| left.why.contains("LSN")), "{report:?}");
}

fn control(disk: &SimDisk) -> ControlState {
    ControlFile::open_read_only(disk).unwrap().state()
}

fn rebuild(disk: &SimDisk) -> Result<bool, Error> {
    Environment::rebuild_control_on(Arc::new(disk.clone()))
}

/// What a restore has left that was killed or lost the power at any call: an environment of a new life, or none, and
/// then nothing makes one of it.
#[test]
fn a_restore_that_was_cut_short_is_no_environment_whatever_is_tried() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    work(&env, 1, 120);
    backup(&env, &backups, false).unwrap();
    let old_life = control(&disk).life;
    drop(env);
    let set = Backup::open_on(&backups).unwrap();
    let (mut cut, mut whole) = (0, 0);
    for call in 1.. {
        let target = SimDisk::new();
        target.crash_at(call);
        let _ = set.restore_on(Arc::new(target.clone()), RestoreTo::End, &[], |_| ());
        let is_through = !target.is_crashed();
        let killed = SimDisk::new();
        killed.kill_at(call, 700);
        let _ = set.restore_on(Arc::new(killed.clone()), RestoreTo::End, &[], |_| ());
        let mut left: Vec<SimDisk> = (0..6).map(|seed| target.after_crash(seed)).collect();
        left.push(killed.after_kill());
        left.extend((0..3).map(|seed| killed.after_kill().after_crash(seed)));
        for (no, left) in left.into_iter().enumerate() {
            let what = format!("cut at call {call}, {no}");
            if left.files().iter().all(|file| file == "lock") {
                continue; // Nothing was begun.
            }
            if left.exists("control").unwrap() {
                assert_ne!(control(&left).life, old_life, "{what}");
                assert!(!rebuild(&left).unwrap(), "{what}");
                assert_eq!(counts(&left), [120, 0, 0, 0, 0], "{what}");
                whole += 1;
                continue;
            }
            for tried in [
                rebuild(&left).map(drop),
                open(&left).map(drop),
                LogDirectory::open_on(Arc::new(left.clone())).map(drop),
            ] {
                let refused = matches!(&tried, Err(Error::NotAnEnvironment { why, .. }) if why.contains("restore"));
                assert!(refused, "{what}: {tried:?}");
            }
            assert!(!left.exists("control").unwrap(), "{what}");
            cut += 1;
        }
        if is_through {
            break;
        }
    }
    assert!(cut > 100 && whole > 0, "{cut} cut, {whole} whole");
}

/// Until the first checkpoint of the new life stands, data and log say that it is the old one.
#[test]
fn a_restored_environment_that_loses_its_control_file_never_becomes_the_old_life() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    work(&env, 1, 60);
    backup(&env, &backups, false).unwrap();
    drop(env);
    let (restored, _) = restore(&backups, RestoreTo::End, &[]).unwrap();
    let life = control(&restored).life;
    let (mut refused, mut made) = (0, 0);
    for call in 1.. {
        let first = restored.snapshot();
        first.crash_at(call);
        let _ = open(&first);
        let is_through = !first.is_crashed();
        for (seed, left) in [first.after_crash(call), restored_and_killed(&restored, call)].into_iter().enumerate() {
            let what = format!("first open cut at call {call}, {seed}");
            left.replace("control", None).unwrap();
            match rebuild(&left) {
                Ok(true) => {
                    assert_eq!(control(&left).life, life, "{what}");
                    assert_eq!(counts(&left), [60, 0, 0, 0, 0], "{what}");
                    made += 1;
                }
                Err(Error::NotAnEnvironment { why, .. }) if why.contains("restore") => refused += 1,
                other => panic!("{what}: {other:?}"),
            }
        }
        if is_through {
            break;
        }
    }
    assert!(refused > 10 && made > 0, "{refused} refused, {made} made");
}

fn restored_and_killed(restored: &SimDisk, call: u64) -> SimDisk {
    let disk = restored.snapshot();
    disk.kill_at(call, 100);
    let _ = open(&disk);
    disk.after_kill()
}

/// Whatever checkpoint it names: a control file that knows of more log than there is says that the log is damaged.
#[test]
fn no_control_file_is_made_in_the_place_of_one_that_knows_of_more_log() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    work(&env, 1, 30);
    env.checkpoint().unwrap();
    let older = control(&disk);
    work(&env, 2, 30);
    env.checkpoint().unwrap();
    work(&env, 3, 3);
    let killed = disk.snapshot();
    drop(env);
    let knows = ControlState { durable_lsn: Lsn(1 << 20), newest_segment: Lsn(0), ..older };
    killed.replace("control", Some(&[knows.encode(2), knows.encode(1)].concat())).unwrap();
    let before = killed.fingerprint();
    let refused = rebuild(&killed);
    assert!(
        matches!(&refused, Err(Error::Corrupt { what }) if what.contains("it is the log that is damaged")),
        "{refused:?}"
    );
    assert_eq!(killed.fingerprint(), before);
}

/// Its pages and log may have gone another way than this life.
#[test]
fn pages_are_not_repaired_from_a_backup_of_another_life() {
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = open(&disk).unwrap();
    let moment = work(&env, 1, 100);
    backup(&env, &backups, false).unwrap();
    work(&env, 2, 100);
    backup(&env, &backups, true).unwrap();
    drop(env);
    let (target, _) = restore(
        &backups,
        RestoreTo::Lsn(moment.max(Lsn(Backup::open_on(&backups).unwrap().files()[0].log_end_lsn))),
        &[],
    )
    .unwrap();
    let env = open(&target).unwrap();
    work(&env, 3, 150);
    let set = Backup::open_on(&backups).unwrap();
    let of_another = |tried: Result<ledgerstone::RepairReport, Error>| {
        assert!(matches!(&tried, Err(Error::Corrupt { what }) if what.contains("another life")), "{tried:?}");
    };
    env.close().unwrap();
    flip(&target, "data", 5 * 4096 + 2000);
    let env = open(&target).unwrap();
    of_another(env.repair(&set, &RepairPages::AllDamaged));
    drop(env);
    let before = bytes_of(&target, "data");
    of_another(set.repair_on(Arc::new(target.clone()), &RepairPages::AllDamaged, None, |_| ()));
    assert_eq!(bytes_of(&target, "data"), before);
}

/// The log of a restored environment begins in the middle of a segment, behind zeros, and that may be far from its
/// beginning.
#[test]
fn the_log_of_a_restored_environment_is_found_however_far_behind_the_beginning_of_its_segment() {
    let options = || tiny().log_segment_bytes(8 << 20).log_buffer_bytes(1 << 20);
    let (disk, backups) = (SimDisk::new(), SimDisk::new());
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    work(&env, 1, 6000);
    backup(&env, &backups, false).unwrap();
    assert!(control(&disk).scan_lsn > Lsn(4 << 20) && control(&disk).scan_lsn < Lsn(8 << 20));
    drop(env);
    let (target, _) = restore(&backups, RestoreTo::End, &[]).unwrap();
    let env = options().open_on(Arc::new(target.clone())).unwrap();
    let last = work(&env, 2, 30);
    // A feed and a reader from the oldest record on.
    let mut feed = env.changes(Lsn(0)).unwrap();
    let mut commits = 0;
    while feed.next().unwrap().is_some() {
        commits += 1;
    }
    assert_eq!(commits, 30);
    let crashed = target.snapshot();
    drop(feed);
    env.close().unwrap();
    let shows_last = |disk: &SimDisk| {
        let mut reader = log(disk).log_reader(Lsn(0)).unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).any(|record| record.lsn() == last)
    };
    for left in [target, crashed] {
        assert!(shows_last(&left));
        left.remove("control").unwrap();
        assert!(shows_last(&left), "without a control file");
        assert!(rebuild(&left).unwrap());
        let env = options().open_on(Arc::new(left)).unwrap();
        assert_eq!(read(&env).unwrap()["t"].len(), 6030);
    }
}

/// The log of a restored environment may begin in the middle of a transaction, which has committed while the backup's
/// checkpoint wrote pages. A feed from the oldest record on passes it over.
#[test]
fn a_feed_of_a_restored_environment_passes_over_what_began_before_its_log() {
    let mut cut_short = 0;
    for nth in 1..16 {
        let (disk, backups) = (SimDisk::new(), SimDisk::new());
        let env = open(&disk).unwrap();
        work(&env, 1, 100);
        env.transact(|txn| txn.create_table("other")?.put(b"k", b"v")).unwrap();
        env.checkpoint().unwrap();
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(b"early", b"1").unwrap();
        let (go, begun) = std::sync::mpsc::sync_channel(1);
        let (done, ended) = std::sync::mpsc::channel();
        let late = std::thread::spawn(move || {
            let () = begun.recv().unwrap();
            txn.bytes("other").unwrap().put(b"late", b"2").unwrap();
            let lsn = txn.commit_with(ledgerstone::Durability::Volatile).unwrap().lsn;
            let _ = done.send(());
            lsn
        });
        let writes = std::sync::atomic::AtomicU64::new(0);
        let (taker, ended) = (std::thread::current().id(), std::sync::Mutex::new(ended));
        let start = go.clone();
        disk.set_hook(Arc::new(move |what| {
            use std::sync::atomic::Ordering::SeqCst;
            if std::thread::current().id() == taker
                && what.starts_with("write")
                && writes.fetch_add(1, SeqCst) + 1 == nth
            {
                start.try_send(()).unwrap();
                // If it needs what this thread holds, it goes on afterwards.
                let _ = ended.lock().unwrap().recv_timeout(std::time::Duration::from_millis(300));
            }
        }));
        backup(&env, &backups, false).unwrap();
        disk.set_hook(Arc::new(|_| ()));
        let _ = go.try_send(());
        let commit = late.join().unwrap();
        drop(env);
        let (target, _) = restore(&backups, RestoreTo::End, &[]).unwrap();
        let env = open(&target).unwrap();
        let last = work(&env, 2, 3);
        let mut feed = env.changes(Lsn(0)).unwrap_or_else(|error| panic!("write {nth}: {error}"));
        let mut shown = Vec::new();
        while let Some(commit) = feed.next().unwrap() {
            shown.push(commit.lsn);
        }
        assert!(shown.iter().any(|lsn| *lsn < last) && !shown.is_empty());
        let mut reader = env.log_reader(Lsn(0)).unwrap();
        let is_there = std::iter::from_fn(|| reader.next().unwrap()).any(|record| record.lsn() == commit);
        cut_short += u32::from(is_there && !shown.contains(&commit));
    }
    assert!(cut_short > 0, "no transaction was cut short");
}

/// A restore looks at the backup for a long time before it writes. What somebody makes in the directory meanwhile is
/// not its own.
#[test]
fn a_restore_takes_away_nothing_that_it_has_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let (here, backups, target) = (dir.path().join("here"), dir.path().join("backups"), dir.path().join("target"));
    let options = || Environment::options().cache_bytes(16 << 20);
    let env = options().open(&here).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put("k", "backed up")).unwrap();
    env.backup(&backups, ledgerstone::BackupOptions::default()).unwrap();
    let set = Backup::open(&backups).unwrap();
    for is_closed in [false, true] {
        let mut other = None;
        let refused = set.restore_with(&target, RestoreTo::End, &[], |_| {
            if other.is_none() {
                let env = options().open(&target).unwrap();
                env.transact(|txn| txn.bytes_or_create("theirs")?.put("k", "kept")).unwrap();
                if is_closed {
                    env.close().unwrap();
                    other = Some(None);
                } else {
                    other = Some(Some(env));
                }
            }
        });
        match is_closed {
            false => assert!(matches!(refused, Err(Error::AlreadyOpen { .. })), "{refused:?}"),
            true => assert!(matches!(refused, Err(Error::TargetNotEmpty { .. })), "{refused:?}"),
        }
        if let Some(Some(env)) = other {
            env.close().unwrap();
        }
        let env = options().open(&target).unwrap();
        assert_eq!(env.transact(|txn| txn.bytes("theirs")?.get("k")).unwrap().as_deref(), Some(&b"kept"[..]));
        env.close().unwrap();
        std::fs::remove_dir_all(&target).unwrap();
    }
    set.restore(&target, RestoreTo::End, &[]).unwrap();
}
