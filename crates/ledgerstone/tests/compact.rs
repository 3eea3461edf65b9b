//! What compaction promises: the file becomes short while everything goes on, and nothing is lost.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ledgerstone::{CompactPhase, Durability, Environment, Error, Options, TransactionOptions};
use ledgerstone_disk::SimDisk;

fn small() -> Options {
    Environment::options().cache_bytes(4 << 20).page_count_max(1 << 20).log_segment_bytes(4 << 20)
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Scrambled, so that neighbours are not deleted together.
fn is_deleted(n: u64) -> bool {
    (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & 1 == 0
}

fn fill(env: &Environment, name: &str, count: u64, len: usize) -> Result<(), Error> {
    for first in (0..count).step_by(1000) {
        env.transact_with(volatile(), |txn| {
            let table = txn.bytes_or_create(name)?;
            (first..count.min(first + 1000)).try_for_each(|n| table.put(&key(n), &vec![n as u8; len]))
        })?;
    }
    Ok(())
}

#[allow(clippy::field_reassign_with_default)]
fn volatile() -> TransactionOptions {
    let mut options = TransactionOptions::default();
    options.durability = Some(Durability::Volatile);
    options
}

fn thin_out(env: &Environment, name: &str, count: u64) -> Result<(), Error> {
    for first in (0..count).step_by(1000) {
        env.transact_with(volatile(), |txn| {
            let table = txn.bytes(name)?;
            (first..count.min(first + 1000))
                .filter(|&n| is_deleted(n))
                .try_for_each(|n| table.delete(&key(n)).map(drop))
        })?;
    }
    Ok(())
}

fn assert_thinned(env: &Environment, name: &str, count: u64, len: usize) -> Result<(), Error> {
    let txn = env.begin()?;
    let table = txn.bytes(name)?;
    let found: Vec<_> = table.range(..)?.collect::<Result<_, _>>()?;
    let expected: Vec<_> = (0..count).filter(|&n| !is_deleted(n)).map(|n| (key(n), vec![n as u8; len])).collect();
    assert!(found == expected, "{} records, {} expected", found.len(), expected.len());
    Ok(())
}

fn assert_sound(env: &Environment) -> Result<(), Error> {
    let report = env.verify()?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

fn data_bytes(dir: &std::path::Path) -> u64 {
    std::fs::metadata(dir.join("data")).unwrap().len()
}

#[test]
fn a_file_of_which_half_the_records_were_deleted_is_halved_while_a_bank_works_beside() -> Result<(), Error> {
    const COUNT: u64 = 60_000;
    const ACCOUNTS: u64 = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    fill(&env, "records", COUNT, 100)?;
    env.transact(|txn| {
        for table in ["accounts", "tellers", "branches"] {
            let table = txn.bytes_or_create(table)?;
            (0..ACCOUNTS).try_for_each(|n| table.put(&key(n), &0i64.to_le_bytes()))?;
        }
        txn.bytes_or_create("history").map(drop)
    })?;
    thin_out(&env, "records", COUNT)?;
    let before = data_bytes(dir.path());
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let report = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2u64)
            .map(|worker| {
                let (env, stop, done) = (env.clone(), &stop, &done);
                scope.spawn(move || {
                    let mut n = worker;
                    // Bounded, so that the history does not outgrow what is measured.
                    while !stop.load(Relaxed) && n < 4_000 {
                        let delta = n as i64 % 100 - 50;
                        env.transact_with(volatile(), |txn| {
                            for (table, no) in [("accounts", n * 7919), ("tellers", n), ("branches", n / 10 % 4)] {
                                txn.bytes(table)?.modify(&key(no % ACCOUNTS), |old| {
                                    let old = i64::from_le_bytes(old.try_into().expect("8 bytes"));
                                    Some((old + delta).to_le_bytes().to_vec())
                                })?;
                            }
                            txn.bytes("history")?.put(&key(n), &delta.to_le_bytes())
                        })
                        .unwrap();
                        done.fetch_add(1, Relaxed);
                        n += 2;
                    }
                })
            })
            .collect();
        while done.load(Relaxed) < 10 {
            std::thread::yield_now();
        }
        let report = env.compact();
        stop.store(true, Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        report
    })?;
    let after = data_bytes(dir.path());
    assert_eq!(after, report.page_count_after * 4096);
    assert!(after * 100 <= before * 55, "{before} bytes before, {after} after: {report:?}");
    assert_sound(&env)?;
    assert_thinned(&env, "records", COUNT, 100)?;
    let sum = |name: &str| -> Result<i64, Error> {
        let txn = env.begin()?;
        let mut sum = 0;
        txn.bytes(name)?.range(..)?.for_each_ref(|_, value| {
            sum += i64::from_le_bytes(value.try_into().expect("8 bytes"));
            true
        })?;
        Ok(sum)
    };
    let history = sum("history")?;
    for table in ["accounts", "tellers", "branches"] {
        assert_eq!(sum(table)?, history, "{table}");
    }
    env.close()?;
    let env = small().open(dir.path())?;
    assert_sound(&env)?;
    assert_thinned(&env, "records", COUNT, 100)
}

#[test]
fn tables_with_large_values_and_dropped_tables_give_their_space_back() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    fill(&env, "gone", 5_000, 200)?;
    fill(&env, "large", 40, 50_000)?;
    fill(&env, "kept", 500, 100)?;
    env.transact(|txn| txn.drop_table("gone"))?;
    thin_out(&env, "large", 40)?;
    let report = env.compact()?;
    assert!(report.page_count_after * 10 <= report.page_count_before * 6, "{report:?}");
    assert!(report.page_count_after <= report.allocated_page_count + 128, "{report:?}");
    assert_sound(&env)?;
    assert_thinned(&env, "large", 40, 50_000)?;
    // The file grows again over the pages that it lost.
    fill(&env, "new", 5_000, 200)?;
    assert_sound(&env)?;
    env.close()?;
    let env = small().open(dir.path())?;
    assert_sound(&env)?;
    let txn = env.begin()?;
    assert_eq!(txn.bytes("new")?.count()?, 5_000);
    Ok(())
}

#[test]
fn a_compaction_ends_when_it_is_told_to_and_a_second_one_goes_on() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    fill(&env, "records", 10_000, 100)?;
    thin_out(&env, "records", 10_000)?;
    let mut steps = 0;
    let report = env.compact_with(|progress| {
        assert!(progress.done < progress.total && progress.page_count > 0);
        steps += 1;
        if steps == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    assert!(report.was_cancelled && report.moved_page_count == 0, "{report:?}");
    assert_thinned(&env, "records", 10_000, 100)?;
    let report = env.compact()?;
    assert!(!report.was_cancelled && report.page_count_after <= report.allocated_page_count + 128, "{report:?}");
    assert_sound(&env)?;
    assert_thinned(&env, "records", 10_000, 100)
}

#[test]
fn an_uncommitted_transaction_rolls_back_across_a_compaction() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    fill(&env, "records", 10_000, 100)?;
    thin_out(&env, "records", 10_000)?;
    let txn = env.begin()?;
    let table = txn.bytes("records")?;
    let touched = (0..10_000).filter(|&n| !is_deleted(n)).step_by(37);
    for (at, n) in touched.enumerate() {
        match at % 3 {
            0 => table.put(&key(n), b"shorter")?,
            1 => drop(table.delete(&key(n))?),
            _ => table.put(&[key(n), vec![1]].concat(), &[7; 300])?,
        }
    }
    let report = env.compact()?;
    assert!(report.moved_page_count > 0 || report.merged_page_count > 0, "{report:?}");
    drop(txn);
    assert_sound(&env)?;
    assert_thinned(&env, "records", 10_000, 100)
}

/// Leaves are passed one after the other, and about as many as was said: so a program can say how long it will take.
#[test]
fn progress_counts_the_leaves_that_a_phase_passes() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    fill(&env, "records", 20_000, 100)?;
    fill(&env, "large", 30, 9_000)?;
    thin_out(&env, "records", 20_000)?;
    let (mut packed, mut moved) = (Vec::new(), Vec::new());
    env.compact_with(|at| {
        let of_phase = if at.phase == CompactPhase::Pack { &mut packed } else { &mut moved };
        of_phase.push((at.leaf_count, at.leaf_count_about));
    })?;
    for (name, steps) in [("pack", packed), ("move", moved)] {
        let (last, about) = *steps.last().expect("each phase has something to do");
        assert!(about > 100 && (about * 3 / 4..=about * 5 / 4).contains(&last), "{name}: {last} of about {about}");
        // Moving begins anew with each round.
        let is_onward = |pair: &[(u64, u64)]| pair[0].0 <= pair[1].0 || pair[1].0 == 0;
        assert!(steps.windows(2).all(is_onward) && steps.iter().all(|(done, about)| done <= about), "{steps:?}");
    }
    assert_thinned(&env, "records", 20_000, 100)?;
    assert_sound(&env)
}

#[test]
fn deletions_that_leave_little_in_each_page_merge_pages_in_ordinary_life() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    fill(&env, "records", 10_000, 100)?;
    let full = env.stat()?.allocated_page_count;
    env.transact(|txn| {
        let table = txn.bytes("records")?;
        (0..10_000).filter(|n| n % 10 != 0).try_for_each(|n| table.delete(&key(n)).map(drop))
    })?;
    env.reclaim()?;
    let left = env.stat()?.allocated_page_count;
    assert!(left * 2 < full, "{full} pages before, {left} after");
    assert_sound(&env)
}

/// `CRASH_STEP` says how many writes lie between two tries: 1 tries them all.
#[test]
fn power_lost_at_any_write_of_a_compaction_loses_nothing() -> Result<(), Error> {
    const COUNT: u64 = 2_000;
    const LARGE: u64 = 30;
    let tiny = || {
        let options = Environment::options().cache_bytes(64 * 4096).page_count_max(1 << 14).lock_count_max(4096);
        options.log_segment_bytes(64 << 10).log_buffer_bytes(128 << 10).transaction_count_max(16)
    };
    let thin = SimDisk::new();
    let env = tiny().open_on(Arc::new(thin.clone()))?;
    fill(&env, "records", COUNT, 100)?;
    fill(&env, "large", LARGE, 9_000)?;
    thin_out(&env, "records", COUNT)?;
    thin_out(&env, "large", LARGE)?;
    env.close()?;
    let undisturbed = {
        let env = tiny().open_on(Arc::new(thin.snapshot()))?;
        env.compact()?
    };
    assert!(undisturbed.page_count_after * 10 <= undisturbed.page_count_before * 7, "{undisturbed:?}");
    let step = std::env::var("CRASH_STEP").map_or(5, |step| step.parse().expect("CRASH_STEP is a number"));
    let (mut tries, mut at) = (0, 1);
    loop {
        let disk = thin.snapshot();
        let env = tiny().open_on(Arc::new(disk.clone()))?;
        disk.crash_at(disk.counters().mutations + at);
        let done = env.transact(|txn| txn.bytes_or_create("kept")?.put(b"k", b"v"));
        let done = done.and_then(|()| env.compact());
        let crashed = disk.after_crash(at);
        drop(env);
        let env =
            tiny().open_on(Arc::new(crashed)).unwrap_or_else(|error| panic!("power lost at change {at}: {error}"));
        let look = || {
            assert_sound(&env)?;
            assert_thinned(&env, "records", COUNT, 100)?;
            assert_thinned(&env, "large", LARGE, 9_000)
        };
        look()?;
        // Another one ends the work, and the file is about as short as without the crash.
        let report = env.compact()?;
        let is_short = report.page_count_after * 10 <= undisturbed.page_count_after * 11;
        assert!(is_short, "change {at}: {report:?}, undisturbed {undisturbed:?}");
        look()?;
        tries += 1;
        if done.is_ok() {
            break;
        }
        at += step;
    }
    println!("{tries} crashes within {at} changes of the disk");
    assert!(tries > 10, "only {tries} crashes");
    Ok(())
}
