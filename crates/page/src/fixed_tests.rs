use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

use ledgerstone_region::PageBuf;

fn empty(record_bytes: u16) -> PageBuf {
    let mut buf = PageBuf::new(4096);
    format(&mut buf.words_mut(), PageId(9), 0, PageId(2), record_bytes).unwrap();
    buf
}

#[test]
fn the_page_has_the_bytes_of_its_table() {
    let mut buf = empty(30);
    let mut page = buf.words_mut();
    insert_at(&mut page, 0, &[1; 30]).unwrap();
    insert_at(&mut page, 65, &[2; 30]).unwrap();
    insert_at(&mut page, 3, &[3; 30]).unwrap();
    remove(&mut page, 3).unwrap();
    patch(&mut page, 65, 28, &[7, 8]).unwrap();
    let bytes = buf.to_bytes();
    let golden = [
        30, 0, // record_bytes
        134, 0, // slot_count: 48 + 24 + 134 * 30 = 4092
        2, 0, // used_count
        0, 0, // zero
        1, 0, 0, 0, 0, 0, 0, 0, // bits of slots 0 to 63
        2, 0, 0, 0, 0, 0, 0, 0, // bits of slots 64 to 127
        0, 0, 0, 0, 0, 0, 0, 0, // bits of slots 128 to 133
    ];
    assert_eq!(bytes[HEADER_BYTES..72], golden);
    assert_eq!(bytes[72..102], [1; 30]);
    let at = 72 + 65 * 30;
    assert_eq!(bytes[at..at + 30], [[2; 28].as_slice(), &[7, 8]].concat());
    assert!(bytes[102..at].iter().chain(&bytes[at + 30..]).all(|&byte| byte == 0));
    assert_eq!(check(buf.words()), Ok(()));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    assert!(format(&mut PageBuf::new(4096).words_mut(), PageId(1), 0, PageId(1), 0).is_err());
    assert!(format(&mut PageBuf::new(4096).words_mut(), PageId(1), 0, PageId(1), 4041).is_err());
    assert_eq!(slots_max(4096, 4040), 1);
    let mut buf = empty(100);
    let mut page = buf.words_mut();
    insert_at(&mut page, 1, &[1; 100]).unwrap();
    let before = page.as_words().to_vec(0, 4096);
    let slot_count = slot_count(page.as_words());
    assert_eq!(insert_at(&mut page, 1, &[2; 100]), Err(FixedError::SlotUsed { slot: 1 }));
    assert_eq!(insert_at(&mut page, 0, &[2; 99]), Err(FixedError::RecordBytes { record_bytes: 99 }));
    assert_eq!(insert_at(&mut page, 40, &[2; 100]), Err(FixedError::NoSuchSlot { slot: 40, slot_count }));
    assert_eq!(patch(&mut page, 1, 99, &[1, 2]), Err(FixedError::RecordBytes { record_bytes: 101 }));
    assert_eq!(patch(&mut page, 0, 0, &[1]), Err(FixedError::SlotFree { slot: 0 }));
    assert_eq!(remove(&mut page, 0), Err(FixedError::SlotFree { slot: 0 }));
    assert_eq!(page.as_words().to_vec(0, 4096), before);
    assert_eq!(free_slot(page.as_words()), Ok(Some(0)));
}

proptest! {
    #[test]
    fn a_fixed_page_is_a_map_of_slots(
        record_bytes in 1u16..300,
        steps in prop::collection::vec((0u16..200, 0u8..3, any::<u8>()), 1..200),
    ) {
        let mut buf = empty(record_bytes);
        let mut page = buf.words_mut();
        let count = slot_count(page.as_words());
        let mut model: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for (slot, step, byte) in steps {
            let slot = slot % (count + 1);
            let record = vec![byte; usize::from(record_bytes)];
            let is_there = model.contains_key(&slot);
            let done = match step {
                0 => insert_at(&mut page, slot, &record).map(|()| drop(model.insert(slot, record))),
                1 => remove(&mut page, slot).map(|()| drop(model.remove(&slot))),
                _ => patch(&mut page, slot, 0, &[byte]).map(|()| if let Some(r) = model.get_mut(&slot) { r[0] = byte }),
            };
            prop_assert_eq!(done.is_ok(), slot < count && is_there == (step > 0));
            prop_assert_eq!(check(page.as_words()), Ok(()));
        }
        for slot in 0..count {
            prop_assert_eq!(get(page.as_words(), slot).unwrap(), model.get(&slot).cloned());
        }
        prop_assert_eq!(usize::from(used_count(page.as_words())), model.len());
    }

    #[test]
    fn no_bytes_make_it_panic(noise in prop::collection::vec((40usize..4096, any::<u8>()), 0..60), slot: u16) {
        let mut buf = empty(20);
        let mut page = buf.words_mut();
        insert_at(&mut page, 5, &[1; 20]).unwrap();
        for (at, byte) in noise {
            page.put_u8(at, byte);
        }
        let _ = (check(page.as_words()), get(page.as_words(), slot), free_slot(page.as_words()), print(page.as_words()));
        let _ = (insert_at(&mut page, slot % 300, &[2; 20]), patch(&mut page, slot % 300, 3, &[1]));
        let _ = remove(&mut page, slot % 300);
    }
}
