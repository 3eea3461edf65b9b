//! `make flash-bench`: the paper's figures from a TPC-C trace; tables in Markdown, and drawings.
//!
//! `cargo run --release -p ledgerstone-flash --example flash_bench -- small|medium|full
//! [all|plain|comparison|aborts|rollbacks|max-c|sizes|buffers|write-through|choices] [DIR]`

use std::path::PathBuf;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use ledgerstone_flash::evaluate::{self, Figure, Size};

/// The paper's figures from a TPC-C trace: tables in Markdown, and drawings.
#[derive(Parser)]
struct Args {
    /// How much of the paper's experiment: full is 32 GB.
    #[arg(value_enum, default_value = "small")]
    size: Scale,
    /// Which figures.
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// Where drawings go.
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scale {
    Small,
    Medium,
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    All,
    Plain,
    Comparison,
    Aborts,
    Rollbacks,
    MaxC,
    Sizes,
    Buffers,
    WriteThrough,
    Choices,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { size, what, dir } = Args::parse();
    let size = match size {
        Scale::Small => Size::small(),
        Scale::Medium => Size::medium(),
        Scale::Full => Size::paper(),
    };
    let figures = match what {
        What::Plain => Vec::new(),
        What::Comparison => vec![Figure::Comparison],
        What::Aborts => vec![Figure::Aborts],
        What::Rollbacks => vec![Figure::Rollbacks],
        What::MaxC => vec![Figure::MaxC],
        What::Sizes => vec![Figure::Sizes],
        What::Buffers => vec![Figure::Buffers],
        What::WriteThrough => vec![Figure::WriteThrough],
        What::All => {
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
        What::Choices => {
            for figure in [Figure::Comparison, Figure::MaxC] {
                for (name, experiment) in evaluate::choices(figure, &size, 1, &mut |_, _, _| {})? {
                    println!("{name}\n\n{}", experiment.table());
                }
            }
            return Ok(());
        }
    };
    let trace = evaluate::record(&size, 1)?;
    if matches!(what, What::All | What::Plain) {
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
        if let Some(dir) = &dir {
            std::fs::create_dir_all(dir)?;
            figure.draw(&experiment, dir)?;
        }
    }
    Ok(())
}
