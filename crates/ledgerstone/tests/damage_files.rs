//! Each file of an environment missing, emptied, cut, replaced, or an older one of itself: told, or without
//! consequence. Nothing is ever made in its place, and putting it back makes the environment whole.

mod common;

use std::sync::Arc;

use common::*;
use ledgerstone::{Environment, Error};
use ledgerstone_disk::{Disk, SimDisk};

/// How the life before the damage ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Closed,
    Killed,
    PowerLost,
}

/// An environment after the script and some hundred commits, over several segments, and what it held in the middle of
/// them.
fn environment(end: End) -> (SimDisk, SimDisk, Told) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut told = script(&env);
    let mut older = None;
    for n in 0..90u64 {
        if n == 40 {
            env.checkpoint().unwrap();
            older = Some(disk.snapshot());
        }
        if n == 60 {
            env.checkpoint().unwrap();
        }
        env.transact(|txn| txn.bytes_or_create("many")?.put(&key(n), &large(n as u8, 2000))).unwrap();
        let mut after = told.last().clone();
        after.entry("many".into()).or_default().insert(key(n), large(n as u8, 2000));
        told.states.push(after);
    }
    told.durable = told.states.len() - 1;
    let disk = match end {
        End::Closed => {
            env.close().unwrap();
            disk
        }
        End::Killed => disk.snapshot(),
        End::PowerLost => disk.after_crash(3),
    };
    (disk, older.unwrap(), told)
}

fn files(disk: &SimDisk) -> Vec<String> {
    disk.files().into_iter().filter(|path| path != "lock").collect()
}

/// Opens and reads all; whatever comes must be what was committed, or an error that says what is damaged. With
/// `may_end_early` the newest commits may be missing, but none before the last checkpoint.
fn look(disk: &SimDisk, told: &Told, may_end_early: bool, what: &str) -> Result<(), Error> {
    let env = open(disk)?;
    let found = read(&env)?;
    let low = Told { durable: told.states.len().saturating_sub(31), ..told.clone() };
    low.assert_kept(&found, !may_end_early, what);
    let report = env.verify()?;
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    Ok(())
}

fn is_typed(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt { .. } | Error::ControlFile { .. } | Error::NotAnEnvironment { .. } | Error::NewerFormat { .. }
    )
}

#[test]
fn each_file_missing_emptied_cut_or_replaced() {
    let (stranger, ..) = environment(End::Closed);
    for end in [End::Closed, End::Killed, End::PowerLost] {
        let (disk, older, told) = environment(end);
        for path in files(&disk) {
            let bytes = bytes_of(&disk, &path);
            let of_stranger = stranger.exists(&path).unwrap().then(|| bytes_of(&stranger, &path));
            let of_older = older.exists(&path).unwrap().then(|| bytes_of(&older, &path));
            let half = (bytes.len() / 2) & !511;
            let mut damages = vec![
                ("removed", None),
                ("emptied", Some(Vec::new())),
                ("cut in half", Some(bytes[..half].to_vec())),
                ("cut by a block", Some(bytes[..bytes.len().saturating_sub(512)].to_vec())),
            ];
            damages.extend(of_stranger.map(|bytes| ("replaced by a stranger's", Some(bytes))));
            damages.extend(of_older.map(|bytes| ("replaced by an older one", Some(bytes))));
            for (kind, damage) in damages {
                let what = format!("{end:?}: {path} {kind}");
                let damaged = disk.snapshot();
                place(&damaged, &path, damage.as_deref());
                // Other bytes of full length at the end of a log that was not closed look like a flush that a crash cut
                // short (docs/faults.md).
                let may_end_early = end != End::Closed && path.starts_with("log/") && kind.starts_with("replaced");
                let (again, known, name) = (damaged.clone(), told.clone(), what.clone());
                let Err(error) = within(60, &what, move || look(&again, &known, may_end_early, &name)) else {
                    continue;
                };
                assert!(is_typed(&error), "{what}: {error:?}");
                // What the command line's init does, and what the library does by default.
                if let Ok(env) = open(&damaged) {
                    assert!(look_again(&env, &told), "{what}: opened at the second try with less");
                }
                place(&damaged, &path, Some(&bytes));
                let mended = within(60, &what, {
                    let (damaged, told, what) = (damaged.clone(), told.clone(), what.clone());
                    move || look(&damaged, &told, false, &what)
                });
                assert!(mended.is_ok(), "{what} and put back: {mended:?}; before: {error}");
            }
        }
    }
}

fn look_again(env: &Environment, told: &Told) -> bool {
    read(env).map_or(true, |found| found == *told.last())
}

#[test]
fn the_control_file_is_made_anew_from_data_and_log() {
    let (stranger, ..) = environment(End::Closed);
    for end in [End::Closed, End::Killed, End::PowerLost] {
        let (disk, older, told) = environment(end);
        let control = bytes_of(&disk, "control");
        let damages: [(&str, Option<Vec<u8>>); 6] = [
            ("removed", None),
            ("emptied", Some(Vec::new())),
            ("overwritten", Some(vec![0xAB; control.len()])),
            ("flipped in both slots", Some(control.iter().map(|byte| byte ^ 1).collect())),
            ("of a stranger", Some(bytes_of(&stranger, "control"))),
            ("an older one", Some(bytes_of(&older, "control"))),
        ];
        for (kind, damage) in damages {
            let what = format!("{end:?}: control {kind}");
            let damaged = disk.snapshot();
            place(&damaged, "control", damage.as_deref());
            let is_new = Environment::rebuild_control_on(Arc::new(damaged.clone())).unwrap();
            assert!(is_new || kind == "an older one", "{what}");
            look(&damaged, &told, false, &what).unwrap();
            // What is committed from now on is kept.
            let env = open(&damaged).unwrap();
            env.transact(|txn| txn.bytes("t")?.put(b"after", b"1")).unwrap();
            let env = open(&damaged.after_crash(1)).unwrap();
            assert_eq!(
                env.transact(|txn| txn.bytes("t")?.get(b"after")).unwrap().as_deref(),
                Some(&b"1"[..]),
                "{what}"
            );
        }
        // One that can be used stays as it is; and none is made that would hide damage of the log.
        assert!(!Environment::rebuild_control_on(Arc::new(disk.clone())).unwrap());
        assert_eq!(bytes_of(&disk, "control"), control);
        if end != End::Closed {
            let names = disk.list("log").unwrap();
            let damaged = disk.snapshot();
            damaged.remove(&format!("log/{}", names[names.len() - 1])).unwrap();
            let refused = Environment::rebuild_control_on(Arc::new(damaged));
            assert!(matches!(refused, Err(Error::Corrupt { .. }) | Ok(false)), "{refused:?}");
        }
    }
}

/// One flipped bit in either slot takes nothing away, and is named by who looks for damage.
#[test]
fn a_bit_of_the_control_file_flipped() {
    for end in [End::Closed, End::Killed, End::PowerLost] {
        let (disk, _, told) = environment(end);
        for slot in [0, 1] {
            for at in [0, 9, 20, 33, 57, 65, 81, 100, 115, 4000] {
                let what = format!("{end:?}: slot {slot} of control flipped at {at}");
                let damaged = disk.snapshot();
                flip(&damaged, "control", slot * 4096 + at);
                if end == End::Closed && at == 57 {
                    let env = tiny().read_only(true).open_on(Arc::new(damaged.clone())).unwrap();
                    assert_eq!(env.recovery_report().damaged_control_slot, Some(slot), "{what}");
                    let report = env.verify().unwrap();
                    let named: Vec<_> = report.problems.iter().map(|p| p.place.as_str()).collect();
                    assert_eq!(named, ["control"], "{what}");
                }
                look(&damaged, &told, false, &what).unwrap();
                assert_eq!(open(&damaged).unwrap().recovery_report().damaged_control_slot, None, "{what}: not mended");
            }
        }
    }
}

/// An error says what is the matter with a file, and not with another state of it.
#[test]
fn what_is_missing_is_not_called_short_and_what_is_being_made_is_not_called_cut_short() {
    use ledgerstone_log::{ControlFile, ControlState};
    let (disk, ..) = environment(End::Killed);
    disk.remove("double_write").unwrap();
    let error = open(&disk).map(drop).unwrap_err().to_string();
    assert!(error.contains("double_write is missing"), "{error}");

    let disk = SimDisk::new();
    let making = disk.lock("lock").unwrap();
    ControlFile::begin_creation(&disk, ControlState::new([1; 16], 4096, 64 << 10)).unwrap();
    let look = || common::tiny().create(false).open_on(Arc::new(disk.clone())).map(drop).unwrap_err();
    assert!(matches!(look(), Error::AlreadyOpen { .. }), "{:?}", look());
    drop(making);
    assert!(matches!(look(), Error::NotAnEnvironment { .. }), "{:?}", look());
}

/// Fields that cannot all be right, under a checksum that is.
#[test]
fn a_control_file_that_contradicts_itself_is_refused() {
    use ledgerstone::Lsn;
    use ledgerstone_log::{ControlSlot, ControlState};
    let (disk, ..) = environment(End::Closed);
    let ControlSlot::Valid { state, .. } = ControlSlot::decode(&bytes_of(&disk, "control")) else {
        panic!("no control file")
    };
    assert!(state.scan_lsn.0 > 8192, "nothing lies before where the scan begins");
    let cases = [
        ("redo_lsn", ControlState { redo_lsn: Lsn(state.scan_lsn.0 - 8), ..state }),
        ("redo_lsn", ControlState { redo_lsn: Lsn(state.checkpoint_lsn.0 + 8), ..state }),
        ("redo_lsn", ControlState { redo_lsn: Lsn(state.redo_lsn.0 + 1), ..state }),
        ("scan_lsn", ControlState { scan_lsn: Lsn(state.checkpoint_lsn.0 + 8), ..state }),
    ];
    for (field, wrong) in cases {
        let damaged = disk.snapshot();
        place(&damaged, "control", Some(&[wrong.encode(2), wrong.encode(1)].concat()));
        match open(&damaged).map(drop) {
            Err(Error::ControlFile { what, .. }) => assert!(what.contains(field), "{field}: {what}"),
            other => panic!("{field}: {other:?}"),
        }
    }
}

/// A damaged slot of the control file is named beside whatever else is damaged: it may have known better.
#[test]
fn a_damaged_slot_of_the_control_file_is_named_by_the_error() {
    for end in [End::Killed, End::PowerLost] {
        for slot in [0, 1] {
            let (disk, _, _) = environment(end);
            let newest = disk.list("log").unwrap().into_iter().filter(|name| ledgerstone_log::is_log_file(name)).max();
            place(&disk, &format!("log/{}", newest.unwrap()), Some(&[]));
            let said = open(&disk).map(drop).unwrap_err().to_string();
            assert!(!said.contains("slot"), "{end:?}: {said}");
            flip(&disk, "control", slot * 4096 + 57);
            let said = open(&disk).map(drop).unwrap_err().to_string();
            assert!(said.contains(&format!("slot {slot} of control is damaged too")), "{end:?}: {said}");
        }
    }
}

/// A log that has lost its control file is a log still: a backup goes on with it.
#[test]
fn a_restore_goes_on_with_the_log_of_a_directory_without_control() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut told = script(&env);
    let backups = SimDisk::new();
    env.backup_on(Arc::new(backups.clone()), ledgerstone::BackupOptions::default(), |_| ()).unwrap();
    env.transact(|txn| txn.bytes("t")?.put(b"since", b"1")).unwrap();
    let mut after = told.last().clone();
    after.get_mut("t").unwrap().insert(b"since".to_vec(), b"1".to_vec());
    told.states.push(after);
    drop(env);
    disk.remove("control").unwrap();
    let log = ledgerstone::LogDirectory::open_on(Arc::new(disk)).unwrap();
    let target = SimDisk::new();
    ledgerstone::Backup::open_on(&backups)
        .unwrap()
        .restore_on(Arc::new(target.clone()), ledgerstone::RestoreTo::End, &[log], |_| ())
        .unwrap();
    look(&target, &told, false, "restored").unwrap();
}

/// LSNs have 48 bits. Near their end ordinary changes are refused, and nothing else: reads, rollbacks, checkpoints and
/// opening go on.
#[test]
fn the_log_ends_before_its_lsns_do() {
    use ledgerstone_log::{ControlSlot, LSN_LIMIT, segment_name};
    let disk = SimDisk::new();
    open(&disk).unwrap().close().unwrap();
    let bytes = bytes_of(&disk, "control");
    let ControlSlot::Valid { state, .. } = ControlSlot::decode(&bytes) else { panic!("no control file") };
    // The same environment, closed as if it had used up nearly all.
    let near = LSN_LIMIT.0 - 4 * (64 << 10);
    let mut state = state.of_a_copy();
    state.scan_lsn = ledgerstone::Lsn(near);
    state.checkpoint_lsn = ledgerstone::Lsn(0);
    state.scan_incarnation = state.incarnation_max;
    place(&disk, "control", Some(&[state.encode(2), state.encode(1)].concat()));
    for name in disk.list("log").unwrap() {
        disk.remove(&format!("log/{name}")).unwrap();
    }
    place(&disk, &format!("log/{}", segment_name(near)), Some(&vec![0; 64 << 10]));
    let env = open(&disk).unwrap();
    assert!(env.stat().unwrap().lsn_used_percent == 99, "{}", env.stat().unwrap().lsn_used_percent);
    env.transact(|txn| txn.create_table("t").and(txn.create_table("u")).map(|_| ())).unwrap();
    let holder = env.begin().unwrap();
    holder.bytes_or_create("t").unwrap().put(b"never", &[1; 500]).unwrap();
    let mut kept = 0;
    let refused = loop {
        let done = env.transact(|txn| txn.bytes_or_create("u")?.put(&key(kept), &[7; 600]));
        match done {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 2000, "never refused");
    };
    assert!(matches!(refused, Error::LsnsUsedUp { .. }), "{refused}");
    assert!(kept > 50, "{kept}");
    holder.abort().unwrap();
    env.checkpoint().unwrap();
    env.close().unwrap();
    for n in 0..5 {
        let disk = disk.after_crash(n);
        let env = open(&disk).unwrap();
        let found = read(&env).unwrap();
        assert_eq!(found["u"].len() as u64, kept);
        assert_eq!(found.get("t").map_or(0, |t| t.len()), 0);
        let refused = env.transact(|txn| txn.bytes("u")?.put(b"more", &[7; 60_000]));
        assert!(matches!(refused, Err(Error::LsnsUsedUp { .. })), "{refused:?}");
        assert!(!env.is_failed());
    }
}

/// One flipped bit is one problem, at the page that it is in, with what mends it.
#[test]
fn verify_tells_each_damage_once() {
    use ledgerstone::{IndexDef, IndexKeys};
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &IndexDef::new("by", IndexKeys::Bytes { from: 0, to: Some(8) }))
    })
    .unwrap();
    for round in 0..8u64 {
        env.transact(|txn| {
            let table = txn.bytes("t")?;
            (0..150).try_for_each(|n| table.put(&key(round * 150 + n), &large(n as u8, 700)))?;
            table.put(&[b'l', round as u8], &large(3, 40_000))
        })
        .unwrap();
    }
    env.close().unwrap();
    let page_count = len_of(&disk, "data") / 4096;
    // No copies to mend torn pages with.
    let bytes = vec![0; len_of(&disk, "double_write") as usize - 32_768];
    overwrite(&disk, "double_write", 32_768, &bytes);
    let (mut in_table, mut in_index) = (0, 0);
    for page in (2..page_count).step_by(11) {
        let damaged = disk.snapshot();
        flip(&damaged, "data", page * 4096 + 1000);
        let Ok(env) = tiny().read_only(true).open_on(Arc::new(damaged)) else { continue };
        let Ok(report) = env.verify() else { continue }; // The catalog.
        if report.problems.is_empty() {
            continue; // A free page.
        }
        assert_eq!(report.problems.len(), 1, "page {page}: {:#?}", report.problems);
        let problem = &report.problems[0];
        assert_eq!(problem.page, Some(page), "{problem:?}");
        let mend = problem.mend.as_deref().unwrap_or_default();
        if problem.place == "index by of t" {
            assert!(mend.contains("index drop DIR t by"), "{mend}");
            in_index += 1;
        } else {
            assert!(mend.contains(&format!("--page {page}")), "{mend}");
            in_table += 1;
        }
    }
    assert!(in_table > 10 && in_index > 0, "{in_table} in the table, {in_index} in the index");
}

/// The LSN of the first byte that is not in the older segment.
fn first_lost(path: &str, bytes: &[u8], older: &[u8]) -> u64 {
    let name = path.trim_start_matches("log/").trim_end_matches(".seg");
    let same = bytes.iter().zip(older).take_while(|(a, b)| a == b).count();
    u64::from_str_radix(name, 16).unwrap() + same as u64
}

/// The largest mark of the double-write file (docs/format/double-write.md).
fn newest_mark(disk: &SimDisk) -> u64 {
    let area = bytes_of(disk, "double_write");
    let marks = area.chunks_exact(4096).filter(|block| block.starts_with(b"LSTDMARK"));
    marks.map(|mark| u64::from_le_bytes(mark[8..16].try_into().unwrap())).max().unwrap_or(0)
}

/// Pages are at home whose log is gone. No record that is left speaks of them, so they are found by the marks of the
/// double-write file. That happens before recovery has written over what the log file that is put back would need.
#[test]
fn a_log_that_lost_its_end_is_refused_before_anything_is_written() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..6000).try_for_each(|n| table.put(&key(n), &[1; 100]))
    })
    .unwrap();
    env.checkpoint().unwrap();
    let mut by_marks = 0;
    for round in 0..6u8 {
        let older = disk.snapshot();
        // The newest that differs: older bytes of full length, as a lost write leaves them.
        let newest = |of: &SimDisk| {
            let names = older.list("log").unwrap().into_iter().rev().map(|name| format!("log/{name}"));
            names.into_iter().find(|path| older.bytes_of(path) != of.bytes_of(path))
        };
        // Until pages have been written since it was begun: what nothing on the disk speaks of, nobody can miss.
        let (mut path, mut double_write, mut batch_count) = (None, None, 0);
        for (count, n) in (0..6000).step_by(45).cycle().enumerate() {
            if count >= 134 && batch_count >= 3 {
                break;
            }
            assert!(count < 50_000, "no pages are written");
            env.transact(|txn| txn.bytes("t")?.put(&key(n), &[round; 100])).unwrap();
            let (path_before, written_before) =
                (path.replace(newest(&disk)), double_write.replace(disk.bytes_of("double_write")));
            if path != path_before {
                batch_count = 0;
            } else if double_write != written_before {
                batch_count += 1;
            }
        }
        let killed = disk.snapshot();
        let Some(path) = newest(&killed) else { continue };
        let bytes = bytes_of(&killed, &path);
        place(&killed, &path, older.bytes_of(&path).as_deref());
        let all = |disk: &SimDisk| -> Vec<_> { disk.files().into_iter().map(|file| disk.bytes_of(&file)).collect() };
        let before = all(&killed);
        let (lost, known) = (first_lost(&path, &bytes, &bytes_of(&older, &path)), newest_mark(&killed));
        let refused = open(&killed).map(drop);
        // What was lost may begin behind all marks: then no page of it is at home, and nobody knows of it
        // (docs/faults.md).
        if refused.is_ok() && known <= lost {
            continue;
        }
        let Err(Error::Corrupt { what }) = refused else {
            panic!("round {round}: {refused:?}, {known} known, {lost} lost")
        };
        assert!(all(&killed) == before, "round {round}: refused, and something was written: {what}");
        by_marks += u32::from(what.contains("double_write"));
        place(&killed, &path, Some(&bytes));
        let env = open(&killed).unwrap();
        assert_eq!(env.transact(|txn| txn.bytes("t")?.get(&key(0))).unwrap(), Some(vec![round; 100]));
        assert_sound(&env, "put back");
    }
    assert!(by_marks > 0, "the marks were not needed");
}
