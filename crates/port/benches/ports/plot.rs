//! Plots of the results, as SVG.

use plotters::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Results, file of the plot, title, name of the x axis, whether x grows by factors.
const PLOTS: [(&str, &str, &str, &str); 4] = [
    ("spinning", "Round trip, two processors (median, us)", "bytes", "ports-two-processors.svg"),
    ("sleeping", "Round trip, one processor (median, us)", "bytes", "ports-one-processor.svg"),
    ("multicast", "One send of 20 bytes (median, us)", "receivers", "ports-multicast.svg"),
    ("remote", "Round trip over loopback (median, us)", "bytes", "ports-remote.svg"),
];

/// Makes the plots beside the results in a directory.
pub fn all(directory: &Path) -> Result<(), Box<dyn Error>> {
    for (results, title, x_name, file) in PLOTS {
        if let Ok(lines) = std::fs::read_to_string(directory.join(format!("{results}.csv"))) {
            one(&lines, title, x_name, &directory.join(file))?;
        }
    }
    Ok(())
}

fn one(lines: &str, title: &str, x_name: &str, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for line in lines.lines() {
        // Names may hold commas; the numbers are the last two.
        let mut parts = line.rsplitn(3, ',');
        let (Some(value), Some(x), Some(name)) = (parts.next(), parts.next(), parts.next()) else { continue };
        series.entry(name.to_owned()).or_default().push((x.parse()?, value.parse()?));
    }
    series.retain(|_, points| points.len() > 1);
    let all = || series.values().flatten().copied();
    let bounds = |values: Vec<f64>| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        (low, values.into_iter().fold(low, f64::max))
    };
    let ((x_low, x_high), (y_low, y_high)) =
        (bounds(all().map(|p| p.0).collect()), bounds(all().map(|p| p.1).collect()));
    let root = SVGBackend::new(path, (900, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((x_low..x_high).log_scale(), (y_low * 0.8..y_high * 1.3).log_scale())?;
    chart.configure_mesh().x_desc(x_name).y_desc("us").draw()?;
    for (no, (name, points)) in series.iter().enumerate() {
        let colour = Palette99::pick(no).to_rgba();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
