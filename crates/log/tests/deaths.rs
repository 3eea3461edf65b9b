//! A process dies at each store to the region in turn, beside others that go on. These find their room, their records
//! are whole, and nothing of the dead is left. A repairer dies too, and the next one repairs for both.
//!
//! `ROUNDS` is for the random campaign. A failure prints the seed, which `SEED` tries again.
#![cfg(all(feature = "deaths", not(loom)))]

mod kit;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{FIRST_LSN, Log, LogConfig, RecordKind, RepairPart};
use ledgerstone_page::Lsn;
use ledgerstone_region::sync::deaths::{is_dead, kill_at_step, spawn_in, stop_at_step};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_region::{Dead, Random, Region, Repair, SlotTable};

/// What the victim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Append,
    Commit,
    ReserveAndRollBack,
    LargeClaim,
    ClaimBeside,
    Keep,
    Segments,
    Flusher,
    /// The flusher lives, and the victim wakes it.
    WakeFlusher,
}

const ALL: [Work; 9] = [
    Work::Append,
    Work::Commit,
    Work::ReserveAndRollBack,
    Work::LargeClaim,
    Work::ClaimBeside,
    Work::Keep,
    Work::Segments,
    Work::Flusher,
    Work::WakeFlusher,
];

/// The processes: one that dies, two that work, one that repairs and may die, one that repairs after it. Where several
/// die at the same time, there are more.
const VICTIM: u32 = 1;
const WORKERS: [u32; 2] = [2, 3];
const REPAIRERS: [u32; 2] = [4, 5];
const MORE_VICTIMS: [u32; 2] = [6, 7];

/// What is to happen: deaths before these steps, 0 none.
#[derive(Debug, Clone, Copy, Default)]
struct Plan {
    seed: u64,
    victim_dies_at: u64,
    repairer_dies_at: u64,
    worker_stops_at: u64,
    forgotten: Option<RepairPart>,
}

/// Who has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Died {
    victim: bool,
    repairer: bool,
}

/// Records that were appended, by LSN: their numbers.
type Appended = Arc<Mutex<BTreeMap<Lsn, u64>>>;

/// What all processes have in common.
struct World {
    region: Region,
    slots: Arc<SlotTable>,
    log: Arc<Log>,
    disk: Arc<dyn Disk>,
    appended: Appended,
    is_over: Arc<AtomicBool>,
    forgotten: Option<RepairPart>,
}

/// A process's own view of it.
struct Own {
    log: Arc<Log>,
    slots: Arc<SlotTable>,
    appended: Appended,
}

impl World {
    fn new(work: Work, forgotten: Option<RepairPart>) -> World {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let region = Region::shared(1 << 20).unwrap();
        let slots = Arc::new(SlotTable::create(&region, 32).unwrap());
        let settings =
            LogConfig { region: region.clone(), slots: Some(Arc::clone(&slots)), ..config(Arc::clone(&disk)) };
        // Small ones allow nobody to keep more.
        let segment_bytes = if work == Work::Keep { 4 * SEGMENT_BYTES } else { SEGMENT_BYTES };
        let log = Log::open(LogConfig { kept_claim_count: 4, spare_segments: 1, segment_bytes, ..settings }).unwrap();
        World { region, slots, log, disk, appended: Appended::default(), is_over: Arc::default(), forgotten }
    }

    fn view(&self) -> Own {
        let view = self.region.view().unwrap();
        let slots = Arc::new(self.slots.attach(&view).unwrap());
        let log = self.log.attach(&view, Arc::clone(&slots), Arc::clone(&self.disk), self.forgotten).unwrap();
        Own { log, slots, appended: Arc::clone(&self.appended) }
    }

    fn work(&self, process: u32, work: Work, rounds: u64) -> sync::JoinHandle<()> {
        self.work_in_thread(process, 0, work, rounds)
    }

    fn work_in_thread(&self, process: u32, thread: u32, work: Work, rounds: u64) -> sync::JoinHandle<()> {
        let own = self.view();
        spawn_in(process, "works", move || (0..rounds).for_each(|round| own.work(process + 100 * thread, work, round)))
    }

    fn repairer(&self, process: u32, every_ns: u64) -> sync::JoinHandle<()> {
        let (own, is_over) = (self.view(), Arc::clone(&self.is_over));
        spawn_in(process, "repairs", move || {
            while !is_over.load(SeqCst) {
                sync::sleep_ns(every_ns);
                own.repair();
            }
        })
    }
}

impl Own {
    fn repair(&self) {
        let mend = |dead: &Dead<'_>| {
            self.log.repair(dead)?;
            self.log.inherit(dead)
        };
        self.slots.repair(mend).unwrap();
        // There are no transactions to be ended.
        self.log.release_undo(self.log.take_inherited());
    }

    /// Appends record `no`, with `bytes` of body.
    fn append(&self, claim: &mut ledgerstone_log::Claim, no: u64, bytes: usize) -> Lsn {
        let lsn = append(&self.log, claim, no, bytes);
        self.appended.lock().unwrap().insert(lsn, no);
        lsn
    }

    fn flush(&self, lsn: Lsn) {
        self.log.flush_to(lsn).unwrap();
        assert!(self.log.is_durable(lsn));
    }

    fn work(&self, process: u32, work: Work, round: u64) {
        let log = &self.log;
        let no = u64::from(process) * 1_000_000 + round * 10;
        let append_one = |no, bytes: usize| {
            let mut claim = log.claim(bytes + 64).unwrap();
            let lsn = self.append(&mut claim, no, bytes);
            log.give_back(claim);
            lsn
        };
        match work {
            Work::Append => drop(append_one(no, 100)),
            Work::Commit => self.flush(append_one(no, 300)),
            Work::ReserveAndRollBack => {
                let mut claim = log.claim_and_reserve_undo(400, 1000).unwrap();
                self.append(&mut claim, no, 100);
                log.give_back(claim);
                let mut claim = log.claim_undo(200).unwrap();
                self.append(&mut claim, no + 1, 40);
                log.give_back_all(claim, 800);
                log.release_undo(200);
            }
            Work::LargeClaim => {
                let mut claim = log.claim(log.claim_bytes_max() as usize).unwrap();
                self.append(&mut claim, no, 4000);
                log.give_back(claim);
            }
            Work::ClaimBeside => {
                let first = log.claim(1500).unwrap();
                log.give_back(first);
                let mut claim = log.claim_upkeep(log.claim_bytes_max() as usize / 2).unwrap();
                self.append(&mut claim, no, 2000);
                log.give_back(claim);
            }
            Work::Keep => {
                let may = log.may_keep_more();
                let mut kept = log.claim(log.kept_claim_bytes() as usize + 200).unwrap();
                self.append(&mut kept, no, 60);
                sync::yield_point("keeps a rest");
                self.append(&mut kept, no + 1, 60);
                log.give_back(kept);
                if may {
                    log.end_keeping_more();
                }
            }
            Work::Segments => {
                for part in 0..4 {
                    let lsn = append_one(no + part, 3000);
                    self.flush(lsn);
                    log.recycle_before(Lsn(lsn.0.saturating_sub(3 * SEGMENT_BYTES))).unwrap();
                }
            }
            Work::Flusher => {
                log.start_flusher().unwrap();
                let lsn = append_one(no, 200);
                log.request_flush(lsn);
                sync::sleep_ns(200_000);
                log.request_flush_soon(append_one(no + 1, 200));
                log.stop_flusher();
            }
            Work::WakeFlusher => log.request_flush(append_one(no, 200)),
        }
    }
}

/// Runs the work beside a death, and looks at what is there afterwards.
fn run(work: Work, plan: Plan) -> Died {
    let run = Scheduler::run(plan.seed, || {
        let world = World::new(work, plan.forgotten);
        if work == Work::WakeFlusher {
            world.log.start_flusher().unwrap();
        }
        kill_at_step(VICTIM, plan.victim_dies_at);
        kill_at_step(REPAIRERS[0], plan.repairer_dies_at);
        stop_at_step(WORKERS[1], plan.worker_stops_at, 30_000_000);
        let repairers = [world.repairer(REPAIRERS[0], 700_000), world.repairer(REPAIRERS[1], 40_000_000)];
        let victim = world.work(VICTIM, work, 2);
        let beside = if work == Work::Segments { Work::Segments } else { Work::Commit };
        let workers = [world.work(WORKERS[0], Work::LargeClaim, 4), world.work(WORKERS[1], beside, 4)];
        let died = Died { victim: victim.join().is_err(), repairer: false };
        workers.into_iter().for_each(|worker| worker.join().expect("the living go on"));
        if died.victim {
            while !is_dead(VICTIM) {
                sync::sleep_ns(1_000_000);
            }
            sync::sleep_ns(100_000_000); // Somebody repairs.
        }
        world.is_over.store(true, SeqCst);
        let [first, second] = repairers;
        let died = Died { repairer: first.join().is_err(), ..died };
        second.join().expect("it repairs");
        let own = world.view();
        if died.repairer {
            while !is_dead(REPAIRERS[0]) {
                sync::sleep_ns(1_000_000);
            }
        }
        own.repair();
        if work == Work::WakeFlusher {
            let mut claim = world.log.claim(200).unwrap();
            let lsn = append(&world.log, &mut claim, 0, 100);
            world.log.give_back(claim);
            own.appended.lock().unwrap().insert(lsn, 0);
            world.log.request_flush(lsn);
            sync::sleep_ns(1_000_000_000);
            assert!(world.log.is_durable(lsn), "the flusher sleeps");
            world.log.stop_flusher();
        }
        check(&world, &own);
        died
    });
    run.unwrap_or_else(|stuck| panic!("{work:?} {plan:?}: {stuck}"))
}

fn check(world: &World, own: &Own) {
    assert!(Dead::of(&own.slots).is_none(), "their slots are free");
    assert_eq!(own.log.left_over(), None);
    let claim = own.log.claim(own.log.claim_bytes_max() as usize).expect("all room is there again");
    own.log.give_back(claim);
    own.log.flush().unwrap();
    // All that was appended is in the log, but what is given up. Between them are only what the dead had not published,
    // and what they had published and not told.
    let appended = world.appended.lock().unwrap();
    let oldest = own.log.oldest_lsn();
    let begin = own.log.beginning_from(oldest).unwrap().map_or(FIRST_LSN, |beginning| beginning.lsn);
    let mut scan = own.log.scan(begin).unwrap();
    let mut found = BTreeMap::new();
    while let Some(record) = scan.next().unwrap() {
        if record.kind() != RecordKind::Void {
            found.insert(record.lsn(), number_of(&record));
        }
    }
    assert_eq!(scan.end(), own.log.durable_lsn(), "the log is whole");
    for (lsn, no) in appended.iter().filter(|(lsn, _)| **lsn >= begin) {
        assert_eq!(found.remove(lsn), Some(*no), "at {lsn}");
    }
    let is_a_victims = |no: &u64| [VICTIM, MORE_VICTIMS[0], MORE_VICTIMS[1]].contains(&((no / 1_000_000 % 100) as u32));
    assert!(found.values().all(is_a_victims), "untold: {found:?}");
}

/// A plan for the `n`th step of a run of this work.
fn plan(work: Work, n: u64) -> Plan {
    Plan { seed: work as u64 * 100_000 + n, ..Plan::default() }
}

#[test]
fn deaths_at_each_step_are_repaired() {
    let mut deaths = BTreeMap::new();
    for work in ALL {
        for n in 1.. {
            if !run(work, Plan { victim_dies_at: n, ..plan(work, n) }).victim {
                break;
            }
            *deaths.entry(work as u64).or_insert(0) += 1;
        }
    }
    println!("deaths by work: {deaths:?}");
    assert!(deaths.len() == ALL.len() && deaths.values().all(|count| *count > 20), "{deaths:?}");
}

/// At every 97th step of the victim, and where it leaves a gap, and at each step of the repairer.
#[test]
fn deaths_of_repairers_are_repaired() {
    let mut pairs = 0;
    for work in ALL {
        let gaps = if work == Work::Append { 8..13 } else { 0..0 };
        for n in gaps.chain((1..).step_by(97)) {
            let plan = |r| Plan { victim_dies_at: n, repairer_dies_at: r, ..plan(work, n * 1000 + r) };
            if !run(work, plan(0)).victim {
                break;
            }
            for r in 1.. {
                if !run(work, plan(r)).repairer {
                    break;
                }
                pairs += 1;
            }
        }
    }
    println!("{pairs} pairs");
    assert!(pairs > 500, "{pairs}");
}

/// Three processes, one with two threads, die at about the same time beside three that work. So may one that repairs.
fn run_with_many_victims(seed: u64) -> [bool; 2] {
    const WORKS: [Work; 7] = [
        Work::Append,
        Work::Commit,
        Work::LargeClaim,
        Work::Keep,
        Work::ClaimBeside,
        Work::ReserveAndRollBack,
        Work::Segments,
    ];
    let mut random = Random::new(seed);
    let victims = [VICTIM, VICTIM, MORE_VICTIMS[0], MORE_VICTIMS[1]];
    let dying = victims.map(|process| (process, WORKS[random.below(6) as usize]));
    let living = [WORKERS[0], WORKERS[1], 8].map(|process| (process, WORKS[random.below(7) as usize]));
    let steps = [40, 150, 600][random.below(3) as usize];
    let deaths = [VICTIM, MORE_VICTIMS[0], MORE_VICTIMS[1]].map(|process| (process, 1 + random.below(steps)));
    let (dies_at, stops_at) = (random.below(3) * random.below(150), random.below(2) * random.below(600));
    let run = Scheduler::run(seed, || {
        let world = World::new(Work::Keep, None);
        deaths.into_iter().for_each(|(process, at)| kill_at_step(process, at));
        kill_at_step(REPAIRERS[0], dies_at);
        stop_at_step(WORKERS[1], stops_at, 30_000_000);
        let repairers = [world.repairer(REPAIRERS[0], 700_000), world.repairer(REPAIRERS[1], 20_000_000)];
        let work = |(thread, (process, work)): (u32, (u32, Work))| world.work_in_thread(process, thread, work, 3);
        let victims: Vec<_> = (0..).zip(dying).map(work).collect();
        let workers: Vec<_> = (0..).zip(living).map(work).collect();
        let victims_died = victims.into_iter().map(|victim| victim.join().is_err()).fold(false, |any, died| any | died);
        workers.into_iter().for_each(|worker| worker.join().expect("the living go on"));
        sync::sleep_ns(2_000_000_000); // All deaths are known, and somebody repairs.
        world.is_over.store(true, SeqCst);
        let [first, second] = repairers;
        let repairer_died = first.join().is_err();
        second.join().expect("it repairs");
        sync::sleep_ns(2_000_000_000);
        let own = world.view();
        own.repair();
        check(&world, &own);
        [victims_died, repairer_died]
    });
    run.unwrap_or_else(|stuck| panic!("seed {seed}: {dying:?} {deaths:?} {dies_at} {stops_at}: {stuck}"))
}

#[test]
fn deaths_of_several_processes_at_random() {
    let mut count = [0; 2];
    let (rounds, seeds) = rounds_and_seeds();
    for seed in seeds {
        let died = run_with_many_victims(seed);
        (0..2).for_each(|no| count[no] += u64::from(died[no]));
    }
    println!("{rounds} rounds of several victims: {} with deaths, {} of repairers", count[0], count[1]);
}

/// Rounds of a random campaign, and their seeds.
fn rounds_and_seeds() -> (u64, Vec<u64>) {
    let rounds = std::env::var("ROUNDS").map_or(300, |rounds| rounds.parse().expect("a number of rounds"));
    match std::env::var("SEED") {
        Ok(seed) if !seed.is_empty() => (1, vec![seed.parse().expect("a seed")]),
        _ => (rounds, (0..rounds).collect()),
    }
}

#[test]
fn deaths_and_stops_at_random() {
    let (rounds, seeds) = rounds_and_seeds();
    let mut count = [0; 2];
    for seed in seeds {
        let mut random = Random::new(seed);
        let work = ALL[random.below(ALL.len() as u64) as usize];
        let plan = Plan {
            seed,
            victim_dies_at: 1 + random.below(600),
            repairer_dies_at: random.below(3) * random.below(150),
            worker_stops_at: random.below(2) * random.below(600),
            forgotten: None,
        };
        let died = run(work, plan);
        count = [count[0] + u64::from(died.victim), count[1] + u64::from(died.repairer)];
    }
    println!("{rounds} rounds: {} deaths, {} of repairers", count[0], count[1]);
}

/// Whatever a repair leaves out is missed by some run, if only because it never ends.
#[test]
fn each_part_of_a_repair_that_is_forgotten_in_deaths_is_missed() {
    let is_missed = |part| {
        let fails = |work, n, r| {
            let plan =
                Plan { victim_dies_at: n, repairer_dies_at: r, forgotten: Some(part), ..plan(work, n * 1000 + r) };
            std::panic::catch_unwind(|| run(work, plan)).is_err()
        };
        let each = |work| (1..700).any(|n| fails(work, n, 0));
        // With a repairer that dies, or under several seeds.
        let again = |work, count| (1..count).any(|n| (1..60).any(|r| fails(work, n, r)));
        match part {
            RepairPart::Wakes => again(Work::WakeFlusher, 110),
            RepairPart::GapBegun => again(Work::Append, 60),
            _ => ALL.into_iter().any(each),
        }
    };
    let found: Vec<_> = RepairPart::ALL.into_iter().filter(|part| !is_missed(*part)).collect();
    assert_eq!(found, [], "these are not missed");
}

/// A process is stopped in an append, and another dies with the latch of the room and nothing in hand: whoever claims
/// does not wait for the stopped one.
#[test]
fn deaths_that_leave_no_gap_are_repaired_beside_a_stopped_append() {
    let mut count = 0;
    for (n, k) in (1..40).flat_map(|n| (1..9).map(move |k| (n, k))) {
        let run = Scheduler::run(n * 100 + k, || {
            let world = World::new(Work::Append, None);
            let is_left = |what| world.log.left_over().is_some_and(|left| left.contains(what));
            stop_at_step(WORKERS[0], n, 20_000_000_000);
            let stopped = world.work(WORKERS[0], Work::Append, 1);
            sync::sleep_ns(1_000_000);
            kill_at_step(VICTIM, k);
            let view = world.view();
            let dies = move || view.log.give_back(view.log.claim(200).unwrap());
            let has_died = is_left("in hand") && spawn_in(VICTIM, "dies", dies).join().is_err();
            if has_died && is_left("latched") && is_left("in hand: 1") {
                let repairer = world.repairer(REPAIRERS[0], 700_000);
                let (view, from) = (world.view(), sync::now_ns());
                let claims = spawn_in(WORKERS[1], "claims", move || view.log.give_back(view.log.claim(200).unwrap()));
                claims.join().unwrap();
                assert!(sync::now_ns() - from < 2_000_000_000, "stopped at {n}, died at {k}");
                count += 1;
                world.is_over.store(true, SeqCst);
                repairer.join().unwrap();
            }
            stopped.join().unwrap();
        });
        run.unwrap();
    }
    assert!(count > 0, "it never came to that");
}
