//! Pending records in the spare area (4.2, figure 10): by transaction a link, a flag, and which bytes of the page it
//! has changed.
//!
//! ```text
//! offset  size  field, from the start of the extra area at the end of the spare area
//!      0     1  slots
//!      1     1  ranges
//!      2     2  zero
//!      4  16*n  slots: xid u32, link page u32, link number 6, flag 1 (programmed again later), zero
//!      :   6*m  ranges: slot u16, offset u16, length u16
//!      :        0xFF
//!   last     4  CRC-32C of all before it, flags taken as 0xFF
//! ```
//! A page without pending records has 0xFF everywhere, and 0 as the transaction in its meta data.

use crate::Xid;
use crate::ftl::spare::{Flag, Link};

const SLOT_BYTES: usize = 16;
const RANGE_BYTES: usize = 6;
const HEADER_BYTES: usize = 4;
const FLAG_IN_SLOT: usize = 14;

/// Bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub offset: u16,
    pub len: u16,
}

impl Range {
    pub fn overlaps(self, other: Self) -> bool {
        u32::from(self.offset) < u32::from(other.offset) + u32::from(other.len)
            && u32::from(other.offset) < u32::from(self.offset) + u32::from(self.len)
    }
}

/// What one transaction has pending in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub xid: Xid,
    pub link: Link,
    pub flag: Flag,
    pub ranges: Vec<Range>,
}

/// How many fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub slots_max: usize,
    pub ranges_max: usize,
}

impl Shape {
    pub fn new(max_c: u8) -> Self {
        Self { slots_max: usize::from(max_c), ranges_max: 4 * usize::from(max_c) }
    }

    /// Bytes of the extra area.
    pub fn bytes(self) -> usize {
        HEADER_BYTES + self.slots_max * SLOT_BYTES + self.ranges_max * RANGE_BYTES + 4
    }

    /// Where a slot's flag lies in a spare area of so many bytes.
    pub fn flag_offset(self, spare_bytes: usize, slot: usize) -> usize {
        spare_bytes - self.bytes() + HEADER_BYTES + slot * SLOT_BYTES + FLAG_IN_SLOT
    }

    pub fn encode(self, slots: &[Slot]) -> Vec<u8> {
        let mut bytes = vec![0xff; self.bytes()];
        let ranges: usize = slots.iter().map(|slot| slot.ranges.len()).sum();
        bytes[..HEADER_BYTES].copy_from_slice(&[slots.len() as u8, ranges as u8, 0, 0]);
        let mut at = HEADER_BYTES;
        for slot in slots {
            let out = &mut bytes[at..at + SLOT_BYTES];
            out[..4].copy_from_slice(&slot.xid.to_le_bytes());
            out[4..8].copy_from_slice(&slot.link.page.to_le_bytes());
            out[8..14].copy_from_slice(&slot.link.number.to_le_bytes()[..6]);
            out[FLAG_IN_SLOT] = slot.flag.to_byte();
            out[15] = 0;
            at += SLOT_BYTES;
        }
        for (index, slot) in slots.iter().enumerate() {
            for range in &slot.ranges {
                let out = &mut bytes[at..at + RANGE_BYTES];
                out[..2].copy_from_slice(&(index as u16).to_le_bytes());
                out[2..4].copy_from_slice(&range.offset.to_le_bytes());
                out[4..6].copy_from_slice(&range.len.to_le_bytes());
                at += RANGE_BYTES;
            }
        }
        let crc = self.crc(&bytes, slots.len());
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`Shape::encode`] wrote. Repairs one flipped bit. `None` if it is nothing of ours.
    pub fn decode(self, bytes: &[u8]) -> Option<Vec<Slot>> {
        if bytes.len() != self.bytes() {
            return None;
        }
        self.parse(bytes).or_else(|| {
            // The checksum names the one flipped bit, as in the rest of the spare area. Flags are outside of it, and
            // read by majority.
            let mut copy = bytes.to_vec();
            (0..bytes.len() * 8).find_map(|bit| {
                copy[bit / 8] ^= 1 << (bit % 8);
                let slots = self.parse(&copy);
                copy[bit / 8] ^= 1 << (bit % 8);
                slots
            })
        })
    }

    fn parse(self, bytes: &[u8]) -> Option<Vec<Slot>> {
        let (count, ranges) = (usize::from(bytes[0]), usize::from(bytes[1]));
        let stored = bytes.last_chunk::<4>().map(|b| u32::from_le_bytes(*b))?;
        if count > self.slots_max || ranges > self.ranges_max || self.crc(bytes, count) != stored {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let mut slots: Vec<Slot> = (0..count)
            .map(|index| {
                let at = HEADER_BYTES + index * SLOT_BYTES;
                let number = u64::from(word(at + 8)) | u64::from(short(at + 12)) << 32;
                let link = Link { page: word(at + 4), number };
                Slot { xid: word(at), link, flag: Flag::from_byte(bytes[at + FLAG_IN_SLOT]), ranges: Vec::new() }
            })
            .collect();
        for index in 0..ranges {
            let at = HEADER_BYTES + count * SLOT_BYTES + index * RANGE_BYTES;
            let range = Range { offset: short(at + 2), len: short(at + 4) };
            slots.get_mut(usize::from(short(at)))?.ranges.push(range);
        }
        Some(slots)
    }

    fn crc(self, bytes: &[u8], count: usize) -> u32 {
        let mut copy = bytes[..bytes.len() - 4].to_vec();
        for slot in 0..count.min(self.slots_max) {
            copy[HEADER_BYTES + slot * SLOT_BYTES + FLAG_IN_SLOT] = 0xff;
        }
        crc32c::crc32c(&copy)
    }
}

/// Sorted, with neighbours and overlaps joined. If they are more than `max`, one range around all of them.
pub(super) fn join(mut ranges: Vec<Range>, max: usize) -> Vec<Range> {
    ranges.sort_unstable_by_key(|range| range.offset);
    let mut joined: Vec<Range> = Vec::new();
    for range in ranges {
        let end = range.offset + range.len;
        match joined.last_mut().filter(|last| last.offset + last.len >= range.offset) {
            Some(last) => last.len = last.len.max(end - last.offset),
            None => joined.push(range),
        }
    }
    if joined.len() > max
        && let (Some(first), Some(last)) = (joined.first(), joined.last())
    {
        return vec![Range { offset: first.offset, len: last.offset + last.len - first.offset }];
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Slot> {
        let range = |offset, len| Range { offset, len };
        vec![
            Slot { xid: 7, link: Link::NONE, flag: Flag::Unset, ranges: vec![range(1, 2), range(300, 8)] },
            Slot {
                xid: 9,
                link: Link { page: 5, number: 0xa1a2_a3a4_a5a6 },
                flag: Flag::Cleared,
                ranges: vec![range(9, 1)],
            },
        ]
    }

    #[test]
    fn what_was_encoded_is_decoded_whatever_became_of_its_flags() {
        let shape = Shape::new(3);
        let mut bytes = shape.encode(&sample());
        assert_eq!(shape.decode(&bytes), Some(sample()));
        let at = shape.flag_offset(shape.bytes(), 1);
        bytes[at] = Flag::Set.to_byte();
        assert_eq!(shape.decode(&bytes).unwrap()[1].flag, Flag::Set);
        assert_eq!(shape.decode(&vec![0xff; shape.bytes()]), None);
        assert_eq!(shape.decode(&vec![0x5a; shape.bytes()]), None);
    }

    #[test]
    fn one_flipped_bit_is_repaired_and_two_are_refused() {
        let shape = Shape::new(3);
        let whole = shape.encode(&sample());
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(shape.decode(&bytes), Some(sample()), "bit {bit}");
        }
        let mut bytes = whole;
        bytes[4] ^= 3;
        assert_eq!(shape.decode(&bytes), None);
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let text: String = Shape::new(3).encode(&sample())[..54].iter().map(|b| format!("{b:02x}")).collect();
        let slots = "07000000ffffffff000000000000ff000900000005000000a6a5a4a3a2a1f000";
        assert_eq!(text, format!("02030000{slots}000001000200{}{}", "00002c010800", "010009000100"));
    }

    #[test]
    fn neighbours_are_joined_and_too_many_become_one() {
        let range = |offset, len| Range { offset, len };
        assert_eq!(join(vec![range(8, 2), range(4, 4), range(20, 1)], 4), [range(4, 6), range(20, 1)]);
        assert_eq!(join(vec![range(8, 2), range(0, 1), range(20, 1)], 2), [range(0, 21)]);
        assert!(range(0, 2).overlaps(range(1, 5)) && !range(0, 2).overlaps(range(2, 5)));
    }
}
