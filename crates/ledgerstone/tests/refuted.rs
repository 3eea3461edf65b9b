//! Restarts one after the other with redo that takes long: everything is done while changes are pending.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{assert_sound, key, tiny};
use ledgerstone::{Environment, Error};
use ledgerstone_disk::SimDisk;

const KEYS: u64 = 6000;

type Model = BTreeMap<u64, (u64, usize)>;

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut v = seed.to_be_bytes().to_vec();
    v.resize(len.max(8), seed as u8);
    v
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn open(disk: &SimDisk) -> Environment {
    tiny()
        .cache_bytes(std::env::var("FRAMES").ok().and_then(|f| f.parse().ok()).unwrap_or(200u64) * 4096)
        .checkpoint_log_bytes(64 << 20)
        .redo_worker_count(std::env::var("WORKERS").ok().and_then(|w| w.parse().ok()).unwrap_or(2))
        .open_on(Arc::new(disk.clone()))
        .unwrap()
}

fn check(env: &Environment, model: &Model, what: &str) {
    let txn = env.begin().unwrap();
    let table = txn.bytes("t").unwrap();
    let found: Vec<(Vec<u8>, Vec<u8>)> = table.range(..).unwrap().collect::<Result<_, _>>().unwrap();
    let wanted: Vec<(Vec<u8>, Vec<u8>)> = model.iter().map(|(k, &(s, l))| (key(*k), value(s, l))).collect();
    assert_eq!(found.len(), wanted.len(), "{what}");
    assert!(found == wanted, "{what}");
}

#[test]
fn restarts_with_slow_redo() {
    let seconds = std::env::var("SECONDS_MAX").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let mut rng = std::env::var("RSEED").ok().and_then(|s| s.parse().ok()).unwrap_or(88172645463325252u64);
    let began = Instant::now();
    let mut disk = SimDisk::new();
    let env = open(&disk);
    let mut model = Model::new();
    env.transact(|txn| {
        let table = txn.create_table("t")?;
        for n in 0..KEYS / 2 {
            table.put(&key(n * 2), &value(n, 300))?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    model.extend((0..KEYS / 2).map(|n| (n * 2, (n, 300))));
    env.close().unwrap();
    let mut round = 0;
    let (mut pending_ends, mut puts_off, mut changes, mut compactions, mut closes) = (0, 0, 0, 0, 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        round += 1;
        let delay = random(&mut rng) % 600;
        let slow = Arc::new(AtomicBool::new(true));
        let theirs = Arc::clone(&slow);
        disk.set_hook(Arc::new(move |what: &'static str| {
            if what == "read" && theirs.load(SeqCst) && delay > 0 {
                std::thread::sleep(Duration::from_micros(delay));
            }
        }));
        let env = open(&disk);
        changes += env.recovery_report().redo_put_off_count;
        puts_off += u64::from(env.recovery_report().redo_put_off_count > 0);
        let shared = Mutex::new(std::mem::take(&mut model));
        let stop = AtomicBool::new(false);
        let made = AtomicU64::new(0);
        let compacted = AtomicU64::new(0);
        let closes_now = random(&mut rng) % 4 == 0;
        let life_ms = random(&mut rng) % 60;
        let seeds: Vec<u64> = (0..3).map(|_| random(&mut rng) | 1).collect();
        let kind = random(&mut rng) % 3;
        let next = std::thread::scope(|scope| {
            for &seed in &seeds[..2] {
                let (env, shared, stop, made) = (&env, &shared, &stop, &made);
                scope.spawn(move || {
                    let mut rng = seed;
                    while !stop.load(SeqCst) {
                        let mut held = shared.lock().unwrap();
                        let mut next = held.clone();
                        let n = 1 + random(&mut rng) % 60;
                        let way = random(&mut rng) % 8;
                        let aborts = random(&mut rng) % 5 == 0;
                        let done = env.transact(|txn| {
                            let table = txn.bytes("t")?;
                            let from = random(&mut rng) % KEYS;
                            for i in 0..n {
                                let k = if way < 3 { (from + i) % KEYS } else { random(&mut rng) % KEYS };
                                if way == 1 || way == 5 {
                                    table.delete(&key(k))?;
                                    next.remove(&k);
                                } else {
                                    let len = if random(&mut rng) % 50 == 0 {
                                        9000
                                    } else {
                                        8 + random(&mut rng) as usize % 700
                                    };
                                    let s = random(&mut rng);
                                    table.put(&key(k), &value(s, len))?;
                                    next.insert(k, (s, len));
                                }
                            }
                            if aborts { Err(Error::Busy) } else { Ok(()) }
                        });
                        match done {
                            Ok(()) => {
                                *held = next;
                                made.fetch_add(1, SeqCst);
                            }
                            Err(Error::Busy) => {}
                            Err(error) => panic!("{error:?} {:?}", env.is_failed()),
                        }
                    }
                });
            }
            let (env_, shared_, stop_, compacted) = (&env, &shared, &stop, &compacted);
            scope.spawn(move || match kind {
                0 => {
                    env_.compact().map(|_| compacted.fetch_add(1, SeqCst)).unwrap();
                }
                1 => {
                    while !stop_.load(SeqCst) {
                        let held = shared_.lock().unwrap();
                        check(env_, &held, "reader");
                    }
                }
                _ => drop(env_.checkpoint().unwrap()),
            });
            std::thread::sleep(Duration::from_millis(life_ms));
            let held = shared.lock().unwrap();
            let next = if closes_now {
                None
            } else {
                let copy = disk.snapshot();
                Some((if random(&mut rng) % 2 == 0 { copy.after_kill() } else { copy.after_crash(rng) }, held.clone()))
            };
            stop.store(true, SeqCst);
            slow.store(next.is_none(), SeqCst);
            drop(held);
            next
        });
        compactions += compacted.load(SeqCst);
        match next {
            Some((next, at)) => {
                drop(env);
                disk = next;
                model = at;
                pending_ends += 1;
            }
            None => {
                model = shared.into_inner().unwrap();
                env.close().unwrap();
                closes += 1;
            }
        }
        if round % 8 == 0 {
            let copy = disk.snapshot().after_kill();
            let env = open(&copy);
            check(&env, &model, &format!("round {round}"));
            assert_sound(&env, &format!("round {round}"));
        }
    }
    eprintln!(
        "{round} rounds, {puts_off} with redo put off ({changes} changes), {pending_ends} kills, {closes} closes, {compactions} compactions"
    );
}

/// A page is damaged that has pending changes: every call says which page, a checkpoint that waits for it too.
#[test]
fn whoever_waits_for_redo_is_told_why_it_ends() {
    let disk = SimDisk::new();
    let env = open(&disk);
    let put_all = |env: &Environment, seed: u64| {
        env.transact(|txn| {
            let table = txn.bytes_or_create("t")?;
            (0..1000).try_for_each(|n| table.put(&key(n), &value(seed, 300)))
        })
        .unwrap();
    };
    put_all(&env, 1);
    env.checkpoint().unwrap();
    for n in 0..1000 {
        if n % 10 == 0 {
            env.transact(|txn| txn.bytes("t")?.put(&key(n), &value(2, 300))).unwrap();
        }
    }
    let disk = disk.after_kill();
    let len = common::len_of(&disk, "data") / 4096;
    for page in 12..len {
        common::flip(&disk, "data", page * 4096 + 700);
    }
    let slow = Arc::new(AtomicBool::new(true));
    let theirs = Arc::clone(&slow);
    disk.set_hook(Arc::new(move |what: &'static str| {
        if what == "read" && theirs.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }));
    let env = open(&disk);
    let refused = env.checkpoint();
    eprintln!("checkpoint: {refused:?}");
    eprintln!("begin: {:?}", env.begin().map(drop));
    eprintln!("put off {}", env.recovery_report().redo_put_off_count);
    let text = format!("{refused:?}");
    eprintln!("close: {:?}", env.close());
    assert!(text.contains("is damaged"), "{text}");
}

/// A setting that does not do for what the log tells of: the open says so, as it did before redo was put off.
#[test]
fn a_setting_that_redo_cannot_do_with_is_refused_by_the_open() {
    let disk = SimDisk::new();
    let env = open(&disk);
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..8000).try_for_each(|n| table.put(&key(n), &value(1, 900)))
    })
    .unwrap();
    env.checkpoint().unwrap();
    for n in (0..8000).step_by(20) {
        env.transact(|txn| txn.bytes("t")?.put(&key(n), &value(2, 900))).unwrap();
    }
    let disk = disk.after_kill();
    eprintln!("pages {}", common::len_of(&disk, "data") / 4096);
    let small = || tiny().cache_bytes(200 * 4096).page_count_max(1 << 10).checkpoint_log_bytes(64 << 20);
    let whole = small().restart_undo_bytes(u64::MAX).open_on(Arc::new(disk.snapshot().after_kill()));
    eprintln!("whole: {:?}", whole.map(drop));
    match small().open_on(Arc::new(disk.snapshot().after_kill())) {
        Err(error) => eprintln!("put off: {error:?}"),
        Ok(env) => {
            eprintln!("put off {}", env.recovery_report().redo_put_off_count);
            let first = env.transact(|txn| txn.bytes_or_create("u")?.put(b"k", b"v"));
            std::thread::sleep(Duration::from_millis(500));
            let later = env.transact(|txn| txn.bytes_or_create("u")?.put(b"k", b"v"));
            panic!("opened: {first:?}, then {later:?}");
        }
    }
}
