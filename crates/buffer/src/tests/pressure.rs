//! More pages than frames.

use super::*;
use ledgerstone_region::sync::Scheduler;
use std::collections::BTreeMap;

fn check_against_a_model(policy: Policy, frames: u64, with_writer: bool) {
    let disk = SimDisk::new();
    let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup { frames, policy, ..Setup::default() });
    if with_writer {
        fixture.cache.start_writer();
    }
    let mut random = Random::new(frames + policy as u64);
    let mut model = BTreeMap::new();
    for step in 0..6000 {
        // Some pages are asked for often, most seldom.
        let id = PageId(if random.below(2) == 0 { random.below(20) } else { random.below(600) });
        if random.below(3) == 0 {
            fixture.write(id, step).unwrap();
            model.insert(id, step);
        } else {
            match (fixture.read(id), model.get(&id)) {
                (Ok(found), Some(&expected)) => assert_eq!(found, expected, "{id} at step {step}"),
                (Err(error), None) => assert!(error.is_never_written(), "{error}"),
                (found, expected) => panic!("{id} at step {step}: {found:?}, expected {expected:?}"),
            }
        }
        if random.below(500) == 0 {
            fixture.cache.write_back_before(fixture.log.tail()).unwrap();
        }
    }
    fixture.cache.stop_writer();
    fixture.cache.write_back_all().unwrap();
    for (&id, &value) in &model {
        let bytes = fixture.cache.read_page_direct(id).unwrap();
        assert_eq!(bytes[40..48], value.to_le_bytes(), "{id}");
    }
    assert!(fixture.cache.stats().eviction_count > 100);
}

#[test]
fn small_caches_agree_with_a_model() {
    for policy in [Policy::Clock, Policy::Lru] {
        for frames in [16, 64, 300] {
            check_against_a_model(policy, frames, false);
        }
    }
}

#[test]
fn a_writer_ahead_of_need_changes_no_answer() {
    check_against_a_model(Policy::Clock, 64, true);
}

#[test]
fn the_policy_can_be_changed_while_in_use() {
    let fixture = new_fixture();
    for id in 0..300 {
        fixture.write(PageId(id), id).unwrap();
        fixture.cache.set_policy(if id % 2 == 0 { Policy::Lru } else { Policy::Clock });
    }
    for id in 0..300 {
        assert_eq!(fixture.read(PageId(id)).unwrap(), id);
    }
}

#[test]
fn a_cache_whose_frames_are_all_held_says_so_in_time() {
    let waited = Scheduler::run(1, || {
        let disk = SimDisk::new();
        let fixture = fixture(&disk, Arc::new(FakeLog::new()), Setup { frames: 16, ..Setup::default() });
        for id in 0..17 {
            fixture.write(PageId(id), id).unwrap();
        }
        fixture.cache.write_back_all().unwrap();
        let held: Vec<_> = (0..16).map(|id| fixture.cache.shared(PageId(id)).unwrap()).collect();
        let began = sync::now_ns();
        assert!(matches!(fixture.cache.optimistic(PageId(16)), Err(BufferError::CacheFull { frames: 16, .. })));
        assert!(matches!(fixture.cache.exclusive_new(PageId(100)), Err(BufferError::CacheFull { .. })));
        let waited = sync::now_ns() - began;
        drop(held);
        assert_eq!(fixture.read(PageId(16)).unwrap(), 16, "afterwards all is well");
        waited
    })
    .unwrap();
    assert!((20_000_000_000..21_000_000_000).contains(&waited), "{waited} ns");
}
