//! Words equal a slice of bytes, whatever the alignment.
#![cfg(not(loom))]

use ledgerstone_region::{PageBuf, Words, WordsMut};
use proptest::prelude::*;

/// Bytes that differ from their neighbours.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[derive(Debug, Clone)]
enum Change {
    Put(usize, Vec<u8>),
    PutU8(usize, u8),
    PutU16(usize, u16),
    PutU32(usize, u32),
    PutU64(usize, u64),
    Shift(usize, usize, usize),
    Fill(usize, usize, u8),
}

const LEN: usize = 96;

fn change() -> impl Strategy<Value = Change> {
    let at = |len: usize| 0..=LEN - len;
    prop_oneof![
        (0..=LEN)
            .prop_flat_map(move |len| (at(len), prop::collection::vec(any::<u8>(), len)))
            .prop_map(|(off, bytes)| Change::Put(off, bytes)),
        (at(1), any::<u8>()).prop_map(|(off, value)| Change::PutU8(off, value)),
        (at(2), any::<u16>()).prop_map(|(off, value)| Change::PutU16(off, value)),
        (at(4), any::<u32>()).prop_map(|(off, value)| Change::PutU32(off, value)),
        (at(8), any::<u64>()).prop_map(|(off, value)| Change::PutU64(off, value)),
        (0..=LEN)
            .prop_flat_map(move |len| (at(len), at(len), Just(len)))
            .prop_map(|(from, to, len)| Change::Shift(from, to, len)),
        (0..=LEN)
            .prop_flat_map(move |len| (at(len), Just(len), any::<u8>()))
            .prop_map(|(off, len, byte)| Change::Fill(off, len, byte)),
    ]
}

fn apply(words: &mut WordsMut<'_>, bytes: &mut [u8], change: &Change) {
    match *change {
        Change::Put(off, ref put) => {
            words.put(off, put);
            bytes[off..off + put.len()].copy_from_slice(put);
        }
        Change::PutU8(off, value) => {
            words.put_u8(off, value);
            bytes[off] = value;
        }
        Change::PutU16(off, value) => {
            words.put_u16(off, value);
            bytes[off..off + 2].copy_from_slice(&value.to_le_bytes());
        }
        Change::PutU32(off, value) => {
            words.put_u32(off, value);
            bytes[off..off + 4].copy_from_slice(&value.to_le_bytes());
        }
        Change::PutU64(off, value) => {
            words.put_u64(off, value);
            bytes[off..off + 8].copy_from_slice(&value.to_le_bytes());
        }
        Change::Shift(from, to, len) => {
            words.shift(from, to, len);
            bytes.copy_within(from..from + len, to);
        }
        Change::Fill(off, len, byte) => {
            words.fill(off, len, byte);
            bytes[off..off + len].fill(byte);
        }
    }
}

/// `count` bytes at `off` as an optimistic reader sees them: 0 past the end.
fn padded(bytes: &[u8], off: usize, count: usize) -> Vec<u8> {
    (off..off + count).map(|at| bytes.get(at).copied().unwrap_or(0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 512 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn changes_equal_those_of_a_vec(changes in prop::collection::vec(change(), 1..20)) {
        let mut bytes = pattern(LEN, 7);
        let mut page = PageBuf::from_bytes(&bytes);
        for change in &changes {
            apply(&mut page.words_mut(), &mut bytes, change);
            prop_assert_eq!(&page.to_bytes(), &bytes, "after {:?}", change);
        }
    }

    #[test]
    fn reads_equal_those_of_a_vec(seed: u8, words in 0usize..6, off in 0usize..60, len in 0usize..60) {
        let bytes = pattern(words * 8, seed);
        let page = PageBuf::from_bytes(&bytes);
        let read = page.words();
        prop_assert_eq!(read.u8(off), padded(&bytes, off, 1)[0]);
        prop_assert_eq!(read.u16(off).to_le_bytes().to_vec(), padded(&bytes, off, 2));
        prop_assert_eq!(read.u32(off).to_le_bytes().to_vec(), padded(&bytes, off, 4));
        prop_assert_eq!(read.u64(off).to_le_bytes().to_vec(), padded(&bytes, off, 8));
        let mut out = vec![0xee; len];
        read.copy_to(off, &mut out);
        prop_assert_eq!(&out, &padded(&bytes, off, len));
        let inside = bytes.len().saturating_sub(off).min(len);
        prop_assert_eq!(read.to_vec(off, len), padded(&bytes, off, inside));
        let mut out = vec![0xee; 3];
        read.append_to(off, len, &mut out);
        prop_assert_eq!(out, [&[0xee; 3], &padded(&bytes, off, inside)[..]].concat());
    }

    #[test]
    fn compare_equals_that_of_slices(
        bytes in prop::collection::vec(0u8..3, 40..=40), off in 0usize..20, len in 0usize..20,
        same in 0usize..20, rest in prop::collection::vec(0u8..3, 0..4),
    ) {
        let page = PageBuf::from_bytes(&bytes);
        let mut other = bytes[off..off + same].to_vec();
        other.extend(rest);
        prop_assert_eq!(page.words().compare(off, len, &other), bytes[off..off + len].cmp(&other));
        prop_assert_eq!(page.words().equals(off, &other), bytes[off..].starts_with(&other));
    }
}

#[test]
fn every_shift_of_a_small_page_is_a_memmove() {
    let limit: usize = if cfg!(miri) { 12 } else { 40 };
    for from in 0..=limit {
        for to in 0..=limit {
            for len in 0..=limit - from.max(to) {
                let mut bytes = pattern(limit.next_multiple_of(8), 3);
                let mut page = PageBuf::from_bytes(&bytes);
                apply(&mut page.words_mut(), &mut bytes, &Change::Shift(from, to, len));
                assert_eq!(page.to_bytes(), bytes, "shift {from} -> {to}, {len} bytes");
            }
        }
    }
}

#[test]
fn junk_offsets_read_as_zero_and_never_panic() {
    let page = PageBuf::from_bytes(&pattern(64, 1));
    let words = page.words();
    for off in [64, 65, 1 << 20, usize::MAX - 8, usize::MAX - 7, usize::MAX - 1, usize::MAX] {
        assert_eq!((words.u8(off), words.u16(off), words.u32(off), words.u64(off)), (0, 0, 0, 0));
        let mut out = [1; 20];
        words.copy_to(off, &mut out);
        assert_eq!(out, [0; 20]);
        assert!(words.to_vec(off, usize::MAX).is_empty());
        assert!(words.compare(off, 20, &[0; 20]).is_eq());
        assert!(!words.equals(off, &[0; 20]));
    }
    assert_eq!(words.to_vec(60, usize::MAX).len(), 4);
    assert!(Words::new(&[]).compare(0, usize::MAX, b"x").is_lt());
}

#[test]
#[should_panic(expected = "8 bytes at 57 are not inside a page of 64 bytes")]
fn a_put_past_the_end_is_our_own_bug() {
    PageBuf::new(64).words_mut().put_u64(57, 1);
}

#[test]
#[should_panic(expected = "are not inside a page")]
fn a_put_at_a_wild_offset_is_our_own_bug() {
    PageBuf::new(64).words_mut().put(usize::MAX, &[1, 2]);
}

#[test]
fn words_are_copied_between_pages() {
    let bytes = pattern(64, 9);
    let page = PageBuf::from_bytes(&bytes);
    let copy = PageBuf::new(64);
    page.words().copy_words_to(&copy);
    assert_eq!(copy.to_bytes(), bytes);
    let mut third = PageBuf::new(64);
    third.words_mut().copy_from(copy.words());
    assert_eq!(third.clone().to_bytes(), bytes);
    let mut out = [0; 32];
    third.copy_to(&mut out);
    assert_eq!(out, bytes[..32]);
}

/// Long copies take another way than short ones, if they begin where two words can be read at once.
#[test]
fn long_copies_from_anywhere_are_what_is_there() {
    let bytes: Vec<u8> = (0..4096u32).map(|at| (at * 7 + at / 256) as u8).collect();
    let page = PageBuf::from_bytes(&bytes);
    for off in (0..40).chain([512, 4096 - 700]) {
        for len in (500..700).chain([4096 - off]) {
            let len = len.min(4096 - off);
            let mut out = vec![0xee; len + 2];
            page.words().copy_to(off, &mut out[1..=len]);
            assert_eq!(out[1..=len], bytes[off..off + len], "{off} {len}");
            assert_eq!((out[0], out[len + 1]), (0xee, 0xee), "{off} {len}");
            assert_eq!(page.words().to_vec(off, len), bytes[off..off + len], "{off} {len}");
        }
    }
}
