//! Which frames are free, to find one quickly. Bits that are hints: the frame's own word says whether it is free.
//!
//! ```text
//! level 0   a bit for each frame
//! level 1   a bit for each word of level 0 that has a bit
//! ...       up to a level of one word
//! ```
//! B1. Whoever frees a frame says so in its word first, and sets its bits after, from below to above. So a free frame
//!     has its bits, unless the thread that frees it is still at it, or has died there.
//! B2. A bit may be there without cause. Whoever comes upon it clears it, and then looks at the cause once more. If
//!     that is there by now, he sets the bit again. All of this is sequentially consistent. So a bit that is set beside
//!     him stays.
//! B3. After a death, the bits of all free frames are set again ([`FreeBits::set_all_levels`]). So are those above each
//!     word that has a bit, with cause or without ([`FreeBits::mend`]): whoever frees a frame later relies on them.
//!
//! Checked under loom: `loom_free.rs`. This file does not know frames.

use ledgerstone_region::atomic::{AtomicU64, Ordering::SeqCst};
use std::ops::Deref;

const WORD_BITS: usize = 64;
/// Levels of as many bits as a `u32` can count.
const LEVELS_MAX: usize = 6;

/// The bits of frames, which are numbered by the order in which they are to be taken.
pub(crate) struct FreeBits<W> {
    words: W,
    /// Where each level begins among the words, and behind the last one where they end.
    starts: [usize; LEVELS_MAX + 1],
    level_count: usize,
}

/// Words of each level, from below to above.
fn level_words(count: u32) -> impl Iterator<Item = usize> {
    let mut bits = Some(count as usize);
    std::iter::from_fn(move || {
        let words = bits?.div_ceil(WORD_BITS).max(1);
        bits = (words > 1).then_some(words);
        Some(words)
    })
}

impl<W: Deref<Target = [AtomicU64]>> FreeBits<W> {
    /// How many words the bits of so many frames take.
    pub(crate) fn words_needed(count: u32) -> usize {
        level_words(count).sum()
    }

    /// Over so many words, as they are.
    pub(crate) fn over(words: W, count: u32) -> FreeBits<W> {
        let mut starts = [0; LEVELS_MAX + 1];
        let mut level_count = 0;
        for (level, words) in level_words(count).enumerate() {
            starts[level + 1] = starts[level] + words;
            level_count = level + 1;
        }
        FreeBits { words, starts, level_count }
    }

    fn word(&self, level: usize, no: usize) -> &AtomicU64 {
        &self.words[self.starts[level] + no]
    }

    /// Whether no bit leads to a free frame.
    #[inline]
    #[cfg(not(loom))]
    pub(crate) fn is_empty(&self) -> bool {
        self.word(self.level_count - 1, 0).load(SeqCst) == 0
    }

    /// The lowest frame whose bits are set.
    pub(crate) fn first(&self) -> Option<u32> {
        'from_above: loop {
            let mut no = 0;
            for level in (0..self.level_count).rev() {
                let bits = self.word(level, no).load(SeqCst);
                if bits == 0 {
                    if level + 1 == self.level_count {
                        return None;
                    }
                    self.clear_bit(level + 1, no);
                    if self.word(level, no).load(SeqCst) != 0 {
                        self.set_bit(level + 1, no); // B2
                    }
                    continue 'from_above;
                }
                no = no * WORD_BITS + bits.trailing_zeros() as usize;
            }
            return Some(no as u32);
        }
    }

    /// Sets the bits of a frame, as far as they are not set.
    pub(crate) fn set(&self, no: u32) {
        let mut no = no as usize;
        for level in 0..self.level_count {
            if !self.set_bit(level, no) && level > 0 {
                return;
            }
            no /= WORD_BITS;
        }
    }

    /// After a death: each word that has a bit gets its own bit above (B3).
    #[cfg(not(loom))]
    pub(crate) fn mend(&self) {
        for level in 1..self.level_count {
            let below = self.starts[level] - self.starts[level - 1];
            let has_bits = |no: &usize| self.word(level - 1, *no).load(SeqCst) != 0;
            (0..below).filter(has_bits).for_each(|no| _ = self.set_bit(level, no));
        }
    }

    /// The same after a death, which may have come between two levels.
    pub(crate) fn set_all_levels(&self, no: u32) {
        let mut no = no as usize;
        for level in 0..self.level_count {
            self.set_bit(level, no);
            no /= WORD_BITS;
        }
    }

    /// Clears the bit of a frame that was taken.
    pub(crate) fn clear(&self, no: u32) {
        self.clear_bit(0, no as usize);
    }

    /// Clears the bit of a frame that looks taken, unless it is free by now (B2).
    pub(crate) fn clear_unless(&self, no: u32, is_free: impl FnOnce() -> bool) {
        self.clear(no);
        if cfg!(feature = "planted-free-unlooked") {
            return;
        }
        if is_free() {
            self.set(no);
        }
    }

    /// True if it was not set.
    fn set_bit(&self, level: usize, no: usize) -> bool {
        let (word, bit) = (self.word(level, no / WORD_BITS), 1 << (no % WORD_BITS));
        word.load(SeqCst) & bit == 0 && word.fetch_or(bit, SeqCst) & bit == 0
    }

    fn clear_bit(&self, level: usize, no: usize) {
        self.word(level, no / WORD_BITS).fetch_and(!(1 << (no % WORD_BITS)), SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_frame_that_is_set_is_found_once_from_the_lowest_on() {
        for count in [1, 64, 65, 4096, 4097, 300_000] {
            let words: Vec<AtomicU64> =
                (0..FreeBits::<Vec<AtomicU64>>::words_needed(count)).map(|_| AtomicU64::new(0)).collect();
            let bits = FreeBits::over(words, count);
            assert_eq!(bits.first(), None);
            let set: Vec<u32> = (0..count).filter(|no| no % 7 == 0 || *no == count - 1).collect();
            set.iter().rev().for_each(|no| bits.set(*no));
            let found: Vec<u32> = std::iter::from_fn(|| bits.first().inspect(|no| bits.clear(*no))).collect();
            assert_eq!(found, set, "{count}");
        }
    }

    /// A thread has come upon an empty word, and died when it had cleared the bit above. Another one has freed a frame
    /// there meanwhile, and found that bit set. A third one, which had come by before, has taken the frame.
    #[test]
    fn a_frame_that_is_freed_after_a_death_between_two_levels_is_found() {
        let count = 300_000;
        let words: Vec<AtomicU64> =
            (0..FreeBits::<Vec<AtomicU64>>::words_needed(count)).map(|_| AtomicU64::new(0)).collect();
        let bits = FreeBits::over(words, count);
        bits.set(0);
        bits.clear_bit(2, 0);
        bits.clear(0);
        bits.mend();
        bits.set(1);
        assert_eq!(bits.first(), Some(1));
    }
}
