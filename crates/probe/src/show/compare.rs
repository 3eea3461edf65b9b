//! Two reports side by side: two machines, or two file systems of one.

use std::fmt::Write;

use crate::report::{Better, Report, Unit};
use crate::show::number::{quantity, value_words};

/// Values that differ by less than this part are called the same.
const SAME: f64 = 0.05;

/// A table of everything that both have measured, with how many times as good the second is.
#[must_use]
pub fn compare(a: &Report, b: &Report) -> String {
    let mut text = String::new();
    let _ = write_comparison(&mut text, a, b); // A string takes everything.
    text
}

fn write_comparison(text: &mut String, a: &Report, b: &Report) -> std::fmt::Result {
    for (name, report) in [("A", a), ("B", b)] {
        let machine = &report.machine;
        let memory = quantity(Unit::Bytes, machine.memory_bytes as f64);
        writeln!(
            text,
            "{name}: {}, {} processors, {memory}, Linux {}; {} on {} ({})",
            machine.processor,
            machine.processor_count,
            machine.kernel,
            machine.mount.kind,
            machine.mount.source,
            machine.mount.at
        )?;
    }
    for group in a.experiments.iter().flat_map(|e| &e.groups) {
        let Some(other) = b.group(&group.id) else { continue };
        writeln!(text, "\n{}: {}", group.id, group.title)?;
        for point in &group.points {
            let Some(theirs) = other.points.iter().find(|p| p.series == point.series && p.x == point.x) else {
                continue;
            };
            let place = match (point.x, &group.x) {
                (Some(x), Some(axis)) => format!("{}, {}", point.series, quantity(axis.unit, x)),
                _ => point.series.clone(),
            };
            let (ours, theirs) = (&point.value, &theirs.value);
            let words = match (ours.median, theirs.median) {
                (Some(a), Some(b)) => relation(group.better, a, b),
                _ => "noisy: not compared".into(),
            };
            writeln!(
                text,
                "  {place:<50} {:>24} {:>24}  {words}",
                value_words(group.unit, ours),
                value_words(other.unit, theirs)
            )?;
        }
    }
    writeln!(text, "\nservices")?;
    for ours in &a.services {
        if let Some(theirs) = b.services.iter().find(|s| s.name == ours.name) {
            writeln!(text, "  {:<20} {:>24} {:>24}", ours.name, ours.rating.words(), theirs.rating.words())?;
        }
    }
    writeln!(text, "\nrecommended")?;
    for ours in &a.advice {
        if let Some(theirs) = b.advice.iter().find(|s| s.setting == ours.setting) {
            writeln!(text, "  {:<20} {:>24} {:>24}", ours.setting, ours.value, theirs.value)?;
        }
    }
    Ok(())
}

fn relation(better: Better, a: f64, b: f64) -> String {
    let times = match better {
        Better::Lower => a / b,
        Better::Higher | Better::Neither => b / a,
    };
    if !times.is_finite() || times <= 0.0 {
        return String::new();
    }
    match better {
        _ if (times - 1.0).abs() < SAME => "the same".into(),
        Better::Neither => format!("B is {times:.2} times A"),
        _ if times > 1.0 => format!("B is {times:.2} times as good"),
        _ => format!("A is {:.2} times as good", 1.0 / times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{empty_report, put};

    #[test]
    fn what_both_have_is_compared_and_the_better_is_named() {
        let (mut a, mut b) = (empty_report(), empty_report());
        put(&mut a, "force/method", "x", Some(4096.0), 100.0);
        put(&mut b, "force/method", "x", Some(4096.0), 200.0);
        put(&mut a, "force/method", "only here", None, 1.0);
        let text = compare(&a, &b);
        assert!(text.contains("A is 2.00 times as good"), "{text}");
        assert!(!text.contains("only here"));
        assert_eq!(relation(Better::Higher, 1.0, 3.0), "B is 3.00 times as good");
        assert_eq!(relation(Better::Lower, 1.0, 1.01), "the same");
        assert_eq!(relation(Better::Lower, 0.0, 0.0), "");
    }
}
