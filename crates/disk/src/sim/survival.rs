//! What a crash leaves, chosen by seed.
//!
//! Tossing a fair coin for each piece would almost never keep all, keep none, or lose just one, and those are where the
//! bugs are. So each crash first draws a [`Fate`], the odds for all that follows.

/// A stream of numbers made from a seed (SplitMix64, Steele et al. 2014).
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The odds of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    /// Of 16 pending pieces this many survive on average.
    kept_of_16: u8,
    /// Of 16 surviving pieces that were written more than once this many hold an older version.
    older_of_16: u8,
    /// Pages of 4096 bytes survive whole or not at all.
    whole_pages: bool,
}

impl Fate {
    pub(super) fn choose(draw: &mut Draw) -> Fate {
        let kept_of_16 = [0, 16, 16, 15, 14, 8, 8, 8, 2, 1][draw.below(10) as usize];
        let older_of_16 = [0, 0, 4, 8][draw.below(4) as usize];
        Fate { kept_of_16, older_of_16, whole_pages: draw.one_in(3) }
    }

    pub(super) fn keeps(self, draw: &mut Draw) -> bool {
        match self.kept_of_16 {
            0 => false,
            16 => true,
            odds => draw.below(16) < u64::from(odds),
        }
    }

    pub(super) fn keeps_older(self, draw: &mut Draw) -> bool {
        self.older_of_16 > 0 && draw.below(16) < u64::from(self.older_of_16)
    }

    pub(super) fn whole_pages(self) -> bool {
        self.whole_pages
    }
}
