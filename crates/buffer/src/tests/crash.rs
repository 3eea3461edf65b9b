//! Power lost at every write of a script, then repair and redo.

use super::*;
use std::collections::BTreeMap;

/// Runs the script until the power fails or it ends. Returns the redo point of the last checkpoint.
pub(super) fn run_script(disk: &SimDisk, log: &Arc<FakeLog>) -> (Lsn, bool) {
    let mut redo_from = Lsn(4096);
    let mut script = || -> Result<(), BufferError> {
        let tuning = Tuning { batch_pages_max: 6, ..Tuning::default() };
        let fixture = try_fixture(disk, Arc::clone(log), Setup { frames: 20, tuning, ..Setup::default() })?;
        let mut random = Random::new(3);
        for step in 0..110 {
            fixture.write(PageId(1 + random.below(30)), step)?;
            if step % 40 == 39 {
                let begin = log.tail();
                fixture.cache.write_back_before(Lsn(begin.0 - 15 * RECORD_BYTES))?;
                let low = fixture.cache.dirty_low().unwrap_or(begin);
                redo_from = low.min(begin);
            }
        }
        fixture.cache.write_back_all().map(|_| ())
    };
    let is_done = script().is_ok();
    (redo_from, is_done)
}

pub(super) fn repair(disk: &dyn Disk) -> Result<Vec<PageId>, BufferError> {
    let data = disk.open("data", Open::CREATE)?;
    let double_write = disk.open("double-write", Open::CREATE)?;
    // The power may have failed before the area was made.
    Cache::repair_torn(&*data, &*double_write, PAGE_BYTES, Lsn(u64::MAX), true)
}

/// Repairs, redoes, and compares with what the log says.
pub(super) fn check_recovery(disk: &SimDisk, log: FakeLog, redo_from: Lsn, what: &str) -> usize {
    let repaired = repair(disk).unwrap();
    assert_eq!(repair(disk).unwrap(), [], "{what}: repaired twice");
    let fixture = fixture(disk, Arc::new(log), Setup { frames: 20, ..Setup::default() });
    let records = fixture.log.records.lock().clone();
    for record in records.iter().filter(|record| record.lsn >= redo_from) {
        let read = match is_formatted(record.page) {
            true => fixture.cache.exclusive_new(record.page),
            false => fixture.cache.exclusive_or_new(record.page).map(|(page, _)| page),
        };
        let mut page = read.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(page.page_lsn() < fixture.log.tail(), "{what}: {} overtook the log", record.page);
        if page.page_lsn() < record.lsn {
            page.begin_change_with(record.lsn, is_formatted(record.page));
            apply(&mut page, record.value);
            page.finish_change(record.lsn);
        }
    }
    let model: BTreeMap<PageId, u64> = records.iter().map(|record| (record.page, record.value)).collect();
    for (&id, &value) in &model {
        assert_eq!(fixture.read(id).unwrap_or_else(|error| panic!("{what}: {error}")), value, "{what}: {id}");
    }
    for id in (0..40).map(PageId).filter(|id| !model.contains_key(id)) {
        assert!(fixture.cache.shared(id).unwrap_err().is_never_written(), "{what}: {id}");
    }
    repaired.len()
}

/// The whole of it. Returns at how many writes power was lost, and how many torn pages were restored.
pub(super) fn crash_at_every_write() -> (u64, usize) {
    let mut repaired_count = 0;
    let mut crash_point = 0;
    loop {
        crash_point += 1;
        let disk = SimDisk::new();
        disk.crash_at(crash_point);
        let log = Arc::new(FakeLog::new());
        let (redo_from, is_done) = run_script(&disk, &log);
        for seed in 0..6 {
            let what = format!("crash at {crash_point}, seed {seed}");
            let after = disk.after_crash(seed * 1000 + crash_point);
            repaired_count += check_recovery(&after, log.after_crash(seed % 5), redo_from, &what);
        }
        if is_done {
            break;
        }
    }
    (crash_point, repaired_count)
}
