//! Versioned page: a slotted page with a version number for each record (Lemon 4.2, 7.1).
//!
//! ```text
//! as `slotted.rs`, with layout 17; each record begins with
//!      0     8  version   the record sequence number: the LSN of the last update that the record has
//!      8        content
//! ```
//! V1. What holds of a slotted page (S1 to S3 there) holds here.
//! V2. A record has at least 8 bytes, and a version below 2^48, as LSNs are.
//!
//! The version subsumes the page LSN: an update is applied to a record if the record's version is below the update's,
//! whatever other records of the page have seen. A structure that relies on that keeps the two in agreement: this file
//! only stores versions.

use crate::{Corrupt, Layout, LayoutId, Lsn, PageId, SlottedError, header, slotted};
use ledgerstone_region::{Words, WordsMut};

/// Bytes that a record takes beside its content and its slot.
pub const VERSION_BYTES: usize = 8;

/// Makes the page an empty one.
pub fn format(page: &mut WordsMut<'_>, id: PageId, kind: u8, owner: PageId) {
    slotted::format_as(page, id, LayoutId::VERSIONED, kind, owner);
}

/// The record of a slot and its version, if it has one.
///
/// # Errors
/// A damaged page.
pub fn get(page: Words<'_>, slot: u16) -> Result<Option<(Lsn, Vec<u8>)>, Corrupt> {
    let Some(place) = slotted::place(page, slot)? else { return Ok(None) };
    let version = version_at(page, place)?;
    Ok(Some((version, page.to_vec(place.offset + VERSION_BYTES, place.len - VERSION_BYTES))))
}

fn version_at(page: Words<'_>, place: slotted::Place) -> Result<Lsn, Corrupt> {
    if place.len < VERSION_BYTES {
        return Err(Corrupt::new("length of a versioned record", place.offset as u64, 8, place.len as u64));
    }
    let mut bytes = [0; VERSION_BYTES];
    page.copy_to(place.offset, &mut bytes);
    let version = u64::from_le_bytes(bytes);
    if version > PageId::MAX.0 {
        return Err(Corrupt::new("version of a record", place.offset as u64, PageId::MAX.0, version));
    }
    Ok(Lsn(version))
}

fn record(version: Lsn, content: &[u8]) -> Vec<u8> {
    [&version.0.to_le_bytes()[..], content].concat()
}

/// Puts a record into the first free slot, or into a new one. Returns the slot.
///
/// # Errors
/// There is no room, or the page is damaged.
pub fn insert(page: &mut WordsMut<'_>, version: Lsn, content: &[u8]) -> Result<u16, SlottedError> {
    slotted::insert(page, &record(version, content))
}

/// Puts a record into a slot that is free.
///
/// # Errors
/// There is no room, the slot is used, or the page is damaged.
pub fn insert_at(page: &mut WordsMut<'_>, slot: u16, version: Lsn, content: &[u8]) -> Result<(), SlottedError> {
    slotted::insert_at(page, slot, &record(version, content))
}

/// Gives a record new content and version.
///
/// # Errors
/// There is no room, the slot is free, or the page is damaged.
pub fn update(page: &mut WordsMut<'_>, slot: u16, version: Lsn, content: &[u8]) -> Result<(), SlottedError> {
    slotted::update(page, slot, &record(version, content))
}

/// Removes a record and its version.
///
/// # Errors
/// The slot is free, or the page is damaged.
pub fn delete(page: &mut WordsMut<'_>, slot: u16) -> Result<(), SlottedError> {
    slotted::delete(page, slot)
}

/// The layout.
#[derive(Clone, Copy, Debug)]
pub struct Versioned;

impl Layout for Versioned {
    fn id(&self) -> LayoutId {
        LayoutId::VERSIONED
    }

    fn name(&self) -> &'static str {
        "versioned"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        check(page)
    }

    fn print(&self, page: Words<'_>) -> String {
        print(page)
    }
}

/// Proves V1 and V2.
///
/// # Errors
/// The first thing found wrong.
pub fn check(page: Words<'_>) -> Result<(), Corrupt> {
    slotted::check_as(page, LayoutId::VERSIONED)?;
    for slot in slotted::used_slots(page) {
        if let Some(place) = slotted::place(page, slot)? {
            version_at(page, place).map_err(|wrong| wrong.on(header::page_id(page)))?;
        }
    }
    Ok(())
}

/// The page as text, a line for each record.
#[must_use]
pub fn print(page: Words<'_>) -> String {
    let mut text = header::print(page);
    text.push_str(&format!("\nversioned: {} slots", slotted::slot_count(page)));
    for slot in slotted::used_slots(page) {
        match get(page, slot) {
            Ok(Some((version, content))) => {
                let shown = content[..content.len().min(32)].escape_ascii();
                text.push_str(&format!("\n{slot:5} version {version} len {:5}  {shown}", content.len()));
            }
            Ok(None) => {}
            Err(wrong) => text.push_str(&format!("\n{slot:5} {wrong}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ledgerstone_region::PageBuf;
    use proptest::prelude::*;

    use super::*;

    fn empty() -> PageBuf {
        let mut buf = PageBuf::new(4096);
        format(&mut buf.words_mut(), PageId(9), 0, PageId(2));
        buf
    }

    #[test]
    fn the_page_has_the_bytes_of_its_table() {
        let mut buf = empty();
        let mut page = buf.words_mut();
        assert_eq!(insert(&mut page, Lsn(0x1122_3344_5566), b"alpha"), Ok(0));
        assert_eq!(insert(&mut page, Lsn(7), b""), Ok(1));
        let bytes = buf.to_bytes();
        assert_eq!(bytes[header::LAYOUT..header::LAYOUT + 2], [17, 0]);
        let golden = [
            2, 0, // slot_count
            0xeb, 0x0f, // records_start 4075
            0, 0, 0, 0, // garbage_bytes, zero
            0xf3, 0x0f, 13, 0, // slot 0: 4083, 13
            0xeb, 0x0f, 8, 0, // slot 1: 4075, 8
        ];
        assert_eq!(bytes[40..56], golden);
        assert_eq!(bytes[4075..4083], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[4083..4091], [0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0]);
        assert_eq!(&bytes[4091..], b"alpha");
        assert_eq!(check(buf.words()), Ok(()));
    }

    #[test]
    fn a_record_without_room_for_a_version_is_damage() {
        let mut buf = empty();
        let mut page = buf.words_mut();
        slotted::insert(&mut page, b"seven b").unwrap();
        assert!(check(page.as_words()).is_err() && get(page.as_words(), 0).is_err());
        slotted::update(&mut page, 0, &[0xff; 8]).unwrap();
        assert!(check(page.as_words()).is_err() && get(page.as_words(), 0).is_err());
        assert!(print(page.as_words()).contains("version of a record"));
    }

    proptest! {
        #[test]
        fn a_versioned_page_is_a_map_of_slots(
            steps in prop::collection::vec((0u16..40, 0u8..3, 0u64..1 << 48, 0usize..300), 1..120),
        ) {
            let mut buf = empty();
            let mut page = buf.words_mut();
            let mut model: BTreeMap<u16, (Lsn, Vec<u8>)> = BTreeMap::new();
            for (slot, step, version, len) in steps {
                let (version, content) = (Lsn(version), vec![version as u8; len]);
                let done = match step {
                    0 => insert_at(&mut page, slot, version, &content),
                    1 => update(&mut page, slot, version, &content),
                    _ => delete(&mut page, slot),
                };
                if done.is_ok() {
                    prop_assert_eq!(model.contains_key(&slot), step > 0);
                    if step == 2 { model.remove(&slot); } else { model.insert(slot, (version, content)); }
                }
                prop_assert_eq!(check(page.as_words()), Ok(()));
            }
            for slot in 0..40 {
                prop_assert_eq!(get(page.as_words(), slot).unwrap(), model.get(&slot).cloned());
            }
        }
    }
}
