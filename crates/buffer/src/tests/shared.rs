//! A cache in a region that another one has, too: two processes, in one here, each with its own mapping.

use super::*;
use ledgerstone_region::RegionError;
use ledgerstone_testkit::SmallMemory;
use ledgerstone_testkit::other::dir_in_memory;
use std::path::Path;

const FRAMES: u64 = 64;
const MAX_PAGES: u64 = 1 << 20;

fn region_bytes() -> u64 {
    (4 << 20) + Cache::table_bytes(0, PAGE_BYTES, MAX_PAGES) + Cache::reserved_table_bytes(0, PAGE_BYTES, MAX_PAGES)
}

fn create(dir: &Path) -> Region {
    Region::create_at(&dir.join("region"), region_bytes()).unwrap()
}

fn join(dir: &Path) -> Region {
    Region::join_at(&dir.join("region")).unwrap()
}

fn tuning() -> Tuning {
    Tuning { table_pages_min: 256, ..Tuning::default() }
}

fn try_cache(region: Region, disk: &SimDisk, log: &Arc<FakeLog>, tuning: Tuning) -> Result<Fixture, BufferError> {
    let data = disk.open("data", Open::CREATE)?;
    let config = CacheConfig {
        slots: Arc::new(SlotTable::place(&region, 16).unwrap()),
        region,
        data: Arc::clone(&data),
        double_write: disk.open("double-write", Open::CREATE)?,
        log: Arc::clone(log) as _,
        page_bytes: PAGE_BYTES,
        cache_bytes: FRAMES * (u64::from(PAGE_BYTES) + 40),
        max_pages: MAX_PAGES,
        policy: Policy::Clock,
    };
    Ok(Fixture { cache: Cache::with_tuning(config, tuning)?, log: Arc::clone(log), data })
}

#[test]
fn a_page_behind_the_first_ones_is_in_one_frame_for_both() {
    let (dir, disk, log) = (dir_in_memory(), SimDisk::new(), Arc::new(FakeLog::new()));
    let one = try_cache(create(dir.path()), &disk, &log, tuning()).unwrap();
    let other = try_cache(join(dir.path()), &disk, &log, tuning()).unwrap();
    for id in [3, 300, 5_000, MAX_PAGES - 1] {
        one.write(PageId(id), 1).unwrap();
        assert_eq!(other.read(PageId(id)).unwrap(), 1, "page {id}");
        other.write(PageId(id), 2).unwrap();
        assert_eq!(one.read(PageId(id)).unwrap(), 2, "page {id}");
    }
    assert_eq!(one.cache.stats().read_count, 4, "each came in once");
    assert_eq!(other.cache.write_back_all().unwrap(), 4);
    assert_eq!(one.cache.write_back_all().unwrap(), 0);
}

/// Memory that is refused is the end of one call, and of nothing else.
#[test]
fn pages_are_refused_while_there_is_no_memory_for_their_entries() {
    let Some(dir) = SmallMemory::new(4 << 20) else { return };
    let (disk, log) = (SimDisk::new(), Arc::new(FakeLog::new()));
    let one = try_cache(create(dir.path()), &disk, &log, tuning()).unwrap();
    let other = try_cache(join(dir.path()), &disk, &log, tuning()).unwrap();
    one.write(PageId(300), 1).unwrap();
    let filler = dir.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    for fixture in [&one, &other, &one] {
        let refused = fixture.write(PageId(100_000), 1).unwrap_err();
        assert!(matches!(refused, BufferError::Region(RegionError::NoMemory { .. })), "{refused}");
        assert!(fixture.cache.optimistic(PageId(100_000)).is_err());
        assert!(!fixture.cache.is_failed());
        for id in [300, 301, 4000] {
            fixture.write(PageId(id), 2).unwrap();
        }
        assert_eq!(fixture.read(PageId(300)).unwrap(), 2);
    }
    one.cache.discard_from(PageId(301)).unwrap();
    drop(file);
    std::fs::remove_file(filler).unwrap();
    one.write(PageId(100_000), 3).unwrap();
    assert_eq!(other.read(PageId(100_000)).unwrap(), 3);
}

/// Lanes of another length would lie over those that the other one writes.
#[test]
fn who_joins_a_region_uses_the_lanes_of_who_made_it() {
    let (dir, disk, log) = (dir_in_memory(), SimDisk::new(), Arc::new(FakeLog::new()));
    let one = try_cache(create(dir.path()), &disk, &log, tuning()).unwrap();
    one.write(PageId(1), 1).unwrap();
    one.cache.write_back_all().unwrap();
    let area = |disk: &SimDisk| {
        let file = disk.open("double-write", Open::READ).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let before = area(&disk);
    let others = Tuning { batch_pages_max: 3, torn_pages: crate::TornPages::DeviceAtomic, ..tuning() };
    let other = try_cache(join(dir.path()), &disk, &log, others).unwrap();
    assert!(area(&disk) == before, "the area was made again");
    other.write(PageId(5), 1).unwrap();
    other.cache.write_back_all().unwrap();
    assert_eq!(other.cache.double_write.batch_pages(), one.cache.double_write.batch_pages());
    assert!(area(&disk) != before, "a page has gone home without a copy");
    disk.remove("double-write").unwrap();
    let refused = try_cache(join(dir.path()), &disk, &log, tuning()).err().expect("another area");
    assert!(matches!(refused, BufferError::DoubleWriteShort { .. }), "{refused}");
}

struct NothingOfAny;

impl crate::PendingRedo for NothingOfAny {
    fn of(&self, _: PageId) -> Option<crate::PendingChanges> {
        None
    }

    fn redo(&self, _: &mut ExclusivePage<'_>, _: &crate::PendingChanges, _: bool) -> Result<(), BufferError> {
        Ok(())
    }
}

/// Another process would read pages without the changes that they lack.
#[test]
fn nobody_joins_while_changes_are_pending() {
    let (dir, disk, log) = (dir_in_memory(), SimDisk::new(), Arc::new(FakeLog::new()));
    let one = try_cache(create(dir.path()), &disk, &log, tuning()).unwrap();
    one.cache.set_pending(Arc::new(NothingOfAny));
    let refused = try_cache(join(dir.path()), &disk, &log, tuning()).err();
    assert!(matches!(refused, Some(BufferError::Pending)), "{refused:?}");
    one.cache.clear_pending();
    assert!(try_cache(join(dir.path()), &disk, &log, tuning()).is_ok());
}
