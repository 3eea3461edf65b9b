//! A process is killed, the next one believes what it finds, and then the power fails: what anybody was told stays.
//!
//! What the killed process had written and not synced is in the system's cache. It looks as if it were there, and goes
//! with the power.

mod common;

use std::sync::Arc;

use common::*;
use ledgerstone::{Durability, Environment, Error, LogDirectory, LogFilter, Lsn, RecordKind};
use ledgerstone_disk::SimDisk;

/// Power failures that are tried after each kill.
const SEEDS: u64 = 6;

/// An environment with records, closed.
fn base() -> SimDisk {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..30).try_for_each(|n| table.put(&key(n), &[1; 100]).map(drop))
    })
    .unwrap();
    env.close().unwrap();
    disk
}

/// Writes pages, log and control file.
fn work(env: &Environment) -> Result<(), Error> {
    for round in 2..5 {
        env.transact(|txn| {
            let table = txn.bytes("t")?;
            (0..30).step_by(round).try_for_each(|n| table.put(&key(n), &[round as u8; 300]).map(drop))
        })?;
        env.checkpoint()?;
    }
    Ok(())
}

/// What `base` leaves after a process was killed in its n-th change of the disk, for every `n`.
fn killed() -> impl Iterator<Item = (String, SimDisk)> {
    let base = base();
    (1..).map_while(move |n| {
        let disk = base.snapshot();
        disk.kill_at(n, if n % 3 == 0 { 4096 } else { u64::MAX });
        let done = open(&disk).and_then(|env| work(&env));
        if done.is_ok() {
            assert!(n > 20, "there are only {n} changes");
            return None;
        }
        Some((format!("killed in change {n}"), disk.after_kill()))
    })
}

fn assert_survives(disk: &SimDisk, state: &State, what: &str) {
    for seed in 0..SEEDS {
        let after = open(&disk.snapshot().after_crash(seed)).unwrap_or_else(|e| panic!("{what}, seed {seed}: {e}"));
        assert!(read(&after).unwrap() == *state, "{what}, seed {seed}: records are lost");
        assert_sound(&after, what);
    }
}

#[test]
fn what_was_read_after_a_kill_survives_a_power_failure() {
    for (what, disk) in killed() {
        let env = open(&disk).unwrap();
        let state = read(&env).unwrap();
        assert_survives(&disk, &state, &what);
    }
}

#[test]
fn what_was_committed_after_a_kill_survives_a_power_failure_with_all_before_it() {
    for (what, disk) in killed() {
        let env = open(&disk).unwrap();
        env.transact(|txn| txn.bytes_or_create("marker")?.put(b"k", b"v")).unwrap();
        let state = read(&env).unwrap();
        assert_survives(&disk, &state, &what);
    }
}

#[test]
fn the_power_may_fail_at_every_change_of_the_recovery_after_a_kill() {
    for (what, disk) in killed().step_by(3) {
        let before = read(&open(&disk.snapshot()).unwrap()).unwrap();
        for n in (1..).step_by(2) {
            let life = disk.snapshot();
            life.crash_at(n);
            let opened = open(&life);
            let is_through = !life.is_crashed();
            let after = open(&life.after_crash(n)).unwrap_or_else(|e| panic!("{what}, power lost at change {n}: {e}"));
            // The last commit had no answer.
            let state = read(&after).unwrap();
            assert!(state["t"].len() == before["t"].len(), "{what}, power lost at change {n}");
            assert_sound(&after, &what);
            drop(opened);
            if is_through {
                break;
            }
        }
    }
}

#[test]
fn records_that_the_log_of_a_killed_process_has_shown_survive_a_power_failure() {
    let commits = |mut reader: ledgerstone::LogReader| -> Vec<Lsn> {
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            found.push(record.lsn());
        }
        found
    };
    let only = || LogFilter::default().kind(RecordKind::Commit);
    for (what, disk) in killed() {
        let directory = LogDirectory::open_on(Arc::new(disk.clone())).unwrap();
        let shown = commits(directory.log_reader(Lsn(0)).unwrap().with_filter(only()));
        for seed in 0..SEEDS {
            let after = LogDirectory::open_on(Arc::new(disk.snapshot().after_crash(seed))).unwrap();
            let left = commits(after.log_reader(Lsn(0)).unwrap().with_filter(only()));
            assert!(left == shown, "{what}, seed {seed}: {shown:?} were shown, {left:?} are left");
        }
    }
}

#[test]
fn an_environment_that_is_only_read_survives_a_power_failure_as_it_was_read() {
    let base = base();
    for n in 1.. {
        let disk = base.snapshot();
        let env = open(&disk).unwrap();
        env.transact(|txn| txn.bytes("t")?.put(&key(5), b"in the log alone")).unwrap();
        disk.kill_at(disk.counters().mutations + n, u64::MAX);
        let is_through = env.close().is_ok();
        let disk = disk.after_kill();
        let reader = tiny().read_only(true).open_on(Arc::new(disk.clone())).unwrap();
        let txn = reader.begin().unwrap();
        assert_eq!(txn.bytes("t").unwrap().get(&key(5)).unwrap(), Some(b"in the log alone".to_vec()));
        txn.commit_with(Durability::Sync).unwrap();
        let state = read(&reader).unwrap();
        assert_survives(&disk, &state, &format!("killed in change {n} of a close"));
        if is_through {
            break;
        }
    }
}

/// The name that a killed process gave to the file of positions is durable before log is given up that an older one
/// would need.
#[test]
fn a_feed_goes_on_after_its_reader_was_killed_and_the_power_lost() {
    let base = base();
    for n in 1.. {
        let disk = base.snapshot();
        let env = open(&disk).unwrap();
        let mut feed = env.named_changes("f").unwrap();
        feed.acknowledge(feed.position()).unwrap();
        work(&env).unwrap();
        let mut at = feed.position();
        while let Some(commit) = feed.next().unwrap() {
            at = commit.position;
        }
        disk.kill_at(disk.counters().mutations + n, u64::MAX);
        let is_through = feed.acknowledge(at).is_ok();
        drop((feed, env));
        let disk = disk.after_kill();
        let env = open(&disk).unwrap();
        for round in 0..3u8 {
            env.transact(|txn| (0..60).try_for_each(|n| txn.bytes("t")?.put(&key(n), &[round; 2000]).map(drop)))
                .unwrap();
            env.checkpoint().unwrap();
        }
        for seed in 0..SEEDS {
            let after = open(&disk.snapshot().after_crash(seed)).unwrap();
            let mut feed = after.named_changes("f").unwrap();
            let mut count = 0;
            while let Some(_commit) = feed.next().unwrap_or_else(|e| panic!("killed in change {n}, seed {seed}: {e}")) {
                count += 1;
            }
            assert!(count >= 3, "killed in change {n}, seed {seed}: {count} commits");
        }
        if is_through {
            assert!(n > 3, "an acknowledgement has only {n} changes");
            break;
        }
    }
}

/// A mark of the double-write file, as it would be found at the end of a slot that holds a page of a large value.
#[test]
fn a_value_that_looks_like_a_mark_shuts_no_environment() {
    const PAGE_BYTES: usize = 8192;
    const CONTENT_AT: usize = 48; // docs/format/blob.md
    let mut mark = b"LSTDMARK".to_vec();
    mark.extend_from_slice(&(1_u64 << 40).to_le_bytes());
    let checksum = crc32c::crc32c(&mark);
    mark.extend_from_slice(&checksum.to_le_bytes());
    let mut content = vec![0; PAGE_BYTES - CONTENT_AT];
    content[4096 - CONTENT_AT..][..mark.len()].copy_from_slice(&mark);
    let value = content.repeat(4);

    let disk = SimDisk::new();
    let options =
        || tiny().page_bytes(PAGE_BYTES as u32).cache_bytes(64 * PAGE_BYTES as u64).log_buffer_bytes(256 << 10);
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &value)).unwrap();
    env.checkpoint().unwrap();
    for damages_header in [false, true] {
        let crashed = disk.after_crash(1);
        if damages_header {
            let mut bytes = crashed.bytes_of("double_write").unwrap();
            bytes[24] ^= 1;
            crashed.replace("double_write", Some(&bytes)).unwrap();
        }
        let env = options().open_on(Arc::new(crashed)).unwrap();
        assert!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_deref() == Some(&value[..]));
        assert_sound(&env, "after a crash");
    }
}
