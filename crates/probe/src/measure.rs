//! One measurement: runs until the median is known narrowly enough or the time is out, and a look at who disturbed.
//!
//! A run is `n` iterations timed together, `n` chosen so that the clock's step and the cost of reading it vanish in it.
//! The value of a run is its time by iteration, or the rate. The paper's rule holds: the null cost is stated (in
//! [`Clock`]), not subtracted, and runs are long enough for it not to matter.

use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::ProbeError;
use crate::noise::NoiseWatch;
use crate::plan::Effort;
use crate::report::{Unit, Usage, Value};
use crate::retake;
use crate::stats::Stats;
use crate::stop::Stop;
use crate::sys::usage::{self, Used};

/// How many iterations a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// As many as make it long enough for the clock.
    Auto,
    /// One: what is measured is long, or cannot be repeated at once.
    One,
}

/// Half the width of the confidence interval above which a value is noisy.
const NOISY_HALF_WIDTH: f64 = 0.25;
/// Fewer runs say nothing.
const RUN_COUNT_LEAST: usize = 3;

/// What a measurement may use.
pub(crate) struct Limits<'a> {
    pub(crate) effort: Effort,
    pub(crate) time: Duration,
    /// After this no run begins.
    pub(crate) deadline: Instant,
    pub(crate) clock: &'a Clock,
    pub(crate) stop: &'a Stop,
}

/// Times of iterations become values of the unit: `amount` is what one iteration moves or does.
pub(crate) fn to_unit(unit: Unit, ns: f64, amount: f64) -> f64 {
    match unit {
        Unit::Nanoseconds => ns,
        Unit::Bytes | Unit::Count => amount,
        Unit::BytesPerSecond | Unit::PerSecond => amount * 1e9 / ns.max(1e-3),
    }
}

/// Measures. `run` does that many iterations and returns the time they took together, without what it prepared.
pub(crate) fn measure(
    limits: &Limits<'_>,
    noise: &mut NoiseWatch,
    batch: Batch,
    unit: Unit,
    amount: f64,
    run: &mut dyn FnMut(u64) -> Result<Duration, ProbeError>,
) -> Result<Value, ProbeError> {
    let count = match batch {
        Batch::One => 1,
        Batch::Auto => calibrate(limits, run)?,
    };
    sample(limits, noise, &mut || Ok(to_unit(unit, run(count)?.as_nanos() as f64 / count as f64, amount)))
}

/// The same for runs that return a value of the unit themselves.
pub(crate) fn sample(
    limits: &Limits<'_>,
    noise: &mut NoiseWatch,
    run: &mut dyn FnMut() -> Result<f64, ProbeError>,
) -> Result<Value, ProbeError> {
    let mut values = sample_all(limits, noise, 1, &mut |values| {
        values.push(run()?);
        Ok(())
    })?;
    values.pop().ok_or_else(|| ProbeError::Missing("a run without a value".into()))
}

/// The same for runs that push `count` values each: steps of one thing, or things that are compared and taken by turns.
/// The runs go on until each value is known narrowly.
pub(crate) fn sample_all(
    limits: &Limits<'_>,
    noise: &mut NoiseWatch,
    count: usize,
    run: &mut dyn FnMut(&mut Vec<f64>) -> Result<(), ProbeError>,
) -> Result<Vec<Value>, ProbeError> {
    let mut values = attempt(limits, noise, count, run)?;
    // Disturbed by others: they may be gone soon. A second attempt, unless the time is short.
    let left = limits.deadline.saturating_duration_since(Instant::now());
    if values.iter().any(|v| v.noisy.is_some()) && limits.effort != Effort::Quick && left > limits.time * 8 {
        let second = attempt(limits, noise, count, run)?;
        if retake::is_better(&second.iter().collect::<Vec<_>>(), &values.iter().collect::<Vec<_>>()) {
            values = second;
        }
    }
    Ok(values)
}

fn attempt(
    limits: &Limits<'_>,
    noise: &mut NoiseWatch,
    count: usize,
    run: &mut dyn FnMut(&mut Vec<f64>) -> Result<(), ProbeError>,
) -> Result<Vec<Value>, ProbeError> {
    let mut samples = vec![Vec::new(); count];
    let mut values = Vec::new();
    let mut run_count = 0;
    let since = noise.look();
    let before = usage::used();
    let mut look_at = limits.effort.run_count_min();
    loop {
        limits.stop.check()?;
        values.clear();
        run(&mut values)?;
        samples.iter_mut().zip(&values).for_each(|(samples, value)| samples.push(*value));
        run_count += 1;
        if run_count >= look_at {
            let is_narrow = |samples: &Vec<f64>| {
                Stats::of(&mut samples.clone()).is_some_and(|s| s.half_width() <= limits.effort.tolerance())
            };
            if samples.iter().all(is_narrow) {
                break;
            }
            look_at += look_at.div_ceil(4);
        }
        let elapsed = since.elapsed();
        // Beyond its own time only for the few runs without which nothing could be said.
        let is_late = elapsed > limits.time * 4 || Instant::now() >= limits.deadline;
        if elapsed > limits.time && (run_count >= RUN_COUNT_LEAST || is_late) {
            break;
        }
    }
    let usage = since_then(before, since.elapsed());
    let disturbance = noise.disturbance(since);
    Ok(samples.iter_mut().map(|samples| to_value(samples, disturbance.clone(), usage)).collect())
}

/// How many iterations make a run long enough. They also warm up what can be warm.
fn calibrate(limits: &Limits<'_>, run: &mut dyn FnMut(u64) -> Result<Duration, ProbeError>) -> Result<u64, ProbeError> {
    let least = limits.clock.run_time_min();
    let enough = least.max(limits.time / 60);
    let mut count = 1_u64;
    loop {
        limits.stop.check()?;
        let begin = Instant::now();
        let time = run(count)?;
        // What a run does untimed takes time too: a value wants more than a few runs.
        let (wall, wall_max) = (begin.elapsed(), limits.time / 20);
        if time >= enough || (time >= least && wall >= wall_max) || count >= 1 << 40 {
            return Ok(count);
        }
        let to = |goal: Duration, now: Duration| goal.as_secs_f64() / now.as_secs_f64().max(1e-9);
        let factor = to(enough, time).min(to(least, time).max(to(wall_max, wall)));
        count = (count as f64 * (factor * 1.2).clamp(2.0, 100.0)).ceil() as u64;
    }
}

fn since_then(before: Used, wall: Duration) -> Usage {
    let now = usage::used();
    Usage {
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        user_ns: now.user_ns.saturating_sub(before.user_ns),
        system_ns: now.system_ns.saturating_sub(before.system_ns),
        voluntary_switches: now.voluntary.saturating_sub(before.voluntary),
        involuntary_switches: now.involuntary.saturating_sub(before.involuntary),
    }
}

/// Samples become a value: noisy if somebody disturbed, if they disagree, or if there are too few.
pub(crate) fn to_value(samples: &mut [f64], disturbance: Option<String>, usage: Usage) -> Value {
    let stats = Stats::of(samples).unwrap_or(Stats {
        count: 0,
        median: 0.0,
        low: 0.0,
        high: 0.0,
        p10: 0.0,
        p90: 0.0,
        min: 0.0,
        max: 0.0,
    });
    let noisy = disturbance.or_else(|| {
        if stats.count < RUN_COUNT_LEAST {
            Some(format!("only {} runs in the time", stats.count))
        } else if stats.half_width() > NOISY_HALF_WIDTH {
            Some(format!("the runs disagree: the median is known to {:.0} %", stats.half_width() * 100.0))
        } else {
            None
        }
    });
    Value {
        median: noisy.is_none().then_some(stats.median),
        low: stats.low,
        high: stats.high,
        p10: stats.p10,
        p90: stats.p90,
        min: stats.min,
        max: stats.max,
        run_count: stats.count as u64,
        noisy,
        usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(effort: Effort, body: impl FnOnce(&Limits<'_>)) {
        let clock = Clock { source: "test".into(), resolution_ns: 20, null_ns: 20.0, is_coarse: false };
        let stop = Stop::new();
        body(&Limits {
            effort,
            time: Duration::from_millis(20),
            deadline: Instant::now() + Duration::from_secs(1),
            clock: &clock,
            stop: &stop,
        });
    }

    /// The clock is the function's own: nothing here depends on the machine's speed.
    fn pretend(times_ns: impl Iterator<Item = u64> + Clone) -> Value {
        let mut times = times_ns.cycle();
        let mut value = None;
        with(Effort::Quick, |limits| {
            let mut run = |n: u64| Ok(Duration::from_nanos(n * times.next().unwrap_or(1)));
            value = measure(limits, &mut NoiseWatch::new(), Batch::One, Unit::Nanoseconds, 1.0, &mut run).ok();
        });
        value.expect("measured")
    }

    #[test]
    fn runs_that_agree_end_early() {
        let mut value = pretend([1000].into_iter());
        value.noisy = None; // What runs beside the test does not matter here.
        assert_eq!((value.low, value.high, value.run_count), (1000.0, 1000.0, 5));
    }

    #[test]
    fn runs_that_disagree_are_noisy_and_have_no_median() {
        let mut samples: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 100.0 } else { 1000.0 }).collect();
        let value = to_value(&mut samples, None, Usage::default());
        assert!(value.median.is_none() && value.noisy.expect("noisy").contains("disagree"));
    }

    #[test]
    fn a_disturbed_value_has_no_median_however_narrow() {
        let value = to_value(&mut [5.0; 30], Some("other programs".into()), Usage::default());
        assert_eq!((value.median, value.low), (None, 5.0));
        assert_eq!(to_value(&mut [5.0; 30], None, Usage::default()).median, Some(5.0));
    }

    #[test]
    fn short_iterations_are_batched_for_the_clock() {
        with(Effort::Quick, |limits| {
            let count = calibrate(limits, &mut |n| Ok(Duration::from_nanos(n))).expect("counts");
            assert!(Duration::from_nanos(count) >= limits.clock.run_time_min());
        });
    }

    #[test]
    fn untimed_work_does_not_make_runs_longer_than_the_measurement() {
        with(Effort::Default, |limits| {
            // A timed iteration takes 100 ns; the untimed rest 5 ms.
            let mut calls = 0;
            let count = calibrate(limits, &mut |n| {
                calls += 1;
                std::thread::sleep(Duration::from_millis(5));
                Ok(Duration::from_nanos(100 * n))
            });
            let count = count.expect("counts");
            assert!(Duration::from_nanos(100 * count) >= limits.clock.run_time_min());
            assert!(calls <= 4, "it went on for {calls} runs of 5 ms, for a measurement of 20");
        });
    }

    #[test]
    fn a_request_to_stop_ends_a_measurement_between_two_runs() {
        with(Effort::Default, |limits| {
            let mut runs = 0;
            let result = measure(limits, &mut NoiseWatch::new(), Batch::One, Unit::Nanoseconds, 1.0, &mut |_| {
                runs += 1;
                limits.stop.ask();
                Ok(Duration::from_nanos(1))
            });
            assert!(result.is_err_and(|e| e.is_stop()));
            assert_eq!(runs, 1);
        });
    }

    #[test]
    fn rates_are_amounts_by_time() {
        assert_eq!(to_unit(Unit::BytesPerSecond, 1000.0, 4096.0), 4.096e9);
        assert_eq!(to_unit(Unit::Nanoseconds, 1000.0, 4096.0), 1000.0);
    }
}
