//! The clock: what it resolves and what reading it costs. A clock too coarse for a measurement makes its runs longer,
//! and one too coarse for any is said to be.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What the monotonic clock is worth here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// What the kernel reads it from.
    pub source: String,
    /// The smallest step it was seen to take.
    pub resolution_ns: u64,
    /// The null cost: starting and stopping a measurement of nothing.
    pub null_ns: f64,
    /// Whether it is too coarse to time single system calls.
    pub is_coarse: bool,
}

impl Clock {
    /// Above this a clock cannot time a system call.
    const COARSE_NS: u64 = 1_000;
    /// A run lasts at least this many steps of the clock, so that a step is a thousandth of it.
    const STEPS_A_RUN: u64 = 1_000;

    /// Looks at the clock for some milliseconds.
    #[must_use]
    pub fn look() -> Clock {
        let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let begin = Instant::now();
        Clock::of(source.map_or_else(|_| "unknown".into(), |s| s.trim().to_owned()), || {
            u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
    }

    /// The same for any clock; for tests, one that is coarse.
    fn of(source: String, mut now_ns: impl FnMut() -> u64) -> Clock {
        let (first, mut last) = (now_ns(), 0);
        let (mut steps, mut reads, mut smallest) = (0_u32, 0_u64, u64::MAX);
        // Until it has moved often enough, or has been read for very long without moving.
        while steps < 2_000 && reads < 20_000_000 {
            let now = now_ns();
            reads += 1;
            if now > last.max(first) {
                if last > 0 {
                    smallest = smallest.min(now - last);
                    steps += 1;
                }
                last = now;
                if now - first > 50_000_000 && steps > 2 {
                    break;
                }
            }
        }
        let resolution_ns = if steps == 0 { u64::MAX } else { smallest.max(1) };
        let null_ns = if reads == 0 { 0.0 } else { last.saturating_sub(first) as f64 / reads as f64 };
        Clock { source, resolution_ns, null_ns, is_coarse: resolution_ns > Clock::COARSE_NS }
    }

    /// How long a run must last for its time to mean something.
    pub(crate) fn run_time_min(&self) -> Duration {
        let steps = Duration::from_nanos(self.resolution_ns.min(100_000_000).saturating_mul(Clock::STEPS_A_RUN));
        steps.clamp(Duration::from_micros(50), Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_moves_by_milliseconds_is_coarse_and_makes_runs_long() {
        let mut ticks = 0_u64;
        let clock = Clock::of("test".into(), || {
            ticks += 1;
            ticks / 100 * 4_000_000 + 1
        });
        assert_eq!(clock.resolution_ns, 4_000_000);
        assert!(clock.is_coarse);
        assert_eq!(clock.run_time_min(), Duration::from_secs(4));
    }

    #[test]
    fn a_clock_that_stands_still_ends_the_looking() {
        let clock = Clock::of("test".into(), || 7);
        assert!(clock.is_coarse);
        assert_eq!(clock.resolution_ns, u64::MAX);
        assert_eq!(clock.run_time_min(), Duration::from_secs(10), "and no arithmetic overflows");
    }

    #[test]
    fn a_fine_clock_is_fine() {
        let mut now = 0;
        let clock = Clock::of("test".into(), || {
            now += 20;
            now
        });
        assert!(!clock.is_coarse);
        assert_eq!((clock.resolution_ns, clock.null_ns.round()), (20, 20.0));
    }
}
