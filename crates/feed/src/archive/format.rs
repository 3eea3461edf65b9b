//! The bytes of the small files of an archive.

use ledgerstone_core::Error;
use ledgerstone_core::keeper::Owner;
use ledgerstone_log::{INCARNATION_MAX, RECORD_BYTES_MAX};

pub(super) const OWNER_MAGIC: [u8; 8] = *b"LSTNAOWN";
/// Bytes of the file that says whose archive it is.
pub const OWNER_BYTES: usize = 40;
pub(super) const MAGIC: [u8; 8] = *b"LSTNARCH";
const FORMAT: u32 = 2;
/// Bytes of a sum.
pub const SUM_BYTES: usize = 88;

/// The bytes of the file that says whose archive it is.
#[must_use]
pub fn encode_owner(owner: &Owner) -> [u8; OWNER_BYTES] {
    let mut bytes = [0; OWNER_BYTES];
    bytes[16..32].copy_from_slice(&owner.environment);
    bytes[32..].copy_from_slice(&owner.life.to_le_bytes());
    seal(&mut bytes, OWNER_MAGIC);
    bytes
}

/// The same read, of any bytes.
pub(super) fn decode_owner(bytes: &[u8; OWNER_BYTES]) -> Option<Owner> {
    is_sealed(bytes, OWNER_MAGIC)
        .then(|| Owner { environment: std::array::from_fn(|i| bytes[16 + i]), life: word(bytes, 32) })
}

/// What proves a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// Whose log it is.
    pub owner: Owner,
    /// The LSN where the segment begins.
    pub start: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// The LSN where its log ends.
    pub end: u64,
    /// The incarnation in force there.
    pub incarnation: u64,
    /// The LSN of the record that goes on behind that end; the end itself if none does.
    pub resume: u64,
    /// Of the bytes up to the end.
    pub crc: u32,
}

impl Sum {
    /// The bytes of its file.
    #[must_use]
    pub fn encode(&self) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        bytes[16..32].copy_from_slice(&self.owner.environment);
        let words = [self.owner.life, self.start, self.segment_bytes, self.end, self.incarnation, self.resume];
        for (no, word) in words.iter().enumerate() {
            bytes[32 + 8 * no..40 + 8 * no].copy_from_slice(&word.to_le_bytes());
        }
        bytes[80..84].copy_from_slice(&self.crc.to_le_bytes());
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// For any bytes.
    pub(super) fn decode(bytes: &[u8; SUM_BYTES]) -> Option<Sum> {
        let sum = Sum {
            owner: Owner { environment: std::array::from_fn(|i| bytes[16 + i]), life: word(bytes, 32) },
            start: word(bytes, 40),
            segment_bytes: word(bytes, 48),
            end: word(bytes, 56),
            incarnation: word(bytes, 64),
            resume: word(bytes, 72),
            crc: word(bytes, 80) as u32,
        };
        let fits = sum.segment_bytes.is_power_of_two()
            && (4096..=1 << 32).contains(&sum.segment_bytes)
            && sum.start.is_multiple_of(sum.segment_bytes)
            && sum.start < sum.end
            && sum.end - sum.start <= sum.segment_bytes
            && sum.resume.abs_diff(sum.end) <= RECORD_BYTES_MAX as u64
            && sum.incarnation <= INCARNATION_MAX;
        (is_sealed(bytes, MAGIC) && fits).then_some(sum)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Puts magic, format and checksum in front.
fn seal(bytes: &mut [u8], magic: [u8; 8]) {
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8], magic: [u8; 8]) -> bool {
    let head = word(bytes, 8);
    bytes[..8] == magic && head as u32 == FORMAT && (head >> 32) as u32 == crc32c::crc32c(&bytes[16..])
}

/// A6.
pub(super) fn refuse_other_format(bytes: &[u8], magic: [u8; 8], path: impl FnOnce() -> String) -> Result<(), Error> {
    if bytes.len() < 16 || bytes[..8] != magic {
        return Ok(());
    }
    let head = word(bytes, 8);
    let (found, supported) = (head as u32, FORMAT);
    if found == FORMAT || (head >> 32) as u32 != crc32c::crc32c(&bytes[16..]) {
        return Ok(());
    }
    let path = path();
    Err(if found < FORMAT {
        let remedy = "begin a new archive directory after a full backup, and restore from this one with the version that wrote it";
        Error::OlderFormat { path, found, supported, remedy }
    } else {
        Error::NewerFormat { path, found, supported }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNED: Owner = Owner { environment: [3; 16], life: 0x0809 };
    const SUM: Sum =
        Sum { owner: OWNED, start: 65536, segment_bytes: 65536, end: 70000, incarnation: 4, resume: 69992, crc: 5 };

    #[test]
    fn sums_and_owners_survive_their_encoding_and_no_other_bytes_are_one() {
        assert_eq!(Sum::decode(&SUM.encode()), Some(SUM));
        for at in 0..SUM_BYTES {
            let mut bytes = SUM.encode();
            bytes[at] ^= 1;
            assert_eq!(Sum::decode(&bytes), None, "byte {at}");
        }
        assert_eq!(decode_owner(&encode_owner(&OWNED)), Some(OWNED));
        for at in 0..OWNER_BYTES {
            let mut bytes = encode_owner(&OWNED);
            bytes[at] ^= 1;
            assert_eq!(decode_owner(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn golden_bytes_of_a_sum_and_an_owner() {
        let bytes = SUM.encode();
        assert_eq!(bytes[..12], *b"LSTNARCH\x02\0\0\0");
        assert_eq!(bytes[16..32], [3; 16]);
        let words: [u64; 7] = std::array::from_fn(|no| word(&bytes, 32 + 8 * no));
        assert_eq!(words, [0x0809, 0x1_0000, 0x1_0000, 0x1_1170, 4, 0x1_1168, 5]);
        let bytes = encode_owner(&OWNED);
        assert_eq!(bytes[..12], *b"LSTNAOWN\x02\0\0\0");
        assert_eq!((&bytes[16..32], &bytes[32..]), (&[3; 16][..], &[9, 8, 0, 0, 0, 0, 0, 0][..]));
    }
}
