//! A device that refuses or lies, at every call in turn: an error is reported, and nothing wrong is ever read.

use super::*;
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm};

/// Works on more pages than frames until an error. What was acknowledged and is readable must be right.
fn run_with(fault: Fault) -> Result<(), BufferError> {
    let disk = FaultDisk::new(Arc::new(SimDisk::new()));
    let log = Arc::new(FakeLog::new());
    let fixture = try_fixture(&disk, log, Setup { frames: 16, ..Setup::default() })?;
    // A page that was written elsewhere and has not been read again since is old at home, and nobody can know.
    let is_home_right = !matches!(fault.harm, Harm::Misdirect(_));
    disk.add(fault);
    let mut random = Random::new(1);
    let mut model = [None; 40];
    for step in 0..200 {
        let at = random.below(40);
        if random.below(2) == 0 {
            fixture.write(PageId(at), step)?;
            model[at as usize] = Some(step);
        } else {
            match fixture.read(PageId(at)) {
                Ok(found) => assert_eq!(Some(found), model[at as usize], "page {at} at step {step}"),
                Err(error) if error.is_never_written() => assert_eq!(model[at as usize], None, "page {at}"),
                Err(error) => return Err(error),
            }
        }
    }
    fixture.cache.write_back_all()?;
    for (at, value) in (0..).zip(model).filter(|_| is_home_right) {
        if let (Some(value), Ok(bytes)) = (value, fixture.cache.read_page_direct(PageId(at))) {
            assert_eq!(bytes[40..48], u64::to_le_bytes(value), "page {at} at home");
        }
    }
    Ok(())
}

#[test]
fn every_refused_call_is_reported_or_harmless() {
    let mut reported = 0;
    for call in [Call::Read, Call::Write, Call::Sync] {
        for nth in 1..40 {
            for harm in [Harm::Fail(DiskErrorKind::Io(5)), Harm::Short] {
                reported += u32::from(run_with(Fault::at(call, nth, harm)).is_err());
            }
        }
    }
    assert!(reported > 60, "only {reported} faults were reported");
}

#[test]
fn flipped_bits_are_never_taken_for_a_page() {
    let mut damaged = 0;
    for nth in 1..100 {
        let result = run_with(Fault::at(Call::Read, nth, Harm::FlipBit(nth * 4099)).on("data"));
        if let Err(error) = result {
            assert!(matches!(error, BufferError::Damaged { .. }), "{error}");
            damaged += 1;
        }
    }
    assert!(damaged > 20, "only {damaged} flipped bits were met");
}

#[test]
fn a_write_that_went_elsewhere_is_missed_when_its_page_comes_back() {
    let mut damaged = 0;
    for nth in 1..60 {
        for by in [4096, 3 * 4096] {
            let result = run_with(Fault::at(Call::Write, nth, Harm::Misdirect(by)).on("data"));
            if let Err(error) = result {
                assert!(matches!(error, BufferError::Damaged { .. }), "{error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 20, "only {damaged} misdirected writes were met");
}

/// W5. The device would take the second write, but what it has lost of the first nobody knows.
#[test]
fn a_page_that_could_not_be_written_fails_cache_and_log_and_is_never_written_again() {
    let calls =
        [(Call::Write, "double-write"), (Call::Sync, "double-write"), (Call::Write, "data"), (Call::Sync, "data")];
    // One that gets a copy, and one that the log has whole.
    for ((call, path), id) in calls.into_iter().flat_map(|call| [(call, PageId(1)), (call, PageId(3))]) {
        let disk = FaultDisk::new(Arc::new(SimDisk::new()));
        let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
        fixture.write(id, 1).unwrap();
        fixture.cache.write_back_all().unwrap();
        fixture.write(id, 2).unwrap();
        disk.add(Fault::at(call, 1, Harm::Fail(DiskErrorKind::Io(5))).on(path));
        let refused = fixture.cache.write_back_page(id).unwrap_err();
        assert_eq!(disk.hits(), 1, "{call:?} {path}: {refused}");
        assert!(fixture.log.is_failed(), "{call:?} {path}: the next commit would be acknowledged");
        // A log of its own that has not failed would not help.
        fixture.log.has_failed.store(false, SeqCst);
        for again in [fixture.cache.write_back_page(id), fixture.cache.write_back_all()] {
            assert!(matches!(again, Err(BufferError::Failed)), "{call:?} {path}: {again:?}");
        }
        let stats = fixture.cache.stats();
        // What needs no lane is home before the sync.
        let written = 1 + u64::from((call, path, id) == (Call::Sync, "data", PageId(3)));
        assert_eq!((stats.write_count, stats.dirty_frame_count), (written, 1), "{call:?} {path}: not clean");
        assert_eq!(fixture.read(id).unwrap(), 2, "{call:?} {path}: what is in memory can be read");
    }
}
