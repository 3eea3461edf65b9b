//! The two slots of the table (W1 in `shared.rs`).
//!
//! Generation `g` stands in slot `g % 2`. A change writes an odd generation and then the even one after it, with the
//! same contents. So an even one as the newest, with the other slot whole, is all that an opening finds unless a crash
//! or damage came between.

use super::flat::Flat;
use super::planted::RawBug;
use super::superblock::{BLOCK_BYTES, Superblock};
use super::table::Table;
use crate::aligned::AlignedBuf;
use crate::error::{DiskError, DiskErrorKind};

/// Nobody counts so far, so a number beyond it was not written by us.
const GENERATION_MAX: u64 = 1 << 62;

/// What the slots say.
pub(super) struct Read {
    pub table: Table,
    /// Both slots say the same, so that either will do.
    pub is_pair: bool,
    /// The one that is not whole, or is older than a crash leaves it.
    pub damaged_slot: Option<u64>,
}

/// Reads the newest table.
///
/// # Errors
/// `Damaged` if no slot is whole, or a failure of the device that leaves none.
pub(super) fn read(flat: &dyn Flat, superblock: &Superblock) -> Result<Read, DiskError> {
    let found = [0, 1].map(|slot| read_slot(flat, superblock, slot));
    match found {
        [Ok(Some(first)), Ok(Some(second))] => {
            let is_newer = first.generation > second.generation;
            let (newest, other) = if is_newer { (first, second) } else { (second, first) };
            let follows = other.generation + 1 == newest.generation;
            let damaged_slot = (!follows).then_some(other.generation % 2);
            Ok(Read { is_pair: follows && newest.generation.is_multiple_of(2), table: newest, damaged_slot })
        }
        // A slot that the device cannot read is as good as a damaged one.
        [Ok(Some(table)), _] => Ok(Read { table, is_pair: false, damaged_slot: Some(1) }),
        [_, Ok(Some(table))] => Ok(Read { table, is_pair: false, damaged_slot: Some(0) }),
        [Err(error), _] | [_, Err(error)] => Err(error),
        [Ok(None), Ok(None)] => Err(DiskError::new(flat.name(), "read the table", DiskErrorKind::Damaged)),
    }
}

fn read_slot(flat: &dyn Flat, superblock: &Superblock, slot: u64) -> Result<Option<Table>, DiskError> {
    let at = superblock.slot_at(slot);
    let mut first = AlignedBuf::new(BLOCK_BYTES as usize);
    flat.read_at(at, &mut first)?;
    let Some(len) = Table::len_of(&first, superblock) else { return Ok(None) };
    let mut bytes = AlignedBuf::new(len.next_multiple_of(BLOCK_BYTES) as usize);
    flat.read_at(at, &mut bytes)?;
    let table = Table::decode(&bytes, superblock);
    Ok(table.filter(|table| (1..GENERATION_MAX).contains(&table.generation) && table.generation % 2 == slot))
}

/// Writes a table to the slot of its generation, durably.
pub(super) fn write(flat: &dyn Flat, superblock: &Superblock, table: &Table) -> Result<(), DiskError> {
    let bytes = table.encode(&superblock.id);
    if bytes.len() as u64 > superblock.slot_bytes {
        return Err(DiskError::new(flat.name(), "write the table", DiskErrorKind::NoSpace));
    }
    let at = superblock.slot_at(table.generation % 2);
    if RawBug::SlotUnsynced.is_on() {
        return flat.write_at(at, &bytes);
    }
    flat.write_durable_at(at, &bytes)
}
