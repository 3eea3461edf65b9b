//! Processes that die in the page cache: at every step of each operation, also while they repair, beside living ones.
//!
//! Process 1 is the victim, at random with a second thread. Processes 2 and 3 work on the same pages, and each has a
//! thread that repairs when somebody is dead. Each process has its own view of the region. The log is the model: under
//! a page's latch, the page is as its last record says. In the end, everything that can be owned is counted. The frame
//! is that of all campaigns of deaths, `ledgerstone_testkit::deaths`.

mod device;
mod harmed;

use super::*;
use crate::Rebuild;
use crate::entry::PageEntry;
use crate::repair::Part;
use ledgerstone_region::sync::deaths::{is_dead, kill, kill_at_step, spawn_in, steps, stop_at_step, yield_at_steps};
use ledgerstone_region::sync::{JoinHandle, STEPS_MAX, Scheduler};
use ledgerstone_region::{Dead, Repair};
use ledgerstone_testkit::deaths::{
    Outcome, Which, at_each_step, at_random, each_part_is_missed, fails, in_repairs, outlived, round, tried,
};

const FRAMES: u64 = 16;
/// All of them are written at the beginning.
const PAGES: u64 = 24;
/// Never written before the run, except by operations on pages behind it.
const NEW_PAGE: PageId = PageId(26);
/// Damaged in the data file, for who puts it back.
const DAMAGED: PageId = PageId(28);
/// Pages from here on are discarded.
const DISCARDED: PageId = PageId(30);

/// Behind the first piece of the page table. Never written before the run.
const FAR_PAGE: PageId = PageId(258);

/// What the victim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    HitShared,
    HitOptimistic,
    MissIntoFree,
    MissWithEviction,
    NewPage,
    NewPageGivenUp,
    Change,
    UpgradeAndChange,
    WriteBackOne,
    Batch,
    Checkpoint,
    Discard,
    ReadAhead,
    CopyOut,
    PutBack,
    FarPage,
}

use Operation::*;

const OPERATIONS: [Operation; 16] = [
    HitShared,
    HitOptimistic,
    MissIntoFree,
    MissWithEviction,
    NewPage,
    NewPageGivenUp,
    Change,
    UpgradeAndChange,
    WriteBackOne,
    Batch,
    Checkpoint,
    Discard,
    ReadAhead,
    CopyOut,
    PutBack,
    FarPage,
];

/// One run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    operation: Operation,
    /// The victim does this many others, too.
    more: u64,
    /// Before which of its steps process 1 dies.
    death: Option<u64>,
    /// Before which step of its first repair process 2 dies.
    death_in_repair: Option<u64>,
    /// Before which of its steps process 2 dies, whatever it does.
    second_death: Option<u64>,
    /// At which step process 3 stops for a while.
    stop: Option<u64>,
    /// What the victim was writing home when it died is torn there.
    tear: bool,
    /// For how long half of a page stands in the data file, each time that one is written.
    half_ns: u64,
    /// Before one of so many steps others may run; 0: where a thread waits only.
    yields: u64,
    /// The part of the repair that is left out.
    forgotten: Option<Part>,
}

impl Plan {
    fn of(operation: Operation, seed: u64) -> Plan {
        let (death, death_in_repair, second_death, stop, forgotten) = (None, None, None, None, None);
        let (tear, half_ns, yields) = (false, 0, 0);
        Plan { seed, operation, more: 0, death, death_in_repair, second_death, stop, tear, half_ns, yields, forgotten }
    }
}

/// Repeats what the log says of a page.
struct FromLog(Arc<FakeLog>);

impl Rebuild for FromLog {
    fn rebuild(&self, page: &mut ExclusivePage<'_>, from: Lsn, is_void: bool) -> Result<(), BufferError> {
        let records = self.0.records.lock().clone();
        let (id, page_lsn) = (page.id(), page.page_lsn());
        let refuse = |what: String| BufferError::NotRedone { page: id, what };
        let of_page: Vec<&Record> = records.iter().filter(|record| record.page == id).collect();
        let is_repeated = of_page.iter().any(|record| record.lsn >= from);
        // What the page lacks is all behind `from`. A page that was to be put back lacks nothing that the log has.
        if (is_repeated || !is_void)
            && let Some(lost) = of_page.iter().find(|record| page_lsn < record.lsn && record.lsn < from)
            && !(is_void && is_formatted(id))
        {
            return Err(refuse(format!("{id} of {page_lsn} is built again from {from} on, and lacks {lost:?}")));
        }
        self.repeat(page, from);
        Ok(())
    }
}

impl FromLog {
    fn repeat(&self, page: &mut ExclusivePage<'_>, from: Lsn) {
        let records = self.0.records.lock().clone();
        let id = page.id();
        for record in records.iter().filter(|record| record.page == id && record.lsn >= from) {
            if page.page_lsn() < record.lsn {
                page.begin_change_with(record.lsn, is_formatted(record.page));
                apply(page, record.value);
                page.finish_change(record.lsn);
            }
        }
    }
}

type Failure = String;

/// One process's sight of the world.
struct Process {
    fixture: Fixture,
    slots: Arc<SlotTable>,
    rebuild: FromLog,
    values: Arc<AtomicU64>,
    forgotten: Option<Part>,
}

impl Process {
    fn repair(&self, before: impl Fn()) -> bool {
        let mend = |dead: &Dead<'_>| {
            before();
            self.fixture.cache.repairer(&self.rebuild).without(self.forgotten).repair(dead)
        };
        self.slots.repair(mend).expect("a slot is free")
    }

    fn last_record(&self, id: PageId) -> Option<Record> {
        self.fixture.log.records.lock().iter().rev().find(|record| record.page == id).copied()
    }

    /// Under its latch, a page is as its last record says.
    fn check(&self, id: PageId, page_lsn: Lsn, words: Words<'_>) -> Result<(), Failure> {
        let record = self.last_record(id).ok_or_else(|| format!("{id} is there without a record"))?;
        let value = read_value(words).map_err(|what| format!("{id} is torn: {what}"))?;
        if page_lsn != record.lsn || value != record.value {
            return Err(format!("{id} has {value} of {page_lsn}, its last record is {record:?}"));
        }
        Ok(())
    }

    /// What was torn at home is whole there, before others use the lane that has its copy.
    fn check_mended(&self, torn: &[PageId]) -> Result<(), Failure> {
        let cache = &self.fixture.cache;
        let is_being_written = |id| {
            let frame = cache.entry(id).ok().and_then(PageEntry::frame);
            let writer = frame.and_then(|frame| cache.pool.frames.descriptor(frame).writer());
            writer.is_some_and(|slot| Dead::of(&self.slots).is_none_or(|dead| !dead.has(slot)))
        };
        torn.iter().try_for_each(|id| {
            // Others write pages meanwhile: half of one may stand there (R5 in `repair.rs`).
            let was_being_written = is_being_written(*id);
            match cache.read_page_direct(*id) {
                Err(BufferError::Damaged { .. }) if was_being_written || is_being_written(*id) => Ok(()),
                read => read.map(drop).map_err(|error| format!("after the repair: {error}")),
            }
        })
    }

    fn check_shared(&self, id: PageId) -> Result<(), Failure> {
        match self.fixture.cache.shared(id) {
            Ok(page) => self.check(id, page.page_lsn(), page.words()),
            Err(error) if error.is_never_written() && self.last_record(id).is_none() => Ok(()),
            Err(error) => Err(format!("{id}: {error}")),
        }
    }

    fn write(&self, id: PageId) -> Result<(), Failure> {
        let value = self.values.fetch_add(1, Relaxed);
        self.fixture.write(id, value).map(drop).map_err(|error| format!("{id}: {error}"))
    }

    fn page_in_memory(&self) -> PageId {
        let cache = &self.fixture.cache;
        (0..PAGES).map(PageId).find(|id| cache.entry(*id).is_ok_and(|entry| entry.frame().is_some())).expect("some are")
    }

    fn absent_page(&self) -> PageId {
        let cache = &self.fixture.cache;
        (0..PAGES).map(PageId).find(|id| cache.entry(*id).is_ok_and(|entry| entry.frame().is_none())).expect("some are")
    }

    fn operate(&self, operation: Operation, image: &[u8]) -> Result<(), Failure> {
        let cache = &self.fixture.cache;
        let done = match operation {
            HitShared => return self.check_shared(self.page_in_memory()),
            HitOptimistic => self.fixture.read(self.page_in_memory()).map(drop),
            MissIntoFree | MissWithEviction => return self.check_shared(self.absent_page()),
            NewPage => return self.write(NEW_PAGE),
            NewPageGivenUp => cache.exclusive_new(NEW_PAGE).map(drop),
            Change => return self.write(self.page_in_memory()),
            UpgradeAndChange => {
                let id = self.page_in_memory();
                match cache.optimistic(id).map(|page| page.try_upgrade()) {
                    Ok(Ok(mut page)) => {
                        self.fixture.change(&mut page, self.values.fetch_add(1, Relaxed));
                        Ok(())
                    }
                    Ok(Err(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            WriteBackOne => cache.write_back_page(self.dirty_page()).map(drop),
            Batch => cache.write_back_for_frame().map(drop),
            Checkpoint => cache.write_back_before(self.fixture.log.tail()).map(drop),
            Discard => cache.discard_from(DISCARDED),
            ReadAhead => {
                cache.read_wanted().run(self.absent_page(), 4);
                Ok(())
            }
            CopyOut => {
                let mut to = vec![0; 6 * PAGE_BYTES as usize];
                cache.copy_pages(self.absent_page(), &mut to, &mut Vec::new())
            }
            PutBack => cache.put_back(DAMAGED, image).map(drop),
            FarPage => return self.write(FAR_PAGE),
        };
        done.map_err(|error| format!("{operation:?}: {error}"))
    }

    fn dirty_page(&self) -> PageId {
        let mut pages = self.fixture.cache.pool.frames.all().filter(|(_, frame)| frame.is_dirty());
        pages.find_map(|(_, frame)| frame.page()).unwrap_or(PageId(0))
    }

    /// A living process's work.
    fn work(&self, seed: u64, rounds: u64) -> Result<(), Failure> {
        let mut random = Random::new(seed);
        for _ in 0..rounds {
            let id = PageId(random.below(PAGES));
            match random.below(8) {
                0 | 1 => self.check_shared(id)?,
                2 => self.operate(HitOptimistic, &[])?,
                3 | 4 => self.write(id)?,
                5 => self.operate([WriteBackOne, Batch, NewPageGivenUp][random.below(3) as usize], &[])?,
                6 => self.operate([ReadAhead, CopyOut, UpgradeAndChange][random.below(3) as usize], &[])?,
                _ => sync::sleep_ns(random.below(100_000)),
            }
            sync::yield_point("between two operations");
        }
        Ok(())
    }
}

/// The world before the run: pages written, some of them dirty, some absent.
struct World {
    region: Region,
    root: Process,
    disk: SimDisk,
    harm: Arc<device::Harm>,
    image: Vec<u8>,
}

fn begin(plan: &Plan) -> World {
    let disk = SimDisk::new();
    disk.set_hook(Arc::new(|what| sync::yield_point(what)));
    let region = Region::shared(5 << 20).unwrap();
    let slots = Arc::new(SlotTable::place(&region, 16).unwrap());
    let log = Arc::new(FakeLog::new());
    let device = device::Device::over(disk.open("data", Open::CREATE).unwrap());
    let harm = Arc::clone(&device.harm);
    let data: Arc<dyn DiskFile> = Arc::new(device);
    let double_write = disk.open("double-write", Open::CREATE).unwrap();
    disk.sync_dir("").unwrap();
    let config = CacheConfig {
        region: region.clone(),
        slots: Arc::clone(&slots),
        data: Arc::clone(&data),
        double_write,
        log: Arc::clone(&log) as _,
        page_bytes: PAGE_BYTES,
        cache_bytes: FRAMES * (u64::from(PAGE_BYTES) + 40),
        max_pages: 400,
        policy: if plan.seed.is_multiple_of(2) { Policy::Clock } else { Policy::Lru },
    };
    let tuning = Tuning { batch_pages_max: 3, table_pages_min: 256, ..Tuning::default() };
    let fixture = Fixture { cache: Cache::with_tuning(config, tuning).unwrap(), log: Arc::clone(&log), data };
    let (rebuild, values) = (FromLog(log), Arc::new(AtomicU64::new(1)));
    let root = Process { fixture, slots, rebuild, values, forgotten: None };
    let mut image = vec![0; PAGE_BYTES as usize];
    (0..PAGES).for_each(|id| root.write(PageId(id)).unwrap());
    if plan.operation == PutBack {
        root.write(DAMAGED).unwrap();
        root.fixture.cache.copy_page(DAMAGED, &mut image).unwrap();
    }
    root.fixture.cache.write_back_all().unwrap();
    match plan.operation {
        MissIntoFree => root.fixture.cache.discard_from(PageId(8)).unwrap(),
        PutBack => {
            root.fixture.cache.discard_from(DAMAGED).unwrap();
            root.fixture.data.write_at(DAMAGED.0 * u64::from(PAGE_BYTES), &[7; 1024]).unwrap();
        }
        Discard => (0..4).for_each(|no| root.write(PageId(DISCARDED.0 + no)).unwrap()),
        _ => {}
    }
    (2..8).for_each(|id| root.write(PageId(id)).unwrap());
    harm.half_ns.store(plan.half_ns, SeqCst);
    World { region, root, disk, harm, image }
}

impl World {
    fn process(&self, plan: &Plan) -> Arc<Process> {
        let view = self.region.view().unwrap();
        let slots = Arc::new(SlotTable::place(&view, self.root.slots.max_threads()).unwrap());
        let (log, data) = (Arc::clone(&self.root.fixture.log), Arc::clone(&self.root.fixture.data));
        let cache = self.root.fixture.cache.attach(&view, Arc::clone(&slots), Arc::clone(&log) as _).unwrap();
        let rebuild = FromLog(Arc::clone(&log));
        let values = Arc::clone(&self.root.values);
        Arc::new(Process { fixture: Fixture { cache, log, data }, slots, rebuild, values, forgotten: plan.forgotten })
    }
}

impl World {
    /// Process 1 has died, perhaps in the middle of a write of each page that it was writing home.
    /// Returns those of which the area has a copy.
    fn tear_home(&self) -> Vec<PageId> {
        let mut torn = Vec::new();
        let (root, cache) = (&self.root, &self.root.fixture.cache);
        let durable = root.fixture.log.durable_lsn();
        let is_its = |slot| root.slots.slot(slot).process() == Some(1);
        for (_, descriptor) in cache.pool.frames.all().filter(|(_, frame)| frame.writer().is_some_and(is_its)) {
            let id = descriptor.page().expect("a page is being written");
            let home_lsn = cache.read_page_direct(id).map_or(Lsn(0), |bytes| lsn_of(&bytes));
            // It has gone home only if a copy is in the area, or it is in the log, which is durable.
            let copy = match descriptor.is_in_log() {
                true => root.last_record(id).filter(|record| record.lsn < durable).map(|_| vec![7; 4096]),
                false => {
                    let copy = cache.double_write.find_copy(id).expect("the disk is on");
                    copy.filter(|(lsn, _)| *lsn > home_lsn).map(|(_, copy)| copy)
                }
            };
            if let Some(copy) = copy {
                let half = &copy[..PAGE_BYTES as usize / 2];
                root.fixture.data.write_at(id.0 * u64::from(PAGE_BYTES), half).expect("the disk is on");
                torn.extend((!descriptor.is_in_log()).then_some(id));
            }
        }
        torn
    }
}

fn lsn_of(bytes: &[u8]) -> Lsn {
    Lsn(u64::from_le_bytes(std::array::from_fn(|i| bytes[header::PAGE_LSN + i])))
}

/// What a thread has come to, if its process has not died.
fn join(thread: JoinHandle<Result<(), Failure>>) -> Result<(), Failure> {
    outlived(thread).unwrap_or(Ok(()))
}

fn run(plan: Plan) -> Result<Outcome, Failure> {
    tried(plan, plan.seed, 2_000_000, || simulate(&plan))
}

fn simulate(plan: &Plan) -> Result<Outcome, Failure> {
    let world = begin(plan);
    let processes = [1, 2, 3].map(|_| world.process(plan));
    [1, 2, 3].into_iter().for_each(|no| yield_at_steps(no, plan.yields, plan.seed + u64::from(no)));
    let is_over = Arc::new(AtomicBool::new(false));
    let torn = Arc::new(Mutex::new(Vec::new()));
    let may_repair = Arc::new(AtomicBool::new(!plan.tear));
    let repair_steps = Arc::new(AtomicU64::new(0));
    let victim_steps = Arc::new(AtomicU64::new(0));

    let victim = {
        let (process, plan, image, count) =
            (Arc::clone(&processes[0]), *plan, world.image.clone(), Arc::clone(&victim_steps));
        spawn_in(1, "victim", move || {
            process.slots.current();
            let before = steps(1);
            kill_at_step(1, plan.death.unwrap_or(0));
            process.operate(plan.operation, &image)?;
            process.work(plan.seed + 7, plan.more)?;
            kill_at_step(1, 0);
            count.store(steps(1) - before, Relaxed);
            Ok(())
        })
    };
    let beside = (plan.more > 0).then(|| {
        let (process, plan) = (Arc::clone(&processes[0]), *plan);
        spawn_in(1, "beside the victim", move || process.work(plan.seed * 3, plan.more))
    });
    let workers: Vec<_> = [2, 3]
        .map(|no| {
            let (process, plan) = (Arc::clone(&processes[no - 1]), *plan);
            spawn_in(no as u32, "worker", move || {
                match no {
                    2 => kill_at_step(2, plan.second_death.unwrap_or(0)),
                    _ => stop_at_step(3, plan.stop.unwrap_or(0), 4_000_000),
                }
                process.work(plan.seed * 10 + no as u64, 10 + plan.more)
            })
        })
        .into();
    let repairers: Vec<_> = [2, 3]
        .map(|no| {
            let process = Arc::clone(&processes[no as usize - 1]);
            let (plan, is_over, count) = (*plan, Arc::clone(&is_over), Arc::clone(&repair_steps));
            let (may_repair, torn) = (Arc::clone(&may_repair), Arc::clone(&torn));
            spawn_in(no, "repairer", move || {
                while !is_over.load(SeqCst) {
                    sync::sleep_ns(100_000);
                    // The first repair is that of process 2.
                    if !may_repair.load(SeqCst) {
                        continue;
                    }
                    if no == 2 || plan.death.is_none() || count.load(SeqCst) > 0 || is_dead(2) {
                        let before = steps(no);
                        let die = || {
                            if no == 2 && count.load(SeqCst) == 0 && plan.death_in_repair.is_some() {
                                kill_at_step(2, plan.death_in_repair.unwrap_or(0));
                            }
                        };
                        if process.repair(die) {
                            if plan.death_in_repair.is_some() {
                                kill_at_step(2, 0);
                            }
                            count.fetch_add(steps(no) - before, SeqCst);
                            process.check_mended(&torn.lock())?;
                        }
                    }
                }
                Ok(())
            })
        })
        .into();
    let mut done = join(victim);
    if let Some(beside) = beside {
        done = done.and(join(beside));
    }
    if plan.tear && done.is_ok() {
        *torn.lock() = world.tear_home();
    }
    may_repair.store(true, SeqCst);
    for worker in workers {
        done = done.and(join(worker));
    }
    sync::sleep_ns(6_000_000); // All deaths are known, and repaired after.
    is_over.store(true, SeqCst);
    for repairer in repairers {
        done = done.and(join(repairer));
    }
    done?;
    if Dead::of(&world.root.slots).is_some() {
        return Err("the dead have slots still".to_owned());
    }
    world.root.fixture.cache.left_over().map_or(Ok(()), Err)?;
    check_pages(plan, &world)?;
    let (victim_steps, repair_steps) = (victim_steps.load(Relaxed), repair_steps.load(Relaxed));
    Ok(Outcome { victim: is_dead(1), repairer: is_dead(2), worker: false, victim_steps, repair_steps })
}

/// Pages are as the log says: in memory, after a power failure, and in the data file in the end.
fn check_pages(plan: &Plan, world: &World) -> Result<(), Failure> {
    let (root, cache) = (&world.root, &world.root.fixture.cache);
    let failure = |error: BufferError| error.to_string();
    let is_known = |id: &PageId| *id < DISCARDED && (*id != DAMAGED || plan.operation != PutBack);
    if cache.is_failed() {
        return Err("the cache has failed".to_owned());
    }
    // Only of a page that the log has, what is at home may be torn.
    for id in (0..PAGES).map(PageId).filter(|id| !is_formatted(*id)) {
        cache.read_page_direct(id).map_err(|error| format!("at home: {error}"))?;
    }
    world.harm.half_ns.store(0, SeqCst);
    let redo_from = cache.dirty_low().unwrap_or(root.fixture.log.tail());
    if !matches!(plan.operation, Discard | PutBack) {
        let what = format!("{plan:?}, after a power failure");
        let after = world.disk.snapshot().after_crash(plan.seed);
        let log = root.fixture.log.after_crash(plan.seed % 5);
        if fails(|| super::crash::check_recovery(&after, log, redo_from, &what)) {
            return Err(what);
        }
    }
    for id in (0..PAGES).map(PageId).filter(is_known) {
        root.check_shared(id)?;
    }
    root.check_shared(NEW_PAGE)?;
    root.check_shared(FAR_PAGE)?;
    // What was discarded may come again as a page that was never written.
    for id in (DISCARDED.0..DISCARDED.0 + 4).map(PageId).filter(|_| plan.operation == Discard) {
        match cache.shared(id) {
            Err(error) if !error.is_never_written() => return Err(format!("discarded: {error}")),
            _ => {}
        }
    }
    cache.write_back_all().map_err(failure)?;
    for id in (0..DAMAGED.0).map(PageId).filter(|id| root.last_record(*id).is_some()) {
        let bytes = cache.read_page_direct(id).map_err(failure)?;
        let page_lsn = lsn_of(&bytes);
        let record = root.last_record(id).expect("as filtered");
        if page_lsn != record.lsn {
            return Err(format!("{id} has {page_lsn} in the data file, its last record is {record:?}"));
        }
    }
    match cache.dirty_low() {
        None => Ok(()),
        Some(low) => Err(format!("dirty from {low} on, and all is written")),
    }
}

fn must(plan: Plan) -> Outcome {
    run(plan).unwrap_or_else(|what| panic!("{what}"))
}

/// Each of these with so many seeds.
fn seeded<const N: usize>(operations: [Operation; N], seeds: u64) -> Vec<(Operation, u64)> {
    operations.into_iter().flat_map(|operation| (0..seeds).map(move |seed| (operation, seed))).collect()
}

/// A death before this step, 0 none.
fn before(step: u64) -> Option<u64> {
    (step > 0).then_some(step)
}

/// The writer is that of the process that has started it, and all processes have one.
#[test]
fn a_process_that_leaves_does_not_stop_the_writer_of_another() {
    let plan = Plan::of(OPERATIONS[0], 1);
    let ran = Scheduler::run_within(1, 1_000_000, || {
        let world = begin(&plan);
        let cache = &world.root.fixture.cache;
        assert!(!cache.has_writer());
        cache.start_writer();
        let other = world.process(&plan);
        assert!(other.fixture.cache.has_writer());
        other.fixture.cache.start_writer(); // There is one.
        other.fixture.cache.stop_writer();
        drop(other);
        sync::sleep_ns(1_000_000);
        assert!(cache.has_writer(), "it was stopped");
        cache.stop_writer();
        assert!(!cache.has_writer());
        let other = world.process(&plan);
        other.fixture.cache.start_writer();
        assert!(cache.has_writer(), "another process has started one");
        drop(other);
        assert!(!cache.has_writer(), "who has left is the writer");
    });
    ran.unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// Process 1 has the writer and dies before a step. Whoever finds that nobody is the writer starts one.
fn writer_dies(step: u64, forgotten: Option<Part>) -> Result<bool, Failure> {
    let plan = Plan { forgotten, ..Plan::of(Change, 2) };
    tried(plan, plan.seed, STEPS_MAX, || {
        let world = begin(&plan);
        let (victim, survivor) = (world.process(&plan), world.process(&plan));
        let dies = spawn_in(1, "victim", move || {
            victim.slots.current();
            kill_at_step(1, step);
            victim.fixture.cache.start_writer();
            (0..8).try_for_each(|_| {
                victim.fixture.cache.call_writer();
                sync::sleep_ns(1_000_000);
                victim.write(PageId(5))
            })?;
            victim.fixture.cache.stop_writer();
            Ok(())
        });
        join(dies)?;
        let works = spawn_in(2, "survivor", move || {
            sync::sleep_ns(3_000_000); // The death is known by then.
            survivor.repair(|| ());
            let cache = &survivor.fixture.cache;
            if !cache.has_writer() {
                cache.start_writer();
            }
            (2..20).try_for_each(|id| survivor.write(PageId(id)))?;
            let is_dirty = || !cache.dirty_ahead(cache.writer_reserve()).is_empty();
            for _ in 0..20 {
                cache.call_writer();
                sync::sleep_ns(5_000_000);
            }
            let done = if is_dirty() { Err("nobody writes".to_owned()) } else { Ok(()) };
            cache.stop_writer();
            done
        });
        join(works)?;
        Ok(is_dead(1))
    })
}

#[test]
fn another_process_takes_over_from_a_page_writer_that_has_died() {
    let mut step = 1;
    while writer_dies(step, None).unwrap_or_else(|what| panic!("step {step}: {what}")) {
        step += if step < 40 { 1 } else { 7 };
    }
    assert!(step > 40, "only {step} steps");
    (1..40).find_map(|step| writer_dies(step, Some(Part::Writer)).err()).expect("its name stays");
}

#[test]
fn a_death_at_every_step_of_each_operation_is_repaired() {
    at_each_step(
        &seeded(OPERATIONS, 2),
        Which::Each,
        |deaths, steps| deaths == steps,
        |(operation, seed), step| must(Plan { death: before(step), ..Plan::of(operation, seed) }),
    );
}

const WRITES: [Operation; 3] = [WriteBackOne, Batch, Checkpoint];

/// A process that is killed in the middle of a write leaves a page half old and half new at home.
#[test]
fn pages_that_the_dead_have_torn_at_home_are_whole_before_the_lane_is_used_again() {
    at_each_step(
        &seeded(WRITES, 6),
        Which::Each,
        |deaths, _| deaths > 0,
        |(operation, seed), step| must(Plan { death: before(step), tear: true, ..Plan::of(operation, seed) }),
    );
}

/// Each part of the repair is needed: without it, some death is not repaired.
#[test]
fn each_part_of_the_repair_that_is_forgotten_is_found() {
    let parts = [
        Part::Shared,
        Part::Lanes,
        Part::HomePages,
        Part::Strays,
        Part::Latches,
        Part::HalfChanged,
        Part::Writes,
        Part::InHand,
        Part::FreeBits,
        Part::DeviceWaits,
        Part::Bell,
    ];
    each_part_is_missed(&parts, |part| {
        let each_step = |(operation, seed)| {
            let plan = Plan { tear: true, ..Plan::of(operation, seed) };
            SOME.of(must(plan).victim_steps, 1).map(move |step| Plan { death: Some(step), ..plan })
        };
        let works = seeded(WRITES, 6).into_iter().chain(OPERATIONS.map(|operation| (operation, 1)));
        let plans = works.flat_map(each_step).chain((0..500).map(drawn));
        plans.map(|plan| Plan { forgotten: Some(part), ..plan }).find_map(|plan| run(plan).err())
    });
}

/// The page that the dead was changing is being written home by a living process, and half of it is there.
fn build_again_beside_a_write(id: PageId, forgotten: Option<Part>) -> Result<(), Failure> {
    let plan = Plan { forgotten, ..Plan::of(Change, 2) };
    tried(plan, plan.seed, STEPS_MAX, || {
        let world = begin(&plan);
        let root = &world.root;
        world.harm.half_ns.store(20_000_000, SeqCst);
        let writes = world.process(&plan);
        let writer = spawn_in(2, "writer", move || {
            writes.fixture.cache.write_back_page(id).map(drop).map_err(|error| error.to_string())
        });
        sync::sleep_ns(5_000_000);
        root.fixture.cache.read_page_direct(id).expect_err("half of it is there");
        let victim = world.process(&plan);
        let dies = spawn_in(1, "victim", move || {
            victim.slots.current();
            kill_at_step(1, 100); // In the middle of the page.
            victim.write(id)
        });
        join(dies)?;
        sync::sleep_ns(3_000_000); // The death is known by then.
        world.process(&plan).repair(|| ());
        let half_read = root.fixture.cache.read_page_direct(id);
        join(writer)?;
        match root.fixture.cache.is_failed() {
            true => Err("the cache has failed".to_owned()),
            false if half_read.is_ok() => Err("the write was not on its way any more".to_owned()),
            false => root.check_shared(id),
        }
    })
}

#[test]
fn a_page_whose_write_is_on_its_way_is_built_again_from_its_copy() {
    assert_eq!(build_again_beside_a_write(PageId(5), None), Ok(()));
    build_again_beside_a_write(PageId(5), Some(Part::CopyOfTorn)).expect_err("the page at home is torn");
    // The log has all of it, so it has no copy.
    assert_eq!(build_again_beside_a_write(PageId(7), None), Ok(()));
}

/// While the page is built, a living thread's write of it comes home, and the log gives up what is older.
struct GivesUpMeanwhile {
    log: FromLog,
    cache: Arc<Cache>,
    written: Vec<u8>,
}

impl Rebuild for GivesUpMeanwhile {
    fn rebuild(&self, page: &mut ExclusivePage<'_>, from: Lsn, is_void: bool) -> Result<(), BufferError> {
        let id = page.id();
        let frame = self.cache.entry(id)?.frame().expect("the repair has the page in it");
        let descriptor = self.cache.pool.frames.descriptor(frame);
        if descriptor.writer().is_none() {
            return self.log.rebuild(page, from, is_void);
        }
        self.log.0.flush_to(lsn_of(&self.written))?;
        self.cache.data.write_at(id.0 * u64::from(PAGE_BYTES), &self.written)?;
        descriptor.finish_write();
        Err(BufferError::NotRedone { page: id, what: format!("the log has given {from} up") })
    }
}

fn build_again_while_a_write_ends(forgotten: Option<Part>) -> Result<(), Failure> {
    let plan = Plan { forgotten, ..Plan::of(Change, 2) };
    tried(plan, plan.seed, STEPS_MAX, || {
        let world = begin(&plan);
        let (id, root) = (PageId(5), &world.root);
        let cache = &root.fixture.cache;
        let mut written = vec![0; PAGE_BYTES as usize];
        cache.copy_page(id, &mut written).map_err(|error| error.to_string())?;
        let frame = cache.entry(id).ok().and_then(|entry| entry.frame()).expect("it is dirty");
        cache.pool.frames.descriptor(frame).take_write(root.slots.current()).expect("it is dirty");
        let victim = world.process(&plan);
        let dies = spawn_in(1, "victim", move || {
            victim.slots.current();
            kill_at_step(1, 100); // In the middle of the page.
            victim.write(id)
        });
        join(dies)?;
        sync::sleep_ns(3_000_000); // The death is known by then.
        let survivor = world.process(&plan);
        let log = FromLog(Arc::clone(&root.fixture.log));
        let rebuild = GivesUpMeanwhile { log, cache: Arc::clone(&survivor.fixture.cache), written };
        let mend = |dead: &Dead<'_>| survivor.fixture.cache.repairer(&rebuild).without(forgotten).repair(dead);
        survivor.slots.repair(mend).expect("a slot is free");
        match cache.is_failed() {
            true => Err("the cache has failed".to_owned()),
            false => root.check_shared(id),
        }
    })
}

#[test]
fn a_page_whose_write_ends_meanwhile_is_built_again_from_what_is_home_then() {
    assert_eq!(build_again_while_a_write_ends(None), Ok(()));
    build_again_while_a_write_ends(Some(Part::AfterWrite)).expect_err("the log has given up what it would need");
}

/// The cache has failed, and the thread that was about to fail the log has died.
fn fail_half(forgotten: Option<Part>) -> bool {
    let plan = Plan { forgotten, ..Plan::of(HitShared, 3) };
    round(plan, plan.seed, STEPS_MAX, || {
        let world = begin(&plan);
        let victim = world.process(&plan);
        let dies = spawn_in(1, "victim", move || {
            victim.slots.current();
            victim.fixture.cache.pool.frames.fail();
            kill(1);
            Ok(())
        });
        join(dies).expect("it dies");
        sync::sleep_ns(3_000_000); // The death is known by then.
        world.process(&plan).repair(|| ());
        world.root.fixture.log.is_failed()
    })
}

#[test]
fn a_failure_of_the_cache_that_the_dead_began_is_one_of_the_log() {
    assert!(fail_half(None));
    assert!(!fail_half(Some(Part::Failure)), "nobody else fails it");
}

/// Of a number of steps, all if there are few, or some.
const SOME: Which = Which::Ends { edge: 12, parts: 12, one_in: 1 };

/// Process 1 dies in an operation, then process 2 in its repair. Process 3 repairs after both.
#[test]
fn a_repairer_that_dies_at_any_step_is_repaired_after() {
    let some = |one_in| Which::Ends { edge: 12, parts: 12, one_in };
    in_repairs(&OPERATIONS, [some(4), some(2)], 500, |operation, n, r| {
        must(Plan { death: before(n), death_in_repair: before(r), ..Plan::of(operation, operation as u64) })
    });
}

/// A plan that a seed draws.
fn drawn(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let operation = OPERATIONS[random.below(OPERATIONS.len() as u64) as usize];
    let step_count = [30, 300, 3000][random.below(3) as usize];
    let second_death = (random.below(3) == 0).then(|| 1 + random.below(step_count));
    Plan {
        more: random.below(12),
        death: Some(1 + random.below(step_count)),
        death_in_repair: (random.below(3) == 0).then(|| 1 + random.below(600)),
        second_death,
        stop: (random.below(3) == 0).then(|| 1 + random.below(3000)),
        // The repair begins when the victim has died, and process 2 would be waited for.
        tear: second_death.is_none() && random.below(2) == 0,
        half_ns: random.below(2) * random.below(300_000),
        yields: [0, 3, 20, 100][random.below(4) as usize],
        ..Plan::of(operation, seed)
    }
}

#[test]
fn deaths_at_random_leave_nothing_behind() {
    at_random(400, ["deaths of victims", "of process 2"], 3, |seed| {
        let Outcome { victim, repairer, .. } = must(drawn(seed));
        [victim, repairer].map(u64::from)
    });
}
