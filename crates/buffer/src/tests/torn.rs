//! What the double-write area is for.

use super::crash::{check_recovery, crash_at_every_write, repair, run_script};
use super::*;
use ledgerstone_disk::{Call, Fault, FaultDisk, Harm};

#[test]
fn no_page_is_torn_after_a_crash_at_any_write() {
    let (crash_points, repaired_count) = crash_at_every_write();
    assert!(crash_points > 30, "the script has only {crash_points} writes");
    assert!(repaired_count > 10, "only {repaired_count} pages were torn");
}

#[test]
fn a_crash_during_repair_does_no_harm() {
    let mut interrupted_count = 0;
    for crash_point in 1..60 {
        let disk = SimDisk::new();
        disk.crash_at(crash_point);
        let log = Arc::new(FakeLog::new());
        let (redo_from, _) = run_script(&disk, &log);
        for again in 1..4 {
            let first = disk.after_crash(crash_point);
            first.crash_at(again);
            interrupted_count += u32::from(repair(&first).is_err());
            let second = first.after_crash(crash_point + again);
            check_recovery(&second, log.after_crash(0), redo_from, &format!("crash at {crash_point} and {again}"));
        }
    }
    assert!(interrupted_count > 5, "only {interrupted_count} repairs were interrupted");
}

#[test]
fn only_pages_that_the_log_does_not_have_get_a_copy() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    let copied = || {
        let mut slots = vec![0; 65 * 4096];
        area.read_at(32768, &mut slots).unwrap();
        let ids = slots.chunks(4096).skip(1).filter(|slot| slot.iter().any(|&byte| byte != 0));
        ids.map(|slot| slot[header::PAGE_ID]).collect::<Vec<_>>()
    };
    for id in [3, 4, 7] {
        fixture.write(PageId(id), id).unwrap();
    }
    assert_eq!(fixture.cache.write_back_all().unwrap(), 3);
    assert_eq!(copied(), [4], "the log has 3 and 7 whole");
    // The first change that is not home counts: of 3 it is no format now.
    let mut page = fixture.cache.exclusive(PageId(3)).unwrap();
    page.begin_change(fixture.log.tail());
    let lsn = fixture.log.append(PageId(3), 30);
    apply(&mut page, 30);
    page.finish_change(lsn);
    fixture.change(&mut page, 31);
    drop(page);
    fixture.write(PageId(7), 70).unwrap();
    assert_eq!(fixture.cache.write_back_all().unwrap(), 2);
    assert_eq!(copied(), [3]);
    assert_eq!((fixture.read(PageId(3)).unwrap(), fixture.read(PageId(7)).unwrap()), (31, 70));
}

/// It is looked at before redo, so it has to be whole by then, whatever the log has (D0).
#[test]
fn the_file_header_always_gets_a_copy() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    let mut page = fixture.cache.exclusive_new(PageId(0)).unwrap();
    page.begin_change_with(fixture.log.tail(), true);
    let lsn = fixture.log.append(PageId(0), 1);
    apply(&mut page, 1);
    page.finish_change(lsn);
    drop(page);
    assert_eq!(fixture.cache.write_back_all().unwrap(), 1);
    let mut slot = vec![0; 4096];
    disk.open("double-write", Open::EXISTING).unwrap().read_at(32768 + 4096, &mut slot).unwrap();
    assert_eq!(slot, fixture.cache.read_page_direct(PageId(0)).unwrap());
}

/// What the log has of a page may change when the order is made already. Then a page that needs a copy stands behind
/// one that does not.
#[test]
fn a_page_gets_its_copy_wherever_it_stands_in_the_batch() {
    let disk = SimDisk::new();
    let tuning = Tuning { batch_pages_max: 2, ..Tuning::default() };
    let fixture = Arc::new(fixture(&disk, Arc::new(FakeLog::new()), Setup { tuning, ..Setup::default() }));
    for id in [3, 7, 11, 15] {
        fixture.write(PageId(id), id).unwrap();
    }
    let (inside, is_over) = (Arc::clone(&fixture), AtomicBool::new(false));
    disk.set_hook(Arc::new(move |what| {
        if what == "write" && !is_over.swap(true, SeqCst) {
            assert_eq!(inside.cache.write_back_page(PageId(15)).unwrap(), 1);
            let mut page = inside.cache.exclusive(PageId(15)).unwrap();
            page.begin_change(inside.log.tail());
            let lsn = inside.log.append(PageId(15), 16);
            apply(&mut page, 16);
            page.finish_change(lsn);
        }
    }));
    assert_eq!(fixture.cache.write_back_all().unwrap(), 4);
    disk.set_hook(Arc::new(|_| {}));
    let mut slots = vec![0; 12 * 4096];
    disk.open("double-write", Open::EXISTING).unwrap().read_at(32768, &mut slots).unwrap();
    let home = fixture.cache.read_page_direct(PageId(15)).unwrap();
    assert!(slots.chunks(4096).any(|slot| *slot == home), "the page went home without a copy");
}

/// One page at home, its copies in the area, and what repair makes of it.
fn check_repair(home: Option<Vec<u8>>, copies: &[(u64, Vec<u8>)], expected: Option<u64>) {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    for (slot, bytes) in copies {
        area.write_at(32768 + slot * 4096, bytes).unwrap();
    }
    if let Some(home) = &home {
        fixture.data.write_at(5 * 4096, home).unwrap();
    }
    let repaired = repair(&disk).unwrap();
    assert_eq!(repaired.len(), usize::from(expected.is_some()));
    let mut bytes = vec![0; 4096];
    let found = fixture.data.read_at(5 * 4096, &mut bytes).ok().map(|()| bytes);
    match expected {
        Some(lsn) => assert_eq!(found.unwrap(), page_image(lsn)),
        None => assert_eq!(found, home),
    }
}

/// Page 5 as of an LSN, sealed.
fn page_image(lsn: u64) -> Vec<u8> {
    let mut bytes = vec![lsn as u8; 4096];
    bytes[header::LAYOUT..header::PAGE_ID].copy_from_slice(&[1, 0, 1, 0]);
    bytes[header::PAGE_ID..header::PAGE_LSN].copy_from_slice(&5u64.to_le_bytes());
    bytes[header::PAGE_LSN..header::OWNER].copy_from_slice(&lsn.to_le_bytes());
    ledgerstone_page::checksum::seal(&mut bytes);
    bytes
}

/// The first piece new, the rest old.
fn torn_image(new: u64, old: u64) -> Vec<u8> {
    let mut bytes = page_image(old);
    bytes[..512].copy_from_slice(&page_image(new)[..512]);
    bytes
}

#[test]
fn the_youngest_copy_of_a_torn_page_wins() {
    check_repair(Some(torn_image(30, 20)), &[(3, page_image(30)), (9, page_image(20))], Some(30));
    check_repair(Some(torn_image(20, 30)), &[(3, page_image(20)), (9, page_image(30))], Some(30));
    check_repair(Some(torn_image(30, 20)), &[(3, torn_image(30, 20)), (9, page_image(30))], Some(30));
}

#[test]
fn whole_and_unwritten_homes_are_left_alone() {
    check_repair(Some(page_image(10)), &[(0, page_image(30))], None);
    check_repair(Some(page_image(40)), &[(0, page_image(30))], None);
    check_repair(Some(vec![0; 4096]), &[(0, page_image(30))], None);
    check_repair(None, &[(0, page_image(30))], None);
    check_repair(Some(torn_image(30, 20)), &[], None);
}

#[test]
fn an_old_copy_does_not_hide_damage() {
    let mut damaged = page_image(50);
    damaged[2000] ^= 1;
    check_repair(Some(damaged), &[(0, page_image(30))], None);
}

/// Found by the damage campaign (seed 310267): two pages had changed places after a power failure, and one was replaced
/// by a copy of long ago.
#[test]
fn another_page_in_its_place_is_damage() {
    let mut misplaced = page_image(20);
    misplaced[header::PAGE_ID..header::PAGE_LSN].copy_from_slice(&6u64.to_le_bytes());
    ledgerstone_page::checksum::seal(&mut misplaced);
    check_repair(Some(misplaced.clone()), &[(0, page_image(30))], None);
    misplaced[2000] ^= 1;
    check_repair(Some(misplaced), &[(0, page_image(30))], None);
    // A page that was never at home before may lack its first piece, and have others.
    let mut first_write = page_image(30);
    first_write[..512].fill(0);
    check_repair(Some(first_write), &[(0, page_image(30))], Some(30));
    // One that lost its first piece later has others than the copy.
    let mut zeroed = page_image(50);
    zeroed[..512].fill(0);
    check_repair(Some(zeroed), &[(0, page_image(30))], None);
}

/// The copy is of long ago, and a bit of the LSN at home is read wrong, once: the page looks older than the copy.
#[test]
fn a_page_that_was_read_wrong_once_is_not_replaced() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    area.write_at(32768 + 3 * 4096, &page_image(30)).unwrap();
    fixture.data.write_at(5 * 4096, &page_image(50)).unwrap();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    faulty.add(Fault::at(Call::Read, 1, Harm::FlipBit(header::PAGE_LSN as u64 * 8 + 5)).on("data"));
    assert_eq!(repair(&faulty).unwrap(), []);
    assert_eq!(faulty.hits(), 1);
    let mut bytes = vec![0; 4096];
    fixture.data.read_at(5 * 4096, &mut bytes).unwrap();
    assert_eq!(bytes, page_image(50));
}

/// An environment that was closed takes any area, such as one that stayed when all other files were put back. After the
/// next crash its marks must not be held against the log, nor its copies put into pages.
#[test]
fn an_area_of_another_log_is_emptied_where_none_is_needed() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    for value in 0..40 {
        fixture.write(PageId(value % 7), value).unwrap();
        fixture.cache.write_back_all().unwrap();
    }
    let early = Lsn(fixture.log.durable_lsn().0 - 8);
    let repair = |disk: &SimDisk, may_be_missing| {
        let (data, area) = (disk.open("data", Open::EXISTING).unwrap(), disk.open("double-write", Open::EXISTING));
        Cache::repair_torn(&*data, &*area.unwrap(), PAGE_BYTES, early, may_be_missing)
    };
    assert!(matches!(repair(&disk, false), Err(BufferError::LogEndsEarly { .. })));
    assert_eq!(repair(&disk, true).unwrap(), []);
    crate::make_double_write(disk.open("double-write", Open::EXISTING).unwrap(), PAGE_BYTES).unwrap();
    fixture.data.write_durable_at(4 * 4096 + 2048, &[0xEE; 512]).unwrap();
    assert_eq!(repair(&disk.after_crash(1), false).unwrap(), [], "no copy of the other log's is believed");
}

#[test]
fn the_area_is_as_documented() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    fixture.write(PageId(5), 1).unwrap();
    fixture.cache.write_back_all().unwrap();
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    let mut bytes = vec![0; 32];
    area.read_at(0, &mut bytes).unwrap();
    let mut expected = b"LSTDWRIT\x03\0\0\0\0\x10\0\0\x04\0\0\0\x10\0\0\0".to_vec();
    let checksum = crc32c::crc32c(&expected).to_le_bytes();
    expected.extend_from_slice(&checksum);
    expected.extend_from_slice(&[0; 4]);
    assert_eq!(bytes, expected);
    assert_eq!(area.len().unwrap(), 32768 + 4 * 17 * 4096);
    let mut slot = vec![0; 4096];
    area.read_at(32768, &mut slot).unwrap();
    let mut mark = b"LSTDMARK".to_vec();
    mark.extend_from_slice(&fixture.log.durable_lsn().0.to_le_bytes());
    let checksum = crc32c::crc32c(&mark).to_le_bytes();
    mark.extend_from_slice(&checksum);
    mark.resize(4096, 0);
    assert_eq!(slot, mark);
    area.read_at(32768 + 4096, &mut slot).unwrap();
    assert_eq!(slot, fixture.cache.read_page_direct(PageId(5)).unwrap());
}

#[test]
fn a_log_that_ends_before_a_mark_is_refused_before_anything_is_written() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    for value in 0..40 {
        fixture.write(PageId(value % 7), value).unwrap();
        fixture.cache.write_back_all().unwrap();
    }
    let durable = fixture.log.durable_lsn();
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    fixture.data.write_at(4 * 4096 + 2048, &[0xEE; 512]).unwrap(); // The last page, torn: it would be mended.
    let before = disk.fingerprint();
    let early = Lsn(durable.0 - RECORD_BYTES);
    let refused = Cache::repair_torn(&*fixture.data, &*area, PAGE_BYTES, early, false);
    assert!(
        matches!(refused, Err(BufferError::LogEndsEarly { durable: known, end, .. }) if known == durable && end == early)
    );
    assert_eq!(disk.fingerprint(), before);
    assert_eq!(Cache::repair_torn(&*fixture.data, &*area, PAGE_BYTES, durable, false).unwrap(), [PageId(4)]);
}

/// D8 counts for pages that go home without a copy, too: also where the last mark ends just before them.
#[test]
fn a_page_without_a_copy_goes_home_behind_its_mark() {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    for id in [3, 7, 11] {
        let lsn = fixture.log.tail();
        fixture.write(PageId(id), id).unwrap();
        assert_eq!(fixture.cache.write_back_all().unwrap(), 1);
        let after = disk.snapshot().after_crash(id);
        let (data, area) = (after.open("data", Open::EXISTING).unwrap(), after.open("double-write", Open::EXISTING));
        let found = Cache::repair_torn(&*data, &*area.unwrap(), PAGE_BYTES, lsn, false);
        assert!(matches!(found, Err(BufferError::LogEndsEarly { .. })), "page {id} of {lsn}: {found:?}");
    }
    let mut slots = vec![0; 4 * 17 * 4096];
    area.read_at(32768, &mut slots).unwrap();
    let has_copy = |slot: &[u8]| slot[header::PAGE_ID..header::PAGE_LSN].iter().any(|&byte| byte != 0);
    assert!(!slots.chunks(4096).filter(|slot| !slot.starts_with(b"LSTDMARK")).any(has_copy), "none has a copy");
}

#[test]
fn an_area_of_an_older_format_is_used_and_written_anew() {
    for (version, lane_slots) in [(1, 16), (2, 17)] {
        let disk = SimDisk::new();
        let area = disk.open("double-write", Open::CREATE).unwrap();
        let mut header = b"LSTDWRIT\0\0\0\0\0\x10\0\0\x04\0\0\0\x10\0\0\0".to_vec();
        header[8] = version;
        let checksum = crc32c::crc32c(&header).to_le_bytes();
        header.extend_from_slice(&checksum);
        area.write_at(0, &header).unwrap();
        area.set_len(32768 + 4 * lane_slots * 4096).unwrap();
        area.write_at(32768 + (lane_slots - 16) * 4096, &page_image(30)).unwrap();
        let data = disk.open("data", Open::CREATE).unwrap();
        data.write_at(5 * 4096, &torn_image(30, 20)).unwrap();
        assert_eq!(Cache::repair_torn(&*data, &*area, PAGE_BYTES, Lsn(64), false).unwrap(), [PageId(5)]);
        drop(fixture(&disk, Arc::new(FakeLog::new()), Setup::default()));
        let mut bytes = [0; 10];
        area.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, *b"LSTDWRIT\x03\0");
        assert_eq!(area.len().unwrap(), 32768 + 4 * 17 * 4096);
    }
}

#[test]
fn a_mark_is_kept_when_lanes_get_another_length() {
    let disk = SimDisk::new();
    let first = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    for value in 0..40 {
        first.write(PageId(value % 7), value).unwrap();
        first.cache.write_back_all().unwrap();
    }
    let (durable, data) = (first.log.durable_lsn(), Arc::clone(&first.data));
    let area = disk.open("double-write", Open::EXISTING).unwrap();
    for frames in [32, 128, 64] {
        drop(fixture(&disk, Arc::new(FakeLog::new()), Setup { frames, ..Setup::default() }));
        let mut header = [0; 24];
        area.read_at(0, &mut header).unwrap();
        assert_eq!(u64::from(header[20]), frames / 4, "{frames} frames");
        let early = Cache::repair_torn(&*data, &*area, PAGE_BYTES, Lsn(durable.0 - 8), false);
        assert!(matches!(early, Err(BufferError::LogEndsEarly { durable: known, .. }) if known == durable), "{frames}");
        Cache::repair_torn(&*data, &*area, PAGE_BYTES, durable, false).unwrap();
    }
}
