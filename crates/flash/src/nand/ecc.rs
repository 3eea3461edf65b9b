//! Error correction for data areas: a Hamming code of 3 bytes for each 512 bytes, which corrects one flipped bit and
//! detects two. SLC data sheets ask for exactly that.
//!
//! A bit's address has 12 bits for 4,096 places. For each bit of the address, the code keeps two parities: of all ones
//! whose address has that bit set, and of all whose address has it clear. One flipped bit flips exactly one of each
//! pair.

/// Bytes that one code protects.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of one code.
pub const CODE_BYTES: usize = 3;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Data and code agree.
    Clean,
    /// One bit was wrong and has been put right.
    Corrected,
    /// More than one bit is wrong.
    Uncorrectable,
}

/// Bytes of code for `data_bytes` of data.
pub const fn code_bytes(data_bytes: usize) -> usize {
    data_bytes.div_ceil(SECTOR_BYTES) * CODE_BYTES
}

/// The code of at most 512 bytes.
pub fn encode(sector: &[u8]) -> [u8; CODE_BYTES] {
    // `ones` is the xor of the addresses of all set bits: its bit i is the parity of the ones with address bit i set.
    // The parity with the bit clear differs from it exactly by the parity of all ones. Six bits of an address are the
    // place in a word of eight bytes. They are the same for all words, so that these may be added up first. The other
    // six are the word's number.
    let (mut columns, mut word_numbers) = (0u64, 0u32);
    let words = sector.chunks_exact(8);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    let words = words.map(|bytes| bytes.try_into().unwrap_or([0; 8])).chain([last]);
    for (number, bytes) in words.enumerate() {
        let word = u64::from_le_bytes(bytes);
        columns ^= word;
        word_numbers ^= number as u32 * (word.count_ones() & 1);
    }
    let place = COLUMNS.iter().rev().fold(0, |place, with| place << 1 | (columns & with).count_ones() & 1);
    let ones = place | word_numbers << 6;
    let clear = if columns.count_ones() & 1 == 1 { !ones & 0xfff } else { ones };
    let code = ones | (clear << 12);
    // Stored inverted, so that an erased page (all ones) has the code of erased bytes: 0xff ff ff.
    let code = !code;
    [code as u8, (code >> 8) as u8, (code >> 16) as u8]
}

/// The places of a word whose number has bit 0 set, bit 1, and so on.
const COLUMNS: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

/// Checks a sector against its stored code and repairs one flipped bit, in the data or in the code.
pub fn correct(sector: &mut [u8], stored: [u8; CODE_BYTES]) -> Checked {
    let computed = encode(sector);
    let difference = u32::from(computed[0] ^ stored[0])
        | u32::from(computed[1] ^ stored[1]) << 8
        | u32::from(computed[2] ^ stored[2]) << 16;
    if difference == 0 {
        return Checked::Clean;
    }
    let (set, clear) = (difference & 0xfff, difference >> 12);
    if set ^ clear == 0xfff {
        let (byte, bit) = ((set >> 3) as usize, set & 7);
        if byte < sector.len() {
            sector[byte] ^= 1 << bit;
            return Checked::Corrected;
        }
        return Checked::Uncorrectable;
    }
    if difference.count_ones() == 1 {
        return Checked::Corrected; // The flipped bit is in the code itself.
    }
    Checked::Uncorrectable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn sector(seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        (0..SECTOR_BYTES).map(|_| rng.next_u64() as u8).collect()
    }

    #[test]
    fn every_single_flipped_bit_is_put_right() {
        let good = sector(1);
        let code = encode(&good);
        for bit in 0..SECTOR_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(correct(&mut bad, code), Checked::Corrected, "bit {bit}");
            assert_eq!(bad, good);
        }
        for bit in 0..24 {
            let (mut data, mut code) = (good.clone(), code);
            code[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(correct(&mut data, code), Checked::Corrected);
            assert_eq!(data, good);
        }
    }

    #[test]
    fn two_flipped_bits_are_never_taken_for_good_data() {
        let good = sector(2);
        let code = encode(&good);
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let (a, b) = (rng.below(4096) as usize, rng.below(4096) as usize);
            if a == b {
                continue;
            }
            let mut bad = good.clone();
            bad[a / 8] ^= 1 << (a % 8);
            bad[b / 8] ^= 1 << (b % 8);
            assert_eq!(correct(&mut bad, code), Checked::Uncorrectable);
        }
    }

    /// The definition, bit by bit.
    #[test]
    fn the_code_is_the_parity_of_each_half_of_the_places() {
        for len in [1, 7, 8, 9, 100, 511, 512] {
            let data = &sector(len as u64)[..len];
            let mut code = 0u32;
            for place in 0..len * 8 {
                if data[place / 8] >> (place % 8) & 1 == 1 {
                    code ^= place as u32 | (!(place as u32) & 0xfff) << 12;
                }
            }
            assert_eq!(encode(data), [!code as u8, (!code >> 8) as u8, (!code >> 16) as u8], "{len} bytes");
        }
    }

    #[test]
    fn erased_bytes_have_an_erased_code() {
        assert_eq!(encode(&[0xff; SECTOR_BYTES]), [0xff; 3]);
    }
}
