//! What the slot table promises.
#![cfg(not(loom))]

use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_region::{Region, RegionError, SlotNo, SlotTable};
use std::sync::Arc;

fn table(max_threads: u32) -> Arc<SlotTable> {
    let region = Region::anonymous(2 << 20).unwrap();
    Arc::new(SlotTable::place(&region, max_threads).unwrap())
}

#[test]
fn a_slot_is_given_back_when_the_thread_ends() {
    let slots = table(4);
    assert_eq!(slots.current(), SlotNo(0));
    for _ in 0..10 {
        let in_thread = slots.clone();
        let no = std::thread::spawn(move || (in_thread.current(), in_thread.current())).join().unwrap();
        assert_eq!(no, (SlotNo(1), SlotNo(1)));
    }
    assert_eq!(slots.iter_used().map(|(no, _)| no).collect::<Vec<_>>(), [SlotNo(0)]);
}

#[test]
fn a_thread_may_outlive_the_region_and_have_slots_in_many() {
    std::thread::spawn(|| {
        let (first, second) = (table(1), table(1));
        for _ in 0..3 {
            assert_eq!((first.current(), second.current()), (SlotNo(0), SlotNo(0)));
        }
        drop(first);
        for _ in 0..100 {
            assert_eq!(table(1).current(), SlotNo(0));
        }
        assert_eq!(second.current(), SlotNo(0));
    })
    .join()
    .unwrap();
}

#[test]
fn too_many_threads_are_refused() {
    let slots = table(1);
    slots.current();
    let in_thread = slots.clone();
    let refused = std::thread::spawn(move || in_thread.try_current()).join().unwrap();
    assert_eq!(refused, Err(RegionError::NoThreadSlot { count: 1 }));
    let region = Region::anonymous(4 << 20).unwrap();
    for count in [0, 16383] {
        assert!(matches!(SlotTable::place(&region, count), Err(RegionError::BadSlotCount { .. })));
    }
    assert!(SlotTable::place(&region, 16382).is_ok());
}

#[test]
fn whoever_mends_after_a_panic_has_a_slot_when_all_are_taken() {
    for seed in 0..20 {
        Scheduler::run(seed, || {
            let slots = table(2);
            slots.current();
            let first = slots.clone();
            let stays = sync::spawn("stays", move || {
                first.current();
                sync::sleep_ns(100_000_000);
            });
            sync::sleep_ns(1_000_000);
            let mends = || {
                let slots = slots.clone();
                sync::spawn("mends", move || {
                    assert!(slots.try_current().is_err());
                    let no = slots.current_to_mend().unwrap();
                    sync::sleep_ns(5_000_000);
                    assert_eq!(slots.current(), no);
                    no
                })
            };
            let menders = [mends(), mends(), mends()];
            assert!(menders.into_iter().all(|thread| thread.join().unwrap() == SlotNo(2)));
            stays.join().unwrap();
            let free = slots.clone();
            let mends = sync::spawn("mends", move || free.current_to_mend().unwrap());
            assert_eq!(mends.join().unwrap(), SlotNo(1), "the last one is for need");
        })
        .unwrap();
    }
}

#[test]
fn what_a_thread_holds_for_long_stands_in_its_slot_and_goes_with_it() {
    let slots = table(2);
    let me = slots.slot(slots.current());
    assert_eq!(me.long_latch(), None);
    for number in [0, 7, u16::MAX] {
        me.set_long_latch(Some(number));
        assert_eq!(me.long_latch(), Some(number));
    }
    me.set_long_latch(None);
    assert_eq!(me.long_latch(), None);
    for _ in 0..2 {
        let in_thread = slots.clone();
        let before = std::thread::spawn(move || {
            let me = in_thread.slot(in_thread.current());
            let before = me.long_latch();
            me.set_long_latch(Some(1));
            before
        });
        assert_eq!(before.join().unwrap(), None, "a slot is clean for the next thread");
    }
}

#[test]
fn slots_are_a_function_of_the_seed_and_end_with_simulated_threads() {
    let numbers = |seed| {
        Scheduler::run(seed, || {
            let slots = table(8);
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    let slots = slots.clone();
                    sync::spawn("worker", move || {
                        sync::yield_point("before the first call");
                        let no = slots.current();
                        sync::sleep_ns(1000);
                        no
                    })
                })
                .collect();
            let numbers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(slots.iter_used().count(), 0);
            numbers
        })
        .unwrap()
    };
    for seed in 0..20 {
        assert_eq!(numbers(seed), numbers(seed));
    }
    assert!((0..20).any(|seed| numbers(seed) != numbers(seed + 1)));
}
