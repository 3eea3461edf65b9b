//! The paper's evaluation (5): figures 12 to 19 and table 3, driven by TPC-C.
//!
//! A figure is a list of series of points; it prints itself as a table and draws itself (see [`crate::plot`]). Nothing
//! here knows what the paper measured: docs/flash.md holds that beside what came out.

use std::path::Path;

use crate::error::Result;
use crate::nand::Geometry;
use crate::protocol::{Config, Protocol};
use crate::replay::{Measured, Setup, paper_device, replay};
use crate::rng::Rng;
use crate::tpcc::pages::{MemoryPages, Recorder, Requests};
use crate::tpcc::{self, Layout, Mix, Outcome, Rows, Scale};
use crate::trace::Trace;
use crate::{plain, plot};

/// How large an evaluation is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Of the benchmark.
    pub scale: Scale,
    /// How its rows lie.
    pub rows: Rows,
    /// How its transactions ask for rows that they read and change.
    pub requests: Requests,
    /// Of the device.
    pub geometry: Geometry,
    /// Transactions recorded.
    pub transactions: u32,
    /// Transactions before measuring.
    pub warm_up: u64,
    /// Transactions measured.
    pub measured: u64,
}

impl Size {
    /// The paper's: 20 warehouses, 32 GB. The drive is warm when collection is steady, which takes more than a
    /// reserve's worth of writing.
    pub fn paper() -> Self {
        Self {
            scale: Scale::full(20, 3000),
            rows: Rows::Packed,
            requests: Requests::AsMade,
            geometry: paper_device(1),
            transactions: 600_000,
            warm_up: 300_000,
            measured: 300_000,
        }
    }

    /// An eighth of the device and of the rows; 20 warehouses.
    pub fn medium() -> Self {
        Self {
            scale: Scale { warehouses: 20, districts: 10, customers: 375, items: 12_500, orders_max: 1000 },
            rows: Rows::Packed,
            requests: Requests::AsMade,
            geometry: paper_device(8),
            transactions: 100_000,
            warm_up: 50_000,
            measured: 30_000,
        }
    }

    /// 4 warehouses with a tenth of their rows, on a 256th of the device: for demonstrations and CI.
    pub fn small() -> Self {
        Self {
            scale: Scale { warehouses: 4, districts: 10, customers: 300, items: 10_000, orders_max: 2000 },
            rows: Rows::Packed,
            requests: Requests::AsMade,
            geometry: paper_device(128),
            transactions: 8000,
            warm_up: 6000,
            measured: 6000,
        }
    }
}

/// Loads TPC-C in memory, runs it, and records the pages that each transaction touches.
///
/// # Errors
/// [`crate::FlashError::Corrupt`] if a consistency condition does not hold at the end.
pub fn record(size: &Size, seed: u64) -> Result<Trace> {
    let page_bytes = size.geometry.page_bytes as usize;
    let layout = Layout::new(size.scale, size.rows, page_bytes)?;
    let mut rng = Rng::new(seed);
    let mut recorder = Recorder::new(MemoryPages::new(layout.page_count(), page_bytes), size.requests);
    tpcc::load(&layout, &mut recorder.pages, &mut rng, &mut |pages| {
        pages.commit();
        Ok(())
    })?;
    let mut trace = Trace::default();
    for _ in 0..size.transactions {
        let warehouse = rng.below(u64::from(size.scale.warehouses)) as u32;
        let kind = Mix::default().draw(&mut rng);
        match tpcc::run_one(&layout, &mut recorder, kind, warehouse, &mut rng)? {
            Outcome::Done => {
                recorder.pages.commit();
                recorder.end_transaction(&mut trace, true);
            }
            Outcome::RolledBack => {
                recorder.pages.roll_back();
                recorder.end_transaction(&mut trace, false);
            }
            Outcome::Full => {
                recorder.pages.roll_back();
                recorder.forget();
            }
        }
    }
    tpcc::check(&layout, &mut recorder.pages)?;
    Ok(trace)
}

/// The plain translation layer under a trace, pass by pass, as a table in Markdown.
///
/// # Errors
/// Those of [`plain::passes`].
pub fn plain_layer(size: &Size, trace: &Trace) -> Result<String> {
    let config = Config::new(Protocol::Wal);
    let mut text =
        "| pages | pass | pages written | different pages | copied/block | collection share | of writes alone |\n"
            .to_string();
    text.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    let together = trace.changed_together();
    let streams = [
        ("as in the database", trace),
        ("changed ones together", &together),
        ("changed ones together, drawn evenly", &together.drawn_evenly(1)),
    ];
    for (name, trace) in streams {
        let passes = plain::passes(size.geometry, config.ftl, config.buffer_pages, trace, 3)?;
        for (index, pass) in passes.iter().enumerate() {
            text.push_str(&format!(
                "| {name} | {} | {} | {} | {:.1} | {:.3} | {:.3} |\n",
                index + 1,
                pass.pages_written,
                pass.pages_touched,
                pass.copied_per_block,
                pass.collection_share,
                pass.collection_share_of_writes
            ));
        }
    }
    Ok(text)
}

/// Runs of one experiment: by protocol and by the value on the horizontal axis.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// What the horizontal axis is.
    pub axis: &'static str,
    /// Its values, the protocol, and what was measured.
    pub runs: Vec<(f64, Protocol, Measured)>,
}

/// Told the protocol's name and how many transactions of how many have ended.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

impl Experiment {
    fn run(&mut self, x: f64, setup: &Setup, trace: &Trace, progress: Progress<'_>) -> Result<()> {
        let protocol = setup.config.protocol;
        let name = format!("{} {} {x}", protocol.name(), self.axis);
        let measured = replay(setup, trace, &mut |done, of| progress(&name, done, of))?;
        self.runs.push((x, protocol, measured));
        Ok(())
    }

    /// What was measured at a point.
    pub fn at(&self, x: f64, protocol: Protocol) -> Option<&Measured> {
        self.runs.iter().find(|(own, p, _)| *own == x && *p == protocol).map(|(_, _, m)| m)
    }

    /// One series for each protocol.
    pub fn series(&self, y: impl Fn(&Measured) -> f64) -> Vec<(&'static str, Vec<(f64, f64)>)> {
        let mut series: Vec<(&'static str, Vec<(f64, f64)>)> = Vec::new();
        for (x, protocol, measured) in &self.runs {
            let point = (*x, y(measured));
            match series.iter_mut().find(|(name, _)| *name == protocol.name()) {
                Some((_, points)) => points.push(point),
                None => series.push((protocol.name(), vec![point])),
            }
        }
        series
    }

    /// Everything as a table in Markdown.
    pub fn table(&self) -> String {
        let mut text = format!(
            "| {} | protocol | committed/s | execution ms | commit ms | restarts | collection share | collection ms/commit | copied/block | late | pages written | flags moved | log pages | log MB | kept pages | recovery ms | tables MB | pages read | busy | chip op/s |\n",
            self.axis
        );
        text.push_str(&"| --- ".repeat(20));
        text.push_str("|\n");
        for (x, protocol, m) in &self.runs {
            text.push_str(&format!(
                "| {x} | {} | {:.1} | {:.2} | {:.2} | {:.3} | {:.3} | {:.3} | {:.2} | {:.2} | {} | {} | {} | {:.2} | {} | {:.1} | {:.2} | {} | {:.2} | {:.1} M |\n",
                protocol.name(),
                m.throughput(),
                m.execution_ms,
                m.commit_ms,
                m.restart_ratio(),
                m.collection_share,
                m.collection_ms_per_commit(),
                m.copied_per_block,
                m.copied_per_block_late,
                m.pages_written,
                m.flags_moved,
                m.log_pages,
                m.log_bytes as f64 / 1e6,
                m.kept_pages,
                m.recovery_ms,
                m.table_bytes as f64 / 1e6,
                m.pages_read,
                m.busy_share,
                m.chip_operations as f64 / m.real_seconds.max(1e-9) / 1e6,
            ));
        }
        text
    }
}

fn setup(size: &Size, protocol: Protocol) -> Setup {
    Setup { warm_up: size.warm_up, measured: size.measured, ..Setup::new(protocol, size.geometry) }
}

/// A group of the paper's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// All protocols under table 2: 12, 13, 16, 17, table 3.
    Comparison,
    /// The basic protocols over the share of aborted transactions, every change written at once: 14.
    Aborts,
    /// The extended protocols and WAL over the share of aborted transactions. The paper does not have it. It shows how
    /// much of 16 is due to rollbacks.
    Rollbacks,
    /// The extended protocols over `max_c`: 15.
    MaxC,
    /// Transactions that change at most 10 pages (0) beside longer ones (1): 18.
    Sizes,
    /// Over the size of the buffer: 19.
    Buffers,
    /// The basic protocols with every shadow page written at once (0), as section 3 assumes, beside the buffer (1).
    WriteThrough,
}

/// A figure under each combination of two choices that the paper leaves open: how rows lie, and whether a lock is
/// raised.
///
/// # Errors
/// Those of [`record`] and [`Figure::run`].
pub fn choices(figure: Figure, size: &Size, seed: u64, progress: Progress<'_>) -> Result<Vec<(String, Experiment)>> {
    let mut done = Vec::new();
    for rows in [Rows::Packed, Rows::HotApart] {
        for requests in [Requests::WriteAtOnce, Requests::AsMade] {
            let size = Size { rows, requests, ..*size };
            let trace = record(&size, seed)?;
            done.push((format!("{rows:?}, {requests:?}"), figure.run(&size, &trace, progress)?));
        }
    }
    Ok(done)
}

const BASIC: [Protocol; 4] = [Protocol::Cfc, Protocol::Afc, Protocol::Scc, Protocol::Bpcc];
const NO_FORCE: [Protocol; 3] = [Protocol::CfcEx, Protocol::AfcEx, Protocol::Wal];

impl Figure {
    /// Replays what the figure needs.
    ///
    /// # Errors
    /// Those of [`replay`].
    pub fn run(self, size: &Size, trace: &Trace, progress: Progress<'_>) -> Result<Experiment> {
        let axis = match self {
            Self::Comparison | Self::Aborts | Self::Rollbacks => "aborted %",
            Self::MaxC => "max_c",
            Self::Sizes => "long",
            Self::Buffers => "buffer pages",
            Self::WriteThrough => "buffered",
        };
        let mut experiment = Experiment { axis, runs: Vec::new() };
        match self {
            Self::Comparison => {
                for protocol in Protocol::ALL {
                    experiment.run(5.0, &setup(size, protocol), trace, progress)?;
                }
            }
            Self::Aborts => {
                for percent in [1, 5, 15, 20, 50] {
                    for protocol in BASIC {
                        let abort_per_mille = Some(percent * 10);
                        let setup = Setup { abort_per_mille, is_write_through: true, ..setup(size, protocol) };
                        experiment.run(percent as f64, &setup, trace, progress)?;
                    }
                }
            }
            Self::Rollbacks => {
                for percent in [0, 5, 20, 30, 50] {
                    for protocol in NO_FORCE {
                        let setup = Setup { abort_per_mille: Some(percent * 10), ..setup(size, protocol) };
                        experiment.run(percent as f64, &setup, trace, progress)?;
                    }
                }
            }
            Self::MaxC => {
                for max_c in [1, 2, 3, 4, 8] {
                    for protocol in [Protocol::CfcEx, Protocol::AfcEx] {
                        let mut setup = setup(size, protocol);
                        setup.config.max_c = max_c;
                        experiment.run(f64::from(max_c), &setup, trace, progress)?;
                    }
                }
            }
            Self::WriteThrough => {
                for (x, is_write_through) in [(0.0, true), (1.0, false)] {
                    for protocol in BASIC {
                        experiment.run(x, &Setup { is_write_through, ..setup(size, protocol) }, trace, progress)?;
                    }
                }
            }
            Self::Sizes => {
                let short = trace.filter_by_size(|pages| pages <= 10);
                let long = trace.filter_by_size(|pages| pages > 10);
                for (x, part) in [(0.0, short), (1.0, long)] {
                    for protocol in NO_FORCE {
                        experiment.run(x, &setup(size, protocol), &part, progress)?;
                    }
                }
            }
            Self::Buffers => {
                for pages in [256, 512, 1024, 2048, 4096] {
                    for protocol in NO_FORCE {
                        let mut setup = setup(size, protocol);
                        setup.config.buffer_pages = pages;
                        experiment.run(pages as f64, &setup, trace, progress)?;
                    }
                }
            }
        }
        Ok(experiment)
    }

    /// Draws throughput, collection, and what else the figure shows, as SVG files in a directory.
    ///
    /// # Errors
    /// [`crate::FlashError::Io`].
    pub fn draw(self, experiment: &Experiment, dir: &Path) -> Result<()> {
        let name = match self {
            Self::Comparison => "comparison",
            Self::Aborts => "aborts",
            Self::Rollbacks => "rollbacks",
            Self::MaxC => "max-c",
            Self::Sizes => "sizes",
            Self::Buffers => "buffers",
            Self::WriteThrough => "write-through",
        };
        let draw = |what: &str, unit: &str, y: &dyn Fn(&Measured) -> f64| {
            let path = dir.join(format!("{name}-{what}.svg"));
            plot::draw(&path, &format!("{name}: {what}"), [experiment.axis, unit], &experiment.series(y))
        };
        draw("throughput", "committed/s", &Measured::throughput)?;
        draw("collection", "ms a committed transaction", &Measured::collection_ms_per_commit)?;
        match self {
            Self::Comparison => {
                draw("execution", "ms", &|m| m.execution_ms)?;
                draw("commit", "ms", &|m| m.commit_ms)?;
                draw("recovery", "ms", &|m| m.recovery_ms)?;
                draw("log-pages", "pages", &|m| m.log_pages as f64)
            }
            Self::MaxC => draw("restarts", "a committed transaction", &Measured::restart_ratio),
            Self::Aborts | Self::Rollbacks | Self::Sizes | Self::Buffers | Self::WriteThrough => Ok(()),
        }
    }
}
