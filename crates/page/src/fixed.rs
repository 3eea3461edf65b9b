//! Fixed page: records of one length under slot numbers (Lemon 4.2).
//!
//! ```text
//! offset  size  field
//!      0    40  page header, see `header.rs`
//!     40     2  record_bytes   length of every record, at least 1
//!     42     2  slot_count     as many as fit: a function of record_bytes and the page size
//!     44     2  used_count     slots that have a record
//!     46     2  zero
//!     48   8*n  bits           slot i is bit i % 64 of word i / 64; set: it has a record; n = slot_count / 64, rounded up
//!      :        records        slot i at records_at + i * record_bytes; zeros where there is none
//!      :        zeros to the end
//! ```
//! F1. slot_count is the largest number with 48 + 8 * n + slot_count * record_bytes <= page size.
//! F2. used_count bits are set, none of them at or above slot_count.
//! F3. A slot without a record is all zeros.
//!
//! [`check`] proves all three for bytes that nobody vouches for. This file knows bytes: no LSNs, no latches, no log.
//! What a change leaves behind depends on the page and the change alone; one that is refused has changed nothing; on a
//! damaged page nothing panics.

use crate::{Corrupt, FixedError, HEADER_BYTES, Layout, LayoutId, PageId, header};
use ledgerstone_region::{Words, WordsMut};

const RECORD_BYTES: usize = HEADER_BYTES;
const SLOT_COUNT: usize = RECORD_BYTES + 2;
const USED_COUNT: usize = SLOT_COUNT + 2;
const ZERO: usize = USED_COUNT + 2;
const BITS: usize = ZERO + 2;

const _: () = assert!(BITS == 48);

/// Records of this length that fit into a page of this size.
#[must_use]
pub const fn slots_max(page_bytes: usize, record_bytes: usize) -> u16 {
    if record_bytes == 0 || page_bytes <= BITS {
        return 0;
    }
    // Each 64 slots cost a word; the last word may be for fewer.
    let mut count = (page_bytes - BITS) / record_bytes;
    while count > 0 && BITS + 8 * count.div_ceil(64) + count * record_bytes > page_bytes {
        count -= 1;
    }
    count as u16
}

/// Where the records begin.
const fn records_at(slot_count: u16) -> usize {
    BITS + 8 * (slot_count as usize).div_ceil(64)
}

/// Makes the page an empty page for records of this length.
///
/// # Errors
/// No record of this length fits. Nothing has changed.
pub fn format(
    page: &mut WordsMut<'_>,
    id: PageId,
    kind: u8,
    owner: PageId,
    record_bytes: u16,
) -> Result<(), FixedError> {
    let slot_count = slots_max(page.len_bytes(), usize::from(record_bytes));
    if slot_count == 0 {
        return Err(FixedError::RecordBytes { record_bytes: usize::from(record_bytes) });
    }
    header::format(page, id, LayoutId::FIXED, kind, owner);
    page.put_u16(RECORD_BYTES, record_bytes);
    page.put_u16(SLOT_COUNT, slot_count);
    Ok(())
}

/// The numbers in front, with F1 checked.
#[derive(Clone, Copy)]
struct Shape {
    record_bytes: usize,
    slot_count: u16,
    used_count: u16,
}

impl Shape {
    fn read(page: Words<'_>) -> Result<Shape, Corrupt> {
        let record_bytes = usize::from(page.u16(RECORD_BYTES));
        let shape = Shape { record_bytes, slot_count: page.u16(SLOT_COUNT), used_count: page.u16(USED_COUNT) };
        let expected = slots_max(page.len_bytes(), record_bytes);
        if expected == 0 {
            return Err(Corrupt::new("record length", RECORD_BYTES as u64, 1, record_bytes as u64));
        }
        if shape.slot_count != expected {
            let found = u64::from(shape.slot_count);
            return Err(Corrupt::new("slot count", SLOT_COUNT as u64, u64::from(expected), found));
        }
        if shape.used_count > shape.slot_count {
            let (max, found) = (u64::from(shape.slot_count), u64::from(shape.used_count));
            return Err(Corrupt::new("used count", USED_COUNT as u64, max, found));
        }
        Ok(shape)
    }

    fn slot(self, slot: u16) -> Result<usize, FixedError> {
        if slot >= self.slot_count {
            return Err(FixedError::NoSuchSlot { slot, slot_count: self.slot_count });
        }
        Ok(records_at(self.slot_count) + usize::from(slot) * self.record_bytes)
    }
}

fn bit(page: Words<'_>, slot: u16) -> bool {
    page.u64(BITS + usize::from(slot) / 64 * 8) & (1 << (slot % 64)) != 0
}

fn flip(page: &mut WordsMut<'_>, slot: u16) {
    let at = BITS + usize::from(slot) / 64 * 8;
    let word = page.as_words().u64(at) ^ (1 << (slot % 64));
    page.put_u64(at, word);
}

/// Length of the records.
#[must_use]
pub fn record_bytes(page: Words<'_>) -> u16 {
    page.u16(RECORD_BYTES)
}

/// Slots of the page, with and without records.
#[must_use]
pub fn slot_count(page: Words<'_>) -> u16 {
    page.u16(SLOT_COUNT)
}

/// Slots that have a record.
#[must_use]
pub fn used_count(page: Words<'_>) -> u16 {
    page.u16(USED_COUNT)
}

/// The record of a slot, if it has one.
///
/// # Errors
/// There is no such slot, or the page is damaged.
pub fn get(page: Words<'_>, slot: u16) -> Result<Option<Vec<u8>>, FixedError> {
    let shape = Shape::read(page)?;
    let at = shape.slot(slot)?;
    Ok(bit(page, slot).then(|| page.to_vec(at, shape.record_bytes)))
}

/// The first slot without a record.
///
/// # Errors
/// A damaged page.
pub fn free_slot(page: Words<'_>) -> Result<Option<u16>, Corrupt> {
    let shape = Shape::read(page)?;
    Ok((0..shape.slot_count).find(|&slot| !bit(page, slot)))
}

/// Puts a record into a slot that has none.
///
/// # Errors
/// There is no such slot, the slot is used, the record has another length, or the page is damaged.
pub fn insert_at(page: &mut WordsMut<'_>, slot: u16, record: &[u8]) -> Result<(), FixedError> {
    let shape = Shape::read(page.as_words())?;
    let at = shape.slot(slot)?;
    check_len(shape, record)?;
    if bit(page.as_words(), slot) {
        return Err(FixedError::SlotUsed { slot });
    }
    page.put(at, record);
    flip(page, slot);
    page.put_u16(USED_COUNT, shape.used_count.saturating_add(1).min(shape.slot_count));
    Ok(())
}

/// Overwrites bytes of a record.
///
/// # Errors
/// There is no such slot, the slot is free, the bytes go past the record's end, or the page is damaged.
pub fn patch(page: &mut WordsMut<'_>, slot: u16, offset: usize, bytes: &[u8]) -> Result<(), FixedError> {
    let shape = Shape::read(page.as_words())?;
    let at = shape.slot(slot)?;
    if !bit(page.as_words(), slot) {
        return Err(FixedError::SlotFree { slot });
    }
    if offset.checked_add(bytes.len()).is_none_or(|end| end > shape.record_bytes) {
        return Err(FixedError::RecordBytes { record_bytes: offset.saturating_add(bytes.len()) });
    }
    page.put(at + offset, bytes);
    Ok(())
}

/// Removes a record.
///
/// # Errors
/// There is no such slot, the slot is free, or the page is damaged.
pub fn remove(page: &mut WordsMut<'_>, slot: u16) -> Result<(), FixedError> {
    let shape = Shape::read(page.as_words())?;
    let at = shape.slot(slot)?;
    if !bit(page.as_words(), slot) {
        return Err(FixedError::SlotFree { slot });
    }
    page.fill(at, shape.record_bytes, 0);
    flip(page, slot);
    page.put_u16(USED_COUNT, shape.used_count.saturating_sub(1));
    Ok(())
}

fn check_len(shape: Shape, record: &[u8]) -> Result<(), FixedError> {
    if record.len() == shape.record_bytes {
        Ok(())
    } else {
        Err(FixedError::RecordBytes { record_bytes: record.len() })
    }
}

/// The layout.
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

impl Layout for Fixed {
    fn id(&self) -> LayoutId {
        LayoutId::FIXED
    }

    fn name(&self) -> &'static str {
        "fixed"
    }

    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        check(page)
    }

    fn print(&self, page: Words<'_>) -> String {
        print(page)
    }
}

/// Proves F1 to F3.
///
/// # Errors
/// The first thing found wrong.
pub fn check(page: Words<'_>) -> Result<(), Corrupt> {
    header::check(page, LayoutId::FIXED)?;
    let id = header::page_id(page);
    let shape = Shape::read(page).map_err(|wrong| wrong.on(id))?;
    if page.u16(ZERO) != 0 {
        return Err(Corrupt::new("zero", ZERO as u64, 0, u64::from(page.u16(ZERO))).on(id));
    }
    let words = usize::from(shape.slot_count).div_ceil(64);
    let set: u32 = (0..words).map(|word| page.u64(BITS + word * 8).count_ones()).sum();
    if set != u32::from(shape.used_count) {
        return Err(Corrupt::new("used count", USED_COUNT as u64, set.into(), shape.used_count.into()).on(id));
    }
    let beyond = shape.slot_count % 64;
    let last = page.u64(BITS + (words - 1) * 8);
    if beyond != 0 && last >> beyond != 0 {
        return Err(Corrupt::new("bits behind the last slot", (BITS + (words - 1) * 8) as u64, 0, last).on(id));
    }
    let start = records_at(shape.slot_count);
    for slot in (0..shape.slot_count).filter(|&slot| !bit(page, slot)) {
        let at = start + usize::from(slot) * shape.record_bytes;
        if let Some(no) = page.to_vec(at, shape.record_bytes).iter().position(|&byte| byte != 0) {
            return Err(Corrupt::new("byte of a free slot", (at + no) as u64, 0, page.u8(at + no).into()).on(id));
        }
    }
    Ok(())
}

/// The page as text, a line for each record with up to 32 of its bytes.
#[must_use]
pub fn print(page: Words<'_>) -> String {
    let mut text = header::print(page);
    let (record_bytes, used, count) = (record_bytes(page), used_count(page), slot_count(page));
    text.push_str(&format!("\nfixed: records of {record_bytes} bytes, {used} of {count} slots used"));
    let Ok(shape) = Shape::read(page) else { return text };
    for slot in (0..shape.slot_count).filter(|&slot| bit(page, slot)) {
        let at = records_at(shape.slot_count) + usize::from(slot) * shape.record_bytes;
        text.push_str(&format!("\n{slot:5}  {}", page.to_vec(at, shape.record_bytes.min(32)).escape_ascii()));
    }
    text
}

#[cfg(test)]
#[path = "fixed_tests.rs"]
mod tests;
