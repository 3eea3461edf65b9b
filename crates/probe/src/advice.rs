//! Settings for this machine, each with the measurement that decided it.
//!
//! A1. A default is left only for something clearly better: small differences would change the advice from run to run.
//! A2. Nothing is advised from a noisy value; then the default stays, and it is said why.

use serde::{Deserialize, Serialize};

use crate::claims::Ask;
use crate::report::{Report, Unit};
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

/// All recommendations.
#[must_use]
pub fn advise(report: &Report) -> Vec<Advice> {
    let settings: [(&str, &str, Decide); 7] = [
        ("sync method", "dsync", sync_method),
        ("page size", "4096", page_size),
        ("direct or buffered", "direct", direct),
        ("log block size", "4 KiB", log_block),
        ("spin time", "10 us", spin_time),
        ("number of workers", "one by processor", workers),
        ("message mechanism", "Unix stream", mechanism),
    ];
    settings
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

fn us(ns: f64) -> String {
    quantity(Unit::Nanoseconds, ns)
}

/// Medians of the direct pair, or of the buffered one where the file system has no direct writes.
fn sync_pair(ask: &mut Ask<'_>) -> Option<(&'static str, f64, f64)> {
    let x = Some(4.0 * KIB);
    let has_direct = ask.report().value("force/method", "O_DIRECT, RWF_DSYNC", x).is_some();
    let (way, dsync, fdatasync) = if has_direct {
        ("direct", "O_DIRECT, RWF_DSYNC", "O_DIRECT, fdatasync")
    } else {
        ("buffered", "RWF_DSYNC", "write, fdatasync")
    };
    Some((way, ask.at("force/method", dsync, x)?, ask.at("force/method", fdatasync, x)?))
}

fn sync_method(ask: &mut Ask<'_>) -> Option<Decided> {
    if ask.report().machine.is_memory_only() {
        let because = "this file system is memory: no method makes anything durable".into();
        return Some(("dsync".into(), Some(("sync_method", "\"dsync\"".into())), because));
    }
    let (way, dsync, fdatasync) = sync_pair(ask)?;
    let method = if fdatasync < CLEARLY * dsync { "fdatasync" } else { "dsync" };
    let because = format!(
        "a durable {way} write of 4 KiB takes {} by RWF_DSYNC and {} by write and fdatasync",
        us(dsync),
        us(fdatasync)
    );
    Some((method.into(), Some(("sync_method", format!("\"{method}\""))), because))
}

/// What the device writes whole is the smallest page that it need not read first, and the one least likely to tear.
fn page_size(ask: &mut Ask<'_>) -> Option<Decided> {
    let small = ask.at("device/size", "read, at random", Some(4.0 * KIB))?;
    let physical = ask.report().machine.device.as_ref().and_then(|d| d.number("physical_block_size")).unwrap_or(4096);
    let bytes = physical.clamp(4096, 32768).next_power_of_two();
    let large = ask.report().value("device/size", "read, at random", Some(64.0 * KIB)).and_then(|v| v.median);
    let large = large.map_or(String::new(), |ns| format!(", one of 64 KiB {}", us(ns)));
    let because = format!(
        "the device writes blocks of {physical} bytes; a random read of 4 KiB takes {}{large}, so that larger pages would move more for each row",
        us(small)
    );
    Some((bytes.to_string(), Some(("page_bytes", bytes.to_string())), because))
}

fn direct(ask: &mut Ask<'_>) -> Option<Decided> {
    let x = Some(4.0 * KIB);
    let buffered = ask.at("force/method", "RWF_DSYNC", x)?;
    if ask.report().value("force/method", "O_DIRECT, RWF_DSYNC", x).is_none() {
        return Some(("buffered".into(), None, "this file system has no direct writes".into()));
    }
    let direct = ask.at("force/method", "O_DIRECT, RWF_DSYNC", x)?;
    let value = if buffered < CLEARLY * direct { "buffered" } else { "direct" };
    let because = format!(
        "a durable write of 4 KiB takes {} direct and {} buffered; an environment takes the direct way where it is offered",
        us(direct),
        us(buffered)
    );
    Some((value.into(), None, because))
}

/// As much as can be written durably in hardly more time than the least.
fn log_block(ask: &mut Ask<'_>) -> Option<Decided> {
    let has_direct = ask.report().value("force/size", "O_DIRECT, RWF_DSYNC", Some(4.0 * KIB)).is_some();
    let series = if has_direct { "O_DIRECT, RWF_DSYNC" } else { "RWF_DSYNC" };
    let least = ask.at("force/size", series, Some(4.0 * KIB))?;
    let (mut bytes, mut time) = (4.0 * KIB, least);
    for size in [16.0 * KIB, 64.0 * KIB] {
        match ask.report().value("force/size", series, Some(size)).and_then(|v| v.median) {
            Some(ns) if ns < 1.5 * least => (bytes, time) = (size, ask.at("force/size", series, Some(size))?),
            _ => break,
        }
    }
    let because = format!(
        "{} are durable in {}, 4 KiB in {}: so much may be gathered into one write of the log",
        quantity(Unit::Bytes, bytes),
        us(time),
        us(least)
    );
    Some((quantity(Unit::Bytes, bytes), None, because))
}

/// Spinning as long as a sleep and a wake-up take costs at most twice the best that could be done.
fn spin_time(ask: &mut Ask<'_>) -> Option<Decided> {
    if ask.report().machine.processor_count < 2 {
        return Some(("0 us".into(), None, "on one processor the one that is waited for cannot run meanwhile".into()));
    }
    let wake = ask.get("schedule/wake", "futex, other processor")?;
    // Steps far apart, so that the same machine gets the same advice (A1).
    let steps = [3.0, 10.0, 30.0, 100.0];
    let micros = steps.into_iter().min_by(|a, b| {
        let far = |step: &f64| (wake / 1e3 / step).ln().abs();
        far(a).total_cmp(&far(b))
    })?;
    let because = format!(
        "waking a sleeper on another processor takes {}; who spins as long and then sleeps loses at most as much again",
        us(wake)
    );
    Some((format!("{micros:.0} us"), None, because))
}

fn workers(ask: &mut Ask<'_>) -> Option<Decided> {
    let count = ask.report().machine.processor_count.clamp(1, 64);
    let (one, series) = (Some(1.0), "threads: O_DIRECT, RWF_DSYNC");
    let has_direct = ask.report().value("force/writers", series, one).is_some();
    let series = if has_direct { series } else { "threads: write, fdatasync" };
    let alone = ask.at("force/writers", series, one)?;
    let (most, together) = ask.largest("force/writers", series)?;
    let because = format!(
        "{count} processors may be used; {most:.0} threads that write durably at once reach {:.1} times the rate of one",
        together / alone
    );
    Some((count.to_string(), Some(("redo_worker_count", count.to_string())), because))
}

fn mechanism(ask: &mut Ask<'_>) -> Option<Decided> {
    let group = if ask.report().machine.processor_count > 1 { "message/other" } else { "message/same" };
    let x = Some(8.0 * KIB);
    let unix = ask.at(group, "Unix stream", x)?;
    let shared = ask.at(group, "shared memory, futex", x)?;
    let tcp = ask.report().value(group, "TCP", x).and_then(|v| v.median);
    let value = if shared < 0.5 * unix { "shared memory" } else { "Unix stream" };
    let because = format!(
        "8 KiB there and back take {} by Unix stream and {} by shared memory with a futex{}",
        us(unix),
        us(shared),
        tcp.map_or(String::new(), |ns| format!(", {} by TCP", us(ns)))
    );
    Some((value.into(), None, because))
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

    #[test]
    fn the_default_sync_method_is_left_only_for_something_clearly_better() {
        let check = |fdatasync: f64, expected: &str| {
            let mut report = empty_report();
            put(&mut report, "force/method", "O_DIRECT, RWF_DSYNC", Some(4096.0), 100.0);
            put(&mut report, "force/method", "O_DIRECT, fdatasync", Some(4096.0), fdatasync);
            let advice = advise(&report);
            let advice = of(&advice, "sync method");
            assert_eq!(advice.value, expected);
            assert_eq!(advice.based_on.len(), 2, "both values decided: {advice:?}");
        };
        check(90.0, "dsync");
        check(70.0, "fdatasync");
        check(300.0, "dsync");
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
