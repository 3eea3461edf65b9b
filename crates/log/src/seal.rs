//! Where bytes belong: a word made of environment, incarnation and LSN that is mixed into each record's checksum.
//!
//! A segment is used again under a later name, and behind the end of the log lie records that a crash cut off. Both are
//! whole records with right checksums, and neither may ever be read as new. So a record stores
//! `crc32c(its bytes from 4) ^ mix(environment, incarnation, LSN)`.
//!
//! The mix comes after the CRC instead of before it. So an appender computes the CRC of a long record before it knows
//! its LSN, and only the copy takes time between reservation and publication. For a short record, the copy computes it.
//! And one CRC is compared with many incarnations when the end of the log is examined.

use ledgerstone_region::Random;

use crate::EnvironmentId;

/// The word of one environment and one incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    base: u64,
    incarnation: u64,
}

impl Seal {
    /// For the records of `incarnation`.
    pub fn new(environment: EnvironmentId, incarnation: u64) -> Seal {
        Seal::with(word_of(environment), incarnation)
    }

    #[inline]
    fn with(environment: u64, incarnation: u64) -> Seal {
        Seal { base: scramble(environment ^ incarnation), incarnation }
    }

    /// The incarnation it is for.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The value that is xored to the CRC of a record at `lsn`.
    #[inline]
    pub fn mix(&self, lsn: u64) -> u32 {
        (scramble(self.base ^ lsn) >> 32) as u32
    }
}

/// The word of an environment.
fn word_of(environment: EnvironmentId) -> u64 {
    let (low, high) = environment.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    scramble(scramble(word(low)) ^ word(high))
}

/// The largest incarnation: one for each opening. Where nobody says which one a record is of, all may have to be tried.
pub const INCARNATION_MAX: u64 = (1 << 32) - 1;

/// The seals of all incarnations that a record can be of. They are made when they are looked through, since there may
/// be millions: one for each time that the environment was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seals {
    environment: u64,
    oldest: u64,
    newest: u64,
}

impl Seals {
    /// Of these incarnations, both included. Larger ones than [`INCARNATION_MAX`] are nobody's.
    pub fn new(environment: EnvironmentId, oldest: u64, newest: u64) -> Seals {
        Seals { environment: word_of(environment), oldest, newest: newest.min(INCARNATION_MAX) }
    }

    /// Those that mix this into the checksum of a record at `lsn`, the newest first. One of 2^32 does so by chance.
    pub fn that_mix(self, lsn: u64, mix: u32) -> impl Iterator<Item = Seal> {
        let all = (self.oldest..=self.newest).rev().map(move |number| Seal::with(self.environment, number));
        all.filter(move |seal| seal.mix(lsn) == mix)
    }
}

/// Every bit of the input changes half of the output. The seals in the log are made of this for good, as seeds are
/// written down for good.
#[inline]
fn scramble(word: u64) -> u64 {
    Random::new(word).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_are_found_by_what_they_mix() {
        let seals = Seals::new([7; 16], 3, 100_000);
        for number in [3, 4, 50_000, 100_000] {
            let mix = Seal::new([7; 16], number).mix(4096);
            assert!(seals.that_mix(4096, mix).any(|seal| seal == Seal::new([7; 16], number)));
            assert!(seals.that_mix(4104, mix).all(|seal| seal.incarnation() != number));
        }
        for number in [2, 100_001] {
            let mix = Seal::new([7; 16], number).mix(4096);
            assert!(seals.that_mix(4096, mix).all(|seal| seal.incarnation() != number));
        }
    }

    #[test]
    fn every_coordinate_changes_the_mix() {
        let here = Seal::new([7; 16], 3);
        assert_eq!(here.mix(4096), Seal::new([7; 16], 3).mix(4096));
        assert_ne!(here.mix(4096), here.mix(4104));
        assert_ne!(here.mix(4096), Seal::new([7; 16], 4).mix(4096));
        assert_ne!(here.mix(4096), Seal::new([8; 16], 3).mix(4096));
    }
}
