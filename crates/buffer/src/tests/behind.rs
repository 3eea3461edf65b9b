//! What the page writer does ahead of need: pages that were left behind go home, and memory for frames is taken.

use super::*;

/// Waits until the writer has done what it was called for.
fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_done() {
            return;
        }
        sync::sleep_ns(5_000_000);
    }
    panic!("{what}: not after ten seconds");
}

#[test]
fn they_go_home_once_there_are_enough_of_them_and_others_stay() {
    let fixture = new_fixture();
    fixture.cache.start_writer();
    for id in 0..12 {
        fixture.write(PageId(id), 7).unwrap();
    }
    let dirty = || fixture.cache.stats().dirty_frame_count;
    (0..7).for_each(|id| fixture.cache.leave_behind(PageId(id)));
    assert_eq!(dirty(), 12, "an eighth of 64 frames is worth a call");
    let latched = fixture.cache.exclusive(PageId(3)).unwrap();
    // One of them is not in memory, and one is not dirty.
    fixture.cache.leave_behind(PageId(500));
    wait_until("all but the latched one", || dirty() == 12 - 6);
    drop(latched);
    fixture.cache.stop_writer();
    assert_eq!(dirty(), 12 - 6);
    fixture.cache.write_back_all().unwrap();
    for id in 0..12 {
        assert_eq!(fixture.cache.read_page_direct(PageId(id)).unwrap()[40], 7);
    }
}

#[test]
fn the_list_is_bounded_without_a_writer() {
    let fixture = new_fixture();
    fixture.write(PageId(1), 7).unwrap();
    (0..100_000).for_each(|_| fixture.cache.leave_behind(PageId(1)));
    assert_eq!(fixture.cache.behind.len(), 16 * 8);
    assert!(fixture.cache.write_behind().unwrap());
    assert_eq!((fixture.cache.behind.len(), fixture.cache.stats().dirty_frame_count), (0, 0));
    assert!(!fixture.cache.write_behind().unwrap());
}

#[test]
fn memory_is_taken_ahead_once_four_groups_of_frames_are_full() {
    let fixture = fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup { frames: 4000, ..Setup::default() });
    fixture.cache.start_writer();
    let there = || fixture.cache.pool.frames.control().groups_there.load(SeqCst);
    let write = |id: u64| fixture.write(PageId(id), 7).map(|_| ()).unwrap();
    (0..4 * 512).for_each(write);
    assert_eq!(there(), 0, "a small environment stays small");
    write(4 * 512);
    wait_until("a quarter of the groups that are in use, and these", || there() == 6);
    // More than there are frames.
    (4 * 512 + 1..5000).for_each(write);
    fixture.cache.stop_writer();
    assert!((0..5000).all(|id| fixture.read(PageId(id)).unwrap() == 7));
}
