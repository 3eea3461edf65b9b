//! Numbers from a seed. The same seed gives the same numbers for ever: seeds are how failures are written down.

/// A stream of numbers (SplitMix64, Steele et al. 2014). Good enough to choose with, and every seed is a good one.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    #[inline]
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A stream of its own, so that more draws here do not shift those there.
    pub fn fork(&mut self) -> Random {
        Random(self.number())
    }

    /// A number below `n`, as good as evenly spread (the bias is at most `n` / 2^64); 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `percent` times out of 100.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// An index, each as likely as its weight says.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut rest = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if rest < *weight {
                return index;
            }
            rest -= weight;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let mut random = Random::new(1);
        let drawn: std::collections::BTreeSet<usize> = (0..500).map(|_| random.weighted(&[0, 3, 0, 1])).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = Random::new(1);
        let mut seen = [0; 10];
        (0..1_000).for_each(|_| seen[random.below(10) as usize] += 1);
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_seed_is_a_stream_for_ever() {
        assert_eq!(Random::new(0).number(), 0xe220_a839_7b1d_cdaf);
    }
}
