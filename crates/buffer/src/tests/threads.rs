//! Threads for real.

use super::*;
use crate::dirt;
use crate::frame_no::FrameNo;
use std::sync::Barrier;

#[test]
fn readers_never_see_a_torn_page() {
    for frames in [16, 64] {
        let fixture =
            Arc::new(fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup { frames, ..Setup::default() }));
        for id in 0..100 {
            fixture.write(PageId(id), id).unwrap();
        }
        fixture.cache.start_writer();
        let threads: Vec<_> = (0..6)
            .map(|no| {
                let fixture = Arc::clone(&fixture);
                sync::spawn("client", move || {
                    let mut random = Random::new(no);
                    for _ in 0..3000 {
                        let id = PageId(if random.below(4) > 0 { random.below(8) } else { random.below(100) });
                        match (no, random.below(3)) {
                            (0 | 1, _) => drop(fixture.write(id, id.0 + 100 * random.below(1000)).unwrap()),
                            (2, 0) => {
                                let page = fixture.cache.shared(id).unwrap();
                                assert_eq!(read_value(page.words()).unwrap() % 100, id.0);
                            }
                            _ => assert_eq!(fixture.read(id).unwrap() % 100, id.0),
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        fixture.cache.stop_writer();
    }
}

#[test]
fn threads_that_miss_one_page_together_read_it_once() {
    let disk = SimDisk::new();
    let first = fixture(&disk, Arc::new(FakeLog::new()), Setup::default());
    for id in 0..50 {
        first.write(PageId(id), id).unwrap();
    }
    first.cache.write_back_all().unwrap();
    let second = Arc::new(fixture(&disk, Arc::clone(&first.log), Setup::default()));
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (fixture, barrier) = (Arc::clone(&second), Arc::clone(&barrier));
            sync::spawn("client", move || {
                for id in 0..50 {
                    barrier.wait();
                    assert_eq!(fixture.read(PageId(id)).unwrap(), id);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(second.cache.stats().read_count, 50);
}

#[test]
fn the_writer_ends_when_the_cache_goes() {
    let fixture = new_fixture();
    fixture.cache.start_writer();
    fixture.cache.start_writer();
    let weak = Arc::downgrade(&fixture.cache);
    drop(fixture);
    let mut round = 0;
    while weak.strong_count() > 0 {
        assert!(round < 10_000, "the cache is still held");
        sync::sleep_ns(100_000);
        round += 1;
    }
}

/// A change while the pages are put in order may make one of them that the log has whole, or end that.
#[test]
fn pages_are_put_in_order_whatever_becomes_of_them_meanwhile() {
    let fixture = fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup { frames: 64, ..Setup::default() });
    for id in 0..40 {
        fixture.write(PageId(id), id).unwrap();
    }
    let cache = &fixture.cache;
    let frames: Vec<(PageId, FrameNo)> =
        (0..40).map(|id| (PageId(id), cache.entry(PageId(id)).unwrap().frame().unwrap())).collect();
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut random = Random::new(1);
            for _ in 0..2_000_000 {
                let (_, frame) = frames[random.below(40) as usize];
                let word = &cache.pool.frames.descriptor(frame).rec_lsn;
                let lsn = dirt::oldest_change(word, &ledgerstone_region::atomic::AtomicU64::new(0)).unwrap();
                word.store(dirt::of_change(lsn, random.below(2) == 0), SeqCst);
            }
        });
        while !changes.is_finished() {
            let mut sorted = frames.clone();
            cache.sort_for_batches(&mut sorted);
            sorted.sort_unstable_by_key(|&(id, _)| id);
            assert!(sorted == frames);
        }
    });
}
