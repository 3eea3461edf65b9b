//! `make flash-bench`: the paper's figures from a TPC-C trace; tables in Markdown, and drawings.
//!
//! `cargo run --release -p ledgerstone-flash --example flash_bench -- small|medium|full [all|plain|comparison|aborts|rollbacks|max-c|sizes|buffers|write-through|choices] [DIR]`

use std::path::Path;
use std::time::Instant;

use ledgerstone_flash::evaluate::{self, Figure, Size};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let size = match argument(0) {
        Some("full") => Size::paper(),
        Some("medium") => Size::medium(),
        _ => Size::small(),
    };
    let figures = match argument(1) {
        Some("plain") => Vec::new(),
        Some("comparison") => vec![Figure::Comparison],
        Some("aborts") => vec![Figure::Aborts],
        Some("rollbacks") => vec![Figure::Rollbacks],
        Some("max-c") => vec![Figure::MaxC],
        Some("sizes") => vec![Figure::Sizes],
        Some("buffers") => vec![Figure::Buffers],
        Some("write-through") => vec![Figure::WriteThrough],
        _ => {
            vec![
                Figure::Comparison,
                Figure::Aborts,
                Figure::Rollbacks,
                Figure::MaxC,
                Figure::Sizes,
                Figure::Buffers,
                Figure::WriteThrough,
            ]
        }
    };
    if argument(1) == Some("choices") {
        for figure in [Figure::Comparison, Figure::MaxC] {
            for (name, experiment) in evaluate::choices(figure, &size, 1, &mut |_, _, _| {})? {
                println!("{name}\n\n{}", experiment.table());
            }
        }
        return Ok(());
    }
    let trace = evaluate::record(&size, 1)?;
    if matches!(argument(1), None | Some("all" | "plain")) {
        println!("{}", evaluate::plain_layer(&size, &trace)?);
    }
    for figure in figures {
        let began = Instant::now();
        let mut last = String::new();
        let experiment = figure.run(&size, &trace, &mut |what, done, of| {
            let tenth = format!("{what}: {} of 10", done * 10 / of.max(1));
            if tenth != last {
                eprintln!("{:6.0} s  {tenth}", began.elapsed().as_secs_f64());
                last = tenth;
            }
        })?;
        println!("{}", experiment.table());
        if let Some(dir) = argument(2) {
            std::fs::create_dir_all(dir)?;
            figure.draw(&experiment, Path::new(dir))?;
        }
    }
    Ok(())
}
