//! A set of LSNs of records, a bit for each place where one may begin: a 64th of the log that it covers, at most.

use ledgerstone_page::Lsn;
use ledgerstone_region::ByNumber;

/// Records begin at multiples of this.
const STEP: u64 = 8;
/// Words of a piece: 32 KiB of log.
const WORDS: u64 = 64;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct LsnSet {
    pieces: ByNumber<u64, Box<[u64; WORDS as usize]>>,
}

impl LsnSet {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn insert(&mut self, lsn: Lsn) {
        let (piece, word, bit) = place(lsn);
        self.pieces.get_or_insert_with(piece, || Box::new([0; WORDS as usize]))[word] |= bit;
    }

    /// Removes it, and returns whether it was there.
    pub fn remove(&mut self, lsn: Lsn) -> bool {
        let (piece, word, bit) = place(lsn);
        let Some(words) = self.pieces.get_mut(piece) else { return false };
        let was_in = words[word] & bit != 0;
        words[word] &= !bit;
        if was_in && words.iter().all(|&word| word == 0) {
            self.pieces.remove(piece);
        }
        was_in
    }
}

fn place(lsn: Lsn) -> (u64, usize, u64) {
    debug_assert!(lsn.0.is_multiple_of(STEP), "no record begins at LSN {lsn}");
    let slot = lsn.0 / STEP;
    (slot / 64 / WORDS, (slot / 64 % WORDS) as usize, 1 << (slot % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn it_is_a_set() {
        let (mut set, mut model) = (LsnSet::default(), HashSet::new());
        for n in 0_u64..20_000 {
            let lsn = Lsn(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 50_000 * 8 + (1 << 40));
            if n % 3 == 0 {
                assert_eq!(set.remove(lsn), model.remove(&lsn));
            } else {
                set.insert(lsn);
                model.insert(lsn);
            }
        }
        assert!(model.len() > 5_000);
        for lsn in model {
            assert!(set.remove(lsn));
            assert!(!set.remove(lsn));
        }
        assert!(set.is_empty(), "what is empty takes memory");
    }
}
