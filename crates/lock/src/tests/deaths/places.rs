//! Processes that die and are followed by others, which begin and end transactions in the places of the dead.
//!
//! As in the layer of transactions: a place is claimed, its transaction begins and ends, and the place is free.
//! Transactions of the dead are ended after the repair, by a thread of any process, which may die on the way.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ledgerstone_page::Xid;
use ledgerstone_region::sync::deaths::{kill_at_step, process, stop_at_step};
use ledgerstone_region::{Dead, Random, Repair, sync};
use ledgerstone_testkit::deaths::{at_random, outlived, round};

use super::random::{drawn, work_once};
use super::{Here, OWNERS, World};
use crate::tests::{key, table_name};
use crate::{LockError, LockManager, Mode, OwnerNo, Wait};

/// Whose transaction is in each place.
struct Places {
    processes: Mutex<[Option<u32>; OWNERS as usize]>,
    /// Where it has begun. Who dies before has none, which nobody rolls back.
    begun: Mutex<BTreeSet<u32>>,
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
        self.begun.lock().expect("no panic").remove(&owner.0);
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
    let has_begun = places.begun.lock().expect("no panic").contains(&owner.0);
    let asks = if has_committed || !has_begun { 0 } else { dice.below(3) };
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
    places.begun.lock().expect("no panic").insert(owner.0);
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
        here.look_around(dice.below(24));
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

/// Three times four processes, one after the other. Returns how many of their threads died.
fn generations(seed: u64) -> u64 {
    let mut dice = Random::new(seed);
    let mut config = drawn(&mut dice);
    config.locks_max = [4, 20, 64][dice.below(3) as usize];
    round(seed, seed, 4_000_000, || {
        let world = World::new(None, config, false);
        let places = Arc::new(Places {
            processes: Mutex::default(),
            begun: Mutex::default(),
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
            start(1, "detector", |here, places, _| here.go_on_detecting(&places.is_over)),
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
                died += u64::from(outlived(thread).is_none());
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
    })
}

#[test]
fn whoever_comes_after_the_dead_begins_and_ends_in_their_places() {
    at_random(100, ["threads of the dead"], 2, |seed| [generations(seed)]);
}
