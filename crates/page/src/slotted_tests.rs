use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

use ledgerstone_region::PageBuf;

fn empty() -> PageBuf {
    let mut buf = PageBuf::new(4096);
    format(&mut buf.words_mut(), PageId(9), 0, PageId(2));
    buf
}

#[test]
fn the_page_has_the_bytes_of_its_table() {
    let mut buf = empty();
    let mut page = buf.words_mut();
    assert_eq!(insert(&mut page, b"alpha"), Ok(0));
    assert_eq!(insert(&mut page, b"bc"), Ok(1));
    assert_eq!(insert(&mut page, b"defg"), Ok(2));
    delete(&mut page, 1).unwrap();
    let bytes = buf.to_bytes();
    let golden = [
        3, 0, // slot_count
        0xf5, 0x0f, // records_start 4085
        2, 0, // garbage_bytes
        0, 0, // zero
        0xfb, 0x0f, 5, 0, // slot 0: 4091, 5
        0, 0, 0, 0, // slot 1: free
        0xf5, 0x0f, 4, 0, // slot 2: 4085, 4
    ];
    assert_eq!(bytes[HEADER_BYTES..60], golden);
    assert_eq!(&bytes[4085..], b"defgbcalpha");
    assert!(bytes[60..4085].iter().all(|&byte| byte == 0));
}

#[test]
fn slots_keep_their_numbers_and_free_ones_are_used_again() {
    let mut buf = empty();
    let mut page = buf.words_mut();
    insert_at(&mut page, 5, b"five").unwrap();
    assert_eq!(slot_count(page.as_words()), 6);
    assert_eq!(insert(&mut page, b"zero"), Ok(0));
    assert_eq!(insert_at(&mut page, 5, b"x"), Err(SlottedError::SlotUsed { slot: 5 }));
    assert_eq!(delete(&mut page, 3), Err(SlottedError::SlotFree { slot: 3, slot_count: 6 }));
    delete(&mut page, 5).unwrap();
    assert_eq!(slot_count(page.as_words()), 1);
    assert_eq!(get(page.as_words(), 5), Ok(None));
    assert_eq!(check(page.as_words()), Ok(()));
}

#[test]
fn a_full_page_refuses_and_keeps_every_byte() {
    let mut buf = empty();
    let mut page = buf.words_mut();
    while insert(&mut page, &[7; 100]).is_ok() {}
    let before = page.as_words().to_vec(0, 4096);
    let free = free_bytes(page.as_words());
    assert_eq!(insert(&mut page, &[1; 100]), Err(SlottedError::Full { need: 104, free }));
    assert_eq!(update(&mut page, 0, &[1; 4000]), Err(SlottedError::Full { need: 4000, free: free + 100 }));
    assert!(matches!(insert_at(&mut page, u16::MAX, b""), Err(SlottedError::Full { .. })));
    assert_eq!(page.as_words().to_vec(0, 4096), before);
    assert!(update(&mut page, 3, &vec![2; free + 100]).is_ok(), "the old record's bytes count as free");
    assert_eq!(free_bytes(page.as_words()), 0);
    assert_eq!(check(page.as_words()), Ok(()));
}

#[test]
fn every_rule_is_found_when_it_is_broken() {
    let mut good = empty();
    for record in [&b"one"[..], b"two", b"three"] {
        insert(&mut good.words_mut(), record).unwrap();
    }
    delete(&mut good.words_mut(), 1).unwrap();
    for (offset, value, what) in [
        (header::LAYOUT, 1, "layout"),
        (header::FORMAT, 2, "layout version"),
        (SLOT_COUNT, 2000, "slot count"),       // S1
        (SLOT_COUNT, 4, "free slot"),           // S1: the last one is free
        (RECORDS_START, 4097, "records start"), // S1
        (RECORDS_START, 4000, "records start"), // S2: the lowest begins above
        (SLOTS, 4094, "slot"),                  // S2: ends behind the page
        (SLOTS, 60, "slot"),                    // S2: lies in the free space
        (SLOTS, 4088, "slot overlaps"),         // S2
        (SLOTS + 2, 2, "garbage"),              // S3
        (GARBAGE_BYTES, 4, "garbage"),          // S3
        (ZERO, 1, "zero"),
        (SLOTS + 6, 1, "free slot"),
    ] {
        let mut bad = good.clone();
        bad.words_mut().put_u16(offset, value);
        assert_eq!(check(bad.words()).map_err(|wrong| wrong.what), Err(what), "{value} at {offset}");
    }
    assert_eq!(check(good.words()), Ok(()));
}

#[test]
fn a_damaged_page_is_still_printed() {
    let mut buf = empty();
    insert(&mut buf.words_mut(), b"hello\n").unwrap();
    assert!(print(buf.words()).contains("hello\\n"));
    buf.words_mut().put_u16(SLOTS, 5000);
    assert!(print(buf.words()).contains("corrupt slot"), "{}", print(buf.words()));
    let _ = print(PageBuf::from_bytes(&[0xff; 4096]).words());
    let _ = print(PageBuf::new(8).words());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>),
    InsertAt(u16, Vec<u8>),
    Update(u16, Vec<u8>),
    Delete(u16),
    Compact,
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![4 => 0usize..60, 2 => 60usize..500, 1 => 500usize..3000], any::<u8>())
        .prop_map(|(len, byte)| (0..len).map(|i| byte.wrapping_add(i as u8)).collect())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => record().prop_map(Step::Insert),
        2 => (0u16..40, record()).prop_map(|(slot, record)| Step::InsertAt(slot, record)),
        4 => (0u16..40, record()).prop_map(|(slot, record)| Step::Update(slot, record)),
        4 => (0u16..40).prop_map(Step::Delete),
        1 => Just(Step::Compact),
    ]
}

/// Takes the step on the page; the result as the model would say it.
fn take(page: &mut WordsMut<'_>, step: &Step) -> Result<Option<u16>, SlottedError> {
    match step {
        Step::Insert(record) => insert(page, record).map(Some),
        Step::InsertAt(slot, record) => insert_at(page, *slot, record).map(|()| None),
        Step::Update(slot, record) => update(page, *slot, record).map(|()| None),
        Step::Delete(slot) => delete(page, *slot).map(|()| None),
        Step::Compact => compact(page).map(|()| None),
    }
}

/// Whether the model has room: slots up to the last used one and all records.
fn fits(model: &BTreeMap<u16, Vec<u8>>) -> bool {
    let slots = model.last_key_value().map_or(0, |(&slot, _)| slot as usize + 1);
    SLOTS + slots * SLOT_BYTES + model.values().map(Vec::len).sum::<usize>() <= 4096
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// The page equals a map from slots to records, refuses exactly what has no room, and proves itself after each
    /// step.
    #[test]
    fn a_slotted_page_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let mut buf = empty();
        let mut model: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for step in steps {
            let before = buf.to_bytes();
            let mut wish = model.clone();
            let allowed = match &step {
                Step::Insert(record) => {
                    let slot = (0..).find(|slot| !model.contains_key(slot)).unwrap();
                    wish.insert(slot, record.clone());
                    true
                }
                Step::InsertAt(slot, record) => wish.insert(*slot, record.clone()).is_none(),
                Step::Update(slot, record) => wish.insert(*slot, record.clone()).is_some(),
                Step::Delete(slot) => wish.remove(slot).is_some(),
                Step::Compact => true,
            };
            match take(&mut buf.words_mut(), &step) {
                Ok(_) => {
                    prop_assert!(allowed && fits(&wish), "{step:?} must be refused");
                    model = wish;
                }
                Err(error) => {
                    let full = matches!(error, SlottedError::Full { .. });
                    prop_assert!(if allowed { full && !fits(&wish) } else { !full || !fits(&wish) }, "{step:?}: {error}");
                    prop_assert_eq!(buf.to_bytes(), before, "a refused change changes nothing");
                }
            }
            prop_assert_eq!(check(buf.words()), Ok(()));
            let found: BTreeMap<u16, Vec<u8>> =
                used_slots(buf.words()).map(|slot| (slot, get(buf.words(), slot).unwrap().unwrap())).collect();
            prop_assert_eq!(&found, &model);
        }
    }

    /// No bytes make any function panic; what check passes keeps S1 to S3 through a change.
    #[test]
    fn no_bytes_make_it_panic(
        steps in prop::collection::vec(step(), 1..20),
        damage in prop::collection::vec((40usize..120, any::<u8>()), 0..12),
        more in prop::collection::vec(step(), 1..8),
    ) {
        let mut buf = empty();
        for step in &steps {
            let _ = take(&mut buf.words_mut(), step);
        }
        for (offset, byte) in damage {
            buf.words_mut().put_u8(offset, byte);
        }
        let was_good = check(buf.words()).is_ok();
        for step in &more {
            let _ = take(&mut buf.words_mut(), step);
            let _ = (print(buf.words()), free_bytes(buf.words()));
            prop_assert!(!was_good || check(buf.words()).is_ok());
        }
    }
}
