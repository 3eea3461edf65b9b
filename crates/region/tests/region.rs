//! What the mapping promises.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use ledgerstone_region::{Handle, Latch, Offset, Region, RegionError, Span, shared};

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
    let entries = region.alloc::<Entry>(10, 64).unwrap();
    let frames = region.alloc::<AtomicU64>(512, 2 << 20).unwrap();
    assert_eq!(entries.offset().to_raw(), 64);
    assert_eq!(frames.offset().to_raw(), 2 << 20);
    region.advise_huge(frames);
    let frames = region.handle_slice(frames).unwrap();
    assert_eq!(frames.as_ptr() as usize % (2 << 20), 0);
    let entries = region.handle_slice(entries).unwrap();
    assert!(frames.iter().all(|word| word.load(Relaxed) == 0));
    frames.iter().for_each(|word| word.store(u64::MAX, Relaxed));
    assert!(entries.iter().all(|entry| entry.next.load(Relaxed) == 0 && entry.latch.try_shared()));
    assert_eq!(region.used_bytes(), (2 << 20) + 4096);
}

#[test]
fn memory_that_is_taken_ahead_keeps_what_it_holds() {
    let region = Region::anonymous(8 << 20).unwrap();
    let words: Handle<[AtomicU64]> = region.handle_slice(region.alloc(1 << 18, 4096).unwrap()).unwrap();
    words[700].store(5, Relaxed);
    for values in [0..1 << 18, 3..5, 600..1 << 17, 7..7, 1..(1 << 18) + 1] {
        words.populate(values);
    }
    assert_eq!((words[700].load(Relaxed), words[701].load(Relaxed)), (5, 0));
}

#[test]
fn a_handle_outlives_the_region_it_keeps() {
    let region = Region::anonymous(1 << 20).unwrap();
    let words: Handle<[AtomicU64]> = region.handle_slice(region.alloc(16, 8).unwrap()).unwrap();
    let word = words.project(|words| &words[3]);
    let weak = word.downgrade();
    drop((region, words));
    word.store(5, Relaxed);
    assert_eq!(weak.upgrade().unwrap().load(Relaxed), 5);
    drop(word);
    assert!(weak.is_dead() && weak.upgrade().is_none());
}

#[test]
fn only_what_was_given_out_is_found_and_only_as_its_type() {
    let region = Region::anonymous(1 << 20).unwrap();
    let words = region.alloc::<AtomicU64>(16, 64).unwrap();
    let start = words.offset().to_raw();
    assert!(region.handle(words.at(15).unwrap()).is_ok());
    assert!(region.handle_slice(words.part(4, 12).unwrap()).is_ok());
    assert_eq!(words.at(16), None);
    assert_eq!(words.part(4, 13), None);
    let refused = |offset, count| region.handle_slice(Span::<AtomicU64>::new(Offset::from_raw(offset), count)).is_err();
    assert!(refused(start + 4, 1), "not aligned");
    assert!(refused(start, 17), "too many");
    assert!(refused(start + 128, 1), "past the end");
    assert!(refused(0, 1), "the header");
    assert!(refused(start - 8, 1), "before");
    assert!(refused(u64::MAX - 7, 2) && refused(start, u64::MAX), "overflow");
    assert!(region.handle(Offset::<AtomicU32>::from_raw(start)).is_err(), "another type");
    assert!(region.handle(Offset::<Latch>::from_raw(start)).is_err(), "another type of the same size");
    assert!(region.handle_slice(Span::<AtomicU64>::new(Offset::from_raw(start), 0)).unwrap().is_empty());
}

#[test]
fn a_full_region_refuses_and_stays_as_it_was() {
    let region = Region::anonymous(4096).unwrap();
    let error = region.alloc::<AtomicU64>(505, 8).unwrap_err();
    assert_eq!(error, RegionError::Full { asked_bytes: 4040, left_bytes: 4032 });
    assert!(matches!(region.alloc::<AtomicU64>(u64::MAX, 8), Err(RegionError::Full { .. })));
    assert!(matches!(region.alloc::<AtomicU64>(1, 3), Err(RegionError::BadAlignment { .. })));
    assert!(matches!(region.alloc::<AtomicU64>(1, 4 << 20), Err(RegionError::BadAlignment { .. })));
    assert!(region.alloc::<AtomicU64>(504, 8).is_ok());
    assert!(region.alloc::<AtomicU64>(1, 8).is_err());
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
