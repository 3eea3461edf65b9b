//! What the space of a data file promises: a page is given out once, a refusal changes nothing, growth harms nobody.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ledgerstone_buffer::{BufferError, ExclusivePage, NeedsOld, PendingChanges, PendingRedo};
use ledgerstone_disk::{Disk, DiskError, DiskFile, Open, SimDisk};
use ledgerstone_log::{FIRST_LSN, LogConfig};
use ledgerstone_op::{OpError, Operation, PageMut, Registry};
use ledgerstone_page::{LayoutId, Lsn, OpId, PageId};
use ledgerstone_region::Random;
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_space::{OP_SPACE_CLEAR, OP_SPACE_SET, Space, SpaceError, bits_of, map_of};
use ledgerstone_testkit::EngineKit;
use ledgerstone_txn::{Durability, Engine, Part, TxnError};

const PAGE_BYTES: usize = 4096;
const ENV: [u8; 16] = *b"space space spac";
const OP_FILL: OpId = OpId(1024);

/// Makes a raw page full of ones.
struct Fill;

impl Operation for Fill {
    fn id(&self) -> OpId {
        OP_FILL
    }
    fn name(&self) -> &'static str {
        "fill"
    }
    fn formats(&self) -> bool {
        true
    }
    fn redo(&self, page: &mut PageMut<'_>, _args: &[u8]) -> Result<(), OpError> {
        page.format(LayoutId::RAW, 0, PageId::NONE);
        page.fill(40, PAGE_BYTES - 40, 0xff);
        Ok(())
    }
    fn print(&self, _args: &[u8]) -> String {
        String::new()
    }
}

fn engine(disk: &Arc<dyn Disk>, data: &Arc<dyn DiskFile>, max_pages: u64) -> Arc<Engine> {
    engine_from(FIRST_LSN, disk, data, max_pages)
}

fn engine_from(end: Lsn, disk: &Arc<dyn Disk>, data: &Arc<dyn DiskFile>, max_pages: u64) -> Arc<Engine> {
    let mut ops = Registry::new();
    ledgerstone_space::register(&mut ops).unwrap();
    ops.register(Box::new(Fill)).unwrap();
    let kit = EngineKit { page_count_max: max_pages, ..EngineKit::new(ENV) };
    kit.engine::<TxnError>(disk, data, ops, |log| LogConfig { end, incarnation: 1, ..log }).unwrap()
}

fn new_space(disk: &Arc<dyn Disk>, max_pages: u64) -> (Arc<Engine>, Arc<Space>) {
    let data = disk.open("data", Open::CREATE).unwrap();
    let engine = engine(disk, &data, max_pages);
    let space = Space::format(&engine, data, ENV).unwrap();
    (engine, space)
}

/// The data file's space in another engine, once what `engine` has in memory is written.
fn opened_again(
    engine: &Engine,
    disk: &Arc<dyn Disk>,
    data: Arc<dyn DiskFile>,
    max_pages: u64,
    environment: [u8; 16],
) -> Result<(Arc<Engine>, Arc<Space>), SpaceError> {
    engine.cache.write_back_all()?;
    let engine = engine_from(engine.log.tail(), disk, &data, max_pages);
    let space = Space::open(&engine, data, environment)?;
    Ok((engine, space))
}

fn take(engine: &Arc<Engine>, space: &Space, count: u32) -> Result<PageId, SpaceError> {
    let mut txn = engine.begin()?;
    txn.claim(512)?;
    let mut run = space.latch_free(count)?;
    let set = run.args_set();
    txn.group(&mut [&mut run.map], &[Part { page: 0, op: OP_SPACE_SET, args: &set }])?;
    let first = run.first;
    drop(run);
    txn.commit(Durability::Volatile)?;
    Ok(first)
}

fn give(engine: &Arc<Engine>, space: &Space, first: PageId, count: u32) -> Result<(), SpaceError> {
    let mut txn = engine.begin()?;
    txn.claim(512)?;
    let mut map = space.latch_map_of(first)?;
    let args = space.args_clear(&map, first, count)?;
    txn.group(&mut [&mut map], &[Part { page: 0, op: OP_SPACE_CLEAR, args: &args }])?;
    drop(map);
    txn.commit(Durability::Volatile)?;
    Ok(())
}

#[test]
fn a_page_is_given_out_once_and_runs_stay_within_one_map() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, space) = new_space(&disk, 1 << 17);
    let bits = bits_of(PAGE_BYTES);
    let mut used: BTreeSet<u64> = [0, 1].into();
    let mut runs = Vec::new();
    let mut random = Random::new(1);
    for _ in 0..300 {
        let choice = random.number() >> 33;
        if choice.is_multiple_of(4) && !runs.is_empty() {
            let (first, count): (PageId, u32) = runs.swap_remove(choice as usize % runs.len());
            give(&engine, &space, first, count).unwrap();
            (first.0..first.0 + u64::from(count)).for_each(|page| assert!(used.remove(&page)));
        } else {
            let count = if choice.is_multiple_of(5) { 1 + choice as u32 % 4000 } else { 1 };
            let first = take(&engine, &space, count).unwrap();
            let last = first.0 + u64::from(count) - 1;
            assert_eq!(first.0 / bits, last / bits, "{count} pages from {first} on lie in two maps");
            used.insert(map_of(first, PAGE_BYTES).0);
            for page in first.0..=last {
                assert!(used.insert(page), "page {page} is given out twice");
            }
            assert!(last < space.page_count());
            runs.push((first, count));
        }
    }
    assert!(used.last().is_some_and(|&last| last > bits), "the second map is used too");
    let found: BTreeSet<u64> = space.allocated_pages().unwrap().iter().map(|page| page.0).collect();
    assert_eq!(found, used);
    assert_eq!(space.allocated_count().unwrap(), used.len() as u64);
    assert!(space.is_allocated(PageId(0)).unwrap() && !space.is_allocated(PageId(u64::MAX)).unwrap());
}

#[test]
fn a_double_free_is_refused_and_never_silent() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, space) = new_space(&disk, 1 << 12);
    let first = take(&engine, &space, 3).unwrap();
    give(&engine, &space, first, 3).unwrap();
    let error = give(&engine, &space, first, 1).unwrap_err();
    assert!(matches!(error, SpaceError::Map(corrupt) if corrupt.offset == first.0), "{error}");
    engine.begin().expect("nothing was logged, and the engine goes on").commit(Durability::Volatile).unwrap();
    assert!(matches!(space.latch_map_of(PageId(1 << 40)), Err(SpaceError::Outside(_))));
}

#[test]
fn a_full_disk_changes_nothing_and_the_same_call_works_later() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, space) = new_space(&disk, 1 << 17);
    let before = (space.page_count(), space.allocated_pages().unwrap());
    sim.no_space_after(0);
    assert!(matches!(take(&engine, &space, 1000), Err(SpaceError::NoSpace { count: 1000, .. })));
    assert_eq!((space.page_count(), space.allocated_pages().unwrap()), before);
    assert!(!engine.is_failed());
    sim.space_for_all();
    take(&engine, &space, 1000).unwrap();
}

/// The file grows in steps, and the last one would go beyond the page table. Pages there can never be latched: if they
/// were given out, no page would ever be had again.
#[test]
fn a_file_with_as_many_pages_as_there_may_be_gives_out_all_of_them_and_those_that_come_back() {
    for max_pages in [300, 1_000, 1_037] {
        for count in [1, 3, 8] {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
            let (engine, space) = new_space(&disk, max_pages);
            let mut taken = Vec::new();
            let refused = loop {
                match take(&engine, &space, count) {
                    Ok(first) => taken.push(first),
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(refused, SpaceError::Buffer(BufferError::PageOutOfRange { .. })),
                "{max_pages}, {count}: {refused:?}"
            );
            assert_eq!(space.page_count(), max_pages, "{count}");
            let free = max_pages - space.allocated_count().unwrap();
            assert!(free < 128 + u64::from(count), "{max_pages}, {count}: {free} pages are left");
            for _ in 0..3 {
                let back: Vec<_> = taken.drain(..10).collect();
                back.iter().for_each(|first| give(&engine, &space, *first, count).unwrap());
                taken.extend(back.iter().map(|_| take(&engine, &space, count).unwrap()));
                assert!(take(&engine, &space, count).is_err());
            }
        }
    }
}

/// The last growth may be for fewer pages than were asked for. They are given before anybody is refused.
#[test]
fn whoever_takes_fewer_pages_is_refused_none_that_the_limit_allows() {
    for max_pages in [300, 1_037] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (engine, space) = new_space(&disk, max_pages);
        let refused = loop {
            let mut txn = engine.begin().unwrap();
            txn.claim(512).unwrap();
            match space.latch_free_up_to(8) {
                Ok(mut run) => {
                    let set = run.args_set();
                    txn.group(&mut [&mut run.map], &[Part { page: 0, op: OP_SPACE_SET, args: &set }]).unwrap();
                }
                Err(error) => break error,
            }
            txn.commit(Durability::Volatile).unwrap();
        };
        assert!(matches!(refused, SpaceError::Buffer(BufferError::PageOutOfRange { .. })), "{refused:?}");
        let free = max_pages - space.allocated_count().unwrap();
        assert!(free < 128, "{max_pages}: {free} pages are left, 126 of them for roots");
    }
}

/// The page table of a small environment ends long before the pages of the first map do.
#[test]
fn a_space_opens_when_its_page_table_is_smaller_than_a_map() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = new_space(&disk, 1000);
    let data = disk.open("data", Open::EXISTING).unwrap();
    let (engine, space) = opened_again(&engine, &disk, data, 1000, ENV).unwrap();
    assert_eq!(take(&engine, &space, 1).unwrap(), PageId(128));
    assert_eq!(space.latch_for_root().unwrap().first, PageId(2));
}

#[test]
fn the_file_is_cut_behind_the_last_page_in_use_and_grows_again() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, space) = new_space(&disk, 1 << 17);
    let data = disk.open("data", Open::EXISTING).unwrap();
    // Beyond the first map's pages, so that the second map goes and comes back.
    let bits = bits_of(PAGE_BYTES) as u32;
    let first = take(&engine, &space, bits / 2).unwrap();
    let second = take(&engine, &space, bits / 2).unwrap();
    assert!(second.0 >= u64::from(bits), "{second}");
    give(&engine, &space, second, bits / 2).unwrap();
    while space.shrink().unwrap() > 0 {}
    assert_eq!(space.page_count(), first.0 + u64::from(bits / 2));
    assert_eq!(data.len().unwrap(), space.page_count() * PAGE_BYTES as u64);
    assert_eq!(space.page_count_min().unwrap(), 128 + u64::from(bits / 2));
    // The lowest place that is long enough, wherever the file ended: the one that it had, behind its map, which was
    // made anew.
    assert_eq!(second, PageId(u64::from(bits) + 1));
    assert_eq!(take(&engine, &space, bits / 2).unwrap(), second);
    let allocated = space.allocated_count().unwrap();
    let (_engine, again) = opened_again(&engine, &disk, data, 1 << 17, ENV).unwrap();
    assert_eq!(again.allocated_count().unwrap(), allocated);
}

/// Repeats nothing, and notes what a page held when its turn came.
struct Notes {
    page: PageId,
    is_whole: Arc<AtomicBool>,
}

impl PendingRedo for Notes {
    fn of(&self, page: PageId) -> Option<PendingChanges> {
        (page == self.page).then(|| PendingChanges { needs: NeedsOld::Yes, list: Vec::new() })
    }
    fn redo(&self, page: &mut ExclusivePage<'_>, _: &PendingChanges, _: bool) -> Result<(), BufferError> {
        self.is_whole.store(page.words().u64(PAGE_BYTES - 8) == u64::MAX, Relaxed);
        Ok(())
    }
}

/// A page behind the new end has changes that are pending: they would meet zeros, and contradict them.
#[test]
fn the_file_is_not_cut_while_redo_is_pending() {
    Scheduler::run(1, || {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (engine, space) = new_space(&disk, 1 << 12);
        let page = take(&engine, &space, 1).unwrap();
        let mut txn = engine.begin().unwrap();
        txn.claim(512).unwrap();
        let mut fresh = engine.cache.exclusive_new(page).unwrap();
        txn.update(&mut fresh, OP_FILL, &[]).unwrap();
        drop(fresh);
        txn.commit(Durability::Sync).unwrap();
        give(&engine, &space, page, 1).unwrap();
        engine.cache.write_back_all().unwrap();
        engine.cache.discard_from(page).unwrap();
        let is_whole = Arc::new(AtomicBool::new(false));
        engine.cache.set_pending(Arc::new(Notes { page, is_whole: Arc::clone(&is_whole) }));
        let worker = sync::spawn("worker", {
            let engine = Arc::clone(&engine);
            move || {
                sync::sleep_ns(1_000_000_000);
                drop(engine.cache.exclusive_or_new(page).unwrap());
                engine.cache.clear_pending();
            }
        });
        assert!(space.shrink().unwrap() > 0);
        worker.join().unwrap();
        assert!(is_whole.load(Relaxed), "the page was cut off before its changes were repeated");
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// Holds a page's latch for longer than anybody waits for it, from when `is_time` says so.
fn hold(engine: &Arc<Engine>, page: PageId, is_time: Arc<AtomicBool>) -> sync::JoinHandle<()> {
    let engine = Arc::clone(engine);
    sync::spawn("holder", move || {
        while !is_time.load(Relaxed) {
            sync::sleep_ns(1_000);
        }
        let page = engine.cache.exclusive_new(page).unwrap();
        sync::sleep_ns(5 * ledgerstone_region::LATCH_TIMEOUT_NS);
        drop(page);
    })
}

/// Room in the log that is claimed and not given back is lost, until nobody gets any.
#[test]
fn a_page_that_cannot_be_had_costs_no_room_in_the_log() {
    Scheduler::run(1, || {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (engine, space) = new_space(&disk, 1 << 12);
        for page in [PageId(0), map_of(PageId(0), PAGE_BYTES)] {
            let holder = hold(&engine, page, Arc::new(AtomicBool::new(true)));
            sync::sleep_ns(1_000_000_000);
            if page == PageId(0) {
                ledgerstone_space::mark(&engine).unwrap_err();
            } else {
                space.latch_free(1).map(drop).unwrap_err();
                space.shrink().unwrap_err();
            }
            assert_eq!(engine.log.stat().claimed_bytes, 0, "room in the log is lost with {page}");
            holder.join().unwrap();
        }
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// The data file, and a flag that is set when the second map is read.
struct Watched {
    file: Arc<dyn DiskFile>,
    is_read: Arc<AtomicBool>,
}

impl DiskFile for Watched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        if offset == bits_of(PAGE_BYTES) * PAGE_BYTES as u64 {
            self.is_read.store(true, Relaxed);
            sync::sleep_ns(1_000_000);
        }
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(offset, bytes)
    }
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_durable_at(offset, bytes)
    }
    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.file.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }
    fn name(&self) -> &str {
        self.file.name()
    }
}

/// Between finding that a map is missing and making it, another may come to hold its page.
#[test]
fn a_map_that_cannot_be_made_costs_no_room_in_the_log() {
    let refused = AtomicU64::new(0);
    for seed in 0..40 {
        Scheduler::run(seed, || {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
            let file = disk.open("data", Open::CREATE).unwrap();
            let is_read = Arc::new(AtomicBool::new(false));
            let data: Arc<dyn DiskFile> = Arc::new(Watched { file, is_read: Arc::clone(&is_read) });
            let engine = engine(&disk, &data, 1 << 17);
            let space = Space::format(&engine, data, ENV).unwrap();
            let bits = bits_of(PAGE_BYTES);
            take(&engine, &space, bits as u32 / 2).unwrap();
            let holder = hold(&engine, PageId(bits), is_read);
            refused.fetch_add(u64::from(space.latch_free(bits as u32 / 2).is_err()), Relaxed);
            assert_eq!(engine.log.stat().claimed_bytes, 0, "seed {seed}: room in the log is lost");
            holder.join().unwrap();
        })
        .unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
    assert!(refused.load(Relaxed) > 0, "no map was held when it was to be made");
}

#[test]
fn another_environments_file_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = new_space(&disk, 1000);
    let data = disk.open("data", Open::EXISTING).unwrap();
    assert!(matches!(opened_again(&engine, &disk, data, 1000, [7; 16]), Err(SpaceError::Header(_))));
}

/// A file system without `fallocate`: space is taken by writing zeros from the end on, piece by piece.
struct Zeroing {
    file: Arc<dyn DiskFile>,
    has_harmed: AtomicBool,
    growth_count: AtomicU64,
}

impl DiskFile for Zeroing {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(offset, bytes)
    }
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_durable_at(offset, bytes)
    }
    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.growth_count.fetch_add(1, Relaxed);
        let mut at = self.file.len()?.max(offset);
        while at < offset + len {
            sync::yield_point("growing");
            if at < self.file.len()? {
                let mut old = [0; PAGE_BYTES];
                self.file.read_at(at, &mut old)?;
                if old.iter().any(|&byte| byte != 0) {
                    self.has_harmed.store(true, Relaxed);
                }
            }
            self.file.write_at(at, &[0; PAGE_BYTES])?;
            at += PAGE_BYTES as u64;
        }
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }
    fn name(&self) -> &str {
        self.file.name()
    }
}

#[test]
fn growth_by_two_at_once_leaves_written_pages_alone() {
    for seed in 0..20 {
        Scheduler::run(seed, || {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
            let file = disk.open("data", Open::CREATE).unwrap();
            let file = Arc::new(Zeroing { file, has_harmed: AtomicBool::new(false), growth_count: AtomicU64::new(0) });
            let data: Arc<dyn DiskFile> = file.clone();
            let engine = engine(&disk, &data, 1 << 12);
            let space = Space::format(&engine, data, ENV).unwrap();
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let (engine, space) = (Arc::clone(&engine), Arc::clone(&space));
                    sync::spawn("grower", move || {
                        for _ in 0..4 {
                            let first = take(&engine, &space, 20).unwrap();
                            let mut txn = engine.begin().unwrap();
                            txn.claim(256).unwrap();
                            let mut page = engine.cache.exclusive_new(first).unwrap();
                            txn.group(&mut [&mut page], &[Part { page: 0, op: OP_FILL, args: &[] }]).unwrap();
                            drop(page);
                            txn.commit(Durability::Volatile).unwrap();
                            engine.cache.write_back_all().unwrap();
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            assert!(file.growth_count.load(Relaxed) > 1, "the file grew while others worked");
            assert!(!file.has_harmed.load(Relaxed), "seed {seed}: growth wrote zeros over a page");
        })
        .unwrap();
    }
}
