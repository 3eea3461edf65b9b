//! The figures as tables and plots of a page, between its two marks.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::prelude::*;

use crate::book::{Book, Measured};
use crate::experiments::{SECTIONS, Section};
use crate::measure::Figure;
use crate::peer::{Entry, MARKS, PEERS};

const BEGIN: &str = "<!-- measured: written by `make peers`, not by hand -->";
const END: &str = "<!-- end of measured -->";
const COLUMNS_MAX: usize = 120;

/// Writes the part between the marks, and the plots beside the page.
///
/// # Errors
/// The page has no marks, or files cannot be written.
pub fn write(book: &Book, out: &Path) -> anyhow::Result<()> {
    let page = std::fs::read_to_string(out).with_context(|| format!("cannot read {}", out.display()))?;
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| anyhow!("{} has no mark {BEGIN:?}", out.display()))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| anyhow!("{} has no mark {END:?}", out.display()))?;
    let mut text = String::new();
    text.push_str(&marks());
    for section in &SECTIONS {
        if let Some(measured) = book.sections.get(section.name) {
            text.push_str(&section_text(section, measured, out)?);
        }
    }
    std::fs::write(out, format!("{before}{BEGIN}\n\n{text}{END}{after}"))?;
    Ok(())
}

fn marks() -> String {
    let mut text = String::from("| mark | what is not equal |\n| --- | --- |\n");
    for (letter, what) in MARKS {
        let _ = writeln!(text, "| {letter} | {what} |");
    }
    text.push('\n');
    text
}

/// A paragraph in lines that are not too wide.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            let _ = writeln!(lines, "{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    format!("{lines}{line}\n\n")
}

/// A number as people read it: three digits that mean something, and groups of three.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    if value != 0.0 && value.abs() < 100.0 {
        let digits = if value.abs() < 1.0 {
            3
        } else if value.abs() < 10.0 {
            2
        } else {
            1
        };
        return format!("{value:.digits$}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value < 0.0 { format!("-{grouped}") } else { grouped }
}

/// One row of a table and one peer: all rounds.
struct Cell<'a> {
    figures: Vec<&'a Figure>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

impl Cell<'_> {
    fn median_of(&self, figure: impl Fn(&Figure) -> f64) -> f64 {
        median(self.figures.iter().map(|one| figure(one)).collect())
    }

    fn value(&self) -> f64 {
        self.median_of(|figure| figure.value)
    }

    /// Half of what lies between the lowest and the highest, of the median.
    fn spread(&self) -> f64 {
        let values = self.figures.iter().map(|figure| figure.value);
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        (high - low) / 2.0 / self.value()
    }

    /// What hindered the measurement, as a mark behind the figure.
    fn marks(&self) -> &'static str {
        let disturbed = self.figures.iter().any(|figure| figure.is_disturbed());
        match (disturbed, self.figures.iter().any(|figure| figure.is_far)) {
            (false, false) => "",
            (true, false) => " ~",
            (false, true) => " ^",
            (true, true) => " ~^",
        }
    }
}

struct Tables<'a> {
    measured: &'a Measured,
    entries: Vec<&'static Entry>,
    /// In the order of the first peer that has them.
    cases: Vec<&'a str>,
}

impl<'a> Tables<'a> {
    fn of(measured: &'a Measured) -> Tables<'a> {
        let entries: Vec<_> =
            PEERS.iter().filter(|entry| measured.all_runs().any(|run| run.peer == entry.name)).collect();
        let mut cases: Vec<&str> = Vec::new();
        let mut runs: Vec<_> = measured.all_runs().collect();
        // Ledgerstone has all cases.
        runs.sort_by_key(|run| PEERS.iter().position(|entry| entry.name == run.peer));
        for figure in runs.iter().flat_map(|run| &run.figures) {
            if !cases.contains(&figure.case.as_str()) {
                cases.push(&figure.case);
            }
        }
        let order = measured.order();
        cases.sort_by_key(|case| order.iter().position(|one| one == case).unwrap_or(usize::MAX));
        Tables { measured, entries, cases }
    }

    fn cell(&self, case: &str, entry: &Entry) -> Option<Cell<'a>> {
        let runs = self.measured.all_runs().filter(|run| run.peer == entry.name);
        let mut figures: Vec<_> = runs.flat_map(|run| &run.figures).filter(|figure| figure.case == case).collect();
        // What was measured without hindrance counts, and the rest only where there is nothing else.
        let is_good = |figure: &&Figure| !figure.is_disturbed() && !figure.is_far;
        if figures.iter().any(is_good) {
            figures.retain(is_good);
        }
        (!figures.is_empty()).then_some(Cell { figures })
    }

    fn head(&self, first: &str, last: Option<&str>) -> String {
        let mut text = format!("| {first} |");
        for entry in &self.entries {
            let marks = entry.marks.join(", ");
            let marks = if marks.is_empty() { String::new() } else { format!(" ({marks})") };
            let _ = write!(text, " {}{marks} |", entry.title);
        }
        if let Some(last) = last {
            let _ = write!(text, " {last} |");
        }
        let count = self.entries.len() + usize::from(last.is_some());
        let _ = writeln!(text, "\n| --- |{}", " ---: |".repeat(count));
        text
    }

    /// Medians, with the best in bold, and ours beside the best of the others.
    fn values(&self) -> String {
        let mut text = self.head("case", Some("Ledgerstone / best"));
        for case in &self.cases {
            let cells: Vec<_> = self.entries.iter().map(|entry| self.cell(case, entry)).collect();
            let Some(first) = cells.iter().flatten().next() else { continue };
            let (unit, is_rate) = (first.figures[0].unit.as_str(), first.figures[0].is_rate);
            let better = |a: f64, b: f64| if is_rate { a.max(b) } else { a.min(b) };
            let best = cells.iter().flatten().map(Cell::value).reduce(better).unwrap_or(f64::NAN);
            let _ = write!(text, "| {case}{} ({unit}) |", part_mark(self.measured.part_of(case)));
            for cell in &cells {
                let Some(cell) = cell else {
                    text.push_str(" - |");
                    continue;
                };
                let value = number(cell.value());
                let value = if cell.value() == best { format!("**{value}**") } else { value };
                let spread = cell.spread() * 100.0;
                let spread = if cell.figures.len() > 1 { format!(" ± {spread:.0} %") } else { String::new() };
                let _ = write!(text, " {value}{spread}{} |", cell.marks());
            }
            let mut own = f64::NAN;
            let mut others = Vec::new();
            for (entry, cell) in self.entries.iter().zip(&cells) {
                match cell {
                    Some(cell) if entry.name == "ledgerstone" => own = cell.value(),
                    Some(cell) => others.push(cell.value()),
                    None => {}
                }
            }
            let ratio = others.into_iter().reduce(better).map(|other| if is_rate { own / other } else { other / own });
            match ratio {
                Some(ratio) if ratio.is_finite() => {
                    let _ = writeln!(text, " {ratio:.2} |");
                }
                _ => text.push_str(" - |\n"),
            }
        }
        let _ = write!(text, "| resident memory at its highest (MiB) |");
        for entry in &self.entries {
            let runs = self.measured.runs.iter().filter(|run| run.peer == entry.name);
            let _ = write!(text, " {} |", number(median(runs.map(|run| run.resident_mib).collect())));
        }
        text.push_str(" - |\n\n");
        text
    }

    /// A table of cells that `show` makes; cases without any are left out.
    fn details(&self, what: &str, show: impl Fn(&Cell<'_>) -> Option<String>) -> String {
        let mut rows = String::new();
        for case in &self.cases {
            let cells: Vec<Option<String>> =
                self.entries.iter().map(|entry| self.cell(case, entry).and_then(|cell| show(&cell))).collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or("-".into())).collect();
            let _ = writeln!(rows, "| {case}{} | {} |", part_mark(self.measured.part_of(case)), cells.join(" | "));
        }
        if rows.is_empty() { rows } else { format!("{}{rows}\n", self.head(what, None)) }
    }
}

/// Marks the rows of a part.
fn part_mark(part: usize) -> String {
    if part == 0 { String::new() } else { format!(" ({part})") }
}

/// How long a run was, when, and of what.
fn run_text(measured: &Measured) -> String {
    let rounds = if measured.rounds == 1 { "one round".into() } else { format!("{} rounds", measured.rounds) };
    let day = if measured.day.is_empty() { String::new() } else { format!(" on {}", measured.day) };
    let revision = if measured.revision.is_empty() { "?" } else { &measured.revision };
    format!("{rounds}, {:.0} s in all{day}, at revision `{revision}`.", measured.seconds)
}

fn section_text(section: &Section, measured: &Measured, out: &Path) -> anyhow::Result<String> {
    let tables = Tables::of(measured);
    let mut text = format!("## {}\n\n{}", section.title, wrapped(section.about));
    let versions = |part: &Measured| {
        let versions = tables.entries.iter().filter_map(|entry| part.versions.get(entry.name));
        let versions: Vec<_> = versions.map(|version| version.split(": (").next().unwrap_or(version)).collect();
        format!("Versions: {}.", versions.join("; "))
    };
    let kind =
        if measured.is_quick { "a short run (`QUICK=1`: cases of 0.25 s)" } else { "a whole run (cases of 0.5 s)" };
    text.push_str(&wrapped(&format!("This is {kind}, {} Machine: {}.", run_text(measured), measured.machine)));
    text.push_str(&wrapped(&versions(measured)));
    for (no, part) in measured.parts.iter().enumerate() {
        let mut about = format!("Rows with{} are of a run of their own: {}", part_mark(no + 1), run_text(part));
        if part.machine != measured.machine {
            let _ = write!(about, " Machine: {}.", part.machine);
        }
        if versions(part) != versions(measured) {
            let _ = write!(about, " {}", versions(part));
        }
        text.push_str(&wrapped(&about));
    }
    let mut remarks: Vec<&str> = measured.all_runs().flat_map(|run| &run.remarks).map(String::as_str).collect();
    remarks.sort_unstable();
    remarks.dedup();
    for remark in remarks {
        text.push_str(&wrapped(&format!("Memory: {remark}.")));
    }
    for (name, why) in section.without {
        let title = PEERS.iter().find(|entry| entry.name == *name).map_or(*name, |entry| entry.title);
        text.push_str(&wrapped(&format!("{title} is left out here: {why}.")));
    }
    for failure in [measured].into_iter().chain(&measured.parts).flat_map(|part| &part.failures) {
        text.push_str(&wrapped(&format!("A run **failed**: `{}`", failure.replace('`', "'"))));
    }
    text.push_str(&tables.values());
    let us = |cell: &Cell<'_>| {
        cell.figures.first()?.us?;
        let at = |which: fn(&crate::measure::Percentiles) -> f64| {
            number(cell.median_of(|figure| figure.us.as_ref().map_or(f64::NAN, which)))
        };
        Some(format!("{} / {} / {}", at(|us| us.p50), at(|us| us.p99), at(|us| us.p999)))
    };
    text.push_str(&tables.details("microseconds: half, 99 %, 99.9 % took no longer", us));
    let costs = |cell: &Cell<'_>| {
        let cpu_us = cell.median_of(|figure| figure.cpu_us);
        let written = cell.median_of(|figure| figure.written_bytes);
        (cpu_us > 0.0).then(|| format!("{} / {}", number(cpu_us), number(written)))
    };
    text.push_str(&tables.details("an operation: microseconds of the processors / bytes written", costs));
    let proved = tables.entries.iter().filter_map(|entry| {
        let last = |part: &Measured| part.runs.iter().rfind(|run| run.peer == entry.name).map(|run| run.proved.clone());
        let proved = [measured].into_iter().chain(&measured.parts).filter_map(last).flatten();
        let proved: Vec<String> = proved.collect();
        (!proved.is_empty()).then(|| format!("| {} | {} |\n", entry.title, proved.join("; ")))
    });
    let proved: String = proved.collect();
    if !proved.is_empty() {
        let _ = writeln!(text, "| peer | proved after the last round |\n| --- | --- |\n{proved}");
    }
    for (name, prefix) in section.plots {
        let file = format!("peers-{name}.svg");
        if plot(&tables, prefix, &out.with_file_name(&file))? {
            let _ = writeln!(text, "![{}: {}]({file})\n", section.title, prefix.trim_end_matches(", "));
        }
    }
    Ok(text)
}

/// Rates by the number that a case ends with (threads, or records); false if there are not two of them.
fn plot(tables: &Tables<'_>, prefix: &str, path: &Path) -> anyhow::Result<bool> {
    let points: Vec<(&str, f64)> = tables
        .cases
        .iter()
        .filter_map(|case| {
            let rest = case.strip_prefix(prefix)?;
            let (count, what) = rest.split_once(' ')?;
            let is_plain = ["thread", "threads", "records"].contains(&what);
            Some((*case, count.parse::<f64>().ok().filter(|_| is_plain)?))
        })
        .collect();
    let lines: Vec<(&Entry, Vec<(f64, f64)>)> = tables
        .entries
        .iter()
        .map(|entry| {
            let of = |(case, x): &(&str, f64)| Some((*x, tables.cell(case, entry)?.value()));
            (*entry, points.iter().filter_map(of).collect::<Vec<_>>())
        })
        .filter(|(_, line)| line.len() > 1)
        .collect();
    let values = || lines.iter().flat_map(|(_, line)| line).filter(|(_, y)| *y > 0.0);
    if points.len() < 2 || values().next().is_none() {
        return Ok(false);
    }
    let range = |of: fn(&(f64, f64)) -> f64| {
        values().map(of).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let ((x_low, x_high), (y_low, y_high)) = (range(|point| point.0), range(|point| point.1));
    let root = SVGBackend::new(path, (900, 520)).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path.display());
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .right_y_label_area_size(10)
        .build_cartesian_2d((x_low..x_high).log_scale(), (y_low * 0.8..y_high * 1.25).log_scale())
        .map_err(|error| failed(&error))?;
    let unit = if points[0].0.ends_with("records") { "records" } else { "threads" };
    chart
        .configure_mesh()
        .x_desc(unit)
        .y_desc("a second")
        .x_label_formatter(&|x| number(x.round()))
        .y_label_formatter(&|y| number(*y))
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(|error| failed(&error))?;
    for (no, (entry, line)) in lines.iter().enumerate() {
        let color = Palette99::pick(no).to_rgba();
        let width = if entry.name == "ledgerstone" { 4 } else { 2 };
        let style = ShapeStyle { color, filled: true, stroke_width: width };
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style).point_size(3))
            .map_err(|error| failed(&error))?
            .label(entry.title)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(|error| failed(&error))?;
    root.present().map_err(|error| failed(&error))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{median, number, wrapped};

    #[test]
    fn numbers_are_short() {
        let shown: Vec<_> = [0.0, 0.1234, 1.234, 12.34, 123.4, 1_234_567.8, -1_000.0].map(number).into();
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "123", "1,234,568", "-1,000"]);
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
        assert_eq!(median(vec![5.0, 1.0, 3.0]), 3.0);
    }

    #[test]
    fn paragraphs_are_wrapped() {
        assert!(wrapped(&"word ".repeat(60)).lines().all(|line| line.len() <= 120));
    }
}
