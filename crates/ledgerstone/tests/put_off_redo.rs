//! Restarts one after the other, whose pages come in slowly: everything is done while redo is put off.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{assert_sound, key, tiny};
use ledgerstone::{Environment, Error, Options};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

const KEYS: u64 = 6000;
const PAGE_BYTES: u64 = 4096;

/// Of each key, what its value was drawn from, and its length.
type Model = BTreeMap<u64, (u64, usize)>;

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut value = seed.to_be_bytes().to_vec();
    value.resize(len.max(8), seed as u8);
    value
}

fn options() -> Options {
    tiny().cache_bytes(200 * PAGE_BYTES).checkpoint_log_bytes(64 << 20)
}

fn open(disk: &SimDisk) -> Environment {
    options().open_on(Arc::new(disk.clone())).unwrap()
}

/// Each read of the disk takes so long, until the word is false.
fn read_slowly(disk: &SimDisk, time: Duration) -> Arc<AtomicBool> {
    let is_slow = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&is_slow);
    disk.set_hook(Arc::new(move |what| {
        if what == "read" && seen.load(SeqCst) {
            std::thread::sleep(time);
        }
    }));
    is_slow
}

fn check(env: &Environment, model: &Model, what: &str) {
    let txn = env.begin().unwrap();
    let rows = txn.bytes("t").unwrap().range(..).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(rows.len(), model.len(), "{what}");
    let as_wanted = rows.iter().zip(model).all(|(row, (n, &(seed, len)))| *row == (key(*n), value(seed, len)));
    assert!(as_wanted, "{what}");
}

/// One transaction, and the model with it: some are taken back.
fn change(env: &Environment, model: &mut Model, random: &mut Random) {
    let mut next = model.clone();
    let (count, way, from) = (random.between(1, 60), random.below(8), random.below(KEYS));
    let is_taken_back = random.percent(20);
    let done = env.transact(|txn| {
        let table = txn.bytes("t")?;
        for i in 0..count {
            // Neighbours, or keys from everywhere.
            let n = if way < 3 { (from + i) % KEYS } else { random.below(KEYS) };
            if way == 1 || way == 5 {
                table.delete(&key(n))?;
                next.remove(&n);
            } else {
                let len = if random.percent(2) { 9000 } else { random.between(8, 700) as usize };
                let seed = random.number();
                table.put(&key(n), &value(seed, len))?;
                next.insert(n, (seed, len));
            }
        }
        if is_taken_back { Err(Error::user("taken back")) } else { Ok(()) }
    });
    match done {
        Ok(()) => *model = next,
        Err(Error::User(_)) => {}
        Err(error) => panic!("{error:?}"),
    }
}

/// Two writers, and beside them a compaction, a reader or a checkpoint; after a while a kill, a power loss or a close.
fn life(env: Environment, disk: &SimDisk, is_slow: &AtomicBool, model: Model, random: &mut Random) -> (SimDisk, Model) {
    let (shared, stop) = (Mutex::new(model), AtomicBool::new(false));
    let (closes, beside, time) = (random.percent(25), random.below(3), Duration::from_millis(random.below(60)));
    let seeds = [random.number(), random.number()];
    let left = std::thread::scope(|scope| {
        let (env, shared, stop) = (&env, &shared, &stop);
        for seed in seeds {
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !stop.load(SeqCst) {
                    change(env, &mut shared.lock().unwrap(), &mut random);
                }
            });
        }
        scope.spawn(move || match beside {
            0 => drop(env.compact().unwrap()),
            1 => {
                while !stop.load(SeqCst) {
                    check(env, &shared.lock().unwrap(), "a reader");
                }
            }
            _ => drop(env.checkpoint().unwrap()),
        });
        std::thread::sleep(time);
        let held = shared.lock().unwrap();
        let left = (!closes).then(|| {
            let copy = disk.snapshot();
            (if random.percent(50) { copy.after_kill() } else { copy.after_crash(random.number()) }, held.clone())
        });
        stop.store(true, SeqCst);
        is_slow.store(left.is_none(), SeqCst); // A close waits for redo that is slow.
        left
    });
    left.unwrap_or_else(|| {
        env.close().unwrap();
        (disk.clone(), shared.into_inner().unwrap())
    })
}

#[test]
fn whatever_is_done_before_redo_has_ended_finds_what_was_committed() {
    let mut random = Random::new(7);
    let mut disk = SimDisk::new();
    let env = open(&disk);
    let mut model: Model = (0..KEYS / 2).map(|n| (n * 2, (n, 300))).collect();
    env.transact(|txn| {
        let table = txn.create_table("t")?;
        model.iter().try_for_each(|(n, &(seed, len))| table.put(key(*n), value(seed, len)))
    })
    .unwrap();
    env.close().unwrap();
    let mut put_off_count = 0;
    for round in 0..60 {
        let is_slow = read_slowly(&disk, Duration::from_micros(random.below(600)));
        let env = open(&disk);
        put_off_count += u64::from(env.recovery_report().redo_put_off_count > 0);
        (disk, model) = life(env, &disk, &is_slow, model, &mut random);
        if round % 8 == 0 {
            let env = open(&disk.snapshot().after_kill());
            check(&env, &model, &format!("round {round}"));
            assert_sound(&env, &format!("round {round}"));
        }
    }
    assert!(put_off_count > 0, "redo was never put off");
}

/// Changes after a checkpoint, on every tenth key, and a kill.
fn killed(count: u64, len: usize) -> SimDisk {
    let disk = SimDisk::new();
    let env = open(&disk);
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..count).try_for_each(|n| table.put(&key(n), &value(1, len)))
    })
    .unwrap();
    env.checkpoint().unwrap();
    for n in (0..count).step_by(10) {
        env.transact(|txn| txn.bytes("t")?.put(&key(n), &value(2, len))).unwrap();
    }
    disk.after_kill()
}

#[test]
fn whoever_waits_for_redo_is_told_which_page_is_damaged() {
    let disk = killed(1000, 300);
    for page in 12..common::len_of(&disk, "data") / PAGE_BYTES {
        common::flip(&disk, "data", page * PAGE_BYTES + 700);
    }
    read_slowly(&disk, Duration::from_millis(2));
    let env = open(&disk);
    assert!(env.recovery_report().redo_put_off_count > 0);
    let refused = format!("{:?}", env.checkpoint());
    assert!(refused.contains("is damaged"), "{refused}");
}

#[test]
fn a_setting_that_redo_cannot_do_with_is_refused_by_the_opening() {
    let disk = killed(8000, 900);
    let small = || options().page_count_max(1 << 10);
    for restart_undo_bytes in [u64::MAX, 0] {
        let options = small().restart_undo_bytes(restart_undo_bytes);
        let refused = options.open_on(Arc::new(disk.snapshot().after_kill())).map(drop);
        assert!(matches!(refused, Err(Error::Setting { .. })), "{refused:?}");
    }
}
