//! The processor's instruction for CRC-32C, word by word: for checksums of words that are copied anyway.

/// Shows that the processor has the instruction.
#[derive(Clone, Copy, Debug)]
pub struct CrcWords(());

impl CrcWords {
    /// What a register holds before the first byte. The checksum is the complement of its low half after the last one.
    pub const START: u64 = u32::MAX as u64;

    /// `None` if this processor has no such instruction, or this program cannot use it.
    #[inline]
    #[must_use]
    pub fn of_processor() -> Option<CrcWords> {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        if std::arch::is_x86_feature_detected!("sse4.2") {
            return Some(CrcWords(()));
        }
        None
    }

    /// The register after eight bytes more: those of `word`, the low ones first.
    #[inline(always)]
    #[must_use]
    pub fn word(self, register: u64, word: u64) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        {
            let mut register = register;
            // SAFETY: the instruction is there, since `of_processor` has made this value, and it changes the register
            // alone.
            unsafe {
                std::arch::asm!("crc32 {0}, {1}", inout(reg) register, in(reg) word,
                    options(pure, nomem, nostack, preserves_flags));
            }
            register
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        word_bit_by_bit(register, word, 64)
    }

    /// The register after four bytes more.
    #[inline(always)]
    #[must_use]
    pub fn half(self, register: u64, half: u32) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        {
            let mut register = register as u32;
            // SAFETY: as above.
            unsafe {
                std::arch::asm!("crc32 {0:e}, {1:e}", inout(reg) register, in(reg) half,
                    options(pure, nomem, nostack, preserves_flags));
            }
            u64::from(register)
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        word_bit_by_bit(register, u64::from(half), 32)
    }
}

/// What the instruction does.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri), not(loom)))))]
fn word_bit_by_bit(register: u64, word: u64, bits: u32) -> u64 {
    (0..bits).fold(register, |register, bit| {
        let differs = (register ^ (word >> bit)) & 1;
        (register >> 1) ^ (differs * 0x82f6_3b78)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_32c_comes_out_by_the_instruction_and_bit_by_bit() {
        let (half, word) = (u32::from_le_bytes(*b"1234"), u64::from_le_bytes(*b"56789abc"));
        let by_bits = word_bit_by_bit(word_bit_by_bit(CrcWords::START, u64::from(half), 32), word, 64);
        let nine = word_bit_by_bit(word_bit_by_bit(CrcWords::START, u64::from_le_bytes(*b"12345678"), 64), 0x39, 8);
        assert_eq!(!(nine as u32), 0xe306_9283); // The check value: of the digits 1 to 9.
        if let Some(crc) = CrcWords::of_processor() {
            assert_eq!(crc.word(crc.half(CrcWords::START, half), word), by_bits);
        }
    }
}
