//! What the mapping promises.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use ledgerstone_region::{Handle, Latch, Region, RegionError, Shared, shared};

shared! {
    /// An entry of some table.
    pub struct Entry {
        /// Guards it.
        pub latch: Latch,
        /// A link.
        pub next: AtomicU32,
        /// Some numbers.
        pub numbers: [AtomicU32; 3],
    } size 24
}

#[test]
fn memory_is_zeroed_aligned_and_given_out_once() {
    let region = Region::anonymous(8 << 20).unwrap();
    assert!(region.is_made_here());
    let entries: Handle<[Entry]> = region.place("entries", 10, 64).unwrap();
    let frames: Handle<[AtomicU64]> = region.place("frames", 512, 2 << 20).unwrap();
    frames.advise_huge();
    assert_eq!(frames.as_ptr() as usize % (2 << 20), 0);
    assert!(frames.iter().all(|word| word.load(Relaxed) == 0));
    frames.iter().for_each(|word| word.store(u64::MAX, Relaxed));
    assert!(entries.iter().all(|entry| entry.next.load(Relaxed) == 0 && entry.latch.try_shared()));
    assert_eq!(region.used_bytes(), (2 << 20) + 4096);
}

#[test]
fn memory_that_is_taken_ahead_keeps_what_it_holds() {
    let region = Region::anonymous(8 << 20).unwrap();
    let words: Handle<[AtomicU64]> = region.place("words", 1 << 18, 4096).unwrap();
    words[700].store(5, Relaxed);
    for values in [0..1 << 18, 3..5, 600..1 << 17, 7..7, 1..(1 << 18) + 1] {
        words.populate(values);
    }
    assert_eq!((words[700].load(Relaxed), words[701].load(Relaxed)), (5, 0));
}

#[test]
fn a_handle_outlives_the_region_it_keeps() {
    let region = Region::anonymous(1 << 20).unwrap();
    let words: Handle<[AtomicU64]> = region.place("words", 16, 8).unwrap();
    let word = words.project(|words| &words[3]);
    let weak = word.downgrade();
    drop((region, words));
    word.store(5, Relaxed);
    assert_eq!(weak.upgrade().unwrap().load(Relaxed), 5);
    drop(word);
    assert!(weak.is_dead() && weak.upgrade().is_none());
}

#[test]
fn a_name_is_given_once_and_fits() {
    let region = Region::anonymous(1 << 20).unwrap();
    let words: Handle<[AtomicU64]> = region.place("words", 16, 64).unwrap();
    assert_eq!((region.placed_count("words"), region.placed_count("word")), (Some(16), None));
    let taken = region.place::<AtomicU64>("words", 16, 64).unwrap_err();
    assert_eq!(taken, RegionError::NameTaken { name: "words" });
    assert!(region.of("own.").place::<AtomicU64>("words", 16, 64).is_ok());
    for name in ["", "a name that is far too long"] {
        assert!(matches!(region.place::<AtomicU64>(name, 1, 8), Err(RegionError::NoName { .. })));
    }
    assert!(region.place::<AtomicU32>("none", 0, 8).unwrap().is_empty());
    assert!(words.iter().all(|word| word.load(Relaxed) == 0));
    let used_bytes = region.used_bytes();
    let names: Vec<&'static str> = (0..70).map(|no| &*format!("n{no}").leak()).collect();
    let placed = names.iter().filter(|name| region.place::<AtomicU64>(name, 1, 8).is_ok()).count();
    assert_eq!(placed, 59);
    assert_eq!(region.used_bytes(), used_bytes + 59 * 8, "what was refused takes nothing");
}

#[test]
fn a_full_region_refuses_and_stays_as_it_was() {
    let region = Region::anonymous(8192).unwrap();
    let error = region.place::<AtomicU64>("a", 513, 8).unwrap_err();
    assert_eq!(error, RegionError::Full { asked_bytes: 4104, left_bytes: 4096 });
    assert!(matches!(region.place::<AtomicU64>("a", u64::MAX, 8), Err(RegionError::Full { .. })));
    assert!(matches!(region.place::<AtomicU64>("a", 1, 3), Err(RegionError::BadAlignment { .. })));
    assert!(matches!(region.place::<AtomicU64>("a", 1, 4 << 20), Err(RegionError::BadAlignment { .. })));
    assert!(region.place::<AtomicU64>("a", 512, 8).is_ok());
    assert!(region.place::<AtomicU64>("b", 1, 8).is_err());
}

/// A number for each layout: other names, places and types are other numbers.
#[test]
fn layouts_differ_in_what_their_bytes_mean() {
    shared! { struct First { a: AtomicU32, b: AtomicU32, } size 8 }
    shared! { struct Renamed { a: AtomicU32, c: AtomicU32, } size 8 }
    shared! { struct Swapped { b: AtomicU32, a: AtomicU32, } size 8 }
    shared! { struct Array { a: [AtomicU32; 2], } size 8 }
    shared! { struct Wide { a: AtomicU64, } size 8 }
    shared! { struct Outer { first: First, } size 8 }
    shared! { struct OuterRenamed { first: Renamed, } size 8 }
    let all = [
        First::LAYOUT,
        Renamed::LAYOUT,
        Swapped::LAYOUT,
        Array::LAYOUT,
        Wide::LAYOUT,
        Outer::LAYOUT,
        OuterRenamed::LAYOUT,
        AtomicU64::LAYOUT,
        Latch::LAYOUT,
        <[AtomicU32; 2]>::LAYOUT,
        <[AtomicU32; 3]>::LAYOUT,
    ];
    let different: std::collections::BTreeSet<u64> = all.into_iter().collect();
    assert_eq!(different.len(), all.len());
}

#[test]
#[cfg(not(miri))]
fn more_address_space_than_there_is_is_refused() {
    for bytes in [u64::MAX, 1 << 60] {
        assert!(matches!(Region::anonymous(bytes), Err(RegionError::MapRefused { .. })));
    }
}

#[test]
fn regions_have_different_ids() {
    let first = Region::anonymous(4096).unwrap();
    let second = Region::anonymous(4096).unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(first.id(), first.clone().id());
}
