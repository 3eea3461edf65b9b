//! Slotted page: records of any length under slot numbers that never change (Lemon 4.2).
//!
//! ```text
//! offset  size  field
//!      0    40  page header, see `header.rs`
//!     40     2  slot_count
//!     42     2  records_start   lowest byte that a record uses; the page size if there is none
//!     44     2  garbage_bytes   what compaction would win
//!     46     2  zero
//!     48   4*n  slots           { offset u16, length u16 }, growing up; offset 0 is a free slot, its length 0 too
//!      :        free space
//!      :        records, growing down to records_start
//! ```
//! S1. 48 + 4 * slot_count <= records_start <= page size <= 32768, and the last slot is a used one.
//! S2. Records of used slots lie in records_start..page size and never overlap; the lowest begins at records_start.
//! S3. Their lengths and garbage_bytes together are page size - records_start.
//!
//! [`check`] proves all three for bytes that nobody vouches for. This file knows bytes: no LSNs, no latches, no log.
//!
//! What a change leaves behind depends on the page and the change alone, so that redo makes the same bytes again. A
//! change that is refused has changed nothing. On a damaged page the functions may do nonsense within the page or
//! return `Corrupt`; they do not panic. Readers may run while the page changes, and then believe nothing until its
//! version is checked, a `Corrupt` no more than a record.

use crate::{Corrupt, HEADER_BYTES, Layout, LayoutId, PAGE_BYTES_MAX, PageId, SlottedError, header};
use ledgerstone_region::{Words, WordsMut};
use std::cmp::Reverse;

const SLOT_COUNT: usize = HEADER_BYTES;
const RECORDS_START: usize = SLOT_COUNT + 2;
const GARBAGE_BYTES: usize = RECORDS_START + 2;
const ZERO: usize = GARBAGE_BYTES + 2;
const SLOTS: usize = ZERO + 2;
/// Bytes that a slot takes beside its record.
pub const SLOT_BYTES: usize = 4;

const _: () = assert!(SLOTS == 48);
const _: () = assert!(PAGE_BYTES_MAX <= u16::MAX as usize);

/// Where a record lies in its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Offset of its first byte.
    pub offset: usize,
    /// Its length in bytes. 0 is a valid length.
    pub len: usize,
}

/// The three numbers in front of the slots, with S1 checked as far as it speaks of them.
#[derive(Clone, Copy)]
struct Shape {
    page_bytes: usize,
    slot_count: u16,
    records_start: usize,
    garbage_bytes: usize,
}

impl Shape {
    fn read(page: Words<'_>) -> Result<Shape, Corrupt> {
        let shape = Shape {
            page_bytes: page.len_bytes(),
            slot_count: page.u16(SLOT_COUNT),
            records_start: page.u16(RECORDS_START) as usize,
            garbage_bytes: page.u16(GARBAGE_BYTES) as usize,
        };
        let wrong = |what, offset: usize, expected: usize, found: usize| {
            Err(Corrupt::new(what, offset as u64, expected as u64, found as u64).on(header::page_id(page)))
        };
        if !crate::is_page_bytes(shape.page_bytes) {
            return wrong("page size", 0, PAGE_BYTES_MAX, shape.page_bytes);
        }
        if shape.records_start > shape.page_bytes {
            return wrong("records start", RECORDS_START, shape.page_bytes, shape.records_start);
        }
        if shape.slots_end() > shape.records_start {
            return wrong("slot count", SLOT_COUNT, shape.records_start, shape.slots_end());
        }
        if shape.garbage_bytes > shape.page_bytes - shape.records_start {
            return wrong("garbage", GARBAGE_BYTES, shape.page_bytes - shape.records_start, shape.garbage_bytes);
        }
        Ok(shape)
    }

    fn write(&self, page: &mut WordsMut<'_>) {
        page.put_u16(SLOT_COUNT, self.slot_count);
        page.put_u16(RECORDS_START, self.records_start as u16);
        page.put_u16(GARBAGE_BYTES, self.garbage_bytes as u16);
    }

    fn slots_end(&self) -> usize {
        slot_at(self.slot_count)
    }

    /// Free bytes in one piece.
    fn gap_bytes(&self) -> usize {
        self.records_start - self.slots_end()
    }
}

#[inline]
fn slot_at(slot: u16) -> usize {
    SLOTS + slot as usize * SLOT_BYTES
}

/// Makes the page an empty slotted one.
pub fn format(page: &mut WordsMut<'_>, id: PageId, kind: u8, owner: PageId) {
    format_as(page, id, LayoutId::SLOTTED, kind, owner);
}

/// The same for a layout that is a slotted one with rules of its own.
pub(crate) fn format_as(page: &mut WordsMut<'_>, id: PageId, layout: LayoutId, kind: u8, owner: PageId) {
    header::format(page, id, layout, kind, owner);
    let page_bytes = page.len_bytes();
    Shape { page_bytes, slot_count: 0, records_start: page_bytes, garbage_bytes: 0 }.write(page);
}

/// How many slots there are, free ones between used ones included.
#[inline]
pub fn slot_count(page: Words<'_>) -> u16 {
    page.u16(SLOT_COUNT)
}

/// Bytes that records and new slots can still take, after a compaction. A record in a new slot needs [`SLOT_BYTES`]
/// beside its own.
pub fn free_bytes(page: Words<'_>) -> usize {
    Shape::read(page).map_or(0, |shape| shape.gap_bytes() + shape.garbage_bytes)
}

/// Where the slot's record lies. `None` if the slot is free or does not exist.
///
/// # Errors
/// `Corrupt` if the slot points outside the page.
#[inline]
pub fn place(page: Words<'_>, slot: u16) -> Result<Option<Place>, Corrupt> {
    if slot >= slot_count(page) {
        return Ok(None);
    }
    let at = slot_at(slot);
    let found = Place { offset: page.u16(at) as usize, len: page.u16(at + 2) as usize };
    if found.offset == 0 {
        return Ok(None);
    }
    if found.offset < SLOTS || found.offset + found.len > page.len_bytes() || at + SLOT_BYTES > page.len_bytes() {
        return Err(wrong_slot(page, at, found));
    }
    Ok(Some(found))
}

#[cold]
fn wrong_slot(page: Words<'_>, at: usize, found: Place) -> Corrupt {
    Corrupt::new("slot", at as u64, page.len_bytes() as u64, (found.offset + found.len) as u64)
        .on(header::page_id(page))
}

/// A copy of the slot's record. `None` if the slot is free.
///
/// # Errors
/// `Corrupt` if the slot points outside the page.
pub fn get(page: Words<'_>, slot: u16) -> Result<Option<Vec<u8>>, Corrupt> {
    Ok(place(page, slot)?.map(|found| page.to_vec(found.offset, found.len)))
}

/// The slots in use, ascending.
pub fn used_slots(page: Words<'_>) -> impl Iterator<Item = u16> {
    let most = page.len_bytes().saturating_sub(SLOTS) / SLOT_BYTES;
    (0..slot_count(page).min(most as u16)).filter(move |&slot| page.u16(slot_at(slot)) != 0)
}

/// Puts a record into the lowest free slot and says which.
///
/// # Errors
/// `Full`, and `Corrupt`.
pub fn insert(page: &mut WordsMut<'_>, record: &[u8]) -> Result<u16, SlottedError> {
    let shape = Shape::read(page.as_words())?;
    let words = page.as_words();
    let slot = (0..shape.slot_count).find(|&slot| words.u16(slot_at(slot)) == 0).unwrap_or(shape.slot_count);
    insert_at(page, slot, record)?;
    Ok(slot)
}

/// Puts a record into this slot, which is free or does not exist yet.
///
/// # Errors
/// `SlotUsed`, `Full`, and `Corrupt`.
pub fn insert_at(page: &mut WordsMut<'_>, slot: u16, record: &[u8]) -> Result<(), SlottedError> {
    let mut shape = Shape::read(page.as_words())?;
    if place(page.as_words(), slot)?.is_some() {
        return Err(SlottedError::SlotUsed { slot });
    }
    let new_slots = (slot as usize + 1).saturating_sub(shape.slot_count as usize);
    let need = record.len() + new_slots * SLOT_BYTES;
    make_room(page, &mut shape, need, None)?;
    if new_slots > 0 {
        page.fill(shape.slots_end(), new_slots * SLOT_BYTES, 0);
        shape.slot_count = slot + 1;
    }
    put_record(page, shape, slot, record);
    Ok(())
}

/// Replaces the slot's record by one of any length.
///
/// # Errors
/// `SlotFree`, `Full`, and `Corrupt`.
pub fn update(page: &mut WordsMut<'_>, slot: u16, record: &[u8]) -> Result<(), SlottedError> {
    let mut shape = Shape::read(page.as_words())?;
    let old = used(page.as_words(), &shape, slot)?;
    if record.len() <= old.len {
        page.put(old.offset, record);
        page.put_u16(slot_at(slot) + 2, record.len() as u16);
        shape.garbage_bytes = (shape.garbage_bytes + old.len - record.len()).min(shape.page_bytes);
        shape.write(page);
        return Ok(());
    }
    if !make_room(page, &mut shape, record.len(), Some((slot, old)))? {
        release(page, &mut shape, slot, old);
    }
    put_record(page, shape, slot, record);
    Ok(())
}

/// Makes the slot free. Free slots at the end go away.
///
/// # Errors
/// `SlotFree` and `Corrupt`.
pub fn delete(page: &mut WordsMut<'_>, slot: u16) -> Result<(), SlottedError> {
    let mut shape = Shape::read(page.as_words())?;
    let old = used(page.as_words(), &shape, slot)?;
    release(page, &mut shape, slot, old);
    while shape.slot_count > 0 && page.as_words().u16(slot_at(shape.slot_count - 1)) == 0 {
        shape.slot_count -= 1;
    }
    shape.write(page);
    Ok(())
}

/// Moves the records together at the end of the page, so that no garbage is left. Slots keep their numbers.
///
/// # Errors
/// `Corrupt`.
pub fn compact(page: &mut WordsMut<'_>) -> Result<(), SlottedError> {
    let mut shape = Shape::read(page.as_words())?;
    compact_but(page, &mut shape, None)
}

/// The record of a slot that must be in use.
fn used(page: Words<'_>, shape: &Shape, slot: u16) -> Result<Place, SlottedError> {
    let found = place(page, slot)?.ok_or(SlottedError::SlotFree { slot, slot_count: shape.slot_count })?;
    if found.offset < shape.records_start {
        return Err(wrong_slot(page, slot_at(slot), found).into());
    }
    Ok(found)
}

/// Sees to `need` free bytes in one piece. The bytes of the slot `instead`, which is about to be replaced, count as
/// free; returns whether they are gone already.
fn make_room(
    page: &mut WordsMut<'_>,
    shape: &mut Shape,
    need: usize,
    instead: Option<(u16, Place)>,
) -> Result<bool, SlottedError> {
    let free = shape.gap_bytes() + shape.garbage_bytes + instead.map_or(0, |(_, old)| old.len);
    if need > free {
        return Err(SlottedError::Full { need, free });
    }
    if need <= shape.gap_bytes() {
        return Ok(false);
    }
    compact_but(page, shape, instead.map(|(slot, _)| slot))?;
    Ok(instead.is_some())
}

/// Compacts; the record of the slot `gone` is left out and its slot made free. Looks first, moves after.
fn compact_but(page: &mut WordsMut<'_>, shape: &mut Shape, gone: Option<u16>) -> Result<(), SlottedError> {
    let words = page.as_words();
    let mut records = Vec::with_capacity(shape.slot_count as usize);
    for slot in 0..shape.slot_count {
        if words.u16(slot_at(slot)) != 0 {
            let found = used(words, shape, slot)?;
            records.push((Reverse(found.offset), Reverse(found.len), slot));
        }
    }
    // From the highest offset down; of an empty record and another at the same place the other lies higher.
    records.sort_unstable();
    let mut above = shape.page_bytes;
    let mut record_bytes = 0;
    for &(Reverse(offset), Reverse(len), slot) in &records {
        if offset + len > above {
            return Err(wrong_slot(words, slot_at(slot), Place { offset, len }).into());
        }
        above = offset;
        record_bytes += len;
    }
    if record_bytes + shape.garbage_bytes != shape.page_bytes - shape.records_start {
        return Err(wrong_garbage(words, shape, record_bytes).into());
    }
    let mut to = shape.page_bytes;
    for (Reverse(offset), Reverse(len), slot) in records {
        if gone == Some(slot) {
            page.put(slot_at(slot), &[0; SLOT_BYTES]);
            continue;
        }
        to -= len;
        page.shift(offset, to, len);
        page.put_u16(slot_at(slot), to as u16);
    }
    shape.records_start = to;
    shape.garbage_bytes = 0;
    shape.write(page);
    Ok(())
}

#[cold]
fn wrong_garbage(page: Words<'_>, shape: &Shape, record_bytes: usize) -> Corrupt {
    let expected = (shape.page_bytes - shape.records_start).saturating_sub(record_bytes);
    Corrupt::new("garbage", GARBAGE_BYTES as u64, expected as u64, shape.garbage_bytes as u64).on(header::page_id(page))
}

/// Puts the record below the others and its place into the slot, which is free. There is room.
fn put_record(page: &mut WordsMut<'_>, mut shape: Shape, slot: u16, record: &[u8]) {
    shape.records_start -= record.len();
    page.put(shape.records_start, record);
    page.put_u16(slot_at(slot), shape.records_start as u16);
    page.put_u16(slot_at(slot) + 2, record.len() as u16);
    shape.write(page);
}

/// Makes the slot free and its bytes garbage, or free space if no record lies below.
fn release(page: &mut WordsMut<'_>, shape: &mut Shape, slot: u16, old: Place) {
    page.put(slot_at(slot), &[0; SLOT_BYTES]);
    shape.garbage_bytes = (shape.garbage_bytes + old.len).min(shape.page_bytes - shape.records_start);
    if old.offset == shape.records_start {
        let words = page.as_words();
        let lowest = (0..shape.slot_count).map(|slot| words.u16(slot_at(slot)) as usize).filter(|&offset| offset != 0);
        let lowest = lowest.min().unwrap_or(shape.page_bytes).clamp(shape.records_start, shape.page_bytes);
        shape.garbage_bytes = shape.garbage_bytes.saturating_sub(lowest - shape.records_start);
        shape.records_start = lowest;
    }
    shape.write(page);
}

/// The layout.
#[derive(Clone, Copy, Debug)]
pub struct Slotted;

impl Layout for Slotted {
    fn id(&self) -> LayoutId {
        LayoutId::SLOTTED
    }

    fn name(&self) -> &'static str {
        "slotted"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        check(page)
    }

    fn print(&self, page: Words<'_>) -> String {
        print(page)
    }
}

/// Proves S1, S2 and S3 for any bytes, and the header's rules.
///
/// # Errors
/// The first thing found wrong.
pub fn check(page: Words<'_>) -> Result<(), Corrupt> {
    check_as(page, LayoutId::SLOTTED)
}

pub(crate) fn check_as(page: Words<'_>, layout: LayoutId) -> Result<(), Corrupt> {
    header::check(page, layout)?;
    let shape = Shape::read(page)?;
    let id = header::page_id(page);
    if page.u16(ZERO) != 0 {
        return Err(Corrupt::new("zero", ZERO as u64, 0, page.u16(ZERO) as u64).on(id));
    }
    // S1 bounds the slots by the page, so nothing here is sized by a number that was not checked.
    let mut places = Vec::with_capacity(shape.slot_count as usize);
    for slot in 0..shape.slot_count {
        let at = slot_at(slot);
        let (offset, len) = (page.u16(at) as usize, page.u16(at + 2) as usize);
        match offset {
            0 if len == 0 && slot + 1 < shape.slot_count => {}
            0 => return Err(Corrupt::new("free slot", at as u64, 0, len as u64).on(id)),
            _ if offset < shape.records_start || offset + len > shape.page_bytes => {
                return Err(wrong_slot(page, at, Place { offset, len }));
            }
            _ => places.push((offset, len, at)),
        }
    }
    places.sort_unstable();
    let lowest = places.first().map_or(shape.page_bytes, |&(offset, ..)| offset);
    if lowest != shape.records_start {
        return Err(
            Corrupt::new("records start", RECORDS_START as u64, lowest as u64, shape.records_start as u64).on(id)
        );
    }
    for pair in places.windows(2) {
        let ((offset, len, _), (next, _, at)) = (pair[0], pair[1]);
        if offset + len > next {
            return Err(Corrupt::new("slot overlaps", at as u64, (offset + len) as u64, next as u64).on(id));
        }
    }
    let record_bytes: usize = places.iter().map(|&(_, len, _)| len).sum();
    if record_bytes + shape.garbage_bytes != shape.page_bytes - shape.records_start {
        return Err(wrong_garbage(page, &shape, record_bytes));
    }
    Ok(())
}

/// The page as text, a line for each used slot with up to 32 bytes of its record.
pub fn print(page: Words<'_>) -> String {
    let mut text = header::print(page);
    text.push_str(&format!(
        "\nslotted: {} slots, records from {}, garbage {}",
        slot_count(page),
        page.u16(RECORDS_START),
        page.u16(GARBAGE_BYTES)
    ));
    for slot in used_slots(page) {
        match place(page, slot) {
            Ok(Some(found)) => {
                let bytes = page.to_vec(found.offset, found.len.min(32));
                let more = if found.len > bytes.len() { "..." } else { "" };
                let shown = bytes.escape_ascii();
                text.push_str(&format!("\n{slot:5} at {:5} len {:5}  {shown}{more}", found.offset, found.len));
            }
            Ok(None) => {}
            Err(wrong) => text.push_str(&format!("\n{slot:5} {wrong}")),
        }
    }
    text
}

#[cfg(test)]
#[path = "slotted_tests.rs"]
mod tests;
