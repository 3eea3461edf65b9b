//! The bytes of a backup file: frames, one behind the other, that need no seeking to write and say when they are
//! complete.
//!
//! ```text
//! offset  size  field
//!      0     4  crc32c of bytes 4..32 and the payload
//!      4     1  kind: 1 header, 2 pages, 3 log, 4 end
//!      5     3  zero
//!      8     8  at: pages: id of the first; log: LSN of the first byte; otherwise 0
//!     16     4  bytes of payload, at most 1 MiB
//!     20     4  the first four bytes of the backup's id
//!     24     8  number of the frame, from 0
//!     32        payload
//! ```
//! Payload of the header:
//! ```text
//!      0     8  "LSTNBKUP"
//!      8     4  format, 1
//!     12     4  kind of backup: 1 full, 2 incremental
//!     16    16  id of this backup, random
//!     32    16  id of the backup that it goes on from, zero for a full one
//!     48     8  begun, in nanoseconds since 1970
//!     56     8  LSN where its log begins: of a record
//!     64     8  incarnation in force there
//!     72  4096  a slot of the control file, as it was when the backup began (`docs/format/control.md`)
//! ```
//! Payload of the end:
//! ```text
//!      0     8  pages that the data file had; 0 in an incremental one
//!      8     8  pages that are here
//!     16     8  LSN where its log ends: no record begins before it that is not here
//!     24     8  incarnation in force there
//!     32     8  largest incarnation ever given out
//!     40     8  ended, in nanoseconds since 1970
//!     48     4  crc32c of the checksums of all frames before, 4 bytes each
//!     52     4  zero
//! ```
//! P1. Frames are numbered without a gap and carry the backup's mark, so that no two backups can be mixed.
//! P2. A file without its end frame is not a backup. What a reader has not checked it does not use.

use ledgerstone_log::{CONTROL_SLOT_BYTES, ControlSlot, ControlState};
use ledgerstone_page::Lsn;

/// Bytes of a frame's head.
pub const FRAME_BYTES: usize = 32;
/// Longest payload.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The format that this version writes, and the newest that it reads.
pub const BACKUP_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"LSTNBKUP";
const HEADER_BYTES: usize = 72 + CONTROL_SLOT_BYTES;
const END_BYTES: usize = 56;

/// The kind of a frame's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// What the backup is of.
    Header = 1,
    /// Whole pages, one behind the other.
    Pages = 2,
    /// Bytes of the log.
    Log = 3,
    /// That it is complete.
    End = 4,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The kind of what follows.
    pub kind: FrameKind,
    /// Page or LSN.
    pub at: u64,
    /// Bytes that follow.
    pub payload_bytes: u32,
    /// Which backup.
    pub mark: u32,
    /// Counts frames.
    pub number: u64,
    /// Over all of it.
    pub crc: u32,
}

impl Frame {
    /// The head for a payload.
    #[must_use]
    pub fn new(kind: FrameKind, at: u64, mark: u32, number: u64, payload: &[u8]) -> Frame {
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut frame = Frame { kind, at, payload_bytes, mark, number, crc: 0 };
        frame.crc = crc32c::crc32c_append(crc32c::crc32c(&frame.encode()[4..]), payload);
        frame
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&self.crc.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.mark.to_le_bytes());
        bytes[24..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads the head of a frame, or says what is wrong with it. Takes any bytes.
    ///
    /// # Errors
    /// The bytes are not a head.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Frame, &'static str> {
        let kind = match bytes[4] {
            1 => FrameKind::Header,
            2 => FrameKind::Pages,
            3 => FrameKind::Log,
            4 => FrameKind::End,
            _ => return Err("unknown kind of frame"),
        };
        let payload_bytes = u32_at(bytes, 16);
        if payload_bytes as usize > PAYLOAD_BYTES_MAX || bytes[5..8] != [0; 3] {
            return Err("impossible frame");
        }
        let (at, number) = (u64_at(bytes, 8), u64_at(bytes, 24));
        Ok(Frame { kind, at, payload_bytes, mark: u32_at(bytes, 20), number, crc: u32_at(bytes, 0) })
    }

    /// Whether this is its payload.
    #[must_use]
    pub fn fits(&self, payload: &[u8]) -> bool {
        crc32c::crc32c_append(crc32c::crc32c(&self.encode()[4..]), payload) == self.crc
    }
}

/// What a backup is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// True for a backup with the pages. False for one of the log alone.
    pub is_full: bool,
    /// Random.
    pub id: [u8; 16],
    /// The backup that it goes on from. Zero for a full backup.
    pub parent: [u8; 16],
    /// When it began, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// Where its log begins.
    pub log_from: Lsn,
    /// The incarnation in force there.
    pub incarnation: u64,
    /// The control file when it began.
    pub control: ControlState,
}

impl Header {
    /// The mark of its frames.
    #[must_use]
    pub fn mark(&self) -> u32 {
        u32_at(&self.id, 0)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&BACKUP_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(if self.is_full { 1u32 } else { 2 }).to_le_bytes());
        bytes.extend_from_slice(&self.id);
        bytes.extend_from_slice(&self.parent);
        bytes.extend_from_slice(&self.begun_ns.to_le_bytes());
        bytes.extend_from_slice(&self.log_from.0.to_le_bytes());
        bytes.extend_from_slice(&self.incarnation.to_le_bytes());
        bytes.extend_from_slice(&self.control.encode(1));
        bytes
    }

    /// Reads the header, or says what is wrong with it. Takes any bytes.
    ///
    /// # Errors
    /// The bytes are not a header. `Err(Some(format))` means that the backup has a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Header, Option<u32>> {
        if bytes.len() < 16 || bytes[..8] != MAGIC {
            return Err(None);
        }
        let format = u32_at(bytes, 8);
        if format > BACKUP_FORMAT {
            return Err(Some(format));
        }
        let kind = u32_at(bytes, 12);
        if bytes.len() != HEADER_BYTES || !(1..=2).contains(&kind) {
            return Err(None);
        }
        let ControlSlot::Valid { state: control, .. } = ControlSlot::decode(&bytes[72..]) else { return Err(None) };
        let id = |at: usize| std::array::from_fn(|i| bytes[at + i]);
        Ok(Header {
            is_full: kind == 1,
            id: id(16),
            parent: id(32),
            begun_ns: u64_at(bytes, 48),
            log_from: Lsn(u64_at(bytes, 56)),
            incarnation: u64_at(bytes, 64),
            control,
        })
    }
}

/// What a complete backup contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Pages that the data file had.
    pub page_count: u64,
    /// Pages that are here.
    pub stored_count: u64,
    /// Where its log ends.
    pub log_end: Lsn,
    /// The incarnation in force there.
    pub incarnation: u64,
    /// The largest ever given out.
    pub incarnation_max: u64,
    /// When it ended, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// Over the checksums of all frames before.
    pub frames_crc: u32,
}

impl End {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let words =
            [self.page_count, self.stored_count, self.log_end.0, self.incarnation, self.incarnation_max, self.ended_ns];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(&self.frames_crc.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    /// Reads it. For any bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<End> {
        if bytes.len() != END_BYTES {
            return None;
        }
        let word = |no: usize| u64_at(bytes, 8 * no);
        Some(End {
            page_count: word(0),
            stored_count: word(1),
            log_end: Lsn(word(2)),
            incarnation: word(3),
            incarnation_max: word(4),
            ended_ns: word(5),
            frames_crc: u32_at(bytes, 48),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            is_full: true,
            id: [7; 16],
            parent: [0; 16],
            begun_ns: 5,
            log_from: Lsn(4096),
            incarnation: 2,
            control: ControlState::new([9; 16], 4096, 65536),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        let end = End {
            page_count: 1,
            stored_count: 2,
            log_end: Lsn(3),
            incarnation: 4,
            incarnation_max: 5,
            ended_ns: 6,
            frames_crc: 7,
        };
        assert_eq!(End::decode(&end.encode()), Some(end));
        let frame = Frame::new(FrameKind::Log, 4096, header().mark(), 3, b"payload");
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        assert!(frame.fits(b"payload") && !frame.fits(b"paylord"));
        let moved = Frame { number: 4, ..frame };
        assert!(!moved.fits(b"payload"), "P1");
    }

    #[test]
    fn golden_bytes_of_a_frame_and_an_end() {
        let frame = Frame::new(FrameKind::Pages, 0x0102, 0x0a0b_0c0d, 9, &[1, 2, 3]).encode();
        assert_eq!(
            frame[4..],
            [2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 9, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(header().encode()[..20], *b"LSTNBKUP\x01\0\0\0\x01\0\0\0\x07\x07\x07\x07");
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = header().encode();
        let mut newer = good.clone();
        newer[8] = 9;
        assert_eq!(Header::decode(&newer), Err(Some(9)));
        let mut damaged = good.clone();
        damaged[100] ^= 1;
        assert_eq!(Header::decode(&damaged), Err(None));
        assert_eq!(Header::decode(&good[..good.len() - 1]), Err(None));
        assert_eq!(End::decode(&[0; 55]), None);
        assert!(Frame::decode(&[0xff; FRAME_BYTES]).is_err());
    }
}
