//! Processes that die and are followed by others, which begin and end transactions in the places of the dead.
//!
//! As in the layer of transactions: a place is claimed, its transaction begins and ends, and the place is free.
//! Transactions of the dead are ended after the repair, by a thread of any process, which may die on the way.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ledgerstone_page::Xid;
use ledgerstone_region::sync::deaths::{kill_at_step, process, stop_at_step};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_region::{Dead, Random, Repair};

use super::random::work_once;
use super::{Here, OWNERS, World, outlived, tiny};
use crate::tests::{key, table_name};
use crate::{Conflict, LockConfig, LockError, LockManager, Mode, OwnerNo, Wait};

/// Whose transaction is in each place.
struct Places {
    processes: Mutex<[Option<u32>; OWNERS as usize]>,
    /// The dead after whom somebody has repaired.
    mended: Mutex<BTreeSet<u32>>,
    next_xid: AtomicU64,
    is_over: AtomicBool,
}

impl Places {
    /// Takes a place of which `may` says so.
    fn claim(&self, may: impl Fn(Option<u32>) -> bool, from: usize) -> Option<OwnerNo> {
        let mut processes = self.processes.lock().expect("no panic");
        let mut nos = (0..processes.len()).map(|no| (no + from) % OWNERS as usize);
        let no = nos.find(|no| may(processes[*no]))?;
        processes[no] = Some(process());
        Some(OwnerNo(no as u32))
    }

    fn free(&self, owner: OwnerNo) {
        self.processes.lock().expect("no panic")[owner.0 as usize] = None;
    }

    fn is_mended(&self, process: u32) -> bool {
        self.mended.lock().expect("no panic").contains(&process)
    }
}

/// Ends a transaction of the dead, if there is one.
fn end_one(here: &Here, places: &Places, dice: &mut Random) -> bool {
    let is_left = |process: Option<u32>| process.is_some_and(|process| places.is_mended(process));
    let Some(owner) = places.claim(is_left, 0) else { return false };
    here.table.adopt(owner, here.slots.current());
    here.assert_mended(owner);
    here.assert_protected(owner);
    sync::yield_point("a rollback");
    let has_committed = here.world.commits.lock().expect("no panic").under_way.contains_key(&owner.0);
    let asks = if has_committed { 0 } else { dice.below(3) };
    for _ in 0..asks {
        // Not for long: others that have died may hold it, and nobody but this thread may be there to end them.
        let wait = Wait::Until(sync::now_ns() + dice.below(40_000));
        let name = if dice.below(2) == 0 { table_name(7) } else { key(dice.below(4)) };
        let _ = here.lock(owner, name, Mode::ALL[dice.below(6) as usize], wait);
    }
    here.unlock_all(owner);
    places.free(owner);
    true
}

fn begin_one(here: &Here, places: &Places, dice: &mut Random) -> Option<OwnerNo> {
    let owner = places.claim(|process| process.is_none(), dice.below(8) as usize)?;
    sync::yield_point("claimed");
    here.table.begin(owner, Xid(places.next_xid.fetch_add(1, SeqCst)));
    here.table.avoid_deadlocks(owner);
    Some(owner)
}

fn end(here: &Here, places: &Places, owner: OwnerNo) {
    here.unlock_all(owner);
    sync::yield_point("about to be free");
    places.free(owner);
}

fn work(here: &Here, places: &Places, seed: u64, count: u64) {
    let mut dice = Random::new(seed);
    for _ in 0..count {
        while dice.below(2) == 0 && end_one(here, places, &mut dice) {}
        let Some(owner) = begin_one(here, places, &mut dice) else {
            sync::sleep_ns(10_000);
            continue;
        };
        let outcome = work_once(here, owner, &mut dice).and_then(|()| {
            let inner = if dice.below(4) == 0 { begin_one(here, places, &mut dice) } else { None };
            let Some(inner) = inner else { return Ok(()) };
            here.table.hold_up(owner, inner);
            let outcome = work_once(here, inner, &mut dice);
            here.table.let_go(owner, inner);
            end(here, places, inner);
            outcome
        });
        match outcome {
            Err(LockError::Cancelled) => here.table.allow_waits(),
            Err(LockError::WouldBlock) => panic!("{owner}: it has waited"),
            _ => {}
        }
        end(here, places, owner);
        match dice.below(24) {
            0 => drop(here.table.detect()),
            1 => drop(here.table.waits()),
            2 => here.table.cancel_all_waits(),
            3 => here.table.allow_waits(),
            4 => drop(here.table.awaits_end(OwnerNo(0), OwnerNo(1))),
            _ => {}
        }
    }
    here.table.allow_waits();
}

/// Repairs until all is over, and ends what is left then.
fn mend(here: &Here, places: &Places, period_ns: u64) {
    let mend = |dead: &Dead<'_>| {
        here.table.repair(dead)?;
        let processes = dead.slots().iter().filter_map(|no| here.slots.slot(*no).process());
        places.mended.lock().expect("no panic").extend(processes);
        Ok(())
    };
    while !places.is_over.load(SeqCst) {
        sync::sleep_ns(period_ns);
        here.slots.repair(mend).expect("a slot is free");
    }
}

/// Ends the transactions of the dead until all is over.
fn end_all(here: &Here, places: &Places, seed: u64, period_ns: u64) {
    let mut dice = Random::new(seed);
    while !places.is_over.load(SeqCst) {
        while end_one(here, places, &mut dice) {}
        sync::sleep_ns(period_ns);
    }
}

/// Returns how many died.
fn round(seed: u64) -> u32 {
    let mut dice = Random::new(seed);
    let conflict = [Conflict::Wait, Conflict::Wait, Conflict::NoWait, Conflict::WaitDie][dice.below(4) as usize];
    let config = LockConfig {
        buckets: [1, 2, 16][dice.below(3) as usize],
        fast_intentions: dice.below(4) != 0,
        searches_when_blocked: dice.below(4) != 0,
        locks_max: [4, 20, 64][dice.below(3) as usize],
        conflict,
        ..tiny()
    };
    let outcome = Scheduler::run_within(seed, 4_000_000, || {
        let world = World::new(None, config, false);
        let places = Arc::new(Places {
            processes: Mutex::default(),
            mended: Mutex::default(),
            next_xid: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
        });
        let start = |process: u32, name: &str, f: fn(&Here, &Places, u64)| {
            let (places, seed) = (places.clone(), seed ^ u64::from(process) << 40);
            world.start(process, name, move |here| f(here, &places, seed))
        };
        // Process 1 lives. It mends, and has a detector.
        let mut helpers = vec![
            start(1, "mender", |here, places, _| mend(here, places, 70_000)),
            start(1, "ender", |here, places, seed| end_all(here, places, seed, 300_000)),
            start(1, "detector", |here, places, _| {
                while !places.is_over.load(SeqCst) {
                    here.table.detect();
                    sync::sleep_ns(100_000);
                }
            }),
        ];
        let mut died = 0;
        let mut next_process = 2;
        for _ in 0..3 {
            let processes = next_process..next_process + 4;
            next_process = processes.end;
            let mut threads = Vec::new();
            for process in processes.clone() {
                threads.push(start(process, "first", |here, places, seed| work(here, places, seed, 5)));
                threads.push(start(process, "second", |here, places, seed| work(here, places, seed ^ 1, 5)));
                if process % 2 == 0 {
                    helpers.push(start(process, "mender", |here, places, _| mend(here, places, 50_000)));
                } else {
                    helpers.push(start(process, "ender", |here, places, seed| end_all(here, places, seed, 100_000)));
                }
                match dice.below(5) {
                    0 => stop_at_step(process, 1 + dice.below(600), dice.below(5_000_000)),
                    1 => {}
                    _ => kill_at_step(process, 1 + dice.below(700)),
                }
            }
            for thread in threads {
                died += u32::from(outlived(thread).is_none());
            }
            processes.for_each(|process| kill_at_step(process, 0));
        }
        sync::sleep_ns(20_000_000);
        places.is_over.store(true, SeqCst);
        for helper in helpers {
            outlived(helper);
        }
        world.table.allow_waits();
        assert!(places.processes.lock().expect("no panic").iter().all(Option::is_none), "places are taken");
        world.assert_all_free();
        died
    });
    outcome.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"))
}

/// `ROUNDS` says how many; `LEDGERSTONE_SEED` runs one seed only.
#[test]
fn whoever_comes_after_the_dead_begins_and_ends_in_their_places() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("LEDGERSTONE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ROUNDS").unwrap_or(100),
    };
    let count = seeds.end - seeds.start;
    let died = seeds.map(|seed| u64::from(round(seed))).sum::<u64>();
    println!("{count} rounds, {died} threads of the dead");
    assert!(count == 1 || died > count / 2, "{died} deaths in {count} rounds prove little");
}
