//! Many owners, few names, all modes, at once: exclusion, no lost wake-up, every deadlock resolved, nothing left
//! behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{Random, sync};

use super::{key, make, patient, table_name};
use crate::check::{assert_consistent, assert_nobody_waits_in_vain};
use crate::{Conflict, LockConfig, LockError, LockManager, LockName, LockTable, Mode, OwnerNo, Victim, Wait};

/// Who holds what, as the holders themselves say: entered after the grant, taken out before the release.
type Witness = Arc<Mutex<BTreeMap<LockName, BTreeMap<u32, Mode>>>>;

fn enter(witness: &Witness, name: LockName, owner: OwnerNo, mode: Mode) {
    let mut witness = witness.lock().unwrap();
    let holders = witness.entry(name).or_default();
    for (&other, &held) in holders.iter() {
        let get_along = mode.is_compatible_with(held) || held.is_compatible_with(mode);
        assert!(other == owner.0 || get_along, "{owner} has {mode} beside {held} of {other} on {name}");
    }
    holders.insert(owner.0, mode);
}

fn leave_all(witness: &Witness, owner: OwnerNo) {
    for holders in witness.lock().unwrap().values_mut() {
        holders.remove(&owner.0);
    }
}

fn transactions(locks: &LockTable, witness: &Witness, owner: OwnerNo, seed: u64, count: u64) -> u64 {
    let mut dice = Random::new(seed ^ u64::from(owner.0) << 32);
    let mut deadlocks = 0;
    for n in 0..count {
        // A victim comes again at its old age.
        let age = Xid(1 + n * 64 + u64::from(owner.0));
        loop {
            locks.begin(owner, age);
            locks.avoid_deadlocks(owner);
            let result = transaction(locks, witness, owner, &mut dice);
            leave_all(witness, owner);
            locks.unlock_all(owner, Some(Lsn(n)));
            match result {
                Ok(()) => break,
                Err(LockError::Deadlock { cycle, victim }) => {
                    assert_eq!((victim, cycle[0].xid), (age, age));
                    for (i, edge) in cycle.iter().enumerate() {
                        if locks.config.victim == Victim::Youngest {
                            assert!(edge.xid <= victim, "{victim} is not the youngest of {cycle:?}");
                        }
                        assert_eq!(edge.waits_for, cycle[(i + 1) % cycle.len()].xid);
                    }
                    deadlocks += 1;
                }
                Err(LockError::Refused { holders, .. }) => {
                    assert!(!holders.is_empty() && !holders.contains(&age), "{age} is refused because of {holders:?}");
                    if locks.config.conflict == Conflict::WaitDie {
                        assert!(holders.iter().any(|&other| other < age), "{age} is older than {holders:?}");
                    }
                    sync::sleep_ns(5_000);
                }
                Err(error) => panic!("{owner}: {error}"),
            }
        }
    }
    deadlocks
}

fn transaction(locks: &LockTable, witness: &Witness, owner: OwnerNo, dice: &mut Random) -> Result<(), LockError> {
    for _ in 0..1 + dice.below(5) {
        let name = if dice.below(2) == 0 { table_name(dice.below(2)) } else { key(dice.below(3)) };
        let mode = if name.is_table() && dice.below(3) > 0 {
            [Mode::IS, Mode::IX][dice.below(2) as usize]
        } else {
            Mode::ALL[dice.below(6) as usize]
        };
        match dice.below(8) {
            0 => drop(locks.lock_instant(owner, name, mode, patient())?),
            1 => match locks.lock(owner, name, mode, Wait::Try) {
                Ok(grant) => enter(witness, name, owner, grant.previous.map_or(mode, |p| p.supremum(mode))),
                Err(LockError::WouldBlock) => {}
                Err(error) => return Err(error),
            },
            2 => {
                let held = locks.held(owner, name);
                if let Some(held) = held.filter(|held| held.covers(Mode::IS)) {
                    enter(witness, name, owner, Mode::IS);
                    assert_eq!(locks.downgrade(owner, name, Mode::IS), Some(Mode::IS), "from {held}");
                }
            }
            3 => {
                let before = locks.held(owner, name);
                match locks.lock(owner, name, mode, Wait::Until(sync::now_ns() + dice.below(20_000))) {
                    Ok(grant) => enter(witness, name, owner, grant.previous.map_or(mode, |p| p.supremum(mode))),
                    Err(LockError::Timeout { .. }) => assert_eq!(locks.held(owner, name), before, "L4"),
                    Err(error) => return Err(error),
                }
            }
            _ => {
                let grant = locks.lock(owner, name, mode, patient())?;
                enter(witness, name, owner, grant.previous.map_or(mode, |p| p.supremum(mode)));
            }
        }
        sync::yield_point("between locks");
        assert_nobody_waits_in_vain(locks);
    }
    Ok(())
}

/// The whole script; returns deadlocks, so that a run that met none can be told.
fn storm(seed: u64, count: u64, config: LockConfig) -> u64 {
    let locks = make(config);
    let witness = Witness::default();
    let threads = (0..config.owners)
        .map(|owner| {
            let (locks, witness) = (Arc::clone(&locks), Arc::clone(&witness));
            sync::spawn("storm", move || transactions(&locks, &witness, OwnerNo(owner), seed, count))
        })
        .collect::<Vec<_>>();
    let is_over = Arc::new(AtomicBool::new(false));
    let detector = (!config.searches_when_blocked).then(|| {
        let (locks, is_over) = (Arc::clone(&locks), Arc::clone(&is_over));
        sync::spawn("detector", move || {
            while !is_over.load(Relaxed) {
                locks.detect();
                sync::sleep_ns(50_000);
            }
        })
    });
    let deadlocks = threads.into_iter().map(|thread| thread.join().expect("a thread failed")).sum();
    is_over.store(true, Relaxed);
    detector.into_iter().for_each(|thread| thread.join().expect("the detector failed"));
    assert_eq!(assert_consistent(&locks), 0, "seed {seed}");
    assert_eq!(locks.stats().deadlocks, deadlocks);
    deadlocks
}

/// A small table for a storm of `owners`.
fn stormy(owners: u32, buckets: u32, fast_intentions: bool) -> LockConfig {
    LockConfig { owners, locks_max: 64, buckets, fast_intentions, ..LockConfig::default() }
}

#[test]
fn a_storm_of_threads_ends_with_every_deadlock_resolved() {
    for (seed, (buckets, fast_intentions)) in [(16, true), (1, true), (16, false)].into_iter().enumerate() {
        storm(seed as u64, 300, stormy(6, buckets, fast_intentions));
    }
}

/// One seed after the other, each another interleaving and the same one each time; the deadlocks of all.
fn seeded_storms(seeds: std::ops::Range<u64>, config: impl Fn(u64) -> LockConfig) -> u64 {
    let mut deadlocks = 0;
    for seed in seeds {
        let config = config(seed);
        match sync::Scheduler::run(seed, || storm(seed, 6, config)) {
            Ok(found) => deadlocks += found,
            Err(stuck) => panic!("seed {seed}: {stuck}"),
        }
    }
    deadlocks
}

#[test]
fn every_victim_policy_resolves_every_deadlock() {
    for victim in [Victim::Oldest, Victim::FewestLocks, Victim::LeastLog, Victim::Random] {
        let config = |_| LockConfig { victim, ..stormy(4, 4, true) };
        assert!(seeded_storms(0..30, config) > 0, "a storm without a deadlock proves little");
    }
}

#[test]
fn a_detector_finds_what_those_who_block_do_not_look_for() {
    let config = |seed| {
        let victim = if seed % 2 == 0 { Victim::Youngest } else { Victim::Random };
        LockConfig { searches_when_blocked: false, victim, ..stormy(4, 4, true) }
    };
    assert!(seeded_storms(0..40, config) > 0, "a storm without a deadlock proves little");
}

#[test]
fn who_never_waits_is_in_no_deadlock() {
    assert_eq!(seeded_storms(0..30, |_| LockConfig { conflict: Conflict::NoWait, ..stormy(4, 4, true) }), 0);
}

#[test]
fn those_who_wait_for_younger_ones_only_do_not_hang() {
    seeded_storms(0..60, |_| LockConfig { conflict: Conflict::WaitDie, ..stormy(4, 4, true) });
}

/// Threads that lock something for one owner and, inside of that, for another: whoever waits for the first waits for
/// the second.
#[test]
fn threads_with_a_transaction_inside_another_do_not_hang() {
    let mut deadlocks = 0;
    for seed in 0..120 {
        let outcome = sync::Scheduler::run(seed, || {
            let locks = make(stormy(6, 4, true));
            let threads = (0..3).map(|no| {
                let locks = Arc::clone(&locks);
                sync::spawn("nested", move || {
                    let (outer, inner) = (OwnerNo(no), OwnerNo(3 + no));
                    let mut dice = Random::new(seed ^ u64::from(no) << 32);
                    let mut draw = || (key(dice.below(3)), [Mode::S, Mode::X][dice.below(2) as usize]);
                    for n in 0..5_u64 {
                        locks.begin(outer, Xid(1 + n * 8 + u64::from(no)));
                        let (name, mode) = draw();
                        let mut last = locks.lock(outer, name, mode, patient());
                        if last.is_ok() {
                            locks.begin(inner, Xid(100 + n * 8 + u64::from(no)));
                            locks.hold_up(outer, inner);
                            let (name, mode) = draw();
                            last = locks.lock(inner, name, mode, patient());
                            locks.let_go(outer, inner);
                            assert_nobody_waits_in_vain(&locks);
                            locks.unlock_all(inner, None);
                        }
                        assert!(matches!(last, Ok(_) | Err(LockError::Deadlock { .. })), "{last:?}");
                        locks.unlock_all(outer, None);
                    }
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(assert_consistent(&locks), 0);
            locks.stats().deadlocks
        });
        deadlocks += outcome.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
    assert!(deadlocks > 0, "a storm without a deadlock proves little");
}

#[test]
fn turns_are_taken_by_age() {
    let locks =
        make(LockConfig { owners: 9, locks_max: 64, buckets: 4, fast_intentions: true, ..LockConfig::default() });
    let _ = locks.lock(OwnerNo(8), key(1), Mode::X, Wait::Try).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let threads = [5, 2, 7, 0, 1, 6, 3, 4]
        .into_iter()
        .map(|n| {
            let order = Arc::clone(&order);
            super::in_the_background(&locks, move |locks| {
                let _ = locks.lock(OwnerNo(n), key(1), Mode::X, patient()).unwrap();
                order.lock().unwrap().push(n);
                locks.unlock_all(OwnerNo(n), None);
            })
        })
        .collect::<Vec<_>>();
    locks.unlock_all(OwnerNo(8), None);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

/// `SEED` runs one seed only.
#[test]
fn a_storm_under_the_seeded_scheduler_never_hangs() {
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..120,
    };
    let deadlocks = seeded_storms(seeds, |seed| stormy(4, [16, 1, 4][seed as usize % 3], !seed.is_multiple_of(5)));
    assert!(deadlocks > 0 || std::env::var("SEED").is_ok(), "a storm without a deadlock proves little");
}

#[test]
fn one_seed_is_one_history() {
    let history =
        |seed| sync::Scheduler::run(seed, || (storm(seed, 6, stormy(4, 4, true)), sync::now_ns())).expect("no hang");
    assert_eq!(history(11), history(11));
}

/// Nothing but one table: the words of the weak against the queue of the strong (`intention` I1 to I5).
#[test]
fn intentions_and_strong_locks_exclude_each_other_in_every_order() {
    for seed in 0..400 {
        let outcome = sync::Scheduler::run(seed, || {
            let locks = make(LockConfig {
                owners: 5,
                locks_max: 64,
                buckets: 1,
                fast_intentions: true,
                ..LockConfig::default()
            });
            let witness = Witness::default();
            let (weak, strong) = (&[Mode::IX, Mode::IS], &[Mode::S, Mode::S]);
            let modes = [weak, &[Mode::IX, Mode::IX], strong, strong, &[Mode::S, Mode::X]];
            let threads = modes
                .into_iter()
                .enumerate()
                .map(|(n, modes)| {
                    let (locks, witness, owner) = (Arc::clone(&locks), Arc::clone(&witness), OwnerNo(n as u32));
                    sync::spawn("one table", move || {
                        for round in 0..8_u64 {
                            let mode = modes[round as usize % 2];
                            let _ = locks.lock(owner, table_name(1), mode, patient()).unwrap();
                            enter(&witness, table_name(1), owner, mode);
                            (0..mode as u32).for_each(|_| sync::yield_point("holding"));
                            leave_all(&witness, owner);
                            locks.unlock_all(owner, Some(Lsn(round)));
                        }
                    })
                })
                .collect::<Vec<_>>();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(assert_consistent(&locks), 0);
        });
        assert!(outcome.is_ok(), "seed {seed}: {:?}", outcome.err());
    }
}
