//! Error correction for data areas: a Hamming code of 3 bytes for each 512 bytes, which corrects one flipped bit and
//! detects two. SLC data sheets ask for exactly that.
//!
//! The code keeps, for each bit of a bit's address (12 bits for 4,096 places), the parity of all ones whose address has
//! that bit set, and of all whose address has it clear. One flipped bit flips exactly one of each pair.

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
    // `ones` is the xor of the addresses of all set bits: its bit i is the parity of the ones with address bit i set. The
    // parity with the bit clear differs from it exactly by the parity of all ones.
    let (mut ones, mut parity) = (0u32, 0u32);
    for (i, &byte) in sector.iter().enumerate() {
        let odd = byte.count_ones() & 1;
        parity ^= odd;
        if odd == 1 {
            ones ^= (i as u32) << 3;
        }
        ones ^= BIT_ADDRESSES[byte as usize];
    }
    let clear = if parity == 1 { !ones & 0xfff } else { ones };
    let code = ones | (clear << 12);
    // Stored inverted, so that an erased page (all ones) has the code of erased bytes: 0xff ff ff.
    let code = !code;
    [code as u8, (code >> 8) as u8, (code >> 16) as u8]
}

/// The xor of the places (0 to 7) of the bits set in a byte.
const BIT_ADDRESSES: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte] ^= bit;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

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

    #[test]
    fn erased_bytes_have_an_erased_code() {
        assert_eq!(encode(&[0xff; SECTOR_BYTES]), [0xff; 3]);
    }
}
