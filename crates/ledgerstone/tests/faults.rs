//! Every call on the device fails once, and what was acknowledged is there afterwards.
//!
//! One script runs on a disk whose n-th call of a kind fails, for every n until no call is left to fail. After each
//! run, every call has returned a value or a typed error, and nothing has hung. The environment opens again on the
//! healthy disk with the first m commits. Those cover all that were acknowledged as durable.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};

use common::*;
use ledgerstone::{Environment, Error};
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

const EIO: DiskErrorKind = DiskErrorKind::Io(5);

fn open_faulty(disk: &FaultDisk) -> Result<Environment, Error> {
    tiny().open_on(Arc::new(disk.clone()))
}

/// Runs the script with one fault; returns whether the fault was met.
fn run_with(fault: Fault) -> bool {
    let what = format!("{fault:?}");
    let name = what.clone();
    within(60, &name, move || {
        let disk = SimDisk::new();
        let faulty = FaultDisk::new(Arc::new(disk.clone()));
        let (is_lie, is_panic) = (fault.harm == Harm::Lie, fault.harm == Harm::Panic);
        faulty.add(fault);
        // A disk of the program's own that panics before the environment has it: the caller sees that.
        let opened = catch_unwind(AssertUnwindSafe(|| open_faulty(&faulty)));
        assert!(opened.is_ok() || is_panic, "{what}");
        let told = match opened.unwrap_or_else(|_| Err(Error::NoSuchTable(what.clone()))) {
            Ok(env) => {
                let told = script(&env);
                if env.is_failed() {
                    assert!(matches!(env.begin(), Err(Error::Failed { .. })), "{what}: begin on a failed environment");
                    assert!(env.checkpoint().is_err() && env.reclaim().is_err(), "{what}");
                }
                drop(env);
                told
            }
            Err(error) => {
                assert!(!matches!(error, Error::Panicked(_)), "{what}: {error}");
                Told::default()
            }
        };
        let was_met = faulty.hits() > 0;
        // The machine goes on: all that was written is there. Then the power fails too.
        let copies = [(disk.snapshot(), false), (disk.after_crash(7), true)];
        for (disk, has_crashed) in copies.into_iter().filter(|(_, has_crashed)| !(is_lie && *has_crashed)) {
            let env = open(&disk).unwrap_or_else(|error| panic!("{what}, crash {has_crashed}: open: {error}"));
            let found = read(&env).unwrap_or_else(|error| panic!("{what}, crash {has_crashed}: read: {error}"));
            told.assert_kept(&found, false, &format!("{what}, crash {has_crashed}"));
            assert_sound(&env, &what);
            env.transact(|txn| txn.bytes_or_create("after")?.put(b"k", b"v")).unwrap();
            env.close().unwrap();
        }
        was_met
    })
}

fn every_nth(call: Call, harm: Harm) {
    for nth in 1.. {
        if !run_with(Fault::at(call, nth, harm)) {
            assert!(nth > 1, "no {call:?} was ever made");
            break;
        }
    }
}

#[test]
fn the_script_itself_meets_no_error() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    assert_eq!(told.errors, Vec::<String>::new());
    told.assert_kept(&read(&env).unwrap(), true, "running");
    env.close().unwrap();
    let env = open(&disk).unwrap();
    assert!(env.recovery_report().was_clean);
    told.assert_kept(&read(&env).unwrap(), true, "reopened");
    assert_sound(&env, "reopened");
}

#[test]
fn every_write_fails_once() {
    every_nth(Call::Write, Harm::Fail(EIO));
}

#[test]
fn every_write_is_cut_short_once() {
    every_nth(Call::Write, Harm::Short);
}

#[test]
fn every_write_finds_no_space_once() {
    every_nth(Call::Write, Harm::Fail(DiskErrorKind::NoSpace));
}

#[test]
fn every_sync_fails_once() {
    every_nth(Call::Sync, Harm::Fail(EIO));
}

#[test]
fn every_sync_lies_once() {
    every_nth(Call::Sync, Harm::Lie);
}

#[test]
fn every_read_fails_once() {
    every_nth(Call::Read, Harm::Fail(EIO));
}

#[test]
fn every_read_is_cut_short_once() {
    every_nth(Call::Read, Harm::Short);
}

#[test]
fn every_read_has_one_wrong_bit_once() {
    every_nth(Call::Read, Harm::FlipBit(77_777));
}

#[test]
fn every_call_for_space_fails_once() {
    every_nth(Call::Allocate, Harm::Fail(EIO));
    every_nth(Call::Allocate, Harm::Fail(DiskErrorKind::NoSpace));
}

#[test]
fn every_open_fails_once() {
    every_nth(Call::Open, Harm::Fail(EIO));
    every_nth(Call::Open, Harm::Fail(DiskErrorKind::Permission));
}

#[test]
fn every_change_of_a_name_fails_once() {
    every_nth(Call::Name, Harm::Fail(EIO));
    every_nth(Call::SyncDir, Harm::Fail(EIO));
}

#[test]
fn the_device_goes_away_for_good() {
    for nth in (1..).step_by(3) {
        if !run_with(Fault::at(Call::Any, nth, Harm::Fail(EIO)).from_then_on()) {
            break;
        }
    }
}

/// A disk as a crash leaves it after the script: commits in the log that no page has, and a loser.
fn crashed() -> (SimDisk, Told) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    let loser = env.begin().unwrap();
    for n in 0..30 {
        loser.bytes("t").unwrap().put(&key(n), b"by the loser").unwrap();
    }
    loser.create_table("by the loser").unwrap();
    // Brings the loser's records to the device.
    env.transact(|txn| txn.bytes("u")?.delete(&key(999))).unwrap();
    let after = disk.after_crash(3);
    drop(loser);
    (after, told)
}

#[test]
fn every_call_of_a_recovery_fails_once() {
    let (disk, told) = crashed();
    for (call, harm) in [
        (Call::Any, Harm::Fail(EIO)),
        (Call::Any, Harm::Fail(DiskErrorKind::NoSpace)),
        (Call::Write, Harm::Short),
        (Call::Read, Harm::FlipBit(4_321)),
    ] {
        for nth in 1.. {
            let (disk, told) = (disk.snapshot(), told.clone());
            let what = format!("recovery with {call:?} {nth} {harm:?}");
            let name = what.clone();
            let was_met = within(60, &name, move || {
                let faulty = FaultDisk::new(Arc::new(disk.clone()));
                faulty.add(Fault::at(call, nth, harm));
                if let Ok(env) = open_faulty(&faulty) {
                    if let Ok(found) = read(&env) {
                        told.assert_kept(&found, false, &what);
                    }
                    let _ = env.close();
                }
                for disk in [disk.snapshot(), disk.after_crash(nth)] {
                    let env = open(&disk).unwrap_or_else(|error| panic!("{what}: second open: {error}"));
                    told.assert_kept(&read(&env).unwrap(), false, &what);
                    assert_sound(&env, &what);
                }
                faulty.hits() > 0
            });
            if !was_met {
                break;
            }
        }
    }
}

/// However many pages were in flight: 256 pages and the header are no 257 reads.
#[test]
fn an_open_reads_the_double_write_file_in_few_reads() {
    let disk = crashed().0;
    let count = (1..)
        .find(|&n| {
            let faulty = FaultDisk::new(Arc::new(disk.snapshot()));
            faulty.add(Fault::at(Call::Read, n, Harm::Fail(EIO)).on("double_write"));
            let opened = open_faulty(&faulty);
            assert_eq!(opened.is_err(), faulty.hits() > 0, "read {n}");
            opened.is_ok()
        })
        .unwrap();
    assert!(count - 1 <= 4, "{} reads of the double-write file", count - 1);
}

/// Bits that are wrong on their way to the disk: found, or without consequence; never a wrong answer.
#[test]
fn every_write_has_one_wrong_bit_once() {
    for nth in 1.. {
        let what = format!("wrong bit in write {nth}");
        let name = what.clone();
        let was_met = within(60, &name, move || {
            let disk = SimDisk::new();
            let faulty = FaultDisk::new(Arc::new(disk.clone()));
            faulty.add(Fault::at(Call::Write, nth, Harm::FlipBit(nth * 997)));
            let told = open_faulty(&faulty).map(|env| script(&env)).unwrap_or_default();
            if let Ok(env) = open(&disk)
                && let Ok(found) = read(&env)
            {
                let report = env.verify().unwrap();
                if report.problems.is_empty() {
                    told.assert_kept(&found, false, &what);
                }
            }
            faulty.hits() > 0
        });
        if !was_met {
            break;
        }
    }
}

#[test]
fn a_disk_is_as_good_as_new_after_its_faults() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let env = open_faulty(&faulty).unwrap();
    let told = script(&env);
    faulty.add(Fault::at(Call::Sync, 1, Harm::Fail(EIO)));
    let failed = env.transact(|txn| txn.bytes("t")?.put(b"lost?", b"?"));
    assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
    faulty.behave();
    // A sync is never tried again and believed: the environment stays failed although the disk is well.
    for _ in 0..3 {
        let failed = env.transact(|txn| txn.bytes("t")?.get(b"last"));
        assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
    }
    drop(env);
    let env = open(&disk).unwrap();
    let mut found = read(&env).unwrap();
    found.get_mut("t").unwrap().remove(&b"lost?"[..]);
    told.assert_kept(&found, true, "reopened");
    assert!(disk.exists("control").unwrap());
}

#[test]
fn every_call_panics_once() {
    for call in [Call::Read, Call::Write, Call::Sync, Call::Allocate, Call::Open, Call::Name, Call::SyncDir] {
        every_nth(call, Harm::Panic);
    }
}

/// The thread that leads a flush holds what all the others wait for.
#[test]
fn nobody_waits_for_a_thread_whose_disk_panicked() {
    for nth in 1..=8 {
        within(60, "commits beside a disk that panics", move || {
            let faulty = FaultDisk::new(Arc::new(SimDisk::new()));
            let env = open_faulty(&faulty).unwrap();
            env.transact(|txn| txn.bytes_or_create("t").map(drop)).unwrap();
            faulty.add(Fault::at(Call::Write, nth, Harm::Panic).on("log"));
            let (start, threads) = (Barrier::new(4), 0..4_u32);
            std::thread::scope(|scope| {
                for no in threads {
                    let (env, start) = (&env, &start);
                    scope.spawn(move || {
                        start.wait();
                        // Each commit waits for the device, until one of them has failed.
                        for key in 0.. {
                            let put = |txn: &ledgerstone::Transaction| {
                                txn.bytes("t")?.put(&[no.to_le_bytes(), u32::to_le_bytes(key)].concat(), b"v")
                            };
                            if let Err(error) = env.transact(put) {
                                assert!(matches!(error, Error::Failed { .. }), "{error:?}");
                                break;
                            }
                        }
                    });
                }
            });
            assert!(env.is_failed() && env.close().is_err());
        });
    }
}
