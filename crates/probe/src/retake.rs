//! What is measured again when time is left: values that are noisy, values that were not reached, and those on which a
//! recommendation hangs that they do not decide.
//!
//! R1. A retake replaces a value only by a better one: quiet instead of noisy, or known more narrowly.
//! R2. Values that were measured in turn, for a comparison, are replaced together or not at all.

use crate::advice;
use crate::report::{Report, Value};

/// A measured value by its place in the report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spot {
    /// Experiment and group, `force/method`.
    pub(crate) group: String,
    pub(crate) series: String,
    pub(crate) x: Option<f64>,
}

impl Spot {
    /// The experiment that measures it.
    pub(crate) fn experiment(&self) -> &str {
        self.group.split_once('/').map_or(&self.group, |(experiment, _)| experiment)
    }
}

/// All that should be measured again; `missed` are those that the time did not suffice for.
pub(crate) fn wanted(report: &Report, missed: &[Spot]) -> Vec<Spot> {
    let mut spots = missed.to_vec();
    for group in report.experiments.iter().flat_map(|e| &e.groups) {
        // What was computed from another measurement took no time of its own, and comes again with that one.
        let measured = group.points.iter().filter(|p| p.value.usage.wall_ns > 0);
        let noisy = measured.filter(|p| p.value.noisy.is_some());
        spots.extend(noisy.map(|p| Spot { group: group.id.clone(), series: p.series.clone(), x: p.x }));
    }
    for spot in advice::undecided(report) {
        if !spots.contains(&spot) {
            spots.push(spot);
        }
    }
    spots
}

/// Whether the new values are better than the old ones (R1).
pub(crate) fn is_better(new: &[&Value], old: &[&Value]) -> bool {
    let noisy = |values: &[&Value]| values.iter().filter(|v| v.noisy.is_some()).count();
    let width = |values: &[&Value]| -> f64 {
        values.iter().map(|v| (v.high - v.low) / v.high.abs().max(v.low.abs()).max(f64::MIN_POSITIVE)).sum()
    };
    match noisy(new).cmp(&noisy(old)) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => width(new) < width(old),
        std::cmp::Ordering::Greater => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Usage;
    use crate::report::tests::{empty_report, put};

    fn value(low: f64, high: f64, noisy: Option<&str>) -> Value {
        Value {
            median: noisy.is_none().then_some((low + high) / 2.0),
            low,
            high,
            p10: low,
            p90: high,
            min: low,
            max: high,
            run_count: 9,
            noisy: noisy.map(str::to_owned),
            usage: Usage::default(),
        }
    }

    #[test]
    fn a_retake_wins_by_being_quiet_and_then_by_being_narrow() {
        let (wide, narrow) = (value(90.0, 110.0, None), value(99.0, 101.0, None));
        let noisy = value(100.0, 100.0, Some("other programs"));
        assert!(is_better(&[&wide], &[&noisy]) && !is_better(&[&noisy], &[&wide]));
        assert!(is_better(&[&narrow], &[&wide]) && !is_better(&[&wide], &[&narrow]));
        assert!(!is_better(&[&narrow, &noisy], &[&wide, &wide]), "taken by turns: one noisy value spoils the round");
    }

    #[test]
    fn noisy_missed_and_undecided_values_are_wanted_and_computed_ones_are_not() {
        let mut report = empty_report();
        for series in ["quiet", "noisy", "computed"] {
            put(&mut report, "lock/alone", series, None, 5.0);
        }
        for point in &mut report.experiments[0].groups[0].points {
            point.value.usage.wall_ns = u64::from(point.series != "computed");
            point.value.noisy = (point.series != "quiet").then(|| "other programs".into());
        }
        let missed = Spot { group: "lock/fair".into(), series: "late".into(), x: Some(2.0) };
        let wanted = wanted(&report, std::slice::from_ref(&missed));
        let names: Vec<_> = wanted.iter().map(|spot| spot.series.as_str()).collect();
        assert_eq!(names, ["late", "noisy"]);
        assert!(wanted.iter().all(|spot| spot.experiment() == "lock"));
    }
}
