use super::*;
use ledgerstone_region::PageBuf;
use proptest::prelude::*;

/// A map with these runs of (in use, length), from bit 0 on.
fn map(runs: &[(bool, u32)]) -> (PageBuf, Vec<bool>) {
    let mut buf = PageBuf::new(4096);
    let bits: Vec<bool> = runs.iter().flat_map(|&(set, len)| std::iter::repeat_n(set, len as usize)).collect();
    for (bit, _) in bits.iter().enumerate().filter(|&(_, &set)| set) {
        let at = BITS_AT + bit / 8;
        let byte = buf.words().u8(at) | 1 << (bit % 8);
        buf.words_mut().put_u8(at, byte);
    }
    (buf, bits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Counting and searching by words gives what doing it bit by bit gives.
    #[test]
    fn searching_by_words_is_searching_by_bits(
        runs in prop::collection::vec((any::<bool>(), 1u32..150), 1..20),
        from in 0u32..300,
        count in 1u32..200,
    ) {
        let (buf, bits) = map(&runs);
        let limit = bits.len() as u32;
        let naive = (from..limit.saturating_sub(count - 1))
            .find(|&first| (first..first + count).all(|bit| !bits[bit as usize]));
        prop_assert_eq!(find_clear(buf.words(), from, limit, count), naive);
        prop_assert_eq!(count_set(buf.words(), limit.into()), bits.iter().filter(|&&set| set).count() as u64);
        let last = bits.iter().rposition(|&set| set).map(|bit| bit as u64);
        prop_assert_eq!(last_set(buf.words(), limit.into()), last);
    }

    /// No bytes make the layout's check or print panic.
    #[test]
    fn any_bytes_are_checked(bytes in prop::collection::vec(any::<u8>(), 128)) {
        let mut buf = PageBuf::new(4096);
        buf.words_mut().put(0, &bytes);
        let _ = (SpaceMapLayout.check(buf.words()), SpaceMapLayout.print(buf.words()));
    }
}

#[test]
fn maps_lie_among_their_pages() {
    let bits = bits_of(4096);
    assert_eq!(bits, 32256);
    for (page, map) in [(0, 1), (1, 1), (bits - 1, 1), (bits, bits), (2 * bits - 1, bits), (2 * bits, 2 * bits)] {
        assert_eq!(map_of(PageId(page), 4096), PageId(map), "page {page}");
    }
}
