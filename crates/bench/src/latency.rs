//! How long things took: a histogram in nanoseconds, two digits exact, up to a minute.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

const MAX_NS: u64 = 60_000_000_000;

/// Gathers times; one for each thread, added up at the end.
pub(crate) struct Timer(Histogram<u64>);

impl Timer {
    pub(crate) fn new() -> Timer {
        // The bounds are constants that the crate accepts.
        Timer(Histogram::new_with_bounds(1, MAX_NS, 2).expect("1 to 60 s with 2 digits is a valid histogram"))
    }

    #[inline]
    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(MAX_NS).max(1));
    }

    pub(crate) fn add(&mut self, other: &Timer) {
        // Both have the same bounds, so this cannot be refused.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn summary(&self) -> Latency {
        let us = |ns: u64| ns as f64 / 1_000.0;
        let at = |quantile: f64| us(self.0.value_at_quantile(quantile));
        Latency {
            count: self.0.len(),
            mean_us: self.0.mean() / 1_000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.0.max()),
        }
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 90 % took no longer.
    pub p90_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "mean {:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
            self.mean_us, self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}
