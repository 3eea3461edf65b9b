//! The report as one page that needs nothing else: no network, no script, its style and plots inside. For screens wide
//! and narrow, light and dark, and for paper.

use std::fmt::Write;

use crate::claims::Standing;
use crate::report::{Group, Outcome, Report, Status, Unit, Value};
use crate::show::is_obeyed;
use crate::show::number::{quantity, value_words};
use crate::show::plot::plot;

const STYLE: &str = include_str!("style.css");

/// The page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut text = String::new();
    let _ = page(&mut text, report); // A string takes everything.
    text
}

/// Text as a page shows it.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if is_obeyed(c) && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

fn page(text: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(text, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(text, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(text, "<title>What {} gives a transactional system</title>", escape(&machine.processor))?;
    writeln!(text, "<style>\n{STYLE}</style>\n</head>\n<body>\n<main>")?;
    writeln!(text, "<h1>What this machine gives a transactional system</h1>")?;
    if let Some(why) = &report.stopped {
        writeln!(text, "<p class=\"warning\">Not whole: {}.</p>", escape(why))?;
    }
    if report.clock.is_coarse {
        writeln!(
            text,
            "<p class=\"warning\">The clock moves in steps of {}: short times mean little.</p>",
            quantity(Unit::Nanoseconds, report.clock.resolution_ns as f64)
        )?;
    }
    machine_table(text, report)?;
    writeln!(
        text,
        "<nav><a href=\"#verdict\">Verdict</a> <a href=\"#advice\">Settings</a> <a href=\"#claims\">Claims</a>"
    )?;
    for outcome in &report.experiments {
        writeln!(text, "<a href=\"#{0}\">{0}</a>", escape(&outcome.id))?;
    }
    writeln!(text, "</nav>")?;
    verdict(text, report)?;
    advice(text, report)?;
    claims(text, report)?;
    for outcome in &report.experiments {
        experiment(text, outcome)?;
    }
    writeln!(
        text,
        "<footer><p>A mark is the median of the runs; the thin line goes from the 10th to the 90th percentile. A broken line is \
         the range of a noisy value, which has no median. Times are wall time. ledgerstone probe {}, {:.0} s.</p></footer>",
        escape(&report.version),
        report.seconds
    )?;
    writeln!(text, "</main>\n</body>\n</html>")
}

fn machine_table(text: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    let mut rows = vec![
        (
            "Processor",
            format!(
                "{}, {} usable{}",
                machine.processor,
                machine.processor_count,
                if machine.is_virtual { ", virtual" } else { "" }
            ),
        ),
        ("Memory", quantity(Unit::Bytes, machine.memory_bytes as f64)),
        ("Kernel", format!("Linux {}", machine.kernel)),
        (
            "File system",
            format!(
                "{} on {} at {} ({})",
                machine.mount.kind, machine.mount.source, machine.mount.at, machine.mount.options
            ),
        ),
    ];
    if let Some(limit) = machine.memory_limit_bytes {
        rows.push(("Memory limit", quantity(Unit::Bytes, limit as f64)));
    }
    if let Some(device) = &machine.device {
        let of = |name: &str| device.queue.get(name).map_or("unknown", String::as_str);
        rows.push((
            "Device",
            format!(
                "{}, model {}, cache {}, blocks of {} (physical {}), scheduler {}",
                device.name,
                device.model,
                of("write_cache"),
                of("logical_block_size"),
                of("physical_block_size"),
                of("scheduler")
            ),
        ));
    }
    rows.push((
        "Clock",
        format!(
            "{}, steps of {} ns; measuring nothing takes {:.0} ns",
            report.clock.source, report.clock.resolution_ns, report.clock.null_ns
        ),
    ));
    writeln!(text, "<table class=\"facts\">")?;
    for (name, value) in rows {
        writeln!(text, "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", escape(&value))?;
    }
    writeln!(text, "</table>")
}

fn verdict(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "<section id=\"verdict\"><h2>Verdict</h2>\n<div class=\"cards\">")?;
    for service in &report.services {
        writeln!(
            text,
            "<article class=\"card\"><h3>{} <span class=\"rating r{}\">{}</span></h3>",
            escape(&service.name),
            service.rating as u8,
            service.rating.words()
        )?;
        writeln!(text, "<p class=\"paper\">The paper, of Windows 2000: {}.</p>\n<ul>", escape(&service.paper))?;
        for (class, lines) in [("good", &service.good), ("lacking", &service.lacking), ("unknown", &service.unknown)] {
            for line in lines {
                writeln!(text, "<li class=\"{class}\">{}</li>", escape(line))?;
            }
        }
        writeln!(text, "</ul></article>")?;
    }
    writeln!(text, "</div></section>")
}

fn advice(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "<section id=\"advice\"><h2>Recommended settings</h2>\n<div class=\"scroll\"><table>")?;
    writeln!(text, "<thead><tr><th>Setting</th><th>Value</th><th>Because</th></tr></thead><tbody>")?;
    for advice in &report.advice {
        writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td><b>{}</b></td><td>{}.<br><small>{}</small></td></tr>",
            escape(&advice.setting),
            escape(&advice.value),
            escape(&advice.because),
            escape(&advice.based_on.join("; "))
        )?;
    }
    writeln!(text, "</tbody></table></div></section>")
}

fn claims(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "<section id=\"claims\"><h2>The paper's claims</h2>\n<div class=\"scroll\"><table>")?;
    writeln!(text, "<thead><tr><th></th><th>Claim</th><th>Here</th><th></th></tr></thead><tbody>")?;
    for finding in &report.claims {
        let class = match finding.standing {
            Standing::Holds => "good",
            Standing::NoLongerHolds => "other",
            Standing::NotMeasurable => "unknown",
        };
        writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{} <small>({})</small></td><td>{}</td><td class=\"standing {class}\">{}</td></tr>",
            escape(&finding.id),
            escape(&finding.paper),
            escape(&finding.section),
            escape(&finding.here),
            finding.standing.words()
        )?;
    }
    writeln!(text, "</tbody></table></div></section>")
}

fn experiment(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(
        text,
        "<section id=\"{0}\"><h2>{0}: {1} <small>section {2}</small></h2>",
        escape(&outcome.id),
        escape(&outcome.title),
        escape(&outcome.section)
    )?;
    if let Status::Partial(why) | Status::Skipped(why) = &outcome.status {
        writeln!(text, "<p class=\"warning\">Not whole: {}.</p>", escape(why))?;
    }
    writeln!(text, "<div class=\"plots\">")?;
    for group in &outcome.groups {
        writeln!(
            text,
            "<figure><figcaption><h3>{}</h3><p>{}</p></figcaption>",
            escape(&group.title),
            escape(&group.says)
        )?;
        text.push_str(&plot(group));
        values(text, group)?;
        writeln!(text, "</figure>")?;
    }
    writeln!(text, "</div>")?;
    if !outcome.facts.is_empty() {
        writeln!(text, "<table class=\"facts\">")?;
        for fact in &outcome.facts {
            writeln!(
                text,
                "<tr><th scope=\"row\">{}</th><td>{}<br><small>{}</small></td></tr>",
                escape(&fact.name),
                escape(&fact.value),
                escape(&fact.means)
            )?;
        }
        writeln!(text, "</table>")?;
    }
    if !outcome.skipped.is_empty() {
        writeln!(text, "<details><summary>Not measured ({})</summary><ul>", outcome.skipped.len())?;
        for skip in &outcome.skipped {
            writeln!(text, "<li>{}: {}</li>", escape(&skip.what), escape(&skip.why))?;
        }
        writeln!(text, "</ul></details>")?;
    }
    writeln!(text, "</section>")
}

fn values(text: &mut String, group: &Group) -> std::fmt::Result {
    let noisy = group.points.iter().filter(|p| p.value.noisy.is_some()).count();
    let remark = if noisy == 0 { String::new() } else { format!(", {noisy} of them noisy") };
    writeln!(text, "<details><summary>{} values{remark}</summary><div class=\"scroll\"><table>", group.points.len())?;
    let place = group.x.as_ref().map_or(String::new(), |axis| format!("<th>{}</th>", escape(&axis.label)));
    writeln!(
        text,
        "<thead><tr><th></th>{place}<th>median</th><th>95&nbsp;% interval</th><th>10 to 90&nbsp;%</th><th>runs</th>\
         <th>user</th><th>system</th><th>switches</th></tr></thead><tbody>"
    )?;
    for point in &group.points {
        let value = &point.value;
        let place = match (point.x, &group.x) {
            (Some(x), Some(axis)) => format!("<td>{}</td>", quantity(axis.unit, x)),
            (None, Some(_)) => "<td></td>".into(),
            (_, None) => String::new(),
        };
        let usage = &value.usage;
        writeln!(
            text,
            "<tr><th scope=\"row\">{}</th>{place}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} + {}</td></tr>",
            escape(&point.series),
            median(group.unit, value),
            between(group.unit, value.low, value.high),
            between(group.unit, value.p10, value.p90),
            value.run_count,
            quantity(Unit::Nanoseconds, usage.user_ns as f64),
            quantity(Unit::Nanoseconds, usage.system_ns as f64),
            usage.voluntary_switches,
            usage.involuntary_switches
        )?;
    }
    writeln!(text, "</tbody></table></div></details>")
}

fn median(unit: Unit, value: &Value) -> String {
    match &value.noisy {
        Some(why) => format!("<span class=\"unknown\">noisy</span><br><small>{}</small>", escape(why)),
        None => value_words(unit, value),
    }
}

fn between(unit: Unit, low: f64, high: f64) -> String {
    format!("{} to {}", quantity(unit, low), quantity(unit, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{empty_report, put};

    #[test]
    fn what_a_browser_obeys_is_a_blank() {
        assert_eq!(escape("a\u{1b}[1m\u{202e}b\u{2069}c\nd"), "a [1m b c\nd");
    }

    #[test]
    fn the_page_needs_nothing_from_outside_and_shows_names_as_text() {
        let mut report = empty_report();
        report.machine.mount.source = "<script>alert(1)</script>".into();
        put(&mut report, "force/method", "a \"quoted\" & <b>", Some(4096.0), 5.0);
        let page = html(&report);
        assert!(!page.contains("<script"), "escaped");
        assert!(!page.contains("http") && !page.contains("url(") && !page.contains("@import"), "self-contained");
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
        assert!(page.contains("a &quot;quoted&quot; &amp; &lt;b&gt;"));
    }
}
