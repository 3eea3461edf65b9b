//! Power cuts in loads whose leaves go home while they go on, in a cache of more than one group of frames.

use std::sync::Arc;

use ledgerstone::{Environment, Error, Options};
use ledgerstone_disk::SimDisk;

const LOAD_COUNT: u64 = 4;
const RECORD_COUNT: u64 = 20_000;
/// The load that is taken back.
const TAKEN_BACK: u64 = 2;

/// 1,536 frames, in three groups.
fn options() -> Options {
    let options = Environment::options().cache_bytes(6 << 20).page_count_max(1 << 18);
    options.log_segment_bytes(1 << 20).checkpoint_log_bytes(2 << 20)
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 60 + (n % 91) as usize]
}

fn table(load: u64) -> String {
    format!("t{load}")
}

/// Counts the loads that have ended, in `told`.
fn script(env: &Environment, told: &mut u64) -> Result<(), Error> {
    for load in 0..LOAD_COUNT {
        let loaded = env.transact(|txn| {
            let mut made = txn.create_table(&table(load))?;
            made.load_sorted((0..RECORD_COUNT).map(|n| (key(n), value(n + load))))?;
            if load == TAKEN_BACK { Err(Error::user("taken back")) } else { Ok(()) }
        });
        match loaded {
            Ok(()) | Err(Error::User(_)) => *told = load + 1,
            Err(error) => return Err(error),
        }
        if load != TAKEN_BACK {
            // Leaves that have gone home change again.
            env.transact(|txn| {
                let made = txn.bytes(&table(load))?;
                (0..RECORD_COUNT).step_by(37).try_for_each(|n| made.put(&key(n), &value(n + load)))
            })?;
        }
    }
    Ok(())
}

/// One life, which ends at a change of the disk, or at its end, and what the next one finds. Returns how many changes
/// there were.
fn round(crash_at: Option<u64>, seed: u64) -> u64 {
    let (disk, mut told) = (SimDisk::new(), 0);
    if let Some(at) = crash_at {
        disk.crash_at(at);
    }
    let what = format!("cut at {crash_at:?}, seed {seed}");
    let Ok(env) = options().open_on(Arc::new(disk.clone())) else { return 0 };
    let done = script(&env, &mut told);
    assert!(done.is_ok() || disk.is_crashed(), "{what}: {done:?}"); // Another thread may have met the cut.
    let count = disk.counters().mutations;
    disk.crash_now();
    drop(env);

    let env = options().open_on(Arc::new(disk.after_crash(seed))).unwrap();
    env.wait_rolled_back().unwrap();
    let report = env.verify().unwrap();
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    let reader = env.begin().unwrap();
    for load in (0..told).filter(|&load| load != TAKEN_BACK) {
        let rows = reader.bytes(&table(load)).unwrap().range(..).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(rows.len() as u64, RECORD_COUNT, "{what}, load {load}");
        assert!((0..).zip(&rows).all(|(n, row)| row.1 == value(n + load)), "{what}, load {load}");
    }
    count
}

#[test]
fn a_power_cut_in_a_load_loses_nothing_that_was_told() {
    let count = round(None, 1);
    for no in 0..24 {
        round(Some(20 + (no * 7919 + no * no * 31) % count), no + 1);
    }
}
