//! A process dies at each store to the region in turn, beside others that go on. These find their room, their records
//! are whole, and nothing of the dead is left. A repairer dies too, and the next one repairs for both.
//!
//! The frame is that of all campaigns of deaths, `ledgerstone_testkit::deaths`, with what can be asked for.
#![cfg(all(feature = "deaths", not(loom)))]

mod kit;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{ControlFile, ControlState, FIRST_LSN, Log, LogConfig, RecordKind, RepairPart};
use ledgerstone_page::Lsn;
use ledgerstone_region::sync;
use ledgerstone_region::sync::deaths::{kill, kill_at_step, spawn_in, stop_at_step, yield_at_steps};
use ledgerstone_region::{Dead, Random, Region, Repair, SlotTable};
use ledgerstone_testkit::deaths::*;

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
    /// Changes the control file.
    Control,
    /// Pins, moves a pin, and gives up what is below.
    Pins,
}

const ALL: [Work; 11] = [
    Work::Append,
    Work::Commit,
    Work::ReserveAndRollBack,
    Work::LargeClaim,
    Work::ClaimBeside,
    Work::Keep,
    Work::Segments,
    Work::Flusher,
    Work::WakeFlusher,
    Work::Control,
    Work::Pins,
];

/// Where several die at the same time, there are more.
const MORE_VICTIMS: [u32; 2] = [6, 7];

/// What is to happen.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    work: Work,
    deaths: Deaths,
    forgotten: Option<RepairPart>,
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
    /// Changes of the control file that have returned.
    changes: Arc<AtomicU64>,
    forgotten: Option<RepairPart>,
}

/// A process's own view of it.
#[derive(Clone)]
struct Own {
    log: Arc<Log>,
    slots: Arc<SlotTable>,
    appended: Appended,
    control: Arc<ControlFile>,
    changes: Arc<AtomicU64>,
}

impl World {
    fn new(work: Work, forgotten: Option<RepairPart>) -> World {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let region = Region::shared(1 << 20).unwrap();
        let slots = Arc::new(SlotTable::place(&region, 32).unwrap());
        let control = Arc::new(ControlFile::create(&*disk, ControlState::new(ENVIRONMENT, 4096, 0)).unwrap());
        control.share(&region, &slots).unwrap();
        let settings = LogConfig {
            region: region.clone(),
            slots: Some(Arc::clone(&slots)),
            control: Some(control),
            ..config(Arc::clone(&disk))
        };
        // Small ones allow nobody to keep more.
        let segment_bytes = if work == Work::Keep { 4 * SEGMENT_BYTES } else { SEGMENT_BYTES };
        let log = Log::open(LogConfig { kept_claim_count: 4, spare_segments: 1, segment_bytes, ..settings }).unwrap();
        World { region, slots, log, disk, appended: Appended::default(), changes: Arc::default(), forgotten }
    }

    fn view(&self) -> Own {
        let view = self.region.view().unwrap();
        let slots = Arc::new(SlotTable::place(&view, self.slots.max_threads()).unwrap());
        let log = self.log.attach(&view, Arc::clone(&slots), Arc::clone(&self.disk), self.forgotten).unwrap();
        let control = Arc::new(ControlFile::join(&*self.disk, &view, &slots).unwrap());
        Own { log, slots, appended: Arc::clone(&self.appended), control, changes: Arc::clone(&self.changes) }
    }

    fn begin(&self, deaths: Deaths) -> Cast {
        Cast::begin(deaths, |_| self.view(), Own::repair)
    }

    fn work(&self, cast: &mut Cast, process: u32, work: Work, rounds: u64) {
        self.work_in_thread(cast, process, 0, work, rounds);
    }

    fn work_in_thread(&self, cast: &mut Cast, process: u32, thread: u32, work: Work, rounds: u64) {
        cast.start(process, "works", self.view(), move |own| {
            (0..rounds).for_each(|round| own.work(process + 100 * thread, work, round));
        });
    }
}

impl Own {
    fn mend(&self) -> bool {
        let mend = |dead: &Dead<'_>| {
            self.log.repair(dead)?;
            self.log.inherit(dead)
        };
        self.slots.repair(mend).unwrap()
    }

    /// Repairs, if anybody has died. Another thread gives up what was inherited: it may come to wait for whoever dies
    /// next, and this one must not.
    fn repair(&self) -> Option<sync::JoinHandle<()>> {
        self.mend().then(|| {
            let own = self.clone();
            // There are no transactions to be ended.
            sync::spawn("ends", move || own.log.release_undo(own.log.take_inherited()))
        })
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
            Work::Pins => {
                let pin = log.pin_newest("newest", SEGMENT_BYTES);
                let old = log.pin("from here on", log.tail(), u64::MAX).unwrap();
                self.flush(append_one(no, 3000));
                log.recycle_before(log.durable_lsn()).unwrap();
                assert!(log.oldest_lsn() <= old.lsn());
                old.advance(log.tail());
                drop(pin);
            }
            Work::Control => {
                let before = self.changes.load(SeqCst);
                assert!(self.control.state().page_count >= before);
                self.control.change(|state| state.page_count += 1).unwrap();
                self.changes.fetch_add(1, SeqCst);
                assert!(self.control.is_as_we_left_it().unwrap());
            }
        }
    }
}

/// Runs the work beside deaths, and looks at what is there afterwards.
fn run(plan: Plan) -> Outcome {
    round(plan, plan.seed, sync::STEPS_MAX, || {
        let work = plan.work;
        let world = World::new(work, plan.forgotten);
        if work == Work::WakeFlusher {
            world.log.start_flusher().unwrap();
        }
        let mut cast = world.begin(plan.deaths);
        world.work(&mut cast, VICTIM, work, 2);
        world.work(&mut cast, WORKERS[0], Work::LargeClaim, 4);
        world.work(
            &mut cast,
            WORKERS[1],
            if [Work::Segments, Work::Control, Work::Pins].contains(&work) { work } else { Work::Commit },
            4,
        );
        let outcome = cast.end();
        let own = world.view();
        own.repair().into_iter().for_each(lived);
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
        outcome
    })
}

fn check(world: &World, own: &Own) {
    assert!(Dead::of(&own.slots).is_none(), "their slots are free");
    assert_eq!(own.log.left_over(), None);
    check_control(world, own);
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

/// No change that has returned is lost, and the file goes on from what the dead have left there. One change of each may
/// have come to be that has not returned.
fn check_control(world: &World, own: &Own) {
    own.control.change(|_| ()).unwrap();
    let (state, changes) = (own.control.state(), world.changes.load(SeqCst));
    assert!((changes..=changes + 3).contains(&state.page_count), "{changes} of {}", state.page_count);
    let found = ControlFile::open_read_only(&*world.disk).unwrap();
    assert_eq!((found.state(), found.generation(), found.damaged_slot()), (state, own.control.generation(), None));
}

/// A plan for these steps of a run of this work.
fn plan(work: Work, n: u64, r: u64) -> Plan {
    let no = if r == 0 { n } else { n * 1000 + r };
    Plan { seed: work as u64 * 100_000 + no, work, deaths: Deaths::at(n, r), forgotten: None }
}

#[test]
fn deaths_at_each_step_are_repaired() {
    at_each_step(&ALL, Which::Each, |deaths, _| deaths > 20, |work, n| run(plan(work, n, 0)));
}

/// At every 97th step of the victim, and where it leaves a gap, and at each step of the repairer.
#[test]
fn deaths_of_repairers_are_repaired() {
    let run = |work, n, r| run(plan(work, n, r));
    in_repairs(&ALL, [Which::OneIn(97), Which::Each], 500, run);
    in_repairs(&[Work::Control], [Which::OneIn(5), Which::Each], 0, run);
    in_repairs(&[Work::Append], [Which::These(&[8, 9, 10, 11, 12]), Which::Each], 0, run);
}

/// Three processes, one with two threads, die at about the same time beside three that work. So may one that repairs.
fn run_with_many_victims(seed: u64) -> [u64; 2] {
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
    let [victim, more @ ..] = [VICTIM, MORE_VICTIMS[0], MORE_VICTIMS[1]].map(|_| 1 + random.below(steps));
    let (repairer, worker_stops) = (random.below(3) * random.below(150), random.below(2) * random.below(600));
    let deaths = Deaths { victim, repairer, worker: 0, worker_stops };
    round((seed, dying, deaths, more), seed, sync::STEPS_MAX, || {
        let world = World::new(Work::Keep, None);
        let mut cast = world.begin(deaths);
        MORE_VICTIMS.into_iter().zip(more).for_each(|(process, at)| kill_at_step(process, at));
        for (thread, (process, work)) in (0..).zip(dying).chain((0..).zip(living)) {
            world.work_in_thread(&mut cast, process, thread, work, 3);
        }
        let Outcome { victim, repairer, .. } = cast.end();
        let own = world.view();
        own.repair().into_iter().for_each(lived);
        check(&world, &own);
        [victim, repairer].map(u64::from)
    })
}

#[test]
fn deaths_of_several_processes_at_random() {
    at_random(300, ["deaths of the first victim", "of a repairer"], 4, run_with_many_victims);
}

#[test]
fn deaths_and_stops_at_random() {
    at_random(300, ["deaths of the victim", "of a repairer", "of a worker"], 4, |seed| {
        let mut random = Random::new(seed);
        let work = ALL[random.below(ALL.len() as u64) as usize];
        let below = Deaths { victim: 600, repairer: 150, worker: 0, worker_stops: 600 };
        let deaths = Deaths::drawn(&mut random, below);
        run(Plan { seed, work, deaths, forgotten: None }).deaths()
    });
}

/// Whatever a repair leaves out is missed by some run, if only because it never ends.
#[test]
fn each_part_of_a_repair_that_is_forgotten_in_deaths_is_missed() {
    each_part_is_missed(&RepairPart::ALL, |part| {
        let misses = |&(work, n, r): &(Work, u64, u64)| {
            let plan = plan(work, n * 1000 + r, 0);
            fails(|| run(Plan { deaths: Deaths::at(n, r), forgotten: Some(part), ..plan }))
        };
        // With a repairer that dies, or under several seeds.
        let again = |work, count| (1..count).flat_map(move |n| (1..60).map(move |r| (work, n, r)));
        match part {
            RepairPart::Wakes => again(Work::WakeFlusher, 110).find(misses),
            RepairPart::GapBegun => again(Work::Append, 60).find(misses),
            RepairPart::Pins => (1..700).map(|n| (Work::Pins, n, 0)).find(misses),
            RepairPart::Control => (1..700).map(|n| (Work::Control, n, 0)).find(misses),
            _ => ALL.into_iter().flat_map(|work| (1..700).map(move |n| (work, n, 0))).find(misses),
        }
    });
}

/// A process is stopped in an append, and another dies with the latch of the room and nothing in hand: whoever claims
/// does not wait for the stopped one.
#[test]
fn deaths_that_leave_no_gap_are_repaired_beside_a_stopped_append() {
    let mut count = 0;
    for (n, k) in (1..40).flat_map(|n| (1..9).map(move |k| (n, k))) {
        round((n, k), n * 100 + k, sync::STEPS_MAX, || {
            let world = World::new(Work::Append, None);
            let is_left = |what| world.log.left_over().is_some_and(|left| left.contains(what));
            let claim = |own: &Own| own.log.give_back(own.log.claim(200).unwrap());
            stop_at_step(WORKERS[0], n, 20_000_000_000);
            let own = world.view();
            let stopped = spawn_in(WORKERS[0], "stops", move || own.work(WORKERS[0], Work::Append, 0));
            sync::sleep_ns(1_000_000);
            let own = world.view();
            kill_at_step(VICTIM, k);
            let has_died = is_left("in hand") && outlived(spawn_in(VICTIM, "dies", move || claim(&own))).is_none();
            if has_died && is_left("latched") && is_left("in hand: 1") {
                let cast = world.begin(Deaths::default());
                let (own, from) = (world.view(), sync::now_ns());
                lived(spawn_in(WORKERS[1], "claims", move || claim(&own)));
                assert!(sync::now_ns() - from < 2_000_000_000, "stopped at {n}, died at {k}");
                count += 1;
                cast.end();
            }
            lived(stopped);
        });
    }
    assert!(count > 0, "it never came to that");
}

/// One thread reserves room for a rollback, and another of its process gives some of it back. The process dies, and
/// whoever inherits from it dies at each step in turn. Then too much may be reserved, and never too little.
#[test]
fn deaths_of_heirs_leave_what_rollbacks_need() {
    const RESERVED: u64 = 1000;
    const GIVEN_BACK: u64 = 400;
    let dies_at = |step: &u64| {
        round(step, *step, sync::STEPS_MAX, || {
            let world = World::new(Work::Keep, None);
            let own = world.view();
            let reserves = spawn_in(VICTIM, "reserves", move || {
                own.log.reserve_undo(RESERVED).unwrap();
                sync::sleep_ns(1_000_000_000);
            });
            sync::sleep_ns(1_000_000);
            let own = world.view();
            let gives_back = spawn_in(VICTIM, "gives back", move || {
                own.log.release_undo(GIVEN_BACK);
                kill(VICTIM);
            });
            assert!([gives_back, reserves].into_iter().all(died));
            kill_at_step(REPAIRERS[0], *step);
            let own = world.view();
            let has_died = died(spawn_in(REPAIRERS[0], "inherits", move || assert!(own.mend())));
            if has_died {
                let own = world.view();
                assert!(own.mend());
                let inherited = own.log.inherited();
                assert!(inherited >= RESERVED - GIVEN_BACK, "{inherited} bytes, after a death at step {step}");
                own.log.release_undo(own.log.take_inherited());
                assert_eq!(own.log.left_over(), None);
            }
            has_died
        })
    };
    let count = (1..).take_while(dies_at).count();
    assert!(count > 20, "{count} deaths");
}

/// A process dies in an append. What it had published by then stays as it is: others may have read it.
#[test]
fn deaths_behind_the_publication_of_a_record_leave_it() {
    let mut count = 0;
    for step in 1..40 {
        round(step, step, sync::STEPS_MAX, || {
            let world = World::new(Work::Append, None);
            let (lsn, own) = (world.log.tail(), world.view());
            kill_at_step(VICTIM, step);
            let has_died = died(spawn_in(VICTIM, "appends", move || own.work(VICTIM, Work::Append, 0)));
            let is_in_hand = world.log.left_over().is_some_and(|left| left.contains("in hand"));
            let Ok(record) = world.log.read(lsn) else { return };
            let own = world.view();
            assert_eq!(own.mend(), has_died);
            let left = world.log.read(lsn).unwrap();
            assert_eq!((left.kind(), number_of(&left)), (record.kind(), number_of(&record)), "died at {step}");
            count += u64::from(has_died && is_in_hand);
        });
    }
    assert!(count > 0, "it never came to that");
}

/// Others go round the buffer several times between a death in an append and its repair, or while its repairer is
/// stopped. So others' records may lie where that of the dead has been, or would have been.
#[test]
fn deaths_are_repaired_when_others_have_been_round_the_buffer() {
    const LONG_NS: u64 = 1_000_000_000;
    let mut rounds = 0;
    for (step, stop) in (1..40).flat_map(|step| (0..150).map(move |stop| (step, stop))) {
        round((step, stop), step * 1000 + stop, sync::STEPS_MAX, || {
            let world = World::new(Work::Keep, None);
            let own = world.view();
            kill_at_step(VICTIM, step);
            let has_died = died(spawn_in(VICTIM, "appends", move || own.work(VICTIM, Work::Append, 0)));
            if !has_died || !world.log.left_over().is_some_and(|left| left.contains("in hand")) {
                return;
            }
            rounds += 1;
            let own = world.view();
            yield_at_steps(REPAIRERS[0], 1, step);
            let is_late = stop < 6;
            if !is_late {
                stop_at_step(REPAIRERS[0], stop, LONG_NS);
            }
            let repairs = spawn_in(REPAIRERS[0], "repairs", move || {
                sync::sleep_ns(if is_late { LONG_NS } else { 0 });
                own.repair().into_iter().for_each(lived);
            });
            let own = world.view();
            let goes_round = spawn_in(WORKERS[0], "goes round", move || {
                sync::sleep_ns(LONG_NS / 10);
                (0..5).for_each(|round| own.work(WORKERS[0], Work::LargeClaim, round));
                (5..10 + stop % 6).for_each(|round| own.work(WORKERS[0], Work::Segments, round));
            });
            [repairs, goes_round].into_iter().for_each(lived);
            check(&world, &world.view());
        });
    }
    assert!(rounds > 150, "{rounds} rounds");
}

/// A process dies asleep as the head of the line. Nobody else stands there, and so nobody wants anything.
#[test]
fn deaths_of_a_head_of_the_line_leave_nothing_wanted() {
    round("a head", 1, sync::STEPS_MAX, || {
        let world = World::new(Work::LargeClaim, None);
        let most = world.log.claim_bytes_max() as usize;
        let is_left = |what| world.log.left_over().is_some_and(|left| left.contains(what));
        let claim = world.log.claim(most).unwrap();
        let own = world.view();
        let waits = spawn_in(VICTIM, "waits", move || drop(own.log.claim(most)));
        sync::sleep_ns(10_000_000);
        kill(VICTIM);
        assert!(died(waits) && is_left("head of the line") && is_left("wanted in line"));
        assert!(world.view().mend());
        assert!(!is_left("head of the line") && !is_left("wanted in line"), "{:?}", world.log.left_over());
        world.log.give_back(claim);
    });
}

/// The flusher dies with its process. Another process has its own then, before the repair and after it, and also when
/// the slot of the dead is somebody else's.
#[test]
fn deaths_of_flushers_leave_the_place_to_others() {
    let is_served = |own: &Own| {
        let mut claim = own.log.claim(200).unwrap();
        let lsn = own.append(&mut claim, 1, 100);
        own.log.give_back(claim);
        own.log.request_flush(lsn);
        sync::sleep_ns(100_000_000);
        assert!(own.log.is_durable(lsn));
    };
    for is_mended_first in [false, true] {
        round("a flusher", 1, sync::STEPS_MAX, || {
            let world = World::new(Work::Flusher, None);
            let own = world.view();
            let starts = spawn_in(VICTIM, "starts", move || {
                assert!(own.log.start_flusher().unwrap());
                sync::sleep_ns(1_000_000_000);
            });
            sync::sleep_ns(1_000_000);
            let own = world.view();
            assert!(own.log.has_living_flusher() && !own.log.start_flusher().unwrap());
            is_served(&own);
            kill(VICTIM);
            assert!(died(starts) && !own.log.has_living_flusher());
            if is_mended_first {
                assert!(own.mend());
                lived(spawn_in(WORKERS[0], "takes the slot", move || {
                    own.log.flush().unwrap();
                    assert!(!own.log.has_living_flusher());
                }));
            }
            let own = world.view();
            assert!(own.log.start_flusher().unwrap() && own.log.has_living_flusher());
            assert_eq!(own.mend(), !is_mended_first);
            assert!(own.log.has_living_flusher(), "the repair leaves the one of the living");
            is_served(&own);
            own.log.stop_flusher();
            check(&world, &own);
        });
    }
}
