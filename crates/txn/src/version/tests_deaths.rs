//! A process dies at each store to the region in turn, beside others that write and read snapshots. These go on, and
//! every snapshot sees what was committed below it. Nothing of the dead is left. A repairer dies too, and the next one
//! repairs for both.
//!
//! Pages are a plain map. A page's latch is that map's mutex, which is never held over a step. Whether a transaction of
//! the dead has committed is known from the map as well: the engine asks the log.
//!
//! The frame is that of all campaigns of deaths, `ledgerstone_testkit::deaths`, with what can be asked for.

mod check;
mod works;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{Log, LogConfig, NewRecord, RecordKind};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::sync;
use ledgerstone_region::sync::deaths::{kill, spawn_in, stop_at_step, yield_at_steps};
use ledgerstone_region::{AnotherDied, Dead, Random, Region, Repair, Share, SlotTable};
use ledgerstone_testkit::deaths::*;

use super::entry::Name;
use super::planted::Part;
use super::{Before, Horizon, Image, Look, Times, VersionStore, View, Who, Writer};
use crate::TxnTable;

use works::{ALL, Work};

const SPACE: PageId = PageId(9);

/// Keys that each transaction slot has for itself.
const KEYS: u8 = 8;
const SLOTS: u32 = 8;

/// What is to happen.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    work: Work,
    deaths: Deaths,
    /// Before one of so many steps others may run; 0: where a thread waits only.
    yields: u64,
    forgotten: Option<Part>,
}

type Value = Option<Vec<u8>>;

/// A change of a page, as the log has it.
struct Change {
    lsn: Lsn,
    xid: Xid,
    key: u8,
    before: Value,
}

/// A transaction that has not ended.
#[derive(Clone)]
struct Unended {
    process: u32,
    xid: Xid,
    /// What its keys were.
    before: BTreeMap<u8, Value>,
    commit: Option<Lsn>,
    /// The process that will end it, once it is mended. Whether it is about that.
    ender: Option<(u32, bool)>,
    /// What the log has, and no page yet: a key, what it was, and its new value. A repair builds the page again.
    logged: Option<(Lsn, u8, Value, Value)>,
}

/// What all know of each other.
#[derive(Default)]
struct Model {
    xid: u64,
    /// What the pages say, with a version.
    page: BTreeMap<u8, (u64, Value)>,
    /// All changes by LSN.
    changes: Vec<Change>,
    /// By transaction slot.
    unended: BTreeMap<u32, Unended>,
    /// What was committed, by key and LSN.
    committed: BTreeMap<(u8, Lsn), Value>,
    /// What snapshots have seen of keys.
    seen: Vec<(Lsn, u8, Value)>,
}

impl Model {
    fn page(&self, key: u8) -> (u64, Value) {
        self.page.get(&key).cloned().unwrap_or_default()
    }

    /// The page of slot `slot` changes as the log says.
    fn apply_logged(&mut self, slot: u32) {
        let unended = self.unended.get_mut(&slot).expect("it has begun");
        if let Some((lsn, key, before, value)) = unended.logged.take() {
            let xid = unended.xid;
            unended.before.entry(key).or_insert(before.clone());
            self.changes.push(Change { lsn, xid, key, before });
            self.set_page(key, value);
        }
    }

    fn set_page(&mut self, key: u8, value: Value) {
        let page = self.page.entry(key).or_default();
        *page = (page.0 + 1, value);
    }

    /// What a snapshot sees.
    fn at(&self, lsn: Lsn, key: u8) -> Value {
        self.committed.range((key, Lsn(0))..(key, lsn)).next_back().and_then(|(_, value)| value.clone())
    }
}

/// What all processes have in common.
struct World {
    region: Region,
    slots: Arc<SlotTable>,
    log: Arc<Log>,
    disk: Arc<dyn Disk>,
    table: Arc<TxnTable>,
    store: Arc<VersionStore>,
    model: Arc<Mutex<Model>>,
}

/// A process's own view of it.
#[derive(Clone)]
struct Own {
    process: u32,
    slots: Arc<SlotTable>,
    log: Arc<Log>,
    table: Arc<TxnTable>,
    store: Share<VersionStore>,
    model: Arc<Mutex<Model>>,
}

/// An open transaction.
struct Open {
    writer: Writer,
    slot: u32,
    xid: Xid,
    first_lsn: Lsn,
}

impl World {
    fn new(work: Work, forgotten: Option<Part>) -> World {
        let region = Region::shared(4 << 20).unwrap();
        let slots = Arc::new(SlotTable::place(&region, 32).unwrap());
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let config = LogConfig {
            segment_bytes: 1 << 20,
            buffer_bytes: 256 << 10,
            slots: Some(Arc::clone(&slots)),
            ..LogConfig::new(Arc::clone(&disk), region.clone(), [7; 16])
        };
        let log = Log::open(config).unwrap();
        let mut store = VersionStore::place(&region, &log, &slots, work.store_bytes(), SLOTS).unwrap();
        Arc::get_mut(&mut store).unwrap().forgotten = forgotten;
        let table = Arc::new(TxnTable::place(&region, 8).unwrap());
        World { region, slots, log, disk, table, store, model: Arc::default() }
    }

    fn view(&self, process: u32) -> Own {
        let view = self.region.view().unwrap();
        let slots = Arc::new(SlotTable::place(&view, self.slots.max_threads()).unwrap());
        let log = self.log.attach(&view, Arc::clone(&slots), Arc::clone(&self.disk), None).unwrap();
        let store = Share::new(self.store.view(&view, &log, &slots).unwrap());
        Own { process, slots, log, table: Arc::clone(&self.table), store, model: Arc::clone(&self.model) }
    }
}

impl Own {
    fn model<T>(&self, look: impl FnOnce(&mut Model) -> T) -> T {
        look(&mut self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Repairs, if anybody has died. Then another thread ends the transactions of the dead: it may come to wait for
    /// whoever dies next, and this one must not.
    fn repair(&self) -> Option<sync::JoinHandle<()>> {
        self.slots.repair(|dead| self.mend(dead)).unwrap().then(|| {
            let own = self.clone();
            sync::spawn("ends", move || {
                sync::sleep_ns(200_000); // Snapshots are opened meanwhile.
                while own.end_one_of_the_dead() {}
                own.log.release_undo(own.log.take_inherited());
            })
        })
    }

    fn mend(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        self.log.repair(dead)?;
        self.store.repair(dead)?;
        let processes: Vec<u32> = dead.slots().iter().filter_map(|no| self.slots.slot(*no).process()).collect();
        self.model(|model| {
            let is_deads = |(_, unended): &(&u32, &mut Unended)| {
                processes.contains(&unended.ender.map_or(unended.process, |(ender, _)| ender))
            };
            let of_dead: Vec<u32> = model.unended.iter_mut().filter(is_deads).map(|(slot, _)| *slot).collect();
            for slot in of_dead {
                model.apply_logged(slot); // As the cache's repair does, which comes after the store's.
                model.unended.get_mut(&slot).expect("as found").ender = Some((self.process, false));
            }
        });
        self.log.inherit(dead)
    }

    /// As the layer of transactions would.
    fn end_one_of_the_dead(&self) -> bool {
        let mine = self.model(|model| {
            let mine = model.unended.iter_mut().find(|(_, unended)| unended.ender == Some((self.process, false)));
            mine.map(|(slot, unended)| {
                unended.ender = Some((self.process, true));
                (*slot, unended.clone())
            })
        });
        let Some((slot, unended)) = mine else { return false };
        let mut writer = self.store.adopt(slot, unended.xid);
        match unended.commit {
            Some(lsn) => self.store.end_commit(&mut writer, lsn),
            None => self.roll_back(slot, &mut writer),
        }
        self.model(|model| model.unended.remove(&slot));
        true
    }

    fn open(&self) -> View {
        let thread = self.slots.current();
        VersionStore::open_view(&self.store, &self.table, thread, Xid(1), Horizon::None).unwrap()
    }

    fn begin(&self, slot: u32) -> Open {
        self.slots.current(); // Only who has a thread slot can be found dead.
        let process = self.process;
        let xid = self.model(|model| {
            model.xid += 1;
            let xid = Xid(model.xid);
            let unended = Unended { process, xid, before: BTreeMap::new(), commit: None, ender: None, logged: None };
            assert!(model.unended.insert(slot, unended).is_none(), "slot {slot} is in use");
            xid
        });
        Open { writer: Writer::default(), slot, xid, first_lsn: Lsn(0) }
    }

    fn write(&self, open: &mut Open, key: u8, value: Value) {
        let key = open.slot as u8 * KEYS + key;
        // As a page that keeps what a transaction has deleted: the record is not there, not even deleted by this one.
        let (old, is_new) = self.model(|model| {
            let (_, old) = model.page(key);
            let is_new = old.is_none() && !model.unended[&open.slot].before.contains_key(&key);
            (old, is_new)
        });
        let before = old.as_ref().map_or(Before::Absent, |value| Before::Record(value.len() as u16, value));
        let who = Who { slot: open.slot, xid: open.xid, first_lsn: open.first_lsn };
        self.store.drop_spilled_images(&mut open.writer);
        let times = if is_new { Times::First } else { Times::Any };
        self.store.note(&mut open.writer, who, SPACE, &name_of(key), before, times);
        let lsn = self.append(RecordKind::End, |lsn| {
            self.model(|model| {
                let unended = model.unended.get_mut(&open.slot).expect("it has begun");
                unended.logged = Some((lsn, key, old, value));
            });
        });
        if open.first_lsn == Lsn(0) {
            open.first_lsn = lsn;
        }
        self.store.before_change(&mut open.writer);
        self.model(|model| model.apply_logged(open.slot));
        sync::yield_point("written");
    }

    fn append(&self, kind: RecordKind, then: impl FnOnce(Lsn)) -> Lsn {
        let mut claim = self.log.claim(256).unwrap();
        let record =
            NewRecord { kind, xid: Xid(7), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body: &[&[0; 8]] };
        let lsn = self.log.append(&mut claim, &record);
        then(lsn);
        self.log.give_back(claim);
        lsn
    }

    fn commit(&self, mut open: Open) {
        self.store.begin_commit(&open.writer);
        sync::yield_point("committing");
        let lsn = self.append_commit(open.slot);
        sync::yield_point("committed");
        if !open.writer.is_empty() {
            self.store.end_commit(&mut open.writer, lsn);
        }
        self.model(|model| model.unended.remove(&open.slot));
    }

    fn append_commit(&self, slot: u32) -> Lsn {
        // No step between the two: from here on, the log says so.
        self.append(RecordKind::Commit, |lsn| {
            self.model(|model| {
                let unended = model.unended.get_mut(&slot).expect("it has begun");
                unended.commit = Some(lsn);
                let keys: Vec<u8> = unended.before.keys().copied().collect();
                for key in keys {
                    let (_, value) = model.page(key);
                    model.committed.insert((key, lsn), value);
                }
            });
        })
    }

    fn abort(&self, mut open: Open) {
        self.roll_back(open.slot, &mut open.writer);
        self.model(|model| model.unended.remove(&open.slot));
    }

    fn roll_back(&self, slot: u32, writer: &mut Writer) {
        self.model(|model| {
            let before = model.unended[&slot].before.clone();
            before.into_iter().for_each(|(key, value)| model.set_page(key, value));
        });
        sync::yield_point("pages put right");
        self.store.end_abort(writer);
    }

    /// What a snapshot sees of a key. `None`: it is too old.
    fn read(&self, view: &View, key: u8) -> Option<Value> {
        let mut image = Image::default();
        let mut round = 0;
        loop {
            self.store.check(view.at()).ok()?;
            let (version, on_page) = self.model(|model| model.page(key));
            sync::yield_point("page read");
            let look = self.store.look(view.at(), 0, SPACE, &name_of(key), &mut image);
            let unseen = self.store.unseen(view.at(), Xid(0), SPACE);
            self.store.check(view.at()).ok()?;
            let is_still = self.model(|model| model.page(key).0 == version);
            if !is_still || look == Look::Committing || unseen.is_committing {
                self.store.pause(round);
                round += 1;
                continue;
            }
            let theirs = self.model(|model| {
                let is_theirs = |change: &&Change| change.key == key && unseen.contains(change.xid);
                model.changes.iter().find(is_theirs).map(|change| (change.lsn, change.before.clone()))
            });
            if let Some((lsn, before)) = theirs
                && (look != Look::Image || image.until >= lsn)
            {
                return Some(before);
            }
            if look == Look::Page {
                return Some(on_page);
            }
            return Some(image.header.map(|_| image.value.clone()));
        }
    }

    /// Reads all keys twice. The model says later whether what was seen is right.
    fn read_all(&self) {
        let view = self.open();
        for key in (0..2).flat_map(|_| 0..SLOTS as u8 * KEYS) {
            let Some(value) = self.read(&view, key) else { return };
            self.model(|model| model.seen.push((view.at().lsn, key, value)));
        }
    }
}

/// Of several lengths; neighbours share a bucket.
fn name_of(key: u8) -> Vec<u8> {
    vec![key; 1 + usize::from(key % 4) * 5]
}

/// Runs the work beside deaths, and looks at what is there afterwards.
fn run(plan: Plan) -> Outcome {
    round(plan, plan.seed, 2_000_000, || {
        let Plan { seed, work, .. } = plan;
        let world = World::new(work, plan.forgotten);
        let all = [VICTIM].into_iter().chain(WORKERS).chain(REPAIRERS);
        all.for_each(|process| yield_at_steps(process, plan.yields, seed + u64::from(process)));
        let mut cast = Cast::begin(plan.deaths, |no| world.view(no), Own::repair);
        cast.start(VICTIM, "victim", world.view(VICTIM), move |own| own.work(work));
        let [first, second] = WORKERS;
        cast.start(first, "writes", world.view(first), move |own| own.live(1, seed));
        cast.start(second, "writes", world.view(second), move |own| own.live(2, seed));
        cast.start(first, "reads", world.view(first), |own| (0..3).for_each(|_| own.read_all()));
        let outcome = cast.end();
        let own = world.view(0);
        own.repair().into_iter().for_each(lived);
        own.check();
        outcome
    })
}

/// A plan for these steps of a run of this work.
fn plan(work: Work, n: u64, r: u64) -> Plan {
    let no = if r == 0 { n } else { n * 1000 + r };
    Plan { seed: work as u64 * 100_000 + no, work, deaths: Deaths::at(n, r), yields: 0, forgotten: None }
}

#[test]
fn deaths_at_each_step_are_repaired() {
    at_each_step(&ALL, Which::Each, |deaths, _| deaths > 20, |work, n| run(plan(work, n, 0)));
}

/// At every 499th step of the victim, and at each of the repairer's.
#[test]
fn deaths_of_repairers_are_repaired() {
    in_repairs(&ALL, [Which::OneIn(499), Which::Each], 200, |work, n, r| run(plan(work, n, r)));
}

#[test]
fn deaths_and_stops_at_random() {
    at_random(300, ["deaths of the victim", "of a repairer", "of a worker"], 4, |seed| {
        let mut random = Random::new(seed);
        let work = *ALL.get(random.below(ALL.len() as u64 + 1) as usize).unwrap_or(&Work::Long);
        let victim = if work == Work::Long { 60_000 } else { 400 };
        let deaths = Deaths::drawn(&mut random, Deaths { victim, repairer: 150, worker: 800, worker_stops: 400 });
        let yields = [0, 2, 7, 30][random.below(4) as usize];
        run(Plan { seed, work, deaths, yields, forgotten: None }).deaths()
    });
}

/// A thread opens and closes a snapshot in the slot of a thread that has died, while that is repaired. What it has open
/// stays open.
#[test]
fn a_snapshot_in_the_slot_of_a_dead_thread_stays_open() {
    for seed in 0..400 {
        let ran = sync::Scheduler::run_within(seed, 1_000_000, || {
            let world = World::new(Work::Snapshots, None);
            let [has_slot, has_died, is_mended] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
            let wait_for = |flag: &Arc<AtomicBool>| {
                let flag = Arc::clone(flag);
                move || {
                    while !flag.load(SeqCst) {
                        sync::sleep_ns(10_000);
                    }
                }
            };
            let (opens, dies, repairs) = (world.view(WORKERS[0]), world.view(VICTIM), world.view(REPAIRERS[0]));
            [WORKERS[0], REPAIRERS[0]].into_iter().for_each(|no| yield_at_steps(no, 2, seed + u64::from(no)));
            let (tells, wait, ended) = (Arc::clone(&has_slot), wait_for(&has_died), Arc::clone(&is_mended));
            let opens = spawn_in(WORKERS[0], "opens", move || {
                opens.slots.current();
                tells.store(true, SeqCst);
                wait();
                let _in_its_own_slot = opens.open();
                while !ended.load(SeqCst) {
                    let _in_the_next_slot = opens.open();
                    sync::yield_point("two are open");
                    assert_eq!(opens.store.open_snapshots().len(), 2);
                }
            });
            wait_for(&has_slot)();
            assert!(died(spawn_in(VICTIM, "dies", move || {
                dies.slots.current();
                kill(VICTIM);
            })));
            has_died.store(true, SeqCst);
            let tells = Arc::clone(&is_mended);
            let repairs = spawn_in(REPAIRERS[0], "repairs", move || {
                sync::sleep_ns(KNOWN_NS);
                let ends = repairs.repair();
                tells.store(true, SeqCst);
                lived(ends.expect("one has died"));
            });
            [opens, repairs].into_iter().for_each(lived);
            assert!(world.store.open_snapshots().is_empty());
        });
        ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// Whatever a repair leaves out is missed by some run, if only because it never ends.
#[test]
fn each_part_of_a_repair_that_is_forgotten_in_deaths_is_missed() {
    each_part_is_missed(Part::ALL, |part| {
        let misses = |&(work, n): &(Work, u64)| fails(|| run(Plan { forgotten: Some(part), ..plan(work, n, 0) }));
        let from = |first| ALL.into_iter().flat_map(move |work| (first..1000).step_by(7).map(move |n| (work, n)));
        (1..8).flat_map(from).find(misses)
    });
}

/// A repair waits for the latch of a bucket, whose holder dies. It begins again. By then it has the line and the staged
/// word of a writer of the first dead (R1, R4).
#[test]
fn a_repair_that_begins_again_has_what_it_took_after_the_first_deaths() {
    const KEY: u8 = 1;
    const LONG_NS: u64 = 1_000_000_000;
    round("begins again", 1, 2_000_000, || {
        let world = World::new(Work::Small, None);
        let own = world.view(VICTIM);
        let victim = spawn_in(VICTIM, "victim", move || {
            let mut open = own.begin(0);
            own.write(&mut open, KEY, Some(vec![1; 20]));
            kill(VICTIM);
        });
        assert!(died(victim));
        let own = world.view(WORKERS[0]);
        let holder = spawn_in(WORKERS[0], "holder", move || {
            let name = name_of(KEY);
            let bucket = own.store.bucket(Name::new(SPACE, &name).hash as u32);
            let _held = bucket.latch(own.slots.current());
            sync::sleep_ns(LONG_NS);
        });
        sync::sleep_ns(1_000_000);
        let own = world.view(REPAIRERS[0]);
        let repairer = spawn_in(REPAIRERS[0], "repairs", move || {
            let attempts = std::cell::Cell::new(0);
            let mend = |dead: &Dead<'_>| {
                attempts.set(attempts.get() + 1);
                kill(WORKERS[0]);
                own.mend(dead)
            };
            assert!(own.slots.repair(mend).unwrap());
            assert_eq!(attempts.get(), 2);
            while own.end_one_of_the_dead() {}
            own.log.release_undo(own.log.take_inherited());
        });
        lived(repairer);
        assert!(died(holder));
        world.view(0).store.assert_nothing_left();
    });
}

/// A thread that opens a snapshot stops while it puts a writer's staged images into the chains. The writer dies. Its
/// chunk is another's only when that thread has gone on (R4).
#[test]
fn whoever_links_images_of_the_dead_is_waited_for() {
    const LONG_NS: u64 = 100_000_000;
    for step in 1..80 {
        round(step, step, 2_000_000, || {
            let world = World::new(Work::Small, None);
            let own = world.view(VICTIM);
            let victim = spawn_in(VICTIM, "victim", move || {
                let mut open = own.begin(0);
                (0..3).for_each(|key| own.write(&mut open, key, Some(vec![1; 20])));
                sync::sleep_ns(LONG_NS);
            });
            sync::sleep_ns(1_000_000);
            yield_at_steps(WORKERS[0], 1, step);
            stop_at_step(WORKERS[0], step, LONG_NS);
            let own = world.view(WORKERS[0]);
            let reads = spawn_in(WORKERS[0], "reads", move || own.read_all());
            sync::sleep_ns(1_000_000);
            kill(VICTIM);
            assert!(died(victim));
            let own = world.view(REPAIRERS[0]);
            let repairs = spawn_in(REPAIRERS[0], "repairs", move || {
                own.repair().into_iter().for_each(lived);
                let mut open = own.begin(0);
                (3..6).for_each(|key| own.write(&mut open, key, Some(vec![2; 20])));
                sync::sleep_ns(2 * LONG_NS);
                own.commit(open);
            });
            [reads, repairs].into_iter().for_each(lived);
            world.view(0).check();
        });
    }
}
