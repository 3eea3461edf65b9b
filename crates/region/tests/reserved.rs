//! Memory that is reserved in a region of a file, and taken later.
#![cfg(not(any(loom, miri)))]
#![forbid(unsafe_code)]

use ledgerstone_region::atomic::{AtomicU64, Ordering::SeqCst};
use ledgerstone_region::{Handle, Region, RegionError};
use ledgerstone_testkit::SmallMemory;

const WORDS: u64 = 1 << 20;
/// A page of memory.
const PAGE_WORDS: usize = 512;

fn words(region: &Region) -> Handle<[AtomicU64]> {
    region.place_reserved("words", WORDS, 4096).unwrap()
}

#[test]
fn what_is_reserved_takes_memory_part_by_part() {
    let Some(dir) = SmallMemory::new(1 << 20) else { return };
    let path = dir.path().join("region");
    let made = Region::create_at(&path, WORDS * 8 + (1 << 16)).unwrap();
    let (one, other) = (words(&made), words(&Region::join_at(&path).unwrap()));
    one.take(5..PAGE_WORDS + 1).unwrap();
    one[PAGE_WORDS].store(7, SeqCst);
    other.take(0..2 * PAGE_WORDS).unwrap(); // Again, and it holds what it held.
    assert_eq!((other[0].load(SeqCst), other[PAGE_WORDS].load(SeqCst)), (0, 7));
    let refused = other.take(0..WORDS as usize);
    assert!(matches!(refused, Err(RegionError::NoMemory { .. })), "{refused:?}");
    assert_eq!((one[0].load(SeqCst), one[PAGE_WORDS].load(SeqCst)), (0, 7), "what was taken before stays");
    let refused = made.place::<AtomicU64>("more", 1, 64).map(drop).and(one.take(WORDS as usize / 2..WORDS as usize));
    assert!(matches!(refused, Err(RegionError::NoMemory { .. } | RegionError::Full { .. })), "{refused:?}");
}

#[test]
fn a_region_of_one_process_needs_none_taken() {
    let region = Region::anonymous(WORDS * 8 + (1 << 16)).unwrap();
    let words = words(&region);
    words.take(0..WORDS as usize).unwrap();
    words[WORDS as usize - 1].store(1, SeqCst);
    assert!(!region.is_shared());
}
