//! Many clients under the seeded scheduler: the same run for the same seed, at any order of events.

use super::*;
use ledgerstone_region::sync::Scheduler;

/// Clients increase counters on pages, each its own; all read all. Returns the numbers of the run and its time.
fn run_clients(seed: u64, frames: u64, crash_at: Option<u64>) -> (crate::CacheStats, u64) {
    let setup = Setup { frames, ..Setup::default() };
    run_clients_on(&SimDisk::new(), &Arc::new(FakeLog::new()), &AtomicU64::new(0), seed, setup, crash_at)
}

/// The same, with what is left afterwards: disk, log, and where a recovery would have to begin.
fn run_clients_on(
    disk: &SimDisk,
    log: &Arc<FakeLog>,
    redo_from: &AtomicU64,
    seed: u64,
    setup: Setup,
    crash_at: Option<u64>,
) -> (crate::CacheStats, u64) {
    Scheduler::run(seed, || {
        disk.set_hook(Arc::new(|what| sync::yield_point(what)));
        let policy = if seed.is_multiple_of(2) { Policy::Clock } else { Policy::Lru };
        let fixture = Arc::new(fixture(disk, Arc::clone(log), Setup { policy, ..setup }));
        let checkpoint = Arc::new(AtomicU64::new(fixture.log.tail().0));
        if let Some(at) = crash_at {
            disk.crash_at(at);
        }
        fixture.cache.start_writer();
        let clients: Vec<_> = (0..6)
            .map(|no| {
                let fixture = Arc::clone(&fixture);
                sync::spawn("client", move || client(&fixture, no, seed))
            })
            .collect();
        let checkpointer = {
            let (fixture, checkpoint) = (Arc::clone(&fixture), Arc::clone(&checkpoint));
            sync::spawn("checkpoint", move || -> Result<(), BufferError> {
                for _ in 0..5 {
                    sync::sleep_ns(300_000);
                    let limit = fixture.log.tail();
                    fixture.cache.write_back_before(limit)?;
                    let low = fixture.cache.dirty_low();
                    assert!(low.is_none_or(|low| low >= limit), "{low:?} is left below {limit}");
                    checkpoint.store(limit.0, SeqCst);
                }
                Ok(())
            })
        };
        let mut results: Vec<Result<(), BufferError>> =
            clients.into_iter().map(|client| client.join().unwrap()).collect();
        results.push(checkpointer.join().unwrap());
        fixture.cache.stop_writer();
        redo_from.store(checkpoint.load(SeqCst), SeqCst);
        match crash_at {
            None => {
                results.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
                fixture.cache.write_back_all().unwrap();
            }
            Some(_) => {
                for error in results.into_iter().filter_map(Result::err) {
                    assert!(matches!(error, BufferError::Failed | BufferError::Disk(_)), "{error}");
                }
            }
        }
        (fixture.cache.stats(), sync::now_ns())
    })
    .unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"))
}

fn client(fixture: &Fixture, no: u64, seed: u64) -> Result<(), BufferError> {
    let mut random = Random::new(seed * 1000 + no);
    let mut counts = [0u64; 10];
    for _ in 0..80 {
        let at = random.below(10);
        let id = PageId(no * 10 + at);
        if random.below(2) == 0 {
            // Two latches at a time, in order, as structures do.
            let (mut low, _) = fixture.cache.exclusive_or_new(id)?;
            sync::yield_point("client holds a page");
            if at < 9 && random.below(3) == 0 {
                let (mut high, _) = fixture.cache.exclusive_or_new(PageId(id.0 + 1))?;
                counts[at as usize + 1] += 1;
                fixture.change(&mut high, counts[at as usize + 1]);
            }
            counts[at as usize] += 1;
            fixture.change(&mut low, counts[at as usize]);
            drop(low);
            // More often than loads do.
            if random.below(2) == 0 {
                fixture.cache.leave_behind(id);
            }
        } else {
            match fixture.read(id) {
                Ok(count) => assert_eq!(count, counts[at as usize], "{id}"),
                Err(error) if error.is_never_written() => assert_eq!(counts[at as usize], 0, "{id}"),
                Err(error) => return Err(error),
            }
            match fixture.read(PageId(random.below(60))) {
                Ok(_) => {}
                Err(error) if error.is_never_written() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[test]
fn clients_find_what_they_wrote_in_any_order_of_events() {
    for seed in 0..40 {
        let (stats, _) = run_clients(seed, 16 + seed % 3 * 16, None);
        assert!(stats.read_count > 0 && stats.eviction_count > 0, "seed {seed} had no pressure: {stats:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run_clients(7, 24, None), run_clients(7, 24, None));
}

#[test]
fn everybody_learns_of_a_crash() {
    for seed in 0..40 {
        run_clients(seed, 20, Some(8 + seed));
    }
}

#[test]
fn what_many_clients_wrote_is_there_after_a_crash() {
    let mut repaired = 0;
    for seed in 0..60 {
        let (disk, log, redo_from) = (SimDisk::new(), Arc::new(FakeLog::new()), AtomicU64::new(0));
        let tuning = Tuning { batch_pages_max: 1 + seed as u32 % 4, ..Tuning::default() };
        let setup = Setup { frames: 20, tuning, ..Setup::default() };
        run_clients_on(&disk, &log, &redo_from, seed, setup, Some(10 + seed * 7 % 170));
        let redo_from = Lsn(redo_from.load(SeqCst));
        for survival in 0..8 {
            let after = disk.after_crash(seed * 100 + survival);
            let what = format!("seed {seed}, survival {survival}");
            repaired += super::crash::check_recovery(&after, log.after_crash(survival % 5), redo_from, &what);
        }
    }
    assert!(repaired > 20, "only {repaired} torn pages");
}

#[test]
fn a_writer_that_is_told_to_stop_stops_wherever_it_is() {
    for seed in 0..300 {
        Scheduler::run(seed, || {
            let fixture = fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup::default());
            for round in 0..3 {
                fixture.cache.start_writer();
                (0..seed % 7 + round).for_each(|_| sync::yield_point("before the stop"));
                fixture.cache.stop_writer();
            }
        })
        .unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// A holder that waits for a device which has stalled keeps its latch far longer than a latch is waited for.
#[test]
fn a_checkpoint_outwaits_a_device_that_has_stalled() {
    Scheduler::run(1, || {
        let disk = SimDisk::new();
        let fixture = Arc::new(fixture(&disk, Arc::new(FakeLog::new()), Setup::default()));
        let holder = {
            let fixture = Arc::clone(&fixture);
            sync::spawn("holder", move || {
                let (mut page, _) = fixture.cache.exclusive_or_new(PageId(1)).unwrap();
                fixture.change(&mut page, 1);
                sync::sleep_ns(3 * ledgerstone_region::LATCH_TIMEOUT_NS);
            })
        };
        sync::sleep_ns(1_000_000);
        assert_eq!(fixture.cache.write_back_all().unwrap(), 1);
        assert!(sync::now_ns() >= 3 * ledgerstone_region::LATCH_TIMEOUT_NS);
        holder.join().unwrap();
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// A disk on which what the hook is told of takes as long as `stall` says, in nanoseconds.
fn stalling(what: &'static [&'static str]) -> (SimDisk, Arc<AtomicU64>) {
    let (disk, stall) = (SimDisk::new(), Arc::new(AtomicU64::new(0)));
    let by_hook = Arc::clone(&stall);
    disk.set_hook(Arc::new(move |operation| {
        let ns = by_hook.load(Relaxed);
        if ns > 0 && what.contains(&operation) {
            sync::sleep_ns(ns);
        }
    }));
    (disk, stall)
}

/// All frames are dirty or latched, and all lanes are taken by writes that take longer than a frame is waited for.
#[test]
fn who_wants_a_frame_outwaits_a_device_that_has_stalled() {
    for seed in 0..5 {
        Scheduler::run(seed, || {
            let (disk, stall) = stalling(&["write"]);
            let tuning = Tuning { full_wait_ns_max: 100_000_000, ..Tuning::default() };
            let setup = Setup { frames: 16, tuning, ..Setup::default() };
            let fixture = Arc::new(fixture(&disk, Arc::new(FakeLog::new()), setup));
            fixture.cache.start_writer();
            for id in 0..16 {
                fixture.write(PageId(id), id).unwrap();
            }
            stall.store(3 * tuning.full_wait_ns_max, Relaxed);
            let writers: Vec<_> = (0..8)
                .map(|no| {
                    let fixture = Arc::clone(&fixture);
                    sync::spawn("writer", move || {
                        for id in 0..4 {
                            let id = PageId(100 + 10 * no + id);
                            fixture.write(id, no).unwrap_or_else(|error| panic!("{id}: {error}"));
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap_or_else(|panicked| panic!("{panicked}"));
            }
            assert!(fixture.cache.stats().frame_wait_count > 0, "seed {seed}: nobody had to wait for a frame");
            fixture.cache.stop_writer();
        })
        .unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// A thread that has latched a page waits for a read that takes longer than a latch is waited for.
#[test]
fn who_wants_a_latch_outwaits_a_device_that_has_stalled() {
    Scheduler::run(1, || {
        let (disk, stall) = stalling(&["read"]);
        let fixture = Arc::new(fixture(&disk, Arc::new(FakeLog::new()), Setup::default()));
        fixture.write(PageId(1), 1).unwrap();
        stall.store(5 * ledgerstone_region::LATCH_TIMEOUT_NS, Relaxed);
        let holder = {
            let fixture = Arc::clone(&fixture);
            sync::spawn("holder", move || {
                let _page = fixture.cache.exclusive(PageId(1)).unwrap();
                assert!(fixture.read(PageId(50)).unwrap_err().is_never_written());
            })
        };
        sync::sleep_ns(1_000_000);
        drop(fixture.cache.exclusive(PageId(1)).unwrap_or_else(|error| panic!("{error}")));
        assert_eq!(fixture.read(PageId(1)).unwrap(), 1);
        assert!(sync::now_ns() >= 5 * ledgerstone_region::LATCH_TIMEOUT_NS);
        holder.join().unwrap();
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// What no device is to blame for ends in time all the same, also while the device gets other things done.
#[test]
fn a_latch_that_is_kept_beside_a_device_at_work_is_not_waited_for_for_ever() {
    Scheduler::run(1, || {
        let (disk, stall) = stalling(&["read"]);
        let fixture = Arc::new(fixture(&disk, Arc::new(FakeLog::new()), Setup::default()));
        stall.store(1_000_000_000, Relaxed);
        let is_over = Arc::new(AtomicU64::new(0));
        let reader = {
            let (fixture, is_over) = (Arc::clone(&fixture), Arc::clone(&is_over));
            sync::spawn("reader", move || {
                while is_over.load(Relaxed) == 0 {
                    fixture.read(PageId(50)).unwrap_err();
                }
            })
        };
        let page = fixture.cache.exclusive_new(PageId(1)).unwrap();
        let other = {
            let fixture = Arc::clone(&fixture);
            sync::spawn("other", move || fixture.cache.exclusive(PageId(1)).map(drop))
        };
        let refused = other.join().unwrap();
        assert!(matches!(refused, Err(BufferError::LatchTimeout { .. })), "{refused:?}");
        drop(page);
        is_over.store(1, Relaxed);
        reader.join().unwrap();
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// A lane that is taken by somebody who finds nothing to write is not work of the device.
#[test]
fn who_wants_a_frame_does_not_wait_for_lanes_in_which_nothing_is_written() {
    Scheduler::run(1, || {
        let tuning = Tuning { full_wait_ns_max: 100_000_000, ..Tuning::default() };
        let setup = Setup { frames: 16, tuning, ..Setup::default() };
        let fixture = Arc::new(fixture(&SimDisk::new(), Arc::new(FakeLog::new()), setup));
        let held: Vec<_> = (0..16).map(|id| fixture.cache.exclusive_new(PageId(id)).unwrap()).collect();
        let lane = fixture.cache.try_lane().unwrap();
        let other = {
            let fixture = Arc::clone(&fixture);
            sync::spawn("other", move || fixture.cache.exclusive_new(PageId(100)).map(drop))
        };
        let refused = other.join().unwrap();
        assert!(matches!(refused, Err(BufferError::CacheFull { .. })), "{refused:?}");
        assert!(sync::now_ns() < 20 * tuning.full_wait_ns_max);
        fixture.cache.give_lane_back(lane);
        drop(held);
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// Who waits for a lane has taken its copies already. If the log fails meanwhile, they are never written.
#[test]
fn nobody_waits_for_copies_that_wait_for_a_lane_when_the_log_fails() {
    Scheduler::run(1, || {
        let fixture = Arc::new(new_fixture());
        fixture.write(PageId(1), 1).unwrap();
        let lanes: Vec<u32> = std::iter::from_fn(|| fixture.cache.try_lane()).collect();
        let writer = {
            let fixture = Arc::clone(&fixture);
            sync::spawn("writer", move || fixture.cache.write_back_before(Lsn(u64::MAX)))
        };
        sync::sleep_ns(1_000_000); // Simulated: nothing else runs longer.
        fixture.log.has_failed.store(true, SeqCst);
        assert!(matches!(writer.join().unwrap(), Err(BufferError::Failed)));
        assert!(matches!(fixture.cache.discard_from(PageId(0)), Err(BufferError::Failed)));
        assert!(!lanes.is_empty());
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// A checkpoint that ends between two batches leaves pages behind that were sent home and are never synced.
#[test]
fn nobody_waits_for_pages_that_were_sent_home_when_the_log_fails() {
    Scheduler::run(1, || {
        let disk = SimDisk::new();
        let tuning = Tuning { batch_pages_max: 1, ..Tuning::default() };
        let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup { tuning, ..Setup::default() });
        for id in [3, 7] {
            fixture.write(PageId(id), id).unwrap();
        }
        let log = Arc::clone(&fixture.log);
        disk.set_hook(Arc::new(move |what| {
            if what == "write" {
                log.has_failed.store(true, SeqCst);
            }
        }));
        assert!(matches!(fixture.cache.write_back_before(Lsn(u64::MAX)), Err(BufferError::Failed)));
        assert!(matches!(fixture.cache.discard_from(PageId(0)), Err(BufferError::Failed)));
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// Each has sent pages home that the other waits for: both sync theirs before they wait.
#[test]
fn two_that_write_all_pages_back_do_not_wait_for_each_other() {
    for seed in 0..20 {
        Scheduler::run(seed, || {
            let disk = SimDisk::new();
            disk.set_hook(Arc::new(|what| sync::yield_point(what)));
            let tuning = Tuning { batch_pages_max: 1, ..Tuning::default() };
            let setup = Setup { tuning, ..Setup::default() };
            let fixture = Arc::new(fixture(&disk, Arc::new(FakeLog::new()), setup));
            for id in 0..8 {
                fixture.write(PageId(4 * id + 3), id).unwrap();
            }
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let fixture = Arc::clone(&fixture);
                    sync::spawn("writer", move || fixture.cache.write_back_all().unwrap())
                })
                .collect();
            let written: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            assert_eq!(written, 8, "seed {seed}");
        })
        .unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}
