//! Figures as SVG files.

use std::path::Path;

use plotters::prelude::*;

use crate::error::{FlashError, Result};

/// A line for each protocol, or bars where there is only one value on the horizontal axis.
///
/// # Errors
/// [`FlashError::Io`] if the file cannot be written.
pub fn draw(path: &Path, title: &str, axes: [&str; 2], series: &[(&'static str, Vec<(f64, f64)>)]) -> Result<()> {
    let drawing = if series.iter().all(|(_, points)| points.len() == 1) {
        draw_bars(path, title, axes[1], series)
    } else {
        draw_lines(path, title, axes, series)
    };
    drawing.map_err(|reason| FlashError::Io {
        context: format!("drawing {}", path.display()),
        source: std::io::Error::other(reason),
    })
}

const SIZE: (u32, u32) = (640, 400);

fn highest(series: &[(&'static str, Vec<(f64, f64)>)]) -> f64 {
    series.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9) * 1.1
}

fn draw_bars(path: &Path, title: &str, y: &str, series: &[(&'static str, Vec<(f64, f64)>)]) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|e| text(&e))?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..series.len() as f64, 0.0..highest(series))
        .map_err(|e| text(&e))?;
    let name = |x: &f64| series.get(*x as usize).filter(|_| x.fract() == 0.5).map_or("", |(name, _)| name).to_string();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(series.len() * 2 + 1)
        .x_label_formatter(&name)
        .y_desc(y)
        .draw()
        .map_err(|e| text(&e))?;
    for (index, (_, points)) in series.iter().enumerate() {
        let (left, right) = (index as f64 + 0.2, index as f64 + 0.8);
        let bars =
            points.iter().map(|(_, y)| Rectangle::new([(left, 0.0), (right, *y)], Palette99::pick(index).filled()));
        chart.draw_series(bars).map_err(|e| text(&e))?;
    }
    root.present().map_err(|e| text(&e))
}

fn draw_lines(
    path: &Path,
    title: &str,
    axes: [&str; 2],
    series: &[(&'static str, Vec<(f64, f64)>)],
) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let xs = || series.iter().flat_map(|(_, points)| points).map(|(x, _)| *x);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|e| text(&e))?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(low..high, 0.0..highest(series))
        .map_err(|e| text(&e))?;
    chart.configure_mesh().x_desc(axes[0]).y_desc(axes[1]).draw().map_err(|e| text(&e))?;
    for (index, (name, points)) in series.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))
            .map_err(|e| text(&e))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|e| text(&e))?;
    root.present().map_err(|e| text(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_lines_name_every_protocol() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figure.svg");
        let bars = [("CFC", vec![(5.0, 2.0)]), ("WAL", vec![(5.0, 1.0)])];
        let lines = [("CFC", vec![(1.0, 2.0), (5.0, 3.0)]), ("WAL", vec![(1.0, 1.0), (5.0, 0.5)])];
        for series in [bars, lines] {
            draw(&path, "title", ["aborted %", "committed/s"], &series).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("CFC") && text.contains("WAL") && text.contains("title"), "{text}");
        }
        assert!(draw(&dir.path().join("no/such"), "t", ["x", "y"], &[("CFC", vec![(1.0, 1.0)])]).is_err());
    }
}
