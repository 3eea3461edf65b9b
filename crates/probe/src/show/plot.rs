//! Plots as SVG that a page can hold: lines over an axis, bars without one. Colours and sizes are classes of the page's
//! style, so that light, dark and print are decided there.
//!
//! A value is a mark at its median with a thin line from the 10th to the 90th percentile. A noisy value has only a
//! broken line: its range, and no median that would look like one.

use std::fmt::Write;

use crate::report::{Axis, Group, Unit, Value};
use crate::show::html::escape;
use crate::show::number::quantity;

const WIDTH: f64 = 400.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 44.0;
const HEIGHT: f64 = 250.0;
const ROW: f64 = 36.0;
/// A logarithmic scale from this ratio on.
const LOG_FROM: f64 = 12.0;

/// Colours that the page's style has; more series use them again with another mark.
const COLOURS: usize = 8;

/// The plot of a group, with its legend.
pub(super) fn plot(group: &Group) -> String {
    let mut text = String::new();
    let _ = match &group.x {
        Some(axis) => lines(&mut text, group, axis),
        None => bars(&mut text, group),
    }; // A string takes everything.
    text
}

/// From numbers to places.
struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
    start: f64,
    length: f64,
}

impl Scale {
    fn new(numbers: impl Iterator<Item = f64> + Clone, start: f64, length: f64) -> Option<Scale> {
        let usable = numbers.filter(|n| n.is_finite() && n.abs() < 1e300);
        let low = usable.clone().fold(f64::INFINITY, f64::min);
        let high = usable.fold(f64::NEG_INFINITY, f64::max);
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        let is_log = low > 0.0 && high / low >= LOG_FROM;
        let (from, to) = if is_log { (low / 1.3, high * 1.3) } else { (low.min(0.0), high * 1.08) };
        let to = if to > from { to } else { from + 1.0 };
        Some(Scale { from, to, is_log, start, length })
    }

    fn at(&self, number: f64) -> f64 {
        let part = if self.is_log {
            (number.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        };
        self.start + part.clamp(0.0, 1.0) * self.length
    }

    /// Some round numbers in the range. Sizes are round in powers of two.
    fn ticks(&self, unit: Unit) -> Vec<f64> {
        let base: f64 = if matches!(unit, Unit::Bytes | Unit::BytesPerSecond) { 4.0 } else { 10.0 };
        let mut ticks = Vec::new();
        if self.is_log {
            let steps: &[f64] = if base == 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let (first, last) = (self.from.log(base).floor() as i32 - 1, self.to.log(base).ceil() as i32 + 1);
            for power in first..=last.min(first + 400) {
                ticks.extend(steps.iter().map(|step| step * base.powi(power)));
            }
        } else {
            let rough = (self.to - self.from) / 5.0;
            let power = 10_f64.powf(rough.log10().floor());
            let step = if base == 4.0 {
                2_f64.powf(rough.log2().ceil())
            } else {
                [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(rough)
            };
            ticks.extend((0..12).map(|no| self.from + f64::from(no) * step));
        }
        ticks.retain(|tick| *tick >= self.from && *tick <= self.to);
        // Too many stand on each other.
        while ticks.len() > 7 {
            let mut keep = false;
            ticks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        ticks
    }
}

fn range(value: &Value) -> [f64; 2] {
    [value.p10, value.p90]
}

fn series_of(group: &Group) -> Vec<&str> {
    let mut series: Vec<&str> = Vec::new();
    for point in &group.points {
        if !series.contains(&point.series.as_str()) {
            series.push(&point.series);
        }
    }
    series
}

/// What a unit measures.
fn kind(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "time",
        Unit::Bytes => "bytes",
        Unit::BytesPerSecond => "bytes a second",
        Unit::PerSecond => "a second",
        Unit::Count => "number",
    }
}

fn lines(text: &mut String, group: &Group, axis: &Axis) -> std::fmt::Result {
    let mut places: Vec<f64> = group.points.iter().filter_map(|p| p.x).filter(|x| x.is_finite()).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    let y = Scale::new(group.points.iter().flat_map(|p| range(&p.value)), 0.0, HEIGHT - TOP - BOTTOM);
    let (Some(y), Some(first), Some(last)) = (y, places.first(), places.last()) else { return Ok(()) };
    let width = WIDTH - LEFT - RIGHT;
    // Sizes and counts that grow by factors stand by their logarithm; anything else one beside the other.
    let is_log = *first > 0.0 && last / first >= 8.0;
    let at_x = |x: f64| {
        let part = if places.len() < 2 {
            0.5
        } else if is_log {
            (x / first).ln() / (last / first).ln()
        } else {
            places.iter().position(|p| *p == x).unwrap_or(0) as f64 / (places.len() - 1) as f64
        };
        LEFT + 10.0 + part * (width - 20.0)
    };
    let at_y = |number: f64| HEIGHT - BOTTOM - y.at(number);
    open(text, group, HEIGHT)?;
    let scale = if y.is_log { ", logarithmic" } else { "" };
    writeln!(text, "<text class=\"axis\" x=\"4\" y=\"12\">{}{scale}</text>", kind(group.unit))?;
    for tick in y.ticks(group.unit) {
        let at = at_y(tick);
        writeln!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>",
            WIDTH - RIGHT
        )?;
        let label = quantity(group.unit, tick);
        writeln!(
            text,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0
        )?;
    }
    let mut label_ends = f64::NEG_INFINITY;
    for x in &places {
        let (at, label) = (at_x(*x), quantity(axis.unit, *x));
        let half = label.chars().count() as f64 * 3.8 + 3.0;
        if at - half < label_ends {
            continue;
        }
        label_ends = at + half;
        writeln!(
            text,
            "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            HEIGHT - BOTTOM + 16.0
        )?;
    }
    let middle = LEFT + width / 2.0;
    writeln!(
        text,
        "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 8.0,
        escape(&axis.label)
    )?;
    let series = series_of(group);
    for (no, name) in series.iter().enumerate() {
        let mut points: Vec<_> =
            group.points.iter().filter(|p| p.series == *name).filter_map(|p| Some((p.x?, &p.value))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        writeln!(text, "<g class=\"s{}\">", no % COLOURS)?;
        let line: Vec<String> = points
            .iter()
            .filter_map(|(x, value)| Some(format!("{:.1},{:.1}", at_x(*x), at_y(value.median?))))
            .collect();
        if line.len() > 1 {
            writeln!(text, "<polyline points=\"{}\"/>", line.join(" "))?;
        }
        // Beside each other, so that ranges at one place can be told apart.
        let aside = (no as f64 - (series.len() - 1) as f64 / 2.0) * 1.6;
        for (x, value) in &points {
            let (at, low, high) = (at_x(*x) + aside, at_y(value.p10), at_y(value.p90));
            let class = if value.median.is_some() { "spread" } else { "noisy" };
            // A range of one run would not be seen.
            let (low, high) =
                if value.median.is_none() && low - high < 8.0 { (low + 4.0, high - 4.0) } else { (low, high) };
            writeln!(text, "<line class=\"{class}\" x1=\"{at:.1}\" y1=\"{low:.1}\" x2=\"{at:.1}\" y2=\"{high:.1}\"/>")?;
            if let Some(median) = value.median {
                mark(text, no, at_x(*x), at_y(median))?;
            }
        }
        writeln!(text, "</g>")?;
    }
    writeln!(text, "</svg>")?;
    writeln!(text, "<ul class=\"legend\">")?;
    for (no, name) in series.iter().enumerate() {
        write!(
            text,
            "<li><svg class=\"key\" viewBox=\"0 0 14 14\" aria-hidden=\"true\"><g class=\"s{}\">",
            no % COLOURS
        )?;
        mark(text, no, 7.0, 7.0)?;
        writeln!(text, "</g></svg>{}</li>", escape(name))?;
    }
    writeln!(text, "</ul>")
}

/// A mark for the number of the series: its shape tells series of one colour apart, and all of them without colours.
fn mark(text: &mut String, no: usize, x: f64, y: f64) -> std::fmt::Result {
    match (no % COLOURS + no / COLOURS) % 4 {
        0 => write!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>"),
        1 => write!(text, "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6.8\" height=\"6.8\"/>", x - 3.4, y - 3.4),
        2 => write!(
            text,
            "<polygon points=\"{x:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
            y - 4.4,
            x + 4.2,
            y + 3.2,
            x - 4.2,
            y + 3.2
        ),
        _ => write!(
            text,
            "<polygon points=\"{x:.1},{:.1} {:.1},{y:.1} {x:.1},{:.1} {:.1},{y:.1}\"/>",
            y - 4.8,
            x + 4.8,
            y + 4.8,
            x - 4.8
        ),
    }
}

fn bars(text: &mut String, group: &Group) -> std::fmt::Result {
    let numbers = group.points.iter().flat_map(|p| range(&p.value));
    let Some(scale) = Scale::new(numbers, 8.0, WIDTH - 96.0) else { return Ok(()) };
    let height = TOP + ROW * group.points.len() as f64 + 8.0;
    open(text, group, height)?;
    let logarithmic = if scale.is_log { ", logarithmic" } else { "" };
    writeln!(text, "<text class=\"axis\" x=\"4\" y=\"12\">{}{logarithmic}</text>", kind(group.unit))?;
    for (no, point) in group.points.iter().enumerate() {
        let top = TOP + ROW * no as f64;
        let value = &point.value;
        writeln!(text, "<text class=\"name\" x=\"8\" y=\"{:.1}\">{}</text>", top + 12.0, escape(&point.series))?;
        let middle = top + 22.0;
        let (low, high) = (scale.at(value.p10), scale.at(value.p90));
        match value.median {
            Some(median) => {
                let end = scale.at(median);
                writeln!(
                    text,
                    "<rect class=\"bar\" x=\"8\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" rx=\"2\"/>",
                    middle - 5.0,
                    (end - 8.0).max(1.0)
                )?;
                writeln!(
                    text,
                    "<line class=\"spread dark\" x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\"/>"
                )?;
                let label = quantity(group.unit, median);
                writeln!(
                    text,
                    "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                    high.max(end) + 6.0,
                    middle + 4.0
                )?;
            }
            None => {
                let (low, high) = if high - low < 8.0 { (low - 4.0, high + 4.0) } else { (low, high) };
                writeln!(
                    text,
                    "<line class=\"noisy dark\" x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\"/>"
                )?;
                writeln!(text, "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">noisy</text>", high + 6.0, middle + 4.0)?;
            }
        }
    }
    writeln!(text, "</svg>")
}

fn open(text: &mut String, group: &Group, height: f64) -> std::fmt::Result {
    writeln!(
        text,
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(&format!("{}. {}", group.title, group.says))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{empty_report, put};

    #[test]
    fn any_numbers_make_a_plot_or_none() {
        for (x, numbers) in [
            (Some(1.0), vec![0.0, 0.0]),
            (Some(f64::INFINITY), vec![1.0, 2.0]),
            (None, vec![f64::MAX, f64::MIN]),
            (None, vec![1e-300, 1e300]),
            (Some(-5.0), vec![-1.0, -2.0]),
            (Some(0.0), vec![f64::NAN]),
        ] {
            let mut report = empty_report();
            for (no, number) in numbers.iter().enumerate() {
                put(&mut report, "force/method", &format!("<{no}>"), x, *number);
            }
            let text = plot(&report.experiments[0].groups[0]);
            assert!(!text.contains("NaN") && !text.contains("inf\""), "{text}");
            assert!(!text.contains("<0>"), "names are escaped: {text}");
        }
    }

    #[test]
    fn a_noisy_value_has_a_range_and_no_mark() {
        let mut report = empty_report();
        put(&mut report, "force/method", "a", None, 5.0);
        let group = &mut report.experiments[0].groups[0];
        group.points[0].value.median = None;
        let text = plot(group);
        assert!(text.contains("class=\"noisy dark\"") && !text.contains("class=\"bar\""), "{text}");
    }
}
