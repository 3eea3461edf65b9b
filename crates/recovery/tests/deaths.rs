//! Processes that die while they change pages, give out pages, or make the data file longer. Log, cache and
//! space are the real ones, and the living go on beside the repair.
//!
//! Process 1 is the victim. Process 2 works on the same pages, and so does process 3, which stops for a while, perhaps
//! in the middle of an append. Process 4 repairs, and may die in that; process 5 repairs after it. In the end, the log
//! says what every page is. The frame is that of all campaigns of deaths, `ledgerstone_testkit::deaths`.
#![cfg(all(feature = "deaths", not(miri)))]

mod counting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use counting::{ADD, FORMAT, add_args};
use ledgerstone_buffer::{Cache, CacheConfig, Policy};
use ledgerstone_disk::{Disk, DiskFile, Open, SimDisk};
use ledgerstone_lock::{LockConfig, LockTable};
use ledgerstone_log::{FIRST_LSN, Log, LogConfig, RecordKind};
use ledgerstone_op::Registry;
use ledgerstone_page::{Lsn, OpId, PageId, checksum};
use ledgerstone_recovery::{PageRebuild, PageRepair};
use ledgerstone_region::sync;
use ledgerstone_region::sync::deaths::{is_dead, kill_at_step, spawn_in, steps, stop_at_step};
use ledgerstone_region::{AnotherDied, Dead, Random, Region, Repair, SlotTable};
use ledgerstone_space::{FreeRun, OP_SPACE_CLEAR, OP_SPACE_SET, Space, SpaceError, bits_of};
use ledgerstone_testkit::deaths::*;
use ledgerstone_txn::{
    Engine, EngineParts, EngineSettings, Part, Reason, StructureLatches, TxnError, TxnTable, VersionStore,
};

const ENV: [u8; 16] = *b"deaths of spaces";
const PAGE_BYTES: usize = 4096;
const FRAMES: u64 = 24;

const WORKER: u32 = WORKERS[0];
const STOPPED: u32 = WORKERS[1];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Two pages in one group, both of which others change.
    Change,
    /// The same, and one of them goes home.
    ChangeAndWrite,
    /// A page is taken and made, where the file has one.
    Take,
    /// Pages are taken for which the file has to grow.
    TakeAndGrow,
    /// The file grows beyond the last map.
    TakeAndMakeMap,
    /// A page is taken, and given back.
    TakeAndGive,
}

use Work::*;

const ALL: [Work; 6] = [Change, ChangeAndWrite, Take, TakeAndGrow, TakeAndMakeMap, TakeAndGive];

/// What is to happen: deaths before these steps, 0 none.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    work: Work,
    rounds: u64,
    victim_dies_at: u64,
    worker_dies_at: u64,
    repairer_dies_at: u64,
    stops_at: u64,
    forgotten: Option<Forgotten>,
}

/// What a repair leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forgotten {
    /// To wait for the living, before pages are built from the log.
    Settling,
    /// What the space manager needs.
    Space,
}

impl Plan {
    fn of(work: Work, seed: u64) -> Plan {
        let (victim_dies_at, worker_dies_at, repairer_dies_at, stops_at) = (0, 0, 0, 0);
        Plan { seed, work, rounds: 1, victim_dies_at, worker_dies_at, repairer_dies_at, stops_at, forgotten: None }
    }
}

/// LSNs of groups that are done.
type Told = Arc<Mutex<Vec<Lsn>>>;

/// One process's view of the environment.
#[derive(Clone)]
struct Own {
    engine: Arc<Engine>,
    space: Arc<Space>,
    data: Arc<dyn DiskFile>,
    told: Told,
    forgotten: Option<Forgotten>,
}

struct World {
    disk: Arc<dyn Disk>,
    root: Own,
}

fn ops() -> Registry {
    let mut ops = counting::registry();
    ledgerstone_space::register(&mut ops).unwrap();
    ops
}

/// Locks, transactions and versions are not used here: each process has its own.
fn engine_of(region: &Region, slots: Arc<SlotTable>, log: Arc<Log>, cache: Arc<Cache>) -> Arc<Engine> {
    let locks = LockConfig { owners: 64, locks_max: 64, buckets: 64, ..LockConfig::default() };
    Engine::new(EngineParts {
        locks: Arc::new(LockTable::place(region, &slots, locks).unwrap()),
        table: TxnTable::place(region, 2).unwrap(),
        versions: VersionStore::place(region, &log, &slots, 64 << 10, 4).unwrap(),
        structure_latches: StructureLatches::place(region).unwrap(),
        reason: Reason::place(region).unwrap(),
        region: region.clone(),
        slots,
        log,
        cache,
        ops: ops(),
        settings: EngineSettings { lock_timeout_ns: 1_000_000_000, escalate_after: 1000, locks_pages: false },
        fence: Arc::default(),
    })
}

impl World {
    fn new(plan: &Plan) -> World {
        let sim = SimDisk::new();
        sim.set_hook(Arc::new(|what| sync::yield_point(what)));
        let disk: Arc<dyn Disk> = Arc::new(sim);
        let region = Region::shared(24 << 20).unwrap();
        let slots = Arc::new(SlotTable::place(&region, 48).unwrap());
        let log = Log::open(LogConfig {
            slots: Some(Arc::clone(&slots)),
            segment_bytes: 64 << 10,
            buffer_bytes: 32 << 10,
            ..LogConfig::new(Arc::clone(&disk), region.clone(), ENV)
        })
        .unwrap();
        let data = disk.open("data", Open::CREATE).unwrap();
        let cache = Cache::new(CacheConfig {
            region: region.clone(),
            slots: Arc::clone(&slots),
            data: Arc::clone(&data),
            double_write: disk.open("double_write", Open::CREATE).unwrap(),
            log: Arc::clone(&log) as _,
            page_bytes: PAGE_BYTES as u32,
            cache_bytes: FRAMES * (PAGE_BYTES as u64 + 40),
            max_pages: 1 << 17,
            policy: Policy::Clock,
        })
        .unwrap();
        disk.sync_dir("").unwrap();
        let engine = engine_of(&region, slots, log, cache);
        let space = Space::format(&engine, Arc::clone(&data), ENV).unwrap();
        let told = Told::default();
        let root = Own { engine, space, data, told, forgotten: plan.forgotten };
        for id in PAGES.map(PageId) {
            root.group(&mut [root.engine.cache.exclusive_new(id).unwrap()], &[(0, FORMAT, &[])]).unwrap();
        }
        root.mark_used(PAGES);
        if plan.work == TakeAndMakeMap {
            let bits = bits_of(PAGE_BYTES) as u32;
            root.take(bits / 2, false).unwrap();
            root.take(bits / 2 - 210, false).unwrap();
        }
        root.engine.cache.write_back_all().unwrap();
        World { disk, root }
    }

    fn process(&self) -> Own {
        let root = &self.root.engine;
        let view = root.region.view().unwrap();
        let slots = Arc::new(SlotTable::place(&view, root.slots.max_threads()).unwrap());
        let log = root.log.attach(&view, Arc::clone(&slots), Arc::clone(&self.disk), None).unwrap();
        let cache = root.cache.attach(&view, Arc::clone(&slots), Arc::clone(&log) as _).unwrap();
        let engine = engine_of(&view, slots, log, cache);
        let space = Space::join(&engine, Arc::clone(&self.root.data)).unwrap();
        Own { engine, space, ..self.root.clone() }
    }
}

/// Pages of counters that all processes change.
const PAGES: std::ops::Range<u64> = 20..32;

type Change<'a> = (usize, OpId, &'a [u8]);

impl Own {
    /// Logs and does changes of several pages.
    fn group(&self, pages: &mut [ledgerstone_buffer::ExclusivePage<'_>], of: &[Change<'_>]) -> Result<Lsn, TxnError> {
        let claim = self.engine.log.claim_upkeep(512)?;
        let mut pages: Vec<_> = pages.iter_mut().collect();
        let parts: Vec<_> = of.iter().map(|&(page, op, args)| Part { page, op, args }).collect();
        let lsn = self.engine.group_alone(claim, &mut pages, &parts)?;
        self.told.lock().unwrap().push(lsn);
        Ok(lsn)
    }

    fn change(&self, random: &mut Random) -> Result<PageId, SpaceError> {
        let first = PAGES.start + random.below(PAGES.end - PAGES.start - 1);
        let second = first + 1 + random.below(PAGES.end - first - 1);
        self.add(PageId(first), PageId(second), &add_args(random.below(8) as usize, random.below(100) as i64))?;
        Ok(PageId(first))
    }

    fn add(&self, first: PageId, second: PageId, args: &[u8]) -> Result<(), SpaceError> {
        let mut pages = [self.engine.cache.exclusive(first)?, self.engine.cache.exclusive(second)?];
        self.group(&mut pages, &[(0, ADD, args), (1, ADD, args), (0, ADD, args)])?;
        Ok(())
    }

    /// Takes pages in a row, and makes the first of them.
    fn take(&self, count: u32, is_root: bool) -> Result<PageId, SpaceError> {
        let run = if is_root { self.space.latch_for_root()? } else { self.space.latch_free(count)? };
        let (first, set) = (run.first, run.args_set());
        let page = self.engine.cache.exclusive_new(first)?;
        self.group(&mut [run.map, page], &[(0, OP_SPACE_SET, &set), (1, FORMAT, &[]), (1, ADD, &add_args(0, 1))])?;
        Ok(first)
    }

    /// Cuts free pages off at the end of the file. Nobody takes checkpoints here.
    fn cut(&self) -> Result<(), SpaceError> {
        while self.space.shrink()? > 0 {}
        Ok(())
    }

    /// The map says that these pages are in use.
    fn mark_used(&self, pages: std::ops::Range<u64>) {
        let (first, count) = (PageId(pages.start), (pages.end - pages.start) as u32);
        let run = FreeRun { map: self.space.latch_map_of(first).unwrap(), first, count };
        let set = run.args_set();
        self.group(&mut [run.map], &[(0, OP_SPACE_SET, &set)]).unwrap();
    }

    fn give(&self, first: PageId, count: u32) -> Result<(), SpaceError> {
        let map = self.space.latch_map_of(first)?;
        let args = self.space.args_clear(&map, first, count)?;
        self.group(&mut [map], &[(0, OP_SPACE_CLEAR, &args)])?;
        Ok(())
    }

    fn work(&self, work: Work, random: &mut Random) -> Result<(), SpaceError> {
        match work {
            Change => drop(self.change(random)?),
            ChangeAndWrite => {
                let page = self.change(random)?;
                self.engine.cache.write_back_page(page)?;
            }
            Take => drop(self.take(1, false)?),
            TakeAndGrow => drop(self.take(70, false)?),
            TakeAndMakeMap => drop(self.take(220, false)?),
            TakeAndGive => {
                let first = self.take(3, false)?;
                self.give(first, 3)?;
            }
        }
        Ok(())
    }

    fn repair(&self) -> bool {
        let engine = &*self.engine;
        let mend = |dead: &Dead<'_>| -> Result<(), AnotherDied> {
            engine.log.repair(dead)?;
            let until = match self.forgotten {
                Some(Forgotten::Settling) => engine.log.tail(),
                _ => engine.log.settle(dead)?,
            };
            engine.cache.repairer(&PageRebuild::new(&engine.ops, &engine.log, until)).repair(dead)?;
            match self.forgotten {
                Some(Forgotten::Space) => Ok(()),
                _ => self.space.repair(dead),
            }
        };
        engine.slots.repair(mend).expect("a slot is free")
    }
}

type Failure = String;

fn run(plan: Plan) -> Result<Outcome, Failure> {
    tried(plan, plan.seed, 3_000_000, || simulate(&plan))
}

fn must(plan: Plan) -> Outcome {
    run(plan).unwrap_or_else(|what| panic!("{what}"))
}

/// What a thread has come to, if its process has not died.
fn join(thread: sync::JoinHandle<Result<(), Failure>>) -> Result<(), Failure> {
    outlived(thread).unwrap_or(Ok(()))
}

fn simulate(plan: &Plan) -> Result<Outcome, Failure> {
    let world = World::new(plan);
    let is_over = Arc::new(AtomicBool::new(false));
    let (victim_steps, repair_steps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let plan = *plan;
    let failure = |error: SpaceError| error.to_string();

    let victim = {
        let (own, count) = (world.process(), Arc::clone(&victim_steps));
        spawn_in(VICTIM, "victim", move || {
            own.engine.slots.current();
            let (before, mut random) = (steps(VICTIM), Random::new(plan.seed));
            kill_at_step(VICTIM, plan.victim_dies_at);
            (0..plan.rounds).try_for_each(|_| own.work(plan.work, &mut random)).map_err(failure)?;
            kill_at_step(VICTIM, 0);
            count.store(steps(VICTIM) - before, SeqCst);
            Ok(())
        })
    };
    let workers: Vec<_> = [WORKER, STOPPED]
        .map(|no| {
            let own = world.process();
            spawn_in(no, "worker", move || {
                own.engine.slots.current();
                match no {
                    WORKER => kill_at_step(WORKER, plan.worker_dies_at),
                    _ => stop_at_step(STOPPED, plan.stops_at, 4_000_000),
                }
                let mut random = Random::new(plan.seed * 10 + u64::from(no));
                for _ in 0..4 + plan.rounds {
                    let work = if random.below(2) == 0 { plan.work } else { ALL[random.below(4) as usize] };
                    own.work(work, &mut random).map_err(failure)?;
                    sync::yield_point("between two");
                }
                kill_at_step(WORKER, 0);
                Ok(())
            })
        })
        .into();
    let repairers: Vec<_> = [(REPAIRERS[0], 150_000), (REPAIRERS[1], 9_000_000)]
        .map(|(no, every_ns)| {
            let (own, is_over, count) = (world.process(), Arc::clone(&is_over), Arc::clone(&repair_steps));
            spawn_in(no, "repairer", move || {
                own.engine.slots.current();
                let before = steps(no);
                if no == REPAIRERS[0] {
                    kill_at_step(no, plan.repairer_dies_at);
                }
                while !is_over.load(SeqCst) {
                    sync::sleep_ns(every_ns);
                    if own.repair() {
                        count.fetch_max(steps(no) - before, SeqCst);
                    }
                }
                Ok(())
            })
        })
        .into();

    let mut done = join(victim);
    for worker in workers {
        done = done.and(join(worker));
    }
    sync::sleep_ns(30_000_000); // All deaths are known, and repaired after.
    is_over.store(true, SeqCst);
    for repairer in repairers {
        done = done.and(join(repairer));
    }
    done?;
    let own = world.process();
    sync::sleep_ns(10_000_000);
    own.repair();
    check(&world, &own)?;
    let (victim_steps, repair_steps) = (victim_steps.load(SeqCst), repair_steps.load(SeqCst));
    let [victim, repairer, worker] = [VICTIM, REPAIRERS[0], WORKER].map(is_dead);
    Ok(Outcome { victim, repairer, worker, victim_steps, repair_steps })
}

/// Nothing of the dead is left, and the log says what every page is.
fn check(world: &World, own: &Own) -> Result<(), Failure> {
    let (log, cache, space) = (&own.engine.log, &own.engine.cache, &own.space);
    if Dead::of(&own.engine.slots).is_some() {
        return Err("the dead have slots still".to_owned());
    }
    if cache.is_failed() || log.is_failed() {
        return Err("the environment has failed".to_owned());
    }
    if let Some(left) = log.left_over() {
        return Err(format!("left in the log: {left}"));
    }
    // Everybody can go on, with every part.
    let mut random = Random::new(1);
    for work in ALL {
        own.work(work, &mut random).map_err(|error| format!("{work:?} afterwards: {error}"))?;
    }
    let len = own.data.len().map_err(|error| error.to_string())?;
    if space.page_count() * PAGE_BYTES as u64 > len {
        return Err(format!("the file has {len} bytes, and {} pages are said", space.page_count()));
    }
    let what = |error: ledgerstone_log::LogError| error.to_string();
    log.flush().map_err(what)?;
    let mut repair = PageRepair::new(&own.engine.ops, PAGE_BYTES);
    let (mut found, mut is_known) = (Vec::new(), BTreeMap::new());
    let mut scan = log.scan(FIRST_LSN).map_err(what)?;
    while let Some(record) = scan.next_view().map_err(what)? {
        let mut pages: Vec<PageId> = record.parts().map(|part| part.expect("it is whole").page).collect();
        pages.extend(record.kind().has_page().then(|| record.page()));
        for page in pages {
            if is_known.insert(page, ()).is_none() {
                repair.begin(page, None).map_err(|error| error.to_string())?;
            }
        }
        if record.kind() == RecordKind::Group {
            found.push(record.lsn());
        }
        repair.apply(record).map_err(|error| error.to_string())?;
    }
    if let Some(lost) = world.root.told.lock().unwrap().iter().find(|lsn| found.binary_search(lsn).is_err()) {
        return Err(format!("the record at {lost} was told, and is not in the log"));
    }
    for page in repair.finish().map_err(|error| error.to_string())? {
        let live = match cache.shared(page.page) {
            // A free one that was cut off.
            Err(error) if error.is_never_written() && space.is_allocated(page.page).is_ok_and(|is| !is) => continue,
            live => live.map_err(|error| error.to_string())?,
        };
        let mut bytes = live.words().to_vec(0, PAGE_BYTES);
        checksum::seal(&mut bytes);
        if bytes != page.bytes {
            return Err(format!("{} has {}, and the log says {}", page.page, live.page_lsn(), page.lsn));
        }
    }
    Ok(())
}

#[test]
fn deaths_at_each_step_of_each_work_are_repaired() {
    at_each_step(
        &ALL,
        Which::Each,
        |deaths, steps| deaths == steps,
        |work, step| must(Plan { victim_dies_at: step, stops_at: 3 * step % 500, ..Plan::of(work, work as u64) }),
    );
}

#[test]
fn deaths_of_repairers_are_repaired() {
    let some = |count| Which::Ends { edge: count / 2, parts: count, one_in: 1 };
    in_repairs(&ALL, [some(8), some(6)], 500, |work, n, r| {
        must(Plan { victim_dies_at: n, repairer_dies_at: r, ..Plan::of(work, 10 + work as u64) })
    });
}

/// Two processes die one after the other, each in a change, and are repaired at once. Where both had reserved and not
/// said where, the log has one void record for both. The pages of the second have seen the log end within it.
fn die_both(steps_1: u64, steps_2: u64) -> Result<u64, Failure> {
    let plan = Plan::of(Change, steps_1 * 1000 + steps_2);
    tried((steps_1, steps_2), plan.seed, sync::STEPS_MAX, || {
        let world = World::new(&plan);
        let victim = |no: u32, dies_at| {
            let (own, first) = (world.process(), PAGES.start + 2 * u64::from(no));
            spawn_in(no, "victim", move || {
                own.engine.slots.current();
                let before = steps(no);
                kill_at_step(no, dies_at);
                let done = own.add(PageId(first), PageId(first + 1), &add_args(1, 5));
                done.map(|()| steps(no) - before)
            })
        };
        outlived(victim(VICTIM, steps_1));
        let second = victim(WORKER, steps_2);
        let own = world.process();
        sync::sleep_ns(20_000_000);
        own.repair(); // After both, unless the first one's latch keeps the second one from its death.
        let count = outlived(second).map_or(0, |done| done.expect("nothing fails"));
        sync::sleep_ns(10_000_000); // The deaths are known by then.
        own.repair();
        check(&world, &own)?;
        Ok(count)
    })
}

#[test]
fn deaths_of_two_at_each_pair_of_steps_are_repaired() {
    let step_count = die_both(0, 0).expect("nobody dies");
    for (steps_1, steps_2) in (1..=step_count).flat_map(|one| (1..=step_count).map(move |two| (one, two))) {
        die_both(steps_1, steps_2).unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{step_count} steps each");
}

/// Pages of the second map that are taken, and then given back.
const OF_SECOND_MAP: u32 = 220;

/// A process dies while it cuts the second map off, and so does one that finishes that. In the data file that map says
/// that its pages are in use: what was given back is in memory only.
fn die_cutting(victim_dies_at: u64, finisher_dies_at: u64) -> Result<(u64, u64), Failure> {
    let plan = Plan::of(TakeAndMakeMap, victim_dies_at * 1000 + finisher_dies_at);
    tried(("a map cut off", victim_dies_at, finisher_dies_at), plan.seed, 3_000_000, || {
        let world = World::new(&plan);
        let root = &world.root;
        let before = root.space.allocated_count().unwrap();
        let first = root.take(OF_SECOND_MAP, false).unwrap();
        root.engine.cache.write_back_all().unwrap();
        root.give(first, OF_SECOND_MAP).unwrap();
        let begun_steps = |no, dies_at| {
            let before = steps(no);
            kill_at_step(no, dies_at);
            before
        };
        let victim = {
            let own = world.process();
            spawn_in(VICTIM, "cuts", move || {
                own.engine.slots.current();
                let before = begun_steps(VICTIM, victim_dies_at);
                own.cut().map(|()| steps(VICTIM) - before)
            })
        };
        let victim_steps = outlived(victim).map_or(0, |done| done.expect("nothing fails"));
        let mut finisher_steps = 0;
        for (no, dies_at) in REPAIRERS.into_iter().zip([finisher_dies_at, 0]) {
            sync::sleep_ns(20_000_000); // The deaths are known by then.
            let own = world.process();
            let finisher = spawn_in(no, "finishes", move || {
                own.engine.slots.current();
                let before = begun_steps(no, dies_at);
                own.repair();
                // The latch of checkpoints, which the victim had, is given back once, whoever comes first (G5).
                let mut given = 0;
                let is_taken_over_first = victim_dies_at.is_multiple_of(2);
                if is_taken_over_first {
                    given += u32::from(own.space.may_give_checkpoints_back());
                }
                own.space.finish_cut(|| given += 1)?;
                if !is_taken_over_first {
                    given += u32::from(own.space.may_give_checkpoints_back());
                }
                assert_eq!(given, 1);
                Ok::<_, ledgerstone_space::SpaceError>(steps(no) - before)
            });
            finisher_steps = finisher_steps.max(outlived(finisher).map_or(0, |done| done.expect("nothing fails")));
        }
        let own = world.process();
        if !own.space.may_grow() || own.space.is_half_cut() {
            return Err("the file is half cut".to_owned());
        }
        let again = own.take(OF_SECOND_MAP, false).map_err(|error| format!("taken again: {error}"))?;
        let after = own.space.allocated_count().map_err(|error| error.to_string())?;
        let expected = before + u64::from(OF_SECOND_MAP) + 1; // And the second map.
        if again < first || after != expected {
            return Err(format!("{again} is taken again, after {first}; {after} pages are in use, not {expected}"));
        }
        check(&world, &own)?;
        Ok((victim_steps, finisher_steps))
    })
}

#[test]
fn deaths_while_a_map_is_cut_off_are_repaired() {
    let die = |victim, finisher| die_cutting(victim, finisher).unwrap_or_else(|what| panic!("{what}"));
    let (step_count, _) = die(0, 0);
    let mut deaths = 0;
    for step in (Which::Ends { edge: 30, parts: 60, one_in: 1 }).of(step_count, 0) {
        let (_, finisher_steps) = die(step, 0);
        deaths += 1;
        for finisher in (Which::Ends { edge: 1, parts: 2, one_in: 1 }).of(finisher_steps, step) {
            die(step, finisher);
            deaths += 1;
        }
    }
    println!("{step_count} steps, {deaths} deaths");
    assert!(deaths > 100, "{deaths}");
}

/// A plan that a seed draws.
fn drawn(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let work = ALL[random.below(ALL.len() as u64) as usize];
    let step_count = [40, 400, 4000][random.below(3) as usize];
    Plan {
        rounds: 1 + random.below(4),
        victim_dies_at: 1 + random.below(step_count),
        worker_dies_at: if random.below(3) == 0 { 1 + random.below(step_count) } else { 0 },
        repairer_dies_at: if random.below(3) == 0 { 1 + random.below(3000) } else { 0 },
        stops_at: if random.below(2) == 0 { 1 + random.below(3000) } else { 0 },
        ..Plan::of(work, seed)
    }
}

#[test]
fn deaths_at_random_leave_nothing_behind() {
    let what = ["deaths of victims", "of repairers", "of workers"];
    at_random(300, what, 3, |seed| must(drawn(seed)).deaths());
}

/// Each part is needed: without it, some death is not repaired.
#[test]
fn each_part_that_is_forgotten_after_deaths_is_found() {
    each_part_is_missed(&[Forgotten::Settling, Forgotten::Space], |part| {
        (0..3000).find_map(|seed| run(Plan { forgotten: Some(part), ..drawn(seed) }).err())
    });
}
