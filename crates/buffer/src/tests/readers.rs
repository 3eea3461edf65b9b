//! Threads that read ahead.

use super::basics::written;
use super::*;
use ledgerstone_region::sync::Scheduler;

/// A cache with nothing in it, and 200 pages on the disk.
fn cold(frames: u64) -> (SimDisk, Fixture) {
    let (disk, log, first) = written(200);
    first.cache.write_back_all().unwrap();
    let second = fixture(&disk, log, Setup { frames, ..Setup::default() });
    (disk, second)
}

/// Runs `test` with each of so many seeds. The seed chooses which thread goes on at each step of the disk.
fn in_many_orders(seeds: u64, frames: u64, test: impl Fn(u64, &SimDisk, Fixture) + Sync) {
    for seed in 0..seeds {
        Scheduler::run(seed, || {
            let (disk, cold) = cold(frames);
            disk.set_hook(Arc::new(|what| sync::yield_point(what)));
            test(seed, &disk, cold);
        })
        .unwrap();
    }
}

impl Fixture {
    /// Every one of these pages has the value with which it was written.
    fn has(&self, pages: impl IntoIterator<Item = PageId>, seed: u64) {
        for page in pages {
            let found = self.read(page);
            assert!(found.as_ref().is_ok_and(|&found| found == 1000 + page.0), "seed {seed}: {page} is {found:?}");
        }
    }
}

/// Pages in an order in which some lie in a row, upwards and downwards, and some are alone.
fn asked_for() -> Vec<PageId> {
    (10..30).chain((40..60).rev()).chain([5, 100, 3, 130]).map(PageId).collect()
}

#[test]
fn what_is_asked_for_comes_in_by_runs_and_is_not_missed_afterwards() {
    in_many_orders(20, 256, |seed, disk, cold| {
        cold.cache.allow_readers();
        let reads = disk.counters().reads;
        assert_eq!(cold.cache.read_soon(&asked_for()), 44);
        while cold.cache.stats().read_count < 44 {
            sync::sleep_ns(10_000);
        }
        cold.cache.stop_readers();
        assert_eq!(disk.counters().reads - reads, 1 + 1 + 4, "seed {seed}: a read for each run");
        cold.has(asked_for(), seed);
        assert_eq!(cold.cache.stats().miss_count, 0, "seed {seed}");
        assert_eq!(cold.cache.read_soon(&asked_for()), 0, "they are stopped");
        cold.cache.allow_readers();
        assert_eq!(cold.cache.read_soon(&asked_for()), 0, "all are in memory");
        assert_eq!(cold.cache.read_soon(&[PageId(150), PageId(u64::MAX)]), 1, "what is no page is passed over");
        cold.cache.stop_readers();
    });
}

#[test]
fn nothing_is_read_by_others_before_that_is_allowed() {
    let (disk, cold) = cold(256);
    let reads = disk.counters().reads;
    assert_eq!(cold.cache.read_soon(&asked_for()), 0);
    cold.cache.stop_readers();
    assert_eq!(disk.counters().reads, reads);
}

#[test]
fn readers_and_a_reader_of_all_pages_find_the_same_beside_a_writer_of_few_frames() {
    in_many_orders(40, 32, |seed, _disk, cold| {
        let cold = Arc::new(cold);
        cold.cache.allow_readers();
        cold.cache.start_writer();
        let writer = {
            let cold = Arc::clone(&cold);
            sync::spawn("writer", move || {
                (0..200).step_by(7).try_for_each(|page| cold.write(PageId(page), page).map(drop))
            })
        };
        for from in (0..200).step_by(8) {
            cold.cache.read_soon(&(from..from + 8).map(PageId).collect::<Vec<_>>());
            for page in from..from + 8 {
                let found = cold.read(PageId(page)).unwrap();
                let is_written = page % 7 == 0 && found == page;
                assert!(found == 1000 + page || is_written, "seed {seed}: {found} in page {page}");
            }
        }
        writer.join().unwrap().unwrap();
        cold.cache.stop_readers();
        cold.cache.stop_writer();
    });
}

#[test]
fn readers_end_with_the_cache_that_nobody_has_stopped() {
    Scheduler::run(1, || {
        let (_disk, cold) = cold(64);
        cold.cache.allow_readers();
        assert!(cold.cache.read_soon(&asked_for()) > 0);
    })
    .unwrap();
}

#[test]
fn a_page_that_is_read_ahead_while_the_file_is_cut_before_it_does_not_stay() {
    in_many_orders(200, 256, |seed, _disk, cold| {
        let cold = Arc::new(cold);
        let reader = {
            let cold = Arc::clone(&cold);
            sync::spawn("reader", move || cold.cache.read_wanted().run(PageId(30), 20))
        };
        cold.cache.discard_from(PageId(20)).unwrap();
        cold.data.set_len(20 * 4096).unwrap();
        cold.cache.discard_from(PageId(20)).unwrap();
        reader.join().unwrap();
        for page in 30..50 {
            let found = cold.read(PageId(page));
            assert!(found.as_ref().is_err_and(BufferError::is_never_written), "seed {seed}: {page} is {found:?}");
        }
    });
}

/// So often that the frames of a cache would be gone if each kept one.
#[test]
fn a_disk_that_panics_leaves_no_page_latched_and_takes_no_frame() {
    type Read = fn(&Fixture) -> Result<u64, BufferError>;
    let ways: [Read; 2] =
        [|cold| Ok(cold.cache.read_wanted().run(PageId(10), 20)), |cold| cold.read(PageId(10)).map(|_| 1)];
    for way in ways {
        in_many_orders(1, 64, |seed, disk, cold| {
            for _ in 0..100 {
                disk.set_hook(Arc::new(|_| panic!("the disk of the program")));
                let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| way(&cold)));
                assert!(panicked.is_err());
            }
            disk.set_hook(Arc::new(|what| sync::yield_point(what)));
            assert!(way(&cold).unwrap() > 0);
            cold.has((0..200).map(PageId), seed);
        });
    }
}

/// The one that meets the panic ends, and the others go on.
#[test]
fn a_disk_that_panics_once_ends_one_reader() {
    in_many_orders(20, 256, |seed, disk, cold| {
        let is_first = AtomicBool::new(true);
        disk.set_hook(Arc::new(move |what| {
            sync::yield_point(what);
            assert!(!is_first.swap(false, SeqCst), "the disk of the program");
        }));
        cold.cache.allow_readers();
        assert_eq!(cold.cache.read_soon(&asked_for()), 44);
        cold.has((0..200).map(PageId), seed);
        cold.cache.stop_readers();
    });
}

/// The thread that wants the page is told, and nobody before.
#[test]
fn damaged_pages_and_errors_that_only_readers_meet_stay_with_the_page() {
    in_many_orders(20, 64, |seed, _disk, cold| {
        let mut whole = vec![0; 4096];
        cold.data.read_at(50 * 4096, &mut whole).unwrap();
        cold.data.write_at(50 * 4096 + 100, b"damage").unwrap();
        cold.cache.allow_readers();
        let pages: Vec<_> = (40..60).map(PageId).collect();
        for _ in 0..10 {
            cold.cache.read_soon(&pages);
            sync::sleep_ns(100_000);
            cold.cache.read_soon(&(100..200).map(PageId).collect::<Vec<_>>());
            sync::sleep_ns(100_000);
        }
        assert!(matches!(cold.read(PageId(50)), Err(BufferError::Damaged { .. })), "seed {seed}");
        cold.data.write_at(50 * 4096, &whole).unwrap();
        cold.has(pages, seed);
        cold.cache.stop_readers();
    });
}

#[test]
fn readers_are_asked_stopped_and_allowed_by_many_threads_at_once() {
    in_many_orders(100, 64, |seed, _disk, cold| {
        let cold = Arc::new(cold);
        cold.cache.allow_readers();
        let threads: Vec<_> = (0..4)
            .map(|no| {
                let cold = Arc::clone(&cold);
                sync::spawn("user", move || {
                    for turn in 0..6 {
                        match (no + turn) % 4 {
                            0 => cold.cache.stop_readers(),
                            1 => cold.cache.allow_readers(),
                            _ => drop(cold.cache.read_soon(&asked_for())),
                        }
                        cold.has([PageId((no * 37 + turn * 11) % 200)], seed);
                    }
                })
            })
            .collect();
        for thread in threads {
            assert!(thread.join().is_ok(), "seed {seed}");
        }
        cold.cache.stop_readers();
        assert_eq!(cold.cache.read_soon(&asked_for()), 0);
    });
}
