//! The report as plain text, at most 100 characters wide.

use std::fmt::Write;

use crate::report::{Axis, Group, Outcome, Report, Status};
use crate::show::number::{quantity, value_words};

/// The whole report.
#[must_use]
pub fn terminal(report: &Report) -> String {
    let mut text = String::new();
    let _ = write_report(&mut text, report); // A string takes everything.
    text
}

fn write_report(text: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(text, "What this machine gives a transactional system")?;
    writeln!(
        text,
        "  {}, {} processors{}, {} memory, Linux {}",
        machine.processor,
        machine.processor_count,
        if machine.is_virtual { " (virtual)" } else { "" },
        quantity(crate::Unit::Bytes, machine.memory_bytes as f64),
        machine.kernel
    )?;
    writeln!(
        text,
        "  {} on {} at {} ({})",
        machine.mount.kind, machine.mount.source, machine.mount.at, machine.mount.options
    )?;
    if let Some(device) = &machine.device {
        let of = |name: &str| device.queue.get(name).map_or("unknown", String::as_str);
        writeln!(
            text,
            "  device {}: cache {}, blocks {} / {}, rotational {}",
            device.name,
            of("write_cache"),
            of("logical_block_size"),
            of("physical_block_size"),
            of("rotational")
        )?;
    }
    let coarse = if report.clock.is_coarse { "; TOO COARSE for system calls: short times mean little" } else { "" };
    writeln!(
        text,
        "  clock {}: steps of {} ns, a measurement of nothing takes {:.0} ns{coarse}",
        report.clock.source, report.clock.resolution_ns, report.clock.null_ns
    )?;
    writeln!(text, "  {:.0} s", report.seconds)?;
    if let Some(why) = &report.stopped {
        writeln!(text, "  NOT WHOLE: {why}")?;
    }
    for outcome in &report.experiments {
        write_outcome(text, outcome)?;
    }
    write_claims(text, report)?;
    write_verdict(text, report)?;
    write_advice(text, report)
}

fn write_claims(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\nThe paper's claims")?;
    for finding in &report.claims {
        writeln!(text, "  {:<4} {} ({})", finding.id, finding.paper, finding.section)?;
        writeln!(text, "       {}: {}", finding.standing.words(), finding.here)?;
    }
    Ok(())
}

fn write_verdict(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\nVerdict")?;
    for service in &report.services {
        writeln!(text, "  {}: {} (the paper: {})", service.name, service.rating.words(), service.paper)?;
        for (mark, lines) in [("+", &service.good), ("-", &service.lacking), ("?", &service.unknown)] {
            for line in lines {
                writeln!(text, "    {mark} {line}")?;
            }
        }
    }
    Ok(())
}

fn write_advice(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\nRecommended")?;
    for advice in &report.advice {
        writeln!(text, "  {}: {}", advice.setting, advice.value)?;
        writeln!(text, "    {}", advice.because)?;
    }
    Ok(())
}

fn write_outcome(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(text, "\n{} (section {}): {}", outcome.id, outcome.section, outcome.title)?;
    match &outcome.status {
        Status::Whole => {}
        Status::Partial(why) => writeln!(text, "  not whole: {why}")?,
        Status::Skipped(why) => writeln!(text, "  skipped: {why}")?,
    }
    for group in &outcome.groups {
        writeln!(text, "\n  {}", group.title)?;
        match &group.x {
            Some(axis) => write_grid(text, group, axis)?,
            None => write_list(text, group)?,
        }
        if !group.says.is_empty() {
            writeln!(text, "  -> {}", group.says)?;
        }
        let noisy = group.points.iter().filter_map(|p| p.value.noisy.as_deref());
        if let Some(why) = noisy.clone().next() {
            writeln!(text, "  noisy: {} of {} values, such as: {why}", noisy.count(), group.points.len())?;
        }
    }
    if !outcome.facts.is_empty() {
        writeln!(text)?;
        for fact in &outcome.facts {
            writeln!(text, "  {}: {} ({})", fact.name, fact.value, fact.means)?;
        }
    }
    for skip in &outcome.skipped {
        writeln!(text, "  skipped {}: {}", skip.what, skip.why)?;
    }
    Ok(())
}

/// A line for each series, with the spread.
fn write_list(text: &mut String, group: &Group) -> std::fmt::Result {
    let width = group.points.iter().map(|p| p.series.chars().count()).max().unwrap_or(0);
    for point in &group.points {
        let value = &point.value;
        let spread = match value.median {
            Some(_) => format!(
                "  (95 %: {} to {}; 10-90 %: {} to {}; {} runs)",
                quantity(group.unit, value.low),
                quantity(group.unit, value.high),
                quantity(group.unit, value.p10),
                quantity(group.unit, value.p90),
                value.run_count
            ),
            None => String::new(),
        };
        writeln!(text, "    {:width$}  {:>10}{spread}", point.series, value_words(group.unit, value))?;
    }
    Ok(())
}

/// A table: a line for each series, a column for each place on the axis.
fn write_grid(text: &mut String, group: &Group, axis: &Axis) -> std::fmt::Result {
    let mut places: Vec<f64> = group.points.iter().filter_map(|p| p.x).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    let mut series: Vec<&str> = Vec::new();
    for point in &group.points {
        if !series.contains(&point.series.as_str()) {
            series.push(&point.series);
        }
    }
    let cell = |name: &str, x: f64| {
        let point = group.points.iter().find(|p| p.series == name && p.x == Some(x));
        point.map_or_else(
            || "-".to_owned(),
            |p| match p.value.median {
                Some(median) => quantity(group.unit, median),
                None => "noisy".to_owned(),
            },
        )
    };
    let width = series.iter().map(|s| s.chars().count()).max().unwrap_or(0).max(axis.label.chars().count());
    write!(text, "    {:width$}", axis.label)?;
    for x in &places {
        write!(text, " {:>11}", quantity(axis.unit, *x))?;
    }
    writeln!(text)?;
    for name in series {
        write!(text, "    {name:width$}")?;
        for x in &places {
            write!(text, " {:>11}", cell(name, *x))?;
        }
        writeln!(text)?;
    }
    Ok(())
}
