//! Settings for this machine, each with the measurement that decided it.
//!
//! A1. A default is left only for something better by a fifth, and known to be: the whole confidence intervals say so,
//!     not the medians. What is too close to tell is measured again while there is time; then the default stays.
//! A2. Nothing is advised from a noisy value; then the default stays, and it is said why.
//! A3. Values that are compared were measured in turn: a machine that is slower for a minute is slower for both.
//! A4. Nothing is advised that an environment has no setting for. Such values are only reported.

use serde::{Deserialize, Serialize};

use crate::claims::Ask;
use crate::report::{Report, Unit};
use crate::retake::Spot;
use crate::show::{is_obeyed, quantity};

/// One recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// What to set.
    pub setting: String,
    /// To what.
    pub value: String,
    /// Name and value in the settings file of an environment. None: the default stays.
    pub config: Option<(String, String)>,
    /// Why, in words.
    pub because: String,
    /// The values that decided: group, series and place on the axis.
    pub based_on: Vec<String>,
    /// Whether it was decided by measuring; otherwise it is the default, and `because` says what was missing.
    pub is_measured: bool,
}

/// Something must be by this much better than the default to be advised (A1).
const CLEARLY: f64 = 0.8;

/// What was decided: the value, as text and as the settings file writes it, and why.
type Decided = (String, String, String);

type Decide = fn(&mut Ask<'_>) -> Option<Decided>;

/// What is recommended: in words, by its name in the settings file, the default, and how it is decided.
const SETTINGS: [(&str, &str, &str, Decide); 1] = [("sync method", "sync_method", "dsync", sync_method)];

/// All recommendations.
#[must_use]
pub fn advise(report: &Report) -> Vec<Advice> {
    SETTINGS
        .into_iter()
        .map(|(setting, name, default, decide)| {
            let mut ask = Ask::new(report);
            match decide(&mut ask) {
                Some((value, written, because)) => Advice {
                    setting: setting.into(),
                    value,
                    config: Some((name.into(), written)),
                    because,
                    based_on: ask.used,
                    is_measured: true,
                },
                None => Advice {
                    setting: setting.into(),
                    value: default.into(),
                    config: None,
                    because: format!(
                        "the default stays: {}",
                        ask.missing.unwrap_or_else(|| "nothing was measured".into())
                    ),
                    based_on: Vec::new(),
                    is_measured: false,
                },
            }
        })
        .collect()
}

/// The values that should be known more narrowly, for the recommendations not to hang on chance.
pub(crate) fn undecided(report: &Report) -> Vec<Spot> {
    SETTINGS
        .into_iter()
        .flat_map(|(.., decide)| {
            let mut ask = Ask::new(report);
            decide(&mut ask);
            ask.undecided
        })
        .collect()
}

fn us(ns: f64) -> String {
    quantity(Unit::Nanoseconds, ns)
}

/// Whether `other` takes clearly less time than `default` (A1), both of one group and place, with what is to be said of
/// it.
fn clearly_faster(
    ask: &mut Ask<'_>,
    group: &str,
    other: &str,
    default: &str,
    x: Option<f64>,
) -> Option<(bool, String)> {
    let ((default_low, default_high), (low, high)) = (ask.interval(group, default, x)?, ask.interval(group, other, x)?);
    if high < CLEARLY * default_low {
        return Some((true, format!("faster by {:.0} % at least", (1.0 - high / default_low) * 100.0)));
    }
    if low < CLEARLY * default_high {
        ask.is_undecided(group, default, x);
        ask.is_undecided(group, other, x);
        return Some((false, "too close to a fifth to leave the default for".into()));
    }
    let words = if high < default_low { "faster, but by less than a fifth" } else { "no faster" };
    Some((false, words.into()))
}

const TURNS: &str = "force/turns";

fn sync_method(ask: &mut Ask<'_>) -> Option<Decided> {
    if ask.report().machine.is_memory_only() {
        let because = "this file system is memory: no method makes anything durable".into();
        return Some(("dsync".into(), "\"dsync\"".into(), because));
    }
    let has_direct = ask.report().value(TURNS, "direct, RWF_DSYNC", None).is_some();
    let way = if has_direct { "direct" } else { "buffered" };
    let (dsync, fdatasync) = (format!("{way}, RWF_DSYNC"), format!("{way}, fdatasync"));
    let (is_faster, words) = clearly_faster(ask, TURNS, &fdatasync, &dsync, None)?;
    let method = if is_faster { "fdatasync" } else { "dsync" };
    let because = format!(
        "a durable {way} write of 4 KiB takes {} by RWF_DSYNC and {} by write and fdatasync, which is {words}",
        us(ask.get(TURNS, &dsync)?),
        us(ask.get(TURNS, &fdatasync)?)
    );
    Some((method.into(), format!("\"{method}\""), because))
}

/// The recommendations as a settings file of an environment, with the reasons as comments.
#[must_use]
pub fn fragment(report: &Report, advice: &[Advice]) -> String {
    let mut text = format!(
        "# Settings for {}, {} on {}, kernel {}.\n# Measured by ledgerstone probe; each line names what decided it.\n",
        one_line(&report.machine.processor),
        one_line(&report.machine.mount.kind),
        one_line(&report.machine.mount.source),
        one_line(&report.machine.kernel)
    );
    for advice in advice {
        text.push_str(&format!(
            "\n# {}: {}\n# {}.\n",
            one_line(&advice.setting),
            one_line(&advice.value),
            one_line(&advice.because)
        ));
        for measured in &advice.based_on {
            text.push_str(&format!("#   {}\n", one_line(measured)));
        }
        if let Some((name, value)) = advice.config.as_ref().filter(|_| advice.is_measured) {
            text.push_str(&format!("{} = {}\n", one_line(name), one_line(value)));
        }
    }
    text
}

/// What comes from a device or a file must not end a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{empty_report, put};

    fn of<'a>(advice: &'a [Advice], setting: &str) -> &'a Advice {
        advice.iter().find(|a| a.setting == setting).expect("advised")
    }

    #[test]
    fn without_measurements_every_default_stays_and_nothing_is_written() {
        let report = empty_report();
        let advice = advise(&report);
        assert!(advice.iter().all(|a| !a.is_measured && a.config.is_none() && a.because.contains("default stays")));
        let text = fragment(&report, &advice);
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        assert_eq!(text.matches("the default stays: ").count(), advice.len(), "{text}");
    }

    #[test]
    fn all_that_is_advised_is_a_setting() {
        let mut report = empty_report();
        put(&mut report, TURNS, "direct, RWF_DSYNC", None, 100.0);
        put(&mut report, TURNS, "direct, fdatasync", None, 50.0);
        let advice = advise(&report);
        assert!(advice.iter().all(|a| a.is_measured && a.config.is_some()), "{advice:?}");
        let text = fragment(&report, &advice);
        let set: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert_eq!(set, ["sync_method = \"fdatasync\""]);
        assert!(!text.contains("no setting"), "{text}");
    }

    #[test]
    fn a_noisy_value_is_named_and_its_setting_left_out() {
        let mut report = empty_report();
        put(&mut report, TURNS, "direct, RWF_DSYNC", None, 100.0);
        put(&mut report, TURNS, "direct, fdatasync", None, 50.0);
        let points = report.experiments.iter_mut().flat_map(|e| &mut e.groups).flat_map(|g| &mut g.points);
        for point in points.filter(|p| p.series == "direct, fdatasync") {
            (point.value.median, point.value.noisy) = (None, Some("other programs used 40 % of a processor".into()));
        }
        let text = fragment(&report, &advise(&report));
        let comment = "# sync method: dsync\n# the default stays: force/turns: direct, fdatasync is noisy: \
                       other programs used 40 % of a processor.\n";
        assert!(text.contains(comment) && !text.contains("sync_method ="), "{text}");
    }

    fn widen(report: &mut Report, series: &str, part: f64) {
        let groups = report.experiments.iter_mut().flat_map(|e| &mut e.groups);
        for point in groups.flat_map(|g| &mut g.points).filter(|p| p.series == series) {
            let median = point.value.median.expect("quiet");
            (point.value.low, point.value.high) = (median * (1.0 - part), median * (1.0 + part));
        }
    }

    #[test]
    fn a_default_is_left_only_for_what_is_better_by_a_fifth_in_the_whole_interval() {
        let check = |fdatasync: f64, width: f64, expected: &str, is_decided: bool| {
            let mut report = empty_report();
            put(&mut report, TURNS, "direct, RWF_DSYNC", None, 100.0);
            put(&mut report, TURNS, "direct, fdatasync", None, fdatasync);
            widen(&mut report, "direct, fdatasync", width);
            let advice = advise(&report);
            let advice = of(&advice, "sync method");
            assert_eq!(advice.value, expected, "{fdatasync} {width}");
            assert_eq!(advice.based_on.len(), 2, "both values decided: {advice:?}");
            assert_eq!(undecided(&report).is_empty(), is_decided, "{fdatasync} {width}: {:?}", undecided(&report));
        };
        check(90.0, 0.01, "dsync", true);
        check(70.0, 0.01, "fdatasync", true);
        check(300.0, 0.01, "dsync", true);
        // The border is inside the interval: the default, whichever side the median is on, and another measurement.
        check(78.0, 0.05, "dsync", false);
        check(82.0, 0.05, "dsync", false);
    }

    #[test]
    fn a_minute_in_which_everything_is_slower_changes_no_advice() {
        let advised = |slower: f64| {
            let mut report = empty_report();
            for (series, ns) in
                [("direct, RWF_DSYNC", 105e3), ("direct, fdatasync", 108e3), ("buffered, RWF_DSYNC", 146e3)]
            {
                put(&mut report, TURNS, series, None, ns * slower);
            }
            let advice = advise(&report);
            advice.into_iter().map(|a| (a.setting, a.value, a.config, a.is_measured)).collect::<Vec<_>>()
        };
        let usual = advised(1.0);
        assert!(usual.iter().filter(|(.., is_measured)| *is_measured).count() == 1, "{usual:?}");
        for slower in [0.8, 0.9, 1.15, 1.3] {
            assert_eq!(advised(slower), usual, "{slower}");
        }
    }

    #[test]
    fn a_line_break_in_a_name_does_not_end_a_comment() {
        let mut report = empty_report();
        report.machine.mount.source = "x\ncache_bytes = 1".into();
        assert!(fragment(&report, &[]).lines().all(|line| line.starts_with('#')));
    }
}
