//! Order statistics of samples: median, its confidence interval without assuming a distribution, percentiles.

/// What samples say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stats {
    pub(crate) count: usize,
    pub(crate) median: f64,
    /// 95 % confidence interval of the median, or the whole range when there are too few samples for one.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) p10: f64,
    pub(crate) p90: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Stats {
    /// `None` without samples. Sorts them.
    pub(crate) fn of(samples: &mut [f64]) -> Option<Stats> {
        samples.sort_unstable_by(f64::total_cmp);
        let (first, last) = (*samples.first()?, *samples.last()?);
        let (low, high) = median_ranks(samples.len());
        Some(Stats {
            count: samples.len(),
            median: percentile(samples, 50.0),
            low: samples[low],
            high: samples[high],
            p10: percentile(samples, 10.0),
            p90: percentile(samples, 90.0),
            min: first,
            max: last,
        })
    }

    /// Half the width of the confidence interval as a part of the median.
    pub(crate) fn half_width(&self) -> f64 {
        if self.median == 0.0 {
            return if self.high > self.low { f64::INFINITY } else { 0.0 };
        }
        (self.high - self.low) / 2.0 / self.median.abs()
    }
}

/// The value below which `percent` of the sorted samples lie, between two of them where it falls between.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = percent / 100.0 * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above.min(last)] - sorted[below]) * (at - below as f64)
}

/// Ranks of the order statistics that hold the median with 95 % confidence: the number of samples below the median is
/// binomial with one half, whatever their distribution.
fn median_ranks(count: usize) -> (usize, usize) {
    if count < 6 {
        return (0, count.saturating_sub(1)); // The whole range holds it with less than 95 %.
    }
    let n = count as f64;
    // The normal approximation is within one rank of the exact one from six samples on; rounding outwards is safe.
    let low = ((n - 1.0) / 2.0 - 0.98 * n.sqrt()).floor().max(0.0) as usize;
    (low, count - 1 - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_percentiles_of_a_ladder_are_its_rungs() {
        let mut samples: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let stats = Stats::of(&mut samples).expect("samples");
        assert_eq!((stats.median, stats.p10, stats.p90, stats.min, stats.max), (50.0, 10.0, 90.0, 0.0, 100.0));
        assert_eq!((stats.low, stats.high), (40.0, 60.0), "the ranks of 95 % confidence for 101 samples");
    }

    #[test]
    fn few_samples_have_their_whole_range_as_interval() {
        let stats = Stats::of(&mut [3.0, 1.0, 2.0]).expect("samples");
        assert_eq!((stats.low, stats.median, stats.high), (1.0, 2.0, 3.0));
        assert!(Stats::of(&mut []).is_none());
    }

    #[test]
    fn one_outlier_moves_neither_median_nor_interval() {
        let mut samples = vec![10.0; 20];
        samples.push(1e9);
        let stats = Stats::of(&mut samples).expect("samples");
        assert_eq!((stats.low, stats.median, stats.high, stats.max), (10.0, 10.0, 10.0, 1e9));
        assert_eq!(stats.half_width(), 0.0);
    }
}
