//! A node by itself: its bytes, its operations against a map, and bytes that are not a node.

use std::collections::BTreeMap;

use ledgerstone_op::{PageMut, Registry};
use ledgerstone_page::{OpId, PageId};
use ledgerstone_region::PageBuf;
use proptest::prelude::*;

use super::args::{
    FenceArgs, FormatArgs, InsertArgs, PatchArgs, Place, PostArgs, ReplaceArgs, write_place, write_remove,
};
use super::edit::{Plan, plan_insert, plan_replace, size_of};
use super::entry::{Entry, common, entries_of, separator_between};
use super::node::{BLOB, GHOST, Node, value_bytes_max};
use super::node_check::{PRINT_BYTES_MAX, check, check_bytes, print};
use super::ops::*;

const PAGE: usize = 4096;
const ROOT: PageId = PageId(7);

fn registry() -> Registry {
    let mut ops = Registry::new();
    register(&mut ops).unwrap();
    ops
}

fn apply(buf: &mut PageBuf, op: OpId, args: &[u8]) -> Result<(), ledgerstone_op::OpError> {
    let ops = registry();
    ops.get(op).unwrap().redo(&mut PageMut::new(ROOT, buf.words_mut()), args)
}

fn leaf() -> PageBuf {
    let mut buf = PageBuf::new(PAGE);
    let args = FormatArgs { root: ROOT, level: 0, link: PageId(0), low: &[], high: &[], entries: vec![] }.write();
    apply(&mut buf, OP_NODE_FORMAT, &args).unwrap();
    buf
}

/// Found by the fuzz target for pages: it printed half a gigabyte.
#[test]
fn a_page_whose_slots_all_claim_the_whole_page_prints_some_of_them_and_says_so() {
    let mut bytes = b"1'yyyyyyyyyyyy?yyyyyyyyyyyyyy\xff\xff\xffyy".to_vec();
    bytes.extend(b"\xea\xca\xea\xea\xea\xeayy\0\0\0\0\0\xb1\xb1\xb1\xb1\xb1\xb1\xb1yyyyyyy(} ");
    bytes.resize(32768, 0);
    let text = print(PageBuf::from_bytes(&bytes).words());
    assert!(text.len() < PRINT_BYTES_MAX + 5 * 32768, "{} bytes", text.len());
    assert!(text.ends_with(" more slots, too long to print\n"), "{}", &text[text.len() - 100..]);
}

fn place(slot: usize, key: &[u8]) -> Place<'_> {
    Place { root: ROOT, slot, key }
}

fn insert(buf: &mut PageBuf, key: &[u8], value: &[u8]) -> bool {
    let node = Node::new(buf.words());
    let Err(slot) = node.search(key) else { return false };
    if plan_insert(&node, key, value.len()) == Plan::Full {
        return false;
    }
    let args = InsertArgs { place: place(slot, key), header: value.len() as u16, value }.write();
    apply(buf, OP_NODE_INSERT, &args).unwrap();
    true
}

fn content(buf: &PageBuf) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let node = Node::new(buf.words());
    (0..node.count()).map(|s| (node.key(s), node.value(s))).collect()
}

#[test]
fn a_node_has_the_bytes_of_its_table() {
    let mut buf = PageBuf::new(PAGE);
    let value = |n: u8| [n; 3];
    let (a, b) = (value(0xa1), value(0xb2));
    let entries = vec![Entry::new(b"key-1", 3, &a), Entry::new(b"key-2xyz!", 3 | GHOST, &b)];
    let args = FormatArgs { root: ROOT, level: 0, link: PageId(0x0102_0304), low: b"key", high: b"l", entries }.write();
    apply(&mut buf, OP_NODE_FORMAT, &args).unwrap();
    let bytes = buf.to_bytes();
    let mut golden = vec![0u8; PAGE];
    golden[4..8].copy_from_slice(&[5, 0, 1, 0]); // layout, format, level
    golden[8] = 7; // page id
    golden[24] = 7; // owner
    golden[40..48].copy_from_slice(&[4, 3, 2, 1, 0, 0, 0, 0]); // link
    golden[48..50].copy_from_slice(&[2, 0]); // slots
    golden[50..52].copy_from_slice(&(4096u16 - 6 - 10).to_le_bytes()); // records_start
    golden[54..56].copy_from_slice(&[1, 0]); // one ghost
    golden[56..64].copy_from_slice(&[3, 0, 1, 0, 4, 0x80, 72, 0]); // low, high, own prefix of 4, slots at 72
    golden[64..72].copy_from_slice(b"keylkey-");
    golden[72..80].copy_from_slice(&[0, 0, 0, 0x31, 0xfa, 0x0f, 1, 0]); // "1" at 4090
    golden[80..88].copy_from_slice(&[b'z', b'y', b'x', b'2', 0xf0, 0x0f, 5, 0]); // "2xyz!" at 4080
    golden[4080..4090].copy_from_slice(&[3, 0x80, b'2', b'x', b'y', b'z', b'!', 0xb2, 0xb2, 0xb2]);
    golden[4090..4096].copy_from_slice(&[3, 0, b'1', 0xa1, 0xa1, 0xa1]);
    assert_eq!(bytes, golden);
    assert_eq!(check(buf.words()), Ok(()));
}

#[test]
fn numbers_in_a_single_leaf_get_a_prefix_and_so_heads_that_differ() {
    let mut buf = leaf();
    for n in 0u64..60 {
        assert!(insert(&mut buf, &n.to_be_bytes(), &[1; 10]));
    }
    let node = Node::new(buf.words());
    assert_eq!(node.prefix_len(), 7);
    assert_eq!(check(buf.words()), Ok(()));
    assert!(insert(&mut buf, &(1u64 << 40).to_be_bytes(), &[2; 10]));
    let node = Node::new(buf.words());
    assert_eq!(node.prefix_len(), 2);
    assert_eq!(node.search(&30u64.to_be_bytes()), Ok(30));
    assert_eq!(node.search(&(1u64 << 40).to_be_bytes()), Ok(60));
    assert_eq!(check(buf.words()), Ok(()));
}

#[test]
fn the_empty_key_is_a_key() {
    let mut buf = leaf();
    assert!(insert(&mut buf, b"b", b"2"));
    assert!(insert(&mut buf, b"", b"1"));
    assert!(!insert(&mut buf, b"", b"1"));
    assert_eq!(Node::new(buf.words()).search(b""), Ok(0));
    assert_eq!(check(buf.words()), Ok(()));
}

#[test]
fn children_are_found_on_both_sides_of_each_separator() {
    let mut buf = PageBuf::new(PAGE);
    let child = |n: u64| super::edit::child_value(PageId(n));
    let values: Vec<_> = (10..14).map(child).collect();
    let keys: [&[u8]; 4] = [b"", b"cc", b"cd", b"d"];
    let entries: Vec<_> = (0..4).map(|i| Entry::new(keys[i], 6, &values[i][..])).collect();
    let args = FormatArgs { root: ROOT, level: 1, link: PageId(0), low: &[], high: &[], entries }.write();
    apply(&mut buf, OP_NODE_FORMAT, &args).unwrap();
    assert_eq!(check(buf.words()), Ok(()));
    let node = Node::new(buf.words());
    let find = |key: &[u8]| node.child(node.child_slot(key)).0;
    assert_eq!([find(b""), find(b"a"), find(b"cb~"), find(b"cc"), find(b"cc~")], [10, 10, 10, 11, 11]);
    assert_eq!([find(b"cd"), find(b"czz"), find(b"d"), find(b"zz")], [12, 12, 13, 13]);
    let below = |key: &[u8]| node.child(node.child_slot_below(key)).0;
    assert_eq!([below(b"cc"), below(b"cc\0"), below(b"cd"), below(b"d"), below(b"e")], [10, 11, 11, 12, 13]);
    let args = PostArgs { slot: 2, child: PageId(99), key: b"ccc" }.write();
    apply(&mut buf, OP_NODE_POST, &args).unwrap();
    assert_eq!(check(buf.words()), Ok(()));
    let node = Node::new(buf.words());
    assert_eq!(node.child(node.child_slot(b"cccc")), PageId(99));
    let args = PostArgs { slot: 0, child: PageId(99), key: b"A" }.write();
    assert!(apply(&mut buf, OP_NODE_POST, &args).is_err());
}

/// What is cut off there has fewer bytes than its header says, whichever way the node is built.
#[test]
fn a_record_that_leaves_its_damaged_page_is_cut_the_same_way_however_the_fence_is_set() {
    let mut buf = leaf();
    for n in 0u64..30 {
        assert!(insert(&mut buf, &n.to_be_bytes(), &[n as u8 + 1; 60]));
    }
    let (count, slots_at) = (Node::new(buf.words()).count(), Node::new(buf.words()).slots_at());
    for (slot, left) in (0..count).step_by(7).flat_map(|slot| [(slot, 1), (slot, 2), (slot, 5), (slot, 40)]) {
        let mut bytes = buf.to_bytes();
        let at_bytes = slots_at + 8 * slot + 4;
        bytes[at_bytes..at_bytes + 2].copy_from_slice(&((PAGE - left) as u16).to_le_bytes());
        bytes[PAGE - left] = 60;
        let fence = |keep: usize, anew: bool| {
            let mut buf = PageBuf::from_bytes(&bytes);
            let set = if anew { super::edit::set_fence_anew } else { super::edit::set_fence };
            let set = set(&mut PageMut::new(ROOT, buf.words_mut()), keep, &[0xff; 3], PageId(77));
            set.map(|()| buf.to_bytes())
        };
        for keep in 0..=count {
            assert_eq!(fence(keep, false), fence(keep, true), "slot {slot} {left} before the end, {keep} are kept");
        }
    }
}

#[test]
fn arguments_cut_short_are_refused_and_change_nothing() {
    let mut buf = leaf();
    insert(&mut buf, b"apple", b"12345678");
    let before = buf.to_bytes();
    let samples = [
        (OP_NODE_INSERT, InsertArgs { place: place(0, b"aaa"), header: 2, value: b"xy" }.write().into_vec()),
        (OP_NODE_DELETE, write_place(place(0, b"apple")).into_vec()),
        (OP_NODE_PATCH, PatchArgs { place: place(0, b"apple"), offset: 1, old: b"23", new: b"99" }.write().into_vec()),
        (
            OP_NODE_REPLACE,
            ReplaceArgs { place: place(0, b"apple"), old_header: 1, old: b"1", new_header: 1, new: b"2" }
                .write()
                .into_vec(),
        ),
        (OP_NODE_FENCE, FenceArgs { keep: 1, link: PageId(3), high: b"z" }.write()),
        (OP_NODE_REMOVE, write_remove(&[0])),
        (OP_NODE_POST, PostArgs { slot: 0, child: PageId(1), key: b"k" }.write()),
    ];
    for (op, args) in samples {
        for len in 0..args.len() {
            assert!(apply(&mut buf, op, &args[..len]).is_err(), "{op} with {len} of {} bytes", args.len());
            let _ = registry().get(op).unwrap().print(&args[..len]);
        }
        assert_eq!(buf.to_bytes(), before);
    }
    // A record of the log is filled up with zeros.
    let mut args = write_place(place(0, b"apple")).into_vec();
    args.resize(args.len().next_multiple_of(8), 0);
    apply(&mut buf, OP_NODE_DELETE, &args).unwrap();
}

#[test]
fn a_shorter_value_keeps_its_room_until_it_is_trimmed() {
    for (long, short) in [(5, 4), (200, 0), (200, 72), (200, 73), (896, 1), (1900, 1)] {
        let mut buf = leaf();
        insert(&mut buf, b"a", &vec![1; long]);
        insert(&mut buf, b"b", b"other");
        let replace = |buf: &mut PageBuf, len: usize| {
            let new = vec![2; len];
            let args =
                ReplaceArgs { place: place(0, b"a"), old_header: 0, old: &[], new_header: len as u16, new: &new };
            apply(buf, OP_NODE_REPLACE, &args.write()).unwrap();
            assert_eq!(check(buf.words()), Ok(()));
            assert_eq!(Node::new(buf.words()).value(0), new);
        };
        let free = Node::new(buf.words()).gap_bytes();
        replace(&mut buf, short);
        let node = Node::new(buf.words());
        assert_eq!((node.record(0).pad, node.gap_bytes(), node.garbage()), (long - short, free, 0));
        // It moves with its record.
        let copy = buf.to_bytes();
        let entries = entries_of(&Node::new(copy.as_slice()));
        let args = FormatArgs { root: ROOT, level: 0, link: PageId(0), low: &[], high: &[], entries }.write();
        let mut moved = PageBuf::new(PAGE);
        apply(&mut moved, OP_NODE_FORMAT, &args).unwrap();
        assert_eq!(check(moved.words()), Ok(()));
        assert_eq!(Node::new(moved.words()).record(0).pad, long - short);
        replace(&mut moved, long);
        assert_eq!(Node::new(moved.words()).record(0).pad, 0);
        apply(&mut buf, OP_NODE_TRIM, &write_remove(&[0])).unwrap();
        let node = Node::new(buf.words());
        assert_eq!((node.record(0).pad, node.garbage()), (0, long - short));
        assert_eq!(check(buf.words()), Ok(()));
        assert!(apply(&mut buf, OP_NODE_TRIM, &write_remove(&[0])).is_err());
    }
}

#[test]
fn separators_are_short_and_separate() {
    for (a, b) in [("a", "b"), ("abc", "abd"), ("ab", "abc"), ("", "x"), ("abc1", "abd2")] {
        let s = separator_between(a.as_bytes(), b.as_bytes());
        assert!(a.as_bytes() < s.as_slice() && s.as_slice() <= b.as_bytes());
        assert!(s.len() <= common(a.as_bytes(), b.as_bytes()) + 1);
    }
}

#[test]
fn a_tpcb_update_and_a_history_insert_have_short_arguments() {
    let update = PatchArgs { place: place(17, &[1; 8]), offset: 20, old: &[2; 8], new: &[3; 8] }
        .write()
        .len()
        .next_multiple_of(8);
    let history =
        InsertArgs { place: place(17, &[1; 8]), header: 50, value: &[2; 50] }.write().len().next_multiple_of(8);
    assert!(3 * (40 + update) + 40 + history + 32 < 400, "{update} {history}");
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Replace(usize, Vec<u8>),
    Ghost(usize),
    Patch(usize, u8),
    Remove(usize),
    Fence(usize),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0u8)], 0..6),
        (0u64..500).prop_map(|n| n.to_be_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 400..512),
        (any::<u8>(), 300usize..512).prop_map(|(b, len)| vec![b % 3; len]),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value =
        || prop_oneof![prop::collection::vec(any::<u8>(), 0..60), prop::collection::vec(any::<u8>(), 600..1900)];
    let step = prop_oneof![
        6 => (key(), value()).prop_map(|(k, v)| Step::Insert(k, v)),
        2 => (any::<usize>(), value()).prop_map(|(s, v)| Step::Replace(s, v)),
        2 => any::<usize>().prop_map(Step::Ghost),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(s, b)| Step::Patch(s, b)),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Fence),
    ];
    prop::collection::vec(step, 1..80)
}

/// Keys of which many begin alike, for as long as a head or longer, and many are the beginning of others.
fn alike() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(0xff)];
    (prop::collection::vec(byte(), 0..4), any::<bool>(), prop::collection::vec(byte(), 0..6)).prop_map(
        |(first, has_more, last)| {
            let between: &[u8] = if has_more { b"same" } else { b"" };
            [&first, between, &last].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_search_finds_what_a_look_at_all_keys_finds(
        keys in prop::collection::btree_set(alike(), 1..100), probes in prop::collection::vec(alike(), 1..40),
        level in 0u8..2, begins in prop_oneof![Just(&b""[..]), Just(&b"all of them"[..])],
    ) {
        let whole = |key: &Vec<u8>| [begins, key].concat();
        let keys: Vec<Vec<u8>> = keys.iter().map(whole).collect();
        let entry = |key| Entry::new(key, 6, &[1; 6]);
        let first = usize::from(level);
        // Above the leaves, slot 0 has no key.
        let entries: Vec<Entry<'_>> = [entry(&[][..])].into_iter().take(first)
            .chain(keys.iter().map(|key| entry(key))).collect();
        let args = FormatArgs { root: ROOT, level, link: PageId(0), low: &[], high: &[], entries }.write();
        let mut buf = PageBuf::new(PAGE);
        apply(&mut buf, OP_NODE_FORMAT, &args).unwrap();
        let mut copy = vec![0; PAGE];
        buf.words().copy_to(0, &mut copy);
        let (node, of_copy) = (Node::new(buf.words()), Node::new(copy.as_slice()));
        let probes = keys.iter().cloned().chain(probes.iter().map(whole)).chain(probes.iter().cloned());
        for probe in probes {
            let expected = keys.binary_search(&probe).map(|slot| slot + first).map_err(|slot| slot + first);
            prop_assert_eq!(node.search(&probe), expected, "{:?}", probe);
            prop_assert_eq!(of_copy.search(&probe), expected);
        }
    }

    /// An optimistic reader sees bytes that never were a node.
    #[test]
    fn a_search_in_any_bytes_ends_at_a_slot(
        fill in prop::collection::vec(any::<u64>(), 16..64), slots_at in any::<u16>(), probe in alike(),
    ) {
        let mut copy: Vec<u8> = fill.iter().cycle().flat_map(|word| word.to_le_bytes()).take(PAGE).collect();
        copy[62..64].copy_from_slice(&slots_at.to_le_bytes());
        let buf = PageBuf::from_bytes(&copy);
        for found in [Node::new(buf.words()).search(&probe), Node::new(copy.as_slice()).search(&probe)] {
            let (Ok(slot) | Err(slot)) = found;
            prop_assert!(slot <= Node::new(buf.words()).count().max(1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_leaf_equals_a_map(steps in steps()) {
        let mut buf = leaf();
        let mut model = BTreeMap::new();
        for step in steps {
            let node = Node::new(buf.words());
            let count = node.count();
            match step {
                Step::Insert(k, mut v) => {
                    v.truncate(value_bytes_max(PAGE, k.len()));
                    if !node.is_beyond(&k) && insert(&mut buf, &k, &v) {
                        model.insert(k, v);
                    }
                }
                _ if count == 0 => {}
                Step::Replace(s, mut v) => {
                    let slot = s % count;
                    let key = node.key(slot);
                    v.truncate(value_bytes_max(PAGE, key.len()));
                    if plan_replace(&node, slot, v.len()) != Plan::Full {
                        let header = v.len() as u16 | (node.record(slot).header & GHOST);
                        let args = ReplaceArgs { place: place(slot, &key), old_header: 0, old: &[], new_header: header, new: &v };
                        apply(&mut buf, OP_NODE_REPLACE, &args.write()).unwrap();
                        model.insert(key, v);
                    }
                }
                Step::Ghost(s) => {
                    let slot = s % count;
                    let key = node.key(slot);
                    let op = if node.record(slot).is_ghost() { OP_NODE_REVIVE } else { OP_NODE_DELETE };
                    apply(&mut buf, op, &write_place(place(slot, &key))).unwrap();
                    prop_assert!(apply(&mut buf, op, &write_place(place(slot, &key))).is_err());
                }
                Step::Patch(s, b) => {
                    let slot = s % count;
                    let (key, value) = (node.key(slot), node.value(slot));
                    if value.len() >= 4 {
                        let old = &value[1..4];
                        let args = PatchArgs { place: place(slot, &key), offset: 1, old, new: &[b, b, b] };
                        apply(&mut buf, OP_NODE_PATCH, &args.write()).unwrap();
                        let mut value = value.clone();
                        value[1..4].fill(b);
                        model.insert(key, value);
                    }
                }
                Step::Remove(s) => {
                    let slots: Vec<usize> = (0..count).filter(|slot| (slot ^ s) % 3 == 0).collect();
                    for &slot in &slots {
                        model.remove(&node.key(slot));
                    }
                    apply(&mut buf, OP_NODE_REMOVE, &write_remove(&slots)).unwrap();
                }
                Step::Fence(s) => {
                    let keep = count - s % (count / 4 + 1);
                    if keep > 0 && keep < count {
                        let high = separator_between(&node.key(keep - 1), &node.key(keep));
                        let copy = buf.to_bytes();
                        let copied = Node::new(copy.as_slice());
                        let entries = entries_of(&copied);
                        if size_of(0, &[], &high, &entries[..keep]) <= PAGE {
                            apply(&mut buf, OP_NODE_FENCE, &FenceArgs { keep, link: PageId(9), high: &high }.write()).unwrap();
                            model.retain(|k, _| k < &high);
                        }
                    }
                }
            }
            prop_assert_eq!(check(buf.words()), Ok(()));
            prop_assert_eq!(&content(&buf), &model);
            for high in [&b"\xff\xff\xff"[..], &[0xff; 30]] {
                let fence = |keep: usize, anew: bool| {
                    let mut buf = PageBuf::from_bytes(&buf.to_bytes());
                    let mut page = PageMut::new(ROOT, buf.words_mut());
                    let set = if anew { super::edit::set_fence_anew } else { super::edit::set_fence };
                    set(&mut page, keep, high, PageId(77)).map(|()| buf.to_bytes())
                };
                for keep in 0..=model.len() + 1 {
                    prop_assert_eq!(fence(keep, false), fence(keep, true));
                }
            }
            let node = Node::new(buf.words());
            for (slot, key) in model.keys().enumerate() {
                prop_assert_eq!(node.search(key), Ok(slot));
            }
        }
    }

    #[test]
    fn format_arguments_round_trip(keys in prop::collection::btree_set(key(), 0..6), inner in any::<bool>()) {
        let keys: Vec<_> = keys.into_iter().filter(|k| !inner || !k.is_empty()).collect();
        let child = super::edit::child_value(PageId(5));
        let level = u8::from(inner);
        let mut entries: Vec<Entry<'_>> = keys.iter().map(|k| Entry::new(k, 6, &child)).collect();
        if inner {
            entries.insert(0, Entry::new(&[], 6, &child));
        }
        let mut buf = PageBuf::new(PAGE);
        let fits = size_of(level, &[], &[], &entries) <= PAGE;
        let written = FormatArgs { root: ROOT, level, link: PageId(0), low: &[], high: &[], entries }.write();
        prop_assert_eq!(apply(&mut buf, OP_NODE_FORMAT, &written).is_ok(), fits);
        if fits {
            prop_assert_eq!(check(buf.words()), Ok(()));
            let node = Node::new(buf.words());
            let found: Vec<_> = (node.first()..node.count()).map(|s| node.key(s)).collect();
            prop_assert_eq!(found, keys);
        }
    }

    #[test]
    fn nothing_panics_on_arbitrary_bytes(
        noise in prop::collection::vec(any::<u8>(), PAGE),
        keep in prop::collection::vec((40usize..120, any::<u8>()), 0..20),
        is_noise in any::<bool>(),
        args in prop::collection::vec(any::<u8>(), 0..64),
        k in key(),
    ) {
        let mut bytes = if is_noise { noise } else {
            let mut buf = leaf();
            for n in 0..20u64 { insert(&mut buf, &n.to_be_bytes(), &[1; 40]); }
            buf.to_bytes()
        };
        for (at, byte) in keep { bytes[at] = byte; }
        let level = bytes[7] % 3;
        bytes[4..8].copy_from_slice(&[5, 0, 1, level]);
        let buf = PageBuf::from_bytes(&bytes);
        let node = Node::new(buf.words());
        let _ = (node.search(&k), node.child(node.child_slot(&k)), node.child_slot_below(&k), node.is_beyond(&k), node.is_before(&k));
        let _ = (plan_insert(&node, &k, 10), print(buf.words()));
        for slot in 0..node.count() {
            let _ = (node.key(slot), node.value(slot), node.compare_key(slot, &k), plan_replace(&node, slot, 500));
        }
        let copied = Node::new(bytes.as_slice());
        let _ = size_of(node.level(), &copied.low(), &copied.high(), &entries_of(&copied));
        let is_good = check(buf.words()).is_ok();
        prop_assert_eq!(is_good, check_bytes(&bytes).is_ok());
        for operation in registry().iter() {
            let mut buf = PageBuf::from_bytes(&bytes);
            let _ = operation.print(&args);
            let _ = operation.redo(&mut PageMut::new(ROOT, buf.words_mut()), &args);
            // Arguments that are well formed, on a page that is not.
            for slot in [0, 3] {
                let samples = [
                    (OP_NODE_INSERT, InsertArgs { place: place(slot, &k), header: 2, value: b"xy" }.write().into_vec()),
                    (OP_NODE_DELETE, write_place(place(slot, &k)).into_vec()),
                    (OP_NODE_PATCH, PatchArgs { place: place(slot, &k), offset: 0, old: &[], new: &[] }.write().into_vec()),
                    (OP_NODE_REPLACE, ReplaceArgs { place: place(slot, &k), old_header: 0, old: &[], new_header: 16 | BLOB, new: &[1; 16] }.write().into_vec()),
                    (OP_NODE_FENCE, FenceArgs { keep: slot, link: PageId(3), high: &k }.write()),
                    (OP_NODE_REMOVE, write_remove(&[slot, slot + 1])),
                    (OP_NODE_POST, PostArgs { slot: slot + 1, child: PageId(1), key: &k }.write()),
                ];
                for (op, args) in samples {
                    let mut buf = PageBuf::from_bytes(&bytes);
                    let _ = apply(&mut buf, op, &args);
                }
            }
        }
    }
}
