//! Settings for this machine, each with the measurement that decided it.
//!
//! A1. A default is left only for something better by a fifth, and known to be: the whole confidence intervals say so,
//!     not the medians. What is too close to tell is measured again while there is time; then the default stays.
//! A2. Nothing is advised from a noisy value; then the default stays, and it is said why.
//! A3. Values that are compared were measured in turn: a machine that is slower for a minute is slower for both.

use serde::{Deserialize, Serialize};

use crate::claims::Ask;
use crate::report::{Report, Unit};
use crate::retake::Spot;
use crate::show::quantity;

/// One recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// What to set.
    pub setting: String,
    /// To what.
    pub value: String,
    /// Name and value in the settings file of an environment, where it has such a setting.
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
const KIB: f64 = 1024.0;

/// What was decided: the value, its lines in the settings file, and why.
type Decided = (String, Option<(&'static str, String)>, String);

type Decide = fn(&mut Ask<'_>) -> Option<Decided>;

const SETTINGS: [(&str, &str, Decide); 7] = [
    ("sync method", "dsync", sync_method),
    ("page size", "4096", page_size),
    ("direct or buffered", "direct", direct),
    ("log block size", "4 KiB", log_block),
    ("spin time", "10 us", spin_time),
    ("number of workers", "one by processor", workers),
    ("message mechanism", "Unix stream", mechanism),
];

/// All recommendations.
#[must_use]
pub fn advise(report: &Report) -> Vec<Advice> {
    SETTINGS
        .into_iter()
        .map(|(setting, default, decide)| {
            let mut ask = Ask::new(report);
            match decide(&mut ask) {
                Some((value, config, because)) => Advice {
                    setting: setting.into(),
                    value,
                    config: config.map(|(name, value)| (name.into(), value)),
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
        .flat_map(|(_, _, decide)| {
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
        return Some(("dsync".into(), Some(("sync_method", "\"dsync\"".into())), because));
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
    Some((method.into(), Some(("sync_method", format!("\"{method}\""))), because))
}

/// What the device writes whole is the smallest page that it need not read first, and the one least likely to tear.
fn page_size(ask: &mut Ask<'_>) -> Option<Decided> {
    ask.fact("force", "blocks of the device")?;
    let physical = ask.report().machine.device.as_ref().and_then(|d| d.number("physical_block_size"));
    let bytes = physical.unwrap_or(4096).clamp(4096, 32768).next_power_of_two();
    let declared = physical.map_or("the device declares no block".to_owned(), |physical| {
        format!("the device writes blocks of {physical} bytes")
    });
    let mut read = |bytes: f64| {
        let x = Some(bytes);
        let known = ask.report().median("device/size", "read, at random", x).is_some();
        if known { ask.at("device/size", "read, at random", x) } else { None }
    };
    let because = match (read(4.0 * KIB), read(64.0 * KIB)) {
        (Some(small), Some(large)) => format!(
            "{declared}; a random read of 4 KiB takes {}, one of 64 KiB {}: larger pages would move more for each row",
            us(small),
            us(large)
        ),
        _ => format!("{declared}; larger pages would move more for each row"),
    };
    Some((bytes.to_string(), Some(("page_bytes", bytes.to_string())), because))
}

fn direct(ask: &mut Ask<'_>) -> Option<Decided> {
    let (direct, buffered) = ("direct, RWF_DSYNC", "buffered, RWF_DSYNC");
    if ask.report().value(TURNS, direct, None).is_none() {
        ask.get(TURNS, buffered)?;
        return Some(("buffered".into(), None, "this file system has no direct writes".into()));
    }
    let (is_faster, words) = clearly_faster(ask, TURNS, buffered, direct, None)?;
    let because = format!(
        "a durable write of 4 KiB takes {} direct and {} buffered, which is {words}; an environment takes the direct way where it is offered",
        us(ask.get(TURNS, direct)?),
        us(ask.get(TURNS, buffered)?)
    );
    Some(((if is_faster { "buffered" } else { "direct" }).into(), None, because))
}

/// The smallest write below which durability gets no cheaper: smaller blocks would cost as much, larger ones waste
/// space.
fn log_block(ask: &mut Ask<'_>) -> Option<Decided> {
    let has_direct = ask.report().value(TURNS, "direct, RWF_DSYNC", None).is_some();
    let way = if has_direct { "direct" } else { "buffered" };
    let series = format!("{way}, RWF_DSYNC");
    let least = format!("{series}, 512 bytes");
    if ask.report().value(TURNS, &least, None).is_none() {
        let block = ask.get(TURNS, &series)?;
        let because = format!("a durable write of 4 KiB takes {}, and smaller ones are refused here", us(block));
        return Some(("4 KiB".into(), None, because));
    }
    let (is_faster, words) = clearly_faster(ask, TURNS, &least, &series, None)?;
    let because = format!(
        "a durable {way} write of 4 KiB takes {}, one of 512 bytes {}, which is {words}",
        us(ask.get(TURNS, &series)?),
        us(ask.get(TURNS, &least)?)
    );
    Some(((if is_faster { "512 bytes" } else { "4 KiB" }).into(), None, because))
}

/// Spinning as long as a sleep and a wake-up take costs at most twice the best that could be done.
fn spin_time(ask: &mut Ask<'_>) -> Option<Decided> {
    if ask.report().machine.processor_count < 2 {
        return Some(("0 us".into(), None, "on one processor the one that is waited for cannot run meanwhile".into()));
    }
    let (group, series) = ("schedule/wake", "futex, other processor");
    let wake = ask.get(group, series)?;
    let (low, high) = ask.interval(group, series, None)?;
    if nearest_spin(low) != nearest_spin(high) {
        ask.is_undecided(group, series, None);
    }
    let because = format!(
        "waking a sleeper on another processor takes {}; a thread that spins as long and then sleeps loses at most as much again",
        us(wake)
    );
    Some((format!("{} us", nearest_spin(wake)), None, because))
}

/// Steps far apart, so that the same machine gets the same advice (A1).
fn nearest_spin(wake_ns: f64) -> u32 {
    let far = |step: &u32| (wake_ns / 1e3 / f64::from(*step)).ln().abs();
    [3, 10, 30, 100].into_iter().min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(10)
}

fn workers(ask: &mut Ask<'_>) -> Option<Decided> {
    ask.fact("force", "processors that may be used")?;
    let count = ask.report().machine.processor_count.clamp(1, 64);
    let direct = "threads: O_DIRECT, RWF_DSYNC";
    let has_direct = ask.report().value("force/writers", direct, Some(1.0)).is_some();
    let series = if has_direct { direct } else { "threads: write, fdatasync" };
    let gain = ask.at("force/writers", series, Some(1.0)).zip(ask.largest("force/writers", series));
    let gain = gain.map_or(String::new(), |(alone, (most, together))| {
        format!("; {most:.0} threads that write durably at once reach {:.1} times the rate of one", together / alone)
    });
    let because = format!("{count} processors may be used{gain}");
    Some((count.to_string(), Some(("redo_worker_count", count.to_string())), because))
}

fn mechanism(ask: &mut Ask<'_>) -> Option<Decided> {
    let group = if ask.report().machine.processor_count > 1 { "message/other" } else { "message/same" };
    let (x, unix, shared) = (Some(8.0 * KIB), "Unix stream", "shared memory, futex");
    let ((unix_low, unix_high), (low, high)) = (ask.interval(group, unix, x)?, ask.interval(group, shared, x)?);
    // Twice as fast, to be worth that it needs more care.
    let is_worth_it = high < 0.5 * unix_low;
    if !is_worth_it && low < 0.5 * unix_high {
        ask.is_undecided(group, unix, x);
        ask.is_undecided(group, shared, x);
    }
    let tcp = ask.report().median(group, "TCP", x);
    let because = format!(
        "8 KiB there and back take {} by Unix stream and {} by shared memory with a futex{}",
        us(ask.at(group, unix, x)?),
        us(ask.at(group, shared, x)?),
        tcp.map_or(String::new(), |ns| format!(", {} by TCP", us(ns)))
    );
    Some(((if is_worth_it { "shared memory" } else { unix }).into(), None, because))
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
        match &advice.config {
            Some((name, value)) if advice.is_measured => {
                text.push_str(&format!("{} = {}\n", one_line(name), one_line(value)))
            }
            _ => text.push_str("# (no setting of an environment)\n"),
        }
    }
    text
}

/// What comes from a device or a file must not end a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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
            put(&mut report, TURNS, "direct, RWF_DSYNC, 512 bytes", None, 101e3 * slower);
            put(&mut report, "schedule/wake", "futex, other processor", None, 34e3 * slower);
            put(&mut report, "message/other", "Unix stream", Some(8192.0), 45e3 * slower);
            put(&mut report, "message/other", "shared memory, futex", Some(8192.0), 46e3 * slower);
            let advice = advise(&report);
            advice.into_iter().map(|a| (a.setting, a.value, a.config, a.is_measured)).collect::<Vec<_>>()
        };
        let usual = advised(1.0);
        assert!(usual.iter().filter(|(.., is_measured)| *is_measured).count() >= 5, "{usual:?}");
        for slower in [0.8, 0.9, 1.15, 1.3] {
            assert_eq!(advised(slower), usual, "{slower}");
        }
    }

    #[test]
    fn a_wake_up_between_two_steps_is_measured_again() {
        let mut report = empty_report();
        put(&mut report, "schedule/wake", "futex, other processor", None, 17_000.0);
        widen(&mut report, "futex, other processor", 0.1);
        let spots = undecided(&report);
        assert_eq!(spots.len(), 1);
        assert_eq!(spots[0].group, "schedule/wake");
    }

    #[test]
    fn close_measurements_of_one_machine_give_the_same_spin_time() {
        for wake_ns in [22_000.0, 28_000.0, 36_000.0] {
            let mut report = empty_report();
            put(&mut report, "schedule/wake", "futex, other processor", None, wake_ns);
            assert_eq!(of(&advise(&report), "spin time").value, "30 us");
        }
    }

    #[test]
    fn a_line_break_in_a_name_does_not_end_a_comment() {
        let mut report = empty_report();
        report.machine.mount.source = "x\ncache_bytes = 1".into();
        assert!(fragment(&report, &[]).lines().all(|line| line.starts_with('#')));
    }
}
