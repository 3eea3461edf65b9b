//! The first block of a raw store: what the device is, and where everything on it lies (docs/format/raw.md).
//!
//! It is written when the device is formatted, and never again. A second copy stands in the second block.

use super::flat::Flat;
use crate::aligned::AlignedBuf;
use crate::error::{DiskError, DiskErrorKind};

/// Superblocks, slots of the table and extents begin at multiples of this.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// The bytes of a superblock that mean something. The simulated disk and most devices write so many whole or not at
/// all.
const USED_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"LSTNRAWD";
const VERSION: u32 = 1;
const CHECKED_FROM: usize = 12;
/// Formatting is under way: nothing else counts.
const UNFINISHED: u32 = 1;
/// Space for names in a slot, and for its header.
const NAMES_BYTES: u64 = 64 << 10;
/// Table bytes for each extent: at most two runs, its own and that of a hole before it.
const RUNS_BYTES: u64 = 16;
/// An empty device has zeros in so many bytes at both ends: where partition tables and file systems begin.
const LOOK_BYTES: u64 = 1 << 20;
/// With fewer extents there is nothing to keep.
const EXTENTS_MIN: u64 = 16;

/// What a device is, as its superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Random. The slots of the table have it, too.
    pub id: [u8; 16],
    /// Of the device, when it was formatted.
    pub device_bytes: u64,
    pub extent_bytes: u64,
    /// Of each of the two slots of the table.
    pub slot_bytes: u64,
    /// Where extent 0 begins.
    pub data_start: u64,
    pub extent_count: u64,
    pub is_finished: bool,
}

/// What is on a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Zeros at both ends.
    Blank,
    /// Formatting was cut short.
    Unfinished,
    /// A raw store.
    Ours {
        superblock: Superblock,
        /// Both copies say so.
        is_pair: bool,
    },
}

impl Superblock {
    /// The layout of a device. Extents of 64 KiB below 1 GiB, of 4 MiB from 1 TiB on, else of 1 MiB.
    ///
    /// # Errors
    /// `OutOfRange` if it is too small, or the extents are not of a size that can be.
    pub fn new(flat: &dyn Flat, extent_bytes: Option<u64>, id: [u8; 16]) -> Result<Superblock, DiskError> {
        let device_bytes = flat.len()?;
        let extent_bytes = extent_bytes.unwrap_or(match device_bytes {
            0..0x4000_0000 => 64 << 10,
            0x4000_0000..0x100_0000_0000 => 1 << 20,
            _ => 4 << 20,
        });
        let refuse = || DiskError::new(flat.name(), "format", DiskErrorKind::OutOfRange);
        if !extent_bytes.is_power_of_two() || !(BLOCK_BYTES..=1 << 30).contains(&extent_bytes) {
            return Err(refuse());
        }
        let slot_bytes = slot_bytes(device_bytes, extent_bytes);
        let data_start = (2 * BLOCK_BYTES + 2 * slot_bytes).next_multiple_of(extent_bytes.min(1 << 20));
        let extent_count = device_bytes.saturating_sub(data_start) / extent_bytes;
        if !(EXTENTS_MIN..u64::from(u32::MAX)).contains(&extent_count) {
            return Err(refuse());
        }
        Ok(Superblock { id, device_bytes, extent_bytes, slot_bytes, data_start, extent_count, is_finished: true })
    }

    /// Where slot 0 or 1 of the table begins.
    pub fn slot_at(&self, slot: u64) -> u64 {
        2 * BLOCK_BYTES + slot * self.slot_bytes
    }

    /// How many bytes all entries of the table may have, but for their runs.
    pub fn names_bytes_max(&self) -> u64 {
        NAMES_BYTES - super::table::HEADER_BYTES as u64
    }

    pub fn encode(&self) -> [u8; USED_BYTES] {
        let mut bytes = [0; USED_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        let numbers = [self.device_bytes, self.extent_bytes, self.slot_bytes, self.data_start, self.extent_count];
        for (number, at) in numbers.into_iter().zip((32..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[72..76].copy_from_slice(&(if self.is_finished { 0 } else { UNFINISHED }).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[CHECKED_FROM..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Writes both copies, durably.
    pub fn write(&self, flat: &dyn Flat) -> Result<(), DiskError> {
        let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
        block[..USED_BYTES].copy_from_slice(&self.encode());
        flat.write_durable_at(0, &block)?;
        flat.write_durable_at(BLOCK_BYTES, &block)
    }

    /// Looks at a device.
    ///
    /// # Errors
    /// `NotOurs` if there is something else on it. `Damaged` if both copies are, or the device is smaller than it was.
    /// `NewerFormat`, or a failure of the device that leaves no whole copy.
    pub fn find(flat: &dyn Flat) -> Result<Found, DiskError> {
        let fail = |kind| DiskError::new(flat.name(), "open", kind);
        let device_bytes = flat.len()?;
        if device_bytes < 2 * BLOCK_BYTES {
            return Err(fail(DiskErrorKind::OutOfRange));
        }
        let mut blocks = [AlignedBuf::new(BLOCK_BYTES as usize), AlignedBuf::new(BLOCK_BYTES as usize)];
        let mut unreadable = None;
        let copies = [0, 1].map(|copy| match flat.read_at(copy as u64 * BLOCK_BYTES, &mut blocks[copy]) {
            Ok(()) => Block::decode(&blocks[copy]),
            Err(error) => {
                unreadable = Some(error);
                Block::Unreadable
            }
        });
        if copies.contains(&Block::Newer) {
            return Err(fail(DiskErrorKind::NewerFormat));
        }
        let ours = |superblock: Superblock, is_pair| match superblock.end() > device_bytes {
            true => Err(fail(DiskErrorKind::Damaged)),
            false => Ok(Found::Ours { superblock, is_pair }),
        };
        match (copies[0], copies[1]) {
            // Formatting begins at the first copy and ends there, so the first one knows. But if the second one was
            // finished by the same formatting, the write of the first was lost.
            (Block::Whole(first), Block::Whole(second)) if !first.is_finished && second.is_end_of(&first) => {
                return ours(second, false);
            }
            (Block::Whole(first), _) if !first.is_finished => return Ok(Found::Unfinished),
            (Block::Whole(first), second) => return ours(first, second == copies[0]),
            // Somebody who knows nothing of us has written there since, as `fdisk` does.
            (Block::Other, Block::Whole(second)) if !second.may_have_been(&blocks[0]) => {
                return Err(fail(DiskErrorKind::NotOurs));
            }
            (_, Block::Whole(second)) if second.is_finished => return ours(second, false),
            (Block::Other, Block::Other) => {}
            _ => return Err(unreadable.unwrap_or_else(|| fail(DiskErrorKind::Damaged))),
        }
        let look = LOOK_BYTES.min(device_bytes);
        for at in [0, device_bytes - look] {
            let mut bytes = AlignedBuf::new(look as usize);
            flat.read_at(at, &mut bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Err(fail(DiskErrorKind::NotOurs));
            }
        }
        Ok(Found::Blank)
    }
}

/// One of the two copies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Whole(Superblock),
    Newer,
    Damaged,
    /// The device cannot read it.
    Unreadable,
    /// Not a superblock of ours.
    Other,
}

impl Block {
    fn decode(block: &[u8]) -> Block {
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
        let small = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"));
        if block[..8] != *MAGIC {
            return Block::Other;
        }
        if small(8) != crc32c::crc32c(&block[CHECKED_FROM..USED_BYTES]) {
            return Block::Damaged;
        }
        match small(12) {
            VERSION => {}
            0 => return Block::Damaged,
            _ => return Block::Newer,
        }
        let found = Superblock {
            id: block[16..32].try_into().expect("16 bytes"),
            device_bytes: number(32),
            extent_bytes: number(40),
            slot_bytes: number(48),
            data_start: number(56),
            extent_count: number(64),
            is_finished: small(72) & UNFINISHED == 0,
        };
        match found.is_possible() {
            true => Block::Whole(found),
            false => Block::Damaged,
        }
    }
}

impl Superblock {
    /// Where the last extent ends.
    fn end(&self) -> u64 {
        self.data_start + self.extent_count * self.extent_bytes
    }

    /// Whether the formatting that began with `unfinished` ended with this one.
    fn is_end_of(&self, unfinished: &Superblock) -> bool {
        *self == Superblock { is_finished: true, ..*unfinished }
    }

    /// Whether damage can have made a block of this superblock: it lost everything, or has the random id still.
    fn may_have_been(&self, block: &[u8]) -> bool {
        block[16..32] == self.id || block.iter().all(|byte| *byte == 0)
    }

    /// Nothing may be computed from numbers that cannot be, whatever the checksum says.
    fn is_possible(&self) -> bool {
        let is_aligned = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES) && bytes < 1 << 60;
        let end = self.extent_count.checked_mul(self.extent_bytes).and_then(|all| all.checked_add(self.data_start));
        self.extent_bytes.is_power_of_two()
            && [self.extent_bytes, self.slot_bytes, self.data_start].into_iter().all(is_aligned)
            && self.extent_bytes <= 1 << 30
            && self.extent_count < u64::from(u32::MAX)
            && self.slot_bytes >= NAMES_BYTES + RUNS_BYTES * self.extent_count
            && self.slot_bytes <= slot_bytes(self.device_bytes, self.extent_bytes)
            && self.data_start >= 2 * BLOCK_BYTES + 2 * self.slot_bytes
            && end.is_some_and(|end| end <= self.device_bytes)
    }
}

/// Of the two slots, each. Rounded down, the extents of the whole device are more than can be used.
fn slot_bytes(device_bytes: u64, extent_bytes: u64) -> u64 {
    (NAMES_BYTES + RUNS_BYTES * (device_bytes / extent_bytes)).next_multiple_of(BLOCK_BYTES)
}

/// Has both ends of a device read as zero, but for the superblocks. Whoever looks for a file system, a volume or a
/// partition table finds none.
pub(super) fn zero_ends(flat: &dyn Flat) -> Result<(), DiskError> {
    let device_bytes = flat.len()?;
    let first_end = LOOK_BYTES.min(device_bytes);
    flat.zero(2 * BLOCK_BYTES, first_end - 2 * BLOCK_BYTES)?;
    let last = first_end.max(device_bytes - first_end);
    flat.zero(last, device_bytes - last)
}
