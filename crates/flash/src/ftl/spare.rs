//! The spare area of a page: which page it is, and what became of it.
//!
//! ```text
//! offset  size  field
//!      0     1  bad-block marker of the maker; 0xFF, never programmed by us
//!      1     1  kind: 0xD1 data, 0x53 summary, 0x56 verdict, 0x4C log
//!      2     1  flag, programmed again later (see below)
//!      3     1  0xFF
//!      4     4  lba       logical page; for a summary the number of its block
//!      8     4  xid       transaction that wrote it; 0 none
//!     12     6  version   of the logical page; a number from the device's one counter, higher is newer
//!     18     6  sequence  number of this physical write, from the same counter; never used twice
//!     24     4  link page      physical page before it in its transaction
//!     28     6  link number    that page's sequence (rule 1)
//!     34     6  back      1 if the flag was FALSE when the page was programmed, else 0
//!     40     4  low       lowest transaction that was running when this page was written
//!     44     4  CRC-32C of bytes 1 and 4..44
//!     48     4  CRC-32C of the data area as it was given
//!     52     3n Hamming code of the data area, 3 bytes for each 512; 0xFF where the device keeps no content
//! ```
//! All numbers are little-endian. Byte 2 is outside the checksum because it changes after it was made.
//!
//! The flag has one bit in CFC (1 FALSE, 0 TRUE) and two in AFC (11 FALSE, 10 TRUE, 00 FALSE). So that one flipped bit
//! does no harm each of the two bits is stored four times: bit A in the high nibble, bit B in the low one. CFC uses A
//! and B alike.

use crate::error::{FlashError, Result};
use crate::{Lba, Pba, Xid};

/// Where the flag lies.
pub const FLAG_OFFSET: usize = 2;
/// Bytes before the error-correcting code.
pub const META_BYTES: usize = 52;

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A version of a logical page.
    Data = 0xd1,
    /// What the pages of its block are.
    Summary = 0x53,
    /// Transactions that a recovery has declared aborted.
    Verdict = 0x56,
    /// Records of a log; `lba` is the running number of the page.
    Log = 0x4c,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0xd1 => Self::Data,
            0x53 => Self::Summary,
            0x56 => Self::Verdict,
            0x4c => Self::Log,
            _ => return None,
        })
    }
}

/// The commit flag of a page as it stands on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// Bits 11: FALSE, as first programmed.
    Unset = 0b11,
    /// Bits 10: TRUE in AFC.
    Cleared = 0b10,
    /// Bits 00: TRUE in CFC, FALSE for ever in AFC.
    Set = 0b00,
}

impl Flag {
    /// The byte that stands for it.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Unset => 0xff,
            Self::Cleared => 0xf0,
            Self::Set => 0x00,
        }
    }

    /// The majority of each nibble. A nibble that is half and half counts as not yet programmed.
    pub fn from_byte(byte: u8) -> Self {
        let (a, b) = ((byte >> 4).count_ones() >= 2, (byte & 15).count_ones() >= 2);
        match (a, b) {
            (true, true) => Self::Unset,
            (true, false) => Self::Cleared,
            (false, _) => Self::Set,
        }
    }
}

/// A reference to another page, by place and number (rule 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// Physical page; `u32::MAX`: none.
    pub page: u32,
    /// Its sequence number.
    pub number: u64,
}

impl Link {
    /// Refers to nothing.
    pub const NONE: Self = Self { page: u32::MAX, number: 0 };

    /// Whether it refers to something.
    pub fn is_some(self) -> bool {
        self.page != u32::MAX
    }
}

/// The spare area, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What the page is for.
    pub kind: Kind,
    /// The flag as last read or programmed.
    pub flag: Flag,
    /// Logical page.
    pub lba: Lba,
    /// Writer; 0 none.
    pub xid: Xid,
    /// Version of the logical page.
    pub version: u64,
    /// Number of this physical write.
    pub sequence: u64,
    /// The link.
    pub link: Link,
    /// 1 if the flag was FALSE when the page was programmed.
    pub back: u64,
    /// Lowest transaction running at the time.
    pub low: Xid,
}

impl Meta {
    /// A data page with everything else at zero.
    pub fn data(lba: Lba, xid: Xid, version: u64) -> Self {
        Self { kind: Kind::Data, flag: Flag::Unset, lba, xid, version, sequence: 0, link: Link::NONE, back: 0, low: 0 }
    }

    /// Writes the first [`META_BYTES`] bytes; `data_crc` covers the data area.
    #[inline]
    pub fn encode(&self, data_crc: u32, out: &mut [u8]) {
        out[0] = 0xff;
        out[1] = self.kind as u8;
        out[2] = self.flag.to_byte();
        out[3] = 0xff;
        out[4..8].copy_from_slice(&self.lba.to_le_bytes());
        out[8..12].copy_from_slice(&self.xid.to_le_bytes());
        out[12..18].copy_from_slice(&self.version.to_le_bytes()[..6]);
        out[18..24].copy_from_slice(&self.sequence.to_le_bytes()[..6]);
        out[24..28].copy_from_slice(&self.link.page.to_le_bytes());
        out[28..34].copy_from_slice(&self.link.number.to_le_bytes()[..6]);
        out[34..40].copy_from_slice(&self.back.to_le_bytes()[..6]);
        out[40..44].copy_from_slice(&self.low.to_le_bytes());
        let crc = meta_crc(out);
        out[44..48].copy_from_slice(&crc.to_le_bytes());
        out[48..52].copy_from_slice(&data_crc.to_le_bytes());
    }

    /// Reads what [`Meta::encode`] wrote. Repairs one flipped bit. `None` if this crate did not write the spare area.
    #[inline]
    pub fn decode(spare: &[u8]) -> Option<Self> {
        let stored = u32::from_le_bytes(spare[44..48].try_into().ok()?);
        if meta_crc(spare) == stored {
            return Self::parse(spare);
        }
        if is_erased(spare) {
            return None;
        }
        // A checksum with distance 4 or more at this length names the one flipped bit uniquely.
        let mut bytes = [0u8; META_BYTES];
        bytes.copy_from_slice(&spare[..META_BYTES]);
        for bit in (8..16).chain(32..384) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if meta_crc(&bytes) == u32::from_le_bytes(bytes[44..48].try_into().ok()?) {
                return Self::parse(&bytes);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(bytes[at + 4]) << 32 | u64::from(bytes[at + 5]) << 40;
        Some(Self {
            kind: Kind::from_byte(bytes[1])?,
            flag: Flag::from_byte(bytes[2]),
            lba: word(4),
            xid: word(8),
            version: long(12),
            sequence: long(18),
            link: Link { page: word(24), number: long(28) },
            back: long(34),
            low: word(40),
        })
    }
}

/// The checksum of the data area that goes with these bytes.
pub fn data_crc(spare: &[u8]) -> u32 {
    u32::from_le_bytes([spare[48], spare[49], spare[50], spare[51]])
}

/// Whether the page was never programmed since its block's erase.
pub fn is_erased(spare: &[u8]) -> bool {
    spare[..META_BYTES].iter().all(|&b| b == 0xff)
}

fn meta_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[1..2]), &bytes[4..44])
}

/// Bytes of one entry of a block summary.
pub const ENTRY_BYTES: usize = 40;

/// One entry of a block summary: bytes 4..40 of the spare area, the kind, and three bytes 0xFF. A page that was never
/// programmed or is unreadable has 40 bytes 0xFF.
pub fn encode_entry(meta: &Meta, out: &mut [u8]) {
    let mut spare = [0u8; META_BYTES];
    meta.encode(0, &mut spare);
    out[..36].copy_from_slice(&spare[4..40]);
    out[36] = meta.kind as u8;
    out[37..40].fill(0xff);
}

/// Reads an entry. Flag and low are not part of it.
pub fn decode_entry(bytes: &[u8]) -> Result<Option<Meta>> {
    let Some(kind) = bytes.get(36) else {
        return Err(FlashError::Corrupt("block summary ends within an entry".to_string()));
    };
    if bytes[..ENTRY_BYTES].iter().all(|&b| b == 0xff) {
        return Ok(None);
    }
    let mut spare = [0xffu8; META_BYTES];
    spare[1] = *kind;
    spare[4..40].copy_from_slice(&bytes[..36]);
    match Meta::parse(&spare) {
        Some(meta) => Ok(Some(meta)),
        None => Err(FlashError::Corrupt(format!("block summary has an entry of unknown kind {kind:#x}"))),
    }
}

/// The place of a page with its sequence number, as a link names it.
pub fn link_to(pba: Pba, sequence: u64) -> Link {
    Link { page: pba, number: sequence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Meta, [u8; META_BYTES]) {
        let mut meta = Meta::data(7, 9, 0x0102_0304_0506);
        meta.sequence = 0xa1a2_a3a4_a5a6;
        meta.link = Link { page: 0x1122_3344, number: 0x5566_7788_99aa };
        meta.back = 3;
        meta.low = 8;
        meta.flag = Flag::Cleared;
        let mut bytes = [0; META_BYTES];
        meta.encode(0xdead_beef, &mut bytes);
        (meta, bytes)
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let (_, bytes) = sample();
        let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            text,
            "ffd1f0ff0700000009000000060504030201a6a5a4a3a2a144332211aa998877665503000000000008000000b9e3b2c9efbeadde",
        );
    }

    #[test]
    fn any_single_flipped_bit_is_repaired() {
        let (meta, bytes) = sample();
        for bit in 8..384 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::decode(&bad), Some(meta), "bit {bit}");
        }
    }

    #[test]
    fn erased_and_foreign_bytes_are_no_page() {
        assert_eq!(Meta::decode(&[0xff; META_BYTES]), None);
        assert_eq!(Meta::decode(&[0x5a; META_BYTES]), None);
        assert_eq!(Meta::decode(&[0; META_BYTES]), None);
    }

    #[test]
    fn a_summary_entry_keeps_all_that_a_mount_needs() {
        let (meta, _) = sample();
        let mut entry = [0; ENTRY_BYTES];
        encode_entry(&meta, &mut entry);
        let read = decode_entry(&entry).unwrap().unwrap();
        assert_eq!(
            (read.lba, read.xid, read.version, read.sequence),
            (meta.lba, meta.xid, meta.version, meta.sequence)
        );
        assert_eq!((read.link, read.back, read.kind), (meta.link, meta.back, meta.kind));
        assert_eq!(decode_entry(&[0xff; ENTRY_BYTES]).unwrap(), None);
        assert!(decode_entry(&[0; ENTRY_BYTES]).is_err());
    }
}
