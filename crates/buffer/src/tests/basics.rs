//! One thread, one promise each.

use super::*;
use crate::Restart;

/// A cache in which so many pages were written, each its number and 1000.
pub(super) fn written(page_count: u64) -> (SimDisk, Arc<FakeLog>, Fixture) {
    let (disk, log) = (SimDisk::new(), Arc::new(FakeLog::new()));
    let first = fixture(&disk, Arc::clone(&log), Setup::default());
    for id in 0..page_count {
        first.write(PageId(id), 1000 + id).unwrap();
    }
    (disk, log, first)
}

#[test]
fn a_changed_page_is_there_after_write_back_and_reopening() {
    let (disk, log, first) = written(40);
    assert_eq!(first.cache.write_back_all().unwrap(), 40);
    assert_eq!(first.cache.write_back_all().unwrap(), 0, "all were clean");
    let second = fixture(&disk, log, Setup::default());
    for id in 0..40 {
        assert_eq!(second.read(PageId(id)).unwrap(), 1000 + id);
        assert_eq!(second.cache.shared(PageId(id)).unwrap().page_lsn(), Lsn(4096 + id * RECORD_BYTES));
    }
    let stats = second.cache.stats();
    assert_eq!((stats.read_count, stats.miss_count, stats.free_frame_count), (40, 40, 24));
    assert_eq!(second.cache.page_count().unwrap(), 40);
}

#[test]
fn never_written_and_damaged_are_told_apart() {
    let fixture = new_fixture();
    fixture.write(PageId(5), 55).unwrap();
    fixture.cache.write_back_all().unwrap();
    fixture.data.write_at(7 * 4096 + 100, b"no page looks like this").unwrap();
    fixture.data.set_len(8 * 4096).unwrap();
    for _ in 0..2 {
        // Twice: an error leaves the entry empty and unlatched.
        for id in [3, 800] {
            let error = fixture.cache.optimistic(PageId(id)).unwrap_err();
            assert!(error.is_never_written(), "{error}");
            assert!(fixture.cache.read_page_direct(PageId(id)).unwrap_err().is_never_written());
        }
        let damaged = fixture.cache.exclusive(PageId(7)).unwrap_err();
        assert!(matches!(damaged, BufferError::Damaged { page: PageId(7), .. }), "{damaged}");
        assert!(matches!(fixture.cache.exclusive_or_new(PageId(7)), Err(BufferError::Damaged { .. })));
        assert!(matches!(fixture.cache.shared(PageId(10_000)), Err(BufferError::PageOutOfRange { .. })));
    }
    assert_eq!(fixture.cache.stats().free_frame_count, 63);
    // A record that formats the page needs no old bytes.
    let mut page = fixture.cache.exclusive_new(PageId(7)).unwrap();
    fixture.change(&mut page, 77);
    drop(page);
    assert_eq!(fixture.read(PageId(7)).unwrap(), 77);
    fixture.cache.write_back_all().unwrap();
    assert_eq!(fixture.cache.read_page_direct(PageId(7)).unwrap()[40], 77);
}

#[test]
fn a_page_that_nobody_made_goes_away_again() {
    let fixture = new_fixture();
    let (page, was_readable) = fixture.cache.exclusive_or_new(PageId(9)).unwrap();
    assert!(!was_readable && page.is_new() && page.page_lsn() == Lsn(0));
    drop(page);
    let mut announced = fixture.cache.exclusive_new(PageId(9)).unwrap();
    announced.begin_change(fixture.log.tail());
    drop(announced);
    assert!(fixture.cache.optimistic(PageId(9)).unwrap_err().is_never_written());
    assert_eq!(fixture.cache.stats().free_frame_count, 64);
    assert_eq!(fixture.cache.dirty_low(), None);
}

#[test]
fn an_optimistic_reader_learns_of_changes_and_evictions() {
    let fixture = fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup { frames: 16, ..Setup::default() });
    let id = PageId(1);
    fixture.write(id, 1).unwrap();

    let reader = fixture.cache.optimistic(id).unwrap();
    drop(fixture.cache.exclusive(id).unwrap());
    drop(fixture.cache.shared(id).unwrap());
    assert_eq!(reader.check(), Ok(()), "nothing was changed");
    let upgraded = reader.try_upgrade().unwrap();
    assert_eq!(reader.check(), Err(Restart), "latched by somebody");
    assert!(fixture.cache.try_exclusive(id).unwrap().is_none());
    drop(upgraded);
    assert_eq!(reader.check(), Ok(()), "upgraded and given back unchanged");

    fixture.write(id, 2).unwrap();
    assert_eq!(reader.check(), Err(Restart));
    assert!(reader.try_upgrade().is_err());

    let reader = fixture.cache.optimistic(id).unwrap();
    for other in 2..40 {
        fixture.write(PageId(other), other).unwrap();
    }
    assert!(fixture.cache.stats().eviction_count >= 22);
    assert_eq!(reader.check(), Err(Restart), "evicted");
    assert_eq!(fixture.read(id).unwrap(), 2);
}

#[test]
fn the_log_goes_first() {
    let fixture = new_fixture();
    let lsn = fixture.write(PageId(1), 1).unwrap();
    assert!(fixture.log.durable_lsn() <= lsn);
    fixture.cache.write_back_all().unwrap();
    assert!(fixture.log.durable_lsn() > lsn);
}

/// Says that it flushed, and did not.
struct LyingLog;

impl WriteAhead for LyingLog {
    fn tail(&self) -> Lsn {
        Lsn(8192)
    }
    fn durable_lsn(&self) -> Lsn {
        Lsn(4096)
    }
    fn flush_to(&self, _: Lsn) -> Result<(), LogError> {
        Ok(())
    }
}

#[test]
#[should_panic(expected = "overtakes the log")]
fn a_page_that_overtakes_the_log_is_not_written() {
    let disk = SimDisk::new();
    let region = Region::anonymous(64 << 20).unwrap();
    let cache = Cache::new(CacheConfig {
        slots: Arc::new(SlotTable::place(&region, 64).unwrap()),
        region,
        data: disk.open("data", Open::CREATE).unwrap(),
        double_write: disk.open("double-write", Open::CREATE).unwrap(),
        log: Arc::new(LyingLog),
        page_bytes: PAGE_BYTES,
        cache_bytes: 1 << 20,
        max_pages: 100,
        policy: Policy::Clock,
    })
    .unwrap();
    let mut page = cache.exclusive_new(PageId(1)).unwrap();
    page.begin_change(Lsn(4096));
    apply(&mut page, 1);
    page.finish_change(Lsn(4096));
    drop(page);
    let _unreachable = cache.write_back_all();
}

#[test]
fn a_page_whose_record_begins_where_the_log_ends_is_refused() {
    let (disk, _, first) = written(2);
    first.cache.write_back_all().unwrap();
    let shorter = FakeLog::new();
    shorter.tail.fetch_add(RECORD_BYTES, SeqCst);
    shorter.durable.fetch_add(RECORD_BYTES, SeqCst);
    let second = fixture(&disk, Arc::new(shorter), Setup::default());
    assert_eq!(second.read(PageId(0)).unwrap(), 1000);
    assert!(matches!(second.cache.shared(PageId(1)), Err(BufferError::Damaged { page: PageId(1), .. })));
}

#[test]
fn the_oldest_change_is_known_until_it_is_durable() {
    let fixture = new_fixture();
    assert_eq!(fixture.cache.dirty_low(), None);
    let mut page = fixture.cache.exclusive_new(PageId(1)).unwrap();
    let before = fixture.log.tail();
    page.begin_change(before);
    assert_eq!(fixture.cache.dirty_low(), Some(before), "marked before the record is reserved");
    let lsn = fixture.log.append(PageId(1), 1);
    apply(&mut page, 1);
    page.finish_change(lsn);
    drop(page);
    let second = fixture.write(PageId(2), 2).unwrap();
    fixture.write(PageId(1), 3).unwrap();
    assert_eq!(fixture.cache.dirty_low(), Some(before), "the first change counts");
    assert_eq!(fixture.cache.write_back_before(second).unwrap(), 1);
    assert_eq!(fixture.cache.dirty_low(), Some(second));
    assert_eq!(fixture.cache.write_back_before(second).unwrap(), 0);
    assert_eq!(fixture.cache.write_back_all().unwrap(), 1);
    assert_eq!(fixture.cache.dirty_low(), None);
}

#[test]
fn what_was_noted_of_a_page_is_forgotten_with_its_next_change_and_when_it_leaves_memory() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup { frames: 100, ..Setup::default() });
    fixture.write(PageId(1), 1).unwrap();
    let note = |bits| fixture.cache.exclusive(PageId(1)).unwrap().set_touched(bits);
    let noted = || fixture.cache.optimistic(PageId(1)).unwrap().touched();
    assert_eq!(noted(), u64::MAX, "perhaps all of it has changed");
    note(5);
    assert_eq!(noted(), 5);
    fixture.write(PageId(1), 2).unwrap();
    assert_eq!(noted(), u64::MAX, "who changed it has noted nothing");
    note(5);
    for id in 2..500 {
        fixture.write(PageId(id), id).unwrap();
    }
    assert_eq!(noted(), u64::MAX, "it was evicted");
}

#[test]
fn the_limit_is_kept_and_nonsense_is_refused() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup { frames: 100, ..Setup::default() });
    for id in 0..500 {
        fixture.write(PageId(id), id).unwrap();
    }
    let stats = fixture.cache.stats();
    assert_eq!((stats.frame_count, stats.frame_bytes), (100, 100 * (4096 + 40)));
    assert_eq!(stats.page_table_bytes, 500 * 16);
    assert_eq!(stats.free_frame_count, 0);
    assert!(stats.foreground_batch_count > 0 && stats.write_count >= 400);
    let refused = try_fixture(&disk, Arc::new(FakeLog::new()), Setup { frames: 15, ..Setup::default() });
    assert!(matches!(refused, Err(BufferError::Config { what: "cache_bytes", .. })));
}

#[test]
fn a_failed_write_fails_the_cache_for_good() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    fixture.write(PageId(1), 1).unwrap();
    disk.crash_now();
    assert!(matches!(fixture.cache.write_back_all(), Err(BufferError::Disk(_))));
    assert!(matches!(fixture.cache.write_back_all(), Err(BufferError::Failed)));
    assert!(fixture.cache.dirty_low().is_some(), "the change never became durable");
    assert!(matches!(fixture.cache.optimistic(PageId(2)), Err(BufferError::Failed)));
}

#[test]
fn a_page_half_changed_by_a_panic_is_never_seen() {
    let fixture = new_fixture();
    fixture.write(PageId(1), 1).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut page = fixture.cache.exclusive(PageId(1)).unwrap();
        page.begin_change(fixture.log.tail());
        page.page_mut().put_u64(1000, 2);
        panic!("in the middle of a change (this panic is part of the test)");
    }));
    assert!(panicked.is_err());
    assert!(matches!(fixture.cache.shared(PageId(1)), Err(BufferError::Failed)));
    assert!(matches!(fixture.cache.write_back_all(), Err(BufferError::Failed)));
}

#[test]
fn another_page_size_is_refused_by_the_area() {
    let disk = SimDisk::new();
    drop(fixture(&disk, Arc::new(FakeLog::new()), Setup::default()));
    let file = disk.open("double-write", Open::EXISTING).unwrap();
    let error = Cache::repair_torn(&*file, &*file, 8192, Lsn(u64::MAX), false).unwrap_err();
    assert!(matches!(error, BufferError::DoubleWriteFormat { what: "page_bytes", expected: 8192, found: 4096, .. }));
    file.write_at(8, &[9]).unwrap();
    assert_eq!(
        Cache::repair_torn(&*file, &*file, 4096, Lsn(u64::MAX), false).unwrap(),
        [],
        "a damaged header hides no slots"
    );
}

#[test]
fn real_files_will_do() {
    let dir = tempfile::tempdir().unwrap();
    let disk = ledgerstone_disk::FileDisk::new(dir.path());
    let log = Arc::new(FakeLog::new());
    let first = fixture(&disk, Arc::clone(&log), Setup { frames: 16, ..Setup::default() });
    for id in 0..50 {
        first.write(PageId(id), id).unwrap();
    }
    first.cache.write_back_all().unwrap();
    let second = fixture(&disk, log, Setup { frames: 16, ..Setup::default() });
    for id in 0..50 {
        assert_eq!(second.read(PageId(id)).unwrap(), id);
    }
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    assert_eq!(Cache::repair_torn(&*second.data, &*area, PAGE_BYTES, Lsn(u64::MAX), false).unwrap(), []);
}

#[test]
fn pages_that_were_cut_off_may_come_again_as_never_written() {
    let fixture = fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup { frames: 16, ..Setup::default() });
    for page in 0..64 {
        fixture.write(PageId(page), page).unwrap();
    }
    fixture.cache.write_back_all().unwrap();
    for page in 0..16 {
        fixture.read(PageId(page)).unwrap(); // So that those above are evicted, each with its LSN.
    }
    fixture.cache.discard_from(PageId(20)).unwrap();
    fixture.data.set_len(20 * 4096).unwrap();
    for page in [20, 40, 63] {
        assert!(fixture.read(PageId(page)).is_err_and(|error: BufferError| error.is_never_written()), "page {page}");
    }
    assert_eq!(fixture.read(PageId(19)).unwrap(), 19);
}

#[test]
fn a_run_read_ahead_comes_in_by_one_read_and_leaves_out_what_is_not_as_it_must_be() {
    let (disk, log, first) = written(20);
    first.cache.write_back_all().unwrap();
    first.data.write_at(7 * 4096 + 100, b"no page looks like this").unwrap();

    let second = fixture(&disk, Arc::clone(&log), Setup { frames: 128, ..Setup::default() });
    second.write(PageId(3), 33).unwrap(); // In memory, and newer than the file's.
    let held = second.cache.exclusive(PageId(5)).unwrap();
    let (reads, frames) = (disk.counters().reads, second.cache.stats().free_frame_count);
    assert_eq!(second.cache.read_wanted().run(PageId(0), 16), 13, "all but 3, 5 and 7");
    assert_eq!(disk.counters().reads - reads, 1);
    assert_eq!(second.cache.stats().free_frame_count, frames - 13);
    drop(held);
    let misses = second.cache.stats().miss_count;
    for id in (0..16).filter(|id| ![3, 7].contains(id)) {
        assert_eq!(second.read(PageId(id)).unwrap(), 1000 + id);
    }
    assert_eq!(second.read(PageId(3)).unwrap(), 33);
    assert_eq!(second.cache.stats().miss_count, misses, "nothing was read again");
    assert!(matches!(second.cache.shared(PageId(7)), Err(BufferError::Damaged { .. })));
    assert_eq!(second.cache.read_wanted().run(PageId(15), 16), 0, "past the end of the file nothing is read");
}

#[test]
fn what_is_wanted_takes_the_frames_of_clean_pages() {
    let (disk, log, first) = written(200);
    first.cache.write_back_all().unwrap();
    let second = fixture(&disk, log, Setup::default());
    let mut wanted = second.cache.read_wanted();
    assert_eq!(wanted.pages_max(), 8, "an eighth of the frames");
    let reads = disk.counters().reads;
    let came: u64 = (0..25).map(|run| wanted.run(PageId(8 * run), 8)).sum();
    assert_eq!((came, disk.counters().reads - reads), (200, 25));
    for id in 192..200 {
        assert_eq!(second.read(PageId(id)).unwrap(), 1000 + id);
    }
    assert_eq!(disk.counters().reads - reads, 25, "the last run is in memory");
}

#[test]
fn pages_are_copied_out_by_runs() {
    let (disk, log, first) = written(40);
    first.cache.write_back_all().unwrap();
    first.data.write_at(7 * 4096 + 100, b"no page looks like this").unwrap();
    let second = fixture(&disk, log, Setup::default());
    second.write(PageId(3), 33).unwrap();
    let mut bytes = vec![0; 16 * 4096];
    let mut lsns = Vec::new();
    let reads = disk.counters().reads;
    second.cache.copy_pages(PageId(16), &mut bytes, &mut lsns).unwrap();
    assert_eq!((lsns.iter().flatten().count(), disk.counters().reads - reads), (16, 1));
    for (no, page) in bytes.chunks(4096).enumerate() {
        ledgerstone_page::checksum::verify(page, PageId(16 + no as u64)).unwrap();
    }
    // A page in memory is newer than the file's; a damaged one is named.
    second.cache.copy_pages(PageId(0), &mut bytes[..4 * 4096], &mut lsns).unwrap();
    let (mut alone, lsn) = (vec![0; 4096], lsns[3]);
    assert_eq!(second.cache.copy_page(PageId(3), &mut alone).unwrap(), lsn);
    assert_eq!(bytes[3 * 4096..4 * 4096], alone);
    let damaged = second.cache.copy_pages(PageId(0), &mut bytes, &mut lsns);
    assert!(matches!(damaged, Err(BufferError::Damaged { page: PageId(7), .. })), "{damaged:?}");
}
